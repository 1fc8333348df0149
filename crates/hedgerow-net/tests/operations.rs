//! What an operator does to a server with running nodes: no round is lost, nodes follow, and copies
//! have the same bits.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use hedgerow_config::Layer;
use hedgerow_net::admin::client::Client;
use hedgerow_net::agent::client;
use hedgerow_net::agent::config::Settings;
use hedgerow_net::agent::driver::{self, Parts};
use hedgerow_net::agent::input::Input;
use hedgerow_net::agent::output::Output;
use hedgerow_net::coordinator::records::Saved;
use hedgerow_net::operations::{
    Action, ActionError, Actor, NodeFilter, NodeSort, Outcome, Target, Via,
};
use hedgerow_net::pki::identity::Role;
use hedgerow_net::pki::{Authority, Issuing};
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
pub(crate) struct Fleet {
    pub(crate) server: Server,
    folder: TempDir,
    method: String,
    /// None in plain text.
    authority: Option<Authority>,
    is_over: Arc<AtomicBool>,
}

async fn start(store: &Path, method: &str) -> Server {
    start_with(store, method, &["listen.tls=false", "listen.dashboard=never"]).await
}

async fn start_with(store: &Path, method: &str, more: &[&str]) -> Server {
    let changes = [
        "learning.columns=[\"u\", \"v\"]".to_owned(),
        "learning.budget=20".to_owned(),
        "learning.nodes=3".to_owned(),
        "kernels.variances=[0.1, 1.0, 10.0]".to_owned(),
        "rounds.deadline=500ms".to_owned(),
        "listen.address=127.0.0.1:0".to_owned(),
        "store.snapshots=10000".to_owned(),
        format!("learning.method={method}"),
        format!("store.path={store:?}"),
    ];
    let compressed = (method == "mk").then(|| "learning.compression=q8".to_owned());
    let more = more.iter().map(|change| (*change).to_owned());
    let changes: Vec<String> = changes.into_iter().chain(compressed).chain(more).collect();
    Server::start(ServeSettings::read(&Layer::sets(&changes).unwrap()).unwrap()).await.unwrap()
}

impl Fleet {
    async fn new(method: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let server = start(&folder.path().join("run.db"), method).await;
        Self::of(server, folder, method, None)
    }

    /// One with certificates and a dashboard that needs a login.
    pub(crate) async fn certified(method: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let pki = folder.path().join("pki");
        let authority = Authority::init(&pki, &["127.0.0.1".to_owned()]).unwrap();
        authority.issue_all(&NAMES, 9, Issuing::First(Role::Node)).unwrap();
        authority.issue_all(&["alice"], 9, Issuing::First(Role::Operator)).unwrap();
        let (dashboard, login) = ("listen.dashboard=127.0.0.1:0", "listen.login=always");
        let more = [dashboard, login, &format!("listen.identity={pki:?}")];
        let server = start_with(&folder.path().join("run.db"), method, &more).await;
        Self::of(server, folder, method, Some(authority))
    }

    fn of(server: Server, folder: TempDir, method: &str, authority: Option<Authority>) -> Self {
        let (method, is_over) = (method.to_owned(), Arc::default());
        let fleet = Self { server, folder, method, authority, is_over };
        NAMES.iter().for_each(|name| fleet.play(name));
        fleet
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("run.db")
    }

