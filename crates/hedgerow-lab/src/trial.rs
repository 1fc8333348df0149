//! One trial: every method runs on the same stream with the same random features. A [`Track`]
//! records each.

use std::mem::discriminant;

use hedgerow::federation::RoundError;
use hedgerow::learning::Classes;
use hedgerow::method::FeatureKind;
use hedgerow::metrics::{Tally, Traffic};
use hedgerow::random::{CounterRng, Purpose};

use crate::class_meter::ClassTrack;
use crate::grids::Grids;
use crate::group_run::GroupRun;
use crate::model::TrialModel;
use crate::parallelism::Parallelism;
use crate::predictions::ScoredPrediction;
use crate::preprocessor::{PreprocessorTally, RawRound, Scaler};
use crate::results::{ImportanceResult, SampledPredictions};
use crate::round_generator::RoundGenerator;
use crate::settings::{MethodChoice, Settings, SettingsError, Sizes};
use hedgerow_data::Dataset;
use hedgerow_data::partition::PartitionError;

/// What a trial measured for one entry of the results.
#[derive(Debug, Clone)]
pub(crate) struct Track {
    pub(crate) choice: MethodChoice,
    /// Name in the results.
    pub(crate) name: String,
    /// For `sk`, from 0.
    pub(crate) kernel: Option<usize>,
    pub(crate) mse: f64,
    /// NaN where there was no prediction in the window.
    pub(crate) window_mse: f64,
    pub(crate) mae: f64,
    pub(crate) r2: f64,
    /// The share of labels within their intervals, and the mean width of these.
    pub(crate) coverage: Option<(f64, f64)>,
    /// Of each target; empty for classes.
    pub(crate) targets: Vec<TargetTrack>,
    pub(crate) classes: Option<ClassTrack>,
    /// Errors of each node; empty if there are too many nodes.
    pub(crate) nodes: Vec<Tally>,
    /// The same in each hour of the day and on each day of the week; empty without dates.
    pub(crate) hours: Vec<Tally>,
    pub(crate) weekdays: Vec<Tally>,
    pub(crate) mean_loss: f64,
    pub(crate) traffic: Traffic,
    pub(crate) votes: Vec<u64>,
    /// Sum over rounds of each kernel's share in the predictions.
    pub(crate) shares: Vec<f64>,
    pub(crate) seconds: f64,
    pub(crate) curve: TrackCurve,
    /// Empty unless they are asked for; and the probability of each class.
    pub(crate) predictions: Vec<ScoredPrediction>,
    pub(crate) probabilities: Vec<f32>,
    /// Of methods that a report may be about, in the first trial.
    pub(crate) sampled: Option<SampledPredictions>,
    pub(crate) importance: Option<ImportanceResult>,
}

/// Errors of one of several targets, in its own unit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TargetTrack {
    pub(crate) mse: f64,
    pub(crate) mae: f64,
    pub(crate) r2: f64,
}

/// The measurements over time, at the rounds of the grids.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrackCurve {
    pub(crate) mse: Vec<f64>,
    /// NaN where there was no prediction in the window.
    pub(crate) window_mse: Vec<f64>,
    pub(crate) loss: Vec<f64>,
    /// Empty without intervals; NaN where there was none in the window.
    pub(crate) coverage: Vec<f64>,
    pub(crate) shares: Vec<Vec<f64>>,
    pub(crate) regret: Vec<f64>,
}

/// The best fixed functions of each kernel in hindsight.
#[derive(Debug, Clone)]
pub(crate) struct HindsightTrack {
    /// Objective per sample of each kernel's, at the end.
    pub(crate) objective: Vec<f64>,
    /// At the rounds of the regret, the mean squared error of the best one so far.
    pub(crate) course: Vec<f64>,
}

/// Why a trial failed.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The partition can't give samples to the nodes.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// Settings that don't fit the data.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The model of the run can't be saved.
    #[error("the model can't be saved: {0}")]
    Model(String),
    /// The samples could not be read again.
    #[error("temporary file: {0}")]
    Store(#[from] std::io::Error),
    /// A round failed.
    #[error("trial {trial}, round {round}: {source}")]
    Round {
        /// Number of the trial, from 1.
        trial: usize,
        /// Number of the round, from 1.
        round: usize,
        /// What the federation reported.
        source: RoundError,
    },
}

/// What all trials of a run have in common.
#[derive(Debug, Clone)]
pub(crate) struct RunContext<'a> {
    pub(crate) settings: &'a Settings,
    /// The methods, in this order.
    pub(crate) methods: Vec<MethodChoice>,
    /// Number of nodes, K.
    pub(crate) nodes: usize,
    /// Inputs per sample, d.
    pub(crate) features: usize,
    /// Names of the classes; empty if labels are numbers.
    pub(crate) classes: Vec<String>,
    /// The unit in which the errors of each target count; empty for classes.
    pub(crate) units: Vec<f64>,
    /// Names of the targets, if there are several.
    pub(crate) targets: Vec<String>,
    /// Name of the label, or names of several; empty if it has none.
    pub(crate) target: String,
    /// Where each input comes from; empty if inputs have no names.
    pub(crate) sources: Vec<String>,
    /// T; unknown for a live stream.
    pub(crate) rounds: Option<usize>,
    pub(crate) scaler: Scaler,
    /// Whether values may be missing.
    pub(crate) has_missing: bool,
    /// What inputs are of, in words.
    pub(crate) inputs: String,
    /// Rounds until a label that was forecast is known.
    pub(crate) delay: usize,
    pub(crate) grids: Grids,
    /// The threads inside a trial.
    pub(crate) parallelism: Parallelism,
}

