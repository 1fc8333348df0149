//! The units and all that F consists of, as both sides have it.

use alloc::vec::Vec;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use super::super::gr_ofl::to_wire;
use super::Sizes;
use super::candidates;
use super::inputs::Frame;
use crate::learning::Loss;
use crate::limits::{MAX_NORM, MAX_NUMBER};
use crate::scaling::Rescaling;

/// Largest phase, and largest sum of a unit's frequencies, in radians: with inputs of at most 100
/// no angle exceeds what sines and cosines are made for.
const LARGEST_PHASE: f32 = 1e4;
const LARGEST_FREQUENCIES: f32 = 1e4;

/// Draws of candidates that differ.
const DRAWS: u32 = 1 << 20;

/// Numbers of f₀ in a message beside its model.
pub(super) const BASE_NUMBERS: usize = 5;

/// Parameters that are asked for, or changed, together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Block {
    /// a₀, a and all w.
    Output,
    /// w, b and v of a group of units.
    Group(usize),
    /// a₀, a, and the weights of units that might be added. There are no steps for these.
    Candidates,
}

impl Block {
    /// Its parameters.
    pub(super) fn len(self, sizes: &Sizes, units: usize) -> usize {
        match self {
            Self::Output => 1 + sizes.inputs + units,
            Self::Group(_) => sizes.group * sizes.row(),
            Self::Candidates => 1 + sizes.inputs + 2 * sizes.candidates(),
        }
    }

    /// Where a group's rows are.
    fn rows(group: usize, sizes: &Sizes) -> Range<usize> {
        let len = sizes.group * sizes.row();
        group * len..(group + 1) * len
    }

    /// Refuses a step that a broadcast with so many units can't have; else the right length.
    pub(super) fn check(self, sizes: &Sizes, units: usize, len: usize) -> Result<(), usize> {
        let exists = match self {
            Self::Output => true,
            Self::Group(group) => (group + 1) * sizes.group <= units,
            Self::Candidates => false,
        };
        let expected = self.len(sizes, units);
        if exists && len == expected { Ok(()) } else { Err(expected) }
    }
}

/// A step on trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) block: Block,
    pub(super) numbers: Vec<f32>,
}

/// f₀: GR-OFL's model as it was when the units began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Base {
    pub(super) weights: Vec<f32>,
    pub(super) origin: f32,
    pub(super) low: f32,
    pub(super) high: f32,
}

impl Base {
    /// The range is widened by its own width on both sides.
    pub(super) fn new(weights: &[f32], origin: f32, low: f32, high: f32) -> Self {
        let wide = high - low;
        let (low, high) = (to_wire(f64::from(low - wide)), to_wire(f64::from(high + wide)));
        Self { weights: weights.to_vec(), origin, low, high }
    }

    pub(super) fn value(&self, loss: Loss, z: &[f32]) -> f32 {
        let sum: f64 = self.weights.iter().zip(z).map(|(w, z)| f64::from(*w) * f64::from(*z)).sum();
        let mean = self.origin + (sum as f32).clamp(self.low, self.high);
        loss.link(f64::from(mean)) as f32
    }
}

/// a₀, a, and a row of w, b and v for each unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub(super) struct Parameters {
    pub(super) linear: Vec<f32>,
    pub(super) rows: Vec<f32>,
}

impl Parameters {
    /// Adds a share of a step.
    fn take(&mut self, sizes: &Sizes, step: &Step, share: f32) {
        let add = |number: &mut f32, step: &f32| *number += share * *step;
        match step.block {
            Block::Output => {
                let (linear, weights) = step.numbers.split_at(1 + sizes.inputs);
                self.linear.iter_mut().zip(linear).for_each(|(a, step)| add(a, step));
                let rows = self.rows.chunks_exact_mut(sizes.row());
                rows.zip(weights).for_each(|(row, step)| add(&mut row[0], step));
            }
            Block::Group(group) => {
                let rows = &mut self.rows[Block::rows(group, sizes)];
                rows.iter_mut().zip(&step.numbers).for_each(|(number, step)| add(number, step));
            }
            Block::Candidates => {}
        }
        self.limit(sizes);
    }

