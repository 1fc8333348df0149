//! [`ClassMeter`]: how good predictions of classes are.

use std::collections::VecDeque;

use hedgerow::NodeId;
use hedgerow::learning::{Calibration, Classes, Loss};
use hedgerow::metrics::Tally;

/// Bins of log-odds for the AUC: predictions within a bin count as equal.
const BINS: usize = 1000;
/// Log-odds of the outermost bins.
const FARTHEST: f64 = 10.0;

/// Measures of the probabilities that a method gives to classes. Every node calibrates its own, as
/// in a live system.
pub(crate) struct ClassMeter {
    classes: Classes,
    nodes: Vec<Calibration>,
    log_loss: Tally,
    /// Of each true class, how often each class was predicted.
    confusion: Vec<Vec<u64>>,
    /// Of each class, by log-odds: samples of the class, and others.
    bins: Vec<[(u64, u64); BINS]>,
    probabilities: Vec<f32>,
    /// Labels of this round and of rounds before that are not known yet.
    waiting: VecDeque<Vec<Waiting>>,
    /// Rounds until a label is known.
    delay: usize,
}

struct Waiting {
    node: NodeId,
    scores: Vec<f32>,
    loss: Loss,
    class: usize,
}

/// What was measured of the classes of a method.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ClassTrack {
    pub(crate) accuracy: f64,
    pub(crate) balanced_accuracy: f64,
    pub(crate) log_loss: f64,
    pub(crate) auc: f64,
    /// Of each true class, how often each class was predicted.
    pub(crate) confusion: Vec<Vec<u64>>,
}

impl ClassMeter {
    pub(crate) fn new(classes: Classes, nodes: usize, delay: usize) -> Self {
        Self {
            classes,
            nodes: vec![Calibration::default(); nodes],
            log_loss: Tally::default(),
            confusion: vec![vec![0; classes.count()]; classes.count()],
            bins: vec![[(0, 0); BINS]; classes.count()],
            probabilities: Vec::new(),
            waiting: VecDeque::from([Vec::new()]),
            delay,
        }
    }

    /// Scores a prediction: what the node says of each output, what the shared model does, and the
    /// labels. Returns the class that was predicted, and the true one.
    pub(crate) fn see(
        &mut self,
        node: NodeId,
        scores: &[f32],
        loss: Loss,
        labels: &[f32],
    ) -> (usize, usize) {
        let class = self.classes.likeliest(labels);
        let calibration = &mut self.nodes[node as usize];
        calibration.probabilities(scores, loss, &mut self.probabilities);
        let found = self.classes.likeliest(&self.probabilities);
        self.log_loss.add(-f64::from(self.probabilities[class]).ln());
        self.confusion[class][found] += 1;
        for (at, (bins, probability)) in self.bins.iter_mut().zip(&self.probabilities).enumerate() {
            let (of_class, others) = &mut bins[bin(f64::from(*probability))];
            *if at == class { of_class } else { others } += 1;
        }
        match self.waiting.back_mut().filter(|_| self.delay > 0) {
            Some(round) => {
                round.push(Waiting { node, scores: scores.to_vec(), loss, class });
            }
            None => calibration.learn(scores, loss, class),
        }
        (found, class)
    }

    /// The probabilities of the prediction that was scored last.
    pub(crate) fn probabilities(&self) -> &[f32] {
        &self.probabilities
    }

    /// How a node makes probabilities.
    pub(crate) fn calibration(&self, node: NodeId) -> Calibration {
        self.nodes[node as usize].clone()
    }

    pub(crate) fn close_round(&mut self) {
        if self.delay == 0 {
            return;
        }
        self.waiting.push_back(Vec::new());
        // A label is learned after the predictions of the round in which it comes.
        if self.waiting.len() > self.delay + 1 {
            for Waiting { node, scores, loss, class } in
                self.waiting.pop_front().unwrap_or_default()
            {
                self.nodes[node as usize].learn(&scores, loss, class);
            }
        }
    }

