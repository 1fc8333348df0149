//! [`Gathering`]: the uploads of the open round, checked, summed and counted. Every server half has one.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::message::{NodeId, Rejected, Upload};
use crate::method::MAX_NUMBER;
use crate::simd;
use crate::sum::ExactSum;

/// Sums of what came in this round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gathering {
    /// One of everything, or one for each kernel that may be voted for.
    sums: Vec<ExactSum>,
    /// Votes per kernel; empty if the method has none.
    votes: Vec<u64>,
    heard: Heard,
}

impl Gathering {
    /// For uploads of `len` numbers, with votes among `kernels` (0: no votes).
    pub(crate) fn new(len: usize, kernels: usize) -> Self {
        Self { sums: vec![ExactSum::new(len)], votes: vec![0; kernels], heard: Heard::default() }
    }

    /// The same with a sum for the voters of each kernel, and none of everything.
    pub(crate) fn by_vote(len: usize, kernels: usize) -> Self {
        Self { sums: vec![ExactSum::new(len); kernels], ..Self::new(len, kernels) }
    }

    /// Takes an upload for the open round, or refuses it and stays as it was.
    pub(crate) fn accept(&mut self, open: u64, from: NodeId, upload: &Upload) -> Result<(), Rejected> {
        if upload.round != open {
            let found = upload.round;
            return Err(Rejected::WrongRound { open, found });
        }
        let expected = self.sums[0].len();
        if upload.numbers.len() != expected {
            let found = upload.numbers.len();
            return Err(Rejected::WrongLength { expected, found });
        }
        check_numbers(&upload.numbers)?;
        let vote = match (upload.vote, self.votes.len()) {
            (None, 0) => None,
            (Some(vote), kernels) if (vote as usize) < kernels => Some(vote as usize),
            (found, kernels) => {
                let last = kernels.saturating_sub(1) as u32;
                return Err(Rejected::WrongKernel { found, last });
            }
        };
        if !self.heard.insert(from) {
            return Err(Rejected::Duplicate { node: from, round: open });
        }
        if let Some(vote) = vote {
            self.votes[vote] += 1;
        }
        let own = if self.sums.len() > 1 { vote.unwrap_or(0) } else { 0 };
        self.sums[own].add(&upload.numbers);
        Ok(())
    }

    /// How many uploads came.
    pub(crate) fn count(&self) -> usize {
        self.heard.count
    }

    pub(crate) fn votes(&self) -> &[u64] {
        &self.votes
    }

    /// Sums, number by number.
    pub(crate) fn totals(&self) -> impl Iterator<Item = f64> {
        self.sums[0].totals()
    }

    /// Writes the mean of the first `out.len()` numbers.
    pub(crate) fn mean(&self, out: &mut [f32]) {
        write_mean(&self.sums[0], self.count() as u64, out);
    }

    /// Writes the mean of those who voted for a kernel, which somebody must have done.
    pub(crate) fn mean_of_voters(&self, kernel: usize, out: &mut [f32]) {
        write_mean(&self.sums[kernel], self.votes[kernel], out);
    }

    /// Ready for the next round.
    pub(crate) fn clear(&mut self) {
        self.sums.iter_mut().for_each(ExactSum::clear);
        self.votes.fill(0);
        self.heard.clear();
    }

    /// Whether a saved state has the shape of a known one and no number that can't be.
    pub(crate) fn is_sound(&self, known: &Self) -> bool {
        let cast: u64 = self.votes.iter().fold(0, |sum, votes| sum.saturating_add(*votes));
        let is_reached = |kernel: usize, sum: &ExactSum| {
            let uploads = if self.sums.len() > 1 { self.votes[kernel] } else { self.count() as u64 };
            // As far as uploads can take it, and a little room for rounding.
            sum.is_sound(known.sums[0].len(), (1.0 + 1e-9) * f64::from(MAX_NUMBER) * uploads as f64)
        };
        self.sums.len() == known.sums.len()
            && self.votes.len() == known.votes.len()
            && self.sums.iter().enumerate().all(|(kernel, sum)| is_reached(kernel, sum))
            && self.heard.is_sound()
            && (self.votes.is_empty() || cast == self.count() as u64)
    }
}

fn write_mean(sum: &ExactSum, terms: u64, out: &mut [f32]) {
    let share = 1.0 / terms as f64;
    for (out, total) in out.iter_mut().zip(sum.totals()) {
        *out = (total * share) as f32;
    }
}

