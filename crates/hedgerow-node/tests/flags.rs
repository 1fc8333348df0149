//! The lean binary as a process without a server: refusals and exit codes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn node(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hedgerow-node"));
    command.current_dir(folder).args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn what_can_t_be_is_refused_with_a_code() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("odd.toml"), "[sampels]\npace = \"round\"\n").unwrap();
    std::fs::write(folder.path().join("note.state"), "not a state").unwrap();
    std::fs::write(folder.path().join("note.pem"), "not a key").unwrap();
    // Nobody listens on a port that was just free.
    let nobody =
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let plain = ["--plain-text", "--name", "n1", "--once", "--server", &nobody];
    let with = |more: &[&'static str]| [&plain[..], more].concat();
    for (arguments, code, parts) in [
        (vec!["--pace", "fast"], 2, &["--pace", "round"][..]),
        (vec!["--plain-text"], 2, &["--name"]),
        (vec!["--set", "samples.pace=fast"], 2, &["pace", "round"]),
        (vec!["--server", "nowhere"], 2, &["server.address", "HOST:PORT"]),
        (vec!["--http", "0.0.0.0:7411"], 2, &["http.address", "http.anywhere"]),
        (vec!["--no-samples"], 2, &["nothing to do"]),
        (vec!["missing.toml"], 2, &["missing.toml"]),
        (vec!["odd.toml"], 2, &["odd.toml", "sampels", "samples"]),
        (vec![], 3, &["there is no node.pem", "--identity", "hedgerow pki token"]),
        (vec!["--identity", "note.pem"], 3, &["note.pem"]),
        (with(&["--state", "note.state"]), 3, &["note.state", "begin anew"]),
        (vec!["wipe"], 2, &["STATE"]),
        (vec!["wipe", "missing.state"], 3, &["can't read missing.state"]),
        (vec!["wipe", "note.state"], 3, &["note.state"]),
        (with(&["--state", "no/such/state"]), 3, &["no/such/state", "--state"]),
        (with(&[]), 6, &["can't reach", &nobody]),
        ([&with(&[])[..], &["--http", &taken]].concat(), 6, &["can't listen", &taken]),
        (
            vec!["--plain-text", "--name", "n1", "--once", "--server", "192.0.2.1:1"],
            6,
            &["loopback"],
        ),
    ] {
        let done = node(folder.path(), &arguments);
        let message = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(code), "{arguments:?}: {message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{arguments:?}: {message}");
        assert!(!message.contains("panicked") && done.stdout.is_empty(), "{message}");
    }
    assert_eq!(std::fs::read(folder.path().join("note.state")).unwrap(), b"not a state");
}

#[test]
fn it_tells_what_it_can() {
    let done = node(Path::new("."), &["--help"]);
    let help = String::from_utf8(done.stdout).unwrap();
    for part in ["--server", "--identity", "--follow", "--pace", "--http", "--once", "Exit codes"] {
        assert!(help.contains(part), "{part} is not in {help}");
    }
    assert!(node(Path::new("."), &["--version"]).status.success());
}
