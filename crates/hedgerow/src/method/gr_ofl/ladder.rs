//! What server and nodes must agree on to forget together: which checkpoints there are, where the
//! history begins, and what a round asks for. All of it fits two numbers of a broadcast.
//!
//! The server counts *marks*. At every mark a node stores its sums: a checkpoint. Of the
//! checkpoints 1, 2, 3, … at mark m those are kept that follow from m alone: m itself, and for each
//! level l the multiple of 2ˡ that is at least 2ˡ and less than 2ˡ⁺¹ marks old. So they are closer
//! together the younger they are, and a new one replaces one.

use serde::{Deserialize, Serialize};

use super::{COUNTER_CYCLE, SEARCHED_MOVES};

/// Levels of the ladder.
const LEVELS: usize = 3;

/// Checkpoints at most.
pub(super) const SLOTS: usize = 1 + LEVELS;

/// Orders to forget are counted modulo this number.
const ORDER_CYCLE: u32 = 16;

/// An age that is no longer told exactly.
const LONG_AGO: u32 = 255;

/// The checkpoint of a slot at a mark: slot 0 is the latest. Numbers go round.
pub(super) fn checkpoint(mark: u32, slot: usize) -> u32 {
    match slot {
        0 => mark,
        _ => {
            let level = slot - 1;
            (((mark >> level).wrapping_sub(1)) << level) % COUNTER_CYCLE
        }
    }
}

/// The slot of a checkpoint at a mark, if it is kept.
pub(super) fn slot(mark: u32, id: u32) -> Option<usize> {
    (0..SLOTS).find(|slot| checkpoint(mark, *slot) == id)
}

/// How many marks ago a checkpoint was made.
pub(super) fn age(mark: u32, checkpoint: u32) -> u32 {
    (mark + COUNTER_CYCLE - checkpoint) % COUNTER_CYCLE
}

/// Another history: what came before a checkpoint is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::method) struct HistoryWindow {
    pub(super) slot: usize,
    /// What was forgotten the last time comes back.
    pub(super) is_return: bool,
}

/// What a round is about, beside the usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::method) enum Stage {
    Nothing,
    /// Uploads tell of a window instead of the whole history.
    Check(HistoryWindow),
    /// The broadcast has a rival instead of the model, and uploads have votes.
    Rival,
    /// Uploads have votes.
    Trial,
}

impl Stage {
    fn code(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Rival => 1,
            Self::Trial => 2,
            Self::Check(HistoryWindow { slot, is_return }) => {
                3 + 2 * slot as u32 + u32::from(is_return)
            }
        }
    }

    fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => Self::Nothing,
            1 => Self::Rival,
            2 => Self::Trial,
            _ => {
                let (slot, is_return) = ((code - 3) as usize / 2, (code - 3) % 2 == 1);
                (slot < SLOTS).then_some(Self::Check(HistoryWindow { slot, is_return }))?
            }
        })
    }

    /// For nodes that get the model in place of its rival.
    pub(in crate::method) fn without_rival(self) -> Self {
        if self == Self::Rival { Self::Trial } else { self }
    }

    /// Whether uploads have votes.
    pub(super) fn has_votes(self) -> bool {
        matches!(self, Self::Rival | Self::Trial)
    }
}

/// What uploads look like: moves, and what the round is about. As a number.
pub(in crate::method) const SHAPE_CODES: usize = (SEARCHED_MOVES + 2) * 32;

pub(in crate::method) fn write_shape(moves: usize, stage: Stage) -> usize {
    moves + 4 * stage.code() as usize
}

pub(in crate::method) fn read_shape(code: usize) -> Option<(usize, Stage)> {
    let (moves, stage) = (code % 4, Stage::from_code((code / 4 % 32) as u32)?);
    (moves <= SEARCHED_MOVES).then_some((moves, stage))
}

/// The last number of a broadcast that has a rival, for nodes that get the model in its place.
pub(super) fn without_rival(code: usize) -> Option<usize> {
    let (begin, shape) = Begin::read(code)?;
    let (moves, stage) = read_shape(shape)?;
    (stage == Stage::Rival).then(|| begin.write(write_shape(moves, stage.without_rival())))
}

/// What becomes of what was forgotten the time before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Former {
    /// It is lost: what is forgotten now takes its place.
    #[default]
    Lost,
    /// It comes back, and what is forgotten now takes its place.
    Back,
    /// It stays aside, and what is forgotten now is lost.
    Kept,
}

