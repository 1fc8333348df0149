//! [`PartialSum`]: some uploads of a round, added up.
//!
//! Sums are exact and votes are counted, so it doesn't matter who adds what. A partial sum is as
//! large as a few uploads, however many are in it.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::gathering::Gathering;
use super::participants::Participants;
use crate::message::Rejected;
use crate::state::{BadState, StateKind};

const KIND: StateKind = StateKind::new("partial-sum");

/// Some uploads of a round, checked and added up. Begin one with
/// [`crate::ServerMethod::part`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartialSum {
    round: u64,
    gathering: Gathering,
}

impl PartialSum {
    pub(crate) fn new(round: u64, gathering: Gathering) -> Self {
        Self { round, gathering }
    }

    /// The round that its uploads answer.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Uploads in it.
    pub fn uploads(&self) -> usize {
        self.gathering.count()
    }

    /// What it is on its way to the server or to a relay above.
    pub fn to_bytes(&self) -> Vec<u8> {
        KIND.save(self)
    }

    /// Bytes of its sums and votes, which don't grow with the nodes. The nodes heard are one bit
    /// each.
    pub fn bytes_of_sums(&self) -> usize {
        self.gathering.bytes()
    }

    /// Refuses sums that can't be merged into a round of which `open` is an empty part.
    pub(crate) fn fits(&self, open: &Self) -> Result<(), Rejected> {
        self.check(open.round, &open.gathering)
    }

    /// Whether it has uploads of the same nodes.
    pub(crate) fn has_same_nodes(&self, other: &Self) -> bool {
        self.gathering.has_same_nodes(&other.gathering)
    }

    pub(crate) fn gathering(&self) -> &Gathering {
        &self.gathering
    }

    /// What is known of uploads of its round that came as one sum; see [`Gathering::set`].
    pub(crate) fn set(
        &mut self,
        nodes: &Participants,
        numbers: impl Iterator<Item = (i64, u32)>,
        votes: impl Iterator<Item = u64>,
    ) {
        self.gathering.set(nodes, numbers, votes);
    }

    pub(crate) fn gathering_mut(&mut self) -> &mut Gathering {
        &mut self.gathering
    }

    /// Empty, and for a round of this number, whose uploads have the shape that `like` expects.
    pub(crate) fn renew(&mut self, round: u64, like: &Gathering) {
        self.round = round;
        if !self.gathering.is_alike(like) {
            self.gathering = like.clone();
        }
        self.gathering.clear();
    }

    /// Reads bytes of the same round and shape as `self`, or refuses them.
    pub fn read(&self, bytes: &[u8]) -> Result<Self, BadState> {
        let is_sound =
            |sum: &Self| sum.round == self.round && sum.gathering.is_sound(&self.gathering);
        let mut sum = KIND.restore(bytes, is_sound)?;
        sum.gathering = sum.gathering.with_parts(self.gathering.parts());
        Ok(sum)
    }

    /// Adds another sum of the same round, or refuses it and stays as it was.
    pub fn merge(&mut self, other: &Self) -> Result<(), Rejected> {
        other.check(self.round, &self.gathering)?;
        self.gathering.merge(&other.gathering, other.round)
    }

    /// Refuses sums of another round, or of uploads of another shape.
    pub(crate) fn check(&self, open: u64, like: &Gathering) -> Result<(), Rejected> {
        if self.round != open {
            return Err(Rejected::WrongRound { open, found: self.round });
        }
        if !self.gathering.is_alike(like) {
            let (expected, found) = (like.upload_len(), self.gathering.upload_len());
            return Err(Rejected::WrongLength { expected, found });
        }
        Ok(())
    }
}
