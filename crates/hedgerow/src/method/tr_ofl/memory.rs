//! The samples that a node remembers: a ring of blocks of sixteen, each with a line for every
//! number, so that loops run over samples.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Sizes;
use super::inputs::{Frame, LARGEST_INPUT};
use crate::limits::{MAX_FEATURE, MAX_LABEL};
use crate::simd::loops::Samples;
use crate::simd::vector::{LANES, Line};

/// Residuals and their changes are at most this large.
pub(super) const LARGEST_RESIDUAL: f32 = 1e18;

/// Inputs that aren't standardised are at most this large.
const LARGEST_RAW: f32 = 1e6;

/// What a sample has beside its inputs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Field {
    Label,
    /// F(x) − y at θ.
    Residual,
    /// Its change at θ + ½s.
    Half,
    /// Its change at θ + s.
    Whole,
}

/// The samples, oldest overwritten first.
#[derive(Debug, Clone)]
pub(super) struct SampleMemory {
    lines: Vec<Line>,
    inputs: usize,
    stride: usize,
    capacity: usize,
    len: usize,
    /// Where the next sample goes.
    next: usize,
    /// How inputs are standardised.
    pub(super) frame: Frame,
}

/// What is saved.
#[derive(Serialize, Deserialize)]
pub(super) struct SavedMemory {
    len: usize,
    next: usize,
    frame: Frame,
    /// Block by block.
    numbers: Vec<f32>,
}

impl SampleMemory {
    pub(super) fn new(sizes: &Sizes) -> Self {
        Self {
            lines: Vec::new(),
            inputs: sizes.inputs,
            stride: sizes.stride(),
            capacity: sizes.capacity,
            len: 0,
            next: 0,
            frame: Frame::identity(sizes.inputs),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn blocks(&self) -> usize {
        self.lines.len() / self.stride
    }

    /// For loops over whole blocks.
    pub(super) fn samples(&self) -> Samples<'_> {
        Samples { lines: &self.lines, stride: self.stride, inputs: self.inputs }
    }

    /// Samples in a block.
    pub(super) fn in_block(&self, block: usize) -> usize {
        LANES.min(self.len - block * LANES)
    }

    pub(super) fn field(&self, block: usize, field: Field) -> &[f32; LANES] {
        &self.lines[block * self.stride + self.inputs + field as usize].0
    }

    pub(super) fn field_mut(&mut self, block: usize, field: Field) -> &mut [f32; LANES] {
        &mut self.lines[block * self.stride + self.inputs + field as usize].0
    }

    /// Where the next sample goes: its block and lane, and whether one is there that it replaces.
    pub(super) fn next_slot(&self) -> (usize, usize, bool) {
        (self.next / LANES, self.next % LANES, self.len == self.capacity)
    }

    /// Whether a slot has one of so many latest samples.
    pub(super) fn is_recent(&self, (block, lane): (usize, usize), samples: u64) -> bool {
        let age = (self.next + self.capacity - 1 - (block * LANES + lane)) % self.capacity;
        (age as u64) < samples
    }

    /// Whether it remembers anything at all.
    pub(super) fn is_used(&self) -> bool {
        self.capacity > 0
    }

    /// Adds a sample: standardised inputs, other features, and label, residual and its changes.
    pub(super) fn push(&mut self, x: impl Iterator<Item = f32>, rest: &[f32], fields: [f32; 4]) {
        let (block, lane, is_replaced) = self.next_slot();
        if block == self.blocks() {
            self.lines.resize(self.lines.len() + self.stride, Line([0.0; LANES]));
        }
        let lines = &mut self.lines[block * self.stride..(block + 1) * self.stride];
        let numbers = x.chain(fields).chain(rest.iter().copied());
        lines.iter_mut().zip(numbers).for_each(|(line, number)| line.0[lane] = number);
        self.next = (self.next + 1) % self.capacity;
        self.len += usize::from(!is_replaced);
    }

    /// The numbers of a slot: inputs, fields, other features.
    fn numbers(&self, block: usize, lane: usize) -> impl Iterator<Item = f32> {
        self.lines[block * self.stride..(block + 1) * self.stride].iter().map(move |l| l.0[lane])
    }

    /// Inputs of a slot, standardised.
    pub(super) fn inputs(&self, block: usize, lane: usize) -> impl Iterator<Item = f32> {
        self.numbers(block, lane).take(self.inputs)
    }

    /// Features of a slot that don't follow from its inputs.
    pub(super) fn rest(&self, block: usize, lane: usize) -> impl Iterator<Item = f32> {
        self.numbers(block, lane).skip(self.inputs + super::SAMPLE_LINES)
    }

    /// Standardises all inputs in another way.
    pub(super) fn set_frame(&mut self, frame: Frame) {
        for block in self.lines.chunks_exact_mut(self.stride) {
            for (input, line) in block[..self.inputs].iter_mut().enumerate() {
                let again = |x: f32| frame.standardise(input, self.frame.raw(input, x));
                line.0 = line.0.map(again);
            }
        }
        self.frame = frame;
    }

    /// Takes labels to the label's new unit and offset.
    pub(super) fn rescale_labels(&mut self, gain: f64, shift: f64) {
        let moved = |y: f32| ((f64::from(y) * gain + shift) as f32).clamp(-MAX_LABEL, MAX_LABEL);
        for block in 0..self.blocks() {
            let labels = self.field_mut(block, Field::Label);
            *labels = labels.map(moved);
        }
    }

    pub(super) fn clear(&mut self) {
        self.lines.clear();
        (self.len, self.next) = (0, 0);
    }

    pub(super) fn save(&self) -> SavedMemory {
        let numbers = self.lines.iter().flat_map(|line| line.0).collect();
        SavedMemory { len: self.len, next: self.next, frame: self.frame.clone(), numbers }
    }

    pub(super) fn restore(&mut self, saved: SavedMemory) {
        let SavedMemory { len, next, frame, numbers } = saved;
        self.lines.clear();
        self.lines.extend(numbers.as_chunks().0.iter().map(|numbers| Line(*numbers)));
        (self.len, self.next, self.frame) = (len, next, frame);
    }
}

impl SavedMemory {
    /// `known` is how inputs are standardised, if they are.
    pub(super) fn is_sound(&self, sizes: &Sizes, known: Option<&Frame>) -> bool {
        let Self { len, next, frame, numbers } = self;
        let largest = if known.is_some() { LARGEST_INPUT } else { LARGEST_RAW };
        let block = sizes.stride() * LANES;
        let is_line = |(at, line): (usize, &[f32])| {
            let bound = match at % sizes.stride() {
                input if input < sizes.inputs => largest,
                label if label == sizes.inputs => MAX_LABEL,
                field if field < sizes.inputs + super::SAMPLE_LINES => LARGEST_RESIDUAL,
                _ => MAX_FEATURE,
            };
            line.iter().all(|number| number.abs() <= bound)
        };
        *len <= sizes.capacity
            && (*next == *len && *len < sizes.capacity
                || *len == sizes.capacity && *next < sizes.capacity.max(1))
            && numbers.len() == len.div_ceil(LANES) * block
            && frame.is_sound(sizes.inputs)
            && known.is_none_or(|known| known == frame)
            && numbers.chunks(LANES).enumerate().all(is_line)
    }
}
