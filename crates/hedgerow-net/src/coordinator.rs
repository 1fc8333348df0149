//! [`Coordinator`]: the rounds of a federation as a state machine, without sockets, disk and clock.
//! The driver passes in what happened and when, stores commits, and sends openings to nodes.
//!
//! A round closes in three steps, so that nothing waits for the server's method, and no node hears
//! what isn't stored: [`Coordinator::close`] hands the server over in a [`Closing`], whose work may
//! be done elsewhere; [`Coordinator::closed`] takes the result and returns a [`records::Commit`];
//! when it is stored, [`Coordinator::committed`] returns the [`Opening`] to send. Until then, no
//! other round closes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use hedgerow::message::{Report, Upload};
use hedgerow::state::BadState;
use hedgerow::{NodeId, Plan, Server};

use events::{Event, Events};
use records::{Commit, NodeRecord, RoundRecord, Saved, Standing, StandingRecord};
use rules::{Late, Limits, Quorum, Rules};

mod checks;
mod closing;
pub mod events;
mod judging;
mod members;
mod messages;
mod opening;
mod operating;
pub mod records;
pub mod rules;
mod silence;
mod suspicion;
#[cfg(test)]
mod tests;
mod totals;

use checks::Checks;
pub use checks::Refused;
use closing::WaitingMessage;
pub use closing::{Closed, Closing};
pub use members::{Ledger, Member};
pub use messages::{Envelope, HearingResult, Newcomer, Refusal, Said, Sender, Sent, Verdict};
pub use opening::Opening;
pub use operating::Earlier;
use suspicion::Suspects;
pub(crate) use totals::mean;
pub use totals::{BadTotals, NodeSet, Totals, WINDOW_ROUNDS, Window, WireBytes};

