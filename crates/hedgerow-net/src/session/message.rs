//! The messages that open a stream.

use hedgerow::NodeId;

/// Version of the protocol that this code speaks.
pub const VERSION: u32 = 1;

/// The first message of a node.
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

/// The first message of the server.
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
}
