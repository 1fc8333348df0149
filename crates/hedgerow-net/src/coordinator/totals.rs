//! What a server counts: over the whole run ([`Totals`], which survive a restart) and over the
//! latest rounds ([`Window`]).

use std::collections::VecDeque;

use hedgerow::NodeId;
use serde::{Deserialize, Serialize};

use crate::coordinator::records::RoundRecord;

/// Rounds in the window.
pub const WINDOW_ROUNDS: usize = 100;

/// Version of saved totals.
const TOTALS_VERSION: u16 = 1;

/// Saved totals that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("what the server has counted can't be read: {0}")]
pub struct BadTotals(String);

/// Sums over the whole run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Rounds that have closed.
    pub rounds: u64,
    /// Accepted uploads.
    pub uploads: u64,
    /// Samples that nodes reported.
    pub samples: u64,
    /// Sum of their squared errors, in the label's own unit.
    pub squared_error: f64,
    /// Votes for each kernel; empty before the first.
    pub votes: Vec<u64>,
    /// Rounds in which each kernel predicted; empty where none is selected.
    pub selected: Vec<u64>,
    /// Uploads that came late.
    pub late: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// Bytes of messages from nodes, frames included.
    pub messages_up: u64,
    /// Bytes of messages to nodes, frames included.
    pub messages_down: u64,
    /// Broadcasts that were sent, one for each node.
    pub broadcasts: u64,
    /// Bytes through sockets, including encryption.
    pub wire: WireBytes,
    /// Nodes whose uploads the latest round accepted.
    pub acknowledged: NodeSet,
}

impl Totals {
    pub(super) fn save(&self) -> Vec<u8> {
        // Writing to memory can't fail; empty totals would be refused when they are read.
        postcard::to_allocvec(&(TOTALS_VERSION, self)).unwrap_or_default()
    }

    pub(super) fn restore(saved: &[u8], kernels: usize, nodes: usize) -> Result<Self, BadTotals> {
        let unreadable = |error: postcard::Error| BadTotals(error.to_string());
        let (version, rest) = postcard::take_from_bytes::<u16>(saved).map_err(unreadable)?;
        if version != TOTALS_VERSION {
            return Err(BadTotals(format!(
                "this program reads version {TOTALS_VERSION}, and they have {version}: use the \
                 program that wrote the store, or a backup from before the upgrade"
            )));
        }
        let (totals, rest): (Self, _) = postcard::take_from_bytes(rest).map_err(unreadable)?;
        let is_sound = rest.is_empty()
            && totals.squared_error.is_finite()
            && [&totals.votes, &totals.selected]
                .iter()
                .all(|counts| counts.is_empty() || counts.len() == kernels)
            && totals.acknowledged.0.len() <= nodes / 8 + 1;
        if is_sound {
            Ok(totals)
        } else {
            Err(BadTotals("sizes or values are out of bounds".into()))
        }
    }

    /// Mean squared error of all samples; none before the first.
    pub fn mse(&self) -> Option<f64> {
        mean(self.squared_error, self.samples)
    }

    /// Bytes of messages.
    pub(crate) fn messages(&self) -> WireBytes {
        WireBytes { up: self.messages_up, down: self.messages_down }
    }

    /// A round has closed.
    pub(super) fn add(&mut self, record: &RoundRecord, kernels: usize) {
        self.rounds += 1;
        self.uploads += record.uploads;
        self.samples += record.samples;
        self.squared_error += record.squared_error;
        if !record.votes.is_empty() {
            self.votes.resize(kernels, 0);
            self.votes
                .iter_mut()
                .zip(&record.votes)
                .for_each(|(sum, votes)| *sum += u64::from(*votes));
        }
        if let Some(kernel) = record.selected {
            self.selected.resize(kernels, 0);
            self.selected.get_mut(kernel as usize).into_iter().for_each(|rounds| *rounds += 1);
        }
    }
}

/// Bytes through sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WireBytes {
    /// From nodes.
    pub up: u64,
    /// To nodes.
    pub down: u64,
}

/// A set of nodes, one bit each.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeSet(Vec<u8>);

impl NodeSet {
    pub(super) fn insert(&mut self, node: NodeId) {
        let (byte, bit) = (node as usize / 8, 1 << (node % 8));
        if byte >= self.0.len() {
            self.0.resize(byte + 1, 0);
        }
        self.0[byte] |= bit;
    }

