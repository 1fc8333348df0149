//! [`Opening`]: what opens a round, for every node.

use std::sync::Arc;

use hedgerow::Server;
use hedgerow::codec::Reference;
use hedgerow::importance::SharedImportance;
use hedgerow::message::{Selection, ToNode};

/// What opens a round. It is stored before any node hears it.
#[derive(Debug, Clone)]
pub struct Opening {
    /// The round.
    pub round: u64,
    /// The kernels that the round names, if the method selects kernels.
    pub kernels: Option<Selection>,
    /// Version of the scale; 0 if there is none.
    pub scale_version: u64,
    /// The scale of its numbers; none if scales aren't agreed on, or not yet.
    pub scale: Option<ToNode>,
    /// What compressed uploads of the round differ from; empty if they aren't compressed.
    pub references: Arc<Vec<Reference>>,
    /// What nodes have told of the importance of columns, and [`Server::importance_unit`]; none
    /// unless the plan shares it.
    pub importance: Option<(Arc<SharedImportance>, f64)>,
    /// Whether the server is shutting down, so that no round follows.
    pub is_last: bool,
    exact: ToNode,
    /// For nodes that have the previous broadcast, if those get another message.
    difference: Option<ToNode>,
}

impl Opening {
    /// `before` is the opening of the round before, if there is one.
    pub(super) fn new(server: &Server, before: Option<&Self>) -> Self {
        Self {
            round: server.round(),
            kernels: server.broadcast(0).kernels,
            scale_version: server.scale_version(),
            scale: server.scale_message(),
            references: Arc::clone(server.references()),
            importance: importance(server, before),
            is_last: false,
            exact: server.broadcast_message(0, false),
            difference: server.has_difference().then(|| server.broadcast_message(0, true)),
        }
    }

    /// The broadcast for one node: the last round in which its upload was accepted, and whether it
    /// has the previous broadcast.
    pub fn broadcast(&self, taken: u64, has_previous: bool) -> ToNode {
        let difference = self.difference.as_ref().filter(|_| has_previous);
        let mut message = difference.unwrap_or(&self.exact).clone();
        if let ToNode::Broadcast(broadcast) = &mut message {
            broadcast.taken = taken;
        }
        message
    }
}

/// In most rounds it is the same as before.
fn importance(server: &Server, before: Option<&Opening>) -> Option<(Arc<SharedImportance>, f64)> {
    let shared = server.importance()?;
    let before = before.and_then(|before| before.importance.as_ref());
    let known = before.filter(|(known, _)| known.groups() == shared.groups());
    let shared = known.map_or_else(|| Arc::new(shared.clone()), |(known, _)| Arc::clone(known));
    Some((shared, server.importance_unit()))
}
