//! [`Dictionary`]: the ordered features that GR-OFL grows into.
//!
//! A constant; q linear features (3/√d)·Lᵀx along random orthonormal directions L; then
//! 0.2·cos(vᵀx + φ) with v from the spectral law of one kernel after the other, from the middle of
//! the dictionary outwards. The order matters: a model begins with the first few and takes in more
//! as it can afford them. Like frequencies, all of it follows from a seed and never travels.

use alloc::vec::Vec;
use core::f64::consts::FRAC_2_PI;

use crate::features::kernel::Kernel;
use crate::features::{FeatureError, FeatureSpec, Features, check, orthonormal_rows};
use crate::limits::MAX_DICTIONARY;
use crate::linear_algebra::dot;
use crate::math;
use crate::random::{CounterRng, Purpose};
use crate::simd::loops::COSINE_SIZE;
use crate::simd::vector::{LANES, Line};
use crate::simd::{self, Cpu};

/// Size of the linear features, times √d.
const LINEAR_SIZE: f64 = 3.0;

/// The constant, projections and cosines, in this order.
#[derive(Debug, Clone, PartialEq)]
pub struct Dictionary {
    /// Row after row in panels of [`LANES`], each panel input by input; the constant's row is zero,
    /// angles are in quarter turns.
    panels: Vec<Line>,
    /// φ of the cosines in quarter turns, zero elsewhere, panel by panel.
    phases: Vec<Line>,
    inputs: usize,
    /// q.
    linear: usize,
    width: usize,
}

impl Dictionary {
    /// Draws a dictionary of `width` features, at most `most_linear` of them linear. Of the spec,
    /// the number of frequencies per kernel, the amplitude and the way they are drawn don't matter.
    pub fn new(spec: &FeatureSpec, width: usize, most_linear: usize) -> Result<Self, FeatureError> {
        check(&FeatureSpec {
            frequencies: width,
            draw: crate::features::Draw::Independent,
            ..spec.clone()
        })?;
        let inputs = spec.inputs;
        let linear = inputs.min(most_linear).min(width - 1);
        let stream = |owner| CounterRng::from_seed(spec.seed).derive(Purpose::Dictionary, owner);
        let mut directions = vec![0.0; linear * inputs];
        orthonormal_rows(inputs, &mut directions, &mut stream(0).generator());
        let size = LINEAR_SIZE / math::sqrt(inputs as f64);
        directions.iter_mut().for_each(|value| *value *= size);
        let mut rng = stream(1).generator();
        let (mut frequencies, mut phases) = (Vec::new(), Vec::new());
        let order = from_the_middle(spec.kernels.len());
        for at in 0..width - 1 - linear {
            let Kernel { family, variance } = spec.kernels[order[at % order.len()]];
            let mut row = vec![0.0; inputs];
            family.draw_frequency(&mut rng, &mut row);
            frequencies.extend(row.iter().map(|value| value / math::sqrt(variance)));
            phases.push(stream(2).uniform_at(at as u64) * core::f64::consts::TAU);
        }
        Ok(Self::assemble(&directions, &frequencies, &phases, inputs))
    }

    /// A dictionary with given linear features and cosines: d numbers each, and a phase in radians
    /// for each cosine.
    ///
    /// # Panics
    /// If there are no inputs, or rows aren't whole, or phases and cosines differ in number.
    pub fn assemble(linear: &[f64], frequencies: &[f64], phases: &[f64], inputs: usize) -> Self {
        assert!(inputs > 0 && linear.len().is_multiple_of(inputs), "whole rows");
        assert_eq!(frequencies.len(), phases.len() * inputs, "a phase for each cosine");
        let (linear_count, width) =
            (linear.len() / inputs, 1 + linear.len() / inputs + phases.len());
        let lines = width.div_ceil(LANES);
        let mut map = Self {
            panels: vec![Line([0.0; LANES]); lines * inputs],
            phases: vec![Line([0.0; LANES]); lines],
            inputs,
            linear: linear_count,
            width,
        };
        let quarters = frequencies.iter().map(|value| value * FRAC_2_PI);
        let rows: Vec<f64> = linear.iter().copied().chain(quarters).collect();
        for (row, numbers) in rows.chunks_exact(inputs).enumerate() {
            let (panel, lane) = ((row + 1) / LANES, (row + 1) % LANES);
            for (input, number) in numbers.iter().enumerate() {
                map.panels[panel * inputs + input].0[lane] = *number as f32;
            }
        }
        for (cosine, phase) in phases.iter().enumerate() {
            let row = 1 + linear_count + cosine;
            map.phases[row / LANES].0[row % LANES] = (phase * FRAC_2_PI) as f32;
        }
        map
    }