    /// Whether a node is among them.
    pub fn contains(&self, node: NodeId) -> bool {
        self.0.get(node as usize / 8).is_some_and(|byte| byte & (1 << (node % 8)) != 0)
    }

    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }
}

/// The latest rounds.
#[derive(Debug, Clone, Default)]
pub struct Window(VecDeque<RoundRecord>);

impl Window {
    /// Adds a round and drops the oldest.
    pub fn push(&mut self, record: RoundRecord) {
        if self.0.len() == WINDOW_ROUNDS {
            self.0.pop_front();
        }
        self.0.push_back(record);
    }

    /// How many rounds it has.
    pub fn rounds(&self) -> usize {
        self.0.len()
    }

    /// Mean squared error in them; none if they have no sample.
    pub fn mse(&self) -> Option<f64> {
        let samples = self.0.iter().map(|record| record.samples).sum();
        mean(self.0.iter().map(|record| record.squared_error).sum(), samples)
    }

    /// Share of the rounds in which a kernel predicted, and its share of the votes.
    pub fn shares(&self, kernel: usize) -> (f64, f64) {
        let selected =
            self.0.iter().filter(|record| record.selected == Some(kernel as u32)).count();
        let votes: u64 = self
            .0
            .iter()
            .filter_map(|record| record.votes.get(kernel))
            .map(|votes| u64::from(*votes))
            .sum();
        let all: u64 =
            self.0.iter().flat_map(|record| &record.votes).map(|votes| u64::from(*votes)).sum();
        (selected as f64 / self.rounds().max(1) as f64, votes as f64 / all.max(1) as f64)
    }
}

pub(crate) fn mean(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(round: u64, selected: u32, votes: [u32; 3]) -> RoundRecord {
        RoundRecord {
            round,
            samples: 2,
            squared_error: round as f64,
            selected: Some(selected),
            votes: votes.to_vec(),
            ..RoundRecord::default()
        }
    }

    #[test]
    fn totals_survive_and_others_are_refused() {
        let mut totals = Totals::default();
        totals.add(&record(3, 1, [0, 5, 2]), 3);
        totals.add(&record(4, 2, [1, 0, 2]), 3);
        [0, 7, 8, 900].into_iter().for_each(|node| totals.acknowledged.insert(node));
        assert_eq!((totals.rounds, totals.samples, totals.mse()), (2, 4, Some(1.75)));
        assert_eq!((&totals.votes[..], &totals.selected[..]), (&[1, 5, 4][..], &[0, 1, 1][..]));
        let saved = totals.save();
        assert_eq!(Totals::restore(&saved, 3, 1000), Ok(totals.clone()));
        assert!(Totals::restore(&saved, 4, 1000).is_err(), "another dictionary");
        assert!(Totals::restore(&saved, 3, 800).is_err(), "a node too many");
        (0..saved.len()).for_each(|len| assert!(Totals::restore(&saved[..len], 3, 1000).is_err()));
        totals.squared_error = f64::NAN;
        assert!(Totals::restore(&totals.save(), 3, 1000).is_err());
        let newer = postcard::to_allocvec(&(TOTALS_VERSION + 1, &totals)).unwrap();
        assert!(Totals::restore(&newer, 3, 1000).unwrap_err().to_string().contains("they have 2"));
    }

    #[test]
    fn sets_contain_what_was_inserted() {
        let mut acknowledged = NodeSet::default();
        [3, 64, 65].into_iter().for_each(|node| acknowledged.insert(node));
        let found: Vec<NodeId> = (0..200).filter(|node| acknowledged.contains(*node)).collect();
        assert_eq!(found, [3, 64, 65]);
        acknowledged.clear();
        assert!((0..200).all(|node| !acknowledged.contains(node)));
    }

    #[test]
    fn a_window_forgets() {
        let mut window = Window::default();
        assert_eq!((window.mse(), window.shares(0)), (None, (0.0, 0.0)));
        for round in 1..=150 {
            window.push(record(round, u32::from(round > 125), [u32::from(round <= 75), 1, 0]));
        }
        assert_eq!((window.rounds(), window.mse()), (100, Some(100.5 / 2.0)));
        assert_eq!(window.shares(0), (0.75, 0.2));
        assert_eq!(window.shares(1), (0.25, 0.8));
        assert_eq!(window.shares(9), (0.0, 0.0));
    }
}
