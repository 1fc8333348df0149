//! [`Omkl`]: online multi-kernel learning in one place, sample by sample or in batches. A node that
//! learns alone uses it. With the samples of all nodes it is the paper's performance limit.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::rows::{Models, descend};
use super::setup::{check_label, check_width};
use super::{BadSample, Setup};
use crate::features::Features;
use crate::learning::weights::Mixture;
use crate::scaling::Rescaling;
use crate::state::is_count;

/// P models, their weights, and the number of samples seen.
#[derive(Debug, Clone)]
pub struct Omkl {
    setup: Setup,
    pub(crate) state: OmklState,
    /// Objective of each kernel's model on the current sample; scratch.
    losses: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OmklState {
    /// Steps so far, t.
    steps: u64,
    models: Models,
    mixture: Mixture,
}

impl Omkl {
    /// Knows nothing yet.
    pub fn new(setup: &Setup) -> Self {
        let kernels = setup.kernels();
        Self {
            setup: *setup,
            state: OmklState {
                steps: 0,
                models: Models::zero(kernels, setup.model_len()),
                mixture: Mixture::new(setup.weight_rule(), kernels),
            },
            losses: vec![0.0; kernels],
        }
    }

    /// Σ_p q_p·w_pᵀz_p.
    pub fn predict(&self, z: Features<'_>) -> f32 {
        assert_eq!(z.numbers().len(), self.setup.width(), "features of another dictionary");
        self.state.models.predict_mixture(self.weights(), z)
    }

    /// One step on every model, then on the weights; t is the number of samples.
    pub fn learn(&mut self, z: Features<'_>, y: f32) -> Result<(), BadSample> {
        check_label(self.setup.objective().loss, y)?;
        check_width(z, self.setup.width())?;
        self.step(z, y);
        Ok(())
    }

    /// The same for a sample that has been checked.
    pub(super) fn step(&mut self, z: Features<'_>, y: f32) {
        let state = &mut self.state;
        let rate = self.setup.step_size(state.steps + 1);
        descend(&self.setup, rate, &mut state.models, z, y, &mut self.losses);
        state.steps += 1;
        let rate = self.setup.weight_rate(state.steps);
        state.mixture.charge(rate, self.losses.iter().copied());
    }

    /// One step on every model along the mean gradient of several samples, then on the weights for
    /// the sum of their losses; t is the number of such steps. Refuses bad samples before anything
    /// has changed; no samples change nothing.
    pub fn learn_batch(&mut self, z: Features<'_>, y: &[f32]) -> Result<(), BadSample> {
        let (width, len) = (self.setup.width(), self.setup.model_len());
        check_width(z, y.len() * width)?;
        y.iter().try_for_each(|label| check_label(self.setup.objective().loss, *label))?;
        if y.is_empty() {
            return Ok(());
        }
        let state = &mut self.state;
        let step_size = self.setup.step_size(state.steps + 1);
        let mut stepped = state.models.clone();
        let mut sum = vec![0.0; width];
        let mut totals = vec![0.0; self.losses.len()];
        for (z, &label) in z.samples(width).zip(y) {
            // Each sample's own step from the same models; their mean is the step along the mean
            // gradient.
            stepped.clone_from(&state.models);
            descend(&self.setup, step_size, &mut stepped, z, label, &mut self.losses);
            for kernel in 0..totals.len() {
                totals[kernel] += self.losses[kernel];
                stepped.add_row_to(kernel, &mut sum[kernel * len..(kernel + 1) * len]);
            }
        }
        let mean: Vec<f32> = sum.iter().map(|sum: &f64| (sum / y.len() as f64) as f32).collect();
        state.models.set(0, &mean);
        state.steps += 1;
        state.mixture.charge(self.setup.weight_rate(state.steps), totals);
        Ok(())
    }

    /// Moves all models from the scale that they were learned in to another.
    ///
    /// # Panics
    /// If the rescaling was made for another dictionary.
    pub fn rescale(&mut self, rescaling: &Rescaling) {
        self.state.models.rescale_all(rescaling);
        self.state.mixture.in_other_units(rescaling.loss_factor());
    }

    /// How much each kernel has in the prediction; sums to one.
    pub fn weights(&self) -> &[f64] {
        self.state.mixture.parts()
    }

    /// Σ_p q_p·‖w_p‖², for the ridge term of the regret.
    pub fn norm2(&self) -> f64 {
        self.state.models.norm2_mixture(self.weights())
    }

    pub(crate) fn is_sound(setup: &Setup, state: &OmklState) -> bool {
        let kernels = setup.kernels();
        state.models.is_sound(kernels, setup.model_len())
            && state.mixture.is_sound(setup.weight_rule(), kernels)
            && is_count(state.steps)
    }
}
