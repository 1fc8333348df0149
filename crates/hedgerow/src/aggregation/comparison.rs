//! [`Compared`]: what a server compares between the uploads of a round, and the comparison. It
//! finds uploads that differ from all others by more than honest nodes do.
//!
//! The centre is a median over nodes. What three quarters of the nodes don't exceed is usual: rare
//! samples of honest nodes may be far out. So a quarter of the nodes can be anywhere. Numbers are
//! compared per sample, so that nodes with many samples don't stand out.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use crate::limits::MAX_SUM;
use crate::math;

/// Uploads that can be compared, at least.
const LEAST_UPLOADS: usize = 4;

/// Limits of counts, as multiples of the usual one.
const COUNT_LIMITS: Limits = Limits { suspicious: 100.0, blatant: 1000.0 };

/// Limits of squares per sample, as multiples of the usual. Larger ones are reduced to the last.
const SQUARE_LIMITS: Limits = Limits { suspicious: 12.0, blatant: f64::INFINITY };
const MOST_SQUARES: f64 = 300.0;

/// The usual is at most so many times the median: with more liars than a quarter, their numbers
/// would be usual.
const MOST_USUAL: f64 = 4.0;

/// The rate at which usual squares and counts are learned.
const LEVEL_RATE: f64 = 0.1;

/// A node with many samples is compared as if it had at most so many times the median.
const MOST_SAMPLES: f64 = 4.0;

/// Multiples from here on aren't written out.
const MANY: f64 = 1e6;

/// Relative error of numbers on the wire, at most.
pub(crate) const ROUNDING: f64 = 1e-3;

/// A quantity in uploads that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Statistic {
    /// Gradients.
    Gradient,
    /// Products of features, of which the preconditioner is made.
    Products,
    /// Curvature along the model's moves.
    Curvature,
    /// By how much a step on trial changes squared errors.
    Gain,
    /// Squared errors.
    Errors,
    /// Squared errors of the part of the model that learns frequencies.
    UnitErrors,
    /// Squared errors of a constant.
    ConstantErrors,
    /// Samples in the history.
    History,
    /// Samples of the round.
    Samples,
    /// Numbers that no node can have.
    Impossible,
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gradient => "gradient",
            Self::Products => "products of features",
            Self::Curvature => "curvature",
            Self::Gain => "gain of a step",
            Self::Errors => "squared errors",
            Self::UnitErrors => "squared errors of the units",
            Self::ConstantErrors => "squared errors of a constant",
            Self::History => "samples in the history",
            Self::Samples => "samples in a round",
            Self::Impossible => "impossible numbers",
        })
    }
}

/// Some numbers of an upload that are compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The quantity.
    pub statistic: Statistic,
    /// Where they are.
    pub numbers: Range<usize>,
    /// Where the number of samples is that they are sums over; none if they aren't sums.
    pub samples: Option<usize>,
    /// How they are compared.
    pub measure: Measure,
}

/// How numbers are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measure {
    /// By their distance from the medians over nodes, as a multiple of the usual distance; times
    /// the root of the samples, since chance decides on less where there are more.
    Distance {
        /// Multiples that matter.
        limits: Limits,
        /// The usual distance is at least this share of the median length.
        floor: f64,
    },
    /// A sum of squares, and perhaps the sum of their roots. What exceeds the usual by far is
    /// reduced.
    Squares {
        /// Whether they tell what is usual.
        is_usual: bool,
    },
    /// A number of samples.
    Count {
        /// Of a history, the rounds that it can be over: it is compared with the usual samples of so
        /// many rounds, or the median if that is more. None for the samples of a round.
        rounds: Option<u64>,
    },
}

/// Multiples of what is usual.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// From here on, a node that goes on like this is left out.
    pub suspicious: f64,
    /// From here on, an upload is left out at once.
    pub blatant: f64,
}

/// By how much an upload differs from the others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The quantity.
    pub statistic: Statistic,
    /// As a multiple of what is usual.
    pub multiple: f64,
    /// As a multiple of what is suspicious.
    pub(crate) strength: f64,
    /// Whether no honest node differs so much.
    pub(crate) is_blatant: bool,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { statistic, multiple, .. } = self;
        if *statistic == Statistic::Impossible {
            return f.write_str("numbers that no node can have");
        }
        match *multiple {
            large if large >= MANY => write!(f, "{statistic} more than a million times")?,
            multiple => write!(f, "{statistic} {multiple:.0} times")?,
        }
        match statistic {
            Statistic::Gradient | Statistic::Products | Statistic::Curvature | Statistic::Gain => {
                f.write_str(" as far from those of the other nodes as usual")
            }
            _ => f.write_str(" as large as usual"),
        }
    }
}

