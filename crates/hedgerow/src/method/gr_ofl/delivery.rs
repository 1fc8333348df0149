//! Slices over the same nodes, though uploads get lost.
//!
//! Rows of H that were summed over different nodes don't make a positive matrix, and what repairs
//! it hides the small eigenvalues. So the nodes whose first slice of an epoch was taken are its
//! members, and each further slice is asked for until all members have delivered it. Those who have
//! send zeros. Without losses every slice is asked for once.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Order, triangle};
use crate::limits::MAX_SUM;
use crate::state::is_count;

/// How often a slice is asked for, at most: a member may have left.
const MOST_ASKED: u32 = 10;

/// A slice, by where it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Slice {
    epoch: u32,
    begin: usize,
}

/// What a node knows of its own slices.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(in crate::method) struct Delivered {
    /// The last one that was taken.
    latest: Option<Slice>,
    /// The round of the latest upload with a slice, until that is known to be taken.
    under_way: Option<(u64, Slice)>,
    /// Whether the node is told which uploads are taken. Otherwise it always sends what is asked
    /// for.
    is_told: bool,
}

impl Delivered {
    /// Whether the upload has the slice that is asked for, and else zeros.
    pub(super) fn is_due(&self, order: &Order) -> bool {
        match self.latest.filter(|latest| latest.epoch == order.epoch) {
            _ if !self.is_told => true,
            None => order.begin == 0,
            Some(latest) => latest.begin < order.begin,
        }
    }

    /// The upload of a round has left.
    pub(super) fn sent(&mut self, round: u64, order: &Order) {
        let slice = Slice { epoch: order.epoch, begin: order.begin };
        let has_slice = !order.is_first() && self.is_due(order);
        self.under_way = has_slice.then_some((round, slice));
    }

    /// The server took the upload of this round, and none later.
    pub(super) fn acknowledge(&mut self, taken: u64) {
        self.is_told |= taken > 0;
        if let Some((_, slice)) = self.under_way.take_if(|(round, _)| *round == taken) {
            self.latest = Some(slice);
        }
    }

    /// Whether a restored one could have been reached.
    pub(super) fn is_sound(&self) -> bool {
        self.under_way.is_none_or(|(round, _)| is_count(round))
    }
}

/// What the server has of the slice that it asks for.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Delivery {
    /// Samples behind the first slice of the epoch: those of all members.
    members: f64,
    /// Samples behind what has come of this slice.
    delivered: f64,
    /// How often it was asked for.
    asked: u32,
    /// Where it ends: the room for it may change from round to round.
    end: usize,
}

/// What is next, after a slice was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The same slice again.
    Again,
    /// The slice that begins here.
    Slice(usize),
    /// Nobody delivers: another epoch.
    Epoch,
}

impl Delivery {
    /// Adds what a round has brought of the slice from `begin` on, and the samples behind it. Once
    /// it is complete, its entries are means.
    pub(super) fn add(
        &mut self,
        entries: &mut [f64],
        begin: usize,
        sums: &[f64],
        samples: f64,
    ) -> Next {
        if self.is_abandoned() {
            return Next::Epoch;
        }
        let end = begin + sums.len();
        self.end = if self.asked == 0 { end } else { self.end.min(end) };
        self.asked += 1;
        self.delivered = (self.delivered + samples).min(MAX_SUM);
        for (entry, sum) in entries[begin..].iter_mut().zip(sums) {
            *entry = (*entry + sum).clamp(-MAX_SUM, MAX_SUM);
        }
        if begin == 0 {
            self.members = self.delivered;
        }
        let is_last = self.asked == MOST_ASKED;
        if self.delivered <= 0.0 {
            return if is_last { Next::Epoch } else { Next::Again };
        }
        if self.delivered < self.members && !is_last {
            return Next::Again;
        }
        for entry in &mut entries[begin..self.end] {
            *entry = (*entry / self.delivered).clamp(-MAX_SUM, MAX_SUM);
        }
        entries[self.end..].fill(0.0);
        // Who didn't deliver may have left.
        let members = self.members.min(self.delivered);
        let next = self.end;
        *self = Self { members, ..Self::default() };
        Next::Slice(next)
    }

