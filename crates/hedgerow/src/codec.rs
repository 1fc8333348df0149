//! Messages in fewer bytes: [`Encoder`] turns the numbers of an upload or a broadcast into bytes,
//! [`Reader`] and [`decode`] turn them back.
//!
//! Methods don't know about it: `Node` and `Server` pack and unpack their messages. Numbers are
//! rounded at random without bias, in blocks with a scale each. What rounding or waiting left out
//! is added the next time. A model is sent as its difference to the one that both sides know from
//! the latest broadcast: differences are small, and so are their rounding errors.

use alloc::vec::Vec;
use core::num::NonZeroU16;

use serde::{Deserialize, Serialize};

mod blocks;
mod decoder;
mod encoder;
mod f16;
mod reader;

pub use decoder::decode;
pub use encoder::Encoder;
pub use reader::Reader;

/// How a federation saves on traffic. The default saves nothing and changes no bit.
///
/// The first rounds change the models most, and a change that waits comes too late. So in round t
/// nothing waits for more than √t rounds or passes, whatever is set here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Compression {
    /// A round closes after all nodes have run this many times. In between nodes learn and no
    /// message is sent, in either direction.
    pub every: NonZeroU16,
    /// Uploads.
    pub up: Coding,
    /// Broadcasts.
    pub down: Coding,
}

impl Compression {
    /// How often all nodes run before a round closes: as often as [`Compression::every`] says, but
    /// at most the square root of the round's number. Uploads follow the last pass.
    pub fn passes(&self, round: u64) -> u16 {
        at_most_root(self.every, round).get()
    }
}

fn at_most_root(wanted: NonZeroU16, round: u64) -> NonZeroU16 {
    let root = u16::try_from(round.isqrt()).unwrap_or(u16::MAX);
    NonZeroU16::new(root).map_or(NonZeroU16::MIN, |root| wanted.min(root))
}

impl Default for Compression {
    fn default() -> Self {
        Self { every: NonZeroU16::MIN, up: Coding::default(), down: Coding::default() }
    }
}

/// How the numbers of a message become bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Coding {
    /// Bits of a number.
    pub numbers: NumberFormat,
    /// Only one in so many numbers is sent. They take turns, and those that wait aren't lost.
    pub part: NonZeroU16,
}

impl Default for Coding {
    fn default() -> Self {
        Self { numbers: NumberFormat::F32, part: NonZeroU16::MIN }
    }
}

impl Coding {
    /// The coding of one round: a limited part in early rounds.
    fn in_round(self, round: u64) -> Self {
        Self { part: at_most_root(self.part, round), ..self }
    }

    /// Whether all numbers are sent as they are.
    fn is_plain(self) -> bool {
        self == Self::default()
    }
}

/// How a number is written on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NumberFormat {
    /// 32 bits, exact.
    #[default]
    F32,
    /// Half precision, with a power of two for each block.
    F16,
    /// A whole number from -127 to 127, times the scale of its block.
    Bits8,
    /// A whole number from -7 to 7, times the scale of its block.
    Bits4,
}

impl NumberFormat {
    /// All of them, from the finest to the coarsest.
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Bits8, Self::Bits4];

    /// Half precision where it would be coarser.
    fn tracking(self) -> Self {
        if self == Self::F32 { self } else { Self::F16 }
    }

    /// A finer one: half precision, or the number itself where that was asked for.
    fn fine(self) -> Self {
        if matches!(self, Self::F32 | Self::F16) { Self::F32 } else { Self::F16 }
    }
}

/// Consecutive numbers of a message with the same meaning. A method lists the sections of its
/// messages in order; numbers beyond them are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// How many.
    pub len: usize,
    /// Of what kind.
    pub kind: Kind,
}

/// What numbers mean, as far as it matters for rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Never rounded: losses, weights, counts.
    Exact,
    /// The model of a kernel, whose index is its slot. Only its difference to the model in the same
    /// slot of the latest broadcast travels, and what waits stays as broadcast; where there is
    /// none, all of it travels.
    Model {
        /// Which one: errors are kept for each.
        slot: usize,
    },
    /// Numbers that add up over time, such as a gradient: what waits counts as zero now and is
    /// added later. May grow.
    Steady {
        /// Which one: errors are kept for each. No two sections of a message have the same slot.
        slot: usize,
    },
    /// Numbers that change little from one message of a sender to its next, such as the gradient of
    /// all it has ever seen: only the change since the last message that was taken travels, in half
    /// precision at least, and nothing waits. The other side reads it with a [`Reference`] of that
    /// sender's own: what was taken from it last. May grow.
    Tracked {
        /// Which one: what was taken is kept for each.
        slot: usize,
    },
    /// Numbers that mean something else every time: nothing waits and errors aren't made up for, so
    /// that they travel in a finer format than others, half precision at least.
    Fresh,
}

