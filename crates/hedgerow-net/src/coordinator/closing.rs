//! How a round closes: the coordinator hands its server over, the server's method works without the
//! coordinator, and the coordinator gets the server back.

use std::sync::Arc;
use std::time::Instant;

use hedgerow::{NodeId, Server};

use super::events::Event;
use super::records::{Commit, RoundRecord};
use super::{Coordinator, Opening, WireBytes};

/// A round whose answers are complete. Its work is left: [`Closing::work`].
#[must_use]
pub struct Closing {
    server: Server,
    /// The opening that nodes know.
    before: Arc<Opening>,
    totals: Vec<u8>,
    record: Option<RoundRecord>,
    has_scaling_news: bool,
}

/// A round whose work is done, for [`Coordinator::closed`].
#[must_use]
pub struct Closed {
    server: Server,
    commit: Arc<Commit>,
    opening: Arc<Opening>,
    is_news: bool,
    /// Whether nodes are told to forget the past.
    forgets: bool,
}

/// A message that came while the server was away. One of each kind waits per node.
pub(super) struct WaitingMessage<M> {
    node: NodeId,
    message: M,
    came_at: Instant,
}

impl<M> WaitingMessage<M> {
    /// Whose it is.
    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    /// Keeps a message until the server is back. A node's latest replaces the one before.
    pub(super) fn keep(all: &mut Vec<Self>, node: NodeId, message: M, came_at: Instant) {
        all.retain(|waiting| waiting.node != node);
        all.push(Self { node, message, came_at });
    }
}

impl Closing {
    /// The work of the server's method. It may take long, and needs no coordinator.
    pub fn work(self) -> Closed {
        let Self { mut server, before, totals, record, has_scaling_news } = self;
        let begins: Vec<u64> = server.history_begins().collect();
        let is_news = server.close_round().is_news();
        let forgets = !server.history_begins().eq(begins);
        let opening = if is_news { Arc::new(Opening::new(&server, Some(&before))) } else { before };
        let commit = Arc::new(Commit {
            round: opening.round,
            server: server.save(),
            scaling: if has_scaling_news { server.save_scaling() } else { None },
            totals,
            record,
        });
        Closed { server, commit, opening, is_news, forgets }
    }
}

impl Coordinator {
    /// Closes the open round with the answers so far: uploads from now on are late. None if there
    /// are no answers, or if the previous round is not committed yet.
    pub fn close(&mut self, at_ms: u64, wire: WireBytes) -> Option<Closing> {
        if self.closing.is_some() || self.answered == 0 || self.is_paused {
            return None;
        }
        let server = self.server.take()?;
        if std::mem::take(&mut self.is_overdue) {
            self.count_missing();
        }
        let (round, selected) = (self.round, self.opening.kernels.map(|kernels| kernels.current));
        let has_uploads = server.uploads() > 0;
        self.round += u64::from(has_uploads);
        self.turn += 1;
        (self.answered, self.answered_connected) = (0, 0);
        self.first_answer = None;
        self.totals.wire = wire;
        let record = has_uploads.then(|| {
            let closed = RoundRecord {
                round,
                closed_at_ms: at_ms,
                selected,
                ..std::mem::take(&mut self.tally)
            };
            self.totals.add(&closed, self.plan.kernels());
            self.window.push(closed.clone());
            std::mem::swap(&mut self.totals.acknowledged, &mut self.acknowledged);
            self.acknowledged.clear();
            closed
        });
        Some(Closing {
            server,
            before: Arc::clone(&self.opening),
            totals: self.totals.save(),
            record,
            has_scaling_news: std::mem::take(&mut self.has_scaling_news),
        })
    }

    /// The work of the round is done. Returns what is to be committed.
    pub fn closed(&mut self, closed: Closed) -> &Arc<Commit> {
        let Closed { mut server, commit, opening, is_news, forgets } = closed;
        if forgets {
            self.events.note(Event::Forget { round: opening.round });
        }
        if opening.scale_version != self.opening.scale_version {
            self.note_scale(&server);
        }
        for node in std::mem::take(&mut self.waiting_forgets) {
            self.has_scaling_news |= server.forget_node(node);
        }
        self.note_suspects(&server);
        (self.round, self.is_unscaled) = (server.round(), server.is_unscaled());
        self.server = Some(server);
        if is_news {
            self.ask(&opening);
        }
        for WaitingMessage { node, message, came_at } in std::mem::take(&mut self.waiting_reports) {
            if let Err(reason) = self.take_report(node, message, came_at) {
                self.refuse(node, reason);
            }
        }
        for WaitingMessage { node, mut message, came_at } in
            std::mem::take(&mut self.waiting_uploads)
        {
            if let Err(reason) = self.merge_waiting(node, &mut message, came_at) {
                self.refuse(node, reason);
            }
        }
        &self.closing.insert((commit, opening)).0
    }

    /// Notes that a round has changed the scale.
    fn note_scale(&mut self, server: &Server) {
        let Some(change) = server.scale_change() else { return };
        let config = self.plan.config();
        let name = match change.column.checked_sub(self.plan.inputs()) {
            None => config.columns.get(change.column).map(String::as_str),
            Some(label) => config.target.split(',').nth(label),
        };
        let column = name.filter(|name| !name.is_empty()).map(str::to_owned);
        let column = column.unwrap_or_else(|| format!("column {}", change.column + 1));
        let (offset, width) = (change.after.offset(), change.after.width());
        let (version, changed) = (change.to, change.changed);
        self.events.note(Event::ScaleChanged { version, changed, column, offset, width });
    }

    /// What is to be committed, if the work of a round is done and it is not committed yet.
    pub fn closing(&self) -> Option<&Arc<Commit>> {
        self.closing.as_ref().map(|(commit, _)| commit)
    }

    /// The closed round is stored: the next one is open. Returns the opening to send.
    pub fn committed(&mut self, now: Instant) -> Option<(Arc<Opening>, Arc<Commit>)> {
        let (commit, opening) = self.closing.take()?;
        self.opened_at = now;
        self.opening = opening;
        Some((Arc::clone(&self.opening), commit))
    }
}
