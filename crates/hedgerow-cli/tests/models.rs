//! From a table with sensors to a model and predictions: `simulate --save-model`, `predict`,
//! `model`. A stored node says what a longer run says of its next row, bit for bit.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use crate::process::{assert_refused, hedgerow, json, text, write};
use hedgerow::method::METHODS;
use tempfile::TempDir;

const NODES: usize = 3;
const ROUNDS: usize = 60;

/// Rows of sensors in turn: a time, a name, an input with gaps, a text and a label.
fn table(rounds: usize) -> String {
    let mut table = String::from("when,sensor,temp,sky,load\n");
    for t in 0..rounds {
        for node in 0..NODES {
            let temp = 10.0 + ((t * 37 + node * 11) % 101) as f32 / 7.0;
            let sky = ["clear", "rain", "fog"][(t + 2 * node) % 3];
            let load = 50.0 + 5.0 * node as f32 + (temp / 3.0).sin() * 9.0 + (t % 3) as f32;
            let temp = if (t + node) % 13 == 0 { String::new() } else { temp.to_string() };
            table += &format!("{},sensor-{node},{temp},{sky},{load}\n", 3600 * t);
        }
    }
    table
}

fn simulate(folder: &Path, data: &str, methods: &str, more: &[&str]) -> String {
    let fixed = [
        "simulate",
        "--data",
        data,
        "--method",
        methods,
        "--node",
        "sensor",
        "--time",
        "when",
        "--categories",
        "one-hot",
        "--trials",
        "1",
        "--set",
        "kernels.variances=[0.1, 1.0, 10.0]",
        "--budget",
        "40",
    ];
    let target: &[&str] = if more.contains(&"--target") { &[] } else { &["--target", "load"] };
    let output = hedgerow(folder, &[&fixed[..], target, more].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Node, prediction and ends of the interval of the last row of each node; by method.
fn last_rows(predictions: &str) -> BTreeMap<String, Vec<[String; 4]>> {
    let mut rows: BTreeMap<String, Vec<[String; 4]>> = BTreeMap::new();
    for line in predictions.lines().skip(1) {
        let cells: Vec<String> = line.split(',').map(str::to_owned).collect();
        let row = [2, 5, 6, 7].map(|cell: usize| cells[cell].clone());
        rows.entry(cells[3].clone()).or_default().push(row);
    }
    rows.values_mut().for_each(|rows| drop(rows.drain(..rows.len() - NODES)));
    rows
}

/// The same of the output of `predict`.
fn last_predictions(output: &str) -> Vec<[String; 4]> {
    let rows = output.lines().skip(1).map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        [1, 2, 3, 4].map(|cell: usize| cells[cell].to_owned())
    });
    let mut rows: Vec<_> = rows.collect();
    rows.drain(..rows.len() - NODES);
    rows
}

fn predict(folder: &Path, more: &[&str]) -> std::process::Output {
    hedgerow(folder, &[&["predict", "m.safetensors", "--data", "long.csv"], more].concat())
}

fn with_tables() -> TempDir {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "short.csv", table(ROUNDS));
    write(folder.path(), "long.csv", table(ROUNDS + 1));
    folder
}

#[test]
fn a_stored_node_says_what_a_longer_run_says_of_its_next_row() {
    let folder = with_tables();
    let federated = METHODS.iter().filter(|info| info.halves.is_some());
    let choices = federated.flat_map(|info| match (info.takes_kernel, info.prefers_personal) {
        (true, _) => vec![info.name.to_owned()],
        (_, true) => vec![info.name.to_owned(), format!("{}+shared", info.name)],
        (_, false) => vec![info.name.to_owned(), format!("{}+personal", info.name)],
    });
    let choices: Vec<String> = choices.collect();
    assert!(choices.len() > 12, "{choices:?}");
    simulate(folder.path(), "long.csv", &choices.join(","), &["--predictions", "p.csv"]);
    let expected = last_rows(&std::fs::read_to_string(folder.path().join("p.csv")).unwrap());
    for choice in &choices {
        simulate(folder.path(), "short.csv", choice, &["--save-model", "m.safetensors"]);
        let shown = json(&hedgerow(folder.path(), &["model", "m.safetensors", "--json"]));
        let method = shown["card"]["method"].as_str().unwrap();
        assert!(method.starts_with(choice.as_str()), "{method} of {choice}");
        let output = text(&predict(folder.path(), &[]).stdout);
        assert!(output.starts_with("row,node,prediction,lower,upper,label,squared_error\n"));
        assert_eq!(last_predictions(&output), expected[method], "{choice}");
    }
}

