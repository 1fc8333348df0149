//! From the tracks of all trials to [`Results`].

use hedgerow::learning::Loss;
use hedgerow::method::Reference;
use hedgerow::metrics::Tally;

use crate::class_meter::ClassTrack;
use crate::predictions::MethodPredictions;
use crate::preprocessor::{PreprocessorTally, Scaler};
use crate::results::{
    ClassResult, Curve, DataSummary, IntervalResult, MethodResult, Moments, Regret, Results,
    SubsetError, TargetError, label,
};
use crate::run::{CHANGING_FEATURES, RunError};
use crate::settings::{MethodChoice, Scaling, Source};
use crate::trial::{HindsightTrack, RunContext, TargetTrack, Track, TrialResult};
use hedgerow_data::partition::Partition;

/// The rounds of the curves.
struct Points {
    curve: Vec<u64>,
    regret: Vec<u64>,
    last: u64,
}

/// The results of all trials.
pub(crate) fn summarise(
    context: &RunContext<'_>,
    data: &str,
    owners: Option<&[String]>,
    trials: &[TrialResult],
    last: u64,
    seconds: f64,
) -> Result<Results, RunError> {
    let settings = context.settings;
    let mean = |count: &dyn Fn(&TrialResult) -> f64| {
        trials.iter().map(count).sum::<f64>() / trials.len() as f64
    };
    let samples = mean(&|trial| trial.samples as f64);
    if trials.iter().all(|trial| trial.samples as u64 == trial.preprocessor.unscored) {
        return Err(RunError::NothingSeen(data.to_owned()));
    }
    let (curve, regret) = (context.grids.curve.points(last), context.grids.regret.points(last));
    let points = Points { curve, regret, last };
    let tracks: Vec<&[Track]> = trials.iter().map(|trial| &trial.tracks[..]).collect();
    let hindsight: Vec<&HindsightTrack> =
        trials.iter().filter_map(|trial| trial.hindsight.as_ref()).collect();
    let mut methods: Vec<MethodResult> =
        (0..tracks[0].len()).map(|entry| over_trials(context, &points, &tracks, entry)).collect();
    let by_sk = mark_best(&mut methods, settings.loss() == Loss::Squared);
    let by_function = best_function(&hindsight);
    let fixed = context.methods.iter().find(|choice| choice.is(Reference::Hindsight));
    if let (Some(kernel), Some(fixed)) = (by_function, fixed) {
        let seconds = trials.iter().map(|trial| trial.hindsight_seconds).sum();
        let entry = hindsight_entry(settings.kernels.len(), &points, &hindsight, kernel);
        methods.push(MethodResult { name: fixed.name(), seconds, ..entry });
    }
    methods.sort_by_key(|method| {
        let (plain, _) = MethodChoice::split_layer(&method.name);
        context.methods.iter().position(|choice| choice.plain_name() == plain)
    });
    let columns = &settings.data.columns;
    let is_owned = owners.is_some();
    let partition = match (is_owned && settings.partition == Partition::Auto, &columns.node) {
        (true, Some(column)) => format!("column:{column}"),
        (true, None) => "by owner".to_owned(),
        (false, _) => settings.partition.name(),
    };
    let count = |count: &dyn Fn(&PreprocessorTally) -> u64| {
        mean(&|trial| count(&trial.preprocessor) as f64)
    };
    let mut results = Results {
        schema: 1,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings: serde_json::to_value(&settings.effective).unwrap_or_default(),
        data: DataSummary {
            name: data.to_owned(),
            samples: samples.round() as usize,
            features: context.features,
            target: context.target.clone(),
            provenance: match &settings.data.source {
                Source::Builtin(_) => "generated".to_owned(),
                Source::Files { provenance, .. } => provenance.clone(),
            },
            inputs: context.inputs.clone(),
            missing_inputs: count(&|tally| tally.imputed).round() as u64,
            missing_labels: count(&|tally| tally.skipped).round() as u64,
            repeated_rows: 0,
        },
        scaling: describe(
            &settings.scaling,
            &context.scaler,
            count(&|tally| tally.scales),
            count(&|tally| tally.unscored),
            context.units.len() == 1,
        ),
        nodes: context.nodes,
        node_names: owners
            .filter(|_| settings.partition == Partition::Auto)
            .unwrap_or_default()
            .to_vec(),
        rounds: last as usize,
        rounds_asked: None,
        budget: settings.budget,
        kernels: settings.kernels.iter().map(|kernel| kernel.label()).collect(),
        trials: settings.trials,
        seed: settings.seed,
        partition,
        loss: settings.loss().name().to_owned(),
        targets: context.targets.clone(),
        classes: context.classes.clone(),
        interval: settings.interval.share(),
        window: settings.window.min(last as usize),
        participation: settings.participation.describe(),
        left_out: left_out(context),
        best_kernel: by_sk.or(by_function).map(|kernel| kernel + 1),
        methods,
        predictions: predictions(&trials[0].tracks),
        model: None,
        memory_bytes: None,
        seconds,
    };
    // Reports have figures of one method's predictions.
    let subject = results.subject_place();
    for (place, method) in results.methods.iter_mut().enumerate() {
        method.sampled = method.sampled.take().filter(|_| Some(place) == subject);
    }
    Ok(results)
}

