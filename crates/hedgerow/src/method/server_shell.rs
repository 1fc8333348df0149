//! [`ServerShell`]: what all methods have in common on the server. It checks and adds up uploads;
//! a [`ServerRule`] makes the next broadcast from the sums.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::layout::{BroadcastLayout, Layout};
use super::{ServerMethod, Setup};
use crate::aggregation::{Compared, Gathering, PartialSum};
use crate::message::{Broadcast, NodeId, Rejected, Upload, check_numbers};
use crate::scaling::Rescaling;
use crate::state::{BadState, OlderVersion, StateKind, is_count};

/// All of a method's server half that is saved: the broadcast, the uploads of the open round, and
/// what the method remembers.
pub type ServerState<M> = (Broadcast, Gathering, M);

/// What is special about a method on the server.
pub trait ServerRule: Send + Sync {
    /// What has to survive a restart, beside the broadcast and the uploads of the open round.
    type Memory: Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Older versions of saved states that are still read.
    const OLDER: &'static [OlderVersion<ServerState<Self::Memory>>] = &[];

    /// Kind of its saved states.
    fn kind(&self) -> StateKind;

    /// Turns the sums of a round into the numbers and kernels of the next broadcast.
    fn close(&mut self, memory: &mut Self::Memory, sums: &Gathering, broadcast: &mut Broadcast);

    /// Moves to another scale what it remembers, and the part of the broadcast that isn't a model
    /// of its [`BroadcastLayout`]; the shell moves those models.
    fn rescale(
        &self,
        _memory: &mut Self::Memory,
        _broadcast: &mut Broadcast,
        _rescaling: &Rescaling,
    ) {
    }

    /// Refuses an upload that no honest node sends, beyond what every server checks.
    fn check(&self, _upload: &Upload, _broadcast: &Broadcast) -> Result<(), Rejected> {
        Ok(())
    }

    /// See [`ServerMethod::compared`].
    fn compared(&self, _broadcast: &Broadcast) -> Vec<Compared> {
        Vec::new()
    }

    /// See [`ServerMethod::members_changed`].
    fn members_changed(&self, _memory: &mut Self::Memory, _broadcast: &Broadcast) {}

    /// Numbers of an upload that answers a broadcast, where they aren't always as many.
    fn upload_len(&self, _broadcast: &Broadcast) -> Option<usize> {
        None
    }

    /// Numbers of a restored broadcast, where they aren't always as many.
    fn broadcast_len(&self, _broadcast: &Broadcast) -> Option<usize> {
        None
    }

    /// The broadcast for nodes that don't have the one before, where that one isn't enough.
    fn catch_up(&self, _memory: &Self::Memory, _broadcast: &Broadcast) -> Option<Broadcast> {
        None
    }

    /// See [`ServerMethod::history_begin`].
    fn history_begin(&self, _memory: &Self::Memory) -> u64 {
        0
    }

    /// Whether a restored memory and the kernels of a broadcast could have been reached.
    fn is_sound(&self, memory: &Self::Memory, broadcast: &Broadcast) -> bool;
}

/// The part of a method on the server: checks, sums, save and restore around a [`ServerRule`].
pub struct ServerShell<R: ServerRule> {
    rule: R,
    layout: BroadcastLayout,
    state: State<R::Memory>,
}

/// Saved as a [`ServerState`].
#[derive(Serialize)]
struct State<M> {
    broadcast: Broadcast,
    gathering: Gathering,
    memory: M,
}

impl<R: ServerRule> ServerShell<R> {
    /// A server whose first round `opening` opens.
    pub fn new(
        setup: &Setup,
        layout: Layout,
        rule: R,
        memory: R::Memory,
        opening: Broadcast,
    ) -> Self {
        let mut gathering = layout.gathering(setup.aggregation());
        if let Some(len) = rule.upload_len(&opening) {
            gathering.expect(len);
        }
        let state = State { broadcast: opening, gathering, memory };
        Self { rule, layout: layout.broadcast, state }
    }

    /// The same behind a pointer.
    pub(super) fn boxed(
        setup: &Setup,
        layout: Layout,
        rule: R,
        memory: R::Memory,
        opening: Broadcast,
    ) -> Box<dyn ServerMethod>
    where
        R: 'static,
    {
        Box::new(Self::new(setup, layout, rule, memory, opening))
    }
}

impl ServerShell<Mean> {
    /// A server that averages the models of a layout.
    pub fn averaging(setup: &Setup, kind: StateKind, layout: Layout) -> Box<dyn ServerMethod> {
        let (models, len) = layout.broadcast.size();
        let opening = Broadcast { round: 1, kernels: None, numbers: vec![0.0; models * len] };
        Self::boxed(setup, layout, Mean { kind }, (), opening)
    }
}

impl<R: ServerRule> ServerMethod for ServerShell<R> {
    fn accept(&mut self, from: NodeId, upload: &Upload) -> Result<(), Rejected> {
        self.rule.check(upload, &self.state.broadcast)?;
        self.state.gathering.accept(self.state.broadcast.round, from, upload)
    }

    fn part(&self) -> PartialSum {
        let mut gathering = self.state.gathering.clone();
        gathering.clear();
        PartialSum::new(self.state.broadcast.round, gathering)
    }

    fn renew(&self, part: &mut PartialSum) {
        part.renew(self.state.broadcast.round, &self.state.gathering);
    }

