//! Everything that crosses between node and server: [`ToServer`], [`ToNode`] and their parts.
//!
//! [`Upload`] and [`Broadcast`] are a few numbers and the round that they belong to. What a message
//! costs is counted from the message itself: one number per model entry, loss, weight, vote or
//! kernel index. The round is its envelope, like an address.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::limits::MAX_NUMBER;
use crate::simd;

/// Identity of a node within its federation.
pub type NodeId = u32;

/// A message of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum ToServer {
    /// What the node has learned in a round.
    Upload(UploadMessage),
    /// What the node has seen of its raw samples.
    Report(Report),
    /// The node has nothing to answer the round with: rounds don't wait for it until it uploads or
    /// reports again.
    Idle,
}

/// A message of the server.
#[derive(Debug, Clone, PartialEq)]
pub enum ToNode {
    /// Opens a round.
    Broadcast(BroadcastMessage),
    /// From the next broadcast on, numbers are in this scale.
    Scale(ScaleMessage),
}

/// What a node has learned in a round: an [`Upload`] for each output, and its errors.
#[derive(Debug, Clone, PartialEq)]
pub struct UploadMessage {
    /// The round that it answers.
    pub round: u64,
    /// One for each output.
    pub heads: Vec<UploadHead>,
    /// The errors since the last upload that the server took.
    pub errors: Errors,
    /// For each group of columns the sum of the increases of the loss, and how many, since the last
    /// upload with them that the server took; empty in most rounds, and unless the plan has
    /// [`crate::importance::ImportanceScope::Shared`].
    pub importance: Vec<f32>,
}

/// The part of an upload that belongs to one output.
#[derive(Debug, Clone, PartialEq)]
pub struct UploadHead {
    /// As in [`Upload`].
    pub vote: Option<u32>,
    /// As in [`Upload`], or compressed.
    pub numbers: Numbers,
}

/// What opens a round: a [`Broadcast`] for each output, and what became of the receiver's uploads.
#[derive(Debug, Clone, PartialEq)]
pub struct BroadcastMessage {
    /// The round that it opens.
    pub round: u64,
    /// One for each output.
    pub heads: Vec<BroadcastHead>,
    /// The last round of which an upload of the receiver was taken; 0 if none was.
    pub taken: u64,
}

/// The part of a broadcast that belongs to one output.
#[derive(Debug, Clone, PartialEq)]
pub struct BroadcastHead {
    /// As in [`Broadcast`].
    pub kernels: Option<Selection>,
    /// As in [`Broadcast`], or compressed as differences to the broadcast before.
    pub numbers: Numbers,
}

/// Numbers as they travel.
#[derive(Debug, Clone, PartialEq)]
pub enum Numbers {
    /// As they are.
    Plain(Vec<f32>),
    /// What a [`crate::codec::Encoder`] wrote.
    Compressed(Vec<u8>),
}

impl Numbers {
    /// Reads at most so many numbers, or refuses them; `decode` reads compressed ones.
    pub(crate) fn read(
        &self,
        most: usize,
        out: &mut Vec<f32>,
        decode: impl FnOnce(&[u8], &mut Vec<f32>) -> Result<(), Rejected>,
    ) -> Result<(), Rejected> {
        match self {
            Self::Plain(numbers) if numbers.len() > most => {
                Err(Rejected::WrongLength { expected: most, found: numbers.len() })
            }
            Self::Plain(numbers) => {
                out.clone_from(numbers);
                Ok(())
            }
            Self::Compressed(bytes) => decode(bytes, out),
        }
    }
}

/// What a node tells of its predictions.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Errors {
    /// Samples whose label came after their prediction.
    pub samples: u32,
    /// Sum of the squared errors of those predictions, in the label's own unit.
    pub squared_error: f32,
}

/// A scale that was agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaleMessage {
    /// How many scales were agreed on before it, and one.
    pub version: u64,
    /// What [`crate::scaling::Scale::to_bytes`] wrote.
    pub scale: Vec<u8>,
}

