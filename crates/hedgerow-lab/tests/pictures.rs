//! What figures are drawn from: the importance of columns, and parts of the predictions.

#![allow(clippy::unwrap_used)]

use std::fmt::Write;

use hedgerow_lab::results::{MethodResult, Results, from_stored_json, to_stored_json};

use crate::answers::run;
use crate::common::Files;

fn friedman(flags: &[&str]) -> Results {
    let methods = "federation.methods=[\"tr\",\"mk\",\"last\"]";
    let all = ["data.name=friedman", "run.rounds=400", "run.trials=1", methods];
    run(&[&all, flags].concat())
}

#[test]
fn importance_finds_the_columns_and_changes_no_result() {
    let measured = friedman(&[]);
    let plain = friedman(&["run.importance=none"]);
    let errors = |results: &Results| -> Vec<Vec<f64>> {
        results.methods.iter().map(|method| method.mse_trials.clone()).collect()
    };
    assert_eq!(errors(&measured), errors(&plain));
    assert!(plain.methods.iter().all(|method| method.importance.is_none()));
    for name in ["tr", "mk"] {
        let importance = measured.method(name).unwrap().importance.as_ref().unwrap();
        let increases: Vec<f64> = importance.columns.iter().map(|column| column.increase).collect();
        // The last five columns say nothing.
        let most = increases[5..].iter().copied().fold(f64::MIN, f64::max);
        assert!(increases[3] > 5.0 * most, "{name}: {increases:?}");
        assert_eq!(importance.columns[3].name, "x4");
        assert_eq!((importance.columns.len(), importance.rounds.last()), (10, Some(&400)));
    }
    assert!(measured.method("last").unwrap().importance.is_none());
    let stored = from_stored_json(&to_stored_json(&measured).unwrap()).unwrap();
    for (one, other) in stored.methods.iter().zip(&measured.methods) {
        assert_eq!((&one.importance, &one.sampled), (&other.importance, &other.sampled));
    }
}

#[test]
fn sharing_importance_changes_only_what_is_sent() {
    let flags = ["run.trials=2", "run.rounds=70", "federation.methods=[\"gr\",\"last\"]"];
    let with = |importance: &str| {
        let importance = format!("run.importance={importance}");
        friedman(&[&flags[..], &[importance.as_str()]].concat())
    };
    let (own, shared) = (with("local"), with("shared"));
    let [own, shared] = [&own, &shared].map(|results| results.method("gr").unwrap());
    assert_eq!((&own.mse_trials, &own.importance), (&shared.mse_trials, &shared.importance));
    // Two numbers of each of 10 columns from each of 20 nodes, in rounds 32 and 64, in each trial.
    let more = (2 * 10 * 20 * 2) as f64;
    let sent = |method: &MethodResult| method.numbers_up * 70.0 * 20.0;
    assert!((sent(shared) - sent(own) - more).abs() < 1e-6, "{} {}", sent(shared), sent(own));
}

/// Readings of four devices by the hour. The label follows `a`, whose sensor sends a constant from
/// half time on, and the text `kind`.
fn table(hours: usize) -> String {
    let mut text = String::from("when,device,a,kind,load\n");
    for hour in 0..hours {
        let (day, clock) = (hour / 24, hour % 24);
        for device in 0..4 {
            let noise = |i: usize| ((hour * 7919 + device * 104_729 + i * 1_299_709) % 997) as f64;
            let (a, kind) = (noise(0) / 997.0, (noise(1) as usize) % 3);
            let label = 10.0 * a + [0.0, 3.0, 6.0][kind];
            let shown = if hour < hours / 2 { a } else { 0.5 };
            let date = format!("2024-{:02}-{:02}T{clock:02}:00", 1 + day / 28, 1 + day % 28);
            writeln!(text, "{date},d{device},{shown},k{kind},{label}").unwrap();
        }
    }
    text
}

const COLUMNS: [&str; 5] = [
    "data.target=load",
    "data.node=device",
    "data.time=when",
    "data.categories=one-hot",
    "federation.methods=[\"gr\"]",
];

#[test]
fn a_dead_sensor_is_seen_over_time_and_texts_are_one_column() {
    let results = Files::one(&table(900)).run(&[&COLUMNS[..], &["run.trials=1"]].concat()).unwrap();
    let MethodResult { importance, hours, weekdays, sampled, .. } = results.method("gr").unwrap();
    let importance = importance.as_ref().unwrap();
    let names: Vec<&str> = importance.columns.iter().map(|column| &column.name[..]).collect();
    assert_eq!(names, ["a", "kind", "hour of when"]);
    let mean = |column: usize, from: u64, to: u64| {
        let windows = importance.rounds.iter().zip(&importance.columns[column].windows);
        let inside = windows.filter(|(round, _)| (from..to).contains(*round));
        let known: Vec<f64> = inside.filter_map(|(_, window)| *window).collect();
        known.iter().sum::<f64>() / known.len() as f64
    };
    let (before, after) = (mean(0, 200, 450), mean(0, 700, 900));
    assert!(before > 5.0 && after.abs() < before / 10.0, "{before} {after}");
    assert!(mean(1, 700, 900) > 3.0, "{}", mean(1, 700, 900));
    // Every hour and weekday has its part of the predictions.
    assert!(hours.len() == 24 && hours.iter().all(|part| part.predictions > 100));
    assert!(weekdays.len() == 7 && weekdays.iter().all(|part| part.predictions > 400));
    let sampled = sampled.as_ref().unwrap();
    assert_eq!((sampled.scatter.len(), sampled.devices.len()), (1000, 4));
    let rounds: Vec<u64> = sampled.devices[0].recent.iter().map(|point| point.round).collect();
    assert!(rounds.windows(2).all(|pair| pair[0] + 1 == pair[1]) && rounds.ends_with(&[900]));
    assert_eq!(results.data.target, "load");
}
