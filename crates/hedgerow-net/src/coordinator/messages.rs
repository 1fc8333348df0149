//! What is said to a [`super::Coordinator`], and what it answers.

use hedgerow::NodeId;

use super::Refused;

/// The stream that a message came on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// Whose it is.
    pub node: NodeId,
    /// Which: a node's newest stream takes the place of the one before.
    pub stream: u64,
}

/// Who joins.
#[derive(Debug, Clone, Copy)]
pub struct Newcomer<'a> {
    /// Its node and stream.
    pub sender: Sender,
    /// Its name.
    pub name: &'a str,
    /// Its program and version.
    pub software: &'a str,
    /// Where from.
    pub address: &'a str,
}

/// A message beside what it says.
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

/// What became of an upload that wasn't refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It counts in the open round.
    Taken,
    /// Its round has closed: it was dropped.
    Late,
    /// The same: it counts in the open round.
    Merged,
    /// The node has one in the open round already, from an earlier stream; that one stands.
    Repeated,
}

/// A message that was not taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The open round.
    pub round: u64,
    /// Why.
    pub reason: Refused,
    /// Enough is enough: the stream should end.
    pub is_last: bool,
}
