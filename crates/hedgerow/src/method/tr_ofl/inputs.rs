//! The inputs of the units, from a sample's features and back.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::super::gr_ofl::triangle;
use super::{MOST_INPUTS, Sizes};
use crate::features::{Dictionary, SampleMap};
use crate::limits::MAX_NUMBER;
use crate::math;

/// Standardised inputs beyond this size end there.
pub(super) const LARGEST_INPUT: f32 = 100.0;

/// Variances are at least this share of their mean where inputs are standardised.
const VARIANCE_FLOOR: f64 = 0.01;

/// m and s of x̃ = (x − m)/s.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Frame {
    pub(super) centre: Vec<f32>,
    pub(super) deviation: Vec<f32>,
}

impl Frame {
    /// Inputs as they are.
    pub(super) fn identity(inputs: usize) -> Self {
        Self { centre: vec![0.0; inputs], deviation: vec![1.0; inputs] }
    }

    /// Of the numbers of a broadcast.
    pub(super) fn from_numbers(numbers: &[f32]) -> Self {
        let (centre, deviation) = numbers.split_at(numbers.len() / 2);
        Self { centre: centre.to_vec(), deviation: deviation.to_vec() }
    }

    pub(super) fn standardise(&self, input: usize, x: f32) -> f32 {
        Self::limited((x - self.centre[input]) / self.deviation[input])
    }

    /// A standardised input within its bounds; what has no size counts as nothing.
    pub(super) fn limited(x: f32) -> f32 {
        if x.is_nan() { 0.0 } else { x.clamp(-LARGEST_INPUT, LARGEST_INPUT) }
    }

    pub(super) fn raw(&self, input: usize, standardised: f32) -> f32 {
        self.centre[input] + self.deviation[input] * standardised
    }

    /// Follows a change of scale, x = a·x' + c: standardised inputs stay as they are.
    pub(super) fn rescale(&mut self, axes: &[(f64, f64)]) {
        let numbers = self.centre.iter_mut().zip(&mut self.deviation);
        for ((centre, deviation), (a, c)) in numbers.zip(axes) {
            *centre = ((f64::from(*centre) - c) / a) as f32;
            *deviation = (f64::from(*deviation) / a) as f32;
        }
    }

    pub(super) fn is_sound(&self, inputs: usize) -> bool {
        self.centre.len() == inputs
            && self.deviation.len() == inputs
            && self.centre.iter().all(|number| number.abs() <= MAX_NUMBER)
            && self.deviation.iter().all(|number| *number > 0.0 && *number <= MAX_NUMBER)
    }
}

/// Mean and covariance of the inputs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Moments {
    pub(super) mean: Vec<f64>,
    /// Lower triangle row by row.
    pub(super) covariance: Vec<f64>,
}

impl Moments {
    /// How inputs with these moments are standardised.
    pub(super) fn frame(&self) -> Frame {
        let len = self.mean.len();
        let variance = |at: usize| self.covariance[triangle(at) + at].max(0.0);
        let mean = (0..len).map(variance).sum::<f64>() / len as f64;
        let deviation = |at: usize| math::sqrt(variance(at) + VARIANCE_FLOOR * mean + 1e-12) as f32;
        Frame {
            centre: self.mean.iter().map(|mean| *mean as f32).collect(),
            deviation: (0..len).map(deviation).collect(),
        }
    }

    /// Follows a change of scale, x = a·x' + c.
    pub(super) fn rescale(&mut self, axes: &[(f64, f64)]) {
        self.mean.iter_mut().zip(axes).for_each(|(mean, (a, c))| *mean = (*mean - c) / a);
        for (i, (a, _)) in axes.iter().enumerate() {
            let row = &mut self.covariance[triangle(i)..=triangle(i) + i];
            row.iter_mut().zip(axes).for_each(|(entry, (b, _))| *entry /= a * b);
        }
    }

