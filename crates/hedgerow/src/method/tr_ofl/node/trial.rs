//! θ and the step on trial on remembered samples: outputs, verdict and gradient.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::super::inputs::InputMap;
use super::super::memory::{Field, LARGEST_RESIDUAL, SampleMemory};
use super::super::order::Asked;
use super::super::units::{Block, Parameters, Units};
use super::super::{MOST_INPUTS, Sizes};
use crate::learning::Loss;
use crate::simd::loops::Samples;
use crate::simd::vector::{LANES, Line};
use crate::simd::{self, Cpu};

/// Largest size of a sum.
pub(super) const MAX_LOSS: f64 = 1e200;

const ZERO: Line = Line([0.0; LANES]);

/// F of a sample at θ, and by how much half and the whole of the step on trial change it.
pub(super) struct Outputs {
    pub(super) base: f32,
    pub(super) whole: f32,
    half_change: f32,
}

impl Outputs {
    /// What is remembered of the sample with a label.
    pub(super) fn fields(&self, y: f32) -> [f32; 4] {
        let residual = limited(self.base - y);
        [y, residual, limited(self.half_change), limited(self.whole - self.base)]
    }
}

fn limited(residual: f32) -> f32 {
    if residual.is_nan() { 0.0 } else { residual.clamp(-LARGEST_RESIDUAL, LARGEST_RESIDUAL) }
}

/// The parameters with the whole step, and buffers. All follows from the units.
#[derive(Default)]
pub(super) struct StepTrial {
    whole: Parameters,
    /// Units whose outputs add up to the change by half of the step, and its linear part.
    half: Parameters,
    change: Parameters,
    outputs: Vec<Line>,
    /// Rows of the candidates, while they are asked for.
    candidates: Vec<f32>,
}

impl StepTrial {
    /// Follows the units and what is asked for.
    pub(super) fn set(&mut self, sizes: &Sizes, seed: u64, asked: Asked, units: &Units) {
        if asked == Asked::Block(Block::Candidates) {
            units.candidates(sizes, seed, &mut self.candidates);
        }
        units.moved(sizes, 1.0, &mut self.whole);
        write_change(sizes, units, 0.5, &mut self.half);
    }

    /// F of one sample.
    pub(super) fn outputs(&self, units: &Units, x: &[f32], base: f32) -> Outputs {
        let mut lines = [ZERO; MOST_INPUTS];
        let lines = &mut lines[..x.len()];
        lines.iter_mut().zip(x).for_each(|(line, x)| line.0[0] = *x);
        let samples = Samples { lines, stride: x.len(), inputs: x.len() };
        let output = |parameters: &Parameters| {
            let mut output = [ZERO];
            add_outputs(&samples, parameters, &mut output);
            output[0].0[0]
        };
        let at_base = base + output(&units.parameters);
        if units.step.is_none() {
            return Outputs { base: at_base, whole: at_base, half_change: 0.0 };
        }
        let whole = base + output(&self.whole);
        Outputs { base: at_base, whole, half_change: output(&self.half) }
    }

    /// Ends the trial of a step for all remembered samples: nothing, half or the whole of it is
    /// taken.
    pub(super) fn take(
        &self,
        sizes: &Sizes,
        units: &mut Units,
        share: f32,
        memory: &mut SampleMemory,
    ) {
        let field = match share {
            0.5 => Field::Half,
            _ => Field::Whole,
        };
        if share > 0.0 {
            for block in 0..memory.blocks() {
                let changes = *memory.field(block, field);
                let residuals = memory.field_mut(block, Field::Residual);
                residuals.iter_mut().zip(changes).for_each(|(r, by)| *r = limited(*r + by));
            }
        }
        units.take(sizes, share);
    }

    /// By how much half and the whole of the step on trial change F of all remembered samples.
    pub(super) fn evaluate(&mut self, sizes: &Sizes, units: &Units, memory: &mut SampleMemory) {
        let outputs = &mut self.outputs;
        match units.step.as_ref().map(|step| step.block) {
            None => {
                for field in [Field::Half, Field::Whole] {
                    (0..memory.blocks()).for_each(|at| *memory.field_mut(at, field) = ZERO.0);
                }
            }
            // Outputs are linear in the parameters of this block.
            Some(Block::Output) => {
                write_change(sizes, units, 1.0, &mut self.change);
                change_lines(memory, &self.change, outputs, Field::Whole);
                for block in 0..memory.blocks() {
                    let half = memory.field(block, Field::Whole).map(|change| 0.5 * change);
                    *memory.field_mut(block, Field::Half) = half;
                }
            }
            Some(_) => {
                change_lines(memory, &self.half, outputs, Field::Half);
                write_change(sizes, units, 1.0, &mut self.change);
                change_lines(memory, &self.change, outputs, Field::Whole);
            }
        }
    }

