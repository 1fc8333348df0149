//! The server's rule of forgetting: suspicion, rival, trial, and an order to forget.
//!
//! From time to time nodes tell of a window of their history instead of all of it. If the gradient
//! there is larger than chance would make it, the window's own model is broadcast as a *rival*.
//! Nodes compare it with the model on samples that neither has seen, and vote. Only then is the
//! past before the window forgotten, by all nodes. They keep it aside: in later checks it is a
//! window too, and if its model is better, it comes back.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::ladder::{self, Former, HistoryWindow, SLOTS, Stage};
use super::{COUNTER_CYCLE, Order};
use crate::limits::{LAST_COUNT, MAX_SUM};
use crate::math;
use crate::state::is_count;

/// The first check is not before this round; the others are so many rounds apart, and so many after
/// a trial.
const FIRST_CHECK: u64 = 60;
const CHECK_ROUNDS: u64 = 24;
const CHECK_AFTER_TRIAL: u64 = 8;

/// Every so many checks are for what was forgotten, if there is something.
const RETURN_TURN: u64 = 3;

/// Rounds between marks.
const MARK_ROUNDS: u64 = 16;

/// Samples that a window needs for each feature, and the rounds that it needs.
const SAMPLES_PER_FEATURE: f64 = 1.5;
const LEAST_ROUNDS: f64 = 5.0;

/// A window is suspicious if its gradient is so many times what chance makes it, and so much more.
const SUSPICIOUS: (f64, f64) = (1.25, 10.0);

/// Votes in sum have to exceed so many of their standard errors, and one more, and in the mean a
/// tenth.
const CUT_ERRORS: f64 = 3.0;
const RETURN_ERRORS: f64 = 2.0;
const LEAST_VOTES: f64 = 1.0;
const LEAST_VOTE: f64 = 0.1;

/// Rounds of a trial, at least and at most, and after how many a rival that is behind has lost.
const TRIAL: (f64, f64) = (4.0, 24.0);
const LOST: f64 = 8.0;

/// Rounds without another alarm: at least, and at most after alarms for nothing.
const QUIET: (u64, u64) = (16, 256);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::method) struct Forgetting {
    /// Rounds so far.
    round: u64,
    /// Marks of which nodes have checkpoints, each with its round; the latest first.
    marks: Vec<(u32, u64)>,
    /// The round in which the history begins.
    begin: u64,
    /// Rounds of the history that nodes have kept aside.
    aside: u64,
    next_check: u64,
    checks: u64,
    alarm: Alarm,
    quiet: u64,
    quiet_until: u64,
    trial: Option<RivalTrial>,
    /// The latest rival.
    rival: Vec<f64>,
}

/// Whether errors have become much larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Alarm {
    None,
    New,
    /// The mark that followed.
    Marked(u32),
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct RivalTrial {
    window: HistoryWindow,
    rounds: f64,
    /// Mean votes of the rounds, in sum, and the sum of their squares.
    votes: f64,
    squares: f64,
}

impl Default for Forgetting {
    fn default() -> Self {
        Self {
            round: 0,
            marks: Vec::new(),
            begin: 0,
            aside: 0,
            next_check: FIRST_CHECK,
            checks: 0,
            alarm: Alarm::None,
            quiet: QUIET.0,
            quiet_until: 2 * QUIET.0,
            trial: None,
            rival: Vec::new(),
        }
    }
}

impl Forgetting {
    /// Before the first round, with room for rivals of so many features.
    pub(super) fn new(features: usize) -> Self {
        let (marks, rival) = (Vec::with_capacity(SLOTS + 1), Vec::with_capacity(features));
        Self { marks, rival, ..Self::default() }
    }

