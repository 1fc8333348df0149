//! [`Ridges`]: regressions of the node's labels on the shared features, with several penalties.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::EXTRAS;
use crate::features::Features;
use crate::linear_algebra::dot;
use crate::math;
use crate::scaling::Rescaling;
use crate::simd::loops::{first_line, write_blocks};
use crate::simd::wide::{WIDE, WideLine};
use crate::simd::{self, Cpu};
use crate::state::is_count;

/// λ of each regression.
const PENALTIES: [f64; RIDGES] = [1e-4, 1e-2, 1.0, 100.0];

pub(super) const RIDGES: usize = 4;

/// Samples between two exact inversions, and the samples before which every one is followed by one.
const REFRESH: usize = 16;
const EARLY: u64 = 8;

/// The first regression uses one feature per so many samples, and some from the beginning; the
/// penalty of the others has this factor.
const SAMPLES_PER_FEATURE: u64 = 4;
const FEATURES_AHEAD: u64 = 8;
const UNUSED: f64 = 1e8;

/// The least scale of a feature, relative to the mean square of all.
const LEAST_SCALE: f64 = 1e-3;

/// The least scale of an extra input, relative to its mean square.
const LEAST_EXTRA_SCALE: f64 = 0.1;

/// An inverse that a sample changes by more than this factor is made anew.
const MAX_CHANGE: f64 = 1e10;

/// Four regressions of y on (z, e): z are features that the federation shares, e the extra inputs.
///
/// All have the sums A = Σ zz zzᵀ and b = Σ zz y in common. With Q = (A + λD)⁻¹ the one that is
/// shrunk towards the federation's model w says f + zzᵀQ(b − Aw), the one that is shrunk towards
/// zero says zzᵀQb. D has the variances of the features at this node, so that λ means the same
/// everywhere; the penalty of the constant is always one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Ridges {
    /// n of the shared features.
    features: usize,
    /// A, lower triangle row by row.
    gram: Vec<f64>,
    /// b, and Σ zz (y − f) with the predictions f as they were.
    moment: Vec<f64>,
    residuals: Vec<f64>,
    samples: u64,
    /// Q of every regression when it was last made anew, by blocks.
    inverses: [Vec<WideLine>; RIDGES],
    /// The vectors c of the samples since: Q is the inverse less Σ c cᵀ. How many of the
    /// [`REFRESH`] are in use.
    changes: [Vec<f64>; RIDGES],
    changed: usize,
    /// Whether the inverses belong to the sums.
    is_fresh: bool,
}

/// What is worked out of a sample.
#[derive(Debug, Clone, Default)]
pub(super) struct RidgeWork {
    /// zz, filled up with zeros.
    inputs: Vec<f64>,
    /// Q zz of every regression, as long.
    directions: [Vec<f64>; RIDGES],
    /// w over zz, and b − Aw.
    pub(super) model: Vec<f64>,
    towards_model: Vec<f64>,
    /// Scratch of inversions.
    columns: Vec<WideLine>,
}

/// How far the predictions of the regressions are from what they are shrunk to.
pub(super) struct Corrections {
    pub(super) of_global: [f64; RIDGES],
    pub(super) of_reference: [f64; RIDGES],
}

impl Ridges {
    pub(super) fn new(features: usize) -> Self {
        let len = features + EXTRAS;
        let whole = len.next_multiple_of(WIDE);
        let zeros = WideLine([0.0; WIDE]);
        Self {
            features,
            gram: vec![0.0; len * (len + 1) / 2],
            moment: vec![0.0; len],
            residuals: vec![0.0; len],
            samples: 0,
            inverses: core::array::from_fn(|_| vec![zeros; first_line(whole)]),
            changes: core::array::from_fn(|_| vec![0.0; REFRESH * whole]),
            changed: 0,
            is_fresh: false,
        }
    }

    /// Bytes of regressions on so many features and of what is worked out of a sample.
    pub(super) fn memory(features: usize) -> usize {
        let len = features + EXTRAS;
        let whole = len.next_multiple_of(WIDE);
        let lines = RIDGES * first_line(whole) + whole;
        let numbers = len * (len + 1) / 2 + 4 * len + (RIDGES * (REFRESH + 1) + 1) * whole;
        size_of::<WideLine>() * lines + size_of::<f64>() * numbers
    }

    pub(super) fn work(&self) -> RidgeWork {
        let (len, whole) = (self.len(), self.len().next_multiple_of(WIDE));
        RidgeWork {
            inputs: vec![0.0; whole],
            directions: core::array::from_fn(|_| vec![0.0; whole]),
            model: vec![0.0; len],
            towards_model: vec![0.0; len],
            columns: vec![WideLine([0.0; WIDE]); whole],
        }
    }

