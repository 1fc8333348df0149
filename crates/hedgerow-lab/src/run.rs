//! A run: trials in parallel, reduced to [`Results`]. The number of threads changes nothing but the time.

use std::time::Instant;

use hedgerow::{Purpose, Stream};
use rayon::prelude::*;

use crate::data::Dataset;
use crate::data::builtin::Builtin;
use crate::data::csv::{CsvError, read_csv};
use crate::data::partition::Partition;
use crate::results::{Curve, DataSummary, MethodResult, Moments, Regret, Results};
use crate::settings::{BUILTIN_ROUNDS, Contestant, Settings, SettingsError};
use crate::trial::{self, Grids, HindsightTrack, Track, TrialError, TrialResult};

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The settings don't fit.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The file can't be used.
    #[error(transparent)]
    Data(#[from] CsvError),
    /// Neither a stream nor a file.
    #[error("data.name: {name:?} is neither a built-in stream ({streams}) nor a file")]
    NoSuchData {
        /// What was asked for.
        name: String,
        /// What there is.
        streams: String,
    },
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
    /// No sample reached a node.
    #[error("no sample reached any node in these rounds: more rounds, or more arrivals")]
    NothingSeen,
    /// No threads to be had.
    #[error("can't start {threads} threads: {source}")]
    Threads {
        /// How many.
        threads: usize,
        /// Why.
        source: rayon::ThreadPoolBuildError,
    },
}

/// The data that the settings name: generated or read.
pub fn load_data(settings: &Settings) -> Result<Dataset, RunError> {
    if let Some(stream) = Builtin::parse(&settings.data) {
        if let Some(target) = &settings.target {
            let bound = format!("empty for the built-in stream {:?}", settings.data);
            return Err(out_of_bounds("data.target", bound, target));
        }
        let rounds = settings.rounds.unwrap_or(BUILTIN_ROUNDS);
        let per_node = (rounds as f64 * settings.participation.arrivals.mean()).ceil().max(1.0);
        let samples = per_node * settings.nodes as f64 + settings.lags as f64;
        if samples > MOST_SAMPLES {
            let bound = format!("so that nodes, rounds and arrivals make at most {MOST_SAMPLES} samples");
            return Err(out_of_bounds("run.rounds", bound, format!("{rounds}, which makes {samples}")));
        }
        let seed = Stream::from_seed(settings.seed).derive(Purpose::Data, 0).bits_at(0);
        let data = stream.generate(samples as usize, settings.nodes, seed);
        return data.lagged(settings.lags).map_err(|source| {
            out_of_bounds("data.lags", format!("fewer than the {} samples", source.samples), source.order)
        });
    }
    let path = std::path::Path::new(&settings.data);
    if !path.exists() && !settings.data.contains(['/', '\\', '.']) {
        let streams = Builtin::ALL.map(Builtin::name).join(", ");
        return Err(RunError::NoSuchData { name: settings.data.clone(), streams });
    }
    Ok(read_csv(path, settings.target.as_deref(), settings.lags)?)
}

fn out_of_bounds(key: &str, bound: impl ToString, value: impl ToString) -> RunError {
    let (key, bound, value) = (key.to_owned(), bound.to_string(), value.to_string());
    RunError::Settings(SettingsError::OutOfBounds { key, bound, value })
}

/// Samples of a generated stream: they are kept in memory.
const MOST_SAMPLES: f64 = 2e8;

/// A run that has been checked against its data: what can go wrong has gone wrong by now.
pub struct Experiment<'a> {
    settings: &'a Settings,
    data: &'a Dataset,
    grids: Grids,
    groups: usize,
}

impl<'a> Experiment<'a> {
    /// Checks settings and data against each other.
    pub fn new(settings: &'a Settings, data: &'a Dataset) -> Result<Self, RunError> {
        if let Some((sample, label)) = trial::first_bad_label(settings.loss()?, data) {
            return Err(RunError::BadLabel { data: data.name.clone(), sample: sample + 1, label });
        }
        // Only Dirichlet shares make streams whose lengths differ from trial to trial.
        let draws = if matches!(settings.partition, Partition::Dirichlet(_)) { settings.trials } else { 1 };
        let mut longest = 0;
        for trial in 0..draws {
            let streams = trial::deal(settings, data, trial).map_err(TrialError::from)?;
            longest = streams.iter().map(Vec::len).fold(longest, usize::max);
        }
        let lasting = (longest as f64 / settings.participation.arrivals.mean()).ceil() as usize;
        let rounds = settings.rounds.unwrap_or(lasting).min(lasting).max(1);
        let needed = memory(settings)?;
        if needed > MOST_MEMORY {
            return Err(RunError::Memory { needed: gigabytes(needed), most: gigabytes(MOST_MEMORY) });
        }
        let grids = Grids { rounds, curve: curve_grid(rounds), regret: regret_grid(rounds) };
        Ok(Self { settings, data, grids, groups: trial::group_count(settings)? })
    }

