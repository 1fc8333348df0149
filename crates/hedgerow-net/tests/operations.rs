//! What an operator does to a server with running nodes: no round is lost, nodes follow, and copies
//! have the same bits.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use hedgerow_config::Layer;
use hedgerow_net::agent::client;
use hedgerow_net::agent::config::Settings;
use hedgerow_net::agent::driver::{self, Parts};
use hedgerow_net::agent::input::Input;
use hedgerow_net::agent::output::Output;
use hedgerow_net::operations::{
    Action, ActionError, Actor, NodeFilter, NodeSort, Outcome, Target, Via,
};
use hedgerow_net::serve::status::{NodeState, NodeStatus, Status};
use hedgerow_net::serve::{ServeSettings, Server};
use hedgerow_net::storage::{View, restore};
use tempfile::TempDir;

use crate::common::until;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Samples of a node, without end until they are stopped.
struct Samples {
    node: u64,
    time: u64,
    rest: Vec<u8>,
    is_over: Arc<AtomicBool>,
}

impl Read for Samples {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.is_over.load(Relaxed) {
            return Ok(0);
        }
        if self.rest.is_empty() {
            if self.time == 0 {
                self.rest.extend(b"u,v,y\n");
            }
            self.time += 1;
            let phase = (self.node * 31 + self.time * 17) as f64;
            let (u, v) = (phase.sin(), (1.7 * phase).cos());
            writeln!(self.rest, "{u},{v},{}", 3.0 + (2.0 * u).sin() * v)?;
        }
        let length = buffer.len().min(self.rest.len());
        self.rest.drain(..length).zip(buffer).for_each(|(byte, place)| *place = byte);
        Ok(length)
    }
}

struct Discarded;

impl Write for Discarded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A server with nodes that learn as fast as rounds close.
struct Fleet {
    server: Server,
    folder: TempDir,
    method: String,
    is_over: Arc<AtomicBool>,
}

async fn start(store: &Path, method: &str) -> Server {
    let changes = [
        "learning.columns=[\"u\", \"v\"]".to_owned(),
        "learning.budget=20".to_owned(),
        "learning.nodes=3".to_owned(),
        "kernels.variances=[0.1, 1.0, 10.0]".to_owned(),
        "rounds.deadline=500ms".to_owned(),
        "listen.tls=false".to_owned(),
        "listen.address=127.0.0.1:0".to_owned(),
        "listen.dashboard=never".to_owned(),
        "store.snapshots=10000".to_owned(),
        format!("learning.method={method}"),
        format!("store.path={store:?}"),
    ];
    let compressed = (method == "mk").then(|| "learning.compression=q8".to_owned());
    let changes: Vec<String> = changes.into_iter().chain(compressed).collect();
    Server::start(ServeSettings::read(&Layer::sets(&changes).unwrap()).unwrap()).await.unwrap()
}

impl Fleet {
    async fn new(method: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let server = start(&folder.path().join("run.db"), method).await;
        let is_over = Arc::default();
        let fleet = Self { server, folder, method: method.to_owned(), is_over };
        NAMES.iter().for_each(|name| fleet.play(name));
        fleet
    }

    /// A node that plays until the end.
    fn play(&self, name: &str) {
        let changes = [
            format!("server.address=\"{}\"", self.server.address()),
            format!("server.node={name}"),
            format!("state.path={:?}", self.folder.path().join(format!("{name}.state"))),
            "server.plain_text=true".to_owned(),
            "server.retry_least=\"10ms\"".to_owned(),
            "server.retry_most=\"50ms\"".to_owned(),
            "server.retry_refused=\"50ms\"".to_owned(),
            "samples.pace=round".to_owned(),
        ];
        let settings = Settings::read(&Layer::sets(&changes).unwrap()).unwrap();
        let node = u64::from(name.as_bytes()[0]);
        let is_over = Arc::clone(&self.is_over);
        let parts = Parts {
            dial: client::tcp(&settings.server.address, true),
            security: settings.security().unwrap(),
            input: Box::new(move |_| {
                Input::reading(Samples { node, time: 0, rest: vec![], is_over })
            }),
            output: Output::to(Discarded),
            asked: None,
            methods: &[],
        };
        tokio::spawn(driver::run(settings, parts, std::future::pending()));
    }

    async fn act(&self, action: Action) -> Result<Outcome, ActionError> {
        let actor = Actor { name: "alice".to_owned(), via: Via::Socket };
        self.server.operate(actor, action).await
    }

    async fn done(&self, action: Action) -> Outcome {
        self.act(action).await.unwrap()
    }

    async fn refused(&self, action: Action) -> String {
        self.act(action).await.unwrap_err().to_string()
    }

    fn status(&self) -> Status {
        self.server.source().status()
    }