    /// Brings numbers that have left all reason back.
    fn limit(&mut self, sizes: &Sizes) {
        let limit = |number: &mut f32, bound: f32| {
            *number = if number.is_nan() { 0.0 } else { number.clamp(-bound, bound) };
        };
        self.linear.iter_mut().for_each(|a| limit(a, MAX_NORM));
        let largest = LARGEST_FREQUENCIES / sizes.inputs as f32;
        for row in self.rows.chunks_exact_mut(sizes.row()) {
            limit(&mut row[0], MAX_NORM);
            limit(&mut row[1], LARGEST_PHASE);
            row[2..].iter_mut().for_each(|v| limit(v, largest));
        }
    }

    fn is_sound(&self, sizes: &Sizes) -> bool {
        let mut limited = self.clone();
        limited.limit(sizes);
        limited == *self
    }
}

/// All that F consists of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Units {
    pub(super) base: Base,
    pub(super) frame: Frame,
    pub(super) parameters: Parameters,
    pub(super) step: Option<Step>,
    /// Tells draws of candidates apart.
    draw: u32,
    /// The buffer of the last step, for the next one.
    #[serde(skip)]
    spare: Vec<f32>,
}

impl Units {
    /// Without units yet: F = f₀.
    pub(super) fn new(sizes: &Sizes, base: Base, frame: Frame, round: u64) -> Self {
        let rows = Vec::with_capacity(sizes.most_units * sizes.row());
        let parameters = Parameters { linear: vec![0.0; 1 + sizes.inputs], rows };
        let draw = (round % u64::from(DRAWS)) as u32;
        Self { base, frame, parameters, step: None, draw, spare: Vec::new() }
    }

    pub(super) fn count(&self, sizes: &Sizes) -> usize {
        self.parameters.rows.len() / sizes.row()
    }

    /// Ends the trial of a step: a share of it is taken.
    pub(super) fn take(&mut self, sizes: &Sizes, share: f32) {
        if let Some(step) = self.step.take() {
            if share > 0.0 {
                self.parameters.take(sizes, &step, share);
            }
            self.spare = step.numbers;
        }
    }

    /// Puts a step on trial.
    pub(super) fn try_step(&mut self, block: Block, step: impl Iterator<Item = f32>) {
        let mut numbers = core::mem::take(&mut self.spare);
        numbers.clear();
        numbers.extend(step);
        self.step = Some(Step { block, numbers });
    }

    /// Whether θ and the step on trial are the same.
    pub(super) fn is_at(&self, other: &Self) -> bool {
        self.parameters == other.parameters && self.step == other.step && self.draw == other.draw
    }

    /// Writes the parameters with a share of the step on trial.
    pub(super) fn moved(&self, sizes: &Sizes, share: f32, out: &mut Parameters) {
        out.linear.clone_from(&self.parameters.linear);
        out.rows.clone_from(&self.parameters.rows);
        if let Some(step) = &self.step {
            out.take(sizes, step, share);
        }
    }

    /// Adds a group of units. Their weights are zero, so that no output changes.
    pub(super) fn grow(&mut self, sizes: &Sizes, rows: &[f32]) {
        self.parameters.rows.extend_from_slice(rows);
        self.parameters.limit(sizes);
        self.draw = (self.draw + 1) % DRAWS;
    }

    /// Writes the rows of the units that might be added.
    pub(super) fn candidates(&self, sizes: &Sizes, seed: u64, rows: &mut Vec<f32>) {
        candidates::draw(sizes, seed, self.draw, rows);
    }

