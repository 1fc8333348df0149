//! [`Accuracy`]: how wrong predictions are, in the label's own unit, device by device, and how many
//! labels are within their intervals.

use std::collections::VecDeque;

use hedgerow::NodeId;
use hedgerow::learning::{ErrorQuantiles, Interval, Level};
use hedgerow::metrics::{Tally, WindowedTally};

/// Most nodes whose errors are kept apart, and that have intervals.
pub(crate) const MOST_DETAILED_NODES: usize = 10_000;
/// In seconds.
const DAY: f64 = 86_400.0;

/// Errors of the predictions of a method in a trial.
pub(crate) struct Accuracy {
    pub(crate) absolute: Tally,
    /// Mean of the labels, and the sum of squared distances from it.
    labels: (f64, f64),
    squared: Tally,
    /// Squared errors in each hour of the day and on each day of the week, from Monday; empty
    /// before the first prediction with a date.
    pub(crate) hours: Vec<Tally>,
    pub(crate) weekdays: Vec<Tally>,
    /// None where labels are classes, or there are too many nodes.
    intervals: Option<Intervals>,
}

struct Intervals {
    level: Level,
    nodes: Vec<ErrorQuantiles>,
    covered: WindowedTally,
    width: Tally,
    /// Labels of this round and of rounds before that are not known yet.
    waiting: VecDeque<Vec<Waiting>>,
    /// Rounds until a label is known.
    delay: usize,
}

struct Waiting {
    node: NodeId,
    prediction: f32,
    label: f32,
}

impl Accuracy {
    /// Of so many nodes, with intervals of this level if there are any, and a window of so many
    /// rounds; a label is known after `delay` rounds.
    pub(crate) fn new(nodes: usize, level: Option<Level>, window: usize, delay: usize) -> Self {
        let is_detailed = nodes <= MOST_DETAILED_NODES;
        let intervals = level.filter(|_| is_detailed).map(|level| Intervals {
            level,
            nodes: vec![ErrorQuantiles::default(); nodes],
            covered: WindowedTally::new(window),
            width: Tally::default(),
            waiting: VecDeque::from([Vec::new()]),
            delay,
        });
        Self {
            absolute: Tally::default(),
            squared: Tally::default(),
            labels: (0.0, 0.0),
            hours: Vec::new(),
            weekdays: Vec::new(),
            intervals,
        }
    }

    /// Scores a prediction of a label with this time in seconds since 1970, NaN if it has no date.
    /// Returns its interval, which was made before the label was known.
    pub(crate) fn see(
        &mut self,
        node: NodeId,
        prediction: f32,
        label: f32,
        time: f64,
    ) -> Option<Interval> {
        let error = (f64::from(prediction) - f64::from(label)).abs();
        self.absolute.add(error);
        self.squared.add(error * error);
        let (mean, squares) = &mut self.labels;
        let from_before = f64::from(label) - *mean;
        *mean += from_before / self.absolute.count as f64;
        *squares += from_before * (f64::from(label) - *mean);
        if time.is_finite() {
            let (day, second) = (time.div_euclid(DAY), time.rem_euclid(DAY));
            self.hours.resize(24, Tally::default());
            self.weekdays.resize(7, Tally::default());
            self.hours[(second / 3600.0) as usize % 24].add(error * error);
            // The first of January 1970 was a Thursday.
            self.weekdays[(day + 3.0).rem_euclid(7.0) as usize % 7].add(error * error);
        }
        self.intervals.as_mut()?.see(node, prediction, label)
    }

    pub(crate) fn close_round(&mut self) {
        self.intervals.iter_mut().for_each(Intervals::close_round);
    }

    /// The share of the variance of the labels that predictions explain.
    pub(crate) fn r2(&self) -> f64 {
        1.0 - self.mse() * self.absolute.count as f64 / self.labels.1
    }

    /// Mean squared error.
    pub(crate) fn mse(&self) -> f64 {
        self.squared.mean()
    }

    /// What is known of the errors of a node, if it has intervals.
    pub(crate) fn quantiles(&self, node: NodeId) -> Option<ErrorQuantiles> {
        self.intervals.as_ref()?.nodes.get(node as usize).copied()
    }

    /// The share of labels within their intervals, and the mean width of these.
    pub(crate) fn coverage(&self) -> Option<(f64, f64)> {
        let Intervals { covered, width, .. } = self.intervals.as_ref()?;
        let covered = covered.total();
        (covered.count > 0).then(|| (covered.mean(), width.mean()))
    }

