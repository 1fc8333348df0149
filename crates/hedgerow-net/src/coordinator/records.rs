//! Plain records of a run: what a server stores and reads again. They know nothing of how they are
//! stored.

use hedgerow::NodeId;

/// A run: its identity and what it learns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Identity of the run.
    pub id: String,
    /// The learning configuration as [`crate::plan_json::plan_to_json`] writes it.
    pub learning: String,
}

/// The stored state of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// The open round.
    pub round: u64,
    /// State of the server's method.
    pub server: Vec<u8>,
    /// State of the server's scaling, if the nodes agree on scales.
    pub scaling: Option<Vec<u8>>,
    /// The server's counters.
    pub totals: Vec<u8>,
}

/// What is stored when a round closes: all of it or nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Commit {
    /// The round that is open now.
    pub round: u64,
    /// State of the server's method.
    pub server: Vec<u8>,
    /// State of the server's scaling; none if it did not change.
    pub scaling: Option<Vec<u8>>,
    /// The server's counters.
    pub totals: Vec<u8>,
    /// The round that closed; none if only the scaling changed.
    pub record: Option<RoundRecord>,
}

/// A round that has closed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RoundRecord {
    /// Its number.
    pub round: u64,
    /// When it closed, in milliseconds since 1970.
    pub closed_at_ms: u64,
    /// Accepted uploads.
    pub uploads: u64,
    /// Samples that nodes reported in it.
    pub samples: u64,
    /// Sum of their squared errors, in the label's unit.
    pub squared_error: f64,
    /// The selected kernel, if the method selects one.
    pub selected: Option<u32>,
    /// Votes for each kernel, if the method has votes.
    pub votes: Vec<u32>,
    /// Late uploads.
    pub late: u64,
    /// Refused messages.
    pub refused: u64,
    /// Bytes from nodes.
    pub bytes_up: u64,
    /// Bytes to nodes.
    pub bytes_down: u64,
}

/// A node that has joined the run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeRecord {
    /// Its number in the run.
    pub number: NodeId,
    /// Its name.
    pub name: String,
    /// When it first joined, in milliseconds since 1970.
    pub first_seen_ms: u64,
    /// When its latest message came.
    pub last_seen_ms: u64,
    /// Accepted uploads.
    pub uploads: u64,
    /// Refused messages.
    pub refused: u64,
    /// Late uploads.
    pub late: u64,
    /// Samples that it has learned from.
    pub samples: u64,
    /// Sum of its squared errors, in the label's unit.
    pub squared_error: f64,
    /// Bytes that it sent.
    pub bytes_up: u64,
    /// Bytes that were sent to it.
    pub bytes_down: u64,
}
