//! What operators do to the rounds of a [`Coordinator`]: who may do what, pauses, other rules, and
//! going back.

use std::sync::Arc;
use std::time::Instant;

use hedgerow::{NodeId, Plan, Server};

use super::records::{Decisions, RoundRecord, Saved, Standing, StandingRecord};
use super::rules::{Late, Limits, Rules};
use super::{BadRun, Checks, Coordinator, Ledger, Opening, Totals, Window};

/// A state that a run can be set back to.
pub struct Earlier {
    pub(super) server: Server,
    pub(super) totals: Totals,
}

impl Earlier {
    /// Restores a stored state of a run with node numbers below `nodes`.
    pub fn restore(plan: &Plan, saved: &Saved, nodes: usize) -> Result<Self, BadRun> {
        let server = Server::restore(plan, &saved.server, saved.scaling.as_deref())?;
        let (expected, found) = (saved.round, server.round());
        if expected != found {
            return Err(BadRun::Round { expected, found });
        }
        Ok(Self { server, totals: Totals::restore(&saved.totals, plan.kernels(), nodes)? })
    }
}

impl Coordinator {
    /// Goes on with what operators have decided before.
    pub fn set_decisions(&mut self, decisions: &Decisions) {
        self.is_paused = decisions.is_paused;
        for record in &decisions.standings {
            // What it has reported may have been stored after all.
            let is_node = |member: &super::Member| member.record.name == record.node;
            let number = self.members.iter().position(is_node);
            self.set_standing(number.map(|number| number as NodeId), record.clone());
        }
    }

    /// What a node may not do.
    pub fn standing(&self, node: &str) -> Option<&StandingRecord> {
        self.standings.get(node)
    }

    /// Changes what a node may do; `number` is its number, if it has joined.
    pub fn set_standing(&mut self, number: Option<NodeId>, record: StandingRecord) {
        let standing = record.standing;
        self.standings.insert(record.node.clone(), record);
        if let Some(number) = number {
            self.drop_summary(number);
            self.apply_standing(number, Some(standing));
        }
    }

    /// A node may do everything again.
    pub fn clear_standing(&mut self, number: Option<NodeId>, node: &str) {
        self.standings.remove(node);
        if let Some(number) = number {
            self.apply_standing(number, None);
        }
    }

    /// Rounds don't wait for a node in quarantine: it counts as one that has nothing to say.
    pub(super) fn apply_standing(&mut self, number: NodeId, standing: Option<Standing>) {
        let turn = self.turn;
        let Some(member) = self.members.get_mut(number as usize) else { return };
        let was = std::mem::replace(&mut member.standing, standing);
        if !member.is_connected() {
            return;
        }
        if standing == Some(Standing::Quarantined) {
            (member.missed, member.is_silent) = (0, false);
            self.idle += usize::from(!std::mem::replace(&mut member.is_idle, true));
            if member.answered == turn {
                // Its upload stays in the open round, but nobody counts on it.
                member.answered = 0;
                self.answered -= 1;
                self.answered_connected -= 1;
            }
        } else if was == Some(Standing::Quarantined) {
            self.idle -= usize::from(member.expect());
        }
        self.note_shortage();
    }

    /// Whether rounds stay open.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Keeps the open round open, or lets it close again.
    pub fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// What nodes may do.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Other rules and limits, from now on.
    pub fn set_rules(&mut self, rules: Rules, limits: Limits, now: Instant) {
        if rules.cadence != self.rules.cadence {
            self.beat = rules.cadence.map(|cadence| now + cadence);
        }
        (self.rules, self.limits) = (rules, limits);
        self.checks = Checks::new(&self.plan, limits.norm);
        match rules.late {
            Late::Drop => self.asked.clear(),
            Late::Merge { .. } => self.ask(&Arc::clone(&self.opening)),
        }
        self.note_shortage();
    }

    /// Removes a node that is not connected.
    pub fn forget(&mut self, number: NodeId) {
        if let Some(member) = self.members.get_mut(number as usize) {
            *member = super::Member::default();
            self.drop_summary(number);
        }
    }

    /// Drops what a node has told of its columns, so that the scale goes without it.
    pub(super) fn drop_summary(&mut self, number: NodeId) {
        self.waiting_reports.retain(|waiting| waiting.node() != number);
        self.suspects.remove(&number);
        match &mut self.server {
            Some(server) => self.has_scaling_news |= server.forget_node(number),
            None => self.waiting_forgets.push(number),
        }
    }

    /// Drops the scale's reports, so that nodes agree on it anew. False if nodes don't agree on
    /// scales; none while a round is being closed.
    pub fn reset_scale(&mut self) -> Option<bool> {
        let server = self.server.as_mut()?;
        let has_scale = server.reset_scale();
        self.has_scaling_news |= has_scale;
        self.is_unscaled = server.is_unscaled();
        Some(has_scale)
    }

    /// Goes on from an earlier state. All streams are over: on new ones, nodes follow. What was
    /// counted on the wire stays.
    pub fn go_back(&mut self, earlier: Earlier, history: &[RoundRecord], now: Instant) {
        let Earlier { server, mut totals } = earlier;
        let (round, opening) = (server.round(), Arc::new(Opening::new(&server, None)));
        let before = &self.totals;
        (totals.messages_up, totals.messages_down) = (before.messages_up, before.messages_down);
        (totals.broadcasts, totals.wire) = (before.broadcasts, before.wire);
        for (number, member) in (0..).zip(&mut self.members) {
            member.ledger = Ledger::default();
            if totals.acknowledged.contains(number) {
                member.ledger.count(round.saturating_sub(1));
            }
            member.end_stream();
        }
        self.window = Window::default();
        let last = history.len().saturating_sub(super::WINDOW_ROUNDS);
        history[last..].iter().for_each(|record| self.window.push(record.clone()));
        (self.round, self.is_unscaled) = (round, server.is_unscaled());
        self.suspects = super::suspicion::suspects(&server);
        (self.server, self.totals) = (Some(server), totals);
        self.waiting_reports.clear();
        self.waiting_uploads.clear();
        self.waiting_forgets.clear();
        self.tally = RoundRecord::default();
        self.acknowledged.clear();
        self.turn += 1;
        (self.connected, self.idle) = (0, 0);
        (self.answered, self.answered_connected) = (0, 0);
        (self.first_answer, self.opened_at) = (None, now);
        (self.closing, self.has_scaling_news) = (None, false);
        self.opening = opening;
        self.asked.clear();
        self.ask(&Arc::clone(&self.opening));
        self.note_shortage();
    }
}
