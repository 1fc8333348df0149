//! `[learning]` and `[kernels]`: what is learned, as people write it, in a server's file or from
//! Python.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroU16;

use hedgerow::aggregation::Aggregation;
use hedgerow::codec::{Coding, Compression, NumberFormat};
use hedgerow::features::{Amplitude, Draw, Family, FeatureSpec, Kernel};
use hedgerow::learning::{Loss, Schedule, WeightRule};
use hedgerow::method::{BudgetTooSmall, MkOptions, PofOptions};
use hedgerow::random::{CounterRng, Purpose};
use hedgerow::scaling::{BadScale, Scale, ScaleKind};
use hedgerow::{Method, SetupConfig};
use serde::Deserialize;
use toml::Table;

use super::{Learning, Plan, PlanError, Scaling};
use crate::layers::{self, LayerError};

/// The commented defaults, those of a server among them.
pub const DEFAULTS: &str = include_str!("../serve-defaults.toml");

/// What makes no sense about what is to be learned.
#[derive(Debug, thiserror::Error)]
pub enum LearningError {
    /// It can't be read.
    #[error(transparent)]
    Layers(#[from] LayerError),
    /// A value outside its bounds.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// No column, no range.
    #[error("learning.ranges: {0}")]
    Ranges(#[from] BadScale),
    /// Too few numbers for a model.
    #[error("learning.budget: {0}")]
    Budget(#[from] BudgetTooSmall),
    /// It makes no sense as a whole.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// A value outside its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} must be {bound}, but is {value}")]
pub struct OutOfBounds {
    /// Such as `rounds.least`.
    pub key: &'static str,
    /// In words.
    pub bound: String,
    /// What it is.
    pub value: String,
}

impl OutOfBounds {
    pub(crate) fn new(key: &'static str, bound: impl ToString, value: impl ToString) -> Self {
        Self { key, bound: bound.to_string(), value: value.to_string() }
    }

    /// Refuses counts beyond these.
    pub(crate) fn unless_within(
        key: &'static str,
        least: usize,
        most: usize,
        value: usize,
    ) -> Result<(), Self> {
        let is_within = (least..=most).contains(&value);
        if is_within {
            Ok(())
        } else {
            Err(Self::new(key, format!("from {least} to {most}"), value))
        }
    }
}

impl Plan {
    /// The defaults of `[learning]` and `[kernels]` with changes over them, for those who have no
    /// file: sections with keys. A dictionary, if there is one, takes the place of families and
    /// variances.
    pub fn from_changes(
        changes: Table,
        dictionary: Option<Vec<Kernel>>,
    ) -> Result<Self, LearningError> {
        let Config { learning, kernels } = layers::put_over(DEFAULTS, changes)?;
        let dictionary = dictionary.map_or_else(|| kernels.dictionary(), Ok)?;
        Ok(Self::new(learning.checked(dictionary, kernels.draw)?)?)
    }
}

/// What of a server's settings is for all.
#[derive(Debug, Deserialize)]
struct Config {
    learning: LearningConfig,
    kernels: KernelConfig,
}

/// `[learning]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LearningConfig {
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

/// `[kernels]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KernelConfig {
    families: Vec<String>,
    variances: Vec<f64>,
    pub(crate) draw: Draw,
}

impl LearningConfig {
    pub(crate) fn checked(
        self,
        dictionary: Vec<Kernel>,
        draw: Draw,
    ) -> Result<Learning, LearningError> {
        let inputs = self.inputs()?;
        let method = self.method(dictionary.len())?;
        let frequencies = method.frequencies(self.budget)?;
        let aggregation = self.aggregation()?;
        if !method.supports(aggregation) {
            let bound =
                format!("mean for {}, which needs the sums of what nodes send", method.name());
            return Err(outside("learning.aggregation", bound, format!("{:?}", self.aggregation)));
        }
        let seed = first_seed(self.seed);
        let setup = SetupConfig {
            kernels: dictionary.len(),
            frequencies,
            nodes: self.nodes,
            inputs,
            budget: self.budget,
            loss: self.loss()?,
            ridge: self.ridge,
            step_size: schedule("learning.step_schedule", &self.step_schedule, self.step_size)?,
            weight_rate: schedule(
                "learning.weight_schedule",
                &self.weight_schedule,
                self.weight_rate,
            )?,
            weight_rule: match self.weight_rule.as_str() {
                "incremental" => WeightRule::Incremental,
                "cumulative" => WeightRule::Cumulative,
                other => {
                    return Err(unknown("learning.weight_rule", other, "incremental, cumulative"));
                }
            },
            seed,
            mk: MkOptions::default(),
            pof: PofOptions::default(),
            aggregation,
        };
        let features = FeatureSpec {
            kernels: dictionary,
            draw,
            inputs,
            frequencies,
            seed,
            amplitude: Amplitude::Normalised,
        };
        let (scaling, compression) = (self.scaling()?, self.compression()?);
        let Self { columns, target, personal, .. } = self;
        Ok(Learning { method, setup, features, scaling, compression, personal, columns, target })
    }

    fn inputs(&self) -> Result<usize, LearningError> {
        let mut known = HashSet::new();
        if let Some(twice) = self.columns.iter().find(|column| !known.insert(*column)) {
            return Err(outside(
                "learning.columns",
                "names that are there once",
                format!("{twice:?}"),
            ));
        }
        if known.contains(&self.target) {
            let bound = "other names than that of learning.target";
            return Err(outside("learning.columns", bound, format!("{:?}", self.target)));
        }
        match (self.columns.len(), self.inputs) {
            (0, 0) => {
                let bound = "the names of a sample's inputs, or learning.inputs their number";
                Err(outside("learning.columns", bound, "empty"))
            }
            (0, inputs) => Ok(inputs),
            (columns, 0) => Ok(columns),
            (columns, inputs) if columns == inputs => Ok(inputs),
            (columns, inputs) => Err(outside(
                "learning.inputs",
                format!("{columns}, as there are columns, or 0"),
                inputs,
            )),
        }
    }

    fn method(&self, kernels: usize) -> Result<Method, LearningError> {
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
                    Ok(kernel) if (1..=kernels).contains(&kernel) => {
                        Method::SkOfl { kernel: kernel - 1 }
                    }
                    _ => {
                        let bound =
                            format!("sk:N with N from 1 to {kernels}, as there are kernels");
                        return Err(outside("learning.method", bound, format!("{text:?}")));
                    }
                }
            }
        })
    }

    fn loss(&self) -> Result<Loss, LearningError> {
        match self.loss.as_str() {
            "squared" => Ok(Loss::Squared),
            "logistic" => Ok(Loss::Logistic),
            "huber" => Ok(Loss::Huber { delta: self.huber_delta }),
            other => Err(unknown("learning.loss", other, "squared, logistic, huber")),
        }
    }

    fn scaling(&self) -> Result<Scaling, LearningError> {
        match self.scaling.as_str() {
            "none" => Ok(Scaling::None),
            "online" => Ok(Scaling::Online { kind: ScaleKind::Spread }),
            "online-range" => Ok(Scaling::Online { kind: ScaleKind::Range }),
            "ranges" => self.ranges(),
            other => Err(unknown("learning.scaling", other, "none, online, online-range, ranges")),
        }
    }

    fn ranges(&self) -> Result<Scaling, LearningError> {
        let (columns, known) =
            (&self.columns, self.ranges.keys().cloned().collect::<Vec<_>>().join(", "));
        let is_named = |name: &String| columns.contains(name) || *name == self.target;
        if columns.is_empty()
            || !self.ranges.keys().all(is_named)
            || self.ranges.len() != columns.len() + 1
        {
            let bound = format!(
                "one range for each column, which learning.columns must name, and for the label {:?}",
                self.target
            );
            return Err(outside("learning.ranges", bound, format!("of [{known}]")));
        }
        let ranges: Vec<(f64, f64)> =
            columns.iter().chain([&self.target]).map(|name| self.ranges[name].into()).collect();
        let scale = Scale::from_ranges(&ranges)?;
        // Classes must not be scaled.
        Ok(Scaling::Fixed(if self.loss == "logistic" { scale.with_raw_labels() } else { scale }))
    }

    fn compression(&self) -> Result<Compression, LearningError> {
        let text = self.compression.as_str();
        let name = text.strip_suffix("-up").unwrap_or(text);
        let numbers = match name {
            "none" if name == text => NumberFormat::F32,
            "f16" => NumberFormat::F16,
            "q8" => NumberFormat::Bits8,
            "q4" => NumberFormat::Bits4,
            _ => {
                return Err(unknown(
                    "learning.compression",
                    text,
                    "none, f16, q8, q4, f16-up, q8-up, q4-up",
                ));
            }
        };
        let (every, part) =
            (count("learning.every", self.every)?, count("learning.part", self.part)?);
        let up = Coding { numbers, part };
        let down = if name == text { up } else { Coding { numbers: NumberFormat::F32, part } };
        Ok(Compression { every, up, down })
    }

    fn aggregation(&self) -> Result<Aggregation, LearningError> {
        let text = self.aggregation.as_str();
        match text {
            "mean" => Ok(Aggregation::Mean),
            "median" => Ok(Aggregation::Median),
            _ => {
                let share = text.strip_prefix("trimmed-mean:").and_then(|share| share.parse().ok());
                match share {
                    Some(share) if share > 0.0 && share < 0.5 => {
                        Ok(Aggregation::TrimmedMean { share })
                    }
                    _ => {
                        let known = "mean, median, trimmed-mean:SHARE with a share of more than 0 and less than 0.5";
                        Err(unknown("learning.aggregation", text, known))
                    }
                }
            }
        }
    }
}

