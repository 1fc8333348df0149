//! [`Hub`]: the coordinator behind a lock, the thread that stores rounds, and the latest opening,
//! which all streams follow.
//!
//! A round is committed before it is announced. The work of the method and the commit run on the
//! storage's own thread, without the lock: streams are served meanwhile. If the commit fails, it is
//! tried again until it succeeds.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hedgerow::{NodeId, Plan};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use super::history_cache::HistoryCache;
use super::live_settings::LiveSettings;
use super::metrics::{Direction, Layer, Metrics, Outcome};
use super::throttle::Throttle;
use crate::coordinator::events::Event;
use crate::coordinator::records::{Change, Decisions, Run, Standing, StandingRecord};
use crate::coordinator::rules::Limits;
use crate::coordinator::{
    Coordinator, Envelope, HearingResult, Ledger, Newcomer, Opening, Refusal, Said, Sender, Sent,
    Verdict, WireBytes,
};
use crate::operations::Actor;
use crate::session::{CloseReason, VERSION, Welcome};
use crate::storage::writer::Writer;
use crate::storage::{Storage, StoreError};
use crate::transport::counted::Traffic;

mod changes;
mod commits;
mod locked;
mod operate;
mod source;

#[cfg(test)]
mod tests;

use commits::CommitFailure;
pub use commits::NotStored;
use locked::{Locked, RecentEvents};

/// A connected node's session.
#[derive(Debug)]
pub struct Session {
    /// The node and its stream.
    pub sender: Sender,
    /// Which of its uploads were accepted.
    pub ledger: Ledger,
    /// Ends the stream; it belongs to the connection.
    pub close_signal: Arc<CloseSignal>,
}

/// Asks a connection to end its stream.
#[derive(Debug, Default)]
pub struct CloseSignal(watch::Sender<Option<CloseReason>>);

impl CloseSignal {
    /// Gives it, and says whether this is the first reason, which stays.
    fn give(&self, reason: CloseReason) -> bool {
        self.0.send_if_modified(|given| {
            let is_first = given.is_none();
            given.get_or_insert(reason);
            is_first
        })
    }

    /// Waits until it is given.
    pub async fn given(&self) -> CloseReason {
        let mut signal = self.0.subscribe();
        let given = signal.wait_for(Option::is_some).await.ok().and_then(|given| given.clone());
        // The sender is here, so there is a reason.
        given.unwrap_or(CloseReason::GoingDown)
    }
}

/// Everything that streams share.
pub struct Hub {
    /// For the thread that stores rounds.
    me: Weak<Self>,
    runtime: Handle,
    run: Run,
    limits: Limits,
    plan: Plan,
    inner: Mutex<Inner>,
    openings: watch::Sender<Arc<Opening>>,
    /// Bytes through all sockets of this process.
    traffic: Arc<Traffic>,
    /// Bytes through sockets before this process began.
    wire_before: WireBytes,
    metrics: Metrics,
    throttle: Throttle,
    started: Instant,
    /// Held while an operator changes something.
    turns: tokio::sync::Mutex<()>,
    /// Told when the time at which the open round is due may be another.
    rules_changed: Notify,
}

struct Inner {
    coordinator: Coordinator,
    /// None once the server has ended.
    writer: Option<Writer>,
    /// Whether the closed round is being committed.
    is_committing: bool,
    failure: Option<CommitFailure>,
    numbers: HashMap<String, NodeId>,
    /// Open streams, by number of their node.
    sessions: HashMap<NodeId, Arc<CloseSignal>>,
    streams: u64,
    history: HistoryCache,
    /// Closed rounds at a time, once a second, the oldest first.
    pace: VecDeque<(Instant, u64)>,
    /// Bytes that the metrics already count: of messages, and through sockets.
    counted: [WireBytes; 2],
    events: RecentEvents,
    settings: LiveSettings,
    /// See [`Decisions::epoch`].
    epoch: u64,
    /// Whether the run is being set back: no round closes meanwhile.
    is_going_back: bool,
}

