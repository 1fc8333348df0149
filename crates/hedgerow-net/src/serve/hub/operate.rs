//! What an operator does to a running [`Hub`]. Changes are made one after the other: each is stored
//! with its entry of the audit log first, and takes effect then.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use hedgerow::NodeId;

use super::locked::Locked;
use super::source::node;
use super::{Hub, Inner, now, unix_ms};
use crate::audit::Draft;
use crate::coordinator::Member;
use crate::coordinator::events::Event;
use crate::coordinator::records::{Change, Standing, StandingRecord};
use crate::operations::{
    Action, ActionError, Actor, MAX_AUDIT, MAX_REASON, NodeFilter, NodeSort, Outcome,
};
use crate::pki::identity::{ListNumbers, check_node_name};
use crate::serve::status::{NodeStatus, Source};
use crate::session::CloseReason;
use crate::storage::{Storage, StoreError, backup};

impl Hub {
    /// Does what an operator asks for, or nothing of it. Every change is in the audit log. A change
    /// that has begun is finished even if nobody waits for the outcome.
    pub async fn operate(&self, actor: Actor, action: Action) -> Result<Outcome, ActionError> {
        let hub = self.me.upgrade().ok_or(ActionError::GoingDown)?;
        let done = self.runtime.spawn(async move { hub.carry_out(&actor, action).await });
        done.await.unwrap_or(Err(ActionError::GoingDown))
    }

    async fn carry_out(&self, actor: &Actor, action: Action) -> Result<Outcome, ActionError> {
        let _turn = if action.is_change() { Some(self.turns.lock().await) } else { None };
        match action {
            Action::Status {} => Ok(Outcome::Status(Box::new(self.status()))),
            Action::Nodes { filter, sort, most } => Ok(self.list_nodes(&filter, sort, most)),
            Action::Snapshots {} => {
                let snapshots = self.on_writer(|storage| Ok(storage.snapshots())).await?;
                Ok(Outcome::Snapshots { snapshots })
            }
            Action::Audit { from, most } => {
                let most = most.unwrap_or(MAX_AUDIT).min(MAX_AUDIT);
                let read = self.on_writer(move |storage| storage.audit(from, most)).await?;
                let (entries, latest) = read;
                Ok(Outcome::Audit { entries, latest })
            }
            Action::Ban { node, reason } => {
                self.set_standing(actor, node, Standing::Banned, reason).await
            }
            Action::Quarantine { node, reason } => {
                self.set_standing(actor, node, Standing::Quarantined, reason).await
            }
            Action::Unban { node } => self.clear_standing(actor, node, Standing::Banned).await,
            Action::Release { node } => {
                self.clear_standing(actor, node, Standing::Quarantined).await
            }
            Action::Kick { node } => self.kick(actor, node).await,
            Action::Pause {} => self.pause(actor, true).await,
            Action::Resume {} => self.pause(actor, false).await,
            Action::Rollback { to } => self.roll_back(actor, to).await,
            Action::ResetScale {} => self.reset_scale(actor).await,
            Action::Set { key, value } => self.set(actor, key, value).await,
            Action::Backup { path } => self.back_up(actor, path).await,
            Action::Forget { node } => self.forget(actor, node).await,
        }
    }

