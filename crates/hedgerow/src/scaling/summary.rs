//! [`Summary`]: what a node knows about the numbers that it has seen, column by column, in a few
//! numbers that merge.

mod merging;

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::limits::{MAX_NUMBER, MAX_REPORTED};
use crate::math;
use crate::message::{Rejected, Report, check_numbers};

/// Count, mean, spread and range of every column of the samples so far: the inputs, then the label.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    columns: Vec<Column>,
}

/// Numbers that a column has in a report: count, mean, standard deviation, smallest and largest.
const NUMBERS_PER_COLUMN: usize = 5;

/// A column with fewer values has no outliers.
const MIN_VALUES_FOR_OUTLIERS: f64 = 8.0;

/// How many standard deviations from the mean a value may be when outliers are rare.
const MIN_REACH: f64 = 5.0;

impl Summary {
    /// Nothing has been seen yet.
    pub fn new(columns: usize) -> Self {
        Self { columns: vec![Column::default(); columns] }
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Adds a value to a column; one that isn't finite is missing and counts nothing. An outlier is
    /// pulled in first: a value far off counts like one five standard deviations away. If more of
    /// them follow, they are let through: then it was no outlier but a new level, or a column that
    /// is mostly the same.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn add(&mut self, column: usize, value: f64) {
        self.columns[column].add(value);
    }

    /// How many values a column has had.
    pub fn count(&self, column: usize) -> f64 {
        self.columns[column].count
    }

    /// Mean of a column, once it has had a value.
    pub fn mean(&self, column: usize) -> Option<f64> {
        let column = &self.columns[column];
        (column.count > 0.0).then_some(column.mean)
    }

    /// Standard deviation of a column.
    pub fn deviation(&self, column: usize) -> f64 {
        self.columns[column].deviation()
    }

    /// Root of the mean square distance of a column's values from a point.
    pub fn deviation_from(&self, column: usize, point: f64) -> f64 {
        let column = &self.columns[column];
        if column.count > 0.0 { math::hypot(column.deviation(), column.mean - point) } else { 0.0 }
    }

    /// Smallest and largest value of a column, once it has had one.
    pub fn range(&self, column: usize) -> Option<(f64, f64)> {
        let column = &self.columns[column];
        (column.count > 0.0).then_some((column.min, column.max))
    }

    /// Adds what somebody else has seen.
    ///
    /// # Panics
    /// If they have another number of columns.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.columns(), other.columns(), "columns of a summary");
        self.columns.iter_mut().zip(&other.columns).for_each(|(column, other)| column.merge(other));
    }

    /// Writes a report of it.
    pub fn write(&self, out: &mut Report) {
        out.numbers.clear();
        out.numbers.extend(self.columns.iter().flat_map(|column| column.reported()));
    }

    /// What a report says, unless no honest node can have sent it.
    pub fn read(columns: usize, report: &Report) -> Result<Self, Rejected> {
        let (expected, found) = (NUMBERS_PER_COLUMN * columns, report.numbers.len());
        if found != expected {
            return Err(Rejected::WrongLength { expected, found });
        }
        check_numbers(&report.numbers)?;
        let (read, _) = report.numbers.as_chunks();
        let columns = read.iter().enumerate().map(|(at, numbers)| {
            let column = Column::from_reported(*numbers);
            if column.is_sound() { Ok(column) } else { Err(Rejected::NotASummary { column: at }) }
        });
        Ok(Self { columns: columns.collect::<Result<_, _>>()? })
    }

    /// Whether a saved state has this shape and no number that can't be.
    pub(super) fn is_sound(&self, columns: usize) -> bool {
        self.columns() == columns && self.columns.iter().all(Column::is_sound)
    }
}

/// All zero until the first value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Column {
    count: f64,
    mean: f64,
    /// Sum of squared distances from the mean.
    m2: f64,
    min: f64,
    max: f64,
    /// How many standard deviations away the next value may be.
    reach: f64,
}

