//! [`MethodRun`]: a method in a trial, and its measurements.

use std::ops::Range;
use std::time::Instant;

use hedgerow::baseline::Omkl;
use hedgerow::features::Features;
use hedgerow::federation::{Contact, NodeRound, Observations, Prediction, RoundError};
use hedgerow::learning::{Objective, Personal};
use hedgerow::method::BadSample;
use hedgerow::metrics::{ErrorMeter, Tally, Traffic};
use hedgerow::scaling::Rescaling;
use hedgerow::{Federation, NodeId, Plan};

use crate::parallelism::Parallelism;
use crate::preprocessor::{Round, Unscaled};
use crate::settings::MethodChoice;
use crate::trial::{Track, TrackCurve};

/// How a method learns.
pub(crate) enum Algorithm {
    /// With nodes and a server, where nodes may miss rounds.
    Federated(Box<Federation>),
    /// Centrally, sample by sample.
    Sequential(Box<Omkl>),
    /// Centrally, a round at a time.
    Batch(Box<Omkl>),
    /// It doesn't learn: a trivial forecast.
    Trivial(Trivial),
}

impl Algorithm {
    pub(crate) fn federated(plan: &Plan) -> Self {
        Self::Federated(Box::new(Federation::new(plan)))
    }
}

/// What each node stores for a forecast without features or scale.
pub(crate) enum Trivial {
    /// The last label, for when the data doesn't say what was known.
    Last(Vec<f32>),
    /// How many labels it has seen, and their mean.
    Mean(Vec<(u64, f64)>),
}

impl Trivial {
    pub(crate) fn last(nodes: usize) -> Self {
        Self::Last(vec![f32::NAN; nodes])
    }

    pub(crate) fn mean(nodes: usize) -> Self {
        Self::Mean(vec![(0, 0.0); nodes])
    }

    /// What it says of the next label, if it knows anything; `last` is the latest label that is
    /// known, NaN if none is.
    fn forecast(&self, node: NodeId, last: f32) -> Option<f32> {
        match self {
            Self::Last(previous) => {
                [last, previous[node as usize]].into_iter().find(|value| !value.is_nan())
            }
            Self::Mean(means) => {
                let (count, mean) = means[node as usize];
                (count > 0).then_some(mean as f32)
            }
        }
    }

    fn see(&mut self, node: NodeId, label: f32) {
        match self {
            Self::Last(previous) => previous[node as usize] = label,
            Self::Mean(means) => {
                let (count, mean) = &mut means[node as usize];
                *count += 1;
                *mean += (f64::from(label) - *mean) / *count as f64;
            }
        }
    }
}

/// Some samples of a round with their features.
pub(crate) struct Batch<'a> {
    pub(crate) round: &'a Round,
    /// Which samples, in order; the samples of a round come in one batch or in several.
    pub(crate) samples: Range<usize>,
    pub(crate) z: Features<'a>,
    pub(crate) width: usize,
    pub(crate) visits: &'a [NodeRound<'a>],
    /// The same samples in the server's scale, if a node's scale differs, for methods that learn in
    /// one place.
    pub(crate) central: Option<&'a Batch<'a>>,
    /// What is learned from, where labels are known only some rounds after they were predicted.
    pub(crate) due: Option<&'a Batch<'a>>,
}

impl<'a> Batch<'a> {
    fn central(&self) -> &Self {
        self.central.unwrap_or(self)
    }

    fn samples(&self) -> impl Iterator<Item = (usize, Features<'a>)> {
        self.samples.clone().zip(self.z.samples(self.width))
    }

    /// Labels of nodes that have no scale yet: with the first batch of the round.
    fn unscaled(&self) -> impl Iterator<Item = &'a Unscaled> {
        self.round.unscaled.iter().filter(|_| self.samples.start == 0)
    }
}

fn bad_sample(source: BadSample) -> RoundError {
    RoundError::BadSample { node: 0, source }
}

