//! Made-up results for tests of statistics, figures and pages.

// A method that is missing is a mistake in a test.
#![allow(clippy::unwrap_used)]

use crate::compare::{Cell, Comparison};
use crate::results::{
    ClassResult, ColumnImportance, CoursePoint, Curve, DataSummary, DeviceCourse, ImportanceResult,
    MethodResult, Moments, Regret, Results, SampledPredictions, SubsetError,
};

/// A run with `mk`, `naive`, `central`, `local`, one `sk` per kernel and `hindsight`; the middle
/// kernel is best.
pub fn results(kernels: usize, rounds: usize, trials: usize) -> Results {
    let best = kernels / 2 + 1;
    let mut methods: Vec<MethodResult> =
        [("mk", 1.1), ("naive", 1.05), ("central", 1.02), ("local", 3.0)]
            .into_iter()
            .map(|(name, level)| MethodResult {
                curve: Curve {
                    shares: shares(kernels, best, rounds),
                    ..curve(level, rounds, trials)
                },
                ..method(name, level, trials)
            })
            .collect();
    methods.extend((1..=kernels).map(|kernel| {
        let level = 1.0 + kernel.abs_diff(best) as f64;
        MethodResult {
            kernel: Some(kernel),
            best: kernel == best,
            curve: curve(level, rounds, trials),
            ..method("sk", level, trials)
        }
    }));
    methods.push(MethodResult {
        kernel: Some(best),
        regret: None,
        ..method("hindsight", 0.5, trials)
    });
    // The naive extension sends every kernel's model and the weights.
    methods[1].numbers_up = 98.0 * kernels as f64 + kernels as f64;
    Results {
        schema: 1,
        version: "0.0.0".into(),
        settings: serde_json::json!({"federation": {"nodes": 20}}),
        data: DataSummary {
            name: "twitter".into(),
            samples: rounds * 20,
            features: 77,
            ..DataSummary::default()
        },
        nodes: 20,
        rounds,
        rounds_asked: None,
        budget: 100,
        kernels: (0..kernels).map(|p| format!("gaussian σ²=1e{}", p as i32 - 5)).collect(),
        trials,
        seed: 1,
        partition: "round-robin".into(),
        loss: "squared".into(),
        window: 100,
        best_kernel: Some(best),
        methods,
        seconds: 12.5,
        ..Results::default()
    }
}

fn method(name: &str, level: f64, trials: usize) -> MethodResult {
    let moments = |mean: f64| Moments { mean, sd: if trials > 1 { mean * 0.03 } else { 0.0 } };
    MethodResult {
        name: name.into(),
        mse: moments(0.006 * level),
        mse_trials: common_spread(trials)
            .map(|spread| 0.006 * level * (1.0 + 0.03 * spread))
            .collect(),
        mse_last_window: Some(moments(0.005 * level)),
        mean_loss: moments(0.006 * level),
        numbers_up: 99.0,
        numbers_down: 100.0,
        bytes_up: 400.0,
        bytes_down: 404.0,
        uploads_accepted: 1.0,
        regret: Some(Regret { mean: 30.0 * level, sd: 1.0, exponent: Some(0.55) }),
        seconds: 2.0,
        ..MethodResult::default()
    }
}

/// What all methods of a trial share, around 0 with a standard deviation of 1.
fn common_spread(trials: usize) -> impl Iterator<Item = f64> {
    let count = trials as f64;
    let sd = if trials > 1 { (count * (count + 1.0) / 12.0).sqrt() } else { 1.0 };
    (0..trials).map(move |trial| (trial as f64 - (count - 1.0) / 2.0) / sd)
}

fn curve(level: f64, rounds: usize, trials: usize) -> Curve {
    let at = |t: usize| 0.006 * level * (1.0 + 30.0 / t as f64);
    let moments = |mean: f64| Moments { mean, sd: if trials > 1 { mean * 0.1 } else { 0.0 } };
    Curve {
        rounds: (1..=rounds as u64).collect(),
        mse: (1..=rounds).map(|t| moments(at(t))).collect(),
        mse_window: (1..=rounds).map(|t| moments(at(t) * 0.8)).collect(),
        loss: (1..=rounds).map(|t| moments(at(t))).collect(),
        coverage: (1..=rounds).map(|t| Moments { mean: 0.9 - 0.3 / t as f64, sd: 0.0 }).collect(),
        shares: Vec::new(),
        regret_rounds: (1..=rounds as u64).step_by(5).collect(),
        regret: (1..=rounds).step_by(5).map(|t| moments(level * (t as f64).powf(0.55))).collect(),
    }
}

/// From even shares to the best kernel alone.
fn shares(kernels: usize, best: usize, rounds: usize) -> Vec<Vec<f64>> {
    let even = 1.0 / kernels as f64;
    (1..=rounds)
        .map(|t| {
            let settled = 1.0 - 1.0 / t as f64;
            let share = |p: usize| even * (1.0 - settled) + if p == best { settled } else { 0.0 };
            (1..=kernels).map(share).collect()
        })
        .collect()
}

