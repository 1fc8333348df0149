//! `hedgerow pki`: enrolling and revoking a node, and refusals.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use hedgerow_net::pki::identity::{NodeIdentity, ServerIdentity};
use tempfile::TempDir;

use crate::process::{assert_refused, command, hedgerow, json, text};

/// The output of a command that succeeded without messages on standard error.
fn words(folder: &Path, arguments: &[&str]) -> String {
    let output = hedgerow(folder, arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(!shown.contains("PRIVATE"), "{shown}");
    shown
}

#[test]
fn three_commands_from_nothing_to_an_enrolled_node_and_out_again() {
    let folder = TempDir::new().unwrap();
    let made =
        words(folder.path(), &["pki", "init", "--name", "host.example", "--name", "10.0.0.5"]);
    assert!(made.contains("for host.example, 10.0.0.5 until 20"), "{made}");
    assert!(made.contains("Next: hedgerow pki token NODE\n"), "{made}");
    let issued = words(folder.path(), &["pki", "issue", "boiler-3"]);
    assert!(
        issued.starts_with("pki/nodes/boiler-3.pem: all that node boiler-3 needs, until 20"),
        "{issued}"
    );
    let node = NodeIdentity::open(&folder.path().join("pki/nodes/boiler-3.pem")).unwrap();
    assert_eq!(node.name(), "boiler-3");
    assert!(matches!(node.days_left(), 729 | 730));
    let operator = words(folder.path(), &["pki", "issue", "alice", "--operator"]);
    assert!(
        operator.starts_with("pki/operators/alice.pem: all that operator alice needs, until 20"),
        "{operator}"
    );
    let server = ServerIdentity::open(&folder.path().join("pki")).unwrap();
    assert!(!server.is_revoked(&node.peer().serial));
    let said = words(folder.path(), &["pki", "revoke", "boiler-3"]);
    assert!(said.starts_with("boiler-3: revoked\n") && said.contains("crl.pem"), "{said}");
    assert!(server.reload_if_changed().unwrap() && server.is_revoked(&node.peer().serial));
    assert_eq!(
        words(folder.path(), &["pki", "revoke", "boiler-3"]),
        "boiler-3: had no good certificate\n"
    );
    let shown = words(folder.path(), &["pki", "list"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(
        lines[0].starts_with("name ") && lines[1].starts_with("server for host.example, 10.0.0.5 "),
        "{shown}"
    );
    assert!(lines[1].contains("good for 7") && lines[2].contains("revoked on 20"), "{shown}");
    assert!(lines[3].starts_with("operator alice ") && lines[3].contains("good for 7"), "{shown}");
}

#[test]
fn json_for_programs() {
    let folder = TempDir::new().unwrap();
    let run = |arguments: &[&str]| {
        let all = [&["pki"], arguments, &["--folder", "certs", "--json"]].concat();
        json(&hedgerow(folder.path(), &all))
    };
    let made = run(&["init", "--days", "30", "--authority-days", "90"]);
    assert_eq!(made["folder"], "certs");
    assert_eq!(made["server"]["hosts"].as_array().unwrap().len(), 3);
    let issued = run(&["issue", "a", "b", "--days", "10"]);
    assert_eq!(issued[0]["file"], "certs/nodes/a.pem");
    assert_eq!(issued[1]["certificate"]["name"], "b");
    let days = |file: &str| NodeIdentity::open(&folder.path().join(file)).unwrap().days_left();
    assert!(matches!(days("certs/nodes/b.pem"), 9 | 10));
    let renewed = run(&["issue", "a", "--renew"]);
    assert_ne!(renewed[0]["certificate"]["serial"], issued[0]["certificate"]["serial"]);
    // Nothing outlives the authority.
    assert!(matches!(days("certs/nodes/a.pem"), 89 | 90));
    let revoked = run(&["revoke", "a"]);
    assert_eq!(revoked["revoked"][0], serde_json::json!({ "node": "a", "certificates": 2 }));
    let server = run(&["renew-server", "--name", "elsewhere"]);
    assert_eq!(server["certificate"]["hosts"], serde_json::json!(["elsewhere"]));
    let list = run(&["list"]);
    let states: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|issued| (issued["name"].as_str().unwrap(), issued["revoked_at"].is_string()))
        .collect();
    assert_eq!(
        states,
        [("server", false), ("a", true), ("b", false), ("a", true), ("server", false)]
    );
}

#[test]
fn what_can_not_be_is_refused_in_one_line() {
    let folder = TempDir::new().unwrap();
    let run = |arguments: &[&str]| hedgerow(folder.path(), &[&["pki"], arguments].concat());
    let refused = |arguments: &[&str], code: i32, parts: &[&str]| {
        assert_refused(&run(arguments), code, parts, folder.path());
    };
    for command in [&["issue", "a"][..], &["revoke", "a"], &["list"], &["renew-server"]] {
        refused(command, 2, &["pki holds no authority", "hedgerow pki init"]);
    }
    refused(&["init", "--name", "host:7443"], 2, &["without a port", "host:7443"]);
    assert!(!folder.path().join("pki").exists());
    assert!(run(&["init"]).status.success());
    refused(&["init"], 2, &["pki/ca.key is there already"]);
    refused(&["issue", "../a"], 2, &["\"../a\""]);
    refused(&["issue", "a", "a"], 2, &["a is given twice"]);
    refused(&["issue", "a", "--renew"], 2, &["a has no certificate in pki"]);
    refused(&["revoke", "a"], 2, &["a has no certificate in pki", "hedgerow pki list"]);
    assert!(run(&["issue", "a"]).status.success());
    refused(&["issue", "b", "a"], 2, &["a has a certificate until 20", "--renew"]);
    assert!(!folder.path().join("pki/nodes/b.pem").exists());
    assert!(run(&["revoke", "a"]).status.success());
    refused(&["issue", "a", "--renew"], 2, &["a was revoked on 20", "without --renew"]);
    for days in ["0", "36501", "-1", "ten"] {
        let output = run(&["issue", "c", &format!("--days={days}")]);
        assert_eq!(output.status.code(), Some(2));
    }
    std::fs::write(folder.path().join("pki/nodes/d.pem"), "precious").unwrap();
    refused(&["issue", "d"], 4, &["pki/nodes/d.pem is in the way"]);
    std::fs::write(folder.path().join("pki/ca.key"), "nonsense").unwrap();
    refused(&["issue", "e"], 3, &["pki/ca.key: holds no private key"]);
    std::fs::write(folder.path().join("pki/index.jsonl"), "nonsense").unwrap();
    refused(&["list"], 3, &["pki/index.jsonl, line 1: that is no index of certificates"]);
    std::fs::write(folder.path().join("file"), "").unwrap();
    refused(&["init", "--folder", "file"], 4, &["can't write file"]);
}

/// The server, and its address once nodes can connect.
fn serve(folder: &Path, more: &[&str]) -> (Child, String) {
    let common = ["serve", "--json", "--listen", "127.0.0.1:0", "--dashboard", "never"];
    let learning = ["--set", "learning.inputs=2", "--set", "learning.scaling=none"];
    let mut command = command(folder, &[&common[..], &learning, more].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let port = line["address"].as_str().unwrap().rsplit_once(':').unwrap().1.to_owned();
    (child, format!("localhost:{port}"))
}

#[test]
fn a_token_is_all_that_a_device_gets() {
    let folder = TempDir::new().unwrap();
    words(folder.path(), &["pki", "init"]);
    let (mut server, address) = serve(folder.path(), &[]);
    let shown = words(folder.path(), &["pki", "token", "boiler-3", "--server", &address]);
    let token = shown.lines().next().unwrap();
    assert!(shown.contains("Good once, for boiler-3, until 20"), "{shown}");
    std::fs::write(folder.path().join("samples"), "{\"x\": [0.1, 0.2], \"y\": 0.3}\n").unwrap();
    std::fs::write(folder.path().join("token"), token).unwrap();
    let join = |file: &str, token: &str| {
        let arguments = ["join", "--identity", file, "--enroll", token, "--once", "--quiet"];
        let samples = std::fs::File::open(folder.path().join("samples")).unwrap();
        command(folder.path(), &arguments).stdin(samples).output().unwrap()
    };
    // Its address is in the token.
    for token in [token, "@token"] {
        let joined = join("n.pem", token);
        assert!(joined.status.success(), "{}", text(&joined.stderr));
    }
    assert_eq!(NodeIdentity::open(&folder.path().join("n.pem")).unwrap().name(), "boiler-3");
    assert_refused(&join("m.pem", token), 6, &["the token was used on 20"], folder.path());
    assert_refused(&join("m.pem", &token[..50]), 2, &["--enroll: this is no token"], folder.path());
    assert!(words(folder.path(), &["pki", "tokens"]).contains("boiler-3  used"));
    words(folder.path(), &["pki", "token", "boiler-4"]);
    assert_eq!(
        words(folder.path(), &["pki", "cancel-token", "boiler-4"]),
        "boiler-4: cancelled 1\n"
    );
    let audit = words(folder.path(), &["pki", "audit"]);
    for action in ["init", "token", "enrol", "cancel-token"] {
        assert!(audit.contains(action), "{action}: {audit}");
    }
    assert!(!audit.contains(&token[20..60]));
    let verified = words(folder.path(), &["pki", "audit", "--verify"]);
    assert!(verified.contains("none changed; the last one has the hash "), "{verified}");
    let file = folder.path().join("pki/audit.jsonl");
    let forged = std::fs::read_to_string(&file).unwrap().replacen("boiler-3", "boiler-9", 1);
    std::fs::write(&file, forged).unwrap();
    let output = hedgerow(folder.path(), &["pki", "audit", "--verify"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn requests_in_files_rotation_and_a_passphrase() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("secret"), "correct horse\n").unwrap();
    std::fs::write(path("other"), "another\n").unwrap();
    let with = |arguments: &[&str], file: &str| {
        let all = [&["pki"], arguments, &["--passphrase-file", file]].concat();
        hedgerow(folder.path(), &all)
    };
    assert!(with(&["init", "--encrypt"], "secret").status.success());
    let without = hedgerow(folder.path(), &["pki", "issue", "a"]);
    assert_refused(&without, 2, &["pki/ca.key is encrypted", "--passphrase-file"], folder.path());
    assert_refused(&with(&["issue", "a"], "other"), 3, &["wrong passphrase"], folder.path());
    let request = ["join", "--name", "a", "--identity", "a.pem", "--request", "a.csr"];
    let made = words(folder.path(), &request);
    assert!(made.contains("Next: hedgerow pki sign a.csr"), "{made}");
    let signed = with(&["sign", "a.csr"], "secret");
    assert!(signed.status.success(), "{}", text(&signed.stderr));
    let take = ["join", "--identity", "a.pem", "--certificate", "pki/nodes/a.pem"];
    assert_eq!(words(folder.path(), &take), "a.pem: all that node a needs\n");
    assert_eq!(NodeIdentity::open(&path("a.pem")).unwrap().name(), "a");
    assert_eq!(words(folder.path(), &["pki", "rotate", "--status"]), "no rotation has begun\n");
    let rotated = text(&with(&["rotate"], "secret").stdout);
    assert!(rotated.contains("1 know only the old one: a"), "{rotated}");
    assert_refused(
        &with(&["rotate", "--finish"], "secret"),
        2,
        &["such as a", "--even-so"],
        folder.path(),
    );
    assert!(with(&["rotate", "--finish", "--even-so"], "secret").status.success());
    let change = ["passphrase", "--new-passphrase-file", "other"];
    assert!(with(&change, "secret").status.success());
    assert!(with(&["issue", "b"], "other").status.success());
    assert!(with(&["passphrase", "--remove"], "other").status.success());
    assert!(words(folder.path(), &["pki", "issue", "c"]).starts_with("pki/nodes/c.pem"));
}

#[test]
fn help_teaches() {
    let folder = TempDir::new().unwrap();
    let help = words(folder.path(), &["pki", "--help"]);
    for part in
        ["pki init --name", "pki token boiler-3", "pki revoke boiler-3", "crl.pem", "renew-server"]
    {
        assert!(help.contains(part), "{part}: {help}");
    }
    for command in [
        "init",
        "issue",
        "revoke",
        "list",
        "renew-server",
        "token",
        "tokens",
        "cancel-token",
        "sign",
        "rotate",
        "passphrase",
        "audit",
    ] {
        let help = words(folder.path(), &["pki", command, "--help"]);
        assert!(help.contains("--folder <DIR>") && help.contains("--json"), "{help}");
    }
}
