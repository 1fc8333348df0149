//! One trial: every contestant plays the same stream with the same random features, and a [`Track`] is kept of each.

use std::time::Instant;

use hedgerow::{
    ErrorMeter, FeatureMap, Features, Federation, Hindsight, Loss, Method, Objective, Omkl, Prediction,
    Purpose, RoundError, Setup, Stream, Tally, Traffic, Visit,
};

use crate::data::Dataset;
use crate::data::partition::PartitionError;
use crate::plan::{Plan, Turn};
use crate::settings::{Contestant, Settings, SettingsError};

/// What a trial has to say about one entry of the results.
#[derive(Debug, Clone)]
pub(crate) struct Track {
    pub(crate) contestant: Contestant,
    /// For `sk`, from 0.
    pub(crate) kernel: Option<usize>,
    pub(crate) mse: f64,
    /// NaN where there was no prediction in the window.
    pub(crate) window_mse: f64,
    pub(crate) mean_loss: f64,
    pub(crate) error_rate: f64,
    pub(crate) traffic: Traffic,
    pub(crate) votes: Vec<u64>,
    /// Sum over rounds of each kernel's share in the predictions.
    pub(crate) shares: Vec<f64>,
    pub(crate) seconds: f64,
    pub(crate) curve: TrackCurve,
}

/// Its course, at the rounds of the grids.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrackCurve {
    pub(crate) mse: Vec<f64>,
    /// NaN where there was no prediction in the window.
    pub(crate) window_mse: Vec<f64>,
    pub(crate) loss: Vec<f64>,
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
    pub(crate) seconds: f64,
}

/// Rounds at which courses are recorded.
#[derive(Debug, Clone)]
pub(crate) struct Grids {
    pub(crate) rounds: usize,
    pub(crate) curve: Vec<u64>,
    pub(crate) regret: Vec<u64>,
}

/// Why a trial could not be played.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// Samples can't be dealt to the nodes.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// Settings that only the data shows to be wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A round failed.
    #[error("trial {trial}, round {round}: {source}")]
    Round {
        /// From 1.
        trial: usize,
        /// From 1.
        round: usize,
        /// Why.
        source: RoundError,
    },
}

/// What one trial found.
#[derive(Debug, Clone)]
pub(crate) struct TrialResult {
    /// Samples that reached a node.
    pub(crate) samples: usize,
    pub(crate) tracks: Vec<Track>,
    pub(crate) hindsight: Option<HindsightTrack>,
}

/// Plays one trial. `tick` is called after every round of every group of contestants.
pub(crate) fn play(
    settings: &Settings,
    data: &Dataset,
    grids: &Grids,
    trial: usize,
    tick: &(dyn Fn() + Sync),
) -> Result<TrialResult, TrialError> {
    let randomness = trial_randomness(settings, trial);
    let streams = deal(settings, data, trial)?;
    let mut result = TrialResult { samples: 0, tracks: Vec::new(), hindsight: None };
    let mut hindsight_seconds = 0.0;
    for (frequencies, contestants) in groups(settings)? {
        let seed = randomness.bits_at(0);
        let setup = settings.setup(frequencies, grids.rounds, seed)?;
        let spec = settings.feature_spec(data.features, frequencies, seed);
        let map = FeatureMap::new(&spec).map_err(SettingsError::from)?;
        let mut group = Group::new(settings, &setup, &map, &contestants, grids);
        let mut plan = Plan::new(&streams, settings.participation, grids.rounds, randomness);
        let mut table = RoundTable::default();
        let mut samples = 0;
        for round in 1..=grids.rounds {
            table.deal(&mut plan, data);
            samples += table.y.len();
            group.play(round as u64, &table, grids).map_err(|source| TrialError::Round {
                trial: trial + 1,
                round,
                source,
            })?;
            tick();
        }
        result.samples = samples;
        if contestants.contains(&Contestant::Hindsight) {
            let (objective, course) = (group.best_objectives, group.course);
            result.hindsight = Some(HindsightTrack { objective, course, seconds: 0.0 });
        }
        hindsight_seconds += group.hindsight_seconds;
        result.tracks.extend(group.players.into_iter().map(Player::finish));
    }
    // Every group needs it for the regret of its own.
    if let Some(hindsight) = &mut result.hindsight {
        hindsight.seconds = hindsight_seconds;
    }
    Ok(result)
}

