//! The server half that all methods share: it checks and sums uploads, and a [`Rule`] makes the
//! next broadcast of the sums.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::{ServerMethod, Setup};
use crate::aggregation::gathering::{Gathering, check_numbers};
use crate::codec::Section;
use crate::message::{Broadcast, NodeId, Rejected, Selection, Upload};
use crate::relay::PartialSum;
use crate::scaling::Rescaling;
use crate::state::{BadState, is_count, restore_state, save_state};

/// What is special about a method's server.
pub(super) trait Rule: Send + Sync {
    /// What it has to remember beyond the broadcast.
    type Memory: Serialize + DeserializeOwned + Send + Sync;

    /// Name of its saved states.
    fn kind(&self) -> &'static str;

    /// Turns the sums of a round into the numbers and kernels of the next broadcast.
    fn close(&mut self, memory: &mut Self::Memory, sums: &Gathering, broadcast: &mut Broadcast);

    /// Kernels that an upload may have numbers for, at most.
    fn kernels_per_upload(&self) -> usize {
        1
    }

    /// Takes what it remembers to another scale, and of the broadcast what isn't a model of its
    /// [`Basis`]; those are taken there anyway.
    fn transport(
        &self,
        _memory: &mut Self::Memory,
        _broadcast: &mut Broadcast,
        _transport: &Rescaling,
    ) {
    }

    /// Refuses an upload that no honest node sends, beyond what every server checks.
    fn check(&self, _upload: &Upload, _broadcast: &Broadcast) -> Result<(), Rejected> {
        Ok(())
    }

    /// Numbers of an upload that answers a broadcast, where they aren't always as many.
    fn upload_len(&self, _broadcast: &Broadcast) -> Option<usize> {
        None
    }

    /// Numbers of a restored broadcast, where they aren't always as many.
    fn broadcast_len(&self, _broadcast: &Broadcast) -> Option<usize> {
        None
    }

    /// Whether a restored memory and the kernels of a broadcast could have been reached.
    fn is_sound(&self, memory: &Self::Memory, broadcast: &Broadcast) -> bool;
}

pub(super) struct Server<R: Rule> {
    rule: R,
    basis: Basis,
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
        basis: Basis,
    ) -> Self {
        Self { rule, basis, state: State { broadcast: opening, gathering, memory } }
    }
}

impl<R: Rule> ServerMethod for Server<R> {
    fn accept(&mut self, from: NodeId, upload: &Upload) -> Result<(), Rejected> {
        self.rule.check(upload, &self.state.broadcast)?;
        let most = self.rule.kernels_per_upload();
        self.state.gathering.accept(self.state.broadcast.round, from, upload, most)
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
        part.gathering_mut().accept(broadcast.round, from, upload, self.rule.kernels_per_upload())
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

    fn sections(&self, out: &mut Vec<Section>) {
        self.basis.sections(&self.state.broadcast, out);
    }

    fn replace_broadcast(&mut self, told: &[f32]) {
        self.state.broadcast.numbers.copy_from_slice(told);
    }

    fn transport(&mut self, transport: &Rescaling) {
        let State { broadcast, gathering, memory } = &mut self.state;
        gathering.clear();
        self.rule.transport(memory, broadcast, transport);
        self.basis.transport(broadcast, transport);
        if let Some(len) = self.rule.upload_len(broadcast) {
            gathering.expect(len);
        }
    }

    fn save(&self) -> Vec<u8> {
        save_state(self.rule.kind(), &self.state)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        self.state = restore_state(self.rule.kind(), saved, |state: &State<R::Memory>| {
            let len = self.rule.broadcast_len(&state.broadcast);
            let mut known = self.state.gathering.clone();
            if let Some(len) = self.rule.upload_len(&state.broadcast) {
                known.expect(len);
            }
            check_broadcast(&state.broadcast, len.unwrap_or(self.state.broadcast.numbers.len()))
                .is_ok()
                && state.gathering.is_sound(&known, self.rule.kernels_per_upload())
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

/// The selection of the first round.
pub(super) const FIRST: Selection = Selection { current: 0, next: 0 };

pub(super) fn is_selection(setup: &Setup, selection: Selection) -> bool {
    let kernels = setup.kernels();
    (selection.current as usize) < kernels && (selection.next as usize) < kernels
}

/// The two kernels of a broadcast of one model that is fit to be adopted.
pub(super) fn check_selection(setup: &Setup, broadcast: &Broadcast) -> Result<Selection, Rejected> {
    check_broadcast(broadcast, setup.model_len())?;
    match broadcast.kernels {
        Some(selection) if is_selection(setup, selection) => Ok(selection),
        other => {
            let found = other.map(|selection| selection.current.max(selection.next));
            let last = setup.kernels() as u32 - 1;
            Err(Rejected::WrongKernel { found, last })
        }
    }
}

/// Refuses losses, from a position of an upload on, that are below zero: they would buy a kernel
/// weight.
pub(super) fn check_losses(upload: &Upload, from: usize) -> Result<(), Rejected> {
    match upload.numbers.iter().enumerate().skip(from).find(|(_, loss)| **loss < 0.0) {
        None => Ok(()),
        Some((position, &loss)) => Err(Rejected::Negative { position, value: loss }),
    }
}

/// The rule of all methods whose server only averages: what was uploaded becomes its mean.
pub(super) struct Mean {
    kind: &'static str,
}

impl Rule for Mean {
    type Memory = ();

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn close(&mut self, (): &mut (), sums: &Gathering, broadcast: &mut Broadcast) {
        sums.mean(&mut broadcast.numbers);
    }

    fn is_sound(&self, (): &(), broadcast: &Broadcast) -> bool {
        broadcast.kernels.is_none()
    }
}

impl Server<Mean> {
    /// A server that averages models.
    pub(super) fn averaging(setup: &Setup, kind: &'static str, basis: Basis) -> Self {
        let len = basis.numbers();
        let opening = Broadcast { round: 1, kernels: None, numbers: vec![0.0; len] };
        Self::new(
            Mean { kind },
            (),
            opening,
            Gathering::new(setup.config.aggregation, len, 0),
            basis,
        )
    }
}
