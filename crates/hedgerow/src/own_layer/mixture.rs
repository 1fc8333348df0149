//! [`ExpertMixture`]: weights over predictions of the same label, by Bernstein online aggregation.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::math;

/// Factor per sample of what the weights remember: half of it after 500 samples.
const MEMORY: f64 = 0.998_614_666_101_028_9;

/// √[`MEMORY`].
const MEMORY_ROOT: f64 = 0.999_307_092_990_452_5;

/// Factor per sample of the losses that set the unit: half of them after 10 samples.
const UNIT_MEMORY: f64 = 0.933_032_991_536_807_4;

/// Factor per sample of the losses that set the radius: half of them after 5 samples.
const RADIUS_MEMORY: f64 = 0.870_550_563_296_124_1;

/// Experts are at most this many root mean squared errors of the first one from it; after n samples
/// n/(n + [`EARLY_SAMPLES`]) of that.
const RADIUS: f64 = 3.2;
const EARLY_SAMPLES: f64 = 2.0;

/// The square of the radius grows with how much more the first expert has lost than the best, up to
/// this factor: the last label may have been exact for long and will be wrong when labels jump.
const MAX_RELIEF: f64 = 14.0;

/// Regrets of one sample count at most this much, in units of the best loss.
const MAX_REGRET: f64 = 8.0;

/// The least range of an expert's regrets, relative to the largest.
const LEAST_RANGE: f64 = 1e-6;

/// Factor of the rates that the regret bound would have.
const CAUTION: f64 = 0.7;

/// An expert that has lost more than this many times the best loss gets less weight at once, by
/// that ratio to the power of a share of the samples.
const TOLERATED_RATIO: f64 = 2.0;
const RATIO_SHARE: f64 = 0.5;

/// Keeps a division by zero finite.
const TINY: f64 = 1e-300;

/// Weights of M experts. Losses are squared errors in units of the least mean loss of late.
///
/// With p the mixture's prediction, p_m that of expert m and u the unit, the regret is
/// r_m = 2(p − y)(p − p_m)/u, bounded. An expert's rate η_m follows from its prior π_m and from
/// Σr² and the largest |r|; its weight is proportional to π_m η_m exp(η_m Σ(r − η_m r²)).
///
/// Two rules make it quick where experts differ by orders of magnitude. The first expert is the
/// federation: if it is nearly exact, no other may be far from it. With few samples the distance is
/// about one error: then it costs little to follow another expert. And an expert that has lost
/// several times as much as the best gets less weight before its regrets are known well. The first
/// sample, where all experts agree, doesn't count for that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ExpertMixture {
    weights: Vec<f64>,
    /// Σ(r − η r²), Σr² and the largest |r|, discounted.
    regrets: Vec<f64>,
    squares: Vec<f64>,
    ranges: Vec<f64>,
    /// Discounted squared errors, and the number of samples in them.
    losses: Vec<f64>,
    count: f64,
    /// The same without the first sample.
    compared: Vec<f64>,
    compared_count: f64,
    /// The same of all samples, of experts before they were bounded, with a shorter memory.
    recent: Vec<f64>,
    recent_count: f64,
}

impl ExpertMixture {
    pub(super) fn new(prior: &[f64]) -> Self {
        let zeros = || vec![0.0; prior.len()];
        Self {
            weights: prior.to_vec(),
            regrets: zeros(),
            squares: zeros(),
            ranges: zeros(),
            losses: zeros(),
            count: 0.0,
            compared: zeros(),
            compared_count: 0.0,
            recent: zeros(),
            recent_count: 0.0,
        }
    }

    pub(super) fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Writes the experts as they are mixed after so many samples, and returns their mixture.
    pub(super) fn predict(&self, experts: &[f64], samples: u64, bounded: &mut [f64]) -> f64 {
        let (first, radius) = (experts[0], self.radius(samples as f64));
        let mut mixed = 0.0;
        for ((bounded, expert), weight) in bounded.iter_mut().zip(experts).zip(&self.weights) {
            *bounded = expert.clamp(first - radius, first + radius);
            mixed += weight * *bounded;
        }
        mixed
    }

