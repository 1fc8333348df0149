//! Every kind of bad file gives an exit code and one line with place and reason, and leaves no
//! output.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use crate::process::{assert_refused, command, ended_by_itself, gzip, hedgerow, write};

/// What goes wrong with this content of a file.
struct Case<'a> {
    file: &'a str,
    content: Vec<u8>,
    flags: &'a [&'a str],
    parts: &'a [&'a str],
}

fn case<'a>(
    file: &'a str,
    content: impl Into<Vec<u8>>,
    flags: &'a [&'a str],
    parts: &'a [&'a str],
) -> Case<'a> {
    Case { file, content: content.into(), flags, parts }
}

fn simulate(folder: &Path, data: &str, flags: &[&str]) -> Output {
    hedgerow(
        folder,
        &[&["simulate", "--data", data, "--trials", "1", "--nodes", "1"], flags].concat(),
    )
}

/// Every one is refused as data, with its file and these parts named.
fn assert_all_refused(cases: &[Case<'_>]) {
    for Case { file, content, flags, parts } in cases {
        let folder = TempDir::new().unwrap();
        write(folder.path(), file, content);
        let output = simulate(folder.path(), file, flags);
        assert_refused(&output, 3, &[&[*file], *parts].concat(), folder.path());
        assert_eq!(
            folder.path().read_dir().unwrap().count(),
            1,
            "{file}: something was left behind"
        );
    }
}

fn table(rows: usize) -> String {
    let rows = (0..rows).map(|i| format!("{},{},0.{}\n", i % 7, i % 5, i * 7919 % 1000));
    format!("a,b,y\n{}", rows.collect::<String>())
}

fn zstandard(content: &[u8]) -> Vec<u8> {
    zstd::encode_all(content, 1).unwrap()
}

/// The same with one byte changed, counted from the end.
fn damaged(mut content: Vec<u8>, from_end: usize) -> Vec<u8> {
    let at = content.len() - from_end;
    content[at] ^= 0x55;
    content
}

#[test]
fn archives_that_break_off_or_are_damaged() {
    let whole = table(5000);
    let (gzipped, packed) = (gzip(whole.as_bytes()), zstandard(whole.as_bytes()));
    let cut =
        |content: &[u8], share: f64| content[..(content.len() as f64 * share) as usize].to_vec();
    assert_all_refused(&[
        case("d.csv.gz", cut(&gzipped, 0.6), &[], &["row ", "gzipped data breaks off"]),
        case(
            "d.csv.gz",
            gzipped[..gzipped.len() - 4].to_vec(),
            &[],
            &["row 5002", "gzipped data breaks off"],
        ),
        case("d.csv.gz", gzipped[..12].to_vec(), &[], &["gzipped data breaks off"]),
        // The checksum stands eight bytes before the end.
        case(
            "d.csv.gz",
            damaged(gzipped.clone(), 8),
            &[],
            &["row 5002", "gzipped data is damaged"],
        ),
        case("d.csv.zst", cut(&packed, 0.6), &[], &["row ", "zstandard data breaks off"]),
        case("d.csv.zst", packed[..9].to_vec(), &[], &["zstandard data breaks off"]),
        case("d.csv.gz.gz", gzip(&gzipped), &[], &["packed more than once"]),
        // The content decides, not the file extension.
        case("d.csv", cut(&gzipped, 0.6), &[], &["row ", "gzipped data breaks off"]),
    ]);
    // A damaged byte anywhere is noticed, if only by the checksum; what is said depends on where it
    // is.
    for share in [0.1, 0.3, 0.5, 0.7, 0.9] {
        let from_end = (gzipped.len() as f64 * share) as usize;
        assert_all_refused(&[case("d.csv.gz", damaged(gzipped.clone(), from_end), &[], &["row "])]);
    }
}

#[test]
fn nothing_or_next_to_nothing() {
    assert_all_refused(&[
        case("d.csv", "", &[], &["empty", "at least 1 row"]),
        case("d.csv.gz", gzip(b""), &[], &["empty", "at least 1 row"]),
        case("d.csv", "\n\r\n  \n", &[], &["empty", "at least 1 row"]),
        case("d.csv", "\u{feff}", &[], &["empty", "at least 1 row"]),
        case("d.csv", "a,b,y\n", &[], &["only a header", "at least 1 row"]),
        case("d.csv", "y\n1\n2\n3\n", &[], &["\"y\"", "only column", "--lags"]),
        case("d.csv", "y\n1\n2\n3\n", &["--lags", "5"], &["5 rows of the past"]),
    ]);
}

#[test]
fn a_text_among_several_targets() {
    let content = "a,y,z\n1,2,ok\n2,3,bad\n";
    let parts = ["row 2", "\"z\"", "\"ok\"", "several targets", "--target with one column"];
    assert_all_refused(&[case("d.csv", content, &["--target", "y,z"], &parts)]);
}

#[test]
fn text_in_other_encodings() {
    let utf16 = |text: &str, bytes: fn(u16) -> [u8; 2]| {
        text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>()
    };
    let text = "\u{feff}a,y\n1,2\n3,4\n";
    assert_all_refused(&[
        case("d.csv", b"a,y\n1,2\nM\xfcnchen,4\n", &[], &["row 3", "not UTF-8"]),
        case("d.csv", b"Temp\xe9rature,y\n1,2\n3,4\n", &[], &["row 1", "not UTF-8"]),
        case("d.csv", utf16(text, u16::to_le_bytes), &[], &["UTF-16", "iconv"]),
        case("d.csv", utf16(text, u16::to_be_bytes), &[], &["UTF-16", "iconv"]),
        case("d.csv", utf16(&text[3..], u16::to_le_bytes), &[], &["UTF-16", "iconv"]),
        case("d.csv", b"a,y\n1,2\n\xff\xfe\x00,3\n", &[], &["row 3", "not UTF-8"]),
    ]);
}

#[test]
fn rows_and_headers_that_make_no_table() {
    assert_all_refused(&[
        case(
            "d.csv",
            "a,b,y\n1,2,3\n4,5\n",
            &[],
            &["row 3", "3 fields expected", "the header", "2 found"],
        ),
        case("d.csv", "a,b,y\n1,2,3\n4,5,6,7\n", &[], &["row 3", "3 fields expected", "4 found"]),
        case(
            "d.csv",
            "1 2 3\n4 5 6\n7 8\n",
            &[],
            &["row 3", "3 fields expected", "row 1", "2 found"],
        ),
        case("d.csv", "a,y\n1,2\n\"3,4\n5,6\n", &[], &["row 3", "quote"]),
        case("d.csv", "a,y\n1,2\n3\",4\n5,6\n", &[], &["row 3", "quote"]),
        case("d.csv", "a,y\n1,2\n\"3\"4,5\n", &[], &["row 3", "quote"]),
        case("d.csv", "a,b,a,y\n1,2,3,4\n", &[], &["\"a\"", "twice", "columns 1 and 3"]),
        case("d.csv", "a,y,y\n1,2,3\n", &["--target", "y"], &["\"y\"", "twice", "columns 2 and 3"]),
    ]);
}

#[test]
fn numbers_that_are_none() {
    assert_all_refused(&[
        case("d.csv", "a,y\n1,2\n3,inf\n", &[], &["row 3", "\"y\"", "\"inf\"", "not finite"]),
        case(
            "d.csv",
            "a,y\n1,2\n-Infinity,4\n",
            &[],
            &["row 3", "\"a\"", "\"-Infinity\"", "not finite"],
        ),
        case("d.csv", "a,y\n1,2\n3,1e400\n", &[], &["row 3", "\"y\"", "\"1e400\"", "bound"]),
        case("d.csv", "a,y\n1,2\n1e39,4\n", &[], &["row 3", "\"a\"", "1e39", "bound of ±3.4"]),
        case("d.csv", "a,y\n1,2\n3,1e13\n", &[], &["row 3", "\"y\"", "1e13", "bound of ±1e12"]),
        case(
            "d.csv",
            "a,y\n1,2\nred,4\n",
            &[],
            &["row 3", "\"a\"", "\"red\"", "not a number", "--drop", "--categories"],
        ),
        case(
            "d.csv",
            "a,y\n1,2\n3,four\n",
            &["--categories", "one-hot"],
            &["row 3", "\"y\"", "\"four\"", "not a number"],
        ),
        case(
            "d.csv",
            "a;y\n1,5;2\n3.5;4\n",
            &["--set", "data.decimal=,"],
            &["row 3", "\"a\"", "\"3.5\"", "not a number"],
        ),
    ]);
}

#[test]
fn a_column_that_turns_to_text_far_behind() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(b"a,y\n").unwrap();
    for row in 1..=600_000 {
        match row {
            500_000 => writeln!(encoder, "0.5,broken").unwrap(),
            _ => writeln!(encoder, "0.5,0.{}", row % 10).unwrap(),
        }
    }
    // The header is the first line.
    let parts = ["row 500001", "\"y\"", "\"broken\"", "not a number"];
    assert_all_refused(&[case("d.csv.gz", encoder.finish().unwrap(), &[], &parts)]);
}

