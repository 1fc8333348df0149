//! Intervals over trials, and two methods compared trial by trial. Trials share random features and
//! partitions between methods, so common differences cancel in their ratio.

use serde::Serialize;

use super::student::{critical, two_sided};
use crate::results::Moments;

/// Level of significance: 1 minus the confidence of intervals.
pub const SIGNIFICANCE: f64 = 0.05;

/// Fewer trials have no useful interval, and can't tell whether errors are equal.
pub const TRIALS_TO_TELL: usize = 3;

/// Spreads below this share of the mean are round-off between equal trials.
const ROUND_OFF: f64 = 1e-12;

/// An interval with a confidence of 95%.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// One error as a multiple of another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// Geometric mean of the ratios of all trials; of the means, where trials are not known one by
    /// one.
    pub value: f64,
    /// Its confidence interval; none for a single trial.
    pub interval: Option<Interval>,
    /// Probability of such a ratio, or one further from 1, if the two were equal; none for a single
    /// trial.
    pub p: Option<f64>,
}

impl Ratio {
    /// Mine as a multiple of the other, trial by trial; none where an error is zero, negative or
    /// not finite.
    #[must_use]
    pub fn of(mine: &[f64], other: &[f64]) -> Option<Self> {
        let has_logarithm = |value: &f64| value.is_finite() && *value > 0.0;
        if mine.len() != other.len()
            || mine.is_empty()
            || !mine.iter().chain(other).all(has_logarithm)
        {
            return None;
        }
        let count = mine.len() as f64;
        // A difference of logarithms: a ratio might overflow.
        let logs: Vec<f64> =
            mine.iter().zip(other).map(|(mine, other)| mine.ln() - other.ln()).collect();
        let mean = logs.iter().sum::<f64>() / count;
        let value = mean.exp();
        if mine.len() == 1 {
            return Some(Self { value, interval: None, p: None });
        }
        let squares: f64 = logs.iter().map(|log| (log - mean) * (log - mean)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        let freedom = count - 1.0;
        let p = match error <= ROUND_OFF * mean.abs().max(ROUND_OFF) {
            true if mean.abs() <= ROUND_OFF => 1.0,
            true => 0.0,
            false => two_sided(mean / error, freedom),
        };
        let reach = critical(SIGNIFICANCE, freedom) * error;
        let interval = Interval { low: (mean - reach).exp(), high: (mean + reach).exp() };
        Some(Self { value, interval: Some(interval), p: Some(p) })
    }

    /// Whether all of the interval lies above 1.
    pub fn is_clearly_above(&self) -> bool {
        self.interval.is_some_and(|interval| interval.low > 1.0)
    }

    /// Whether all of the interval lies below 1.
    pub fn is_clearly_below(&self) -> bool {
        self.interval.is_some_and(|interval| interval.high < 1.0)
    }
}

/// The confidence interval of the mean over trials; none for too few.
pub(super) fn of_mean(moments: Moments, trials: usize) -> Option<Interval> {
    let Moments { mean, sd } = moments;
    if trials < TRIALS_TO_TELL || !mean.is_finite() || !sd.is_finite() {
        return None;
    }
    let reach = critical(SIGNIFICANCE, (trials - 1) as f64) * sd / (trials as f64).sqrt();
    Some(Interval { low: mean - reach, high: mean + reach })
}

/// Holm's correction: the probabilities of several tests, raised so that the chance of even one
/// false alarm stays what it was.
pub(super) fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut corrected = vec![1.0; p.len()];
    let mut largest: f64 = 0.0;
    for (place, index) in order.into_iter().enumerate() {
        largest = largest.max(p[index] * (p.len() - place) as f64).min(1.0);
        corrected[index] = largest;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_mean() {
        // 1 to 5: mean 3, sd √2.5, t = 2.7764 with four degrees of freedom.
        let Interval { low, high } = of_mean(Moments { mean: 3.0, sd: 2.5f64.sqrt() }, 5).unwrap();
        assert!(
            (low - 1.036_756_84).abs() < 1e-7 && (high - 4.963_243_16).abs() < 1e-7,
            "{low} {high}"
        );
        assert_eq!(of_mean(Moments { mean: 3.0, sd: 0.0 }, 1), None);
        assert_eq!(of_mean(Moments { mean: f64::INFINITY, sd: f64::NAN }, 5), None);
    }

    #[test]
    fn a_ratio_is_found_whatever_trials_have_in_common() {
        // Logarithms of the ratios are 0.1, 0.2 and 0.3: mean 0.2, standard error 0.1/√3, t = 2√3
        // with two degrees.
        let other = [1.0, 100.0, 1e-4];
        let mine: Vec<f64> =
            other.iter().zip([0.1f64, 0.2, 0.3]).map(|(o, log)| o * log.exp()).collect();
        let found = Ratio::of(&mine, &other).unwrap();
        assert!((found.value - 0.2f64.exp()).abs() < 1e-12);
        let t = 2.0 * 3f64.sqrt();
        let root = (2.0 + t * t).sqrt();
        assert!((found.p.unwrap() - 2.0 / (root * (root + t))).abs() < 1e-9, "{found:?}");
        let reach = 4.302_652_729_7 * 0.1 / 3f64.sqrt();
        let Interval { low, high } = found.interval.unwrap();
        assert!(
            (low.ln() - (0.2 - reach)).abs() < 1e-9 && (high.ln() - (0.2 + reach)).abs() < 1e-9
        );
        assert!(!found.is_clearly_above() && !found.is_clearly_below());
    }

    #[test]
    fn equal_trials_are_level_and_a_constant_factor_is_certain() {
        let level = Ratio::of(&[0.5, 0.7], &[0.5, 0.7]).unwrap();
        assert_eq!((level.value, level.p), (1.0, Some(1.0)));
        let twice = Ratio::of(&[1.0, 3.0, 0.2], &[0.5, 1.5, 0.1]).unwrap();
        assert_eq!(twice.p, Some(0.0));
        assert!(twice.is_clearly_above() && (twice.value - 2.0).abs() < 1e-12);
        assert!(Ratio::of(&[0.5, 1.5, 0.1], &[1.0, 3.0, 0.2]).unwrap().is_clearly_below());
    }

    #[test]
    fn one_trial_proves_nothing_and_zero_has_no_ratio() {
        assert_eq!(Ratio::of(&[2.0], &[1.0]), Some(Ratio { value: 2.0, interval: None, p: None }));
        for spoilt in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Ratio::of(&[1.0, spoilt], &[1.0, 1.0]), None);
            assert_eq!(Ratio::of(&[1.0, 1.0], &[1.0, spoilt]), None);
        }
        assert_eq!((Ratio::of(&[], &[]), Ratio::of(&[1.0], &[1.0, 2.0])), (None, None));
        assert!(Ratio::of(&[1e300, 1e300], &[1e-300, 2e-300]).is_some());
    }

    #[test]
    fn holm_raises_the_least_most_and_keeps_the_order() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, known) in corrected.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - known).abs() < 1e-12, "{corrected:?}");
        }
        assert_eq!(holm(&[0.6, 0.7]), [1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }
}
