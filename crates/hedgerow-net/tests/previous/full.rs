//! Programs of the previous release with those of this version, over a run with certificates.
//! `cargo xtask previous` builds them and runs this.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Cursor};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hedgerow_config::Layer;
use hedgerow_net::agent::client;
use hedgerow_net::agent::config::Settings;
use hedgerow_net::agent::driver::{self, Parts};
use hedgerow_net::agent::input::Input;
use hedgerow_net::agent::output::Output;
use hedgerow_net::pki::Authority;
use hedgerow_net::serve::Server;
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use super::{NAMES, SETTINGS, samples, serve};
use crate::common::until;

/// The folder with `hedgerow-node` and `previous_server` of the previous release.
const PROGRAMS: &str = "HEDGEROW_PREVIOUS";

/// Rows of each node in each of the three parts of a run.
const ROWS: usize = 100;

/// Ended when it is dropped.
pub(super) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A server of the previous release.
pub(super) struct PreviousServer {
    pub(super) address: String,
    process: Running,
}

impl PreviousServer {
    /// Ends it with SIGTERM: it stores everything.
    fn stop(mut self) {
        let id = self.process.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.process.0.wait().unwrap().success());
    }
}

/// The programs of the previous release.
pub(super) struct Programs(PathBuf);

pub(super) fn previous_programs() -> Programs {
    let Some(folder) = std::env::var_os(PROGRAMS) else {
        panic!("{PROGRAMS} is not set: run this with `cargo xtask previous`")
    };
    Programs(folder.into())
}

impl Programs {
    pub(super) fn serve(&self, folder: &Path, changes: &[&str]) -> PreviousServer {
        let mut command = Command::new(self.0.join("examples/previous_server"));
        command.args(changes).arg(format!("store.path={:?}", folder.join("store.db")));
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let address = told["address"].as_str().unwrap().to_owned();
        PreviousServer { address, process: Running(process) }
    }

    /// A node that plays its samples and ends. What it writes goes to `NAME.out`.
    pub(super) fn join(
        &self,
        folder: &Path,
        name: &str,
        server: &str,
        samples: &str,
        flags: Vec<String>,
    ) -> Child {
        let (input, output) =
            (folder.join(format!("{name}.csv")), folder.join(format!("{name}.out")));
        fs::write(&input, samples).unwrap();
        Command::new(self.0.join("hedgerow-node"))
            .args(["--server", server, "--pace", "round", "--log", "warn", "--state"])
            .arg(folder.join(format!("{name}.state")))
            .args(flags)
            .stdin(File::open(input).unwrap())
            .stdout(File::create(output).unwrap())
            .spawn()
            .unwrap()
    }
}

/// Which release a program is of.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Release {
    Previous,
    This,
}
use Release::{Previous, This};

/// The server and the nodes of a part of a run.
type Part = (Release, [Release; 3]);

enum AnyServer {
    Previous(PreviousServer),
    This(Server),
}

/// A run that goes on with the same files when its programs change.
struct Run {
    folder: TempDir,
    changes: Vec<String>,
    rows: usize,
    /// What each node has predicted.
    predictions: [Vec<f64>; 3],
}

impl Run {
    fn new(changes: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let pki = folder.path().join("pki");
        let authority = Authority::init(&pki, &["127.0.0.1".to_owned()]).unwrap();
        for name in NAMES {
            authority.issue(name, 9).unwrap();
        }
        let own = ["listen.tls=true".to_owned(), format!("listen.identity={pki:?}")];
        let changes = changes.iter().map(|change| (*change).to_owned()).chain(own).collect();
        Self { folder, changes, rows: 0, predictions: Default::default() }
    }

