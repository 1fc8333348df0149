//! What a broadcast says, but for its numbers: the header.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::super::gr_ofl::ladder::{self, Stage};
use super::super::gr_ofl::order::{LEAST_SPREAD, gradient, history, samples, squares};
use super::super::gr_ofl::{self, BROADCAST_EXTRA};
use super::units::{BASE_NUMBERS, Block};
use super::{BLOCK_EXTRA, RIDGE_EXTRA, Sizes};
use crate::aggregation::{Compared, Limits, Measure, Statistic};
use crate::limits::LAST_COUNT;
use crate::message::{Broadcast, Rejected, check_numbers};

/// Numbers of the header, at the end of every broadcast.
pub(super) const HEADER: usize = 10;

/// Numbers of an upload that only tells of errors.
const ERROR_NUMBERS: usize = 3;

/// How far the gain of a step on trial may be from the median.
const GAIN_LIMITS: Limits = Limits { suspicious: 12.0, blatant: 50.0 };

/// What the numbers before the header are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Form {
    /// GR-OFL's broadcast.
    Ridge,
    /// The next step, after a verdict on the one before.
    Step,
    /// m and s: units begin.
    Opening,
    /// Nothing.
    Empty,
    /// Everything.
    Whole,
    /// The rows of units that are added, after a verdict.
    Growth,
}

const FORMS: [Form; 6] =
    [Form::Ridge, Form::Step, Form::Opening, Form::Empty, Form::Whole, Form::Growth];

/// What the uploads of the round are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Asked {
    Ridge,
    Errors,
    Block(Block),
}

/// What uploads of GR-OFL look like, in rounds whose broadcast isn't one of GR-OFL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RidgeShape {
    len: usize,
    begin: usize,
    moves: usize,
    stage: Stage,
    /// GR-OFL's round, which decides on what it asks for in turns.
    phase: u64,
    is_first: bool,
}

impl RidgeShape {
    pub(super) fn new(order: &gr_ofl::Order) -> Self {
        let gr_ofl::Order { round, len, begin, moves, stage, .. } = *order;
        Self { len, begin, moves, stage, phase: round % 4, is_first: order.is_first() }
    }

    fn order(&self, sizes: &Sizes) -> gr_ofl::Order {
        let Self { len, begin, moves, stage, phase, is_first } = *self;
        let round = 4 + phase;
        let mut order = gr_ofl::Order::opening(&sizes.ridge);
        (order.round, order.len, order.epoch) = (round, len, u32::from(!is_first));
        (order.begin, order.moves, order.stage) = (begin, moves, stage);
        order
    }

    /// Whether a round is about forgetting.
    pub(super) fn is_special(&self) -> bool {
        self.stage != Stage::Nothing
    }

    /// For nodes that get the model in place of its rival.
    pub(super) fn take_rival(&mut self) {
        self.stage = self.stage.without_rival();
    }

    /// Whether GR-OFL is in its first round.
    pub(super) fn is_first(&self) -> bool {
        self.is_first
    }

    /// A number of GR-OFL's round that has the same phase.
    pub(super) fn round(&self) -> u64 {
        4 + self.phase
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) round: u64,
    pub(super) form: Form,
    pub(super) asked: Asked,
    /// How many units there are; none if F is not in use.
    pub(super) units: Option<usize>,
    /// ω.
    pub(super) weight: f32,
    /// The share of the step before that is taken: 0, ½ or 1.
    pub(super) share: f32,
    /// The block of the step on trial that the broadcast has.
    pub(super) step: Option<Block>,
    pub(super) ridge: RidgeShape,
}

impl Order {
    pub(super) fn opening(sizes: &Sizes) -> Self {
        Self {
            round: 1,
            form: Form::Ridge,
            asked: Asked::Ridge,
            units: None,
            weight: 0.0,
            share: 0.0,
            step: None,
            ridge: RidgeShape::new(&gr_ofl::Order::opening(&sizes.ridge)),
        }
    }

    /// Appends the header.
    pub(super) fn write(&self, numbers: &mut Vec<f32>) {
        let Self { form, asked, units, weight, share, step, ridge, .. } = *self;
        let form = FORMS.iter().position(|other| *other == form).unwrap_or(0);
        let block = |block: Block| match block {
            Block::Output => 0,
            Block::Candidates => 1,
            Block::Group(group) => 2 + group,
        };
        let asked = match asked {
            Asked::Ridge => 0,
            Asked::Errors => 1,
            Asked::Block(asked) => 2 + block(asked),
        };
        let units = units.map_or(0, |units| 1 + units);
        let step = step.map_or(0, |step| 1 + block(step));
        let RidgeShape { len, begin, moves, stage, phase, .. } = ridge;
        let shape = [len, begin, ladder::write_shape(moves, stage), phase as usize];
        let counts = [form, asked, units].into_iter().chain([step]).chain(shape);
        let mut counts = counts.map(|count| count as f32);
        numbers.extend(counts.by_ref().take(3));
        numbers.extend([weight, share]);
        numbers.extend(counts);
    }

