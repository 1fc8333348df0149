//! Synthetic inputs, and the curvature that they give.

use alloc::vec::Vec;

use super::super::gr_ofl::triangle;
use super::Sizes;
use super::inputs::{Frame, Moments};
use super::units::Block;
use crate::linear_algebra::Cholesky;
use crate::random::{CounterRng, Purpose, normal};
use crate::simd::loops::Samples;
use crate::simd::vector::{LANES, Line};
use crate::simd::{self, Cpu};

/// Synthetic inputs, in blocks.
const BLOCKS: usize = 157;

/// What is added to the variances of standardised inputs, as a share of them: covariances are only
/// positive up to rounding.
const COVARIANCE_RIDGE: f64 = 1e-6;

/// With more than that added, covariances are of no use.
const MOST_RIDGE: f64 = 1e3;

/// Draws from the normal law with the moments of the inputs. They follow from the seed and the
/// moments, so that they needn't be saved.
pub(super) struct Synthetic {
    /// Standard normal numbers, in blocks with a line for each input.
    normal: Vec<Line>,
    inputs: Vec<Line>,
    columns: Vec<Line>,
    products: Vec<f64>,
    factor: Vec<f64>,
    is_current: bool,
}

impl Synthetic {
    /// Draws what is the same for all moments: it takes longer than closing a round.
    pub(super) fn new(sizes: &Sizes, seed: u64) -> Self {
        let mut rng = CounterRng::from_seed(seed).derive(Purpose::Synthetic, 0).generator();
        let line = |_| Line(core::array::from_fn(|_| normal(&mut rng) as f32));
        // Without memories there are no units.
        let lines = if sizes.capacity > 0 { BLOCKS * sizes.inputs } else { 0 };
        Self {
            normal: (0..lines).map(line).collect(),
            inputs: Vec::new(),
            columns: Vec::new(),
            products: Vec::new(),
            factor: Vec::new(),
            is_current: false,
        }
    }

    /// The moments or the way inputs are standardised have changed.
    pub(super) fn invalidate(&mut self) {
        self.is_current = false;
    }

    /// JᵀJ over the number of inputs for a block of parameters: a lower triangle row by row. `rows`
    /// are those of all units, or of the candidates.
    pub(super) fn curvature(
        &mut self,
        sizes: &Sizes,
        moments: &Moments,
        frame: &Frame,
        rows: &[f32],
        block: Block,
    ) -> &mut [f64] {
        if !self.is_current {
            self.draw(sizes.inputs, moments, frame);
            self.is_current = true;
        }
        let len = block.len(sizes, rows.len() / sizes.row());
        let samples = Samples { lines: &self.inputs, stride: sizes.inputs, inputs: sizes.inputs };
        self.columns.resize(len * BLOCKS, Line([0.0; LANES]));
        self.products.resize(triangle(len), 0.0);
        let (cpu, columns) = (Cpu::detect(), &mut self.columns[..len * BLOCKS]);
        match block {
            Block::Output | Block::Candidates => {
                simd::output_columns(cpu, &samples, rows, columns);
            }
            Block::Group(group) => {
                let rows = &rows[group * len..(group + 1) * len];
                simd::unit_columns(cpu, &samples, rows, columns);
            }
        }
        let products = &mut self.products[..triangle(len)];
        simd::column_products(cpu, columns, BLOCKS, products);
        let share = 1.0 / (BLOCKS * LANES) as f64;
        products.iter_mut().for_each(|product| *product *= share);
        products
    }

    /// Draws inputs: L·g plus the mean, where L·Lᵀ is the covariance of standardised inputs.
    fn draw(&mut self, len: usize, moments: &Moments, frame: &Frame) {
        let deviation = |at: usize| f64::from(frame.deviation[at]);
        let mut ridge = COVARIANCE_RIDGE;
        loop {
            self.factor.clear();
            for i in 0..len {
                let row = &moments.covariance[triangle(i)..=triangle(i) + i];
                let row = row.iter().enumerate();
                self.factor.extend(row.map(|(j, entry)| entry / (deviation(i) * deviation(j))));
            }
            if Cholesky::new(&mut self.factor[..], len, ridge, 0.0).is_complete() {
                break;
            }
            ridge *= 10.0;
            if ridge > MOST_RIDGE {
                // Moments that no inputs have: they count as independent.
                self.factor.fill(0.0);
                (0..len).for_each(|i| self.factor[triangle(i) + i] = 1.0);
                break;
            }
        }
        self.inputs.resize(BLOCKS * len, Line([0.0; LANES]));
        let blocks = self.inputs.chunks_exact_mut(len).zip(self.normal.chunks_exact(len));
        for (inputs, normal) in blocks {
            for (at, line) in inputs.iter_mut().enumerate() {
                line.0 = [frame.standardise(at, moments.mean[at] as f32); LANES];
                let row = &self.factor[triangle(at)..=triangle(at) + at];
                for (entry, normal) in row.iter().zip(normal) {
                    let (entry, sums) = (*entry as f32, line.0.iter_mut().zip(normal.0));
                    sums.for_each(|(sum, normal)| *sum += entry * normal);
                }
                line.0 = line.0.map(Frame::limited);
            }
        }
    }
}
