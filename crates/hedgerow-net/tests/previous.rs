//! The previous release, 0.1.0: its nodes and this server, this node and its server.
//!
//! What its programs said to each other was recorded (`fixtures/previous`), and is said again to
//! this version: to a server, which has to broadcast the same numbers, and to nodes, which have to
//! upload the same numbers. `cargo xtask previous` builds the release, runs its programs with those
//! of this version over a whole run with certificates, and records again (`--write`).

#![allow(clippy::unwrap_used)]

mod full;
mod recorder;

use std::collections::BTreeSet;
use std::io::Cursor;
use std::ops::Range;
use std::path::{Path, PathBuf};

use hedgerow_config::Layer;
use hedgerow_net::agent::input::Input;
use hedgerow_net::serve::{ServeSettings, Server};
use hedgerow_net::transport::protocol::wire::federation_client::FederationClient;
use hedgerow_net::transport::protocol::wire::{self, from_node, from_server};
use prost::Message;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::transport::Endpoint;

use crate::common::PATIENCE;
use crate::test_server::TestServer;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Samples of each node.
const SAMPLES: usize = 30;

/// What was recorded: a name, and the settings that differ.
const RECORDED: [(&str, &[&str]); 3] = [
    ("mk", &["learning.method=mk"]),
    ("mk-q8", &["learning.method=mk", "learning.compression=q8"]),
    ("emk", &["learning.method=emk"]),
];

/// Settings that both releases know.
const SETTINGS: [&str; 12] = [
    "learning.columns=[\"u\", \"v\"]",
    "learning.budget=20",
    "learning.nodes=3",
    "learning.personal=false",
    "learning.scaling=none",
    "kernels.variances=[0.1, 1.0, 10.0]",
    "rounds.quorum=3",
    "rounds.least=3",
    "rounds.deadline=never",
    "listen.tls=false",
    "listen.address=127.0.0.1:0",
    "listen.dashboard=never",
];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/previous/{name}.messages"))
}

/// The samples of a node, as CSV.
fn samples(node: usize, rows: Range<usize>) -> String {
    let row = |time: usize| {
        let mix = (node * 7919 + time + 1).wrapping_mul(2_654_435_761) % 1_000_003;
        let (u, v) = ((mix % 1000) as f64 / 1e3, (mix / 1000 % 1000) as f64 / 1e3);
        format!("{u},{v},{}\n", 0.5 + 0.4 * (u - 0.5) * (v + 0.2) - 0.3 * v * v)
    };
    std::iter::once("u,v,y\n".to_owned()).chain(rows.map(row)).collect()
}

async fn serve(folder: &Path, changes: &[&str]) -> Server {
    let mut all: Vec<String> =
        SETTINGS.iter().chain(changes).map(|change| (*change).to_owned()).collect();
    all.push(format!("store.path={:?}", folder.join("store.db")));
    let settings = ServeSettings::read(&Layer::sets(&all).unwrap()).unwrap();
    Server::start(settings).await.unwrap()
}

/// A message that was recorded.
#[derive(Debug, Clone, PartialEq)]
enum Said {
    ByNode(wire::FromNode),
    ByServer(wire::FromServer),
}

/// What each node and its server said, in order.
fn recorded(name: &str) -> [Vec<Said>; 3] {
    parsed(&std::fs::read(fixture(name)).unwrap())
}

/// Each message has the node's number, a byte for who said it, its length, and its bytes.
fn parsed(bytes: &[u8]) -> [Vec<Said>; 3] {
    let (mut rest, mut all) = (bytes, [vec![], vec![], vec![]]);
    while let [node, direction, a, b, c, d, after @ ..] = rest {
        let (message, after) = after.split_at(u32::from_le_bytes([*a, *b, *c, *d]) as usize);
        all[*node as usize].push(match direction {
            0 => Said::ByNode(wire::FromNode::decode(message).unwrap()),
            _ => Said::ByServer(wire::FromServer::decode(message).unwrap()),
        });
        rest = after;
    }
    assert!(rest.is_empty());
    all
}

/// A node of the previous release, as it was recorded.
struct Replay {
    said: std::vec::IntoIter<Said>,
    to: mpsc::Sender<wire::FromNode>,
    from: tonic::Streaming<wire::FromServer>,
}

impl Replay {
    /// Says hello and compares the welcome.
    async fn join(server: &Server, said: Vec<Said>) -> Self {
        let (to, from) = open(server).await;
        let mut replay = Self { said: said.into_iter(), to, from };
        let (Some(Said::ByNode(hello)), Some(Said::ByServer(expected))) =
            (replay.said.next(), replay.said.next())
        else {
            panic!("it begins with a hello and a welcome")
        };
        replay.to.send(hello).await.unwrap();
        let welcome = |message: wire::FromServer| match message.message {
            Some(from_server::Message::Welcome(welcome)) => welcome,
            other => panic!("{other:?} instead of a welcome"),
        };
        let (found, expected) = (welcome(replay.hear().await), welcome(expected));
        assert_eq!((found.protocol, found.node), (expected.protocol, expected.node));
        // No key that 0.1.0 doesn't know.
        assert_eq!(keys(&found.learning), keys(&expected.learning));
        replay
    }

