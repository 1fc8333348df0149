//! Axes: where a value falls, and which values are named.

use std::ops::RangeInclusive;

use super::{dates, number};

/// How an axis spaces its values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Spacing {
    Linear,
    /// By square root, so that growth as √t is a straight line.
    Root,
    Log,
    /// Linear, of seconds since 1970.
    Date,
}

/// A range of values and their spacing; never empty.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    spacing: Spacing,
    low: f64,
    high: f64,
    /// Ticks on a linear axis are no closer than this: nothing happens between two rounds.
    least_step: f64,
    /// Share of the length, at the lower end, in which zero stands; a logarithmic axis has no other
    /// place for it.
    zero: f64,
}

/// A value on an axis. The label is empty for a line of the fine grid.
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

/// Decades beyond which a logarithmic axis would only show round-off.
const MOST_DECADES: i32 = 12;
/// Keeps differences of two values finite.
const LARGEST: f64 = 1e300;

impl Axis {
    /// From 0 to the last round.
    pub(crate) fn rounds(spacing: Spacing, last: f64) -> Self {
        let high = if last.is_finite() { last.max(1.0) } else { 1.0 };
        Self { spacing, least_step: 1.0, ..Self::exactly(0.0..=high) }
    }

    /// From one round to another, with some air after it for the last number.
    pub(crate) fn rounds_from(first: f64, last: f64) -> Self {
        let air = 0.02 * (last - first);
        Self { least_step: 1.0, ..Self::exactly(first..=(last + air).max(first + 1.0)) }
    }

    /// From one date to another, with some air after it for the last label.
    pub(crate) fn dates(first: f64, last: f64) -> Self {
        let air = 0.02 * (last - first);
        Self { spacing: Spacing::Date, ..Self::exactly(first..=(last + air).max(first + 1.0)) }
    }

    /// Exactly this range.
    pub(crate) fn exactly(range: RangeInclusive<f64>) -> Self {
        let (low, high) = range.into_inner();
        Self { spacing: Spacing::Linear, low, high, least_step: 0.0, zero: 0.0 }
    }

    /// A linear axis with some air around the values.
    pub(crate) fn around(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = extremes(values.filter(|v| v.is_finite())).unwrap_or((0.0, 1.0));
        let air = if high > low { (high - low) * 0.04 } else { high.abs().max(1.0) * 0.1 };
        Self::exactly(low - air..=high + air)
    }

