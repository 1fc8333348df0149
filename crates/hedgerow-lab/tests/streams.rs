//! From files to samples: every option about columns and time.

#![allow(clippy::unwrap_used)]

use std::io::Write;

use crate::common::{Files, assert_says, last, owners, samples};
use flate2::{Compression, write::GzEncoder};
use hedgerow_config::Layer;
use hedgerow_data::catalog::{Kind, entries};
use hedgerow_lab::run::load_data;
use hedgerow_lab::settings::{Settings, SettingsError};

#[test]
fn the_last_free_column_is_the_target() {
    let table = Files::one("a,b,c,d\n1,2,3,4\n5,6,7,8\n");
    for (flags, expected) in [
        (&[][..], ["1 2 3 > 4", "5 6 7 > 8"]),
        (&["data.target=b"], ["1 3 4 > 2", "5 7 8 > 6"]),
        (&["data.drop=[\"d\"]"], ["1 2 > 3", "5 6 > 7"]),
        (&["data.time=d"], ["1 2 > 3", "5 6 > 7"]),
        (&["data.node=d"], ["1 2 > 3", "5 6 > 7"]),
        (&["data.features=[\"d\", \"a\"]"], ["4 1 > 3", "8 5 > 7"]),
        (&["data.features=[\"c\", \"a\"]", "data.target=b"], ["3 1 > 2", "7 5 > 6"]),
    ] {
        assert_eq!(samples(&table.read(flags).unwrap()), expected, "{flags:?}");
    }
    let lagged =
        table.read(&["data.features=[\"a\"]", "data.lagged=[\"d\"]", "data.lags=1"]).unwrap();
    assert_eq!(samples(&lagged), ["1 3 4 > 7"], "a lagged column is not free");
}

/// Hourly readings of as many days.
fn hourly(days: usize) -> String {
    let row =
        |at: usize| format!("2024-03-{:02} {:02}:00,{},{}\n", 1 + at / 24, at % 24, at, at % 5);
    "when,a,y\n".to_owned() + &(0..24 * days).map(row).collect::<String>()
}

#[test]
fn the_time_of_the_label_is_an_input_where_times_show_a_cycle() {
    let table = Files::one(&hourly(3));
    let width = |flags: &[&str]| {
        let data = table.read(&[&["data.time=when"], flags].concat()).unwrap();
        (data.features, data.schema.unwrap().describe())
    };
    let (features, told) = width(&[]);
    assert_eq!(features, 3, "a day is covered twice, a week is not");
    assert_eq!(told, "1 column of the label's own row; hour of the label's time");
    assert_eq!(width(&["data.calendar=none"]).0, 1);
    assert_eq!(width(&["data.calendar=weekday,yearday"]).0, 5);
    assert_eq!(width(&["data.rows=24"]).0, 1);
    assert_eq!(width(&["data.disorder=sort"]).0, 3);
    // Two steps ahead, the calendar is still that of the label.
    let flags = ["data.time=when", "data.lags=1", "data.horizon=2"];
    let ahead = table.read(&flags).unwrap();
    let mut x = Vec::new();
    // The first label is of two o'clock, seen from midnight.
    ahead.inputs(&[0], &mut x).unwrap();
    let angle = std::f32::consts::TAU * 2.0 / 24.0;
    let expected = [0.0, 0.0, angle.sin(), angle.cos()];
    assert!(
        x.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6),
        "{x:?}"
    );
    // The calendar alone is enough to learn from.
    let flags = ["data.time=when", "data.features=[\"-\"]", "data.calendar=hour"];
    assert_eq!(table.read(&flags).unwrap().features, 2);
    // Plain numbers may count anything.
    let numbers = Files::one(&hourly(3).replace("2024-03-", "").replace([' ', ':'], ""));
    assert_eq!(numbers.read(&["data.time=when"]).unwrap().features, 1);
    let refused = table.settings("t.csv", &["data.calendar=hour"]).unwrap_err();
    assert_says(&refused, &["data.calendar", "data.time", "hour"]);
}

