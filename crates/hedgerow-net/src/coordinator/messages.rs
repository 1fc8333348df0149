//! Arguments and results of a [`super::Coordinator`].

use hedgerow::NodeId;
use hedgerow::message::{Errors, Rejected, Report, Upload};

use super::{Ledger, Refused};

/// The stream that a message came on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// The node.
    pub node: NodeId,
    /// The stream's number; a node's newest stream replaces the previous one.
    pub stream: u64,
}

/// A node that joins.
#[derive(Debug, Clone, Copy)]
pub struct Newcomer<'a> {
    /// Its node and stream.
    pub sender: Sender,
    /// Its name.
    pub name: &'a str,
    /// Serial number of its certificate; none in plain text.
    pub certificate: Option<&'a [u8]>,
    /// Its program and version.
    pub software: &'a str,
    /// The address that it connects from.
    pub address: &'a str,
}

/// What is known of a message besides its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Envelope {
    /// Its bytes, frame included.
    pub bytes: u64,
    /// Bytes and broadcasts that were sent on the stream since its last message.
    pub sent: Sent,
}

/// What was sent to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    /// Bytes of messages, frames included.
    pub bytes: u64,
    /// How many of them were broadcasts.
    pub broadcasts: u64,
}

/// What a node said.
#[derive(Debug)]
pub enum Said<'a> {
    /// One upload for each output, the node's errors, and what it tells of the importance of
    /// columns.
    Upload(&'a mut [Upload], Errors, &'a [f32]),
    /// What the node has seen of each column.
    Report(Report),
    /// It has nothing to answer with: rounds don't wait for it until it answers again.
    Idle,
    /// Something that could not be read.
    Garbled(Rejected),
}

/// The result of a message: a verdict if it was an upload, and which uploads were accepted.
pub type HearingResult = Result<Option<(Verdict, Ledger)>, Refusal>;

/// The result of an upload that wasn't refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It counts in the open round.
    Taken,
    /// Its round has closed: it was dropped.
    Late,
    /// Its round has closed: it counts in the open round.
    Merged,
    /// The node has an upload in the open round from an earlier stream; that one counts.
    Repeated,
    /// The node is in quarantine: it doesn't count.
    Ignored,
}

/// A refused message.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The open round.
    pub round: u64,
    /// Why it was refused.
    pub reason: Refused,
    /// Whether there were too many bad messages: the stream should end.
    pub is_last: bool,
}
