//! `hedgerow admin` as an operator uses it: processes on the server's machine, over its socket, and
//! over TLS with an operator's certificate.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::network::{Running, join, object, port, prepare, serve};
use crate::process::{assert_refused, hedgerow, json, text, wait_until};

/// Where a server keeps its run unless it is told otherwise.
const STORE: &str = "hedgerow.db";

fn admin(folder: &Path, arguments: &[&str]) -> Output {
    hedgerow(folder, &[&["admin"], arguments].concat())
}

fn answer(folder: &Path, arguments: &[&str]) -> Value {
    json(&admin(folder, &[&["--json"], arguments].concat()))
}

fn words(folder: &Path, arguments: &[&str]) -> String {
    let done = admin(folder, arguments);
    assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
    text(&done.stdout)
}

/// The state of a node, with the reason that the table shows.
fn state(folder: &Path, node: &str) -> String {
    let nodes = answer(folder, &["nodes", "--name", node]);
    let node = &nodes["nodes"][0];
    format!("{}: {}", node["state"].as_str().unwrap(), node["reason"].as_str().unwrap())
}

fn stop(server: Running) {
    server.signal("-TERM");
    let (code, _, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn an_operator_sees_steers_and_restores_a_run() {
    let folder = prepare(&["alpha", "beta"]);
    let folder = folder.path();
    assert!(hedgerow(folder, &["pki", "issue", "alice", "--operator"]).status.success());
    let (server, line) = serve(folder, 0);
    let soon = ["--set", "server.retry_refused=200ms"];
    let mut nodes = ["alpha", "beta"].map(|node| join(folder, node, port(&line), &soon));
    for at in 0..20 {
        nodes.iter_mut().for_each(|node| node.say(&object(at)));
    }
    wait_until("all samples are counted", || answer(folder, &["status"])["samples"] == 40);
    let told = words(folder, &["status"]);
    assert!(told.contains("2 connected, 2 known") && told.contains("error, whole run"), "{told}");
    let told = words(folder, &["nodes", "--sort", "name"]);
    assert!(told.lines().nth(1).unwrap().starts_with("alpha") && told.contains("beta"), "{told}");

    // One node, in each of its states.
    words(folder, &["quarantine", "beta", "--reason", "new firmware"]);
    assert_eq!(state(folder, "beta"), "quarantined: new firmware");
    words(folder, &["release", "beta"]);
    words(folder, &["ban", "beta", "--reason", "wrong unit"]);
    assert_eq!(state(folder, "beta"), "banned: wrong unit");
    let banned = answer(folder, &["nodes", "--state", "banned"]);
    assert_eq!((banned["nodes"].as_array().unwrap().len(), &banned["left_out"]), (1, &0.into()));
    assert_refused(&admin(folder, &["ban", "beta"]), 2, &["beta", "banned already"], folder);
    assert_refused(&admin(folder, &["kick", "gamma"]), 2, &["no node named", "gamma"], folder);
    words(folder, &["unban", "beta"]);
    words(folder, &["pause"]);
    assert_eq!(answer(folder, &["status"])["paused"], true);
    words(folder, &["resume"]);
    let told = words(folder, &["set", "rounds.quorum=1", "log.level=debug"]);
    assert!(told.contains("rounds.quorum is 1 (it was 2)"), "{told}");
    assert_refused(&admin(folder, &["set", "learning.method=gr"]), 2, &["can't be"], folder);

    // What loses something is asked for; a script has to say so.
    assert_refused(&admin(folder, &["rollback", "1"]), 2, &["--yes"], folder);
    assert_refused(&admin(folder, &["--yes", "rollback", "soon"]), 2, &["soon", "90m"], folder);
    let copied = answer(folder, &["backup", "monday.db"]);
    let round = copied["round"].as_u64().unwrap();
    assert_refused(&admin(folder, &["backup", "monday.db"]), 2, &["monday.db"], folder);

    // From elsewhere: an operator may, a node may not.
    let server_address = format!("localhost:{}", port(&line));
    let remote = |identity: &str, arguments: &[&str]| {
        let common = ["admin", "--json", "--server", &server_address, "--identity", identity];
        hedgerow(folder, &[&common[..], arguments].concat())
    };
    let seen = json(&remote("pki/operators/alice.pem", &["status"]));
    assert_eq!(seen["run"], line["run"]);
    let refused = remote("pki/nodes/alpha.pem", &["status"]);
    assert_refused(&refused, 3, &["pki/nodes/alpha.pem", "operator"], folder);
    assert!(!remote("pki/operators/alice.pem", &["restore", "monday.db"]).status.success());

    // Everything is in the log, with who did it.
    let log = words(folder, &["audit", "--most", "1000"]);
    for part in ["quarantine", "new firmware", "ban", "unban", "pause", "set", "backup"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    let chain = answer(folder, &["audit", "--verify"]);
    assert!(chain["entries"].as_u64().unwrap() >= 8, "{chain}");
    assert_eq!(answer(folder, &["token"])["token"].as_str().unwrap().len(), 64);

    // A copy is put back while no server runs, and nodes go on from its round.
    let in_use = admin(folder, &["restore", "monday.db"]);
    assert_refused(&in_use, 4, &[STORE], folder);
    nodes.iter_mut().for_each(|node| node.say(&object(20)));
    let samples = || answer(folder, &["status"])["samples"].as_u64().unwrap();
    // A round closes with one node; the other may be late for it, and tell with its next upload.
    wait_until("more is learned", || samples() > 40);
    stop(server);
    assert_refused(&admin(folder, &["restore", "none.db"]), 3, &["none.db"], folder);
    assert_refused(&admin(folder, &["status"]), 6, &["no server uses this store"], folder);
    let restored = answer(folder, &["restore", "monday.db"]);
    assert_eq!(restored["round"], round);
    // The copy was made before its own entry.
    assert!(restored["audit_taken_over"].as_u64().unwrap() > 0, "{restored}");
    assert!(folder.join(restored["replaced"].as_str().unwrap()).exists(), "{restored}");
    let (server, again) = serve(folder, port(&line));
    assert_eq!(again["run"], line["run"]);
    // What is learned before a node hears of the earlier round does not count in it.
    wait_until("nodes go on", || {
        nodes.iter_mut().for_each(|node| node.say(&object(21)));
        answer(folder, &["status"])["round"].as_u64().unwrap() > round && samples() > 40
    });
    let log = words(folder, &["audit", "--most", "1000"]);
    assert!(log.contains("restore") && log.contains("monday.db"), "{log}");
    assert!(answer(folder, &["audit", "--verify"])["entries"].as_u64().unwrap() >= 8);
    for node in nodes {
        let (code, _, log) = node.end();
        assert_eq!(code, Some(0), "{log}");
    }
    stop(server);
}

#[test]
fn an_operator_goes_back_to_an_earlier_round() {
    let folder = prepare(&["alpha"]);
    let folder = folder.path();
    let (server, line) = serve(folder, 0);
    let mut node = join(folder, "alpha", port(&line), &["--pace", "round"]);
    (0..50).for_each(|at| node.say(&object(at)));
    wait_until("50 rounds are closed", || answer(folder, &["status"])["round"] == 51);
    let snapshots = answer(folder, &["snapshots"]);
    let rounds = snapshots["snapshots"].as_array().unwrap().iter();
    let oldest = rounds.map(|snapshot| snapshot["round"].as_u64().unwrap()).min().unwrap();
    let done = answer(folder, &["--yes", "rollback", &oldest.to_string()]);
    assert_eq!((&done["from"], &done["to"]), (&51.into(), &oldest.into()), "{done}");
    wait_until("the node follows", || {
        node.say(&object(50));
        answer(folder, &["status"])["round"].as_u64().unwrap() >= oldest + 10
    });
    let refused = admin(folder, &["--yes", "rollback", "1000000"]);
    assert_refused(&refused, 2, &["1000000"], folder);
    assert_eq!(node.end().0, Some(0));
    stop(server);
}
