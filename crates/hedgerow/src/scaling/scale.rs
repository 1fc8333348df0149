//! [`Scale`]: how raw numbers become numbers of the order of one, and labels become raw again.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::summary::Summary;
use crate::limits::{MAX_LABEL, MAX_NUMBER, MAX_SCALE_BYTES, MAX_SCALED};
use crate::math;
use crate::message::{BYTES_PER_NUMBER, Rejected};

/// What a scale is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScaleKind {
    /// Mean and standard deviation: two deviations to either side become [-0.5, 0.5].
    #[default]
    Spread,
    /// Smallest and largest value: they become 0 and 1.
    Range,
}

/// Standard deviations that become one.
const WIDTH: f64 = 4.0;

/// A scale that fits worse than by this ratio is replaced.
const RATIO: f64 = 1.5;

/// And one whose centre is off by more than this, in scaled units.
const DRIFT: f64 = 0.25;

/// How far a label's offset may be from where it would be chosen now, in widths that would be
/// chosen now.
const MAX_LABEL_DRIFT: f64 = 1.5;

/// Scaled = (raw − offset)·factor for each column, the inputs and then the label. A column that has
/// always been the same has the factor 0. Both numbers are f32, so that what travels is what
/// everybody computes with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Scale {
    form: Form,
    axes: Vec<Axis>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Form {
    Identity,
    Spread,
    Range,
}

impl From<ScaleKind> for Form {
    fn from(kind: ScaleKind) -> Self {
        match kind {
            ScaleKind::Spread => Self::Spread,
            ScaleKind::Range => Self::Range,
        }
    }
}

/// The scale of one column.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    offset: f32,
    factor: f32,
}

/// As it comes from a wire or a file.
#[derive(Deserialize)]
struct Unchecked {
    form: Form,
    axes: Vec<Axis>,
}

/// A scale that makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BadScale {
    /// Not even a label.
    #[error("a scale needs at least 1 column, but has 0")]
    NoColumns,
    /// A range without length, or without end.
    #[error("column {column}: a range needs finite ends, the second larger, but is {min} to {max}")]
    Range {
        /// Which, from 0; the last is the label.
        column: usize,
        /// Where it begins.
        min: f64,
        /// Where it ends.
        max: f64,
    },
    /// An offset or factor that no scale has.
    #[error("column {column}: offset {offset} and factor {factor} are no scale")]
    Axis {
        /// Which, from 0; the last is the label.
        column: usize,
        /// What is taken off.
        offset: f32,
        /// What it is multiplied by.
        factor: f32,
    },
}

impl Scale {
    /// Largest size of a scaled input, unless nothing is scaled: farther out is no farther, so an
    /// outlier can't wreck anything.
    pub const LIMIT: f32 = MAX_SCALED;

    /// Leaves everything as it is.
    ///
    /// # Panics
    /// If there is no column.
    pub fn identity(columns: usize) -> Self {
        assert!(columns > 0, "a scale needs a label");
        Self { form: Form::Identity, axes: vec![Axis::IDENTITY; columns] }
    }

    /// Takes known ranges, the label's last, to [0, 1].
    pub fn from_ranges(ranges: &[(f64, f64)]) -> Result<Self, BadScale> {
        if ranges.is_empty() {
            return Err(BadScale::NoColumns);
        }
        let axes = ranges.iter().enumerate().map(|(column, &(min, max))| {
            let axis = Axis::new(min, max - min);
            let is_range = min < max && axis.factor > 0.0 && axis.is_sound();
            if is_range { Ok(axis) } else { Err(BadScale::Range { column, min, max }) }
        });
        Ok(Self { form: Form::Range, axes: axes.collect::<Result<_, _>>()? })
    }

    /// The scale that fits what has been seen. Where the previous one still fits well enough, it is
    /// kept: if it does everywhere, the result is the previous one.
    ///
    /// The label's offset stays as long as it is anywhere near the labels: then a change of the
    /// label's scale is a change of its factor only, which models survive exactly.
    ///
    /// # Panics
    /// If the previous one has another number of columns, or there is none.
    pub fn from_summary(kind: ScaleKind, summary: &Summary, previous: Option<&Self>) -> Self {
        Self::fitting(kind, summary, previous, (1, true))
    }

