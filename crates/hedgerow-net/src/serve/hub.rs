//! [`Hub`]: the coordinator and the store behind one lock, and the latest opening for everybody to
//! hear. Streams call it directly.
//!
//! A round is committed before it is told. If it can't be, nobody hears of it and the commit is
//! tried again until it can.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hedgerow::NodeId;
use hedgerow::message::{Rejected, Report, Upload};
use tokio::sync::{Notify, watch};
use tonic::Status as Answer;

use super::history_cache::HistoryCache;
use super::metrics::{Direction, Layer, Metrics, Outcome};
use super::throttle::Throttle;
use crate::coordinator::rules::Limits;
use crate::coordinator::{
    Coordinator, Envelope, Errors, Ledger, Newcomer, Opening, Refusal, Sender, Sent, Verdict,
    WireBytes,
};
use crate::learning::Plan;
use crate::pki::identity::Peer;
use crate::storage::{Commit, NodeRecord, Run, Store, StoreError};
use crate::transport::counted::Traffic;
use crate::transport::protocol::{VERSION, wire};

mod source;
#[cfg(test)]
mod tests;

/// How long to wait before a commit that failed is tried again.
const RETRY: Duration = Duration::from_millis(250);

/// Nodes that are stored in one go, so that rounds needn't wait long for it.
const NODES_AT_ONCE: usize = 500;

/// Where rounds and nodes are written: a [`Store`], or in tests one that fails.
pub trait Journal: Send {
    /// Stores a round, all of it or nothing.
    fn commit(&mut self, commit: &Commit<'_>) -> Result<(), StoreError>;
    /// The number of a node, which it gets when it first joins.
    fn node_number(&mut self, name: &str, most: u32) -> Result<NodeId, StoreError>;
    /// Stores what is known of nodes, all of it or nothing.
    fn save_nodes(&mut self, nodes: &[NodeRecord]) -> Result<(), StoreError>;
}

impl Journal for Store {
    fn commit(&mut self, commit: &Commit<'_>) -> Result<(), StoreError> {
        Self::commit(self, commit)
    }

    fn node_number(&mut self, name: &str, most: u32) -> Result<NodeId, StoreError> {
        Self::node_number(self, name, most)
    }

    fn save_nodes(&mut self, nodes: &[NodeRecord]) -> Result<(), StoreError> {
        Self::save_nodes(self, nodes)
    }
}

/// A node's slot at the table, as long as its stream lasts.
#[derive(Debug)]
pub struct Session {
    /// Whose.
    pub sender: Sender,
    /// What it may be told of its uploads.
    pub ledger: Ledger,
    /// Says when to go; it is its connection's.
    pub close_signal: Arc<CloseSignal>,
}

/// A word to a connection that its stream should end.
#[derive(Debug, Default)]
pub struct CloseSignal {
    reason: OnceLock<Answer>,
    given: Notify,
}

impl CloseSignal {
    fn give(&self, reason: Answer) {
        // The first one stands.
        _ = self.reason.set(reason);
        self.given.notify_waiters();
    }

