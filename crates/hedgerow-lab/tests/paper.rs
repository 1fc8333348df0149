//! The results of the paper and of reference runs, on real data if it is available. The data is not
//! part of the project: it is searched in the folder that `HEDGEROW_DATA_DIR` names, or in
//! `../shared/data` beside the project.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::PathBuf;

use hedgerow_config::Layer;
use hedgerow_lab::results::{MethodResult, Results};
use hedgerow_lab::run::{Experiment, load_data};
use hedgerow_lab::settings::Settings;

fn simulate(changes: &[String]) -> Results {
    let settings = Settings::load(&Layer::sets(changes).unwrap()).unwrap();
    let data = load_data(&settings, &|_| {}).unwrap();
    Experiment::new(&settings, &data).unwrap().run(&|| {}).unwrap()
}

/// The folder of the data sets. Prints a message and returns `None` if it lacks this file.
fn folder_with(file: &str) -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("HEDGEROW_DATA_DIR").map_or_else(beside, PathBuf::from);
    if folder.join(file).exists() {
        return Some(folder);
    }
    // Not with println, because the test runner captures it.
    let told = writeln!(
        std::io::stderr(),
        "SKIPPED: no {file} (set HEDGEROW_DATA_DIR to the folder of the data sets)"
    );
    told.unwrap();
    None
}

/// The paper's protocol on one of the authors' files, if it is available.
fn paper_run(file: &str, trials: usize) -> Option<Results> {
    let file = format!("authors_csv/{file}");
    let path = folder_with(&file)?.join(file);
    Some(simulate(&[
        format!("data.name={}", path.display()),
        format!("run.trials={trials}"),
        r#"federation.methods=["mk", "sk", "naive"]"#.to_owned(),
        "kernels.draw=independent".to_owned(),
    ]))
}

fn method<'a>(results: &'a Results, name: &str) -> &'a MethodResult {
    results
        .methods
        .iter()
        .find(|method| method.name == name && (name != "sk" || method.best))
        .unwrap()
}

#[test]
fn twitter_is_learned_as_the_paper_says() {
    let Some(results) = paper_run("TwitterData.csv.gz", 50) else { return };
    let (mk, sk, naive) =
        (method(&results, "mk"), method(&results, "sk"), method(&results, "naive"));
    assert!((0.0058..0.0070).contains(&mk.mse.mean), "{:?}", mk.mse);
    assert!(mk.mse.mean <= 1.25 * sk.mse.mean, "{:?} {:?}", mk.mse, sk.mse);
    assert!((mk.mse.mean / naive.mse.mean - 1.0).abs() <= 0.15, "{:?} {:?}", mk.mse, naive.mse);
    assert_eq!((naive.numbers_up / mk.numbers_up).round(), 11.0);
    assert_eq!(results.best_kernel, Some(6));
}

#[test]
fn toms_hardware_is_learned_as_the_paper_says() {
    let Some(results) = paper_run("TomData.csv.gz", 50) else { return };
    let mk = method(&results, "mk");
    assert!((0.0045..0.0058).contains(&mk.mse.mean), "{:?}", mk.mse);
    assert_eq!(results.best_kernel, Some(5));
}

#[test]
fn air_quality_has_the_best_kernel_of_the_reference() {
    let Some(results) = paper_run("AirData.csv.gz", 10) else { return };
    assert_eq!(results.best_kernel, Some(5));
}

/// A variant of `gr` that damps its steps less passed all other tests. Without damping that grows
/// and without taking moves back the error is 0.0090 here instead of 0.0021.
#[test]
fn growing_ridge_learns_the_original_files_of_air_quality() {
    let Some(folder) = folder_with("air_quality/AirQualityUCI.csv.gz") else { return };
    let results = simulate(&[
        "data.name=air-quality".to_owned(),
        format!("data.dir={}", folder.display()),
        "data.variant=original".to_owned(),
        "run.trials=3".to_owned(),
        "kernels.draw=independent".to_owned(),
        r#"federation.methods=["gr+shared"]"#.to_owned(),
    ]);
    let gr = &method(&results, "gr+shared").mse;
    assert!(gr.mean <= 0.003, "{gr:?}");
}

#[test]
fn regret_on_a_stationary_stream_grows_no_faster_than_the_theorem_says() {
    let results = simulate(&[
        "data.name=friedman".to_owned(),
        "run.rounds=100000".to_owned(),
        "run.trials=1".to_owned(),
        "federation.nodes=4".to_owned(),
        r#"federation.methods=["mk", "hindsight"]"#.to_owned(),
    ]);
    // Fitted over the last two decades: t = 1,000 to 100,000.
    let exponent = method(&results, "mk").regret.as_ref().unwrap().exponent.unwrap();
    assert!(exponent <= 0.6, "{exponent}");
}

