//! Losses and their slopes, and the objective that models are trained on: a loss plus a ridge term.

use serde::{Deserialize, Serialize};

use crate::limits::MAX_SUM;
use crate::math;

/// The largest mean of labels ±1 that has finite log-odds here.
const LARGEST_MEAN: f64 = 0.999;

/// A convex loss of a prediction against a label.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// (ŷ − y)²: the paper's.
    #[default]
    Squared,
    /// ln(1 + exp(−y·ŷ)) for labels ±1.
    Logistic,
    /// (ŷ − y)² up to `delta` away, a straight line beyond: outliers pull no harder than that.
    Huber {
        /// Where the line begins.
        delta: f64,
    },
}

impl Loss {
    /// Name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Squared => "squared",
            Self::Logistic => "logistic",
            Self::Huber { .. } => "huber",
        }
    }

    /// The loss.
    #[inline]
    pub fn value(self, prediction: f64, label: f64) -> f64 {
        let error = prediction - label;
        match self {
            Self::Squared => error * error,
            Self::Logistic => {
                let margin = label * prediction;
                // ln(1+e^−m) without overflow for either sign.
                (-margin).max(0.0) + math::ln_1p(math::exp(-margin.abs()))
            }
            Self::Huber { delta } if error.abs() > delta => delta * (2.0 * error.abs() - delta),
            Self::Huber { .. } => error * error,
        }
    }

    /// The prediction that stands for a mean label: of labels ±1, the log-odds if the loss is
    /// logistic.
    pub(crate) fn link(self, mean: f64) -> f64 {
        match self {
            Self::Logistic => {
                let mean = mean.clamp(-LARGEST_MEAN, LARGEST_MEAN);
                math::ln_1p(mean) - math::ln_1p(-mean)
            }
            _ => mean,
        }
    }

    /// The mean label that a prediction stands for: the inverse of [`Loss::link`].
    pub(crate) fn mean_label(self, prediction: f64) -> f64 {
        match self {
            // tanh(ŷ/2) = 2/(1 + e^−ŷ) − 1, which is twice the slope for the label −1, less one.
            Self::Logistic => 2.0 * self.slope(prediction, -1.0) - 1.0,
            _ => prediction,
        }
    }

    /// Its derivative with respect to the prediction.
    #[inline]
    pub fn slope(self, prediction: f64, label: f64) -> f64 {
        let error = prediction - label;
        match self {
            Self::Squared => 2.0 * error,
            Self::Logistic => {
                let margin = label * prediction;
                // −y/(1+e^m), again without overflow.
                let e = math::exp(-margin.abs());
                -label * if margin > 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
            }
            Self::Huber { delta } => 2.0 * error.clamp(-delta, delta),
        }
    }

    /// A step along its slope, as a multiple of the slope, that still makes the loss smaller, by a
    /// margin: three quarters of the longest that never makes it larger, which is two divided by
    /// the largest second derivative. A square's error turns its sign and is halved.
    pub(crate) fn longest_step(self) -> f64 {
        match self {
            Self::Logistic => 6.0,
            Self::Squared | Self::Huber { .. } => 0.75,
        }
    }
}

/// L(w; x, y) = loss(wᵀz, y) + λ‖w‖².
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Objective {
    /// The loss.
    pub loss: Loss,
    /// λ.
    pub ridge: f64,
}

impl Objective {
    /// L, from the prediction wᵀz and ‖w‖².
    #[inline]
    pub fn value(self, prediction: f64, label: f64, norm2: f64) -> f64 {
        self.loss.value(prediction, label) + self.ridge * norm2
    }

    /// A gradient step w − η∇L = shrink·w + along·z, as (shrink, along).
    #[inline]
    pub fn step(self, prediction: f64, label: f64, rate: f64) -> (f64, f64) {
        let shrink = 1.0 - 2.0 * rate * self.ridge;
        (shrink, -rate * self.loss.slope(prediction, label))
    }
}

/// A gradient step for one sample, for models whose prediction and squared norm are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Step {
    pub(crate) objective: Objective,
    pub(crate) label: f64,
    pub(crate) rate: f64,
    /// Models longer than this are pulled back to it.
    pub(crate) longest: f64,
}