/// The lines of the last row of each node, by method: all cells but those of the row and time.
fn last_lines(predictions: &str, lines: usize) -> BTreeMap<String, Vec<String>> {
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in predictions.lines().skip(1) {
        let mut cells: Vec<&str> = line.split(',').collect();
        let method = cells.remove(3).to_owned();
        rows.entry(method).or_default().push(cells[2..].join(","));
    }
    rows.values_mut().for_each(|rows| drop(rows.drain(..rows.len() - lines)));
    rows
}

#[test]
fn classes_and_several_targets_are_predicted_as_a_longer_run_does() {
    let folder = with_tables();
    for (name, rounds) in [("short.csv", ROUNDS), ("long.csv", ROUNDS + 1)] {
        let mut lines = table(rounds).lines().map(str::to_owned).collect::<Vec<_>>();
        lines[0] += ",wind,two,five";
        for (at, line) in lines.iter_mut().enumerate().skip(1) {
            let load: f32 = line.split(',').nth(4).unwrap().parse().unwrap();
            let kind = load as usize % 5;
            let two = ["no", "yes"][kind % 2];
            *line += &format!(",{},{two},k{kind}", load * 2.0 + (at % 4) as f32);
        }
        write(folder.path(), name, lines.join("\n"));
    }
    let choices = ["gr", "gr+shared", "tr", "tr+shared", "mk", "mk+personal"];
    let mut tried = 0;
    for (target, heading, lines) in [
        ("two", "row,node,prediction,probability_no,probability_yes,label,wrong\n", NODES),
        (
            "five",
            "row,node,prediction,probability_k0,probability_k1,probability_k2,probability_k3,\
             probability_k4,label,wrong\n",
            NODES,
        ),
        ("load,wind", "row,node,target,prediction,lower,upper,label,squared_error\n", 2 * NODES),
    ] {
        let others = ["load", "wind", "two", "five"];
        let others = others.into_iter().filter(|name| target.split(',').all(|one| one != *name));
        let drop = format!("data.drop={:?}", others.collect::<Vec<_>>());
        let more = ["--target", target, "--set", &drop];
        let long = ["--predictions", "p.csv"];
        simulate(folder.path(), "long.csv", &choices.join(","), &[&more[..], &long].concat());
        let predictions = std::fs::read_to_string(folder.path().join("p.csv")).unwrap();
        let expected = last_lines(&predictions, lines);
        for choice in choices {
            let short = ["--save-model", "m.safetensors"];
            simulate(folder.path(), "short.csv", choice, &[&more[..], &short].concat());
            let shown = json(&hedgerow(folder.path(), &["model", "m.safetensors", "--json"]));
            let method = shown["card"]["method"].as_str().unwrap();
            let output = text(&predict(folder.path(), &[]).stdout);
            assert!(output.starts_with(heading), "{output}");
            let found: Vec<&str> = output.lines().skip(1).collect();
            for (line, wanted) in found[found.len() - lines..].iter().zip(&expected[method]) {
                // Truth comes before the prediction there, and the label after it here.
                let cells: Vec<&str> = line.split(',').skip(1).collect();
                let mut wanted: Vec<&str> = wanted.split(',').collect();
                wanted.remove(if target == "load,wind" { 2 } else { 1 });
                assert_eq!(cells[..cells.len() - 2], wanted, "{choice} {target}");
                tried += 1;
            }
        }
        let card = text(&hedgerow(folder.path(), &["model", "m.safetensors"]).stdout);
        let parts = match target {
            "load,wind" => ["RMSE load", "RMSE wind"],
            "two" => ["classes    no, yes", "accuracy"],
            _ => ["classes    k0, k1, k2, k3, k4", "log loss"],
        };
        assert!(parts.iter().all(|part| card.contains(part)), "{card}");
        let told = predict(folder.path(), &["--json"]);
        let line: serde_json::Value =
            serde_json::from_str(text(&told.stdout).lines().last().unwrap()).unwrap();
        let summary: serde_json::Value = serde_json::from_slice(&told.stderr).unwrap();
        if target == "load,wind" {
            assert!(line["target"] == "wind" && summary["mse"]["wind"].is_number(), "{line}");
        } else {
            let all = line["probabilities"].as_object().unwrap();
            let sum: f64 = all.values().map(|one| one.as_f64().unwrap()).sum();
            assert!((sum - 1.0).abs() < 1e-5 && summary["accuracy"].is_number(), "{line}");
        }
    }
    assert_eq!(tried, choices.len() * 4 * NODES);
    let refused = predict(folder.path(), &["--target", "load"]);
    assert!(text(&refused.stderr).contains("the model has 2 targets"), "{refused:?}");
}