#[test]
fn a_few_texts_do_not_make_a_column_of_numbers_one_of_text() {
    let rows = |bad: &str| {
        let row = |at: usize| {
            let a = if at == 30 { bad.to_owned() } else { at.to_string() };
            format!("{a},{},{}\n", ["red", "blue"][at % 2], at % 5)
        };
        "a,colour,y\n".to_owned() + &(0..100).map(row).collect::<String>()
    };
    for categories in ["one-hot", "hashed:4"] {
        let flag = format!("data.categories={categories}");
        assert_says(
            &Files::one(&rows("n.a.")).read(&[&flag]).unwrap_err(),
            &["t.csv", "row 32", "\"a\"", "\"n.a.\"", "1 of the 100 cells", "--missing n.a."],
        );
        let named = Files::one(&rows("n.a.")).read(&[&flag, "data.missing=[\"n.a.\"]"]).unwrap();
        assert_eq!(named.missing, 1);
    }
    let mixed = rows("5").replace("blue", "7");
    assert_eq!(Files::one(&mixed).read(&["data.categories=one-hot"]).unwrap().features, 3);
}

#[test]
fn features_can_be_none_and_columns_dropped() {
    let table = Files::one("a,b,y\n1,2,3\n4,5,6\n7,8,9\n");
    let none = table.read(&["data.features=[\"-\"]", "data.lags=1"]).unwrap();
    assert_eq!(samples(&none), ["3 > 6", "6 > 9"]);
    let dropped = table.read(&["data.drop=[\"a\"]", "data.rows=2"]).unwrap();
    assert_eq!(samples(&dropped), ["2 > 3", "5 > 6"]);
    assert!(dropped.owners.is_none() && !dropped.is_time_series);
}

#[test]
fn several_series_have_a_node_each_and_several_targets_are_labels_of_every_sample() {
    let table = Files::one("x,a,b\n1,10,100\n2,20,200\n3,,300\n4,40,400\n");
    let data = table.read(&["data.series=\"a,b\"", "data.lags=1"]).unwrap();
    let expected =
        ["1 10 > 20", "1 100 > 200", "2 20 > ?", "2 200 > 300", "3 ? > 40", "3 300 > 400"];
    assert_eq!(samples(&data), expected);
    assert_eq!(owners(&data), (vec!["a", "b"], &[0, 1, 0, 1, 0, 1][..]));
    assert_eq!(last(&data), "10 100 20 200 20 300");
    assert_eq!((data.missing_labels(), data.missing), (1, 1));
    let data = table.read(&["data.target=\"a,b\"", "data.lags=1"]).unwrap();
    let mut x = Vec::new();
    data.inputs(&[0], &mut x).unwrap();
    assert_eq!((&x[..], data.labels(0)), (&[1.0, 10.0, 100.0][..], &[20.0, 200.0][..]));
    assert_eq!((data.len(), data.outputs, data.missing_labels()), (3, 2, 1));
    assert_eq!(data.last_labels(2), [20.0, 300.0]);
    assert!(data.owners.is_none());
}

#[test]
fn missing_values_are_what_the_user_says() {
    let table = Files::one("a,b,y\nNA,1,1\n-200,?,2\n,x,3\n5,6,x\n");
    let markers = "data.missing=[\"NA\", \"?\", \"x\", \"-200\"]";
    let data = table.read(&[markers]).unwrap();
    assert_eq!(samples(&data), ["? 1 > 1", "? ? > 2", "? ? > 3", "5 6 > ?"]);
    assert_eq!((data.missing, data.missing_labels()), (5, 1));
    assert_says(
        &table.read(&[]).unwrap_err(),
        &["t.csv, row 4, column \"b\": \"x\" is not a number"],
    );
}

