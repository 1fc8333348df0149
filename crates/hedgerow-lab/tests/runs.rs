//! Runs on tables with scaling and missing values, compared with the trivial forecasts.

#![allow(clippy::unwrap_used)]

use crate::common::{Files, assert_says, method};
use hedgerow_lab::results::Results;

/// Numbers between 0 and 1 that look random.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Rows of two inputs and a smooth function of them, with a little noise.
fn smooth(rows: usize) -> Vec<[f64; 3]> {
    let mut dice = Dice(5);
    let row = |_| {
        let (a, b) = (dice.roll(), dice.roll());
        [a, b, (3.0 * a).sin() + b * b - 0.7 + 0.1 * (dice.roll() - 0.5)]
    };
    (0..rows).map(row).collect()
}

fn table(rows: &[[f64; 3]]) -> String {
    let mut text = String::from("a,b,y\n");
    rows.iter().for_each(|[a, b, y]| text += &format!("{a},{b},{y}\n"));
    text
}

const SHORT: [&str; 4] = [
    "run.trials=2",
    "federation.nodes=10",
    "run.window=100",
    "federation.methods=[\"mk\", \"central\", \"local\", \"mean\"]",
];

fn run(content: &str, flags: &[&str]) -> Results {
    Files::one(content).run(&[&SHORT, flags].concat()).unwrap()
}

fn late_error(results: &Results, name: &str) -> f64 {
    method(results, name).mse_last_window.unwrap().mean
}

#[test]
fn units_do_not_matter_when_scales_are_agreed_on() {
    let rows = smooth(3000);
    let other: Vec<[f64; 3]> =
        rows.iter().map(|[a, b, y]| [1000.0 * a, 1000.0 * b - 4e4, 500.0 * y + 7000.0]).collect();
    for scaling in ["data.scaling=online", "data.scaling=online-range"] {
        let (one, two) = (run(&table(&rows), &[scaling]), run(&table(&other), &[scaling]));
        assert_says(&two.scaling, &["online", "own unit"]);
        for name in ["mk", "central", "local", "mean"] {
            let (one, two) = (late_error(&one, name), late_error(&two, name) / 500.0_f64.powi(2));
            assert!((two / one - 1.0).abs() < 0.01, "{scaling}, {name}: {one} {two}");
        }
        assert!(late_error(&two, "mk") < 0.3 * late_error(&two, "mean"), "{scaling}");
    }
    // Without, the kernels see nothing but noise.
    let unscaled = run(&table(&other), &["data.scaling=none"]);
    assert_eq!(unscaled.scaling, "");
    assert!(late_error(&unscaled, "mk") > late_error(&unscaled, "mean"));
    // Without a setting, the needed scaling is chosen.
    let auto = |rows: &[[f64; 3]]| run(&table(rows), &["data.scaling=auto"]).scaling;
    assert_eq!((auto(&rows).as_str(), auto(&other).contains("online")), ("", true));
}

#[test]
fn known_ranges_are_as_good_as_the_whole_file_s() {
    let files = Files::one(&table(
        &smooth(1500).iter().map(|[a, b, y]| [1000.0 * a, *b, 500.0 * y]).collect::<Vec<_>>(),
    ));
    let ranges = files.path().join("ranges.toml");
    std::fs::write(&ranges, "[ranges]\na = [0, 1000]\nb = [0, 1]\ny = [-350, 650]\n").unwrap();
    let known = files
        .run(&[&SHORT[..], &[&format!("data.scaling={}", ranges.display())]].concat())
        .unwrap();
    assert_eq!(known.scaling, "by known ranges");
    let whole = files.run(&[&SHORT[..], &["data.scaling=whole-file"]].concat()).unwrap();
    // Errors by known ranges are in the label's own unit, those by the whole file's in scaled ones.
    let (known, whole) = (late_error(&known, "mk") / 1e6, late_error(&whole, "mk"));
    assert!((known / whole - 1.0).abs() < 0.3, "{known} {whole}");
    std::fs::write(&ranges, "[ranges]\na = [0, 1000]\ny = [-350, 650]\n").unwrap();
    let refused =
        files.run(&[&SHORT[..], &[&format!("data.scaling={}", ranges.display())]].concat());
    assert_says(&refused.unwrap_err(), &["ranges.toml: no range for column \"b\""]);
}

