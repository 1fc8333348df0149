//! What nodes have told of a block, though uploads get lost.
//!
//! A gradient or a verdict over a few nodes is one of their samples only. If too few have answered,
//! the same block is asked for once more at the same parameters, and those who weren't heard tell.
//! Those who were send zeros. Without losses every block is asked for once.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::super::gr_ofl::known_samples;
use crate::limits::MAX_SUM;

/// A block is asked for again if less than this share of the known samples is behind what came, and
/// this often in all.
const ENOUGH: f64 = 0.7;
const MOST_ASKED: u32 = 2;

/// Numbers after the gradient: half, whole, base and count.
const SCALARS: usize = 4;

/// What nodes tell of a block, in sums.
pub(super) struct BlockSums<'a> {
    pub(super) gradient: &'a [f64],
    /// By how much half and the whole of the step on trial change the squared errors.
    pub(super) half: f64,
    pub(super) whole: f64,
    /// Squared errors at θ.
    pub(super) base: f64,
    /// Samples in the histories of those who answered, and of all nodes as far as is known.
    pub(super) count: f64,
    pub(super) known: f64,
}

/// Sums over all rounds in which a block is asked for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Told {
    sums: Vec<f64>,
    /// Rounds so far.
    asked: u32,
    /// Samples that all nodes have, as far as is known.
    known: f64,
}

impl Told {
    /// Adds the sums of a round, of which the last is the number of samples. Whether that is
    /// enough.
    pub(super) fn add(&mut self, sums: &[f64]) -> bool {
        if self.asked == 0 {
            self.sums.clear();
        }
        self.sums.resize(sums.len(), 0.0);
        for (total, sum) in self.sums.iter_mut().zip(sums) {
            *total = (*total + sum).clamp(-MAX_SUM, MAX_SUM);
        }
        self.asked += 1;
        let count = self.sums.last().copied().unwrap_or(0.0);
        let is_enough = count >= ENOUGH * self.known || self.asked >= MOST_ASKED;
        if is_enough {
            self.known = known_samples(self.known, count);
            self.begin();
        }
        is_enough
    }

    /// The next sums are the first ones.
    pub(super) fn begin(&mut self) {
        self.asked = 0;
    }

    pub(super) fn sums(&self) -> BlockSums<'_> {
        let (gradient, scalars) = self.sums.split_at(self.sums.len().saturating_sub(SCALARS));
        let [half, whole, base, count] =
            core::array::from_fn(|at| scalars.get(at).copied().unwrap_or(0.0));
        BlockSums { gradient, half, whole, base, count, known: self.known }
    }

    /// Whether a restored one could have been reached.
    pub(super) fn is_sound(&self) -> bool {
        self.sums.iter().chain([&self.known]).all(|sum| sum.abs() <= MAX_SUM)
            && self.asked < MOST_ASKED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_were_not_heard_are_asked_once_more() {
        let mut told = Told::default();
        // Gradient, half, whole, base, count.
        assert!(told.add(&[1.0, -2.0, -3.0, 8.0, 100.0]));
        assert!(!told.add(&[1.0, -1.0, -1.0, 4.0, 60.0]));
        assert!(told.add(&[2.0, 0.5, 0.5, 2.0, 30.0]));
        let BlockSums { gradient, half, whole, base, count, known } = told.sums();
        assert_eq!((gradient, half, whole), (&[3.0][..], -0.5, -0.5));
        assert_eq!((base, count, known), (6.0, 90.0, 97.0));
        // Another block; nobody waits for nodes that have left.
        assert!(!told.add(&[1.0, 1.0, 0.0, 0.0, 0.0, 10.0]));
        assert!(told.add(&[1.0, 1.0, 0.0, 0.0, 0.0, 0.0]));
        assert_eq!((told.sums().gradient.len(), told.sums().count), (2, 10.0));
    }
}