/// What a node sends: its share of the sums that the server needs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Upload {
    /// The round that it answers.
    pub round: u64,
    /// The kernel that the node votes for or that its numbers belong to, where a method has votes.
    pub vote: Option<u32>,
    /// What the server adds up.
    pub numbers: Vec<f32>,
}

/// What the server sends: the state of the global model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Broadcast {
    /// The round that it opens.
    pub round: u64,
    /// Where a method selects kernels.
    pub kernels: Option<Selection>,
    /// The global model.
    pub numbers: Vec<f32>,
}

/// The two kernels that a broadcast names, so that a node that missed some can go on from the
/// latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// The kernel of the global model.
    pub current: u32,
    /// The kernel whose models are to be uploaded next.
    pub next: u32,
}

/// What a node sends about its raw samples, rarely: a [`crate::scaling::Summary`] in numbers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Report {
    /// Count, mean, standard deviation, smallest and largest of each column.
    pub numbers: Vec<f32>,
}

pub(crate) const BYTES_PER_NUMBER: usize = 4;

impl ToServer {
    /// Bytes of its numbers and votes; framing of a transport comes on top.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Upload(UploadMessage { heads, importance, .. }) => {
                let vote = |head: &UploadHead| usize::from(head.vote.is_some()) * BYTES_PER_NUMBER;
                let heads = heads.iter().map(|head| head.numbers.bytes() + vote(head));
                heads.sum::<usize>() + BYTES_PER_NUMBER * importance.len()
            }
            Self::Report(report) => report.bytes(),
            Self::Idle => 0,
        }
    }
}

impl ToNode {
    /// Bytes of its numbers and kernels; framing of a transport comes on top.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Broadcast(BroadcastMessage { heads, .. }) => {
                let kernels =
                    |head: &BroadcastHead| head.kernels.map_or(0, |_| 2 * BYTES_PER_NUMBER);
                heads.iter().map(|head| head.numbers.bytes() + kernels(head)).sum()
            }
            Self::Scale(scale) => scale.scale.len(),
        }
    }
}

impl Numbers {
    fn bytes(&self) -> usize {
        match self {
            Self::Plain(numbers) => BYTES_PER_NUMBER * numbers.len(),
            Self::Compressed(bytes) => bytes.len(),
        }
    }
}

impl Upload {
    /// Numbers on the wire.
    pub fn count(&self) -> usize {
        self.numbers.len() + usize::from(self.vote.is_some())
    }

    /// Bytes of those numbers; framing of a transport comes on top.
    pub fn bytes(&self) -> usize {
        BYTES_PER_NUMBER * self.count()
    }
}

impl Broadcast {
    /// Numbers on the wire.
    pub fn count(&self) -> usize {
        self.numbers.len() + self.kernels.map_or(0, |_| 2)
    }

    /// Bytes of those numbers; framing of a transport comes on top.
    pub fn bytes(&self) -> usize {
        BYTES_PER_NUMBER * self.count()
    }
}

impl Report {
    /// Numbers on the wire.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Bytes of those numbers; framing of a transport comes on top.
    pub fn bytes(&self) -> usize {
        BYTES_PER_NUMBER * self.count()
    }
}