/// Why a stored run can't be continued.
#[derive(Debug, thiserror::Error)]
pub enum BadRun {
    /// The state of the server doesn't fit the plan.
    #[error(transparent)]
    State(#[from] BadState),
    /// The counters can't be read.
    #[error(transparent)]
    Totals(#[from] BadTotals),
    /// The state is of another round than the store says.
    #[error("the state is of round {found}, but round {expected} was stored")]
    Round {
        /// The round of the store.
        expected: u64,
        /// The round of the state.
        found: u64,
    },
    /// Node numbers must rise.
    #[error("a node has the number {found}, and it must be from {least} to {most}")]
    Node {
        /// The least that it may be here.
        least: NodeId,
        /// The greatest.
        most: NodeId,
        /// The number that was found.
        found: NodeId,
    },
}

/// The rounds of a run.
pub struct Coordinator {
    plan: Plan,
    rules: Rules,
    limits: Limits,
    checks: Checks,
    /// None while the work of a round is being done.
    server: Option<Server>,
    /// The round that uploads are for.
    round: u64,
    /// Whether nodes are still to agree on their first scale.
    is_unscaled: bool,
    /// What came while the server was away: reports, and late uploads that may be merged.
    waiting_reports: Vec<WaitingMessage<Report>>,
    waiting_uploads: Vec<WaitingMessage<Vec<Upload>>>,
    /// Nodes by number.
    members: Vec<Member>,
    connected: usize,
    totals: Totals,
    window: Window,
    /// The open round so far.
    tally: RoundRecord,
    acknowledged: NodeSet,
    /// Incremented when answers are counted anew.
    turn: u64,
    answered: usize,
    answered_connected: usize,
    /// Connected nodes that have nothing to answer with.
    idle: usize,
    first_answer: Option<Instant>,
    /// Whether the open round is closed by its deadline, without all that it waited for.
    is_overdue: bool,
    opened_at: Instant,
    beat: Option<Instant>,
    /// What the latest rounds asked for; empty unless late uploads are merged.
    asked: VecDeque<Asked>,
    opening: Arc<Opening>,
    /// A round whose work is done and that is not committed yet, and what is announced after the
    /// commit.
    closing: Option<(Arc<Commit>, Arc<Opening>)>,
    /// Whether the scaling changed: it is large and is stored only then.
    has_scaling_news: bool,
    /// What happened that nobody has told yet.
    events: Events,
    /// Whether a round needs more nodes than are connected.
    is_short: bool,
    /// Nodes that may not do everything, by name. They need not have joined.
    standings: HashMap<String, StandingRecord>,
    /// Whether rounds stay open.
    is_paused: bool,
    /// Nodes whose uploads look wrong.
    suspects: Suspects,
    /// Nodes whose reports are to be dropped when the server is back.
    waiting_forgets: Vec<NodeId>,
}

/// The greatest node number: the core keeps reports of as many nodes.
const MAX_NUMBER: NodeId = hedgerow::limits::MAX_REPORTING as NodeId - 1;

/// What a round asked for. A late upload counts only if the open round asks for the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    round: u64,
    kernel: Option<u32>,
    scale: u64,
}

impl Coordinator {
    /// A new run, or a stored one with the nodes that joined before.
    pub fn new(
        plan: Plan,
        rules: Rules,
        limits: Limits,
        saved: Option<&Saved>,
        nodes: Vec<NodeRecord>,
        now: Instant,
    ) -> Result<Self, BadRun> {
        let (server, totals) = match saved {
            None => (plan.server(), Totals::default()),
            Some(saved) => {
                let nodes = nodes.last().map_or(0, |last| last.number as usize + 1);
                let Earlier { server, totals } = Earlier::restore(&plan, saved, nodes)?;
                (server, totals)
            }
        };
        // Numbers of removed nodes are missing.
        let mut members: Vec<Member> = Vec::new();
        for node in nodes {
            let (least, most, found) = (members.len() as NodeId, MAX_NUMBER, node.number);
            if !(least..=most).contains(&found) {
                return Err(BadRun::Node { least, most, found });
            }
            members.resize_with(found as usize, Member::default);
            members.push(Member::new(node));
        }
        let closed = server.round().saturating_sub(1);
        for (node, member) in members.iter_mut().enumerate() {
            member.mean_forecast_error = server.mean_forecast_error(node as NodeId);
            if totals.acknowledged.contains(node as NodeId) {
                member.ledger.count(closed);
            }
        }
        let opening = Arc::new(Opening::new(&server, None));
        let mut coordinator = Self {
            checks: Checks::new(&plan, limits.norm),
            plan,
            rules,
            limits,
            round: server.round(),
            is_unscaled: server.is_unscaled(),
            suspects: suspicion::suspects(&server),
            server: Some(server),
            waiting_reports: Vec::new(),
            waiting_uploads: Vec::new(),
            members,
            connected: 0,
            totals,
            window: Window::default(),
            tally: RoundRecord::default(),
            acknowledged: NodeSet::default(),
            turn: 1,
            answered: 0,
            answered_connected: 0,
            idle: 0,
            first_answer: None,
            is_overdue: false,
            opened_at: now,
            beat: rules.cadence.map(|cadence| now + cadence),
            asked: VecDeque::new(),
            opening,
            closing: None,
            has_scaling_news: saved.is_none(),
            events: Events::default(),
            is_short: false,
            standings: HashMap::new(),
            is_paused: false,
            waiting_forgets: Vec::new(),
        };
        coordinator.ask(&Arc::clone(&coordinator.opening));
        Ok(coordinator)
    }

    /// The plan of the federation.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The opening of the round that nodes know.
    pub fn opening(&self) -> &Arc<Opening> {
        &self.opening
    }

    /// Nodes that ever joined, by number.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Nodes that have a stream.
    pub fn connected(&self) -> usize {
        self.connected
    }

    /// Connected nodes that are expected to answer.
    fn awaited(&self) -> usize {
        self.connected - self.idle
    }

    /// Accepted uploads of the open round.
    pub fn uploads(&self) -> usize {
        self.server.as_ref().map_or(0, Server::uploads)
    }

    /// When the open round opened.
    pub fn opened_at(&self) -> Instant {
        self.opened_at
    }

    /// Counters of the whole run.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The mean squared error over the samples of the run. While nodes may not contribute, it is
    /// that of the others: what such a node says of its errors may be wrong, too.
    pub fn error(&self) -> Option<f64> {
        if self.standings.is_empty() {
            return self.totals.mse();
        }
        let records = self.members.iter().filter(|member| member.standing.is_none());
        let (error, samples) = records.fold((0.0, 0), |(error, samples), member| {
            (error + member.record.squared_error, samples + member.record.samples)
        });
        mean(error, samples)
    }

