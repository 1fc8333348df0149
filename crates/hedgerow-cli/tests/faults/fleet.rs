//! [`Fleet`]: a server and nodes as processes that can be killed, and the same run without faults
//! in one process.

use std::fs::{self, File};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hedgerow::Federation;
use hedgerow::features::Features;
use hedgerow::federation::{Contact, NodeRound};
use hedgerow::message::Broadcast;
use hedgerow::metrics::ErrorMeter;
use hedgerow_config::Layer;
use hedgerow_net::export::model_of_store;
use hedgerow_net::pki::identity::Role;
use hedgerow_net::pki::{Authority, Issuing};
use hedgerow_net::serve::config::ServeSettings;
use hedgerow_net::storage::View;

pub(crate) const NODES: usize = 5;
pub(crate) const ROUNDS: usize = 400;

const INPUTS: usize = 2;

/// The identity of the last sample, which a node's output repeats.
const LAST: &str = "last";

/// Longer than anything takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// When rounds close.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Closing {
    Everybody,
    WhoeverIsThere,
}

/// What is learned, and how it travels.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) method: &'static str,
    pub(crate) scaling: &'static str,
    pub(crate) compression: &'static str,
}

impl Kind {
    /// Numbers as they are.
    pub(crate) fn plain(method: &'static str) -> Self {
        Self { method, scaling: "none", compression: "none" }
    }
}

pub(crate) struct Fleet {
    folder: tempfile::TempDir,
    kind: Kind,
    closing: Closing,
    address: SocketAddr,
    server: Option<Child>,
    nodes: Vec<Option<Child>>,
    /// Samples that every node has been given.
    fed: usize,
}