fn trial_randomness(settings: &Settings, trial: usize) -> Stream {
    Stream::from_seed(settings.seed).derive(Purpose::Trial, trial as u64)
}

/// Each node's samples in a trial.
pub(crate) fn deal(
    settings: &Settings,
    data: &Dataset,
    trial: usize,
) -> Result<Vec<Vec<u32>>, PartitionError> {
    let seed = trial_randomness(settings, trial).derive(Purpose::Partition, 0).bits_at(0);
    settings.partition.deal(data, settings.nodes, seed)
}

/// Contestants by the number of frequencies that the budget gives them: each group shares its features.
fn groups(settings: &Settings) -> Result<Vec<(usize, Vec<Contestant>)>, SettingsError> {
    let mut groups: Vec<(usize, Vec<Contestant>)> = Vec::new();
    for &contestant in &settings.contestants {
        let frequencies = settings.frequencies(contestant)?;
        match groups.iter_mut().find(|(known, _)| *known == frequencies) {
            Some((_, group)) => group.push(contestant),
            None => groups.push((frequencies, vec![contestant])),
        }
    }
    Ok(groups)
}

/// How many groups a trial plays: what progress is counted in.
pub(crate) fn group_count(settings: &Settings) -> Result<usize, SettingsError> {
    Ok(groups(settings)?.len())
}

/// The samples and turns of one round.
#[derive(Default)]
struct RoundTable {
    turns: Vec<Turn>,
    samples: Vec<u32>,
    x: Vec<f32>,
    y: Vec<f32>,
}

impl RoundTable {
    fn deal(&mut self, plan: &mut Plan<'_>, data: &Dataset) {
        plan.next_round(&mut self.turns, &mut self.samples);
        self.x.clear();
        self.y.clear();
        for &sample in &self.samples {
            let (x, y) = data.sample(sample as usize);
            self.x.extend_from_slice(x);
            self.y.push(y);
        }
    }
}

/// Contestants that share a feature map.
struct Group<'a> {
    map: &'a FeatureMap,
    objective: Objective,
    z: Vec<f32>,
    players: Vec<Player>,
    /// One per kernel, if the regret is wanted.
    hindsight: Vec<Hindsight>,
    course: Vec<f64>,
    /// Objective per sample of each kernel's best function, when last taken.
    best_objectives: Vec<f64>,
    hindsight_seconds: f64,
}

impl<'a> Group<'a> {
    fn new(
        settings: &Settings,
        setup: &Setup,
        map: &'a FeatureMap,
        contestants: &[Contestant],
        grids: &Grids,
    ) -> Self {
        let kernels = map.kernels();
        let mut players = Vec::new();
        for &contestant in contestants {
            let kinds: Vec<(Option<usize>, Kind)> = match contestant {
                Contestant::Mk => vec![(None, Kind::federated(Method::MkOfl, setup))],
                Contestant::Naive => vec![(None, Kind::federated(Method::Naive, setup))],
                Contestant::Local => vec![(None, Kind::federated(Method::Local, setup))],
                Contestant::Central => vec![(None, Kind::Sequential(Box::new(Omkl::new(setup))))],
                Contestant::CentralBatch => vec![(None, Kind::Batch(Box::new(Omkl::new(setup))))],
                Contestant::Sk => {
                    let each = |kernel| (Some(kernel), Kind::federated(Method::SkOfl { kernel }, setup));
                    (0..kernels).map(each).collect()
                }
                Contestant::Hindsight => vec![],
            };
            let make = |(kernel, kind)| {
                Player::new(contestant, kernel, kind, settings.window.min(grids.rounds), kernels, grids)
            };
            players.extend(kinds.into_iter().map(make));
        }
        let wanted = settings.contestants.contains(&Contestant::Hindsight);
        let hindsight = if wanted { vec![Hindsight::new(map.model_len()); kernels] } else { vec![] };
        Self {
            map,
            objective: setup.objective(),
            z: Vec::new(),
            players,
            hindsight,
            course: Vec::new(),
            best_objectives: Vec::new(),
            hindsight_seconds: 0.0,
        }
    }

