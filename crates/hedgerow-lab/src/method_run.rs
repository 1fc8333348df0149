//! [`MethodRun`]: a method in a trial.

use std::ops::Range;
use std::time::Instant;

use hedgerow::NodeId;
use hedgerow::baseline::Omkl;
use hedgerow::features::Features;
use hedgerow::federation::{NodeRound, Observations, Prediction, RoundError};
use hedgerow::learning::Calibration;
use hedgerow::method::BadSample;
use hedgerow::metrics::Traffic;
use hedgerow::scaling::Rescaling;

use crate::accuracy::Accuracy;
use crate::class_meter::ClassMeter;
use crate::importance::ImportanceCourse;
use crate::learners::Learners;
use crate::measures::{Measures, Trivial};
use crate::model::{self, TrialModel};
use crate::parallelism::Parallelism;
use crate::preprocessor::{Preprocessor, Round, Scaler, Unscaled};
use crate::results::label;
use crate::sampler::PredictionSampler;
use crate::settings::MethodChoice;
use crate::trial::{TargetTrack, Track};

/// How a method learns.
pub(crate) enum Algorithm {
    /// At nodes: with a server, where nodes may miss rounds, or without.
    Nodes(Box<Learners>),
    /// Centrally, sample by sample, a learner for each output.
    Sequential(Vec<Omkl>),
    /// Centrally, a round at a time.
    Batch(Vec<Omkl>),
    /// It doesn't learn: a trivial forecast.
    Trivial(Trivial),
}

/// Some samples of a round with their features.
pub(crate) struct Batch<'a> {
    pub(crate) round: &'a Round,
    /// Which samples, in order; the samples of a round come in one batch or in several.
    pub(crate) samples: Range<usize>,
    pub(crate) z: Features<'a>,
    pub(crate) width: usize,
    pub(crate) node_rounds: &'a [NodeRound<'a>],
    /// The same samples in the server's scale, if a node's scale differs, for methods that learn in
    /// one place.
    pub(crate) central: Option<&'a Batch<'a>>,
    /// What is learned from, where labels are known only some rounds after they were predicted.
    pub(crate) due: Option<&'a Batch<'a>>,
}

