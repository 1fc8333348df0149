//! Runs on classes and on several targets.

#![allow(clippy::unwrap_used)]

use std::fmt::Write;

use crate::common::{Files, assert_says, method};
use hedgerow_lab::results::Results;

/// Rows of two inputs, a text for where they lie, and two numbers.
fn table(rows: usize, name: impl Fn(f64, f64) -> &'static str) -> Files {
    let mut text = String::from("a,b,load,wind,kind\n");
    for t in 0..rows {
        let (a, b) = ((t as f64 * 0.7).sin(), (t as f64 * 1.3).cos());
        let (load, wind) = (1000.0 * a * b, a + b * b);
        writeln!(text, "{a},{b},{load},{wind},{}", name(a, b)).unwrap();
    }
    Files::one(&text)
}

fn two(a: f64, b: f64) -> &'static str {
    if a * a + b * b > 1.0 { "outside" } else { "inside" }
}

fn three(a: f64, b: f64) -> &'static str {
    match (a > 0.3, b > 0.0) {
        (true, _) => "east",
        (_, true) => "north",
        _ => "south",
    }
}

const CLASSES: [&str; 4] =
    ["data.features=[\"a\", \"b\"]", "data.target=kind", "run.trials=1", "federation.nodes=5"];

fn run(files: &Files, flags: &[&str]) -> Results {
    files.run(&[&CLASSES, flags].concat()).unwrap()
}

#[test]
fn texts_are_classes_for_every_default_entry() {
    for (files, classes) in [
        (table(1500, two), &["inside", "outside"][..]),
        (table(1500, three), &["east", "north", "south"]),
    ] {
        let results = run(&files, &["run.predictions=p.csv"]);
        assert_eq!(results.classes, classes);
        let of = |name: &str| method(&results, name).classes.as_ref().unwrap();
        let (tr, alone, pooled, mean) = (of("tr"), of("tr+alone"), of("tr+pooled"), of("mean"));
        assert!(tr.accuracy.mean > 0.85 && tr.auc.mean > 0.93, "{tr:?}");
        assert!(tr.accuracy.mean > alone.accuracy.mean && pooled.accuracy.mean > 0.85);
        assert!(tr.log_loss.mean < 0.7 * mean.log_loss.mean, "{tr:?} {mean:?}");
        assert!(tr.balanced_accuracy.mean > 0.8);
        for method in &results.predictions {
            let each = method.probabilities.chunks_exact(classes.len());
            assert_eq!(each.len(), method.predictions.len());
            for (probabilities, scored) in each.zip(&method.predictions) {
                let sum: f32 = probabilities.iter().sum();
                assert!((sum - 1.0).abs() < 1e-5 && probabilities.iter().all(|p| *p > 0.0));
                let most = probabilities.iter().copied().fold(0.0, f32::max);
                assert_eq!(probabilities[scored.value as usize], most);
            }
        }
        let predictions = results.predictions.iter().find(|method| method.method == "tr").unwrap();
        let mut confusion = vec![vec![0; classes.len()]; classes.len()];
        for scored in &predictions.predictions {
            confusion[scored.truth as usize][scored.value as usize] += 1;
        }
        assert_eq!(tr.confusion, confusion);
        let wrong = method(&results, "tr");
        assert!((wrong.mse.mean + tr.accuracy.mean - 1.0).abs() < 1e-12);
        assert!(wrong.nodes.len() == 5 && wrong.mae.is_none() && wrong.interval.is_none());
    }
}

#[test]
fn numbers_are_classes_if_the_task_says_so() {
    let files = table(600, |a, b| if a > b { "1" } else { "0" });
    let of = |flags: &[&str]| run(&files, &[&["federation.methods=[\"gr\"]"], flags].concat());
    assert!(of(&[]).classes.is_empty());
    let classes = of(&["data.task=classes"]);
    assert_eq!(classes.classes, ["0", "1"]);
    // The order of the names decides only which class is which.
    let turned = of(&["data.classes=[\"1\", \"0\"]"]);
    let accuracy =
        |results: &Results| method(results, "gr").classes.as_ref().unwrap().accuracy.mean;
    assert!(accuracy(&classes) > 0.9 && (accuracy(&classes) - accuracy(&turned)).abs() < 0.02);
}

#[test]
fn each_of_several_targets_has_the_error_that_it_has_alone() {
    let files = table(600, two);
    let of = |target: &str, scaling: &str| {
        let target = format!("data.target={target:?}");
        let flags = [&target, scaling, "run.predictions=p.csv", "data.features=[\"a\", \"b\"]"];
        let more = ["run.trials=1", "federation.nodes=5"];
        let methods = "federation.methods=[\"mean\", \"last\", \"gr\", \"mk\", \"central\"]";
        files.run(&[&flags[..], &more, &[methods]].concat()).unwrap()
    };
    for scaling in ["data.scaling=online", "data.scaling=whole-file"] {
        let (both, load, wind) =
            (of("load,wind", scaling), of("load", scaling), of("wind", scaling));
        assert_eq!(both.targets, ["load", "wind"]);
        for entry in &both.methods {
            let [first, second] = &entry.targets[..] else { panic!("two targets") };
            for (found, alone) in [(first, &load), (second, &wind)] {
                let alone = method(alone, &entry.name);
                let ratio = found.mse / alone.mse.mean;
                assert!((ratio - 1.0).abs() < 1e-9, "{scaling} {}: {ratio}", entry.name);
            }
            // In units of their standard deviations, 1 − R² are their errors.
            let mean = 1.0 - 0.5 * (first.r2 + second.r2);
            let ratio = entry.mse.mean / mean;
            assert!((ratio - 1.0).abs() < 0.02, "{}: {ratio}", entry.name);
        }
        let gr = method(&both, "gr");
        assert!(gr.mse.mean < 0.2 && gr.numbers_up > 1.5 * method(&load, "gr").numbers_up);
        assert_eq!(
            both.predictions[0].predictions.len(),
            2 * load.predictions[0].predictions.len()
        );
    }
}

#[test]
fn what_classes_have_not_is_refused() {
    let files = table(100, two);
    let refused = |flags: &[&str]| files.run(&[&CLASSES, flags].concat()).unwrap_err();
    assert_says(
        &refused(&["federation.methods=[\"mk\", \"hindsight\"]", "data.scaling=none"]),
        &["federation.methods", "without hindsight", "class"],
    );
    assert_says(&refused(&["data.task=numbers"]), &["row 2", "\"kind\"", "is not a number"]);
}
