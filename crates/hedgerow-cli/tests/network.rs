//! A complete federation as a user builds it: certificates, a server, nodes, each as its own
//! process.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::process::{PATIENCE, command, hedgerow, text, wait_until, write};
use hedgerow::Federation;
use hedgerow::features::Features;
use hedgerow::federation::{Contact, NodeRound};
use hedgerow_config::Layer;
use hedgerow_net::serve::config::ServeSettings;
use serde_json::Value;
use tempfile::TempDir;

/// A process that ends with its test.
pub(crate) struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn new(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{line:?}: {error}\n{}", self.log()))
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn signal(&self, signal: &str) {
        Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
    }

    fn log(&mut self) -> String {
        let mut log = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            _ = self.child.kill();
            errors.read_to_string(&mut log).unwrap();
        }
        log
    }

    /// Waits for its end. Returns the exit code, the remaining output and the log.
    pub(crate) fn end(mut self) -> (Option<i32>, Vec<Value>, String) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        let code = self.child.wait().unwrap().code();
        let lines = rest.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (code, lines, self.log())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Certificates for these nodes, and settings of a server that waits for all of them.
pub(crate) fn prepare(nodes: &[&str]) -> TempDir {
    let folder = TempDir::new().unwrap();
    let done = hedgerow(folder.path(), &["pki", "init", "--name", "localhost"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    for node in nodes {
        let done = hedgerow(folder.path(), &["pki", "issue", node]);
        assert!(done.status.success(), "{}", text(&done.stderr));
    }
    let settings = format!(
        "[learning]\nmethod = \"mk\"\ncolumns = [\"temperature\", \"wind\"]\ntarget = \"load\"\nscaling = \"none\"\n\
         nodes = {count}\n[rounds]\nquorum = {count}\ndeadline = \"never\"\n[listen]\ndashboard = \"127.0.0.1:0\"\n",
        count = nodes.len(),
    );
    write(folder.path(), "serve.toml", settings);
    folder
}

pub(crate) fn serve(folder: &Path, port: u64) -> (Running, Value) {
    let listen = format!("127.0.0.1:{port}");
    let mut server =
        Running::new(command(folder, &["serve", "serve.toml", "--json", "--listen", &listen]));
    let line = server.line();
    (server, line)
}

pub(crate) fn port(line: &Value) -> u64 {
    line["address"].as_str().unwrap().rsplit_once(':').unwrap().1.parse().unwrap()
}

pub(crate) fn join(folder: &Path, node: &str, port: u64, more: &[&str]) -> Running {
    let (server, identity) = (format!("localhost:{port}"), format!("pki/nodes/{node}.pem"));
    let state = format!("{node}.state");
    let mut arguments =
        vec!["join", "--server", &server, "--identity", &identity, "--state", &state];
    arguments.extend_from_slice(more);
    Running::new(command(folder, &arguments))
}

fn status(line: &Value) -> Value {
    let mut socket = TcpStream::connect(line["dashboard"].as_str().unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
        .write_all(b"GET /api/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// A sample.
fn sample(at: usize) -> (f64, f64, f64) {
    let (temperature, wind) = ((at as f64 * 0.37).sin(), (at as f64 * 0.73).cos());
    (temperature, wind, 0.5 + 0.3 * temperature * wind)
}

pub(crate) fn object(at: usize) -> String {
    let (temperature, wind, load) = sample(at);
    format!("{{\"temperature\": {temperature}, \"wind\": {wind}, \"load\": {load}}}\n")
}

fn row(at: usize) -> String {
    let (temperature, wind, load) = sample(at);
    format!("{wind};{load};{temperature}\n")
}

/// The same federation without sockets: what node 0 and node 1, whose samples begin there, predict
/// in each of 300 rounds.
fn in_one_process(folder: &Path, starts: [usize; 2]) -> Vec<Vec<f32>> {
    let file = Layer::file(&folder.join("serve.toml")).unwrap();
    let plan = ServeSettings::read(&[file]).unwrap().plan;
    let mut federation = Federation::new(&plan);
    let mut z = [vec![0.0; plan.map().width()], vec![0.0; plan.map().width()]];
    let round = |at: usize| {
        let labels = starts.map(|start| sample(start + at).2 as f32);
        for (start, z) in starts.into_iter().zip(&mut z) {
            let (temperature, wind, _) = sample(start + at);
            plan.map().map_batch(&[temperature as f32, wind as f32], z);
        }
        let visit = |node: usize| NodeRound {
            node: node as u32,
            z: Features::checked(&z[node]).unwrap(),
            y: std::slice::from_ref(&labels[node]),
            contact: Contact::Full,
        };
        let mut predicted = Vec::new();
        federation
            .round(&[visit(0), visit(1)], |prediction| predicted.push(prediction.value))
            .unwrap();
        predicted
    };
    (0..300).map(round).collect()
}

#[test]
fn two_nodes_learn_together_from_objects_and_from_rows() {
    let folder = prepare(&["alpha", "beta"]);
    let (server, line) = serve(folder.path(), 0);
    let mut alpha = join(folder.path(), "alpha", port(&line), &["--pace", "round"]);
    let mut beta = join(folder.path(), "beta", port(&line), &["--pace", "round"]);
    beta.say("wind;load;temperature\n");
    for at in 0..300 {
        alpha.say(&object(at));
        beta.say(&row(at + 1000));
    }
    let outputs = [alpha, beta].map(|node| {
        let (code, output, log) = node.end();
        assert_eq!(code, Some(0), "{log}");
        assert_eq!(output.len(), 300, "{log}");
        assert!(log.contains("connected") && log.contains("leaves"), "{log}");
        output
    });
    let seen = status(&line);
    assert_eq!(
        (&seen["nodes_known"], &seen["round"], &seen["samples"]),
        (&2.into(), &301.into(), &600.into()),
        "{seen}"
    );
    // The predictions equal those of a federation in one process, for any order of joining.
    let is_alpha_first =
        seen["nodes"].as_array().unwrap().iter().any(|node| {
            (node["name"].as_str(), node["number"].as_u64()) == (Some("alpha"), Some(0))
        });
    let starts = if is_alpha_first { [0, 1000] } else { [1000, 0] };
    let expected = in_one_process(folder.path(), starts);
    for (start, output) in [0, 1000].into_iter().zip(&outputs) {
        let number = starts.iter().position(|of| *of == start).unwrap();
        for (round, line) in output.iter().enumerate() {
            let prediction = line["prediction"].as_f64().unwrap() as f32;
            assert_eq!(prediction.to_bits(), expected[round][number].to_bits(), "{line}");
            assert_eq!(line["round"], round as u64 + 1);
        }
        let error = |line: &Value| {
            (line["prediction"].as_f64().unwrap() - line["label"].as_f64().unwrap()).powi(2)
        };
        let mse = |lines: &[Value]| lines.iter().map(error).sum::<f64>() / lines.len() as f64;
        let (early, late) = (mse(&output[..150]), mse(&output[150..]));
        assert!(late < early, "{early} and {late}");
    }
    server.signal("-TERM");
    let (code, _, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    // Nothing secret in any log: not even the names of keys.
    assert!(!log.contains("PRIVATE KEY"), "{log}");
}

#[test]
fn node_and_server_are_ended_and_killed_and_go_on() {
    let folder = prepare(&["alpha"]);
    let log = folder.path().join("sensor.log");
    let append = |lines: std::ops::Range<usize>| {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        lines.for_each(|at| file.write_all(object(at).as_bytes()).unwrap());
    };
    append(0..10);
    let (server, line) = serve(folder.path(), 0);
    let follow = ["--follow", "sensor.log", "--pace", "round", "--set", "server.retry_most=200ms"];
    let mut node = join(folder.path(), "alpha", port(&line), &follow);
    let mut rounds = Vec::new();
    let mut read = |node: &mut Running, count| {
        for _ in 0..count {
            let line = node.line();
            assert_eq!(line["line"], rounds.len() as u64 + 1);
            rounds.push(line["round"].as_u64().unwrap());
        }
    };
    read(&mut node, 10);
    // The server is killed and restarted.
    server.signal("-KILL");
    server.end();
    append(10..20);
    let (server, again) = serve(folder.path(), port(&line));
    assert_eq!(again["run"], line["run"]);
    read(&mut node, 10);
    // The node is stopped and restarted, then killed and restarted, with frequent saves.
    node.signal("-TERM");
    let (code, rest, messages) = node.end();
    assert_eq!((code, rest.len()), (Some(0), 0), "{messages}");
    append(20..30);
    let mut node = join(folder.path(), "alpha", port(&line), &follow);
    read(&mut node, 10);
    assert_eq!(rounds, (1..=30).collect::<Vec<u64>>());
    node.signal("-TERM");
    assert_eq!(node.end().0, Some(0));
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn labels_come_later_and_questions_over_http() {
    let folder = prepare(&["alpha"]);
    let (server, line) = serve(folder.path(), 0);
    // A free port.
    let free =
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut node = join(folder.path(), "alpha", port(&line), &["--http", &free]);
    node.say("{\"id\": \"noon\", \"temperature\": 0.5, \"wind\": 0.25}\n");
    let first = node.line();
    assert_eq!((&first["id"], &first["line"]), (&"noon".into(), &1.into()), "{first}");
    let post = |path: &str, body: &str| {
        let mut socket = TcpStream::connect(&free).unwrap();
        let length = body.len();
        write!(
            socket,
            "POST {path} HTTP/1.1\r\nHost: {free}\r\nContent-Type: application/json\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        serde_json::from_str::<Value>(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let learned = post("/learn", "{\"id\": \"noon\", \"load\": 0.75}");
    assert_eq!(learned["prediction"], first["prediction"]);
    let predicted = post("/predict", "[{\"temperature\": 0.5, \"wind\": 0.25}]");
    assert!(predicted[0]["prediction"].is_number(), "{predicted}");
    // What it has learned moves it towards the label, as soon as the round has closed.
    wait_until("a prediction that has moved", || {
        post("/predict", "{\"temperature\": 0.5, \"wind\": 0.25}")["prediction"].as_f64()
            > first["prediction"].as_f64()
    });
    node.signal("-TERM");
    assert_eq!(node.end().0, Some(0));
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_file_on_standard_input_is_played_in_step_and_one_of_no_use_has_a_code() {
    let folder = prepare(&["alpha"]);
    let (server, line) = serve(folder.path(), 0);
    let address = format!("localhost:{}", port(&line));
    let play = |content: &str, more: &[&str]| {
        write(folder.path(), "samples", content);
        let given = ["join", "--server", &address, "--identity", "pki/nodes/alpha.pem"];
        let mut node = command(folder.path(), &[&given[..], more].concat());
        node.stdin(std::fs::File::open(folder.path().join("samples")).unwrap()).output().unwrap()
    };
    let content: String = (0..50).map(object).collect();
    let done = play(&content, &[]);
    let log = text(&done.stderr);
    assert!(done.status.success() && log.contains("standard input is a file"), "{log}");
    assert!(log.contains("learned=50 predicted=0 waited=0 refused=0 answers_taken=50"), "{log}");
    assert_eq!(status(&line)["round"], 51);
    // The same again without waiting for rounds.
    let done = play(&content, &["--pace", "free"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    // Without an input; without anything that is known.
    for (content, parts) in [
        ("wind;load\n1;2\n1;2\n", ["no column \"temperature\"", "1 of 1 line was bad"]),
        ("{\"wind\": 1, \"laod\": 2}\n{\n", ["no column \"laod\"", "2 of 2 lines were bad"]),
    ] {
        let done = play(content, &[]);
        let log = text(&done.stderr);
        let last = log.lines().last().unwrap();
        assert_eq!(done.status.code(), Some(3), "{log}");
        assert!(
            last.starts_with("error: ") && parts.iter().all(|part| last.contains(part)),
            "{log}"
        );
    }
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn the_defaults_can_be_printed_and_used() {
    let folder = TempDir::new().unwrap();
    let printed = hedgerow(folder.path(), &["config", "join"]);
    write(folder.path(), "join.toml", &printed.stdout);
    // Only the certificate is wrong.
    let done = hedgerow(folder.path(), &["join", "join.toml"]);
    let message = text(&done.stderr);
    assert!(done.status.code() == Some(3) && message.contains("node.pem"), "{message}");
    let json = crate::process::json(&hedgerow(folder.path(), &["config", "join", "--json"]));
    assert_eq!(json["samples"]["pace"], "auto");
}

/// A server that may open 64 files.
#[cfg(target_os = "linux")]
fn serve_with_few_files(folder: &Path) -> (Running, Value) {
    let mut shell = command(folder, &[]);
    let program = shell.get_program().to_owned();
    let line = "ulimit -n 64; exec \"$0\" serve serve.toml --json --listen 127.0.0.1:0";
    shell = Command::new("sh");
    shell.current_dir(folder).args(["-c", line]).arg(program);
    let mut server = Running::new(shell);
    let line = server.line();
    (server, line)
}

#[cfg(target_os = "linux")]
#[test]
fn strangers_take_neither_places_of_nodes_nor_those_of_the_dashboard() {
    let folder = prepare(&["alpha"]);
    let (server, line) = serve_with_few_files(folder.path());
    let address = line["address"].as_str().unwrap();
    let mut strangers: Vec<TcpStream> = Vec::new();
    for fed in 0..5 {
        strangers.extend((0..60).map(|_| TcpStream::connect(address).unwrap()));
        let mut node = join(folder.path(), "alpha", port(&line), &["--pace", "round"]);
        wait_until("a place", || status(&line)["connected"] == 1);
        (0..10).for_each(|at| node.say(&object(10 * fed + at)));
        let (code, output, log) = node.end();
        assert_eq!((code, output.len()), (Some(0), 10), "{log}");
        wait_until("samples", || status(&line)["samples"] == 10 * (fed + 1));
    }
    drop(strangers);
    server.signal("-TERM");
    let (code, _, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("room for fewer connections"), "{log}");
    assert!(log.contains("newer connections took its place"), "{log}");
    assert!(!log.contains("can't be accepted"), "{log}");
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let folder = prepare(&["alpha"]);
    let listen = ["--listen", "127.0.0.1:0", "--set", "log.level=debug"];
    let arguments = [&["serve", "serve.toml", "--json"][..], &listen].concat();
    let mut server = Running::new(command(folder.path(), &arguments));
    let line = server.line();
    // Each is turned away with a line of the log: far more than a pipe holds.
    for _ in 0..8_000 {
        drop(TcpStream::connect(line["address"].as_str().unwrap()).unwrap());
    }
    let mut node = join(folder.path(), "alpha", port(&line), &["--pace", "round"]);
    (0..10).for_each(|at| node.say(&object(at)));
    let (code, output, log) = node.end();
    assert_eq!((code, output.len()), (Some(0), 10), "{log}");
    assert_eq!(status(&line)["samples"], 10);
    server.signal("-TERM");
    let (code, _, log) = server.end();
    assert_eq!(code, Some(0));
    assert!(log.contains("turned away"), "{log}");
}
