//! Results are the same bits for any number of threads, also if threads share the nodes of a trial.

#![allow(clippy::unwrap_used)]

use hedgerow_config::Layer;
use hedgerow_lab::results::Results;
use hedgerow_lab::run::{Experiment, load_data};
use hedgerow_lab::settings::Settings;

/// A run on this number of threads, without its times.
fn run(flags: &[&str], threads: usize) -> Results {
    let threads = format!("run.threads={threads}");
    let common = [threads.as_str(), "run.rounds=12", "federation.budget=60"];
    let layers = Layer::sets(flags.iter().chain(&common)).unwrap();
    let settings = Settings::load(&layers).unwrap();
    let data = load_data(&settings, &|_| {}).unwrap();
    let mut results = Experiment::new(&settings, &data).unwrap().run(&|| {}).unwrap();
    results.settings["run"]["threads"] = 0.into();
    results.seconds = 0.0;
    results.methods.iter_mut().for_each(|method| method.seconds = 0.0);
    results
}

/// As text that shows every bit, because NaN does not equal itself.
fn bits(results: &Results) -> String {
    format!("{results:?}")
}

fn assert_same(name: &str, flags: &[&str]) {
    let one = run(flags, 1);
    assert!(one.methods.iter().all(|method| method.mse.mean.is_finite()), "{name}");
    for threads in [2, 3, 7] {
        assert!(bits(&run(flags, threads)) == bits(&one), "{name}: {threads} threads");
    }
}

#[test]
fn threads_that_share_nodes_change_no_bit() {
    let methods = r#"federation.methods=["mk","emk","pof","fedpoe","naive","sk","local","central","mk/q8","mk:voters/f16/every2"]"#;
    // Enough nodes for rounds to be divided into at least two chunks.
    let usual =
        ["federation.nodes=2500", "run.trials=1", "kernels.variances=[0.1, 1.0, 10.0]", methods];
    let with = |more: &[&'static str]| [&usual[..], more].concat();
    assert_same("friedman", &with(&[]));
    let participation = [
        "participation.dropout=0.2",
        "participation.late=0.1",
        "participation.arrivals=poisson:1.5",
    ];
    assert_same(
        "drift",
        &with(&[&["data.name=drift", "federation.personal=true"], &participation[..]].concat()),
    );
    assert_same("scaled online", &with(&[&["data.scaling=online"], &participation[..1]].concat()));
}

#[test]
fn threads_that_share_nodes_change_no_bit_of_other_features() {
    let methods = r#"federation.methods=["gr","gr/q8","linear","linear-newton","central-batch"]"#;
    let flags = ["federation.nodes=5000", "run.trials=1", "participation.dropout=0.1", methods];
    assert_same("friedman", &[&flags[..], &["data.scaling=online"]].concat());
}

#[test]
fn several_trials_change_no_bit_either() {
    let flags = ["federation.nodes=600", "run.trials=4", r#"federation.methods=["mk","gr"]"#];
    // One thread and two have trials of their own; seven share them.
    assert_same("trials", &flags);
}