    /// Numbers that regressions start from, n and the extra inputs.
    fn len(&self) -> usize {
        self.features + EXTRAS
    }

    /// Shared features that it reads.
    pub(super) fn features(&self) -> usize {
        self.features
    }

    /// Corrections for a sample. `has_model` says whether the buffer has the federation's weights
    /// over the shared features, of labels less the reference; otherwise sums of residuals stand in
    /// for b − Aw. `variance` is that of the node's labels.
    pub(super) fn predict(
        &mut self,
        z: Features<'_>,
        extras: [f64; EXTRAS],
        variance: f64,
        has_model: bool,
        work: &mut RidgeWork,
    ) -> Corrections {
        let cpu = Cpu::detect();
        let is_due =
            self.samples < EARLY || self.samples.saturating_sub(1).is_multiple_of(REFRESH as u64);
        // Predictions without a label change nothing.
        if !self.is_fresh || is_due && self.changed > 0 {
            self.refresh(variance, work);
        }
        self.read(z, extras, work);
        let RidgeWork { inputs, directions, model, towards_model, .. } = work;
        let towards_model: &[f64] = if has_model {
            model[self.features..].fill(0.0);
            simd::multiply_symmetric(cpu, &self.gram, model, towards_model);
            for (sum, b) in towards_model.iter_mut().zip(&self.moment) {
                *sum = b - *sum;
            }
            towards_model
        } else {
            &self.residuals
        };
        let mut corrections = Corrections { of_global: [0.0; RIDGES], of_reference: [0.0; RIDGES] };
        for (ridge, direction) in directions.iter_mut().enumerate() {
            simd::multiply_blocks(cpu, &self.inverses[ridge], inputs, direction);
            let changes = &self.changes[ridge][..self.changed * inputs.len()];
            simd::subtract_squares(cpu, changes, inputs, direction);
            corrections.of_global[ridge] = dot(direction, towards_model);
            corrections.of_reference[ridge] = dot(direction, &self.moment);
        }
        corrections
    }

    /// Puts a sample into the buffer without a prediction of it.
    pub(super) fn read(&self, z: Features<'_>, extras: [f64; EXTRAS], work: &mut RidgeWork) {
        let (shared, own) = work.inputs.split_at_mut(self.features);
        shared.iter_mut().zip(z.numbers()).for_each(|(wide, z)| *wide = f64::from(*z));
        own[..EXTRAS].copy_from_slice(&extras);
    }

    /// Learns the label, less the reference, of the sample in the buffer. `residual` is what the
    /// federation's prediction lacked. If the sample was predicted, the inverses follow.
    pub(super) fn learn(&mut self, label: f64, residual: Option<f64>, work: &mut RidgeWork) {
        let (cpu, RidgeWork { inputs, directions, .. }) = (Cpu::detect(), work);
        let numbers = &inputs[..self.moment.len()];
        simd::add_gram(cpu, &mut self.gram, &mut self.moment, numbers, &[label]);
        self.samples += 1;
        let Some(residual) = residual else { return };
        for (sum, input) in self.residuals.iter_mut().zip(&*inputs) {
            *sum += input * residual;
        }
        self.is_fresh &= self.changed < REFRESH;
        for (changes, direction) in self.changes.iter_mut().zip(directions) {
            let change = 1.0 + dot(direction, inputs);
            self.is_fresh &= (1.0..MAX_CHANGE).contains(&change);
            if !self.is_fresh {
                return;
            }
            let root = math::sqrt(1.0 / change);
            let new = changes[self.changed * direction.len()..].iter_mut().zip(direction);
            new.for_each(|(new, direction)| *new = root * *direction);
        }
        self.changed += 1;
    }

    /// Makes D and all inverses anew.
    fn refresh(&mut self, variance: f64, work: &mut RidgeWork) {
        let (cpu, len, count) = (Cpu::detect(), self.len(), self.samples.max(1) as f64);
        let scales = &mut work.towards_model;
        let square = |gram: &[f64], i: usize| gram[i * (i + 1) / 2 + i] / count;
        let shared = 1..self.features;
        let squares: f64 = shared.clone().map(|i| square(&self.gram, i)).sum();
        let least = LEAST_SCALE * squares / shared.len().max(1) as f64 + 1e-12;
        for i in shared {
            let mean = self.gram[i * (i + 1) / 2] / count;
            scales[i] = (square(&self.gram, i) - mean * mean).max(least);
        }
        let extras = self.features..len;
        let squares: f64 = extras.clone().map(|i| square(&self.gram, i)).sum();
        scales[extras].fill(variance.max(LEAST_EXTRA_SCALE * squares / EXTRAS as f64));
        let used = ((self.samples + FEATURES_AHEAD) / SAMPLES_PER_FEATURE).max(1);
        let used = used.min(self.features as u64) as usize;
        self.is_fresh = true;
        self.changed = 0;
        for (ridge, inverse) in self.inverses.iter_mut().enumerate() {
            write_blocks(&self.gram, len, inverse);
            for i in 0..len {
                let is_unused = ridge == 0 && (used..self.features).contains(&i);
                let factor = if is_unused { UNUSED } else { 1.0 };
                let penalty = if i == 0 { 1.0 } else { PENALTIES[ridge] * factor * scales[i] };
                inverse[first_line(i) + i / WIDE].0[i % WIDE] += penalty;
            }
            if !simd::invert(cpu, inverse, &mut work.columns) {
                // Sums beyond reason: this regression has nothing to say until the next time.
                inverse.fill(WideLine([0.0; WIDE]));
            }
        }
    }

