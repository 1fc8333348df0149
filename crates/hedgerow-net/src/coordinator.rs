//! [`Coordinator`]: the rounds of a federation as a state machine. No sockets, no disk, no clock:
//! whoever drives it says what happened and when, stores what it wants stored, and tells nodes what
//! it wants told.
//!
//! A round closes in two steps, so that nobody ever hears what isn't stored: [`Coordinator::close`]
//! makes a [`Closing`], which is to be committed; [`Coordinator::committed`] then gives the
//! [`Opening`] to be told. Until that, no other round closes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use hedgerow::state::BadState;
use hedgerow::{NodeId, Plan, Server};

use records::{Commit, NodeRecord, RoundRecord, Saved};
use rules::{Late, Limits, Quorum, Rules};

mod checks;
mod judging;
mod members;
mod messages;
mod opening;
pub mod records;
pub mod rules;
#[cfg(test)]
mod tests;
mod totals;

use checks::Checks;
pub use checks::Refused;
pub use members::{Ledger, Member};
pub use messages::{Envelope, Newcomer, Refusal, Sender, Sent, Verdict};
pub use opening::Opening;
pub(crate) use totals::mean;
pub use totals::{BadTotals, NodeSet, Totals, WINDOW, Window, WireBytes};

/// Why a run can't go on from what was stored.
#[derive(Debug, thiserror::Error)]
pub enum BadRun {
    /// The server's half or its scaling doesn't fit.
    #[error(transparent)]
    State(#[from] BadState),
    /// Nor do the totals.
    #[error(transparent)]
    Totals(#[from] BadTotals),
    /// Parts that don't belong together.
    #[error("the state is of round {found}, but round {expected} was stored")]
    Round {
        /// What the store says.
        expected: u64,
        /// What the server's half says.
        found: u64,
    },
    /// Numbers are given without gaps.
    #[error("node {expected} is missing: after it comes node {found}")]
    Node {
        /// Who should be there.
        expected: NodeId,
        /// Who is.
        found: NodeId,
    },
}

/// A round that has closed and is not committed yet.
struct Closing {
    commit: Arc<Commit>,
    /// What is told after the commit.
    opening: Arc<Opening>,
}

/// The rounds of a run.
pub struct Coordinator {
    plan: Plan,
    rules: Rules,
    limits: Limits,
    checks: Checks,
    server: Server,
    /// By number.
    members: Vec<Member>,
    connected: usize,
    totals: Totals,
    window: Window,
    /// The open round so far.
    tally: RoundRecord,
    acknowledged: NodeSet,
    /// Goes up whenever answers are counted anew.
    turn: u64,
    answered: usize,
    answered_connected: usize,
    /// Connected nodes that nobody waits for.
    idle: usize,
    first_answer: Option<Instant>,
    opened_at: Instant,
    beat: Option<Instant>,
    /// What the latest rounds asked for, where late uploads may be merged.
    asked: VecDeque<Asked>,
    opening: Arc<Opening>,
    closing: Option<Closing>,
    /// Whether the scaling is to be stored: that of many nodes is large, and rarely changes.
    has_scaling_news: bool,
}

/// What an upload of a round must be for, to count in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    round: u64,
    kernel: Option<u32>,
    scale: u64,
}

impl Coordinator {
    /// A run from its beginning, or from where it was; `nodes` is who joined before.
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
                let server = Server::restore(&plan, &saved.server, saved.scaling.as_deref())?;
                let (expected, found) = (saved.round, server.round());
                if expected != found {
                    return Err(BadRun::Round { expected, found });
                }
                (server, Totals::restore(&saved.totals, plan.kernels(), nodes.len())?)
            }
        };
        if let Some((place, node)) = (0..).zip(&nodes).find(|(place, node)| node.number != *place) {
            return Err(BadRun::Node { expected: place, found: node.number });
        }
        let mut members: Vec<Member> = nodes.into_iter().map(Member::new).collect();
        let closed = server.round().saturating_sub(1);
        for (node, member) in members.iter_mut().enumerate() {
            if totals.acknowledged.contains(node as NodeId) {
                member.ledger.count(closed);
            }
        }
        let opening = Arc::new(Opening::new(&server));
        let mut coordinator = Self {
            checks: Checks::new(&plan, limits.norm),
            plan,
            rules,
            limits,
            server,
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
            opened_at: now,
            beat: rules.cadence.map(|cadence| now + cadence),
            asked: VecDeque::new(),
            opening,
            closing: None,
            has_scaling_news: saved.is_none(),
        };
        coordinator.ask(&Arc::clone(&coordinator.opening));
        Ok(coordinator)
    }

    /// What everybody agreed on.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What opened the round that nodes know.
    pub fn opening(&self) -> &Arc<Opening> {
        &self.opening
    }

    /// Nodes that ever joined, by number.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// How many have a stream.
    pub fn connected(&self) -> usize {
        self.connected
    }

    /// Those of them who haven't said that they have nothing to answer with.
    fn awaited(&self) -> usize {
        self.connected - self.idle
    }

    /// Uploads that the open round has taken.
    pub fn uploads(&self) -> usize {
        self.server.uploads()
    }

    /// Since when the open round has been open.
    pub fn opened_at(&self) -> Instant {
        self.opened_at
    }

    /// What has been counted.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The latest rounds.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// The same, to be filled with what was stored of them.
    pub fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// A node comes, or comes back. Its stream before, if it still has one, should be ended.
    pub fn join(&mut self, newcomer: Newcomer<'_>, at_ms: u64) -> (Ledger, Option<u64>) {
        let Newcomer { sender: Sender { node, stream }, name, software, address } = newcomer;
        let at = node as usize;
        if at >= self.members.len() {
            self.members.resize_with(at + 1, Member::default);
        }
        let member = &mut self.members[at];
        if member.record.name != name {
            let number = node;
            member.record = NodeRecord {
                number,
                name: name.to_owned(),
                first_seen_ms: at_ms,
                ..Default::default()
            };
        }
        member.record.last_seen_ms = at_ms;
        member.is_changed = true;
        name_into(&mut member.software, software);
        name_into(&mut member.address, address);
        (member.heard, member.bad) = (0, 0);
        self.idle -= usize::from(std::mem::take(&mut member.is_idle));
        let replaced = member.stream.replace(stream);
        if replaced.is_none() {
            self.connected += 1;
            self.answered_connected += usize::from(member.answered == self.turn);
        }
        (member.ledger, replaced)
    }

    /// A stream is over. The quorum may be there now.
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
        self.idle -= usize::from(std::mem::take(&mut member.is_idle));
        self.connected -= 1;
        self.answered_connected -= usize::from(member.answered == self.turn);
    }

    /// Whether the open round is to be closed. A beat that nobody answered is over.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_beat = self.pass_beat(now);
        if self.closing.is_some() || !self.has_enough() {
            return false;
        }
        if self.beat.is_some() {
            return is_beat;
        }
        let is_quorum = match self.rules.quorum {
            Quorum::Count(count) => self.answered >= count,
            // Where nobody is left, the deadline decides.
            quorum => {
                self.connected > 0 && self.answered_connected >= quorum.needed(self.awaited())
            }
        };
        let is_over = |deadline| self.first_answer.is_some_and(|first| now >= first + deadline);
        is_quorum || self.rules.deadline.is_some_and(is_over)
    }

    /// Whether as many have answered as a round must have, however it closes.
    pub fn has_enough(&self) -> bool {
        let answers = if self.server.is_unscaled() { self.answered } else { self.uploads() };
        answers >= self.rules.least.max(1)
    }

    /// When to look again whether a round is due, if nothing happens before. Never later than it
    /// could be.
    pub fn wake_at(&self, now: Instant) -> Option<Instant> {
        match (self.beat, self.rules.deadline) {
            (Some(beat), _) => Some(beat),
            (None, Some(deadline)) => {
                let due = self.first_answer.map_or(now + deadline, |first| first + deadline);
                // One that is over and has too few uploads closes with the one that is missing.
                Some(if due > now { due } else { now + deadline })
            }
            (None, None) => None,
        }
    }

    /// Nodes whose answers would close the round; none if only time does.
    pub fn needed(&self) -> Option<usize> {
        self.rules
            .cadence
            .is_none()
            .then(|| self.rules.quorum.needed(self.awaited()).max(self.rules.least))
    }

    /// Closes the open round with whoever came. None if nobody did, or if an earlier one is still
    /// to be committed.
    pub fn close(&mut self, at_ms: u64, wire: WireBytes) -> Option<&Arc<Commit>> {
        if self.closing.is_some() || self.answered == 0 {
            return None;
        }
        let (round, selected) =
            (self.server.round(), self.opening.kernels.map(|kernels| kernels.current));
        let closed = self.server.close_round();
        self.turn += 1;
        (self.answered, self.answered_connected) = (0, 0);
        self.first_answer = None;
        self.totals.wire = wire;
        let record = closed.has_uploads.then(|| {
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
        let opening = if closed.is_news() {
            let opening = Opening::new(&self.server);
            self.ask(&opening);
            Arc::new(opening)
        } else {
            Arc::clone(&self.opening)
        };
        let has_scaling_news = std::mem::take(&mut self.has_scaling_news);
        let commit = Commit {
            round: opening.round,
            server: self.server.save(),
            scaling: if has_scaling_news { self.server.save_scaling() } else { None },
            totals: self.totals.save(),
            record,
        };
        let closing = self.closing.insert(Closing { commit: Arc::new(commit), opening });
        Some(&closing.commit)
    }

    /// What is to be committed, if a round has closed and isn't.
    pub fn closing(&self) -> Option<&Arc<Commit>> {
        self.closing.as_ref().map(|closing| &closing.commit)
    }

    /// It is committed: this is to be told, and the next round is open.
    pub fn committed(&mut self, now: Instant) -> Option<(Arc<Opening>, Arc<Commit>)> {
        let Closing { commit, opening } = self.closing.take()?;
        self.opened_at = now;
        self.opening = opening;
        Some((Arc::clone(&self.opening), commit))
    }

    /// Nodes that have changed since they were last asked for here, at most so many.
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

    /// These could not be stored after all.
    pub fn changed_again(&mut self, nodes: &[NodeRecord]) {
        for node in nodes {
            self.members[node.number as usize].is_changed = true;
        }
    }

    /// Whether there is a beat now. Beats are as far from each other as they should be, however
    /// late one was looked at.
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

    /// Remembers what the open round asks for.
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

/// What comes from a wire and is shown to people has a bound.
fn name_into(out: &mut String, text: &str) {
    const MOST: usize = 64;
    out.clear();
    out.extend(text.chars().filter(|c| !c.is_control()).take(MOST));
}
