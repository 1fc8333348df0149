//! [`SmallRidge`]: a regression of labels on the federation's prediction and what the node knows
//! of its own labels.

use serde::{Deserialize, Serialize};

use super::EXTRAS;
use crate::linear_algebra::Cholesky;

/// A one, the federation's prediction, and the extra inputs.
pub(super) const TERMS: usize = 2 + EXTRAS;

const ENTRIES: usize = TERMS * (TERMS + 1) / 2;

/// Where the prediction is among the terms.
const GLOBAL: usize = 1;

/// The penalty, in variances of the labels.
const PENALTY: f64 = 3.0;

/// Ridge regression of y on [`TERMS`] terms, shrunk towards the federation's prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SmallRidge {
    /// Factor per sample of the sums.
    memory: f64,
    /// Σ u uᵀ, lower triangle row by row, and Σ u y.
    gram: [f64; ENTRIES],
    moment: [f64; TERMS],
}

impl SmallRidge {
    pub(super) fn new(memory: f64) -> Self {
        Self { memory, gram: [0.0; ENTRIES], moment: [0.0; TERMS] }
    }

    /// How far its prediction is from the federation's. `variance` is that of the labels.
    pub(super) fn correction(&self, terms: &[f64; TERMS], variance: f64) -> f64 {
        let mut gram = self.gram;
        for term in 0..TERMS {
            gram[diagonal(term)] += if term == 0 { 1.0 } else { PENALTY * variance };
        }
        // Coefficients as distances from those of the prediction itself.
        let mut coefficients: [f64; TERMS] =
            core::array::from_fn(|term| self.moment[term] - self.entry(term, GLOBAL));
        Cholesky::new(gram, TERMS, 0.0, 0.0).solve(&mut coefficients);
        coefficients.iter().zip(terms).map(|(coefficient, term)| coefficient * term).sum()
    }

    pub(super) fn learn(&mut self, terms: &[f64; TERMS], label: f64) {
        let mut at = 0;
        for i in 0..TERMS {
            self.moment[i] = self.memory * self.moment[i] + terms[i] * label;
            for other in &terms[..=i] {
                self.gram[at] = self.memory * self.gram[at] + terms[i] * other;
                at += 1;
            }
        }
    }

    /// As if all labels had been `gain` times as large.
    pub(super) fn rescale(&mut self, gain: f64) {
        let factor = |term: usize| if term == 0 { 1.0 } else { gain };
        for i in 0..TERMS {
            self.moment[i] *= gain * factor(i);
            for j in 0..=i {
                self.gram[i * (i + 1) / 2 + j] *= factor(i) * factor(j);
            }
        }
    }

    /// Whether a saved state could have been reached with this memory.
    pub(super) fn is_sound(&self, memory: f64) -> bool {
        self.memory == memory
            && self.gram.iter().chain(&self.moment).all(super::is_sum)
            && (0..TERMS).all(|term| self.gram[diagonal(term)] >= 0.0)
    }

    fn entry(&self, i: usize, j: usize) -> f64 {
        let (row, column) = (i.max(j), i.min(j));
        self.gram[row * (row + 1) / 2 + column]
    }
}

fn diagonal(term: usize) -> usize {
    term * (term + 1) / 2 + term
}
