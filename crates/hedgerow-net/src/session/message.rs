//! What travels on a stream.

use std::fmt;

use hedgerow::NodeId;
use hedgerow::message::{ToNode, ToServer};

/// The newest version of the protocol that this code speaks. Since version 2 a node may ignore what
/// the server's plan calls ignorable ([`crate::plan_json`]).
pub const VERSION: u32 = 2;

/// The oldest version of the protocol that this code speaks.
pub const OLDEST: u32 = 1;

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

/// The versions of the protocol that one side speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The oldest.
    pub oldest: u32,
    /// The newest.
    pub newest: u32,
}

impl Versions {
    /// Those of this code.
    pub const OWN: Self = Self { oldest: OLDEST, newest: VERSION };

    /// The newest version that both speak, if there is one.
    pub fn common(self, other: Self) -> Option<u32> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { oldest, newest } = self;
        if oldest == newest {
            return write!(formatter, "version {oldest}");
        }
        write!(formatter, "version {oldest} to {newest}")
    }
}

/// How a node introduces itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version of the protocol that it speaks.
    pub protocol: u32,
    /// The newest; 0 if it is the same.
    pub newest: u32,
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
    /// The newest version of the protocol that both sides speak.
    pub protocol: u32,
    /// The newest that the server speaks; 0 if it is the same.
    pub newest: u32,
    /// Identity of the run.
    pub run: String,
    /// The node's number in the run.
    pub node: NodeId,
    /// The learning configuration as JSON.
    pub learning: String,
    /// A number that is drawn anew whenever the run is set back; 0 if it never was.
    pub epoch: u64,
}

impl Hello {
    /// The versions that the node speaks.
    pub fn versions(&self) -> Versions {
        Versions { oldest: self.protocol, newest: self.newest.max(self.protocol) }
    }
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
