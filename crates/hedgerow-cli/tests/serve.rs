//! `hedgerow serve` as a process.

// What fails here fails the test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hedgerow"));
    let common = [
        "serve",
        "--json",
        "--set",
        "listen.tls=false",
        "--listen",
        "127.0.0.1:0",
        "--dashboard",
        "127.0.0.1:0",
    ];
    command.current_dir(folder).args(common).args(["--set", "learning.inputs=2"]).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A server and the line that it began with.
fn start(folder: &Path, arguments: &[&str]) -> (Child, Value) {
    let mut child = command(folder, arguments).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        panic!("{errors}");
    }
    (child, serde_json::from_str(&line).unwrap())
}

fn end(mut child: Child, signal: &str) -> (Option<i32>, String) {
    Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    (child.wait().unwrap().code(), log)
}

#[test]
fn a_server_says_where_it_is_and_ends_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let (child, line) = start(folder.path(), &[]);
    let dashboard: SocketAddr = line["dashboard"].as_str().unwrap().parse().unwrap();
    let mut socket = TcpStream::connect(dashboard).unwrap();
    socket
        .write_all(b"GET /api/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains(line["run"].as_str().unwrap()),
        "{answer}"
    );
    let address: SocketAddr = line["address"].as_str().unwrap().parse().unwrap();
    assert!(TcpStream::connect(address).is_ok() && line["tls"] == false);
    let (code, log) = end(child, "-TERM");
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("going down") && log.contains("ended"), "{log}");
    // The same run again, and another way to end it.
    let (child, again) = start(folder.path(), &["--log-json"]);
    assert_eq!(again["run"], line["run"]);
    let (code, log) = end(child, "-INT");
    assert_eq!(code, Some(0), "{log}");
    log.lines().for_each(|line| drop(serde_json::from_str::<Value>(line).unwrap()));
    // After a kill it continues.
    let (child, _) = start(folder.path(), &[]);
    end(child, "-KILL");
    let (child, again) = start(folder.path(), &[]);
    assert_eq!(again["run"], line["run"]);
    assert_eq!(end(child, "-TERM").0, Some(0));
}

#[test]
fn what_can_t_be_is_refused_with_a_code() {
    let folder = tempfile::tempdir().unwrap();
    let (child, _) = start(folder.path(), &[]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    std::fs::write(folder.path().join("note.db"), "not a store").unwrap();
    let other = "other.db";
    for (arguments, code, part) in [
        (&["--set", "rounds.least=0"][..], 2, "rounds.least"),
        (&["--set", "round.least=1"], 2, "round"),
        (&["missing.toml"], 2, "missing.toml"),
        (&["--listen", "0.0.0.0:0"], 2, "loopback"),
        (&["--store", other, "--listen", &taken], 6, &taken),
        (&["--store", "note.db"], 3, "note.db"),
        (&[], 4, "another server"),
        (&["--store", "/no/such/folder/run.db"], 4, "/no/such/folder"),
        (&["--set", "listen.tls=true"], 3, "server.pem"),
    ] {
        let done = command(folder.path(), arguments).output().unwrap();
        let errors = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(part), "{errors}");
    }
    end(child, "-TERM");
    let done = command(folder.path(), &["--set", "learning.ridge=0.5"]).output().unwrap();
    let errors = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.code() == Some(2) && errors.contains("learning.setup.ridge"), "{errors}");
}

#[test]
fn the_defaults_can_be_printed() {
    let print = |arguments: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_hedgerow")).args(arguments).output().unwrap();
        assert!(done.status.success());
        String::from_utf8(done.stdout).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my.toml");
    std::fs::write(&file, print(&["config", "serve"])).unwrap();
    let (child, _) = start(folder.path(), &["my.toml"]);
    assert_eq!(end(child, "-TERM").0, Some(0));
    let defaults: Value = serde_json::from_str(&print(&["config", "serve", "--json"])).unwrap();
    assert_eq!(defaults["rounds"]["quorum"], "all");
    assert!(print(&["config"]).contains("[federation]"));
}

/// One request to a collector: its head, and its body.
#[cfg(feature = "otlp")]
fn exported(collector: &TcpListener, answer: &str) -> (String, Value) {
    let (mut socket, _) = collector.accept().unwrap();
    socket.set_read_timeout(Some(crate::process::PATIENCE)).unwrap();
    let mut reader = BufReader::new(socket.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    write!(socket, "HTTP/1.1 {answer}\r\nContent-Length: 2\r\n\r\n{{}}").unwrap();
    (head, serde_json::from_slice(&body).unwrap())
}

#[cfg(feature = "otlp")]
#[test]
fn a_collector_gets_the_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_METRIC_EXPORT_INTERVAL", "50"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret"),
        ("OTEL_RESOURCE_ATTRIBUTES", "site=north"),
    ];
    let mut child = command(folder.path(), &[]).envs(variables).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let run: Value = serde_json::from_str(&line).unwrap();
    // A refusal is told once, and it goes on.
    exported(&collector, "503 Service Unavailable");
    exported(&collector, "503 Service Unavailable");
    let (head, body) = exported(&collector, "200 OK");
    assert!(head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/json\r\n"), "{head}");
    assert!(head.contains("api-key: secret\r\n"), "{head}");
    let sent = &body["resourceMetrics"][0];
    let attributes = sent["resource"]["attributes"].to_string();
    assert!(attributes.contains("north") && attributes.contains(run["run"].as_str().unwrap()));
    let metrics = sent["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let names: Vec<&str> = metrics.iter().filter_map(|metric| metric["name"].as_str()).collect();
    for name in ["hedgerow_rounds", "hedgerow_nodes_connected", "hedgerow_round_seconds"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let (code, log) = end(child, "-TERM");
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.matches("metrics can't be sent").count(), 1, "{log}");
    assert!(log.contains("the collector takes metrics again"), "{log}");
    // What makes no sense is said at the start.
    let refused = command(folder.path(), &[]).env(variables[0].0, "localhost").output().unwrap();
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert!(
        refused.status.code() == Some(2) && errors.contains("http://localhost:4318"),
        "{errors}"
    );
}
