//! [`GroupRun`]: the methods of a trial that share a feature map, round by round.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use hedgerow::aggregation::Aggregation;
use hedgerow::baseline::{Hindsight, Omkl};
use hedgerow::features::{Features, SampleMap};
use hedgerow::federation::{NodeRound, RoundError};
use hedgerow::importance::ImportanceScope;
use hedgerow::method::{MethodSpec, Reference};
use hedgerow::random::Purpose;
use hedgerow::scaling::{Rescaling, Scale};
use hedgerow::{Plan, PlanError};

use crate::grids::Grids;
use crate::importance;
use crate::learners::Learners;
use crate::measures::{Measured, Measures, Trivial};
use crate::method_run::{Algorithm, Batch, MethodRun};
use crate::model::{self, TrialModel};
use crate::parallelism::Parallelism;
use crate::preprocessor::{Preprocessor, RawRound, Round, Scaler, due};
use crate::round_generator::Turn;
use crate::sampler::PredictionSampler;
use crate::settings::{MethodChoice, Scope, SettingsError, Sizes};
use crate::trial::{HindsightTrack, RunContext, Track, TrialResult, trial_randomness};

/// A group of methods in one trial.
pub(crate) struct GroupRun {
    /// The plan whose features all of the group learn from.
    features: Plan,
    parallelism: Parallelism,
    nodes: usize,
    z: Vec<f32>,
    preprocessor: Preprocessor,
    round: Round,
    samples: usize,
    pub(crate) runs: Vec<MethodRun>,
    has_centrally: bool,
    /// Whether a method needs all samples of a round at once.
    has_at_once: bool,
    /// Rounds between a prediction and its label, and the rounds that wait for their labels.
    delay: usize,
    waiting: VecDeque<(Vec<Turn>, RawRound)>,
    /// One per kernel, if the regret is wanted.
    hindsight: Vec<Hindsight>,
    has_hindsight: bool,
    course: Vec<f64>,
    /// Objective per sample of each kernel's best function, when last taken.
    best_objectives: Vec<f64>,
    hindsight_seconds: f64,
    rescalings: LatestRescalings,
}

/// What was last taken from one scale to another: the server's models, and then nearly all nodes'.
#[derive(Default)]
struct LatestRescalings(Option<([Scale; 2], Vec<Option<Rescaling>>)>);

impl LatestRescalings {
    fn of(&mut self, features: &Plan, from: &Scale, to: &Scale) -> &[Option<Rescaling>] {
        let is_known = |(scales, _): &([Scale; 2], _)| scales[0] == *from && scales[1] == *to;
        let known = self.0.take().filter(is_known);
        let make = || ([from.clone(), to.clone()], features.rescalings(from, to));
        let (_, rescalings) = self.0.insert(known.unwrap_or_else(make));
        rescalings
    }
}