/// A run of four trials with `sk` for three kernels (the second is best, at level 1),
/// `hindsight`, and these methods at these levels. Most of the difference between trials is
/// common to all methods.
pub fn run(levels: &[(&str, f64)]) -> Results {
    let mut run = results(3, 40, 4);
    let model = run.methods[0].clone();
    run.methods.retain(|method| matches!(method.name.as_str(), "sk" | "hindsight"));
    run.methods.extend(
        levels.iter().map(|(name, _)| MethodResult { name: (*name).into(), ..model.clone() }),
    );
    for (place, (name, level)) in levels.iter().enumerate() {
        let trials: Vec<f64> = [0.97, 0.99, 1.01, 1.03]
            .iter()
            .enumerate()
            .map(|(trial, common)| {
                let own = if (trial + place).is_multiple_of(2) { 1e-4 } else { -1e-4 };
                0.006 * level * common * (1.0 + own)
            })
            .collect();
        with_trials(&mut run, name, &trials);
    }
    let scaled: Vec<f64> = [0.97, 0.99, 1.01, 1.03].map(|common| 0.006 * common).to_vec();
    let sk = run.methods.iter_mut().find(|method| method.name == "sk" && method.best);
    if let Some(sk) = sk {
        sk.mse_trials = scaled;
    }
    run
}

/// A run on a built-in stream whose methods all have this windowed error.
pub fn run_on_stream(
    stream: &str,
    rounds: usize,
    window: usize,
    error: impl Fn(u64) -> f64,
) -> Results {
    let mut results = results(3, rounds, 2);
    results.data.name = stream.into();
    results.data.provenance = "generated".into();
    results.window = window;
    for curve in results.methods.iter_mut().map(|method| &mut method.curve) {
        let values = curve.rounds.iter().map(|round| Moments { mean: error(*round), sd: 0.0 });
        curve.mse_window = values.collect();
    }
    results
}

/// Gives a method these errors, one per trial.
pub fn with_trials(results: &mut Results, name: &str, trials: &[f64]) {
    let mean = trials.iter().sum::<f64>() / trials.len() as f64;
    let squares: f64 = trials.iter().map(|error| (error - mean) * (error - mean)).sum();
    let method = results.methods.iter_mut().find(|method| method.name == name).unwrap();
    method.mse = Moments { mean, sd: (squares / (trials.len() - 1) as f64).sqrt() };
    method.mse_trials = trials.to_vec();
}

/// Gives a method this traffic per node and round.
pub fn with_bytes(results: &mut Results, name: &str, up: f64, down: f64) {
    let method = results.methods.iter_mut().find(|method| method.name == name).unwrap();
    (method.bytes_up, method.bytes_down) = (up, down);
}

/// A run on this data with this partition.
pub fn cell(data: &str, partition: &str, results: Option<Results>) -> Cell {
    let results = results.map(|results| Results { partition: partition.into(), ..results });
    Cell::new(data, data, partition, results)
}

/// A comparison of one run.
pub fn one(results: Results) -> Comparison {
    Comparison::new(vec![Cell::new("twitter", "Twitter", "round-robin", Some(results))], "mk")
}

/// Two data sets, two partitions, one run missing.
pub fn grid() -> Comparison {
    let cells = vec![
        cell("one", "shuffled", Some(run(&[("mk", 2.0), ("gr", 1.0), ("last", 4.0)]))),
        cell("one", "blocks", Some(run(&[("mk", 2.0), ("gr", 0.9), ("last", 0.5)]))),
        cell("two", "shuffled", Some(run(&[("mk", 1.0), ("gr", 1.2), ("last", 3.0)]))),
        cell("two", "blocks", None),
    ];
    Comparison::new(cells, "mk")
}

/// Makes the labels classes. Of class c each other class was predicted 12 + c times, and the class
/// itself 1000 times.
pub fn add_classes(results: &mut Results, classes: usize) {
    results.classes = (0..classes).map(|class| format!("class {class}<")).collect();
    let count = |class, predicted| if class == predicted { 1000 } else { 12 + class as u64 };
    let row = |class| (0..classes).map(|predicted| count(class, predicted)).collect();
    let confusion: Vec<Vec<u64>> = (0..classes).map(row).collect();
    for method in &mut results.methods {
        method.classes =
            Some(ClassResult { confusion: confusion.clone(), ..ClassResult::default() });
    }
}

/// Gives the subject predictions of these many devices and rounds, errors at each device, in
/// each hour and on each weekday, and importances of columns.
pub fn add_predictions(results: &mut Results, devices: u32, rounds: u64) {
    let point = |node: u32, round: u64| CoursePoint {
        round,
        truth: (round as f32 / 7.0).sin() * 10.0,
        value: (round as f32 / 7.0).sin() * 9.0 + node as f32 / 10.0,
        margin: (round > 1).then_some(2.0),
        time: None,
    };
    let course = |node: u32| {
        let all: Vec<CoursePoint> = (1..=rounds).map(|round| point(node, round)).collect();
        DeviceCourse { node, recent: all[all.len() / 2..].to_vec(), whole: all }
    };
    let error = |place: u32| SubsetError { predictions: 100, mse: 0.1 * f64::from(place + 1) };
    let Some(place) = results.subject_place() else { return };
    let subject = &mut results.methods[place];
    let devices_shown: Vec<DeviceCourse> = (0..devices.min(5)).rev().map(course).collect();
    let scatter = devices_shown.iter().flat_map(|device| &device.whole);
    let scatter = scatter.map(|point| [point.truth, point.value]).collect();
    subject.sampled = Some(SampledPredictions { scatter, devices: devices_shown });
    subject.nodes = (0..devices).map(error).collect();
    subject.hours = (0..24).map(error).collect();
    subject.weekdays = (0..7).map(error).collect();
    let column = |place: u32| ColumnImportance {
        name: format!("column {place}"),
        increase: 0.002 * f64::from(place),
        measured: 10,
        windows: vec![Some(0.001 * f64::from(place)), None, Some(0.003 * f64::from(place))],
    };
    let columns = (0..3).map(column).collect();
    subject.importance = Some(ImportanceResult { columns, rounds: vec![2, 4, 5] });
    results.interval = 0.9;
    results.data.target = "load".into();
}
