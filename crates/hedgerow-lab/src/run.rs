//! A run: trials in parallel, reduced to [`Results`]. The number of threads changes nothing but the time.

use std::time::Instant;

use hedgerow::{Purpose, Stream};
use rayon::prelude::*;

use crate::data::Dataset;
use crate::data::builtin::Builtin;
use crate::data::csv::{CsvError, read_csv};
use crate::results::{Curve, DataSummary, MethodResult, Moments, Regret, Results};
use crate::settings::{BUILTIN_ROUNDS, Contestant, Settings, SettingsError};
use crate::trial::{self, Grids, HindsightTrack, Track, TrialError};

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
        let rounds = settings.rounds.unwrap_or(BUILTIN_ROUNDS);
        let per_node = (rounds as f64 * settings.participation.arrivals.mean()).ceil() as usize;
        let seed = Stream::from_seed(settings.seed).derive(Purpose::Data, 0).bits_at(0);
        let data = stream.generate(per_node.max(1) * settings.nodes, settings.nodes, seed);
        return Ok(data.lagged(settings.lags).map_err(|source| SettingsError::OutOfBounds {
            key: "data.lags".into(),
            bound: format!("fewer than the {} samples", source.samples),
            value: source.order.to_string(),
        })?);
    }
    let path = std::path::Path::new(&settings.data);
    if !path.exists() && !settings.data.contains(['/', '\\', '.']) {
        let streams = Builtin::ALL.map(Builtin::name).join(", ");
        return Err(RunError::NoSuchData { name: settings.data.clone(), streams });
    }
    Ok(read_csv(path, settings.target.as_deref(), settings.lags)?)
}

/// Runs all trials. `progress` is told the total and how much is done, from any thread.
pub fn run(
    settings: &Settings,
    data: &Dataset,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Results, RunError> {
    let start = Instant::now();
    if let Some((sample, label)) = trial::first_bad_label(settings.loss()?, data) {
        return Err(RunError::BadLabel { data: data.name.clone(), sample: sample + 1, label });
    }
    // Found out before the first trial, and the length of the longest stream decides the number of rounds.
    let streams = settings.partition.deal(data, settings.nodes, settings.seed).map_err(TrialError::from)?;
    let longest = streams.iter().map(Vec::len).max().unwrap_or(0);
    let lasting = (longest as f64 / settings.participation.arrivals.mean()).ceil() as usize;
    let rounds = settings.rounds.unwrap_or(lasting).min(lasting).max(1);
    let grids = Grids { rounds, curve: curve_grid(rounds), regret: regret_grid(rounds) };

    let total = settings.trials * trial::group_count(settings)? * rounds;
    progress(Progress::Total(total as u64));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(settings.threads).build();
    let pool = pool.map_err(|source| RunError::Threads { threads: settings.threads, source })?;
    let tick = || progress(Progress::Step);
    let trials: Vec<_> = pool.install(|| {
        let trials = (0..settings.trials).into_par_iter();
        trials.map(|trial| trial::play(settings, data, &grids, trial, &tick)).collect::<Result<_, _>>()
    })?;
    let (tracks, hindsight): (Vec<Vec<Track>>, Vec<Option<HindsightTrack>>) = trials.into_iter().unzip();
    let hindsight: Vec<HindsightTrack> = hindsight.into_iter().flatten().collect();

    let mut methods: Vec<MethodResult> =
        (0..tracks[0].len()).map(|entry| summarise(settings, &grids, &tracks, entry)).collect();
    let by_sk = mark_best(&mut methods);
    let by_function = best_function(&hindsight);
    if let Some(kernel) = by_function {
        methods.push(hindsight_entry(settings, &grids, &hindsight, kernel));
    }
    methods.sort_by_key(|method| settings.contestants.iter().position(|c| c.name() == method.name));
    let seen = (rounds as f64 * settings.participation.arrivals.mean()).ceil() as usize;
    Ok(Results {
        schema: 1,
        data: DataSummary {
            name: data.name.clone(),
            samples: streams.iter().map(|stream| stream.len().min(seen)).sum(),
            features: data.features,
        },
        nodes: settings.nodes,
        rounds,
        budget: settings.budget,
        kernels: settings.kernels.iter().map(|kernel| kernel.label()).collect(),
        trials: settings.trials,
        seed: settings.seed,
        partition: settings.partition.name().to_owned(),
        loss: settings.loss()?.name().to_owned(),
        window: settings.window.min(rounds),
        participation: settings.participation.describe(),
        best_kernel: by_sk.or(by_function).map(|kernel| kernel + 1),
        methods,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Steps to come; told once.
    Total(u64),
    /// One step is done.
    Step,
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
fn summarise(settings: &Settings, grids: &Grids, tracks: &[Vec<Track>], entry: usize) -> MethodResult {
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
        mse_last_window: Some(over(&|track| track.window_mse)),
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
fn best_function(hindsight: &[HindsightTrack]) -> Option<usize> {
    let kernels = hindsight.first()?.objective.len();
    let mean = |kernel: usize| hindsight.iter().map(|track| track.objective[kernel]).sum::<f64>();
    (0..kernels).min_by(|a, b| mean(*a).total_cmp(&mean(*b)))
}

fn hindsight_entry(
    settings: &Settings,
    grids: &Grids,
    hindsight: &[HindsightTrack],
    kernel: usize,
) -> MethodResult {
    let mse = moments(hindsight.iter().map(|track| track.mse[kernel]));
    let course =
        (0..grids.regret.len()).map(|point| moments(hindsight.iter().map(|track| track.course[point])));
    let course: Vec<Moments> = course.collect();
    MethodResult {
        name: Contestant::Hindsight.name().to_owned(),
        kernel: Some(kernel + 1),
        best: false,
        mse,
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
        seconds: 0.0,
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