impl GroupRun {
    pub(crate) fn new(
        context: &RunContext<'_>,
        group: &[MethodChoice],
        trial: usize,
    ) -> Result<Self, SettingsError> {
        let settings = context.settings;
        let seed = trial_randomness(settings, trial).bits_at(0);
        let plan = settings.plan(group[0], context.sizes(), seed)?;
        let features = match plan.config().method.kernel() {
            // It runs with every kernel.
            Some(_) => Plan::new(
                plan.config().clone().method(MethodSpec::default()).aggregation(Aggregation::Mean),
            )?,
            None => plan,
        };
        let kernels = settings.kernels.len();
        let nodes = context.nodes;
        let most = context.rounds.or(settings.rounds);
        let window = most.map_or(settings.window, |rounds| settings.window.min(rounds));
        let records = settings.keeps_predictions && trial == 0;
        let (outputs, classes) = (features.outputs(), features.classes());
        let level = Some(settings.interval).filter(|_| classes.is_none());
        let random = trial_randomness(settings, trial).derive(Purpose::Sampling, 0);
        let measures = |choice: MethodChoice| {
            let is_sampled = trial == 0 && context.units.len() == 1 && choice.may_be_subject();
            Measures::new(Measured {
                learned: features.objective(),
                units: &context.units,
                classes,
                level,
                nodes,
                window,
                delay: context.delay,
                kernels,
                records,
                sampler: is_sampled.then(|| PredictionSampler::new(nodes, random)),
            })
        };
        let central =
            |plan: &Plan| (0..outputs).map(|_| Omkl::new(plan.setup())).collect::<Vec<_>>();
        let mut runs = Vec::new();
        for &choice in group {
            let sizes = context.sizes();
            let sizes = Sizes { nodes: choice.scope.nodes(sizes.nodes), ..sizes };
            let plan = settings.plan(choice, sizes, seed)?;
            // As if nodes scaled their samples themselves.
            let is_online = matches!(context.scaler, Scaler::Online { .. });
            let plan = Plan::new(plan.config().clone().limits_labels(is_online))?;
            // What is sent is sent in every trial.
            let is_measured = choice.may_be_subject()
                && match settings.importance {
                    ImportanceScope::None => false,
                    ImportanceScope::Local => trial == 0,
                    ImportanceScope::Shared => true,
                };
            let (columns, group_of) = importance::groups(&context.sources, context.features);
            let plan = match is_measured {
                true => Plan::new(
                    plan.config().clone().importance(settings.importance).column_groups(group_of),
                )?,
                false => plan,
            };
            let at_nodes =
                |plan: &Plan| Algorithm::Nodes(Box::new(Learners::new(plan, choice.scope, nodes)));
            let algorithms: Vec<(Option<usize>, Algorithm)> = match choice.info.reference {
                None if choice.info.takes_kernel => {
                    let each = |kernel| {
                        let config = plan.config().clone();
                        let method = config.method.clone().with_kernel(kernel);
                        let plan = Plan::new(config.method(method))?;
                        Ok((Some(kernel), at_nodes(&plan)))
                    };
                    (0..kernels).map(each).collect::<Result<_, PlanError>>()?
                }
                None => vec![(None, at_nodes(&plan))],
                Some(Reference::Central) => vec![(None, Algorithm::Sequential(central(&plan)))],
                Some(Reference::CentralBatch) => vec![(None, Algorithm::Batch(central(&plan)))],
                Some(Reference::LastLabel) => {
                    vec![(None, Algorithm::Trivial(Trivial::last(nodes, outputs)))]
                }
                Some(Reference::MeanLabel) => {
                    vec![(None, Algorithm::Trivial(Trivial::mean(nodes, outputs)))]
                }
                Some(Reference::PreviousLabel) => {
                    vec![(None, Algorithm::Trivial(Trivial::previous(outputs)))]
                }
                Some(Reference::Hindsight) => vec![],
            };
            let shape = (outputs, plan.has_own_layers());
            let run =
                |run| MethodRun::new(choice, run, shape, || measures(choice), context.parallelism);
            let first = runs.len();
            runs.extend(algorithms.into_iter().map(run));
            if is_measured && trial == 0 {
                runs[first..].iter_mut().for_each(|run| run.measure_importance(columns.clone()));
            }
        }
        // Other features have another best function: no regret is comparable with theirs.
        let is_paper_s = !group[0].variant.unnormalised && !group[0].variant.frequencies;
        let hindsight = match features.map() {
            SampleMap::Kernels(map)
                if is_paper_s
                    && context.methods.iter().any(|choice| choice.is(Reference::Hindsight)) =>
            {
                vec![Hindsight::new(map.model_len()); kernels]
            }
            _ => vec![],
        };
        Ok(Self {
            parallelism: context.parallelism,
            nodes,
            z: Vec::new(),
            preprocessor: Preprocessor::new(
                &context.scaler,
                (context.features, outputs),
                context.nodes,
                // Stored nodes fill in what is missing in rows to come.
                context.has_missing || settings.save_model.is_some(),
            ),
            round: Round::default(),
            samples: 0,
            has_centrally: runs.iter().any(MethodRun::is_central),
            has_at_once: runs.iter().any(MethodRun::is_batch),
            delay: context.delay,
            waiting: VecDeque::new(),
            runs,
            hindsight,
            has_hindsight: group.iter().any(|choice| choice.is(Reference::Hindsight)),
            course: Vec::new(),
            best_objectives: Vec::new(),
            hindsight_seconds: 0.0,
            rescalings: LatestRescalings::default(),
            features,
        })
    }

    /// What the methods of a choice have learned; of several kernels, the best one's.
    pub(crate) fn model(
        &mut self,
        choice: MethodChoice,
        scaler: &Scaler,
    ) -> Option<Result<TrialModel, String>> {
        let turns = model::all_in_contact(self.nodes);
        if let Err(error) = self.catch_up(&turns) {
            return Some(Err(error.to_string()));
        }
        let Self { runs, preprocessor, .. } = self;
        let runs = runs.iter_mut().filter(|run| run.choice == choice);
        let best = runs.min_by(|a, b| a.mse().total_cmp(&b.mse()))?;
        Some(best.model(scaler, preprocessor))
    }

    /// Nodes in contact take the latest scale, and their models with them.
    fn catch_up(&mut self, turns: &[Turn]) -> Result<(), RoundError> {
        let Self { features, runs, preprocessor, rescalings, .. } = self;
        preprocessor.catch_up(turns, |node, from, to| {
            let rescalings = rescalings.of(features, from, to);
            runs.iter_mut().try_for_each(|run| run.rescale_node(node, rescalings))
        })
    }

