//! Whether federating pays on this data: a method beside the same learner at each device alone, and
//! with all samples in one place.

use crate::compare::critical;
use crate::measure::Measure;
use crate::results::{MethodResult, Moments, Results, SubsetError};
use crate::settings::Scope;
use crate::summary::moments;

/// What federating changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Worth {
    /// Name of the method.
    pub method: String,
    /// Its error as a multiple of that of each device alone.
    pub ratio: f64,
    /// An interval of 95% for the ratio, over devices and trials; none for a single device, or if
    /// errors of devices are not known.
    pub interval: Option<(f64, f64)>,
    /// The error with all samples in one place, as the same multiple.
    pub pooled: Option<f64>,
    /// The trivial forecast with the least error, and that error as the same multiple.
    pub trivial: Option<(String, f64)>,
}

impl Worth {
    /// The first method of a run that has an entry alone at each device.
    pub fn of(results: &Results) -> Option<Self> {
        let measure = Measure::of(results);
        let beside = |method: &MethodResult, scope: Scope| {
            results.method(&format!("{}{}", method.name, scope.suffix()))
        };
        let found = results.methods.iter().find_map(|m| Some((m, beside(m, Scope::Alone)?)));
        let (method, alone) = found.filter(|_| results.nodes > 1)?;
        let error = |method: &MethodResult| measure.moments(method).mean;
        let multiple = |method: &MethodResult| error(method) / error(alone);
        let ratio = multiple(method);
        if !(ratio.is_finite() && ratio > 0.0) {
            return None;
        }
        let trivial = results.methods.iter().filter(|method| method.is_trivial());
        let best = trivial.min_by(|a, b| error(a).total_cmp(&error(b)));
        Some(Self {
            method: method.name.clone(),
            ratio,
            interval: measure.is_detailed().then(|| interval(ratio, method, alone)).flatten(),
            pooled: beside(method, Scope::Pooled).map(multiple),
            trivial: best.map(|best| (best.name.clone(), multiple(best))),
        })
    }
}

/// An interval of 95% for the ratio of two methods' errors, by the logarithm: the variance over
/// devices by the jackknife, and that over trials.
fn interval(ratio: f64, method: &MethodResult, alone: &MethodResult) -> Option<(f64, f64)> {
    let seen = |(a, b): &(&SubsetError, &SubsetError)| a.predictions > 0 && b.predictions > 0;
    let sum = |node: &SubsetError| node.mse * node.predictions as f64;
    let devices: Vec<(f64, f64)> = (method.nodes.iter().zip(&alone.nodes).filter(seen))
        .map(|(a, b)| (sum(a), sum(b)))
        .collect();
    if devices.len() < 2 {
        return None;
    }
    let total = devices.iter().fold((0.0, 0.0), |sum, (a, b)| (sum.0 + a, sum.1 + b));
    let without: Vec<f64> =
        devices.iter().map(|(a, b)| ((total.0 - a) / (total.1 - b)).ln()).collect();
    let count = devices.len() as f64;
    let Moments { sd, .. } = moments(without.into_iter());
    let over_devices = (count - 1.0) * (count - 1.0) / count * sd * sd;
    let trials: Vec<f64> =
        method.mse_trials.iter().zip(&alone.mse_trials).map(|(a, b)| (a / b).ln()).collect();
    let Moments { sd, .. } = moments(trials.iter().copied());
    let over_trials = sd * sd / trials.len() as f64;
    let error = (over_devices + over_trials).sqrt();
    let reach = critical(0.05, count - 1.0) * error;
    let ends = (ratio * (-reach).exp(), ratio * reach.exp());
    (ends.0.is_finite() && ends.1.is_finite()).then_some(ends)
}
