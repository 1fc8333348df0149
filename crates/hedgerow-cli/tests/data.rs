//! `hedgerow data` as a process, with its output and exit codes.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Cursor, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use zip::write::{SimpleFileOptions, ZipWriter};

/// With its own cache, independent of the user's environment.
fn hedgerow(cache: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hedgerow"));
    command
        .env_remove("HEDGEROW_DATA_DIR")
        .env_remove("HEDGEROW_MIRROR")
        .env("HEDGEROW_CACHE_DIR", cache);
    command.args(arguments).current_dir(cache).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn assert_refused(output: &Output, code: i32, parts: &[&str]) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    assert!(output.stdout.is_empty());
}

fn touch(path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, "x").unwrap();
}

/// Answers every request with an archive of this one file, and gives its address.
fn serve(name: &'static str, content: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file(name, SimpleFileOptions::default()).unwrap();
    zip.write_all(content).unwrap();
    let archive = zip.finish().unwrap().into_inner();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = BufReader::new(&stream).lines().map(Result::unwrap);
            assert!(request.take_while(|line| !line.is_empty()).count() > 0);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                archive.len()
            );
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&archive));
        }
    });
    address
}

#[test]
fn the_list_says_where_things_are_or_how_to_get_them() {
    let cache = TempDir::new().unwrap();
    let mine = TempDir::new().unwrap();
    touch(&mine.path().join("authors_csv/TwitterData.csv.gz"));
    touch(&cache.path().join("data/naval/data.txt"));
    let output =
        hedgerow(cache.path(), &["data", "list", "--data-dir", mine.path().to_str().unwrap()]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(
        line("twitter ").contains("13,813 x 77") && line("twitter ").contains("TwitterData.csv.gz"),
        "{shown}"
    );
    assert!(line("naval").contains("11,934 x 16") && line("naval").contains("data.txt"), "{shown}");
    assert!(line("twitter-large").contains("hedgerow data fetch twitter-large"), "{shown}");
    assert!(
        shown.contains("excerpt: the authors' normalised excerpt") && shown.contains("UCI 501"),
        "{shown}"
    );
    assert!(line("bike").contains("https://github.com/treforevans"), "{shown}");
    assert_eq!(shown.lines().count(), 1 + 2 * 14);
}

#[test]
fn the_list_as_json_has_every_variant() {
    let cache = TempDir::new().unwrap();
    touch(&cache.path().join("data/superconductivity/train_rebuilt.csv.gz"));
    let output = hedgerow(cache.path(), &["data", "list", "--json"]);
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let named =
        |name: &str| all.as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap();
    assert_eq!(all.as_array().unwrap().len(), 14);
    assert_eq!(named("twitter")["variants"].as_array().unwrap().len(), 2);
    assert_eq!(named("twitter")["variants"][0]["variant"], "excerpt");
    assert_eq!(named("twitter")["variants"][0]["files"], Value::Null);
    assert_eq!(
        (&named("naval")["uci"]["id"], &named("naval")["page"]),
        (&316.into(), &Value::Null)
    );
    assert!(named("bike")["uci"].is_null() && named("bike")["page"].is_string());
    let rebuilt = &named("conductivity")["variants"][0];
    assert!(rebuilt["files"][0].as_str().unwrap().ends_with("train_rebuilt.csv.gz"));
    assert!(rebuilt["provenance"].as_str().unwrap().contains("rebuilt from formulas"));
}

#[test]
fn a_data_set_that_is_not_at_uci_is_not_asked_for_there() {
    let cache = TempDir::new().unwrap();
    let output =
        hedgerow(cache.path(), &["data", "fetch", "bike", "--mirror", "http://127.0.0.1:1"]);
    let shown = text(&output.stderr);
    let parts = ["bike is not at UCI", "treforevans/uci_datasets", "long/bike.csv.gz"];
    assert!(!output.status.success() && parts.iter().all(|part| shown.contains(part)), "{shown}");
}

#[test]
fn a_data_set_is_fetched_into_the_cache_and_found_there() {
    let cache = TempDir::new().unwrap();
    let address = serve("WECs_DataSet/Adelaide_Data.csv", b"1,2\n");
    let output = hedgerow(cache.path(), &["data", "fetch", "wave", "--mirror", &address]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for part in
        ["Adelaide_Data.csv", "downloaded", "no checksum is known: recorded", "cite:", "CC BY 4.0"]
    {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert!(output.stderr.is_empty(), "no progress bar where nobody watches");
    let file = cache.path().join("data/wave/Adelaide_Data.csv");
    assert_eq!(std::fs::read(&file).unwrap(), b"1,2\n");
    assert!(
        text(&hedgerow(cache.path(), &["data", "list"]).stdout).contains(file.to_str().unwrap())
    );
    // The server is gone and not needed.
    let flags = ["data", "fetch", "wave", "--mirror", "http://127.0.0.1:1", "--json"];
    let again: Value = serde_json::from_slice(&hedgerow(cache.path(), &flags).stdout).unwrap();
    assert_eq!(
        (&again[0]["files"][0]["downloaded"], &again[0]["files"][0]["checked"]),
        (&false.into(), &"first-download".into())
    );
    let quiet = hedgerow(cache.path(), &["data", "fetch", "wave", "--quiet"]);
    assert!(quiet.status.success() && quiet.stdout.is_empty() && quiet.stderr.is_empty());
}

#[test]
fn a_folder_of_one_s_own_and_a_mirror_of_the_environment() {
    let cache = TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hedgerow"));
    command.env("HEDGEROW_MIRROR", serve("Adelaide_Data.csv", b"1,2\n")).current_dir(cache.path());
    let output =
        command.args(["data", "fetch", "wave", "--data-dir", "mine", "--quiet"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(cache.path().join("mine/wave/Adelaide_Data.csv").is_file());
}

#[test]
fn what_goes_wrong_has_its_exit_code() {
    let cache = TempDir::new().unwrap();
    let fetch = |more: &[&str]| hedgerow(cache.path(), &[&["data", "fetch"], more].concat());
    let nobody = "http://127.0.0.1:1";
    assert_refused(&fetch(&["navel"]), 2, &["navel", "did you mean \"naval\""]);
    assert_refused(&fetch(&["naval", "--mirror", "ftp://x"]), 2, &["mirror", "ftp://x"]);
    assert_refused(
        &fetch(&["naval", "--mirror", nobody]),
        6,
        &["127.0.0.1:1", "refused", "--mirror"],
    );
    let wrong = serve("UCI CBM Dataset/data.txt", b"something else");
    assert_refused(
        &fetch(&["naval", "--mirror", &wrong]),
        3,
        &["data.txt", "wrong checksum", "de0ea69da1ef"],
    );
    std::fs::write(cache.path().join("taken"), "a file, not a folder").unwrap();
    assert_refused(&fetch(&["naval", "--mirror", nobody, "--data-dir", "taken"]), 4, &["taken"]);
    assert_eq!(fetch(&[]).status.code(), Some(2));
    assert!(text(&hedgerow(cache.path(), &["--help"]).stdout).contains("6  "));
}