    /// Parses a broadcast. What follows the header's word is refused if it can't be: lengths,
    /// counts, blocks that don't exist.
    pub(super) fn read(sizes: &Sizes, broadcast: &Broadcast) -> Result<Self, Rejected> {
        let Broadcast { round, kernels, numbers } = broadcast;
        if *round == 0 || *round >= LAST_COUNT {
            return Err(Rejected::NoSuchRound { round: *round });
        }
        if let Some(kernels) = kernels {
            return Err(Rejected::WrongKernel { found: Some(kernels.current), last: 0 });
        }
        let found = numbers.len();
        let Some(body) = found.checked_sub(HEADER) else {
            return Err(Rejected::WrongLength { expected: HEADER, found });
        };
        check_numbers(numbers)?;
        let header = &numbers[body..];
        let count = |at: usize, most: usize| {
            let (value, bound) = (header[at], most as f32);
            if value >= 0.0 && value % 1.0 == 0.0 && value <= bound {
                Ok(value as usize)
            } else {
                Err(Rejected::OutOfBounds { position: body + at, value, bound })
            }
        };
        let share = |at: usize| match header[at] {
            share if (0.0..=1.0).contains(&share) => Ok(share),
            value => Err(Rejected::OutOfBounds { position: body + at, value, bound: 1.0 }),
        };
        let form = FORMS[count(0, FORMS.len() - 1)?];
        let units = count(2, 1 + sizes.most_units)?.checked_sub(1);
        if units.is_some_and(|units| !units.is_multiple_of(sizes.group)) {
            return Err(Rejected::Garbled { what: "units that aren't whole groups" });
        }
        let blocks = units.map_or(0, |units| 2 + units / sizes.group);
        let block = |at: usize| match at {
            0 => Block::Output,
            1 => Block::Candidates,
            _ => Block::Group(at - 2),
        };
        let asked = match count(1, 1 + blocks)? {
            0 => Asked::Ridge,
            1 => Asked::Errors,
            asked => Asked::Block(block(asked - 2)),
        };
        let step = count(5, blocks)?.checked_sub(1).map(block);
        let features = sizes.ridge.features;
        let Some((moves, stage)) = ladder::read_shape(count(8, ladder::SHAPE_CODES - 1)?) else {
            return Err(Rejected::Garbled { what: "uploads of no shape" });
        };
        let mut ridge = RidgeShape {
            len: count(6, features)?,
            begin: count(7, features * (features + 1) / 2 - 1)?,
            moves,
            stage,
            phase: count(9, 3)? as u64,
            is_first: false,
        };
        let wrong = |expected: usize| Rejected::WrongLength { expected: expected + HEADER, found };
        let shape_of = |numbers: &[f32]| {
            let read = gr_ofl::Order::parse(&sizes.ridge, ridge.round(), numbers)?;
            let shape = RidgeShape::new(&read);
            if (RidgeShape { is_first: false, ..shape }) == ridge {
                Ok(shape)
            } else {
                Err(Rejected::Garbled { what: "two orders that differ" })
            }
        };
        let expects =
            |expected: usize| if body == expected { Ok(()) } else { Err(wrong(expected)) };
        match form {
            Form::Ridge => ridge = shape_of(&numbers[..body])?,
            Form::Opening => {
                expects(2 * sizes.inputs)?;
                if units != Some(0) {
                    return Err(Rejected::Garbled { what: "an opening without units" });
                }
            }
            Form::Empty => expects(0)?,
            Form::Growth => {
                expects(sizes.group * sizes.row())?;
                if units.is_none_or(|units| units == 0) {
                    return Err(Rejected::Garbled { what: "growth without units" });
                }
            }
            Form::Step => match step {
                None => expects(0)?,
                Some(step) => step.check(sizes, units.unwrap_or(0), body).map_err(wrong)?,
            },
            Form::Whole => {
                let len = (ridge.len + BROADCAST_EXTRA).min(body);
                ridge = shape_of(&numbers[..len])?;
                let rest = &numbers[len..body];
                match units {
                    None if rest.is_empty() => {}
                    None => return Err(wrong(len)),
                    Some(units) => {
                        let parameters = 2 * sizes.inputs + sizes.parameters(units);
                        let least = BASE_NUMBERS + parameters;
                        if rest.len() < least {
                            return Err(wrong(len + least));
                        }
                        let base = rest[0];
                        if !(base >= 1.0 && base % 1.0 == 0.0 && base <= features as f32) {
                            let bound = features as f32;
                            let position = len;
                            return Err(Rejected::OutOfBounds { position, value: base, bound });
                        }
                        let fixed = least + base as usize;
                        match (rest.len().checked_sub(fixed), step) {
                            (Some(0), None) => {}
                            (Some(len), Some(step)) => {
                                step.check(sizes, units, len).map_err(wrong)?;
                            }
                            _ => return Err(wrong(len + fixed)),
                        }
                    }
                }
            }
        }
        // Without a broadcast of GR-OFL there has been one: its first round is over.
        if ridge.len == 0 {
            return Err(Rejected::OutOfBounds { position: body + 6, value: 0.0, bound: 1.0 });
        }
        let (weight, share) = (share(3)?, share(4)?);
        if share * 2.0 % 1.0 != 0.0 {
            return Err(Rejected::Garbled { what: "a share that was not tested" });
        }
        Ok(Self { round: *round, form, asked, units, weight, share, step, ridge })
    }