    /// A linear axis from zero to a little more than the largest of the values.
    pub(crate) fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let largest = values.filter(|v| v.is_finite()).fold(0.0, f64::max).min(LARGEST);
        Self::exactly(0.0..=if largest > 0.0 { largest * 1.04 } else { 1.0 })
    }

    /// A logarithmic axis over the positive ones of the values, with a share of its length as air
    /// on either side.
    pub(crate) fn log(values: impl Iterator<Item = f64>, air: f64) -> Self {
        let positive = values.filter(|v| v.is_finite() && *v >= f64::MIN_POSITIVE);
        let (low, high) = extremes(positive).unwrap_or((0.1, 1.0));
        let low = low.max(high * 10f64.powi(-MOST_DECADES)).max(1.0 / LARGEST);
        let factor = if high > low { (high / low).powf(air) } else { 2.0 };
        Self { spacing: Spacing::Log, ..Self::exactly(low / factor..=high * factor) }
    }

    /// The axis with a share of its length for zero.
    pub(crate) fn with_zero(self, share: f64) -> Self {
        Self { zero: share, ..self }
    }

    /// Where the value falls, from 0 to 1; values beyond the ends fall on them.
    pub(crate) fn position(&self, value: f64) -> f64 {
        if self.zero > 0.0 && value <= 0.0 {
            return 0.431 * self.zero;
        }
        let value = value.clamp(self.low, self.high);
        let (low, high) = (self.spaced(self.low), self.spaced(self.high));
        let share = ((self.spaced(value) - low) / (high - low)).clamp(0.0, 1.0);
        self.zero + (1.0 - self.zero) * share
    }

    pub(crate) fn low(&self) -> f64 {
        self.low
    }

    pub(crate) fn high(&self) -> f64 {
        self.high
    }

    /// Whether the value falls between the ends.
    pub(crate) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    pub(crate) fn spacing(&self) -> Spacing {
        self.spacing
    }

    /// The axis for the script of a page: spacing, ends and the least step between ticks.
    pub(super) fn specification(&self) -> String {
        let spacing = match self.spacing {
            Spacing::Linear => "linear",
            Spacing::Root => "root",
            Spacing::Log => "log",
            Spacing::Date => "date",
        };
        format!("{spacing} {} {} {}", self.low, self.high, self.least_step)
    }

    /// About this number of named values, and a fine grid where it helps to read a logarithmic
    /// axis; none at all for 0.
    pub(crate) fn ticks(&self, about: usize) -> Vec<Tick> {
        if about == 0 {
            return Vec::new();
        }
        let mut ticks = match self.spacing {
            Spacing::Linear => self.even_ticks(about),
            Spacing::Root => self.root_ticks(),
            Spacing::Log => self.log_ticks(about),
            Spacing::Date => dates::ticks(self.low, self.high, about),
        };
        if self.zero > 0.0 {
            ticks.push(Tick { value: 0.0, label: "0".to_owned() });
        }
        ticks
    }

    fn spaced(&self, value: f64) -> f64 {
        match self.spacing {
            Spacing::Linear | Spacing::Date => value,
            Spacing::Root => value.sqrt(),
            Spacing::Log => value.log10(),
        }
    }

    /// Round numbers, each named only if it stands clear of the one before.
    fn root_ticks(&self) -> Vec<Tick> {
        let mut ticks: Vec<Tick> = Vec::new();
        let top = self.high.log10().floor() as i32;
        let round_numbers = (0..=top).flat_map(|e| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(e)));
        for value in std::iter::once(0.0).chain(round_numbers).filter(|v| *v <= self.high) {
            if ticks
                .last()
                .is_none_or(|last| self.position(value) - self.position(last.value) > 0.07)
            {
                ticks.push(Tick { value, label: number::fixed(value, 0) });
            }
        }
        ticks
    }

    fn even_ticks(&self, about: usize) -> Vec<Tick> {
        let Self { low, high, least_step, .. } = *self;
        let rough = ((high - low) / about.max(1) as f64).max(least_step);
        let magnitude = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .find(|m| m * magnitude >= rough * 0.999)
            .unwrap_or(10.0)
            * magnitude;
        let first = (low / step - 1e-9).ceil();
        let largest = low.abs().max(high.abs());
        let readable = step >= 1e-4 && largest < 1e7;
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        // The bound holds even where a step is lost in rounding.
        (0..=2 * about)
            .map(|i| (first + i as f64) * step)
            .take_while(|value| *value <= high + step * 1e-9)
            .map(|value| Tick {
                value,
                label: if readable {
                    number::fixed(value, decimals)
                } else {
                    number::significant(value, 3)
                },
            })
            .collect()
    }

    fn log_ticks(&self, about: usize) -> Vec<Tick> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let every = ((last - first) as usize).div_ceil(about.max(1)).max(1);
        let named_by: [&[u8]; 4] = [&[1], &[1, 3], &[1, 2, 5], &[1, 2, 3, 4, 5, 6, 7, 8, 9]];
        let within =
            |m: u8, e: i32| (self.low..=self.high).contains(&(f64::from(m) * 10f64.powi(e)));
        let count = |named: &[u8]| {
            (first..=last)
                .step_by(every)
                .flat_map(|e| named.iter().map(move |m| (*m, e)))
                .filter(|(m, e)| within(*m, *e))
                .count()
        };
        let Some(named) = named_by.into_iter().find(|named| count(named) >= 3) else {
            // Less than a factor of two or so: a logarithmic axis is almost linear there.
            return self.even_ticks(about);
        };
        let plain = first >= -4 && last <= 5;
        let mut ticks = Vec::new();
        for exponent in first..=last {
            for multiple in 1..=9u8 {
                if !within(multiple, exponent) || (every > 1 && multiple > 1) {
                    continue;
                }
                let named_here = named.contains(&multiple)
                    && ((exponent - first) as usize).is_multiple_of(every);
                let label = match (named_here, plain, multiple) {
                    (false, ..) => String::new(),
                    (_, true, _) => number::fixed(
                        f64::from(multiple) * 10f64.powi(exponent),
                        (-exponent).max(0) as usize,
                    ),
                    (.., 1) => number::power_of_ten(exponent),
                    _ => format!("{multiple}·{}", number::power_of_ten(exponent)),
                };
                ticks.push(Tick { value: f64::from(multiple) * 10f64.powi(exponent), label });
            }
        }
        ticks
    }
}