#[test]
fn what_is_missing_is_filled_in_and_counted() {
    let (mut dice, mut text) = (Dice(11), String::from("a,b,y\n"));
    let (mut inputs, mut labels) = (0, 0);
    for row in smooth(3000) {
        let is_missing = [dice.roll() < 0.1, dice.roll() < 0.1, dice.roll() < 0.1];
        labels += u64::from(is_missing[2]);
        // What has no label is not learned from, and nothing has to be filled in for it.
        inputs +=
            is_missing[..2].iter().filter(|missing| **missing && !is_missing[2]).count() as u64;
        let cell = |at: usize| if is_missing[at] { "NA".to_owned() } else { row[at].to_string() };
        text += &format!("{},{},{}\n", cell(0), cell(1), cell(2));
    }
    for scaling in ["data.scaling=none", "data.scaling=online", "data.scaling=whole-file"] {
        let results = run(&text, &[scaling]);
        assert_eq!(results.data.missing_labels, labels, "{scaling}");
        assert_eq!(results.data.samples as u64, 3000 - labels, "{scaling}");
        // Before the first agreement there is nothing to fill in.
        let first = if scaling == "data.scaling=online" { 20 } else { 0 };
        let counted = results.data.missing_inputs;
        assert!(counted <= inputs && counted + first >= inputs, "{scaling}: {counted} of {inputs}");
        assert!(late_error(&results, "mk") < 0.6 * late_error(&results, "mean"), "{scaling}");
    }
}

#[test]
fn nodes_out_of_contact_keep_the_scale_they_have() {
    let rows: Vec<[f64; 3]> = smooth(4000)
        .into_iter()
        .enumerate()
        // Units change during the run, so scales change too.
        .map(|(at, [a, b, y])| if at < 1000 { [a, b, y] } else { [30.0 * a, b - 5.0, 20.0 * y] })
        .collect();
    for scaling in ["data.scaling=online", "data.scaling=online-range"] {
        let results =
            run(&table(&rows), &[scaling, "participation.dropout=0.5", "participation.late=0.1"]);
        for name in ["mk", "central", "local"] {
            let (found, mean) = (method(&results, name), method(&results, "mean"));
            assert!(
                found.mse.mean < 2.0 * mean.mse.mean,
                "{scaling}, {name}: {:?} {:?}",
                found.mse,
                mean.mse
            );
            assert!(late_error(&results, name) < late_error(&results, "mean"), "{scaling}, {name}");
        }
    }
}

#[test]
fn classes_stay_classes() {
    let rows: Vec<[f64; 3]> = smooth(3000)
        .into_iter()
        .map(|[a, b, _]| [1000.0 * a, b, if a > b { 1.0 } else { -1.0 }])
        .collect();
    let results = run(
        &table(&rows),
        &[
            "learning.loss=logistic",
            "data.scaling=online",
            "federation.methods=[\"mk\", \"central\"]",
        ],
    );
    for name in ["mk", "central"] {
        let found = method(&results, name);
        let classes = found.classes.as_ref().unwrap();
        assert!(classes.accuracy.mean > 0.8 && classes.auc.mean > 0.85, "{name}: {classes:?}");
        assert!((classes.accuracy.mean + found.mse.mean - 1.0).abs() < 1e-12);
        // Of labels that were scaled, none would be -1 or +1.
        assert!(found.mean_loss.mean < std::f64::consts::LN_2, "{name}: {:?}", found.mean_loss);
    }
}