#[test]
fn labels_that_teach_nothing() {
    let constant = format!("a,level\n{}", (0..30).map(|i| format!("{i},5\n")).collect::<String>());
    let missing = format!(
        "a,level\n{}",
        (0..30).map(|i| format!("{i},{}\n", ["", "NA"][i % 2])).collect::<String>()
    );
    assert_all_refused(&[
        case("d.csv", constant, &[], &["\"level\"", "is 5 in all 30 samples", "nothing to learn"]),
        case("d.csv", missing, &[], &["\"level\"", "all 30 labels are missing"]),
        case(
            "d.csv",
            "a,y\n1,no\n2,yes\n3,maybe\n",
            &["--set", "data.classes=[\"no\", \"yes\"]"],
            &["row 4", "\"y\"", "maybe", "none of the classes no, yes"],
        ),
    ]);
}

#[test]
fn times_that_stand_still_or_go_back_or_are_none() {
    let days =
        |days: [&str; 3]| format!("when,a,y\n{},1,2\n{},2,3\n{},3,5\n", days[0], days[1], days[2]);
    let repeated = days(["2020-01-01", "2020-01-02", "2020-01-02"]);
    let apart = days(["2020-01-02", "2020-01-01", "2020-01-02"]);
    let backwards = days(["2020-01-01", "2020-01-03", "2020-01-02"]);
    let time = ["--time", "when"];
    let sorted = ["--time", "when", "--set", "data.disorder=sort"];
    assert_all_refused(&[
        case(
            "d.csv",
            repeated,
            &time,
            &["row 4", "\"when\"", "same time", "data.duplicates=first"],
        ),
        case(
            "d.csv",
            backwards,
            &time,
            &["row 4", "\"when\"", "back by 86400 seconds", "data.disorder=sort"],
        ),
        // Sorted, the first and the last row come together; it is the last that repeats.
        case("d.csv", apart, &sorted, &["row 4", "\"when\"", "same time", "data.duplicates=first"]),
        case(
            "d.csv",
            days(["2020-01-01", "soon", "2020-01-03"]),
            &time,
            &["row 3", "\"when\"", "\"soon\"", "no time"],
        ),
        case(
            "d.csv",
            days(["2020-01-01", "", "2020-01-03"]),
            &time,
            &["row 3", "\"when\"", "\"\"", "no time"],
        ),
        case(
            "d.csv",
            days(["2020-02-28", "2020-02-30", "2020-03-01"]),
            &time,
            &["row 3", "\"when\"", "\"2020-02-30\"", "no time"],
        ),
    ]);
}

