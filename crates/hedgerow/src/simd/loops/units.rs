//! Loops over samples for units w·cos(v·x + b): outputs, gradients and curvature.
//!
//! Samples are in blocks of [`LANES`]. A block has a line for each input, so a vector holds the
//! same input of sixteen samples, and any number of inputs is vectorised alike. A unit is a row of
//! numbers: w, b, and one frequency for each input, in radians.

use core::f32::consts::FRAC_2_PI;

use crate::simd::trig::Waves;
use crate::simd::vector::{LANES, Line, Vector};

/// Samples in blocks of `stride` lines, of which the first `inputs` are the inputs. Inputs and
/// units must be so small that no angle exceeds [`crate::simd::trig::LARGEST_DIRECT`] quarter
/// turns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Samples<'a> {
    pub(crate) lines: &'a [Line],
    pub(crate) stride: usize,
    pub(crate) inputs: usize,
}

impl Samples<'_> {
    pub(crate) fn blocks(&self) -> usize {
        self.lines.len() / self.stride
    }

    /// One input of a block.
    #[inline(always)]
    fn input<V: Vector>(&self, block: usize, input: usize) -> V {
        V::load(&self.lines[block * self.stride + input].0)
    }

    /// Sines and cosines of a unit's angles in `N` blocks from `first` on.
    #[inline(always)]
    fn waves<V: Vector, const N: usize>(
        &self,
        waves: &Waves<V>,
        first: usize,
        unit: &[f32],
    ) -> [(V, V); N] {
        let mut angles = [V::splat(unit[1]); N];
        for (input, frequency) in unit[2..].iter().enumerate() {
            let frequency = V::splat(*frequency);
            for (at, angle) in angles.iter_mut().enumerate() {
                *angle = frequency.mul_add(self.input(first + at, input), *angle);
            }
        }
        let mut found = [(angles[0], angles[0]); N];
        for (found, angle) in found.iter_mut().zip(angles) {
            *found = waves.of(angle.mul(V::splat(FRAC_2_PI)));
        }
        found
    }

    /// Groups of blocks that are so few that their sums may be f32.
    fn chunks(&self) -> impl Iterator<Item = core::ops::Range<usize>> + use<> {
        let blocks = self.blocks();
        (0..blocks).step_by(CHUNK).map(move |first| first..blocks.min(first + CHUNK))
    }
}

/// Blocks whose sums are made in f32 before they are added to f64.
const CHUNK: usize = 16;

/// Runs a loop's body for four blocks at a time, so that one product needn't wait for the last, and
/// for the rest one by one. (A closure might not be compiled for the instruction set.)
macro_rules! for_each_wave {
    ($samples:expr, $waves:expr, $blocks:expr, $unit:expr, |$block:ident, $sine:ident, $cosine:ident| $body:block) => {
        let blocks: core::ops::Range<usize> = $blocks;
        let mut first = blocks.start;
        while first + 4 <= blocks.end {
            let four: [_; 4] = $samples.waves::<V, 4>($waves, first, $unit);
            for (at, wave) in four.iter().enumerate() {
                let ($block, ($sine, $cosine)) = (first + at, *wave);
                $body
            }
            first += 4;
        }
        while first < blocks.end {
            let [($sine, $cosine)] = $samples.waves::<V, 1>($waves, first, $unit);
            let $block = first;
            $body
            first += 1;
        }
    };
}

#[inline(always)]
pub(crate) fn add_units<V: Vector>(samples: &Samples<'_>, units: &[f32], outputs: &mut [Line]) {
    let waves = Waves::<V>::new(1.0);
    let outputs = &mut outputs[..samples.blocks()];
    for unit in units.chunks_exact(samples.inputs + 2) {
        let weight = V::splat(unit[0]);
        for_each_wave!(samples, &waves, 0..samples.blocks(), unit, |block, _sine, cosine| {
            let output = &mut outputs[block].0;
            weight.mul_add(cosine, V::load(output)).store(output);
        });
    }
}

