//! A live run: samples are learned once, as they arrive, until the stream ends. Only the models are
//! kept.
//!
//! A round has one sample of each node. If the data names the nodes, a round closes when a node
//! appears for the second time. Nodes that appeared earlier but not in this round receive its
//! broadcast too.

use std::collections::VecDeque;
use std::time::Instant;

use hedgerow::federation::Contact;
use rayon::prelude::*;

use crate::grids::Grids;
use crate::group_run::GroupRun;
use crate::model;
use crate::parallelism::Parallelism;
use crate::preprocessor::RawRound;
use crate::results::Results;
use crate::round_generator::{RoundGenerator, Turn};
use crate::run::{self, RunError, SeriesKind};
use crate::settings::{Arrivals, Scaling, Settings, SettingsError, Sizes};
use crate::summary;
use crate::trial::{self, RunContext, TrialError, TrialResult};
use hedgerow_data::partition::Partition;
use hedgerow_data::samples::{Sample, SampleStream};
use hedgerow_data::{DataError, FIRST_LOOK, is_of_order_one, spreads};

/// Progress of a live run.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Rounds so far.
    pub round: u64,
    /// Samples so far.
    pub samples: u64,
    /// Mean squared error so far of each method, over trials.
    pub mse: Vec<(String, f64)>,
}

/// Longest window. The number of rounds is unknown, so the whole window is kept.
const MOST_WINDOW: usize = 100_000;

/// A live run that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The results.
    pub results: Results,
    /// What was wrong with the stream, if that is why it ended.
    pub because: Option<RunError>,
}

/// Learns from the stream until it ends, or `keep_on` says no, which is told of every round. With
/// [`Scaling::Auto`] or several targets the first 100 samples are waited for before the first
/// round.
pub fn run(
    settings: &Settings,
    mut stream: SampleStream,
    mut keep_on: impl FnMut(&dyn Fn() -> Progress) -> bool,
) -> Result<Ended, RunError> {
    let start = Instant::now();
    check(settings)?;
    let mut rounds = Rounds::new(&stream, settings)?;
    let looks_ahead = settings.scaling == Scaling::Auto || stream.labels() > 1;
    let looked_at = if looks_ahead { FIRST_LOOK } else { 1 };
    rounds.read_ahead(&mut stream, looked_at)?;
    if rounds.ahead.is_empty() {
        return Err(RunError::NothingSeen(settings.data.name.clone()));
    }
    let columns = stream.schema().input_columns();
    let has_classes = !columns.classes.is_empty();
    let is_of_order_one = rounds.ahead.iter().all(|sample| {
        let numbers = if has_classes { &[] } else { &sample.y[..] };
        is_of_order_one(&sample.x, numbers)
    });
    let scaler = run::scaler(settings, is_of_order_one, &columns, has_classes)?;
    let units = match (has_classes, stream.labels()) {
        (true, _) => Vec::new(),
        (false, 1) => vec![1.0],
        (false, labels) => spreads(rounds.ahead.iter().map(|sample| &sample.y[..]), labels),
    };
    let mut context = RunContext {
        settings,
        methods: Vec::new(),
        nodes: rounds.nodes,
        features: stream.features(),
        sources: stream.schema().sources(),
        classes: columns.classes.clone(),
        units,
        targets: run::several(&columns.targets, stream.labels()),
        target: columns.targets.join(", "),
        rounds: None,
        scaler,
        has_missing: true,
        inputs: stream.schema().describe(),
        delay: run::delay(settings, stream.has_owners(), rounds.nodes),
        grids: Grids::OPEN,
        parallelism: Parallelism::OverNodes,
    };
    let kind = SeriesKind::new(stream.is_time_series(), stream.has_owners());
    context.methods = run::methods(&context, kind)?;
    run::check_memory(&context, 0)?;
    let mut trials = (0..settings.trials)
        .map(|trial| LiveTrial::new(&context, trial))
        .collect::<Result<Vec<_>, _>>()?;
    let threads = run::threads(settings)?;
    let (mut round, mut samples, mut because) = (0, 0, None);
    while settings.rounds.is_none_or(|last| round < last as u64) {
        match rounds.next(&context, &mut stream) {
            Ok(true) => {}
            Ok(false) => break,
            // Keep what was learned so far.
            Err(error) if round > 0 => {
                because = Some(error);
                break;
            }
            Err(error) => return Err(error),
        }
        round += 1;
        samples += rounds.raw.indices.len() as u64;
        threads.install(|| {
            trials.par_iter_mut().try_for_each(|trial| {
                trial.run_round(round, &rounds.turns, &rounds.raw, &context.grids)
            })
        })?;
        let progress = || Progress { round, samples, mse: errors(&trials) };
        if !keep_on(&progress) {
            break;
        }
    }
    if round == 0 {
        return Err(RunError::NothingSeen(settings.data.name.clone()));
    }
    let finished = trials.into_iter().map(|trial| trial.finish(&context, round));
    let mut trials = finished.collect::<Result<Vec<TrialResult>, _>>()?;
    let (name, seconds) = (&settings.data.name, start.elapsed().as_secs_f64());
    let owners = stream.has_owners().then(|| stream.owners());
    match summary::summarise(&context, name, owners, &trials, round, seconds) {
        Ok(mut results) => {
            results.data.repeated_rows = stream.repeated_rows();
            model::attach(&mut results, trials.remove(0).model, Some(stream.schema()))?;
            Ok(Ended { results, because })
        }
        // Report an error of the stream first.
        Err(error) => Err(because.unwrap_or(error)),
    }
}