#[test]
fn a_text_is_an_input_of_its_own() {
    let table = Files::one("c,y,n\nred,1,7\n,2,8\nblue,3,9\nred,4,7\n3,5,7\n");
    let data = table.read(&["data.categories=one-hot", "data.target=y"]).unwrap();
    // Alphabetically: 3, blue, red; then n.
    assert_eq!(
        samples(&data),
        ["0 0 1 7 > 1", "0 0 0 8 > 2", "0 1 0 9 > 3", "0 0 1 7 > 4", "1 0 0 7 > 5"]
    );
    assert_eq!(data.missing, 0);
    let columns: Vec<String> =
        data.input_columns().inputs.iter().map(|names| names.join("+")).collect();
    assert_eq!(columns, ["", "", "", "n"]);
}

#[test]
fn numbers_above_the_first_text_are_texts_too() {
    let mixed = Files::new(&[("1.csv", b"c,y\n1,1\n2,2\n"), ("2.csv", b"c,y\nx,3\n1,4\n")]);
    let data = mixed.read_named("", &["data.categories=one-hot"]).unwrap();
    assert_eq!(samples(&data), ["1 0 0 > 1", "0 1 0 > 2", "0 0 1 > 3", "1 0 0 > 4"]);
}

#[test]
fn only_rows_that_are_taken_make_inputs() {
    let table = Files::one("c,y\nred,1\nblue,2\ngreen,3\n");
    let data = table.read(&["data.categories=one-hot", "data.rows=2"]).unwrap();
    assert_eq!(samples(&data), ["0 1 > 1", "1 0 > 2"]);
}

#[test]
fn texts_beyond_the_rows_that_are_looked_at_are_met_anyway() {
    let mut text = String::from("c,y\n");
    (0..1500)
        .for_each(|at| text += &format!("{},{at}\n", if at < 1200 { "early" } else { "late" }));
    let data = Files::one(&text).read(&["data.categories=one-hot"]).unwrap();
    assert_eq!(
        (data.features, &samples(&data)[1199..1201]),
        (2, &["1 0 > 1199".into(), "0 1 > 1200".into()][..])
    );
}

#[test]
fn a_hash_says_which_input_a_text_is() {
    let table = Files::one("c,n,y\nred,7,1\n,8,2\nblue,9,3\ngreen,1,4\n");
    let data = table.read(&["data.categories=hashed:5"]).unwrap();
    // FNV-1a modulo 5 is 2 for red, 4 for blue and 0 for green.
    let expected = ["0 0 1 0 0 7 > 1", "0 0 0 0 0 8 > 2", "0 0 0 0 1 9 > 3", "1 0 0 0 0 1 > 4"];
    assert_eq!(samples(&data), expected);
}

#[test]
fn endless_texts_count_by_their_beginning() {
    let (long, other) = ("x".repeat(100_000), "x".repeat(300) + "y");
    let table = Files::one(&format!("c,y\n{long},1\n{other},2\nz,3\n"));
    let data = table.read(&["data.categories=one-hot"]).unwrap();
    assert_eq!(samples(&data), ["1 0 > 1", "1 0 > 2", "0 1 > 3"]);
}

#[test]
fn lags_horizon_lagged_columns_and_origins() {
    let table = Files::one("x,w,y\n1,10,100\n2,20,200\n3,30,300\n4,40,400\n5,50,500\n");
    let base = ["data.features=[\"x\"]", "data.target=y", "data.lags=2"];
    let forecast = samples(&table.read(&base).unwrap());
    assert_eq!(
        forecast,
        ["2 200 100 > 300", "3 300 200 > 400", "4 400 300 > 500"],
        "from what is known"
    );
    let base = [&base[..], &["data.exogenous=same-row"]].concat();
    let with = |more: &[&str]| samples(&table.read(&[&base, more].concat()).unwrap());
    assert_eq!(with(&[]), ["3 200 100 > 300", "4 300 200 > 400", "5 400 300 > 500"]);
    assert_eq!(with(&["data.lagged=[\"w\"]"])[0], "3 200 100 20 10 > 300");
    assert_eq!(with(&["data.horizon=2"]), ["4 200 100 > 400", "5 300 200 > 500"]);
    assert_eq!(
        with(&["data.horizon=2", "data.exogenous=origin"]),
        ["2 200 100 > 400", "3 300 200 > 500"]
    );
    let ahead =
        table.read(&["data.features=[\"x\"]", "data.horizon=3", "data.exogenous=origin"]).unwrap();
    assert_eq!(samples(&ahead), ["1 > 400", "2 > 500"]);
    assert_eq!(last(&ahead), "100 200");
    assert!(ahead.is_time_series);
}

