//! Rounds whose store fails or is slow, and rounds whose method is slow.

use std::path::{Path, PathBuf};

use futures_util::FutureExt;
use hedgerow::PlanConfig;
use hedgerow::aggregation::Gathering;
use hedgerow::features::Kernel;
use hedgerow::message::{Broadcast, Errors, Upload};
use hedgerow::method::{
    BroadcastLayout, FeatureKind, Halves, Layout, MethodInfo, ServerRule, ServerShell, Setup,
};
use hedgerow::state::StateKind;
use tokio::sync::mpsc;
use tokio::time::advance;

use super::*;
use crate::audit::{Draft, Entry};
use crate::coordinator::records::{
    Change, Commit, Decisions, NodeRecord, RoundRecord, Snapshot, Target,
};
use crate::coordinator::rules::{Quorum, Rules};
use crate::plan_json::plan_to_json;
use crate::serve::status::Source;
use crate::storage::{CheckState, RolledBack};

/// A store in memory that can be full.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Written>>);

#[derive(Default)]
struct Written {
    is_full: bool,
    /// Failed attempts.
    attempts: usize,
    rounds: Vec<(u64, Option<RoundRecord>)>,
    names: Vec<String>,
    nodes: Vec<NodeRecord>,
    changes: Vec<Change>,
}

impl Paper {
    fn write<T>(&self, write: impl FnOnce(&mut Written) -> T) -> Result<T, StoreError> {
        let mut written = self.0.lock().unwrap();
        if written.is_full {
            written.attempts += 1;
            return Err(StoreError::Full { path: PathBuf::from("paper") });
        }
        Ok(write(&mut written))
    }

    fn set_full(&self, is_full: bool) {
        self.0.lock().unwrap().is_full = is_full;
    }

    /// Rounds that were open after each commit.
    fn rounds(&self) -> Vec<u64> {
        self.0.lock().unwrap().rounds.iter().map(|(round, _)| *round).collect()
    }
}

impl Storage for Paper {
    fn commit(&mut self, commit: &Commit) -> Result<(), StoreError> {
        self.write(|written| written.rounds.push((commit.round, commit.record.clone())))
    }

    fn node_number(&mut self, name: &str, _most: u32) -> Result<NodeId, StoreError> {
        self.write(|written| {
            written.names.push(name.to_owned());
            written.names.len() as NodeId - 1
        })
    }

    fn save_nodes(&mut self, nodes: &[NodeRecord]) -> Result<(), StoreError> {
        self.write(|written| written.nodes.extend_from_slice(nodes))
    }

    fn decide(&mut self, change: &Change, _entry: &Draft) -> Result<(), StoreError> {
        self.write(|written| written.changes.push(change.clone()))
    }

    fn snapshots(&self) -> Vec<Snapshot> {
        vec![]
    }

    fn roll_back(
        &mut self,
        _to: Target,
        _actor: &str,
        _at_ms: u64,
        _check: CheckState<'_>,
    ) -> Result<RolledBack, StoreError> {
        Err(StoreError::Closed)
    }

    fn audit(&self, _from: Option<u64>, _most: usize) -> Result<(Vec<Entry>, u64), StoreError> {
        Ok((vec![], 0))
    }

    fn path(&self) -> Option<&Path> {
        None
    }
}

fn hub(rules: Rules) -> (Arc<Hub>, Paper) {
    let paper = Paper::default();
    (hub_on(rules, Box::new(paper.clone())), paper)
}

fn hub_on(rules: Rules, storage: Box<dyn Storage>) -> Arc<Hub> {
    let config = PlanConfig::default()
        .method("sk:1".parse().unwrap())
        .kernels(vec![Kernel::gaussian(1.0)])
        .nodes(2)
        .budget(4)
        .frequencies(Some(2))
        .target("y".into());
    hub_of(Plan::new(config).unwrap(), rules, storage)
}

fn hub_of(plan: Plan, rules: Rules, storage: Box<dyn Storage>) -> Arc<Hub> {
    let run = Run { id: "run".into(), learning: plan_to_json(&plan) };
    let limits = Limits::default();
    let coordinator = Coordinator::new(plan, rules, limits, None, vec![], now()).unwrap();
    let settings = LiveSettings::of(rules, limits);
    let decided = (settings, &Decisions::default());
    Hub::new(run, decided, coordinator, storage, HistoryCache::default()).unwrap()
}

fn two() -> Rules {
    Rules { quorum: Quorum::Count(2), ..Rules::default() }
}

