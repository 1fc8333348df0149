//! Intervals around predictions that contain a given share of the labels.
//!
//! An interval is p ± q·s. The scale s is a running mean of |y − p| that follows the last twenty
//! labels. The factor q of a level 1 − α is tracked online: after each label
//!
//! ln q ← ln q + η·(1{|y − p| > q·s} − α),   η = max(0.1, 0.3/√n) after n labels.
//!
//! This is adaptive conformal inference on errors relative to s. Once η is constant, the share of
//! labels outside differs from α by at most |change of ln q|/(η·n), as long as ln q is within its
//! bounds: nothing is assumed of the distribution of labels, of drift or of the model. Factors of
//! five levels are kept. Between two of them q is interpolated linearly in ln α, which is exact for
//! errors with exponential tails. Factors begin at −ln α, those of such errors.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::limits::LAST_COUNT;
use crate::math;

/// The range in which a label is expected.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub lower: f32,
    /// Upper end.
    pub upper: f32,
}

impl Interval {
    /// Whether a label is within it.
    pub fn contains(&self, label: f32) -> bool {
        (self.lower..=self.upper).contains(&label)
    }
}

/// The share of labels that intervals are to contain: from 0.5 to 0.99, 0.9 by default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level(f64);

/// A share that intervals can't have.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("the level of an interval is between {least} and {most}, but {found} came")]
pub struct BadLevel {
    /// The least level.
    pub least: f64,
    /// The largest level.
    pub most: f64,
    /// The level that came.
    pub found: f64,
}

impl Level {
    /// The least level.
    pub const LEAST: f64 = LEVELS[0];
    /// The largest level.
    pub const MOST: f64 = LEVELS[LEVELS.len() - 1];

    /// A level from 0.5 to 0.99.
    pub fn new(level: f64) -> Result<Self, BadLevel> {
        let (least, most) = (Self::LEAST, Self::MOST);
        match level {
            level if (least..=most).contains(&level) => Ok(Self(level)),
            found => Err(BadLevel { least, most, found }),
        }
    }

    /// The share.
    pub fn share(self) -> f64 {
        self.0
    }
}

/// Errors state the bound, to which a reader of settings adds key and value.
impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bound = |BadLevel { least, most, .. }| {
            D::Error::custom(format_args!("between {least} and {most}"))
        };
        Self::new(f64::deserialize(deserializer)?).map_err(bound)
    }
}

impl Default for Level {
    fn default() -> Self {
        Self(0.9)
    }
}

/// Levels whose factors are tracked, in ascending order.
const LEVELS: [f64; 5] = [0.5, 0.8, 0.9, 0.95, 0.99];
/// Labels that the scale follows.
const MEMORY: f64 = 20.0;
/// Least rate of the factors, and the first one.
const RATE: f64 = 0.1;
const FIRST_RATE: f64 = 0.3;
/// Bound on the logarithm of a factor.
const MAX_LOG_FACTOR: f64 = 20.0;

/// What a node knows of the errors of its predictions. Nothing of it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ErrorQuantiles {
    labels: u64,
    /// Running mean of the sizes of errors.
    scale: f64,
    /// ln q of each level.
    log_factors: [f64; LEVELS.len()],
}

impl Default for ErrorQuantiles {
    fn default() -> Self {
        let log_factors = LEVELS.map(|level| math::ln(-math::ln(1.0 - level)));
        Self { labels: 0, scale: 0.0, log_factors }
    }
}

impl ErrorQuantiles {
    /// The interval around a prediction; none before the first label.
    pub fn interval(&self, prediction: f32, level: Level) -> Option<Interval> {
        let half = (self.labels > 0).then(|| self.factor(level) * self.scale)?;
        let prediction = f64::from(prediction);
        Some(Interval { lower: (prediction - half) as f32, upper: (prediction + half) as f32 })
    }

    /// The label of a prediction has come.
    pub fn see(&mut self, prediction: f32, label: f32) {
        let error = (f64::from(label) - f64::from(prediction)).abs();
        if !error.is_finite() {
            return;
        }
        if self.labels > 0 {
            let rate = RATE.max(FIRST_RATE / math::sqrt(self.labels as f64));
            // Infinite where all errors before were zero.
            let log_error = if error > 0.0 { math::ln(error / self.scale) } else { -f64::INFINITY };
            for (log_factor, level) in self.log_factors.iter_mut().zip(LEVELS) {
                let is_outside = log_error > *log_factor;
                *log_factor += rate * (f64::from(u8::from(is_outside)) - (1.0 - level));
                *log_factor = log_factor.clamp(-MAX_LOG_FACTOR, MAX_LOG_FACTOR);
            }
        }
        self.labels = self.labels.saturating_add(1).min(LAST_COUNT);
        self.scale += (error - self.scale) / (self.labels as f64).min(MEMORY);
    }

