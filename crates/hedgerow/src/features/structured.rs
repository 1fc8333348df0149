//! Structured frequencies: rows of products of signs and Walsh-Hadamard matrices, which are applied
//! in O(d log d) instead of O(D·d).
//!
//! Inputs are padded to n, a power of two. n frequencies at a time are S·H·D₃·H·D₂·H·D₁: signs D,
//! orthogonal transforms H, and lengths S that have the law of independent frequencies. Where fewer
//! are wanted, all after D₂ is as small as they need: what lies a whole number of small transforms
//! apart is added up first, which is what the rows that are kept would do anyway.

use alloc::vec::Vec;
use core::f64::consts::FRAC_2_PI;

use rand_chacha::rand_core::Rng;

use crate::features::kernel::Family;
use crate::math;
use crate::random::chi_squared;
use crate::simd::loops::{Block, Projection, TILE};
use crate::simd::vector::{LANES, Line};
use crate::simd::{self, Cpu};

/// The smallest transform: with less, rows would hardly look random.
const SMALLEST: usize = 64;

/// Lends out lines of any content for one sample's transform and angles. With the feature `std` a
/// thread keeps as many as any map of it needed; without, they are allocated each time.
fn with_scratch(lines: usize, work: impl FnOnce(&mut [Line])) {
    #[cfg(feature = "std")]
    {
        std::thread_local! {
            static SCRATCH: core::cell::RefCell<Vec<Line>> = const { core::cell::RefCell::new(Vec::new()) };
        }
        SCRATCH.with_borrow_mut(|scratch| {
            if scratch.len() < lines {
                scratch.resize(lines, Line([0.0; LANES]));
            }
            work(&mut scratch[..lines]);
        });
    }
    #[cfg(not(feature = "std"))]
    work(&mut vec![Line([0.0; LANES]); lines]);
}

/// The frequencies of one or more families, each a base draw that kernels scale.
#[derive(Debug, Clone)]
pub(crate) struct Structured {
    inputs: usize,
    /// Lines of angles of each family.
    lines: usize,
    families: Vec<Vec<Block>>,
}

impl Block {
    fn draw(family: Family, padded: usize, frequencies: usize, rng: &mut impl Rng) -> Self {
        let small = frequencies.next_power_of_two().clamp(SMALLEST, padded);
        let mut signs = |count: usize| {
            let mut line = || {
                let bits = rng.next_u64();
                Line(core::array::from_fn(
                    |lane| if bits >> (63 - lane) & 1 == 1 { -1.0 } else { 1.0 },
                ))
            };
            (0..count / LANES).map(|_| line()).collect::<Vec<_>>()
        };
        let (first, second, third) = (signs(padded), signs(padded), signs(small));
        let mut lengths = vec![Line([0.0; LANES]); frequencies.div_ceil(LANES)];
        let unit = FRAC_2_PI / (padded as f64 * math::sqrt(small as f64));
        for at in 0..frequencies {
            // A row has length one in all padded inputs, so that its length there is what a normal
            // vector has.
            let chi2 = chi_squared(rng, padded as f64);
            let length = math::sqrt(chi2) * family.draw_stretch(rng);
            lengths[at / LANES].0[at % LANES] = (length * unit) as f32;
        }
        Self { first, second, third, lengths }
    }

    /// One frequency, in quarter turns: the same product from the other side.
    fn row(&self, at: usize, inputs: usize) -> Vec<f64> {
        let small = self.third.len() * LANES;
        let number = |lines: &[Line], at: usize| f64::from(lines[at / LANES].0[at % LANES]);
        let mut row = vec![0.0; small];
        row[at] = number(&self.lengths, at);
        transform(&mut row);
        row.iter_mut().enumerate().for_each(|(at, value)| *value *= number(&self.third, at));
        transform(&mut row);
        let count = self.first.len() * LANES;
        let mut row: Vec<f64> =
            (0..count).map(|at| row[at % small] * number(&self.second, at)).collect();
        transform(&mut row);
        row.truncate(inputs);
        row.iter_mut().enumerate().for_each(|(at, value)| *value *= number(&self.first, at));
        row
    }
}

impl Structured {
    /// No families yet.
    pub(crate) fn new(inputs: usize, frequencies: usize) -> Self {
        Self { inputs, lines: frequencies.div_ceil(LANES), families: Vec::new() }
    }

    /// Draws the frequencies of one more family.
    pub(crate) fn add(&mut self, family: Family, frequencies: usize, rng: &mut impl Rng) {
        let padded = self.inputs.next_power_of_two().max(SMALLEST);
        let starts = (0..frequencies).step_by(padded);
        let blocks =
            starts.map(|start| Block::draw(family, padded, (frequencies - start).min(padded), rng));
        self.families.push(blocks.collect());
    }

    /// A frequency, d numbers, in quarter turns; families have a whole number of vectors each.
    pub(crate) fn frequency(&self, at: usize) -> Vec<f64> {
        let (family, at) = (at / (self.lines * LANES), at % (self.lines * LANES));
        let blocks = &self.families[family];
        let padded = blocks[0].first.len() * LANES;
        blocks[at / padded].row(at % padded, self.inputs)
    }