/// A method and its measurements.
pub(crate) struct MethodRun {
    pub(crate) choice: MethodChoice,
    pub(crate) kernel: Option<usize>,
    algorithm: Algorithm,
    pub(crate) measures: Measures,
    pub(crate) seconds: f64,
    pub(crate) curve: TrackCurve,
    /// The personal layers of the nodes.
    own: Option<Own>,
    /// Numbers in all samples so far, for methods that send samples.
    sent: u64,
    /// The threads of the run, and its recorded predictions; scratch.
    parallelism: Parallelism,
    notes: Vec<f64>,
}

/// Numbers that are noted of a prediction before the shares of its kernels: its value and the
/// squared norm of its model.
const NOTES_BEFORE_SHARES: usize = 2;

/// The personal layer of every node, and its measurements.
struct Own {
    layers: Vec<Personal>,
    measures: Measures,
    curve: TrackCurve,
}

impl Own {
    /// Predicts a sample, given the global prediction in the label's own unit, which it returns.
    fn see(&mut self, objective: Objective, value: f32, round: &Round, sample: usize) -> f32 {
        let node = round.nodes[sample];
        let global = round.unit_of(node).raw(f64::from(value)) as f32;
        let own = self.layers[node as usize].predict(global);
        self.measures.see_trivial(objective, own, round, sample);
        global
    }

    fn learn(&mut self, global: f32, round: &Round, sample: usize) {
        self.layers[round.nodes[sample] as usize].learn(global, round.raw[sample]);
    }
}

/// Errors, losses and shares of kernels.
pub(crate) struct Measures {
    meter: ErrorMeter,
    loss: Tally,
    wrong: Tally,
    /// Σ L, ridge term included.
    pub(crate) objective: f64,
    /// Shares of the kernels, summed over rounds; of this round, summed over predictions.
    shares: Vec<f64>,
    round_shares: Vec<f64>,
    round_predictions: u64,
}

impl Measures {
    fn new(window: usize, kernels: usize) -> Self {
        Self {
            meter: ErrorMeter::new(window),
            loss: Tally::default(),
            wrong: Tally::default(),
            objective: 0.0,
            shares: vec![0.0; kernels],
            round_shares: vec![0.0; kernels],
            round_predictions: 0,
        }
    }

    /// Mean squared error so far; not a number before the first prediction.
    fn mse(&self) -> f64 {
        if self.loss.count == 0 { f64::NAN } else { self.meter.mse() }
    }

    fn open_round(&mut self) {
        self.round_predictions = 0;
    }

    /// Scores the prediction of a sample: the error in the label's own unit, the loss as it is
    /// learned.
    fn see(&mut self, objective: Objective, value: f32, round: &Round, sample: usize, norm2: f64) {
        let raw = round.unit_of(round.nodes[sample]).raw(f64::from(value));
        self.score(objective, (value, raw as f32), round, sample, norm2);
    }

    /// The same for a forecast in the label's own unit.
    fn see_trivial(&mut self, objective: Objective, forecast: f32, round: &Round, sample: usize) {
        let scaled = round.unit_of(round.nodes[sample]).scaled(f64::from(forecast));
        self.score(objective, (scaled as f32, forecast), round, sample, 0.0);
    }

    /// Scores a prediction that is known in both units, the scaled one first.
    fn score(
        &mut self,
        objective: Objective,
        (scaled, raw): (f32, f32),
        round: &Round,
        sample: usize,
        norm2: f64,
    ) {
        let (prediction, truth) = (f64::from(scaled), f64::from(round.y[sample]));
        self.meter.record(raw, round.raw[sample]);
        self.loss.add(objective.loss.value(prediction, truth));
        self.wrong.add(f64::from(u8::from(prediction * truth <= 0.0)));
        self.objective += objective.value(prediction, truth, norm2);
    }

    /// Adds the shares of kernels in the prediction just seen.
    fn mix(&mut self, shares: &[f64]) {
        if self.round_predictions == 0 {
            // A round without predictions keeps the shares of the one before.
            self.round_shares.fill(0.0);
        }
        self.round_predictions += 1;
        self.round_shares.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
    }

