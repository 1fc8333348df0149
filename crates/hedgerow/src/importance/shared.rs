//! Importance of columns over all nodes: sums that nodes send now and then, and what the server
//! makes of them.
//!
//! In every round whose number is a multiple of [`SHARED_EVERY`], an upload has two numbers more
//! for each group of columns: the sum of the increases of the loss since the last such upload that
//! was taken, in the scaled unit, and how many there were. They are only ever added up, exactly, so
//! relays may add them and the order of uploads doesn't matter.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::GroupImportance;
use crate::aggregation::ExactSum;
use crate::limits::{MAX_INCREASE, MAX_MEASURED, MAX_SUM};
use crate::message::Rejected;
use crate::scaling::Rescaling;
use crate::state::{BadState, StateKind, is_count};

/// Nodes tell their sums in rounds whose number is a multiple of it.
pub const SHARED_EVERY: u64 = 32;

/// What is left of the recent sums in each interval: about the last eight intervals count.
const RECENT_LEFT: f64 = 0.875;

/// Windows are joined in pairs whenever there are so many.
const MOST_WINDOWS: usize = 24;

const SUM_KIND: StateKind = StateKind::new("importance-sum");
const KIND: StateKind = StateKind::new("server-importance");

/// Numbers that nodes have told in a round, added up. A [`crate::relay::Relay`] hands one on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ImportanceSum {
    /// Nodes that told something.
    nodes: u64,
    /// The increases of each group and their number.
    sum: ExactSum,
}

impl ImportanceSum {
    /// Of nothing yet, for so many groups.
    pub(crate) fn new(groups: usize) -> Self {
        Self { nodes: 0, sum: ExactSum::new(2 * groups) }
    }

    /// Whether nobody has told anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes == 0
    }

    /// Refuses what a node can't have told in a round.
    pub(crate) fn check(&self, round: u64, told: &[f32]) -> Result<(), Rejected> {
        let expected = if round.is_multiple_of(SHARED_EVERY) { self.sum.len() } else { 0 };
        // Nodes may leave it out.
        if !told.is_empty() && told.len() != expected {
            return Err(Rejected::WrongLength { expected, found: told.len() });
        }
        for (group, [increase, measured]) in told.as_chunks::<2>().0.iter().enumerate() {
            let bad = |position, value, bound| Rejected::OutOfBounds { position, value, bound };
            if !(0.0..=MAX_MEASURED as f32).contains(measured) {
                return Err(bad(2 * group + 1, *measured, MAX_MEASURED as f32));
            }
            if measured % 1.0 != 0.0 {
                let what = "the number of measurements of a column is not whole";
                return Err(Rejected::Garbled { what });
            }
            let bound = measured * MAX_INCREASE;
            if increase.is_nan() || increase.abs() > bound {
                return Err(bad(2 * group, *increase, bound));
            }
        }
        Ok(())
    }

    /// Adds what a node has told, if anything. The first decides how many groups there are.
    pub(crate) fn add(&mut self, told: &[f32]) {
        if told.is_empty() {
            return;
        }
        if self.sum.is_empty() {
            self.sum.reset(told.len());
        }
        self.nodes += 1;
        self.sum.add(told);
    }

    /// Adds all that another has, which is for as many groups.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<(), Rejected> {
        let (expected, found) = (self.sum.len(), other.sum.len());
        if expected != found {
            return Err(Rejected::WrongLength { expected, found });
        }
        self.nodes += other.nodes;
        self.sum.merge(&other.sum);
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        self.nodes = 0;
        self.sum.clear();
    }

    /// What it is on its way to the server or to a relay above.
    pub fn to_bytes(&self) -> Vec<u8> {
        SUM_KIND.save(self)
    }

    /// Reads what a relay of the same plan has written, or refuses it.
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<Self, BadState> {
        SUM_KIND.restore(bytes, |sum: &Self| {
            let most = sum.nodes as f64 * f64::from(MAX_MEASURED);
            let increases = most * f64::from(MAX_INCREASE);
            let counts = sum.sum.totals().skip(1).step_by(2);
            is_count(sum.nodes) && sum.sum.is_sound(self.sum.len(), increases) && { counts }
                .all(|count| count % 1.0 == 0.0 && (0.0..=most).contains(&count))
        })
    }

    /// By group: the increases and their number.
    fn groups(&self) -> impl Iterator<Item = Increases> {
        let increases = self.sum.totals().step_by(2);
        let counts = self.sum.totals().skip(1).step_by(2);
        increases.zip(counts).map(|(increase, count)| (increase, count as u64))
    }
}