    /// Follows a change of scale. Sums over a dictionary's features become the best estimate of
    /// those over the new features; sums over other features start afresh.
    pub(super) fn rescale(&mut self, rescaling: &Rescaling) {
        let (features, gain) = (self.features, rescaling.gain());
        match rescaling.dictionary() {
            _ if !rescaling.changes_inputs() => {}
            None => {
                *self = Self::new(features);
                return;
            }
            Some(refit) => {
                self.is_fresh = false;
                let sums = refit.sums(features);
                let triangle = features * (features + 1) / 2;
                sums.gram(&mut self.gram[..triangle], self.samples as f64);
                sums.moment(&mut self.moment[..features]);
                sums.moment(&mut self.residuals[..features]);
                for extra in features..features + EXTRAS {
                    let row = extra * (extra + 1) / 2;
                    sums.moment(&mut self.gram[row..row + features]);
                }
            }
        }
        // Extra inputs are labels or errors.
        let factor = |i: usize| if i < features { 1.0 } else { gain };
        let len = self.len();
        for i in 0..len {
            self.moment[i] *= gain * factor(i);
            self.residuals[i] *= gain * factor(i);
            for j in 0..=i {
                self.gram[i * (i + 1) / 2 + j] *= factor(i) * factor(j);
            }
        }
        let whole = len.next_multiple_of(WIDE);
        for (inverse, changes) in self.inverses.iter_mut().zip(&mut self.changes) {
            for (at, change) in changes.iter_mut().enumerate() {
                *change /= factor(at % whole);
            }
            for i in 0..whole {
                let row = inverse[first_line(i)..][..=i / WIDE].iter_mut();
                for (j, entry) in row.flat_map(|line| &mut line.0).enumerate() {
                    *entry /= factor(i) * factor(j);
                }
            }
        }
    }

    /// Whether a saved state could have been reached with as many features.
    pub(super) fn is_sound(&self, features: usize) -> bool {
        let len = features + EXTRAS;
        let (entries, whole) = (len * (len + 1) / 2, len.next_multiple_of(WIDE));
        self.features == features
            && self.gram.len() == entries
            && self.inverses.iter().all(|inverse| inverse.len() == first_line(whole))
            && [&self.moment, &self.residuals].iter().all(|sums| sums.len() == len)
            && self.gram.iter().chain(&self.moment).chain(&self.residuals).all(super::is_sum)
            && self.changes.iter().all(|changes| changes.len() == REFRESH * whole)
            && self.changed <= REFRESH
            && self.inverses.iter().flatten().all(|line| line.0.iter().all(|q| q.is_finite()))
            && self.changes.iter().flatten().all(|entry| entry.is_finite())
            && (0..len).all(|i| self.gram[i * (i + 1) / 2 + i] >= 0.0)
            && is_count(self.samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_without_labels_invert_nothing() {
        let mut ridges = Ridges::new(3);
        let mut work = ridges.work();
        for time in 0..40 {
            let z = [1.0, (time % 7) as f32, (time % 5) as f32];
            let z = Features::checked(&z).unwrap();
            let mut predict = |ridges: &mut Ridges| {
                let work = &mut work;
                ridges.predict(z, [0.5; EXTRAS], 1.0, false, work).of_reference
            };
            let first = predict(&mut ridges);
            // What a second inversion would overwrite.
            let mut marked = ridges.clone();
            let line = WideLine([0.0; WIDE]);
            marked.inverses.iter_mut().for_each(|inverse| inverse.fill(line));
            assert_eq!(predict(&mut ridges), first);
            _ = predict(&mut marked);
            assert!(marked.inverses.iter().flatten().all(|inverse| *inverse == line), "{time}");
            ridges.learn(f64::from(time % 3), Some(0.1), &mut work);
        }
    }
}
