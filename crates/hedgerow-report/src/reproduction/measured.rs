//! The numbers of one run that tables and claims speak of.

use crate::figures::series::best_single;
use hedgerow_lab::results::{MethodResult, Results};

/// How a share of trials must be called for nearly all of them.
pub(super) const NEARLY_ALL: f64 = 0.9;

/// The single kernel with the largest error.
pub(super) fn worst_single(results: &Results) -> Option<&MethodResult> {
    let singles = results.methods.iter().filter(|method| method.name == "sk");
    singles.max_by(|a, b| a.mse.mean.total_cmp(&b.mse.mean))
}

/// The single kernel with the second least error.
pub(super) fn second_single(results: &Results) -> Option<&MethodResult> {
    let best = best_single(results)?;
    let others =
        results.methods.iter().filter(|method| method.name == "sk" && method.kernel != best.kernel);
    others.min_by(|a, b| a.mse.mean.total_cmp(&b.mse.mean))
}

/// One error as a multiple of another; none where that means nothing.
pub(super) fn ratio(mine: f64, other: f64) -> Option<f64> {
    let ratio = mine / other;
    (ratio.is_finite() && mine >= 0.0 && other > 0.0).then_some(ratio)
}

/// The same for the squared errors of two methods.
pub(super) fn mse_ratio(mine: Option<&MethodResult>, other: Option<&MethodResult>) -> Option<f64> {
    ratio(mine?.mse.mean, other?.mse.mean)
}

/// The same over the last window of rounds.
pub(super) fn late_ratio(mine: Option<&MethodResult>, other: Option<&MethodResult>) -> Option<f64> {
    ratio(mine?.mse_last_window?.mean, other?.mse_last_window?.mean)
}

/// How `mk` came to select the best kernel.
pub(super) struct Selection {
    /// The best kernel, counted from 1.
    pub(super) best: usize,
    /// Share of trials that have selected it in the last round.
    pub(super) at_end: f64,
    /// Mean share over the last window of rounds.
    pub(super) late: f64,
    /// First recorded round from which on nearly all trials have it to the end.
    pub(super) from_round: Option<u64>,
}

/// None without `mk`, its course or a best kernel.
pub(super) fn selection(results: &Results) -> Option<Selection> {
    let best = results.best_kernel?;
    let curve = &results.method("mk")?.curve;
    let share = |shares: &Vec<f64>| shares.get(best.checked_sub(1)?).copied();
    let course: Vec<(u64, f64)> = curve
        .rounds
        .iter()
        .zip(&curve.shares)
        .filter_map(|(t, shares)| Some((*t, share(shares)?)))
        .collect();
    let &(last, at_end) = course.last()?;
    // Shares are sums of fractions: 45 of 50 must not fail by rounding.
    let outside = course.iter().rposition(|(_, share)| *share < NEARLY_ALL - 1e-9);
    let from_round = match outside {
        Some(place) => course.get(place + 1).map(|(t, _)| *t),
        None => course.first().map(|(t, _)| *t),
    };
    let late: Vec<f64> = course
        .iter()
        .filter(|(t, _)| t + results.window as u64 > last)
        .map(|(_, share)| *share)
        .collect();
    let late = if late.is_empty() { at_end } else { late.iter().sum::<f64>() / late.len() as f64 };
    Some(Selection { best, at_end, late, from_round })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::testing::results;

    /// The best of two kernels has these shares, one per round.
    fn selected(shares: &[f64]) -> Option<u64> {
        let mut results = results(2, shares.len(), 4);
        for (course, share) in results.methods[0].curve.shares.iter_mut().zip(shares) {
            course.copy_from_slice(&[1.0 - share, *share]);
        }
        selection(&results).unwrap().from_round
    }

    #[test]
    fn convergence_begins_where_it_is_not_lost_again() {
        assert_eq!(selected(&[0.0, 0.95, 0.2, 0.9, 1.0]), Some(4));
        assert_eq!(selected(&[0.9, 0.95, 1.0]), Some(1));
        assert_eq!(selected(&[1.0, 1.0, 0.5]), None);
        assert_eq!(selected(&[0.1, 0.3 + 0.6]), Some(2));
    }

    #[test]
    fn the_late_share_is_that_of_the_window() {
        let mut results = results(2, 10, 4);
        results.window = 4;
        for (t, course) in results.methods[0].curve.shares.iter_mut().enumerate() {
            course[1] = if t < 6 { 0.0 } else { 0.8 };
        }
        results.methods[0].curve.shares[9][1] = 0.4;
        let found = selection(&results).unwrap();
        assert!((found.late - 0.7).abs() < 1e-12 && found.at_end == 0.4, "{}", found.late);
    }

    #[test]
    fn what_is_not_there_is_none() {
        let mut results = results(3, 10, 2);
        assert_eq!(worst_single(&results).unwrap().mse.mean, 0.012);
        assert_eq!(second_single(&results).unwrap().mse.mean, 0.012);
        assert_eq!(
            [ratio(1.0, 0.0), ratio(f64::INFINITY, 1.0), ratio(0.0, 1.0)],
            [None, None, Some(0.0)]
        );
        results.methods.clear();
        assert!(worst_single(&results).is_none() && second_single(&results).is_none());
        assert!(selection(&results).is_none());
    }
}
