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
    sum: ExactSum,
    /// Votes per kernel; empty if the method has none.
    votes: Vec<u64>,
    heard: Heard,
}

impl Gathering {
    /// For uploads of `len` numbers, with votes among `kernels` (0: no votes).
    pub(crate) fn new(len: usize, kernels: usize) -> Self {
        Self { sum: ExactSum::new(len), votes: vec![0; kernels], heard: Heard::default() }
    }

    /// Takes an upload for the open round, or refuses it and stays as it was.
    pub(crate) fn accept(&mut self, open: u64, from: NodeId, upload: &Upload) -> Result<(), Rejected> {
        if upload.round != open {
            let found = upload.round;
            return Err(Rejected::WrongRound { open, found });
        }
        if upload.numbers.len() != self.sum.len() {
            let (expected, found) = (self.sum.len(), upload.numbers.len());
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
        self.sum.add(&upload.numbers);
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
        self.sum.totals()
    }

    /// Writes the mean of the first `out.len()` numbers.
    pub(crate) fn mean(&self, out: &mut [f32]) {
        let share = 1.0 / self.count() as f64;
        for (out, total) in out.iter_mut().zip(self.totals()) {
            *out = (total * share) as f32;
        }
    }

    /// Ready for the next round.
    pub(crate) fn clear(&mut self) {
        self.sum.clear();
        self.votes.fill(0);
        self.heard.clear();
    }

    pub(crate) fn is_sound(&self, len: usize, kernels: usize) -> bool {
        let cast: u64 = self.votes.iter().fold(0, |sum, votes| sum.saturating_add(*votes));
        // As far as uploads can take it, and a little room for rounding.
        let farthest = (1.0 + 1e-9) * f64::from(MAX_NUMBER) * self.count() as f64;
        self.sum.is_sound(len, farthest)
            && self.votes.len() == kernels
            && self.heard.is_sound()
            && (kernels == 0 || cast == self.count() as u64)
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