    fn play(&mut self, round: u64, table: &RoundTable, grids: &Grids) -> Result<(), RoundError> {
        let start = Instant::now();
        self.z.resize(table.y.len() * self.map.width(), 0.0);
        let z = self.map.map_batch(&table.x, &mut self.z);
        // Features serve all players of the group, who share what they cost.
        let mapping = start.elapsed().as_secs_f64() / self.players.len().max(1) as f64;
        let visits = visits(table, z, self.map.width());
        for player in &mut self.players {
            player.seconds += mapping;
            player.play(self.objective, z, self.map.width(), &visits, table)?;
            if grids.curve.binary_search(&round).is_ok() {
                player.record();
            }
        }
        if self.hindsight.is_empty() {
            return Ok(());
        }
        let start = Instant::now();
        let (width, len) = (self.map.width(), self.map.model_len());
        for (kernel, sums) in self.hindsight.iter_mut().enumerate() {
            sums.add(z, width, kernel * len, &table.y);
        }
        if grids.regret.binary_search(&round).is_ok() {
            self.record_regret();
        }
        self.hindsight_seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    fn record_regret(&mut self) {
        let best: Vec<_> = self.hindsight.iter().map(|sums| sums.best(self.objective.ridge)).collect();
        let Some(least) = best.iter().min_by(|a, b| a.total_loss.total_cmp(&b.total_loss)) else { return };
        let samples = self.hindsight[0].samples().max(1) as f64;
        self.course.push(least.squared_error / samples);
        self.best_objectives = best.iter().map(|best| best.total_loss / samples).collect();
        for player in &mut self.players {
            let rival = player.kernel.map_or(least, |kernel| &best[kernel]);
            player.curve.regret.push(player.measures.objective - rival.total_loss);
        }
    }
}

/// How a contestant learns.
enum Kind {
    /// Nodes and a server, with people missing.
    Federated(Box<Federation>),
    /// In one place, sample by sample.
    Sequential(Box<Omkl>),
    /// In one place, a round at a time.
    Batch(Box<Omkl>),
}

impl Kind {
    fn federated(method: Method, setup: &Setup) -> Self {
        Self::Federated(Box::new(Federation::new(method, setup)))
    }
}

/// A contestant and what has been measured of it.
struct Player {
    contestant: Contestant,
    kernel: Option<usize>,
    kind: Kind,
    measures: Measures,
    seconds: f64,
    curve: TrackCurve,
    /// Numbers in all samples so far, for those that send samples.
    sent: u64,
}

/// Errors, losses and what predictions are made of.
struct Measures {
    meter: ErrorMeter,
    loss: Tally,
    wrong: Tally,
    /// Σ L, ridge term included.
    objective: f64,
    /// Shares of the kernels, summed over rounds; of this round, summed over predictions; of one prediction.
    shares: Vec<f64>,
    round_shares: Vec<f64>,
    one_share: Vec<f64>,
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
            one_share: vec![0.0; kernels],
            round_predictions: 0,
        }
    }

    fn open_round(&mut self) {
        self.round_predictions = 0;
    }

    fn see(&mut self, objective: Objective, value: f32, label: f32, norm2: f64) {
        let (prediction, truth) = (f64::from(value), f64::from(label));
        self.meter.record(value, label);
        self.loss.add(objective.loss.value(prediction, truth));
        self.wrong.add(f64::from(u8::from(prediction * truth <= 0.0)));
        self.objective += objective.value(prediction, truth, norm2);
    }

    /// Adds what the prediction just seen is made of.
    fn mix(&mut self, write_shares: impl FnOnce(&mut [f64])) {
        if self.round_predictions == 0 {
            // A round without predictions keeps the shares of the one before.
            self.round_shares.fill(0.0);
        }
        self.round_predictions += 1;
        write_shares(&mut self.one_share);
        self.round_shares.iter_mut().zip(&self.one_share).for_each(|(sum, share)| *sum += share);
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

impl Player {
    fn new(
        contestant: Contestant,
        kernel: Option<usize>,
        kind: Kind,
        window: usize,
        kernels: usize,
        grids: &Grids,
    ) -> Self {
        let curve = TrackCurve {
            mse: Vec::with_capacity(grids.curve.len()),
            window_mse: Vec::with_capacity(grids.curve.len()),
            loss: Vec::with_capacity(grids.curve.len()),
            shares: Vec::with_capacity(grids.curve.len()),
            regret: Vec::with_capacity(grids.regret.len()),
        };
        Self {
            contestant,
            kernel,
            kind,
            measures: Measures::new(window, kernels),
            seconds: 0.0,
            curve,
            sent: 0,
        }
    }

    fn play(
        &mut self,
        objective: Objective,
        z: Features<'_>,
        width: usize,
        visits: &[Visit<'_>],
        table: &RoundTable,
    ) -> Result<(), RoundError> {
        let start = Instant::now();
        let samples = z.samples(width).zip(&table.y);
        let bad_sample = |source| RoundError::BadSample { node: 0, source };
        self.measures.open_round();
        let measures = &mut self.measures;
        match &mut self.kind {
            Kind::Sequential(learner) => {
                for (z, &label) in samples {
                    measures.see(objective, learner.predict(z), label, learner.norm2());
                    measures.mix(|shares| shares.copy_from_slice(learner.weights()));
                    learner.learn(z, label).map_err(bad_sample)?;
                }
            }
            Kind::Batch(learner) => {
                for (z, &label) in samples {
                    measures.see(objective, learner.predict(z), label, learner.norm2());
                    measures.mix(|shares| shares.copy_from_slice(learner.weights()));
                }
                learner.learn_batch(z, &table.y).map_err(bad_sample)?;
            }
            Kind::Federated(federation) => {
                federation.round(visits, |prediction| {
                    let Prediction { value, label, half, .. } = prediction;
                    measures.see(objective, value, label, half.norm2());
                    measures.mix(|shares| half.shares(shares));
                })?;
            }
        }
        self.measures.close_round();
        self.sent += (table.x.len() + table.y.len()) as u64;
        self.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    fn record(&mut self) {
        self.curve.mse.push(self.measures.meter.mse());
        self.curve.window_mse.push(self.measures.meter.window_mse().unwrap_or(f64::NAN));
        self.curve.loss.push(self.measures.loss.mean());
        self.curve.shares.push(self.measures.round_shares.clone());
    }

    fn finish(self) -> Track {
        let (traffic, votes) = match self.kind {
            Kind::Federated(federation) => (*federation.traffic(), federation.votes().to_vec()),
            // Where samples are collected, they are what travels.
            Kind::Batch(_) | Kind::Sequential(_) => {
                let sent = Traffic { numbers_up: self.sent, bytes_up: 4 * self.sent, ..Traffic::default() };
                (sent, vec![])
            }
        };
        let measures = self.measures;
        // Rounds with predictions.
        let rounds = measures.shares.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        Track {
            contestant: self.contestant,
            kernel: self.kernel,
            mse: measures.meter.mse(),
            window_mse: measures.meter.window_mse().unwrap_or(f64::NAN),
            mean_loss: measures.loss.mean(),
            error_rate: measures.wrong.mean(),
            traffic,
            votes,
            shares: measures.shares.iter().map(|share| share / rounds).collect(),
            seconds: self.seconds,
            curve: self.curve,
        }
    }
}

/// The round's turns as visits.
fn visits<'a>(table: &'a RoundTable, z: Features<'a>, width: usize) -> Vec<Visit<'a>> {
    let mut begin = 0;
    let visit = |turn: &Turn| {
        let samples = begin..begin + turn.samples;
        begin = samples.end;
        let z = z.part(samples.start * width..samples.end * width);
        Visit { node: turn.node, z, y: &table.y[samples], contact: turn.contact }
    };
    table.turns.iter().map(visit).collect()
}

/// Whether every label is one that the loss can take; the first that isn't.
pub(crate) fn first_bad_label(loss: Loss, data: &Dataset) -> Option<(usize, f32)> {
    if loss != Loss::Logistic {
        return None;
    }
    let bad = data.y.iter().position(|label| label.abs() != 1.0)?;
    Some((bad, data.y[bad]))
}