    /// The same where the last columns are so many labels. What still fits is kept if `keeps`.
    pub(super) fn fitting(
        kind: ScaleKind,
        summary: &Summary,
        previous: Option<&Self>,
        (labels, keeps): (usize, bool),
    ) -> Self {
        let inputs = summary.columns() - labels;
        let axis = |column: usize| {
            let known = previous.map(|scale| scale.axes[column]);
            let best = Axis::fitting(kind, summary, column);
            let fresh = match known {
                Some(known) if column >= inputs && known.is_near(best) => {
                    let offset = f64::from(known.offset);
                    Axis::new(offset, Axis::width_from(kind, summary, column, offset))
                }
                _ => best,
            };
            known.filter(|known| keeps && known.still_fits(fresh)).unwrap_or(fresh)
        };
        Self { form: kind.into(), axes: (0..summary.columns()).map(axis).collect() }
    }

    /// The same with the last columns, which are so many labels, left as they are.
    pub fn with_raw_labels(mut self, labels: usize) -> Self {
        self.set_raw(labels);
        self
    }

    /// Leaves the last columns, which are so many labels, as they are.
    pub(crate) fn set_raw(&mut self, labels: usize) {
        self.axes.iter_mut().rev().take(labels).for_each(|label| *label = Axis::IDENTITY);
    }

    /// The scale of the inputs and one of several labels, by its position from 0.
    ///
    /// # Panics
    /// If there is no such label.
    pub(crate) fn for_output(&self, inputs: usize, output: usize) -> Self {
        let mut axes = self.axes[..inputs].to_vec();
        axes.push(self.axes[inputs + output]);
        Self { form: self.form, axes }
    }

    /// The scale of a column.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn axis(&self, column: usize) -> Axis {
        self.axes[column]
    }

    /// Number of columns, d + 1.
    pub fn columns(&self) -> usize {
        self.axes.len()
    }

    /// Number of inputs, d.
    pub fn inputs(&self) -> usize {
        self.axes.len() - 1
    }

    /// An input, scaled. Finite for every finite number.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn scale_input(&self, input: usize, raw: f64) -> f32 {
        let limit = self.limit();
        self.axes[..self.inputs()][input].scaled(raw).clamp(-limit, limit) as f32
    }

    /// A label, scaled, to be learned from: at most [`Scale::LIMIT`] in size like an input, or one
    /// outlier could undo a model; of any size that nodes learn from if the scale leaves labels as
    /// they are.
    pub fn scale_label(&self, raw: f32) -> f32 {
        self.label().scale_label(raw)
    }

    /// A prediction in the label's own units.
    pub fn unscale_label(&self, scaled: f32) -> f32 {
        let bound = f64::from(f32::MAX);
        self.label().raw(f64::from(scaled)).clamp(-bound, bound) as f32
    }

    /// The raw input in the middle of the scale.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn centre(&self, input: usize) -> f64 {
        let middle = if self.form == Form::Range { 0.5 } else { 0.0 };
        self.axes[..self.inputs()][input].raw(middle)
    }

    /// The scale as it travels.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Writing to memory can't fail; an empty scale would be refused.
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// Reads what [`Scale::to_bytes`] wrote, or refuses it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Rejected> {
        if bytes.len() > MAX_SCALE_BYTES {
            return Err(Rejected::Garbled { what: "the scale is too large" });
        }
        match postcard::take_from_bytes(bytes) {
            Ok((scale, [])) => Ok(scale),
            _ => Err(Rejected::Garbled { what: "that is no scale" }),
        }
    }

    /// Numbers on the wire: an offset and a factor per column.
    pub fn count(&self) -> usize {
        2 * self.columns()
    }

    /// Bytes of those numbers; framing of a transport comes on top.
    pub fn bytes(&self) -> usize {
        BYTES_PER_NUMBER * self.count()
    }

    pub(super) fn is_made_from(&self, kind: ScaleKind) -> bool {
        self.form == kind.into()
    }

    /// An input without a limit.
    pub(super) fn place(&self, input: usize, raw: f64) -> f64 {
        self.axes[input].scaled(raw)
    }

    /// The raw input that becomes zero.
    pub(super) fn zero(&self, input: usize) -> f64 {
        f64::from(self.axes[input].offset)
    }

    pub(super) fn factor(&self, input: usize) -> f64 {
        f64::from(self.axes[input].factor)
    }

    /// Standard deviation of a scaled input, about.
    pub(super) fn deviation(&self, input: usize) -> f64 {
        match self.form {
            _ if self.factor(input) == 0.0 => 0.0,
            Form::Identity => 1.0,
            Form::Spread => 1.0 / WIDTH,
            // As if all of the range were equally likely.
            Form::Range => math::sqrt(12.0).recip(),
        }
    }

    /// Largest size of a scaled input.
    pub(super) fn limit(&self) -> f64 {
        f64::from(if self.form == Form::Identity { f32::MAX } else { Self::LIMIT })
    }

    pub(super) fn label_factor(&self) -> f64 {
        f64::from(self.label().factor)
    }

    /// The scale of the label.
    pub fn label(&self) -> Axis {
        self.axes[self.inputs()]
    }
}

