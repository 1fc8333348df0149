//! What a broadcast says beside the model, and what uploads look like then.

use alloc::vec::Vec;
use core::ops::Range;

use super::ladder::{self, Begin, Stage};
use super::{BROADCAST_EXTRA, COUNTER_CYCLE, SEARCHED_MOVES, Sizes, to_wire, triangle};
use crate::aggregation::comparison::ROUNDING;
use crate::aggregation::{Compared, Limits, Measure, Statistic};
use crate::limits::{LAST_COUNT, MAX_NUMBER};
use crate::linear_algebra::write_bounded;
use crate::math;
use crate::message::{Broadcast, Rejected, check_numbers};
use crate::scaling::Rescaling;

/// A broadcast, but for the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::method) struct Order {
    pub(in crate::method) round: u64,
    /// n.
    pub(in crate::method) len: usize,
    /// y₀.
    pub(in crate::method) origin: f32,
    /// The constant that predictions are compared with, less y₀.
    pub(super) constant: f32,
    /// Bounds of the model, less y₀.
    pub(in crate::method) low: f32,
    pub(in crate::method) high: f32,
    /// θ.
    pub(super) trust: f32,
    /// Which epoch the slices belong to; 0 is the first round, when there are none.
    pub(in crate::method) epoch: u32,
    /// Where in the triangle the next slice begins.
    pub(in crate::method) begin: usize,
    /// How often nodes were told to store their sums.
    pub(super) mark: u32,
    /// How many of the last moves the server wants to know the curvature along.
    pub(in crate::method) moves: usize,
    /// What the round is about.
    pub(in crate::method) stage: Stage,
    /// Where the history begins.
    pub(in crate::method) begin_of_history: Begin,
}

/// How far gradients, products of features and curvatures may be from the median: a few nodes whose
/// data differ have a gradient of their own, and products in which the inputs' scales are squared.
const GRADIENT_LIMITS: Limits = Limits { suspicious: 5.0, blatant: 25.0 };
const PRODUCT_LIMITS: Limits = Limits { suspicious: 12.0, blatant: 40.0 };
const CURVATURE_LIMITS: Limits = Limits { suspicious: 30.0, blatant: 300.0 };

/// Gradients, and everything else, differ over nodes by these shares of their size at least.
const LEAST_APART: f64 = 0.05;
pub(in crate::method) const LEAST_SPREAD: f64 = 0.1;

/// A gradient, and where its samples are.
pub(in crate::method) fn gradient(numbers: Range<usize>, samples: usize) -> Compared {
    let measure = Measure::Distance { limits: GRADIENT_LIMITS, floor: LEAST_APART };
    Compared { statistic: Statistic::Gradient, numbers, samples: Some(samples), measure }
}

/// A slice of the Gram matrix, and where its samples are.
fn products(numbers: Range<usize>, samples: usize) -> Compared {
    let measure = Measure::Distance { limits: PRODUCT_LIMITS, floor: LEAST_SPREAD };
    Compared { statistic: Statistic::Products, numbers, samples: Some(samples), measure }
}

/// Squares, where their samples are, and whether they tell what is usual.
pub(in crate::method) fn squares(
    statistic: Statistic,
    numbers: Range<usize>,
    samples: Option<usize>,
    is_usual: bool,
) -> Compared {
    Compared { statistic, numbers, samples, measure: Measure::Squares { is_usual } }
}

/// Where the number of samples of a round is.
pub(in crate::method) fn samples(at: usize) -> Compared {
    let measure = Measure::Count { rounds: None };
    Compared { statistic: Statistic::Samples, numbers: at..at + 1, samples: None, measure }
}

/// Where the number of samples of a history is that is over so many rounds.
pub(in crate::method) fn history(at: usize, rounds: u64) -> Compared {
    let measure = Measure::Count { rounds: Some(rounds) };
    Compared { statistic: Statistic::History, numbers: at..at + 1, samples: None, measure }
}

/// What an upload has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::method) struct UploadShape {
    /// Entries of the Gram matrix: from where to where.
    pub(super) slice: (usize, usize),
    /// All numbers.
    pub(in crate::method) len: usize,
}

