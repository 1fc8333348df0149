//! What travels on a stream.

use hedgerow::NodeId;
use hedgerow::message::{ToNode, ToServer};

/// Version of the protocol that this code speaks.
pub const VERSION: u32 = 1;

/// A message of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum FromNode {
    /// The first message, and only the first.
    Hello(Hello),
    /// A message of the core.
    Message(ToServer),
}

/// A message of the server.
#[derive(Debug, Clone, PartialEq)]
pub enum FromServer {
    /// The first message, and only the first.
    Welcome(Welcome),
    /// A message of the core.
    Message(ToNode),
    /// A message of the node was refused. The stream continues.
    Refusal {
        /// The open round.
        round: u64,
        /// Why the message was refused.
        reason: String,
    },
}

/// How a node introduces itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Version of the protocol.
    pub protocol: u32,
    /// The node's name; it must equal the name in its certificate.
    pub name: String,
    /// The run that the node's state belongs to; empty if the node is new.
    pub run: String,
    /// The node's program and version, for the operator.
    pub software: String,
}

/// What a server tells an admitted node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// Version of the protocol.
    pub protocol: u32,
    /// Identity of the run.
    pub run: String,
    /// The node's number in the run.
    pub node: NodeId,
    /// The learning configuration as JSON.
    pub learning: String,
    /// A number that is drawn anew whenever the run is set back; 0 if it never was.
    pub epoch: u64,
}

impl From<ToServer> for FromNode {
    fn from(message: ToServer) -> Self {
        Self::Message(message)
    }
}

impl From<ToNode> for FromServer {
    fn from(message: ToNode) -> Self {
        Self::Message(message)
    }
}