    /// A round is over.
    pub(super) fn pass(&mut self, is_alarming: bool) {
        self.round = (self.round + 1).min(LAST_COUNT - 1);
        // A trial goes on, unless its window has samples from before the change.
        let is_outdated = |trial: &RivalTrial| trial.window.is_return && trial.window.slot > 0;
        let is_free = self.trial.as_ref().is_none_or(is_outdated);
        if is_alarming && is_free && self.round >= self.quiet_until {
            self.trial = None;
            self.alarm = Alarm::New;
            self.quiet_until = self.round + self.quiet;
            self.quiet = (2 * self.quiet).min(QUIET.1);
        }
    }

    /// Whether it waits for a round.
    pub(in crate::method) fn is_due(&self) -> bool {
        self.trial.is_some() || self.alarm != Alarm::None || self.round >= self.next_check
    }

    /// The round in which the history begins.
    pub(in crate::method) fn history_begin(&self) -> u64 {
        self.begin
    }

    /// Rounds since the history begins.
    pub(super) fn rounds_left(&self) -> u64 {
        self.round - self.begin
    }

    /// Decides what the next round is about. `pace` is the samples of a round.
    pub(super) fn plan(&mut self, order: &mut Order, pace: f64) {
        order.stage = Stage::Nothing;
        if self.trial.is_some() {
            order.stage = Stage::Trial;
            return;
        }
        let latest = self.marks.first().map_or(self.begin, |(_, round)| *round);
        if self.alarm == Alarm::New {
            self.mark(order);
            self.alarm = Alarm::Marked(order.mark);
            if self.aside > 0 {
                order.stage = Stage::Check(HistoryWindow { slot: 0, is_return: true });
            }
        } else if latest + MARK_ROUNDS <= self.round {
            self.mark(order);
        } else if let Some(window) = self.next_window(order, pace) {
            order.stage = Stage::Check(window);
        }
    }

    /// Nodes are told to store their sums.
    fn mark(&mut self, order: &mut Order) {
        order.mark = (order.mark + 1) % COUNTER_CYCLE;
        order.begin_of_history.grow_older();
        self.marks.insert(0, (order.mark, self.round));
        self.marks.retain(|(id, _)| ladder::slot(order.mark, *id).is_some());
    }

    /// The window that is to be checked now, if any.
    fn next_window(&mut self, order: &Order, pace: f64) -> Option<HistoryWindow> {
        let least = SAMPLES_PER_FEATURE * order.len as f64 / pace.max(f64::MIN_POSITIVE);
        let least = least.clamp(LEAST_ROUNDS, LAST_COUNT as f64) as u64;
        let window = |id: u32, is_return: bool| {
            ladder::slot(order.mark, id).map(|slot| HistoryWindow { slot, is_return })
        };
        if let Alarm::Marked(id) = self.alarm {
            let mark = self.marks.iter().find(|(other, _)| *other == id);
            let is_early = mark.is_some_and(|(_, round)| round + least > self.round);
            if !is_early {
                self.alarm = Alarm::None;
                return mark.and_then(|_| window(id, false));
            }
        }
        if self.round < self.next_check {
            return None;
        }
        self.next_check = self.round + CHECK_ROUNDS;
        self.checks += 1;
        let mut marks = self.marks.iter().filter(|(_, round)| *round >= self.begin);
        if self.aside > 0 && self.checks.is_multiple_of(RETURN_TURN) {
            return marks.next_back().and_then(|(id, _)| window(*id, true));
        }
        // Windows of at most two thirds of the history, in turn.
        let fits = |(_, round): &&(u32, u64)| {
            let len = self.round - round;
            len >= least && 3 * len <= 2 * self.rounds_left()
        };
        let windows = marks.clone().filter(fits).count() as u64;
        let turn = self.checks.checked_rem(windows)?;
        marks.filter(fits).nth(turn as usize).and_then(|(id, _)| window(*id, false))
    }

    /// Whether a window is suspicious, for the size of its gradient, which is about one for each
    /// feature by chance.
    pub(super) fn is_suspicious(window: HistoryWindow, size: f64, len: usize) -> bool {
        window.is_return || size > SUSPICIOUS.0 * len as f64 + SUSPICIOUS.1
    }

