//! `hedgerow reproduce` as a process: its files, stored runs, and missing data.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::SystemTime;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{
    assert_refused, command, hedgerow, json, real_data, skipped, text, wait_until, write,
};

/// Reproduces with one trial into the folder `out`, unless the flags say otherwise.
fn reproduce(folder: &Path, what: &str, data: &Path, flags: &[&str]) -> Output {
    let mut arguments = vec!["reproduce", what, "--data-dir", data.to_str().unwrap()];
    for usual in [["--trials", "1"], ["--out", "out"]] {
        if !flags.contains(&usual[0]) {
            arguments.extend(usual);
        }
    }
    hedgerow(folder, &[&arguments, flags].concat())
}

/// The stored runs and when each was written, by name. Files whose names begin with a dot are no
/// results yet.
fn runs(folder: &Path) -> Vec<(PathBuf, SystemTime)> {
    let Ok(files) = folder.join("out/runs").read_dir() else { return Vec::new() };
    let files = files.map(|file| file.unwrap().path());
    let seen = files.filter(|path| !path.file_name().unwrap().to_str().unwrap().starts_with('.'));
    let mut runs: Vec<_> =
        seen.map(|path| (path.clone(), path.metadata().unwrap().modified().unwrap())).collect();
    runs.sort();
    runs
}

/// A file of the figure that was reproduced: one figure has a folder of its own.
fn read(folder: &Path, file: &str) -> Vec<u8> {
    let folders = ["fig2", "fig3", "fig4", "."].map(|figure| folder.join("out").join(figure));
    let found = folders.iter().find(|folder| folder.join("report.html").exists());
    std::fs::read(found.unwrap().join(file)).unwrap()
}

fn assert_whole(folder: &Path, figure: &str) {
    if cfg!(feature = "png") {
        let png = read(folder, &format!("{figure}.png"));
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.ends_with(b"IEND\xaeB`\x82"));
    }
    for (file, end) in [(format!("{figure}.svg").as_str(), "</svg>"), ("report.html", "</html>")] {
        assert!(text(&read(folder, file)).trim_end().ends_with(end), "{file}");
    }
    for file in ["table.csv", "reproduction.md"] {
        assert!(read(folder, file).ends_with(b"\n"), "{file}");
    }
    assert_all_runs_whole(folder);
}

fn assert_all_runs_whole(folder: &Path) {
    for (path, _) in runs(folder) {
        let run: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert!(
            run["results"]["methods"].as_array().is_some_and(|methods| !methods.is_empty()),
            "{}",
            path.display()
        );
    }
}

/// What was found, without the time that it took.
fn errors(summary: &Value) -> Vec<(String, String, f64)> {
    let mut errors = Vec::new();
    for (name, run) in summary["figures"][0]["runs"].as_object().unwrap() {
        for method in run["methods"].as_array().unwrap() {
            let label = format!("{} {}", method["name"], method["kernel"]);
            errors.push((name.clone(), label, method["mse"]["mean"].as_f64().unwrap()));
        }
    }
    errors
}

