//! A bad day of a fleet in a minute: wrong units, lies, silence, a revoked node, a certificate that
//! ends, a server that is killed, a full disk. The error of the good nodes stays what it is on a
//! quiet day, and everything is in the log of events, in the metrics and in the audit log.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hedgerow_net::pki::identity::Role;
use hedgerow_net::pki::{Authority, Issuing};
use serde_json::Value;
use tempfile::TempDir;
use time::OffsetDateTime;

const GOOD: usize = 16;
/// Samples of each node in each part of the day.
const PART: usize = 60;
const PARTS: usize = 7;
const PATIENCE: Duration = Duration::from_secs(600);

/// Other nodes.
const WRONG_UNIT: &str = "wrong-unit";
const LIAR: &str = "liar";
const SILENT: &str = "silent";
const REVOKED: &str = "revoked";
const ENDING: &str = "ending";

/// The processes of a fleet. They are killed when it is dropped.
struct Day {
    folder: TempDir,
    authority: Authority,
    ports: [u16; 2],
    processes: BTreeMap<String, Child>,
    /// Samples that each node was given.
    given: BTreeMap<String, usize>,
    bad: bool,
}

impl Day {
    fn begin(bad: bool) -> Self {
        let folder = TempDir::new().unwrap();
        let pki = folder.path().join("pki");
        let authority = Authority::init(&pki, &[]).unwrap();
        let ports = [(); 2]
            .map(|()| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port());
        let text = format!(
            "[learning]\nmethod = \"gr\"\ninputs = 2\nnodes = 20\nbudget = 100\n\
             aggregation = \"screened\"\n\n\
             [rounds]\nquorum = \"all\"\ndeadline = \"300ms\"\nsilent_after = 2\n\n\
             [listen]\naddress = \"127.0.0.1:{}\"\ndashboard = \"127.0.0.1:{}\"\n\
             identity = {pki:?}\n\n\
             [store]\npath = {:?}\n",
            ports[0],
            ports[1],
            folder.path().join("server.db"),
        );
        fs::write(folder.path().join("serve.toml"), text).unwrap();
        let (processes, given) = (BTreeMap::new(), BTreeMap::new());
        let mut day = Self { folder, authority, ports, processes, given, bad };
        day.start_server();
        day
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn spawn(&mut self, name: &str, arguments: &[&str]) {
        let file = |ending: &str| {
            File::options().create(true).append(true).open(self.path(&format!("{name}.{ending}")))
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_hedgerow"));
        command.current_dir(self.folder.path()).args(arguments).stdin(Stdio::null());
        command.stdout(file("out").unwrap()).stderr(file("log").unwrap());
        self.processes.insert(name.to_owned(), command.spawn().unwrap());
    }

    fn start_server(&mut self) {
        self.spawn("server", &["serve", "serve.toml"]);
        self.wait_until("a server", |day| day.run_admin(&["status"]).is_some());
    }

    fn kill_server(&mut self) {
        let mut server = self.processes.remove("server").unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    fn signal(&self, name: &str, signal: &str) {
        let process = self.processes[name].id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }

    /// No file of the server may grow beyond this.
    fn set_disk(&self, most: &str) {
        let server = self.processes["server"].id().to_string();
        let limit = format!("--fsize={most}:unlimited");
        let done = Command::new("prlimit").args(["--pid", &server, &limit]).status().unwrap();
        assert!(done.success());
    }

    /// A node that follows a file of samples.
    fn join(&mut self, name: &str) {
        if !self.path("pki/nodes").join(format!("{name}.pem")).exists() {
            let names = [name.to_owned()];
            self.authority.issue_all(&names, 30, Issuing::First(Role::Node)).unwrap();
        }
        let log = self.path(&format!("{name}.jsonl"));
        File::options().create(true).append(true).open(&log).unwrap();
        let text = format!(
            "[server]\naddress = \"localhost:{}\"\nidentity = \"pki/nodes/{name}.pem\"\n\
             retry_least = \"20ms\"\nretry_most = \"200ms\"\nretry_refused = \"200ms\"\n\n\
             [samples]\nsource = \"follow\"\npath = {log:?}\nformat = \"json\"\npace = \"round\"\n\
             patience = \"1h\"\n\n\
             [state]\npath = \"{name}.state\"\nsave_every = \"50ms\"\n",
            self.ports[0],
        );
        fs::write(self.path(&format!("{name}.toml")), text).unwrap();
        self.spawn(name, &["join", &format!("{name}.toml")]);
        self.given.entry(name.to_owned()).or_default();
    }

    /// Gives a node so many more samples.
    fn give(&mut self, name: &str, count: usize) {
        let given = self.given.get_mut(name).unwrap();
        let lines: String = (*given..*given + count).map(|at| sample(name, at, self.bad)).collect();
        *given += count;
        let log = self.path(&format!("{name}.jsonl"));
        File::options().append(true).open(log).unwrap().write_all(lines.as_bytes()).unwrap();
    }

    /// A part of the day: all good nodes learn some samples.
    fn pass(&mut self) {
        for node in good() {
            self.give(&node, PART);
        }
        for node in good() {
            let given = self.given[&node];
            self.wait_until(&node, |day| day.answers(&node).len() >= given);
        }
    }

    /// The answers of a node so far.
    fn answers(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(&format!("{name}.out"))).unwrap();
        // The last line may not be complete.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            let log = || fs::read_to_string(self.path("server.log")).unwrap();
            assert!(begun.elapsed() < PATIENCE, "never: {what}\n{}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What an operator's command prints, if it succeeds.
    fn run_admin(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hedgerow"));
        command.current_dir(self.folder.path()).args(["admin", "--json", "--store", "server.db"]);
        let done = command.args(arguments).output().unwrap();
        done.status.success().then(|| String::from_utf8(done.stdout).unwrap())
    }

    fn admin(&self, arguments: &[&str]) -> Value {
        let printed = self.run_admin(arguments).unwrap_or_else(|| panic!("{arguments:?}"));
        serde_json::from_str(&printed).unwrap()
    }

    /// How often something happened in the life of this server.
    fn events(&self, kind: &str) -> u64 {
        self.metric(&format!("hedgerow_events_total{{kind=\"{kind}\"}}"))
    }

    fn metric(&self, series: &str) -> u64 {
        let mut socket = TcpStream::connect(("127.0.0.1", self.ports[1])).unwrap();
        socket
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut page = String::new();
        socket.read_to_string(&mut page).unwrap();
        let value = page.lines().find_map(|line| line.strip_prefix(series)).unwrap();
        value.trim().parse().unwrap()
    }

    fn wait_for_event(&self, kind: &str) {
        self.wait_until(kind, |day| day.events(kind) > 0);
    }

    fn state(&self, node: &str) -> String {
        let listed = self.admin(&["nodes", "--name", node]);
        listed["nodes"][0]["state"].as_str().unwrap().to_owned()
    }

    /// What was done, and to whom.
    fn audit(&self) -> Vec<(String, String)> {
        let text = self.run_admin(&["audit", "--from", "1", "--most", "1000"]).unwrap();
        let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let of = |entry: &Value, key: &str| entry[key].as_str().unwrap().to_owned();
        entries.map(|entry| (of(&entry, "action"), of(&entry, "subject"))).collect()
    }

    /// The mean squared error of the good nodes in each part of the day.
    fn errors(&self) -> Vec<f64> {
        let mut parts = [0.0; PARTS];
        for node in good() {
            let answers = self.answers(&node);
            for (part, answers) in answers.rchunks(PART).take(PARTS).enumerate() {
                for answer in answers {
                    let of = |key: &str| answer[key].as_f64().unwrap_or(0.0);
                    parts[PARTS - 1 - part] += (of("prediction") - of("label")).powi(2);
                }
            }
        }
        parts.iter().map(|sum| sum / (GOOD * PART) as f64).collect()
    }
}

impl Drop for Day {
    fn drop(&mut self) {
        for process in self.processes.values_mut() {
            _ = process.kill();
            _ = process.wait();
        }
    }
}

fn good() -> impl Iterator<Item = String> {
    (0..GOOD).map(|node| format!("good-{node}"))
}

/// A sample of the same function at every node; bad ones have it in another unit, or its negative.
fn sample(name: &str, at: usize, bad: bool) -> String {
    let seed = name.bytes().map(usize::from).sum::<usize>();
    let phase = (seed * 31 + at * 17) as f64;
    let (u, v) = (phase.sin(), (1.7 * phase).cos());
    let noise = 0.1 * (1e4 * (phase * 12.9898).sin()).sin();
    let y = 3.0 + (2.0 * u).sin() * v + noise;
    let y = match name {
        WRONG_UNIT if bad => 1e9 * y,
        LIAR if bad => 6.0 - 2.0 * y,
        _ => y,
    };
    format!("{}\n", serde_json::json!({ "x": [u, v], "y": y }))
}

/// A fleet whose nodes have all joined, and have learned from the first part of the day.
fn morning(bad: bool) -> Day {
    let mut day = Day::begin(bad);
    // One joins first, alone with its unit.
    day.join(WRONG_UNIT);
    day.give(WRONG_UNIT, 3 * PART);
    day.wait_until("a first node", |day| day.admin(&["status"])["connected"] == 1);
    for node in good().chain([LIAR, SILENT, REVOKED].map(str::to_owned)) {
        day.join(&node);
    }
    // A certificate ends soon: its node renews it.
    let a_day_ago = OffsetDateTime::now_utc() - time::Duration::hours(23);
    Authority::at(&day.path("pki")).at_time(a_day_ago).issue(ENDING, 1).unwrap();
    day.join(ENDING);
    for (node, parts) in [(LIAR, 3), (SILENT, 9), (REVOKED, 2), (ENDING, 9)] {
        day.give(node, parts * PART);
    }
    day.pass();
    day
}

#[test]
fn a_bad_day_ends_like_a_quiet_one() {
    let mut day = morning(true);
    day.wait_for_event("scale-changed");
    day.wait_until("a renewal", |day| {
        day.metric("hedgerow_signings_total{outcome=\"renewed\"}") > 0
    });

    // One is there and says nothing; one is revoked.
    day.signal(SILENT, "-STOP");
    day.pass();
    day.wait_for_event("node-silent");
    day.authority.revoke(REVOKED).unwrap();
    day.wait_for_event("node-revoked");
    assert_eq!(day.state(REVOKED), "revoked");
    day.admin(&["ban", WRONG_UNIT, "--reason", "reports in another unit"]);
    day.kill_server();
    day.start_server();
    assert_eq!([day.state(WRONG_UNIT), day.state(REVOKED)], ["banned", "revoked"]);
    day.pass();
    // Its uploads differ from those of the others.
    day.wait_until("the liar to be left out", |day| day.state(LIAR) == "suspect");
    day.admin(&["ban", LIAR, "--reason", "its labels are wrong"]);
    assert_eq!([day.events("node-banned"), day.events("node-cleared")], [1, 0]);
    day.signal(SILENT, "-CONT");
    day.pass();
    day.wait_until("it speaks again", |day| day.state(SILENT) == "connected");

    // The disk is full for a while.
    day.set_disk("4096");
    for node in good() {
        day.give(&node, 1);
    }
    day.wait_for_event("store-failed");
    day.set_disk("unlimited");
    day.wait_for_event("store-recovered");
    day.pass();
    day.kill_server();
    day.start_server();
    day.pass();
    day.pass();
    assert_eq!(day.state(ENDING), "connected");

    let done: Vec<(String, String)> = day.audit();
    let has = |action: &str, subject: &str| {
        done.iter().any(|(is, of)| (is.as_str(), of.as_str()) == (action, subject))
    };
    assert!(has("ban", WRONG_UNIT) && has("ban", LIAR) && has("expel", REVOKED), "{done:?}");
    assert!(good().all(|node| has("join", &node)), "{done:?}");
    let mut quiet = morning(false);
    (1..PARTS).for_each(|_| quiet.pass());
    let (found, expected) = (day.errors(), quiet.errors());
    eprintln!("MSE {found:?}, on a quiet day {expected:?}");
    assert!(found[PARTS - 1] <= 1.1 * expected[PARTS - 1]);
}