/// An error for settings that need data known beforehand.
pub fn check(settings: &Settings) -> Result<(), RunError> {
    let needs = |what| Err(DataError::NeedsWholeFile(what).into());
    match settings.scaling {
        Scaling::WholeFile { jointly: false } => return needs("data.scaling = \"whole-file\""),
        Scaling::WholeFile { jointly: true } => {
            return needs("data.scaling = \"whole-file-joint\"");
        }
        _ => {}
    }
    let has_nodes = settings.data.columns.node.is_some();
    if settings.partition != Partition::Auto
        && (settings.partition != Partition::RoundRobin || has_nodes)
    {
        return needs("a federation.partition other than round-robin and column:NAME");
    }
    if settings.participation.join_within > 0.0 {
        return needs("participation.join_within, a share of its rounds,");
    }
    let out_of_bounds = |key: &str, bound: &str, value: String| {
        Err(SettingsError::out_of_bounds(key, bound, value).into())
    };
    if settings.participation.arrivals != Arrivals::Fixed(1) {
        let bound = "\"one\" for standard input, whose samples arrive when they do";
        let said =
            settings.effective.get("participation").and_then(|section| section.get("arrivals"));
        let value = said.map(ToString::to_string).unwrap_or_default();
        return out_of_bounds("participation.arrivals", bound, value);
    }
    let columns = &settings.data.columns;
    if columns.node.is_some() && settings.nodes.is_none() {
        return Err(RunError::NodesUnknown);
    }
    for &choice in &settings.methods {
        let nodes = run::nodes(settings, None)?;
        let sizes = Sizes { nodes, inputs: 1, outputs: 1, classes: &[], rounds: None };
        settings.plan(choice, sizes, settings.seed)?;
    }
    if settings.rounds.is_none_or(|rounds| rounds > MOST_WINDOW) && settings.window > MOST_WINDOW {
        let bound = format!("at most {MOST_WINDOW} for standard input, whose end nobody knows");
        return out_of_bounds("run.window", &bound, settings.window.to_string());
    }
    Ok(())
}

/// Mean squared error of each method so far, over trials; of `sk` the best kernel's.
fn errors(trials: &[LiveTrial]) -> Vec<(String, f64)> {
    let mut errors: Vec<(String, f64)> = Vec::new();
    let runs = |trial: &LiveTrial| -> Vec<(String, f64)> {
        let runs = trial.group_runs.iter().flat_map(|group_run| &group_run.runs);
        runs.map(|run| (run.choice.name(), run.mse())).collect()
    };
    let all: Vec<_> = trials.iter().map(runs).collect();
    for (position, (name, _)) in all[0].iter().enumerate() {
        let mse = all.iter().map(|runs| runs[position].1).sum::<f64>() / all.len() as f64;
        match errors.last_mut() {
            Some((last, least)) if last == name => *least = least.min(mse),
            _ => errors.push((name.clone(), mse)),
        }
    }
    errors
}

/// One trial of a live run.
struct LiveTrial {
    number: usize,
    group_runs: Vec<GroupRun>,
    generator: RoundGenerator<'static>,
    /// The round with this trial's own contacts.
    turns: Vec<Turn>,
}

