//! [`SoftClips`]: predictions beyond the node's own labels are taken back as far as such
//! predictions have been wrong before.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// What is assumed of ρ before it is known, with the weight of one usual overshoot.
const FIRST_SHARE: f64 = 0.7;

/// For each of some experts: c + ρ(p − c), where c is p within the node's label range. ρ in [0, 1]
/// is regressed from the expert's own overshoots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SoftClips {
    /// Σ o(y − c), Σ o² and the number of overshoots o = p − c.
    products: Vec<f64>,
    squares: Vec<f64>,
    counts: Vec<f64>,
}

impl SoftClips {
    pub(super) fn new(experts: usize) -> Self {
        let zeros = || vec![0.0; experts];
        Self { products: zeros(), squares: zeros(), counts: zeros() }
    }

    /// What becomes of the prediction of an expert.
    pub(super) fn clip(&self, expert: usize, value: f64, (low, high): (f64, f64)) -> f64 {
        let within = value.clamp(low, high);
        let squares = self.squares[expert];
        let usual = squares / self.counts[expert].max(1.0);
        let weight = squares + usual;
        let share = if weight > 0.0 {
            ((self.products[expert] + FIRST_SHARE * usual) / weight).clamp(0.0, 1.0)
        } else {
            FIRST_SHARE
        };
        within + share * (value - within)
    }

    pub(super) fn learn(&mut self, expert: usize, value: f64, (low, high): (f64, f64), label: f64) {
        let within = value.clamp(low, high);
        let beyond = value - within;
        if beyond != 0.0 {
            self.products[expert] += beyond * (label - within);
            self.squares[expert] += beyond * beyond;
            self.counts[expert] += 1.0;
        }
    }

    /// As if all labels had been `gain` times as large.
    pub(super) fn rescale(&mut self, gain: f64) {
        let sums = self.products.iter_mut().chain(&mut self.squares);
        sums.for_each(|sum| *sum *= gain * gain);
    }

    /// Whether a saved state could have been reached with as many experts.
    pub(super) fn is_sound(&self, experts: usize) -> bool {
        let Self { products, squares, counts } = self;
        let all = [products, squares, counts];
        all.iter().all(|numbers| numbers.len() == experts)
            && all.iter().all(|numbers| numbers.iter().all(super::is_sum))
            && squares.iter().chain(counts).all(|number| *number >= 0.0)
    }
}