    /// The error over the samples of the run if every node always predicted the mean of its own
    /// labels: see [`hedgerow::Server::mean_forecast_error`]. Nodes that have not reported any, or
    /// may not contribute, don't count.
    pub fn mean_forecast_error(&self) -> Option<f64> {
        let members = self.members.iter().filter(|member| member.standing.is_none());
        let known = members.filter_map(|member| {
            Some((
                member.mean_forecast_error? * member.record.samples as f64,
                member.record.samples,
            ))
        });
        let (error, samples) =
            known.fold((0.0, 0), |(error, samples), (more, count)| (error + more, samples + count));
        mean(error, samples)
    }

    /// The latest rounds.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Continues with the latest rounds of a store.
    pub fn set_window(&mut self, window: Window) {
        self.window = window;
    }

    /// The rules by which rounds close.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What happened since it was last asked.
    pub fn events(&mut self) -> &mut Events {
        &mut self.events
    }

    /// A node joins. Returns its ledger and its previous stream, which should be ended.
    pub fn join(&mut self, newcomer: Newcomer<'_>, at_ms: u64) -> (Ledger, Option<u64>) {
        let Newcomer { sender: Sender { node, stream }, name, certificate, software, address } =
            newcomer;
        let at = node as usize;
        if at >= self.members.len() {
            self.members.resize_with(at + 1, Member::default);
        }
        let member = &mut self.members[at];
        let is_new = member.record.name != name;
        if is_new {
            let number = node;
            member.record = NodeRecord {
                number,
                name: name.to_owned(),
                first_seen_ms: at_ms,
                ..Default::default()
            };
        }
        member.record.last_seen_ms = at_ms;
        if let Some(serial) = certificate {
            serial.clone_into(&mut member.record.certificate);
        }
        member.is_changed = true;
        name_into(&mut member.software, software);
        name_into(&mut member.address, address);
        let address = member.address.clone();
        self.events.note(Event::NodeJoined {
            node: name.to_owned(),
            number: node,
            address,
            is_new,
        });
        (member.heard, member.bad) = (0, 0);
        self.idle -= usize::from(member.expect());
        let replaced = member.stream.replace(stream);
        if replaced.is_none() {
            self.connected += 1;
            self.answered_connected += usize::from(member.answered == self.turn);
        }
        let (ledger, standing) = (member.ledger, self.standings.get(name));
        let standing = standing.map(|record| record.standing);
        member.standing = None;
        self.apply_standing(node, standing);
        self.note_shortage();
        (ledger, replaced)
    }

    /// A stream ended. The quorum may be reached now.
    pub fn leave(&mut self, sender: Sender, sent: Sent, at_ms: u64) {
        self.count_sent(sender.node, sent);
        let Some(member) = self.members.get_mut(sender.node as usize) else { return };
        if member.stream != Some(sender.stream) {
            return;
        }
        member.stream = None;
        member.address.clear();
        member.record.last_seen_ms = at_ms;
        member.is_changed = true;
        self.idle -= usize::from(member.expect());
        self.connected -= 1;
        self.answered_connected -= usize::from(member.answered == self.turn);
        let left = Event::NodeLeft { node: member.record.name.clone(), number: sender.node };
        self.events.note(left);
        self.note_shortage();
    }

    /// The answers that a round needs and the connected nodes, if those are too few.
    pub fn shortage(&self) -> Option<(usize, usize)> {
        let (needed, connected) = (self.least_answers(), self.contributors());
        (needed > connected).then_some((needed, connected))
    }

    /// Nodes that have reported a label and how many must have before there is a first scale, if
    /// those are too few.
    pub fn scale_shortage(&self) -> Option<(usize, usize)> {
        let labelled = self.server.as_ref().filter(|_| self.is_unscaled)?.labelled_nodes();
        labelled.filter(|(nodes, needed)| nodes < needed)
    }

    /// Connected nodes that may contribute.
    fn contributors(&self) -> usize {
        // Almost always there are no standings.
        if self.standings.is_empty() {
            return self.connected;
        }
        let is_quarantined = |member: &&Member| {
            member.is_connected() && member.standing == Some(Standing::Quarantined)
        };
        self.connected - self.members.iter().filter(is_quarantined).count()
    }