    /// Residuals of all remembered samples at θ.
    pub(super) fn rebuild(
        &mut self,
        sizes: &Sizes,
        loss: Loss,
        units: &Units,
        map: &InputMap,
        memory: &mut SampleMemory,
    ) {
        self.outputs.clear();
        self.outputs.resize(memory.blocks(), ZERO);
        add_outputs(&memory.samples(), &units.parameters, &mut self.outputs);
        let (mut x, mut z) = (vec![0.0; sizes.inputs], vec![0.0; sizes.ridge.features]);
        for block in 0..memory.blocks() {
            for lane in 0..memory.in_block(block) {
                let inputs = x.iter_mut().zip(memory.inputs(block, lane)).enumerate();
                inputs.for_each(|(input, (x, known))| *x = units.frame.raw(input, known));
                map.features(&x, memory.rest(block, lane), &mut z);
                let label = memory.field(block, Field::Label)[lane];
                let residual = units.base.value(loss, &z) + self.outputs[block].0[lane] - label;
                memory.field_mut(block, Field::Residual)[lane] = limited(residual);
            }
        }
    }
}

/// Adds a₀ + a·x̃ + Σ w cos(v·x̃ + b).
fn add_outputs(samples: &Samples<'_>, parameters: &Parameters, outputs: &mut [Line]) {
    if !parameters.linear.is_empty() {
        simd::add_linear(Cpu::detect(), samples, &parameters.linear, outputs);
    }
    simd::add_units(Cpu::detect(), samples, &parameters.rows, outputs);
}

/// Writes parameters whose outputs are the change by a share of the step on trial.
fn write_change(sizes: &Sizes, units: &Units, share: f32, out: &mut Parameters) {
    let Some(step) = &units.step else {
        out.linear.clear();
        out.rows.clear();
        return;
    };
    let row = sizes.row();
    match step.block {
        Block::Output => {
            let (linear, weights) = step.numbers.split_at(1 + sizes.inputs);
            out.linear.clear();
            out.linear.extend(linear.iter().map(|a| share * a));
            out.rows.clone_from(&units.parameters.rows);
            out.rows.truncate(weights.len() * row);
            let rows = out.rows.chunks_exact_mut(row);
            rows.zip(weights).for_each(|(row, weight)| row[0] = share * weight);
        }
        Block::Group(group) => {
            units.moved(sizes, share, out);
            out.linear.clear();
            let (len, before) = (sizes.group * row, &units.parameters.rows);
            let range = group * len..(group + 1) * len;
            out.rows.copy_within(range.clone(), 0);
            out.rows.truncate(len);
            out.rows.extend_from_slice(&before[range]);
            out.rows[len..].iter_mut().step_by(row).for_each(|weight| *weight = -*weight);
        }
        Block::Candidates => {}
    }
}

/// Writes the outputs of some parameters as a field of all remembered samples.
fn change_lines(
    memory: &mut SampleMemory,
    change: &Parameters,
    outputs: &mut Vec<Line>,
    field: Field,
) {
    outputs.clear();
    outputs.resize(memory.blocks(), ZERO);
    add_outputs(&memory.samples(), change, outputs);
    for (block, outputs) in outputs.iter().enumerate() {
        let len = memory.in_block(block);
        let changes = memory.field_mut(block, field);
        for (lane, (change, output)) in changes.iter_mut().zip(outputs.0).enumerate() {
            *change = if lane < len { limited(output) } else { 0.0 };
        }
    }
}

/// What an upload tells of the remembered samples.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct SampleSums {
    /// By how much half and the whole of the step on trial change the squared errors.
    pub(super) half: f64,
    pub(super) whole: f64,
    /// Squared errors at θ.
    pub(super) base: f64,
    /// Half the gradient of the squared errors at θ + s for the block that is asked for.
    pub(super) gradient: Vec<f64>,
    /// Squared errors of F's predictions in this round.
    pub(super) error: f64,
    /// Whether θ + s was better than θ when the round began.
    pub(super) prefers_step: bool,
}

/// A sample that counts from now on, with the sign 1, or no longer, with the sign -1.
pub(super) struct CountedSample {
    pub(super) block: usize,
    pub(super) lane: usize,
    pub(super) sign: f32,
}

impl SampleSums {
    pub(super) fn clear(&mut self) {
        (self.half, self.whole, self.base) = (0.0, 0.0, 0.0);
        self.gradient.clear();
        self.prefers_step = false;
    }

