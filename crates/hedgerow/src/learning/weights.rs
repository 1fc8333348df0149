//! Exponential weights over kernels, always in the log domain, and draws from them.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::limits::MAX_LOSS;
use crate::math;

/// The two textbook forms of the recursion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightRule {
    /// The rate multiplies each round's loss as it comes: the paper's.
    #[default]
    Incremental,
    /// Today's rate multiplies the sum of all losses so far.
    Cumulative,
}

/// Log-weights, kept so that the largest is zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExponentialWeights {
    rule: WeightRule,
    log: Vec<f64>,
    /// Losses so far, each less the smallest; empty unless the rule needs them.
    losses: Vec<f64>,
}

impl ExponentialWeights {
    /// Equal weights.
    pub fn new(rule: WeightRule, kernels: usize) -> Self {
        let remembered = match rule {
            WeightRule::Incremental => 0,
            WeightRule::Cumulative => kernels,
        };
        Self { rule, log: vec![0.0; kernels], losses: vec![0.0; remembered] }
    }

    /// Charges each kernel for its loss in this round.
    pub fn charge(&mut self, rate: f64, losses: impl IntoIterator<Item = f64>) {
        match self.rule {
            WeightRule::Incremental => {
                for (log, loss) in self.log.iter_mut().zip(losses) {
                    *log -= rate * loss;
                }
            }
            WeightRule::Cumulative => {
                for (total, loss) in self.losses.iter_mut().zip(losses) {
                    *total += loss;
                }
                let least = self.losses.iter().copied().fold(f64::INFINITY, f64::min);
                for (log, total) in self.log.iter_mut().zip(&mut self.losses) {
                    *total -= least;
                    *log = -rate * *total;
                }
            }
        }
        let largest = largest(&self.log);
        // The floor keeps the weight of a bad kernel finite for any number of losses.
        self.log.iter_mut().for_each(|log| *log = (*log - largest).max(-MAX_LOSS));
    }

    /// As if all losses so far had come `factor` times as large: what was charged in another unit
    /// is charged in this one.
    pub(crate) fn in_other_units(&mut self, factor: f64) {
        self.log
            .iter_mut()
            .chain(&mut self.losses)
            .for_each(|value| *value = (*value * factor).clamp(-MAX_LOSS, MAX_LOSS));
    }

    /// Log-weights, the largest of them zero.
    pub fn log(&self) -> &[f64] {
        &self.log
    }

    /// Weights that sum to one.
    pub fn probabilities(&self, out: &mut [f64]) {
        softmax(&self.log, out);
    }

    /// Whether a saved state is one that could have been reached with this many kernels.
    pub(crate) fn is_sound(&self, rule: WeightRule, kernels: usize) -> bool {
        let fresh = Self::new(rule, kernels);
        self.rule == rule
            && self.log.len() == kernels
            && self.losses.len() == fresh.losses.len()
            && self.log.iter().chain(&self.losses).all(|value| value.is_finite())
    }
}

/// Exponential weights, and the same as parts that sum to one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mixture {
    weights: ExponentialWeights,
    parts: Vec<f64>,
}

impl Mixture {
    /// Equal parts.
    pub(crate) fn new(rule: WeightRule, kernels: usize) -> Self {
        let parts = vec![1.0 / kernels as f64; kernels];
        Self { weights: ExponentialWeights::new(rule, kernels), parts }
    }

    pub(crate) fn charge(&mut self, rate: f64, losses: impl IntoIterator<Item = f64>) {
        self.weights.charge(rate, losses);
        self.weights.probabilities(&mut self.parts);
    }

    /// As if losses so far had come `factor` times as large. The parts stay until the next loss, so
    /// that predictions do.
    pub(crate) fn in_other_units(&mut self, factor: f64) {
        self.weights.in_other_units(factor);
    }

    pub(crate) fn log(&self) -> &[f64] {
        self.weights.log()
    }

    pub(crate) fn parts(&self) -> &[f64] {
        &self.parts
    }

    /// Whether a saved state is one that could have been reached with this many kernels.
    pub(crate) fn is_sound(&self, rule: WeightRule, kernels: usize) -> bool {
        self.weights.is_sound(rule, kernels)
            && self.parts.len() == kernels
            && is_distribution(&self.parts)
    }
}

/// Whether weights from a saved state sum to one.
pub(crate) fn is_distribution(weights: &[f64]) -> bool {
    let total: f64 = weights.iter().sum();
    weights.iter().all(|weight| (0.0..=1.0).contains(weight)) && (total - 1.0).abs() < 1e-9
}

fn largest(log: &[f64]) -> f64 {
    // Four at a time, so that one comparison needn't wait for the last.
    let (fours, few) = log.as_chunks::<4>();
    let mut largest = [f64::NEG_INFINITY; 4];
    for four in fours {
        largest = core::array::from_fn(|at| larger(largest[at], four[at]));
    }
    largest.iter().chain(few).copied().fold(f64::NEG_INFINITY, larger)
}

