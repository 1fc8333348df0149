//! The command line as a process, with its output, files and exit codes.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{hedgerow, json, text, wait_until, write};

/// A small run, quick enough for a test.
const SMALL: [&str; 7] = ["simulate", "--trials", "2", "--rounds", "40", "--nodes", "5"];

fn small(folder: &Path, more: &[&str]) -> Output {
    hedgerow(folder, &[&SMALL[..], more].concat())
}

/// Asserts that a run failed with this code and a message with all these parts, and left nothing
/// behind.
fn assert_refused(output: &Output, code: i32, parts: &[&str], folder: &Path) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    assert!(!message.contains("panicked"), "{message}");
    assert!(output.stdout.is_empty());
    assert!(!folder.join("hedgerow-out").exists(), "something was left behind");
}

#[test]
fn a_run_writes_every_file_and_shows_a_table() {
    let folder = TempDir::new().unwrap();
    let output = small(folder.path(), &["--paper"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for part in [
        "method",
        "MSE ± sd",
        "mk",
        "sk (best)",
        "naive",
        "central",
        "local",
        "hindsight",
        "regret",
        "budget 100",
        "report.html",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert!(output.stderr.is_empty(), "no progress bar where nobody watches");
    let mut files: Vec<String> = folder
        .path()
        .join("hedgerow-out")
        .read_dir()
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let expected = [
        "convergence.svg",
        "coverage.svg",
        "curves.csv",
        "devices.svg",
        "importance-over-time.svg",
        "importance.svg",
        "kernels.svg",
        "mse.svg",
        "predictions-worst.svg",
        "predictions.svg",
        "regret.svg",
        "report.html",
        "scatter.svg",
        "summary.json",
    ];
    assert_eq!(files, expected);
}

#[test]
fn the_first_line_says_whether_federating_pays() {
    let folder = TempDir::new().unwrap();
    let predictions = ["--predictions", "p.csv"];
    let shown = text(&small(folder.path(), &predictions).stdout);
    for part in
        ["Federating (tr) lowers the error by", "tr+alone", "tr+pooled", "last", "RMSE", "in 90%"]
    {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert!(!shown.contains("regret") && !shown.contains("budget"), "{shown}");
    let written = std::fs::read_to_string(folder.path().join("p.csv")).unwrap();
    assert_eq!(written.lines().count(), 1 + 6 * 200);
}

#[test]
fn json_is_the_summary_that_is_written() {
    let folder = TempDir::new().unwrap();
    let output = small(folder.path(), &["--json", "--paper"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let written = std::fs::read(folder.path().join("hedgerow-out/summary.json")).unwrap();
    assert_eq!(printed, serde_json::from_slice::<Value>(&written).unwrap());
    assert_eq!(printed["schema"], 1);
    assert_eq!(printed["nodes"], 5);
    assert_eq!(printed["settings"]["learning"]["ridge"], 0.01);
    assert_eq!(printed["settings"]["federation"]["nodes"], 5);
    assert_eq!(printed["data"]["samples"], 200);
    let methods = printed["methods"].as_array().unwrap();
    let named =
        |name: &str| methods.iter().filter(|m| m["name"] == name).cloned().collect::<Vec<Value>>();
    assert_eq!(named("sk").len(), 11);
    assert_eq!(named("sk").iter().filter(|method| method["best"] == true).count(), 1);
    assert_eq!(named("mk")[0]["numbers_up"], 99.0);
    assert_eq!(named("mk")[0]["numbers_down"], 100.0);
    assert_eq!(named("naive")[0]["numbers_up"], 1089.0);
    assert_eq!(named("local")[0]["bytes_up"], 0.0);
    assert_eq!(named("mk")[0]["mse_trials"].as_array().unwrap().len(), 2);
    let selected = named("mk")[0]["selected"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_f64().unwrap())
        .sum::<f64>();
    assert!((selected - 1.0).abs() < 1e-9);
}

#[test]
fn quiet_says_nothing() {
    let folder = TempDir::new().unwrap();
    let output = small(folder.path(), &["--quiet"]);
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
}

#[test]
fn results_depend_on_the_seed_and_not_on_the_threads() {
    let curves = |more: &[&str]| {
        let folder = TempDir::new().unwrap();
        let output = small(
            folder.path(),
            &[more, &["--quiet", "--dropout", "0.3", "--trials", "5"]].concat(),
        );
        assert!(output.status.success(), "{}", text(&output.stderr));
        std::fs::read_to_string(folder.path().join("hedgerow-out/curves.csv")).unwrap()
    };
    let one = curves(&["--threads", "1"]);
    assert_eq!(one, curves(&["--threads", "3"]));
    assert_ne!(one, curves(&["--threads", "1", "--seed", "2"]));
}

#[test]
fn dropout_shows_in_what_is_sent() {
    let folder = TempDir::new().unwrap();
    let output =
        small(folder.path(), &["--json", "--dropout", "0.5", "--rounds", "200", "--method", "mk"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let accepted = printed["methods"][0]["uploads_accepted"].as_f64().unwrap();
    assert!((0.4..0.6).contains(&accepted), "{accepted}");
    assert!(printed["participation"].as_str().unwrap().contains("50%"));
}

#[test]
fn a_file_can_be_learned_from_and_settings_come_in_layers() {
    let folder = TempDir::new().unwrap();
    let rows: Vec<String> =
        (0..60).map(|i| format!("{},{},{}", i % 7, i % 5, (i % 7) as f64 * 0.1)).collect();
    std::fs::write(folder.path().join("d.csv"), format!("a,y,b\n{}\n", rows.join("\n"))).unwrap();
    std::fs::write(
        folder.path().join("my.toml"),
        "[federation]\nnodes = 4\nbudget = 20\n[run]\ntrials = 1\n",
    )
    .unwrap();
    let flags =
        ["simulate", "my.toml", "--data", "d.csv", "--target", "b", "--nodes", "3", "--json"];
    let output = hedgerow(folder.path(), &flags);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&printed["nodes"], &printed["budget"]), (&3.into(), &20.into()));
    assert_eq!((&printed["rounds"], &printed["data"]["features"]), (&20.into(), &2.into()));
}

#[test]
fn numbers_far_from_one_get_a_note_and_stale_figures_go() {
    let folder = TempDir::new().unwrap();
    let rows: Vec<String> = (0..60).map(|i| format!("{},{}", i % 7, 100_000 + i)).collect();
    std::fs::write(folder.path().join("d.csv"), format!("a,y\n{}\n", rows.join("\n"))).unwrap();
    assert!(small(folder.path(), &["--paper"]).stderr.is_empty());
    assert!(folder.path().join("hedgerow-out/regret.svg").exists());
    let output = small(folder.path(), &["--data", "d.csv", "--method", " mk", "--scaling", "none"]);
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("--scaling online"), "{}", text(&output.stderr));
    assert!(!folder.path().join("hedgerow-out/regret.svg").exists());
}

#[test]
fn config_prints_defaults_that_can_be_used() {
    let folder = TempDir::new().unwrap();
    let printed = hedgerow(folder.path(), &["config"]).stdout;
    std::fs::write(folder.path().join("all.toml"), &printed).unwrap();
    assert!(text(&printed).contains("# "));
    let flags = ["simulate", "all.toml", "--rounds", "10", "--trials", "1", "--quiet"];
    let output = hedgerow(folder.path(), &flags);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value =
        serde_json::from_slice(&hedgerow(folder.path(), &["config", "--json"]).stdout).unwrap();
    assert_eq!(json["federation"]["nodes"], 20);
}

#[test]
fn bad_settings_are_refused_with_key_bound_and_value() {
    let folder = TempDir::new().unwrap();
    for (flags, parts) in [
        (&["--nodes", "0"][..], &["federation.nodes", "at least 1", "0"][..]),
        (&["--nodes=-3"], &["federation.nodes", "-3"]),
        (&["--budget", "3"], &["budget", "at least 4", "3"]),
        (&["--method", "sk", "--budget", "1"], &["budget", "at least 2", "1"]),
        (&["--set", "kernels.variances=[]"], &["kernels", "at least 1"]),
        (&["--set", "kernels.variances=[1.0, -2.0]"], &["kernel 2", "positive", "-2"]),
        (&["--set", "learning.ridge=-0.1"], &["ridge", "between 0", "-0.1"]),
        (&["--set", "learning.rigde=0.1"], &["learning.rigde", "learning.ridge"]),
        (&["--set", "nonsense"], &["nonsense", "key=value"]),
        (&["--method", "mk,skk"], &["skk", "did you mean \"sk\""]),
        (&["--partition", "round"], &["partition", "round-robin"]),
        (&["--dropout", "2"], &["dropout", "between 0 and 1", "2"]),
        (&["--data", "freidman"], &["freidman", "friedman"]),
        (&["--out", ""], &["run.out", "empty"]),
        (&["--target", "y"], &["data.target", "friedman"]),
        (&["--method", "hindsight", "--set", "learning.loss=huber"], &["hindsight", "squared"]),
    ] {
        assert_refused(&small(folder.path(), flags), 2, parts, folder.path());
    }
}

#[test]
fn bad_toml_is_refused_with_file_and_nearest_key() {
    let folder = TempDir::new().unwrap();
    for (content, parts) in [
        ("[federation]\nnode = 3\n", &["my.toml", "federation.node", "federation.nodes"][..]),
        (
            "[federation]\nnodes = \"three\"\n",
            &["my.toml", "federation.nodes", "whole number", "three"],
        ),
    ] {
        std::fs::write(folder.path().join("my.toml"), content).unwrap();
        assert_refused(&hedgerow(folder.path(), &["simulate", "my.toml"]), 2, parts, folder.path());
    }
    std::fs::write(folder.path().join("my.toml"), "[federation\n").unwrap();
    let broken = hedgerow(folder.path(), &["simulate", "my.toml"]);
    assert_eq!(broken.status.code(), Some(2));
    assert!(text(&broken.stderr).contains("my.toml"));
    assert_refused(
        &hedgerow(folder.path(), &["simulate", "no.toml"]),
        2,
        &["no.toml"],
        folder.path(),
    );
}

#[test]
fn bad_data_is_refused_with_file_row_and_column() {
    let folder = TempDir::new().unwrap();
    for (content, flags, parts) in [
        ("a,y\n1,2\n1,inf\n", &[][..], &["d.csv", "row 3", "\"y\"", "inf"][..]),
        ("a,y\n1,2\nred,3\n", &[], &["d.csv", "row 3", "\"a\"", "red"]),
        ("a,y\n1,2\n1,2,3\n", &[], &["d.csv", "row 3", "2", "3"]),
        ("a,price\n1,2\n", &["--target", "prise"], &["d.csv", "prise", "price"]),
        ("", &[], &["d.csv", "empty"]),
        ("a,y\n", &[], &["d.csv", "row"]),
        ("a,y\n1,2\n3,4\n", &["--nodes", "9"], &["d.csv", "2 samples", "9 nodes"]),
        (
            "a,y\n1,no\n3,no\n",
            &["--nodes", "1"],
            &["d.csv", "\"y\"", "the class is \"no\" in all samples"],
        ),
    ] {
        std::fs::write(folder.path().join("d.csv"), content).unwrap();
        let output = hedgerow(folder.path(), &[&["simulate", "--data", "d.csv"], flags].concat());
        assert_refused(&output, 3, parts, folder.path());
    }
    assert_refused(
        &hedgerow(folder.path(), &["simulate", "--data", "no.csv"]),
        3,
        &["no.csv"],
        folder.path(),
    );
}

#[test]
fn a_folder_that_cannot_be_written_is_found_out_before_the_run() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("taken"), "a file, not a folder").unwrap();
    // A run of this length would take many minutes: the refusal has to come first.
    let flags = ["simulate", "--out", "taken/results", "--trials", "1000"];
    assert_refused(&hedgerow(folder.path(), &flags), 4, &["taken/results"], folder.path());
    assert_eq!(
        std::fs::read_to_string(folder.path().join("taken")).unwrap(),
        "a file, not a folder"
    );
}

#[test]
fn whatever_is_in_the_way_of_a_result_is_found_out_before_the_run() {
    let folder = TempDir::new().unwrap();
    std::fs::create_dir_all(folder.path().join("out/report.html/kept")).unwrap();
    let output = small(folder.path(), &["--out", "out"]);
    assert_refused(&output, 4, &["out/report.html", "in the way"], folder.path());
    assert_eq!(folder.path().join("out").read_dir().unwrap().count(), 1);
}

#[test]
fn a_message_says_it_once() {
    let folder = TempDir::new().unwrap();
    let output = small(folder.path(), &["--set", "learning.ridge=-0.1"]);
    assert_eq!(
        text(&output.stderr),
        "error: learning: ridge must be between 0 and 1000, but is -0.1\n"
    );
    let output = small(folder.path(), &["--nodes", "0"]);
    assert_eq!(
        text(&output.stderr),
        "error: --nodes: federation.nodes must be at least 1, but is 0\n"
    );
}

#[cfg(unix)]
#[test]
fn an_interruption_says_what_it_costs() {
    let folder = TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hedgerow"));
    command.args(["simulate", "--trials", "1000", "--out", "results"]).current_dir(folder.path());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let results = folder.path().join("results");
    wait_until("results", || {
        assert_eq!(child.try_wait().unwrap(), None, "it has ended before it began");
        results.exists()
    });
    assert!(
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success()
    );
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(text(&output.stderr).contains("interrupted: results are written at the end alone"));
    assert_eq!(std::fs::read_dir(results).unwrap().count(), 0);
}

#[test]
fn sizes_that_no_machine_has_are_refused() {
    let folder = TempDir::new().unwrap();
    for (flags, parts) in [
        (&["--nodes", "4000000000"][..], &["federation.nodes", "at most"][..]),
        (&["--rounds", "9000000000000000000"], &["run.rounds", "at most"]),
        (&["--budget", "1000000000000"], &["federation.budget", "at most"]),
        (&["--trials", "9000000000000000000"], &["run.trials", "at most"]),
        (&["--rounds", "1000000000"], &["run.rounds", "samples"]),
        (
            &["--nodes", "5000000", "--rounds", "1", "--memory-limit", "2.5"],
            &[
                "memory",
                "GB of it for what nodes remember",
                "run.memory_limit allows 2.5 GB",
                "lower federation.nodes",
            ],
        ),
        (&["--rounds", "1000000", "--memory-limit", "0.1"], &["for samples", "lower run.rounds"]),
        (&["--memory-limit", "-1"], &["run.memory_limit", "gigabytes"]),
        (
            &["--set", "participation.arrivals=fixed:18446744073709551615"],
            &["participation.arrivals"],
        ),
    ] {
        assert_refused(&small(folder.path(), flags), 2, parts, folder.path());
    }
}

#[test]
fn help_teaches() {
    let folder = TempDir::new().unwrap();
    let help = text(&hedgerow(folder.path(), &["simulate", "--help"]).stdout);
    for part in ["Examples:", "--dropout", "hedgerow config", "friedman"] {
        assert!(help.contains(part), "{part}");
    }
    assert!(text(&hedgerow(folder.path(), &["--help"]).stdout).contains("Exit codes"));
    assert_eq!(hedgerow(folder.path(), &["simulat"]).status.code(), Some(2));
}

#[test]
fn rounds_beyond_the_data_are_named_and_intervals_have_a_flag() {
    let folder = TempDir::new().unwrap();
    let rows: String = (0..40).map(|i| format!("0.{},0.{}\n", i % 7, i % 5)).collect();
    write(folder.path(), "t.csv", format!("a,y\n{rows}"));
    let flags = ["simulate", "--data", "t.csv", "--nodes", "4", "--method", "mean,mk"];
    let more = ["--rounds", "30", "--trials", "1", "--interval", "0.8"];
    let told = text(&hedgerow(folder.path(), &[&flags[..], &more].concat()).stdout);
    assert!(told.contains("the data has 10 rounds, 30 were asked for"), "{told}");
    assert!(told.contains("1 trial,") && told.contains("of 1 number,"), "{told}");
    let found = json(&hedgerow(folder.path(), &[&flags[..], &more, &["--json"]].concat()));
    assert_eq!((&found["rounds"], &found["rounds_asked"]), (&10.into(), &30.into()));
    assert_eq!(found["interval"], 0.8, "{found}");
    let all = json(&hedgerow(folder.path(), &[&flags[..], &["--json"]].concat()));
    assert_eq!(all.get("rounds_asked"), None);
}