    /// Over so many of the latest samples, as far as they are remembered.
    pub(super) fn total(
        &mut self,
        sizes: &Sizes,
        loss: Loss,
        asked: Asked,
        (memory, samples): (&SampleMemory, u64),
        trial: &mut StepTrial,
    ) {
        self.clear();
        trial.outputs.clear();
        for block in 0..memory.blocks() {
            let mut slopes = ZERO;
            for lane in 0..memory.in_block(block) {
                if memory.is_recent((block, lane), samples) {
                    slopes.0[lane] = self.count(loss, memory, (block, lane), 1.0);
                }
            }
            trial.outputs.push(slopes);
        }
        self.prefers_step = self.whole <= 0.0;
        if let Asked::Block(block) = asked {
            self.gradient.resize(block.len(sizes, trial.whole.rows.len() / sizes.row()), 0.0);
            let slopes = &trial.outputs;
            add_gradient(sizes, block, &memory.samples(), trial, slopes, &mut self.gradient);
        }
    }

    /// A sample was remembered, or will be forgotten.
    pub(super) fn count_one(
        &mut self,
        sizes: &Sizes,
        loss: Loss,
        asked: Asked,
        memory: &SampleMemory,
        CountedSample { block, lane, sign }: CountedSample,
        trial: &StepTrial,
    ) {
        let slope = sign * self.count(loss, memory, (block, lane), f64::from(sign));
        self.base = self.base.max(0.0);
        let Asked::Block(asked) = asked else { return };
        let mut lines = [ZERO; MOST_INPUTS];
        let lines = &mut lines[..sizes.inputs];
        lines.iter_mut().zip(memory.inputs(block, lane)).for_each(|(line, x)| line.0[0] = x);
        let samples = Samples { lines, stride: sizes.inputs, inputs: sizes.inputs };
        let mut slopes = [ZERO];
        slopes[0].0[0] = slope;
        add_gradient(sizes, asked, &samples, trial, &slopes, &mut self.gradient);
    }

    /// Counts a sample's losses, and returns its slope at θ + s.
    fn count(
        &mut self,
        loss: Loss,
        memory: &SampleMemory,
        (block, lane): (usize, usize),
        sign: f64,
    ) -> f32 {
        let field = |field| f64::from(memory.field(block, field)[lane]);
        let (label, residual) = (field(Field::Label), field(Field::Residual));
        let [half, whole] = [Field::Half, Field::Whole].map(field);
        self.half += sign * loss_change(loss, label, residual, half);
        self.whole += sign * loss_change(loss, label, residual, whole);
        self.base += sign * scaled(loss, label, residual);
        let moved = residual + whole;
        match loss {
            Loss::Logistic => (0.5 * LOGISTIC_SCALE * loss.slope(label + moved, label)) as f32,
            _ => (weight(loss, moved) * moved) as f32,
        }
    }

    /// `block` is the length of the gradient.
    pub(super) fn is_sound(&self, block: usize) -> bool {
        let is_sum = |sum: &f64| sum.abs() <= MAX_LOSS;
        self.gradient.len() == block
            && self.gradient.iter().all(is_sum)
            && [self.half, self.whole].iter().all(is_sum)
            && [self.base, self.error].iter().all(|sum| *sum >= 0.0 && is_sum(sum))
    }
}

fn add_gradient(
    sizes: &Sizes,
    block: Block,
    samples: &Samples<'_>,
    trial: &StepTrial,
    slopes: &[Line],
    gradient: &mut [f64],
) {
    let (cpu, rows) = (Cpu::detect(), &trial.whole.rows);
    match block {
        Block::Output => simd::add_output_gradient(cpu, samples, rows, slopes, gradient),
        Block::Candidates => {
            simd::add_output_gradient(cpu, samples, &trial.candidates, slopes, gradient);
        }
        Block::Group(group) => {
            let len = sizes.group * sizes.row();
            let rows = &rows[group * len..(group + 1) * len];
            simd::add_unit_gradient(cpu, samples, rows, slopes, gradient);
        }
    }
}

/// The weight of a residual in the gradient.
pub(super) fn weight(loss: Loss, residual: f64) -> f64 {
    match loss {
        Loss::Huber { delta } if residual.abs() > delta => delta / residual.abs(),
        _ => 1.0,
    }
}

/// The logistic loss is multiplied by this, so that its curvature is at most that of a square: then
/// JᵀJ is an upper bound, and steps are safe.
const LOGISTIC_SCALE: f64 = 8.0;

/// The loss at a residual; of the squared loss its square.
fn scaled(loss: Loss, label: f64, residual: f64) -> f64 {
    match loss {
        Loss::Logistic => LOGISTIC_SCALE * loss.value(label + residual, label),
        _ => loss.value(residual, 0.0),
    }
}

/// By how much the loss changes with a residual.
fn loss_change(loss: Loss, label: f64, residual: f64, change: f64) -> f64 {
    match loss {
        // The difference of two squares, without cancellation.
        Loss::Squared => change * (2.0 * residual + change),
        _ => scaled(loss, label, residual + change) - scaled(loss, label, residual),
    }
}
