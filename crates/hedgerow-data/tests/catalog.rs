//! Compares the catalogue with the real files, if they are available: in the folder that
//! `HEDGEROW_DATA_DIR` names, or in `../shared/data` beside the project.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use hedgerow_data::catalog::{Entry, Kind, Located, entries, find, locate};
use hedgerow_data::fetch::{Checked, Mirror, Options, Patience, fetch};

fn data_folder() -> PathBuf {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    std::env::var_os("HEDGEROW_DATA_DIR").map_or_else(beside, PathBuf::from)
}

/// A variant of a data set. Prints a message and returns `None` if it is not available.
fn at_hand(entry: &Entry, kind: Kind) -> Option<Located> {
    let located = locate(entry, Some(kind), &[data_folder()]).ok();
    if located.is_none() {
        // Not with println, because the test runner captures it.
        let told = writeln!(
            std::io::stderr(),
            "SKIPPED: no {kind} of {} (set HEDGEROW_DATA_DIR to the folder of the data sets)",
            entry.name
        );
        told.unwrap();
    }
    located
}

fn both(name: &str) -> Option<(Located, Located)> {
    let entry = find(name).unwrap();
    at_hand(entry, Kind::Original).zip(at_hand(entry, Kind::Excerpt))
}

fn text(path: &Path) -> String {
    let mut text = String::new();
    let file = File::open(path).unwrap();
    let mut content: Box<dyn Read> = match path.extension().unwrap().to_str() {
        Some("gz") => Box::new(MultiGzDecoder::new(file)),
        _ => Box::new(file),
    };
    content.read_to_string(&mut text).unwrap();
    text
}

/// The rows of a file without its header, split at this separator.
fn rows(path: &Path, separator: char) -> Vec<Vec<String>> {
    let cut = |line: &str| {
        line.split(separator).map(|cell| cell.trim_matches(['"', ' ']).to_owned()).collect()
    };
    text(path).lines().skip(1).map(cut).collect()
}

fn numbers(path: &Path) -> Vec<Vec<f64>> {
    let number = |cell: &String| cell.parse().unwrap();
    rows(path, ',').iter().map(|row| row.iter().map(number).collect()).collect()
}

fn column(path: &Path, name: &str) -> Vec<f64> {
    let position =
        text(path).lines().next().unwrap().split(',').position(|column| column == name).unwrap();
    rows(path, ',').iter().map(|row| row[position].parse().unwrap()).collect()
}

fn assert_near(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((found - expected).abs() <= tolerance, "{what}: {found} is not {expected}");
}

#[test]
fn every_file_at_hand_has_the_promised_columns() {
    for entry in entries() {
        for variant in &entry.variants {
            let Some(located) = at_hand(entry, variant.kind) else { continue };
            assert_eq!(located.files.len(), variant.candidates[0].files.len(), "{}", entry.name);
            let settings = &located.settings["data"];
            for file in &located.files {
                let text = text(file);
                let first = text.lines().next().unwrap();
                let cells: Vec<_> = match first.contains([',', ';']) {
                    true => first.split([',', ';']).map(|cell| cell.trim_matches('"')).collect(),
                    false => first.split_whitespace().collect(),
                };
                let named: Vec<_> = cells.into_iter().filter(|cell| !cell.is_empty()).collect();
                assert_eq!(named.len(), variant.columns, "{}", file.display());
                let has_header = named[0].parse::<f64>().is_err();
                let names = match has_header {
                    true => named.iter().map(|&name| name.to_owned()).collect(),
                    false => {
                        (1..=named.len()).map(|number| format!("c{number}")).collect::<Vec<_>>()
                    }
                };
                let listed = |key: &str| match settings.get(key) {
                    Some(toml::Value::Array(list)) => {
                        list.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
                    }
                    Some(joined) => {
                        joined.as_str().unwrap().split('+').map(str::to_owned).collect()
                    }
                    None => Vec::new(),
                };
                let mentioned =
                    ["target", "features", "drop", "time", "node"].into_iter().flat_map(listed);
                for name in mentioned.filter(|name| name != "-") {
                    assert!(names.contains(&name), "{}: no column {name}", file.display());
                }
            }
        }
    }
}