#[test]
fn threads_change_nothing() {
    let files = Files::one(&table(
        &smooth(600).iter().map(|[a, b, y]| [50.0 * a, *b, 9.0 * y]).collect::<Vec<_>>(),
    ));
    let with = |threads: &str| {
        let flags = [threads, "run.trials=4", "data.scaling=online", "participation.dropout=0.3"];
        let mut results = files.run(&[&SHORT[..], &flags].concat()).unwrap();
        results.seconds = 0.0;
        results.settings = serde_json::Value::Null;
        results.methods.iter_mut().for_each(|method| method.seconds = 0.0);
        // As text: before the first scale there is no error, which is not equal to itself.
        hedgerow_lab::results::to_stored_json(&results).unwrap()
    };
    assert!(with("run.threads=1") == with("run.threads=3"));
}

#[test]
fn trivial_forecasts_by_hand() {
    let series = Files::one("y\n1\n2\n4\n8\n");
    let flags = [
        "data.features=[\"-\"]",
        "data.lags=1",
        "run.trials=1",
        "federation.nodes=1",
        "data.scaling=none",
    ];
    let results = series.run(&flags).unwrap();
    // Labels 2 4 8. The node knows no label, then 2 and 4, whose mean is 3. In the file they come
    // after 1 2 4.
    assert_eq!(method(&results, "last").mse.mean, (4.0 + 4.0 + 16.0) / 3.0);
    assert_eq!(method(&results, "mean").mse.mean, (4.0 + 4.0 + 25.0) / 3.0);
    assert_eq!(method(&results, "previous").mse.mean, (1.0 + 4.0 + 16.0) / 3.0);
    assert_eq!((results.data.samples, method(&results, "last").bytes_up), (3, 0.0));
    let nodes = Files::one("n,t,y\na,1,1\nb,1,10\na,2,2\nb,2,30\na,3,NA\nb,3,20\na,4,5\nb,4,0\n");
    let flags = [
        "data.node=n",
        "data.time=t",
        "data.features=[\"-\"]",
        "data.lags=1",
        "run.trials=1",
        "data.scaling=none",
        "federation.methods=[\"mean\", \"last\", \"previous\"]",
    ];
    let results = nodes.run(&flags).unwrap();
    // a: 2 after 1, and 5 after 2; b: 30 after 10, 20 after 30, 0 after 20.
    assert_eq!(method(&results, "previous").mse.mean, (1.0 + 9.0 + 400.0 + 100.0 + 400.0) / 5.0);
    // Their first samples come before they know a label.
    assert_eq!(method(&results, "last").mse.mean, (4.0 + 9.0 + 900.0 + 100.0 + 400.0) / 5.0);
    // a: unknown, 2; b: unknown, 30, 25.
    assert_eq!(method(&results, "mean").mse.mean, (4.0 + 9.0 + 900.0 + 100.0 + 625.0) / 5.0);
}

#[test]
fn a_node_of_a_series_that_is_dealt_in_turn_knows_only_its_own_labels() {
    let series = Files::one("y\n1\n2\n4\n8\n16\n");
    let flags = [
        "data.features=[\"-\"]",
        "data.lags=1",
        "run.trials=1",
        "federation.nodes=2",
        "data.scaling=none",
    ];
    let results = series.run(&flags).unwrap();
    // Labels 2 and 8 at one node, 4 and 16 at the other.
    assert_eq!(method(&results, "last").mse.mean, (4.0 + 16.0 + 36.0 + 144.0) / 4.0);
    assert_eq!(method(&results, "mean").mse.mean, (4.0 + 16.0 + 36.0 + 144.0) / 4.0);
    assert_eq!(method(&results, "previous").mse.mean, (1.0 + 4.0 + 16.0 + 64.0) / 4.0);
}

#[test]
fn trivial_forecasts_need_no_scale() {
    let mut text = String::from("y\n");
    (0..400).for_each(|at| text += &format!("{}\n", 1000.0 + 100.0 * f64::from(at).sin()));
    let files = Files::one(&text);
    let of = |scaling: &str, name: &str| {
        let flags = [
            "data.features=[\"-\"]",
            "data.lags=2",
            "federation.methods=[\"mk\"]",
            "run.trials=1",
            "run.window=50",
            "federation.nodes=4",
            scaling,
        ];
        // What came before the first scale is remembered, but not scored.
        method(&files.run(&flags).unwrap(), name).mse_last_window.unwrap().mean
    };
    for name in ["last", "mean", "previous"] {
        assert_eq!(of("data.scaling=none", name), of("data.scaling=online", name), "{name}");
        assert_eq!(of("data.scaling=none", name), of("data.scaling=online-range", name), "{name}");
    }
}