impl KernelConfig {
    pub(crate) fn dictionary(&self) -> Result<Vec<Kernel>, LearningError> {
        let mut kernels = Vec::new();
        for name in &self.families {
            let family = Family::ALL.into_iter().find(|family| family.name() == name);
            let known = Family::ALL.map(Family::name).join(", ");
            let family = family.ok_or_else(|| unknown("kernels.families", name, &known))?;
            kernels.extend(self.variances.iter().map(|&variance| Kernel { family, variance }));
        }
        OutOfBounds::unless_within("the number of kernels", 1, 10_000, kernels.len())?;
        Ok(kernels)
    }
}

/// What a user's seed becomes, as in the first trial of a simulation.
pub fn first_seed(seed: u64) -> u64 {
    CounterRng::from_seed(seed).derive(Purpose::Trial, 0).bits_at(0)
}

fn schedule(key: &'static str, name: &str, scale: f64) -> Result<Schedule, LearningError> {
    match name {
        "anytime" => Ok(Schedule::Anytime { scale }),
        "constant" => Ok(Schedule::Constant { scale }),
        other => Err(unknown(key, other, "anytime, constant")),
    }
}

fn count(key: &'static str, value: usize) -> Result<NonZeroU16, LearningError> {
    OutOfBounds::unless_within(key, 1, u16::MAX.into(), value)?;
    Ok(NonZeroU16::new(value as u16).unwrap_or(NonZeroU16::MIN))
}