    /// The share of labels within their intervals over the window; NaN without an interval in it,
    /// none without intervals.
    pub(crate) fn window_coverage(&self) -> Option<f64> {
        Some(self.intervals.as_ref()?.covered.window_mean().unwrap_or(f64::NAN))
    }
}

impl Intervals {
    fn see(&mut self, node: NodeId, prediction: f32, label: f32) -> Option<Interval> {
        let errors = self.nodes.get_mut(node as usize)?;
        let interval = errors.interval(prediction, self.level);
        if let Some(interval) = &interval {
            self.covered.add(f64::from(u8::from(interval.contains(label))));
            self.width.add(f64::from(interval.upper) - f64::from(interval.lower));
        }
        match self.waiting.back_mut().filter(|_| self.delay > 0) {
            Some(round) => round.push(Waiting { node, prediction, label }),
            None => errors.see(prediction, label),
        }
        interval
    }

    fn close_round(&mut self) {
        self.covered.close_round();
        if self.delay == 0 {
            return;
        }
        self.waiting.push_back(Vec::new());
        // A label is learned after the predictions of the round in which it comes.
        if self.waiting.len() > self.delay + 1 {
            for Waiting { node, prediction, label } in self.waiting.pop_front().unwrap_or_default()
            {
                self.nodes[node as usize].see(prediction, label);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_their_definitions() {
        let mut accuracy = Accuracy::new(2, Some(Level::default()), 2, 0);
        let seen = [(0, 1.0, 2.0), (1, 4.0, 4.0), (0, 6.0, 9.0)];
        for (node, prediction, label) in seen {
            accuracy.see(node, prediction, label, f64::NAN);
        }
        accuracy.close_round();
        assert_eq!(accuracy.absolute.mean(), 4.0 / 3.0);
        assert_eq!(accuracy.mse(), (1.0 + 9.0) / 3.0);
        // Labels 2, 4 and 9 have the mean 5 and squared distances 9, 1 and 16.
        assert!((accuracy.r2() - (1.0 - 10.0 / 26.0)).abs() < 1e-12);
        // Only the third prediction had an error of its node before it.
        assert_eq!(accuracy.coverage().map(|(share, _)| share), Some(0.0));
        assert_eq!(accuracy.window_coverage(), Some(0.0));
        (0..2).for_each(|_| accuracy.close_round());
        assert!(accuracy.window_coverage().is_some_and(f64::is_nan));
        assert!(accuracy.hours.is_empty() && accuracy.weekdays.is_empty());
    }

    #[test]
    fn errors_are_told_apart_by_hour_and_weekday() {
        let mut accuracy = Accuracy::new(1, None, 1, 0);
        // Sunday 31 December 1969, 23:59:59; Thursday 29 February 2024, 00:00 and 00:59:59.
        for (time, error) in [(-1.0, 1.0), (1_709_164_800.0, 2.0), (1_709_168_399.0, 4.0)] {
            accuracy.see(0, error, 0.0, time);
        }
        accuracy.see(0, 9.0, 0.0, f64::NAN);
        let found = |tallies: &[Tally]| -> Vec<(usize, f64, u64)> {
            let seen = tallies.iter().enumerate().filter(|(_, tally)| tally.count > 0);
            seen.map(|(place, tally)| (place, tally.sum, tally.count)).collect()
        };
        assert_eq!(found(&accuracy.hours), [(0, 20.0, 2), (23, 1.0, 1)]);
        assert_eq!(found(&accuracy.weekdays), [(2, 1.0, 1), (3, 20.0, 2)]);
    }

    #[test]
    fn a_label_that_is_known_later_changes_intervals_later() {
        let mut accuracy = Accuracy::new(1, Some(Level::default()), 1, 2);
        let mut has_interval = Vec::new();
        for _ in 0..4 {
            has_interval.push(accuracy.see(0, 0.0, 1.0, f64::NAN).is_some());
            accuracy.close_round();
        }
        assert_eq!(has_interval, [false, false, false, true]);
    }

    #[test]
    fn many_nodes_are_not_kept_apart() {
        let mut accuracy = Accuracy::new(MOST_DETAILED_NODES + 1, Some(Level::default()), 1, 0);
        assert_eq!(accuracy.see(3, 0.0, 1.0, f64::NAN), None);
        assert_eq!(accuracy.coverage(), None);
        assert_eq!(accuracy.absolute.mean(), 1.0);
    }
}