#[test]
fn the_last_value_is_what_was_known_at_the_origin() {
    let table = Files::one("y\n1\n2\nNA\nNA\n5\nNA\n7\n");
    let data = table.read(&["data.features=[\"-\"]", "data.lags=1", "data.horizon=2"]).unwrap();
    // Rows 1 2 ? ? 5 ? 7, two steps ahead: origins are 1 2 ? ? 5.
    assert_eq!(samples(&data), ["1 > ?", "2 > ?", "? > 5", "? > ?", "5 > 7"]);
    assert_eq!(last(&data), "1 2 2 2 5");
}

#[test]
fn lags_never_cross_nodes() {
    let table = Files::one("n,y\na,1\nb,10\na,2\na,3\nb,20\nc,100\nb,30\n");
    let data = table.read(&["data.node=n", "data.lags=1"]).unwrap();
    assert_eq!(samples(&data), ["1 > 2", "2 > 3", "10 > 20", "20 > 30"]);
    assert_eq!(last(&data), "1 2 10 20");
    // c has a single row, and no sample: it can't take part.
    assert_eq!(owners(&data), (vec!["a", "b"], &[0, 0, 1, 1][..]));
    assert_eq!(data.too_short, ["c"]);
    let flags = [
        "data.node=n",
        "data.lags=1",
        "run.trials=1",
        "federation.methods=[\"mk\"]",
        "data.scaling=none",
    ];
    let results = table.run(&flags);
    assert_eq!((results.as_ref().unwrap().nodes, results.unwrap().data.samples), (2, 4));
}

#[test]
fn nodes_are_named_by_texts_and_by_numbers() {
    let data = Files::one("n,x,y\n7,1,1\nsouth,2,2\n7,3,3\n").read(&["data.node=n"]).unwrap();
    assert_eq!(owners(&data), (vec!["7", "south"], &[0, 1, 0][..]));
    let by_partition =
        Files::one("n,x,y\n7,1,1\nb,2,2\n").read(&["federation.partition=column:n"]).unwrap();
    assert_eq!(owners(&by_partition).0, ["7", "b"]);
}

#[test]
fn time_is_joined_from_columns() {
    let table = Files::one("y,d,t\n1,01/03/2013,17.30\n2,01/03/2013,18.05\n3,02/03/2013,0.15\n");
    let sorted = |flags: &[&str]| {
        table.read(&[&["data.time=\"d + t\"", "data.target=y", "data.lags=1"], flags].concat())
    };
    let data = sorted(&[]).unwrap();
    assert!(data.is_time_series);
    assert_eq!(samples(&data), ["1 > 2", "2 > 3"]);
    // Half past five comes before five to six.
    let table = Files::one("y,d,t\n2,01/03/2013,17.55\n1,01/03/2013,17.30\n0,01/03/2013,17.05\n");
    let flags = ["data.time=d+t", "data.target=y", "data.lags=1", "data.disorder=sort"];
    assert_eq!(samples(&table.read(&flags).unwrap()), ["0 > 1", "1 > 2"]);
}

const DISORDERED: &str = "t,x,y\n1,10,100\n3,30,300\n2,20,200\n4,40,400\n";

