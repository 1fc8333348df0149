//! A table as large as the paper's largest is read completely in bounded memory.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{command, gzip, skipped, wait_until};

/// As many as UCI's Twitter.data has.
const ROWS: usize = 583_250;
const COLUMNS: usize = 78;
const MOST_MEGABYTES: u64 = 200;

/// Counts and shares like the original: small whole numbers, and decimals of up to six digits.
fn number(state: &mut u64) -> String {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let drawn = *state >> 33;
    match drawn % 10 {
        0..4 => (drawn / 10 % 40).to_string(),
        4..7 => (drawn / 10 % 4000).to_string(),
        7 => format!("{}.0", drawn / 10 % 100),
        _ => format!("0.{:06}", drawn / 10 % 1_000_000),
    }
}

/// In the format of UCI's file. Blocks of rows are compressed once and repeated. The last row has a
/// unique label.
fn write_twitter(path: &Path) {
    const BLOCK: usize = 1000;
    let mut state = 1;
    let mut block = |rows: usize, last: &str| {
        let mut text = String::new();
        for row in 0..rows {
            for _ in 1..COLUMNS {
                text += &number(&mut state);
                text.push(',');
            }
            text += if row + 1 == rows && !last.is_empty() { last } else { "1.5" };
            text += if row % 7 == 0 { "\n" } else { "5\n" };
        }
        gzip(text.as_bytes())
    };
    let blocks: Vec<Vec<u8>> = (0..12).map(|_| block(BLOCK, "")).collect();
    let mut file = BufWriter::new(File::create(path).unwrap());
    for at in 0..ROWS / BLOCK {
        file.write_all(&blocks[at * 5 % blocks.len()]).unwrap();
    }
    file.write_all(&block(ROWS % BLOCK, "1000000.")).unwrap();
    file.flush().unwrap();
}

/// The output of a run and its peak memory in kilobytes, or `None` if the system doesn't report it.
fn watched(folder: &Path, arguments: &[&str]) -> (Value, Option<u64>) {
    // To a file, because a pipe would not be read meanwhile.
    let printed = folder.join("printed.json");
    let mut child = command(folder, arguments)
        .stdout(File::create(&printed).unwrap())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let (mut most, mut status) = (None, None);
    wait_until("the end of the process", || {
        let told =
            std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let peak = told.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse().ok());
        most = most.max(peak);
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.is_some_and(|status| status.success()), "{arguments:?}");
    (serde_json::from_slice(&std::fs::read(&printed).unwrap()).unwrap(), most)
}

fn assert_bounded(what: &str, kilobytes: Option<u64>) {
    match kilobytes {
        None => skipped(&format!("how much memory {what} takes, which /proc doesn't tell here")),
        Some(kilobytes) => {
            assert!(kilobytes > 1024, "{what}: {kilobytes} kB can't be");
            assert!(kilobytes < MOST_MEGABYTES * 1024, "{what}: {kilobytes} kB");
        }
    }
}

#[test]
fn the_largest_data_set_of_the_paper_needs_little_memory() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    std::fs::create_dir_all(folder.join("data/buzz")).unwrap();
    write_twitter(&folder.join("data/buzz/Twitter.data.gz"));
    let named = ["twitter-large", "--data-dir", "data", "--json"];

    let (info, most) = watched(folder, &[&["data", "info"], &named[..]].concat());
    assert_eq!(info["table"]["rows"], ROWS);
    let columns = info["table"]["columns"].as_array().unwrap();
    assert_eq!(columns.len(), COLUMNS);
    assert!(columns.iter().all(|column| column["kind"] == "number" && column["missing"] == 0));
    assert!(columns[COLUMNS - 1]["range"][2].as_f64().unwrap() >= 1e6);
    assert_bounded("data info", most);

    let run = ["--trials", "1", "--rounds", "200", "--method", "mk"];
    let (summary, most) = watched(folder, &[&["simulate", "--data"], &named[..], &run].concat());
    assert_eq!(
        (&summary["data"]["samples"], &summary["data"]["features"]),
        (&4000.into(), &77.into())
    );
    // Labels are scaled by the one in the last row: all others are next to nothing.
    let mse = summary["methods"][0]["mse"]["mean"].as_f64().unwrap();
    assert!(mse < 1e-9, "{mse}: the last row was not read");
    assert_bounded("simulate", most);
}

/// How far the estimate may be from the real peak of a large run.
const CLOSE: std::ops::Range<f64> = 0.7..1.3;

#[test]
fn what_a_run_takes_is_known_beforehand() {
    let folder = TempDir::new().unwrap();
    let usual = ["simulate", "--json", "--trials", "1", "--threads", "2"];
    for flags in [
        &["--nodes", "40000", "--rounds", "3", "--method", "mk"][..],
        &["--nodes", "20000", "--rounds", "2", "--method", "naive"],
        &["--nodes", "40000", "--rounds", "3", "--method", "local+personal"],
        &["--nodes", "30000", "--rounds", "2", "--method", "pof", "--scaling", "online"],
        &["--nodes", "4000", "--rounds", "60", "--method", "gr"],
        &["--nodes", "15000", "--rounds", "2", "--method", "fedpoe"],
        &["--nodes", "8000", "--rounds", "2", "--method", "sk"],
        &["--nodes", "2000", "--rounds", "3000", "--method", "linear"],
        // Two trials at a time.
        &["--nodes", "15000", "--rounds", "2", "--method", "mk", "--trials", "2"],
    ] {
        let (summary, peak) = watched(folder.path(), &[&usual[..], flags].concat());
        let expected = summary["memory_bytes"].as_f64().unwrap();
        let Some(kilobytes) = peak else {
            return skipped("how much memory a run takes, which /proc doesn't tell here");
        };
        let ratio = expected / (1024.0 * kilobytes as f64);
        assert!(
            kilobytes > 100_000,
            "{flags:?}: {kilobytes} kB are too little to be told from the program"
        );
        assert!(
            CLOSE.contains(&ratio),
            "{flags:?}: {expected} expected, {kilobytes} kB taken, {ratio:.2}"
        );
    }
}
