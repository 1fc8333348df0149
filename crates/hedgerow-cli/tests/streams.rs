//! Runs on files, folders and standard input, and what the results say about them.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::Path;
use std::process::{Child, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{assert_refused, command, ended_by_itself, gzip, hedgerow, json, text, write};

/// Two inputs and a label, none of them far from one.
fn numbers(rows: usize) -> Vec<[f64; 3]> {
    let number = |row: usize, prime: usize| (row * prime % 97) as f64 / 96.0;
    (0..rows)
        .map(|row| {
            let (a, b) = (number(row, 31), number(row, 53));
            [a, b, a * (1.0 - b)]
        })
        .collect()
}

/// As text with this between cells, below this header, with so many more in front of each row.
fn table(header: &str, separator: &str, end: &str, in_front: impl Fn(usize) -> String) -> String {
    let mut text = String::from(header);
    for (at, row) in numbers(120).iter().enumerate() {
        let cells = row.map(|number| format!("{number:.5}"));
        text += &format!("{}{}{end}", in_front(at), cells.join(separator));
    }
    text
}

fn plain() -> String {
    table("a,b,y\n", ",", "\n", |_| String::new())
}

const QUICK: [&str; 4] = ["--trials", "1", "--method", "mk,sk"];

/// The summary of a run on this data, and what it wrote.
fn simulate(folder: &Path, data: &str, flags: &[&str]) -> Value {
    json(&hedgerow(folder, &[&["simulate", "--data", data, "--json"], &QUICK[..], flags].concat()))
}

fn written(folder: &Path, file: &str) -> String {
    std::fs::read_to_string(folder.join("hedgerow-out").join(file)).unwrap()
}

/// The table that a run shows.
fn shown(folder: &Path, data: &str, flags: &[&str]) -> String {
    let output = hedgerow(folder, &[&["simulate", "--data", data], &QUICK[..], flags].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn method<'s>(summary: &'s Value, name: &str) -> &'s Value {
    let methods = summary["methods"].as_array().unwrap();
    methods.iter().find(|method| method["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

fn mse(summary: &Value, name: &str) -> f64 {
    method(summary, name)["mse"]["mean"].as_f64().unwrap()
}

fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-3 * expected.abs(), "{found} is not {expected}");
}

#[test]
fn however_a_table_is_written_the_results_are_the_same() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let comma = table("a;b;y\r\n", ";", "\r\n", |_| String::new()).replace('.', ",");
    let json: String = numbers(120)
        .iter()
        .map(|[a, b, y]| format!("{{\"a\":{a:.5},\"b\":\"{b:.5}\",\"y\":{y:.5}}}\n"))
        .collect();
    let files: Vec<(&str, Vec<u8>)> = vec![
        ("comma.csv", comma.clone().into()),
        ("marked.csv", format!("\u{feff}{comma}\r\n;;\r\n").into()),
        ("tab.tsv", table("a\tb\ty\n", "\t", "\n", |_| String::new()).into()),
        ("bar.txt", table("a|b|y\n", "|", "\n", |_| String::new()).into()),
        ("blanks.txt", table("", "   ", "\n", |_| "  ".to_owned()).into()),
        ("headless.csv", table("", ",", "\n", |_| String::new()).into()),
        (
            "quoted.csv",
            plain()
                .replace(',', "\",\"")
                .replace('\n', "\"\n\"")
                .trim_matches('"')
                .replacen('a', "\"a", 1)
                .into(),
        ),
        ("lines.jsonl", json.into()),
        ("packed.csv.gz", gzip(plain().as_bytes())),
        ("packed.csv.zst", zstd::encode_all(plain().as_bytes(), 3).unwrap()),
        (
            "members.csv.gz",
            [gzip(&plain().as_bytes()[..500]), gzip(&plain().as_bytes()[500..])].concat(),
        ),
    ];
    write(folder, "plain.csv", plain());
    let expected = simulate(folder, "plain.csv", &[]);
    assert_eq!(
        (&expected["data"]["samples"], &expected["data"]["features"]),
        (&120.into(), &2.into())
    );
    let curves = written(folder, "curves.csv");
    for (name, content) in files {
        write(folder, name, content);
        let found = simulate(folder, name, &[]);
        assert_eq!(found["data"]["features"], 2, "{name}");
        assert_eq!(written(folder, "curves.csv"), curves, "{name}");
    }
}

#[test]
fn files_of_a_folder_and_values_of_a_column_are_nodes() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let stations = ["north", "south", "west"];
    let mut together = String::from("station,a,b,y\n");
    for (at, station) in stations.iter().enumerate() {
        let rows: Vec<String> =
            plain().lines().skip(1 + 30 * at).take(30).map(|row| format!("{row}\n")).collect();
        rows.iter().for_each(|row| together += &format!("{station},{row}"));
        let content = format!("a,b,y\n{}", rows.concat());
        match at {
            0 => write(folder, &format!("stations/{station}.csv.gz"), gzip(content.as_bytes())),
            _ => write(folder, &format!("stations/{station}.csv"), content),
        }
    }
    write(folder, "together.csv", together);
    let by_file = simulate(folder, "stations", &["--partition", "column:@file"]);
    assert_eq!((&by_file["nodes"], &by_file["partition"]), (&3.into(), &"column:@file".into()));
    assert_eq!((&by_file["rounds"], &by_file["data"]["samples"]), (&30.into(), &90.into()));
    let curves = written(folder, "curves.csv");
    let by_column = simulate(folder, "together.csv", &["--partition", "column:station"]);
    assert_eq!((&by_column["nodes"], &by_column["data"]["features"]), (&3.into(), &2.into()));
    assert_eq!(by_column["partition"], "column:station");
    assert_eq!(written(folder, "curves.csv"), curves);
    // Without a word about nodes, the rows of all files are dealt in turn.
    let dealt = simulate(folder, "stations", &[]);
    assert_eq!((&dealt["nodes"], &dealt["partition"]), (&20.into(), &"round-robin".into()));
    let shown = shown(folder, "stations", &["--partition", "column:@file"]);
    assert!(shown.contains("3 devices (column:@file)"), "{shown}");
    let output = hedgerow(
        folder,
        &["simulate", "--data", "stations", "--partition", "column:@file", "--nodes", "4"],
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("3, as many as the data names"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn several_series_are_several_nodes() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "d.csv", plain());
    let summary = simulate(folder.path(), "d.csv", &["--series", "b,y"]);
    assert_eq!((&summary["nodes"], &summary["data"]["features"]), (&2.into(), &1.into()));
    assert_eq!((&summary["rounds"], &summary["data"]["samples"]), (&120.into(), &240.into()));
}

#[test]
fn texts_become_inputs() {
    let folder = TempDir::new().unwrap();
    let sky = |row: usize| format!("{},", ["clear", "rain", "snow", ""][row % 4]);
    write(folder.path(), "d.csv", table("sky,a,b,y\n", ",", "\n", sky));
    let features =
        |flags: &[&str]| simulate(folder.path(), "d.csv", flags)["data"]["features"].clone();
    assert_eq!(features(&["--categories", "one-hot"]), 3 + 2);
    assert_eq!(features(&["--categories", "hashed:8"]), 8 + 2);
    assert_eq!(features(&["--drop", "sky"]), 2);
    // An input of a text has two values whatever its range: none has to be named.
    write(folder.path(), "r.toml", "[ranges]\na = [0, 1]\nb = [0, 1]\ny = [0, 1]\n");
    assert_eq!(features(&["--categories", "one-hot", "--scaling", "r.toml"]), 3 + 2);
}

#[test]
fn a_series_is_learned_from_its_past() {
    let folder = TempDir::new().unwrap();
    let rows: String = (0..300).map(|row| format!("{row},{:.2}\n", row as f64 / 100.0)).collect();
    write(folder.path(), "d.csv", format!("t,y\n{rows}"));
    let common = ["--scaling", "none", "--nodes", "1"];
    for (flags, samples, features, behind) in [
        (&["--features", "-", "--lags", "3"][..], 297, 3, 1.0),
        (&["--features", "-", "--lags", "3", "--horizon", "5"], 293, 3, 5.0),
        (&["--features", "t", "--lags", "2", "--horizon", "4"], 295, 3, 4.0),
        (&["--features", "-", "--lags", "2", "--set", "data.lagged=[\"t\"]"], 298, 4, 1.0),
        (&["--features", "t", "--horizon", "2", "--set", "data.exogenous=origin"], 298, 1, 2.0),
    ] {
        let summary = simulate(folder.path(), "d.csv", &[flags, &common].concat());
        let data = &summary["data"];
        assert_eq!(
            (&data["samples"], &data["features"]),
            (&samples.into(), &features.into()),
            "{flags:?}"
        );
        // The line rises by a hundredth a step, and so far behind is the last value that was known.
        let behind = (0.01_f64 * behind).powi(2);
        assert_near(mse(&summary, "previous"), behind);
        // A node's own last value isn't there from the beginning.
        assert!((behind..1.2 * behind).contains(&mse(&summary, "last")));
        assert!(mse(&summary, "mean") > 100.0 * mse(&summary, "last"));
    }
}

/// Whether a method has a row in the table of the report.
fn is_in_report(report: &str, name: &str) -> bool {
    report.contains(&format!("</span>{name}</th>"))
}

#[test]
fn every_time_series_is_compared_with_rules_that_learn_nothing() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    write(
        folder,
        "d.csv",
        table("when,a,b,y\n", ",", "\n", |row| {
            format!("2020-01-01 {:02}:{:02},", row / 60, row % 60)
        }),
    );
    write(folder, "plain.csv", plain());
    for (data, flags, is_series) in [
        ("d.csv", &["--time", "when"][..], true),
        ("plain.csv", &["--lags", "2"], true),
        ("plain.csv", &["--set", "data.exogenous=origin"], true),
        ("plain.csv", &[], false),
        ("mackey-glass", &["--rounds", "30"], true),
        ("narma", &["--rounds", "30"], true),
        ("friedman", &["--rounds", "30"], false),
        ("friedman", &["--rounds", "30", "--lags", "2"], true),
    ] {
        let summary = simulate(folder, data, flags);
        let report = written(folder, "report.html");
        let shown = shown(folder, data, flags);
        assert!(is_in_report(&report, "mk") && shown.contains("\nmk "), "{shown}");
        for name in ["last", "mean", "previous"] {
            let names = summary["methods"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|method| method["name"] == name);
            assert_eq!(names.count(), usize::from(is_series), "{data} {flags:?}");
            assert_eq!(is_in_report(&report, name), is_series, "{data} {flags:?}");
            assert_eq!(shown.contains(&format!("\n{name} ")), is_series, "{shown}");
        }
    }
}

