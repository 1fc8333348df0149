//! Which snapshots of rounds a store keeps: all of the latest rounds, and of older ones the fewer
//! the older they are.
//!
//! A round is kept while its age in rounds is below `recent`·2^z, where z is how often 2 divides
//! its number. So half as many rounds are kept of each doubling of the age, spaced evenly: about
//! `recent`·(1 + log₂(N / `recent`) / 2) of N rounds in all. Beyond `most_bytes` the oldest go.

use serde::Deserialize;

use crate::coordinator::records::Snapshot;

/// How many snapshots are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct SnapshotLimits {
    /// All of so many latest rounds; at least 1.
    pub recent: u64,
    /// Bytes of all of them; the latest is kept even if it has more.
    pub most_bytes: u64,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self { recent: 20, most_bytes: 256 << 20 }
    }
}

/// A state that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) round: u64,
    pub(super) at_ms: u64,
    /// Bytes of the state, without its scaling.
    pub(super) bytes: u64,
    /// Its scaling and the bytes of that. Several rounds share one.
    pub(super) scaling: Option<(i64, u64)>,
}

/// What a store has.
#[derive(Debug, Clone, Default)]
pub(super) struct Retention {
    limits: SnapshotLimits,
    /// By round.
    stored: Vec<Stored>,
}

/// What is to be deleted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Dropped {
    pub(super) rounds: Vec<u64>,
    pub(super) scalings: Vec<i64>,
}

impl Retention {
    /// Of a store that has these, by round.
    pub(super) fn new(limits: SnapshotLimits, stored: Vec<Stored>) -> Self {
        Self { limits, stored }
    }

    /// The latest state; none before the first.
    pub(super) fn latest(&self) -> Option<&Stored> {
        self.stored.last()
    }

    /// All, the oldest first.
    pub(super) fn stored(&self) -> &[Stored] {
        &self.stored
    }

    /// The same for operators.
    pub(super) fn snapshots(&self) -> Vec<Snapshot> {
        let bytes = |stored: &Stored| stored.bytes + stored.scaling.map_or(0, |(_, bytes)| bytes);
        let snapshot = |stored: &Stored| Snapshot {
            round: stored.round,
            at_ms: stored.at_ms,
            bytes: bytes(stored),
        };
        self.stored.iter().map(snapshot).collect()
    }

    /// Adds the latest state, in place of one of the same round. Returns what is not kept any more.
    pub(super) fn add(&mut self, latest: Stored) -> Dropped {
        let before = self.scalings();
        self.stored.retain(|stored| stored.round != latest.round);
        self.stored.push(latest);
        let rounds = self.thin();
        self.dropped(rounds, &before)
    }

    /// Drops what a store of other limits has kept.
    pub(super) fn tidy(&mut self) -> Dropped {
        let before = self.scalings();
        let rounds = self.thin();
        self.dropped(rounds, &before)
    }

    /// Drops all rounds after this one.
    pub(super) fn go_back(&mut self, to: u64) -> Dropped {
        let before = self.scalings();
        let rounds = self.stored.iter().map(|stored| stored.round);
        let rounds = rounds.filter(|round| *round > to).collect();
        self.stored.retain(|stored| stored.round <= to);
        self.dropped(rounds, &before)
    }

    /// Drops the rounds that need not be kept, and returns them.
    fn thin(&mut self) -> Vec<u64> {
        let Some(latest) = self.stored.last().map(|stored| stored.round) else { return Vec::new() };
        let SnapshotLimits { recent, most_bytes } = self.limits;
        let mut rounds = Vec::new();
        self.stored.retain(|&Stored { round, .. }| {
            let age = latest.saturating_sub(round) >> round.trailing_zeros().min(63);
            let is_kept = age < recent || round == latest;
            if !is_kept {
                rounds.push(round);
            }
            is_kept
        });
        while self.stored.len() > 1 && self.bytes() > most_bytes {
            rounds.push(self.stored.remove(0).round);
        }
        rounds
    }