#[inline(always)]
pub(crate) fn add_linear<V: Vector>(
    samples: &Samples<'_>,
    coefficients: &[f32],
    outputs: &mut [Line],
) {
    for (block, output) in outputs[..samples.blocks()].iter_mut().enumerate() {
        let mut sum = V::load(&output.0).add(V::splat(coefficients[0]));
        for (input, coefficient) in coefficients[1..].iter().enumerate() {
            sum = V::splat(*coefficient).mul_add(samples.input(block, input), sum);
        }
        sum.store(&mut output.0);
    }
}

#[inline(always)]
pub(crate) fn add_output_gradient<V: Vector>(
    samples: &Samples<'_>,
    units: &[f32],
    slopes: &[Line],
    gradient: &mut [f64],
) {
    let waves = Waves::<V>::new(1.0);
    let (linear, others) = gradient.split_at_mut(1 + samples.inputs);
    for blocks in samples.chunks() {
        add_linear_gradient::<V>(samples, blocks.clone(), &slopes[blocks.clone()], linear);
        for (unit, sum) in units.chunks_exact(samples.inputs + 2).zip(&mut *others) {
            let mut total = V::splat(0.0);
            for_each_wave!(samples, &waves, blocks.clone(), unit, |block, _sine, cosine| {
                total = V::load(&slopes[block].0).mul_add(cosine, total);
            });
            *sum += f64::from(total.sum());
        }
    }
}

/// Adds Σ slope·(1, x) over some blocks.
#[inline(always)]
fn add_linear_gradient<V: Vector>(
    samples: &Samples<'_>,
    blocks: core::ops::Range<usize>,
    slopes: &[Line],
    gradient: &mut [f64],
) {
    let mut total = V::splat(0.0);
    for slope in slopes {
        total = total.add(V::load(&slope.0));
    }
    gradient[0] += f64::from(total.sum());
    for (input, sum) in gradient[1..].iter_mut().enumerate() {
        let mut total = V::splat(0.0);
        for (slope, block) in slopes.iter().zip(blocks.clone()) {
            total = V::load(&slope.0).mul_add(samples.input(block, input), total);
        }
        *sum += f64::from(total.sum());
    }
}

#[inline(always)]
pub(crate) fn add_unit_gradient<V: Vector>(
    samples: &Samples<'_>,
    units: &[f32],
    slopes: &[Line],
    gradient: &mut [f64],
) {
    let waves = Waves::<V>::new(1.0);
    let width = samples.inputs + 2;
    for blocks in samples.chunks() {
        for (unit, gradient) in units.chunks_exact(width).zip(gradient.chunks_exact_mut(width)) {
            let (weight, first) = (V::splat(-unit[0]), blocks.start);
            let (mut total, mut inner) = (V::splat(0.0), [Line([0.0; LANES]); CHUNK]);
            for_each_wave!(samples, &waves, blocks.clone(), unit, |block, sine, cosine| {
                let slope = V::load(&slopes[block].0);
                total = slope.mul_add(cosine, total);
                slope.mul(weight).mul(sine).store(&mut inner[block - first].0);
            });
            gradient[0] += f64::from(total.sum());
            let inner = &inner[..blocks.len()];
            add_linear_gradient::<V>(samples, blocks.clone(), inner, &mut gradient[1..]);
        }
    }
}

#[inline(always)]
pub(crate) fn output_columns<V: Vector>(
    samples: &Samples<'_>,
    units: &[f32],
    columns: &mut [Line],
) {
    let (waves, blocks) = (Waves::<V>::new(1.0), samples.blocks());
    let (linear, others) = columns.split_at_mut((1 + samples.inputs) * blocks);
    for (at, column) in linear.chunks_exact_mut(blocks).enumerate() {
        for (block, line) in column.iter_mut().enumerate() {
            line.0 = match at.checked_sub(1) {
                None => [1.0; LANES],
                Some(input) => samples.lines[block * samples.stride + input].0,
            };
        }
    }
    let units = units.chunks_exact(samples.inputs + 2);
    for (unit, column) in units.zip(others.chunks_exact_mut(blocks)) {
        for_each_wave!(samples, &waves, 0..blocks, unit, |block, _sine, cosine| {
            cosine.store(&mut column[block].0);
        });
    }
}