    /// Runs a round.
    pub(crate) fn run_round(
        &mut self,
        number: u64,
        turns: &[Turn],
        raw: &RawRound,
        grids: &Grids,
    ) -> Result<(), RoundError> {
        let start = Instant::now();
        self.catch_up(turns)?;
        let width = self.features.width();
        self.preprocessor.admit(turns, raw, &mut self.round);
        self.samples += self.round.len() + self.round.unscaled.len();
        // The label of a forecast is known only some rounds later.
        let learned = (self.delay > 0).then(|| {
            self.waiting.push_back((turns.to_vec(), raw.clone()));
            let earlier =
                if self.waiting.len() > self.delay { self.waiting.pop_front() } else { None };
            let (inputs, outputs) = (self.features.inputs(), self.features.outputs());
            due(turns, &earlier.unwrap_or_default(), inputs, outputs)
        });
        let mut due_round = Round::default();
        if let Some((turns, raw)) = &learned {
            self.preprocessor.admit_again(turns, raw, &mut due_round);
        }
        let mut central = [Round::default(), Round::default()];
        let is_apart =
            self.has_centrally && self.preprocessor.admit_centrally(turns, raw, &mut central[0]);
        if let (true, Some((turns, raw))) = (is_apart, &learned) {
            self.preprocessor.admit_centrally(turns, raw, &mut central[1]);
        }
        let (mut due_z, mut central_z) = (Vec::new(), [Vec::new(), Vec::new()]);
        let [central_now, central_due] = &mut central_z;
        let (map, parallelism) = (self.features.map(), self.parallelism);
        let batches = [
            (&due_round, mapped(map, parallelism, &due_round, &mut due_z)),
            (&central[0], mapped(map, parallelism, &central[0], central_now)),
            (&central[1], mapped(map, parallelism, &central[1], central_due)),
        ];
        let [due_rounds, central_rounds, central_due_rounds] =
            batches.map(|(round, z)| node_rounds(round, &round.turns, 0, z, width));
        let batch = |at: usize, node_rounds, central, due| {
            let (round, z): (&Round, _) = batches[at];
            Batch { round, samples: 0..round.len(), z, width, node_rounds, central, due }
        };
        let central_due = batch(2, &central_due_rounds, None, None);
        let due_batch = batch(0, &due_rounds, is_apart.then_some(&central_due), None);
        let central_now = batch(1, &central_rounds, None, None);
        // All runs of the group use the same features and share their cost.
        let mut share = start.elapsed().as_secs_f64() / self.runs.len().max(1) as f64;
        let most = match self.has_at_once || is_apart || learned.is_some() {
            true => usize::MAX,
            false => (FEATURES_AT_ONCE / width).clamp(LEAST_AT_ONCE, MOST_AT_ONCE),
        };
        let mut chunk = Chunk::default();
        while chunk.advance(&self.round.turns, most) {
            let start = Instant::now();
            let samples = chunk.samples.clone();
            let x = &self.round.x[samples.start * map.inputs()..samples.end * map.inputs()];
            self.z.resize(samples.len() * width, 0.0);
            let z = map.map_together(x, &mut self.z, &parallelism);
            let node_rounds = node_rounds(
                &self.round,
                &self.round.turns[chunk.turns.clone()],
                samples.start,
                z,
                width,
            );
            let now = Batch {
                round: &self.round,
                samples: samples.clone(),
                z,
                width,
                node_rounds: &node_rounds,
                central: is_apart.then_some(&central_now),
                due: learned.is_some().then_some(&due_batch),
            };
            share += start.elapsed().as_secs_f64() / self.runs.len().max(1) as f64;
            self.runs.iter_mut().try_for_each(|run| run.process(&now))?;
            let start = Instant::now();
            let kernels = self.hindsight.len();
            for (kernel, sums) in self.hindsight.iter_mut().enumerate() {
                sums.add(z, width, kernel * (width / kernels), &self.round.y[samples.clone()]);
            }
            self.hindsight_seconds += start.elapsed().as_secs_f64();
        }
        let is_recorded = grids.curve.has(number);
        for run in &mut self.runs {
            run.seconds += share;
            run.close_round(&self.round)?;
            if is_recorded {
                run.record();
            }
        }
        if !self.hindsight.is_empty() && grids.regret.has(number) {
            let start = Instant::now();
            self.record_regret();
            self.hindsight_seconds += start.elapsed().as_secs_f64();
        }
        let Self { features, runs, preprocessor, rescalings, .. } = self;
        let (turns, raw) = learned.as_ref().map_or((turns, raw), |(turns, raw)| (turns, raw));
        let mut outcome = Ok(());
        preprocessor.close(turns, raw, |from, to| {
            let rescalings = rescalings.of(features, from, to);
            outcome = runs.iter_mut().try_for_each(|run| run.rescale_server(rescalings));
        });
        outcome
    }