/// Why a message was refused; it changed nothing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// It belongs to a round that has closed, or to one that has not begun.
    #[error("upload for round {found}, but round {open} is open")]
    WrongRound {
        /// The round that is open.
        open: u64,
        /// The round of the message.
        found: u64,
    },
    /// A round that no federation can have reached.
    #[error("there is no round {round}")]
    NoSuchRound {
        /// The round of the message.
        round: u64,
    },
    /// A broadcast that says what has changed since one that the node doesn't have.
    #[error("broadcast of round {found} came, but this node is in round {round}")]
    MissedBroadcast {
        /// The round of the node.
        round: u64,
        /// The round of the broadcast.
        found: u64,
    },
    /// The node has spoken already.
    #[error("node {node} has already uploaded in round {round}")]
    Duplicate {
        /// The node.
        node: NodeId,
        /// When.
        round: u64,
    },
    /// Too many or too few numbers.
    #[error("{expected} numbers expected, but {found} came")]
    WrongLength {
        /// What the method sends.
        expected: usize,
        /// Numbers in the message.
        found: usize,
    },
    /// A number that isn't one, or one larger than [`crate::limits::MAX_NUMBER`].
    #[error("number {position} is {value}, beyond the bound of {bound:e}")]
    OutOfBounds {
        /// Where, from 0.
        position: usize,
        /// The value.
        value: f32,
        /// Largest size allowed.
        bound: f32,
    },
    /// A loss, count or square below zero: it would buy a kernel weight, or take away what others
    /// sent.
    #[error("number {position} can't be negative, but is {value}")]
    Negative {
        /// Where, from 0.
        position: usize,
        /// The value.
        value: f32,
    },
    /// A kernel that isn't in the dictionary, or none where one is needed, or one where none is.
    #[error("kernel {found:?} named, but the dictionary has kernels 0 to {last}")]
    WrongKernel {
        /// The kernel in the message.
        found: Option<u32>,
        /// The last valid index.
        last: u32,
    },
    /// Two parts of an upload for one kernel.
    #[error("kernel {kernel} named twice in one upload")]
    RepeatedKernel {
        /// The kernel.
        kernel: u32,
    },
    /// Numbers that can't be the count, mean, deviation and range of anything.
    #[error("column {column} of a report can't be a summary of numbers")]
    NotASummary {
        /// Which, from 0; the last is the label.
        column: usize,
    },
    /// More nodes report than a server keeps reports of.
    #[error("node {node} reports, but {bound} others already do")]
    TooManyNodes {
        /// Who came last.
        node: NodeId,
        /// How many a server listens to.
        bound: usize,
    },
    /// A version that no scale can have reached.
    #[error("there is no version {version} of a scale")]
    NoSuchVersion {
        /// The version in the message.
        version: u64,
    },
    /// A scale that is made from something else than agreed.
    #[error("the scale is of another kind than this node's")]
    WrongScale,
    /// Bytes that no encoder writes.
    #[error("the bytes of a message can't be read: {what}")]
    Garbled {
        /// What is wrong with them.
        what: &'static str,
    },
    /// The method has no uploads.
    #[error("this method takes no uploads")]
    NotExpected,
    /// A model without a known scale.
    #[error("no scale has been agreed on yet, so there can't be a model")]
    Unscaled,
    /// An upload that isn't masked, in a plan whose uploads are.
    #[error("uploads of this plan must be masked")]
    Unmasked,
    /// A node that the plan doesn't have.
    #[error("there is no node {node}")]
    UnknownNode {
        /// Its number.
        node: NodeId,
    },
    /// An upload that answers another broadcast than the one that was sent.
    #[error("the upload answers another broadcast of round {round}")]
    OtherBroadcast {
        /// The round that is open.
        round: u64,
    },
    /// An upload that came after the masks of the others were asked for.
    #[error("the masks of round {round} were asked for already")]
    MasksAsked {
        /// The round that is open.
        round: u64,
    },
    /// A sum of squared errors that is negative or not a number.
    #[error("a sum of squared errors must be a number and at least 0, but is {value}")]
    SquaredError {
        /// The sum that came.
        value: f32,
    },
}

/// Refuses numbers that are not finite or larger than [`MAX_NUMBER`].
pub(crate) fn check_numbers(numbers: &[f32]) -> Result<(), Rejected> {
    match simd::first_beyond(numbers, MAX_NUMBER) {
        None => Ok(()),
        Some((position, value)) => {
            Err(Rejected::OutOfBounds { position, value, bound: MAX_NUMBER })
        }
    }
}