    /// A rival comes.
    pub(super) fn try_rival(&mut self, window: HistoryWindow, rival: impl Iterator<Item = f64>) {
        self.rival.clear();
        self.rival.extend(rival);
        self.trial = Some(RivalTrial { window, rounds: 0.0, votes: 0.0, squares: 0.0 });
    }

    /// The latest rival.
    pub(super) fn rival(&self) -> &[f64] {
        &self.rival
    }

    /// Counts the mean vote of a round. Whether the rival has won: then nodes are told to forget.
    pub(super) fn hear(&mut self, vote: f64, order: &mut Order) -> bool {
        let Some(trial) = &mut self.trial else { return false };
        trial.rounds += 1.0;
        trial.votes += vote;
        trial.squares += vote * vote;
        let (has_won, has_lost) = (trial.has_won(), trial.has_lost());
        let window = trial.window;
        if has_won || has_lost {
            self.trial = None;
            self.next_check = self.next_check.min(self.round + CHECK_AFTER_TRIAL);
        }
        if has_won {
            self.forget(window, order);
        }
        has_won
    }

    /// Tells nodes to forget what came before a window.
    fn forget(&mut self, window: HistoryWindow, order: &mut Order) {
        let age = |id: u32| ladder::age(order.mark, id);
        let first = age(ladder::checkpoint(order.mark, window.slot));
        self.marks.retain(|(id, _)| age(*id) <= first);
        let begin = self.marks.last().map_or(self.round, |(_, round)| *round);
        let forgotten = begin.saturating_sub(self.begin);
        // The longer of two histories is more likely to be of use again.
        let former = match window.is_return {
            true => Former::Back,
            false if self.aside > forgotten => Former::Kept,
            false => Former::Lost,
        };
        self.aside = if former == Former::Kept { self.aside } else { forgotten.max(1) };
        self.begin = begin;
        (self.alarm, self.quiet) = (Alarm::None, QUIET.0);
        self.quiet_until = self.round + QUIET.0;
        order.begin_of_history = order.begin_of_history.next(window.slot, former, order.mark);
    }

    /// After a change of scale a rival is of no use.
    pub(super) fn rescale(&mut self) {
        self.trial = None;
    }

    pub(super) fn is_sound(&self, order: &Order) -> bool {
        let Self { round, marks, begin, aside, next_check, checks, quiet, quiet_until, .. } = self;
        let is_mark = |(id, at): &(u32, u64)| *id < COUNTER_CYCLE && at <= round;
        self.trial.is_some() == order.stage.has_votes()
            && self.trial.as_ref().is_none_or(RivalTrial::is_sound)
            && self.rival.len() <= order.len
            && self.rival.iter().all(|w| w.abs() <= MAX_SUM)
            && marks.len() <= SLOTS
            && marks.iter().all(is_mark)
            && begin <= round
            && [round, aside, next_check, checks, quiet, quiet_until]
                .iter()
                .all(|count| is_count(**count))
    }
}

impl RivalTrial {
    fn has_won(&self) -> bool {
        let Self { rounds, votes, squares, .. } = *self;
        let spread = (squares - votes * votes / rounds).max(0.0) * rounds / (rounds - 1.0).max(1.0);
        let errors = if self.window.is_return { RETURN_ERRORS } else { CUT_ERRORS };
        rounds >= TRIAL.0
            && votes > errors * math::sqrt(spread) + LEAST_VOTES
            && votes > LEAST_VOTE * rounds
    }

    fn has_lost(&self) -> bool {
        self.rounds >= TRIAL.1 || self.rounds >= LOST && self.votes < 0.0
    }

    fn is_sound(&self) -> bool {
        let Self { window, rounds, votes, squares } = self;
        window.slot < SLOTS && [rounds, votes, squares].iter().all(|sum| sum.abs() <= MAX_SUM)
    }
}
