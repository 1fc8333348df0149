//! Settings about data: wrong values are refused with their key, and the user's settings override
//! those of the catalogue.

#![allow(clippy::unwrap_used)]

use crate::common::{Files, assert_says, samples};
use hedgerow_config::Layer;
use hedgerow_data::columns::{Disorder, Duplicates};
use hedgerow_lab::settings::{Scaling, Settings, Source};

fn load(flags: &[&str]) -> Result<Settings, String> {
    Settings::load(&Layer::sets(flags).unwrap()).map_err(|error| error.to_string())
}

#[test]
fn what_makes_no_sense_is_refused_by_key() {
    let table = Files::one("a,b,y\n1,2,3\n4,5,6\n");
    for (flags, parts) in [
        (&["data.categories=hashed:0"][..], &["data.categories", "hashed:N", "\"hashed:0\""][..]),
        (&["data.categories=hashed:1001"], &["data.categories", "1 to 1000"]),
        (&["data.categories=onehot"], &["data.categories", "one-hot"]),
        (&["data.lags=-1"], &["data.lags", "at least 0", "-1"]),
        (&["data.lags=10001"], &["data.lags", "at most 10000"]),
        (&["data.horizon=0"], &["data.horizon", "at least 1"]),
        (&["data.horizon=2", "data.exogenous=same-row"], &["data.horizon", "lags", "origin"]),
        (&["data.lagged=[\"a\"]"], &["data.lags", "at least 1", "data.lagged"]),
        (&["data.rows=-1"], &["data.rows", "at least 0"]),
        (&["data.exogenous=later"], &["data.exogenous", "same-row", "origin"]),
        (&["data.disorder=sorted"], &["data.disorder", "did you mean \"sort\"?"]),
        (&["data.disorder=sort"], &["data.disorder", "data.time names no column", "\"sort\""]),
        (&["data.duplicates=first"], &["data.duplicates", "data.time names no column"]),
        (&["data.duplicates=last"], &["data.duplicates", "refuse, keep, first"]),
        (&["data.scaling=onlin"], &["data.scaling", "did you mean \"online\"?"]),
        (&["data.variant=newest"], &["data.variant", "auto, original, excerpt", "newest"]),
        (&["data.separator=\"::\""], &["data.separator", "one sign", "::"]),
        (&["data.separator=\".\""], &["data.separator", "one sign"]),
        (&["data.decimal=\",\"", "data.separator=\",\""], &["data.decimal", "another sign"]),
        (&["data.series=\"a,b\"", "data.node=y"], &["data.series", "data.target", "\"a,b\""]),
        (&["data.series=\"a,b\"", "data.target=y"], &["data.series", "a node of each"]),
        (&["data.target=a", "data.node=a"], &["data.node", "data.target", "\"a\""]),
        (&["data.task=class"], &["data.task", "auto, numbers, classes"]),
        (&["data.task=classes", "data.target=\"a,b\""], &["data.task", "several columns"]),
        (&["data.task=classes", "data.lags=2"], &["data.lags", "past classes"]),
        (&["data.classes=[\"a\"]"], &["data.classes", "at least two names"]),
        (&["data.classes=[\"a\", \"a\"]"], &["data.classes", "that differ"]),
        (&["data.task=numbers", "learning.loss=logistic"], &["data.task", "logistic"]),
        (&["data.node=a", "federation.partition=column:b"], &["data.node", "\"b\"", "\"a\""]),
        (&["federation.partition=\"column:\""], &["federation.partition", "column:NAME"]),
    ] {
        assert_says(&table.settings("t.csv", flags).unwrap_err(), parts);
    }
    assert!(table.settings("t.csv", &["data.node=a", "federation.partition=column:a"]).is_ok());
}

#[test]
fn built_in_streams_have_no_columns() {
    for flag in [
        "data.target=y",
        "data.features=[\"-\"]",
        "data.drop=[\"a\"]",
        "data.time=t",
        "data.node=n",
        "data.lagged=[\"a\"]",
        "federation.partition=column:n",
    ] {
        let message = load(&[flag, "data.lags=1"]).unwrap_err();
        assert_says(
            &message,
            &["built-in stream \"friedman\", which has no named columns, but is \""],
        );
    }
    assert_says(
        &load(&["data.rows=10"]).unwrap_err(),
        &["data.rows must be 0", "run.rounds", "but is 10"],
    );
    assert_says(
        &load(&["data.name=no-such-thing"]).unwrap_err(),
        &["data.name", "friedman", "traffic"],
    );
    assert_says(&load(&["data.name=trafic"]).unwrap_err(), &["did you mean \"traffic\"?"]);
}