    /// Writes the features of samples, one after the other. Allocates if this thread has never had
    /// so large a map.
    pub(crate) fn map(&self, cpu: Cpu, projection: &Projection<'_>, x: &[f32], z: &mut [f32]) {
        let padded = self.families.first().map_or(0, |blocks| blocks[0].first.len());
        let lines = self.families.len() * self.lines;
        with_scratch(padded + lines.next_multiple_of(TILE), |scratch| {
            let (buffer, angles) = scratch.split_at_mut(padded);
            for (x, z) in x.chunks_exact(self.inputs).zip(z.chunks_exact_mut(projection.width)) {
                for (blocks, angles) in
                    self.families.iter().zip(angles.chunks_exact_mut(self.lines))
                {
                    for (block, angles) in blocks.iter().zip(angles.chunks_mut(padded)) {
                        simd::project_structured(cpu, block, x, buffer, angles);
                    }
                }
                let tiles = angles.as_chunks::<TILE>().0.iter().zip((0..lines).step_by(TILE));
                for (tile, done) in tiles {
                    let count = (lines - done).min(TILE);
                    let tile = core::slice::from_ref(tile);
                    simd::write_features(cpu, projection, done * LANES, count, tile, z);
                }
            }
        });
    }
}

/// The Walsh-Hadamard transform, not normalised, of a power of two numbers.
fn transform(numbers: &mut [f64]) {
    let mut apart = 1;
    while apart < numbers.len() {
        for pair in numbers.chunks_exact_mut(2 * apart) {
            let (a, b) = pair.split_at_mut(apart);
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        apart *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::kernel::Kernel;
    use crate::features::{Amplitude, Draw, FeatureMap, FeatureSpec};
    use crate::random::CounterRng;

    fn drawn(inputs: usize, frequencies: usize, seed: u64) -> Structured {
        let mut structured = Structured::new(inputs, frequencies);
        structured.add(Family::Gaussian, frequencies, &mut CounterRng::from_seed(seed).generator());
        structured
    }

    #[test]
    fn frequencies_of_a_block_are_orthogonal() {
        // Without padding, and with fewer frequencies than inputs.
        for (inputs, frequencies) in [(64, 64), (128, 20), (256, 100)] {
            let structured = drawn(inputs, frequencies, 1);
            let rows: Vec<_> = (0..frequencies).map(|at| structured.frequency(at)).collect();
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            for (at, row) in rows.iter().enumerate() {
                for other in &rows[..at] {
                    let cosine = dot(row, other) / (dot(row, row) * dot(other, other)).sqrt();
                    assert!(cosine.abs() < 1e-12, "{cosine}");
                }
            }
        }
    }

    #[test]
    fn transforms_give_what_the_frequencies_say() {
        // More, fewer and as many frequencies as padded inputs; one block, several, and a part of
        // one.
        for (inputs, frequencies) in
            [(3, 49), (64, 64), (77, 49), (100, 300), (1000, 20), (1024, 130)]
        {
            let spec = FeatureSpec {
                kernels: [Family::Gaussian, Family::Matern32, Family::Gaussian]
                    .into_iter()
                    .zip([0.5, 2.0, 7.0])
                    .map(|(family, variance)| Kernel { family, variance })
                    .collect(),
                draw: Draw::Structured,
                inputs,
                frequencies,
                seed: 5,
                amplitude: Amplitude::Normalised,
            };
            let map = FeatureMap::new(&spec).unwrap();
            let rows: Vec<f64> = (0..3)
                .flat_map(|kernel| map.frequencies(kernel))
                .map(|value| value / FRAC_2_PI)
                .collect();
            let dense = FeatureMap::from_frequencies(&rows, 3, frequencies, inputs).unwrap();
            let numbers = CounterRng::from_seed(9);
            let x: Vec<f32> =
                (0..2 * inputs as u64).map(|at| numbers.uniform_at(at) as f32).collect();
            let (mut fast, mut slow) =
                (vec![f32::NAN; 2 * map.width()], vec![0.0; 2 * map.width()]);
            map.map_batch(&x, &mut fast);
            dense.map_batch(&x, &mut slow);
            for (fast, slow) in fast.iter().zip(&slow) {
                assert!(
                    (fast - slow).abs() < 2e-5,
                    "{inputs} inputs, {frequencies} frequencies: {fast} {slow}"
                );
            }
        }
    }

    #[test]
    fn lengths_are_those_of_normal_vectors() {
        for (inputs, frequencies) in [(3, 49), (100, 49), (64, 200), (300, 40)] {
            let squares = (0..40).flat_map(|seed| {
                let structured = drawn(inputs, frequencies, seed);
                (0..frequencies)
                    .map(move |at| structured.frequency(at).iter().map(|f| f * f).sum::<f64>())
            });
            let mean = squares.sum::<f64>() / (40 * frequencies) as f64 / (FRAC_2_PI * FRAC_2_PI);
            // Four standard deviations of a mean of χ²_d.
            let bound = 4.0 * (2.0 * inputs as f64 / (40 * frequencies) as f64).sqrt();
            assert!((mean - inputs as f64).abs() < bound, "{inputs} inputs: {mean}");
        }
    }
}