    /// Waits until there is one.
    pub async fn given(&self) -> Answer {
        loop {
            let given = self.given.notified();
            if let Some(reason) = self.reason.get() {
                return reason.clone();
            }
            given.await;
        }
    }
}

/// Everything that streams share.
pub struct Hub {
    run: Run,
    limits: Limits,
    plan: Plan,
    inner: Mutex<Inner>,
    openings: watch::Sender<Arc<Opening>>,
    /// Bytes through all sockets of this process.
    traffic: Arc<Traffic>,
    /// What had gone through sockets before this process began.
    wire_before: WireBytes,
    metrics: Metrics,
    throttle: Throttle,
    started: Instant,
}

struct Inner {
    coordinator: Coordinator,
    /// None once the server has ended.
    journal: Option<Box<dyn Journal>>,
    numbers: HashMap<String, NodeId>,
    /// Streams, by number of their node.
    sessions: HashMap<NodeId, (Arc<CloseSignal>, Option<Peer>)>,
    streams: u64,
    history: HistoryCache,
    failure: Option<CommitFailure>,
    /// Rounds and when, once a second, the oldest first.
    pace: std::collections::VecDeque<(Instant, u64)>,
    /// What the metrics have been told.
    told: Told,
}

/// Why nothing is committed, and when it is tried again.
struct CommitFailure {
    message: String,
    retry_at: Instant,
}

#[derive(Default)]
struct Told {
    wire: WireBytes,
    messages: WireBytes,
}

/// What the last round said, if it could be stored.
#[derive(Debug, thiserror::Error)]
#[error("the last round could not be stored: {0}")]
pub struct NotStored(String);

impl Hub {
    /// A hub of a run, from where its coordinator is.
    pub fn new(
        run: Run,
        limits: Limits,
        coordinator: Coordinator,
        journal: Box<dyn Journal>,
        history: HistoryCache,
    ) -> Self {
        let numbers = coordinator
            .members()
            .iter()
            .map(|member| (member.record.name.clone(), member.record.number));
        let wire_before = coordinator.totals().wire;
        let messages = WireBytes {
            up: coordinator.totals().messages_up,
            down: coordinator.totals().messages_down,
        };
        let opening = Arc::clone(coordinator.opening());
        Self {
            run,
            limits,
            plan: coordinator.plan().clone(),
            openings: watch::Sender::new(opening),
            traffic: Arc::default(),
            wire_before,
            metrics: Metrics::new(),
            throttle: Throttle::default(),
            started: now(),
            inner: Mutex::new(Inner {
                numbers: numbers.collect(),
                coordinator,
                journal: Some(journal),
                sessions: HashMap::new(),
                streams: 0,
                history,
                failure: None,
                pace: std::collections::VecDeque::new(),
                told: Told { messages, ..Told::default() },
            }),
        }
    }

    /// What everybody agreed on.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What nodes may do.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Who counts the bytes through sockets.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Counters for Prometheus.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The latest opening, and all that follow.
    pub fn openings(&self) -> watch::Receiver<Arc<Opening>> {
        self.openings.subscribe()
    }

    /// Lets a node in, who has proved to be `name`; its stream before this one has to go.
    pub fn join(
        &self,
        name: &str,
        peer: Option<Peer>,
        software: &str,
        address: &str,
        close_signal: Arc<CloseSignal>,
    ) -> Result<(Session, wire::Welcome), Answer> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let Some(journal) = &mut inner.journal else { return Err(going_down()) };
        let known = inner.numbers.get(name).copied();
        let node = match known {
            Some(node) => node,
            None => {
                let node = journal.node_number(name, self.limits.nodes).map_err(|error| {
                    tracing::warn!(name, %error, "a new node can't join");
                    match error {
                        StoreError::TooManyNodes { .. } => {
                            Answer::resource_exhausted(error.to_string())
                        }
                        _ => Answer::unavailable(
                            "the server can't store that you are new; try again",
                        ),
                    }
                })?;
                inner.numbers.insert(name.to_owned(), node);
                node
            }
        };
        inner.streams += 1;
        let sender = Sender { node, stream: inner.streams };
        let (ledger, replaced) =
            inner.coordinator.join(Newcomer { sender, name, software, address }, unix_ms());
        let before = inner.sessions.insert(node, (Arc::clone(&close_signal), peer));
        if let (Some(_), Some((before, _))) = (replaced, before)
            && !Arc::ptr_eq(&before, &close_signal)
        {
            before.give(Answer::aborted(
                "another stream of this node has taken the slot of this one",
            ));
        }
        let welcome = wire::Welcome {
            protocol: VERSION,
            run: self.run.id.clone(),
            node,
            learning: self.run.learning.clone(),
        };
        tracing::info!(node, name, address, known = known.is_some(), "joined");
        Ok((Session { sender, ledger, close_signal }, welcome))
    }