    /// How many steps of progress it will tell.
    pub fn steps(&self) -> u64 {
        (self.settings.trials * self.groups) as u64 * self.grids.rounds as u64
    }

    /// Runs all trials. `step` is called for each step of progress, from any thread.
    pub fn run(&self, step: &(dyn Fn() + Sync)) -> Result<Results, RunError> {
        let start = Instant::now();
        let Self { settings, data, grids, .. } = self;
        let pool = rayon::ThreadPoolBuilder::new().num_threads(settings.threads).build();
        let pool = pool.map_err(|source| RunError::Threads { threads: settings.threads, source })?;
        let trials: Vec<TrialResult> = pool.install(|| {
            let trials = (0..settings.trials).into_par_iter();
            trials.map(|trial| trial::play(settings, data, grids, trial, step)).collect::<Result<_, _>>()
        })?;
        let samples = trials.iter().map(|trial| trial.samples as f64).sum::<f64>() / trials.len() as f64;
        if samples == 0.0 {
            return Err(RunError::NothingSeen);
        }
        let tracks: Vec<&[Track]> = trials.iter().map(|trial| &trial.tracks[..]).collect();
        let hindsight: Vec<&HindsightTrack> =
            trials.iter().filter_map(|trial| trial.hindsight.as_ref()).collect();
        let mut methods: Vec<MethodResult> =
            (0..tracks[0].len()).map(|entry| summarise(settings, grids, &tracks, entry)).collect();
        let by_sk = mark_best(&mut methods);
        let by_function = best_function(&hindsight);
        if let Some(kernel) = by_function {
            methods.push(hindsight_entry(settings, grids, &hindsight, kernel));
        }
        methods.sort_by_key(|method| settings.contestants.iter().position(|c| c.name() == method.name));
        let owned = data.owner.is_some() && settings.partition == Partition::RoundRobin;
        Ok(Results {
            schema: 1,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: serde_json::to_value(&settings.effective).unwrap_or_default(),
            data: DataSummary {
                name: data.name.clone(),
                samples: samples.round() as usize,
                features: data.features,
            },
            nodes: settings.nodes,
            rounds: grids.rounds,
            budget: settings.budget,
            kernels: settings.kernels.iter().map(|kernel| kernel.label()).collect(),
            trials: settings.trials,
            seed: settings.seed,
            partition: if owned { "by owner".to_owned() } else { settings.partition.name() },
            loss: settings.loss()?.name().to_owned(),
            window: settings.window.min(grids.rounds),
            participation: settings.participation.describe(),
            best_kernel: by_sk.or(by_function).map(|kernel| kernel + 1),
            methods,
            seconds: start.elapsed().as_secs_f64(),
        })
    }
}

/// Bytes beyond which a run is refused instead of being killed by the system.
const MOST_MEMORY: f64 = 16.0 * 1024.0 * 1024.0 * 1024.0;

fn gigabytes(bytes: f64) -> String {
    format!("{:.1} GiB", bytes / (1024.0 * 1024.0 * 1024.0))
}

/// What the models, and the sums of the best functions, of all trials at once will take.
fn memory(settings: &Settings) -> Result<f64, SettingsError> {
    let threads = if settings.threads == 0 { rayon::current_num_threads() } else { settings.threads };
    let (kernels, nodes) = (settings.kernels.len() as f64, settings.nodes as f64);
    let mut bytes = 0.0;
    for &contestant in &settings.contestants {
        let model = 2.0 * settings.frequencies(contestant)? as f64;
        // Models at the nodes and the features of a round, in f32; the Gram matrices in f64.
        bytes += match contestant {
            Contestant::Mk => nodes * 4.0 * (kernels + 1.0) * model,
            Contestant::Sk | Contestant::Naive => nodes * 4.0 * 2.0 * kernels * model,
            Contestant::Local => nodes * 4.0 * kernels * model,
            Contestant::Central | Contestant::CentralBatch => 4.0 * kernels * model,
            Contestant::Hindsight => 8.0 * 2.0 * kernels * model * model / 2.0,
        };
        bytes += nodes * settings.participation.arrivals.mean() * 4.0 * kernels * model;
    }
    Ok(bytes * threads.min(settings.trials) as f64)
}

