//! Where a server keeps its run: the trait [`Storage`], SQLite behind it ([`sqlite`]), and the
//! thread that writes ([`writer`]).

use std::path::{Path, PathBuf};

use hedgerow::NodeId;
use serde::{Deserialize, Serialize};

use crate::audit::{Draft, Entry};
use crate::coordinator::records::{
    Change, Commit, NodeRecord, RoundRecord, Saved, Snapshot, Target,
};
use crate::file::FileError;

pub mod sqlite;
pub mod writer;

pub use sqlite::backup::{BackedUp, Restored, backup, restore};
pub use sqlite::retention::SnapshotLimits;
pub use sqlite::{Store, View};

/// Stores the rounds and nodes of a run.
pub trait Storage: Send {
    /// Stores a round: all of it or nothing.
    fn commit(&mut self, commit: &Commit) -> Result<(), StoreError>;
    /// The number of the node `name`. A new node gets the next number, unless the run has `most`
    /// nodes already.
    fn node_number(&mut self, name: &str, most: u32) -> Result<NodeId, StoreError>;
    /// Stores records of nodes that have joined: all of them or none.
    fn save_nodes(&mut self, nodes: &[NodeRecord]) -> Result<(), StoreError>;
    /// Stores a decision and its entry of the audit log: both or neither.
    fn decide(&mut self, change: &Change, entry: &Draft) -> Result<(), StoreError>;
    /// The states that the run can be set back to, the oldest first.
    fn snapshots(&self) -> Vec<Snapshot>;
    /// Sets the run back, with an entry of `actor` in the audit log: all of it or nothing. Nothing
    /// is changed if `check` refuses the state.
    fn roll_back(
        &mut self,
        to: Target,
        actor: &str,
        at_ms: u64,
        check: CheckState<'_>,
    ) -> Result<RolledBack, StoreError>;
    /// At most `most` entries of the audit log, from number `from` on or the latest ones, and the
    /// number of the latest of all. Fails if the log was changed.
    fn audit(&self, from: Option<u64>, most: usize) -> Result<(Vec<Entry>, u64), StoreError>;
    /// The file that it writes; none if it is not in a file.
    fn path(&self) -> Option<&Path>;
}

/// Whether a server can go on from a state; if not, why.
pub type CheckState<'a> = &'a mut dyn FnMut(&Saved) -> Result<(), String>;

/// A run that was set back.
#[derive(Debug, Clone, PartialEq)]
pub struct RolledBack {
    /// The state that it is in now.
    pub saved: Saved,
    /// The rounds before it.
    pub history: Vec<RoundRecord>,
    /// See [`Decisions::epoch`](crate::coordinator::records::Decisions::epoch).
    pub epoch: u64,
}

/// What a committed round survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// A killed process. After a loss of power the latest rounds may be missing; the rest is
    /// intact.
    #[default]
    Kill,
    /// A loss of power too. Every commit waits for the disk.
    PowerLoss,
}

/// Why a store can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has locked the store.
    #[error("{}: another server is using it", path.display())]
    InUse {
        /// The store.
        path: PathBuf,
    },
    /// The file doesn't exist.
    #[error("{}: there is no such store", path.display())]
    Missing {
        /// The store.
        path: PathBuf,
    },
    /// Another program's file, or a store whose beginning is lost.
    #[error("{}: not a store of hedgerow: {reason}", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// How that was seen.
        reason: String,
    },
    /// A newer format.
    #[error("{}: written by a newer hedgerow: format {found}, this one knows up to {newest}", path.display())]
    Newer {
        /// The store.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest known format.
        newest: i64,
    },
    /// A checksum or the structure is wrong. The store is not changed.
    #[error("{}: damaged: {what}", path.display())]
    Damaged {
        /// The store.
        path: PathBuf,
        /// The damaged part.
        what: String,
    },
    /// A log without its store. A new store would overwrite it.
    #[error("{}: missing, but its log {} is there: bring the store back, or move the log away", path.display(), log.display())]
    LogAlone {
        /// The store.
        path: PathBuf,
        /// The log.
        log: PathBuf,
    },
    /// The log of another store is beside it.
    #[error("{}: its log {} belongs to another store: this one was put in its place while the log stayed; move the log and the -shm file away, or use `hedgerow admin restore`, which does that", path.display(), log.display())]
    OtherLog {
        /// The store.
        path: PathBuf,
        /// The log.
        log: PathBuf,
    },
    /// There is no such snapshot.
    #[error("no snapshot {asked}; {there}")]
    NoSnapshot {
        /// What was asked for.
        asked: String,
        /// What there is.
        there: String,
    },
    /// A copy would overwrite a file.
    #[error("{}: exists already; choose another name", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A copy is not as its source.
    #[error("{}: not usable: {reason}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The disk is full. Nothing was stored.
    #[error("{}: no room left on the disk; nothing was stored, and it can be tried again", path.display())]
    Full {
        /// The store.
        path: PathBuf,
    },
    /// An error of the system or of the database.
    #[error("{}: {source}", path.display())]
    Unusable {
        /// The store.
        path: PathBuf,
        /// The error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file beside the store can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A store holds one run.
    #[error("{}: already has the run {run}", path.display())]
    HasRun {
        /// The store.
        path: PathBuf,
        /// Its run.
        run: String,
    },
    /// The run has as many nodes as it may have.
    #[error("node {name:?} would be one more than the {most} that a run may have")]
    TooManyNodes {
        /// The new node.
        name: String,
        /// The bound.
        most: u32,
    },
    /// No node of that name and number has joined.
    #[error("{}: there is no node {number} named {name:?}", path.display())]
    NoSuchNode {
        /// The store.
        path: PathBuf,
        /// The node's number.
        number: NodeId,
        /// The node's name.
        name: String,
    },
    /// The thread that writes has ended.
    #[error("the store is closed")]
    Closed,
}
