//! [`Participants`]: a set of nodes that is small on the wire.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use crate::message::NodeId;

/// The nodes whose uploads are in a sum: one bit per node for small ids, a set for the others, so
/// that a hostile id can't cost memory.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Participants {
    /// Words before the first one.
    start: usize,
    bits: Vec<u64>,
    others: BTreeSet<NodeId>,
    count: usize,
}

const SMALL_IDS: NodeId = 1 << 24;
const WORDS: usize = SMALL_IDS as usize / 64;

impl Participants {
    /// How many they are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Their numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> {
        let small = self.bits.iter().zip(self.start..).flat_map(|(bits, word)| {
            let ids = (0..64).filter(move |bit| bits >> bit & 1 == 1);
            ids.map(move |bit| (64 * word + bit) as NodeId)
        });
        small.chain(self.others.iter().copied())
    }

    /// Whether the node is new.
    pub(crate) fn insert(&mut self, node: NodeId) -> bool {
        let new = if node < SMALL_IDS {
            let (word, bit) = (node as usize / 64, 1u64 << (node % 64));
            self.cover(word..word + 1);
            let word = &mut self.bits[word - self.start];
            let new = *word & bit == 0;
            *word |= bit;
            new
        } else {
            self.others.insert(node)
        };
        self.count += usize::from(new);
        new
    }

    /// Makes these words exist.
    fn cover(&mut self, words: Range<usize>) {
        if self.bits.is_empty() {
            self.start = words.start;
        }
        if words.start < self.start {
            let missing = self.start - words.start;
            self.bits.splice(..0, core::iter::repeat_n(0, missing));
            self.start = words.start;
        }
        if words.end > self.start + self.bits.len() {
            self.bits.resize(words.end - self.start, 0);
        }
    }

    pub(crate) fn contains(&self, node: NodeId) -> bool {
        if node >= SMALL_IDS {
            return self.others.contains(&node);
        }
        let word =
            (node as usize / 64).checked_sub(self.start).and_then(|word| self.bits.get(word));
        word.is_some_and(|word| word >> (node % 64) & 1 == 1)
    }

    /// A node that is in both sets.
    pub(crate) fn first_common(&self, other: &Self) -> Option<NodeId> {
        let small = other.bits.iter().zip(other.start..).find_map(|(theirs, word)| {
            let ours =
                word.checked_sub(self.start).and_then(|word| self.bits.get(word)).unwrap_or(&0);
            let common = ours & theirs;
            (common != 0).then(|| word as NodeId * 64 + common.trailing_zeros())
        });
        small.or_else(|| self.others.intersection(&other.others).next().copied())
    }

    /// Adds the nodes of the other set, which must be disjoint.
    pub(crate) fn merge(&mut self, other: &Self) {
        if !other.bits.is_empty() {
            self.cover(other.start..other.start + other.bits.len());
            let ours = &mut self.bits[other.start - self.start..];
            ours.iter_mut().zip(&other.bits).for_each(|(ours, theirs)| *ours |= theirs);
        }
        self.others.extend(&other.others);
        self.count += other.count;
    }

    pub(crate) fn clear(&mut self) {
        self.bits.clear();
        self.others.clear();
        self.count = 0;
    }

    pub(crate) fn is_sound(&self) -> bool {
        let small: usize = self.bits.iter().map(|word| word.count_ones() as usize).sum();
        self.start <= WORDS
            && self.bits.len() <= WORDS - self.start
            && self.others.first().is_none_or(|id| *id >= SMALL_IDS)
            && self.count == small + self.others.len()
    }
}