fn send(hub: &Hub, session: &Session, round: u64) -> Verdict {
    let upload = Upload { round, vote: None, numbers: vec![1.0; 4] };
    let errors = Errors { samples: 1, squared_error: 2.0 };
    let said = Said::Upload(&mut [upload], errors, &[]);
    hub.hear(session.sender, said, Envelope::default()).unwrap().unwrap().0
}

async fn join(hub: &Hub, name: &str) -> Session {
    hub.join(name, None, "test", "here", Arc::default()).await.unwrap().0
}

/// Waits until all queued jobs are done, and those that they queued.
async fn wait_for_commits(hub: &Hub) {
    for _ in 0..2 {
        let writer = hub.lock().writer.as_ref().map(|writer| writer.run(|_| Ok(())));
        writer.unwrap().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_delays_rounds_and_loses_none() {
    let (hub, paper) = hub(two());
    let openings = hub.openings();
    let told = || openings.borrow().round;
    let sessions = [join(&hub, "a").await, join(&hub, "b").await];
    sessions.iter().for_each(|session| assert_eq!(send(&hub, session, 1), Verdict::Taken));
    wait_for_commits(&hub).await;
    assert_eq!((told(), paper.rounds()), (2, vec![2]));
    paper.set_full(true);
    sessions.iter().for_each(|session| assert_eq!(send(&hub, session, 2), Verdict::Taken));
    wait_for_commits(&hub).await;
    // What isn't stored isn't told, however often it is tried.
    for second in 0..5 {
        assert_eq!((told(), paper.rounds()), (2, vec![2]));
        assert!(!hub.status().store_ok && hub.is_ready().unwrap_err().contains("no room"));
        let attempts = paper.0.lock().unwrap().attempts;
        assert_eq!(attempts, second + 1);
        hub.tick();
        wait_for_commits(&hub).await;
        assert_eq!(paper.0.lock().unwrap().attempts, attempts, "not at every tick");
        advance(Duration::from_secs(1)).await;
        hub.tidy();
        wait_for_commits(&hub).await;
    }
    let refused = hub.join("c", None, "", "", Arc::default()).await.unwrap_err();
    assert_eq!(refused, CloseReason::NotStored);
    join(&hub, "a").await;
    paper.set_full(false);
    advance(Duration::from_secs(1)).await;
    hub.tidy();
    wait_for_commits(&hub).await;
    assert_eq!((told(), paper.rounds()), (3, vec![2, 3]));
    assert!(hub.status().store_ok && hub.is_ready().is_ok());
    // Nothing was lost, nothing counts twice.
    let records: Vec<_> =
        paper.0.lock().unwrap().rounds.iter().map(|(_, record)| record.clone().unwrap()).collect();
    assert_eq!(
        records
            .iter()
            .map(|record| (record.round, record.uploads, record.samples))
            .collect::<Vec<_>>(),
        [(1, 2, 2), (2, 2, 2)]
    );
    let status = hub.status();
    assert_eq!((status.round, status.samples, status.mse, status.uploads), (3, 4, Some(2.0), 0));
    assert_eq!(hub.history(10).iter().map(|point| point.round).collect::<Vec<_>>(), [1, 2]);
    hub.tidy();
    wait_for_commits(&hub).await;
    assert_eq!(paper.0.lock().unwrap().nodes.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_last_round_is_stored_before_the_last_message() {
    let (first, paper) = hub(two());
    let session = join(&first, "a").await;
    let openings = first.openings();
    send(&first, &session, 1);
    first.close().await.unwrap();
    let last = openings.borrow().clone();
    assert_eq!((last.round, last.is_last, paper.rounds()), (2, true, vec![2]));
    assert_eq!(paper.0.lock().unwrap().nodes.len(), 1);
    let refused = first.join("b", None, "", "", Arc::default()).await.unwrap_err();
    assert_eq!(refused, CloseReason::GoingDown);
    assert!(first.is_ready().unwrap_err().contains("going down"));

    // Without an upload there is nothing to close.
    let (second, paper) = hub(two());
    join(&second, "a").await;
    second.close().await.unwrap();
    assert!(paper.rounds().is_empty() && second.openings().borrow().round == 1);

    // What can't be stored isn't told, even now.
    let (third, paper) = hub(two());
    let session = join(&third, "a").await;
    paper.set_full(true);
    send(&third, &session, 1);
    assert!(third.close().await.unwrap_err().to_string().contains("no room"));
    let last = third.openings().borrow().clone();
    assert_eq!((last.round, last.is_last), (1, true));
}

#[tokio::test(start_paused = true)]
async fn time_closes_rounds() {
    let deadline = Some(Duration::from_secs(5));
    let (hub, paper) = hub(Rules { deadline, ..two() });
    let session = join(&hub, "a").await;
    let wake = hub.tick().unwrap();
    assert_eq!(wake - now(), Duration::from_secs(5));
    advance(Duration::from_secs(3)).await;
    send(&hub, &session, 1);
    advance(Duration::from_secs(2)).await;
    // The first look comes too early, the second in time.
    assert_eq!(hub.tick().unwrap() - now(), Duration::from_secs(3));
    wait_for_commits(&hub).await;
    assert!(paper.rounds().is_empty());
    advance(Duration::from_secs(3)).await;
    hub.tick();
    wait_for_commits(&hub).await;
    assert_eq!(paper.rounds(), [2]);
    hub.tidy();
    advance(Duration::from_secs(2)).await;
    for round in 2..12 {
        send(&hub, &session, round);
        hub.leave(join(&hub, "b").await.sender, Sent::default());
        wait_for_commits(&hub).await;
        assert_eq!(paper.rounds().len() as u64, round - 1);
        hub.close_round(&mut hub.lock());
        hub.tick();
        wait_for_commits(&hub).await;
    }
    assert_eq!(hub.status().rounds_per_second, 5.0);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_or_revoked_stream_is_told() {
    let (hub, _) = hub(two());
    let enter = async |name: &str| {
        hub.join(name, Some(name.as_bytes()), "", "", Arc::default()).await.unwrap()
    };
    let (first, welcome) = enter("a").await;
    let (second, again) = enter("a").await;
    assert_eq!((welcome.node, &welcome.run), (again.node, &again.run));
    assert_eq!(first.close_signal.given().await, CloseReason::Replaced);
    hub.leave(first.sender, Sent::default());
    assert_eq!(hub.status().shortage.as_deref(), Some("waits for 2, 1 connected"));
    let (other, welcome) = enter("b").await;
    assert_eq!((welcome.node, hub.status().connected), (1, 2));
    assert_eq!(hub.status().shortage, None);
    hub.expel(|serial| serial == b"a");
    assert_eq!(second.close_signal.given().await, CloseReason::Revoked);
    assert!(other.close_signal.given().now_or_never().is_none());
    hub.leave(second.sender, Sent::default());
    let status = hub.status();
    assert_eq!((status.connected, status.nodes_known, status.nodes[0].number), (1, 2, 1));
    assert_eq!(status.window_rounds, 0);
}

/// A storage whose commits wait until the test releases them.
struct Gate {
    paper: Paper,
    begun: mpsc::UnboundedSender<u64>,
    release: std::sync::mpsc::Receiver<()>,
}

impl Storage for Gate {
    fn commit(&mut self, commit: &Commit) -> Result<(), StoreError> {
        self.begun.send(commit.round).unwrap();
        self.release.recv().unwrap();
        self.paper.commit(commit)
    }

    fn node_number(&mut self, name: &str, most: u32) -> Result<NodeId, StoreError> {
        self.paper.node_number(name, most)
    }

    fn save_nodes(&mut self, nodes: &[NodeRecord]) -> Result<(), StoreError> {
        self.paper.save_nodes(nodes)
    }

    fn decide(&mut self, change: &Change, entry: &Draft) -> Result<(), StoreError> {
        self.paper.decide(change, entry)
    }

    fn snapshots(&self) -> Vec<Snapshot> {
        self.paper.snapshots()
    }

    fn roll_back(
        &mut self,
        to: Target,
        actor: &str,
        at_ms: u64,
        check: CheckState<'_>,
    ) -> Result<RolledBack, StoreError> {
        self.paper.roll_back(to, actor, at_ms, check)
    }

    fn audit(&self, from: Option<u64>, most: usize) -> Result<(Vec<Entry>, u64), StoreError> {
        self.paper.audit(from, most)
    }

    fn path(&self) -> Option<&Path> {
        None
    }
}

/// On one thread: a commit that ran on it would stop the test.
#[tokio::test]
async fn a_slow_commit_stops_nobody_and_is_told_only_when_it_is_done() {
    let paper = Paper::default();
    let ((begun, mut has_begun), (open, release)) =
        (mpsc::unbounded_channel(), std::sync::mpsc::channel());
    let hub = hub_on(two(), Box::new(Gate { paper: paper.clone(), begun, release }));
    let openings = hub.openings();
    let mut sessions = [join(&hub, "a").await, join(&hub, "b").await];
    let slow = join(&hub, "c").await;
    for round in 1..=3 {
        sessions.iter().for_each(|session| assert_eq!(send(&hub, session, round), Verdict::Taken));
        assert_eq!(has_begun.recv().await, Some(round + 1));
        // The commit waits. Streams are served: they join, upload, are told and leave.
        assert_eq!(send(&hub, &slow, round), Verdict::Late);
        hub.leave(join(&hub, "a").await.sender, Sent::default());
        assert_eq!((hub.status().round, hub.tick(), hub.is_ready()), (round, None, Ok(())));
        hub.tidy();
        assert_eq!((openings.borrow().round, paper.rounds().len() as u64), (round, round - 1));
        let mut opened = openings.clone();
        open.send(()).unwrap();
        opened.wait_for(|opening| opening.round == round + 1).await.unwrap();
        assert_eq!(paper.rounds().len() as u64, round);
        sessions[0] = join(&hub, "a").await;
    }
}

/// A method whose work waits until the test releases it.
static SLOW: MethodInfo = MethodInfo {
    name: "slow",
    title: "Slow",
    summary: "waits",
    features: FeatureKind::Inputs,
    layout: slow_layout,
    halves: Some(Halves {
        node: |_, _, _| unreachable!("the test has no nodes"),
        server: |setup, _| {
            let opening = Broadcast { round: 1, kernels: None, numbers: vec![0.0; 4] };
            Box::new(ServerShell::new(setup, slow_layout(setup), SlowRule, (), opening))
        },
    }),
    ..MethodInfo::BASE
};

fn slow_layout(_: &Setup) -> Layout {
    Layout::of_models(BroadcastLayout::Inputs { len: 4 })
}

struct SlowRule;

/// What has begun, and what may end.
static WORK: Mutex<Option<(mpsc::UnboundedSender<u64>, std::sync::mpsc::Receiver<()>)>> =
    Mutex::new(None);

impl ServerRule for SlowRule {
    type Memory = ();

    fn kind(&self) -> StateKind {
        StateKind::new("slow-server")
    }

    fn close(&mut self, (): &mut (), _sums: &Gathering, broadcast: &mut Broadcast) {
        let work = WORK.lock().unwrap();
        let (begun, release) = work.as_ref().unwrap();
        begun.send(broadcast.round).unwrap();
        release.recv().unwrap();
    }

    fn is_sound(&self, (): &(), _broadcast: &Broadcast) -> bool {
        true
    }
}

/// On one thread: work that ran on it would stop the test.
#[tokio::test]
async fn a_slow_method_stops_nobody_and_is_told_only_when_it_is_stored() {
    let ((begun, mut has_begun), (end, release)) =
        (mpsc::unbounded_channel(), std::sync::mpsc::channel());
    *WORK.lock().unwrap() = Some((begun, release));
    let config = PlanConfig::default().method("slow".parse().unwrap()).inputs(3).nodes(2);
    let plan = Plan::with_methods(config.target("y".into()), &[&SLOW]).unwrap();
    let paper = Paper::default();
    let hub = hub_of(plan, two(), Box::new(paper.clone()));
    let mut openings = hub.openings();
    let mut sessions = [join(&hub, "a").await, join(&hub, "b").await];
    let late = join(&hub, "c").await;
    for round in 1..=3 {
        sessions.iter().for_each(|session| assert_eq!(send(&hub, session, round), Verdict::Taken));
        assert_eq!(has_begun.recv().await, Some(round));
        // The method works. Streams are served: they upload, are told, leave and come back.
        assert_eq!(send(&hub, &late, round), Verdict::Late);
        let early = Upload { round: round + 1, vote: None, numbers: vec![1.0; 4] };
        let said = Said::Upload(&mut [early], Errors::default(), &[]);
        let refusal = hub.hear(late.sender, said, Envelope::default()).unwrap_err();
        assert!(refusal.reason.to_string().contains(&format!("round {round}")), "{refusal:?}");
        hub.leave(sessions[0].sender, Sent::default());
        sessions[0] = join(&hub, "a").await;
        let status = hub.status();
        assert_eq!((status.round, status.uploads, status.connected), (round, 0, 3));
        assert_eq!((hub.tick(), hub.is_ready()), (None, Ok(())));
        hub.tidy();
        assert!(
            hub.metrics().render(&status).contains("hedgerow_uploads_total"),
            "metrics are told"
        );
        assert_eq!((openings.borrow().round, paper.rounds().len() as u64), (round, round - 1));
        end.send(()).unwrap();
        openings.wait_for(|opening| opening.round == round + 1).await.unwrap();
        assert_eq!(paper.rounds().len() as u64, round);
    }
    // A server that ends closes the round that has enough uploads, and waits for the method.
    sessions.iter().for_each(|session| assert_eq!(send(&hub, session, 4), Verdict::Taken));
    end.send(()).unwrap();
    hub.close().await.unwrap();
    assert_eq!(paper.rounds(), [2, 3, 4, 5]);
}