impl Difference {
    /// An upload was refused because no node can have its numbers.
    pub(crate) const IMPOSSIBLE: Self = Self {
        statistic: Statistic::Impossible,
        multiple: MAX_SUM,
        strength: MAX_SUM,
        is_blatant: true,
    };
}

/// Usual squares per sample, and usual samples of a round.
pub(crate) type Levels = BTreeMap<Statistic, f64>;

/// Takes levels to another unit of labels, of which this is the square.
pub(crate) fn rescale(levels: &mut Levels, factor: f64) {
    for (statistic, level) in levels {
        if *statistic != Statistic::Samples {
            *level = (*level * factor).min(MAX_SUM);
        }
    }
}

/// Writes the greatest difference of each upload; none where nothing could be compared. Reduces
/// squares that exceed the usual by far.
pub(crate) fn compare(
    compared: &[Compared],
    levels: &mut Levels,
    uploads: &mut [&mut Vec<f32>],
    out: &mut [Option<Difference>],
) {
    for part in compared {
        let (multiples, limits) = match part.measure {
            Measure::Distance { limits, floor } => (part.distances(uploads, floor), limits),
            Measure::Squares { is_usual } => {
                (part.limit_squares(levels, uploads, is_usual), SQUARE_LIMITS)
            }
            Measure::Count { rounds } => (part.counts(levels, uploads, rounds), COUNT_LIMITS),
        };
        for (greatest, multiple) in out.iter_mut().zip(multiples) {
            let Some(multiple) = multiple else { continue };
            // It is saved.
            let multiple = multiple.min(MAX_SUM);
            let difference = Difference {
                statistic: part.statistic,
                multiple,
                strength: multiple / limits.suspicious,
                is_blatant: multiple >= limits.blatant,
            };
            if greatest.is_none_or(|known| known.strength < difference.strength) {
                *greatest = Some(difference);
            }
        }
    }
}

