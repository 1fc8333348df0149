//! A run: trials in parallel, reduced to [`Results`]. The number of threads changes
//! only the time.

use std::num::NonZeroUsize;
use std::time::Instant;

use hedgerow::method::{METHODS, Reference, Role};
use hedgerow::random::{CounterRng, Purpose};
use hedgerow::scaling::ScaleKind;
use rayon::prelude::*;

use crate::grids::Grids;
use crate::memory::{self, Memory};
use crate::model;
use crate::parallelism::Parallelism;
use crate::preprocessor::Scaler;
use crate::results::Results;
use crate::settings::{DataChoice, MethodChoice, Scaling, Settings, SettingsError, Source};
use crate::summary;
use crate::trial::{self, RunContext, TrialError, TrialResult};
use hedgerow_data::columns::Task;
use hedgerow_data::partition::{Partition, PartitionError};
use hedgerow_data::ranges::{self, RangesError};
use hedgerow_data::samples::{InputColumns, SampleStream};
use hedgerow_data::schema::TableSchema;
use hedgerow_data::streams::Stream;
use hedgerow_data::{DataError, Dataset};

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The settings are wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The data can't be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The known ranges can't be used.
    #[error(transparent)]
    Ranges(#[from] RangesError),
    /// The partition can't give samples to the nodes.
    #[error("{data}: {source}")]
    Partition {
        /// Name of the data.
        data: String,
        /// What the partition reported.
        source: PartitionError,
    },
    /// A trial failed.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// The model of the run can't be saved.
    #[error("the model can't be saved: {0}")]
    Model(String),
    /// The run needs more memory than there is.
    #[error("this run needs about {needed} of memory, {largest}, but {has} {most}: lower {keys}")]
    Memory {
        /// Estimated need, in words.
        needed: String,
        /// The source of the memory bound.
        has: &'static str,
        /// The bound, in words.
        most: String,
        /// The largest part.
        largest: String,
        /// Settings that would lower the need.
        keys: String,
    },
    /// The number of nodes of a live stream is unknown.
    #[error(
        "federation.nodes must say how many nodes there are (--nodes): a live stream names them only as they come"
    )]
    NodesUnknown,
    /// No sample reached a node, or none that could be predicted.
    #[error(
        "{0}: no sample could be predicted: none reached a node in these rounds, or too few to agree on a scale (more rounds, more arrivals, or --scaling none)"
    )]
    NothingSeen(String),
    /// The threads could not be started.
    #[error("can't start {threads} threads: {source}")]
    Threads {
        /// Number of threads.
        threads: usize,
        /// What the thread pool reported.
        source: rayon::ThreadPoolBuildError,
    },
}

/// The data that the settings name, generated or read. `progress` gets the number of bytes read.
pub fn load_data(settings: &Settings, progress: &dyn Fn(u64)) -> Result<Dataset, RunError> {
    let DataChoice { name, source, columns } = &settings.data;
    let mut data = match source {
        Source::Builtin(stream) => generate(settings, stream)?.with_past(columns)?,
        Source::Files { files, .. } => {
            Dataset::read(name, &mut SampleStream::open(files, columns)?, progress)?
        }
    };
    if columns.task == Task::Classes && data.classes.is_empty() {
        data = data.with_classes()?;
    }
    if let Scaling::WholeFile { jointly } = settings.scaling {
        data.scale_with_hindsight(jointly);
    }
    Ok(data)
}

fn generate(settings: &Settings, stream: &Stream) -> Result<Dataset, RunError> {
    let nodes = settings.nodes.unwrap_or(settings.default_nodes);
    let rounds = settings.rounds.unwrap_or(stream.default_rounds);
    let per_node = (rounds as f64 * settings.participation.arrivals.bounds().1).ceil().max(1.0);
    let past = (settings.data.columns.lags + settings.data.columns.horizon - 1) * nodes;
    let samples = per_node * nodes as f64 + past as f64;
    if samples > MOST_SAMPLES {
        let bound =
            format!("so that nodes, rounds and arrivals make at most {MOST_SAMPLES} samples");
        return Err(out_of_bounds("run.rounds", bound, format!("{rounds}, which makes {samples}")));
    }
    let data = memory::of_samples(samples, stream.generate(1, 1, settings.seed).features);
    Memory { data, ..Memory::default() }.check(settings, 1)?;
    let seed = CounterRng::from_seed(settings.seed).derive(Purpose::Data, 0).bits_at(0);
    Ok(stream.generate(samples as usize, nodes, seed))
}

