//! What an operator does to a running [`Hub`].

use std::cmp::Reverse;

use super::Hub;
use super::source::node;
use crate::coordinator::Member;
use crate::coordinator::events::Event;
use crate::operations::{Action, ActionError, Actor, NodeFilter, NodeSort, Outcome};
use crate::serve::status::{NodeStatus, Source};
use crate::session::CloseReason;

impl Hub {
    /// Does what an operator asks for, or nothing of it. Every change is in the audit log.
    pub async fn operate(&self, actor: Actor, action: Action) -> Result<Outcome, ActionError> {
        match action {
            Action::Status {} => Ok(Outcome::Status(Box::new(self.status()))),
            Action::Nodes { filter, sort, most } => Ok(self.list_nodes(&filter, sort, most)),
            Action::Kick { node } => self.kick(&actor, &node),
            _ => Err(ActionError::NotYet),
        }
    }

    fn list_nodes(&self, filter: &NodeFilter, sort: NodeSort, most: Option<usize>) -> Outcome {
        let mut nodes: Vec<NodeStatus> = {
            let inner = self.lock();
            let named = |member: &&Member| {
                let part = filter.name.as_deref();
                part.is_none_or(|part| member.record.name.contains(part))
            };
            let members = inner.coordinator.members().iter();
            members.filter(named).map(node).collect()
        };
        nodes.retain(|node| filter.state.is_none_or(|state| node.state == state));
        match sort {
            NodeSort::Number => {}
            NodeSort::Name => nodes.sort_by(|one, other| one.name.cmp(&other.name)),
            NodeSort::Error => nodes.sort_by(|one, other| {
                let error = |node: &NodeStatus| node.window_mse.unwrap_or(-1.0);
                error(other).total_cmp(&error(one))
            }),
            NodeSort::Seen => nodes.sort_by_key(|node| node.last_seen_ms),
            NodeSort::Sample => nodes.sort_by_key(|node| node.last_sample_ms),
            NodeSort::Samples => nodes.sort_by_key(|node| Reverse(node.samples)),
            NodeSort::Refused => nodes.sort_by_key(|node| Reverse(node.refused)),
        }
        let most = most.unwrap_or(usize::MAX);
        let left_out = nodes.len().saturating_sub(most) as u64;
        nodes.truncate(most);
        Outcome::Nodes { nodes, left_out }
    }

    fn kick(&self, actor: &Actor, name: &str) -> Result<Outcome, ActionError> {
        let mut inner = self.lock();
        let node = || name.to_owned();
        let number =
            *inner.numbers.get(name).ok_or_else(|| ActionError::NoSuchNode { node: node() })?;
        let (signal, _) = inner
            .sessions
            .get(&number)
            .ok_or_else(|| ActionError::NotConnected { node: node() })?;
        signal.give(CloseReason::Kicked);
        inner
            .coordinator
            .events()
            .note(Event::NodeKicked { node: node(), actor: actor.to_string() });
        Ok(Outcome::Done {
            message: format!("the stream of node {name:?} ends; it may join again"),
        })
    }
}