impl RunContext<'_> {
    pub(crate) fn sizes(&self) -> Sizes<'_> {
        let (outputs, classes) = (self.units.len(), &self.classes[..]);
        Sizes { nodes: self.nodes, inputs: self.features, outputs, classes, rounds: self.rounds }
    }

    /// Adds the labels of a sample, as outputs have them.
    pub(crate) fn add_labels(&self, labels: &[f32], out: &mut Vec<f32>) {
        match Classes::new(self.classes.len()) {
            None => out.extend_from_slice(labels),
            Some(classes) if labels[0].is_nan() => {
                out.extend(std::iter::repeat_n(f32::NAN, classes.outputs()));
            }
            Some(classes) => out.extend(classes.labels(labels[0] as usize)),
        }
    }
}

/// The result of one trial, or of some of its groups of methods.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrialResult {
    /// Samples that were predicted: all that have a label.
    pub(crate) samples: usize,
    pub(crate) tracks: Vec<Track>,
    pub(crate) hindsight: Option<HindsightTrack>,
    /// Every group needs the best functions for the regret of its own.
    pub(crate) hindsight_seconds: f64,
    pub(crate) preprocessor: PreprocessorTally,
    /// If it is asked for.
    pub(crate) model: Option<TrialModel>,
}

impl TrialResult {
    /// Adds the result of another group on the same samples.
    pub(crate) fn join(mut self, other: Self) -> Self {
        self.tracks.extend(other.tracks);
        Self {
            tracks: self.tracks,
            hindsight: other.hindsight.or(self.hindsight),
            model: other.model.or(self.model),
            hindsight_seconds: self.hindsight_seconds + other.hindsight_seconds,
            ..other
        }
    }
}

/// Runs one trial. `tick` is called after every round of every group of methods.
pub(crate) fn run_trial(
    context: &RunContext<'_>,
    data: &Dataset,
    rounds: usize,
    trial: usize,
    tick: &(dyn Fn() + Sync),
) -> Result<TrialResult, TrialError> {
    let streams = deal(context, data, trial)?;
    let mut result = TrialResult::default();
    for group in groups(context)? {
        let mut group_run = GroupRun::new(context, &group, trial)?;
        let randomness = trial_randomness(context.settings, trial);
        let participation = context.settings.participation;
        let mut generator =
            RoundGenerator::new(&streams, context.nodes, participation, rounds, randomness);
        let (mut raw, mut turns, mut samples) = (RawRound::default(), Vec::new(), Vec::new());
        for round in 1..=rounds {
            raw.clear();
            generator.next_round(&mut turns, &mut samples);
            data.inputs(&samples, &mut raw.x)?;
            raw.indices.extend(samples.iter().map(|sample| u64::from(*sample)));
            for &sample in &samples {
                context.add_labels(data.labels(sample as usize), &mut raw.y);
                context.add_labels(data.last_labels(sample as usize), &mut raw.previous);
            }
            if data.has_dates {
                raw.times.extend(samples.iter().map(|sample| data.times[*sample as usize]));
            }
            group_run
                .run_round(round as u64, &turns, &raw, &context.grids)
                .map_err(|source| TrialError::Round { trial: trial + 1, round, source })?;
            tick();
        }
        // Keep only the result: the nodes of the next group need the memory.
        result = result.join(finish(context, group_run, trial)?);
    }
    Ok(result)
}

/// The result of a group, with the model of the first trial if that is asked for.
pub(crate) fn finish(
    context: &RunContext<'_>,
    mut group_run: GroupRun,
    trial: usize,
) -> Result<TrialResult, TrialError> {
    let wanted = context.settings.model_choice().filter(|_| trial == 0);
    let model = wanted.and_then(|choice| group_run.model(choice, &context.scaler));
    let model = model.transpose().map_err(TrialError::Model)?;
    Ok(TrialResult { model, ..group_run.finish() })
}

pub(crate) fn trial_randomness(settings: &Settings, trial: usize) -> CounterRng {
    CounterRng::from_seed(settings.seed).derive(Purpose::Trial, trial as u64)
}

/// Each node's samples in a trial.
pub(crate) fn deal(
    context: &RunContext<'_>,
    data: &Dataset,
    trial: usize,
) -> Result<Vec<Vec<u32>>, PartitionError> {
    let seed = trial_randomness(context.settings, trial).derive(Purpose::Partition, 0).bits_at(0);
    context.settings.partition.deal(data, context.nodes, seed)
}

/// Methods that share a feature map: as many frequencies or a dictionary of the same size, drawn
/// and scaled the same way.
pub(crate) fn groups(context: &RunContext<'_>) -> Result<Vec<Vec<MethodChoice>>, SettingsError> {
    let mut groups: Vec<(_, Vec<MethodChoice>)> = Vec::new();
    for &choice in &context.methods {
        let (variant, features) = (choice.variant, &choice.info.features);
        let dictionary = match features {
            FeatureKind::Dictionary(size) => Some(size(context.settings.budget)),
            _ => None,
        };
        let key = (
            discriminant(features),
            dictionary,
            context.settings.frequencies(choice)?,
            variant.unnormalised,
            variant.frequencies,
        );
        match groups.iter_mut().find(|(known, _)| choice.is_trivial() || *known == key) {
            Some((_, group)) => group.push(choice),
            None => groups.push((key, vec![choice])),
        }
    }
    Ok(groups.into_iter().map(|(_, group)| group).collect())
}