impl LiveTrial {
    fn new(context: &RunContext<'_>, number: usize) -> Result<Self, RunError> {
        let group_runs = trial::groups(context)?
            .iter()
            .map(|group| GroupRun::new(context, group, number))
            .collect::<Result<_, _>>()?;
        let randomness = trial::trial_randomness(context.settings, number);
        let participation = context.settings.participation;
        let generator = RoundGenerator::new(&[], context.nodes, participation, 0, randomness);
        Ok(Self { number, group_runs, generator, turns: Vec::new() })
    }

    fn run_round(
        &mut self,
        round: u64,
        turns: &[Turn],
        raw: &RawRound,
        grids: &Grids,
    ) -> Result<(), RunError> {
        self.turns.clear();
        self.turns.extend_from_slice(turns);
        self.generator.next_contacts(&mut self.turns);
        for group_run in &mut self.group_runs {
            group_run.run_round(round, &self.turns, raw, grids).map_err(|source| {
                let (trial, round) = (self.number + 1, round as usize);
                TrialError::Round { trial, round, source }
            })?;
        }
        Ok(())
    }

    fn finish(self, context: &RunContext<'_>, last: u64) -> Result<TrialResult, TrialError> {
        let mut result = TrialResult::default();
        for mut group_run in self.group_runs {
            group_run.play_no_more(last, &context.grids);
            result = result.join(trial::finish(context, group_run, self.number)?);
        }
        Ok(result)
    }
}

/// Gathers samples into rounds.
struct Rounds {
    nodes: usize,
    has_owners: bool,
    turns: Vec<Turn>,
    raw: RawRound,
    /// Samples that have been read already.
    ahead: VecDeque<Sample>,
    /// A buffer for the next.
    spare: Sample,
    /// Of each node, the round it was last in; 0 before it came.
    latest: Vec<u64>,
    round: u64,
    /// Samples so far.
    taken: u64,
}

impl Rounds {
    fn new(stream: &SampleStream, settings: &Settings) -> Result<Self, RunError> {
        let has_owners = stream.has_owners();
        // Several targets are known from the start, the values of a column are not.
        let named = Some(stream.owners().len()).filter(|named| *named > 0);
        if has_owners && settings.nodes.or(named).is_none() {
            return Err(RunError::NodesUnknown);
        }
        let nodes = run::nodes(settings, named)?;
        Ok(Self {
            nodes,
            has_owners,
            turns: Vec::new(),
            raw: RawRound::default(),
            ahead: VecDeque::new(),
            spare: Sample::default(),
            latest: vec![0; nodes],
            round: 0,
            taken: 0,
        })
    }

    /// Reads until this number of samples is waiting, or the stream ends.
    fn read_ahead(&mut self, stream: &mut SampleStream, count: usize) -> Result<(), DataError> {
        while self.ahead.len() < count && stream.next(&mut self.spare)? {
            self.ahead.push_back(std::mem::take(&mut self.spare));
        }
        Ok(())
    }

    /// Gathers the next round; false at the end, when nothing is left. The last round may be short.
    fn next(
        &mut self,
        context: &RunContext<'_>,
        stream: &mut SampleStream,
    ) -> Result<bool, RunError> {
        self.turns.clear();
        self.raw.clear();
        self.round += 1;
        while self.turns.len() < self.nodes {
            self.read_ahead(stream, 1)?;
            let Some(sample) = self.ahead.front() else { break };
            let node = if self.has_owners { sample.owner as usize } else { self.turns.len() };
            let Some(latest) = self.latest.get_mut(node) else {
                let name = stream.owners().get(node).cloned().unwrap_or_default();
                return Err(DataError::TooManyNodes { name, nodes: self.nodes }.into());
            };
            if std::mem::replace(latest, self.round) == self.round {
                break;
            }
            self.raw.x.extend_from_slice(&sample.x);
            self.raw.indices.push(self.taken);
            self.taken += 1;
            context.add_labels(&sample.y, &mut self.raw.y);
            context.add_labels(&sample.last, &mut self.raw.previous);
            self.raw.times.extend(stream.has_dates().then_some(sample.time));
            self.turns.push(Turn { node: node as u32, samples: 1, contact: Contact::Full });
            self.spare = self.ahead.pop_front().unwrap_or_default();
        }
        if self.turns.is_empty() {
            return Ok(false);
        }
        let idle =
            self.latest.iter().enumerate().filter(|(_, latest)| (1..self.round).contains(*latest));
        let turn = |(node, _)| Turn { node: node as u32, samples: 0, contact: Contact::Full };
        self.turns.extend(idle.map(turn));
        Ok(true)
    }
}
