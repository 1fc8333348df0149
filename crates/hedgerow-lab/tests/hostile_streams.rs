//! Any small table with any settings is either learned from or refused.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::io::Cursor;
use std::path::Path;

use crate::common::Files;
use hedgerow_data::rows;
use hedgerow_data::samples::SampleStream;
use hedgerow_lab::live;
use hedgerow_lab::run::{Experiment, load_data};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;

fn cells() -> impl Strategy<Value = String> {
    prop_oneof![
        10 => (-3.0..3.0_f64).prop_map(|number| format!("{number:.2}")),
        3 => select(vec!["", "NA", "0", "1", "-1", "1e12", "-3e38", "1e-40", "12345.5"]).prop_map(str::to_owned),
        1 => select(vec!["red", "blue", "2013-03-01", "1e39", "17:30", "é"]).prop_map(str::to_owned),
    ]
}

/// A table of columns c0, c1, …; most of them without any text.
fn tables() -> impl Strategy<Value = String> {
    (1..5_usize, 1..25_usize, any::<bool>()).prop_flat_map(|(columns, rows, is_tame)| {
        let row = prop::collection::vec(cells(), columns);
        prop::collection::vec(row, rows).prop_map(move |rows| {
            let names: Vec<String> = (0..columns).map(|at| format!("c{at}")).collect();
            let tame = |cell: &String| {
                let is_number = cell.is_empty()
                    || cell == "NA"
                    || cell.parse::<f64>().is_ok_and(|n| n.abs() < 1e12);
                if is_tame && !is_number { "0.5".to_owned() } else { cell.clone() }
            };
            let lines = rows.iter().map(|row| row.iter().map(tame).collect::<Vec<_>>().join(","));
            [names.join(",")].into_iter().chain(lines).collect::<Vec<_>>().join("\n") + "\n"
        })
    })
}

fn flags() -> impl Strategy<Value = Vec<&'static str>> {
    let any_of = |flags: &[&'static str]| {
        let flags: Vec<Vec<&str>> =
            flags.iter().map(|flag| flag.split(' ').filter(|f| !f.is_empty()).collect()).collect();
        prop_oneof![2 => Just(vec![]), 1 => select(flags)]
    };
    (
        any_of(&[
            "data.target=c0",
            "data.target=\"c0,c1\"",
            "data.features=[\"-\"]",
            "data.features=[\"c0\"]",
            "data.drop=[\"c1\"]",
        ]),
        any_of(&[
            "data.lags=1",
            "data.lags=3 data.horizon=2",
            "data.lags=2 data.lagged=[\"c0\"]",
            "data.exogenous=origin data.horizon=3",
        ]),
        any_of(&[
            "data.time=c0",
            "data.time=c0 data.disorder=sort data.duplicates=first",
            "data.time=c0 data.disorder=keep data.duplicates=keep",
            "data.node=c0",
        ]),
        any_of(&["data.categories=one-hot", "data.categories=hashed:3"]),
        any_of(&[
            "data.scaling=none",
            "data.scaling=online",
            "data.scaling=online-range",
            "data.scaling=whole-file",
            "data.scaling=whole-file-joint",
        ]),
        any_of(&[
            "data.rows=7",
            "participation.dropout=0.5",
            "federation.partition=sorted-direction",
            "learning.loss=huber",
        ]),
    )
        .prop_map(|(a, b, c, d, e, f)| [a, b, c, d, e, f].concat())
}