    /// A stream is over.
    pub fn leave(&self, sender: Sender, sent: Sent) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.coordinator.leave(sender, sent, unix_ms());
        if !inner.coordinator.members()[sender.node as usize].is_connected() {
            inner.sessions.remove(&sender.node);
        }
        tracing::info!(node = sender.node, "left");
        self.advance(inner, now());
    }

    /// An upload came, its numbers read.
    pub fn upload(
        &self,
        sender: Sender,
        upload: &mut Upload,
        errors: Errors,
        envelope: Envelope,
    ) -> Result<(Verdict, Ledger), Refusal> {
        let now = now();
        let mut guard = self.lock();
        let inner = &mut *guard;
        let judged = inner.coordinator.upload(sender, upload, errors, envelope, (now, unix_ms()));
        self.advance(inner, now);
        drop(guard);
        match &judged {
            Ok((Verdict::Taken, _)) => self.metrics.upload(Outcome::Taken),
            Ok((Verdict::Merged, _)) => self.metrics.upload(Outcome::Merged),
            Ok((Verdict::Late, _)) => self.metrics.upload(Outcome::Late),
            Ok((Verdict::Repeated, _)) => {}
            Err(refusal) => self.note_refusal(sender, refusal),
        }
        judged
    }

    /// A report came.
    pub fn report(
        &self,
        sender: Sender,
        report: &Report,
        envelope: Envelope,
    ) -> Result<(), Refusal> {
        let now = now();
        let mut guard = self.lock();
        let inner = &mut *guard;
        let judged = inner.coordinator.report(sender, report, envelope, (now, unix_ms()));
        self.advance(inner, now);
        drop(guard);
        judged.inspect_err(|refusal| self.note_refusal(sender, refusal))
    }

    /// A node has nothing to answer with. The quorum may be there now.
    pub fn idle(&self, sender: Sender, envelope: Envelope) -> Result<(), Refusal> {
        let now = now();
        let mut guard = self.lock();
        let judged = guard.coordinator.idle(sender, envelope, (now, unix_ms()));
        self.advance(&mut guard, now);
        drop(guard);
        judged.inspect_err(|refusal| self.note_refusal(sender, refusal))
    }

    /// A message came that can't be read.
    pub fn garbled(&self, sender: Sender, reason: Rejected, envelope: Envelope) -> Refusal {
        let refusal = self.lock().coordinator.garbled(sender, reason, envelope, (now(), unix_ms()));
        self.note_refusal(sender, &refusal);
        refusal
    }

    /// Looks whether a round is due, and says when to look again.
    pub fn tick(&self) -> Option<Instant> {
        let now = now();
        let mut guard = self.lock();
        self.advance(&mut guard, now);
        guard.coordinator.wake_at(now)
    }

    /// Once a second: what failed is tried again, nodes are stored, the pace is taken.
    pub fn tidy(&self) {
        let now = now();
        let mut guard = self.lock();
        let inner = &mut *guard;
        self.advance(inner, now);
        inner.take_pace(now);
        self.tell_metrics(inner);
        if inner.failure.is_none() {
            let nodes = inner.coordinator.changed_nodes(NODES_AT_ONCE);
            self.save_nodes(inner, &nodes);
        }
    }

    /// Ends the streams of those who are no longer let in.
    pub fn expel(&self, is_revoked: impl Fn(&Peer) -> bool) {
        for (node, (close_signal, peer)) in &self.lock().sessions {
            if peer.as_ref().is_some_and(&is_revoked) {
                tracing::warn!(node, "revoked: its stream ends");
                close_signal
                    .give(Answer::permission_denied("this node's certificate has been revoked"));
            }
        }
    }

    /// Closes the open round if it has the least number of uploads, stores everything, and tells
    /// everybody that this was the last.
    pub fn close(&self) -> Result<(), NotStored> {
        let now = now();
        let mut guard = self.lock();
        let inner = &mut *guard;
        if let Some(failure) = &mut inner.failure {
            failure.retry_at = now;
        }
        // One that waited for its commit, and then the open one.
        self.commit(inner, now);
        if inner.coordinator.has_enough() {
            inner.coordinator.close(unix_ms(), self.wire());
            self.commit(inner, now);
        }
        loop {
            let nodes = inner.coordinator.changed_nodes(NODES_AT_ONCE);
            if nodes.is_empty() || !self.save_nodes(inner, &nodes) {
                break;
            }
        }
        let last = Opening { is_last: true, ..Opening::clone(inner.coordinator.opening()) };
        self.openings.send_replace(Arc::new(last));
        inner.journal = None;
        let failure = inner.failure.as_ref().map(|failure| failure.message.clone());
        failure.map_or(Ok(()), |message| Err(NotStored(message)))
    }

    /// Ends without a word, as if killed: what isn't stored is lost.
    pub fn abandon(&self) {
        let mut inner = self.lock();
        inner.journal = None;
        inner.sessions.values().for_each(|(close_signal, _)| close_signal.give(going_down()));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|_| {
            // Something panicked halfway. What is stored is whole: whoever starts the server again
            // goes on from there.
            tracing::error!(
                "the server's state can't be trusted any more: it ends here, to be started again"
            );
            std::process::abort()
        })
    }

    fn wire(&self) -> WireBytes {
        let WireBytes { up, down } = self.wire_now();
        WireBytes { up: self.wire_before.up + up, down: self.wire_before.down + down }
    }

    /// Of this process alone.
    fn wire_now(&self) -> WireBytes {
        WireBytes { up: self.traffic.read(), down: self.traffic.written() }
    }

    /// Closes a round that is due, and commits one that has closed.
    fn advance(&self, inner: &mut Inner, now: Instant) {
        if inner.coordinator.is_due(now) {
            inner.coordinator.close(unix_ms(), self.wire());
        }
        if inner.coordinator.closing().is_some() {
            self.commit(inner, now);
        }
    }

    /// Commits a round that has closed, and only then tells of it.
    fn commit(&self, inner: &mut Inner, at: Instant) {
        let Inner { coordinator, journal, failure, history, .. } = inner;
        let (Some(closing), Some(journal)) = (coordinator.closing(), journal) else { return };
        if failure.as_ref().is_some_and(|failure| at < failure.retry_at) {
            return;
        }
        let start = Instant::now();
        if let Err(error) = journal.commit(&closing.commit()) {
            let message = error.to_string();
            if failure.is_none() {
                tracing::error!(round = closing.commit().round, %error, "a round can't be stored; it is tried again until it can");
            }
            *failure = Some(CommitFailure { message, retry_at: at + RETRY });
            return;
        }
        self.metrics.committed(start.elapsed());
        if failure.take().is_some() {
            tracing::info!("rounds can be stored again");
        }
        let before = Arc::clone(coordinator.opening());
        let open_for = at.saturating_duration_since(coordinator.opened_at());
        let Some((opening, record)) = coordinator.committed(at) else { return };
        if let Some(record) = record {
            self.metrics.round_closed(open_for);
            tracing::trace!(round = record.round, uploads = record.uploads, "closed");
            history.push(&record, coordinator.totals(), coordinator.window());
        }
        if !Arc::ptr_eq(&opening, &before) {
            self.openings.send_replace(opening);
        }
    }

    /// Whether they are stored.
    fn save_nodes(&self, inner: &mut Inner, nodes: &[NodeRecord]) -> bool {
        let Some(journal) = inner.journal.as_mut().filter(|_| !nodes.is_empty()) else {
            return true;
        };
        let stored = journal.save_nodes(nodes);
        if let Err(error) = &stored {
            tracing::warn!(%error, "what is known of nodes can't be stored; it is tried again");
            inner.coordinator.changed_again(nodes);
        }
        stored.is_ok()
    }

    fn note_refusal(&self, Sender { node, .. }: Sender, Refusal { reason, is_last, .. }: &Refusal) {
        self.metrics.upload(Outcome::Refused);
        if *is_last {
            tracing::warn!(node, %reason, "refused once too often: the stream ends");
        } else if self.throttle.allows() {
            tracing::warn!(node, %reason, "refused");
        } else {
            tracing::debug!(node, %reason, "refused");
        }
    }

    fn tell_metrics(&self, inner: &mut Inner) {
        let (totals, told) = (inner.coordinator.totals(), &mut inner.told);
        let messages = WireBytes { up: totals.messages_up, down: totals.messages_down };
        let wire = self.wire_now();
        for (layer, now, before) in
            [(Layer::Message, messages, &mut told.messages), (Layer::Wire, wire, &mut told.wire)]
        {
            self.metrics.bytes(Direction::Up, layer, now.up - before.up);
            self.metrics.bytes(Direction::Down, layer, now.down - before.down);
            *before = now;
        }
    }
}

impl Inner {
    fn take_pace(&mut self, now: Instant) {
        const SECONDS: usize = 10;
        if self.pace.len() > SECONDS {
            self.pace.pop_front();
        }
        self.pace.push_back((now, self.coordinator.totals().rounds));
    }

    fn rounds_per_second(&self, now: Instant) -> f64 {
        let Some((since, rounds)) = self.pace.front() else { return 0.0 };
        let seconds = now.saturating_duration_since(*since).as_secs_f64();
        let rounds = self.coordinator.totals().rounds - rounds;
        if seconds > 0.0 { rounds as f64 / seconds } else { 0.0 }
    }
}

/// What a stream is told when the server ends.
pub(crate) fn going_down() -> Answer {
    Answer::unavailable("the server is going down")
}

/// The time by which decisions are made: a jump of the clock doesn't change it, and tests can.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The time for people.
fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}