    /// Plays the next rows with these programs.
    async fn play(mut self, server: Release, nodes: [Release; 3]) -> Self {
        let (folder, changes) = (self.folder.path(), &self.changes);
        let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
        let rows = self.rows..self.rows + ROWS;
        let server = match server {
            Previous => {
                let programs = previous_programs();
                AnyServer::Previous(programs.serve(folder, &[&SETTINGS, &changes[..]].concat()))
            }
            This => AnyServer::This(serve(folder, &changes).await),
        };
        let address = match &server {
            AnyServer::Previous(server) => server.address.clone(),
            AnyServer::This(server) => server.address().to_string(),
        };
        let mut outputs = Vec::new();
        for (number, (name, release)) in NAMES.into_iter().zip(nodes).enumerate() {
            let samples = samples(number, rows.clone());
            let identity = self.folder.path().join(format!("pki/nodes/{name}.pem"));
            let (folder, address) = (folder.to_owned(), address.clone());
            outputs.push(match release {
                Previous => spawn_blocking(move || {
                    let flags = vec!["--identity".to_owned(), identity.display().to_string()];
                    let programs = previous_programs();
                    let node = programs.join(&folder, name, &address, &samples, flags);
                    assert!(Running(node).0.wait().unwrap().success());
                    fs::read_to_string(folder.join(format!("{name}.out"))).unwrap()
                }),
                This => tokio::spawn(this_node(folder, name, address, identity, samples)),
            });
            // Numbers are given in the order of joining. A node that has joined has a state.
            let state = self.folder.path().join(format!("{name}.state"));
            until("the node has joined", async || state.exists()).await;
        }
        for (predictions, output) in self.predictions.iter_mut().zip(outputs) {
            let output = output.await.unwrap();
            let lines = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let before = predictions.len();
            predictions.extend(lines.map(|line| line["prediction"].as_f64().unwrap()));
            assert_eq!(predictions.len() - before, ROWS, "a prediction for each row");
        }
        self.rows += ROWS;
        match server {
            AnyServer::Previous(server) => server.stop(),
            AnyServer::This(server) => {
                assert_eq!(server.source().status().refused, 0);
                server.stop().await.unwrap();
            }
        }
        self
    }

    /// The mean squared error of all predictions.
    fn error(&self) -> f64 {
        let (mut sum, mut count) = (0.0, 0);
        for (number, predictions) in self.predictions.iter().enumerate() {
            let rows = samples(number, 0..self.rows);
            for (row, prediction) in rows.lines().skip(1).zip(predictions) {
                let label: f64 = row.rsplit(',').next().unwrap().parse().unwrap();
                (sum, count) = (sum + (prediction - label).powi(2), count + 1);
            }
        }
        sum / f64::from(count)
    }
}

async fn this_node(
    folder: PathBuf,
    name: &str,
    address: String,
    identity: PathBuf,
    samples: String,
) -> String {
    let changes = [
        format!("server.address={address:?}"),
        format!("server.identity={identity:?}"),
        format!("state.path={:?}", folder.join(format!("{name}.state"))),
        "samples.pace=round".to_owned(),
    ];
    let settings = Settings::read(&Layer::sets(&changes).unwrap()).unwrap();
    let file = folder.join(format!("{name}.out"));
    let parts = Parts {
        dial: client::tcp(&settings.server.address, false),
        security: settings.security().unwrap(),
        input: Box::new(move |_| Input::reading(Cursor::new(samples))),
        output: Output::to(File::create(&file).unwrap()),
        asked: None,
        methods: &[],
    };
    driver::run(settings, parts, std::future::pending()).await.unwrap();
    fs::read_to_string(folder.join(format!("{name}.out"))).unwrap()
}

/// Every pair of releases, and an upgrade as `docs/operations.md` describes it: first the server,
/// then the nodes, with the same store and states.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of the previous release"]
async fn both_releases_work_together_over_a_run() {
    let old = [Previous; 3];
    let new = [This; 3];
    let courses: [(&str, [Part; 3]); 6] = [
        ("this server, these nodes", [(This, new); 3]),
        ("previous server, previous nodes", [(Previous, old); 3]),
        ("this server, previous nodes", [(This, old); 3]),
        ("previous server, these nodes", [(Previous, new); 3]),
        ("this server, nodes of both", [(This, [Previous, This, Previous]); 3]),
        ("upgrade: server, then nodes", [(Previous, old), (This, old), (This, new)]),
    ];
    for (method, scaling) in [("mk", "none"), ("emk", "none"), ("mk", "online")] {
        let changes = [format!("learning.method={method}"), format!("learning.scaling={scaling}")];
        let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
        let mut first: Option<Run> = None;
        for (name, parts) in &courses {
            let mut run = Run::new(&changes);
            for (server, nodes) in parts {
                run = run.play(*server, *nodes).await;
            }
            let error = run.error();
            let reference = first.as_ref().map_or(error, Run::error);
            let is_same = first.as_ref().is_none_or(|first| first.predictions == run.predictions);
            println!(
                "{method}, scaling {scaling}, {name}: error {error:.6}, {:.4} times the first, {}",
                error / reference,
                if is_same { "same bits" } else { "other bits" },
            );
            assert!(error.is_finite() && error < 1.1 * reference, "{method}, {scaling}, {name}");
            // Scales may be made in another way; the rest has the same bits.
            assert!(is_same || scaling == "online", "{method}, {scaling}, {name}");
            first.get_or_insert(run);
        }
    }
}
