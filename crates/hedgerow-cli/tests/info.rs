//! `hedgerow data info`: its output, and that the suggested command runs as printed.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{assert_refused, gzip, hedgerow, json, real_data, text, write};

/// Runs the command that `data info` prints for these arguments, in a shell, and returns the run's
/// summary.
#[cfg(unix)]
fn run_as_suggested(folder: &Path, arguments: &[&str]) -> Value {
    let output = hedgerow(folder, &[&["data", "info"], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    let mut lines = shown.lines().skip_while(|line| *line != "To begin with:");
    let suggested = lines.nth(1).unwrap_or_else(|| panic!("no command in {shown}")).trim();
    let line = format!("{suggested} --trials 1 --rounds 30 --method mk --json");
    let binary = Path::new(env!("CARGO_BIN_EXE_hedgerow")).parent().unwrap();
    let path = std::env::join_paths([binary]).unwrap();
    let mut shell = std::process::Command::new("/bin/sh");
    let output = shell.args(["-c", &line]).env("PATH", path).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{line}\n{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A file with a column of every kind.
fn motley() -> String {
    let mut content =
        String::from("when,station,sky,n,flag,const,empty,mixed,mark,note,it's,the value\n");
    for row in 0..400 {
        let sky = ["clear", "rain", "NA"][row % 3];
        let mixed = if row == 399 { "bad".to_owned() } else { format!("0.{row}") };
        let mark = if row % 50 == 9 { -200 } else { row as i32 % 9 };
        let n = if row == 300 { "NA".to_owned() } else { (row as f64 / 2.0).to_string() };
        content += &format!(
            "2020-01-{:02} {:02}:00:00,{},{sky},{n},{},7,,{mixed},{mark},note {row},{},{}\n",
            1 + row / 48,
            row / 2 % 24,
            ["N", "S"][row % 2],
            row % 2,
            row % 5,
            row * row % 11
        );
    }
    content
}

#[test]
fn columns_of_every_kind_are_told_apart() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "motley.csv", motley());
    let output = hedgerow(folder.path(), &["data", "info", "motley.csv"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.starts_with("motley.csv: 400 rows, 12 columns\n"), "{shown}");
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap();
    for (name, parts) in [
        ("when ", &["time"][..]),
        ("station ", &["text", "2: N, S"]),
        ("sky ", &["text", "133", "2: clear, rain"]),
        ("n ", &["number", " 1 ", "199.5"]),
        ("flag ", &["0 or 1", "0.5000"]),
        ("const ", &["constant", "7.000"]),
        ("empty ", &["empty", "400"]),
        ("mixed ", &["mixed", "1: bad"]),
        ("mark ", &["number", "-200.0"]),
        ("note ", &["text", "400: note 0", "…"]),
        ("the value ", &["number", "9.000"]),
        ("note: \"mixed\"", &["\"bad\"", "row 401", "missing"]),
        ("note: \"const\"", &["same in all rows"]),
        ("note: \"empty\"", &["no value"]),
        ("note: \"station\"", &["no input", "--features"]),
        ("note: -200", &["\"mark\"", "missing"]),
    ] {
        for part in parts {
            assert!(line(name).contains(part), "{part:?} is not in {:?}", line(name));
        }
    }
    let all = json(&hedgerow(folder.path(), &["data", "info", "motley.csv", "--json"]));
    assert_eq!(all["data_set"], Value::Null);
    let table = &all["table"];
    assert_eq!((&table["rows"], &table["files"][0]), (&400.into(), &"motley.csv".into()));
    let kinds: Vec<&str> = table["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["kind"].as_str().unwrap())
        .collect();
    let expected = "time text text number flag constant empty mixed number text number number"
        .split(' ')
        .collect::<Vec<_>>();
    assert_eq!(kinds, expected);
    let column = |at: usize| &table["columns"][at];
    assert_eq!(column(3)["missing"], 1);
    assert_eq!(column(8)["range"][0], -200.0);
    assert_eq!((&column(7)["turns_to_text"], &column(7)["texts"][0]), (&401.into(), &1.into()));
    let flags: Vec<&str> =
        table["suggestion"].as_array().unwrap().iter().map(|flag| flag.as_str().unwrap()).collect();
    for flag in [
        "--target 'the value'",
        "--time when",
        "--calendar hour",
        "--node station",
        "--drop empty,note",
        "--categories one-hot",
        "--missing -200,bad",
        "--scaling online",
    ] {
        assert!(flags.contains(&flag), "{flag} in {flags:?}");
    }
}

#[cfg(unix)]
#[test]
fn the_suggested_command_runs_as_it_is_printed() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    write(folder, "my file's.csv", motley());
    let summary = run_as_suggested(folder, &["my file's.csv"]);
    assert_eq!((&summary["nodes"], &summary["partition"]), (&2.into(), &"column:station".into()));
    // n, flag, const, mixed, mark, it's, two kinds of sky, and two of the hour.
    assert_eq!(summary["data"]["features"], 10);
    let inputs = summary["data"]["inputs"].as_str().unwrap();
    assert_eq!(inputs, "7 columns of the label's own row; hour of the label's time");

    let numbers: Vec<String> = (0..60).map(|row| format!("0.{}", row * 7 % 10)).collect();
    write(folder, "series.txt", format!("y\n{}\n", numbers.join("\n")));
    assert_eq!(run_as_suggested(folder, &["series.txt"])["data"]["features"], 5);
    let timed: String = numbers
        .iter()
        .enumerate()
        .map(|(at, y)| format!("01/03/2004;{:02}.{:02}.00;{y}\n", at / 60, at % 60))
        .collect();
    write(folder, "clock.csv", format!("Date;Time;y\n{timed}"));
    let summary = run_as_suggested(folder, &["clock.csv"]);
    assert_eq!(summary["settings"]["data"]["time"], "Date+Time");
    write(folder, "few.csv", "a,y\n1,2\n2,4\n3,5\n");
    assert_eq!(run_as_suggested(folder, &["few.csv"])["nodes"], 1);
    // Equal times that are far apart become neighbours by sorting, and none of them is lost.
    let shuffled: String = (0..60)
        .map(|row| format!("2020-01-{:02},{},0.{}\n", 1 + row * 7 % 30, row % 3, row % 7))
        .collect();
    write(folder, "shuffled.csv", format!("day,a,y\n{shuffled}"));
    assert_eq!(run_as_suggested(folder, &["shuffled.csv"])["data"]["samples"], 60);
    // A text that appears late, among texts and among numbers.
    let late: String = (0..3000)
        .map(|row| match row {
            2500 => "broken,,0.5\n".to_owned(),
            2600.. => format!("0.{},red,0.{}\n", row % 10, row % 7),
            _ => format!("0.{},,0.{}\n", row % 10, row % 7),
        })
        .collect();
    write(folder, "late.csv.gz", gzip(format!("a,colour,y\n{late}").as_bytes()));
    assert_eq!(run_as_suggested(folder, &["late.csv.gz"])["data"]["features"], 1);
    let lines: String = (0..40)
        .map(|row| format!("{{\"a\":{row},\"site\":\"s{}\",\"y\":{}}}\n", row % 4, row % 7))
        .collect();
    write(folder, "lines.jsonl", lines);
    assert_eq!(run_as_suggested(folder, &["lines.jsonl"])["nodes"], 4);
    for name in ["one day", "two days"] {
        write(
            folder,
            &format!("the fleet/{name}.csv"),
            format!("a,y\n{}", "1,2\n3,4\n0,5\n".repeat(10)),
        );
    }
    assert_eq!(run_as_suggested(folder, &["the fleet"])["nodes"], 2);
    // What the user said about the file is needed again.
    write(folder, "marked.tsv", format!("a\ty\n{}", "1\t2\n-7\t4\n0\tgone\n".repeat(20)));
    let summary = run_as_suggested(
        folder,
        &["marked.tsv", "--missing", "-7,gone", "--set", "data.separator=tab"],
    );
    assert_eq!(summary["settings"]["data"]["missing"], serde_json::json!(["-7", "gone"]));
    assert_eq!(summary["settings"]["data"]["separator"], "tab");
    // The user's own flags go before suggestions.
    let named = ["--data", "my file's.csv", "--target", "n", "--node", "flag", "--drop", "mixed"];
    let summary = run_as_suggested(folder, &named);
    assert_eq!((&summary["nodes"], &summary["partition"]), (&2.into(), &"column:flag".into()));
    assert_eq!(summary["settings"]["data"]["target"], "n");
}

#[cfg(unix)]
#[test]
fn real_files_run_as_suggested() {
    let Some(data) = real_data() else { return };
    let folder = TempDir::new().unwrap();
    for (file, nodes) in [
        ("air_quality/AirQualityUCI.csv.gz", 20),
        ("metro_traffic/Metro_Interstate_Traffic_Volume.csv.gz", 20),
        ("appliances_energy/energydata_complete.csv.gz", 20),
        ("naval/data.txt.gz", 20),
        ("authors_csv/Traffic.csv.gz", 20),
        ("authors_csv/Wave.csv.gz", 20),
        ("superconductivity/train_rebuilt.csv.gz", 20),
        ("beijing_multisite", 12),
    ] {
        let path = data.join(file);
        if !path.exists() {
            crate::process::skipped(&format!("no {file}"));
            continue;
        }
        assert_eq!(
            run_as_suggested(folder.path(), &[path.to_str().unwrap()])["nodes"],
            nodes,
            "{file}"
        );
    }
}

#[test]
fn a_data_set_by_name_says_what_it_is() {
    let folder = TempDir::new().unwrap();
    let rows: String = (0..50)
        .map(|row| {
            (1..=18).map(|column| format!("   {}.5e0", row * column % 13)).collect::<String>()
                + "\n"
        })
        .collect();
    write(folder.path(), "my data/naval/data.txt", rows);
    let flags = ["data", "info", "naval", "--data-dir", "my data"];
    let shown = text(&hedgerow(folder.path(), &flags).stdout);
    for part in [
        "naval: Naval propulsion plants\n",
        "Decay of a frigate's gas turbine",
        "UCI's data.txt without column 17",
        "cite: Coraddu",
        "50 rows, 18 columns",
        "hedgerow simulate --data naval --data-dir 'my data'\n",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let all = json(&hedgerow(folder.path(), &[&flags[..], &["--json"]].concat()));
    assert_eq!((&all["data_set"]["name"], &all["table"]["rows"]), (&"naval".into(), &50.into()));
    assert_eq!(all["table"]["columns"].as_array().unwrap().len(), 18);
    assert!(all["data_set"]["citation"].as_str().unwrap().starts_with("Coraddu"));
}

#[test]
fn what_cannot_be_looked_at() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "d.csv", "a,y\n1,2\n3\n");
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let info = |data: &str| hedgerow(folder.path(), &["data", "info", data]);
    assert_refused(&info("d.csv"), 3, &["d.csv", "row 3", "2 fields expected"], folder.path());
    assert_refused(&info("no.csv"), 3, &["no.csv"], folder.path());
    assert_refused(&info("empty"), 3, &["empty", "without files"], folder.path());
    assert_refused(&info("naval"), 3, &["naval", "hedgerow data fetch naval"], folder.path());
    assert_refused(&info("navel"), 2, &["navel", "naval"], folder.path());
    assert_refused(&info("friedman"), 2, &["friedman", "built-in"], folder.path());
    write(folder.path(), "g.csv", "a,load\n1,2\n3,4\n");
    for flag in ["--target", "--time", "--node", "--drop", "--features"] {
        let output = hedgerow(folder.path(), &["data", "info", "g.csv", flag, "laod"]);
        assert_refused(&output, 3, &["g.csv", "\"laod\"", "\"load\""], folder.path());
    }
}