fn unknown(key: &'static str, name: &str, known: &str) -> LearningError {
    outside(key, format!("one of {known}"), format!("{name:?}"))
}

fn outside(key: &'static str, bound: impl ToString, value: impl ToString) -> LearningError {
    OutOfBounds::new(key, bound, value).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(changes: &str, dictionary: Option<Vec<Kernel>>) -> Result<Plan, LearningError> {
        Plan::from_changes(changes.parse().unwrap(), dictionary)
    }

    #[test]
    fn changes_go_over_the_defaults_and_a_dictionary_over_both() {
        let known =
            plan("[learning]\ninputs = 2\nridge = 1\n[kernels]\nvariances = [0.5, 2.0]", None)
                .unwrap();
        let kernels = vec![Kernel::gaussian(0.5), Kernel::gaussian(2.0)];
        assert_eq!(known.learning().features.kernels, kernels);
        assert_eq!((known.inputs(), known.setup().config().ridge), (2, 1.0));
        let given = plan("[learning]\ninputs = 2\nridge = 1.0", Some(kernels)).unwrap();
        assert_eq!(given.learning(), known.learning());
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (changes, parts) in [
            ("", ["learning.columns", "learning.inputs"]),
            ("[learning]\ninputs = 2\nrigde = 1", ["learning.rigde", "ridge"]),
            ("[learning]\ninputs = \"2\"", ["inputs", "usize"]),
            ("[learning]\ninputs = 2\nbudget = 3", ["learning.budget", "at least 16"]),
            ("[learning]\ninputs = 20000", ["inputs", "at most 10000"]),
        ] {
            let message = plan(changes, None).unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{changes}: {message}");
        }
        assert!(plan("[learning]\ninputs = 2", Some(Vec::new())).is_err());
    }
}