#[test]
fn a_figure_is_made_once_and_mended_where_it_is_damaged() {
    let Some(data) = real_data() else { return };
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let output = reproduce(folder, "fig4", &data, &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("a) ") && shown.contains("Report: out/fig4/report.html"), "{shown}");
    assert_whole(folder, "fig4");
    assert!(!folder.join("out/fig3.svg").exists());
    let table = text(&read(folder, "table.csv"));
    let document = text(&read(folder, "reproduction.md"));
    let svg = text(&read(folder, "fig4.svg"));
    for title in ["Air quality", "Traffic", "Temperature"] {
        assert!(
            table.contains(title) && document.contains(title) && svg.contains(title),
            "{title}"
        );
    }
    let first = runs(folder);
    assert_eq!(first.len(), 3);

    let output = reproduce(folder, "fig4", &data, &[]);
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("3 of 3 runs are finished already, in out/runs"));
    assert_eq!(runs(folder), first);
    assert_eq!(text(&read(folder, "table.csv")), table);

    // One run is missing, one is truncated, one is invalid: only these are repeated.
    let damage: [&dyn Fn(&Path); 4] = [
        &|path| std::fs::remove_file(path).unwrap(),
        &|path| {
            let content = std::fs::read(path).unwrap();
            std::fs::write(path, &content[..content.len() / 2]).unwrap();
        },
        &|path| std::fs::write(path, "{}").unwrap(),
        &|path| std::fs::write(path, b"\xff\xfe\x00").unwrap(),
    ];
    for (at, damage) in damage.iter().enumerate() {
        let before = runs(folder);
        let (path, _) = &first[at % first.len()];
        damage(path);
        let output = reproduce(folder, "fig4", &data, &[]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("2 of 3 runs are finished already"));
        let after = runs(folder);
        assert_eq!(after.len(), 3);
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before.0, after.0);
            assert_eq!(before.1 == after.1, before.0 != *path, "{}", path.display());
        }
        assert_whole(folder, "fig4");
    }
    // Other trials are other runs; the old ones stay.
    let output = reproduce(folder, "fig4", &data, &["--trials", "2", "--json"]);
    let summary = json(&output);
    assert_eq!((&summary["schema"], &summary["missing"]), (&1.into(), &Value::Array(vec![])));
    assert_eq!(summary["figures"][0]["runs"]["traffic"]["trials"], 2);
    assert!(summary["claims"].as_array().unwrap().len() >= 5);
    assert_eq!(runs(folder).len(), 6);
    // Everything again.
    let before = runs(folder);
    assert!(reproduce(folder, "fig4", &data, &["--fresh", "--quiet"]).status.success());
    let fresh = runs(folder);
    assert_eq!(fresh.len(), 3);
    assert!(fresh.iter().all(|run| !before.contains(run)));
}

