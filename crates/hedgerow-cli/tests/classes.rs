//! From a file with text labels to an answer, predictions and a federation.

#![allow(clippy::unwrap_used)]

use std::fmt::Write;

use serde_json::Value;

use crate::process::{assert_refused, demo, hedgerow, json};

fn machines() -> String {
    let mut text = String::from("heat,shake,power,state\n");
    for t in 0..400 {
        let (heat, shake) = ((f64::from(t) * 0.7).sin(), (f64::from(t) * 1.3).cos());
        let state = if heat > 0.4 {
            "hot"
        } else if shake > 0.2 {
            "loose"
        } else {
            "fine"
        };
        writeln!(text, "{heat},{shake},{},{state}", 50.0 * heat * shake).unwrap();
    }
    text
}

#[test]
fn a_file_with_text_labels_gives_an_answer_and_predictions() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("machines.csv"), machines()).unwrap();
    let flags = ["--data", "machines.csv", "--target", "state", "--nodes", "4", "--trials", "1"];
    let output = hedgerow(
        folder,
        &[&["simulate"], &flags[..], &["--predictions", "predictions.csv"]].concat(),
    );
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{text}");
    for part in
        ["the share of wrong classes", "accuracy", "log loss", "AUC", "classes: fine, hot, loose"]
    {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let predictions = std::fs::read_to_string(folder.join("predictions.csv")).unwrap();
    let heading = "row,time,node,method,truth,prediction,probability_fine,probability_hot,\
                   probability_loose";
    assert_eq!(predictions.lines().next(), Some(heading));
    let page = std::fs::read_to_string(folder.join("hedgerow-out/report.html")).unwrap();
    assert!(
        page.contains("Balanced accuracy") && page.contains("Share of wrong classes over time")
    );
    let found = json(&hedgerow(
        folder,
        &[&["simulate"], &flags[..], &["--json", "--method", "mean,tr", "--seed", "2"]].concat(),
    ));
    assert!(found["methods"][1]["classes"]["accuracy"]["mean"].as_f64().unwrap() > 0.75, "{found}");
    let several = ["--target", "power,heat", "--features", "shake", "--method", "mean"];
    let found = json(&hedgerow(
        folder,
        &[&["simulate", "--json", "--data", "machines.csv", "--nodes", "4"], &several[..]].concat(),
    ));
    assert_eq!(found["methods"][0]["targets"][1]["target"], "heat", "{found}");
    let both = ["--target", "heat", "--series", "heat,power"];
    let elsewhere = tempfile::tempdir().unwrap();
    let output = hedgerow(elsewhere.path(), &[&["simulate"], &both[..]].concat());
    let parts = ["data.series", "at every node", "a node of each"];
    assert_refused(&output, 2, &parts, elsewhere.path());
}

/// A demonstration with processes of `join`, whose output has to be that of a simulation: values,
/// classes and probabilities of each prediction.
fn demonstrate(scaling: &str, more: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("machines.csv"), machines()).unwrap();
    let flags = ["--data", "machines.csv", "--nodes", "3", "--rounds", "60", "--rate", "1000"];
    let flags = [&["--json", "--scaling", scaling], &flags[..], more].concat();
    let found = json(&demo(folder.path(), &flags));
    // Samples before the first scale are not scored.
    assert!(found["predictions"].as_u64().unwrap() > 100, "{found}");
    assert_eq!(found["predictions"], found["equal_predictions"], "{found}");
    found
}

#[test]
fn a_federation_with_classes_equals_its_simulation() {
    let found = demonstrate("none", &["--target", "state", "--method", "gr"]);
    assert_eq!(found["mse"], found["simulated_mse"], "{found}");
    assert!(found["mse"].as_f64().unwrap() < 0.4 && found["samples"] == 180, "{found}");
    demonstrate("online", &["--target", "state"]);
}

#[test]
fn a_federation_with_several_targets_equals_its_simulation() {
    for scaling in ["none", "online"] {
        let several = ["--target", "power,heat", "--features", "shake"];
        let found = demonstrate(scaling, &several);
        // In the targets' own units; the dashboard's sums are rounded.
        let error = |name: &str| found[name].as_f64().unwrap();
        assert!(error("mse") > 10.0, "{found}");
        assert!((error("mse") / error("simulated_mse") - 1.0).abs() < 1e-6, "{found}");
    }
}

#[test]
fn a_number_among_texts_is_a_class_and_a_text_among_numbers_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let flags = ["--data", "t.csv", "--nodes", "2", "--trials", "1", "--method", "mean"];
    let table = |usual: fn(usize) -> String, odd: &str| {
        let label = |row| if row == 20 { odd.to_owned() } else { usual(row) };
        let rows: String = (0..40).map(|row| format!("0.{},{}\n", row % 7, label(row))).collect();
        std::fs::write(folder.join("t.csv"), format!("a,y\n{rows}")).unwrap();
    };
    table(|row| row.to_string(), "odd");
    let output = hedgerow(folder, &[&["simulate"], &flags[..]].concat());
    assert_refused(&output, 3, &["row 22", "\"odd\""], folder);
    table(|row| ["a", "b"][row % 2].to_owned(), "3");
    let found = json(&hedgerow(folder, &[&["simulate", "--json"], &flags[..]].concat()));
    assert_eq!(found["classes"], serde_json::json!(["3", "a", "b"]), "{found}");
}
