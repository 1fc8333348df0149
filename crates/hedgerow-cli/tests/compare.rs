//! `hedgerow compare` as a process: its files and output, stored runs, and refusals.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::SystemTime;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{assert_refused, command, hedgerow, json, text, write};

/// Settings for a quick run.
const SMALL: [&str; 7] = ["compare", "--trials", "3", "--rounds", "30", "--nodes", "4"];

fn small(folder: &Path, more: &[&str]) -> Output {
    hedgerow(folder, &[&SMALL[..], more].concat())
}

/// The stored runs and when each was written, by name.
fn runs(folder: &Path) -> Vec<(PathBuf, SystemTime)> {
    let files =
        folder.join("hedgerow-compare/runs").read_dir().unwrap().map(|file| file.unwrap().path());
    let mut runs: Vec<_> =
        files.map(|path| (path.clone(), path.metadata().unwrap().modified().unwrap())).collect();
    runs.sort();
    runs
}

fn read(folder: &Path, file: &str) -> String {
    text(&std::fs::read(folder.join("hedgerow-compare").join(file)).unwrap())
}

fn assert_whole(folder: &Path) {
    for figure in ["compare", "bytes"] {
        let png = std::fs::read(folder.join(format!("hedgerow-compare/{figure}.png")));
        assert_eq!(png.is_ok(), cfg!(feature = "png"), "{figure}");
        let whole = |png: Vec<u8>| {
            png.starts_with(b"\x89PNG\r\n\x1a\n") && png.ends_with(b"IEND\xaeB`\x82")
        };
        assert!(png.map_or(true, whole), "{figure}");
        assert!(read(folder, &format!("{figure}.svg")).trim_end().ends_with("</svg>"), "{figure}");
    }
    assert!(read(folder, "compare.html").trim_end().ends_with("</html>"));
    for file in ["compare.md", "compare.csv", "compare.json"] {
        assert!(read(folder, file).ends_with('\n'), "{file}");
    }
}

fn methods(run: &Value) -> Vec<&str> {
    run["methods"]
        .as_array()
        .unwrap()
        .iter()
        .map(|method| method["name"].as_str().unwrap())
        .collect()
}

#[test]
fn one_stream_has_a_ranking_two_figures_and_advice() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let output = small(folder, &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "no progress bar where nobody watches");
    let shown = text(&output.stdout);
    for part in [
        "friedman (round-robin)",
        "MSE [95%]",
        "ratio to best",
        "(best)",
        "hindsight",
        "compare.html",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert_whole(folder);
    let summary: Value = serde_json::from_str(&read(folder, "compare.json")).unwrap();
    let advice = summary["advice"].as_str().unwrap();
    assert!(shown.contains(advice) && advice.contains("per node and round"), "{advice}");
    // Least error first, one sk, and ranks only for methods that can be chosen.
    let run = &summary["runs"][0];
    let errors: Vec<f64> = run["methods"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["error"]["mean"].as_f64().unwrap())
        .collect();
    // All that are compared, gr and tr without what their nodes add, tr alone and pooled.
    assert!(errors.is_sorted() && errors.len() == 20, "{errors:?}");
    for method in run["methods"].as_array().unwrap() {
        assert_eq!(method["rank"].is_u64(), method["role"] == "choice", "{method}");
    }
    assert_eq!(read(folder, "compare.csv").lines().count(), 21);
    // Again, from what is stored.
    let again = small(folder, &["--json"]);
    assert_eq!(json(&again), summary);
    let again = small(folder, &[]);
    assert!(
        text(&again.stderr).contains("1 of 1 run is finished already, in hedgerow-compare/runs")
    );
    assert!(small(folder, &["--quiet"]).stdout.is_empty());
}

