//! Stores and node states of an earlier version: a server and its nodes go on from them, with the
//! same bits.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hedgerow_model::Model;
use hedgerow_net::agent::client;
use hedgerow_net::agent::config::Settings;
use hedgerow_net::agent::driver::{self, Parts};
use hedgerow_net::agent::input::Input;
use hedgerow_net::agent::output::Output;
use hedgerow_net::export::model_of_store;
use hedgerow_net::serve::{ServeSettings, Server};
use tempfile::TempDir;

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A copy of the files of a method.
fn copied(method: &str) -> (PathBuf, TempDir) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(method);
    let folder = TempDir::new().unwrap();
    for file in ["store.db", "a.state", "b.state", "c.state"] {
        std::fs::copy(fixture.join(file), folder.path().join(file)).unwrap();
    }
    (fixture, folder)
}

async fn serve(folder: &Path, method: &str) -> Server {
    let mut changes: Vec<String> = [
        "learning.columns=[\"u\", \"v\"]",
        "learning.budget=20",
        "learning.nodes=3",
        "learning.personal=false",
        "kernels.variances=[0.1, 1.0, 10.0]",
        "rounds.quorum=3",
        "rounds.least=3",
        "rounds.deadline=never",
        "listen.tls=false",
        "listen.address=127.0.0.1:0",
        "listen.dashboard=never",
    ]
    .map(str::to_owned)
    .to_vec();
    changes.push(format!("learning.method={method}"));
    changes.push(format!("store.path={:?}", folder.join("store.db")));
    Server::start(ServeSettings::read(&hedgerow_config::Layer::sets(&changes).unwrap()).unwrap())
        .await
        .unwrap()
}

/// A node that plays its samples and leaves; what it wrote.
async fn play(folder: &Path, name: &str, address: String, samples: String) -> String {
    let changes = [
        format!("server.address={address:?}"),
        format!("server.node={name}"),
        format!("state.path={:?}", folder.join(format!("{name}.state"))),
        "server.plain_text=true".to_owned(),
        "samples.pace=round".to_owned(),
    ];
    let settings = Settings::read(&hedgerow_config::Layer::sets(&changes).unwrap()).unwrap();
    let written = Written::default();
    let parts = Parts {
        dial: client::tcp(&settings.server.address, true),
        security: settings.security().unwrap(),
        input: Box::new(move |_| Input::reading(std::io::Cursor::new(samples))),
        output: Output::to(written.clone()),
        asked: None,
        methods: &[],
    };
    driver::run(settings, parts, std::future::pending()).await.unwrap();
    let written = written.0.lock().unwrap().clone();
    String::from_utf8(written).unwrap()
}

/// Lines of output without intervals, which the earlier version did not have.
fn lines(output: &str) -> Vec<serde_json::Value> {
    let read = |line: &str| {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        let fields = line.as_object_mut().unwrap();
        fields.retain(|name, _| name != "lower" && name != "upper");
        line
    };
    output.lines().map(read).collect()
}

#[tokio::test]
async fn a_server_and_its_nodes_go_on_with_the_same_bits() {
    for method in ["mk", "gr"] {
        let (fixture, folder) = copied(method);
        let server = serve(folder.path(), method).await;
        let round = server.source().status().round;
        assert!(round > 1, "the stored round");
        let nodes = NAMES.map(|name| {
            let samples = std::fs::read_to_string(fixture.join(format!("{name}.csv"))).unwrap();
            let (folder, address) = (folder.path().to_owned(), server.address().to_string());
            tokio::spawn(async move { play(&folder, name, address, samples).await })
        });
        for (name, node) in NAMES.into_iter().zip(nodes) {
            let expected = std::fs::read_to_string(fixture.join(format!("{name}.out"))).unwrap();
            assert_eq!(lines(&node.await.unwrap()), lines(&expected), "{method}, node {name}");
        }
        server.stop().await.unwrap();
        let (found, expected) = (
            model_of_store(&folder.path().join("store.db")).unwrap(),
            Model::read(&fixture.join("continued.safetensors")).unwrap(),
        );
        assert_eq!((found.run(), found.scale()), (expected.run(), expected.scale()));
        // The last two numbers of `gr` had another meaning.
        let counters = if method == "gr" { 2 } else { 0 };
        let numbers = |model: &Model| {
            let numbers = &model.broadcasts()[0].numbers;
            numbers[..numbers.len() - counters].to_vec()
        };
        assert_eq!(found.round(), expected.round(), "{method}");
        assert_eq!(numbers(&found), numbers(&expected), "{method}");
    }
}
