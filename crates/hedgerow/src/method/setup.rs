//! [`Setup`]: the numbers that a method computes with, checked.

use serde::{Deserialize, Serialize};

use super::{BadSample, MkOptions, PofOptions};
use crate::aggregation::Aggregation;
use crate::features::Features;
use crate::learning::Schedule;
use crate::learning::loss::{Loss, Objective};
use crate::learning::weights::WeightRule;
use crate::limits::MAX_LABEL;
use crate::math;
use crate::simd;

/// What both halves of a method must agree on, as it is written down.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetupConfig {
    /// Kernels in the dictionary, P.
    pub kernels: usize,
    /// Frequencies per kernel, D; a budget determines it.
    pub frequencies: usize,
    /// Nodes in the federation, K.
    pub nodes: usize,
    /// Numbers in a sample, d.
    #[serde(default = "one")]
    pub inputs: usize,
    /// Numbers that one upload may have, r; methods that send models of 2D numbers follow
    /// `frequencies` instead.
    #[serde(default = "hundred")]
    pub budget: usize,
    /// The loss.
    pub loss: Loss,
    /// λ.
    pub ridge: f64,
    /// η_l: the step of a model.
    pub step_size: Schedule,
    /// η_g / ln P: the rate of the weights, before the factor ln P.
    pub weight_rate: Schedule,
    /// How losses enter the weights.
    pub weight_rule: WeightRule,
    /// Seed of votes and selections.
    pub seed: u64,
    /// What the server makes of uploads.
    #[serde(default)]
    pub aggregation: Aggregation,
    /// Variants of MK-OFL.
    #[serde(default)]
    pub mk: MkOptions,
    /// Variants of POF-MKL.
    #[serde(default)]
    pub pof: PofOptions,
}

fn one() -> usize {
    1
}

fn hundred() -> usize {
    100
}

impl Default for SetupConfig {
    /// The paper's experiments: P = 11, r = 100, K = 20, λ = 0.01, anytime rates.
    fn default() -> Self {
        Self {
            kernels: 11,
            frequencies: 49,
            nodes: 20,
            inputs: one(),
            budget: hundred(),
            loss: Loss::Squared,
            ridge: 0.01,
            step_size: Schedule::Anytime { scale: 1.0 },
            weight_rate: Schedule::Anytime { scale: 1.0 },
            weight_rule: WeightRule::Incremental,
            seed: 1,
            aggregation: Aggregation::default(),
            mk: MkOptions::default(),
            pof: PofOptions::default(),
        }
    }
}

/// A configuration that has been checked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setup {
    config: SetupConfig,
    /// The kernel that a method with a single one uses, from 0.
    kernel: usize,
    /// ln P, which every weight rate has as a factor.
    log_kernels: f64,
}

/// Why a configuration makes no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SetupError {
    /// A count that must be positive.
    #[error("{what} must be at least 1, but is 0")]
    Zero {
        /// The name of the number.
        what: &'static str,
    },
    /// A number outside its bounds.
    #[error("{what} must be {bound}, but is {value}")]
    OutOfBounds {
        /// The name of the number.
        what: &'static str,
        /// Its bounds, in words.
        bound: &'static str,
        /// Its value.
        value: f64,
    },
}

impl TryFrom<SetupConfig> for Setup {
    type Error = SetupError;