#[test]
fn texts_that_a_model_has_not_seen_are_counted() {
    let folder = with_tables();
    simulate(folder.path(), "short.csv", "mk", &["--save-model", "m.safetensors"]);
    write(folder.path(), "long.csv", "temp,sky\n1,snow\n2,hail\n3,rain\n4,snow\n5,\n");
    let told = text(&predict(folder.path(), &[]).stderr);
    let line = "3 values of column `sky` are not known to the model: hail, snow, ...";
    assert!(told.contains(line), "{told}");
    let told = predict(folder.path(), &["--json"]);
    let summary: serde_json::Value = serde_json::from_slice(&told.stderr).unwrap();
    assert_eq!(summary["unknown_texts"][0]["values"], 3, "{summary}");
}

#[test]
fn lags_and_horizons_are_part_of_a_model() {
    let folder = with_tables();
    let past = [
        "--lags",
        "3",
        "--horizon",
        "2",
        "--set",
        "data.lagged=[\"temp\"]",
        "--set",
        "data.calendar=hour",
    ];
    let [long, short] = [["--predictions", "p.csv"], ["--save-model", "m.safetensors"]];
    simulate(folder.path(), "long.csv", "tr", &[&past[..], &long].concat());
    let told = simulate(folder.path(), "short.csv", "mean,tr,mk", &[&past[..], &short].concat());
    let line = "Model: m.safetensors (tr: the shared model and the own layers of 3 nodes; \
                hedgerow predict m.safetensors --data FILE)\n";
    assert!(told.ends_with(line), "{told}");
    let expected = last_rows(&std::fs::read_to_string(folder.path().join("p.csv")).unwrap());
    // A row whose label isn't known yet, with its columns in another order.
    let mut lines: Vec<String> = table(ROUNDS + 1).lines().map(str::to_owned).collect();
    for line in &mut lines {
        let cells: Vec<&str> = line.split(',').collect();
        let is_last = cells[0] == (3600 * ROUNDS).to_string();
        let load = if is_last { "" } else { cells[4] };
        *line = format!("{load},{},{},{},{}", cells[3], cells[2], cells[1], cells[0]);
    }
    write(folder.path(), "long.csv", lines.join("\n"));
    let output = predict(folder.path(), &[]);
    assert_eq!(last_predictions(&text(&output.stdout)), expected["tr"]);
    let one = predict(folder.path(), &["--node", "sensor-1"]);
    let told = text(&one.stderr);
    assert!(told.contains("\n4 rows not predicted: the model needs the 4 rows"), "{told}");
    let one = text(&one.stdout);
    let [node, prediction, ..] = &expected["tr"][1];
    let last = one.lines().last().unwrap();
    assert!(last.contains(&format!("{node},{prediction},")), "{last}");
    assert_eq!(one.lines().count(), 1 + ROUNDS + 1 - 4, "four rows of the past");
}