impl Default for Column {
    fn default() -> Self {
        Self { count: 0.0, mean: 0.0, m2: 0.0, min: 0.0, max: 0.0, reach: MIN_REACH }
    }
}

impl Column {
    fn add(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        let bound = f64::from(MAX_NUMBER);
        let value = self.pulled_in(value.clamp(-bound, bound));
        if self.count == 0.0 {
            (self.min, self.max) = (value, value);
        }
        self.count += 1.0;
        let before = value - self.mean;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        // Rounding must not take the mean out of the range.
        self.mean = (self.mean + before / self.count).clamp(self.min, self.max);
        self.m2 += (before * (value - self.mean)).max(0.0);
    }

    /// The value as it is, or the farthest one in reach. (A column that has always been the same
    /// has no idea of far.)
    fn pulled_in(&mut self, value: f64) -> f64 {
        if self.count < MIN_VALUES_FOR_OUTLIERS || self.m2 == 0.0 {
            return value;
        }
        let away = value - self.mean;
        // Most values are surely within, which takes no root to tell.
        let is_within = away * away * self.count < 0.9 * self.reach * self.reach * self.m2;
        let pulled = if is_within { value } else { self.farthest_towards(value) };
        // Doubled by every value beyond and 1% less with every other one: what comes more often
        // than once in seventy values is no outlier.
        let change = if pulled == value { 0.99 } else { 2.0 };
        self.reach = (self.reach * change).clamp(MIN_REACH, f64::from(MAX_NUMBER));
        pulled
    }

    /// The value, or what is in reach on its side.
    fn farthest_towards(&self, value: f64) -> f64 {
        let farthest = self.reach * self.deviation();
        value.clamp(self.mean - farthest, self.mean + farthest)
    }

    fn deviation(&self) -> f64 {
        if self.count > 0.0 { math::sqrt(self.m2 / self.count) } else { 0.0 }
    }

    fn merge(&mut self, other: &Self) {
        if other.count == 0.0 {
            return;
        }
        if self.count == 0.0 {
            *self = *other;
            return;
        }
        let count = self.count + other.count;
        let apart = other.mean - self.mean;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.mean = (self.mean + apart * (other.count / count)).clamp(self.min, self.max);
        self.m2 += other.m2 + apart * apart * (self.count * other.count / count);
        self.count = count;
        self.reach = self.reach.max(other.reach);
    }

    fn reported(&self) -> [f32; NUMBERS_PER_COLUMN] {
        let (min, max) = (self.min as f32, self.max as f32);
        // Values closer together than f32 can tell are one.
        let deviation = (self.deviation() as f32).min(max - min);
        [self.count as f32, self.mean as f32, deviation, min, max]
    }

    fn from_reported(numbers: [f32; NUMBERS_PER_COLUMN]) -> Self {
        let [count, mean, deviation, min, max] = numbers.map(f64::from);
        let m2 = deviation * deviation.abs() * count;
        Self { count, mean, m2, min, max, reach: MIN_REACH }
    }

    fn is_sound(&self) -> bool {
        let bound = f64::from(MAX_NUMBER);
        let spread = self.max - self.min;
        let is_empty = self.count == 0.0;
        (0.0..=MAX_REPORTED).contains(&self.count)
            && self.min <= self.mean
            && self.mean <= self.max
            && -bound <= self.min
            && self.max <= bound
            && (0.0..=spread * spread * self.count).contains(&self.m2)
            && (MIN_REACH..=bound).contains(&self.reach)
            && (!is_empty || (self.min, self.max) == (0.0, 0.0))
    }
}

