//! Raw rows of a table on the standard input of `hedgerow join`: texts, missing values and headers.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::network::{port, prepare, serve};
use crate::process::{assert_refused, command, hedgerow, text, write};

const LEARNING: &str = "\
[learning]
method = \"tr\"
columns = [\"temperature\", \"sky\"]
target = \"load\"
scaling = \"none\"
nodes = 1
[learning.categories]
sky = [\"clear\", \"rain\", \"a=b\"]
[rounds]
quorum = 1
deadline = \"never\"
[listen]
dashboard = \"127.0.0.1:0\"
";

fn prepared() -> TempDir {
    let folder = prepare(&["alpha"]);
    write(folder.path(), "serve.toml", LEARNING);
    folder
}

/// A node that has this on its standard input, as a file.
fn played(folder: &Path, port: u64, content: &str, more: &[&str]) -> Output {
    write(folder, "samples", content);
    let server = format!("localhost:{port}");
    let given = ["join", "--server", &server, "--identity", "pki/nodes/alpha.pem"];
    let mut node = command(folder, &[&given[..], more].concat());
    node.stdin(std::fs::File::open(folder.join("samples")).unwrap()).output().unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The same 120 samples as rows of a table and as objects: with texts, one of them not listed, and
/// every mark of a missing value.
fn both() -> (String, String) {
    let (mut rows, mut objects) = (String::from("load,\"sky\",temperature\n"), String::new());
    for at in 0..120 {
        let value = f64::from(at % 8) / 8.0;
        let (cell, number) = match at % 19 {
            3 => ("NA".to_owned(), Value::Null),
            7 => (String::new(), Value::Null),
            11 => ("-99".to_owned(), Value::Null),
            13 => ("?".to_owned(), Value::Null),
            17 => ("NaN".to_owned(), Value::Null),
            _ => (value.to_string(), json!(value)),
        };
        let mut object = json!({ "temperature": number });
        let sky = match at % 7 {
            0 | 1 => "clear",
            2 | 3 => "\"a=b\"",
            4 => " rain ",
            5 => "fog",
            _ => ["NA", "gone", ""][at as usize % 3],
        };
        match at % 7 {
            // A text that is not listed: none of the inputs that its column has.
            5 => {
                for input in ["sky=clear", "sky=rain", "sky=a=b"] {
                    object[input] = 0.into();
                }
            }
            6 => object["sky"] = Value::Null,
            _ => object["sky"] = sky.trim().trim_matches('"').into(),
        }
        let label = value + f64::from(at % 7);
        let label = if at % 23 == 9 { None } else { Some(label) };
        object["load"] = label.into();
        let label = label.map_or("NA".to_owned(), |label| label.to_string());
        rows += &format!("{label},{sky},{cell}\n");
        objects += &format!("{object}\n");
    }
    (rows, objects)
}

#[test]
fn raw_rows_are_predicted_and_learned_as_objects_are() {
    let (rows, objects) = both();
    let missing = ["--set", "samples.missing=[\"-99\", \"gone\"]"];
    let [(from_rows, log), (from_objects, _)] = [rows, objects].map(|content| {
        let folder = prepared();
        let (_server, line) = serve(folder.path(), 0);
        let output = played(folder.path(), port(&line), &content, &missing);
        let log = text(&output.stderr);
        assert!(output.status.success(), "{log}");
        (lines(&output), log)
    });
    assert_eq!((from_rows.len(), from_objects.len()), (120, 120));
    assert!(from_rows.iter().filter(|line| line.get("label").is_none()).count() > 3);
    for (mut row, mut object) in from_rows.into_iter().zip(from_objects) {
        // The header is a line as well.
        let number = row["line"].take().as_u64().unwrap();
        assert_eq!(number, object["line"].take().as_u64().unwrap() + 1);
        assert_eq!(row, object, "line {number}");
        assert!(row["prediction"].is_number(), "{row}");
    }
    // Told of the 1st, 2nd, 4th, 8th and 16th.
    assert_eq!(log.matches("\"fog\" is no text that the federation knows").count(), 5, "{log}");
    assert!(log.contains("unseen_texts=16") && !log.contains("\"gone\""), "{log}");
}

#[test]
fn a_bad_header_is_one_error_for_all_rows() {
    let folder = prepared();
    let (_server, line) = serve(folder.path(), 0);
    let rows = "1,clear,2,3\n".repeat(100);
    for (header, reason) in [
        (
            "temperature,sky,load,wind=max",
            "there is no column \"wind=max\" (there are temperature,",
        ),
        ("temprature,sky,load,id", "there is no column \"temprature\""),
        ("temperature,id,load,x", "there is no column \"x\""),
        ("temperature,sky,load,y", "column \"y\" comes twice"),
        ("temperature,sky,load,sky", "column \"sky\" comes twice"),
        ("temperature,sky,load,sky=rain", "column \"sky=rain\" comes twice"),
    ] {
        let output = played(folder.path(), port(&line), &format!("{header}\n{rows}"), &[]);
        let (told, log) = (lines(&output), text(&output.stderr));
        assert_eq!(output.status.code(), Some(3), "{log}");
        assert_eq!(told.len(), 1, "{header}");
        assert!(told[0]["error"].as_str().unwrap().contains(reason), "{}", told[0]);
        let errors: Vec<&str> = log.lines().filter(|line| line.starts_with("error: ")).collect();
        assert!(errors.len() == 1 && errors[0].contains(reason), "{log}");
        assert!(errors[0].contains("1 of 1 line was bad, line 1 first"), "{log}");
    }
    // The same rows are of use if others may be there.
    let content = format!("temperature,sky,load,wind=max\n{rows}");
    let output = played(folder.path(), port(&line), &content, &["--set", "samples.others=ignore"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(lines(&output).len(), 100);
}

#[test]
fn a_server_names_no_column_like_the_inputs_of_texts() {
    let folder = prepared();
    let output = hedgerow(
        folder.path(),
        &["serve", "serve.toml", "--set", "learning.columns=[\"sky\", \"wind=max\"]"],
    );
    let parts = ["learning.columns", "without =", "\"wind=max\""];
    assert_refused(&output, 2, &parts, folder.path());
}