#[test]
fn a_model_says_what_it_is_and_who_predicts() {
    let folder = with_tables();
    simulate(
        folder.path(),
        "short.csv",
        "last,tr+alone,tr,tr+pooled",
        &["--save-model", "m.safetensors"],
    );
    let shown = text(&hedgerow(folder.path(), &["model", "m.safetensors"]).stdout);
    for part in [
        "m.safetensors: tr (TR-OFL) before round",
        "data       short.csv: 180 samples, 3 nodes",
        "predicts   load",
        "inputs     temp, sky (clear, fog, rain)",
        "nodes      3, each with a layer of its own: sensor-0, sensor-1, sensor-2",
        "tr (this model)",
        "tr+alone",
        "tr+pooled",
        "RMSE",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    let shared = predict(folder.path(), &["--shared"]);
    assert!(text(&shared.stdout).starts_with("row,node,prediction,label,squared_error\n"));
    let told = text(&shared.stderr);
    assert!(told.contains("by the shared model, without what nodes have learned"), "{told}");
    let narrow = predict(folder.path(), &["--node", "sensor-1", "--interval", "0.5", "--json"]);
    let wide = predict(folder.path(), &["--node", "sensor-1", "--json"]);
    let width = |output: &std::process::Output| {
        let last: serde_json::Value =
            serde_json::from_str(text(&output.stdout).lines().last().unwrap()).unwrap();
        assert_eq!(last["node"], "sensor-1");
        last["upper"].as_f64().unwrap() - last["lower"].as_f64().unwrap()
    };
    assert!(width(&narrow) < width(&wide));
    let summary: serde_json::Value = serde_json::from_slice(&wide.stderr).unwrap();
    assert_eq!(summary["by"]["node"], "sensor-1");
    // Without a column of nodes, a table is the shared model's.
    let rows = "temp,sky\n12,rain\n,fog\n";
    write(folder.path(), "long.csv", rows);
    let output = predict(folder.path(), &[]);
    assert!(text(&output.stdout).starts_with("row,prediction\n2,"));
    let told = text(&output.stderr);
    assert!(told.starts_with("2 rows by the shared model"), "{told}");
    assert!(told.contains("no column \"sensor\" names the node"), "{told}");
}

#[test]
fn what_cannot_be_predicted_or_saved_is_refused_in_words() {
    let folder = with_tables();
    simulate(folder.path(), "short.csv", "mk", &["--save-model", "m.safetensors"]);
    std::fs::remove_dir_all(folder.path().join("hedgerow-out")).unwrap();
    let refuses = |more: &[&str], code, parts: &[&str]| {
        assert_refused(
            &predict(folder.path(), &[more, &["--out", "p.csv"]].concat()),
            code,
            parts,
            folder.path(),
        );
        assert!(!folder.path().join("p.csv").exists());
    };
    refuses(
        &["--node", "sensor1"],
        2,
        &["m.safetensors: the model has no node \"sensor1\" (did you mean \"sensor-1\"?)"],
    );
    refuses(&["--interval", "2"], 2, &["--interval", "between 0.5 and 0.99, but is \"2\""]);
    refuses(&["--shared", "--interval", "0.8"], 2, &["--interval", "--node NAME"]);
    refuses(&["--target", "lod"], 3, &["no column \"lod\" (did you mean \"load\"?)"]);
    for (content, parts) in [
        (
            "sensor,temp,sky\nsensor-9,1,rain\n",
            &["row 2, column \"sensor\": the model has no node \"sensor-9\"", "--shared"][..],
        ),
        (
            "sensor,tmp,sky\nsensor-1,1,rain\n",
            &["long.csv: no column \"temp\" (did you mean \"tmp\"?)"],
        ),
        (
            "sensor,temp,sky\nsensor-1,warm,rain\n",
            &["row 2, column \"temp\": \"warm\" is not a number", "--missing"],
        ),
    ] {
        write(folder.path(), "long.csv", content);
        refuses(&[], 3, parts);
    }
    write(folder.path(), "notes.txt", "not a model");
    let save = |file: &str, more: &[&str], code, parts: &[&str]| {
        let flags = [
            "simulate",
            "--data",
            "short.csv",
            "--node",
            "sensor",
            "--target",
            "load",
            "--drop",
            "when",
            "--categories",
            "one-hot",
            "--save-model",
            file,
        ];
        assert_refused(
            &hedgerow(folder.path(), &[&flags, more].concat()),
            code,
            parts,
            folder.path(),
        );
    };
    save("notes.txt", &[], 4, &["notes.txt: not a model of hedgerow", "left as it is"]);
    save("no/m.safetensors", &[], 4, &["can't write no/m.safetensors: there is no such folder"]);
    save(
        "n",
        &["--method", "tr+alone,mean"],
        2,
        &["run.save_model", "federated method, such as tr"],
    );
    save("n", &["--scaling", "whole-file"], 2, &["run.save_model", "whole-file", "online"]);
    assert!(!folder.path().join("n").exists());
}