#[test]
fn columns_that_are_not_there() {
    let content = "when,station,temperature,price\n2020-01-01,north,1,2\n2020-01-02,south,2,3\n";
    let there = "there are when, station, temperature, price";
    for (flags, parts) in [
        (&["--target", "prise"][..], &["\"prise\"", "did you mean \"price\"", there][..]),
        (&["--node", "stations"], &["\"stations\"", "did you mean \"station\"", there]),
        (&["--partition", "column:sation"], &["\"sation\"", "did you mean \"station\"", there]),
        (&["--time", "date+hour"], &["\"date\"", there]),
        (
            &["--features", "Temperature"],
            &["\"Temperature\"", "did you mean \"temperature\"", there],
        ),
        (&["--drop", "zzz"], &["\"zzz\"", there]),
        (&["--lags", "1", "--set", "data.lagged=[\"wind\"]"], &["\"wind\"", there]),
        (
            &["--features", "price", "--target", "price"],
            &["\"price\"", "can't be a feature as well"],
        ),
        (&["--node", "station", "--time", "when"], &["row 2", "\"temperature\"", "x"]),
    ] {
        let content =
            if parts.contains(&"x") { content.replace(",1,2", ",x,2") } else { content.to_owned() };
        assert_all_refused(&[case("d.csv", content, flags, parts)]);
    }
    assert_all_refused(&[case(
        "d.csv",
        "station,a,y\nn,1,2\n,2,3\n",
        &["--node", "station"],
        &["row 3", "\"station\"", "no value"],
    )]);
}