#[test]
fn a_label_that_begins_constant_is_measured_as_it_is() {
    // The first scale knows one value only, and takes every label to zero.
    let mut text = String::from("x,y\n");
    (0..300)
        .for_each(|at| text += &format!("{},{}\n", at % 7, if at < 60 { 50 } else { 50 + at % 7 }));
    let of = |scaling: &str, name: &str| {
        let flags = [
            "federation.methods=[\"mk\", \"last\", \"mean\"]",
            "run.trials=1",
            "run.window=50",
            "federation.nodes=3",
            scaling,
        ];
        method(&Files::one(&text).run(&flags).unwrap(), name).mse_last_window.unwrap().mean
    };
    for name in ["last", "mean"] {
        assert_eq!(of("data.scaling=none", name), of("data.scaling=online", name), "{name}");
    }
    assert!(of("data.scaling=online", "mk").is_finite());
}

#[test]
fn too_few_samples_for_a_scale_are_said_to_be() {
    let table = Files::one("a,y\n100,1000\n200,2000\n300,3000\n400,4000\n");
    let error =
        table.run(&["federation.nodes=2", "run.trials=1", "data.scaling=online"]).unwrap_err();
    assert!(error.contains("too few to agree on a scale"), "{error}");
}

/// Levels of ±1 that change at random every 50 rows. A method that sees a label too early has much
/// less error than chance.
#[test]
fn a_label_is_not_known_before_its_time() {
    let mut text = String::from("y\n");
    let stream = hedgerow::random::CounterRng::from_seed(5);
    (0..6000).for_each(|at| text += if stream.uniform_at(at / 50) < 0.5 { "-1\n" } else { "1\n" });
    let flags = [
        "data.lags=1",
        "data.horizon=25",
        "federation.nodes=1",
        "run.trials=1",
        "data.scaling=none",
        "learning.step_schedule=constant",
        "learning.step_size=0.5",
    ];
    let results = Files::one(&text).run(&flags).unwrap();
    // Half of the forecasts cross a change of level, where both levels are equally likely: the best
    // possible error is about 0.5.
    for name in ["mk", "sk", "naive", "central", "local"] {
        let best = results
            .methods
            .iter()
            .filter(|method| method.name == name)
            .map(|method| method.mse.mean);
        let best = best.fold(f64::INFINITY, f64::min);
        assert!(best > 0.4, "{name}: {best}");
    }
}

#[test]
fn built_in_streams_last_as_long_as_is_said() {
    for flag in [
        "data.lags=3",
        "participation.arrivals=\"rates:0.2..2\"",
        "participation.arrivals=\"poisson:2\"",
        "data.name=slices",
    ] {
        let flags = [flag, "run.trials=1", "federation.methods=[\"last\"]", "federation.nodes=3"];
        let layers = hedgerow_config::Layer::sets(flags).unwrap();
        let settings = hedgerow_lab::settings::Settings::load(&layers).unwrap();
        let data = hedgerow_lab::run::load_data(&settings, &|_| {}).unwrap();
        let results =
            hedgerow_lab::run::Experiment::new(&settings, &data).unwrap().run(&|| {}).unwrap();
        assert_eq!(results.rounds, 500, "{flag}");
    }
}

/// Labels of two devices: the same function of the input, or opposite ones.
fn two_devices(is_shared: bool) -> String {
    let (mut dice, mut text) = (Dice(3), String::from("x,device,y\n"));
    for at in 0..800 {
        let (x, noise) = (dice.roll(), 0.2 * (dice.roll() - 0.5));
        let sign = if is_shared || at % 2 == 0 { 1.0 } else { -1.0 };
        text += &format!("{x},{},{}\n", at % 2, sign * (4.0 * x).sin() + noise);
    }
    text
}