const CURVE_POINTS: usize = 1000;
const REGRET_POINTS: usize = 40;

/// Every round if there are few; else as many as a figure can show, half of them evenly and half on a logarithmic scale.
fn curve_grid(rounds: usize) -> Vec<u64> {
    if rounds <= CURVE_POINTS {
        return (1..=rounds as u64).collect();
    }
    let half = CURVE_POINTS / 2;
    let mut grid = logarithmic_grid(rounds, half);
    grid.extend((1..=half).map(|i| (i * rounds / half) as u64));
    grid.sort_unstable();
    grid.dedup();
    grid
}

fn regret_grid(rounds: usize) -> Vec<u64> {
    logarithmic_grid(rounds, REGRET_POINTS)
}

fn logarithmic_grid(rounds: usize, points: usize) -> Vec<u64> {
    let exponent = |i: usize| i as f64 / (points - 1).max(1) as f64;
    let mut grid: Vec<u64> = (0..points)
        .map(|i| ((rounds as f64).powf(exponent(i)).round() as u64).clamp(1, rounds as u64))
        .collect();
    grid.dedup();
    grid
}

/// Mean and sample standard deviation.
fn moments(values: impl Iterator<Item = f64> + Clone) -> Moments {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let squares: f64 = values.map(|value| (value - mean) * (value - mean)).sum();
    Moments { mean, sd: if count > 1.0 { (squares / (count - 1.0)).sqrt() } else { 0.0 } }
}

/// One entry, over all trials.
fn summarise(settings: &Settings, grids: &Grids, tracks: &[&[Track]], entry: usize) -> MethodResult {
    let all = || tracks.iter().map(|tracks| &tracks[entry]);
    let over = |value: &dyn Fn(&Track) -> f64| moments(all().map(value).collect::<Vec<_>>().into_iter());
    let node_rounds = (settings.nodes * grids.rounds) as f64;
    let per_turn = |count: &dyn Fn(&Track) -> u64| over(&|track| count(track) as f64 / node_rounds).mean;
    let course = |values: &dyn Fn(&Track) -> &[f64], points: usize| -> Vec<Moments> {
        (0..points).map(|point| over(&|track| values(track)[point])).collect()
    };
    let kernels = settings.kernels.len();
    let mean_share = |share: &dyn Fn(&Track, usize) -> f64| -> Vec<f64> {
        (0..kernels).map(|kernel| over(&|track| share(track, kernel)).mean).collect()
    };
    let first = &tracks[0][entry];
    let regret = course(&|track| &track.curve.regret, first.curve.regret.len());
    let cast: u64 = all().flat_map(|track| &track.votes).sum();
    MethodResult {
        name: first.contestant.name().to_owned(),
        kernel: first.kernel.map(|kernel| kernel + 1),
        best: false,
        mse: over(&|track| track.mse),
        mse_trials: all().map(|track| track.mse).collect(),
        mse_last_window: Some(over(&|track| track.window_mse)).filter(|window| window.mean.is_finite()),
        mean_loss: over(&|track| track.mean_loss),
        error_rate: (settings.loss().ok() == Some(hedgerow::Loss::Logistic))
            .then(|| over(&|track| track.error_rate)),
        numbers_up: per_turn(&|track| track.traffic.numbers_up),
        numbers_down: per_turn(&|track| track.traffic.numbers_down),
        bytes_up: per_turn(&|track| track.traffic.bytes_up),
        bytes_down: per_turn(&|track| track.traffic.bytes_down),
        selected: mean_share(&|track, kernel| track.shares[kernel]),
        votes: if cast == 0 {
            vec![]
        } else {
            let votes = |kernel: usize| all().map(|track| track.votes[kernel]).sum::<u64>();
            (0..kernels).map(|kernel| votes(kernel) as f64 / cast as f64).collect()
        },
        uploads_accepted: per_turn(&|track| track.traffic.uploads_accepted),
        uploads_late: per_turn(&|track| track.traffic.uploads_late),
        regret: regret.last().map(|last| Regret {
            mean: last.mean,
            sd: last.sd,
            exponent: growth(&grids.regret, &regret),
        }),
        seconds: all().map(|track| track.seconds).sum(),
        curve: Curve {
            rounds: grids.curve.clone(),
            mse: course(&|track| &track.curve.mse, grids.curve.len()),
            mse_window: course(&|track| &track.curve.window_mse, grids.curve.len()),
            loss: course(&|track| &track.curve.loss, grids.curve.len()),
            shares: (0..grids.curve.len())
                .map(|point| mean_share(&|track, kernel| track.curve.shares[point][kernel]))
                .collect(),
            regret_rounds: if regret.is_empty() { vec![] } else { grids.regret.clone() },
            regret,
        },
    }
}