impl Hub {
    /// The hub of a run that goes on from the state of `coordinator`. It needs a tokio runtime.
    pub fn new(
        run: Run,
        (settings, decisions): (LiveSettings, &Decisions),
        mut coordinator: Coordinator,
        storage: Box<dyn Storage>,
        history: HistoryCache,
    ) -> std::io::Result<Arc<Self>> {
        coordinator.set_decisions(decisions);
        let limits = settings.limits();
        let writer = Writer::start(storage)?;
        let members = coordinator.members().iter().filter(|member| member.is_known());
        let records = members.map(|member| &member.record);
        let numbers = records.map(|record| (record.name.clone(), record.number)).collect();
        let wire_before = coordinator.totals().wire;
        let counted = [coordinator.totals().messages(), WireBytes::default()];
        let opening = Arc::clone(coordinator.opening());
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            runtime: Handle::current(),
            run,
            limits,
            plan: coordinator.plan().clone(),
            openings: watch::Sender::new(opening),
            traffic: Arc::default(),
            wire_before,
            metrics: Metrics::new(),
            throttle: Throttle::default(),
            started: now(),
            turns: tokio::sync::Mutex::default(),
            rules_changed: Notify::new(),
            inner: Mutex::new(Inner {
                numbers,
                coordinator,
                writer: Some(writer),
                is_committing: false,
                failure: None,
                sessions: HashMap::new(),
                streams: 0,
                history,
                pace: VecDeque::new(),
                counted,
                events: RecentEvents::default(),
                settings,
                epoch: decisions.epoch,
                is_going_back: false,
            }),
        }))
    }

    /// The plan of the federation.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What nodes may do.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Counts the bytes through sockets.
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

    /// Admits a node that has proved to be `name`, by the certificate with this serial number if
    /// there is TLS. Its earlier stream is ended.
    pub async fn join(
        &self,
        name: &str,
        certificate: Option<&[u8]>,
        software: &str,
        address: &str,
        close_signal: Arc<CloseSignal>,
    ) -> Result<(Session, Welcome), CloseReason> {
        admit(&self.lock(), name)?;
        let node = self.number_of(name).await?;
        let mut guard = self.lock();
        let inner = &mut *guard;
        let Some(writer) = &inner.writer else { return Err(CloseReason::GoingDown) };
        admit(inner, name)?;
        if inner.numbers.get(name) != Some(&node) {
            // It was removed meanwhile: the next time it is a new node.
            return Err(CloseReason::Kicked);
        }
        let standing = inner.coordinator.standing(name).map(|known| known.standing);
        if standing == Some(Standing::Revoked) {
            // It has another certificate.
            inner.coordinator.clear_standing(Some(node), name);
            let change = Change::NoStanding { node: name.to_owned() };
            let entry = operate::draft(&Actor::server(), "readmit", name, "with a new certificate");
            writer.queue(move |storage| storage.decide(&change, &entry), log_failure);
        }
        inner.streams += 1;
        let sender = Sender { node, stream: inner.streams };
        let newcomer = Newcomer { sender, name, certificate, software, address };
        let (ledger, replaced) = inner.coordinator.join(newcomer, unix_ms());
        let before = inner.sessions.insert(node, Arc::clone(&close_signal));
        if let (Some(_), Some(before)) = (replaced, before)
            && !Arc::ptr_eq(&before, &close_signal)
        {
            before.give(CloseReason::Replaced);
        }
        let Run { id: run, learning } = self.run.clone();
        Ok((
            Session { sender, ledger, close_signal },
            Welcome { protocol: VERSION, newest: VERSION, run, node, learning, epoch: inner.epoch },
        ))
    }

    /// The number of a node. The storage numbers new nodes.
    async fn number_of(&self, name: &str) -> Result<NodeId, CloseReason> {
        let numbering = {
            let inner = self.lock();
            let Some(writer) = &inner.writer else { return Err(CloseReason::GoingDown) };
            if let Some(node) = inner.numbers.get(name) {
                return Ok(*node);
            }
            let (name, most) = (name.to_owned(), inner.coordinator.limits().nodes);
            writer.run(move |storage| storage.node_number(&name, most))
        };
        let node = numbering.await.map_err(|error| {
            tracing::warn!(name, %error, "a new node can't join");
            match error {
                StoreError::TooManyNodes { name, most } => CloseReason::TooManyNodes { name, most },
                StoreError::Closed => CloseReason::GoingDown,
                _ => CloseReason::NotStored,
            }
        })?;
        self.lock().numbers.insert(name.to_owned(), node);
        Ok(node)
    }

    /// A stream is over.
    pub fn leave(&self, sender: Sender, sent: Sent) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.coordinator.leave(sender, sent, unix_ms());
        if !inner.coordinator.members()[sender.node as usize].is_connected() {
            inner.sessions.remove(&sender.node);
        }
        self.advance(inner, now());
    }

    /// Passes a message to the coordinator, and closes the round if it is due.
    pub fn hear(&self, sender: Sender, said: Said<'_>, envelope: Envelope) -> HearingResult {
        let now = now();
        let mut guard = self.lock();
        let heard = guard.coordinator.hear(sender, said, envelope, (now, unix_ms()));
        self.advance(&mut guard, now);
        drop(guard);
        match &heard {
            Ok(Some((Verdict::Taken, _))) => self.metrics.upload(Outcome::Taken),
            Ok(Some((Verdict::Merged, _))) => self.metrics.upload(Outcome::Merged),
            Ok(Some((Verdict::Late, _))) => self.metrics.upload(Outcome::Late),
            Ok(Some((Verdict::Ignored, _))) => self.metrics.upload(Outcome::Ignored),
            Ok(Some((Verdict::Repeated, _)) | None) => {}
            Err(refusal) => self.note_refusal(sender, refusal),
        }
        heard
    }

    /// Closes the round if it is due, and returns when to look again.
    pub fn tick(&self) -> Option<Instant> {
        let now = now();
        let mut guard = self.lock();
        self.advance(&mut guard, now);
        guard.coordinator.wake_at(now)
    }

    /// Once a second: tries failed commits again, stores nodes, updates pace and metrics.
    pub fn tidy(&self) {
        let now = now();
        let mut guard = self.lock();
        let inner = &mut *guard;
        self.advance(inner, now);
        inner.take_pace(now);
        self.update_metrics(inner);
        self.save_nodes(inner);
    }

    /// Ends the streams of nodes whose certificate was revoked, by its serial number.
    pub fn expel(&self, is_revoked: impl Fn(&[u8]) -> bool) {
        let mut guard = self.lock();
        let Inner { sessions, coordinator, writer, .. } = &mut *guard;
        let records = coordinator.members().iter().map(|member| &member.record);
        let revoked = records.filter(|record| {
            let serial = &record.certificate;
            !serial.is_empty() && is_revoked(serial)
        });
        let revoked: Vec<_> = revoked.map(|record| (record.number, record.name.clone())).collect();
        for (number, node) in revoked {
            if let Some(close_signal) = sessions.get(&number) {
                close_signal.give(CloseReason::Revoked);
            }
            if coordinator
                .standing(&node)
                .is_some_and(|known| known.standing != Standing::Quarantined)
            {
                // It was seen before, or is banned.
                continue;
            }
            let record = StandingRecord {
                node: node.clone(),
                standing: Standing::Revoked,
                reason: "its certificate is revoked".to_owned(),
                since_ms: unix_ms(),
            };
            coordinator.set_standing(Some(number), record.clone());
            let entry = operate::draft(&Actor::server(), "expel", &node, &record.reason);
            if let Some(writer) = writer {
                let change = Change::Standing(record);
                writer.queue(move |storage| storage.decide(&change, &entry), log_failure);
            }
            coordinator.events().note(Event::NodeRevoked { node, number });
        }
    }

    /// Ends when the time at which the open round is due may be another.
    pub async fn rules_changed(&self) {
        self.rules_changed.notified().await;
    }

    /// Tells what happened outside of the hub: a line in the log, a counter, a line in the status.
    pub fn note(&self, event: Event) {
        self.lock().coordinator.events().note(event);
    }

    fn lock(&self) -> Locked<'_> {
        Locked::new(self, self.inner.lock().unwrap_or_else(|_| end()))
    }

    fn wire(&self) -> WireBytes {
        let WireBytes { up, down } = self.wire_now();
        WireBytes { up: self.wire_before.up + up, down: self.wire_before.down + down }
    }

    /// Of this process alone.
    fn wire_now(&self) -> WireBytes {
        WireBytes { up: self.traffic.read(), down: self.traffic.written() }
    }

    fn note_refusal(&self, Sender { node, .. }: Sender, Refusal { reason, is_last, .. }: &Refusal) {
        self.metrics.upload(Outcome::Refused);
        if *is_last {
            tracing::warn!(node, %reason, "refused too often: the stream ends");
        } else if self.throttle.allows() {
            tracing::warn!(node, %reason, "refused");
        } else {
            tracing::debug!(node, %reason, "refused");
        }
    }

    fn update_metrics(&self, inner: &mut Inner) {
        let now = [inner.coordinator.totals().messages(), self.wire_now()];
        let before = std::mem::replace(&mut inner.counted, now);
        for (layer, (now, before)) in
            [Layer::Message, Layer::Wire].into_iter().zip(now.into_iter().zip(before))
        {
            self.metrics.bytes(Direction::Up, layer, now.up - before.up);
            self.metrics.bytes(Direction::Down, layer, now.down - before.down);
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

/// After a panic that may have left the state inconsistent. The stored state is not: a restarted
/// server goes on from there.
fn end() -> ! {
    tracing::error!("the server's state may be inconsistent: the process ends");
    crate::log::flush();
    std::process::abort()
}

/// Refuses a node that is banned.
fn admit(inner: &Inner, name: &str) -> Result<(), CloseReason> {
    match inner.coordinator.standing(name) {
        Some(StandingRecord { standing: Standing::Banned, reason, .. }) => {
            Err(CloseReason::Banned(reason.clone()))
        }
        _ => Ok(()),
    }
}

/// What the server decides by itself is decided again at the next start if it can't be stored.
fn log_failure(stored: Result<(), StoreError>) {
    if let Err(error) = stored {
        tracing::warn!(%error, "a decision can't be stored: it holds until the server ends");
    }
}

/// The time for decisions: a change of the system's clock doesn't affect it, and tests control it.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The time for people.
fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

/// How long to wait before a failed commit is tried again.
const RETRY_COMMIT: Duration = Duration::from_millis(250);

/// Most nodes in one transaction, so that commits of rounds don't wait long.
const NODES_PER_TRANSACTION: usize = 500;

/// `waits for 12, 11 connected`, while a round needs more nodes than are connected, or the first
/// scale more nodes with labels.
fn shortage(coordinator: &Coordinator) -> Option<String> {
    if let Some((needed, connected)) = coordinator.shortage() {
        return Some(format!("waits for {needed}, {connected} connected"));
    }
    let (nodes, needed) = coordinator.scale_shortage()?;
    Some(format!("the first scale needs labels of {needed} nodes, {nodes} reported some"))
}