/// Of two numbers, none of them NaN.
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// e^gap for a gap of at most zero; a weight too small to matter is zero, without the slow path of
/// underflow.
fn relative_weight(gap: f64) -> f64 {
    if gap < -700.0 { 0.0 } else { math::exp(gap) }
}

/// Probabilities proportional to exp(log); −∞ means never.
pub fn softmax(log: &[f64], out: &mut [f64]) {
    let largest = largest(log);
    let mut total = 0.0;
    for (out, log) in out.iter_mut().zip(log) {
        *out = relative_weight(log - largest);
        total += *out;
    }
    out.iter_mut().for_each(|weight| *weight /= total);
}

/// The index that `uniform`, from 0 to below 1, falls on when index p has probability ∝
/// exp(`log[p]`).
pub fn draw(log: &[f64], uniform: f64) -> usize {
    let largest = largest(log);
    // What can't make a difference to a number of 53 bits needs no exponential, and where one is
    // left there is nothing to draw.
    let mut mattering = log.iter().enumerate().filter(|(_, log)| *log - largest >= -60.0);
    if let (Some((only, _)), None) = (mattering.next(), mattering.next()) {
        return only;
    }
    // Most dictionaries fit here, and then no exponential is taken twice.
    let mut known = [0.0; 32];
    let mut total = 0.0;
    let relative_weight = |gap: f64| if gap < -60.0 { 0.0 } else { math::exp(gap) };
    for (index, log) in log.iter().enumerate() {
        let weight = relative_weight(log - largest);
        total += weight;
        if let Some(known) = known.get_mut(index) {
            *known = weight;
        }
    }
    let mut left = uniform * total;
    let mut chosen = 0;
    for (index, log) in log.iter().enumerate() {
        let weight = known.get(index).copied().unwrap_or_else(|| relative_weight(log - largest));
        if weight > 0.0 {
            // Rounding may leave a little behind the last index: then the last one is drawn.
            chosen = index;
            if left < weight {
                break;
            }
            left -= weight;
        }
    }
    chosen
}

/// Log-probabilities of the server's draw: kernel p ∝ N_p^n for N_p votes among n. (N^n itself
/// overflows from a few hundred nodes on.)
pub fn vote_log_weights(votes: &[u64], out: &mut [f64]) {
    let cast: u64 = votes.iter().sum();
    for (out, &votes) in out.iter_mut().zip(votes) {
        *out = cast as f64 * math::ln(votes as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_rules_agree_for_a_constant_rate() {
        let mut one = ExponentialWeights::new(WeightRule::Incremental, 3);
        let mut two = ExponentialWeights::new(WeightRule::Cumulative, 3);
        for round in 0..50 {
            let losses = [0.3, 0.1 * f64::from(round % 3), 0.2];
            one.charge(0.7, losses);
            two.charge(0.7, losses);
        }
        for (a, b) in one.log().iter().zip(two.log()) {
            assert!((a - b).abs() < 1e-9);
        }
    }

    #[test]
    fn rules_differ_for_a_falling_rate() {
        let mut one = ExponentialWeights::new(WeightRule::Incremental, 2);
        let mut two = ExponentialWeights::new(WeightRule::Cumulative, 2);
        for (rate, losses) in [(1.0, [1.0, 0.0]), (0.5, [1.0, 0.0])] {
            one.charge(rate, losses);
            two.charge(rate, losses);
        }
        assert_eq!(one.log(), [-1.5, 0.0]);
        assert_eq!(two.log(), [-1.0, 0.0]);
    }

    #[test]
    fn hopeless_kernels_stay_finite() {
        let mut weights = ExponentialWeights::new(WeightRule::Incremental, 2);
        for _ in 0..100 {
            weights.charge(1e30, [1e308, 0.0]);
        }
        let mut out = [0.0; 2];
        weights.probabilities(&mut out);
        assert_eq!(out, [0.0, 1.0]);
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let log = [0.5f64.ln(), f64::NEG_INFINITY, 0.3f64.ln(), 0.2f64.ln()];
        let mut counts = [0u32; 4];
        for i in 0..10_000 {
            counts[draw(&log, (f64::from(i) + 0.5) / 10_000.0)] += 1;
        }
        assert_eq!(counts, [5000, 0, 3000, 2000]);
        assert_eq!(draw(&log, 1.0), 3, "what rounding leaves goes to the last possible index");
    }

    #[test]
    fn ten_thousand_votes_do_not_overflow() {
        let mut votes = [0u64; 11];
        votes[4] = 5_001;
        votes[7] = 4_999;
        let (mut log, mut out) = ([0.0; 11], [0.0; 11]);
        vote_log_weights(&votes, &mut log);
        softmax(&log, &mut out);
        // (5001/4999)^10000 = e^4.0005.
        let odds = (10_000.0 * (5001f64 / 4999.0).ln()).exp();
        assert!((out[4] / out[7] / odds - 1.0).abs() < 1e-6);
        assert_eq!(out.iter().filter(|p| **p > 0.0).count(), 2);
    }
}
