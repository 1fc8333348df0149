//! A run: trials in parallel, reduced to [`Results`]. The number of threads changes nothing but the time.

use std::time::Instant;

use hedgerow::{Loss, Method, Purpose, ScaleKind, Stream};
use rayon::prelude::*;

use crate::data::builtin::Builtin;
use crate::data::partition::{Partition, PartitionError};
use crate::data::ranges::{self, RangesError};
use crate::data::samples::{InputColumns, SampleStream};
use crate::data::{DataError, Dataset};
use crate::grids::Grids;
use crate::intake::Scaler;
use crate::results::Results;
use crate::settings::{
    BUILTIN_ROUNDS, Contestant, DEFAULT_NODES, DataChoice, Learner, Scaling, Settings, SettingsError, Source,
};
use crate::summary;
use crate::trial::{self, Scene, TrialError, TrialResult};

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The settings don't fit.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The data can't be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The known ranges can't be used.
    #[error(transparent)]
    Ranges(#[from] RangesError),
    /// A label that the loss can't take.
    #[error("{data}: the label of sample {sample} is {label}, but the logistic loss needs -1 or +1")]
    BadLabel {
        /// Which data.
        data: String,
        /// From 1.
        sample: usize,
        /// What it is.
        label: f32,
    },
    /// Samples can't be dealt to the nodes.
    #[error("{data}: {source}")]
    Partition {
        /// Which data.
        data: String,
        /// Why.
        source: PartitionError,
    },
    /// A trial failed.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// More memory than a run may take.
    #[error(
        "this run needs about {needed} of memory, and {most} is the most: fewer nodes, kernels, threads or methods, or a smaller budget"
    )]
    Memory {
        /// How much.
        needed: String,
        /// How much at most.
        most: String,
    },
    /// How many nodes a live stream has.
    #[error(
        "federation.nodes must say how many nodes there are (--nodes): a live stream names them only as they come"
    )]
    NodesUnknown,
    /// No sample reached a node, or none that could be predicted.
    #[error(
        "{0}: no sample could be predicted: none reached a node in these rounds, or too few to agree on a scale (more rounds, more arrivals, or --scaling none)"
    )]
    NothingSeen(String),
    /// No threads to be had.
    #[error("can't start {threads} threads: {source}")]
    Threads {
        /// How many.
        threads: usize,
        /// Why.
        source: rayon::ThreadPoolBuildError,
    },
}

/// The data that the settings name: generated or read. `progress` is told how many bytes of files have been read.
pub fn load_data(settings: &Settings, progress: &dyn Fn(u64)) -> Result<Dataset, RunError> {
    let DataChoice { name, source, columns } = &settings.data;
    let mut data = match source {
        Source::Builtin(stream) => generate(settings, *stream)?.with_past(columns)?,
        Source::Files { files, .. } => {
            Dataset::read(name, &mut SampleStream::open(files, columns)?, progress)?
        }
    };
    if let Scaling::WholeFile { jointly } = settings.scaling {
        data.scale_with_hindsight(jointly, settings.loss()? == Loss::Logistic);
    }
    Ok(data)
}

fn generate(settings: &Settings, stream: Builtin) -> Result<Dataset, RunError> {
    let nodes = settings.nodes.unwrap_or(DEFAULT_NODES);
    let rounds = settings.rounds.unwrap_or(BUILTIN_ROUNDS);
    let per_node = (rounds as f64 * settings.participation.arrivals.bounds().1).ceil().max(1.0);
    let past = (settings.data.columns.lags + settings.data.columns.horizon - 1) * nodes;
    let samples = per_node * nodes as f64 + past as f64;
    if samples > MOST_SAMPLES {
        let bound = format!("so that nodes, rounds and arrivals make at most {MOST_SAMPLES} samples");
        return Err(out_of_bounds("run.rounds", bound, format!("{rounds}, which makes {samples}")));
    }
    let seed = Stream::from_seed(settings.seed).derive(Purpose::Data, 0).bits_at(0);
    Ok(stream.generate(samples as usize, nodes, seed))
}

fn out_of_bounds(key: &str, bound: impl ToString, value: impl ToString) -> RunError {
    let (key, bound, value) = (key.to_owned(), bound.to_string(), value.to_string());
    RunError::Settings(SettingsError::OutOfBounds { key, bound, value })
}

/// So few samples are over before a scale is agreed on.
const FEW: usize = 100;

/// Samples of a generated stream: they are kept in memory.
const MOST_SAMPLES: f64 = 2e8;

