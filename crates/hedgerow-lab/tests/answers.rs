//! Whether federating pays on streams where the truth is known, intervals where the stream changes,
//! and files of predictions.

#![allow(clippy::unwrap_used)]

use hedgerow_config::Layer;
use hedgerow_lab::predictions;
use hedgerow_lab::results::Results;
use hedgerow_lab::run::{Experiment, load_data};
use hedgerow_lab::settings::Settings;
use hedgerow_lab::worth::Worth;

use crate::common::Files;

pub(crate) fn run(flags: &[&str]) -> Results {
    let settings = Settings::load(&Layer::sets(flags).unwrap()).unwrap();
    let data = load_data(&settings, &|_| {}).unwrap();
    Experiment::new(&settings, &data).unwrap().run(&|| {}).unwrap()
}

/// What federating changes on a built-in stream.
fn worth(stream: &str, nodes: usize, rounds: usize) -> Worth {
    let (data, nodes) = (format!("data.name={stream}"), format!("federation.nodes={nodes}"));
    let rounds = format!("run.rounds={rounds}");
    let methods = "federation.methods=[\"mean\",\"last\",\"tr+alone\",\"tr\",\"tr+pooled\"]";
    let results = run(&[&data, &nodes, &rounds, methods, "run.trials=1"]);
    Worth::of(&results).unwrap()
}

#[test]
fn devices_that_are_alike_gain_with_few_samples_and_with_many() {
    for (nodes, rounds) in [(5, 40), (10, 150), (5, 600)] {
        let Worth { ratio, interval, pooled, trivial, .. } = worth("friedman", nodes, rounds);
        let (low, high) = interval.unwrap();
        assert!(ratio < 0.8 && high < 1.0 && low < ratio, "{nodes}, {rounds}: {ratio}, {high}");
        assert!((pooled.unwrap() / ratio - 1.0).abs() < 0.2, "{pooled:?}");
        assert!(trivial.unwrap().1 > ratio);
    }
}

#[test]
fn devices_with_offsets_and_gains_of_their_own_gain_but_not_in_one_model() {
    let Worth { ratio, interval, pooled, .. } = worth("fleet", 20, 400);
    assert!(ratio < 0.85 && interval.unwrap().1 < 1.0, "{ratio}");
    assert!(pooled.unwrap() > 2.0, "{pooled:?}");
}

#[test]
fn unrelated_devices_are_not_told_to_federate() {
    let Worth { ratio, interval, pooled, .. } = worth("unrelated", 10, 200);
    let (low, high) = interval.unwrap();
    assert!(ratio > 0.97 && high > 1.0 && low > 0.8, "{ratio}, {low} to {high}");
    assert!(pooled.unwrap() > 2.0, "{pooled:?}");
}

#[test]
fn on_random_walks_the_last_label_wins() {
    let Worth { ratio, trivial, .. } = worth("walks", 10, 200);
    let (name, error) = trivial.unwrap();
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
    assert!(name == "last" && error < ratio, "{name}: {error}");
}

#[test]
fn one_device_has_nobody_to_federate_with() {
    let methods = "federation.methods=[\"tr\",\"tr+alone\"]";
    let results = run(&["federation.nodes=1", "run.rounds=30", "run.trials=1", methods]);
    assert_eq!(Worth::of(&results), None);
}

#[test]
fn intervals_hold_over_any_500_rounds_of_a_stream_that_changes() {
    for stream in ["drift", "drift-recurring", "drift-flip"] {
        let data = format!("data.name={stream}");
        let flags = ["run.rounds=1500", "run.trials=1", "federation.methods=[\"mk\"]"];
        let results = run(&[&flags[..], &[&data, "run.predictions=p.csv"]].concat());
        let scored = &results.predictions[0].predictions;
        let nodes = results.nodes;
        assert_eq!(scored.len(), 1500 * nodes);
        let within: Vec<f64> = scored
            .chunks_exact(nodes)
            .skip(1)
            .map(|round| {
                let inside = |p: &&predictions::ScoredPrediction| {
                    p.interval.is_some_and(|interval| interval.contains(p.truth))
                };
                round.iter().filter(inside).count() as f64 / nodes as f64
            })
            .collect();
        for (start, rounds) in within.windows(500).enumerate() {
            let share = rounds.iter().sum::<f64>() / 500.0;
            assert!((share - 0.9).abs() < 0.03, "{stream} from round {}: {share}", start + 2);
        }
        let interval = results.methods[0].interval.unwrap();
        let share = within.iter().sum::<f64>() / within.len() as f64;
        assert!((interval.coverage - share).abs() < 1e-12 && interval.width > 0.0);
    }
}

#[test]
fn predictions_name_rows_times_and_nodes() {
    let mut table = String::from("when,meter,a,load\n");
    for row in 0..120 {
        let (day, hour) = (1 + row / 24, row % 24);
        let label = if row == 50 { String::new() } else { format!("{}", row % 7) };
        table += &format!("2024-03-{day:02} {hour:02}:00,m{},0.5,{label}\n", row % 2);
    }
    let files = Files::one(&table);
    let flags = [
        "data.time=when",
        "data.node=meter",
        "run.trials=2",
        "federation.methods=[\"gr\",\"last\"]",
        "data.scaling=none",
        "run.predictions=p.csv",
    ];
    let settings = files.settings("t.csv", &flags).unwrap();
    let data = load_data(&settings, &|_| {}).unwrap();
    let results = Experiment::new(&settings, &data).unwrap().run(&|| {}).unwrap();
    let path = files.path().join("p.csv");
    predictions::write(&path, &results, Some(&data)).unwrap();
    let written = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<Vec<&str>> =
        written.lines().skip(1).map(|line| line.split(',').collect()).collect();
    // All rows but the one without a label, for each method and the other free forecast.
    assert_eq!(lines.len(), 3 * 119);
    assert!(lines.iter().all(|line| line[0] != "52"), "row 52 of the file has no label");
    assert_eq!(lines[0][..5], ["2", "2024-03-01T00:00:00", "m0", "gr", "0"]);
    assert_eq!(lines[118][..4], ["121", "2024-03-05T23:00:00", "m1", "gr"]);
    // The errors of the file are those of the summary in the first trial.
    let squares = lines[..119].iter().map(|line| {
        let [truth, prediction] = [4, 5].map(|cell| line[cell].parse::<f64>().unwrap());
        (truth - prediction) * (truth - prediction)
    });
    let mse = squares.sum::<f64>() / 119.0;
    assert!((mse / results.methods[0].mse_trials[0] - 1.0).abs() < 1e-5);
}