/// The sum of increases of the loss, and how many.
pub type Increases = (f64, u64);

/// What was measured in some rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImportanceWindow {
    /// The last of the rounds.
    pub round: u64,
    /// By group.
    pub groups: Vec<Increases>,
    /// Rounds in which nodes told.
    intervals: u64,
}

impl ImportanceWindow {
    fn add(&mut self, other: &Self) {
        self.round = other.round;
        self.intervals += other.intervals;
        for (own, other) in self.groups.iter_mut().zip(&other.groups) {
            own.0 = (own.0 + other.0).clamp(-MAX_SUM, MAX_SUM);
            own.1 = own.1.saturating_add(other.1);
        }
    }
}

/// What a server knows of the importance of columns.
#[derive(Debug, Clone)]
pub struct SharedImportance {
    /// The open round.
    pub(crate) open: ImportanceSum,
    state: State,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    /// By group; `recent` is over about the last eight intervals.
    groups: Vec<GroupImportance>,
    /// Recent increases and their number, by group.
    recent: Vec<(f64, f64)>,
    /// Intervals in a window.
    span: u64,
    windows: Vec<ImportanceWindow>,
}

impl State {
    fn is_sound(&self, groups: usize) -> bool {
        let is_sum = |sum: f64| sum.abs() <= MAX_SUM;
        let is_window = |window: &ImportanceWindow| {
            let is_sound = |(increase, count): &Increases| is_sum(*increase) && is_count(*count);
            window.groups.len() == groups && window.groups.iter().all(is_sound)
        };
        let is_group = |group: &GroupImportance| {
            is_sum(group.increase) && is_sum(group.recent) && is_count(group.measured)
        };
        self.groups.len() == groups
            && self.recent.len() == groups
            && self.groups.iter().all(is_group)
            && self.recent.iter().all(|(increase, count)| is_sum(*increase) && is_sum(*count))
            && (1..1 << 60).contains(&self.span)
            && self.windows.len() < MOST_WINDOWS
            && self.windows.iter().all(is_window)
    }
}

impl SharedImportance {
    pub(crate) fn new(groups: usize) -> Self {
        Self {
            open: ImportanceSum::new(groups),
            state: State {
                groups: vec![GroupImportance::default(); groups],
                recent: vec![(0.0, 0.0); groups],
                span: 1,
                windows: Vec::new(),
            },
        }
    }

    /// Over all nodes, by group, in the scaled unit. `recent` is over about the last 256 rounds.
    pub fn groups(&self) -> &[GroupImportance] {
        &self.state.groups
    }

    /// The same over time, at most 24 windows from the first round to the latest, in the scaled
    /// unit.
    pub fn windows(&self) -> &[ImportanceWindow] {
        &self.state.windows
    }

    /// The round closes with what nodes have told in it.
    pub(crate) fn close_round(&mut self, round: u64) {
        if self.open.is_empty() {
            return;
        }
        let told: Vec<Increases> = self.open.groups().collect();
        self.open.clear();
        let State { groups, recent, span, windows } = &mut self.state;
        for ((group, recent), told) in groups.iter_mut().zip(recent).zip(&told) {
            group.increase = (group.increase + told.0).clamp(-MAX_SUM, MAX_SUM);
            group.measured = group.measured.saturating_add(told.1);
            recent.0 = (RECENT_LEFT * recent.0 + told.0).clamp(-MAX_SUM, MAX_SUM);
            recent.1 = RECENT_LEFT * recent.1 + told.1 as f64;
            group.recent = if recent.1 > 0.0 { recent.0 / recent.1 } else { 0.0 };
        }
        let interval = ImportanceWindow { round, groups: told, intervals: 1 };
        match windows.last_mut().filter(|last| last.intervals < *span) {
            Some(last) => last.add(&interval),
            None => windows.push(interval),
        }
        if windows.len() < MOST_WINDOWS {
            return;
        }
        *span *= 2;
        let mut old = core::mem::take(windows).into_iter();
        while let Some(mut window) = old.next() {
            old.next().into_iter().for_each(|next| window.add(&next));
            windows.push(window);
        }
    }

