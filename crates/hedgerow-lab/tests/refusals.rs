//! Unusable data is refused, with file, row, column and value where they exist.

#![allow(clippy::unwrap_used)]

use crate::common::{Files, assert_says};

fn refused(content: &str, flags: &[&str], parts: &[&str]) {
    let message = Files::one(content).read(flags).unwrap_err();
    assert_says(&message, parts);
}

#[test]
fn cells_that_are_no_numbers() {
    let mut late = String::from("a,b,y\n");
    (0..5000).for_each(|at| late += &format!("{at},1,{at}\n"));
    late += "5000,broken,1\n";
    let parts = [
        "t.csv, row 5002, column \"b\": \"broken\" is not a number",
        "--drop",
        "--missing",
        "--categories",
    ];
    refused(&late, &[], &parts);
    for categories in ["data.categories=one-hot", "data.categories=hashed:3"] {
        refused(&late, &[categories], &parts);
    }
    let long = format!("a,y\n1,2\n{},3\n", "x".repeat(90));
    refused(&long, &[], &["row 3, column \"a\"", &format!("{:?}", "x".repeat(40) + "…")]);
    refused(
        "a,y\n1,2\n3,x\n",
        &["data.categories=one-hot"],
        &["row 3, column \"y\": \"x\" is not a number"],
    );
}

#[test]
fn numbers_beyond_bounds() {
    refused(
        "a,y\n1e39,2\n",
        &[],
        &["t.csv, row 2, column \"a\": 1e39 is beyond the bound of ±3.4028235e38"],
    );
    refused(
        "a,y\n1,2\n1,-2e12\n",
        &[],
        &["t.csv, row 3, column \"y\": -2e12 is beyond the bound of ±1e12"],
    );
    let lagged = ["data.features=[\"a\"]", "data.lagged=[\"b\"]", "data.lags=1", "data.target=y"];
    refused("a,b,y\n1,1,1\n1,1e40,2\n", &lagged, &["row 3, column \"b\": 1e40 is beyond"]);
}

#[test]
fn times_that_are_none() {
    let shown = ["t.csv, row 3, column \"t\": \"soon\" is no time", "2013-03-01 17:00:00"];
    refused("t,x,y\n2013-03-01,1,1\nsoon,2,2\n", &["data.time=t"], &shown);
    refused(
        "t,x,y\n2013-02-29,1,1\n",
        &["data.time=t"],
        &["row 2, column \"t\": \"2013-02-29\" is no time"],
    );
    refused("t,x,y\n1,1,1\n,2,2\n", &["data.time=t"], &["row 3, column \"t\": \"\" is no time"]);
    // A date without its time of day is not midnight.
    let joined = "d,h,x,y\n2013-03-01,17:00,1,1\n2013-03-02,NA,2,2\n";
    refused(joined, &["data.time=d+h"], &["row 3, column \"h\": \"\" is no time"]);
    let joined = "d,h,x,y\n2013-03-01,25:00,1,1\n";
    refused(joined, &["data.time=d+h"], &["row 2, column \"d\": \"2013-03-01 25:00\" is no time"]);
}

#[test]
fn labels_that_teach_nothing() {
    refused(
        "a,y\n1,7\n2,7\n3,\n",
        &[],
        &[
            "t.csv, column \"y\": the target is 7 in all 2 samples that have one: there is nothing to learn",
        ],
    );
    refused("a,y\n1,\n2,NA\n", &[], &["t.csv, column \"y\": all 2 labels are missing"]);
    refused(
        "a,p,q\n1,,\n2,,\n",
        &["data.target=\"p,q\""],
        &["column \"p, q\": all 2 labels are missing"],
    );
}

#[test]
fn series_that_are_too_short() {
    let three = "a,y\n1,1\n2,2\n3,3\n";
    refused(three, &["data.lags=3"], &["t.csv: a sample needs 3 rows of the past"]);
    refused(three, &["data.lags=2", "data.horizon=2"], &["3 rows of the past"]);
    refused("n,y\na,1\nb,2\nc,3\n", &["data.node=n", "data.lags=1"], &["1 row of the past"]);
    refused("a,y\n", &[], &["t.csv: only a header"]);
}

#[test]
fn columns_that_are_not_there() {
    let table = "temperature,humidity,y\n1,2,3\n";
    let listed = "; there are temperature, humidity, y";
    for key in [
        "data.target=temprature",
        "data.drop=[\"temprature\"]",
        "data.time=temprature",
        "data.node=temprature",
    ] {
        refused(
            table,
            &[key],
            &["t.csv: no column \"temprature\" (did you mean \"temperature\"?)", listed],
        );
    }
    refused(
        table,
        &["data.features=[\"Humidity\"]"],
        &["no column \"Humidity\" (did you mean \"humidity\"?)"],
    );
    refused(table, &["data.lagged=[\"zzz\"]", "data.lags=1"], &["no column \"zzz\"; there are"]);
    let many: Vec<String> = (0..30).map(|at| format!("c{at}x")).collect();
    let many = format!("{}\n{}\n", many.join(","), vec!["1"; 30].join(","));
    refused(&many, &["data.target=nope"], &["c9x and 20 more"]);
}