const APART: &str = "federation.methods=[\"gr+shared\", \"gr+alone+shared\", \"gr+pooled\", \
                     \"mk\", \"mk+alone\", \"mk+pooled\"]";

#[test]
fn one_device_learns_the_same_alone_together_and_pooled() {
    let content = table(&smooth(300));
    for settings in [&[][..], &["data.scaling=online"], &["data.horizon=3", "data.lags=2"]] {
        let flags = [&["run.trials=1", "federation.nodes=1", APART], settings].concat();
        let results = Files::one(&content).run(&flags).unwrap();
        for names in
            [["gr+shared", "gr+alone+shared", "gr+pooled"], ["mk", "mk+alone", "mk+pooled"]]
        {
            let [together, alone, pooled] = names.map(|name| method(&results, name).mse.mean);
            assert_eq!((together, together), (alone, pooled), "{names:?} {settings:?}");
        }
    }
}

#[test]
fn what_devices_share_decides_whom_they_should_learn_with() {
    let errors = |is_shared: bool| {
        let flags = ["run.trials=1", "data.node=device", "data.target=y", APART];
        let results = Files::one(&two_devices(is_shared)).run(&flags).unwrap();
        let up = |name: &str| method(&results, name).numbers_up;
        assert_eq!((up("mk+alone"), up("gr+pooled")), (0.0, 2.0), "samples have two numbers");
        ["gr+shared", "gr+alone+shared", "gr+pooled"].map(|name| method(&results, name).mse.mean)
    };
    let [together, alone, pooled] = errors(true);
    assert!(together < 0.9 * alone && pooled < 0.9 * alone, "{together} {alone} {pooled}");
    let [together, alone, pooled] = errors(false);
    assert!(alone < 0.1 * together && alone < 0.1 * pooled, "{together} {alone} {pooled}");
}

#[test]
fn only_methods_with_messages_can_be_alone_or_pooled() {
    for name in ["local+alone", "last+pooled", "gr/q8+alone", "gr+pooled+personal"] {
        let flag = format!("federation.methods=[\"{name}\"]");
        let refused = Files::one(&table(&smooth(9))).run(&[&flag]).unwrap_err();
        assert_says(&refused, &["federation.methods", name, "alone or pooled"]);
    }
}

#[test]
fn an_entry_says_whether_nodes_have_layers_of_their_own() {
    let names = |methods: &str, more: &[&str]| -> Vec<String> {
        let methods = format!("federation.methods={methods}");
        let flags = [&["run.trials=1", "federation.nodes=2", &methods], more].concat();
        let results = Files::one(&table(&smooth(60))).run(&flags).unwrap();
        results.methods.iter().map(|method| method.name.clone()).collect()
    };
    assert_eq!(names(r#"["gr", "mk"]"#, &[]), ["gr", "mk"]);
    assert_eq!(names(r#"["gr+shared", "mk+personal"]"#, &[]), ["gr+shared", "mk+personal", "mk"]);
    // One run has both.
    assert_eq!(names(r#"["gr+shared", "tr", "gr"]"#, &[]), ["gr", "gr+shared", "tr"]);
    let personal = names(r#"["gr", "mk"]"#, &["federation.personal=true"]);
    assert_eq!(personal, ["gr", "gr+shared", "mk+personal", "mk"]);
    let results = Files::one(&two_devices(false))
        .run(&[
            "run.trials=1",
            "data.node=device",
            "data.target=y",
            r#"federation.methods=["gr", "gr+shared"]"#,
        ])
        .unwrap();
    let [own, shared] = ["gr", "gr+shared"].map(|name| method(&results, name).mse.mean);
    assert!(own < 0.5 * shared, "{own} {shared}");
    let refused = Files::one(&table(&smooth(9))).run(&[r#"federation.methods=["mk+shared"]"#]);
    assert_says(&refused.unwrap_err(), &["federation.methods", "mk+shared", "no own layer"]);
}
