//! [`Personal`]: what a node knows better about its own labels than the federation does. Nothing of
//! it travels.
//!
//! A small ridge regression of y on (1, ŷ, the node's last label, its mean label), shrunk towards ŷ
//! itself, gives a second opinion; it is mixed with ŷ by exponential weights on the node's own
//! squared errors. Where the federation's ŷ can't be improved, its weight stays near one.
//!
//! Everything scales with the labels: the penalty of a coefficient that multiplies labels is λ
//! times the square of their range, that of the constant is λ, and losses count relative to that
//! square, or to the federation's mean squared error where that is more.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::limits::MAX_LABEL;
use crate::linear_algebra::Cholesky;
use crate::math;
use crate::state::{BadState, StateKind, is_count};

/// λ: how strongly coefficients are held to (0, 1, 0, 0).
const PENALTY: f64 = 0.1;

/// Rate of the weights, per squared range.
const RATE: f64 = 8.0;

const KIND: StateKind = StateKind::new("personal");

const TERMS: usize = 4;

/// One node's own layer over any method's predictions.
///
/// ```
/// let mut own = hedgerow::learning::Personal::default();
/// // The federation is off by one half at this node, again and again.
/// for t in 0..50 {
///     let (global, label) = ((t % 5) as f32, (t % 5) as f32 + 0.5);
///     own.learn(global, label);
/// }
/// assert!((own.predict(2.0) - 2.5).abs() < 0.05);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Personal {
    /// Σ φ φᵀ, lower triangle row by row.
    gram: [f64; TERMS * (TERMS + 1) / 2],
    /// Σ φ y.
    moment: [f64; TERMS],
    count: u64,
    last: f64,
    mean: f64,
    smallest: f64,
    largest: f64,
    /// Σ squared error of the global prediction and of the regression.
    losses: [f64; 2],
}

impl Default for Personal {
    fn default() -> Self {
        Self {
            gram: [0.0; TERMS * (TERMS + 1) / 2],
            moment: [0.0; TERMS],
            count: 0,
            last: 0.0,
            mean: 0.0,
            smallest: 0.0,
            largest: 0.0,
            losses: [0.0; 2],
        }
    }
}

impl Personal {
    /// The node's own prediction, given the federation's. Pure. Before the first label it is the
    /// federation's.
    pub fn predict(&self, global: f32) -> f32 {
        if self.count == 0 {
            return global;
        }
        let global = bounded(global);
        let [_, own] = self.opinions(global);
        let [weight, _] = self.weights();
        (weight * global + (1.0 - weight) * own) as f32
    }

    /// Learns from a label and the federation's prediction of it. What isn't a number of reasonable
    /// size is left out.
    pub fn learn(&mut self, global: f32, label: f32) {
        if label.is_nan() || label.abs() > MAX_LABEL {
            return;
        }
        let (global, y) = (bounded(global), f64::from(label));
        if self.count > 0 {
            let opinions = self.opinions(global);
            for (loss, opinion) in self.losses.iter_mut().zip(opinions) {
                *loss += (opinion - y) * (opinion - y);
            }
        }
        let terms = self.terms(global);
        let mut at = 0;
        for i in 0..TERMS {
            self.moment[i] += terms[i] * y;
            for j in 0..=i {
                self.gram[at] += terms[i] * terms[j];
                at += 1;
            }
        }
        let first = self.count == 0;
        self.smallest = if first { y } else { self.smallest.min(y) };
        self.largest = if first { y } else { self.largest.max(y) };
        self.count += 1;
        self.last = y;
        self.mean += (y - self.mean) / self.count as f64;
    }

    /// How much the federation's prediction and the node's own regression have in the node's
    /// prediction; sums to one.
    pub fn weights(&self) -> [f64; 2] {
        // Where labels have always been the same, errors are large or small beside those of the
        // federation.
        let size2 = self.range2().max(self.losses[0] / self.count.max(1) as f64);
        if size2 == 0.0 {
            return [1.0, 0.0];
        }
        let own = 1.0 / (1.0 + math::exp(RATE / size2 * (self.losses[1] - self.losses[0])));
        [1.0 - own, own]
    }

    /// Everything that has to survive a restart.
    pub fn save(&self) -> Vec<u8> {
        KIND.save(self)
    }