#[test]
fn centralised_mini_batches_are_the_naive_extension_with_one_sample_from_everyone() {
    let with = |arrivals: &str| {
        simulate(&[
            "run.rounds=200".to_owned(),
            "run.trials=2".to_owned(),
            format!("participation.arrivals={arrivals}"),
            r#"federation.methods=["naive", "central-batch"]"#.to_owned(),
        ])
    };
    let one = with("one");
    let (naive, batch) = (method(&one, "naive"), method(&one, "central-batch"));
    assert!(
        (naive.mse.mean / batch.mse.mean - 1.0).abs() < 1e-4,
        "{:?} {:?}",
        naive.mse,
        batch.mse
    );
    // One sends models, the other samples.
    assert_eq!((naive.numbers_up, batch.numbers_up), (1089.0, 11.0));
    // Several samples are one batch here and several steps there.
    let several = with("fixed:5");
    let (naive, batch) = (method(&several, "naive"), method(&several, "central-batch"));
    assert!(
        (naive.mse.mean / batch.mse.mean - 1.0).abs() > 1e-3,
        "{:?} {:?}",
        naive.mse,
        batch.mse
    );
}

#[test]
fn the_best_kernel_of_the_drifting_stream_changes_midway() {
    let best_within = |rounds: &str, window: &str| {
        let results = simulate(&[
            "data.name=drift".to_owned(),
            "run.rounds=1000".to_owned(),
            "run.trials=3".to_owned(),
            format!("run.window={window}"),
            r#"federation.methods=["sk"]"#.to_owned(),
        ]);
        let point = results.methods[0]
            .curve
            .rounds
            .iter()
            .position(|round| round.to_string() == rounds)
            .unwrap();
        let window = |method: &&MethodResult| method.curve.mse_window[point].mean;
        let best = results.methods.iter().min_by(|a, b| window(a).total_cmp(&window(b))).unwrap();
        best.kernel.unwrap()
    };
    assert_ne!(best_within("500", "200"), best_within("1000", "200"));
}

#[test]
fn nodes_with_slices_of_their_own_keep_the_vote_from_settling() {
    let settled = |stream: &str| {
        let results = simulate(&[
            format!("data.name={stream}"),
            "run.trials=3".to_owned(),
            r#"federation.methods=["mk", "sk"]"#.to_owned(),
        ]);
        method(&results, "mk").mse.mean / method(&results, "sk").mse.mean
    };
    // The paper's method is close to the best kernel if nodes are alike, and far from it otherwise.
    assert!(settled("friedman") < 1.2);
    assert!(settled("slices") > 2.0);
}

#[test]
fn missing_nodes_cost_accuracy_but_never_sense() {
    let with = |participation: &[&str]| {
        let mut changes: Vec<String> =
            participation.iter().map(|change| format!("participation.{change}")).collect();
        changes.push("run.trials=3".to_owned());
        changes.push(r#"federation.methods=["mk", "naive", "local"]"#.to_owned());
        simulate(&changes)
    };
    let full = with(&[]);
    let poor = with(&["dropout=0.5", "late=0.2", "join_within=0.5", "arrivals=poisson:1.0"]);
    for name in ["mk", "naive"] {
        let (full, poor) = (method(&full, name), method(&poor, name));
        assert!(poor.mse.mean.is_finite() && poor.mse.mean > full.mse.mean, "{name}");
        assert!(poor.mse.mean < 3.0 * full.mse.mean, "{name}: {} {}", poor.mse.mean, full.mse.mean);
        assert!(poor.uploads_late > 0.02 && poor.uploads_accepted < 0.4, "{name}");
    }
}

#[test]
fn unequal_shares_are_seen_to_the_last_sample_in_every_trial() {
    let results = simulate(&[
        "federation.partition=dirichlet:0.3".to_owned(),
        // With this seed later trials have longer streams than the first.
        "run.seed=5".to_owned(),
        "run.trials=6".to_owned(),
        r#"federation.methods=["local"]"#.to_owned(),
    ]);
    // A mean below this would mean that some trial ran out of rounds; the built-in stream has 500
    // samples for each of 20 nodes.
    assert_eq!(results.data.samples, 10_000);
    assert!(results.rounds > 500);
}