    /// Follows a change of scale.
    pub(crate) fn rescale(&mut self, rescaling: &Rescaling) {
        let factor = rescaling.loss_factor();
        let State { groups, recent, windows, .. } = &mut self.state;
        let sums = windows.iter_mut().flat_map(|window| &mut window.groups);
        let sums = sums.map(|(increase, _)| increase);
        let recent = recent.iter_mut().map(|(increase, _)| increase);
        let groups = groups.iter_mut().flat_map(|group| [&mut group.increase, &mut group.recent]);
        for sum in sums.chain(recent).chain(groups) {
            *sum = (*sum * factor).clamp(-MAX_SUM, MAX_SUM);
        }
    }

    /// Its state, around that of the server.
    pub(crate) fn save_with(&self, server: Vec<u8>) -> Vec<u8> {
        KIND.save(&(server, &self.state))
    }

    /// Takes its state from where [`SharedImportance::save_with`] put it, and returns the server's.
    /// A server that was saved without one begins to measure.
    pub(crate) fn restore_with(&mut self, saved: &[u8]) -> Result<Vec<u8>, BadState> {
        if !KIND.is_kind_of(saved) {
            return Ok(saved.to_vec());
        }
        let groups = self.state.groups.len();
        let (server, state) =
            KIND.restore(saved, |(_, state): &(Vec<u8>, State)| state.is_sound(groups))?;
        self.state = state;
        Ok(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_node_can_have_told_is_refused() {
        let sum = ImportanceSum::new(2);
        let told = [0.5, 3.0, -0.25, 1.0];
        assert_eq!(sum.check(32, &told), Ok(()));
        assert_eq!(sum.check(32, &[]), Ok(()), "nodes may leave it out");
        assert_eq!(sum.check(33, &[]), Ok(()));
        let wrong = |expected, found| Err(Rejected::WrongLength { expected, found });
        assert_eq!(sum.check(33, &told), wrong(0, 4));
        assert_eq!(sum.check(64, &told[..2]), wrong(4, 2));
        for (position, value) in [
            (0, f32::NAN),
            (0, f32::INFINITY),
            (0, 3.1 * MAX_INCREASE),
            (2, -1.1 * MAX_INCREASE),
            (1, -1.0),
            (1, 0.0),
            (1, 0.5),
            (3, f32::NAN),
            (3, 2.0 * MAX_MEASURED as f32),
        ] {
            let mut bad = told;
            bad[position] = value;
            assert!(sum.check(32, &bad).is_err(), "{position}: {value}");
        }
    }

    #[test]
    fn windows_are_bounded_and_have_all_that_was_told() {
        for intervals in [1, 23, 24, 25, 100, 1000_u64] {
            let mut shared = SharedImportance::new(1);
            for interval in 1..=intervals {
                shared.open.add(&[interval as f32, 1.0]);
                shared.open.add(&[0.5, 1.0]);
                shared.close_round(SHARED_EVERY * interval);
                shared.close_round(SHARED_EVERY * interval + 1);
            }
            let windows = shared.windows();
            assert!(windows.len() < MOST_WINDOWS && (intervals < 24 || windows.len() >= 12));
            assert_eq!(windows.last().unwrap().round, SHARED_EVERY * intervals);
            let all = windows.iter().map(|window| window.groups[0]);
            let all = all.fold((0.0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            let GroupImportance { increase, measured, recent } = shared.groups()[0];
            assert_eq!(all, (increase, measured));
            assert_eq!(increase, (intervals * (intervals + 1) / 2) as f64 + intervals as f64 / 2.0);
            assert_eq!(measured, 2 * intervals);
            // The latest intervals count most.
            assert!(intervals < 24 || recent > 0.9 * (intervals as f64 - 8.0) / 2.0);
        }
    }

    #[test]
    fn states_survive_and_older_ones_begin_to_measure() {
        let mut shared = SharedImportance::new(2);
        for interval in 1..30 {
            shared.open.add(&[0.25, 2.0, -1.0, interval as f32]);
            shared.close_round(SHARED_EVERY * interval);
        }
        let saved = shared.save_with(vec![1, 2, 3]);
        let mut restored = SharedImportance::new(2);
        assert_eq!(restored.restore_with(&saved).unwrap(), [1, 2, 3]);
        assert_eq!(restored.state, shared.state);
        for len in 20..saved.len() {
            assert!(SharedImportance::new(2).restore_with(&saved[..len]).is_err(), "{len}");
        }
        assert!(SharedImportance::new(3).restore_with(&saved).is_err(), "another plan");
        let older = StateKind::new("server-heads").save(&7);
        let mut fresh = SharedImportance::new(2);
        assert_eq!(fresh.restore_with(&older).unwrap(), older);
        assert_eq!(fresh.state, SharedImportance::new(2).state);
    }
}