const FORMERS: [Former; 3] = [Former::Lost, Former::Back, Former::Kept];

/// The latest order to forget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::method) struct Begin {
    /// How many there were, modulo [`ORDER_CYCLE`].
    orders: u32,
    former: Former,
    /// How many marks ago its checkpoint was made.
    age: u32,
}

pub(super) const MOST_CODE: usize = SHAPE_CODES * 4 * (ORDER_CYCLE * (LONG_AGO + 1)) as usize - 1;

impl Begin {
    /// The next order.
    pub(super) fn next(self, slot: usize, former: Former, mark: u32) -> Self {
        let age = age(mark, checkpoint(mark, slot)).min(LONG_AGO);
        Self { orders: (self.orders + 1) % ORDER_CYCLE, former, age }
    }

    /// There is a mark more.
    pub(super) fn grow_older(&mut self) {
        self.age = (self.age + 1).min(LONG_AGO);
    }

    /// How many orders a node has missed whose latest is another one, unless the server went back
    /// to an earlier state.
    pub(in crate::method) fn missed_since(self, known: Self) -> u32 {
        let missed = (self.orders + ORDER_CYCLE - known.orders) % ORDER_CYCLE;
        if missed < ORDER_CYCLE / 2 { missed } else { 0 }
    }

    /// Its checkpoint at a mark.
    pub(super) fn checkpoint(self, mark: u32) -> u32 {
        (mark + COUNTER_CYCLE - self.age) % COUNTER_CYCLE
    }

    pub(super) fn former(self) -> Former {
        self.former
    }

    /// Whether a restored one could have been reached.
    pub(super) fn is_sound(self) -> bool {
        self.orders < ORDER_CYCLE && self.age <= LONG_AGO
    }

    /// With the shape of uploads, as a number.
    pub(super) fn write(self, shape: usize) -> usize {
        let Self { orders, former, age } = self;
        let code = former as u32 + 4 * (orders + ORDER_CYCLE * age);
        shape + SHAPE_CODES * code as usize
    }

    pub(super) fn read(code: usize) -> Option<(Self, usize)> {
        let (rest, shape) = ((code / SHAPE_CODES) as u32, code % SHAPE_CODES);
        let former = *FORMERS.get(rest as usize % 4)?;
        Some((Self { orders: rest / 4 % ORDER_CYCLE, former, age: rest / 4 / ORDER_CYCLE }, shape))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_checkpoint_that_is_needed_was_never_dropped() {
        for start in [0, COUNTER_CYCLE - 50] {
            let mut kept: Vec<u32> = Vec::new();
            for passed in 1..100 {
                let mark = (start + passed) % COUNTER_CYCLE;
                kept.push(mark);
                kept.retain(|id| slot(mark, *id).is_some());
                let known = (0..SLOTS).filter(|slot| age(mark, checkpoint(mark, *slot)) < passed);
                for slot in known {
                    assert!(kept.contains(&checkpoint(mark, slot)), "slot {slot} of {mark}");
                }
                assert!(kept.len() <= SLOTS);
                assert!(passed < 20 || kept.len() == SLOTS);
            }
        }
        let ages = |mark| -> Vec<u32> {
            (0..SLOTS).map(|slot| age(mark, checkpoint(mark, slot))).collect()
        };
        assert_eq!(ages(64), [0, 1, 2, 4]);
        assert_eq!(ages(63), [0, 1, 3, 7]);
    }

    #[test]
    fn codes_are_read_as_they_were_written() {
        let mut begin = Begin::default();
        assert_eq!(begin.write(write_shape(2, Stage::Nothing)), 2);
        for orders in 1..40 {
            let window = HistoryWindow { slot: orders % SLOTS, is_return: orders % 3 == 0 };
            begin = begin.next(window.slot, FORMERS[orders % 3], 77);
            (0..orders * 10).for_each(|_| begin.grow_older());
            let checks = [Stage::Nothing, Stage::Rival, Stage::Trial, Stage::Check(window)];
            for stage in checks {
                let code = begin.write(write_shape(1, stage));
                assert!(code <= MOST_CODE);
                // A number of a broadcast.
                let (read, shape) = Begin::read(code as f32 as usize).unwrap();
                assert_eq!((read, read_shape(shape)), (begin, Some((1, stage))));
            }
        }
        assert_eq!(Begin::read(3 * SHAPE_CODES), None);
        assert_eq!(read_shape(3), None);
        assert_eq!(read_shape(4 * 31), None);
    }
}
