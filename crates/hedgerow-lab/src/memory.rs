//! [`Memory`]: an estimate of the memory of a run, and the memory that there is. A run that doesn't
//! fit is refused before it starts.

use std::fs;
use std::path::Path;

use hedgerow::aggregation::Aggregation;
use hedgerow::importance::{self, ImportanceScope};
use hedgerow::method::{Reference, Setup};
use hedgerow::own_layer::OwnLayer;
use hedgerow::scaling::NodeScaling;
use hedgerow::{Node, Plan};

use crate::group_run::{FEATURES_AT_ONCE, LEAST_AT_ONCE, MOST_AT_ONCE};
use crate::predictions::ScoredPrediction;
use crate::preprocessor::Scaler;
use crate::round_generator::Turn;
use crate::run::RunError;
use crate::sampler;
use crate::settings::{MethodChoice, Scope, Settings, SettingsError, Sizes, Wire};
use crate::trial::{self, RunContext};

/// Bytes that a run will take, by purpose.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Memory {
    /// State of nodes: models, weights, sums, scales, own layers.
    pub nodes: f64,
    /// Features of the samples that are learned from at a time.
    pub features: f64,
    /// Messages: sums of uploads, stored uploads, and errors that compression has not yet sent.
    pub messages: f64,
    /// Samples, their nodes, and the samples of the open round.
    pub data: f64,
    /// Curves, windows and sums of measurements.
    pub results: f64,
    /// The program itself and the report.
    pub program: f64,
}

/// The program, its threads, and the report that it writes.
const PROGRAM_BYTES: f64 = 24e6;

/// Bytes that an allocator adds to each allocation, and allocations of a node.
const ALLOCATION_BYTES: f64 = 16.0;
const ALLOCATIONS_PER_NODE: f64 = 6.0;

/// Lanes that a round is divided into.
const MOST_LANES: f64 = 32.0;

impl Memory {
    /// The sum of all parts.
    pub fn total(&self) -> f64 {
        self.parts().iter().map(|(bytes, ..)| bytes).sum()
    }

    /// Each part, what it is in words, and what would make it smaller.
    fn parts(&self) -> [(f64, &'static str, &'static str); 6] {
        [
            (
                self.nodes,
                "what nodes remember",
                "federation.nodes, federation.budget, kernels.variances or federation.methods",
            ),
            (
                self.features,
                "the features of a round",
                "federation.budget, kernels.variances or participation.arrivals, or leave out central-batch",
            ),
            (
                self.messages,
                "messages",
                "federation.nodes, federation.budget or federation.methods",
            ),
            (self.data, "samples", "run.rounds, federation.nodes or participation.arrivals"),
            (
                self.results,
                "what is measured",
                "run.rounds, run.window, run.trials, kernels.variances, federation.budget or federation.methods (without hindsight, or sk)",
            ),
            (self.program, "the program itself", "run.threads"),
        ]
    }

    /// This many times its bytes, and those of another.
    fn times_plus(&self, times: f64, other: &Self) -> Self {
        Self {
            nodes: self.nodes * times + other.nodes,
            features: self.features * times + other.features,
            messages: self.messages * times + other.messages,
            data: self.data * times + other.data,
            results: self.results * times + other.results,
            program: self.program * times + other.program,
        }
    }

    /// An error if it is more than there is, or more than [`Settings::memory_limit`] allows.
    pub(crate) fn check(&self, settings: &Settings, at_once: usize) -> Result<(), RunError> {
        let Some(most) = settings.memory_limit.or_else(available) else { return Ok(()) };
        if self.total() <= most {
            return Ok(());
        }
        let parts = self.parts();
        let Some((bytes, largest, keys)) = parts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))
        else {
            return Ok(());
        };
        let (needed, bytes) = (gigabytes(self.total()), gigabytes(bytes));
        let largest = format!("{bytes} of it for {largest}");
        let keys = if at_once > 1 { format!("{keys}, or run.threads") } else { keys.to_owned() };
        let has =
            if settings.memory_limit.is_some() { "run.memory_limit allows" } else { "there is" };
        Err(RunError::Memory { needed, has, most: gigabytes(most), largest, keys })
    }
}

/// In words.
pub fn gigabytes(bytes: f64) -> String {
    if bytes < 1e9 { format!("{:.0} MB", bytes / 1e6) } else { format!("{:.1} GB", bytes / 1e9) }
}

/// What the trials that run at the same time will take, and the samples.
pub(crate) fn estimate(context: &RunContext<'_>, at_once: usize) -> Result<Memory, SettingsError> {
    let settings = context.settings;
    let groups = trial::groups(context)?;
    let (mut one, mut of_first) = (Memory::default(), Memory::default());
    for group in &groups {
        // Groups run one after the other, unless the stream can be read only once.
        let add = |sum: &mut Memory, this: Memory| {
            if context.rounds.is_none() {
                *sum = sum.times_plus(1.0, &this);
            } else if this.total() > sum.total() {
                *sum = this;
            }
        };
        add(&mut one, of_group(context, group)?);
        add(&mut of_first, of_first_trial(context, group)?);
    }
    let mut all = one.times_plus(at_once as f64, &of_first);
    all.program += PROGRAM_BYTES;
    // The curves of all trials are kept to the end, and their means are added then.
    let points = context.rounds.map_or(2000, |rounds| rounds.min(1500)) as f64;
    let (entries, kernels) = (entries(context), settings.kernels.len() as f64);
    all.results += points * entries * (settings.trials + 1) as f64 * 8.0 * (8.0 + kernels);
    Ok(all)
}