    /// Whether a restored order could have been read.
    pub(super) fn is_sound(&self, sizes: &Sizes) -> bool {
        let alone = Self { form: Form::Empty, step: None, round: self.round.max(1), ..*self };
        let mut numbers = Vec::with_capacity(HEADER);
        alone.write(&mut numbers);
        let round = alone.round;
        Self::read(sizes, &Broadcast { round, kernels: None, numbers }).is_ok()
    }

    /// Whether a node can take it over that doesn't have the broadcast before.
    pub(super) fn is_complete(&self) -> bool {
        let has_rival = self.ridge.stage == Stage::Rival;
        self.form == Form::Whole || self.form == Form::Ridge && self.units.is_none() && !has_rival
    }

    /// How many features a rival of GR-OFL's model has, if there is one.
    pub(super) fn ridge_rival(&self) -> Option<usize> {
        (self.ridge.stage == Stage::Rival).then_some(self.ridge.len)
    }

    /// Numbers of GR-OFL's part of a broadcast that has one.
    pub(super) fn ridge_body(&self) -> usize {
        self.ridge.len + BROADCAST_EXTRA
    }

    /// Numbers of an upload.
    pub(super) fn upload_len(&self, sizes: &Sizes) -> usize {
        match self.asked {
            Asked::Ridge => self.ridge_len(sizes) + RIDGE_EXTRA,
            Asked::Errors => ERROR_NUMBERS,
            Asked::Block(block) => block.len(sizes, self.units.unwrap_or(0)) + BLOCK_EXTRA,
        }
    }

    /// Numbers of GR-OFL's part of an upload.
    pub(super) fn ridge_len(&self, sizes: &Sizes) -> usize {
        self.ridge.order(sizes).layout(&sizes.ridge).len
    }

    /// Refuses an upload of the right length that no honest node sends.
    pub(super) fn check_upload(&self, sizes: &Sizes, numbers: &[f32]) -> Result<(), Rejected> {
        let positive = match self.asked {
            Asked::Ridge => {
                let (ridge, extra) = numbers.split_at(numbers.len() - RIDGE_EXTRA);
                self.ridge.order(sizes).check_upload(ridge)?;
                extra.len()
            }
            Asked::Errors => numbers.len(),
            // Changes have a sign.
            Asked::Block(_) => BLOCK_EXTRA - 2,
        };
        let from = numbers.len() - positive;
        match numbers.iter().enumerate().skip(from).find(|(_, number)| **number < 0.0) {
            None => Ok(()),
            Some((position, &value)) => Err(Rejected::Negative { position, value }),
        }
    }

    /// What the server compares between uploads.
    pub(super) fn compared(&self, sizes: &Sizes) -> Vec<Compared> {
        let len = self.upload_len(sizes);
        let of_units = |at: usize, samples: usize| {
            squares(Statistic::UnitErrors, at..at + 1, Some(samples), true)
        };
        let ridge = match self.asked {
            Asked::Ridge => {
                let mut compared = self.ridge.order(sizes).compared(&sizes.ridge, self.round);
                if !self.ridge.is_first {
                    compared.push(of_units(len - 1, len - 2));
                }
                return compared;
            }
            Asked::Errors | Asked::Block(_) => [
                samples(len - 3),
                squares(Statistic::Errors, len - 2..len - 1, Some(len - 3), true),
                of_units(len - 1, len - 3),
            ],
        };
        let mut compared = Vec::from(ridge);
        if let Asked::Block(_) = self.asked {
            let count = len - 4;
            let gradients = len - BLOCK_EXTRA;
            compared.extend([
                gradient(0..gradients, count),
                Compared {
                    statistic: Statistic::Gain,
                    numbers: gradients..gradients + 2,
                    samples: Some(count),
                    measure: Measure::Distance { limits: GAIN_LIMITS, floor: LEAST_SPREAD },
                },
                squares(Statistic::UnitErrors, len - 5..len - 4, Some(count), false),
                history(count, self.round),
            ]);
        }
        compared
    }

    /// After a change of scale: slices begin again, and where units can't be converted there are
    /// none.
    pub(super) fn rescale(&mut self, ridge: &gr_ofl::Order, keeps_units: bool) {
        self.ridge = RidgeShape::new(ridge);
        if !keeps_units && (self.units.is_some() || self.asked == Asked::Errors) {
            (self.units, self.step, self.asked) = (None, None, Asked::Ridge);
            (self.weight, self.share) = (0.0, 0.0);
            if self.form != Form::Ridge {
                self.form = Form::Whole;
            }
        }
    }
}

/// The numbers of a broadcast before the header.
pub(super) fn body(numbers: &[f32]) -> &[f32] {
    &numbers[..numbers.len() - HEADER]
}
