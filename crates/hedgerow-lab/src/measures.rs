//! [`Measures`] of a method's predictions, and the [`Trivial`] forecasts they are compared with.

use hedgerow::NodeId;
use hedgerow::baseline::Omkl;
use hedgerow::features::Features;
use hedgerow::learning::{Classes, Level, Loss, Objective};
use hedgerow::metrics::{ErrorMeter, Tally};

use crate::accuracy::{Accuracy, MOST_DETAILED_NODES};
use crate::class_meter::ClassMeter;
use crate::predictions::ScoredPrediction;
use crate::preprocessor::Round;
use crate::sampler::PredictionSampler;
use crate::trial::TrackCurve;

/// Errors, losses and shares of kernels. The error of a prediction of several targets is the mean
/// of their squared errors, each in a unit of its own; that of a class is 1 if it is wrong, else 0.
pub(crate) struct Measures {
    learned: Objective,
    pub(crate) meter: ErrorMeter,
    /// Of each target; of classes, none.
    pub(crate) targets: Vec<Accuracy>,
    pub(crate) classes: Option<ClassMeter>,
    /// The unit of each target.
    units: Vec<f64>,
    /// Errors of each node; empty if there are too many nodes.
    pub(crate) nodes: Vec<Tally>,
    pub(crate) loss: Tally,
    /// Σ L, ridge term included.
    pub(crate) objective: f64,
    /// Shares of the kernels, summed over rounds; of this round, summed over predictions.
    shares: Vec<f64>,
    round_shares: Vec<f64>,
    round_predictions: u64,
    pub(crate) curve: TrackCurve,
    /// Every prediction, and the probabilities of its classes, if they are asked for.
    pub(crate) predictions: Option<(Vec<ScoredPrediction>, Vec<f32>)>,
    /// Values of a prediction in the labels' own units; scratch.
    raw: Vec<f32>,
    /// Some predictions, if there are figures of them.
    pub(crate) sampler: Option<PredictionSampler>,
}

/// What is measured of a method.
pub(crate) struct Measured<'a> {
    /// What its predictions are learned by.
    pub(crate) learned: Objective,
    /// The unit of each target; none for classes.
    pub(crate) units: &'a [f64],
    pub(crate) classes: Option<Classes>,
    /// Level of the intervals of numbers.
    pub(crate) level: Option<Level>,
    pub(crate) nodes: usize,
    /// Rounds in the window, and rounds until a label is known.
    pub(crate) window: usize,
    pub(crate) delay: usize,
    pub(crate) kernels: usize,
    /// Whether every prediction is kept.
    pub(crate) records: bool,
    pub(crate) sampler: Option<PredictionSampler>,
}

impl Measures {
    pub(crate) fn new(measured: Measured<'_>) -> Self {
        let Measured { learned, units, classes, level, nodes, delay, kernels, window, .. } =
            measured;
        let accuracy = |_: &f64| Accuracy::new(nodes, level, window, delay);
        let detailed = if nodes <= MOST_DETAILED_NODES { nodes } else { 0 };
        let records = measured.records;
        Self {
            learned,
            meter: ErrorMeter::new(measured.window),
            targets: units.iter().map(accuracy).collect(),
            classes: classes.map(|classes| ClassMeter::new(classes, nodes, delay)),
            units: units.to_vec(),
            nodes: vec![Tally::default(); detailed],
            loss: Tally::default(),
            objective: 0.0,
            shares: vec![0.0; kernels],
            round_shares: vec![0.0; kernels],
            round_predictions: 0,
            curve: TrackCurve::default(),
            predictions: records.then(Default::default),
            raw: Vec::new(),
            sampler: measured.sampler,
        }
    }

    /// Number of kernels that can share a prediction.
    pub(crate) fn kernels(&self) -> usize {
        self.shares.len()
    }

    /// Share of each kernel over all rounds with predictions.
    pub(crate) fn mean_shares(&self) -> Vec<f64> {
        let rounds = self.shares.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        self.shares.iter().map(|share| share / rounds).collect()
    }

    /// Mean squared error over the window; NaN without a prediction in it.
    pub(crate) fn window_mse(&self) -> f64 {
        self.meter.window_mse().unwrap_or(f64::NAN)
    }

    /// Mean squared error so far; not a number before the first prediction.
    pub(crate) fn mse(&self) -> f64 {
        if self.loss.count == 0 { f64::NAN } else { self.meter.mse() }
    }

    /// Scores the prediction of a sample, of which `values` are what the node says of each output
    /// and `shared` what the shared model does: the error in the label's own unit, the loss as it
    /// is learned.
    pub(crate) fn see(
        &mut self,
        (values, shared): (&[f32], &[f32]),
        round: &Round,
        sample: usize,
        norm2: f64,
    ) {
        let node = round.nodes[sample];
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        let own_unit = |(output, value): (usize, &f32)| {
            round.unit_of(node, output).raw(f64::from(*value)) as f32
        };
        raw.extend(values.iter().enumerate().map(own_unit));
        if self.classes.is_some() {
            raw.extend(shared.iter().enumerate().map(own_unit));
        }
        self.score((values, &raw), self.learned.loss, round, sample, norm2);
        self.raw = raw;
    }

