//! Live runs give the same results as runs on known data where possible, and use nothing that is
//! known only afterwards.

#![allow(clippy::unwrap_used)]

use std::cell::Cell as Shared;
use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Files, assert_says, method};
use hedgerow_config::Layer;
use hedgerow_data::Dataset;
use hedgerow_data::rows::{self, ReadError, Row, Rows};
use hedgerow_data::samples::SampleStream;
use hedgerow_lab::live;
use hedgerow_lab::results::Results;
use hedgerow_lab::settings::Settings;

fn settings(flags: &[&str]) -> Settings {
    Settings::load(&Layer::sets(flags.iter().copied().chain(["data.name=-"])).unwrap()).unwrap()
}

fn stream(settings: &Settings, input: impl Read + Send + 'static) -> Result<SampleStream, String> {
    let columns = &settings.data.columns;
    let rows =
        rows::read(input, Path::new("-"), &columns.format).map_err(|error| error.to_string())?;
    SampleStream::live(rows, columns).map_err(|error| error.to_string())
}

fn run(content: &str, flags: &[&str]) -> Result<Results, String> {
    let settings = settings(flags);
    let stream = stream(&settings, Cursor::new(content.to_owned().into_bytes()))?;
    let ended = live::run(&settings, stream, |_| true).map_err(|error| error.to_string())?;
    ended.because.map_or(Ok(ended.results), |error| Err(error.to_string()))
}

/// Rows of two inputs, the second of them sometimes missing like the label, of this size.
fn table(rows: usize, size: f64) -> String {
    let mut text = String::from("a,b,y\n");
    for at in 0..rows {
        let (a, b) = ((at as f64 * 0.7).sin(), (at as f64 * 1.3).cos());
        let shown = |value: f64, every: usize| {
            if at % every == 5 { "NA".to_owned() } else { value.to_string() }
        };
        text += &format!(
            "{},{},{}\n",
            size * a,
            shown(size * b, 7),
            shown(size * (a * b + 0.5 * a), 11)
        );
    }
    text
}

const SHORT: [&str; 3] = ["run.trials=2", "federation.nodes=6", "run.window=20"];

#[test]
fn a_live_run_is_the_run_that_it_would_have_been() {
    for (flags, size) in [
        (&["data.scaling=none"][..], 1.0),
        (&["data.scaling=online"], 300.0),
        (&["data.scaling=online-range", "data.lags=2"], 300.0),
        // Small at first: one sample alone would not show that a scale is needed.
        (&["data.scaling=auto", "data.features=[\"a\"]"], 3.5),
        (&["data.scaling=online", "participation.dropout=0.4", "participation.late=0.2"], 300.0),
        (&["data.series=\"b,y\"", "data.lags=1", "federation.nodes=2"], 1.0),
    ] {
        // 301 rows are 50 rounds and a short one.
        let content = table(301, size);
        let flags = [&SHORT, flags].concat();
        let live = run(&content, &flags).unwrap();
        let known = Files::one(&content).run(&flags).unwrap();
        assert_eq!(live.scaling.contains("online"), size > 1.0, "{flags:?}");
        assert_eq!(
            (live.rounds, live.nodes, &live.data),
            (known.rounds, known.nodes, &{
                let mut data = known.data.clone();
                data.name = "standard input".to_owned();
                data
            })
        );
        assert_eq!(
            (&live.scaling, &live.partition),
            (&known.scaling, &known.partition),
            "{flags:?}"
        );
        for (live, known) in live.methods.iter().zip(&known.methods) {
            assert_eq!((&live.name, live.kernel), (&known.name, known.kernel));
            assert_eq!(
                live.mse_trials, known.mse_trials,
                "{flags:?}, {} {:?}",
                live.name, live.kernel
            );
            assert_eq!(live.votes, known.votes);
            let sent = |m: &hedgerow_lab::results::MethodResult| {
                [m.numbers_up, m.numbers_down, m.bytes_up, m.bytes_down, m.uploads_accepted]
            };
            assert_eq!(sent(live), sent(known), "{flags:?}, {}", live.name);
            let last =
                |m: &hedgerow_lab::results::MethodResult| m.curve.mse.last().map(|mse| mse.mean);
            assert_eq!(last(live), last(known));
        }
    }
}

#[test]
fn several_series_say_how_many_nodes_there_are() {
    let results =
        run(&table(60, 1.0), &["data.series=\"b,y\"", "data.lags=1", "run.trials=1"]).unwrap();
    assert_eq!((results.nodes, results.rounds), (2, 59));
}

#[test]
fn a_round_closes_when_a_node_comes_again() {
    let content = "n,x,y\na,1,1\nb,0.5,0\na,0.2,0.3\na,0.1,0.4\nc,1,0.1\nb,0,0.5\nc,0.3,0.2\n";
    let flags = [
        "data.node=n",
        "federation.nodes=3",
        "run.trials=1",
        "federation.methods=[\"mk\", \"local\"]",
    ];
    let settings = settings(&flags);
    let stream = stream(&settings, Cursor::new(content)).unwrap();
    let mut seen = Vec::new();
    let results = live::run(&settings, stream, |progress| {
        let now = progress();
        assert_eq!(
            now.mse.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["mk", "local"]
        );
        seen.push((now.round, now.samples));
        true
    });
    // a b | a | a c b | c
    assert_eq!(seen, [(1, 2), (2, 3), (3, 6), (4, 7)]);
    let results = results.unwrap().results;
    assert_eq!(
        (results.rounds, results.data.samples, results.partition.as_str()),
        (4, 7, "column:n")
    );
    // Those without a sample hear of every round since they came, 2 + 2 + 3 + 3, and c of what was
    // before.
    let per_turn = method(&results, "mk").numbers_down;
    assert_eq!(per_turn * 12.0 / 100.0, 11.0);
}