    /// Runs a job on the thread that writes.
    pub(super) async fn on_writer<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut dyn Storage) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ActionError> {
        let queued = {
            let inner = self.lock();
            inner.writer.as_ref().ok_or(ActionError::GoingDown)?.run(job)
        };
        Ok(queued.await?)
    }

    /// Stores a decision with its entry of the audit log.
    pub(super) async fn decide(
        &self,
        actor: &Actor,
        change: Change,
        (action, subject, details): (&str, &str, &str),
    ) -> Result<(), ActionError> {
        let entry = draft(actor, action, subject, details);
        self.on_writer(move |storage| storage.decide(&change, &entry)).await
    }

    fn list_nodes(&self, filter: &NodeFilter, sort: NodeSort, most: Option<usize>) -> Outcome {
        let mut nodes: Vec<NodeStatus> = {
            let inner = self.lock();
            let named = |member: &&Member| {
                let part = filter.name.as_deref();
                member.is_known() && part.is_none_or(|part| member.record.name.contains(part))
            };
            let members = inner.coordinator.members().iter().filter(named);
            members.map(|member| node(&inner.coordinator, member)).collect()
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

    async fn set_standing(
        &self,
        actor: &Actor,
        node: String,
        standing: Standing,
        reason: String,
    ) -> Result<Outcome, ActionError> {
        check_node_name(&node)?;
        let found = reason.len();
        if found > MAX_REASON {
            return Err(ActionError::Reason { found });
        }
        let reason = if reason.is_empty() { "no reason was given".to_owned() } else { reason };
        {
            let inner = self.lock();
            let is_known = inner.numbers.contains_key(&node);
            match inner.coordinator.standing(&node) {
                Some(known) if known.standing == standing => {
                    return Err(ActionError::AlreadySo { node, state: standing.word() });
                }
                // A node that is to be watched must exist; one that must not come need not.
                _ if !is_known && standing == Standing::Quarantined => {
                    return Err(ActionError::NoSuchNode { node });
                }
                _ => {}
            }
        }
        let since_ms = unix_ms();
        let record = StandingRecord { node: node.clone(), standing, reason, since_ms };
        let (action, reason) = match standing {
            Standing::Quarantined => ("quarantine", record.reason.clone()),
            _ => ("ban", record.reason.clone()),
        };
        let change = Change::Standing(record.clone());
        self.decide(actor, change, (action, &node, &reason)).await?;
        let mut guard = self.lock();
        let Inner { coordinator, sessions, numbers, .. } = &mut *guard;
        let number = numbers.get(&node).copied();
        coordinator.set_standing(number, record);
        let actor = actor.to_string();
        let (event, message) = if standing == Standing::Banned {
            if let Some(signal) = number.and_then(|number| sessions.get(&number)) {
                signal.give(CloseReason::Banned(reason.clone()));
            }
            let message = format!("node {node:?} is banned");
            (Event::NodeBanned { node, reason, actor }, message)
        } else {
            let message = format!("node {node:?} is in quarantine: it predicts and doesn't count");
            (Event::NodeQuarantined { node, reason, actor }, message)
        };
        coordinator.events().note(event);
        self.advance(&mut guard, now());
        Ok(Outcome::Done { message })
    }

    async fn clear_standing(
        &self,
        actor: &Actor,
        node: String,
        standing: Standing,
    ) -> Result<Outcome, ActionError> {
        let is_so = {
            let inner = self.lock();
            inner.coordinator.standing(&node).is_some_and(|known| known.standing == standing)
        };
        if !is_so {
            return Err(ActionError::NotSo { node, state: standing.word() });
        }
        let action = if standing == Standing::Banned { "unban" } else { "release" };
        let change = Change::NoStanding { node: node.clone() };
        self.decide(actor, change, (action, &node, "")).await?;
        let mut guard = self.lock();
        let number = guard.numbers.get(&node).copied();
        guard.coordinator.clear_standing(number, &node);
        let actor = actor.to_string();
        let (event, message) = if standing == Standing::Banned {
            let message = format!("node {node:?} may join again");
            (Event::NodeUnbanned { node, actor }, message)
        } else {
            let message = format!("node {node:?} counts again");
            (Event::NodeReleased { node, actor }, message)
        };
        guard.coordinator.events().note(event);
        Ok(Outcome::Done { message })
    }

    async fn kick(&self, actor: &Actor, node: String) -> Result<Outcome, ActionError> {
        connected(&self.lock(), &node)?;
        self.decide(actor, Change::Nothing, ("kick", &node, "")).await?;
        let mut inner = self.lock();
        let number = connected(&inner, &node)?;
        if let Some(signal) = inner.sessions.get(&number) {
            signal.give(CloseReason::Kicked);
        }
        let message = format!("the stream of node {node:?} ends; it may join again");
        let event = Event::NodeKicked { node, actor: actor.to_string() };
        inner.coordinator.events().note(event);
        Ok(Outcome::Done { message })
    }

    async fn pause(&self, actor: &Actor, is_paused: bool) -> Result<Outcome, ActionError> {
        if self.lock().coordinator.is_paused() == is_paused {
            return Err(ActionError::Already(if is_paused { "paused" } else { "running" }));
        }
        let action = if is_paused { "pause" } else { "resume" };
        self.decide(actor, Change::Paused(is_paused), (action, "run", "")).await?;
        let mut guard = self.lock();
        guard.coordinator.pause(is_paused);
        let (round, actor) = (guard.coordinator.opening().round, actor.to_string());
        let (event, message) = if is_paused {
            let message = format!("round {round} stays open until the run is resumed");
            (Event::Paused { actor, round }, message)
        } else {
            (Event::Resumed { actor, round }, format!("rounds close again, from round {round} on"))
        };
        guard.coordinator.events().note(event);
        self.advance(&mut guard, now());
        Ok(Outcome::Done { message })
    }

    /// Stores which lists of revoked certificates are in force.
    pub async fn store_lists(&self, numbers: &ListNumbers) -> Result<(), ActionError> {
        let (change, details) = (Change::Lists(numbers.to_string()), numbers.numbers());
        self.decide(&Actor::server(), change, ("list", "revoked certificates", &details)).await
    }

    async fn reset_scale(&self, actor: &Actor) -> Result<Outcome, ActionError> {
        if !self.plan.is_scaled_online() {
            return Err(ActionError::NoScale);
        }
        self.decide(actor, Change::Nothing, ("reset-scale", "scale", "")).await?;
        loop {
            let reset = self.lock().coordinator.reset_scale();
            match reset {
                Some(true) => break,
                Some(false) => return Err(ActionError::NoScale),
                // A round is being closed: that ends on the thread that writes.
                None => self.on_writer(|_| Ok(())).await?,
            }
        }
        let event = Event::ScaleReset { actor: actor.to_string() };
        self.note(event);
        let message = "the next round that closes makes a new scale from all reports".to_owned();
        Ok(Outcome::Done { message })
    }

    async fn forget(&self, actor: &Actor, node: String) -> Result<Outcome, ActionError> {
        let number = {
            let inner = self.lock();
            let number = inner.numbers.get(&node).copied();
            let number = number.ok_or_else(|| ActionError::NoSuchNode { node: node.clone() })?;
            if inner.sessions.contains_key(&number) {
                return Err(ActionError::Connected { node });
            }
            number
        };
        let change = Change::Forget { number, node: node.clone() };
        self.decide(actor, change, ("forget", &node, &format!("number {number}"))).await?;
        let mut guard = self.lock();
        let Inner { coordinator, sessions, numbers, .. } = &mut *guard;
        // It may have come back meanwhile. It joins again, as a new node.
        if let Some(signal) = sessions.get(&number) {
            signal.give(CloseReason::Kicked);
        }
        numbers.retain(|_, known| *known != number);
        coordinator.forget(number);
        let message = format!("node {node:?} is removed; if it joins again, it is a new node");
        let event = Event::NodeForgotten { node, number, actor: actor.to_string() };
        coordinator.events().note(event);
        Ok(Outcome::Done { message })
    }

    async fn back_up(&self, actor: &Actor, path: PathBuf) -> Result<Outcome, ActionError> {
        let store = self.on_writer(|storage| Ok(storage.path().map(Path::to_owned))).await?;
        let store = store.ok_or(StoreError::Closed)?;
        let path = store.parent().map_or_else(|| path.clone(), |folder| folder.join(&path));
        let (copy, method) = (path.clone(), self.plan.method());
        // Beside the thread that writes: rounds go on.
        let made = tokio::task::spawn_blocking(move || backup(&store, &copy, &[method])).await;
        let made = made.unwrap_or(Err(StoreError::Closed))?;
        let (round, bytes) = (made.round.unwrap_or(1), made.bytes);
        let name = path.display().to_string();
        let details = format!("round {round}, {bytes} bytes");
        self.decide(actor, Change::Nothing, ("backup", &name, &details)).await?;
        self.note(Event::BackedUp { actor: actor.to_string(), path: name, round });
        Ok(Outcome::BackedUp { path, round, bytes })
    }
}

/// The number of a node that has a stream.
fn connected(inner: &Locked<'_>, node: &str) -> Result<NodeId, ActionError> {
    let unknown = || ActionError::NoSuchNode { node: node.to_owned() };
    let number = *inner.numbers.get(node).ok_or_else(unknown)?;
    let is_connected = inner.sessions.contains_key(&number);
    if is_connected { Ok(number) } else { Err(ActionError::NotConnected { node: node.to_owned() }) }
}

/// An entry of the audit log.
pub(super) fn draft(actor: &Actor, action: &str, subject: &str, details: &str) -> Draft {
    let [action, subject, details] = [action, subject, details].map(str::to_owned);
    Draft { at_ms: unix_ms(), actor: actor.to_string(), action, subject, details }
}