#[test]
fn rows_that_go_back_in_time() {
    let table = Files::one(DISORDERED);
    let with = |more: &[&str]| {
        table.read(&[&["data.time=t", "data.lags=1", "data.exogenous=same-row"], more].concat())
    };
    assert_eq!(
        with(&[]).unwrap_err(),
        "t.csv, row 4, column \"t\": time goes back by 1 seconds (--set data.disorder=sort puts rows in order, keep leaves them)"
    );
    let keep = with(&["data.disorder=keep"]).unwrap();
    assert_eq!(samples(&keep), ["30 100 > 300", "20 300 > 200", "40 200 > 400"]);
    let sort = with(&["data.disorder=sort"]).unwrap();
    assert_eq!(
        samples(&sort),
        ["20 100 > 200", "30 200 > 300", "40 300 > 400"],
        "sorted before lags"
    );
    assert_eq!(last(&sort), "100 200 300");
    // The first rows of the file, then sorted.
    let few = with(&["data.disorder=sort", "data.rows=3"]).unwrap();
    assert_eq!(samples(&few), ["20 100 > 200", "30 200 > 300"]);
}

#[test]
fn rows_with_the_same_time() {
    let table = Files::one("t,x,y\n1,10,100\n2,20,200\n2,21,201\n3,30,300\n");
    let with = |more: &[&str]| table.read(&[&["data.time=t"], more].concat());
    assert_says(
        &with(&[]).unwrap_err(),
        &[
            "t.csv, row 4, column \"t\": the same time as in the row before",
            "data.duplicates=first",
        ],
    );
    assert_eq!(samples(&with(&["data.duplicates=keep"]).unwrap()).len(), 4);
    let first = with(&["data.duplicates=first"]).unwrap();
    assert_eq!(samples(&first), ["10 > 100", "20 > 200", "30 > 300"]);
    assert_eq!(first.repeated_rows, 1);
}

#[test]
fn every_node_has_a_time_of_its_own() {
    let table =
        Files::one("n,t,x,y\na,1,1,1\nb,1,2,2\na,2,3,3\nb,2,4,4\nb,2,5,5\nb,3,6,6\na,3,7,7\n");
    let with = |more: &[&str]| table.read(&[&["data.time=t", "data.node=n"], more].concat());
    assert_says(&with(&[]).unwrap_err(), &["row 6, column \"t\": the same time"]);
    for disorder in ["data.disorder=refuse", "data.disorder=sort"] {
        let first = with(&["data.duplicates=first", disorder]).unwrap();
        assert!(!samples(&first).contains(&"5 > 5".to_owned()));
        assert_eq!(first.len(), 6);
    }
    let back = Files::one("n,t,x,y\na,5,1,1\nb,1,2,2\na,4,3,3\n");
    let message = back.read(&["data.time=t", "data.node=n"]).unwrap_err();
    assert_says(&message, &["row 4, column \"t\": time goes back by 1 seconds"]);
}