#[inline(always)]
pub(crate) fn unit_columns<V: Vector>(samples: &Samples<'_>, units: &[f32], columns: &mut [Line]) {
    let (waves, blocks) = (Waves::<V>::new(1.0), samples.blocks());
    let width = samples.inputs + 2;
    let columns = columns.chunks_exact_mut(width * blocks);
    for (unit, columns) in units.chunks_exact(width).zip(columns) {
        let weight = V::splat(-unit[0]);
        let (cosines, rest) = columns.split_at_mut(blocks);
        let (sines, products) = rest.split_at_mut(blocks);
        for_each_wave!(samples, &waves, 0..blocks, unit, |block, sine, cosine| {
            cosine.store(&mut cosines[block].0);
            weight.mul(sine).store(&mut sines[block].0);
        });
        for (input, column) in products.chunks_exact_mut(blocks).enumerate() {
            for (block, (line, sine)) in column.iter_mut().zip(&*sines).enumerate() {
                V::load(&sine.0).mul(samples.input(block, input)).store(&mut line.0);
            }
        }
    }
}

/// Columns on either side of a tile of products, whose sums stay in registers.
const TILE_SIDE: usize = 4;

#[inline(always)]
pub(crate) fn column_products<V: Vector>(columns: &[Line], len: usize, products: &mut [f64]) {
    let count = columns.len() / len;
    let column = |at: usize| &columns[at.min(count - 1) * len..][..len];
    for i in (0..count).step_by(TILE_SIDE) {
        let rows: [&[Line]; TILE_SIDE] = core::array::from_fn(|a| column(i + a));
        for j in (0..=i).step_by(TILE_SIDE) {
            let others: [&[Line]; TILE_SIDE] = core::array::from_fn(|b| column(j + b));
            let mut sums = [[V::splat(0.0); TILE_SIDE]; TILE_SIDE];
            for at in 0..len {
                for (sums, row) in sums.iter_mut().zip(&rows) {
                    let row = V::load(&row[at].0);
                    for (sum, other) in sums.iter_mut().zip(&others) {
                        *sum = row.mul_add(V::load(&other[at].0), *sum);
                    }
                }
            }
            for (a, sums) in sums.iter().enumerate() {
                for (b, sum) in sums.iter().enumerate() {
                    let (row, other) = (i + a, j + b);
                    if row < count && other <= row {
                        products[row * (row + 1) / 2 + other] = f64::from(sum.sum());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::random::CounterRng;
    use crate::simd::{self, Cpu};

    const INPUTS: usize = 3;
    const UNITS: usize = 5;

    struct Case {
        lines: Vec<Line>,
        units: Vec<f32>,
        slopes: Vec<Line>,
    }

    impl Case {
        fn new(blocks: usize) -> Self {
            let stream = CounterRng::from_seed(blocks as u64);
            let number = |at: u64| 2.0 * stream.uniform_at(at) as f32 - 1.0;
            let lines = |count: usize, from: u64| {
                let line = |line: u64| {
                    Line(core::array::from_fn(|lane| number(from + 16 * line + lane as u64)))
                };
                (0..count as u64).map(line).collect()
            };
            Self {
                // One line of a block isn't an input.
                lines: lines(blocks * (INPUTS + 1), 0),
                units: (0..UNITS * (INPUTS + 2))
                    .map(|at| 3.0 * number(50_000 + at as u64))
                    .collect(),
                slopes: lines(blocks, 100_000),
            }
        }

        fn samples(&self) -> Samples<'_> {
            Samples { lines: &self.lines, stride: INPUTS + 1, inputs: INPUTS }
        }

        fn x(&self, sample: usize) -> [f64; INPUTS] {
            let block = sample / LANES * (INPUTS + 1);
            core::array::from_fn(|input| f64::from(self.lines[block + input].0[sample % LANES]))
        }

        /// Derivatives of a sample's output: (1, x, cos) and (cos, −w sin, −w sin x) of each unit.
        fn derivatives(&self, sample: usize) -> [Vec<f64>; 2] {
            let x = self.x(sample);
            let (mut output, mut group) = (vec![1.0], vec![]);
            output.extend(x);
            for unit in self.units.chunks_exact(INPUTS + 2) {
                let number = |at: usize| f64::from(unit[at]);
                let angle = number(1) + (0..INPUTS).map(|at| number(2 + at) * x[at]).sum::<f64>();
                let slope = -number(0) * angle.sin();
                output.push(angle.cos());
                group.extend([angle.cos(), slope]);
                group.extend(x.map(|x| slope * x));
            }
            [output, group]
        }

        /// All that the loops find.
        fn found(&self, cpu: Cpu) -> Vec<f64> {
            let (samples, blocks) = (self.samples(), self.slopes.len());
            let mut outputs = self.slopes.clone();
            simd::add_linear(cpu, &samples, &[0.5, -1.0, 2.0, 0.25], &mut outputs);
            simd::add_units(cpu, &samples, &self.units, &mut outputs);
            let mut all: Vec<f64> = outputs.iter().flat_map(|line| line.0).map(f64::from).collect();
            let (mut output, mut group) = (vec![0.0; 1 + INPUTS + UNITS], vec![0.0; 5 * UNITS]);
            simd::add_output_gradient(cpu, &samples, &self.units, &self.slopes, &mut output);
            simd::add_unit_gradient(cpu, &samples, &self.units, &self.slopes, &mut group);
            all.extend(output.iter().chain(&group));
            for (len, is_output) in [(output.len(), true), (group.len(), false)] {
                let mut columns = vec![Line([0.0; LANES]); len * blocks];
                match is_output {
                    true => simd::output_columns(cpu, &samples, &self.units, &mut columns),
                    false => simd::unit_columns(cpu, &samples, &self.units, &mut columns),
                }
                let mut products = vec![0.0; len * (len + 1) / 2];
                simd::column_products(cpu, &columns, blocks, &mut products);
                all.extend(products);
            }
            all
        }

        /// The same from the definitions.
        fn expected(&self) -> Vec<f64> {
            let count = self.slopes.len() * LANES;
            let slope = |at: usize| f64::from(self.slopes[at / LANES].0[at % LANES]);
            let derivatives: Vec<_> = (0..count).map(|at| self.derivatives(at)).collect();
            let weights: Vec<f64> =
                self.units.chunks_exact(INPUTS + 2).map(|unit| f64::from(unit[0])).collect();
            let mut all: Vec<f64> = (0..count)
                .map(|at| {
                    let [output, _] = &derivatives[at];
                    let linear = [0.5, -1.0, 2.0, 0.25].into_iter().chain(weights.clone());
                    slope(at) + output.iter().zip(linear).map(|(a, b)| a * b).sum::<f64>()
                })
                .collect();
            for part in [0, 1] {
                let len = derivatives[0][part].len();
                let sum = |entry: &dyn Fn(usize, &[f64]) -> f64| {
                    (0..count).map(|at| entry(at, &derivatives[at][part])).sum::<f64>()
                };
                all.extend((0..len).map(|i| sum(&|at, columns| slope(at) * columns[i])));
            }
            for part in [0, 1] {
                let len = derivatives[0][part].len();
                for i in 0..len {
                    for j in 0..=i {
                        let products = derivatives.iter().map(|d| d[part][i] * d[part][j]);
                        all.push(products.sum());
                    }
                }
            }
            all
        }
    }

    #[test]
    fn loops_find_what_they_are_defined_as_on_every_processor() {
        for blocks in [1, 3, 4, 21] {
            let case = Case::new(blocks);
            let found = case.found(Cpu::Plain);
            let expected = case.expected();
            assert_eq!(found.len(), expected.len());
            for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let apart = (found - expected).abs();
                assert!(
                    apart < 2e-5 * (blocks as f64 + expected.abs()),
                    "{blocks}, {at}: {found} {expected}"
                );
            }
            for cpu in [Cpu::Avx2, Cpu::Avx512] {
                assert_eq!(case.found(cpu), found, "{}", cpu.name());
            }
        }
    }
}