/// A run that has been checked against its data: what can go wrong has gone wrong by now.
pub struct Experiment<'a> {
    scene: Scene<'a>,
    data: &'a Dataset,
    rounds: usize,
    groups: usize,
}

impl<'a> Experiment<'a> {
    /// Checks settings and data against each other.
    pub fn new(settings: &'a Settings, data: &'a Dataset) -> Result<Self, RunError> {
        if let Some((sample, label)) = trial::first_bad_label(settings.loss()?, data) {
            return Err(RunError::BadLabel { data: data.name.clone(), sample: sample + 1, label });
        }
        let owners = data.owners.as_ref().filter(|_| settings.partition == Partition::Auto);
        let mut scene = Scene {
            settings,
            contestants: Vec::new(),
            nodes: nodes(settings, owners.map(|owners| owners.names.len()))?,
            features: data.features,
            rounds: None,
            scaler: scaler(settings, data.is_of_order_one || data.len() < FEW, || {
                data.input_columns.clone()
            })?,
            has_missing: data.missing > 0,
            delay: 0,
            grids: Grids::Open,
        };
        scene.contestants = contestants(settings, data.is_time_series, &scene.scaler)?;
        scene.delay = delay(settings, data.owners.is_some(), scene.nodes);
        // Only drawn shares make streams whose lengths differ from trial to trial.
        let is_drawn = matches!(settings.partition, Partition::Dirichlet(_) | Partition::Unequal(_));
        let draws = if is_drawn { settings.trials } else { 1 };
        let mut lasting = 0;
        for trial in 0..draws {
            let undealt = |source| RunError::Partition { data: data.name.clone(), source };
            let streams = trial::deal(&scene, data, trial).map_err(undealt)?;
            for (node, stream) in streams.iter().enumerate() {
                let rounds = stream.len() as f64 / settings.participation.arrivals.mean(node, scene.nodes);
                lasting = lasting.max(rounds.ceil() as usize);
            }
        }
        let is_generated = matches!(settings.data.source, Source::Builtin(_));
        let usual = if is_generated && !is_drawn { BUILTIN_ROUNDS } else { lasting };
        let wanted = settings.rounds.unwrap_or(usual);
        let rounds = wanted.min(lasting).max(1);
        scene.rounds = Some(rounds);
        scene.grids = Grids::closed(rounds);
        check_memory(&scene)?;
        let groups = trial::groups(&scene)?.len();
        Ok(Self { scene, data, rounds, groups })
    }

    /// How many steps of progress it will tell.
    pub fn steps(&self) -> u64 {
        (self.scene.settings.trials * self.groups) as u64 * self.rounds as u64
    }

    /// Runs all trials. `step` is called for each step of progress, from any thread.
    pub fn run(&self, step: &(dyn Fn() + Sync)) -> Result<Results, RunError> {
        let start = Instant::now();
        let Self { scene, data, rounds, .. } = self;
        let trials: Vec<TrialResult> = threads(scene.settings)?.install(|| {
            let trials = (0..scene.settings.trials).into_par_iter();
            trials.map(|trial| trial::play(scene, data, *rounds, trial, step)).collect::<Result<_, _>>()
        })?;
        let is_owned = data.owners.is_some();
        summary::summarise(
            scene,
            &data.name,
            is_owned,
            &trials,
            *rounds as u64,
            start.elapsed().as_secs_f64(),
        )
    }
}

/// Rounds until a label that is forecast some steps ahead is known: a node's own series goes on by a row in a round, one that is
/// dealt to all by a row for each of them.
pub(crate) fn delay(settings: &Settings, has_owners: bool, nodes: usize) -> usize {
    let rows = settings.data.columns.horizon - 1;
    if has_owners { rows } else { rows.div_ceil(nodes) }
}

/// Those asked for; a time series is always compared with the trivial forecasts. Where features change with an agreed scale, no fixed
/// function is the best of all rounds: `hindsight` is left out, or refused if it was asked for.
pub(crate) fn contestants(
    settings: &Settings,
    is_time_series: bool,
    scaler: &Scaler,
) -> Result<Vec<Contestant>, RunError> {
    let mut contestants = settings.contestants.clone();
    for trivial in [Learner::Last, Learner::Mean].map(Contestant::from) {
        if is_time_series && settings.loss().ok() != Some(Loss::Logistic) && !contestants.contains(&trivial) {
            contestants.push(trivial);
        }
    }
    if matches!(scaler, Scaler::Online { .. }) && contestants.contains(&Learner::Hindsight.into()) {
        if !settings.has_default_contestants() {
            let bound = "without hindsight where numbers are scaled online: features change with the scale";
            return Err(out_of_bounds("federation.methods", bound, "hindsight"));
        }
        contestants.retain(|contestant| contestant.learner != Learner::Hindsight);
    }
    Ok(contestants)
}

