//! Nonsense in the flags for data, results and predictions: an exit code and one line that names
//! the flag or the key, what came and what may come. Nothing is left behind.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use tempfile::TempDir;

use crate::process::{assert_refused, hedgerow, text, write};

/// What comes after a command, the exit code, and what the message has.
type Case<'a> = (&'a [&'a str], i32, &'a [&'a str]);

/// Readings of three meters by the hour, with a text.
fn meters(folder: &Path) {
    let mut content = String::from("when,meter,sky,load\n");
    for row in 0..90 {
        let (hour, sky) = (row / 3, ["clear", "rain"][row / 5 % 2]);
        let when = format!("2026-03-{:02} {:02}:00", 1 + hour / 24, hour % 24);
        content += &format!("{when},m{},{sky},{}\n", row % 3, row % 11);
    }
    write(folder, "d.csv", content);
}

/// Every file of a folder with its content, and every folder without one.
fn contents(folder: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut all = BTreeMap::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let inner = if path.is_dir() { contents(&path) } else { BTreeMap::new() };
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        all.extend(inner.into_iter().map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        all.insert(name, path.is_file().then(|| std::fs::read(&path).unwrap()));
    }
    all
}

fn assert_all_refused(folder: &Path, command: &[&str], cases: &[Case<'_>]) {
    let before = contents(folder);
    for (flags, code, parts) in cases {
        let output = hedgerow(folder, &[command, flags].concat());
        assert_refused(&output, *code, parts, folder);
        assert!(contents(folder) == before, "{command:?} {flags:?} changed files");
    }
}

const SIMULATE: &[&str] = &[
    "simulate",
    "--data",
    "d.csv",
    "--target",
    "load",
    "--categories",
    "one-hot",
    "--trials",
    "1",
    "--method",
    "mk",
    "--budget",
    "20",
];

#[test]
fn what_says_how_to_read_a_table() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    meters(folder);
    let there = "there are when, meter, sky, load";
    let cases: &[Case<'_>] = &[
        (&["--calendar", "noon"], 2, &["--calendar: data.calendar", "hour, weekday", "\"noon\""]),
        (&["--calendar", "hour"], 2, &["--calendar: data.calendar", "data.time", "\"hour\""]),
        (&["--lags", "-1"], 2, &["--lags: data.lags", "at least 0", "-1"]),
        (&["--lags", "x"], 2, &["--lags: data.lags must be a whole number, but is \"x\""]),
        (&["--lags", "1.5"], 2, &["--lags: data.lags must be a whole number, but is \"1.5\""]),
        (&["--lags", "100000"], 2, &["data.lags", "at most", "100000"]),
        (&["--horizon", "0"], 2, &["--horizon: data.horizon", "at least 1", "0"]),
        (&["--categories", "hot"], 2, &["--categories: data.categories", "one-hot", "\"hot\""]),
        (&["--categories", "hashed:0"], 2, &["data.categories", "hashed:N", "\"hashed:0\""]),
        (&["--task", "class"], 2, &["--task: data.task", "numbers, classes", "\"class\""]),
        (&["--target", "lod"], 3, &["d.csv", "\"lod\" (did you mean \"load\"?)", there]),
        (&["--target", "load,lod"], 3, &["d.csv", "\"lod\" (did you mean \"load\"?)", there]),
        (&["--target", "load,load"], 3, &["d.csv", "\"load\": named twice in data.target"]),
        (&["--time", "whenn"], 3, &["d.csv", "\"whenn\" (did you mean \"when\"?)", there]),
        (&["--node", "metre"], 3, &["d.csv", "\"metre\" (did you mean \"meter\"?)", there]),
    ];
    assert_all_refused(folder, SIMULATE, cases);
    assert_all_refused(folder, &["data", "info", "d.csv"], &cases[..2]);
    assert_all_refused(folder, &["demo", "--data", "d.csv"], &cases[..3]);
}

#[test]
fn what_says_where_results_go_and_how_wide_intervals_are() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    meters(folder);
    std::fs::create_dir(folder.join("taken.csv")).unwrap();
    let range = "--interval: run.interval must be between 0.5 and 0.99, but is";
    let cases: &[Case<'_>] = &[
        (&["--predictions", "p.txt"], 2, &["--predictions: run.predictions", ".csv", "p.txt"]),
        (&["--predictions", "d.csv"], 2, &["--predictions: run.predictions", "data", "d.csv"]),
        (&["--predictions", "d.csv/p.csv"], 4, &["d.csv/p.csv", "d.csv is not a folder"]),
        (&["--predictions", "taken.csv"], 4, &["taken.csv", "not a file is in the way"]),
        (&["--save-model", "no/m"], 4, &["can't write no/m", "no such folder"]),
        (&["--save-model", "d.csv"], 4, &["d.csv: not a model of hedgerow", "left as it is"]),
        (&["--save-model", "."], 4, &[".", "left as it is"]),
        (&["--interval", "0"], 2, &[range, "0"]),
        (&["--interval", "1"], 2, &[range, "1"]),
        (&["--interval", "1.5"], 2, &[range, "1.5"]),
        (&["--interval", "nan"], 2, &[range, "nan"]),
        (&["--interval", "abc"], 2, &["--interval: run.interval must be a number", "\"abc\""]),
    ];
    assert_all_refused(folder, SIMULATE, cases);
}

#[test]
fn what_splits_a_grid_and_sets_its_budgets() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    meters(folder);
    let shard = "shard must be N/M with M from 1 to";
    let budget = "federation.budget must be";
    let cases: &[Case<'_>] = &[
        (&["--shard", "0/3"], 2, &[shard, "N from 1 to M", "\"0/3\""]),
        (&["--shard", "4/3"], 2, &[shard, "N from 1 to M", "\"4/3\""]),
        (&["--shard", "x"], 2, &[shard, "N from 1 to M", "\"x\""]),
        (&["--shard", ""], 2, &[shard, "N from 1 to M", "\"\""]),
        (&["--budget", "0"], 2, &[budget, "between 1 and 1000000, but is 0"]),
        (&["--budget", "50,2000000"], 2, &[budget, "between 1 and 1000000, but is 2000000"]),
        (&["--budget", "a,b"], 2, &[budget, "whole numbers between 1 and 1000000", "\"a\""]),
        (&["--budget", "50,"], 2, &[budget, "whole numbers between 1 and 1000000", "\"\""]),
        (&["--interval", "0"], 2, &["--interval: run.interval", "between 0.5 and 0.99", "0"]),
    ];
    assert_all_refused(folder, &["compare", "--data", "d.csv", "--trials", "1"], cases);
}