    /// q of a level. Factors of higher levels may be smaller for a while; then the largest of the
    /// levels below counts.
    fn factor(&self, Level(level): Level) -> f64 {
        let mut below = (LEVELS[0], 0.0);
        for (known, log_factor) in LEVELS.into_iter().zip(self.log_factors) {
            let factor = math::exp(log_factor).max(below.1);
            if level <= known {
                let tail = |level: f64| math::ln(1.0 - level);
                let range = tail(known) - tail(below.0);
                let share = if range < 0.0 { (tail(level) - tail(below.0)) / range } else { 1.0 };
                return below.1 + share * (factor - below.1);
            }
            below = (known, factor);
        }
        below.1
    }

    /// Whether a saved state is one that could have been reached.
    pub(crate) fn is_sound(&self) -> bool {
        let is_factor = |log_factor: &f64| log_factor.abs() <= MAX_LOG_FACTOR;
        self.labels <= LAST_COUNT
            && self.scale >= 0.0
            && self.scale.is_finite()
            && self.log_factors.iter().all(is_factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use crate::random::CounterRng;

    /// Share of labels within intervals around 0, for errors drawn at each time.
    fn coverage(level: f64, labels: u64, error: impl Fn(u64, &CounterRng) -> f64) -> f64 {
        let (level, random) = (Level::new(level).unwrap(), CounterRng::from_seed(7));
        let mut errors = ErrorQuantiles::default();
        let mut inside = 0;
        for t in 0..labels {
            let label = error(t, &random) as f32;
            let interval = errors.interval(0.0, level);
            inside += u64::from(interval.is_some_and(|interval| interval.contains(label)));
            errors.see(0.0, label);
        }
        inside as f64 / (labels - 1) as f64
    }

    fn normal(t: u64, random: &CounterRng) -> f64 {
        (0..12).map(|i| random.uniform_at(12 * t + i)).sum::<f64>() - 6.0
    }

    #[test]
    fn intervals_contain_their_share_of_the_labels() {
        for level in [0.5, 0.6, 0.8, 0.85, 0.9, 0.95, 0.97, 0.99] {
            let share = coverage(level, 3000, normal);
            assert!((share - level).abs() < 0.015, "{level}: {share}");
        }
    }

    #[test]
    fn coverage_holds_where_errors_change() {
        let falling = coverage(0.9, 500, |t, random| normal(t, random) / (1.0 + t as f64).powi(2));
        assert!((falling - 0.9).abs() < 0.05, "{falling}");
        let jumps = |t: u64, random: &CounterRng| {
            normal(t, random) * if (t / 250).is_multiple_of(2) { 1.0 } else { 50.0 }
        };
        let jumping = coverage(0.9, 2000, jumps);
        assert!((jumping - 0.9).abs() < 0.015, "{jumping}");
    }

    #[test]
    fn higher_levels_are_never_narrower() {
        let random = CounterRng::from_seed(3);
        let mut errors = ErrorQuantiles::default();
        assert_eq!(errors.interval(1.0, Level::default()), None);
        for t in 0..500 {
            errors.see(0.0, normal(t, &random) as f32);
            let widths = (50..=99).map(|percent| {
                let level = Level::new(f64::from(percent) / 100.0).unwrap();
                errors.interval(0.0, level).unwrap().upper
            });
            assert!(widths.collect::<Vec<_>>().is_sorted(), "after {t}");
        }
    }

    #[test]
    fn exact_predictions_have_no_width_and_hostile_labels_do_no_harm() {
        let mut errors = ErrorQuantiles::default();
        (0..100).for_each(|_| errors.see(2.0, 2.0));
        let at = |errors: &ErrorQuantiles| errors.interval(2.0, Level::default()).unwrap();
        assert_eq!(at(&errors), Interval { lower: 2.0, upper: 2.0 });
        errors.see(2.0, f32::NAN);
        assert_eq!(at(&errors), Interval { lower: 2.0, upper: 2.0 });
        (0..100_000).for_each(|t| errors.see(0.0, if t % 2 == 0 { 1e12 } else { -1e12 }));
        assert!(errors.is_sound() && at(&errors).upper.is_finite());
    }

    #[test]
    fn levels_have_bounds() {
        for found in [0.0, 0.49, 0.991, 1.0, -1.0, f64::NAN] {
            let error = Level::new(found).unwrap_err().to_string();
            assert!(error.contains("between 0.5 and 0.99"), "{error}");
        }
    }
}