#[test]
fn more_nodes_than_were_said_are_refused() {
    let content = "n,x,y\na,1,1\nb,0.5,0\nsouth,0.2,0.3\n";
    let message =
        run(content, &["data.node=n", "federation.nodes=2", "data.scaling=none"]).unwrap_err();
    assert_eq!(message, "standard input: \"south\" would be one node more than the 2 of --nodes");
    let message = run(content, &["data.node=n"]).unwrap_err();
    assert_says(&message, &["federation.nodes", "--nodes"]);
}

#[test]
fn what_only_a_whole_file_has_is_refused() {
    let needs = "standard input is read live, and ";
    for (flags, parts) in [
        (&["data.scaling=whole-file"][..], &[needs, "data.scaling = \"whole-file\" needs"][..]),
        (&["data.scaling=whole-file-joint"], &[needs, "whole-file-joint"]),
        (&["data.categories=one-hot"], &[needs, "one-hot", "hashed:N"]),
        (&["data.disorder=sort", "data.time=a"], &[needs, "data.disorder = \"sort\""]),
        (&["federation.partition=shuffled"], &[needs, "federation.partition"]),
        (&["participation.join_within=0.5"], &[needs, "participation.join_within"]),
        (
            &["participation.arrivals=\"fixed:2\""],
            &["participation.arrivals", "\"one\"", "\"fixed:2\""],
        ),
        (&["run.window=1000000000000"], &["run.window", "at most 100000", "1000000000000"]),
        (&["learning.step_schedule=horizon"], &["learning.step_schedule", "live stream"]),
    ] {
        assert_says(&run(&table(30, 1.0), flags).unwrap_err(), parts);
    }
    // With a given number of rounds, the stream is not read further.
    assert!(
        run(&table(30, 1.0), &["run.window=1000000000000", "run.rounds=1", "run.trials=1"]).is_ok()
    );
    let settings = settings(&[]);
    let mut stream = stream(&settings, Cursor::new(table(30, 1.0))).unwrap();
    assert!(stream.is_live());
    let message = Dataset::read("-", &mut stream, &|_| {}).unwrap_err().to_string();
    assert_says(&message, &[needs, "needs the whole file first"]);
}

#[test]
fn what_is_wrong_on_the_way_is_named() {
    let content = "c,x,y\nred,1,1\nblue,2,2\n,x,3\n";
    let message = run(content, &["data.categories=hashed:4", "run.trials=1"]).unwrap_err();
    assert_says(&message, &["standard input, row 4, column \"x\": \"x\" is not a number"]);
    for flags in [&["data.task=classes"][..], &[]] {
        let message = run("x,y\n1,no\n2,yes\n", flags).unwrap_err();
        assert_says(&message, &["a class", "data.classes", "whole file first"]);
    }
    let message = run("x,y\n1,no\n2,maybe\n", &["data.classes=[\"no\", \"yes\"]"]).unwrap_err();
    assert_says(&message, &["standard input, row 3, column \"y\": \"maybe\" is none of"]);
    let message = run("t,x,y\n2,1,1\n1,2,2\n", &["data.time=t"]).unwrap_err();
    assert_says(&message, &["standard input, row 3, column \"t\": time goes back"]);
    let message = run("x,y\n1,1\n2,2\n", &["data.lags=2"]).unwrap_err();
    assert_says(&message, &["no sample"]);
}

/// An endless table that counts the rows read.
struct Endless {
    columns: Vec<String>,
    asked: Arc<AtomicU64>,
}

impl Rows for Endless {
    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn next(&mut self, row: &mut Row) -> Result<bool, ReadError> {
        let at = self.asked.fetch_add(1, Ordering::Relaxed);
        row.clear(at + 2);
        [0.3, 0.7].iter().for_each(|rate| row.push(rows::Cell::Number((at as f64 * rate).sin())));
        Ok(true)
    }

    fn bytes_read(&self) -> u64 {
        0
    }
}

#[test]
fn a_round_is_learned_as_soon_as_it_is_there() {
    for (flag, stops_after) in [("run.rounds=25", u64::MAX), ("run.rounds=0", 25)] {
        let settings = settings(&["federation.nodes=4", "run.trials=1", "data.scaling=none", flag]);
        let asked = Arc::new(AtomicU64::new(0));
        let rows = Endless { columns: vec!["x".into(), "y".into()], asked: asked.clone() };
        let stream = SampleStream::live(Box::new(rows), &settings.data.columns).unwrap();
        let rounds = Shared::new(0);
        let results = live::run(&settings, stream, |_| {
            rounds.set(rounds.get() + 1);
            assert_eq!(asked.load(Ordering::Relaxed), 4 * rounds.get());
            rounds.get() < stops_after
        });
        assert_eq!((results.unwrap().results.rounds, rounds.get()), (25, 25));
        assert_eq!(asked.load(Ordering::Relaxed), 100);
    }
}

#[test]
fn what_was_learned_before_a_bad_row_is_not_lost() {
    let settings = settings(&["federation.nodes=2", "run.trials=1", "data.scaling=none"]);
    let rows: String = (0..40).map(|i| format!("0.{},0.{}\n", i % 7, i % 5)).collect();
    let stream = stream(&settings, Cursor::new(format!("x,y\n{rows}oops,0.1\n"))).unwrap();
    let ended = live::run(&settings, stream, |_| true).unwrap();
    assert_eq!((ended.results.rounds, ended.results.data.samples), (20, 40));
    let error = ended.because.unwrap().to_string();
    assert!(error.contains("row 42") && error.contains("oops"), "{error}");
}