/// What a message costs. The headers of its sections are framing and not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Numbers that are sent.
    pub numbers: u64,
    /// Bytes of those numbers and of the scales of their blocks.
    pub bytes: u64,
}

/// What both sides know: the models of the latest broadcast, or a sender's latest message, by slot.
#[derive(Debug, Clone, Default)]
pub struct Reference {
    numbers: Vec<f32>,
    /// In the order of their slots.
    ranges: Vec<SlotRange>,
}

/// Where the numbers of a slot are.
#[derive(Debug, Clone, Copy)]
struct SlotRange {
    slot: usize,
    start: usize,
    len: usize,
}

impl Reference {
    /// Remembers the models of a broadcast as the nodes were told it, or what was taken of a
    /// sender's [`Kind::Tracked`] numbers, and forgets the one before.
    ///
    /// # Panics
    /// If the sections are longer than the numbers.
    pub fn set(&mut self, sections: &[Section], numbers: &[f32]) {
        let needed: usize = sections.iter().map(|section| section.len).sum();
        assert!(
            needed <= numbers.len(),
            "sections of {needed} numbers in a message of {}",
            numbers.len()
        );
        self.clear();
        let mut rest = numbers;
        for section in sections {
            let (own, after) = rest.split_at(section.len);
            rest = after;
            if let Kind::Model { slot } | Kind::Tracked { slot } = section.kind {
                self.push(slot, own);
            }
        }
        self.sort();
    }

    /// Remembers the numbers of one more slot, to be sorted with the others. What it costs depends
    /// on how many they are, never on the slot.
    fn push(&mut self, slot: usize, numbers: &[f32]) {
        if numbers.is_empty() {
            return;
        }
        let range = SlotRange { slot, start: self.numbers.len(), len: numbers.len() };
        self.numbers.extend_from_slice(numbers);
        self.ranges.push(range);
    }

    fn sort(&mut self) {
        self.ranges.sort_unstable_by_key(|range| (range.slot, range.start));
    }

    /// The model in a slot, if the latest broadcast had one.
    fn model(&self, slot: usize) -> Option<&[f32]> {
        let at = self.ranges.binary_search_by_key(&slot, |range| range.slot).ok()?;
        let SlotRange { start, len, .. } = self.ranges[at];
        self.numbers.get(start..start + len)
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    fn clear(&mut self) {
        self.numbers.clear();
        self.ranges.clear();
    }
}

/// What stands in front of all sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    coding: Coding,
    /// Whose turn it is, from 0 to below the coding's part: numbers at this position, and at every
    /// part-th after it.
    turn: u16,
}

/// What stands in front of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum SectionHead {
    /// Every number as it is.
    Exact { len: usize },
    /// Every number, rounded.
    Whole { len: usize },
    /// Every number, in a finer format.
    Fine { len: usize },
    /// Numbers whose turn it is, rounded; the others are zero.
    Sparse { len: usize },
    /// Differences to the model in a slot, of numbers whose turn it is; the others are the model's.
    Difference { len: usize, slot: usize },
    /// Changes of all numbers since the sender's last message that was taken.
    Change { len: usize, slot: usize },
}

impl SectionHead {
    fn len(self) -> usize {
        match self {
            Self::Exact { len }
            | Self::Whole { len }
            | Self::Fine { len }
            | Self::Sparse { len }
            | Self::Difference { len, .. }
            | Self::Change { len, .. } => len,
        }
    }
}

impl Head {
    /// Positions in a section of the numbers whose turn it is.
    fn positions(self, len: usize) -> impl ExactSizeIterator<Item = usize> {
        (usize::from(self.turn)..len).step_by(usize::from(self.coding.part.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked_as_they_are_read() {
        let read: Compression =
            serde_json::from_str(r#"{"every": 2, "up": {"numbers": "bits8"}}"#).unwrap();
        let up = Coding { numbers: NumberFormat::Bits8, ..Coding::default() };
        assert_eq!(
            read,
            Compression { every: NonZeroU16::new(2).unwrap(), up, ..Compression::default() }
        );
        for bad in [
            r#"{"every": 0}"#,
            r#"{"up": {"part": 0}}"#,
            r#"{"up": {"part": 65536}}"#,
            r#"{"upp": {}}"#,
        ] {
            assert!(serde_json::from_str::<Compression>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_waits_longer_than_the_root_of_the_round() {
        let four = NonZeroU16::new(4).unwrap();
        let compression = Compression { every: four, ..Compression::default() };
        let passes = [0, 1, 3, 4, 9, 15, 16, 17, u64::MAX].map(|round| compression.passes(round));
        assert_eq!(passes, [1, 1, 1, 2, 3, 3, 4, 4, 4]);
        let coding = Coding { part: four, ..Coding::default() };
        assert_eq!([1, 4, 99].map(|round| coding.in_round(round).part.get()), [1, 2, 4]);
    }
}
