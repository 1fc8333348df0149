//! How fast tables are read: this library, which checks and converts every cell, and the `csv`
//! crate, which splits rows into bytes, in turns on the same text.

// Results go to the terminal.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::hint::black_box;
use std::io::Cursor;
use std::path::Path;
use std::time::Instant;

use hedgerow_data::rows::{self, Format, Row};

const ROWS: usize = 60_000;
const COLUMNS: usize = 78;
const ROUNDS: usize = 7;

fn main() {
    let mut text = String::new();
    for row in 0..ROWS {
        let cells: Vec<String> = (0..COLUMNS).map(|column| cell(row * COLUMNS + column)).collect();
        text.push_str(&cells.join(","));
        text.push('\n');
    }
    let text = text.into_bytes();
    let megabytes = text.len() as f64 / 1e6;
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let ours = seconds(|| read(text.clone()));
        let split = seconds(|| split(&text));
        println!("{:6.0} MB/s, and split only {:6.0} MB/s", megabytes / ours, megabytes / split);
        ratios.push(ours / split);
    }
    ratios.sort_by(f64::total_cmp);
    println!(
        "{ROWS} rows of {COLUMNS} numbers, {megabytes:.0} MB: {:.2} [{:.2}, {:.2}] times the time of splitting alone",
        ratios[ROUNDS / 2],
        ratios[0],
        ratios[ROUNDS - 1]
    );
}

/// Short numbers, whole and not, as in the Buzz data.
fn cell(index: usize) -> String {
    let number = index.wrapping_mul(2_654_435_761) >> 7;
    if index.is_multiple_of(3) {
        format!("{:.6}", (number % 1_000_000) as f64 / 1e6)
    } else {
        (number % 1000).to_string()
    }
}

fn seconds(work: impl FnOnce() -> usize) -> f64 {
    let start = Instant::now();
    assert_eq!(black_box(work()), ROWS * COLUMNS);
    start.elapsed().as_secs_f64()
}

fn read(text: Vec<u8>) -> usize {
    let mut table = rows::read(Cursor::new(text), Path::new("bench"), &Format::default()).unwrap();
    let (mut row, mut cells) = (Row::default(), 0);
    while table.next(&mut row).unwrap() {
        cells += row.len();
    }
    cells
}

fn split(text: &[u8]) -> usize {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text);
    let (mut record, mut cells) = (csv::ByteRecord::new(), 0);
    while reader.read_byte_record(&mut record).unwrap() {
        cells += record.len();
    }
    cells
}