impl Fleet {
    pub(crate) fn new(kind: Kind, closing: Closing) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let authority = Authority::init(&path("pki"), &[]).unwrap();
        authority
            .issue_all(&(0..NODES).map(name).collect::<Vec<_>>(), 30, Issuing::First(Role::Node))
            .unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let rounds = match closing {
            Closing::Everybody => format!("quorum = {NODES}\ndeadline = \"never\""),
            Closing::WhoeverIsThere => "quorum = \"all\"\ndeadline = \"300ms\"".to_owned(),
        };
        let Kind { method, scaling, compression } = kind;
        let text = format!(
            "[learning]\nmethod = {method:?}\ninputs = {INPUTS}\nnodes = {NODES}\nscaling = {scaling:?}\ncompression = {compression:?}\n\n\
             [rounds]\n{rounds}\n\n\
             [listen]\naddress = \"{address}\"\ndashboard = \"never\"\nidentity = {:?}\n\n[store]\npath = {:?}\n",
            path("pki"),
            path("server.db"),
        );
        fs::write(path("serve.toml"), text).unwrap();
        let nodes = (0..NODES).map(|_| None).collect();
        (0..NODES).for_each(|node| fs::write(path(&format!("{}.jsonl", name(node))), "").unwrap());
        Self { kind, closing, address, server: None, nodes, folder, fed: 0 }
    }

    /// Gives every node its samples up to this many. Each sample takes a round, so that a run gets
    /// no further than this, however fast the machine is.
    pub(crate) fn feed(&mut self, until: usize) {
        for node in 0..NODES {
            let lines: String = (self.fed..until)
                .map(|round| {
                    let (x, y) = sample(node, round);
                    let id = if round + 1 == ROUNDS { LAST } else { "earlier" };
                    format!("{}\n", serde_json::json!({ "id": id, "x": x, "y": y }))
                })
                .collect();
            let path = self.path(&format!("{}.jsonl", name(node)));
            let mut file = File::options().append(true).open(path).unwrap();
            file.write_all(lines.as_bytes()).unwrap();
        }
        self.fed = until;
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn start_server(&mut self) {
        self.server = Some(self.spawn("server", &["serve".into(), self.path("serve.toml")], &[]));
    }

    pub(crate) fn start_server_with_clock(&mut self, library: &Path, clock: &str) {
        self.set_clock(clock);
        let variables = [
            ("LD_PRELOAD", library.to_path_buf()),
            ("FAKETIME_TIMESTAMP_FILE", self.path("clock")),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ];
        self.server =
            Some(self.spawn("server", &["serve".into(), self.path("serve.toml")], &variables));
    }

    /// No file of the server may grow beyond this from now on.
    pub(crate) fn set_disk(&self, most: &str) {
        let server = self.server.as_ref().unwrap().id().to_string();
        // The soft limit alone, so that it can be raised again.
        let limit = format!("--fsize={most}:unlimited");
        assert!(
            Command::new("prlimit").args(["--pid", &server, &limit]).status().unwrap().success()
        );
    }

    pub(crate) fn set_clock(&self, clock: &str) {
        fs::write(self.path("clock"), clock).unwrap();
    }

    pub(crate) fn kill_server(&mut self) {
        kill(&mut self.server);
    }

    pub(crate) fn start_nodes(&mut self, to: SocketAddr) {
        (0..NODES).for_each(|node| self.start_node(node, to));
    }

    pub(crate) fn start_node(&mut self, node: usize, to: SocketAddr) {
        let name = name(node);
        let identity = self.path("pki").join("nodes").join(format!("{name}.pem"));
        let text = format!(
            "[server]\naddress = \"localhost:{}\"\nidentity = {identity:?}\nretry_least = \"20ms\"\nretry_most = \"200ms\"\n\
             retry_refused = \"200ms\"\nconnect_timeout = \"10s\"\nkeep_alive = \"5s\"\n\n\
             [samples]\nsource = \"follow\"\npath = {:?}\nformat = \"json\"\npace = \"round\"\npatience = \"1h\"\n\n\
             [state]\npath = {:?}\nsave_every = \"50ms\"\n",
            to.port(),
            self.path(&format!("{name}.jsonl")),
            self.path(&format!("{name}.state")),
        );
        let file = self.path(&format!("{name}.toml"));
        fs::write(&file, text).unwrap();
        self.nodes[node] = Some(self.spawn(&name, &["join".into(), file], &[]));
    }

    pub(crate) fn kill_node(&mut self, node: usize) {
        kill(&mut self.nodes[node]);
    }

    /// The round that is open according to the store.
    pub(crate) fn committed_round(&self) -> u64 {
        // Nothing may have been committed yet.
        let read = View::open(&self.path("server.db")).and_then(|store| store.load());
        read.ok().flatten().map_or(1, |saved| saved.round)
    }

    pub(crate) fn wait_for_round(&self, round: u64) {
        self.wait_until(&format!("round {round}"), || self.committed_round() >= round);
    }

    /// Waits until the server has logged this so often.
    pub(crate) fn wait_for_log(&self, part: &str, times: usize) {
        let path = self.path("server.log");
        let log = || fs::read_to_string(&path).unwrap_or_default();
        self.wait_until(&format!("{part:?} in the log"), || log().matches(part).count() >= times);
    }

    /// Gives nodes the rest of their samples, and waits until each has learned all of them.
    pub(crate) fn finish(&mut self) {
        self.feed(ROUNDS);
        for node in 0..NODES {
            let path = self.path(&format!("{}.out", name(node)));
            let output = || fs::read_to_string(&path).unwrap_or_default();
            let last = format!("{LAST:?}");
            self.wait_until(&format!("the end of node {node}"), || output().contains(&last));
        }
        if self.closing == Closing::Everybody && self.kind.scaling == "none" {
            self.wait_for_round(ROUNDS as u64 + 1);
        }
    }

    fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let since = Instant::now();
        while !is_so() {
            let round = self.committed_round();
            assert!(
                since.elapsed() < PATIENCE,
                "no {what} after {PATIENCE:?}, round {round}:\n{}",
                self.logs()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The latest broadcast of the server.
    pub(crate) fn model(&self) -> Broadcast {
        model_of_store(&self.path("server.db")).unwrap().broadcasts()[0].clone()
    }

    /// The latest broadcast of a federation without faults.
    pub(crate) fn undisturbed(&self) -> Broadcast {
        self.in_one_process().0.server().broadcast(0).clone()
    }

    pub(crate) fn undisturbed_mse(&self) -> f64 {
        self.in_one_process().1
    }

    /// Mean squared error as reported by the nodes.
    pub(crate) fn mse(&self) -> f64 {
        let history = View::open(&self.path("server.db")).unwrap().history(usize::MAX).unwrap();
        let (sum, count) = history.iter().fold((0.0, 0), |(sum, count), record| {
            (sum + record.squared_error, count + record.samples)
        });
        sum / count as f64
    }

    /// Whether a round closed long before the one before it, by the server's clock.
    pub(crate) fn has_gone_back_in_time(&self) -> bool {
        const DAY: u64 = 86_400_000;
        let history = View::open(&self.path("server.db")).unwrap().history(usize::MAX).unwrap();
        history.windows(2).any(|pair| pair[1].closed_at_ms + DAY < pair[0].closed_at_ms)
    }

    /// No process panicked.
    pub(crate) fn assert_calm_logs(&self) {
        for name in self.names() {
            let log = fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
            let bad = log
                .lines()
                .find(|line| line.contains("panicked") || line.contains("can't be trusted"));
            assert_eq!(bad, None, "{name}\n{}", self.logs());
        }
    }

    fn in_one_process(&self) -> (Federation, f64) {
        let file = Layer::file(&self.path("serve.toml")).unwrap();
        let plan = ServeSettings::read(&[file]).unwrap().plan;
        // Numbers were given as nodes came.
        let known = View::open(&self.path("server.db")).unwrap().nodes().unwrap();
        let number =
            |node: usize| known.iter().find(|record| record.name == name(node)).unwrap().number;
        let mut federation = Federation::new(&plan);
        let (mut z, mut meter) = (vec![vec![0.0; plan.map().width()]; NODES], ErrorMeter::new(1));
        for round in 0..ROUNDS {
            let labels: Vec<f32> = (0..NODES).map(|node| sample(node, round).1).collect();
            z.iter_mut().enumerate().for_each(|(node, z)| {
                plan.map().map_batch(&sample(node, round).0, z);
            });
            let visit = |node: usize| NodeRound {
                node: number(node),
                z: Features::checked(&z[node]).unwrap(),
                y: std::slice::from_ref(&labels[node]),
                contact: Contact::Full,
            };
            let visits: Vec<NodeRound<'_>> = (0..NODES).map(visit).collect();
            federation.round(&visits, |seen| meter.record(seen.value, seen.label)).unwrap();
            meter.close_round();
        }
        (federation, meter.mse())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn logs(&self) -> String {
        let read = |name: String| {
            let log = fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
            // The last of each will do to look at.
            let last: Vec<&str> = log.lines().rev().take(20).collect();
            format!(
                "--- {} {name}\n{}\n",
                self.kind.method,
                last.into_iter().rev().collect::<Vec<_>>().join("\n")
            )
        };
        self.names().map(read).collect()
    }

    fn names(&self) -> impl Iterator<Item = String> + use<> {
        ["server".to_owned()].into_iter().chain((0..NODES).map(name))
    }

    fn spawn(&self, name: &str, arguments: &[PathBuf], variables: &[(&str, PathBuf)]) -> Child {
        let file = |ending: &str| {
            let path = self.path(&format!("{name}.{ending}"));
            File::options().create(true).append(true).open(path).unwrap()
        };
        Command::new(env!("CARGO_BIN_EXE_hedgerow"))
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("log"))
            .spawn()
            .unwrap()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        kill(&mut self.server);
        self.nodes.iter_mut().for_each(kill);
    }
}

fn kill(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

fn name(node: usize) -> String {
    format!("node-{node}")
}

/// The sample of a node in a round.
fn sample(node: usize, round: usize) -> ([f32; INPUTS], f32) {
    let unit = |step: usize| ((round * step + 37 * node) % 101) as f32 / 100.0;
    let x = [unit(17), unit(29)];
    (x, 0.5 + 0.3 * (4.0 * x[0]).sin() * x[1] + 0.01 * node as f32)
}

/// The library that moves a process's clock, of Debian's package `faketime`.
pub(crate) fn faketime() -> Option<PathBuf> {
    let file = format!("/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1", std::env::consts::ARCH);
    Some(PathBuf::from(file)).filter(|path| path.exists())
}