impl Step {
    /// The same step with a Huber loss, if there is one: a square is a Huber loss whose line begins
    /// nowhere.
    #[inline(always)]
    pub(crate) fn with_huber(&self) -> Option<Self> {
        let delta = match self.objective.loss {
            Loss::Squared => f64::INFINITY,
            Loss::Huber { delta } => delta,
            Loss::Logistic => return None,
        };
        let loss = Loss::Huber { delta };
        Some(Self { objective: Objective { loss, ..self.objective }, ..*self })
    }

    /// (L, shrink, along) of a model: the step takes it to shrink·w + along·z.
    #[inline(always)]
    pub(crate) fn of(&self, prediction: f32, norm2: f32) -> (f64, f32, f32) {
        let (prediction, norm2) = (f64::from(prediction), f64::from(norm2));
        // A model that came in absurdly long has no finite norm in f32.
        let value = self.objective.value(prediction, self.label, norm2).min(MAX_SUM);
        let (mut shrink, along) = self.objective.step(prediction, self.label, self.rate);
        if norm2 > self.longest * self.longest {
            shrink = self.pulled_back(shrink, norm2);
        }
        (value, shrink as f32, along.clamp(-self.longest, self.longest) as f32)
    }

    /// Out of line, or the root and the division would be computed for every model only to be
    /// thrown away.
    #[cold]
    #[inline(never)]
    fn pulled_back(&self, shrink: f64, norm2: f64) -> f64 {
        shrink * self.longest / math::sqrt(norm2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOSSES: [Loss; 3] = [Loss::Squared, Loss::Logistic, Loss::Huber { delta: 0.7 }];

    #[test]
    fn steps_follow_the_gradient_of_finite_differences() {
        let z = [0.6f64, -0.3, 0.5, 0.2];
        let w = [0.4f64, 1.1, -0.9, 2.0];
        for loss in LOSSES {
            for label in [-1.0, 1.0] {
                let objective = Objective { loss, ridge: 0.05 };
                let value = |w: &[f64; 4]| {
                    let prediction: f64 = w.iter().zip(&z).map(|(w, z)| w * z).sum();
                    objective.value(prediction, label, w.iter().map(|w| w * w).sum())
                };
                let prediction: f64 = w.iter().zip(&z).map(|(w, z)| w * z).sum();
                let rate = 0.1;
                let (shrink, along) = objective.step(prediction, label, rate);
                for i in 0..4 {
                    let (mut up, mut down) = (w, w);
                    up[i] += 1e-6;
                    down[i] -= 1e-6;
                    let gradient = (value(&up) - value(&down)) / 2e-6;
                    let stepped = shrink * w[i] + along * z[i];
                    assert!((stepped - (w[i] - rate * gradient)).abs() < 1e-8, "{loss:?}");
                }
            }
        }
    }

    #[test]
    fn the_longest_step_makes_every_loss_smaller() {
        for loss in LOSSES {
            for at in (-80..=80).filter(|at| *at != 10) {
                let prediction = 0.1 * f64::from(at);
                let stepped = prediction - loss.longest_step() * loss.slope(prediction, 1.0);
                let (before, after) = (loss.value(prediction, 1.0), loss.value(stepped, 1.0));
                assert!(after < before, "{loss:?} at {prediction}: {after}, before {before}");
            }
        }
    }

    #[test]
    fn losses_stay_finite_far_out() {
        for loss in LOSSES {
            for prediction in [-1e15, -800.0, 0.0, 800.0, 1e15] {
                assert!(loss.value(prediction, 1.0).is_finite());
                assert!(loss.slope(prediction, -1.0).is_finite());
            }
        }
    }

    #[test]
    fn huber_joins_the_square_smoothly() {
        let huber = Loss::Huber { delta: 0.5 };
        assert!((huber.value(0.499_999, 0.0) - huber.value(0.500_001, 0.0)).abs() < 1e-5);
        assert_eq!(huber.slope(9.0, 0.0), 1.0);
        assert_eq!(huber.value(0.3, 0.0), Loss::Squared.value(0.3, 0.0));
    }
}
