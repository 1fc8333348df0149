//! Classes: labels ±1 of outputs, and probabilities from what is predicted of them.
//!
//! Two classes share one output, whose label is +1 for the second class and −1 for the first. More
//! classes have an output each: +1 for the class of the sample, −1 for the others. A prediction s
//! of such a label by least squares estimates 2p − 1. How sharp the probability of each class
//! should be differs from stream to stream, so a node learns it from its own labels
//! ([`Calibration`]).

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Loss;
use crate::limits::MAX_CLASSES;
use crate::math;

/// How many classes there are, and how they become labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classes {
    count: usize,
}

impl Classes {
    /// So many classes; none if there are fewer than two or too many.
    pub fn new(count: usize) -> Option<Self> {
        (2..=MAX_CLASSES).contains(&count).then_some(Self { count })
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.count
    }

    /// Outputs that they need.
    pub fn outputs(self) -> usize {
        if self.count == 2 { 1 } else { self.count }
    }

    /// The label of each output for a class, counted from 0.
    pub fn labels(self, class: usize) -> impl Iterator<Item = f32> {
        let first = if self.count == 2 { 1 } else { 0 };
        (first..first + self.outputs()).map(move |at| if at == class { 1.0 } else { -1.0 })
    }

    /// The class that labels, predictions or probabilities speak for: the first of the largest.
    pub fn likeliest(self, scores: &[f32]) -> usize {
        match scores {
            [score] => usize::from(*score > 0.0),
            scores => (1..scores.len()).fold(0, |best, at| match scores[at] > scores[best] {
                true => at,
                false => best,
            }),
        }
    }
}

/// How much sharper than the scores themselves the probabilities of experts are.
const SHARPNESS: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
/// Experts: each sharpness with the scores of the node, then with those of the shared model.
const EXPERTS: usize = 2 * SHARPNESS.len();
/// First weight of an expert with the scores of the node, as a multiple of that of the others.
const FIRST_OWN_WEIGHT: f64 = 0.3;
/// Share of the weights that returns to the first ones after each label, so that experts can come
/// back.
const RETURN: f64 = 0.002;
/// Share of the probability that is spread evenly over all classes.
const DOUBT: f64 = 1e-4;
/// Bound on a score.
const MAX_SCORE: f64 = 4.0;

/// A node's way from scores to probabilities. It mixes experts by how probable they found the
/// classes so far. An expert makes the scores of the node, or those of the shared model without the
/// node's own layer, sharper by a factor and normalises their exponentials. So the log loss exceeds
/// that of the best expert by at most a constant, as long as the best stays the same. Nothing of it
/// is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Of each expert; they sum to one.
    weights: [f64; EXPERTS],
}

impl Default for Calibration {
    fn default() -> Self {
        Self { weights: FIRST_WEIGHTS }
    }
}

const FIRST_WEIGHTS: [f64; EXPERTS] = {
    let sum = SHARPNESS.len() as f64 * (1.0 + FIRST_OWN_WEIGHT);
    let mut weights = [1.0 / sum; EXPERTS];
    let mut own = 0;
    while own < SHARPNESS.len() {
        weights[own] = FIRST_OWN_WEIGHT / sum;
        own += 1;
    }
    weights
};

impl Calibration {
    /// Writes the probability of each class. `scores` are what the node predicts of each output by
    /// a loss, and then what the shared model does.
    pub fn probabilities(&self, scores: &[f32], loss: Loss, out: &mut Vec<f32>) {
        let scores = Scores { scores, loss };
        let (classes, experts) = (scores.classes(), scores.experts());
        let probability = |class: usize| {
            let all = self.weights.iter().zip(&experts);
            let mixed: f64 =
                all.map(|(weight, expert)| weight * scores.probability(class, expert)).sum();
            mixed as f32
        };
        out.clear();
        out.extend((0..classes).map(probability));
    }

    /// The class of a sample has come, of which these were the scores.
    pub fn learn(&mut self, scores: &[f32], loss: Loss, class: usize) {
        let scores = Scores { scores, loss };
        for (weight, expert) in self.weights.iter_mut().zip(&scores.experts()) {
            *weight *= scores.probability(class, expert);
        }
        let sum: f64 = self.weights.iter().sum();
        for (weight, first) in self.weights.iter_mut().zip(FIRST_WEIGHTS) {
            *weight = (1.0 - RETURN) * *weight / sum + RETURN * first;
        }
    }

    /// Whether a saved state is one that could have been reached.
    pub(crate) fn is_sound(&self) -> bool {
        let sum: f64 = self.weights.iter().sum();
        self.weights.iter().all(|weight| *weight > 0.0) && (sum - 1.0).abs() < 1e-6
    }
}

