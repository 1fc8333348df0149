//! The server half that all methods share: it checks and sums uploads, and a [`Rule`] makes the next broadcast of the sums.

use std::ops::Range;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{BadState, ServerHalf, is_count, restore_state, save_state};
use crate::gathering::{Gathering, check_numbers};
use crate::message::{Broadcast, NodeId, Rejected, Upload};
use crate::scaling::Transport;

/// What is special about a method's server.
pub(super) trait Rule: Send {
    /// Name of its saved states.
    const KIND: &'static str;

    /// What it has to remember beyond the broadcast.
    type Memory: Serialize + DeserializeOwned + Send;

    /// Turns the sums of a round into the numbers and kernels of the next broadcast.
    fn close(&mut self, memory: &mut Self::Memory, sums: &Gathering, broadcast: &mut Broadcast);

    /// The kernels whose models a broadcast begins with.
    fn kernels(&self, broadcast: &Broadcast) -> Range<usize>;

    /// Takes what it remembers to another scale; the models of the broadcast are taken there anyway.
    fn transport(&self, _memory: &mut Self::Memory, _transport: &Transport) {}

    /// Refuses an upload that no honest node sends, beyond what every server checks.
    fn check(&self, _upload: &Upload) -> Result<(), Rejected> {
        Ok(())
    }

    /// Whether a restored memory and the kernels of a broadcast could have been reached.
    fn is_sound(&self, memory: &Self::Memory, broadcast: &Broadcast) -> bool;
}

pub(super) struct Server<R: Rule> {
    rule: R,
    /// 2D.
    model_len: usize,
    state: State<R::Memory>,
}

#[derive(Serialize, Deserialize)]
struct State<M> {
    broadcast: Broadcast,
    gathering: Gathering,
    memory: M,
}

impl<R: Rule> Server<R> {
    /// A server whose first round `opening` opens.
    pub(super) fn new(
        rule: R,
        memory: R::Memory,
        opening: Broadcast,
        gathering: Gathering,
        model_len: usize,
    ) -> Self {
        Self { rule, model_len, state: State { broadcast: opening, gathering, memory } }
    }
}

impl<R: Rule> ServerHalf for Server<R> {
    fn accept(&mut self, from: NodeId, upload: &Upload) -> Result<(), Rejected> {
        self.rule.check(upload)?;
        self.state.gathering.accept(self.state.broadcast.round, from, upload)
    }

    fn uploads(&self) -> usize {
        self.state.gathering.count()
    }

    fn close_round(&mut self) -> &Broadcast {
        let State { broadcast, gathering, memory } = &mut self.state;
        if gathering.count() > 0 {
            self.rule.close(memory, gathering, broadcast);
            gathering.clear();
            broadcast.round += 1;
        }
        broadcast
    }

    fn broadcast(&self) -> &Broadcast {
        &self.state.broadcast
    }

    fn transport(&mut self, transport: &Transport) {
        let State { broadcast, gathering, memory } = &mut self.state;
        gathering.clear();
        self.rule.transport(memory, transport);
        let kernels = self.rule.kernels(broadcast);
        for (kernel, model) in kernels.zip(broadcast.numbers.chunks_exact_mut(self.model_len)) {
            transport.apply(kernel, model);
        }
    }

    fn save(&self) -> Vec<u8> {
        save_state(R::KIND, &self.state)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let len = self.state.broadcast.numbers.len();
        self.state = restore_state(R::KIND, saved, |state: &State<R::Memory>| {
            check_broadcast(&state.broadcast, len).is_ok()
                && state.gathering.is_sound(&self.state.gathering)
                && self.rule.is_sound(&state.memory, &state.broadcast)
        })?;
        Ok(())
    }
}

/// Refuses a broadcast whose round or numbers can't be.
pub(super) fn check_broadcast(broadcast: &Broadcast, len: usize) -> Result<(), Rejected> {
    if broadcast.round == 0 || !is_count(broadcast.round) {
        return Err(Rejected::NoSuchRound { round: broadcast.round });
    }
    if broadcast.numbers.len() != len {
        return Err(Rejected::WrongLength { expected: len, found: broadcast.numbers.len() });
    }
    check_numbers(&broadcast.numbers)
}