#[test]
fn numbers_are_those_of_simulate() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let flags = [
        "--method",
        "mk,naive,sk",
        "--partition",
        "shuffled",
        "--data",
        "narma",
        "--seed",
        "5",
        "--json",
    ];
    let compared = json(&small(folder, &flags));
    let simulated = json(&hedgerow(folder, &[&["simulate"], &SMALL[1..], &flags[..]].concat()));
    assert_eq!(compared["runs"][0]["partition"], "shuffled");
    let simulated = simulated["methods"].as_array().unwrap();
    for method in compared["runs"][0]["methods"].as_array().unwrap() {
        let same =
            |other: &&Value| other["name"] == method["name"] && other["kernel"] == method["kernel"];
        let other = simulated.iter().find(same).unwrap();
        assert_eq!(method["error"], other["mse"]);
        assert_eq!(method["bytes_up"], other["bytes_up"]);
    }
    // The ratio of two methods is the geometric mean of those of their trials.
    let trials = |name: &str| -> Vec<f64> {
        let found = simulated.iter().find(|method| method["name"] == name).unwrap();
        found["mse_trials"]
            .as_array()
            .unwrap()
            .iter()
            .map(|error| error.as_f64().unwrap())
            .collect()
    };
    let best = compared["runs"][0]["best"].as_str().unwrap();
    let other = if best == "mk" { "naive" } else { "mk" };
    let logs: f64 = trials(other).iter().zip(trials(best)).map(|(a, b)| (a / b).ln()).sum();
    let all = compared["runs"][0]["methods"].as_array().unwrap();
    let found = all.iter().find(|method| method["name"] == other).unwrap();
    let ratio = found["to_best"]["value"].as_f64().unwrap();
    assert!((ratio - (logs / 3.0).exp()).abs() < 1e-9 * ratio);
}

#[test]
fn a_grid_is_run_once_and_mended_where_it_is_damaged() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let flags = [
        "--data",
        "friedman,narma",
        "--partition",
        "round-robin,sorted-label",
        "--method",
        "mk,naive,sk",
    ];
    let output = small(folder, &flags);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for part in ["round-robin\n", "sorted-label\n", "All runs\n", "ratio to mk", "Over 4 runs, "] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert_whole(folder);
    let first = runs(folder);
    assert_eq!(first.len(), 4);
    let summary: Value = serde_json::from_str(&read(folder, "compare.json")).unwrap();
    assert_eq!((summary["runs"].as_array().unwrap().len(), &summary["against"]), (4, &"mk".into()));
    let wins = summary["all_runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|method| method["wins"].as_u64().unwrap());
    assert_eq!(wins.sum::<u64>(), 4);
    for run in summary["runs"].as_array().unwrap() {
        assert!(["mk", "naive", "sk"].iter().all(|name| methods(run).contains(name)));
    }
    // A truncated run is repeated alone, with the same result.
    let (path, _) = &first[2];
    let content = std::fs::read(path).unwrap();
    std::fs::write(path, &content[..content.len() / 2]).unwrap();
    let output = small(folder, &flags);
    assert!(
        text(&output.stderr).contains("3 of 4 runs are finished already"),
        "{}",
        text(&output.stderr)
    );
    for (before, after) in first.iter().zip(runs(folder)) {
        assert_eq!(before.0, after.0);
        assert_eq!(before.1 == after.1, before.0 != *path, "{}", path.display());
    }
    assert_eq!(serde_json::from_str::<Value>(&read(folder, "compare.json")).unwrap(), summary);
    // One run of the grid is the same run; another reference changes ratios and no run.
    let alone = small(
        folder,
        &["--data", "narma", "--partition", "sorted-label", "--method", "mk,naive,sk"],
    );
    assert!(text(&alone.stderr).contains("1 of 1 run is finished already"));
    let other = json(&small(folder, &[&flags[..], &["--against", "naive", "--json"]].concat()));
    assert_eq!(other["against"], "naive");
    assert_eq!(runs(folder).len(), 4);
}