#[test]
fn a_killed_reproduction_goes_on_where_it_was() {
    let Some(data) = real_data() else { return };
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let flags = [
        "reproduce",
        "fig4",
        "--data-dir",
        data.to_str().unwrap(),
        "--trials",
        "4",
        "--out",
        "out",
    ];
    let spawn =
        || command(folder, &flags).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut child = spawn();
    wait_until("a run", || !runs(folder).is_empty() || child.try_wait().unwrap().is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    let stored = runs(folder);
    assert_all_runs_whole(folder);
    assert!(!stored.is_empty());
    if stored.len() == 3 {
        skipped("the kill came too late to leave anything undone");
    }
    // At any other moment, too: while data is read, while a run is stored, while figures are drawn.
    for mut looks in [4, 24, 70, 140] {
        let mut child = spawn();
        wait_until("that moment", || {
            looks -= 1;
            looks == 0
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert_all_runs_whole(folder);
        assert!(stored.iter().all(|run| runs(folder).contains(run)), "a finished run was touched");
    }
    let output = hedgerow(folder, &[&flags[..], &["--json"]].concat());
    let found = errors(&json(&output));
    assert!(stored.iter().all(|run| runs(folder).contains(run)));
    assert_eq!(runs(folder).len(), 3);
    assert_whole(folder, "fig4");
    // The same as without any interruption.
    let elsewhere = TempDir::new().unwrap();
    assert_eq!(
        found,
        errors(&json(&hedgerow(elsewhere.path(), &[&flags[..], &["--json"]].concat())))
    );
}

#[test]
fn what_is_missing_is_named_with_the_way_to_get_it() {
    let Some(data) = real_data() else { return };
    if ["buzz/Twitter.data", "Twitter.data"]
        .iter()
        .any(|file| data.join(file).exists() || data.join(format!("{file}.gz")).exists())
    {
        return skipped("twitter-large is at hand, and so not missing");
    }
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let output = reproduce(folder, "fig3", &data, &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(
        said.contains("skipped: twitter-large")
            && said.contains("hedgerow data fetch twitter-large"),
        "{said}"
    );
    assert_eq!(said.matches("skipped:").count(), 1, "{said}");
    assert!(
        said.contains("error: the rest is done, but a data set is not there: twitter-large"),
        "{said}"
    );
    assert_whole(folder, "fig3");
    assert_eq!(runs(folder).len(), 5);
    assert!(text(&read(folder, "reproduction.md")).contains("not available"));
    let output = reproduce(folder, "fig3", &data, &["--json"]);
    assert_eq!(output.status.code(), Some(5));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["missing"], serde_json::json!(["twitter-large"]));
    assert_eq!(summary["figures"][0]["runs"]["twitter-large"], Value::Null);
    assert_eq!(summary["figures"][0]["runs"]["naval"]["data"]["features"], 16);
}

#[test]
fn without_any_data_everything_is_named_and_nothing_breaks() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    std::fs::create_dir(folder.join("nothing")).unwrap();
    for (what, names) in [
        ("fig4", &["air-quality", "traffic", "temperature"][..]),
        ("fig3", &["twitter", "twitter-large", "toms-hardware", "conductivity", "wave", "naval"]),
        ("fig2", &["twitter", "naval", "air-quality", "temperature"]),
        ("all", &["twitter", "twitter-large", "wave", "traffic"]),
    ] {
        let flags = ["reproduce", what, "--trials", "1", "--out", "out"];
        let mut command = command(folder, &flags);
        command
            .env("HEDGEROW_DATA_DIR", folder.join("nothing"))
            .env("HEDGEROW_CACHE_DIR", folder.join("nothing"));
        let output = command.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        for name in names {
            assert_eq!(
                said.matches(&format!("skipped: {name} is not here")).count(),
                1,
                "{name} in {said}"
            );
            assert!(said.contains(&format!("hedgerow data fetch {name}`")), "{name} in {said}");
        }
        assert!(runs(folder).is_empty());
        assert!(text(&read(folder, "reproduction.md")).contains("not available"), "{what}");
        assert!(text(&read(folder, "report.html")).trim_end().ends_with("</html>"), "{what}");
        command.arg("--json");
        let summary: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        assert!(
            names
                .iter()
                .all(|name| summary["missing"].as_array().unwrap().contains(&Value::from(*name)))
        );
    }
}

#[test]
fn what_goes_wrong_has_its_exit_code() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let series: String = (0..300).map(|row| format!("0.{}\n", row * row % 89)).collect();
    for file in ["Traffic", "Temperature"] {
        write(folder, &format!("data/authors_csv/{file}.csv"), format!("y\n{series}"));
    }
    let rows: String =
        (0..300).map(|row| format!("0.{},0.{}\n", row % 7, row * row % 89)).collect();
    write(folder, "data/authors_csv/AirData.csv", format!("x1,y\n{rows}0.5,red\n"));
    let data = folder.join("data");
    let refused = |flags: &[&str], code: i32, parts: &[&str]| {
        let output = reproduce(folder, "fig4", &data, flags);
        assert_refused(&output, code, parts, folder);
    };
    refused(&["--trials", "0"], 2, &["run.trials", "at least 1", "0"]);
    refused(&["--threads", "-1"], 2, &["run.threads", "-1"]);
    assert!(!folder.join("out").exists(), "something was left behind");
    refused(&[], 3, &["AirData.csv", "row 302", "\"y\"", "\"red\""]);
    assert_eq!(hedgerow(folder, &["reproduce", "fig5"]).status.code(), Some(2));
    write(folder, "taken", "a file, not a folder");
    refused(&["--out", "taken/out"], 4, &["taken/out"]);
    // With corrected rows it runs, and wrong flags lose no stored run.
    write(folder, "data/authors_csv/AirData.csv", format!("x1,y\n{rows}"));
    assert!(reproduce(folder, "fig4", &data, &["--quiet"]).status.success());
    let stored = runs(folder);
    assert_eq!(stored.len(), 3);
    refused(&["--fresh", "--trials", "0"], 2, &["run.trials"]);
    assert_eq!(runs(folder), stored);
    // A run of other data is another run.
    write(folder, "data/authors_csv/AirData.csv", format!("x1,y\n{rows}0.5,0.5\n"));
    assert!(reproduce(folder, "fig4", &data, &["--quiet"]).status.success());
    assert_eq!(runs(folder).len(), 4);
    // Where a run can't be stored.
    std::fs::remove_dir_all(folder.join("out/runs")).unwrap();
    write(folder, "out/runs", "in the way");
    refused(&[], 4, &["out/runs"]);
}

#[test]
fn fed_poe_s_benchmark_needs_the_stations() {
    let folder = TempDir::new().unwrap();
    let empty = folder.path().join("none");
    std::fs::create_dir(&empty).unwrap();
    let output = reproduce(folder.path(), "fed-poe", &empty, &["--json"]);
    if output.status.success() {
        return; // The data is in the cache.
    }
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["missing"][0], &told["results"]), (&"beijing".into(), &Value::Null));
    assert!(told["authors"].as_array().unwrap().len() == 3);
}