/// Exponent of the power law through the last two decades, by least squares on logarithms.
fn growth(rounds: &[u64], regret: &[Moments]) -> Option<f64> {
    let last = *rounds.last()? as f64;
    let recent: Vec<(f64, f64)> = rounds
        .iter()
        .zip(regret)
        .filter(|(round, _)| **round as f64 >= last / 100.0)
        .map(|(round, regret)| ((*round as f64).ln(), regret.mean))
        .collect();
    if recent.len() < 3 || recent.iter().any(|(_, regret)| *regret <= 0.0) {
        return None;
    }
    let count = recent.len() as f64;
    let (mean_x, mean_y) = recent
        .iter()
        .fold((0.0, 0.0), |(x, y), (round, regret)| (x + round / count, y + regret.ln() / count));
    let spread: f64 = recent.iter().map(|(x, _)| (x - mean_x) * (x - mean_x)).sum();
    let together: f64 = recent.iter().map(|(x, y)| (x - mean_x) * (y.ln() - mean_y)).sum();
    Some(together / spread)
}

/// Marks the best `sk` and returns its kernel.
fn mark_best(methods: &mut [MethodResult]) -> Option<usize> {
    let single = methods.iter_mut().filter(|method| method.name == Contestant::Sk.name());
    let best = single.min_by(|a, b| a.mean_loss.mean.total_cmp(&b.mean_loss.mean))?;
    best.best = true;
    best.kernel.map(|kernel| kernel - 1)
}

/// The kernel whose best fixed function has the least objective on average.
fn best_function(hindsight: &[&HindsightTrack]) -> Option<usize> {
    let kernels = hindsight.first()?.objective.len();
    let mean = |kernel: usize| hindsight.iter().map(|track| track.objective[kernel]).sum::<f64>();
    (0..kernels).min_by(|a, b| mean(*a).total_cmp(&mean(*b)))
}

fn hindsight_entry(
    settings: &Settings,
    grids: &Grids,
    hindsight: &[&HindsightTrack],
    kernel: usize,
) -> MethodResult {
    // Each trial against the best of its own, like the regret.
    let mse_trials: Vec<f64> = hindsight.iter().filter_map(|track| track.course.last().copied()).collect();
    let mse = moments(mse_trials.iter().copied());
    let course =
        (0..grids.regret.len()).map(|point| moments(hindsight.iter().map(|track| track.course[point])));
    let course: Vec<Moments> = course.collect();
    MethodResult {
        name: Contestant::Hindsight.name().to_owned(),
        kernel: Some(kernel + 1),
        best: false,
        mse,
        mse_trials,
        mse_last_window: None,
        mean_loss: mse,
        error_rate: None,
        numbers_up: 0.0,
        numbers_down: 0.0,
        bytes_up: 0.0,
        bytes_down: 0.0,
        selected: (0..settings.kernels.len()).map(|p| f64::from(u8::from(p == kernel))).collect(),
        votes: vec![],
        uploads_accepted: 0.0,
        uploads_late: 0.0,
        regret: None,
        seconds: hindsight.iter().map(|track| track.seconds).sum(),
        curve: Curve { rounds: grids.regret.clone(), mse: course, ..Curve::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_begin_with_one_end_with_the_last_round_and_ascend() {
        for rounds in [1, 2, 999, 1000, 1001, 123_456] {
            for grid in [curve_grid(rounds), regret_grid(rounds)] {
                assert_eq!((grid[0], *grid.last().unwrap()), (1, rounds as u64));
                assert!(grid.is_sorted() && grid.windows(2).all(|pair| pair[0] < pair[1]));
                assert!(grid.len() <= CURVE_POINTS);
            }
        }
    }

    #[test]
    fn growth_finds_the_exponent_of_a_power_law() {
        let rounds = regret_grid(100_000);
        let power: Vec<Moments> =
            rounds.iter().map(|t| Moments { mean: 3.0 * (*t as f64).powf(0.55), sd: 0.0 }).collect();
        assert!((growth(&rounds, &power).unwrap() - 0.55).abs() < 1e-9);
        let mut negative = power;
        negative.last_mut().unwrap().mean = -1.0;
        assert_eq!(growth(&rounds, &negative), None);
    }

    #[test]
    fn moments_are_of_a_sample() {
        let found = moments([1.0, 2.0, 3.0, 4.0].into_iter());
        assert_eq!(found.mean, 2.5);
        assert!((found.sd - (5.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(moments([7.0].into_iter()).sd, 0.0);
    }
}