#[test]
fn scaling_is_done_and_said() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let times = |factor: f64| {
        let rows = numbers(120)
            .into_iter()
            .map(|row| row.map(|number| format!("{:.5}", number * factor)).join(","));
        format!("a,b,y\n{}\n", rows.collect::<Vec<_>>().join("\n"))
    };
    write(folder, "one.csv", times(1.0));
    write(folder, "many.csv", times(1000.0));
    write(folder, "one.toml", "[ranges]\na = [0, 1]\nb = [0, 1]\ny = [0, 1]\n");
    write(folder, "many.toml", "[ranges]\na = [0, 1000]\nb = [0, 1000]\ny = [0, 1000]\n");
    for (data, scaling, words) in [
        ("one.csv", "none", ""),
        ("one.csv", "auto", ""),
        ("many.csv", "auto", "online, by running mean and spread agreed between the nodes"),
        ("one.csv", "online", "online, by running mean and spread agreed between the nodes"),
        (
            "one.csv",
            "online-range",
            "online, by running minimum and maximum agreed between the nodes",
        ),
        ("one.csv", "one.toml", "by known ranges"),
        ("many.csv", "whole-file", "over the whole file: hindsight, which no live system has"),
        (
            "many.csv",
            "whole-file-joint",
            "all features together over the whole file: hindsight, which no live system has",
        ),
    ] {
        let summary = simulate(folder, data, &["--scaling", scaling]);
        let said = summary["scaling"].as_str().unwrap();
        let report = written(folder, "report.html");
        let shown = shown(folder, data, &["--scaling", scaling]);
        if words.is_empty() {
            assert_eq!(said, "", "{scaling}");
            assert!(!shown.contains("scaling:") && !report.contains("Scaling: "), "{shown}");
        } else {
            assert!(said.contains(words), "{scaling}: {said}");
            assert!(shown.contains("scaling: ") && shown.contains(words), "{shown}");
            let (head, rest) = report.split_once("</header>").unwrap();
            assert!(head.contains("Scaling: ") && head.contains(words), "{head}");
            assert!(rest.contains("<dt>Scaling</dt>"));
        }
        assert_eq!(summary["data"]["samples"], 120, "{scaling}");
    }
    // Whatever the unit, the same is learned; errors are in the label's unit if the scale is one
    // that a live system could have.
    let error =
        |data: &str, scaling: &str| mse(&simulate(folder, data, &["--scaling", scaling]), "mk");
    for (one, many, factor) in [
        ("whole-file", "whole-file", 1.0),
        ("whole-file-joint", "whole-file-joint", 1.0),
        ("one.toml", "many.toml", 1e6),
        ("online", "online", 1e6),
        ("online-range", "online-range", 1e6),
    ] {
        assert_near(error("many.csv", many), factor * error("one.csv", one));
    }
    let raw = hedgerow(
        folder,
        &[&["simulate", "--data", "many.csv", "--scaling", "none"], &QUICK[..]].concat(),
    );
    assert!(
        raw.status.success() && text(&raw.stderr).contains("--scaling online"),
        "{}",
        text(&raw.stderr)
    );
}