    /// The same for a learner in one place, with the shares of its kernels.
    pub(crate) fn see_central(
        &mut self,
        learners: &[Omkl],
        z: Features<'_>,
        round: &Round,
        sample: usize,
    ) {
        let values: Vec<f32> = learners.iter().map(|learner| learner.predict(z)).collect();
        let norm2 = learners.iter().map(Omkl::norm2).sum::<f64>() / learners.len() as f64;
        self.see((&values, &values), round, sample, norm2);
        self.mix(learners[0].weights());
    }

    /// The same for a trivial forecast. Who knows no label says 0 in the unit of learning, as every
    /// method does in its first round.
    pub(crate) fn see_forecast(&mut self, trivial: &Trivial, round: &Round, sample: usize) {
        let node = round.nodes[sample];
        let previous = &round.previous[round.labels(sample..sample + 1)];
        let (mut scaled, mut raw) = (Vec::new(), Vec::new());
        for (output, previous) in previous.iter().enumerate() {
            let unit = round.unit_of(node, output);
            let forecast = trivial.forecast(node, output, *previous);
            let (in_unit, value) = forecast.map_or_else(
                || (0.0, unit.raw(0.0) as f32),
                |forecast| (unit.scaled(f64::from(forecast)) as f32, forecast),
            );
            scaled.push(in_unit);
            raw.push(value);
        }
        if self.classes.is_some() {
            raw.extend_from_within(..);
        }
        // A forecast of a class is a mean of labels, whatever others learn by.
        self.score((&scaled, &raw), Loss::Squared, round, sample, 0.0);
    }

    /// Scores a prediction that is known in both units, the scaled one first; `loss` says what
    /// scores of classes are.
    fn score(
        &mut self,
        (scaled, raw): (&[f32], &[f32]),
        loss: Loss,
        round: &Round,
        sample: usize,
        norm2: f64,
    ) {
        let (node, index) = (round.nodes[sample], round.indices[sample]);
        let labels = round.labels(sample..sample + 1);
        let (truths, raw_truths) = (&round.y[labels.clone()], &round.raw[labels]);
        let error = match &mut self.classes {
            Some(classes) => {
                let (found, class) = classes.see(node, raw, loss, raw_truths);
                if let Some((predictions, probabilities)) = &mut self.predictions {
                    let (truth, value) = (class as f32, found as f32);
                    let interval = None;
                    predictions.push(ScoredPrediction { index, node, truth, value, interval });
                    probabilities.extend_from_slice(classes.probabilities());
                }
                f64::from(u8::from(found != class))
            }
            None => {
                let mut sum = 0.0;
                let time = round.times.get(sample).copied().unwrap_or(f64::NAN);
                for (output, (&value, &truth)) in raw.iter().zip(raw_truths).enumerate() {
                    let error = (f64::from(value) - f64::from(truth)) / self.units[output];
                    sum += error * error;
                    let interval = self.targets[output].see(node, value, truth, time);
                    if let Some(sampler) = &mut self.sampler {
                        sampler.see(node, [truth, value], interval, time);
                    }
                    if let Some((predictions, _)) = &mut self.predictions {
                        predictions.push(ScoredPrediction { index, node, truth, value, interval });
                    }
                }
                sum / raw.len() as f64
            }
        };
        self.meter.add(error);
        self.nodes.get_mut(node as usize).into_iter().for_each(|tally| tally.add(error));
        let outputs = scaled.len() as f64;
        let both = || scaled.iter().zip(truths).map(|(a, b)| (f64::from(*a), f64::from(*b)));
        let learned = self.learned;
        let losses = both().map(|(value, truth)| learned.loss.value(value, truth));
        self.loss.add(losses.sum::<f64>() / outputs);
        let objectives = both().map(|(value, truth)| learned.value(value, truth, norm2));
        self.objective += objectives.sum::<f64>() / outputs;
    }

    /// Mean absolute error, R², and coverage and width of intervals, over targets in their units.
    pub(crate) fn accuracy(&self) -> (f64, f64, Option<(f64, f64)>) {
        let count = self.targets.len() as f64;
        let both = || self.targets.iter().zip(&self.units);
        let mae = both().map(|(target, unit)| target.absolute.mean() / unit).sum::<f64>();
        let r2 = self.targets.iter().map(Accuracy::r2).sum::<f64>();
        let coverages: Option<Vec<(f64, f64)>> = both()
            .map(|(target, unit)| target.coverage().map(|(share, width)| (share, width / unit)))
            .collect();
        let coverage = coverages.filter(|all| !all.is_empty()).map(|all| {
            let sum = all.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            (sum.0 / count, sum.1 / count)
        });
        (mae / count, r2 / count, coverage)
    }