    /// How far from the first expert the others may be.
    fn radius(&self, samples: f64) -> f64 {
        if self.recent_count == 0.0 {
            return f64::INFINITY;
        }
        let first = self.recent[0];
        let relief = ((first + TINY) / (least(&self.recent) + TINY)).min(MAX_RELIEF);
        let share = samples / (samples + EARLY_SAMPLES);
        RADIUS * share * math::sqrt(first / self.recent_count * relief)
    }

    /// Charges the experts for a label. `bounded` and `mixed` are what [`Self::predict`] made of
    /// them; `prior` is that of the next sample.
    pub(super) fn learn(
        &mut self,
        experts: &[f64],
        (bounded, mixed): (&[f64], f64),
        label: f64,
        prior: impl Fn(usize) -> f64,
    ) {
        let Self { weights, regrets, squares, ranges, losses, recent, compared, .. } = self;
        let add = |losses: &mut [f64], experts: &[f64], memory: f64| {
            for (loss, expert) in losses.iter_mut().zip(experts) {
                *loss = memory * *loss + (expert - label) * (expert - label);
            }
        };
        let is_first = self.count == 0.0;
        add(recent, experts, RADIUS_MEMORY);
        self.recent_count = RADIUS_MEMORY * self.recent_count + 1.0;
        add(losses, bounded, UNIT_MEMORY);
        self.count = UNIT_MEMORY * self.count + 1.0;
        if !is_first {
            add(compared, bounded, UNIT_MEMORY);
            self.compared_count = UNIT_MEMORY * self.compared_count + 1.0;
        }
        let slope = 2.0 * (mixed - label) / ((least(losses) + TINY) / self.count);
        // Regrets stand in the weights until these are known.
        for (regret, expert) in weights.iter_mut().zip(bounded) {
            let exact = slope * (mixed - expert);
            *regret = if exact.is_nan() { 0.0 } else { exact.clamp(-MAX_REGRET, MAX_REGRET) };
        }
        for ((range, square), regret) in ranges.iter_mut().zip(squares.iter_mut()).zip(&*weights) {
            *range = (MEMORY_ROOT * *range).max(regret.abs());
            *square = MEMORY * *square + regret * regret;
        }
        let floor = (LEAST_RANGE * ranges.iter().copied().fold(0.0, f64::max)).max(1e-150);
        let best = least(compared) + TINY;
        let mut largest = f64::NEG_INFINITY;
        for (at, weight) in weights.iter_mut().enumerate() {
            let prior = math::ln(prior(at));
            let by_range = 1.0 / ranges[at].max(floor);
            let rate = CAUTION * by_range.min(math::sqrt(-prior / squares[at].max(TINY)));
            let regret = *weight;
            regrets[at] = MEMORY * regrets[at] + regret - rate * regret * regret;
            let ratio = (TOLERATED_RATIO * best / (compared[at] + TINY)).min(1.0);
            let loss = RATIO_SHARE * self.compared_count * math::ln(ratio);
            *weight = prior + math::ln(rate) + rate * regrets[at] + loss;
            largest = largest.max(*weight);
        }
        let mut sum = 0.0;
        for weight in weights.iter_mut() {
            *weight = math::exp(*weight - largest);
            sum += *weight;
        }
        weights.iter_mut().for_each(|weight| *weight /= sum);
    }

    /// As if all labels had been `gain` times as large.
    pub(super) fn rescale(&mut self, gain: f64) {
        let losses = self.losses.iter_mut().chain(&mut self.recent).chain(&mut self.compared);
        losses.for_each(|loss| *loss *= gain * gain);
    }

    /// Whether a saved state could have been reached with as many experts.
    pub(super) fn is_sound(&self, experts: usize) -> bool {
        let Self { weights, regrets, squares, ranges, losses, compared, recent, .. } = self;
        let all = [weights, regrets, squares, ranges, losses, compared, recent];
        let never_negative = [weights, squares, ranges, losses, compared, recent];
        let counts = [self.count, self.compared_count, self.recent_count];
        all.iter().all(|numbers| numbers.len() == experts)
            && all.iter().all(|numbers| numbers.iter().all(super::is_sum))
            && never_negative.iter().all(|numbers| numbers.iter().all(|number| *number >= 0.0))
            && (weights.iter().sum::<f64>() - 1.0).abs() < 1e-6
            && counts.iter().all(|count| (0.0..=100.0).contains(count))
    }
}

fn least(losses: &[f64]) -> f64 {
    losses.iter().copied().fold(f64::INFINITY, f64::min)
}