    async fn hear(&mut self) -> wire::FromServer {
        timeout(PATIENCE, self.from.message()).await.unwrap().unwrap().unwrap()
    }

    /// Says the rest and compares what the server says. Returns the number of its messages.
    async fn play(mut self) -> usize {
        let mut heard = 0;
        while let Some(said) = self.said.next() {
            match said {
                Said::ByNode(message) => self.to.send(message).await.unwrap(),
                Said::ByServer(expected) => {
                    assert_eq!(self.hear().await, expected);
                    heard += 1;
                }
            }
        }
        heard
    }
}

/// All keys of a plan, with those within: `setup.ridge`.
fn keys(plan: &str) -> BTreeSet<String> {
    fn walk(value: &serde_json::Value, path: &str, keys: &mut BTreeSet<String>) {
        for (key, value) in value.as_object().into_iter().flatten() {
            let path = format!("{path}.{key}");
            walk(value, &path, keys);
            keys.insert(path);
        }
    }
    let mut all = BTreeSet::new();
    walk(&serde_json::from_str(plan).unwrap(), "", &mut all);
    all
}

/// A stream to a server.
async fn open(
    server: &Server,
) -> (mpsc::Sender<wire::FromNode>, tonic::Streaming<wire::FromServer>) {
    let (to, mut said) = mpsc::channel(16);
    let said = futures_util::stream::poll_fn(move |context| said.poll_recv(context));
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address())).unwrap();
    let mut client = FederationClient::new(endpoint.connect().await.unwrap());
    let from = client.join(said).await.unwrap().into_inner();
    (to, from)
}

#[tokio::test]
async fn nodes_of_the_previous_release_hear_the_same_from_this_server() {
    for (name, changes) in RECORDED {
        let folder = TempDir::new().unwrap();
        let server = serve(folder.path(), changes).await;
        let [a, b, c] = recorded(name);
        let a = Replay::join(&server, a).await;
        let b = Replay::join(&server, b).await;
        let c = Replay::join(&server, c).await;
        let (a, b, c) = tokio::join!(a.play(), b.play(), c.play());
        let broadcasts = a + b + c;
        assert!(broadcasts >= 3 * SAMPLES, "{name}: {broadcasts} broadcasts");
        assert_eq!(server.source().status().refused, 0, "{name}");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn nodes_of_this_version_say_the_same_to_a_server_of_the_previous_release() {
    for (name, _) in RECORDED {
        for (node, said) in recorded(name).into_iter().enumerate() {
            let mut server = TestServer::new();
            let settings =
                server.settings(&["samples.pace=round", &format!("server.node={}", NAMES[node])]);
            let input = Input::reading(Cursor::new(samples(node, 0..SAMPLES)));
            let running = server.node(settings, input, None);
            let mut session = server.next().await;
            let mut uploads = 0;
            for message in said {
                match message {
                    Said::ByServer(message) => session.say(message).await,
                    Said::ByNode(expected) => match (session.hear().await, expected.message) {
                        (
                            Some(from_node::Message::Hello(hello)),
                            Some(from_node::Message::Hello(before)),
                        ) => {
                            // 0.1.0 compares the field with the one version that it speaks.
                            assert_eq!(
                                (hello.protocol, hello.name),
                                (before.protocol, before.name)
                            );
                        }
                        (_, Some(from_node::Message::Idle(_))) => {}
                        (found, expected) => {
                            assert_eq!(found, expected, "{name}, node {node}");
                            uploads += 1;
                        }
                    },
                }
            }
            assert!(uploads >= SAMPLES, "{name}, node {node}: {uploads} uploads");
            drop(session);
            running.stopped().await.1.unwrap();
        }
    }
}

/// A node of 0.1.0 can't read what `gr` sends today. The server says so, in words that its log
/// shows.
#[tokio::test]
async fn a_node_that_is_too_old_for_a_method_hears_what_to_do() {
    let folder = TempDir::new().unwrap();
    let server = serve(folder.path(), &["learning.method=gr", "learning.budget=60"]).await;
    let Said::ByNode(hello) = recorded("mk")[0][0].clone() else { panic!("no hello") };
    let (to, mut answers) = open(&server).await;
    to.send(hello).await.unwrap();
    let refused = timeout(PATIENCE, answers.message()).await.unwrap().unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    let words = "messages of gr in revision 2, and this node reads revision 1: update the node";
    assert!(refused.message().contains(words), "{refused:?}");
}