/// Lines of the table of results, at most.
fn entries(context: &RunContext<'_>) -> f64 {
    let of_sk = context.methods.iter().filter(|choice| choice.info.takes_kernel).count();
    (context.methods.len() + of_sk * context.settings.kernels.len()) as f64
}

/// What the predictions of so many samples take, if they are kept. They are copied once.
pub(crate) fn of_predictions(context: &RunContext<'_>, samples: usize) -> f64 {
    let copies = if context.settings.keeps_predictions { 2.0 } else { 0.0 };
    copies * entries(context) * (samples * size_of::<ScoredPrediction>()) as f64
}

/// What a group of methods takes in one trial.
fn of_group(context: &RunContext<'_>, group: &[MethodChoice]) -> Result<Memory, SettingsError> {
    let settings = context.settings;
    let (nodes, inputs) = (context.nodes as f64, context.features as f64);
    let samples = nodes * settings.participation.arrivals.bounds().1.max(1.0);
    let width = settings.plan(group[0], context.sizes(), 0)?.width() as f64;
    let kernels = settings.kernels.len() as f64;
    let mut memory = Memory::default();
    for &choice in group {
        let sizes = context.sizes();
        let sizes = Sizes { nodes: choice.scope.nodes(sizes.nodes), ..sizes };
        let at_nodes = if choice.scope == Scope::Pooled { 1.0 } else { nodes };
        let plan = settings.plan(choice, sizes, 0)?;
        let plan = with_samples(plan, context.rounds, samples / at_nodes);
        memory.nodes += at_nodes * of_node(choice, &plan);
        if settings.importance == ImportanceScope::Shared && choice.may_be_subject() {
            memory.nodes += at_nodes * importance::memory(context.features, plan.width()) as f64;
        }
        // A device alone is node and server.
        let servers = if choice.scope == Scope::Alone { nodes } else { 1.0 };
        memory.messages += servers * of_messages(choice, &plan);
        let runs = if choice.info.takes_kernel { kernels } else { 1.0 };
        // The number of rounds of a live stream is unknown unless it was given.
        let rounds = context.rounds.or(settings.rounds).unwrap_or(usize::MAX);
        memory.results += runs * 2.0 * 16.0 * settings.window.min(rounds) as f64;
    }
    // All at once if a method needs them all.
    let needs_all = group.iter().any(|choice| choice.is(Reference::CentralBatch));
    let most = if needs_all || context.delay > 0 {
        samples
    } else {
        (FEATURES_AT_ONCE as f64 / width).clamp(LEAST_AT_ONCE as f64, MOST_AT_ONCE as f64)
    };
    let noted = 8.0 * group.len() as f64 * (kernels + 2.0);
    let copies = if context.delay > 0 { 2.0 } else { 1.0 };
    memory.features += copies * samples.min(most) * (4.0 * width + noted + 64.0);
    let frequencies = settings.frequencies(group[0])? as f64;
    // A dictionary is larger than what is taken from it for a moment; so are frequencies when they
    // are drawn.
    memory.features += 2.0 * 4.0 * kernels * frequencies * inputs;
    let columns = inputs + 1.0;
    if !matches!(context.scaler, Scaler::None) || context.has_missing {
        let own =
            size_of::<NodeScaling>() as f64 + columns * (48.0 + 16.0) + 2.0 * ALLOCATION_BYTES;
        let at_server = if matches!(context.scaler, Scaler::Online { .. }) {
            48.0 * columns + 64.0
        } else {
            0.0
        };
        memory.nodes += nodes * (own + at_server + 16.0);
    }
    // A round as it comes and as it is learned from, and those that wait for their labels.
    let turn = size_of::<Turn>() as f64;
    memory.data += (2.0 + context.delay as f64) * (samples * (4.0 * inputs + 16.0) + nodes * turn);
    // The partition, and what is drawn for each node.
    memory.data += nodes * (24.0 + ALLOCATION_BYTES + 4.0 * 8.0);
    if group.iter().any(|choice| choice.is(Reference::Hindsight)) {
        let model = 2.0 * frequencies;
        memory.results += kernels * (4.0 * model * (model + 1.0) + 3.0 * 8.0 * model)
            + 8.0 * model * samples.min(most);
    }
    Ok(memory)
}

/// What a group of methods takes in the first trial alone, for figures.
fn of_first_trial(
    context: &RunContext<'_>,
    group: &[MethodChoice],
) -> Result<Memory, SettingsError> {
    let settings = context.settings;
    let mut memory = Memory::default();
    for &choice in group.iter().filter(|choice| choice.may_be_subject()) {
        memory.results += 2.0 * sampler::memory(context.nodes);
        if settings.importance == ImportanceScope::Local {
            let width = settings.plan(choice, context.sizes(), 0)?.width();
            memory.nodes += (context.nodes * importance::memory(context.features, width)) as f64;
        }
    }
    Ok(memory)
}