impl Order {
    pub(in crate::method) fn opening(sizes: &Sizes) -> Self {
        Self {
            round: 1,
            len: sizes.first,
            origin: 0.0,
            constant: 0.0,
            low: 0.0,
            high: 0.0,
            trust: 1.0,
            epoch: 0,
            begin: 0,
            mark: 0,
            moves: 0,
            stage: Stage::Nothing,
            begin_of_history: Begin::default(),
        }
    }

    /// The prediction, where the model says f.
    pub(super) fn predict(&self, says: f32) -> f32 {
        let Self { origin, constant, low, high, trust, .. } = *self;
        origin + constant + trust * (says.clamp(low, high) - constant)
    }

    /// Slices begin again, of sums as they are now.
    pub(super) fn open_epoch(&mut self) {
        self.epoch = next_in_cycle(self.epoch);
        self.begin = 0;
    }

    pub(in crate::method) fn is_first(&self) -> bool {
        self.epoch == 0
    }

    /// Whether uploads tell of the range, and else of the constant.
    pub(super) fn asks_for_range(&self) -> bool {
        self.round % 2 == 1
    }

    /// Which end of the range.
    pub(super) fn asks_for_high(&self) -> bool {
        self.round % 4 == 1
    }

    fn scalars(&self) -> usize {
        7 + triangle(self.moves) + usize::from(self.stage.has_votes())
    }

    pub(in crate::method) fn layout(&self, sizes: &Sizes) -> UploadShape {
        if self.is_first() {
            return UploadShape {
                slice: (0, triangle(self.len)),
                len: triangle(self.len) + self.len + 2,
            };
        }
        if matches!(self.stage, Stage::Check(_)) {
            return UploadShape { slice: (self.begin, self.begin), len: self.len + 7 };
        }
        // A vote may take the last place of a slice.
        let room = sizes.budget - self.len - self.scalars();
        let end = triangle(sizes.features).min(self.begin + room);
        UploadShape { slice: (self.begin, end), len: self.len + end - self.begin + self.scalars() }
    }

    /// Refuses an upload of the right length that no honest node sends.
    pub(in crate::method) fn check_upload(&self, numbers: &[f32]) -> Result<(), Rejected> {
        let len = numbers.len();
        // Counts, squares and what exceeds a range are never negative; only votes, and how far
        // labels lie from the constant, have a sign.
        let has_vote = self.stage.has_votes() && !self.is_first();
        let vote = Some(len.wrapping_sub(6)).filter(|_| has_vote);
        let (positive, signed) = match self.is_first() {
            true => (len - 2..len, None),
            false => (
                len - 7 - usize::from(has_vote)..len,
                Some(len - 3).filter(|_| !self.asks_for_range()),
            ),
        };
        let is_wrong = |at: &usize| numbers[*at] < 0.0 && ![signed, vote].contains(&Some(*at));
        if let Some(position) = positive.into_iter().find(is_wrong) {
            return Err(Rejected::Negative { position, value: numbers[position] });
        }
        if self.is_first() {
            self.check_products(numbers)?;
        }
        let Some(position) = vote else { return Ok(()) };
        // Who has no sample has no vote.
        let bound = if numbers[len - 1] > 0.0 { 1.0 } else { 0.0 };
        match numbers[position] {
            value if value.abs() > bound => Err(Rejected::OutOfBounds { position, value, bound }),
            _ => Ok(()),
        }
    }

    /// What the server compares between uploads of a round of this number.
    pub(in crate::method) fn compared(&self, sizes: &Sizes, round: u64) -> Vec<Compared> {
        let UploadShape { slice: (begin, end), len } = self.layout(sizes);
        let (slice, n) = (end - begin, self.len);
        if self.is_first() {
            let samples = len - 1;
            return vec![
                products(0..slice, samples),
                gradient(slice..slice + n, samples),
                history(samples, round),
            ];
        }
        let samples = Some(len - 1);
        // How far a label exceeds the range is no sum.
        let per_sample = samples.filter(|_| !self.asks_for_range());
        let mut compared = vec![
            self::samples(len - 1),
            squares(Statistic::Errors, len - 5..len - 4, samples, true),
            squares(Statistic::ConstantErrors, len - 4..len - 2, per_sample, per_sample.is_some()),
            history(len - 2, round),
        ];
        if matches!(self.stage, Stage::Check(_)) {
            compared.extend([
                gradient(0..n, n + 1),
                squares(Statistic::Errors, n..n + 1, Some(n + 1), false),
                history(n + 1, round),
            ]);
            return compared;
        }
        let plane = n + slice..n + slice + triangle(self.moves);
        let [behind_plane, behind_slice] = [plane.end, plane.end + 1];
        compared.extend([
            gradient(0..n, len - 2),
            products(n..n + slice, behind_slice),
            Compared {
                statistic: Statistic::Curvature,
                numbers: plane,
                samples: Some(behind_plane),
                measure: Measure::Distance { limits: CURVATURE_LIMITS, floor: LEAST_SPREAD },
            },
            history(behind_plane, round),
            history(behind_slice, round),
        ]);
        compared
    }