    fn record(&self, curve: &mut TrackCurve) {
        curve.mse.push(self.mse());
        curve.window_mse.push(self.meter.window_mse().unwrap_or(f64::NAN));
        curve.loss.push(self.loss.mean());
        curve.shares.push(self.round_shares.clone());
    }

    fn close_round(&mut self) {
        self.meter.close_round();
        if self.round_predictions > 0 {
            for (total, share) in self.shares.iter_mut().zip(&mut self.round_shares) {
                *share /= self.round_predictions as f64;
                *total += *share;
            }
        }
    }
}

impl MethodRun {
    pub(crate) fn new(
        choice: MethodChoice,
        kernel: Option<usize>,
        algorithm: Algorithm,
        window: usize,
        kernels: usize,
        (nodes, parallelism): (usize, Parallelism),
    ) -> Self {
        let own = || Own {
            layers: vec![Personal::default(); nodes],
            measures: Measures::new(window, kernels),
            curve: TrackCurve::default(),
        };
        Self {
            choice,
            kernel,
            algorithm,
            own: choice.personal.then(own),
            measures: Measures::new(window, kernels),
            seconds: 0.0,
            curve: TrackCurve::default(),
            sent: 0,
            parallelism,
            notes: Vec::new(),
        }
    }

    pub(crate) fn open_round(&mut self) {
        self.measures.open_round();
        if let Some(own) = &mut self.own {
            own.measures.open_round();
        }
    }