fn out_of_bounds(key: &str, bound: impl ToString, value: impl ToString) -> RunError {
    RunError::Settings(SettingsError::out_of_bounds(key, bound, value))
}

/// A stream with fewer samples ends before nodes agree on a scale.
const SAMPLES_BEFORE_SCALE: usize = 100;

/// Most samples of a generated stream, which stays in memory.
const MOST_SAMPLES: f64 = 2e8;

/// A run whose settings have been checked against its data.
pub struct Experiment<'a> {
    context: RunContext<'a>,
    data: &'a Dataset,
    rounds: usize,
    groups: usize,
    memory: Memory,
}

impl<'a> Experiment<'a> {
    /// Checks settings and data against each other.
    pub fn new(settings: &'a Settings, data: &'a Dataset) -> Result<Self, RunError> {
        let owners = data.owners.as_ref().filter(|_| settings.partition == Partition::Auto);
        let mut context = RunContext {
            settings,
            methods: Vec::new(),
            nodes: nodes(settings, owners.map(|owners| owners.names.len()))?,
            features: data.features,
            classes: data.classes.clone(),
            units: data.units(),
            targets: several(&data.input_columns().targets, data.outputs),
            target: data.input_columns().targets.join(", "),
            sources: data.schema.as_ref().map(TableSchema::sources).unwrap_or_default(),
            rounds: None,
            scaler: scaler(
                settings,
                data.is_of_order_one || data.len() < SAMPLES_BEFORE_SCALE,
                &data.input_columns(),
                !data.classes.is_empty(),
            )?,
            has_missing: data.missing > 0,
            inputs: data.schema.as_ref().map(TableSchema::describe).unwrap_or_default(),
            delay: 0,
            grids: Grids::OPEN,
            parallelism: parallelism(settings, owners.map(|owners| owners.names.len()))?,
        };
        let kind = SeriesKind::new(data.is_time_series, owners.is_some());
        context.methods = methods(&context, kind)?;
        context.delay = delay(settings, data.owners.is_some(), context.nodes);
        // Only drawn shares make streams whose lengths differ from trial to trial.
        let is_drawn =
            matches!(settings.partition, Partition::Dirichlet(_) | Partition::Unequal(_));
        let draws = if is_drawn { settings.trials } else { 1 };
        let mut lasting = 0;
        for trial in 0..draws {
            let undealt = |source| RunError::Partition { data: data.name.clone(), source };
            let streams = trial::deal(&context, data, trial).map_err(undealt)?;
            for (node, stream) in streams.iter().enumerate() {
                let rounds =
                    stream.len() as f64 / settings.participation.arrivals.mean(node, context.nodes);
                lasting = lasting.max(rounds.ceil() as usize);
            }
        }
        let usual = match settings.data.source {
            Source::Builtin(stream) if !is_drawn => stream.default_rounds,
            _ => lasting,
        };
        let wanted = settings.rounds.unwrap_or(usual);
        let rounds = wanted.min(lasting).max(1);
        context.rounds = Some(rounds);
        context.grids = Grids::closed(rounds);
        let memory = check_memory(&context, data.len())?;
        let groups = trial::groups(&context)?.len();
        Ok(Self { context, data, rounds, groups, memory })
    }

    /// The memory that it will take.
    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// Number of nodes, K.
    pub fn nodes(&self) -> usize {
        self.context.nodes
    }

    /// Number of rounds, T.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Names of the classes; empty if labels are numbers.
    pub fn classes(&self) -> &[String] {
        &self.context.classes
    }

