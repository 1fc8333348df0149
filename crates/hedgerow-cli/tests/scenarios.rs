//! From a file to an answer, a model and predictions, as people come to it: at most three commands,
//! and nobody edits the data. The scenario of a Python user is in `hedgerow-py/tests/test_compare.py`.

#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::path::Path;

use tempfile::TempDir;

use crate::process::{hedgerow, json, text, write};

/// Hourly readings of twelve sensors with times, texts and empty cells. All have the same law, of
/// which a sensor alone sees too little.
fn sensors(folder: &Path, hours: u32) {
    let mut table = String::from("when,sensor,temperature,pressure,humidity,sky,load\n");
    let mut state = 7u32;
    let mut draw = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1 << 24)
    };
    for hour in 0..hours {
        for sensor in 1..=12 {
            let [temperature, pressure, humidity] = [draw(), draw(), draw()];
            let sky = ["clear", "cloud", "rain"][(3.0 * draw()) as usize];
            let bend = (6.0 * temperature).sin() * (4.0 * pressure).cos() + humidity * humidity;
            let load = 20.0 + 5.0 * bend + if sky == "rain" { 1.0 } else { 0.0 } + 0.1 * draw();
            let (day, hour) = (1 + hour / 24, hour % 24);
            let pressure = if draw() < 0.01 { String::new() } else { format!("{pressure:.4}") };
            writeln!(
                table,
                "2026-03-{day:02} {hour:02}:00,s{sensor},{temperature:.4},{pressure},{humidity:.4},{sky},{load:.4}",
            )
            .unwrap();
        }
    }
    write(folder, "sensors.csv", table);
}

fn ran(folder: &Path, arguments: &[&str]) -> String {
    let done = hedgerow(folder, arguments);
    assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
    text(&done.stdout)
}

/// Asks what the file is, takes the suggested command, and predicts.
#[test]
fn a_data_scientist_with_a_table_of_sensors() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    sensors(folder, 120);
    let info = ran(folder, &["data", "info", "sensors.csv"]);
    let suggested = info.lines().find_map(|line| line.trim().strip_prefix("hedgerow ")).unwrap();
    let mut simulate: Vec<&str> = suggested.split(' ').collect();
    simulate.extend(["--trials", "1", "--save-model", "model.safetensors"]);
    let shown = ran(folder, &simulate);
    let answer = shown.lines().find(|line| line.starts_with("Federating")).unwrap();
    assert!(answer.contains("lowers the error by"), "{answer}");
    assert!(shown.contains("tr+alone") && shown.contains("tr+pooled"), "{shown}");
    let said = ran(folder, &["predict", "model.safetensors", "--data", "sensors.csv"]);
    let mut lines = said.lines();
    let head: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| head.iter().position(|found| *found == name).unwrap();
    let (node, prediction) = (column("node"), column("prediction"));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 12 * 120);
    for sensor in (1..=12).map(|sensor| format!("s{sensor}")) {
        let own: Vec<f64> = rows
            .iter()
            .filter(|row| row[node] == sensor)
            .map(|row| row[prediction].parse().unwrap())
            .collect();
        assert_eq!(own.len(), 120, "{sensor}");
        assert!(own.iter().all(|value| (10.0..40.0).contains(value)), "{sensor}: {own:?}");
    }
}

/// Tries a fleet on one machine with a file, and takes the models out of what it left behind.
#[test]
fn an_operator_who_tries_a_fleet_with_a_file() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    sensors(folder, 40);
    let demo = ["demo", "--data", "sensors.csv", "--target", "load", "--node", "sensor"];
    let more = ["--time", "when", "--calendar", "none", "--categories", "one-hot"];
    let last = ["--rate", "1000", "--folder", "fleet", "--rounds", "40", "--json"];
    let found = json(&hedgerow(folder, &[&demo[..], &more, &last].concat()));
    assert_eq!(found["nodes"], 12);
    let error = |name: &str| found[name].as_f64().unwrap();
    assert!((error("mse") / error("simulated_mse") - 1.0).abs() < 1e-6, "{found}");
    ran(folder, &["export", "fleet/node-03.state", "--out", "node-03.safetensors"]);
    let model = json(&hedgerow(folder, &["model", "node-03.safetensors", "--json"]));
    assert_eq!((&model["method"], &model["nodes"]), (&"tr".into(), &["node-03"][..].into()));
    assert!(model["round"].as_u64().unwrap() > 1, "{model}");
}