/// Methods that were not run, and why, in words.
fn left_out(context: &RunContext<'_>) -> Vec<String> {
    let words = |methods: &[String], why: &str| format!("{} ({why})", methods.join(", "));
    let known = &context.settings.left_out;
    let mut all: Vec<String> = known.iter().map(|left| words(&left.methods, &left.why)).collect();
    let is_gone = |choice: &&MethodChoice| !context.methods.contains(choice);
    let gone = context.settings.methods.iter().filter(is_gone);
    all.extend(gone.map(|choice| words(&[choice.name()], CHANGING_FEATURES)));
    all
}

/// The predictions of a trial, if they are recorded.
fn predictions(tracks: &[Track]) -> Vec<MethodPredictions> {
    let recorded = tracks.iter().filter(|track| !track.predictions.is_empty());
    let of_track = |track: &Track| MethodPredictions {
        method: label(&track.name, track.kernel.map(|kernel| kernel + 1)),
        predictions: track.predictions.clone(),
        probabilities: track.probabilities.clone(),
    };
    recorded.map(of_track).collect()
}

/// What was done to the numbers, in words; empty if nothing was.
fn describe(
    scaling: &Scaling,
    scaler: &Scaler,
    scales: f64,
    unscored: f64,
    has_numbers: bool,
) -> String {
    match (scaling, scaler) {
        (Scaling::WholeFile { jointly }, _) => {
            let range =
                if *jointly { "the range of all features together" } else { "each column's range" };
            format!(
                "by {range} over the whole file: hindsight, which no live system has; errors are in scaled units"
            )
        }
        (_, Scaler::None) => String::new(),
        (_, Scaler::Fixed(_)) => "by known ranges".to_owned(),
        (_, Scaler::Online { kind, .. }) => {
            let by = match kind {
                hedgerow::scaling::ScaleKind::Spread => "mean and spread",
                hedgerow::scaling::ScaleKind::Range => "minimum and maximum",
            };
            let unit = if has_numbers { "; errors are in the label's own unit" } else { "" };
            format!(
                "online, by running {by} agreed between the nodes ({scales:.1} times; the {unscored:.0} samples before the first scale are not scored){unit}"
            )
        }
    }
}

/// Mean and sample standard deviation.
pub(crate) fn moments(values: impl Iterator<Item = f64> + Clone) -> Moments {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let squares: f64 = values.map(|value| (value - mean) * (value - mean)).sum();
    Moments { mean, sd: if count > 1.0 { (squares / (count - 1.0)).sqrt() } else { 0.0 } }
}

/// One entry, over all trials.
fn over_trials(
    context: &RunContext<'_>,
    points: &Points,
    tracks: &[&[Track]],
    entry: usize,
) -> MethodResult {
    let settings = context.settings;
    let all = || tracks.iter().map(|tracks| &tracks[entry]);
    let over =
        |value: &dyn Fn(&Track) -> f64| moments(all().map(value).collect::<Vec<_>>().into_iter());
    let node_rounds = context.nodes as f64 * points.last as f64;
    let per_turn =
        |count: &dyn Fn(&Track) -> u64| over(&|track| count(track) as f64 / node_rounds).mean;
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
        name: first.name.clone(),
        kernel: first.kernel.map(|kernel| kernel + 1),
        best: false,
        mse: over(&|track| track.mse),
        mse_trials: all().map(|track| track.mse).collect(),
        mse_last_window: Some(over(&|track| track.window_mse))
            .filter(|window| window.mean.is_finite()),
        mae: first.classes.is_none().then(|| over(&|track| track.mae)),
        r2: first.classes.is_none().then(|| over(&|track| track.r2).mean),
        interval: interval(all()),
        nodes: subset_errors(all().map(|track| &track.nodes)),
        hours: subset_errors(all().map(|track| &track.hours)),
        weekdays: subset_errors(all().map(|track| &track.weekdays)),
        mean_loss: over(&|track| track.mean_loss),
        targets: targets(context, tracks, entry),
        classes: class_result(all().filter_map(|track| track.classes.as_ref())),
        numbers_up: per_turn(&|track| track.traffic.numbers_up),
        numbers_down: per_turn(&|track| track.traffic.numbers_down),
        bytes_up: per_turn(&|track| track.traffic.bytes_up),
        bytes_down: per_turn(&|track| track.traffic.bytes_down),
        selected: if !first.choice.info.uses_kernels() {
            vec![]
        } else {
            mean_share(&|track, kernel| track.shares[kernel])
        },
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
            exponent: growth(&points.regret, &regret),
        }),
        seconds: all().map(|track| track.seconds).sum(),
        curve: Curve {
            rounds: points.curve.clone(),
            mse: course(&|track| &track.curve.mse, points.curve.len()),
            mse_window: course(&|track| &track.curve.window_mse, points.curve.len()),
            loss: course(&|track| &track.curve.loss, points.curve.len()),
            coverage: course(&|track| &track.curve.coverage, first.curve.coverage.len()),
            shares: (0..points.curve.len())
                .map(|point| mean_share(&|track, kernel| track.curve.shares[point][kernel]))
                .collect(),
            regret_rounds: if regret.is_empty() { vec![] } else { points.regret.clone() },
            regret,
        },
        sampled: first.sampled.clone(),
        importance: first.importance.clone(),
    }
}