/// Refuses numbers that no honest node sends.
pub(crate) fn check_numbers(numbers: &[f32]) -> Result<(), Rejected> {
    match simd::first_beyond(numbers, MAX_NUMBER) {
        None => Ok(()),
        Some((position, value)) => Err(Rejected::OutOfBounds { position, value, bound: MAX_NUMBER }),
    }
}

/// Who has been heard: one bit per node where ids are small, a set for the others, so that a hostile id can't ask for memory.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Heard {
    bits: Vec<u64>,
    others: BTreeSet<NodeId>,
    count: usize,
}

const SMALL_IDS: NodeId = 1 << 24;

impl Heard {
    /// Whether the node is new.
    fn insert(&mut self, node: NodeId) -> bool {
        let new = if node < SMALL_IDS {
            let (word, bit) = (node as usize / 64, 1u64 << (node % 64));
            if word >= self.bits.len() {
                self.bits.resize(word + 1, 0);
            }
            let new = self.bits[word] & bit == 0;
            self.bits[word] |= bit;
            new
        } else {
            self.others.insert(node)
        };
        self.count += usize::from(new);
        new
    }

    fn clear(&mut self) {
        self.bits.fill(0);
        self.others.clear();
        self.count = 0;
    }

    fn is_sound(&self) -> bool {
        let small: usize = self.bits.iter().map(|word| word.count_ones() as usize).sum();
        self.bits.len() <= SMALL_IDS as usize / 64
            && self.others.first().is_none_or(|id| *id >= SMALL_IDS)
            && self.count == small + self.others.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upload(round: u64, vote: Option<u32>, numbers: &[f32]) -> Upload {
        Upload { round, vote, numbers: numbers.to_vec() }
    }

    #[test]
    fn voters_have_means_of_their_own() {
        let mut gathering = Gathering::by_vote(1, 3);
        for (node, vote, number) in [(1, 0, 5.0), (2, 2, 1.0), (3, 2, 4.0)] {
            gathering.accept(1, node, &upload(1, Some(vote), &[number])).unwrap();
        }
        let means = [0, 2].map(|kernel| {
            let mut mean = [0.0];
            gathering.mean_of_voters(kernel, &mut mean);
            mean[0]
        });
        assert_eq!(means, [5.0, 2.5]);
        assert!(gathering.is_sound(&Gathering::by_vote(1, 3)));
        assert!(!gathering.is_sound(&Gathering::new(1, 3)) && !gathering.is_sound(&Gathering::by_vote(1, 4)));
        gathering.clear();
        assert_eq!(gathering, Gathering { heard: gathering.heard.clone(), ..Gathering::by_vote(1, 3) });
    }

    #[test]
    fn bad_uploads_are_refused_and_change_nothing() {
        let mut gathering = Gathering::new(2, 3);
        gathering.accept(5, 1, &upload(5, Some(2), &[1.0, 2.0])).unwrap();
        let before = gathering.clone();
        let refused = [
            (2, upload(4, Some(0), &[1.0, 2.0])),
            (2, upload(6, Some(0), &[1.0, 2.0])),
            (1, upload(5, Some(0), &[1.0, 2.0])),
            (2, upload(5, Some(0), &[1.0])),
            (2, upload(5, Some(3), &[1.0, 2.0])),
            (2, upload(5, None, &[1.0, 2.0])),
            (2, upload(5, Some(0), &[f32::NAN, 2.0])),
            (2, upload(5, Some(0), &[1.0, f32::NEG_INFINITY])),
            (2, upload(5, Some(0), &[1e31, 2.0])),
        ];
        for (from, upload) in refused {
            assert!(gathering.accept(5, from, &upload).is_err(), "{upload:?}");
            assert_eq!(gathering, before);
        }
        gathering.accept(5, NodeId::MAX, &upload(5, Some(0), &[3.0, 4.0])).unwrap();
        assert!(gathering.accept(5, NodeId::MAX, &upload(5, Some(0), &[3.0, 4.0])).is_err());
        let mut mean = [0.0; 2];
        gathering.mean(&mut mean);
        assert_eq!((mean, gathering.count()), ([2.0, 3.0], 2));
        assert_eq!(gathering.votes(), [1, 0, 1]);
    }
}