    /// Length of z.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Numbers per sample, d.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Writes z of several samples, one after the other. Never allocates. A number that isn't
    /// finite counts as nothing.
    ///
    /// # Panics
    /// If `x` isn't whole samples or `z` doesn't have their length.
    pub fn map_batch<'z>(&self, x: &[f32], z: &'z mut [f32]) -> Features<'z> {
        assert_eq!(x.len() % self.inputs, 0, "whole samples");
        assert_eq!(z.len(), x.len() / self.inputs * self.width, "length of z");
        for (x, z) in x.chunks_exact(self.inputs).zip(z.chunks_exact_mut(self.width)) {
            simd::map_dictionary(Cpu::detect(), &self.panels, &self.phases, self.linear, x, z);
        }
        Features::made(z)
    }

    /// Size of the linear features: z = size·Lᵀx.
    pub(crate) fn linear_size(&self) -> f32 {
        (LINEAR_SIZE / math::sqrt(self.inputs as f64)) as f32
    }

    /// Writes the inputs of a sample from its linear features. There must be as many of those as
    /// inputs, so that L is a rotation.
    pub(crate) fn recover(&self, z: &[f32], x: &mut [f32]) {
        let size = self.linear_size();
        let mut lines = [Line([0.0; LANES]); MAX_DICTIONARY / LANES];
        let lines = &mut lines[..(1 + self.linear).div_ceil(LANES)];
        let linear = z[..=self.linear].chunks(LANES);
        lines.iter_mut().zip(linear).for_each(|(line, z)| line.0[..z.len()].copy_from_slice(z));
        for (input, x) in x.iter_mut().enumerate() {
            let panels = self.panels.chunks_exact(self.inputs).map(|panel| &panel[input].0);
            // The constant's row is zero, and so is what stands for cosines.
            let sum: f32 = panels.zip(&*lines).map(|(row, z)| simd::dot_line(row, &z.0)).sum();
            *x = sum / (size * size);
        }
    }

    /// What [`Dictionary::recover`] multiplies the k-th linear feature with for an input.
    pub(crate) fn recovery(&self, input: usize, k: usize) -> f64 {
        let (panel, lane) = ((k + 1) / LANES, (k + 1) % LANES);
        let size = LINEAR_SIZE / math::sqrt(self.inputs as f64);
        f64::from(self.panels[panel * self.inputs + input].0[lane]) / (size * size)
    }

    /// Each feature as a function of g where x = `centre` + `spread`·g, input by input.
    pub(crate) fn around<'a>(
        &'a self,
        centre: &'a [f64],
        spread: &'a [f64],
    ) -> impl Iterator<Item = Feature> + use<'a> {
        (0..self.width).map(move |row| {
            let (panel, lane) = (row / LANES, row % LANES);
            let number = |input: usize| f64::from(self.panels[panel * self.inputs + input].0[lane]);
            let is_cosine = row > self.linear;
            let unit = if is_cosine { core::f64::consts::FRAC_PI_2 } else { 1.0 };
            let at: f64 = (0..self.inputs).map(|input| number(input) * centre[input]).sum();
            let at = at + f64::from(self.phases[panel].0[lane]);
            let along =
                (0..self.inputs).map(|input| unit * number(input) * spread[input]).collect();
            match row {
                0 => Feature::new(is_cosine, 1.0, along),
                _ if is_cosine => Feature::new(is_cosine, at % 4.0 * unit, along),
                _ => Feature::new(is_cosine, at, along),
            }
        })
    }
}

/// `at` + `along`·g, or 0.2·cos of it.
pub(crate) struct Feature {
    is_cosine: bool,
    at: f64,
    along: Vec<f64>,
    /// ‖along‖².
    square: f64,
}

impl Feature {
    fn new(is_cosine: bool, at: f64, along: Vec<f64>) -> Self {
        let square = dot(&along, &along);
        Self { is_cosine, at, along, square }
    }

    /// E[f·h] over normal g.
    pub(crate) fn mean_product(&self, other: &Self) -> f64 {
        let fade = |length2: f64| if length2 < 1400.0 { math::exp(-0.5 * length2) } else { 0.0 };
        let size = f64::from(COSINE_SIZE);
        let along = dot(&self.along, &other.along);
        match (self.is_cosine, other.is_cosine) {
            (false, false) => self.at * other.at + along,
            (true, false) => other.mean_product(self),
            (false, true) => {
                let faded = size * fade(other.square);
                if faded == 0.0 {
                    0.0
                } else {
                    faded * (self.at * math::cos(other.at) - along * math::sin(other.at))
                }
            }
            (true, true) => {
                let lengths = self.square + other.square;
                let minus = fade((lengths - 2.0 * along).max(0.0)) * math::cos(self.at - other.at);
                let plus = fade((lengths + 2.0 * along).max(0.0)) * math::cos(self.at + other.at);
                0.5 * size * size * (minus + plus)
            }
        }
    }
}