    /// Adds the shares of kernels in the prediction just seen.
    pub(crate) fn mix(&mut self, shares: &[f64]) {
        if self.round_predictions == 0 {
            // A round without predictions keeps the shares of the one before.
            self.round_shares.fill(0.0);
        }
        self.round_predictions += 1;
        self.round_shares.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
    }

    /// Adds a point to the curve.
    pub(crate) fn record(&mut self) {
        let (mse, window_mse) = (self.mse(), self.window_mse());
        self.curve.mse.push(mse);
        self.curve.window_mse.push(window_mse);
        self.curve.loss.push(self.loss.mean());
        let coverages: Option<Vec<f64>> =
            self.targets.iter().map(Accuracy::window_coverage).collect();
        let coverages = coverages.filter(|all| !all.is_empty());
        let mean = |all: Vec<f64>| all.iter().sum::<f64>() / all.len() as f64;
        self.curve.coverage.extend(coverages.map(mean));
        self.curve.shares.push(self.round_shares.clone());
    }

    pub(crate) fn close_round(&mut self) {
        self.meter.close_round();
        self.targets.iter_mut().for_each(Accuracy::close_round);
        self.classes.iter_mut().for_each(ClassMeter::close_round);
        self.sampler.iter_mut().for_each(PredictionSampler::close_round);
        let predictions = std::mem::take(&mut self.round_predictions);
        if predictions > 0 {
            for (total, share) in self.shares.iter_mut().zip(&mut self.round_shares) {
                *share /= predictions as f64;
                *total += *share;
            }
        }
    }
}

/// A forecast without features or scale, of each output.
pub(crate) struct Trivial {
    outputs: usize,
    known: Known,
}

/// What it stores, for all outputs of a node one after the other.
enum Known {
    /// Each node's last label.
    Last(Vec<Option<f32>>),
    /// How many labels each node has seen, and their mean.
    Mean(Vec<(u64, f64)>),
    /// The last label of all nodes, for data that doesn't say which label came before.
    Previous(Vec<Option<f32>>),
}

impl Trivial {
    pub(crate) fn last(nodes: usize, outputs: usize) -> Self {
        Self { outputs, known: Known::Last(vec![None; nodes * outputs]) }
    }

    pub(crate) fn mean(nodes: usize, outputs: usize) -> Self {
        Self { outputs, known: Known::Mean(vec![(0, 0.0); nodes * outputs]) }
    }

    pub(crate) fn previous(outputs: usize) -> Self {
        Self { outputs, known: Known::Previous(vec![None; outputs]) }
    }

    /// What it says of the next label of a node, if it knows anything; `previous` is the latest
    /// label before it in the data, NaN if the data doesn't say.
    pub(crate) fn forecast(&self, node: NodeId, output: usize, previous: f32) -> Option<f32> {
        let at = node as usize * self.outputs + output;
        match &self.known {
            Known::Last(labels) => labels[at],
            Known::Mean(means) => {
                let (count, mean) = means[at];
                (count > 0).then_some(mean as f32)
            }
            Known::Previous(labels) => {
                Some(previous).filter(|label| !label.is_nan()).or(labels[output])
            }
        }
    }

    /// The labels of a sample of a node have come.
    pub(crate) fn see(&mut self, node: NodeId, labels: &[f32]) {
        let start = node as usize * self.outputs;
        for (output, &label) in labels.iter().enumerate() {
            match &mut self.known {
                Known::Last(labels) => labels[start + output] = Some(label),
                Known::Mean(means) => {
                    let (count, mean) = &mut means[start + output];
                    *count += 1;
                    *mean += (f64::from(label) - *mean) / *count as f64;
                }
                Known::Previous(last) => last[output] = Some(label),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels of two nodes in turn, and what a forecast says before each.
    fn forecasts(mut trivial: Trivial) -> [Option<f32>; 5] {
        [(0, 2.0), (1, 100.0), (0, 4.0), (0, 0.0), (1, 0.0)].map(|(node, label)| {
            let forecast = trivial.forecast(node, 0, f32::NAN);
            trivial.see(node, &[label]);
            forecast
        })
    }

    #[test]
    fn every_node_has_a_last_label_and_a_mean_of_its_own() {
        let last = forecasts(Trivial::last(2, 1));
        assert_eq!(last, [None, None, Some(2.0), Some(4.0), Some(100.0)]);
        let mean = forecasts(Trivial::mean(2, 1));
        assert_eq!(mean, [None, None, Some(2.0), Some(3.0), Some(100.0)]);
        assert_eq!(Trivial::last(1, 1).forecast(0, 0, 9.0), None, "others' labels don't count");
    }

    #[test]
    fn the_previous_label_is_that_of_the_whole_stream() {
        let previous = forecasts(Trivial::previous(1));
        assert_eq!(previous, [None, Some(2.0), Some(100.0), Some(4.0), Some(0.0)]);
        let mut known = Trivial::previous(1);
        known.see(0, &[5.0]);
        assert_eq!(known.forecast(0, 0, 1.0), Some(1.0), "what the data says comes first");
    }
}