/// The measures of an entry's classes; none of numbers.
fn class_result<'t>(tracks: impl Iterator<Item = &'t ClassTrack>) -> Option<ClassResult> {
    let tracks: Vec<&ClassTrack> = tracks.collect();
    let (first, others) = tracks.split_first()?;
    let mut confusion = first.confusion.clone();
    for other in others {
        let pairs = confusion.iter_mut().flatten().zip(other.confusion.iter().flatten());
        pairs.for_each(|(sum, count)| *sum += count);
    }
    let over = |value: fn(&ClassTrack) -> f64| moments(tracks.iter().map(|track| value(track)));
    Some(ClassResult {
        accuracy: over(|track| track.accuracy),
        balanced_accuracy: over(|track| track.balanced_accuracy),
        log_loss: over(|track| track.log_loss),
        auc: over(|track| track.auc),
        confusion,
    })
}

/// The errors of an entry for each of several targets.
fn targets(context: &RunContext<'_>, tracks: &[&[Track]], entry: usize) -> Vec<TargetError> {
    let error = |(target, name): (usize, &String)| {
        let mean = |value: fn(&TargetTrack) -> f64| {
            moments(tracks.iter().map(|tracks| value(&tracks[entry].targets[target]))).mean
        };
        TargetError {
            target: name.clone(),
            mse: mean(|track| track.mse),
            mae: mean(|track| track.mae),
            r2: mean(|track| track.r2),
        }
    };
    context.targets.iter().enumerate().map(error).collect()
}

/// How the intervals of an entry did, if it has any.
fn interval<'t>(tracks: impl Iterator<Item = &'t Track>) -> Option<IntervalResult> {
    let each: Vec<(f64, f64)> = tracks.map(|track| track.coverage).collect::<Option<_>>()?;
    let mean =
        |part: fn(&(f64, f64)) -> f64| each.iter().map(part).sum::<f64>() / each.len() as f64;
    Some(IntervalResult { coverage: mean(|(share, _)| *share), width: mean(|(_, width)| *width) })
}

/// The errors of an entry at each node, or in each hour, all trials together.
fn subset_errors<'t>(trials: impl Iterator<Item = &'t Vec<Tally>>) -> Vec<SubsetError> {
    let mut sums: Vec<Tally> = Vec::new();
    for tallies in trials {
        sums.resize(tallies.len().max(sums.len()), Tally::default());
        sums.iter_mut().zip(tallies).for_each(|(sum, tally)| *sum += *tally);
    }
    sums.iter().map(|sum| SubsetError { predictions: sum.count, mse: sum.mean() }).collect()
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

/// Marks the best entry of the method with a single kernel, and returns its kernel.
fn mark_best(methods: &mut [MethodResult], by_error: bool) -> Option<usize> {
    let single = methods.iter_mut().filter(|method| method.info().takes_kernel);
    let measure =
        |method: &MethodResult| if by_error { method.mse.mean } else { method.mean_loss.mean };
    let best = single.min_by(|a, b| measure(a).total_cmp(&measure(b)))?;
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
    kernels: usize,
    points: &Points,
    hindsight: &[&HindsightTrack],
    kernel: usize,
) -> MethodResult {
    // Each trial against the best of its own, like the regret.
    let mse_trials: Vec<f64> =
        hindsight.iter().filter_map(|track| track.course.last().copied()).collect();
    let mse = moments(mse_trials.iter().copied());
    let course = (0..points.regret.len())
        .map(|point| moments(hindsight.iter().map(|track| track.course[point])));
    let course: Vec<Moments> = course.collect();
    MethodResult {
        kernel: Some(kernel + 1),
        mse,
        mse_trials,
        mean_loss: mse,
        selected: (0..kernels).map(|p| f64::from(u8::from(p == kernel))).collect(),
        curve: Curve { rounds: points.regret.clone(), mse: course, ..Curve::default() },
        ..MethodResult::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grids::Grids;

    #[test]
    fn growth_finds_the_exponent_of_a_power_law() {
        let rounds = Grids::closed(100_000).regret.points(100_000);
        let power: Vec<Moments> = rounds
            .iter()
            .map(|t| Moments { mean: 3.0 * (*t as f64).powf(0.55), sd: 0.0 })
            .collect();
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