    /// Processes a batch of a round's samples: predicts, then learns.
    pub(crate) fn play(
        &mut self,
        objective: Objective,
        batch: &Batch<'_>,
    ) -> Result<(), RoundError> {
        let start = Instant::now();
        match batch.due {
            None => self.predict_and_learn(objective, batch)?,
            Some(due) => {
                self.predict(objective, batch)?;
                self.learn(due)?;
            }
        }
        self.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Ends the round, after all of its samples.
    pub(crate) fn close_round(&mut self, round: &Round) -> Result<(), RoundError> {
        let start = Instant::now();
        if let Algorithm::Federated(federation) = &mut self.algorithm {
            federation.close(&self.parallelism)?;
        }
        self.measures.close_round();
        if let Some(own) = &mut self.own {
            own.measures.close_round();
        }
        self.sent += (round.x.len() + round.y.len()) as u64;
        self.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Every sample is learned from as soon as it has been predicted.
    fn predict_and_learn(
        &mut self,
        objective: Objective,
        batch: &Batch<'_>,
    ) -> Result<(), RoundError> {
        let measures = &mut self.measures;
        let (round, central) = (batch.round, batch.central());
        match &mut self.algorithm {
            Algorithm::Sequential(learner) => {
                for (sample, z) in central.samples() {
                    measures.see(
                        objective,
                        learner.predict(z),
                        central.round,
                        sample,
                        learner.norm2(),
                    );
                    measures.mix(learner.weights());
                    learner.learn(z, central.round.y[sample]).map_err(bad_sample)?;
                }
            }
            Algorithm::Federated(federation) => {
                let (own, width) = (&mut self.own, NOTES_BEFORE_SHARES + measures.shares.len());
                self.notes.resize(batch.samples.len() * width, 0.0);
                let notes = Observations { numbers: &mut self.notes, width };
                federation.visit(
                    batch.visits,
                    &self.parallelism,
                    notes,
                    |Prediction { value, method, .. }, note| {
                        (note[0], note[1]) = (f64::from(value), method.norm2());
                        method.shares(&mut note[NOTES_BEFORE_SHARES..]);
                    },
                )?;
                // Sums run in the order of the samples for any number of threads.
                for (sample, note) in batch.samples.clone().zip(self.notes.chunks_exact(width)) {
                    let (value, shares) = (note[0] as f32, &note[NOTES_BEFORE_SHARES..]);
                    measures.see(objective, value, round, sample, note[1]);
                    measures.mix(shares);
                    if let Some(own) = own {
                        let global = own.see(objective, value, round, sample);
                        own.measures.mix(shares);
                        own.learn(global, round, sample);
                    }
                }
            }
            Algorithm::Trivial(trivial) => {
                // Labels before the first scale are stored, but not scored.
                batch.unscaled().for_each(|sample| trivial.see(sample.node, sample.label));
                for sample in batch.samples.clone() {
                    let node = round.nodes[sample];
                    if let Some(forecast) = trivial.forecast(node, round.last[sample]) {
                        measures.see_trivial(objective, forecast, round, sample);
                    }
                    trivial.see(node, round.raw[sample]);
                }
            }
            Algorithm::Batch(_) => {
                self.predict(objective, batch)?;
                self.learn(batch)?;
            }
        }
        Ok(())
    }

    /// Predicts the current samples.
    fn predict(&mut self, objective: Objective, batch: &Batch<'_>) -> Result<(), RoundError> {
        let measures = &mut self.measures;
        match &mut self.algorithm {
            Algorithm::Sequential(learner) | Algorithm::Batch(learner) => {
                let batch = batch.central();
                for (sample, z) in batch.samples() {
                    measures.see(
                        objective,
                        learner.predict(z),
                        batch.round,
                        sample,
                        learner.norm2(),
                    );
                    measures.mix(learner.weights());
                }
            }
            Algorithm::Federated(federation) => {
                for visit in batch.visits.iter().filter(|visit| visit.contact != Contact::Lost) {
                    federation.hear(visit.node)?;
                }
                self.notes.resize(measures.shares.len(), 0.0);
                for (sample, z) in batch.samples() {
                    let node = batch.round.nodes[sample] as usize;
                    if let Some(method) = federation.nodes().get(node).map(|node| node.method(0)) {
                        let value = method.predict(z);
                        measures.see(objective, value, batch.round, sample, method.norm2());
                        method.shares(&mut self.notes);
                        measures.mix(&self.notes);
                        if let Some(own) = &mut self.own {
                            own.see(objective, value, batch.round, sample);
                            own.measures.mix(&self.notes);
                        }
                    }
                }
            }
            Algorithm::Trivial(trivial) => {
                for sample in batch.samples.clone() {
                    let node = batch.round.nodes[sample];
                    if let Some(forecast) = trivial.forecast(node, batch.round.last[sample]) {
                        measures.see_trivial(objective, forecast, batch.round, sample);
                    }
                }
            }
        }
        Ok(())
    }

    /// Learns from samples that have been predicted before.
    fn learn(&mut self, batch: &Batch<'_>) -> Result<(), RoundError> {
        match &mut self.algorithm {
            Algorithm::Sequential(learner) => {
                let batch = batch.central();
                for (sample, z) in batch.samples() {
                    learner.learn(z, batch.round.y[sample]).map_err(bad_sample)?;
                }
            }
            Algorithm::Batch(learner) => {
                let batch = batch.central();
                learner.learn_batch(batch.z, &batch.round.y).map_err(bad_sample)?;
            }
            Algorithm::Federated(federation) => {
                self.notes.resize(batch.samples.len(), 0.0);
                let notes = Observations { numbers: &mut self.notes, width: 1 };
                federation.visit(batch.visits, &self.parallelism, notes, |prediction, note| {
                    note[0] = f64::from(prediction.value);
                })?;
                let round = batch.round;
                for (sample, value) in batch.samples.clone().zip(&self.notes) {
                    // The model has changed since the prediction: the layer learns from what it
                    // predicts now.
                    if let Some(own) = &mut self.own {
                        let unit = round.unit_of(round.nodes[sample]);
                        own.learn(unit.raw(*value) as f32, round, sample);
                    }
                }
            }
            Algorithm::Trivial(trivial) => {
                let round = batch.round;
                batch.unscaled().for_each(|sample| trivial.see(sample.node, sample.label));
                round
                    .nodes
                    .iter()
                    .zip(&round.raw)
                    .for_each(|(node, label)| trivial.see(*node, *label));
            }
        }
        Ok(())
    }

    /// Whether it learns centrally.
    pub(crate) fn is_central(&self) -> bool {
        matches!(self.algorithm, Algorithm::Sequential(_) | Algorithm::Batch(_))
    }

    /// Whether it learns from all samples of a round at once.
    pub(crate) fn is_batch(&self) -> bool {
        matches!(self.algorithm, Algorithm::Batch(_))
    }

    /// Rescales the models of a node.
    pub(crate) fn transport_node(
        &mut self,
        node: NodeId,
        transport: &Rescaling,
    ) -> Result<(), RoundError> {
        match &mut self.algorithm {
            Algorithm::Federated(federation) => federation.rescale_node(node, transport),
            _ => Ok(()),
        }
    }

    /// Takes the server's model to another scale.
    pub(crate) fn transport_server(&mut self, transport: &Rescaling) {
        match &mut self.algorithm {
            Algorithm::Federated(federation) => federation.rescale_server(transport),
            Algorithm::Sequential(learner) | Algorithm::Batch(learner) => {
                learner.rescale(transport)
            }
            Algorithm::Trivial(_) => {}
        }
    }

    pub(crate) fn record(&mut self) {
        self.measures.record(&mut self.curve);
        if let Some(own) = &mut self.own {
            own.measures.record(&mut own.curve);
        }
    }

    /// Mean squared error so far.
    pub(crate) fn mse(&self) -> f64 {
        self.measures.mse()
    }

    /// The tracks of the method and of its personal layers.
    pub(crate) fn finish(self) -> Vec<Track> {
        let (traffic, votes) = match self.algorithm {
            Algorithm::Federated(federation) => {
                (*federation.traffic(), federation.votes().to_vec())
            }
            // Central learning sends the samples themselves.
            Algorithm::Batch(_) | Algorithm::Sequential(_) => {
                let sent = Traffic {
                    numbers_up: self.sent,
                    bytes_up: 4 * self.sent,
                    ..Traffic::default()
                };
                (sent, vec![])
            }
            Algorithm::Trivial(_) => (Traffic::default(), vec![]),
        };
        let (choice, kernel, seconds) = (self.choice, self.kernel, self.seconds);
        let track = |name, measures: Measures, curve| {
            // Rounds with predictions.
            let rounds = measures.shares.iter().sum::<f64>().max(f64::MIN_POSITIVE);
            Track {
                choice,
                name,
                kernel,
                mse: measures.meter.mse(),
                window_mse: measures.meter.window_mse().unwrap_or(f64::NAN),
                mean_loss: measures.loss.mean(),
                error_rate: measures.wrong.mean(),
                traffic,
                votes: votes.clone(),
                shares: measures.shares.iter().map(|share| share / rounds).collect(),
                seconds,
                curve,
            }
        };
        let mut tracks = vec![track(choice.global_name(), self.measures, self.curve)];
        tracks.extend(self.own.map(|own| track(choice.name(), own.measures, own.curve)));
        tracks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_is_what_the_data_says_was_known() {
        let mut last = Trivial::last(2);
        assert_eq!(last.forecast(0, f32::NAN), None, "nobody knows anything");
        last.see(0, 5.0);
        assert_eq!(last.forecast(1, 3.0), Some(3.0));
        assert_eq!(last.forecast(0, f32::NAN), Some(5.0), "what the node saw last");
        assert_eq!(last.forecast(0, 1.0), Some(1.0), "further ahead, less is known");
    }

    #[test]
    fn every_node_has_a_mean_of_its_own() {
        let mut mean = Trivial::mean(2);
        let forecasts =
            [(0, 2.0), (1, 100.0), (0, 4.0), (0, 0.0), (1, 0.0)].map(|(node, label)| {
                let forecast = mean.forecast(node, 9.0);
                mean.see(node, label);
                forecast
            });
        assert_eq!(forecasts, [None, None, Some(2.0), Some(3.0), Some(100.0)]);
    }
}
