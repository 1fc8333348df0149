//! Memory of a node that learns from a stream over TLS.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hedgerow_config::Layer;
use hedgerow_net::pki::Authority;
use hedgerow_net::serve::config::ServeSettings;
use hedgerow_net::serve::server::Server;
use serde_json::Value;

const SAMPLES: usize = 3000;

/// Peak resident memory in bytes.
const MAX_RESIDENT: u64 = 20_000_000;

/// A process that ends with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

async fn server(folder: &Path, method: &str) -> Server {
    let mut changes: Vec<String> = [
        "learning.inputs=5",
        "learning.nodes=1",
        "learning.scaling=online",
        "listen.address=127.0.0.1:0",
        "listen.dashboard=never",
    ]
    .map(String::from)
    .to_vec();
    changes.push(format!("learning.method={method}"));
    changes.push(format!("listen.identity={:?}", folder.join("pki")));
    changes.push(format!("store.path={:?}", folder.join("server.db")));
    Server::start(ServeSettings::read(&Layer::sets(&changes).unwrap()).unwrap()).await.unwrap()
}

fn sample(at: usize) -> String {
    let x: [f64; 5] = std::array::from_fn(|input| ((at * (input + 3)) as f64 * 0.37).sin());
    format!("{{\"x\": {x:?}, \"y\": {}}}\n", 20.0 + 5.0 * x[0] * x[1] - x[2])
}

/// Sends samples to a node. Returns its peak memory after it has answered all of them.
fn learn(folder: &Path, server: SocketAddr) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hedgerow-node"));
    command.current_dir(folder).args(["--server", &format!("localhost:{}", server.port())]);
    command.args(["--identity", "pki/nodes/n1.pem", "--log", "error"]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut node = Running(child);
    let (mut input, output) = (node.0.stdin.take().unwrap(), node.0.stdout.take().unwrap());
    let feeder = std::thread::spawn(move || {
        (0..SAMPLES).for_each(|at| input.write_all(sample(at).as_bytes()).unwrap());
        input
    });
    let last = BufReader::new(output).lines().map(Result::unwrap).take(SAMPLES).last().unwrap();
    let last: Value = serde_json::from_str(&last).unwrap();
    // It has joined, agreed on a scale and heard of rounds.
    assert_eq!(last["known"].as_bool(), Some(true), "{last}");
    assert!(last["round"].as_u64().unwrap() > 1, "{last}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.0.id())).unwrap();
    drop(feeder.join().unwrap());
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kibibytes: u64 = line.trim().strip_suffix("kB").unwrap().trim().parse().unwrap();
    kibibytes * 1024
}

#[test]
fn a_node_that_learns_stays_small() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for method in ["gr", "mk"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let authority = Authority::init(&path.join("pki"), &[]).unwrap();
        authority.issue("n1", 10).unwrap();
        let taken = runtime.block_on(async {
            let server = server(&path, method).await;
            let address = server.address();
            let taken = tokio::task::spawn_blocking(move || learn(&path, address)).await.unwrap();
            server.stop().await.unwrap();
            taken
        });
        assert!((1_000_000..MAX_RESIDENT).contains(&taken), "{method}: {taken} bytes");
    }
}