#[test]
fn a_file_describes_a_grid_and_flags_change_it() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let grid = "data = [\"friedman\"]\npartitions = [\"blocks\", \"shuffled\"]\nagainst = \"local\"\n\
                [settings.federation]\nmethods = [\"mk\", \"local\"]\nnodes = 4\n[settings.run]\nrounds = 30\ntrials = 2\n";
    write(folder, "grid.toml", grid);
    let found = json(&hedgerow(folder, &["compare", "grid.toml", "--trials", "3", "--json"]));
    assert_eq!((found["runs"].as_array().unwrap().len(), &found["against"]), (2, &"local".into()));
    let run = &found["runs"][1];
    assert_eq!(
        (&run["partition"], &run["trials"], &run["nodes"]),
        (&"shuffled".into(), &3.into(), &4.into())
    );
    assert_eq!(methods(run).len(), 2);
    let found =
        json(&hedgerow(folder, &["compare", "grid.toml", "--partition", "blocks", "--json"]));
    assert_eq!((found["runs"].as_array().unwrap().len(), &found["all_runs"]), (1, &Value::Null));
    write(folder, "wrong.toml", "partition = [\"blocks\"]\n");
    let output = hedgerow(folder, &["compare", "wrong.toml"]);
    assert_refused(&output, 2, &["wrong.toml", "partition"], folder);
}

#[test]
fn what_a_stream_has_no_reference_for_is_left_out_unless_asked_for() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    // Numbers in the thousands are scaled online, and then no fixed function is the best.
    let rows: String = (0..400)
        .map(|row| format!("{},{}\n", 1000 + row * row % 897, 5000 + row * 7 % 991))
        .collect();
    write(folder, "a,b.csv", format!("x,y\n{rows}"));
    let found = json(&small(folder, &["--data", "a,b.csv", "--json"]));
    let names = methods(&found["runs"][0]);
    assert!(
        names.contains(&"mk") && names.contains(&"last") && !names.contains(&"hindsight"),
        "{names:?}"
    );
    assert!(found["runs"][0]["scaling"].as_str().unwrap().contains("online"));
    let output =
        small(folder, &["--data", "a,b.csv", "--method", "mk,hindsight", "--out", "elsewhere"]);
    assert_refused(&output, 2, &["federation.methods", "hindsight"], folder);
    assert!(!folder.join("elsewhere").exists());
    let found =
        json(&small(folder, &["--data", "rings", "--set", "learning.loss=logistic", "--json"]));
    let run = &found["runs"][0];
    assert_eq!(run["measure"], "share of wrong classes");
    let names = methods(run);
    assert!(
        names.contains(&"naive") && !names.contains(&"hindsight") && names.contains(&"mean"),
        "{names:?}"
    );
    assert_whole(folder);
}

#[test]
fn what_makes_no_sense_is_refused_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    write(folder, "taken", "a file, not a folder");
    for (flags, code, parts) in [
        (
            &["--partition", "round-robbin"][..],
            2,
            ["federation.partition", "round-robin", "\"round-robbin\""],
        ),
        (
            &["--partition", "blocks,dirichlet:0"],
            2,
            ["federation.partition", "dirichlet:ALPHA", "\"dirichlet:0\""],
        ),
        (&["--partition", ","], 2, ["federation.partition", "at least 1 partition", "empty"]),
        (&["--method", "mc"], 2, ["federation.methods", "mk", "\"mc\""]),
        (&["--method", ""], 2, ["federation.methods", "one of", "\"\""]),
        (&["--data", "friedman,friedmann"], 2, ["data.name", "friedman", "\"friedmann\""]),
        (&["--data", ""], 2, ["data.name", "at least 1 data set", "empty"]),
        (&["--data", "-"], 2, ["data.name", "read again", "\"-\""]),
        (&["--against", "grr"], 2, ["against", "one of the methods", "\"grr\""]),
        (&["--trials", "0"], 2, ["run.trials", "at least 1", "0"]),
        (&["--shard", "0/8"], 2, ["shard", "N from 1 to M", "\"0/8\""]),
        (&["--shard", "9/8"], 2, ["shard", "N from 1 to M", "\"9/8\""]),
        (&["--calendar", "hours"], 2, ["data.calendar", "hour, weekday, yearday", "\"hours\""]),
        (&["--shard", "x"], 2, ["shard", "N from 1 to M", "\"x\""]),
        (&["--budget", "50,0"], 2, ["federation.budget", "between 1 and", "0"]),
        (&["--budget", "-5"], 2, ["federation.budget", "between 1 and", "-5"]),
        (
            &["--budget", "9", "--set", "federation.budget=7"],
            2,
            ["federation.budget", "once", "federation.budget=7"],
        ),
        (&["--method", "tr+nonsense"], 2, ["+SUFFIX", "alone, pooled", "\"tr+nonsense\""]),
        (&["--method", "tr+alon"], 2, ["did you mean \"alone\"?", "shared", "\"tr+alon\""]),
        (&["--dropout", "1.5"], 2, ["participation.dropout", "between 0 and 1", "1.5"]),
        (&["--data", "narma", "--set", "data.name=drift"], 2, ["data.name", "once", "drift"]),
        (&["--data", "nowhere.csv"], 3, ["nowhere.csv", "", ""]),
        (&["--out", "taken/out"], 4, ["taken/out", "", ""]),
    ] {
        let output = small(folder, flags);
        assert_refused(&output, code, &parts, folder);
        assert!(!folder.join("hedgerow-compare").exists(), "{flags:?} left something behind");
    }
}