#[test]
fn columns_that_are_two_things_at_once() {
    let table = "a,b,y\n1,2,3\n";
    let both = ["data.target=b", "data.features=[\"a\", \"b\"]"];
    refused(table, &both, &["t.csv, column \"b\": the target can't be a feature as well"]);
    for flags in [
        &["data.target=\"b,b\""][..],
        &["data.features=[\"b\", \"a\", \"b\"]"],
        &["data.time=b+b"],
        &["data.lagged=[\"b\", \"b\"]", "data.lags=1"],
    ] {
        let key = flags[0].split_once('=').unwrap().0;
        refused(table, flags, &[&format!("t.csv, column \"b\": named twice in {key}")]);
    }
    refused(
        "y\n1\n2\n",
        &[],
        &["t.csv, column \"y\": the target would be the only column", "--lags"],
    );
    refused(
        "a,y\n1,2\n",
        &["data.features=[\"-\"]"],
        &["column \"y\": the target would be the only column"],
    );
    refused(
        "a,y\n1,2\n",
        &["data.drop=[\"a\", \"y\"]"],
        &["t.csv: no column is left to be the target"],
    );
}

#[test]
fn files_that_do_not_belong_together() {
    let other = |second: &str| {
        let files =
            Files::new(&[("1.csv", b"a,b,y\n1,2,3\n4,5,6\n"), ("2.csv", second.as_bytes())]);
        let messages =
            ["data.categories=refuse", "data.categories=one-hot", "data.categories=hashed:2"].map(
                |categories| files.read_named("", &[categories, "data.target=y"]).unwrap_err(),
            );
        assert!(messages.iter().all(|message| *message == messages[0]), "{messages:?}");
        messages[0].clone()
    };
    assert_eq!(
        other("a,c,y\nx,2,3\n"),
        "2.csv: other columns than in 1.csv: column 2 is \"c\", not \"b\""
    );
    assert_eq!(other("a,b\n1,2\n"), "2.csv: other columns than in 1.csv: it has 2, not 3");
    assert_eq!(other("a,b,y,z\n1,2,3,4\n"), "2.csv: other columns than in 1.csv: it has 4, not 3");
    // Columns of text in the first file are cells that a shorter row of the second doesn't have.
    let files = Files::new(&[("1.csv", b"a,y,c\n1,2,red\n3,4,blue\n"), ("2.csv", b"a,y\n1,2\n")]);
    let flags = ["data.categories=one-hot", "data.target=y"];
    assert_says(
        &files.read_named("", &flags).unwrap_err(),
        &["2.csv: other columns than in 1.csv"],
    );
    let empty = Files::new(&[]);
    assert_says(&empty.read_named("", &[]).unwrap_err(), &["a folder without files"]);
}

#[test]
fn samples_that_nobody_owns() {
    let flags = ["data.node=n"];
    let no_value = "t.csv, row 3, column \"n\": no value, but this column says whose the sample is";
    refused("n,x,y\na,1,1\n,2,2\n", &flags, &[no_value]);
    refused("n,x,y\na,1,1\nNA,2,2\n", &flags, &[no_value]);
    // f64 can't tell this number from the next.
    let long = "n,x,y\n1,1,1\n9007199254740993,2,2\n";
    refused(long, &flags, &["t.csv, row 3, column \"n\"", "too long a number to tell nodes apart"]);
}

#[test]
fn texts_without_end() {
    let rows = |count: usize| {
        let mut text = String::from("c,x,y\n");
        (0..count).for_each(|at| text += &format!("t{at},1,{at}\n"));
        text
    };
    let parts = ["t.csv, column \"c\": more than 1000 different texts", "hashed:N", "--drop"];
    refused(&rows(1001), &["data.categories=one-hot"], &parts);
    let most = Files::one(&rows(1000)).read(&["data.categories=one-hot"]).unwrap();
    assert_eq!(most.features, 1001);
    // The number of texts in an unused column doesn't matter.
    let flags = ["data.categories=one-hot", "data.drop=[\"c\"]"];
    assert_eq!(Files::one(&rows(1001)).read(&flags).unwrap().features, 1);
}

#[test]
fn labels_that_are_no_classes() {
    let classes = ["data.classes=[\"no\", \"yes\"]"];
    let parts = ["t.csv, row 4, column \"y\": \"maybe\" is none of the classes no, yes"];
    refused("a,y\n1,no\n2,yes\n3,maybe\n", &classes, &parts);
    let parts = ["t.csv, column \"y\": the class is \"no\" in all samples"];
    refused("a,y\n1,no\n2,\n3,no\n", &[], &parts);
    let many: String = (0..120).map(|row| format!("{row},c{row}\n")).collect();
    let parts = ["column \"y\": more than 100 different values", "--target"];
    refused(&format!("a,y\n{many}"), &[], &parts);
    let parts = ["column \"y\": past classes can't be inputs", "data.lags"];
    refused("a,y\n1,no\n2,yes\n3,no\n", &["data.lags=1"], &parts);
    // A text among numbers is a mistake, not a class.
    let parts = ["t.csv, row 3, column \"y\": \"x\" is not a number"];
    refused("a,y\n1,0\n2,x\n3,1\n", &[], &parts);
    assert!(Files::one("a,y\n1,0\n2,x\n3,1\n").read(&["data.task=classes"]).is_ok());
}