#[test]
fn what_is_wrong_after_sorting_is_named_where_it_stands() {
    let files = Files::new(&[
        ("1.csv", b"x,t,y\n1,9,1\n2,5,2\n"),
        ("2.csv", b"x,t,y\n3,7,3\n"),
        ("3.csv", b"x,t,y\n4,1,4\n5,7,5\n"),
    ]);
    let message = files.read_named("", &["data.time=t", "data.disorder=sort"]).unwrap_err();
    assert_says(&message, &["3.csv, row 3, column \"t\": the same time"]);
    let data = files
        .read_named("", &["data.time=t", "data.disorder=sort", "data.duplicates=first"])
        .unwrap();
    assert_eq!(samples(&data), ["4 > 4", "2 > 2", "3 > 3", "1 > 1"]);
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn the_files_of_a_folder_come_in_the_order_of_their_names() {
    let json = zstd::encode_all(&b"{\"x\":5,\"y\":50}\n{\"x\":6,\"y\":60}\n"[..], 1).unwrap();
    let files = Files::new(&[
        ("c.jsonl.zst", &json),
        ("a.csv", b"x,y\n1,10\n2,20\n"),
        ("b.csv.gz", &gzip(b"x;y\n3;30\n4;40\n")),
        (".hidden", b"not a table"),
    ]);
    let data = files.read_named("", &[]).unwrap();
    assert_eq!(samples(&data), ["1 > 10", "2 > 20", "3 > 30", "4 > 40", "5 > 50", "6 > 60"]);
    let past = files.read_named("", &["data.lags=1"]).unwrap();
    assert_eq!(samples(&past)[1], "2 20 > 30", "without nodes the files are one series");
    let nodes = files.read_named("", &["data.node=@file", "data.lags=1"]).unwrap();
    assert_eq!(samples(&nodes), ["1 10 > 20", "3 30 > 40", "5 50 > 60"]);
    assert_eq!(owners(&nodes), (vec!["a", "b", "c"], &[0, 1, 2][..]));
    let few = files.read_named("", &["data.rows=3"]).unwrap();
    assert_eq!(samples(&few), ["1 > 10", "2 > 20", "3 > 30"]);
}

#[test]
fn the_whole_file_s_range_becomes_one() {
    let table = Files::one("a,b,c,y\n0,7,-30,10\n5,7,,20\n10,7,10,\n,7,0,14\n");
    let each = table.read(&["data.scaling=whole-file"]).unwrap();
    assert_eq!(samples(&each), ["0 0 0 > 0", "0.5 0 ? > 1", "1 0 1 > ?", "? 0 0.75 > 0.4"]);
    assert_eq!(each.missing, 2);
    let jointly = table.read(&["data.scaling=whole-file-joint"]).unwrap();
    // All features together go from -30 to 10.
    assert_eq!(
        samples(&jointly),
        ["0.75 0.925 0 > 0", "0.875 0.925 ? > 1", "1 0.925 1 > ?", "? 0.925 0.75 > 0.4"]
    );
    let past =
        table.read(&["data.scaling=whole-file", "data.features=[\"-\"]", "data.lags=1"]).unwrap();
    // Labels 20 ? 14, whose range is 14 to 20; what was known before is in the label's unit too.
    assert_eq!(last(&past), "-0.6666667 1 1");
}

#[test]
fn the_largest_numbers_can_be_scaled() {
    let table = Files::one("a,y\n-3e38,1\n3e38,2\n0,3\n");
    let data = table.read(&["data.scaling=whole-file"]).unwrap();
    assert_eq!(samples(&data), ["0 > 0", "1 > 0.5", "0.5 > 1"]);
}

#[test]
fn classes_are_not_scaled() {
    let table = Files::one("a,y\n0,-1\n5,1\n10,-1\n");
    let flags = ["data.scaling=whole-file", "learning.loss=logistic"];
    assert_eq!(samples(&table.read(&flags).unwrap()), ["0 > 0", "0.5 > 1", "1 > 0"]);
    let short = ["run.trials=1", "federation.nodes=2", "federation.methods=[\"mk\"]"];
    assert!(table.run(&[&flags[..], &short].concat()).is_ok());
}

#[test]
fn the_catalogue_s_data_sets_are_as_large_as_it_says() {
    let beside =
        || std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder =
        std::env::var_os("HEDGEROW_DATA_DIR").map_or_else(beside, std::path::PathBuf::from);
    for entry in entries() {
        for variant in &entry.variants {
            let flags = [
                format!("data.name={}", entry.name),
                format!("data.dir={}", folder.display()),
                format!("data.variant={}", variant.kind),
            ];
            let settings = match Settings::load(&Layer::sets(flags).unwrap()) {
                Err(SettingsError::NotFound(missing)) => {
                    // Not with println, because the test runner captures it.
                    let told = writeln!(std::io::stderr(), "SKIPPED: {missing}");
                    told.unwrap();
                    continue;
                }
                settings => settings.unwrap(),
            };
            let data = load_data(&settings, &|_| {}).unwrap();
            let counted = match (entry.name.as_str(), variant.kind) {
                // Hours without carbon monoxide are not counted there.
                ("air-quality", Kind::Original) => data.len() - data.missing_labels(),
                _ => data.len(),
            };
            assert_eq!(counted, variant.samples, "{} {}", entry.name, variant.kind);
            assert_eq!(data.features, variant.features, "{} {}", entry.name, variant.kind);
            let nodes = data.owners.as_ref().map_or(1, |owners| owners.names.len());
            assert_eq!(nodes, if entry.name == "beijing" { 12 } else { 1 });
        }
    }
}
