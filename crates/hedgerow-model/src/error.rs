use std::io;
use std::path::PathBuf;

use hedgerow::message::Rejected;
use hedgerow::state::BadState;

/// Why a file of a model can't be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The system can't read it.
    #[error("can't read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The system can't write it.
    #[error("can't write {}: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The model is too large for a file.
    #[error("can't write {}: the model has {found} bytes, and {bound} are the most of a file", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Most bytes.
        bound: u64,
        /// Bytes of the model.
        found: u64,
    },
    /// Another file.
    #[error("{}: not a model of hedgerow: {reason}", path.display())]
    NotAModel {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Written by a newer version of this program.
    #[error("{}: written by a newer hedgerow: format {found}, this one knows up to {newest}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest that is known.
        newest: u32,
    },
    /// The checksum is wrong.
    #[error("{}: damaged: the checksum of its content is {found:08x}, and {expected:08x} was written", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The checksum in the file.
        expected: u32,
        /// The checksum of the content.
        found: u32,
    },
    /// The learning configuration is invalid.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The shared model doesn't fit the configuration.
    #[error("{}: the model does not fit its configuration: {source}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Rejected,
    },
    /// The existing file is no model, so it is not overwritten.
    #[error("{0}; it is left as it is: move it away first")]
    Kept(Box<ModelError>),
}

/// Why a model can't predict what was asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NoModel {
    /// A node that it doesn't have, and those that it has, the nearest first.
    #[error("the model has no node {name:?}{there}")]
    UnknownNode {
        /// The name that came.
        name: String,
        /// The nearest name, and others.
        there: String,
    },
    /// It has no nodes at all.
    #[error(
        "the model has no node {name:?}: it is the shared model alone (`hedgerow export STATE_FILE` on that node's device writes its own)"
    )]
    NoNodes {
        /// The name that came.
        name: String,
    },
    /// It has no shared model.
    #[error("the model has no shared part, only that of a node: choose one of {names}")]
    NotShared {
        /// Names of its nodes.
        names: String,
    },
    /// The shared model doesn't fit the plan.
    #[error("the shared model does not fit its configuration: {0}")]
    Shared(Rejected),
    /// A node doesn't fit the plan.
    #[error("node {name:?}: {source}")]
    Node {
        /// The node.
        name: String,
        /// The cause.
        source: BadState,
    },
}
