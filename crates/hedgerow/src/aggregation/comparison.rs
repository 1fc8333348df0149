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

/// A count is suspicious if it is so many times the median, and out of the question if it is so
/// many times.
const COUNT_LIMITS: Limits = Limits { suspicious: 100.0, blatant: 1000.0 };

/// The same of squares per sample, as multiples of usual ones, and what they are limited to.
const SQUARE_LIMITS: Limits = Limits { suspicious: 12.0, blatant: f64::INFINITY };
const MOST_SQUARES: f64 = 300.0;

/// The usual is at most so many times the median: with more liars than a quarter, their numbers
/// would be usual.
const MOST_USUAL: f64 = 4.0;

/// The rate at which the usual squares per sample are learned.
const LEVEL_RATE: f64 = 0.1;

/// A node with many samples is compared as if it had at most so many times the median.
const MOST_SAMPLES: f64 = 4.0;

/// Room for rounding.
const ROUNDING: f64 = 1e-3;

/// What a number of uploads says.
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
    /// What they say.
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
    /// A number of samples, by the median.
    Count,
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
    /// In what.
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
        let times = format_args!("{multiple:.0} times");
        match statistic {
            Statistic::Impossible => f.write_str("numbers that no node can have"),
            Statistic::Gradient | Statistic::Products | Statistic::Curvature | Statistic::Gain => {
                write!(f, "{statistic} {times} as far from those of the other nodes as usual")
            }
            _ => write!(f, "{times} as many {statistic} as usual"),
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

/// Usual squares per sample.
pub(crate) type Levels = BTreeMap<Statistic, f64>;

/// Writes the greatest difference of each upload. Reduces squares that exceed the usual by far.
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
            Measure::Count => (part.counts(uploads), COUNT_LIMITS),
        };
        for (greatest, multiple) in out.iter_mut().zip(multiples) {
            // It is saved, and shown.
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
    fn distances(&self, uploads: &[&mut Vec<f32>], floor: f64) -> Vec<f64> {
        let told: Vec<f64> = uploads.iter().map(|upload| self.samples(upload)).collect();
        let telling = told.iter().filter(|samples| **samples > 0.0);
        let Some(usual_samples) = median(telling.copied().collect()) else {
            return vec![0.0; uploads.len()];
        };
        let most = MOST_SAMPLES * usual_samples;
        let mut means: Vec<Vec<f64>> = Vec::with_capacity(uploads.len());
        for (upload, samples) in uploads.iter().zip(&told) {
            means.push(match *samples > 0.0 {
                true => self.numbers(upload).map(|number| number / samples).collect(),
                false => Vec::new(),
            });
        }
        let known = || means.iter().filter(|mean| !mean.is_empty());
        let centre: Vec<f64> = (0..self.numbers.len())
            .map(|at| median(known().map(|mean| mean[at]).collect()).unwrap_or(0.0))
            .collect();
        let mut lengths = Vec::with_capacity(uploads.len());
        let mut distances = Vec::with_capacity(uploads.len());
        for ((mean, samples), upload) in means.iter().zip(&told).zip(uploads) {
            if mean.is_empty() {
                // Sums over no samples are zero.
                let is_zero = self.numbers(upload).all(|number| number == 0.0);
                distances.push(if is_zero { 0.0 } else { f64::INFINITY });
                continue;
            }
            let root = math::sqrt(samples.min(most));
            let squares = mean.iter().map(|number| number * number).sum();
            lengths.push(root * math::sqrt(squares));
            let apart = mean.iter().zip(&centre).map(|(number, centre)| number - centre);
            distances.push(root * math::sqrt(apart.map(|apart| apart * apart).sum()));
        }
        let compared = distances.iter().zip(&means).filter(|(_, mean)| !mean.is_empty());
        let usual = usual(compared.map(|(distance, _)| *distance).collect()).unwrap_or(0.0);
        let usual = usual.max(floor * median(lengths).unwrap_or(0.0));
        distances.into_iter().map(|distance| multiple(distance, usual)).collect()
    }

    /// The squares of each upload as multiples of the usual ones.
    fn limit_squares(
        &self,
        levels: &mut Levels,
        uploads: &mut [&mut Vec<f32>],
        is_usual: bool,
    ) -> Vec<f64> {
        let at = self.numbers.start;
        let told = uploads.iter().map(|upload| (f64::from(upload[at]), self.samples(upload)));
        let told: Vec<(f64, f64)> = told.collect();
        let telling = told.iter().filter(|(_, samples)| *samples > 0.0);
        let now = usual(telling.map(|(squares, samples)| squares / samples).collect());
        let known = levels.get(&self.statistic).copied();
        let level = match (known, now.filter(|_| self.samples.is_some())) {
            (Some(known), Some(now)) => known.max(now),
            (known, now) => known.or(now).unwrap_or(0.0),
        };
        if let (true, Some(now)) = (is_usual, now) {
            let known = known.unwrap_or(now);
            let next = known + LEVEL_RATE * (now - known);
            levels.insert(self.statistic, next.min(MAX_SUM));
        }
        if level <= 0.0 {
            return vec![0.0; uploads.len()];
        }
        for (upload, (squares, samples)) in uploads.iter_mut().zip(&told) {
            let most = squares.min(MOST_SQUARES * level * samples);
            upload[at] = most as f32;
            if self.numbers.len() > 1 {
                // Cauchy and Schwarz.
                let bound = ((1.0 + ROUNDING) * math::sqrt(most * samples)) as f32;
                upload[at + 1] = upload[at + 1].clamp(-bound, bound);
            }
        }
        let squares = told.iter().map(|(squares, samples)| match self.samples {
            // Only sums are evidence.
            None => 0.0,
            Some(_) => multiple(*squares, level * samples),
        });
        squares.collect()
    }

    fn counts(&self, uploads: &[&mut Vec<f32>]) -> Vec<f64> {
        let count = |upload: &&mut Vec<f32>| f64::from(upload[self.numbers.start]);
        let telling = uploads.iter().map(count).filter(|count| *count > 0.0).collect();
        let usual = median(telling).unwrap_or(f64::INFINITY);
        uploads.iter().map(|upload| multiple(count(upload), usual)).collect()
    }
}

fn multiple(value: f64, usual: f64) -> f64 {
    if value <= 0.0 { 0.0 } else { value / usual }
}

/// The number in the middle, or the lower one of both; none of too few.
fn median(mut numbers: Vec<f64>) -> Option<f64> {
    let at = numbers.len().checked_sub(1)? / 2;
    let (_, middle, _) = numbers.select_nth_unstable_by(at, f64::total_cmp);
    Some(*middle).filter(|_| numbers.len() >= LEAST_UPLOADS)
}

/// What three quarters of the numbers don't exceed; none of too few.
fn usual(mut numbers: Vec<f64>) -> Option<f64> {
    let at = numbers.len() * 3 / 4;
    if numbers.len() < LEAST_UPLOADS {
        return None;
    }
    let (_, quartile, _) = numbers.select_nth_unstable_by(at - 1, f64::total_cmp);
    let quartile = *quartile;
    let most = median(numbers).map_or(f64::INFINITY, |median| MOST_USUAL * median);
    Some(quartile.min(most))
}
