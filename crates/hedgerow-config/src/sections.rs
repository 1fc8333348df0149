//! Sections that a simulation and a server have in common: `[learning]` and `[kernels]`.

use hedgerow::PlanConfig;
use hedgerow::aggregation::Aggregation;
use hedgerow::features::{Draw, Family, Kernel};
use hedgerow::learning::{Loss, Schedule, WeightRule};
use hedgerow::plan::PlanError;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::ConfigError;

/// What `[learning]` says about rates and losses; the defaults of the programs explain each key.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct LearningSection {
    loss: LossName,
    huber_delta: f64,
    ridge: f64,
    step_size: f64,
    step_schedule: ScheduleName,
    weight_rate: f64,
    weight_schedule: ScheduleName,
    weight_rule: WeightRule,
    memory: usize,
    /// How the server combines uploads.
    #[serde(deserialize_with = "aggregation")]
    pub aggregation: Aggregation,
}

/// What `[kernels]` says: every family with every variance, and how frequencies are drawn.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct KernelSection {
    families: Vec<Family>,
    variances: Vec<f64>,
    /// How frequencies are drawn.
    pub draw: Draw,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LossName {
    Squared,
    Logistic,
    Huber,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ScheduleName {
    Anytime,
    Horizon,
    Constant,
}

impl LearningSection {
    /// The loss that is minimised.
    pub fn loss(&self) -> Loss {
        match self.loss {
            LossName::Squared => Loss::Squared,
            LossName::Logistic => Loss::Logistic,
            LossName::Huber => Loss::Huber { delta: self.huber_delta },
        }
    }

    /// What it says of a plan, over the defaults. `rounds` is the number of rounds, if it is known.
    pub fn config(&self, rounds: Option<u64>) -> Result<PlanConfig, ConfigError> {
        let Self { step_size, weight_rate, .. } = *self;
        let step_size = self.step_schedule.with("learning.step_schedule", step_size, rounds)?;
        let weight_rate =
            self.weight_schedule.with("learning.weight_schedule", weight_rate, rounds)?;
        Ok(PlanConfig::default()
            .loss(self.loss())
            .ridge(self.ridge)
            .step_size(step_size)
            .weight_rate(weight_rate)
            .weight_rule(self.weight_rule)
            .memory(self.memory)
            .aggregation(self.aggregation))
    }

    /// The step size 1/√T, whatever the settings say.
    pub fn fixed_step_size(&self, rounds: Option<u64>) -> Result<Schedule, ConfigError> {
        ScheduleName::Horizon.with("learning.step_schedule", self.step_size, rounds)
    }
}

impl ConfigError {
    /// A plan that the core refuses, under the key of the setting that has to change.
    pub fn from_plan(error: PlanError, budget: &str, method: &str) -> Self {
        let key = match &error {
            PlanError::OutOfBounds { key: "memory", bound, value } => {
                return Self::out_of_bounds("learning.memory", bound, value);
            }
            PlanError::Budget(_) => budget,
            PlanError::Features(_) => "kernels",
            PlanError::Loss { .. } => "learning.loss",
            PlanError::Aggregation { .. } => "learning.aggregation",
            PlanError::UnknownMethod { .. }
            | PlanError::Reference { .. }
            | PlanError::Kernel { .. } => method,
            _ => "learning",
        };
        Self::rejected(key, error)
    }
}

impl KernelSection {
    /// Every family with every variance, in this order.
    pub fn dictionary(&self) -> Vec<Kernel> {
        let with_variances = |family: &Family| {
            let family = *family;
            self.variances.iter().map(move |&variance| Kernel { family, variance })
        };
        self.families.iter().flat_map(with_variances).collect()
    }
}

impl ScheduleName {
    fn with(self, key: &str, scale: f64, rounds: Option<u64>) -> Result<Schedule, ConfigError> {
        match (self, rounds) {
            (Self::Anytime, _) => Ok(Schedule::Anytime { scale }),
            (Self::Constant, _) => Ok(Schedule::Constant { scale }),
            (Self::Horizon, Some(rounds)) => Ok(Schedule::Horizon { scale, rounds }),
            (Self::Horizon, None) => {
                let bound = "anytime or constant on a server and for a live stream, whose number \
                             of rounds is not known";
                Err(ConfigError::out_of_bounds(key, bound, "\"horizon\""))
            }
        }
    }
}

fn aggregation<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Aggregation, D::Error> {
    let bound = "mean, screened, median or trimmed-mean:SHARE (such as trimmed-mean:0.2)";
    String::deserialize(deserializer)?.parse().map_err(|_| D::Error::custom(bound))
}
