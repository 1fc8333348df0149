//! `hedgerow demo` on a file of one's own: from a table to processes that learn it.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use tempfile::TempDir;

use crate::process::{assert_refused, demo, json, write};

/// Readings of three meters by the hour, with a text column, a gap, and labels that are missing.
fn meters(folder: &Path) {
    let mut content = String::from("when,meter,sky,temperature,load\n");
    for row in 0..360 {
        let (hour, meter) = (row / 3, row % 3);
        let sky = ["clear", "rain"][hour / 5 % 2];
        let load = match row {
            7 | 12 | 13 => String::new(),
            _ => (300 + 40 * (hour % 24) + 10 * meter).to_string(),
        };
        let temperature = if row == 40 { "gone".to_owned() } else { (hour % 7).to_string() };
        content += &format!(
            "2026-03-{:02} {:02}:00,m{meter},{sky},{temperature},{load}\n",
            1 + hour / 24,
            hour % 24
        );
    }
    write(folder, "meters.csv", content);
}

const FLAGS: [&str; 12] = [
    "--data",
    "meters.csv",
    "--target",
    "load",
    "--node",
    "meter",
    "--time",
    "when",
    "--categories",
    "one-hot",
    "--missing",
    "gone",
];

#[test]
fn a_table_is_learned_over_the_network_as_in_a_simulation() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    meters(folder);
    // Before an agreed scale, nodes wait for a while.
    let more = ["--scaling", "none", "--rounds", "40", "--rate", "1000", "--json"];
    let found = json(&demo(folder, &[&FLAGS[..], &more].concat()));
    assert_eq!((&found["nodes"], &found["rounds"]), (&3.into(), &40.into()));
    let error = |name: &str| found[name].as_f64().unwrap();
    // The dashboard's sums are rounded.
    let ratio = error("mse") / error("simulated_mse");
    assert!((ratio - 1.0).abs() < 1e-6, "{found}");
    assert_eq!((&found["predictions"], &found["equal_predictions"]), (&120.into(), &120.into()));
}

#[test]
fn what_a_demonstration_cannot_do_is_refused() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    meters(folder);
    for (more, code, parts) in [
        (&["--data", "-"][..], 2, &["data.name", "read again"][..]),
        (&["--lags", "2", "--horizon", "3"], 2, &["data.horizon", "1", "3"]),
        (&["--set", "learning.ridge=1"], 2, &["learning.ridge", "[data]"]),
        (&["--method", "last"], 2, &["learning.method", "one of gr, tr", "\"last\""]),
        (&["--method", "tr+alone"], 2, &["learning.method", "\"tr+alone\""]),
        (&["--nodes", "4"], 2, &["federation.nodes", "3", "4"]),
        (&["--target", "laod"], 3, &["meters.csv", "\"laod\"", "load"]),
    ] {
        let output = demo(folder, &[&FLAGS[..], more].concat());
        assert_refused(&output, code, parts, folder);
    }
    let output = demo(folder, &["--nodes", "501", "--rounds", "1"]);
    assert_refused(&output, 2, &["federation.nodes", "500", "501"], folder);
}