    /// A node that plays until the end.
    fn play(&self, name: &str) {
        let identity = match &self.authority {
            Some(authority) => {
                let file = authority.file_of(Role::Node, name);
                ["server.plain_text=false".to_owned(), format!("server.identity={file:?}")]
            }
            None => ["server.plain_text=true".to_owned(), format!("server.node={name}")],
        };
        let changes = [
            format!("server.address=\"{}\"", self.server.address()),
            format!("state.path={:?}", self.folder.path().join(format!("{name}.state"))),
            "server.retry_least=\"10ms\"".to_owned(),
            "server.retry_most=\"50ms\"".to_owned(),
            "server.retry_refused=\"50ms\"".to_owned(),
            "samples.pace=round".to_owned(),
        ];
        let changes: Vec<String> = changes.into_iter().chain(identity).collect();
        let settings = Settings::read(&Layer::sets(&changes).unwrap()).unwrap();
        let node = u64::from(name.as_bytes()[0]);
        let is_over = Arc::clone(&self.is_over);
        let parts = Parts {
            dial: client::tcp(&settings.server.address, self.authority.is_none()),
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

    pub(crate) fn status(&self) -> Status {
        self.server.source().status()
    }

    pub(crate) async fn node(&self, name: &str) -> Option<NodeStatus> {
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

    pub(crate) async fn all_join(&self) {
        until("all are there", async || self.status().connected == 3).await;
    }

    /// That the copy of a round has the bits of the source at that round.
    fn assert_same(&self, copy: &Path, round: u64) -> Saved {
        let saved = View::open(copy).unwrap().load().unwrap().unwrap();
        assert_eq!(saved.round, round);
        assert_eq!(
            View::open(&self.store()).unwrap().snapshot(round).unwrap().as_ref(),
            Some(&saved)
        );
        saved
    }

    pub(crate) async fn end(self) -> TempDir {
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
        let store = fleet.store();
        let saved = fleet.assert_same(&copy, round);
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
        assert_no_round_is_lost(&store);
        assert_is_put_back(&copy, &store, &saved, &method).await;
        drop(folder);
    }
}

fn assert_no_round_is_lost(store: &Path) {
    let history = View::open(store).unwrap().history(usize::MAX).unwrap();
    let rounds: Vec<u64> = history.iter().map(|record| record.round).collect();
    assert_eq!(rounds, (1..=rounds.len() as u64).collect::<Vec<_>>());
}

/// That a copy can be put back, and a server goes on from it.
async fn assert_is_put_back(copy: &Path, store: &Path, saved: &Saved, method: &str) {
    let restored = restore(copy, store, "alice", &[]).unwrap();
    assert_eq!(restored.round, Some(saved.round));
    assert_eq!(View::open(store).unwrap().load().unwrap().as_ref(), Some(saved));
    let server = start(store, method).await;
    assert_eq!(server.source().status().round, saved.round);
    server.stop().await.unwrap();
}

/// An operator with a connection gives commands without a pause while rounds run.
async fn command_under_load(mut alice: Client, fleet: Fleet, via: &str) {
    async fn done(alice: &mut Client, action: Action) -> Outcome {
        alice.operate(&action).await.unwrap()
    }
    fleet.all_join().await;
    let set = |value: Option<&str>| Action::Set {
        key: "rounds.quorum".to_owned(),
        value: value.map(str::to_owned),
    };
    let listing =
        Action::Nodes { filter: NodeFilter::default(), sort: NodeSort::Number, most: None };
    let (mut counts, mut copies) = (vec![0; NAMES.len()], vec![]);
    for turn in 0..8 {
        fleet.go_on(3).await;
        done(&mut alice, set(Some("2"))).await;
        done(&mut alice, Action::Quarantine { node: named("b"), reason: String::new() }).await;
        let path = format!("copy-{turn}.db").into();
        let outcome = done(&mut alice, Action::Backup { path }).await;
        let Outcome::BackedUp { path, round, .. } = outcome else { panic!("{outcome:?}") };
        copies.push((fleet.assert_same(&path, round), path));
        done(&mut alice, Action::Release { node: named("b") }).await;
        done(&mut alice, Action::Kick { node: named("c") }).await;
        done(&mut alice, set(None)).await;
        // All come back: rounds wait for three.
        fleet.go_on(3).await;
        fleet.all_join().await;
        let outcome = done(&mut alice, listing.clone()).await;
        let Outcome::Nodes { nodes, .. } = outcome else { panic!("{outcome:?}") };
        let now: Vec<u64> = nodes.iter().map(|node| node.uploads).collect();
        assert!(counts.iter().zip(&now).all(|(before, now)| before <= now), "{counts:?} {now:?}");
        assert!(nodes.iter().all(|node| node.refused == 0), "{nodes:?}");
        counts = now;
    }
    let outcome = done(&mut alice, Action::Audit { from: None, most: None }).await;
    let Outcome::Audit { entries, .. } = outcome else { panic!("{outcome:?}") };
    let told = entries.iter().filter(|entry| entry.actor.ends_with(via)).count();
    assert_eq!(told, 8 * 6, "{entries:?}");
    // What was taken from each node is in the rounds that have closed, or in the open one.
    done(&mut alice, Action::Pause {}).await;
    let is_all_there = async || {
        let status = fleet.status();
        let taken: u64 = status.nodes.iter().map(|node| node.uploads).sum();
        let rounds = View::open(&fleet.store()).unwrap().history(usize::MAX).unwrap();
        let closed: u64 = rounds.iter().map(|record| record.uploads).sum();
        status.uploads == 3 && taken == closed + 3
    };
    until("all uploads are there", is_all_there).await;
    let (store, method, folder) = (fleet.store(), fleet.method.clone(), fleet.end().await);
    assert_no_round_is_lost(&store);
    for (saved, copy) in copies {
        assert_is_put_back(&copy, &store, &saved, &method).await;
    }
    drop(folder);
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_over_the_socket_lose_no_round() {
    let fleet = Fleet::new("mk").await;
    let alice = Client::local(&fleet.store()).await.unwrap();
    command_under_load(alice, fleet, "(socket)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_from_elsewhere_lose_no_round() {
    let fleet = Fleet::certified("mk").await;
    let file = fleet.authority.as_ref().unwrap().file_of(Role::Operator, "alice");
    let alice = Client::remote(&fleet.server.address().to_string(), &file).await.unwrap();
    command_under_load(alice, fleet, "alice (certificate)").await;
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
