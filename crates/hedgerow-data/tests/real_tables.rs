//! Files as published, if they are available. Their layout is detected without settings.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::PathBuf;

use hedgerow_data::rows::{self, Cell, Format, Row};

/// Prints a message and returns `None` if the file is not available.
fn file(name: &str) -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let path = std::env::var_os("HEDGEROW_DATA_DIR").map_or_else(beside, PathBuf::from).join(name);
    if !path.exists() {
        // Not with println, because the test runner captures it.
        let told = writeln!(
            std::io::stderr(),
            "SKIPPED: no {name} (set HEDGEROW_DATA_DIR to the folder of the data sets)"
        );
        told.unwrap();
        return None;
    }
    Some(path)
}

/// Rows, and of every column how many cells are missing, numbers and text.
fn counts(name: &str, missing: &[&str]) -> Option<(Vec<String>, u64, Vec<[u64; 3]>)> {
    let missing = missing.iter().map(|marker| (*marker).to_owned()).collect();
    let mut rows = rows::open(&file(name)?, &Format { missing, ..Format::default() }).unwrap();
    let mut counts = vec![[0; 3]; rows.columns().len()];
    let (mut row, mut read) = (Row::default(), 0);
    while rows.next(&mut row).unwrap() {
        read += 1;
        for (column, counts) in counts.iter_mut().enumerate() {
            counts[match row.cell(column) {
                Cell::Missing => 0,
                Cell::Number(_) => 1,
                Cell::Text(_) => 2,
            }] += 1;
        }
    }
    Some((rows.columns().to_vec(), read, counts))
}

#[test]
fn semicolons_decimal_commas_and_empty_columns_and_rows() {
    let Some((columns, rows, counts)) = counts("air_quality/AirQualityUCI.csv.gz", &["-200"])
    else {
        return;
    };
    assert_eq!((columns.len(), rows), (15, 9357));
    assert_eq!((columns[2].as_str(), columns[14].as_str()), ("CO(GT)", "AH"));
    // Date and time are text, and 1683 values of carbon monoxide are missing.
    assert_eq!(counts[..3], [[0, 0, 9357], [0, 0, 9357], [1683, 7674, 0]]);
    assert!(counts[3..].iter().all(|[_, _, text]| *text == 0));
}

#[test]
fn blanks_without_a_header() {
    let Some((columns, rows, counts)) = counts("naval/data.txt.gz", &[]) else { return };
    assert_eq!((columns.len(), columns[17].as_str(), rows), (18, "c18", 11934));
    assert!(counts.iter().all(|count| *count == [0, 11934, 0]));
}

#[test]
fn quoted_numbers_with_blanks_inside() {
    let Some((columns, rows, counts)) = counts("appliances_energy/energydata_complete.csv.gz", &[])
    else {
        return;
    };
    assert_eq!((columns.len(), columns[1].as_str(), rows), (29, "Appliances", 19735));
    assert_eq!(counts[0], [0, 0, 19735]);
    assert!(counts[1..].iter().all(|count| *count == [0, 19735, 0]));
}

#[test]
fn text_and_missing_values_among_numbers() {
    let station = "beijing_multisite/PRSA_Data_Dingling_20130301-20170228.csv.gz";
    let Some((columns, rows, counts)) = counts(station, &["NA"]) else { return };
    assert_eq!((columns.len(), columns[5].as_str(), rows), (18, "PM2.5", 35064));
    assert!(counts[5][0] > 0 && counts[5][2] == 0);
    assert_eq!(counts[17], [0, 0, 35064]);
}

#[test]
fn text_with_blanks_between_commas() {
    let metro = "metro_traffic/Metro_Interstate_Traffic_Volume.csv.gz";
    let Some((columns, rows, counts)) = counts(metro, &[]) else { return };
    assert_eq!((columns.len(), rows), (9, 48204));
    assert_eq!((counts[0], counts[8]), ([0, 0, 48204], [0, 48204, 0]));
}
