//! [`Setup`]: the numbers that a method computes with.

use core::ops::Range;

use serde::{Deserialize, Serialize};

use super::{BadSample, MkOptions, PofOptions};
use crate::aggregation::Aggregation;
use crate::features::Features;
use crate::learning::Schedule;
use crate::learning::loss::{Loss, Objective};
use crate::learning::weights::WeightRule;
use crate::limits::{DEFAULT_MEMORY, MAX_LABEL};
use crate::math;
use crate::simd;

/// The numbers of a plan that both halves of its method compute with. Only a [`crate::Plan`] makes
/// one, after its checks: see [`crate::Plan::setup`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setup {
    numbers: Numbers,
    /// The kernel that a method with a single one uses, from 0.
    kernel: usize,
    /// ln P, which every weight rate has as a factor.
    log_kernels: f64,
    /// Labels of more than this size aren't learned.
    label_limit: f32,
}

/// The numbers as stored plans have them. [`crate::PlanConfig`] says what they mean.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Numbers {
    pub(crate) kernels: usize,
    pub(crate) frequencies: usize,
    pub(crate) nodes: usize,
    #[serde(default = "one")]
    pub(crate) inputs: usize,
    #[serde(default = "hundred")]
    pub(crate) budget: usize,
    pub(crate) loss: Loss,
    pub(crate) ridge: f64,
    pub(crate) step_size: Schedule,
    pub(crate) weight_rate: Schedule,
    pub(crate) weight_rule: WeightRule,
    pub(crate) seed: u64,
    #[serde(default)]
    pub(crate) aggregation: Aggregation,
    #[serde(default = "default_memory", skip_serializing_if = "is_default_memory")]
    pub(crate) memory: usize,
    #[serde(default)]
    pub(crate) mk: MkOptions,
    #[serde(default)]
    pub(crate) pof: PofOptions,
}

fn one() -> usize {
    1
}

fn hundred() -> usize {
    100
}

fn default_memory() -> usize {
    DEFAULT_MEMORY
}

fn is_default_memory(memory: &usize) -> bool {
    *memory == DEFAULT_MEMORY
}

impl Setup {
    /// Numbers that were checked, and the kernel of a method with a single one.
    pub(crate) fn new(numbers: Numbers, kernel: usize) -> Self {
        let log_kernels = math::ln(numbers.kernels as f64);
        Self { numbers, kernel, log_kernels, label_limit: f32::INFINITY }
    }

    /// Labels of more than this size aren't learned.
    pub(crate) fn with_label_limit(self, label_limit: f32) -> Self {
        Self { label_limit, ..self }
    }

    /// Labels of more than this size aren't learned: see
    /// [`crate::scaling::NodeScaling::scale_label`].
    pub(crate) fn label_limit(&self) -> f32 {
        self.label_limit
    }

    /// Kernels in the dictionary, P.
    pub fn kernels(&self) -> usize {
        self.numbers.kernels
    }

    /// The kernel that a method with a single one uses, from 0.
    pub fn kernel(&self) -> usize {
        self.kernel
    }

    /// Nodes in the federation, K.
    pub fn nodes(&self) -> usize {
        self.numbers.nodes
    }

    /// Numbers in a sample, d.
    pub fn inputs(&self) -> usize {
        self.numbers.inputs
    }

    /// Numbers that one upload may have, r. Methods that send models follow [`Setup::model_len`]
    /// instead.
    pub fn budget(&self) -> usize {
        self.numbers.budget
    }

    /// Length of a kernel's model: 2D.
    pub fn model_len(&self) -> usize {
        2 * self.numbers.frequencies
    }

    /// Length of the features of all kernels: P·2D.
    pub fn width(&self) -> usize {
        self.kernels() * self.model_len()
    }

    /// Where the features of a kernel are among those of all.
    pub fn kernel_range(&self, kernel: usize) -> Range<usize> {
        kernel * self.model_len()..(kernel + 1) * self.model_len()
    }

    /// Length of a linear model, and of its z = (1, x): d + 1.
    pub fn linear_len(&self) -> usize {
        self.inputs() + 1
    }

    /// The objective that models descend on.
    pub fn objective(&self) -> Objective {
        Objective { loss: self.numbers.loss, ridge: self.numbers.ridge }
    }

    /// Refuses labels that the loss can't learn from.
    pub fn check_label(&self, y: f32) -> Result<(), BadSample> {
        check_label(self.numbers.loss, y)
    }

    /// η_l in a step, counted from 1.
    pub fn step_size(&self, step: u64) -> f64 {
        self.numbers.step_size.rate(step)
    }

    /// The constant of the step size, whatever its schedule.
    pub fn step_scale(&self) -> f64 {
        self.numbers.step_size.scale()
    }

    /// η_g in a step, counted from 1.
    pub fn weight_rate(&self, step: u64) -> f64 {
        self.base_weight_rate(step) * self.log_kernels
    }

    /// η_g / ln P in a step, counted from 1, for weights of other things than kernels.
    pub fn base_weight_rate(&self, step: u64) -> f64 {
        self.numbers.weight_rate.rate(step)
    }

    /// How losses enter the weights.
    pub fn weight_rule(&self) -> WeightRule {
        self.numbers.weight_rule
    }

    /// Seed of votes and selections.
    pub fn seed(&self) -> u64 {
        self.numbers.seed
    }

    /// What the server makes of uploads.
    pub fn aggregation(&self) -> Aggregation {
        self.numbers.aggregation
    }

    /// Bytes for the samples that a node keeps for itself; 0 for none.
    pub fn memory(&self) -> usize {
        self.numbers.memory
    }

    /// Variants of MK-OFL.
    pub fn mk(&self) -> MkOptions {
        self.numbers.mk
    }

    /// Variants of POF-MKL.
    pub fn pof(&self) -> PofOptions {
        self.numbers.pof
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
