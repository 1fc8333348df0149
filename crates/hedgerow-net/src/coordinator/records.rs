//! Plain records of a run: what a server stores and reads again. They know nothing of how they are
//! stored.

use hedgerow::NodeId;
use serde::{Deserialize, Serialize};

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
    /// Serial number of the certificate that it joined with last; empty if it never had one.
    pub certificate: Vec<u8>,
}

/// A stored state that a run can be set back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The round that was open.
    pub round: u64,
    /// When it was stored, in milliseconds since 1970; 0 if that is not known.
    pub at_ms: u64,
    /// Bytes of its state. Rounds of the same scale share the part of the scale.
    pub bytes: u64,
}

/// Where a run is set back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The snapshot in which this round was open.
    Round(u64),
    /// The latest snapshot that was stored at this time or before, in milliseconds since 1970.
    Time(u64),
}

/// What a node may not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// An operator has banned it: it can't join.
    Banned,
    /// An operator has put it in quarantine: it contributes nothing.
    Quarantined,
    /// Its certificate was found on the revocation list.
    Revoked,
}

impl Standing {
    /// All, by their words.
    pub const ALL: [(&str, Self); 3] =
        [("banned", Self::Banned), ("quarantined", Self::Quarantined), ("revoked", Self::Revoked)];

    /// In a word.
    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

/// A node that may not do everything. It need not have joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingRecord {
    /// Its name.
    pub node: String,
    /// What it may not do.
    pub standing: Standing,
    /// Why.
    pub reason: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
}

/// What operators have decided, beside the state of the run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decisions {
    /// A random number that is drawn whenever the run is set back; 0 if it never was.
    pub epoch: u64,
    /// Whether rounds stay open.
    pub is_paused: bool,
    /// Settings that differ from the file: key and value.
    pub settings: Vec<(String, String)>,
    /// Nodes that may not do everything, by name.
    pub standings: Vec<StandingRecord>,
    /// The lists of revoked certificates that were in force last, as
    /// [`ListNumbers`](crate::pki::identity::ListNumbers) writes them.
    pub lists: String,
}

/// A decision, for a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// None: only an entry of the audit log.
    Nothing,
    /// What a node may not do.
    Standing(StandingRecord),
    /// A node may do everything again.
    NoStanding {
        /// Its name.
        node: String,
    },
    /// Whether rounds stay open.
    Paused(bool),
    /// The lists of revoked certificates in force: see [`Decisions::lists`].
    Lists(String),
    /// A setting, or none if it is that of the file again.
    Setting {
        /// Its key.
        key: String,
        /// Its value.
        value: Option<String>,
    },
    /// A node is removed. Its number is never given to another one.
    Forget {
        /// Its number.
        number: NodeId,
        /// Its name.
        node: String,
    },
}