/// Positions from the middle outwards: of five 2, 3, 1, 4, 0.
fn from_the_middle(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let middle = count / 2;
    order.sort_by_key(|at| 2 * at.abs_diff(middle) - usize::from(*at > middle));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(inputs: usize) -> FeatureSpec {
        let (draw, amplitude) =
            (crate::features::Draw::Shared, crate::features::Amplitude::Normalised);
        FeatureSpec {
            kernels: Kernel::paper_dictionary(),
            draw,
            inputs,
            frequencies: 1,
            seed: 3,
            amplitude,
        }
    }

    #[test]
    fn the_middle_comes_first() {
        assert_eq!(from_the_middle(11), [5, 6, 4, 7, 3, 8, 2, 9, 1, 10, 0]);
        assert_eq!((from_the_middle(1), from_the_middle(2)), (vec![0], vec![1, 0]));
    }

    #[test]
    fn features_are_what_they_are_said_to_be() {
        let (linear, frequencies, phases) = ([0.5, -2.0], [3.0, 1.0, 0.1, -9.0], [0.4, 2.0]);
        let map = Dictionary::assemble(&linear, &frequencies, &phases, 2);
        let x = [0.7f32, -0.2];
        let mut z = [0.0; 4];
        map.map_batch(&x, &mut z);
        let cosine = |at: usize| {
            let angle = frequencies[2 * at] * 0.7 - frequencies[2 * at + 1] * 0.2 + phases[at];
            0.2 * f64::cos(angle)
        };
        for (found, expected) in z.iter().zip([1.0, 0.35 + 0.4, cosine(0), cosine(1)]) {
            assert!((f64::from(*found) - expected).abs() < 1e-6, "{z:?}");
        }
    }

    #[test]
    fn one_sample_or_many_on_any_processor_has_the_same_features() {
        for inputs in [1, 5, 48, 100] {
            let map = Dictionary::new(&spec(inputs), 80, 48).unwrap();
            let stream = CounterRng::from_seed(1);
            let x: Vec<f32> =
                (0..7 * inputs as u64).map(|at| stream.uniform_at(at) as f32 * 3.0).collect();
            let (mut many, mut one) = (vec![0.0; 7 * 80], vec![0.0; 80]);
            map.map_batch(&x, &mut many);
            for (x, many) in x.chunks_exact(inputs).zip(many.chunks_exact(80)) {
                map.map_batch(x, &mut one);
                assert_eq!(one, many);
                for cpu in [Cpu::Plain, Cpu::Avx2] {
                    simd::map_dictionary(cpu, &map.panels, &map.phases, map.linear, x, &mut one);
                    assert_eq!(one, many);
                }
            }
        }
    }

    #[test]
    fn inputs_are_recovered_from_linear_features() {
        for inputs in [1, 2, 15, 16, 40] {
            let map = Dictionary::new(&spec(inputs), 80, 48).unwrap();
            let stream = CounterRng::from_seed(4);
            let x: Vec<f32> = (0..inputs as u64).map(|at| stream.uniform_at(at) as f32).collect();
            let (mut z, mut found) = (vec![0.0; 80], vec![0.0; inputs]);
            map.map_batch(&x, &mut z);
            map.recover(&z, &mut found);
            for (input, (x, found)) in x.iter().zip(&found).enumerate() {
                assert!((x - found).abs() < 1e-5, "{inputs}: {x} {found}");
                let terms = (0..inputs).map(|k| map.recovery(input, k) * f64::from(z[1 + k]));
                let sum: f64 = terms.sum();
                assert!((sum - f64::from(*x)).abs() < 1e-5, "{inputs}: {x} {sum}");
            }
        }
    }

    #[test]
    fn whatever_comes_features_are_bounded() {
        let map = Dictionary::new(&spec(3), 20, 48).unwrap();
        let mut z = vec![0.0; 20];
        for wild in [0.0, 1e9, -3e38, f32::INFINITY, f32::NAN] {
            let z = map.map_batch(&[wild, 1.0, -wild], &mut z);
            assert!(Features::checked(z.numbers()).is_ok(), "{wild}: {z:?}");
        }
    }

    #[test]
    fn mean_products_are_the_means_of_products() {
        let map = Dictionary::new(&spec(2), 9, 1).unwrap();
        let (centre, spread) = ([0.3, -0.4], [0.5, 0.2]);
        let features: Vec<Feature> = map.around(&centre, &spread).collect();
        let mut rng = CounterRng::from_seed(1).generator();
        let (count, mut sums) = (100_000, vec![0.0; 81]);
        let mut z = [0.0; 9];
        for _ in 0..count {
            let g: [f64; 2] = core::array::from_fn(|_| crate::random::normal(&mut rng));
            let x: [f32; 2] =
                core::array::from_fn(|input| (centre[input] + spread[input] * g[input]) as f32);
            map.map_batch(&x, &mut z);
            for (at, sum) in sums.iter_mut().enumerate() {
                *sum += f64::from(z[at / 9] * z[at % 9]);
            }
        }
        for (at, sum) in sums.iter().enumerate() {
            let expected = features[at / 9].mean_product(&features[at % 9]);
            // Products are about ten at most: four deviations of their mean.
            assert!(
                (sum / f64::from(count) - expected).abs() < 40.0 / f64::from(count).sqrt(),
                "{at}"
            );
        }
    }
}