    fn accept_into(
        &self,
        part: &mut PartialSum,
        from: NodeId,
        upload: &Upload,
    ) -> Result<(), Rejected> {
        let State { broadcast, gathering, .. } = &self.state;
        part.check(broadcast.round, gathering)?;
        self.rule.check(upload, broadcast)?;
        if upload.round == broadcast.round && gathering.has_heard(from) {
            return Err(Rejected::Duplicate { node: from, round: upload.round });
        }
        part.gathering_mut().accept(broadcast.round, from, upload)
    }

    fn merge(&mut self, part: &PartialSum) -> Result<(), Rejected> {
        let State { broadcast, gathering, .. } = &mut self.state;
        part.check(broadcast.round, gathering)?;
        gathering.merge(part.gathering(), broadcast.round)
    }

    fn follow(&mut self, broadcast: &Broadcast) -> Result<(), Rejected> {
        let len = self.rule.broadcast_len(broadcast).unwrap_or(self.state.broadcast.numbers.len());
        check_broadcast(broadcast, len)?;
        self.state.broadcast.clone_from(broadcast);
        self.state.gathering.clear();
        if let Some(len) = self.rule.upload_len(broadcast) {
            self.state.gathering.expect(len);
        }
        Ok(())
    }

    fn compared(&self) -> Vec<Compared> {
        self.rule.compared(&self.state.broadcast)
    }

    fn members_changed(&mut self) {
        let State { broadcast, memory, .. } = &mut self.state;
        self.rule.members_changed(memory, broadcast);
    }

    fn uploads(&self) -> usize {
        self.state.gathering.count()
    }

    fn close_round(&mut self) -> &Broadcast {
        let State { broadcast, gathering, memory } = &mut self.state;
        if gathering.count() > 0 {
            gathering.conclude();
            self.rule.close(memory, gathering, broadcast);
            gathering.clear();
            broadcast.round += 1;
            if let Some(len) = self.rule.upload_len(broadcast) {
                gathering.expect(len);
            }
        }
        broadcast
    }

    fn broadcast(&self) -> &Broadcast {
        &self.state.broadcast
    }

    fn catch_up(&self) -> Cow<'_, Broadcast> {
        let State { broadcast, memory, .. } = &self.state;
        self.rule.catch_up(memory, broadcast).map_or(Cow::Borrowed(broadcast), Cow::Owned)
    }

    fn history_begin(&self) -> u64 {
        self.rule.history_begin(&self.state.memory)
    }

    fn replace_broadcast(&mut self, told: &[f32]) {
        self.state.broadcast.numbers.copy_from_slice(told);
    }

    fn rescale(&mut self, rescaling: &Rescaling) {
        let State { broadcast, gathering, memory } = &mut self.state;
        gathering.clear();
        self.rule.rescale(memory, broadcast, rescaling);
        self.layout.rescale(broadcast, rescaling);
        if let Some(len) = self.rule.upload_len(broadcast) {
            gathering.expect(len);
        }
    }

    fn save(&self) -> Vec<u8> {
        self.rule.kind().save(&self.state)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let is_sound = |(broadcast, gathering, memory): &ServerState<R::Memory>| {
            let len = self.rule.broadcast_len(broadcast);
            let mut known = self.state.gathering.clone();
            if let Some(len) = self.rule.upload_len(broadcast) {
                known.expect(len);
            }
            check_broadcast(broadcast, len.unwrap_or(self.state.broadcast.numbers.len())).is_ok()
                && gathering.is_sound(&known)
                && self.rule.is_sound(memory, broadcast)
        };
        let (broadcast, gathering, memory) =
            self.rule.kind().restore_any(saved, R::OLDER, is_sound)?;
        let gathering = gathering.with_parts(self.state.gathering.parts());
        self.state = State { broadcast, gathering, memory };
        Ok(())
    }
}

/// Refuses a broadcast with an impossible round, another number of numbers than `len`, or a number
/// out of bounds.
pub fn check_broadcast(broadcast: &Broadcast, len: usize) -> Result<(), Rejected> {
    if broadcast.round == 0 || !is_count(broadcast.round) {
        return Err(Rejected::NoSuchRound { round: broadcast.round });
    }
    if broadcast.numbers.len() != len {
        return Err(Rejected::WrongLength { expected: len, found: broadcast.numbers.len() });
    }
    check_numbers(&broadcast.numbers)
}

/// Refuses losses below zero, from a position of an upload on: they would raise a kernel's weight.
pub(super) fn check_losses(upload: &Upload, from: usize) -> Result<(), Rejected> {
    match upload.numbers.iter().enumerate().skip(from).find(|(_, loss)| **loss < 0.0) {
        None => Ok(()),
        Some((position, &loss)) => Err(Rejected::Negative { position, value: loss }),
    }
}

/// The rule of all methods whose server only averages.
pub struct Mean {
    kind: StateKind,
}

impl ServerRule for Mean {
    type Memory = ();

    fn kind(&self) -> StateKind {
        self.kind
    }

    fn close(&mut self, (): &mut (), sums: &Gathering, broadcast: &mut Broadcast) {
        sums.mean(&mut broadcast.numbers);
    }

    fn is_sound(&self, (): &(), broadcast: &Broadcast) -> bool {
        broadcast.kernels.is_none()
    }
}