    /// The nodes that count have changed: what came of the epoch is of no use.
    pub(super) fn abandon(&mut self) {
        self.asked = MOST_ASKED;
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.asked == MOST_ASKED
    }

    /// Whether a restored one could have been reached.
    pub(super) fn is_sound(&self, features: usize, begin: usize) -> bool {
        let is_sum = |sum: f64| (0.0..=MAX_SUM).contains(&sum);
        is_sum(self.members)
            && is_sum(self.delivered)
            && self.asked <= MOST_ASKED
            && self.end <= triangle(features)
            && (matches!(self.asked, 0 | MOST_ASKED) || begin < self.end)
    }
}

/// The bytes of a state that had nothing of this at its end yet.
pub(super) fn extended(body: &[u8], end: &impl Serialize) -> Vec<u8> {
    let mut bytes = body.to_vec();
    // An end that can't be written is missed when the state is read.
    bytes.extend(postcard::to_allocvec(end).unwrap_or_default());
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::Sizes;
    use super::*;

    fn order(epoch: u32, begin: usize) -> Order {
        Order { epoch, begin, ..Order::opening(&Sizes::new(40)) }
    }

    #[test]
    fn a_member_delivers_each_slice_once() {
        let mut node = Delivered::default();
        // Nobody has told this node what was taken.
        node.sent(2, &order(1, 0));
        assert!(node.is_due(&order(1, 0)) && node.is_due(&order(1, 7)));
        // The upload was lost: it is no member, until an epoch begins.
        node.acknowledge(1);
        assert!(!node.is_due(&order(1, 7)) && node.is_due(&order(2, 0)));
        node.sent(3, &order(2, 0));
        node.acknowledge(3);
        assert!(!node.is_due(&order(2, 0)) && node.is_due(&order(2, 7)));
        node.sent(4, &order(2, 7));
        node.acknowledge(3);
        assert!(node.is_due(&order(2, 7)));
        node.sent(5, &order(2, 7));
        node.acknowledge(5);
        assert!(!node.is_due(&order(2, 7)) && node.is_due(&order(2, 9)));
        // A server that went back to an epoch before has other members.
        assert!(node.is_due(&order(1, 0)) && !node.is_due(&order(1, 7)));
    }

    #[test]
    fn a_slice_waits_for_all_members_but_not_for_ever() {
        let (mut delivery, mut entries) = (Delivery::default(), [0.0; 6]);
        assert_eq!(delivery.add(&mut entries, 0, &[0.0; 2], 0.0), Next::Again);
        assert_eq!(delivery.add(&mut entries, 0, &[4.0, 8.0], 4.0), Next::Slice(2));
        assert_eq!(entries[..2], [1.0, 2.0]);
        // The room shrinks from one round to the next: what didn't come from all is dropped.
        assert_eq!(delivery.add(&mut entries, 2, &[3.0, 6.0, 9.0], 3.0), Next::Again);
        assert_eq!(delivery.add(&mut entries, 2, &[1.0, 2.0], 1.0), Next::Slice(4));
        assert_eq!(entries, [1.0, 2.0, 1.0, 2.0, 0.0, 0.0]);
        // A member has left.
        for _ in 1..MOST_ASKED {
            assert_eq!(delivery.add(&mut entries, 4, &[0.5], 0.25), Next::Again);
            assert!(delivery.is_sound(3, 4));
        }
        assert_eq!(delivery.add(&mut entries, 4, &[0.5], 0.25), Next::Slice(5));
        assert_eq!((entries[4], delivery.members), (2.0, 2.5));
        // All have.
        for _ in 1..MOST_ASKED {
            assert_eq!(delivery.add(&mut entries, 5, &[0.0], 0.0), Next::Again);
        }
        assert_eq!(delivery.add(&mut entries, 5, &[0.0], 0.0), Next::Epoch);
    }
}