#[test]
fn json_lines_that_break() {
    let lines = |bad: &str| {
        format!("{{\"a\":1,\"y\":2}}\n{{\"a\":2,\"y\":3}}\n{bad}\n{{\"a\":3,\"y\":4}}\n")
    };
    assert_all_refused(&[
        case(
            "d.jsonl",
            lines("{\"a\":2,\"y\":"),
            &[],
            &["row 3", "\"y\"", "not one JSON object a line"],
        ),
        case("d.jsonl", lines("nothing"), &[], &["row 3", "not one JSON object a line"]),
        case("d.jsonl", lines("{\"a\":{\"b\":1},\"y\":2}"), &[], &["row 3", "\"a\"", "nested"]),
        case("d.jsonl", lines("{\"a\":1,\"z\":2}"), &[], &["row 3", "\"z\"", "no such key"]),
        case("d.jsonl", lines("{\"a\":1,\"a\":2}"), &[], &["row 3", "\"a\"", "twice"]),
        case("d.jsonl", lines("{\"a\":1e400,\"y\":2}"), &[], &["row 3", "\"a\"", "1e400", "bound"]),
        case(
            "d.jsonl",
            lines("{\"a\":\"red\",\"y\":2}"),
            &[],
            &["row 3", "\"a\"", "\"red\"", "not a number"],
        ),
        case("d.jsonl", "{}\n", &[], &["row 1", "names the columns"]),
    ]);
}

#[test]
fn parquet_says_how_to_be_built_or_that_it_is_damaged() {
    let said = if cfg!(feature = "parquet") { "damaged" } else { "--features parquet" };
    assert_all_refused(&[
        case("d.parquet", "PAR1 and then nothing of the kind PAR1", &[], &["Parquet", said]),
        case("d.parquet.gz", gzip(b"PAR1 and more"), &[], &["Parquet", "not packed"]),
    ]);
}

#[test]
fn files_and_folders_that_are_not_there_or_do_not_belong_together() {
    let folder = TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    write(folder.path(), "hidden/.a.csv", "a,y\n1,2\n");
    for (file, a, b) in
        [("names", "a,y", "b,y"), ("order", "a,y", "y,a"), ("count", "a,y", "a,y,z")]
    {
        write(folder.path(), &format!("{file}/1.csv"), format!("{a}\n1,2\n3,4\n"));
        let more = b.matches(',').count() - 1;
        write(folder.path(), &format!("{file}/2.csv"), format!("{b}\n1,2{}\n", ",3".repeat(more)));
    }
    write(folder.path(), "bad/1.csv", "a,y\n1,2\n3,4\n");
    write(folder.path(), "bad/2.csv", "a,y\n1,2\n3,x\n");
    for (data, parts) in [
        ("no.csv", &["no.csv", "can't read"][..]),
        ("no/such/folder", &["no/such/folder", "can't read"]),
        ("empty", &["empty", "folder without files"]),
        ("hidden", &["hidden", "folder without files"]),
        ("names", &["names/2.csv", "names/1.csv", "column 1 is \"b\", not \"a\""]),
        ("order", &["order/2.csv", "order/1.csv", "column 1 is \"y\", not \"a\""]),
        ("count", &["count/2.csv", "count/1.csv", "it has 3, not 2"]),
        ("bad", &["bad/2.csv", "row 3", "\"y\"", "\"x\""]),
    ] {
        assert_refused(&simulate(folder.path(), data, &[]), 3, parts, folder.path());
    }
    // A word without a dot or a slash was meant for a name.
    assert_refused(&simulate(folder.path(), "navel", &[]), 2, &["navel", "naval"], folder.path());
}

