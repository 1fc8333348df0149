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
    /// The label's offset is that of the first scale for ever, so that a change of its scale is a
    /// change of its factor only, which models survive exactly.
    ///
    /// # Panics
    /// If the previous one has another number of columns, or there is none.
    pub fn from_summary(kind: ScaleKind, summary: &Summary, previous: Option<&Self>) -> Self {
        Self::fitting(kind, summary, previous, 1)
    }

    /// The same where the last columns are so many labels.
    pub(super) fn fitting(
        kind: ScaleKind,
        summary: &Summary,
        previous: Option<&Self>,
        labels: usize,
    ) -> Self {
        let inputs = summary.columns() - labels;
        let axis = |column: usize| {
            let known = previous.map(|scale| scale.axes[column]);
            let fresh = match known {
                Some(known) if column >= inputs => {
                    let offset = f64::from(known.offset);
                    Axis::new(offset, Axis::width_from(kind, summary, column, offset))
                }
                _ => Axis::fitting(kind, summary, column),
            };
            known.filter(|known| known.still_fits(fresh)).unwrap_or(fresh)
        };
        Self { form: kind.into(), axes: (0..summary.columns()).map(axis).collect() }
    }

    /// The same with labels left as they are.
    pub fn with_raw_labels(mut self) -> Self {
        self.set_raw(1);
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
        let limit = if self.form == Form::Identity { f32::MAX } else { Self::LIMIT };
        self.axes[..self.inputs()][input].scaled(raw).clamp(-f64::from(limit), f64::from(limit))
            as f32
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KINDS: [ScaleKind; 2] = [ScaleKind::Spread, ScaleKind::Range];

    /// Both columns alike, so that one is an input and the other a label.
    fn summary(values: impl IntoIterator<Item = f64>) -> Summary {
        let mut summary = Summary::new(2);
        for value in values {
            (0..2).for_each(|column| summary.add(column, value));
        }
        summary
    }

    /// Ten values, evenly from `low` to `high`.
    fn even(low: f64, high: f64) -> Summary {
        summary((0..10).map(|at| low + (high - low) * f64::from(at) / 9.0))
    }

    fn assert_close(found: f32, expected: f64) {
        let room = 1e-5 * (1.0 + expected.abs());
        assert!((f64::from(found) - expected).abs() < room, "{found}, expected {expected}");
    }

    #[test]
    fn spread_takes_two_deviations_to_a_half() {
        let (mean, deviation) = (7.0, even(6.0, 8.0).deviation(0));
        let scale = Scale::from_summary(ScaleKind::Spread, &even(6.0, 8.0), None);
        for (raw, expected) in
            [(mean, 0.0), (mean + 2.0 * deviation, 0.5), (mean - 2.0 * deviation, -0.5)]
        {
            assert_close(scale.scale_input(0, raw), expected);
            assert_close(scale.scale_label(raw as f32), expected);
        }
        assert_close(scale.centre(0) as f32, mean);
    }

    #[test]
    fn range_takes_the_ends_to_zero_and_one() {
        let made = Scale::from_summary(ScaleKind::Range, &even(-4.0, 16.0), None);
        let given = Scale::from_ranges(&[(-4.0, 16.0), (-4.0, 16.0)]).unwrap();
        for scale in [&made, &given] {
            for (raw, expected) in [(-4.0, 0.0), (16.0, 1.0), (6.0, 0.5)] {
                assert_close(scale.scale_input(0, raw), expected);
                assert_close(scale.scale_label(raw as f32), expected);
            }
            assert_close(scale.centre(0) as f32, 6.0);
        }
        assert_eq!(made, given);
    }

    #[test]
    fn the_identity_changes_nothing() {
        let scale = Scale::identity(2);
        for raw in [-1e30f32, -9.0, 0.0, 0.3, 3.4e38] {
            assert_eq!(scale.scale_input(0, f64::from(raw)), raw);
            assert_eq!(scale.unscale_label(raw), raw);
        }
        assert_eq!((scale.scale_label(1e11), scale.centre(0)), (1e11, 0.0));
    }

    #[test]
    fn inputs_stay_within_the_limit_and_everything_stays_finite() {
        for kind in KINDS {
            for values in [
                even(0.0, 1.0),
                even(1e30, -1e30),
                even(1e-30, 3e-30),
                summary([5.0; 9]),
                Summary::new(2),
            ] {
                let scale = Scale::from_summary(kind, &values, None);
                for raw in [f32::MAX, f32::MIN, 1e12, 0.0, 1e-38] {
                    assert!(scale.scale_input(0, f64::from(raw)).abs() <= Scale::LIMIT);
                    assert!(scale.scale_label(raw).abs() <= MAX_LABEL);
                    assert!(scale.unscale_label(raw).is_finite());
                }
                assert!(scale.centre(0).is_finite());
            }
        }
    }

    #[test]
    fn a_constant_column_is_zero_until_it_varies() {
        for kind in KINDS {
            let constant = Scale::from_summary(kind, &summary([5.0; 30]), None);
            assert_eq!((constant.scale_input(0, 5.0), constant.scale_input(0, 9.0)), (0.0, 0.0));
            assert_eq!((constant.scale_label(5.0), constant.unscale_label(3.0)), (0.0, 5.0));
            let later = summary([[5.0; 30], [7.0; 30]].concat());
            let opened = Scale::from_summary(kind, &later, Some(&constant));
            assert!(
                opened.scale_input(0, 7.0) > 0.2 && opened.scale_label(7.0) > 0.2,
                "{opened:?}"
            );
        }
    }

    #[test]
    fn what_still_fits_is_kept() {
        for kind in KINDS {
            let first = Scale::from_summary(kind, &even(0.0, 1.0), None);
            let next =
                |low: f64, high: f64| Scale::from_summary(kind, &even(low, high), Some(&first));
            let changes =
                |scale: &Scale| [0, 1].map(|column| scale.axes[column] != first.axes[column]);
            for (low, high) in [(0.0, 1.0), (0.05, 0.95), (-0.1, 1.1), (-0.15, 1.0)] {
                assert_eq!(next(low, high), first, "{low} to {high}");
            }
            // Farther out, nearer in, and elsewhere: the label has another offset then, and only
            // its factor follows.
            assert_eq!(changes(&next(-0.6, 1.6)), [true; 2], "{kind:?}");
            assert_eq!(changes(&next(0.25, 0.75)), [true, kind == ScaleKind::Spread], "{kind:?}");
            assert_eq!(changes(&next(4.0, 5.0)), [true; 2], "{kind:?}");
            for (low, high) in [(-0.6, 1.6), (4.0, 5.0), (-70.0, 3.0)] {
                assert_eq!(next(low, high).label().offset, first.label().offset);
            }
            // One that varies no more is as it was.
            assert!(!changes(&Scale::from_summary(kind, &summary([0.5; 5]), Some(&first)))[0]);
        }
    }

    #[test]
    fn labels_can_be_left_alone() {
        let scale = Scale::from_summary(ScaleKind::Spread, &even(3.0, 9.0), None).with_raw_labels();
        assert_eq!((scale.scale_label(-1.0), scale.unscale_label(0.25)), (-1.0, 0.25));
        assert!(scale.scale_input(0, 9.0) < 1.0);
    }

    #[test]
    fn ranges_that_are_none_are_named() {
        assert_eq!(Scale::from_ranges(&[]), Err(BadScale::NoColumns));
        let nan = f64::NAN;
        for (min, max) in
            [(1.0, 1.0), (2.0, 1.0), (0.0, f64::INFINITY), (-1e31, 1.0), (1e9, 1e9 + 1e-3)]
        {
            let refused = Scale::from_ranges(&[(0.0, 1.0), (min, max)]);
            assert_eq!(refused, Err(BadScale::Range { column: 1, min, max }));
        }
        assert!(
            Scale::from_ranges(&[(nan, 1.0)]).is_err()
                && Scale::from_ranges(&[(0.0, nan)]).is_err()
        );
    }

    #[test]
    fn hostile_scales_are_refused() {
        let read = |form: &str, axes: &[(f32, f32)]| {
            let axes: Vec<_> = axes
                .iter()
                .map(|(offset, factor)| serde_json::json!({"offset": offset, "factor": factor}))
                .collect();
            serde_json::from_value::<Scale>(serde_json::json!({"form": form, "axes": axes}))
        };
        assert!(read("Spread", &[(1.0, 0.0), (-1e30, 1e30)]).is_ok());
        assert!(read("Identity", &[(0.0, 1.0)]).is_ok());
        assert!(read("Spread", &[]).is_err() && read("Identity", &[(0.0, 2.0)]).is_err());
        for axis in [(0.0, -1.0), (2e30, 1.0), (0.0, 2e30), (f32::NAN, 1.0), (0.0, f32::INFINITY)] {
            assert!(read("Range", &[(0.0, 1.0), axis]).is_err(), "{axis:?}");
        }
    }

    proptest! {
        #[test]
        fn labels_come_back_as_they_went(
            low in -1e6f64..1e6, width in 1e-2f64..1e6, at in -2.0f64..3.0, spread in any::<bool>(),
        ) {
            let kind = KINDS[usize::from(spread)];
            let scale = Scale::from_summary(kind, &even(low, low + width), None);
            let raw = (low + at * width) as f32;
            let there = scale.scale_label(raw);
            prop_assert!(there.abs() < 4.0);
            let back = scale.unscale_label(there);
            let room = 1e-6 * (width + f64::from(raw).abs());
            prop_assert!((f64::from(back) - f64::from(raw)).abs() < room, "{} {}", raw, back);
        }
    }
}