#[test]
fn what_is_missing_is_counted_everywhere() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let mut rows: Vec<Vec<String>> =
        plain().lines().map(|row| row.split(',').map(str::to_owned).collect()).collect();
    for (row, column, marker) in
        [(5, 0, ""), (6, 1, "NA"), (7, 0, "?"), (7, 1, "-200"), (9, 2, "-200.0"), (11, 2, "")]
    {
        rows[row][column] = marker.to_owned();
    }
    // Of a sample that is skipped nothing is filled in.
    rows[11][0] = "NA".to_owned();
    let content: Vec<String> = rows.iter().map(|row| row.join(",")).collect();
    write(folder, "d.csv", content.join("\n"));
    let flags = ["--missing", "NA,?,-200", "--scaling", "none", "--nodes", "4"];
    let summary = simulate(folder, "d.csv", &flags);
    let data = &summary["data"];
    assert_eq!((&data["missing_inputs"], &data["missing_labels"]), (&4.into(), &2.into()));
    assert_eq!(data["samples"], 118);
    let words = "4 inputs imputed, 2 samples without a label skipped";
    let report = written(folder, "report.html");
    assert!(report.contains(&format!("<dt>Missing values</dt><dd>{words}</dd>")));
    let shown = shown(folder, "d.csv", &flags);
    assert!(shown.contains(&format!("missing: {words}\n")), "{shown}");
    let error = mse(&summary, "mk");
    assert!(error > 0.0 && error < 1.0, "{error}");
    // Nothing is said where nothing is missing.
    write(folder, "whole.csv", plain());
    assert_eq!(simulate(folder, "whole.csv", &[])["data"]["missing_inputs"], 0);
    assert!(written(folder, "report.html").contains("<dt>Missing values</dt><dd>none</dd>"));
}

