//! `[learning]` and `[kernels]`: what is learned, as people write it.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroU16;

use hedgerow::{
    Aggregation, Amplitude, Coding, Compression, Draw, Family, FeatureSpec, Kernel, Loss, Method, MkOptions,
    NumberFormat, PofOptions, Purpose, Scale, ScaleKind, Schedule, SetupConfig, Stream, WeightRule,
};
use serde::Deserialize;

use super::{ConfigError, out_of_bounds, within};
use crate::learning::{Learning, Scaling};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LearningConfig {
    method: String,
    columns: Vec<String>,
    inputs: usize,
    target: String,
    nodes: usize,
    budget: usize,
    loss: String,
    huber_delta: f64,
    ridge: f64,
    step_size: f64,
    step_schedule: String,
    weight_rate: f64,
    weight_schedule: String,
    weight_rule: String,
    scaling: String,
    compression: String,
    every: usize,
    part: usize,
    personal: bool,
    aggregation: String,
    seed: u64,
    ranges: BTreeMap<String, [f64; 2]>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KernelConfig {
    families: Vec<String>,
    variances: Vec<f64>,
    draw: Draw,
}

impl LearningConfig {
    pub(super) fn checked(self, kernels: &KernelConfig) -> Result<Learning, ConfigError> {
        let inputs = self.inputs()?;
        let dictionary = kernels.dictionary()?;
        let method = self.method(dictionary.len())?;
        let frequencies = method.frequencies(self.budget)?;
        let aggregation = self.aggregation()?;
        if !method.supports(aggregation) {
            let bound = format!("mean for {}, which needs the sums of what nodes send", method.name());
            return Err(out_of_bounds("learning.aggregation", bound, format!("{:?}", self.aggregation)));
        }
        // As of the first trial of a simulation.
        let seed = Stream::from_seed(self.seed).derive(Purpose::Trial, 0).bits_at(0);
        let setup = SetupConfig {
            kernels: dictionary.len(),
            frequencies,
            nodes: self.nodes,
            inputs,
            budget: self.budget,
            loss: self.loss()?,
            ridge: self.ridge,
            step_size: schedule("learning.step_schedule", &self.step_schedule, self.step_size)?,
            weight_rate: schedule("learning.weight_schedule", &self.weight_schedule, self.weight_rate)?,
            weight_rule: match self.weight_rule.as_str() {
                "incremental" => WeightRule::Incremental,
                "cumulative" => WeightRule::Cumulative,
                other => return Err(unknown("learning.weight_rule", other, "incremental, cumulative")),
            },
            seed,
            mk: MkOptions::default(),
            pof: PofOptions::default(),
            aggregation,
        };
        let features = FeatureSpec {
            kernels: dictionary,
            draw: kernels.draw,
            inputs,
            frequencies,
            seed,
            amplitude: Amplitude::Normalised,
        };
        let (scaling, compression) = (self.scaling()?, self.compression()?);
        let Self { columns, target, personal, .. } = self;
        Ok(Learning { method, setup, features, scaling, compression, personal, columns, target })
    }

    fn inputs(&self) -> Result<usize, ConfigError> {
        let mut known = HashSet::new();
        if let Some(twice) = self.columns.iter().find(|column| !known.insert(*column)) {
            return Err(out_of_bounds("learning.columns", "names that are there once", format!("{twice:?}")));
        }
        if known.contains(&self.target) {
            let bound = "other names than that of learning.target";
            return Err(out_of_bounds("learning.columns", bound, format!("{:?}", self.target)));
        }
        match (self.columns.len(), self.inputs) {
            (0, 0) => {
                let bound = "the names of a sample's inputs, or learning.inputs their number";
                Err(out_of_bounds("learning.columns", bound, "empty"))
            }
            (0, inputs) => Ok(inputs),
            (columns, 0) => Ok(columns),
            (columns, inputs) if columns == inputs => Ok(inputs),
            (columns, inputs) => Err(out_of_bounds(
                "learning.inputs",
                format!("{columns}, as there are columns, or 0"),
                inputs,
            )),
        }
    }

    fn method(&self, kernels: usize) -> Result<Method, ConfigError> {
        let text = self.method.as_str();
        Ok(match text {
            "gr" => Method::GrOfl,
            "mk" => Method::MkOfl,
            "naive" => Method::Naive,
            "emk" => Method::EmKofl,
            "pof" => Method::PofMkl,
            "fedpoe" => Method::FedPoe,
            "linear" => Method::LinearSgd,
            "linear-newton" => Method::LinearNewton,
            _ => {
                let Some(kernel) = text.strip_prefix("sk:") else {
                    let known = "gr, mk, sk:N, naive, emk, pof, fedpoe, linear, linear-newton";
                    return Err(unknown("learning.method", text, known));
                };
                match kernel.parse::<usize>() {
                    Ok(kernel) if (1..=kernels).contains(&kernel) => Method::SkOfl { kernel: kernel - 1 },
                    _ => {
                        let bound = format!("sk:N with N from 1 to {kernels}, as there are kernels");
                        return Err(out_of_bounds("learning.method", bound, format!("{text:?}")));
                    }
                }
            }
        })
    }

    fn loss(&self) -> Result<Loss, ConfigError> {
        match self.loss.as_str() {
            "squared" => Ok(Loss::Squared),
            "logistic" => Ok(Loss::Logistic),
            "huber" => Ok(Loss::Huber { delta: self.huber_delta }),
            other => Err(unknown("learning.loss", other, "squared, logistic, huber")),
        }
    }

    fn scaling(&self) -> Result<Scaling, ConfigError> {
        match self.scaling.as_str() {
            "none" => Ok(Scaling::None),
            "online" => Ok(Scaling::Online { kind: ScaleKind::Spread }),
            "online-range" => Ok(Scaling::Online { kind: ScaleKind::Range }),
            "ranges" => self.ranges(),
            other => Err(unknown("learning.scaling", other, "none, online, online-range, ranges")),
        }
    }

    fn ranges(&self) -> Result<Scaling, ConfigError> {
        let (columns, known) = (&self.columns, self.ranges.keys().cloned().collect::<Vec<_>>().join(", "));
        let is_named = |name: &String| columns.contains(name) || *name == self.target;
        if columns.is_empty() || !self.ranges.keys().all(is_named) || self.ranges.len() != columns.len() + 1 {
            let bound = format!(
                "one range for each column, which learning.columns must name, and for the label {:?}",
                self.target
            );
            return Err(out_of_bounds("learning.ranges", bound, format!("of [{known}]")));
        }
        let ranges: Vec<(f64, f64)> =
            columns.iter().chain([&self.target]).map(|name| self.ranges[name].into()).collect();
        let scale = Scale::from_ranges(&ranges)?;
        // Classes must not be scaled.
        Ok(Scaling::Fixed(if self.loss == "logistic" { scale.with_raw_labels() } else { scale }))
    }

    fn compression(&self) -> Result<Compression, ConfigError> {
        let text = self.compression.as_str();
        let name = text.strip_suffix("-up").unwrap_or(text);
        let numbers = match name {
            "none" if name == text => NumberFormat::F32,
            "f16" => NumberFormat::F16,
            "q8" => NumberFormat::Bits8,
            "q4" => NumberFormat::Bits4,
            _ => {
                return Err(unknown("learning.compression", text, "none, f16, q8, q4, f16-up, q8-up, q4-up"));
            }
        };
        let (every, part) = (count("learning.every", self.every)?, count("learning.part", self.part)?);
        let up = Coding { numbers, part };
        let down = if name == text { up } else { Coding { numbers: NumberFormat::F32, part } };
        Ok(Compression { every, up, down })
    }

    fn aggregation(&self) -> Result<Aggregation, ConfigError> {
        let text = self.aggregation.as_str();
        match text {
            "mean" => Ok(Aggregation::Mean),
            "median" => Ok(Aggregation::Median),
            _ => {
                let share = text.strip_prefix("trimmed-mean:").and_then(|share| share.parse().ok());
                match share {
                    Some(share) if share > 0.0 && share < 0.5 => Ok(Aggregation::TrimmedMean { share }),
                    _ => {
                        let known =
                            "mean, median, trimmed-mean:SHARE with a share of more than 0 and less than 0.5";
                        Err(unknown("learning.aggregation", text, known))
                    }
                }
            }
        }
    }
}

impl KernelConfig {
    fn dictionary(&self) -> Result<Vec<Kernel>, ConfigError> {
        let mut kernels = Vec::new();
        for name in &self.families {
            let family = Family::ALL.into_iter().find(|family| family.name() == name);
            let known = Family::ALL.map(Family::name).join(", ");
            let family = family.ok_or_else(|| unknown("kernels.families", name, &known))?;
            kernels.extend(self.variances.iter().map(|&variance| Kernel { family, variance }));
        }
        within("the number of kernels", 1, 10_000, kernels.len())?;
        Ok(kernels)
    }
}

fn schedule(key: &'static str, name: &str, scale: f64) -> Result<Schedule, ConfigError> {
    match name {
        "anytime" => Ok(Schedule::Anytime { scale }),
        "constant" => Ok(Schedule::Constant { scale }),
        other => Err(unknown(key, other, "anytime, constant")),
    }
}

fn count(key: &'static str, value: usize) -> Result<NonZeroU16, ConfigError> {
    within(key, 1, u16::MAX.into(), value)?;
    Ok(NonZeroU16::new(value as u16).unwrap_or(NonZeroU16::MIN))
}

fn unknown(key: &'static str, name: &str, known: &str) -> ConfigError {
    out_of_bounds(key, format!("one of {known}"), format!("{name:?}"))
}
