//! Why a server ends a node's stream. `transport/` makes these the status codes of its protocol.

use super::Versions;
use crate::pki::identity::BadName;

/// Why a server ends a node's stream, in words that the node hears.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The server is shutting down.
    #[error("the server is going down")]
    GoingDown,
    /// The store can't register a new node.
    #[error("the server can't store that you are new; try again")]
    NotStored,
    /// The run has as many nodes as it may have.
    #[error("node {name:?} would be one more than the {most} that a run may have")]
    TooManyNodes {
        /// The new node.
        name: String,
        /// The bound.
        most: u32,
    },
    /// The node has opened another stream.
    #[error("another stream of this node has taken the place of this one")]
    Replaced,
    /// An operator has ended the stream.
    #[error("an operator of the server ended this stream; the node may join again")]
    Kicked,
    /// An operator has banned the node.
    #[error("an operator of the server has banned this node: {0}")]
    Banned(String),
    /// The run was set back: on a new stream the node goes on from there.
    #[error("the run was set back to an earlier round; join again")]
    SetBack,
    /// The node's certificate is on the revocation list.
    #[error("this node's certificate has been revoked")]
    Revoked,
    /// The node's certificate is no longer valid.
    #[error("this node's certificate has ended")]
    Expired,
    /// The certificate is an operator's.
    #[error("this certificate is an operator's, and only nodes can join")]
    NotANode,
    /// Too many bad messages in a row.
    #[error("refused: {0}")]
    BadMessages(String),
    /// The handshake took too long.
    #[error("no Hello came in time")]
    NoHello,
    /// The stream began with another message.
    #[error("the first message must be a Hello")]
    NotHello,
    /// The two sides have no version in common.
    #[error(
        "this server speaks the protocol in {}, and this node in {node}: update the {}",
        Versions::OWN,
        if node.newest > Versions::OWN.newest { "server" } else { "node" }
    )]
    Version {
        /// What the node speaks.
        node: Versions,
    },
    /// The node speaks a version of the protocol that is older than the method's messages.
    #[error(
        "the server sends messages of {method} in revision {revision}, and this node reads revision \
         1: update the node"
    )]
    Revision {
        /// The method.
        method: &'static str,
        /// The revision that this server has.
        revision: u32,
    },
    /// The certificate is another node's.
    #[error("the name is not that of the certificate")]
    OtherName,
    /// The name is not allowed.
    #[error(transparent)]
    BadName(#[from] BadName),
}