    fn bytes(&self) -> u64 {
        let states: u64 = self.stored.iter().map(|stored| stored.bytes).sum();
        states + self.scalings().iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    /// Scalings of the stored rounds, each once. Rounds that share one follow each other.
    fn scalings(&self) -> Vec<(i64, u64)> {
        let mut scalings: Vec<_> = self.stored.iter().filter_map(|stored| stored.scaling).collect();
        scalings.dedup();
        scalings
    }

    fn dropped(&self, rounds: Vec<u64>, before: &[(i64, u64)]) -> Dropped {
        let now = self.scalings();
        let gone = before.iter().filter(|scaling| !now.contains(scaling));
        Dropped { rounds, scalings: gone.map(|(id, _)| *id).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(round: u64) -> Stored {
        Stored { round, at_ms: 1_000 * round, bytes: 10, scaling: None }
    }

    fn rounds(retention: &Retention) -> Vec<u64> {
        retention.stored.iter().map(|stored| stored.round).collect()
    }

    fn limited(recent: u64, most_bytes: u64) -> Retention {
        Retention::new(SnapshotLimits { recent, most_bytes }, vec![])
    }

    #[test]
    fn the_latest_are_all_kept_and_older_ones_ever_more_sparsely() {
        let mut retention = limited(4, u64::MAX);
        let mut dropped = Vec::new();
        (1..=100).for_each(|round| dropped.extend(retention.add(stored(round)).rounds));
        assert_eq!(rounds(&retention), [32, 48, 64, 72, 80, 88, 92, 94, 96, 97, 98, 99, 100]);
        // Each is dropped once.
        let mut all: Vec<u64> = dropped.iter().copied().chain(rounds(&retention)).collect();
        all.sort_unstable();
        assert_eq!(all, (1..=100).collect::<Vec<_>>());
        // Any age up to the half of all rounds has a snapshot that is at most half as old again.
        let mut retention = limited(20, u64::MAX);
        (1..=100_000).for_each(|round| drop(retention.add(stored(round))));
        let kept = rounds(&retention);
        assert!((120..160).contains(&kept.len()), "{}", kept.len());
        for age in [1, 19, 100, 3_000, 49_000] {
            let found = kept.iter().rev().find(|round| 100_000 - **round >= age).unwrap();
            assert!(100_000 - found <= age + age / 8 + 1, "{age}: {found}");
        }
    }

    #[test]
    fn bytes_are_bounded_but_the_latest_is_kept() {
        let mut retention = limited(20, 45);
        (1..=10).for_each(|round| drop(retention.add(stored(round))));
        assert_eq!(rounds(&retention), [7, 8, 9, 10]);
        let large = Stored { bytes: 1_000, ..stored(11) };
        assert_eq!(retention.add(large).rounds, [7, 8, 9, 10]);
        assert_eq!(rounds(&retention), [11]);
        // Scalings count once, however many rounds have them.
        let mut retention = limited(20, 45);
        for round in 1..=10 {
            retention.add(Stored { scaling: Some((1, 20)), ..stored(round) });
        }
        assert_eq!(rounds(&retention), [9, 10]);
    }

    #[test]
    fn scalings_go_with_the_last_round_that_has_them() {
        let mut retention = limited(2, u64::MAX);
        let with = |round, id| Stored { scaling: Some((id, 5)), ..stored(round) };
        assert_eq!(retention.add(with(1, 1)), Dropped::default());
        // The scaling alone has changed.
        assert_eq!(retention.add(with(1, 2)), Dropped { rounds: vec![], scalings: vec![1] });
        assert_eq!(retention.add(with(2, 2)), Dropped::default());
        let dropped = retention.add(with(3, 3));
        assert_eq!(dropped, Dropped { rounds: vec![1], scalings: vec![] });
        let dropped = retention.add(with(5, 3));
        assert_eq!(dropped, Dropped { rounds: vec![3], scalings: vec![] });
        assert_eq!(rounds(&retention), [2, 5]);
        let dropped = retention.go_back(2);
        assert_eq!(dropped, Dropped { rounds: vec![5], scalings: vec![3] });
    }

    #[test]
    fn smaller_limits_drop_what_was_kept() {
        let all = (1..=50).map(stored).collect();
        let mut retention = Retention::new(SnapshotLimits { recent: 1, most_bytes: 1_000 }, all);
        let dropped = retention.tidy();
        assert_eq!(rounds(&retention), [32, 48, 50]);
        assert_eq!(dropped.rounds.len(), 47);
    }
}