impl<'a> Batch<'a> {
    pub(crate) fn central(&self) -> &Self {
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

/// Learns a sample in one place, each output by itself.
fn learn_central(
    learners: &mut [Omkl],
    z: Features<'_>,
    round: &Round,
    sample: usize,
) -> Result<(), RoundError> {
    let labels = &round.y[round.labels(sample..sample + 1)];
    let mut each = learners.iter_mut().zip(labels);
    each.try_for_each(|(learner, label)| learner.learn(z, *label)).map_err(bad_sample)
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
    /// Those of the nodes' own layers, if they have any.
    own: Option<Measures>,
    /// The importance of columns, if it is measured.
    importance: Option<ImportanceCourse>,
    outputs: usize,
    /// Numbers in all samples so far, for methods that send samples.
    sent: u64,
    /// The threads of the run, and its recorded predictions; scratch.
    parallelism: Parallelism,
    observations: Vec<f64>,
    values: Vec<f32>,
    shared: Vec<f32>,
}

/// Numbers that are observed of a prediction before the shares of its kernels: the method's value,
/// the squared norm of its model, and the node's value.
const OBSERVED_BEFORE_SHARES: usize = 3;

impl MethodRun {
    pub(crate) fn new(
        choice: MethodChoice,
        (kernel, algorithm): (Option<usize>, Algorithm),
        (outputs, has_own_layers): (usize, bool),
        measures: impl Fn() -> Measures,
        parallelism: Parallelism,
    ) -> Self {
        Self {
            choice,
            kernel,
            algorithm,
            own: has_own_layers.then(&measures),
            measures: measures(),
            outputs,
            seconds: 0.0,
            importance: None,
            sent: 0,
            parallelism,
            observations: Vec::new(),
            values: vec![0.0; outputs],
            shared: vec![0.0; outputs],
        }
    }

    /// The importance of columns is measured from here on; these are their names.
    pub(crate) fn measure_importance(&mut self, columns: Vec<String>) {
        self.importance = Some(ImportanceCourse::new(columns));
    }

    /// Processes a batch of a round's samples: predicts, then learns.
    pub(crate) fn process(&mut self, batch: &Batch<'_>) -> Result<(), RoundError> {
        let start = Instant::now();
        match batch.due {
            None => self.predict_and_learn(batch)?,
            Some(due) => {
                self.predict(batch)?;
                self.learn(due)?;
            }
        }
        self.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Ends the round, after all of its samples.
    pub(crate) fn close_round(&mut self, round: &Round) -> Result<(), RoundError> {
        let start = Instant::now();
        if let Algorithm::Nodes(learners) = &mut self.algorithm {
            learners.close(self.parallelism)?;
            if let Some(importance) = &mut self.importance {
                importance.close_round(|| learners.importance(round));
            }
        }
        self.all_measures().for_each(Measures::close_round);
        self.sent += (round.x.len() + round.y.len()) as u64;
        self.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Those of the method and of its nodes' own layers.
    fn all_measures(&mut self) -> impl Iterator<Item = &mut Measures> {
        [&mut self.measures].into_iter().chain(&mut self.own)
    }

    /// Every sample is learned from as soon as it has been predicted.
    fn predict_and_learn(&mut self, batch: &Batch<'_>) -> Result<(), RoundError> {
        let measures = &mut self.measures;
        let (round, central) = (batch.round, batch.central());
        match &mut self.algorithm {
            Algorithm::Sequential(learners) => {
                for (sample, z) in central.samples() {
                    measures.see_central(learners, z, central.round, sample);
                    learn_central(learners, z, central.round, sample)?;
                }
            }
            Algorithm::Nodes(learners) => {
                let batch = learners.view(batch);
                let (outputs, width) = (self.outputs, OBSERVED_BEFORE_SHARES + measures.kernels());
                self.observations.resize(batch.samples.len() * outputs * width, 0.0);
                let observations = Observations { numbers: &mut self.observations, width };
                learners.run(
                    batch,
                    self.parallelism,
                    observations,
                    |Prediction { value, global, method, .. }, observation| {
                        observation[..OBSERVED_BEFORE_SHARES].copy_from_slice(&[
                            f64::from(global),
                            method.norm2(),
                            f64::from(value),
                        ]);
                        method.shares(&mut observation[OBSERVED_BEFORE_SHARES..]);
                    },
                )?;
                // Sums run in the order of the samples for any number of threads.
                let observed = self.observations.chunks_exact(outputs * width);
                for (sample, observed) in batch.samples.clone().zip(observed) {
                    let mut norm2 = 0.0;
                    for (output, observation) in observed.chunks_exact(width).enumerate() {
                        self.shared[output] = observation[0] as f32;
                        self.values[output] = observation[2] as f32;
                        norm2 += observation[1] / outputs as f64;
                    }
                    // Of several outputs the first speaks for the kernels.
                    let shares = &observed[OBSERVED_BEFORE_SHARES..width];
                    let both = (&self.values[..], &self.shared[..]);
                    measures.see((both.1, both.1), batch.round, sample, norm2);
                    measures.mix(shares);
                    if let Some(own) = &mut self.own {
                        own.see(both, batch.round, sample, 0.0);
                        own.mix(shares);
                    }
                }
            }
            Algorithm::Trivial(trivial) => {
                // Labels before the first scale are stored, but not scored.
                batch.unscaled().for_each(|sample| trivial.see(sample.node, &sample.labels));
                for sample in batch.samples.clone() {
                    measures.see_forecast(trivial, round, sample);
                    let labels = &round.raw[round.labels(sample..sample + 1)];
                    trivial.see(round.nodes[sample], labels);
                }
            }
            Algorithm::Batch(_) => {
                self.predict(batch)?;
                self.learn(batch)?;
            }
        }
        Ok(())
    }

    /// Predicts the current samples.
    fn predict(&mut self, batch: &Batch<'_>) -> Result<(), RoundError> {
        let (measures, round) = (&mut self.measures, batch.round);
        match &mut self.algorithm {
            Algorithm::Sequential(learner) | Algorithm::Batch(learner) => {
                let central = batch.central();
                for (sample, z) in central.samples() {
                    measures.see_central(learner, z, central.round, sample);
                }
            }
            Algorithm::Nodes(learners) => {
                let batch = learners.view(batch);
                learners.hear(batch.node_rounds)?;
                self.observations.resize(measures.kernels(), 0.0);
                for (sample, z) in batch.samples() {
                    let (node, mut norm2) = (batch.round.nodes[sample], 0.0);
                    for output in 0..self.outputs {
                        let (shared, value, method) = learners.predict(node, output, z)?;
                        (self.shared[output], self.values[output]) = (shared, value);
                        norm2 += method.norm2() / self.outputs as f64;
                        if output == 0 {
                            method.shares(&mut self.observations);
                        }
                    }
                    let both = (&self.values[..], &self.shared[..]);
                    measures.see((both.1, both.1), batch.round, sample, norm2);
                    measures.mix(&self.observations);
                    if let Some(own) = &mut self.own {
                        own.see(both, batch.round, sample, 0.0);
                        own.mix(&self.observations);
                    }
                }
            }
            Algorithm::Trivial(trivial) => {
                for sample in batch.samples.clone() {
                    measures.see_forecast(trivial, round, sample);
                }
            }
        }
        Ok(())
    }

    /// Learns from samples that have been predicted before.
    fn learn(&mut self, batch: &Batch<'_>) -> Result<(), RoundError> {
        let (round, central) = (batch.round, batch.central());
        match &mut self.algorithm {
            Algorithm::Sequential(learners) => {
                for (sample, z) in central.samples() {
                    learn_central(learners, z, central.round, sample)?;
                }
            }
            Algorithm::Batch(learners) => {
                for (output, learner) in learners.iter_mut().enumerate() {
                    let labels = central.round.y.iter().skip(output).step_by(self.outputs);
                    let labels: Vec<f32> = labels.copied().collect();
                    learner.learn_batch(central.z, &labels).map_err(bad_sample)?;
                }
            }
            Algorithm::Nodes(learners) => {
                let observations = Observations { numbers: &mut [], width: 0 };
                let ignore = |_: Prediction<'_>, _: &mut [f64]| {};
                learners.run(learners.view(batch), self.parallelism, observations, ignore)?;
            }
            Algorithm::Trivial(trivial) => {
                batch.unscaled().for_each(|sample| trivial.see(sample.node, &sample.labels));
                let labels = round.nodes.iter().zip(round.raw.chunks_exact(self.outputs));
                labels.for_each(|(node, labels)| trivial.see(*node, labels));
            }
        }
        Ok(())
    }

    /// Mean squared error so far of what its nodes say.
    pub(crate) fn mse(&self) -> f64 {
        self.own.as_ref().unwrap_or(&self.measures).mse()
    }

    /// Whether it learns centrally.
    pub(crate) fn is_central(&self) -> bool {
        match &self.algorithm {
            Algorithm::Sequential(_) | Algorithm::Batch(_) => true,
            Algorithm::Nodes(learners) => learners.is_pooled(),
            Algorithm::Trivial(_) => false,
        }
    }

    /// Whether it learns from all samples of a round at once.
    pub(crate) fn is_batch(&self) -> bool {
        matches!(self.algorithm, Algorithm::Batch(_))
    }

    /// Rescales the models of a node.
    pub(crate) fn rescale_node(
        &mut self,
        node: NodeId,
        rescalings: &[Option<Rescaling>],
    ) -> Result<(), RoundError> {
        match &mut self.algorithm {
            Algorithm::Nodes(learners) => learners.rescale_node(node, rescalings),
            _ => Ok(()),
        }
    }

    /// Takes the server's model to another scale.
    pub(crate) fn rescale_server(
        &mut self,
        rescalings: &[Option<Rescaling>],
    ) -> Result<(), RoundError> {
        match &mut self.algorithm {
            Algorithm::Nodes(learners) => return learners.rescale_server(rescalings),
            Algorithm::Sequential(learners) | Algorithm::Batch(learners) => {
                for (learner, rescaling) in learners.iter_mut().zip(rescalings) {
                    rescaling.iter().for_each(|rescaling| learner.rescale(rescaling));
                }
            }
            Algorithm::Trivial(_) => {}
        }
        Ok(())
    }

    /// What its nodes know: all hear the server once more, as before a next round.
    pub(crate) fn model(
        &mut self,
        scaler: &Scaler,
        preprocessor: &Preprocessor,
    ) -> Result<TrialModel, String> {
        let name = match self.own {
            Some(_) => self.choice.own_name(),
            None => self.choice.name(),
        };
        let Algorithm::Nodes(learners) = &mut self.algorithm else {
            return Err(format!("{name} has no nodes"));
        };
        let federation = learners.federation().ok_or_else(|| format!("{name} isn't federated"))?;
        for node in 0..federation.nodes().len() as NodeId {
            federation.hear(node).map_err(|error| error.to_string())?;
        }
        let name = label(&name, self.kernel.map(|kernel| kernel + 1));
        let measures = self.own.as_ref().unwrap_or(&self.measures);
        let errors = |node| {
            let each = measures.targets.iter().map(|target| target.quantiles(node));
            each.collect::<Option<Vec<_>>>().unwrap_or_default()
        };
        let calibration = |node| {
            let classes = measures.classes.as_ref();
            classes.map_or_else(Calibration::default, |classes| classes.calibration(node))
        };
        model::of_federation(name, federation, scaler, preprocessor, (errors, calibration))
    }

    pub(crate) fn record(&mut self) {
        self.all_measures().for_each(Measures::record);
    }

    /// The tracks of the nodes' own layers, if there are any, and of the shared model, if it is
    /// asked for or there are none. `round` is the last one.
    pub(crate) fn finish(self, round: &Round) -> Vec<Track> {
        // Learning in one place sends the samples themselves.
        let traffic = match (&self.algorithm, self.is_central()) {
            (_, true) => {
                Traffic { numbers_up: self.sent, bytes_up: 4 * self.sent, ..Traffic::default() }
            }
            (Algorithm::Nodes(learners), _) => learners.traffic(),
            _ => Traffic::default(),
        };
        // Of what nodes say, which comes first.
        let mut importance = match (&self.algorithm, self.importance) {
            (Algorithm::Nodes(learners), Some(course)) => {
                Some(course.finish(learners.importance(round)))
            }
            _ => None,
        };
        let votes = match &self.algorithm {
            Algorithm::Nodes(learners) => learners.votes(),
            _ => vec![],
        };
        let (choice, kernel, seconds) = (self.choice, self.kernel, self.seconds);
        let mut track = |name, measures: Measures| {
            let shares = measures.mean_shares();
            let (mae, r2, coverage) = measures.accuracy();
            let target = |target: &Accuracy| TargetTrack {
                mse: target.mse(),
                mae: target.absolute.mean(),
                r2: target.r2(),
            };
            let window_mse = measures.window_mse();
            // Of several targets, hours have no common unit.
            let (hours, weekdays) = match &measures.targets[..] {
                [one] => (one.hours.clone(), one.weekdays.clone()),
                _ => (Vec::new(), Vec::new()),
            };
            let (predictions, probabilities) = measures.predictions.unwrap_or_default();
            Track {
                choice,
                name,
                kernel,
                mse: measures.meter.mse(),
                window_mse,
                mae,
                r2,
                coverage,
                targets: measures.targets.iter().map(target).collect(),
                classes: measures.classes.map(ClassMeter::finish),
                nodes: measures.nodes,
                hours,
                weekdays,
                mean_loss: measures.loss.mean(),
                traffic,
                votes: votes.clone(),
                shares,
                seconds,
                curve: measures.curve,
                predictions,
                probabilities,
                sampled: measures.sampler.map(PredictionSampler::finish),
                importance: importance.take(),
            }
        };
        let Some(own) = self.own else { return vec![track(choice.name(), self.measures)] };
        let mut tracks = vec![track(choice.own_name(), own)];
        if choice.reports_shared {
            tracks.push(track(choice.shared_name(), self.measures));
        }
        tracks
    }
}