    /// Appends everything, the step on trial last.
    pub(super) fn write(&self, numbers: &mut Vec<f32>) {
        let Self { base, frame, parameters, step, draw, .. } = self;
        let Base { weights, origin, low, high } = base;
        numbers.extend([weights.len() as f32, *origin, *low, *high, *draw as f32]);
        for part in [weights, &frame.centre, &frame.deviation, &parameters.linear, &parameters.rows]
        {
            numbers.extend_from_slice(part);
        }
        if let Some(step) = step {
            numbers.extend_from_slice(&step.numbers);
        }
    }

    /// What [`Units::write`] wrote, in a broadcast with so many units whose lengths were checked.
    /// None if numbers can't be.
    pub(super) fn read(
        sizes: &Sizes,
        units: usize,
        block: Option<Block>,
        numbers: &[f32],
    ) -> Option<Self> {
        let (head, rest) = numbers.split_at_checked(BASE_NUMBERS)?;
        let [len, origin, low, high, draw] = head.try_into().ok()?;
        let (weights, rest) = rest.split_at_checked(len as usize)?;
        let (frame, rest) = rest.split_at_checked(2 * sizes.inputs)?;
        let (linear, rest) = rest.split_at_checked(1 + sizes.inputs)?;
        let (rows, step) = rest.split_at_checked(units * sizes.row())?;
        let read = Self {
            base: Base { weights: weights.to_vec(), origin, low, high },
            frame: Frame::from_numbers(frame),
            parameters: Parameters { linear: linear.to_vec(), rows: rows.to_vec() },
            step: block.map(|block| Step { block, numbers: step.to_vec() }),
            draw: draw as u32,
            spare: Vec::new(),
        };
        read.is_sound(sizes).then_some(read)
    }

    /// Follows a change of scale that [`super::inputs::can_be_rescaled`] allows. Nodes and server
    /// come to the same.
    pub(super) fn rescale(&mut self, sizes: &Sizes, rescaling: &Rescaling) {
        let gain = rescaling.gain();
        self.frame.rescale(rescaling.inputs());
        let Base { weights, origin, low, high } = &mut self.base;
        let mut model: Vec<f64> = weights.iter().map(|w| f64::from(*w) * gain).collect();
        rescaling.refit().model(&mut model);
        weights.iter_mut().zip(&model).for_each(|(w, model)| *w = to_wire(*model));
        let scale = |number: &mut f32| *number = to_wire(f64::from(*number) * gain);
        [&mut *origin, low, high].into_iter().for_each(scale);
        *origin = to_wire(f64::from(*origin) + rescaling.shift());
        self.parameters.linear.iter_mut().for_each(scale);
        let row = sizes.row();
        self.parameters.rows.iter_mut().step_by(row).for_each(scale);
        if let Some(step) = &mut self.step {
            match step.block {
                Block::Output => step.numbers.iter_mut().for_each(scale),
                _ => step.numbers.iter_mut().step_by(row).for_each(scale),
            }
        }
        self.parameters.limit(sizes);
    }

    pub(super) fn is_sound(&self, sizes: &Sizes) -> bool {
        let Self { base, frame, parameters, step, draw, .. } = self;
        let units = self.count(sizes);
        let is_number = |number: &f32| number.abs() <= MAX_NUMBER;
        (1..=sizes.ridge.features).contains(&base.weights.len())
            && base.weights.iter().chain([&base.origin, &base.low, &base.high]).all(is_number)
            && base.low <= base.high
            && frame.is_sound(sizes.inputs)
            && parameters.linear.len() == 1 + sizes.inputs
            && parameters.rows.len().is_multiple_of(sizes.group * sizes.row())
            && units <= sizes.most_units
            && parameters.is_sound(sizes)
            && *draw < DRAWS
            && step.as_ref().is_none_or(|step| {
                step.numbers.iter().all(is_number)
                    && step.block.check(sizes, units, step.numbers.len()).is_ok()
            })
    }
}