#[test]
fn known_ranges_that_are_not_known() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "d.csv", table(50));
    for (content, parts) in [
        (None, &["can't read"][..]),
        (Some("a = [0, 1]\n"), &["[ranges]", "unknown field"]),
        (Some("[ranges\n"), &["[ranges]"]),
        (Some("[ranges]\na = [0, 7]\ny = [0, 1]\n"), &["no range", "\"b\""]),
        (Some("[ranges]\na = [0, 7]\nb = [0, 5]\n"), &["no range", "\"y\""]),
        (Some("[ranges]\na = [0, 7]\nb = [5, 0]\ny = [0, 1]\n"), &["\"b\"", "5 to 0"]),
        (Some("[ranges]\na = [0, 7]\nb = [0, 5]\ny = [1, 1]\n"), &["\"y\"", "1 to 1"]),
        (Some("[ranges]\na = [0, 7]\nb = [0, inf]\ny = [0, 1]\n"), &["\"b\"", "inf"]),
        (Some("[ranges]\na = \"wide\"\n"), &["[ranges]"]),
    ] {
        if let Some(content) = content {
            write(folder.path(), "r.toml", content);
        }
        let output = simulate(folder.path(), "d.csv", &["--scaling", "r.toml"]);
        assert_refused(&output, 2, &[&["r.toml"], parts].concat(), folder.path());
    }
}

/// A run on a silent, endless standard input: refusals must not wait for it.
fn refused_unheard(folder: &Path, flags: &[&str]) -> Output {
    let mut command =
        command(folder, &[&["simulate", "--data", "-", "--trials", "1"], flags].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let held_open = child.stdin.take().unwrap();
    ended_by_itself(child, held_open)
}

#[test]
fn standard_input_cannot_be_read_twice() {
    let folder = TempDir::new().unwrap();
    for (flags, what) in [
        (&["--scaling", "whole-file"][..], "data.scaling"),
        (&["--scaling", "whole-file-joint"], "data.scaling"),
        (&["--categories", "one-hot"], "data.categories"),
        (&["--set", "data.disorder=sort", "--time", "t"], "data.disorder"),
        (&["--partition", "shuffled"], "federation.partition"),
        (&["--partition", "dirichlet:0.5"], "federation.partition"),
        (&["--set", "participation.join_within=0.5"], "participation.join_within"),
    ] {
        let output = refused_unheard(folder.path(), flags);
        assert_refused(&output, 3, &["standard input", "live", what, "whole file"], folder.path());
    }
    for (flags, parts) in [
        (&["--node", "station"][..], &["federation.nodes", "--nodes", "live"][..]),
        (
            &["--set", "learning.step_schedule=horizon"],
            &["learning.step_schedule", "live", "horizon"],
        ),
    ] {
        assert_refused(&refused_unheard(folder.path(), flags), 2, parts, folder.path());
    }
}

#[test]
fn standard_input_goes_wrong_like_a_file() {
    let folder = TempDir::new().unwrap();
    for (content, flags, parts) in [
        ("", &[][..], &["standard input", "empty"][..]),
        ("a,y\n", &[], &["standard input", "only a header"]),
        ("a,y\n1,2\n3,x\n", &[], &["standard input", "row 3", "\"y\"", "\"x\""]),
        ("a,y\n1,2\n3\n", &[], &["standard input", "row 3", "2 fields expected"]),
        ("s,y\nn,2\ns,3\nw,4\n", &["--node", "s", "--nodes", "2", "--lags", "1"], &["no sample"]),
        (
            "s,a,y\nn,1,2\ns,1,3\nw,1,4\n",
            &["--node", "s", "--nodes", "2"],
            &["standard input", "\"w\"", "--nodes"],
        ),
    ] {
        let mut command = command(
            folder.path(),
            &[&["simulate", "--data", "-", "--trials", "1"], flags].concat(),
        );
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(content.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        // The folder was tried before the first sample came; there is nothing in it.
        let out = folder.path().join("hedgerow-out");
        assert!(!out.exists() || out.read_dir().unwrap().count() == 0, "{content:?}");
        let _ = std::fs::remove_dir(out);
        assert_refused(&output, 3, parts, folder.path());
    }
}