    /// Refuses sums of products of features, of the first round, that no samples have.
    fn check_products(&self, numbers: &[f32]) -> Result<(), Rejected> {
        let (len, last) = (self.len, numbers.len() - 1);
        // The first feature is one.
        let (value, bound) = (numbers[0], numbers[last]);
        if (value - bound).abs() > ROUNDING as f32 * bound {
            return Err(Rejected::OutOfBounds { position: 0, value, bound });
        }
        // Numbers on the wire are neither too large nor too small.
        let square = |position: usize| match numbers[position] {
            MAX_NUMBER.. => f64::INFINITY,
            square => f64::from(square.max(f32::MIN_POSITIVE)),
        };
        let of_row = |row: usize| square(triangle(row) + row);
        // By the Cauchy-Schwarz inequality. Labels may be zero but for what rescaling left of them.
        let slack = ROUNDING * 1e-9 * f64::from(bound);
        let check = |position: usize, squares: [f64; 2]| {
            let (value, bound) =
                (numbers[position], math::sqrt(squares[0]) * math::sqrt(squares[1]));
            if f64::from(value.abs()) <= (1.0 + ROUNDING) * bound + slack {
                return Ok(());
            }
            Err(Rejected::OutOfBounds { position, value, bound: bound as f32 })
        };
        for row in 0..len {
            (0..row)
                .try_for_each(|column| check(triangle(row) + column, [row, column].map(of_row)))?;
            check(triangle(len) + row, [of_row(row), square(last - 1)])?;
        }
        (0..len).try_for_each(|row| {
            let position = triangle(row) + row;
            match numbers[position] {
                value if value < 0.0 => Err(Rejected::Negative { position, value }),
                _ => Ok(()),
            }
        })
    }

    /// Appends the tail of a broadcast.
    pub(in crate::method) fn write(&self, numbers: &mut Vec<f32>) {
        let Self { origin, constant, low, high, trust, epoch, begin, mark, .. } = *self;
        let code = self.begin_of_history.write(ladder::write_shape(self.moves, self.stage));
        let counters = [epoch as f32, begin as f32, mark as f32, code as f32];
        numbers.extend([origin, constant, low, high, trust].into_iter().chain(counters));
    }

    /// Parses a broadcast.
    pub(super) fn read(sizes: &Sizes, broadcast: &Broadcast) -> Result<Self, Rejected> {
        if let Some(kernels) = broadcast.kernels {
            return Err(Rejected::WrongKernel { found: Some(kernels.current), last: 0 });
        }
        Self::parse(sizes, broadcast.round, &broadcast.numbers)
    }