#[test]
fn files_at_hand_have_the_checksums_of_the_catalogue() {
    for name in ["naval", "air-quality", "traffic", "appliances", "beijing"] {
        let entry = find(name).unwrap();
        if at_hand(entry, Kind::Original).is_none() {
            continue;
        }
        // No server listens there, so nothing can be downloaded.
        let mirror = Mirror::parse("http://127.0.0.1:1").unwrap();
        let options = Options { folder: data_folder(), mirror, patience: Patience::default() };
        let fetched = fetch(entry, &options, &mut |progress| panic!("{progress:?}")).unwrap();
        assert_eq!(fetched.len(), entry.source.files.len());
        assert!(
            fetched.iter().all(|file| !file.downloaded && file.checked == Checked::Catalogue),
            "{name}"
        );
    }
}

#[test]
fn traffic_and_temperature_are_the_first_rows_over_their_maximum() {
    for (name, rows) in [("traffic", 5500), ("temperature", 6500)] {
        let Some((original, excerpt)) = both(name) else { continue };
        let target = original.settings["data"]["target"].as_str().unwrap();
        assert_eq!(original.settings["data"]["rows"].as_integer(), Some(rows));
        let series = column(&original.files[0], target);
        let series = &series[..rows as usize];
        let least = series.iter().copied().fold(f64::INFINITY, f64::min);
        let most = series.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let normalised = numbers(&excerpt.files[0]);
        assert_eq!(normalised.len(), series.len());
        for (row, value) in normalised.iter().zip(series) {
            assert_near(row[0], (value - least) / most, 1e-15, name);
        }
    }
}

#[test]
fn air_quality_is_the_hours_with_carbon_monoxide_to_the_digits_of_uci_s_file() {
    let Some((original, excerpt)) = both("air-quality") else { return };
    let number = |cell: &str| cell.replace(',', ".").parse::<f64>().unwrap();
    let hours = rows(&original.files[0], ';');
    let hours: Vec<_> = hours.iter().take(9000).filter(|row| number(&row[2]) != -200.0).collect();
    let normalised = numbers(&excerpt.files[0]);
    assert_eq!((hours.len(), normalised.len()), (7322, 7322));
    for (hour, row) in hours.iter().zip(&normalised) {
        let hour_of_day: f64 = hour[1][..2].parse().unwrap();
        assert_near(row[0], (hour_of_day / 24.0 + 200.0) / 2975.0, 1e-12, "time of day");
        assert_near(row[13], (number(&hour[2]) - 0.1) / 11.8, 1e-12, "CO");
        for (cell, value) in hour[3..15].iter().zip(&row[1..13]) {
            // The authors had a file with more digits than UCI's CSV, which is rounded.
            let digits = cell.split_once(',').map_or(0, |(_, digits)| digits.len() as i32);
            assert_near(
                value * 2975.0 - 200.0,
                number(cell),
                0.5 * 0.1f64.powi(digits) + 1e-9,
                "sensor",
            );
        }
    }
}

#[test]
fn appliances_are_the_rows_up_to_300() {
    let Some((original, excerpt)) = both("appliances") else { return };
    let all = rows(&original.files[0], ',');
    // The first column (date) and the last two (random) are left out; the label is the second.
    let all = all
        .iter()
        .map(|row| row[1..27].iter().map(|cell| cell.parse().unwrap()).collect::<Vec<f64>>());
    let kept: Vec<_> = all.filter(|row| row[0] <= 300.0).collect();
    let normalised = numbers(&excerpt.files[0]);
    assert_eq!((kept.len(), normalised.len()), (18604, 18604));
    for (kept, row) in kept.iter().zip(&normalised) {
        assert_near(row[25], (kept[0] - 10.0) / 290.0, 1e-12, "Appliances");
        for (value, normalised) in kept[1..].iter().zip(&row[..25]) {
            assert_near(*normalised, (value + 6.6) / 778.9, 1e-6, "feature");
        }
    }
}