fn extremes(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.map(|v| v.clamp(-LARGEST, LARGEST)).fold(None, |range, v| {
        let (low, high) = range.unwrap_or((v, v));
        Some((low.min(v), high.max(v)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(axis: &Axis) -> Vec<String> {
        axis.ticks(6).into_iter().map(|tick| tick.label).filter(|label| !label.is_empty()).collect()
    }

    #[test]
    fn every_axis_names_a_few_values_inside_its_range() {
        let axes = [
            Axis::rounds(Spacing::Linear, 1.0),
            Axis::rounds(Spacing::Linear, 14_000.0),
            Axis::rounds(Spacing::Root, 1.0),
            Axis::rounds(Spacing::Root, 14_000.0),
            Axis::exactly(0.0..=1.0),
            Axis::around([-3.0, 8.0].into_iter()),
            Axis::around([5.0].into_iter()),
            Axis::around([-1e307, 1e307].into_iter()),
            Axis::log([0.005, 0.0051].into_iter(), 0.05),
            Axis::log([0.005, 0.3].into_iter(), 0.05),
            Axis::log([1e-30, 1e30].into_iter(), 0.05),
            Axis::log([0.0, 1e-310, f64::NAN, f64::INFINITY].into_iter(), 0.05),
            Axis::log([1e305].into_iter(), 0.05),
        ];
        for axis in axes {
            let ticks = axis.ticks(6);
            assert!((2..=13).contains(&named(&axis).len()), "{axis:?} names {:?}", named(&axis));
            assert!(ticks.len() < 60, "{axis:?}");
            for tick in ticks {
                let slack = (axis.high - axis.low) * 1e-6;
                assert!(
                    (axis.low - slack..=axis.high + slack).contains(&tick.value),
                    "{axis:?} has {}",
                    tick.value
                );
            }
        }
    }

    #[test]
    fn positions_stay_in_the_frame() {
        let axis = Axis::log([0.0, 1e-3, 10.0].into_iter(), 0.0);
        assert_eq!(
            [0.0, -1.0, 1e-3, 10.0, f64::INFINITY].map(|v| axis.position(v)),
            [0.0, 0.0, 0.0, 1.0, 1.0]
        );
        assert!((axis.position(0.1) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn growth_by_square_root_is_straight_on_a_root_axis() {
        let axis = Axis::rounds(Spacing::Root, 400.0);
        assert!((axis.position(100.0) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn names_are_plain_where_they_can_be() {
        assert_eq!(named(&Axis::log([0.001, 1.0].into_iter(), 0.0)), ["0.001", "0.01", "0.1", "1"]);
        assert_eq!(named(&Axis::log([1e-7, 1e-5].into_iter(), 0.0)), ["10⁻⁷", "10⁻⁶", "10⁻⁵"]);
        assert_eq!(named(&Axis::exactly(0.0..=1.0)), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
    }
}