    /// Parses the numbers of a broadcast.
    pub(in crate::method) fn parse(
        sizes: &Sizes,
        round: u64,
        numbers: &[f32],
    ) -> Result<Self, Rejected> {
        let found = numbers.len();
        if round == 0 || round >= LAST_COUNT {
            return Err(Rejected::NoSuchRound { round });
        }
        let Some(len) = found
            .checked_sub(BROADCAST_EXTRA)
            .filter(|len| (sizes.first..=sizes.features).contains(len))
        else {
            return Err(Rejected::WrongLength { expected: sizes.first + BROADCAST_EXTRA, found });
        };
        check_numbers(numbers)?;
        let tail = &numbers[len..];
        let count = |at: usize, most: usize| {
            let value = tail[at];
            let is_count = value as u64 as f32 == value && value <= most as f32;
            let bound = most as f32;
            if is_count {
                Ok(value as usize)
            } else {
                Err(Rejected::OutOfBounds { position: len + at, value, bound })
            }
        };
        let epoch = count(5, COUNTER_CYCLE as usize)? as u32;
        let begin = count(6, triangle(sizes.features) - 1)?;
        let mark = count(7, COUNTER_CYCLE as usize - 1)? as u32;
        let code = Begin::read(count(8, ladder::MOST_CODE)?);
        let code = code.and_then(|(begin, shape)| Some((begin, ladder::read_shape(shape)?)));
        let Some((begin_of_history, (moves, stage))) = code else {
            let (position, value) = (len + 8, tail[8]);
            return Err(Rejected::OutOfBounds { position, value, bound: SEARCHED_MOVES as f32 });
        };
        let [origin, constant, low, high, trust] = [tail[0], tail[1], tail[2], tail[3], tail[4]];
        if !(0.0..=1.0).contains(&trust) {
            return Err(Rejected::OutOfBounds { position: len + 4, value: trust, bound: 1.0 });
        }
        if low > high {
            return Err(Rejected::OutOfBounds { position: len + 2, value: low, bound: high });
        }
        if epoch == 0 && (len != sizes.first || begin != 0) {
            return Err(Rejected::WrongLength { expected: sizes.first + BROADCAST_EXTRA, found });
        }
        if epoch == 0 && stage != Stage::Nothing {
            return Err(Rejected::Garbled { what: "a rival of nothing" });
        }
        Ok(Self {
            round,
            len,
            origin,
            constant,
            low,
            high,
            trust,
            epoch,
            begin,
            mark,
            moves,
            stage,
            begin_of_history,
        })
    }
}

/// Moves a broadcast to another scale: its model, what it says of labels, and what it orders, since
/// slices and moves of the old scale are of no use. Server and nodes come to the same.
pub(super) fn rescale_broadcast(
    sizes: &Sizes,
    broadcast: &mut Broadcast,
    rescaling: &Rescaling,
) -> Option<Order> {
    let mut order = Order::read(sizes, broadcast).ok()?;
    let (len, gain) = (order.len, rescaling.gain());
    let mut model: Vec<f64> =
        broadcast.numbers[..len].iter().map(|w| f64::from(*w) * gain).collect();
    rescaling.refit().model(&mut model);
    for number in [&mut order.origin, &mut order.constant, &mut order.low, &mut order.high] {
        *number = to_wire(f64::from(*number) * gain);
    }
    // All others are differences of labels.
    order.origin = to_wire(f64::from(order.origin) + rescaling.shift());
    if !order.is_first() {
        order.open_epoch();
        (order.moves, order.stage) = (0, Stage::Nothing);
    }
    model.iter_mut().filter(|w| !w.is_finite()).for_each(|w| *w = 0.0);
    broadcast.numbers.truncate(len);
    write_bounded(&model, &mut broadcast.numbers);
    order.write(&mut broadcast.numbers);
    Some(order)
}

/// The next of a counter that goes round; never 0.
fn next_in_cycle(counter: u32) -> u32 {
    counter % COUNTER_CYCLE + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broadcast_is_read_as_it_was_written() {
        let sizes = Sizes::new(40);
        let order = Order {
            round: 7,
            len: 9,
            origin: 3.5,
            constant: -0.25,
            low: -1.0,
            high: 2.0,
            trust: 0.75,
            epoch: 5,
            begin: 77,
            mark: 2,
            moves: 1,
            stage: Stage::Rival,
            begin_of_history: Begin::default(),
        };
        let mut numbers = vec![0.5; 9];
        order.write(&mut numbers);
        let broadcast = Broadcast { round: 7, kernels: None, numbers };
        assert_eq!(Order::read(&sizes, &broadcast), Ok(order));
        // Each number of the tail that can't be.
        for (at, value) in [
            (9, f32::NAN),
            (11, 2.5),
            (13, 1.5),
            (14, 0.5),
            (14, -1.0),
            (15, 1e9),
            (16, 0.1),
            (17, 3.0),
        ] {
            let mut bad = broadcast.clone();
            bad.numbers[at] = value;
            assert!(Order::read(&sizes, &bad).is_err(), "{at}: {value}");
        }
    }
}