    pub(crate) fn finish(self) -> ClassTrack {
        let rows = self.confusion.iter().enumerate();
        let found = rows.map(|(class, row)| (row.iter().sum::<u64>(), row[class]));
        let found: Vec<(u64, u64)> = found.filter(|(count, _)| *count > 0).collect();
        let (count, right) = found.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let recalls = found.iter().map(|(count, found)| *found as f64 / *count as f64);
        ClassTrack {
            accuracy: right as f64 / (count as f64).max(1.0),
            balanced_accuracy: mean(recalls),
            log_loss: self.log_loss.mean(),
            auc: mean(self.bins.iter().filter_map(area)),
            confusion: self.confusion,
        }
    }
}

fn bin(probability: f64) -> usize {
    let log_odds = (probability / (1.0 - probability)).ln().clamp(-FARTHEST, FARTHEST);
    ((log_odds + FARTHEST) / (2.0 * FARTHEST) * (BINS - 1) as f64).round() as usize
}

/// The share of pairs of a sample of the class and another one whose probabilities are in the right
/// order; equal ones count half. None if there is no pair.
fn area(bins: &[(u64, u64); BINS]) -> Option<f64> {
    let (mut below, mut ordered, mut members) = (0.0, 0.0, 0.0);
    for &(of_class, others) in bins {
        ordered += of_class as f64 * (below + 0.5 * others as f64);
        below += others as f64;
        members += of_class as f64;
    }
    (members * below > 0.0).then(|| ordered / (members * below))
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let mut tally = Tally::default();
    values.for_each(|value| tally.add(value));
    if tally.count == 0 { f64::NAN } else { tally.mean() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(classes: usize, samples: &[(&[f32], usize)]) -> ClassTrack {
        let classes = Classes::new(classes).unwrap();
        let mut meter = ClassMeter::new(classes, 1, 0);
        for (scores, class) in samples {
            let labels: Vec<f32> = classes.labels(*class).collect();
            meter.see(0, &[*scores, *scores].concat(), Loss::Squared, &labels);
        }
        meter.finish()
    }

    #[test]
    fn measures_are_those_of_the_textbook() {
        // Of four samples of the first class three are found, of two of the second one.
        let samples = [(-0.9, 0), (-0.8, 0), (-0.7, 0), (0.5, 0), (0.6, 1), (-0.75, 1)];
        let samples: Vec<([f32; 1], usize)> = samples.map(|(score, class)| ([score], class)).into();
        let samples: Vec<(&[f32], usize)> =
            samples.iter().map(|(score, class)| (&score[..], *class)).collect();
        let found = meter(2, &samples);
        assert!((found.accuracy - 4.0 / 6.0).abs() < 1e-12);
        assert_eq!(found.confusion, [[3, 1], [1, 1]]);
        assert!((found.balanced_accuracy - 0.5 * (0.75 + 0.5)).abs() < 1e-12);
        // Of eight pairs: all four below 0.6, and two below -0.75.
        assert!((found.auc - 6.0 / 8.0).abs() < 1e-12, "{found:?}");
        assert!(found.log_loss > 0.0 && found.log_loss < 1.5, "{found:?}");
    }

    #[test]
    fn right_probabilities_of_three_classes_have_an_area_of_one() {
        let [a, b, c] = [[0.9, -0.8, -0.9], [-0.7, 0.6, -0.9], [-1.1, -0.9, 1.2]];
        let found = meter(3, &[(&a, 0), (&b, 1), (&c, 2), (&a, 0)]);
        assert_eq!((found.accuracy, found.balanced_accuracy, found.auc), (1.0, 1.0, 1.0));
        let wrong = meter(3, &[(&a, 1), (&b, 2), (&c, 0)]);
        assert_eq!((wrong.accuracy, wrong.balanced_accuracy), (0.0, 0.0));
        assert_eq!(wrong.confusion, [[0, 0, 1], [1, 0, 0], [0, 1, 0]]);
        assert!(wrong.auc < 0.5);
    }

    #[test]
    fn late_labels_are_learned_late() {
        let classes = Classes::new(2).unwrap();
        let mut meter = ClassMeter::new(classes, 1, 2);
        let mut sharpest = Vec::new();
        for _ in 0..6 {
            meter.see(0, &[0.9, 0.9], Loss::Squared, &[1.0]);
            sharpest.push(meter.probabilities()[1]);
            meter.close_round();
        }
        assert!(sharpest[..3].iter().all(|p| *p == sharpest[0]) && sharpest[3] > sharpest[0]);
    }
}
