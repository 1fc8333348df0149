//! [`Measures`] of a method's predictions, and the [`Trivial`] forecasts they are compared with.

use hedgerow::NodeId;
use hedgerow::baseline::Omkl;
use hedgerow::features::Features;
use hedgerow::learning::Objective;
use hedgerow::metrics::{ErrorMeter, Tally};

use crate::accuracy::Accuracy;
use crate::predictions::ScoredPrediction;
use crate::preprocessor::Round;
use crate::sampler::PredictionSampler;
use crate::trial::TrackCurve;

/// Errors, losses and shares of kernels.
pub(crate) struct Measures {
    learned: Objective,
    pub(crate) meter: ErrorMeter,
    pub(crate) accuracy: Accuracy,
    pub(crate) loss: Tally,
    pub(crate) wrong: Tally,
    /// Σ L, ridge term included.
    pub(crate) objective: f64,
    /// Shares of the kernels, summed over rounds; of this round, summed over predictions.
    shares: Vec<f64>,
    round_shares: Vec<f64>,
    round_predictions: u64,
    pub(crate) curve: TrackCurve,
    /// Every prediction, if they are asked for.
    pub(crate) predictions: Option<Vec<ScoredPrediction>>,
    /// Some of them, if there are figures of them.
    pub(crate) sampler: Option<PredictionSampler>,
}

impl Measures {
    /// Of predictions that are learned by this objective, with a window of so many rounds.
    pub(crate) fn new(
        learned: Objective,
        window: usize,
        kernels: usize,
        accuracy: Accuracy,
        records: bool,
        sampler: Option<PredictionSampler>,
    ) -> Self {
        Self {
            learned,
            meter: ErrorMeter::new(window),
            accuracy,
            loss: Tally::default(),
            wrong: Tally::default(),
            objective: 0.0,
            shares: vec![0.0; kernels],
            round_shares: vec![0.0; kernels],
            round_predictions: 0,
            curve: TrackCurve::default(),
            predictions: records.then(Vec::new),
            sampler,
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

    /// Scores the prediction of a sample: the error in the label's own unit, the loss as it is
    /// learned.
    pub(crate) fn see(&mut self, value: f32, round: &Round, sample: usize, norm2: f64) {
        let raw = round.unit_of(round.nodes[sample]).raw(f64::from(value));
        self.score((value, raw as f32), round, sample, norm2);
    }

    /// The same for a learner in one place, with the shares of its kernels.
    pub(crate) fn see_central(
        &mut self,
        learner: &Omkl,
        z: Features<'_>,
        round: &Round,
        sample: usize,
    ) {
        self.see(learner.predict(z), round, sample, learner.norm2());
        self.mix(learner.weights());
    }

    /// The same for a trivial forecast. Who knows no label says 0 in the unit of learning, as every
    /// method does in its first round.
    pub(crate) fn see_forecast(&mut self, trivial: &Trivial, round: &Round, sample: usize) {
        let node = round.nodes[sample];
        match trivial.forecast(node, round.previous[sample]) {
            Some(forecast) => {
                let scaled = round.unit_of(node).scaled(f64::from(forecast));
                self.score((scaled as f32, forecast), round, sample, 0.0);
            }
            None => self.see(0.0, round, sample, 0.0),
        }
    }

    /// Scores a prediction that is known in both units, the scaled one first.
    fn score(&mut self, (scaled, raw): (f32, f32), round: &Round, sample: usize, norm2: f64) {
        let (prediction, truth) = (f64::from(scaled), f64::from(round.y[sample]));
        let (node, label) = (round.nodes[sample], round.raw[sample]);
        self.meter.record(raw, label);
        let time = round.times.get(sample).copied().unwrap_or(f64::NAN);
        let interval = self.accuracy.see(node, raw, label, time);
        if let Some(sampler) = &mut self.sampler {
            sampler.see(node, label, raw, interval);
        }
        if let Some(predictions) = &mut self.predictions {
            let index = round.indices[sample];
            predictions.push(ScoredPrediction { index, node, truth: label, value: raw, interval });
        }
        self.loss.add(self.learned.loss.value(prediction, truth));
        self.wrong.add(f64::from(u8::from(prediction * truth <= 0.0)));
        self.objective += self.learned.value(prediction, truth, norm2);
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
        self.curve.coverage.extend(self.accuracy.window_coverage());
        self.curve.shares.push(self.round_shares.clone());
    }

    pub(crate) fn close_round(&mut self) {
        self.meter.close_round();
        self.accuracy.close_round();
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

/// What a forecast without features or scale stores.
pub(crate) enum Trivial {
    /// Each node's last label.
    Last(Vec<Option<f32>>),
    /// How many labels each node has seen, and their mean.
    Mean(Vec<(u64, f64)>),
    /// The last label of all nodes, for data that doesn't say which label came before.
    Previous(Option<f32>),
}

impl Trivial {
    pub(crate) fn last(nodes: usize) -> Self {
        Self::Last(vec![None; nodes])
    }

    pub(crate) fn mean(nodes: usize) -> Self {
        Self::Mean(vec![(0, 0.0); nodes])
    }

    /// What it says of the next label of a node, if it knows anything; `previous` is the latest
    /// label before it in the data, NaN if the data doesn't say.
    pub(crate) fn forecast(&self, node: NodeId, previous: f32) -> Option<f32> {
        match self {
            Self::Last(labels) => labels[node as usize],
            Self::Mean(means) => {
                let (count, mean) = means[node as usize];
                (count > 0).then_some(mean as f32)
            }
            Self::Previous(label) => Some(previous).filter(|label| !label.is_nan()).or(*label),
        }
    }

    pub(crate) fn see(&mut self, node: NodeId, label: f32) {
        match self {
            Self::Last(labels) => labels[node as usize] = Some(label),
            Self::Mean(means) => {
                let (count, mean) = &mut means[node as usize];
                *count += 1;
                *mean += (f64::from(label) - *mean) / *count as f64;
            }
            Self::Previous(last) => *last = Some(label),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels of two nodes in turn, and what a forecast says before each.
    fn forecasts(mut trivial: Trivial) -> [Option<f32>; 5] {
        [(0, 2.0), (1, 100.0), (0, 4.0), (0, 0.0), (1, 0.0)].map(|(node, label)| {
            let forecast = trivial.forecast(node, f32::NAN);
            trivial.see(node, label);
            forecast
        })
    }

    #[test]
    fn every_node_has_a_last_label_and_a_mean_of_its_own() {
        let last = forecasts(Trivial::last(2));
        assert_eq!(last, [None, None, Some(2.0), Some(4.0), Some(100.0)]);
        let mean = forecasts(Trivial::mean(2));
        assert_eq!(mean, [None, None, Some(2.0), Some(3.0), Some(100.0)]);
        assert_eq!(Trivial::last(1).forecast(0, 9.0), None, "others' labels don't count");
    }

    #[test]
    fn the_previous_label_is_that_of_the_whole_stream() {
        let previous = forecasts(Trivial::Previous(None));
        assert_eq!(previous, [None, Some(2.0), Some(100.0), Some(4.0), Some(0.0)]);
        let known = Trivial::Previous(Some(5.0));
        assert_eq!(known.forecast(0, 1.0), Some(1.0), "what the data says comes first");
    }
}