fn live(folder: &Path, flags: &[&str]) -> Child {
    let mut command =
        command(folder, &[&["simulate", "--data", "-", "--json"], &QUICK[..], flags].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Writes line by line, in pieces; the process has to wait.
fn feed(child: &mut Child, lines: &str) {
    let mut input = child.stdin.take().unwrap();
    for (at, line) in lines.split_inclusive('\n').enumerate() {
        // In two pieces, like a slow connection.
        let (begin, end) = line.split_at(line.len() / 2);
        input.write_all(begin.as_bytes()).unwrap();
        input.flush().unwrap();
        if at < 10 {
            std::thread::yield_now();
            assert!(child.try_wait().unwrap().is_none(), "it did not wait");
        }
        input.write_all(end.as_bytes()).unwrap();
        input.flush().unwrap();
    }
    child.stdin = Some(input);
}

fn ended(child: Child) -> Output {
    // Closes its input.
    child.wait_with_output().unwrap()
}

#[test]
fn standard_input_is_learned_from_as_it_comes() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let headless = table("", ",", "\n", |_| String::new());
    let lines: String = numbers(120)
        .iter()
        .map(|[a, b, y]| format!("{{\"a\":{a:.5},\"b\":{b:.5},\"y\":{y:.5}}}\n"))
        .collect();
    write(folder, "d.csv", plain());
    let expected = simulate(folder, "d.csv", &["--nodes", "7"]);
    for content in [plain(), headless, lines, plain().trim_end().to_owned()] {
        let mut child = live(folder, &["--nodes", "7"]);
        feed(&mut child, &content);
        let summary = json(&ended(child));
        assert_eq!(summary["data"]["samples"], 120);
        assert_eq!((&summary["nodes"], &summary["rounds"]), (&7.into(), &18.into()));
        for name in ["mk", "sk"] {
            assert_eq!(mse(&summary, name), mse(&expected, name), "{name}");
        }
        assert!(written(folder, "report.html").contains("</html>"));
        assert_eq!(
            serde_json::from_str::<Value>(&written(folder, "summary.json")).unwrap(),
            summary
        );
    }
}

#[test]
fn a_live_stream_may_be_packed_and_name_its_nodes() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let owned = table("station,a,b,y\n", ",", "\n", |row| format!("{},", ["n", "s", "w"][row % 3]));
    write(folder, "d.csv", &owned);
    let by_column = ["--partition", "column:station", "--nodes", "3"];
    let expected = simulate(folder, "d.csv", &by_column);
    for content in [owned.clone().into_bytes(), gzip(owned.as_bytes())] {
        let mut child = live(folder, &by_column);
        child.stdin.take().unwrap().write_all(&content).unwrap();
        let summary = json(&ended(child));
        assert_eq!((&summary["nodes"], &summary["rounds"]), (&3.into(), &40.into()));
        assert_eq!(mse(&summary, "mk"), mse(&expected, "mk"));
    }
    // A series, far from one, with gaps: all of it happens on the way.
    let series: String = (0..80)
        .map(|row| if row % 10 == 9 { "NA\n".to_owned() } else { format!("{}\n", 500 + row % 7) })
        .collect();
    let mut child = live(folder, &["--lags", "3", "--nodes", "2"]);
    feed(&mut child, &format!("y\n{series}"));
    let summary = json(&ended(child));
    assert!(summary["scaling"].as_str().unwrap().starts_with("online"), "{}", summary["scaling"]);
    assert_eq!(summary["data"]["missing_labels"], 8);
    assert!(mse(&summary, "last") > 0.0 && mse(&summary, "mean") > 0.0);
}

#[test]
fn a_live_stream_need_not_end() {
    let folder = TempDir::new().unwrap();
    // Enough rounds, and a row that is wrong: both are noticed while the stream is still open.
    let mut child = live(folder.path(), &["--nodes", "4", "--rounds", "10", "--out", "enough"]);
    let mut input = child.stdin.take().unwrap();
    let _ = input.write_all(plain().as_bytes());
    let summary = json(&ended_by_itself(child, input));
    assert_eq!((&summary["rounds"], &summary["data"]["samples"]), (&10.into(), &40.into()));
    let mut child = live(folder.path(), &["--nodes", "4", "--out", "wrong"]);
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"a,y\n1,2\n2,3\n3,x\n").unwrap();
    let output = ended_by_itself(child, input);
    assert_refused(&output, 3, &["standard input", "row 4", "\"y\"", "\"x\""], folder.path());
    assert_eq!(folder.path().join("wrong").read_dir().unwrap().count(), 0);
}