/// The same with other bytes of the same length in place of these.
fn replaced(mut content: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let at = content.windows(from.len()).position(|window| window == from).unwrap();
    content[at..at + to.len()].copy_from_slice(to);
    content
}

#[test]
fn models_and_nodes_that_are_not_what_was_said() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    meters(folder);
    let save = ["--node", "meter", "--time", "when", "--save-model", "m.safetensors"];
    let done = hedgerow(folder, &[SIMULATE, &save[..]].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    let model = std::fs::read(folder.join("m.safetensors")).unwrap();
    let version = b"\"version\":\"2\"";
    write(folder, "newer", replaced(model.clone(), version, b"\"version\":\"9\""));
    write(folder, "none", replaced(model.clone(), version, b"\"version\":\"x\""));
    write(folder, "other", replaced(model.clone(), b"hedgerow-model", b"hedgerow-house"));
    write(folder, "short", &model[..model.len() - 7]);
    write(folder, "shorter", &model[..20]);
    write(folder, "empty", "");
    let last = model.len() - 1;
    write(folder, "damaged", [&model[..last], &[model[last] ^ 1]].concat());
    std::fs::remove_dir_all(folder.join("hedgerow-out")).unwrap();
    for (file, parts) in [
        ("newer", &["written by a newer hedgerow", "format 9", "up to 2"][..]),
        ("none", &["not a model of hedgerow", "version \"x\""]),
        ("other", &["not a model of hedgerow", "\"hedgerow-house\""]),
        ("short", &["not a model of hedgerow", "safetensors"]),
        ("shorter", &["not a model of hedgerow", "safetensors"]),
        ("empty", &["not a model of hedgerow", "safetensors"]),
        ("damaged", &["damaged", "checksum"]),
        ("d.csv", &["not a model of hedgerow", "safetensors"]),
        ("nowhere", &["can't read nowhere"]),
    ] {
        let parts = &[&[file], parts].concat();
        assert_all_refused(folder, &["model"], &[(&[file], 3, parts)]);
        let flags = [file, "--data", "d.csv", "--out", "p.csv"];
        assert_all_refused(folder, &["predict"], &[(&flags, 3, parts)]);
    }
    let range = "--interval must be between 0.5 and 0.99, but is";
    let cases: &[Case<'_>] = &[
        (&["--node", "m9"], 2, &["m.safetensors: the model has no node \"m9\"", "m0, m1, m2"]),
        (&["--interval", "2"], 2, &[range, "\"2\""]),
        (&["--interval", "-1"], 2, &[range, "\"-1\""]),
        (&["--interval", "nan"], 2, &[range, "\"nan\""]),
        (&["--interval", "abc"], 2, &[range, "\"abc\""]),
        (&["--target", "lod"], 3, &["d.csv", "\"lod\" (did you mean \"load\"?)"]),
        (&["--target", "load,sky"], 3, &["d.csv: no column \"load,sky\"", "there are when, meter"]),
    ];
    let predict = ["predict", "m.safetensors", "--data", "d.csv"];
    assert_all_refused(folder, &[&predict[..], &["--out", "p.csv"]].concat(), cases);
    let cases: &[Case<'_>] = &[
        (&["--out", "no/p.csv"], 4, &["can't write no/p.csv"]),
        (&["--out", "d.csv"], 2, &["--out d.csv: that is what --data reads"]),
        (&["--out", "m.safetensors"], 2, &["--out m.safetensors: that is the model"]),
    ];
    assert_all_refused(folder, &predict, cases);
    let cases: &[Case<'_>] = &[(&["--data", "nowhere.csv"], 3, &["can't read nowhere.csv"])];
    assert_all_refused(folder, &predict[..2], cases);
    // The parser's own words have a hint below the line.
    let before = contents(folder);
    let output = hedgerow(folder, &[&predict[..], &["--level", "2"]].concat());
    let message = text(&output.stderr);
    assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{message}");
    assert!(message.starts_with("error: unexpected argument '--level' found\n"), "{message}");
    assert!(contents(folder) == before);
}