    async fn node(&self, name: &str) -> Option<NodeStatus> {
        let filter = NodeFilter { name: Some(name.to_owned()), state: None };
        let listing = Action::Nodes { filter, sort: NodeSort::Number, most: None };
        let Outcome::Nodes { nodes, .. } = self.done(listing).await else { panic!("no nodes") };
        nodes.into_iter().next()
    }

    /// Waits for so many more rounds.
    async fn go_on(&self, rounds: u64) {
        let from = self.status().round;
        until("rounds go on", async || self.status().round >= from + rounds).await;
    }

    async fn all_join(&self) {
        until("all are there", async || self.status().connected == 3).await;
    }

    async fn end(self) -> TempDir {
        self.is_over.store(true, Relaxed);
        self.server.stop().await.unwrap();
        self.folder
    }
}

fn named(node: &str) -> String {
    node.to_owned()
}

fn ban(node: &str) -> Action {
    Action::Ban { node: named(node), reason: "wrong unit".to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_set_back_and_its_nodes_follow() {
    for method in ["gr", "tr", "mk"] {
        let fleet = Fleet::new(method).await;
        fleet.all_join().await;
        fleet.go_on(60).await;
        let path = "copy.db".into();
        let Outcome::BackedUp { path: copy, round, .. } = fleet.done(Action::Backup { path }).await
        else {
            panic!("no copy")
        };
        fleet.go_on(20).await;
        let store = fleet.folder.path().join("run.db");
        // The same bits as the source at that round.
        let saved = View::open(&copy).unwrap().load().unwrap().unwrap();
        assert_eq!(saved.round, round);
        assert_eq!(View::open(&store).unwrap().snapshot(round).unwrap(), Some(saved));
        let back = round - 30;
        let before = fleet.status();
        let outcome = fleet.done(Action::Rollback { to: Target::Round(back) }).await;
        let Outcome::RolledBack { from, to } = outcome else { panic!("{outcome:?}") };
        assert!(from >= before.round && to == back, "{from}, {to}");
        assert!(fleet.status().messages_up >= before.messages_up, "bytes were sent");
        // Nodes follow, pass the round where they were, and learn.
        fleet.all_join().await;
        until("rounds go on", async || fleet.status().round > from + 20).await;
        let status = fleet.status();
        assert!(status.window_mse.unwrap() < 1.0, "{method}: {:?}", status.window_mse);
        assert_eq!(status.nodes.iter().map(|node| node.refused).sum::<u64>(), 0, "{method}");
        let far = fleet.refused(Action::Rollback { to: Target::Round(1 << 40) }).await;
        assert!(far.contains("no snapshot of round"), "{far}");
        let (method, folder) = (fleet.method.clone(), fleet.end().await);
        let history = View::open(&store).unwrap().history(usize::MAX).unwrap();
        let rounds: Vec<u64> = history.iter().map(|record| record.round).collect();
        assert_eq!(rounds, (1..=rounds.len() as u64).collect::<Vec<_>>(), "no round is lost");
        // The copy is put back, and a server goes on from it.
        let saved = View::open(&copy).unwrap().load().unwrap();
        let restored = restore(&copy, &store, "alice", &[]).unwrap();
        assert_eq!(restored.round, Some(round));
        assert_eq!(View::open(&store).unwrap().load().unwrap(), saved);
        let server = start(&store, &method).await;
        assert_eq!(server.source().status().round, round);
        server.stop().await.unwrap();
        drop(folder);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_banned_kicked_put_in_quarantine_and_forgotten() {
    let fleet = Fleet::new("mk").await;
    fleet.all_join().await;
    fleet.go_on(10).await;
    // Who is in quarantine follows, and doesn't count; rounds don't wait for it.
    fleet.done(Action::Quarantine { node: named("b"), reason: String::new() }).await;
    let before = fleet.node("b").await.unwrap();
    assert_eq!((before.state, before.connected), (NodeState::Quarantined, true));
    fleet.go_on(20).await;
    let after = fleet.node("b").await.unwrap();
    assert_eq!((after.uploads, after.samples), (before.uploads, before.samples));
    assert!(after.bytes_down > before.bytes_down && after.connected);
    assert_eq!(after.refused, 0);
    fleet.done(Action::Release { node: named("b") }).await;
    until("b counts", async || fleet.node("b").await.unwrap().uploads > after.uploads).await;
    // A kick ends the stream once.
    fleet.done(Action::Kick { node: named("a") }).await;
    fleet.go_on(5).await;
    fleet.all_join().await;
    // A ban lasts, also over a restart.
    fleet.done(ban("c")).await;
    until("c is gone", async || !fleet.node("c").await.unwrap().connected).await;
    assert_eq!(fleet.node("c").await.unwrap().state, NodeState::Banned);
    assert_eq!(fleet.node("c").await.unwrap().reason, "wrong unit");
    fleet.go_on(20).await;
    assert_eq!(fleet.status().connected, 2);
    for (action, part) in [
        (ban("c"), "banned already"),
        (ban("no name"), "name"),
        (Action::Unban { node: named("a") }, "not banned"),
        (Action::Kick { node: named("c") }, "not connected"),
        (Action::Kick { node: named("z") }, "no node named"),
        (Action::Forget { node: named("a") }, "is connected"),
        (Action::Quarantine { node: named("z"), reason: String::new() }, "no node named"),
    ] {
        let error = fleet.refused(action).await;
        assert!(error.contains(part), "{error} has no {part}");
    }
    fleet.done(Action::Forget { node: named("c") }).await;
    assert_eq!((fleet.node("c").await, fleet.status().nodes_known), (None, 2));
    fleet.done(Action::Unban { node: named("c") }).await;
    fleet.all_join().await;
    assert_eq!(fleet.node("c").await.unwrap().number, 3, "it is a new node");
    fleet.go_on(5).await;
    fleet.done(ban("a")).await;
    let Outcome::Audit { entries, .. } = fleet.done(Action::Audit { from: None, most: None }).await
    else {
        panic!("no log")
    };
    let alice = entries.iter().filter(|entry| entry.actor == "alice (socket)");
    let told: Vec<_> = alice.map(|entry| format!("{} {}", entry.action, entry.subject)).collect();
    let expected = ["quarantine b", "release b", "kick a", "ban c", "forget c", "unban c", "ban a"];
    assert_eq!(told, expected);
    let kinds: Vec<String> = fleet.status().events.into_iter().map(|event| event.kind).collect();
    for kind in ["node-joined", "node-quarantined", "node-kicked", "node-banned", "node-forgotten"]
    {
        assert!(kinds.iter().any(|known| known == kind), "{kind}: {kinds:?}");
    }
    let folder = fleet.end().await;
    let server = start(&folder.path().join("run.db"), "mk").await;
    let status = server.source().status();
    let mut states: Vec<_> = status.nodes.iter().map(|node| (&node.name[..], node.state)).collect();
    states.sort_unstable_by_key(|(name, _)| *name);
    let [banned, away] = [NodeState::Banned, NodeState::Away];
    assert_eq!(states, [("a", banned), ("b", away), ("c", away)]);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_paused_and_its_rules_change() {
    let fleet = Fleet::new("gr").await;
    fleet.all_join().await;
    fleet.go_on(10).await;
    fleet.done(Action::Pause {}).await;
    until("all have answered", async || fleet.status().uploads == 3).await;
    let round = fleet.status().round;
    // Everything that would close it is there.
    assert!(fleet.status().paused && fleet.status().needed == Some(3));
    assert!(fleet.refused(Action::Pause {}).await.contains("paused already"));
    let set = |key: &str, value: Option<&str>| Action::Set {
        key: key.to_owned(),
        value: value.map(str::to_owned),
    };
    let outcome = fleet.done(set("rounds.least", Some("12"))).await;
    let Outcome::Set { before, now, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!((before.as_str(), now.as_str()), ("1", "12"));
    let wrong = fleet.refused(set("rounds.quorum", Some("none"))).await;
    assert!(wrong.contains("rounds.quorum") && wrong.contains("80%"), "{wrong}");
    assert!(fleet.refused(set("listen.address", Some("x"))).await.contains("can't be changed"));
    let status = fleet.status();
    assert_eq!(status.shortage.as_deref(), Some("waits for 12, 3 connected"));
    assert!(status.events.iter().any(|event| event.kind == "shortage"));
    assert_eq!((status.round, status.uploads), (round, 3));
    fleet.done(Action::Resume {}).await;
    assert_eq!(fleet.status().round, round, "12 answers are needed");
    fleet.done(set("rounds.least", None)).await;
    fleet.go_on(10).await;
    assert!(fleet.status().settings_changed.is_empty());
    // A server that was stopped while it was paused goes on as it was left.
    fleet.done(set("rounds.quorum", Some("2"))).await;
    fleet.done(Action::Pause {}).await;
    let round = fleet.status().round;
    let folder = fleet.end().await;
    let server = start(&folder.path().join("run.db"), "gr").await;
    let status = server.source().status();
    assert!(status.paused && status.round.abs_diff(round) <= 1, "{} {round}", status.round);
    assert_eq!(status.quorum, "2 nodes, or 500ms after the first");
    let setting = &status.settings_changed[0];
    assert_eq!((setting.value.as_str(), setting.in_file.as_str()), ("2", "all"));
    server.stop().await.unwrap();
}