    /// Continues from a saved state. A refused state changes nothing.
    pub fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        *self = KIND.restore(saved, |state: &Self| {
            let bound = f64::from(MAX_LABEL);
            let labels = [state.last, state.mean, state.smallest, state.largest];
            let sums = || state.gram.iter().chain(&state.moment).chain(&state.losses);
            is_count(state.count)
                && labels.iter().all(|label| label.abs() <= bound)
                && state.smallest <= state.last.min(state.mean)
                && state.largest >= state.last.max(state.mean)
                && [0, 2, 5, 9].iter().all(|at| state.gram[*at] >= 0.0)
                && sums().all(|sum| sum.is_finite())
                && state.losses.iter().all(|loss| *loss >= 0.0)
        })?;
        Ok(())
    }

    fn range2(&self) -> f64 {
        (self.largest - self.smallest) * (self.largest - self.smallest)
    }

    fn terms(&self, global: f64) -> [f64; TERMS] {
        [1.0, global, self.last, self.mean]
    }

    /// What the federation says, and what the node's own regression makes of it.
    fn opinions(&self, global: f64) -> [f64; 2] {
        let mut gram = self.gram;
        let range2 = self.range2();
        if range2 == 0.0 {
            return [global, global.clamp(self.smallest, self.largest)];
        }
        for (term, at) in [0, 2, 5, 9].into_iter().enumerate() {
            gram[at] += PENALTY * if term == 0 { 1.0 } else { range2 };
        }
        // Coefficients as distances from (0, 1, 0, 0): Σ φ(y − ŷ) on the right.
        let among_global = [self.gram[1], self.gram[2], self.gram[4], self.gram[7]];
        let mut coefficients: [f64; TERMS] =
            core::array::from_fn(|term| self.moment[term] - among_global[term]);
        Cholesky::new(gram, TERMS, 0.0, 1e-12 * range2).solve(&mut coefficients);
        coefficients[1] += 1.0;
        let own: f64 = coefficients.iter().zip(self.terms(global)).map(|(c, term)| c * term).sum();
        [global, if own.is_finite() { own.clamp(self.smallest, self.largest) } else { global }]
    }
}

/// A prediction of reasonable size; zero if it isn't a number.
fn bounded(value: f32) -> f64 {
    if value.is_nan() { 0.0 } else { f64::from(value.clamp(-MAX_LABEL, MAX_LABEL)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::CounterRng;

    /// Mean squared errors of the federation and of the node, when a node's labels are made from
    /// the global prediction.
    fn errors(label: impl Fn(f32, u64) -> f32) -> (f64, f64) {
        let (stream, mut own) = (CounterRng::from_seed(3), Personal::default());
        let (mut global_error, mut own_error) = (0.0, 0.0);
        for t in 0..300 {
            let global = stream.uniform_at(t) as f32;
            let y = label(global, t);
            global_error += f64::from(global - y).powi(2);
            own_error += f64::from(own.predict(global) - y).powi(2);
            own.learn(global, y);
        }
        (global_error / 300.0, own_error / 300.0)
    }

    #[test]
    fn an_offset_of_the_node_s_own_is_learned() {
        let (global, own) = errors(|global, _| 0.3 * global + 5.0);
        assert!(own < 0.1 * global, "{own} against {global}");
    }

    #[test]
    fn a_label_that_is_always_the_same_is_learned_at_once() {
        let mut own = Personal::default();
        (0..3).for_each(|_| own.learn(0.8, 0.2));
        assert!((own.predict(0.9) - 0.2).abs() < 1e-3, "{}", own.predict(0.9));
    }

    #[test]
    fn where_nothing_can_be_improved_little_is_lost() {
        let noise = CounterRng::from_seed(9);
        let (global, own) = errors(|global, t| global + 0.2 * (noise.uniform_at(t) as f32 - 0.5));
        assert!(own < 1.05 * global, "{own} against {global}");
    }

    #[test]
    fn predictions_scale_with_the_labels() {
        let play = |size: f32| {
            let mut own = Personal::default();
            let stream = CounterRng::from_seed(1);
            (0..40).for_each(|t| {
                let global = size * stream.uniform_at(t) as f32;
                own.learn(global, 0.5 * global + size * stream.uniform_at(t + 99) as f32);
            });
            own.predict(0.7 * size) / size
        };
        for size in [1e-6, 1e6] {
            assert!(
                (play(size) - play(1.0)).abs() < 1e-3,
                "{size}: {} against {}",
                play(size),
                play(1.0)
            );
        }
    }

    #[test]
    fn whatever_comes_it_stays_finite() {
        let wild = [0.0, 1e12, -1e12, f32::NAN, f32::INFINITY, 1e-30, 3e38];
        let mut own = Personal::default();
        for t in 0..2000 {
            let (global, label) = (wild[t % 7], wild[t * 3 % 5]);
            assert!(own.predict(global).is_finite() || own.count == 0);
            own.learn(global, label);
            let sum: f64 = own.weights().iter().sum();
            assert!((sum - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn save_and_load_changes_nothing_and_nonsense_is_refused() {
        let mut own = Personal::default();
        (0..9).for_each(|t| own.learn(t as f32, 2.0 * t as f32));
        let mut copy = Personal::default();
        copy.restore(&own.save()).unwrap();
        assert_eq!(copy, own);
        for bad in [
            Personal { losses: [-1.0, 0.0], ..own.clone() },
            Personal { last: f64::NAN, ..own.clone() },
        ] {
            assert!(copy.restore(&bad.save()).is_err());
        }
        let reversed = Personal { smallest: 99.0, ..own.clone() };
        assert!(copy.restore(&reversed.save()).is_err());
        assert!(copy.restore(&[]).is_err() && copy == own);
    }
}