#[cfg(test)]
impl Summary {
    /// A summary that can't be.
    pub(super) fn with_count(mut self, count: f64) -> Self {
        self.columns[0].count = count;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::CounterRng;
    use proptest::prelude::*;

    fn summary(values: &[f64]) -> Summary {
        let mut summary = Summary::new(1);
        values.iter().for_each(|value| summary.add(0, *value));
        summary
    }

    /// So many numbers in [-1, 1).
    fn noise(count: u64) -> Vec<f64> {
        let stream = CounterRng::from_seed(3);
        (0..count).map(|at| 2.0 * stream.uniform_at(at) - 1.0).collect()
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()))
    }

    fn assert_alike(a: &Summary, b: &Summary) {
        for column in 0..a.columns() {
            assert_eq!((a.count(column), a.range(column)), (b.count(column), b.range(column)));
            let means = (a.mean(column).unwrap_or(0.0), b.mean(column).unwrap_or(0.0));
            assert!(close(means.0, means.1), "{a:?} {b:?}");
            assert!(close(a.deviation(column), b.deviation(column)), "{a:?} {b:?}");
        }
    }

    #[test]
    fn moments_and_range_are_the_values_own() {
        let summary = summary(&[4.0, f64::NAN, 8.0, f64::INFINITY, 6.0]);
        assert_eq!(
            (summary.count(0), summary.mean(0), summary.range(0)),
            (3.0, Some(6.0), Some((4.0, 8.0)))
        );
        assert!(close(summary.deviation(0), (8.0f64 / 3.0).sqrt()));
        assert!(close(summary.deviation_from(0, 3.0), (8.0f64 / 3.0 + 9.0).sqrt()));
        let nothing = Summary::new(1);
        assert_eq!((nothing.count(0), nothing.mean(0), nothing.range(0)), (0.0, None, None));
        assert_eq!((nothing.deviation(0), nothing.deviation_from(0, 3.0)), (0.0, 0.0));
    }

    #[test]
    fn one_outlier_counts_like_five_deviations() {
        for at in [20, 100, 1000] {
            let values = noise(at);
            let calm = summary(&values);
            for outlier in [1e12, -1e300, f64::MAX] {
                let far = calm.mean(0).unwrap() + MIN_REACH * calm.deviation(0) * outlier.signum();
                let shaken = summary(&[&values[..], &[outlier]].concat());
                assert_alike(&shaken, &summary(&[&values[..], &[far]].concat()));
                assert!(shaken.deviation(0) < 1.6 * calm.deviation(0), "{shaken:?}");
            }
        }
    }

    #[test]
    fn rare_outliers_never_take_over() {
        let mut values = noise(20_000);
        values.iter_mut().skip(99).step_by(200).for_each(|value| *value = 1e12);
        assert!(summary(&values).deviation(0) < 1.5, "{:?}", summary(&values));
    }

    #[test]
    fn a_new_level_gets_through_within_tens_of_samples() {
        for before in [20, 1000, 100_000] {
            let mut values = noise(before);
            values.extend(noise(30).iter().map(|value| value + 1e6));
            let summary = summary(&values);
            assert!(summary.range(0).unwrap().1 > 0.999e6, "{summary:?}");
            // Where the new values are in the end is within the reach of a scale made from this.
            let away = (1e6 - summary.mean(0).unwrap()) / summary.deviation(0);
            let share = before as f64 / 20.0;
            assert!(away < 2.0 * share.sqrt(), "{away} after {before}");
        }
    }

    #[test]
    fn a_constant_column_opens_up() {
        for constant in [0.0, 3.0, -1e9] {
            let mut values = vec![constant; 1000];
            assert_eq!(summary(&values).deviation(0), 0.0);
            values.extend(noise(40).iter().map(|value| constant + 1e3 * value));
            let (min, max) = summary(&values).range(0).unwrap();
            assert!(max - constant > 500.0 && constant - min > 500.0, "{:?}", summary(&values));
        }
    }

    #[test]
    fn what_is_rare_but_regular_is_no_outlier() {
        // One in fifty: seven deviations away, and yet most of what there is to know.
        let values: Vec<f64> =
            (0..10_000).map(|at| if at % 50 == 30 { 1000.0 } else { 0.0 }).collect();
        let deviation = summary(&values).deviation(0);
        assert!((50.0..200.0).contains(&deviation), "{deviation}, and 140 without any pulling in");
    }

    #[test]
    fn reports_are_read_as_they_were_written() {
        let mut summary = Summary::new(3);
        noise(500).iter().for_each(|value| summary.add(0, 1e6 + value));
        (0..40).for_each(|_| summary.add(2, -7.5));
        let mut report = Report::default();
        summary.write(&mut report);
        assert_eq!(report.count(), 15);
        let read = Summary::read(3, &report).unwrap();
        for column in 0..3 {
            assert_eq!(read.count(column), summary.count(column));
            let (a, b) = (read.mean(column).unwrap_or(0.0), summary.mean(column).unwrap_or(0.0));
            assert!((a - b).abs() <= 1e-7 * b.abs(), "{a} {b}");
            assert!((read.deviation(column) - summary.deviation(column)).abs() < 1e-6);
        }
        assert_eq!(read.range(2), Some((-7.5, -7.5)));
    }

    #[test]
    fn values_too_close_for_the_wire_are_reported_as_one() {
        let mut values = vec![1e9, 1e9 + 1e-6];
        values.extend([1e9; 30]);
        let mut report = Report::default();
        summary(&values).write(&mut report);
        assert_eq!(Summary::read(1, &report).unwrap().deviation(0), 0.0);
    }

    #[test]
    fn hostile_reports_are_refused() {
        let sound = [3.0, 1.0, 0.5, 0.0, 2.0];
        let read = |numbers: &[f32]| Summary::read(1, &Report { numbers: numbers.to_vec() });
        assert!(read(&sound).is_ok());
        assert!(read(&[0.0; 5]).is_ok(), "a column that is always missing");
        assert_eq!(read(&sound[1..]), Err(Rejected::WrongLength { expected: 5, found: 4 }));
        for (position, value) in [
            (0, -1.0),
            (0, 0.0),
            (0, 1e16),
            (1, -0.1),
            (1, 2.1),
            (2, -0.5),
            (2, 2.1),
            (3, 1.1),
            (4, 0.9),
        ] {
            let mut numbers = sound;
            numbers[position] = value;
            let refused = Err(Rejected::NotASummary { column: 0 });
            assert_eq!(read(&numbers), refused, "{numbers:?}");
        }
        for position in 0..5 {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2e30, -2e30] {
                let mut numbers = sound;
                numbers[position] = value;
                assert!(matches!(read(&numbers), Err(Rejected::OutOfBounds { .. })), "{numbers:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn merging_is_seeing_it_all(
            values in proptest::collection::vec(-1e3f64..1e3, 0..19),
            at in any::<prop::sample::Index>(),
        ) {
            let cut = at.index(values.len() + 1);
            let (first, second) = (summary(&values[..cut]), summary(&values[cut..]));
            // Where a value was pulled in, it mattered what came before it.
            let is_calm = |summary: &Summary| summary.columns[0].reach == MIN_REACH;
            prop_assume!(is_calm(&first) && is_calm(&second) && is_calm(&summary(&values)));
            let (mut one, mut other) = (first.clone(), second.clone());
            one.merge(&second);
            other.merge(&first);
            assert_alike(&one, &summary(&values));
            assert_alike(&other, &summary(&values));
        }

        #[test]
        fn whatever_comes_it_stays_sound(
            values in proptest::collection::vec(any::<f64>(), 1..200),
            others in proptest::collection::vec((-40i32..40, -1.0f64..1.0), 0..200),
        ) {
            let mut summary = summary(&values);
            prop_assert!(summary.is_sound(1), "{:?}", summary);
            let mut other = Summary::new(1);
            others.iter().for_each(|(power, value)| other.add(0, value * 10f64.powi(*power)));
            summary.merge(&other);
            prop_assert!(summary.is_sound(1), "{:?}", summary);
            let mut report = Report::default();
            summary.write(&mut report);
            prop_assert!(Summary::read(1, &report).is_ok(), "{:?}", report);
        }
    }
}