    /// Answers without which no round closes, however long it is open.
    fn least_answers(&self) -> usize {
        // Without a quorum, beats wait for the least.
        self.needed().unwrap_or(self.rules.least)
    }

    /// Notes that a shortage has begun or ended.
    fn note_shortage(&mut self) {
        let (needed, connected) = (self.least_answers(), self.contributors());
        let is_short = needed > connected;
        if std::mem::replace(&mut self.is_short, is_short) != is_short {
            self.events.note(match is_short {
                true => Event::Shortage { needed, connected },
                false => Event::ShortageOver { needed, connected },
            });
        }
    }

    /// Whether the open round is to be closed. A beat without answers passes.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_beat = self.pass_beat(now);
        if self.is_paused {
            return false;
        }
        if self.server.is_none() || self.closing.is_some() || !self.has_enough() {
            return false;
        }
        if self.beat.is_some() {
            return is_beat;
        }
        let is_quorum = match self.rules.quorum {
            Quorum::Count(count) => self.answered >= count,
            // Without connected nodes, the deadline decides.
            quorum => {
                self.connected > 0 && self.answered_connected >= quorum.needed(self.awaited())
            }
        };
        let is_over = |deadline| self.first_answer.is_some_and(|first| now >= first + deadline);
        self.is_overdue = !is_quorum && self.rules.deadline.is_some_and(is_over);
        is_quorum || self.is_overdue
    }

    /// Whether the round has the least number of answers.
    pub fn has_enough(&self) -> bool {
        let answers = if self.is_unscaled { self.answered } else { self.uploads() };
        answers >= self.rules.least.max(1)
    }

    /// When to call [`Coordinator::is_due`] again, if nothing happens before.
    pub fn wake_at(&self, now: Instant) -> Option<Instant> {
        match (self.beat, self.rules.deadline) {
            (Some(beat), _) => Some(beat),
            (None, Some(deadline)) => {
                let due = self.first_answer.map_or(now + deadline, |first| first + deadline);
                // A round past its deadline with too few uploads closes with the missing one.
                Some(if due > now { due } else { now + deadline })
            }
            (None, None) => None,
        }
    }

    /// Answers that close the round; none if only time does.
    pub fn needed(&self) -> Option<usize> {
        self.rules
            .cadence
            .is_none()
            .then(|| self.rules.quorum.needed(self.awaited()).max(self.rules.least))
    }

    /// Records of nodes that have changed since the last call, at most `most`.
    pub fn changed_nodes(&mut self, most: usize) -> Vec<NodeRecord> {
        let changed = self
            .members
            .iter_mut()
            .filter(|member| member.is_changed && !member.record.name.is_empty());
        changed
            .take(most)
            .map(|member| {
                member.is_changed = false;
                member.record.clone()
            })
            .collect()
    }

    /// These records could not be stored: the next call returns them again.
    pub fn changed_again(&mut self, nodes: &[NodeRecord]) {
        for node in nodes {
            let member = &mut self.members[node.number as usize];
            // It may have been removed meanwhile.
            member.is_changed = member.record.name == node.name;
        }
    }

    /// Whether there is a beat now. Beats keep their distance even if one is noticed late.
    fn pass_beat(&mut self, now: Instant) -> bool {
        let (Some(beat), Some(cadence)) = (&mut self.beat, self.rules.cadence) else {
            return false;
        };
        if *beat > now {
            return false;
        }
        let missed = now.duration_since(*beat).as_nanos() / cadence.as_nanos().max(1);
        *beat += cadence * u32::try_from(missed + 1).unwrap_or(u32::MAX);
        true
    }

    /// Stores what the open round asks for.
    fn ask(&mut self, opening: &Opening) {
        let Late::Merge { rounds } = self.rules.late else { return };
        let asked = Asked {
            round: opening.round,
            kernel: opening.kernels.map(|kernels| kernels.next),
            scale: opening.scale_version,
        };
        self.asked
            .retain(|known| known.round != asked.round && asked.round - known.round <= rounds);
        self.asked.push_back(asked);
    }
}

/// Copies a text from the network without control characters, shortened.
fn name_into(out: &mut String, text: &str) {
    const MAX_SHOWN: usize = 64;
    out.clear();
    out.extend(text.chars().filter(|c| !c.is_control()).take(MAX_SHOWN));
}