/// Whether the table was learned from.
fn check(content: &str, flags: &[&str]) -> Result<bool, TestCaseError> {
    let files = Files::one(content);
    let mut short = vec![
        "run.trials=1",
        "federation.methods=[\"mk\", \"central\", \"hindsight\", \"last\", \"mean\"]",
        "federation.budget=6",
    ];
    if !flags.contains(&"data.node=c0") {
        short.push("federation.nodes=2");
    }
    let refused = |message: String| {
        prop_assert!(!message.contains('\n') && message.len() < 600, "{message}");
        Ok(false)
    };
    let settings = match files.settings("t.csv", &[&short[..], flags].concat()) {
        Ok(settings) => settings,
        Err(message) => return refused(message),
    };
    let rows = content.lines().count() - 1;
    let data = match load_data(&settings, &|_| {}) {
        Ok(data) => data,
        Err(error) => return refused(error.to_string()),
    };
    let columns = &settings.data.columns;
    prop_assert!(data.len() <= rows * columns.series.len().max(1) && !data.is_empty());
    prop_assert_eq!(data.input_columns().inputs.len(), data.features);
    prop_assert!(data.last.as_ref().is_none_or(|last| last.len() == data.y.len()));
    if let Some(owners) = &data.owners {
        prop_assert_eq!(owners.ids.len(), data.len());
        prop_assert!(owners.ids.iter().all(|id| (*id as usize) < owners.names.len()));
        prop_assert!((0..owners.names.len() as u32).all(|id| owners.ids.contains(&id)));
    }
    let mut x = Vec::new();
    data.inputs(&(0..data.len() as u32).collect::<Vec<_>>(), &mut x).unwrap();
    prop_assert_eq!(x.len(), data.len() * data.features);
    prop_assert!(x.iter().all(|x| !x.is_infinite()));
    prop_assert_eq!(x.iter().filter(|x| x.is_nan()).count() as u64, data.missing);
    prop_assert!(data.y.iter().all(|y| y.is_nan() || y.abs() <= 1e12));
    let results =
        match Experiment::new(&settings, &data).and_then(|experiment| experiment.run(&|| {})) {
            Ok(results) => results,
            Err(error) => return refused(error.to_string()),
        };
    prop_assert!(
        results.methods.iter().all(|method| method.mse.mean.is_finite()),
        "{:?}",
        results.methods
    );
    let counted = results.data.samples as u64 + results.data.missing_labels;
    prop_assert_eq!(counted, data.len() as u64);
    Ok(true)
}

/// The same as a live stream.
fn check_live(content: &str, flags: &[&str]) -> Result<bool, TestCaseError> {
    let files = Files::one(content);
    let short = [
        "run.trials=1",
        "federation.methods=[\"mk\", \"central\", \"last\"]",
        "federation.budget=6",
        "federation.nodes=4",
    ];
    let Ok(settings) = files.settings("t.csv", &[flags, &short].concat()) else { return Ok(false) };
    let columns = &settings.data.columns;
    let rows = rows::read(Cursor::new(content.to_owned()), Path::new("-"), &columns.format);
    let Ok(rows) = rows else { return Ok(false) };
    let Ok(stream) = SampleStream::live(rows, columns) else { return Ok(false) };
    let Ok(live::Ended { results, .. }) = live::run(&settings, stream, |_| true) else {
        return Ok(false);
    };
    prop_assert!(
        results.methods.iter().all(|method| method.mse.mean.is_finite()),
        "{:?}",
        results.methods
    );
    Ok(true)
}

/// Checks many tables; enough of them must have been learned from.
fn check_many(check: fn(&str, &[&str]) -> Result<bool, TestCaseError>) {
    const CASES: u32 = 1500;
    let config =
        ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    let learned = Cell::new(0);
    let found = TestRunner::new(config).run(&(tables(), flags()), |(content, flags)| {
        learned.set(learned.get() + u32::from(check(&content, &flags)?));
        Ok(())
    });
    if let Err(error) = found {
        panic!("{error}");
    }
    assert!(
        learned.get() > CASES / 12,
        "only {} of {CASES} tables were learned from",
        learned.get()
    );
}

#[test]
fn any_table_is_learned_from_or_refused() {
    check_many(check);
}

#[test]
fn any_live_table_is_learned_from_or_refused() {
    check_many(check_live);
}