#[test]
fn data_sets_that_are_missing_are_named_and_left_out() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    std::fs::create_dir(folder.join("nothing")).unwrap();
    let run = |flags: &[&str]| {
        let mut command = command(folder, &[&SMALL[..], &["--method", "mk,local"], flags].concat());
        command.env("HEDGEROW_DATA_DIR", folder.join("nothing")).output().unwrap()
    };
    // Alone there is nothing to be done without it.
    assert_refused(&run(&["--data", "naval"]), 3, &["naval", "hedgerow data fetch naval"], folder);
    let output = run(&["--data", "naval,friedman", "--partition", "blocks,shuffled"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert_eq!(said.matches("skipped: naval is not here").count(), 1, "{said}");
    assert!(said.contains("error: the rest is done, but a data set is not there: naval"), "{said}");
    assert!(text(&output.stdout).contains("not available"));
    assert_whole(folder);
    let summary: Value = serde_json::from_str(&read(folder, "compare.json")).unwrap();
    assert_eq!(summary["missing"], serde_json::json!(["naval"]));
    assert_eq!((runs(folder).len(), &summary["runs"][0]["methods"]), (2, &Value::Null));
}

#[test]
fn a_file_of_one_s_own_is_compared_by_the_column_that_was_named() {
    let folder = tempfile::TempDir::new().unwrap();
    let rows: String =
        (0..200).map(|at| format!("{},{}\n", (at * 7 % 11) as f64 / 10.0, at % 13)).collect();
    std::fs::write(folder.path().join("mine.csv"), format!("load,hour\n{rows}")).unwrap();
    for target in [&["--target", "load"][..], &["--set", "data.target=load"]] {
        let usual =
            ["--data", "mine.csv", "--method", "gr,mk", "--trials", "2", "--nodes", "4", "--json"];
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_hedgerow"));
        let output = command
            .arg("compare")
            .args(usual)
            .args(target)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

#[test]
fn it_says_whether_federating_pays_and_what_was_left_out() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let methods = ["--method", "tr,tr+alone,tr+pooled,mean"];
    let shown = text(&small(folder, &methods).stdout);
    assert!(shown.starts_with("Federating (tr) "), "{shown}");
    let sentence = shown.lines().next().unwrap();
    assert!(sentence.contains("compared with each device alone"), "{sentence}");
    assert!(read(folder, "compare.md").contains("compared with each device alone"));
    assert!(read(folder, "compare.html").contains("compared with each device alone"));
    let summary: Value = serde_json::from_str(&read(folder, "compare.json")).unwrap();
    assert_eq!(summary["worth"], sentence);
    assert_eq!(summary["runs"][0]["worth"], sentence);
    let grid = [&methods[..], &["--data", "friedman,unrelated"]].concat();
    let shown = text(&small(folder, &grid).stdout);
    assert!(shown.contains("on average over 2 runs"), "{shown}");
    // Too small a budget for tr.
    let shown = text(&small(folder, &["--budget", "10", "--rounds", "5"]).stdout);
    for part in ["Left out: ", "tr+alone", "at least 16", "has 10", "can't be said"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn several_budgets_show_error_against_bytes_and_one_is_recommended() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let flags = ["--method", "tr,mk,local", "--budget", "20,60,200"];
    let output = small(folder, &flags);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for part in ["budget by budget", "round-robin, budget 60", "Choose ", "with a budget of"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert_whole(folder);
    assert!(read(folder, "bytes.svg").contains("budget by budget"));
    let summary: Value = serde_json::from_str(&read(folder, "compare.json")).unwrap();
    let points = summary["budgets"]["points"].as_array().unwrap();
    assert_eq!(points.len(), 9);
    let bytes = |method: &str, budget: u64| {
        let is_it = |point: &&Value| point["method"] == method && point["budget"] == budget;
        points.iter().find(is_it).unwrap()["bytes"].as_f64().unwrap()
    };
    assert!(bytes("mk", 20) < bytes("mk", 60) && bytes("mk", 60) < bytes("mk", 200));
    let least = points.iter().map(|point| point["ratio"].as_f64().unwrap()).fold(9.0, f64::min);
    assert_eq!(least, 1.0);
    let chosen = &summary["budgets"]["recommended"];
    assert!(chosen["ratio"].as_f64().unwrap() <= 1.1, "{chosen}");
    // One of these runs is the run with one budget.
    let alone = small(folder, &["--method", "tr,mk,local", "--budget", "60"]);
    assert!(text(&alone.stderr).contains("1 of 1 run is finished already"));
}

#[test]
fn shards_share_a_folder_and_the_last_one_writes_the_tables() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let flags = ["--data", "friedman,narma", "--partition", "blocks,shuffled", "--method", "mk,gr"];
    let shard = |shard: &str, more: &[&str]| {
        small(folder, &[&flags[..], &["--out", "shared", "--shard", shard], more].concat())
    };
    let first = text(&shard("1/3", &[]).stdout);
    assert!(first.contains("Shard 1/3 is finished. 2 of 4 runs are in"), "{first}");
    assert!(!folder.join("shared/compare.json").exists());
    let second = json(&shard("2/3", &["--json"]));
    assert_eq!(
        (&second["shard"], &second["finished"], &second["runs"]),
        (&"2/3".into(), &3.into(), &4.into())
    );
    let last = shard("3/3", &[]);
    assert!(text(&last.stdout).contains("Over 4 runs"), "{}", text(&last.stdout));
    // The same as on one machine.
    let alone = json(&small(folder, &[&flags[..], &["--json"]].concat()));
    let merged = std::fs::read_to_string(folder.join("shared/compare.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&merged).unwrap(), alone);
    // A shard without runs says what there is.
    let ninth = text(&shard("9/9", &[]).stdout);
    assert!(ninth.contains("Over 4 runs"), "{ninth}");
}

#[test]
fn machines_that_make_the_same_runs_at_once_do_no_damage() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let flags = ["--data", "friedman,narma", "--method", "mk,gr", "--json"];
    let arguments = [&SMALL[..], &flags].concat();
    let spawn = |_| command(folder, &arguments).stdout(std::process::Stdio::piped()).spawn();
    let started: Vec<_> = (0..3).map(|at| spawn(at).unwrap()).collect();
    let outputs: Vec<Value> =
        started.into_iter().map(|child| json(&child.wait_with_output().unwrap())).collect();
    assert!(outputs.iter().all(|output| *output == outputs[0]));
    assert_whole(folder);
    assert_eq!(runs(folder).len(), 2, "no temporary file is left");
}