    pub(super) fn is_sound(&self, inputs: usize) -> bool {
        self.mean.len() == inputs
            && self.covariance.len() == triangle(inputs)
            && self.mean.iter().chain(&self.covariance).all(|number| number.abs() <= 1e30)
    }
}

/// Whether units survive a change of scale: every input keeps its meaning and a reasonable size.
pub(super) fn can_be_rescaled(sizes: &Sizes, axes: &[(f64, f64)], gain: f64) -> bool {
    let is_factor = |factor: f64| (1e-6..=1e6).contains(&factor);
    let is_axis = |(a, c): &(f64, f64)| is_factor(*a) && c.abs() <= 1e6;
    !sizes.is_projected && is_factor(gain) && axes.iter().all(is_axis)
}

/// The dictionary of a method that needs the inputs again.
#[derive(Clone)]
pub(super) struct InputMap {
    map: Arc<SampleMap>,
    sizes: Sizes,
}

impl InputMap {
    pub(super) fn new(sizes: &Sizes, map: Arc<SampleMap>) -> Self {
        Self { map, sizes: *sizes }
    }

    fn dictionary(&self) -> &Dictionary {
        match &*self.map {
            SampleMap::Dictionary(dictionary) => dictionary,
            _ => unreachable!("the method's features are a dictionary"),
        }
    }

    /// Writes the inputs of the units, as they are in the scale.
    pub(super) fn inputs(&self, z: &[f32], x: &mut [f32]) {
        let dictionary = self.dictionary();
        if self.sizes.is_projected {
            let size = dictionary.linear_size();
            x.iter_mut().zip(&z[1..]).for_each(|(x, z)| *x = z / size);
        } else {
            dictionary.recover(z, x);
        }
    }

    /// Writes the features of a sample from the inputs of the units and the other features.
    pub(super) fn features(&self, x: &[f32], rest: impl Iterator<Item = f32>, z: &mut [f32]) {
        let dictionary = self.dictionary();
        if self.sizes.is_projected {
            let size = dictionary.linear_size();
            let (linear, others) = z.split_at_mut(1 + x.len());
            linear[0] = 1.0;
            linear[1..].iter_mut().zip(x).for_each(|(z, x)| *z = x * size);
            others.iter_mut().zip(rest).for_each(|(z, rest)| *z = rest);
        } else {
            dictionary.map_batch(x, z);
        }
    }

    /// Writes mean and covariance (lower triangle row by row) of the inputs, from the mean products
    /// of the constant and the linear features.
    pub(super) fn moments(&self, products: &[f64], moments: &mut Moments) {
        let (dictionary, len) = (self.dictionary(), self.sizes.inputs);
        let entry = |i: usize, j: usize| {
            let (row, column) = (i.max(j), i.min(j));
            products[row * (row + 1) / 2 + column]
        };
        let covariance =
            |i: usize, j: usize| entry(1 + i, 1 + j) - entry(1 + i, 0) * entry(1 + j, 0);
        let Moments { mean, covariance: out } = moments;
        mean.clear();
        out.clear();
        if self.sizes.is_projected {
            let size = f64::from(dictionary.linear_size());
            mean.extend((0..len).map(|at| entry(1 + at, 0) / size));
            let triangle = (0..len).flat_map(|i| (0..=i).map(move |j| (i, j)));
            out.extend(triangle.map(|(i, j)| covariance(i, j) / (size * size)));
            return;
        }
        let turn = |input: usize, k: usize| dictionary.recovery(input, k);
        mean.extend((0..len).map(|i| (0..len).map(|k| turn(i, k) * entry(1 + k, 0)).sum::<f64>()));
        let mut half = [0.0; MOST_INPUTS];
        for i in 0..len {
            for (l, half) in half[..len].iter_mut().enumerate() {
                *half = (0..len).map(|k| turn(i, k) * covariance(k, l)).sum();
            }
            out.extend((0..=i).map(|j| (0..len).map(|l| half[l] * turn(j, l)).sum::<f64>()));
        }
    }
}