    /// Numbers per sample, d.
    pub fn features(&self) -> usize {
        self.context.features
    }

    /// How nodes agree on a scale; none if they don't.
    pub fn online_scale(&self) -> Option<ScaleKind> {
        match self.context.scaler {
            Scaler::Online { kind, .. } => Some(kind),
            Scaler::None | Scaler::Fixed(_) => None,
        }
    }

    /// Number of steps of progress.
    pub fn steps(&self) -> u64 {
        (self.context.settings.trials * self.groups) as u64 * self.rounds as u64
    }

    /// Runs all trials. `step` is called for each step of progress, from any thread.
    pub fn run(&self, step: &(dyn Fn() + Sync)) -> Result<Results, RunError> {
        let start = Instant::now();
        let Self { context, data, rounds, .. } = self;
        let mut trials: Vec<TrialResult> = threads(context.settings)?.install(|| {
            let run = |trial| trial::run_trial(context, data, *rounds, trial, step);
            let trials = 0..context.settings.trials;
            match context.parallelism {
                Parallelism::OverTrials => {
                    trials.into_par_iter().map(run).collect::<Result<_, _>>()
                }
                // One trial at a time: a waiting thread would start another trial and take its
                // memory.
                Parallelism::OverNodes => trials.map(run).collect(),
            }
        })?;
        let owners = data.owners.as_ref().map(|owners| &owners.names[..]);
        let seconds = start.elapsed().as_secs_f64();
        let rounds = *rounds as u64;
        let mut results =
            summary::summarise(context, &data.name, owners, &trials, rounds, seconds)?;
        results.rounds_asked = context.settings.rounds.filter(|asked| *asked as u64 > rounds);
        results.data.repeated_rows = data.repeated_rows;
        model::attach(&mut results, trials.remove(0).model, data.schema.as_ref())?;
        Ok(results)
    }
}

/// Rounds until a label that is forecast some steps ahead is known: a node's own series goes on by
/// a row in a round, one that is dealt to all by a row for each of them.
pub(crate) fn delay(settings: &Settings, has_owners: bool, nodes: usize) -> usize {
    let rows = settings.data.columns.horizon - 1;
    if has_owners { rows } else { rows.div_ceil(nodes) }
}

/// Names of the targets, if a sample has several.
pub(crate) fn several(targets: &[String], labels: usize) -> Vec<String> {
    if labels > 1 { targets.to_vec() } else { Vec::new() }
}

/// Why no fixed function is the best of all rounds.
pub(crate) const CHANGING_FEATURES: &str =
    "numbers are scaled online: features change with the scale";

/// What the order of samples means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeriesKind {
    /// Samples have no order in time.
    None,
    /// One time series, dealt to nodes.
    Dealt,
    /// Each node has a time series of its own.
    Own,
}

impl SeriesKind {
    pub(crate) fn new(is_time_series: bool, has_owners: bool) -> Self {
        match (is_time_series, has_owners) {
            (false, _) => Self::None,
            (true, false) => Self::Dealt,
            (true, true) => Self::Own,
        }
    }
}

/// The methods asked for; a time series is always compared with the trivial forecasts. The previous
/// label of a node's own series is its last, so it is added to a series that is dealt only. Where
/// features change with an agreed scale, no fixed function is the best of all rounds: `hindsight`
/// is left out, or refused if it was asked for; so it is for classes and several targets.
pub(crate) fn methods(
    context: &RunContext<'_>,
    kind: SeriesKind,
) -> Result<Vec<MethodChoice>, RunError> {
    let settings = context.settings;
    let mut methods = settings.methods.clone();
    let trivial = METHODS.iter().filter(|info| info.role == Role::Trivial);
    for trivial in trivial.map(|info| MethodChoice::from(*info)) {
        let is_known = match kind {
            SeriesKind::None => false,
            SeriesKind::Dealt => true,
            SeriesKind::Own => !trivial.is(Reference::PreviousLabel),
        };
        if is_known && !methods.contains(&trivial) {
            methods.push(trivial);
        }
    }
    let obstacle = if matches!(context.scaler, Scaler::Online { .. }) {
        Some(CHANGING_FEATURES)
    } else {
        (context.units.len() != 1).then_some("the target is a class, or there are several")
    };
    if let Some(obstacle) = obstacle
        && let Some(fixed) = methods.iter().find(|choice| choice.is(Reference::Hindsight))
    {
        if !settings.has_default_methods() {
            let bound = format!("without hindsight where {obstacle}");
            return Err(out_of_bounds("federation.methods", bound, fixed.name()));
        }
        methods.retain(|choice| !choice.is(Reference::Hindsight));
    }
    Ok(methods)
}

