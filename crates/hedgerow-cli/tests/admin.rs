//! `hedgerow admin` against a running server with nodes, each as its own process.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::network::{Running, join, object, port, prepare, serve};
use crate::process::{hedgerow, text, wait_until};

fn admin(folder: &Path, arguments: &[&str]) -> Output {
    hedgerow(folder, &[&["admin"], arguments].concat())
}

/// The outcome of a command that succeeded.
fn done(folder: &Path, arguments: &[&str]) -> Value {
    let output = admin(folder, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn state(folder: &Path, node: &str) -> String {
    let nodes = done(folder, &["nodes", "--name", node]);
    nodes["nodes"][0]["state"].as_str().unwrap_or("none").to_owned()
}

fn refused(folder: &Path, arguments: &[&str], code: i32, part: &str) {
    let output = admin(folder, arguments);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    assert!(errors.starts_with("error: ") && errors.contains(part), "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
}

/// A server with two nodes that learn.
struct Fleet {
    folder: tempfile::TempDir,
    address: String,
    _server: Running,
    nodes: Vec<Running>,
}

impl Fleet {
    fn new() -> Self {
        let folder = prepare(&["a", "b"]);
        let issued = hedgerow(folder.path(), &["pki", "issue", "alice", "--operator"]);
        assert!(issued.status.success(), "{}", text(&issued.stderr));
        let (server, line) = serve(folder.path(), 0);
        let port = port(&line);
        let more = ["--set", "server.retry_refused=100ms"];
        let nodes = ["a", "b"].map(|node| join(folder.path(), node, port, &more)).into();
        let address = format!("localhost:{port}");
        let mut fleet = Self { folder, address, _server: server, nodes };
        wait_until("both are connected", || fleet.status()["connected"] == json!(2));
        fleet.learn(0);
        fleet
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn status(&self) -> Value {
        done(self.folder(), &["status"])
    }

    fn round(&self) -> u64 {
        self.status()["round"].as_u64().unwrap()
    }

    fn learn(&mut self, at: usize) {
        self.nodes.iter_mut().enumerate().for_each(|(node, running)| {
            running.say(&object(10 * at + node));
        });
    }
}

#[test]
fn operators_command_a_running_server() {
    let mut fleet = Fleet::new();
    wait_until("a round has closed", || fleet.round() > 1);
    let folder = fleet.folder.path().to_owned();
    let folder = folder.as_path();
    let shown = text(&admin(folder, &["status"]).stdout);
    for part in ["round", "2 connected, 2 known", "all connected", "error, whole run"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let listed = text(&admin(folder, &["nodes", "--sort", "name"]).stdout);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(
        lines.len() == 3 && lines[0].starts_with("name") && lines[1].starts_with("a "),
        "{listed}"
    );
    let one = done(folder, &["nodes", "--most", "1"]);
    assert_eq!((one["nodes"].as_array().unwrap().len(), &one["left_out"]), (1, &json!(1)));

    // A stream ends and comes again.
    done(folder, &["kick", "a"]);
    wait_until("a is back", || state(folder, "a") == "connected");

    done(folder, &["quarantine", "b", "--reason", "new firmware"]);
    assert_eq!(state(folder, "b"), "quarantined");
    let listed = text(&admin(folder, &["nodes", "--state", "quarantined"]).stdout);
    assert!(
        listed.contains("quarantined: new firmware") && !listed.contains("connected"),
        "{listed}"
    );
    done(folder, &["release", "b"]);
    assert_eq!(state(folder, "b"), "connected");

    done(folder, &["pause"]);
    assert_eq!(fleet.status()["paused"], json!(true));
    refused(folder, &["pause"], 2, "paused already");
    let paused_at = fleet.round();
    fleet.learn(1);
    wait_until("answers wait", || fleet.status()["uploads"] == json!(2));
    assert_eq!(fleet.round(), paused_at);
    done(folder, &["resume"]);
    wait_until("rounds close again", || fleet.round() > paused_at);

    let set = done(folder, &["set", "rounds.quorum=1"]);
    assert_eq!((&set["key"], &set["now"]), (&json!("rounds.quorum"), &json!("1")));
    assert_eq!(fleet.status()["settings_changed"][0]["key"], json!("rounds.quorum"));
    refused(folder, &["set", "rounds.quorum=none"], 2, "quorum");
    refused(folder, &["set", "listen.address=127.0.0.1:1"], 2, "listen.address");
    done(folder, &["set", "rounds.quorum"]);

    let copy = done(folder, &["backup", "copy.db"]);
    assert_eq!(copy["outcome"], json!("backed-up"));
    let mode = std::fs::metadata(folder.join("copy.db")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    refused(folder, &["backup", "copy.db"], 6, "copy.db");

    let snapshots = done(folder, &["snapshots"]);
    let oldest = snapshots["snapshots"][0]["round"].as_u64().unwrap().to_string();
    refused(folder, &["rollback", &oldest], 2, "--yes");
    refused(folder, &["rollback", "999999", "--yes"], 2, "999999");
    let back = done(folder, &["rollback", &oldest, "--yes"]);
    assert_eq!(back["to"].as_u64().unwrap().to_string(), oldest);
    refused(folder, &["reset-scale", "--yes"], 2, "scale");

    done(folder, &["ban", "b", "--reason", "wrong unit"]);
    wait_until("b is gone", || {
        done(folder, &["nodes", "--name", "b"])["nodes"][0]["connected"] == json!(false)
    });
    assert_eq!(state(folder, "b"), "banned");
    done(folder, &["unban", "b"]);
    refused(folder, &["unban", "b"], 2, "banned");
    wait_until("b may come again", || state(folder, "b") == "connected");
    refused(folder, &["forget", "b", "--yes"], 2, "connected");
    fleet.nodes.pop();
    wait_until("b has left", || state(folder, "b") == "away");
    done(folder, &["forget", "b", "--yes"]);
    assert_eq!(state(folder, "b"), "none");

    // All of it is in the log, and nobody has changed that.
    let log = text(&admin(folder, &["audit", "--from", "1", "--most", "1000", "--json"]).stdout);
    let entries: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for action in ["kick", "quarantine", "pause", "set", "backup", "rollback", "ban", "forget"] {
        let found = entries.iter().find(|entry| entry["action"] == json!(action));
        let actor = found.unwrap_or_else(|| panic!("no {action} in {log}"))["actor"].to_string();
        assert!(actor.contains("(socket)"), "{actor}");
    }
    let shown = text(&admin(folder, &["audit"]).stdout);
    assert!(shown.starts_with("entry") && shown.contains("wrong unit"), "{shown}");
    let verified = done(folder, &["audit", "--verify"]);
    assert!(verified["entries"].as_u64().unwrap() >= entries.len() as u64, "{verified}");
    over_the_network(&fleet);
}

/// The same with an operator's certificate, and only with that.
fn over_the_network(fleet: &Fleet) {
    let folder = fleet.folder();
    let alice = ["--server", &fleet.address, "--identity", "pki/operators/alice.pem"];
    let status = done(folder, &[&alice[..], &["status"]].concat());
    assert_eq!(status["run"], fleet.status()["run"]);
    done(folder, &[&alice[..], &["kick", "a"]].concat());
    let log = text(&admin(folder, &["audit", "--most", "20"]).stdout);
    assert!(log.contains("alice (certificate)"), "{log}");
    refused(folder, &[&alice[..], &["backup", "/tmp/elsewhere.db"]].concat(), 2, "without folders");
    refused(folder, &[&alice[..], &["token"]].concat(), 2, "on that machine");
    let node = ["--server", &fleet.address, "--identity", "pki/nodes/a.pem", "status"];
    refused(folder, &node, 3, "node's");
    let joined = hedgerow(
        folder,
        &["join", "--server", &fleet.address, "--identity", "pki/operators/alice.pem"],
    );
    assert_eq!(joined.status.code(), Some(3), "{}", text(&joined.stderr));
    // A server that reads the authority's folder notices by itself.
    let revoked = hedgerow(folder, &["pki", "revoke", "alice"]);
    assert!(revoked.status.success(), "{}", text(&revoked.stderr));
    wait_until("alice is refused", || {
        !admin(folder, &[&alice[..], &["status"]].concat()).status.success()
    });
    refused(folder, &[&alice[..], &["status"]].concat(), 6, "revoked");
}

#[test]
fn what_an_operator_can_t_do_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    refused(folder, &["status"], 6, "hedgerow.db.sock: no server uses this store");
    let long = "d".repeat(120);
    refused(folder, &["--store", &long, "status"], 6, "so long a path");
    refused(folder, &["--server", "localhost:1", "status"], 2, "--identity");
    refused(folder, &["--identity", "a.pem", "status"], 2, "--server");
    let both = ["--store", "a", "--server", "b:1", "--identity", "c", "status"];
    refused(folder, &both, 2, "either --store");
    let missing = ["--server", "localhost:1", "--identity", "missing.pem", "status"];
    refused(folder, &missing, 3, "missing.pem");
    refused(folder, &["--server", "nowhere", "--identity", "c", "status"], 2, "HOST:PORT");
    refused(folder, &["rollback", "yesterday", "--yes"], 2, "yesterday");
    refused(folder, &["forget", "a"], 2, "--yes");
    refused(folder, &["token"], 3, "hedgerow.db");
    for arguments in [&["nodes", "--state", "lost"][..], &["reboot"], &["set"]] {
        assert_eq!(admin(folder, arguments).status.code(), Some(2), "{arguments:?}");
    }
    // A token can be made before the server is, and is the same until a new one is wanted.
    std::fs::write(folder.join("run.db"), "").unwrap();
    let token = |more: &[&str]| {
        done(folder, &[&["--store", "run.db", "token"], more].concat())["token"].clone()
    };
    let first = token(&[]);
    assert_eq!((first.as_str().unwrap().len(), token(&[])), (64, first.clone()));
    assert_ne!(token(&["--new"]), first);
    let mode = std::fs::metadata(folder.join("run.db.token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