/// Predictions of labels ±1 by the node, and then by the shared model.
struct Scores<'a> {
    scores: &'a [f32],
    loss: Loss,
}

/// An expert of a prediction: whose scores it takes, and what its probabilities are divided by.
struct Expert {
    is_shared: bool,
    sharpness: f64,
    largest: f64,
    sum: f64,
}

impl Scores<'_> {
    fn outputs(&self) -> usize {
        self.scores.len() / 2
    }

    fn classes(&self) -> usize {
        self.outputs().max(2)
    }

    /// The score of a class, bounded.
    fn of(&self, class: usize, is_shared: bool) -> f64 {
        let (outputs, start) = (self.outputs(), if is_shared { self.outputs() } else { 0 });
        let at = if outputs == 1 { start } else { start + class };
        let score = self.loss.mean_label(f64::from(self.scores[at]));
        let score = if score.is_nan() { 0.0 } else { score.clamp(-MAX_SCORE, MAX_SCORE) };
        if outputs == 1 && class == 0 { -score } else { score }
    }

    fn experts(&self) -> [Expert; EXPERTS] {
        core::array::from_fn(|at| {
            let is_shared = at >= SHARPNESS.len();
            let sharpness = SHARPNESS[at % SHARPNESS.len()];
            let all = (0..self.classes()).map(|class| self.of(class, is_shared));
            let largest = all.fold(-MAX_SCORE, f64::max);
            let mut expert = Expert { is_shared, sharpness, largest, sum: 1.0 };
            expert.sum = (0..self.classes()).map(|class| self.share(class, &expert)).sum();
            expert
        })
    }

    /// The probability of a class before it is divided by the sum of all.
    fn share(&self, class: usize, expert: &Expert) -> f64 {
        math::exp(expert.sharpness * (self.of(class, expert.is_shared) - expert.largest))
    }

    fn probability(&self, class: usize, expert: &Expert) -> f64 {
        let doubt = DOUBT / self.classes() as f64;
        (1.0 - DOUBT) * self.share(class, expert) / expert.sum + doubt
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::CounterRng;

    #[test]
    fn classes_become_labels_and_labels_classes() {
        let labels = |count: usize, class| Classes::new(count).unwrap().labels(class).collect();
        let [no, yes, third]: [Vec<f32>; 3] = [labels(2, 0), labels(2, 1), labels(3, 2)];
        assert_eq!((no, yes, third), (vec![-1.0], vec![1.0], vec![-1.0, -1.0, 1.0]));
        for count in 2..=MAX_CLASSES {
            let classes = Classes::new(count).unwrap();
            for class in 0..count {
                let labels: Vec<f32> = classes.labels(class).collect();
                assert_eq!((labels.len(), classes.likeliest(&labels)), (classes.outputs(), class));
            }
        }
        assert_eq!([0, 1, MAX_CLASSES + 1].map(Classes::new), [None; 3]);
    }

    #[test]
    fn scores_become_as_sharp_as_labels_are_sure() {
        let log_loss = |share: f64| {
            let (random, mut calibration) = (CounterRng::from_seed(5), Calibration::default());
            let (mut loss, mut out) = (0.0, Vec::new());
            for t in 0..2000 {
                let is_right = random.uniform_at(2 * t) < share;
                let score = if random.uniform_at(2 * t + 1) < 0.5 { 0.5 } else { -0.5 };
                let class = usize::from((score > 0.0) == is_right);
                let scores = [score, score];
                calibration.probabilities(&scores, Loss::Squared, &mut out);
                loss -= f64::from(out[class]).ln() / 2000.0;
                calibration.learn(&scores, Loss::Squared, class);
            }
            loss
        };
        for share in [0.75f64, 0.9, 0.98] {
            let least = -share * share.ln() - (1.0 - share) * (1.0 - share).ln();
            let found = log_loss(share);
            assert!(found < least + 0.03, "{share}: {found} and {least}");
        }
    }

    #[test]
    fn whoever_is_right_is_followed() {
        let mut out = Vec::new();
        for right in [0, 1] {
            let mut calibration = Calibration::default();
            let score = |at: usize, class: usize| match (at == right, class == 1) {
                (true, true) | (false, false) => 0.8,
                _ => -0.8,
            };
            for class in [0, 1].repeat(20) {
                let scores = [score(0, class), score(1, class)];
                calibration.learn(&scores, Loss::Squared, class);
            }
            calibration.probabilities(&[score(0, 1), score(1, 1)], Loss::Squared, &mut out);
            assert!(out[1] > 0.9, "{right}: {out:?}");
        }
    }
}