/// K: as many as were asked for, and as the data names.
pub(crate) fn nodes(settings: &Settings, named: Option<usize>) -> Result<usize, RunError> {
    match (settings.nodes, named) {
        (Some(nodes), Some(named)) if nodes != named => {
            let bound = format!("{named}, as many as the data names (leave it out)");
            Err(out_of_bounds("federation.nodes", bound, nodes))
        }
        (nodes, named) => Ok(nodes.or(named).unwrap_or(settings.default_nodes)),
    }
}

/// Nodes from which on threads share a trial, even if there are as many trials as threads.
const MANY_NODES: usize = 20_000;

/// Whether threads share the nodes of a trial or have a trial each.
fn parallelism(settings: &Settings, named: Option<usize>) -> Result<Parallelism, RunError> {
    let is_shared =
        settings.trials < thread_count(settings) || nodes(settings, named)? >= MANY_NODES;
    Ok(if is_shared { Parallelism::OverNodes } else { Parallelism::OverTrials })
}

fn thread_count(settings: &Settings) -> usize {
    match settings.threads {
        0 => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
        threads => threads,
    }
}

/// How numbers are to be scaled.
pub(crate) fn scaler(
    settings: &Settings,
    needs_no_scale: bool,
    columns: &InputColumns,
    raw_labels: bool,
) -> Result<Scaler, RunError> {
    Ok(match &settings.scaling {
        Scaling::None | Scaling::WholeFile { .. } => Scaler::None,
        Scaling::Auto if needs_no_scale => Scaler::None,
        Scaling::Auto => Scaler::Online { kind: ScaleKind::Spread, raw_labels },
        Scaling::Online(kind) => Scaler::Online { kind: *kind, raw_labels },
        Scaling::Ranges(file) => {
            let (scale, labels) = (ranges::read(file, columns)?, columns.labels.len());
            Scaler::Fixed(if raw_labels { scale.with_raw_labels(labels) } else { scale })
        }
    })
}

pub(crate) fn threads(settings: &Settings) -> Result<rayon::ThreadPool, RunError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(settings.threads).build();
    pool.map_err(|source| RunError::Threads { threads: settings.threads, source })
}

/// Trials that run at the same time.
fn at_once(context: &RunContext<'_>) -> usize {
    match (context.rounds, context.parallelism) {
        // Those of a live stream all are.
        (None, _) => context.settings.trials,
        (Some(_), Parallelism::OverNodes) => 1,
        (Some(_), Parallelism::OverTrials) => {
            context.settings.trials.min(thread_count(context.settings))
        }
    }
}

/// The memory that a run will take, or an error if it doesn't fit; `samples` are in memory already.
pub(crate) fn check_memory(context: &RunContext<'_>, samples: usize) -> Result<Memory, RunError> {
    let at_once = at_once(context);
    let mut memory = memory::estimate(context, at_once)?;
    // The node of each sample, trial by trial.
    memory.data += 4.0 * (samples * at_once) as f64;
    memory.results += memory::of_predictions(context, samples);
    // The samples are in memory already: the check is about the rest.
    memory.check(context.settings, at_once)?;
    memory.data += memory::of_samples(samples as f64, context.features);
    Ok(memory)
}