    /// Records the last round of a live stream, unless it was recorded anyway.
    pub(crate) fn play_no_more(&mut self, last: u64, grids: &Grids) {
        if !grids.curve.has(last) {
            self.runs.iter_mut().for_each(MethodRun::record);
        }
        if !self.hindsight.is_empty() && !grids.regret.has(last) {
            self.record_regret();
        }
    }

    /// The result.
    pub(crate) fn finish(self) -> TrialResult {
        let tally = self.preprocessor.tally;
        let finish = |run: MethodRun| run.finish(&self.round);
        let mut tracks: Vec<Track> = self.runs.into_iter().flat_map(finish).collect();
        // All use the same scale, but for trivial forecasts, which need none, and devices alone,
        // which ask nobody.
        let asks =
            |track: &&mut Track| !track.choice.is_trivial() && track.choice.scope != Scope::Alone;
        for track in tracks.iter_mut().filter(asks) {
            track.traffic.numbers_up += tally.numbers_up;
            track.traffic.numbers_down += tally.numbers_down;
            track.traffic.bytes_up += 4 * tally.numbers_up;
            track.traffic.bytes_down += 4 * tally.numbers_down;
        }
        let (objective, course) = (self.best_objectives, self.course);
        let hindsight = HindsightTrack { objective, course };
        TrialResult {
            samples: self.samples,
            preprocessor: tally,
            model: None,
            tracks,
            hindsight: self.has_hindsight.then_some(hindsight),
            hindsight_seconds: self.hindsight_seconds,
        }
    }

    fn record_regret(&mut self) {
        let ridge = self.features.objective().ridge;
        let best: Vec<_> = self.hindsight.iter().map(|sums| sums.best(ridge)).collect();
        let Some(least) = best.iter().min_by(|a, b| a.total_loss.total_cmp(&b.total_loss)) else {
            return;
        };
        let samples = self.hindsight[0].samples().max(1) as f64;
        // In the label's own unit, as all errors are.
        let unit = self.preprocessor.unit();
        let size = unit.raw(1.0) - unit.raw(0.0);
        self.course.push(least.squared_error / samples * size * size);
        self.best_objectives = best.iter().map(|best| best.total_loss / samples).collect();
        for run in self.runs.iter_mut().filter(|run| !run.choice.is_trivial()) {
            let rival = run.kernel.map_or(least, |kernel| &best[kernel]);
            run.measures.curve.regret.push(run.measures.objective - rival.total_loss);
        }
    }
}

/// Features that are computed at once, so that they are still in the cache when a method learns
/// from them, and bounds on the number of their samples.
pub(crate) const FEATURES_AT_ONCE: usize = 1 << 20;
pub(crate) const LEAST_AT_ONCE: usize = 256;
pub(crate) const MOST_AT_ONCE: usize = 1 << 14;

/// Some neighbouring turns of a round, and their samples.
#[derive(Default)]
struct Chunk {
    turns: Range<usize>,
    samples: Range<usize>,
    has_begun: bool,
}

impl Chunk {
    /// Goes on to the next turns, of `most` samples together or the first turn that has more;
    /// whether there are any. The first chunk of a round is there even if no node has a turn.
    fn advance(&mut self, turns: &[Turn], most: usize) -> bool {
        let (mut turn, mut sample) = (self.turns.end, self.samples.end);
        if self.has_begun && turn == turns.len() {
            return false;
        }
        (self.turns.start, self.samples.start) = (turn, sample);
        while let Some(next) = turns.get(turn)
            && (turn == self.turns.start || sample - self.samples.start + next.samples <= most)
        {
            (turn, sample) = (turn + 1, sample + next.samples);
        }
        (self.turns.end, self.samples.end, self.has_begun) = (turn, sample, true);
        true
    }
}

/// The features of a round's samples.
fn mapped<'z>(
    map: &SampleMap,
    parallelism: Parallelism,
    round: &Round,
    z: &'z mut Vec<f32>,
) -> Features<'z> {
    z.resize(round.len() * map.width(), 0.0);
    map.map_together(&round.x, z, &parallelism)
}

/// Some turns of a round as rounds of nodes; `first` is the sample that they begin with, and `z`
/// has the features of their samples.
fn node_rounds<'a>(
    round: &'a Round,
    turns: &[Turn],
    first: usize,
    z: Features<'a>,
    width: usize,
) -> Vec<NodeRound<'a>> {
    let mut begin = 0;
    let node_round = |turn: &Turn| {
        let samples = begin..begin + turn.samples;
        begin = samples.end;
        let z = z.part(samples.start * width..samples.end * width);
        let y = &round.y[round.labels(first + samples.start..first + samples.end)];
        NodeRound { node: turn.node, z, y, contact: turn.contact }
    };
    turns.iter().map(node_round).collect()
}