impl TryFrom<Unchecked> for Scale {
    type Error = BadScale;

    fn try_from(Unchecked { form, axes }: Unchecked) -> Result<Self, BadScale> {
        if axes.is_empty() {
            return Err(BadScale::NoColumns);
        }
        let is_sound =
            |axis: &Axis| axis.is_sound() && (form != Form::Identity || *axis == Axis::IDENTITY);
        match axes.iter().position(|axis| !is_sound(axis)) {
            None => Ok(Self { form, axes }),
            Some(column) => {
                let Axis { offset, factor } = axes[column];
                Err(BadScale::Axis { column, offset, factor })
            }
        }
    }
}

impl Axis {
    /// Leaves numbers as they are.
    pub const IDENTITY: Self = Self { offset: 0.0, factor: 1.0 };

    /// Takes `offset` to 0 and `width` more to 1; a width that f32 can't tell from nothing takes
    /// everything to 0.
    fn new(offset: f64, width: f64) -> Self {
        let least = (1e-7 * offset.abs()).max(1.0 / f64::from(MAX_NUMBER));
        let factor = if width > least { 1.0 / width } else { 0.0 };
        Self { offset: offset as f32, factor: factor as f32 }
    }

    fn fitting(kind: ScaleKind, summary: &Summary, column: usize) -> Self {
        let offset = match kind {
            ScaleKind::Spread => summary.mean(column),
            ScaleKind::Range => summary.range(column).map(|(min, _)| min),
        };
        // What was never seen is nowhere.
        let offset = offset.unwrap_or(0.0);
        Self::new(offset, Self::width_from(kind, summary, column, offset))
    }

    /// What should become one if `offset` becomes zero.
    fn width_from(kind: ScaleKind, summary: &Summary, column: usize, offset: f64) -> f64 {
        match kind {
            ScaleKind::Spread => WIDTH * summary.deviation_from(column, offset),
            ScaleKind::Range => {
                summary.range(column).map_or(0.0, |(min, max)| (max - offset).max(offset - min))
            }
        }
    }

    /// Whether this one will do where `fresh` would be best.
    fn still_fits(self, fresh: Self) -> bool {
        if fresh.factor == 0.0 {
            return true;
        }
        let ratio = f64::from(fresh.factor) / f64::from(self.factor);
        (1.0 / RATIO..=RATIO).contains(&ratio)
            && self.scaled(f64::from(fresh.offset)).abs() <= DRIFT
    }

    /// Whether its offset can stay where `best` would be chosen.
    fn is_near(self, best: Self) -> bool {
        best.scaled(f64::from(self.offset)).abs() <= MAX_LABEL_DRIFT
    }

    /// The raw number that becomes zero.
    pub fn offset(self) -> f64 {
        f64::from(self.offset)
    }

    /// The raw difference that becomes one; 0 if the column has always been the same.
    pub fn width(self) -> f64 {
        if self.factor > 0.0 { 1.0 / f64::from(self.factor) } else { 0.0 }
    }

    /// (raw − offset)·factor.
    pub fn scaled(self, raw: f64) -> f64 {
        (raw - f64::from(self.offset)) * f64::from(self.factor)
    }

    /// A label, as [`Scale::scale_label`] scales it.
    pub fn scale_label(self, raw: f32) -> f32 {
        let bound = f64::from(if self == Self::IDENTITY { MAX_LABEL } else { Scale::LIMIT });
        self.scaled(f64::from(raw)).clamp(-bound, bound) as f32
    }

    /// The way back; the offset where the column has always been the same.
    pub fn raw(self, scaled: f64) -> f64 {
        let away = if self.factor > 0.0 { scaled / f64::from(self.factor) } else { 0.0 };
        f64::from(self.offset) + away
    }

    fn is_sound(self) -> bool {
        (-MAX_NUMBER..=MAX_NUMBER).contains(&self.offset)
            && (0.0..=MAX_NUMBER).contains(&self.factor)
    }
}

#[cfg(test)]
mod tests;