/// A plan whose nodes remember no more samples than they will see.
fn with_samples(plan: Plan, rounds: Option<usize>, each_round: f64) -> Plan {
    let Some(rounds) = rounds else { return plan };
    let bytes = 4 * (plan.inputs() + plan.width() + 8);
    let seen = (rounds as f64 * each_round).ceil() as usize;
    let memory = plan.config().memory.min(seen.saturating_mul(bytes));
    let with = |memory| Plan::new(plan.config().clone().memory(memory));
    // Too little for the method to begin is little anyway.
    with(memory).or_else(|_| with(0)).unwrap_or(plan)
}

/// Bytes that a node of a method keeps.
fn of_node(choice: MethodChoice, plan: &Plan) -> f64 {
    let overhead = (size_of::<Setup>() + size_of::<Node>()) as f64
        + 256.0
        + ALLOCATIONS_PER_NODE * ALLOCATION_BYTES;
    let own = match plan.has_own_layers() {
        true => OwnLayer::memory(plan.own_features()) as f64,
        false => 0.0,
    };
    let overhead = if choice.info.halves.is_some() { overhead } else { 0.0 };
    let outputs = plan.outputs() as f64;
    outputs * (own + runs(choice, plan) * (overhead + (choice.info.memory)(plan.setup()) as f64))
}

/// Federations that a method runs: one for each kernel, if it uses a single one.
fn runs(choice: MethodChoice, plan: &Plan) -> f64 {
    if choice.info.takes_kernel { plan.kernels() as f64 } else { 1.0 }
}

/// Sums of uploads, stored uploads, and errors that compression has not yet sent.
fn of_messages(choice: MethodChoice, plan: &Plan) -> f64 {
    let config = plan.config();
    if !choice.info.travels() {
        return 0.0;
    }
    let nodes = config.nodes as f64;
    let layout = (choice.info.layout)(plan.setup());
    let of_all = |numbers: usize| runs(choice, plan) * (plan.outputs() * numbers) as f64;
    let upload = of_all(layout.upload.max_len());
    let (sums, owed) = (of_all(layout.sums()), of_all(layout.remembered()));
    let is_averaged = config.aggregation == Aggregation::Mean;
    let kept = if is_averaged { 0.0 } else { 2.0 * 4.0 * nodes * upload };
    let ends = if choice.wire == Wire::default() { 0.0 } else { nodes * (8.0 * owed + 300.0) };
    (1.0 + MOST_LANES.min(nodes)) * 24.0 * sums + nodes * 10.0 + kept + ends
}

/// Bytes of samples in memory: inputs, labels and their nodes, with a temporary second copy while
/// they are made.
pub(crate) fn of_samples(samples: f64, features: usize) -> f64 {
    samples * (4.0 * features as f64 + 4.0 + 4.0)
}

/// Bytes that this process can still allocate; none where the system doesn't say.
pub fn available() -> Option<f64> {
    let told = fs::read_to_string("/proc/meminfo").ok()?;
    let line = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Some((1024.0 * kilobytes).min(left_in_groups(&groups, Path::new("/sys/fs/cgroup"))))
}

/// Bytes that the control groups of this process leave it; infinite without a limit.
fn left_in_groups(told: &str, root: &Path) -> f64 {
    let Some(own) = told.lines().find_map(|line| line.strip_prefix("0::")) else {
        return f64::INFINITY;
    };
    let folder = root.join(own.trim_start_matches('/'));
    let number = |file: &Path| fs::read_to_string(file).ok()?.trim().parse::<f64>().ok();
    let groups = folder.ancestors().take_while(|folder| folder.starts_with(root));
    // What isn't a number says that there is no limit.
    let left = groups.filter_map(|group| {
        let most = number(&group.join("memory.max"))?;
        Some((most - number(&group.join("memory.current")).unwrap_or(0.0)).max(0.0))
    });
    left.fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_of_all_groups_counts() {
        let root = tempfile::TempDir::new().unwrap();
        let inner = root.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        let left = || left_in_groups("1:x:/y\n0::/a/b\n", root.path());
        assert_eq!(left(), f64::INFINITY);
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        assert_eq!(left(), f64::INFINITY);
        fs::write(root.path().join("a/memory.max"), "5000\n").unwrap();
        fs::write(root.path().join("a/memory.current"), "2000\n").unwrap();
        assert_eq!(left(), 3000.0);
        fs::write(inner.join("memory.max"), "100\n").unwrap();
        assert_eq!(left(), 100.0);
        assert_eq!(left_in_groups("", root.path()), f64::INFINITY);
        assert!(available().is_none_or(|bytes| bytes > 1e6));
    }

    #[test]
    fn bytes_are_told_in_words() {
        assert_eq!(
            (gigabytes(5.87e9), gigabytes(123.4e6)),
            ("5.9 GB".to_owned(), "123 MB".to_owned())
        );
    }
}