/// A folder with the data set `traffic` as the authors' file and as UCI's.
fn traffic() -> Files {
    let files = Files::new(&[(
        "Metro_Interstate_Traffic_Volume.csv",
        b"holiday,temp,date_time,traffic_volume\nNone,1,2012-10-02 09:00:00,5545\nNone,2,2012-10-02 10:00:00,4516\nNone,2,2012-10-02 11:00:00,4767\nNone,2,2012-10-02 12:00:00,5026\n",
    )]);
    std::fs::create_dir(files.path().join("authors_csv")).unwrap();
    std::fs::write(files.path().join("authors_csv/Traffic.csv"), "y\n1\n2\n3\n4\n5\n6\n7\n")
        .unwrap();
    files
}

#[test]
fn the_user_goes_before_the_catalogue() {
    let files = traffic();
    let folder = format!("data.dir={}", files.path().display());
    let of = |more: &[&str]| load(&[&["data.name=traffic", folder.as_str()], more].concat());
    let known = of(&[]).unwrap();
    assert_eq!((known.data.columns.lags, &known.scaling), (5, &Scaling::None));
    assert_eq!(known.data.columns.targets, ["y"]);
    let own = of(&["data.lags=3", "data.scaling=online-range"]).unwrap();
    assert_eq!((own.data.columns.lags, own.scaling == known.scaling), (3, false));
    let data = hedgerow_lab::run::load_data(&own, &|_| {}).unwrap();
    assert_eq!(samples(&data), ["3 2 1 > 4", "4 3 2 > 5", "5 4 3 > 6", "6 5 4 > 7"]);
    // A file of settings as well.
    std::fs::write(files.path().join("own.toml"), "[data]\nname = \"traffic\"\nlags = 2\n")
        .unwrap();
    let file = Layer::file(&files.path().join("own.toml")).unwrap();
    let own = Settings::load(&[file, Layer::set(&folder).unwrap()]).unwrap();
    assert_eq!((own.data.columns.lags, own.effective["data"]["target"].as_str()), (2, Some("y")));
}

#[test]
fn the_variant_decides_about_the_file() {
    let files = traffic();
    let folder = format!("data.dir={}", files.path().display());
    let of =
        |more: &[&str]| load(&[&["data.name=traffic", folder.as_str()], more].concat()).unwrap();
    let file = |settings: &Settings| match &settings.data.source {
        Source::Files { files, provenance } if !provenance.is_empty() => {
            files[0].file_name().unwrap().to_string_lossy().into_owned()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(file(&of(&["data.variant=auto"])), "Traffic.csv");
    assert_eq!(file(&of(&["data.variant=excerpt"])), "Traffic.csv");
    let original = of(&["data.variant=original", "data.lags=1"]);
    assert_eq!(file(&original), "Metro_Interstate_Traffic_Volume.csv");
    let columns = &original.data.columns;
    assert_eq!((columns.duplicates, columns.disorder), (Duplicates::Keep, Disorder::Refuse));
    let data = hedgerow_lab::run::load_data(&original, &|_| {}).unwrap();
    assert_eq!((data.len(), data.features), (3, 1));
    let message = load(&["data.name=naval", "data.variant=excerpt"]).unwrap_err();
    assert_says(&message, &["data.variant", "naval, which has no such variant", "\"excerpt\""]);
}

#[test]
fn nodes_are_those_of_the_data_unless_the_user_says_otherwise() {
    let table = Files::one("n,x,y\na,1,1\nb,2,2\nc,3,3\na,4,4\nb,5,5\nc,6,6\n");
    let nodes = |flags: &[&str]| {
        let short = ["run.trials=1", "federation.methods=[\"mk\"]", "data.scaling=none"];
        table.run(&[&short, flags].concat()).map(|results| (results.nodes, results.partition))
    };
    assert_eq!(nodes(&["data.node=n"]).unwrap(), (3, "column:n".to_owned()));
    assert_eq!(nodes(&["federation.partition=column:n"]).unwrap(), (3, "column:n".to_owned()));
    assert_eq!(nodes(&["data.node=n", "federation.nodes=3"]).unwrap().0, 3);
    let refused = nodes(&["data.node=n", "federation.nodes=2"]).unwrap_err();
    assert_says(&refused, &["federation.nodes must be 3, as many as the data names", "but is 2"]);
    let others = nodes(&["data.node=n", "federation.partition=blocks", "federation.nodes=2"]);
    assert_eq!(others.unwrap(), (2, "blocks".to_owned()));
    let refused = nodes(&["data.drop=[\"n\"]"]).unwrap_err();
    assert_says(&refused, &["6 samples can't be dealt to 20 nodes"]);
    let targets = Files::one("a,b\n1,1\n2,2\n3,4\n");
    let results = targets
        .run(&["data.series=\"a,b\"", "data.lags=1", "run.trials=1", "data.scaling=none"])
        .unwrap();
    assert_eq!((results.nodes, results.partition.as_str()), (2, "by owner"));
}