    fn try_from(config: SetupConfig) -> Result<Self, SetupError> {
        for (what, count) in [
            ("the number of kernels", config.kernels),
            ("the number of frequencies", config.frequencies),
            ("the number of inputs", config.inputs),
            ("the budget", config.budget),
            ("the number of nodes", config.nodes),
            ("kernels_per_upload", config.pof.kernels_per_upload),
        ] {
            if count == 0 {
                return Err(SetupError::Zero { what });
            }
        }
        let check = |what, value: f64, bound, holds: bool| {
            // NaN fails every comparison, and so the check.
            if holds { Ok(()) } else { Err(SetupError::OutOfBounds { what, bound, value }) }
        };
        let ridge = config.ridge;
        check("ridge (λ)", ridge, "between 0 and 1000", (0.0..=1000.0).contains(&ridge))?;
        if let Loss::Huber { delta } = config.loss {
            let holds = delta > 0.0 && delta.is_finite();
            check("huber_delta", delta, "a positive number", holds)?;
        }
        for (what, schedule) in
            [("step_size", config.step_size), ("weight_rate", config.weight_rate)]
        {
            let scale = schedule.scale();
            let holds = scale > 0.0 && scale <= 1000.0;
            check(what, scale, "positive and at most 1000", holds)?;
        }
        let shrink = config.step_size.rate(1) * ridge;
        check(
            "step_size times ridge",
            shrink,
            "at most 1, or models grow without bound",
            shrink <= 1.0,
        )?;
        if let Aggregation::TrimmedMean { share } = config.aggregation {
            let holds = share > 0.0 && share < 0.5;
            check("the share of a trimmed mean", share, "above 0 and below 0.5", holds)?;
        }
        let chosen = config.pof.kernels_per_upload;
        check(
            "kernels_per_upload",
            chosen as f64,
            "at most the number of kernels",
            chosen <= config.kernels,
        )?;
        let exploration = config.pof.exploration;
        check(
            "exploration (ξ)",
            exploration,
            "between 0 and 1",
            (0.0..=1.0).contains(&exploration),
        )?;
        Ok(Self { config, kernel: 0, log_kernels: math::ln(config.kernels as f64) })
    }
}

impl Setup {
    /// The same numbers for a method with a single kernel.
    ///
    /// # Panics
    /// If there is no such kernel.
    pub fn with_kernel(self, kernel: usize) -> Self {
        assert!(kernel < self.kernels(), "kernel {kernel} of {}", self.kernels());
        Self { kernel, ..self }
    }

    /// What was checked.
    pub fn config(&self) -> &SetupConfig {
        &self.config
    }

    /// Kernels in the dictionary, P.
    pub fn kernels(&self) -> usize {
        self.config.kernels
    }

    /// The kernel that a method with a single one uses, from 0.
    pub fn kernel(&self) -> usize {
        self.kernel
    }

    /// Length of a kernel's model: 2D.
    pub fn model_len(&self) -> usize {
        2 * self.config.frequencies
    }

    /// Length of the features of all kernels: P·2D.
    pub fn width(&self) -> usize {
        self.kernels() * self.model_len()
    }

    /// Length of a linear model, and of its z = (1, x): d + 1.
    pub fn linear_len(&self) -> usize {
        self.config.inputs + 1
    }

    /// The objective that models descend on.
    pub fn objective(&self) -> Objective {
        Objective { loss: self.config.loss, ridge: self.config.ridge }
    }

    /// Refuses labels that the loss can't learn from.
    pub fn check_label(&self, y: f32) -> Result<(), BadSample> {
        check_label(self.config.loss, y)
    }

    /// η_l in a step, counted from 1.
    pub fn step_size(&self, step: u64) -> f64 {
        self.config.step_size.rate(step)
    }

    /// η_g in a step, counted from 1.
    pub fn weight_rate(&self, step: u64) -> f64 {
        self.config.weight_rate.rate(step) * self.log_kernels
    }
}

/// Refuses labels that a loss can't learn from.
pub(super) fn check_label(loss: Loss, y: f32) -> Result<(), BadSample> {
    if !simd::is_within(y, MAX_LABEL) {
        return Err(BadSample::Label { label: y });
    }
    if loss == Loss::Logistic && y.abs() != 1.0 {
        return Err(BadSample::NotASign { label: y });
    }
    Ok(())
}

/// Refuses features of a sample that are more or fewer than expected.
pub(super) fn check_width(z: Features<'_>, expected: usize) -> Result<(), BadSample> {
    let found = z.numbers().len();
    if found == expected { Ok(()) } else { Err(BadSample::Width { expected, found }) }
}