impl Compared {
    fn numbers<'a>(&self, upload: &'a [f32]) -> impl Iterator<Item = f64> + use<'a> {
        upload[self.numbers.clone()].iter().map(|number| f64::from(*number))
    }

    /// The samples behind the numbers, at least zero.
    fn samples(&self, upload: &[f32]) -> f64 {
        self.samples.map_or(1.0, |at| f64::from(upload[at]))
    }

    /// How far the numbers of each upload are from the medians, as multiples of the usual distance.
    fn distances(&self, uploads: &[&mut Vec<f32>], floor: f64) -> Vec<Option<f64>> {
        let samples: Vec<f64> = uploads.iter().map(|upload| self.samples(upload)).collect();
        let nonzero = samples.iter().copied().filter(|samples| *samples > 0.0);
        let most = MOST_SAMPLES * median(nonzero.collect()).unwrap_or(0.0);
        let mut buffer = Vec::with_capacity(uploads.len());
        // Squared distances and squared lengths per sample.
        let mut squares = vec![[0.0; 2]; uploads.len()];
        for at in self.numbers.clone() {
            let means = uploads.iter().zip(&samples).map(|(upload, n)| f64::from(upload[at]) / n);
            buffer.clear();
            buffer.extend(
                means.clone().zip(&samples).filter(|(_, n)| **n > 0.0).map(|(mean, _)| mean),
            );
            let Some(centre) = median_of(&mut buffer) else { return vec![None; uploads.len()] };
            for ([distance, length], mean) in squares.iter_mut().zip(means) {
                *distance += (mean - centre) * (mean - centre);
                *length += mean * mean;
            }
        }
        let root = |squares: f64, samples: f64| math::sqrt(squares) * math::sqrt(samples.min(most));
        let compared = || squares.iter().zip(&samples).filter(|(_, samples)| **samples > 0.0);
        let distances = compared().map(|([distance, _], n)| root(*distance, *n)).collect();
        let lengths = compared().map(|([_, length], n)| root(*length, *n)).collect();
        let usual = usual(distances).unwrap_or(0.0).max(floor * median(lengths).unwrap_or(0.0));
        let each = squares.iter().zip(&samples).zip(uploads);
        let each = each.map(|(([distance, _], samples), upload)| {
            if *samples > 0.0 {
                return Some(multiple(root(*distance, *samples), usual));
            }
            // Sums over no samples are zero.
            self.numbers(upload).any(|number| number != 0.0).then_some(f64::INFINITY)
        });
        each.collect()
    }

    /// The squares of each upload as multiples of the usual ones.
    fn limit_squares(
        &self,
        levels: &mut Levels,
        uploads: &mut [&mut Vec<f32>],
        is_usual: bool,
    ) -> Vec<Option<f64>> {
        let at = self.numbers.start;
        let each = uploads.iter().map(|upload| (f64::from(upload[at]), self.samples(upload)));
        let each: Vec<(f64, f64)> = each.collect();
        let nonzero = each.iter().filter(|(_, samples)| *samples > 0.0);
        let now = usual(nonzero.map(|(squares, samples)| squares / samples).collect());
        let known = levels.get(&self.statistic).copied();
        let level = match (known, now.filter(|_| self.samples.is_some())) {
            (Some(known), Some(now)) => known.max(now),
            (known, now) => known.or(now).unwrap_or(0.0),
        };
        if let (true, Some(now)) = (is_usual, now) {
            self.learn(levels, now);
        }
        if level <= 0.0 {
            return vec![None; uploads.len()];
        }
        for (upload, (squares, samples)) in uploads.iter_mut().zip(&each) {
            let most = squares.min(MOST_SQUARES * level * samples);
            upload[at] = most as f32;
            if self.numbers.len() > 1 {
                // By the Cauchy-Schwarz inequality.
                let bound = ((1.0 + ROUNDING) * math::sqrt(most * samples)) as f32;
                upload[at + 1] = upload[at + 1].clamp(-bound, bound);
            }
        }
        let multiples = each.iter().map(|(squares, samples)| match self.samples {
            Some(_) if *squares > 0.0 || *samples > 0.0 => {
                Some(multiple(*squares, level * samples))
            }
            // Only sums are evidence.
            _ => None,
        });
        multiples.collect()
    }

    fn counts(
        &self,
        levels: &mut Levels,
        uploads: &[&mut Vec<f32>],
        rounds: Option<u64>,
    ) -> Vec<Option<f64>> {
        let count = |upload: &&mut Vec<f32>| f64::from(upload[self.numbers.start]);
        let nonzero = uploads.iter().map(count).filter(|count| *count > 0.0).collect();
        let Some(mut usual) = median(nonzero) else { return vec![None; uploads.len()] };
        match rounds {
            None => self.learn(levels, usual),
            Some(rounds) => {
                let pace = levels.get(&Statistic::Samples).copied().unwrap_or(0.0);
                usual = usual.max(pace * rounds as f64);
            }
        }
        let compared = uploads.iter().map(count);
        compared.map(|count| (count > 0.0).then(|| multiple(count, usual))).collect()
    }

    /// Learns what is usual.
    fn learn(&self, levels: &mut Levels, now: f64) {
        let known = levels.entry(self.statistic).or_insert(now);
        *known = (*known + LEVEL_RATE * (now - *known)).min(MAX_SUM);
    }
}

/// Where nothing is usual, nothing is unusual.
fn multiple(value: f64, usual: f64) -> f64 {
    if value <= 0.0 || (usual <= 0.0 && value.is_finite()) { 0.0 } else { value / usual }
}

/// The number in the middle, or the lower one of both; none of too few.
fn median(mut numbers: Vec<f64>) -> Option<f64> {
    median_of(&mut numbers)
}

/// The same. Reorders them.
fn median_of(numbers: &mut [f64]) -> Option<f64> {
    if numbers.len() < LEAST_UPLOADS {
        return None;
    }
    let at = (numbers.len() - 1) / 2;
    Some(*numbers.select_nth_unstable_by(at, f64::total_cmp).1)
}

/// What three quarters of the numbers don't exceed; none of too few.
fn usual(mut numbers: Vec<f64>) -> Option<f64> {
    let median = median_of(&mut numbers)?;
    let at = numbers.len() * 3 / 4 - 1;
    let quartile = *numbers.select_nth_unstable_by(at, f64::total_cmp).1;
    // Half of the nodes may be the same.
    Some(if median > 0.0 { quartile.min(MOST_USUAL * median) } else { quartile })
}