/// K: as many as were asked for, and as the data names.
pub(crate) fn nodes(settings: &Settings, named: Option<usize>) -> Result<usize, RunError> {
    match (settings.nodes, named) {
        (Some(nodes), Some(named)) if nodes != named => {
            let bound = format!("{named}, as many as the data names (leave it out)");
            Err(out_of_bounds("federation.nodes", bound, nodes))
        }
        (nodes, named) => Ok(nodes.or(named).unwrap_or(DEFAULT_NODES)),
    }
}

/// How numbers are to be scaled.
pub(crate) fn scaler(
    settings: &Settings,
    needs_no_scale: bool,
    columns: impl FnOnce() -> InputColumns,
) -> Result<Scaler, RunError> {
    let raw_labels = settings.loss()? == Loss::Logistic;
    Ok(match &settings.scaling {
        Scaling::None | Scaling::WholeFile { .. } => Scaler::None,
        Scaling::Auto if needs_no_scale => Scaler::None,
        Scaling::Auto => Scaler::Online { kind: ScaleKind::Spread, raw_labels },
        Scaling::Online(kind) => Scaler::Online { kind: *kind, raw_labels },
        Scaling::Ranges(file) => {
            let scale = ranges::read(file, &columns())?;
            Scaler::Fixed(if raw_labels { scale.with_raw_labels() } else { scale })
        }
    })
}

pub(crate) fn threads(settings: &Settings) -> Result<rayon::ThreadPool, RunError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(settings.threads).build();
    pool.map_err(|source| RunError::Threads { threads: settings.threads, source })
}

/// Bytes beyond which a run is refused instead of being killed by the system.
const MOST_MEMORY: f64 = 16.0 * 1024.0 * 1024.0 * 1024.0;

fn gigabytes(bytes: f64) -> String {
    format!("{:.1} GiB", bytes / (1024.0 * 1024.0 * 1024.0))
}

/// Refuses what would need more.
pub(crate) fn check_memory(scene: &Scene<'_>) -> Result<(), RunError> {
    let needed = memory(scene)?;
    if needed > MOST_MEMORY {
        return Err(RunError::Memory { needed: gigabytes(needed), most: gigabytes(MOST_MEMORY) });
    }
    Ok(())
}

/// What the models, and the sums of the best functions, of all trials at once will take.
fn memory(scene: &Scene<'_>) -> Result<f64, SettingsError> {
    let settings = scene.settings;
    let threads = if settings.threads == 0 { rayon::current_num_threads() } else { settings.threads };
    let (kernels, nodes) = (settings.kernels.len() as f64, scene.nodes as f64);
    let inputs = scene.features as f64 + 1.0;
    let mut bytes = 0.0;
    for &contestant in &scene.contestants {
        let model = 2.0 * settings.frequencies(contestant)? as f64;
        // Models at the nodes and the features of a round, in f32; the Gram matrices in f64.
        bytes += match contestant.learner {
            Learner::Gr => {
                // The sums in f64, and what is left to send of them in f32.
                let features = Method::GrOfl.width(&settings.setup(contestant, scene.sizes(), 0)?) as f64;
                nodes * 6.0 * features * features
            }
            Learner::Linear => nodes * 8.0 * inputs,
            Learner::LinearNewton => nodes * 4.0 * inputs * inputs,
            Learner::Mk(_) | Learner::Emk => nodes * 4.0 * (kernels + 1.0) * model,
            Learner::Sk | Learner::Naive | Learner::Pof => nodes * 4.0 * 2.0 * kernels * model,
            Learner::FedPoe => nodes * 4.0 * 3.0 * kernels * model,
            Learner::Local => nodes * 4.0 * kernels * model,
            Learner::Central | Learner::CentralBatch => 4.0 * kernels * model,
            Learner::Last | Learner::Mean => continue,
            Learner::Hindsight => 8.0 * 2.0 * kernels * model * model / 2.0,
        };
        bytes += nodes * settings.participation.arrivals.bounds().1 * 4.0 * kernels * model;
    }
    // Trials of a live stream are all played at the same time.
    let at_once = if scene.rounds.is_some() { threads.min(settings.trials) } else { settings.trials };
    Ok(bytes * at_once as f64)
}
