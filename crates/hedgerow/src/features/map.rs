//! [`SampleMap`]: what turns samples into the features that a method learns from.

use crate::executor::Executor;
use crate::features::dictionary::Dictionary;
use crate::features::{FeatureMap, Features};

/// Tasks that a batch is divided into.
const TASKS: usize = 16;

/// Fewer features aren't divided.
const MIN_PARALLEL_FEATURES: usize = 1 << 16;

/// The samples of a task are a multiple of this number, except in the last task.
const SAMPLES_MULTIPLE: usize = 8;

/// The features of a method; [`crate::Plan::map`] makes the right one.
#[derive(Debug, Clone)]
pub enum SampleMap {
    /// Sines and cosines, kernel by kernel.
    Kernels(FeatureMap),
    /// A dictionary that a model grows into.
    Dictionary(Dictionary),
    /// A constant and the sample itself, d numbers.
    Inputs(usize),
}

impl SampleMap {
    /// Length of z.
    pub fn width(&self) -> usize {
        match self {
            Self::Kernels(map) => map.width(),
            Self::Dictionary(map) => map.width(),
            Self::Inputs(inputs) => inputs + 1,
        }
    }

    /// Numbers per sample, d.
    pub fn inputs(&self) -> usize {
        match self {
            Self::Kernels(map) => map.inputs(),
            Self::Dictionary(map) => map.inputs(),
            Self::Inputs(inputs) => *inputs,
        }
    }

    /// Writes z of several samples, one after the other, with the same bits as of each alone. Never
    /// allocates.
    ///
    /// # Panics
    /// If `x` isn't whole samples or `z` doesn't have their length.
    pub fn map_batch<'z>(&self, x: &[f32], z: &'z mut [f32]) -> Features<'z> {
        let inputs = match self {
            Self::Kernels(map) => return map.map_batch(x, z),
            Self::Dictionary(map) => return map.map_batch(x, z),
            Self::Inputs(inputs) => *inputs,
        };
        assert_eq!(x.len() % inputs, 0, "whole samples");
        assert_eq!(z.len(), x.len() / inputs * (inputs + 1), "length of z");
        for (x, z) in x.chunks_exact(inputs).zip(z.chunks_exact_mut(inputs + 1)) {
            z[0] = 1.0;
            for (z, x) in z[1..].iter_mut().zip(x) {
                // What isn't a number has no size that could be told.
                *z = if x.is_nan() { 0.0 } else { x.clamp(-Features::LIMIT, Features::LIMIT) };
            }
        }
        Features::made(z)
    }

    /// The same, divided among workers.
    ///
    /// # Panics
    /// If `x` isn't whole samples or `z` doesn't have their length.
    pub fn map_together<'z>(
        &self,
        x: &[f32],
        z: &'z mut [f32],
        workers: &impl Executor,
    ) -> Features<'z> {
        let (inputs, width) = (self.inputs(), self.width());
        let samples = x.len() / inputs;
        if samples < 2 || z.len() < MIN_PARALLEL_FEATURES {
            return self.map_batch(x, z);
        }
        assert_eq!(x.len() % inputs, 0, "whole samples");
        assert_eq!(z.len(), samples * width, "length of z");
        let each = samples.div_ceil(TASKS).next_multiple_of(SAMPLES_MULTIPLE);
        let mut chunks = x.chunks(each * inputs).zip(z.chunks_mut(each * width));
        let mut tasks: [_; TASKS] = core::array::from_fn(|_| chunks.next());
        workers.each(&mut tasks, |task| {
            if let Some((x, z)) = task.take() {
                self.map_batch(x, z);
            }
        });
        Features::made(z)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_features_themselves() {
        let mut z = [0.0; 6];
        let z = SampleMap::Inputs(2).map_batch(&[0.5, -99.0, f32::NAN, f32::INFINITY], &mut z);
        assert_eq!(z.numbers(), [1.0, 0.5, -32.0, 1.0, 0.0, 32.0]);
    }
}
