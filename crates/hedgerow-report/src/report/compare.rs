//! How two methods compare, trial by trial where that is known.

use crate::figures::number::{percent, significant};
use hedgerow_lab::measure::Measure;
use hedgerow_lab::results::MethodResult;

/// How one error compares with another.
pub(crate) struct ErrorComparison {
    /// Mine as a multiple of the other.
    ratio: f64,
    /// Whether the difference is no larger than chance would make it.
    pub(crate) level: bool,
    /// In how many of how many trials mine was the larger and the smaller one; not for a single
    /// trial.
    trials: Option<Trials>,
}

struct Trials {
    higher: usize,
    lower: usize,
    all: usize,
}

/// Differences up to this number of standard errors may be chance.
const STANDARD_ERRORS: f64 = 2.0;

/// None if the two are neither equal nor in a positive ratio.
pub(crate) fn compare(
    measure: Measure,
    mine: &MethodResult,
    other: &MethodResult,
    trials: usize,
) -> Option<ErrorComparison> {
    let (a, b) = (measure.moments(mine), measure.moments(other));
    let ratio = if a.mean == b.mean { 1.0 } else { a.mean / b.mean };
    if !ratio.is_finite() || ratio <= 0.0 {
        return None;
    }
    let differences = differences(measure.trials(mine), measure.trials(other));
    let level = match &differences {
        Some(differences) => is_chance(differences),
        None => {
            let error = a.sd.hypot(b.sd) / (trials.max(1) as f64).sqrt();
            a.mean == b.mean || (trials > 1 && (a.mean - b.mean).abs() <= STANDARD_ERRORS * error)
        }
    };
    let trials = differences.map(|differences| Trials {
        higher: differences.iter().filter(|difference| **difference > 0.0).count(),
        lower: differences.iter().filter(|difference| **difference < 0.0).count(),
        all: differences.len(),
    });
    Some(ErrorComparison { ratio, level, trials })
}

/// Trials share their random features between methods, so that a spread common to both drops out.
fn differences(mine: &[f64], other: &[f64]) -> Option<Vec<f64>> {
    let paired = mine.len() == other.len() && mine.len() > 1;
    let differences: Vec<f64> = mine.iter().zip(other).map(|(a, b)| a - b).collect();
    (paired && differences.iter().all(|difference| difference.is_finite())).then_some(differences)
}

fn is_chance(differences: &[f64]) -> bool {
    let count = differences.len() as f64;
    let mean = differences.iter().sum::<f64>() / count;
    let squares: f64 = differences.iter().map(|d| (d - mean) * (d - mean)).sum();
    let sd = (squares / (count - 1.0)).sqrt();
    mean.abs() <= STANDARD_ERRORS * sd / count.sqrt()
}

impl ErrorComparison {
    /// What goes before `that of the other`: `level with`, `1.05 times`, `50% below`.
    pub(crate) fn relation(&self) -> String {
        match self.ratio {
            _ if self.level => "level with".to_owned(),
            // Three digits would read 1.00 times.
            ratio if (1.0..1.005).contains(&ratio) => format!("{} above", percent(ratio - 1.0)),
            ratio if ratio > 1.0 => format!("{} times", significant(ratio, 3)),
            ratio => format!("{} below", percent(1.0 - ratio)),
        }
    }

    /// Whether mine is the smaller one.
    pub(crate) fn is_lower(&self) -> bool {
        self.ratio < 1.0
    }

    /// `worse in 10 of 10 trials` between two texts; nothing if all are equal or not known one by
    /// one.
    pub(crate) fn count(&self, before: &str, after: &str) -> String {
        match &self.trials {
            Some(Trials { higher, lower, all }) if higher + lower > 0 => {
                let (word, count) =
                    if self.ratio > 1.0 { ("worse", higher) } else { ("better", lower) };
                format!("{before}{word} in {count} of {all} trials{after}")
            }
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::results::Moments;
    use hedgerow_lab::testing::results;

    /// With means and standard deviations as a run would have them.
    fn compared(mine: &[f64], other: &[f64]) -> ErrorComparison {
        let mut methods = results(1, 5, 2).methods;
        for (method, values) in methods.iter_mut().zip([mine, other]) {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
            method.mse = Moments { mean, sd: (squares / (values.len() - 1).max(1) as f64).sqrt() };
            method.mse_trials = values.to_vec();
        }
        compare(Measure::Mse, &methods[0], &methods[1], mine.len()).unwrap()
    }

    #[test]
    fn always_slightly_worse_is_not_level_however_large_the_common_spread() {
        let other: Vec<f64> = (1..=10).map(f64::from).collect();
        let mine: Vec<f64> = other.iter().map(|value| value * 1.05).collect();
        let comparison = compared(&mine, &other);
        assert_eq!(comparison.relation(), "1.05 times");
        assert_eq!(comparison.count("", ""), "worse in 10 of 10 trials");
        let comparison = compared(&other, &mine);
        assert_eq!(comparison.relation(), "4.8% below");
        assert_eq!(comparison.count("", ""), "better in 10 of 10 trials");
    }

    #[test]
    fn noise_is_level() {
        let other = [5.0, 6.0, 5.5, 5.2, 5.8, 5.1];
        let mine = [5.4, 5.7, 5.9, 5.0, 5.9, 5.0];
        let comparison = compared(&mine, &other);
        assert_eq!(comparison.relation(), "level with");
        assert_eq!(comparison.count("", ""), "worse in 3 of 6 trials");
    }

    #[test]
    fn equal_trials_are_level_and_a_constant_difference_is_not() {
        for equal in [[0.5, 0.7], [0.0, 0.0]] {
            let comparison = compared(&equal, &equal);
            assert!(comparison.level && comparison.count("", "").is_empty());
        }
        assert!(!compared(&[0.75, 1.25], &[0.5, 1.0]).level);
    }

    #[test]
    fn a_difference_too_small_for_a_ratio_is_a_share() {
        assert_eq!(compared(&[1.002, 2.004], &[1.0, 2.001]).relation(), "0.2% above");
    }

    #[test]
    fn a_single_trial_proves_nothing() {
        let comparison = compared(&[0.6], &[0.5]);
        assert_eq!(
            (comparison.relation(), comparison.count("", "")),
            ("1.20 times".into(), "".into())
        );
    }

    #[test]
    fn without_trials_one_by_one_the_spreads_decide() {
        let mut methods = results(1, 5, 2).methods;
        let mut relation = |mean: f64| {
            methods[0].mean_loss = Moments { mean, sd: 0.1 };
            methods[1].mean_loss = Moments { mean: 1.0, sd: 0.1 };
            compare(Measure::Loss, &methods[0], &methods[1], 25).unwrap().relation()
        };
        assert_eq!(
            (relation(1.05).as_str(), relation(1.06).as_str()),
            ("level with", "1.06 times")
        );
    }
}
