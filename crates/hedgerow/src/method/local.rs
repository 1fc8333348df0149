//! Local only: every node learns alone, with all kernels, and nothing travels. What federation has
//! to beat.

use super::{BadSample, NodeMethod, ServerMethod, Setup};
use crate::aggregation::Aggregation;
use crate::aggregation::gathering::Gathering;
use crate::baseline::omkl::{Omkl, OmklState};
use crate::features::Features;
use crate::message::{Broadcast, NodeId, Rejected, Upload};
use crate::relay::PartialSum;
use crate::scaling::Rescaling;
use crate::state::{BadState, restore_state, save_state};

const KIND: &str = "local-node";

pub(super) struct Node {
    setup: Setup,
    learner: Omkl,
}

impl Node {
    pub(super) fn new(setup: &Setup) -> Self {
        Self { setup: *setup, learner: Omkl::new(setup) }
    }
}

impl NodeMethod for Node {
    fn predict(&self, z: Features<'_>) -> f32 {
        self.learner.predict(z)
    }

    fn learn(&mut self, z: Features<'_>, y: f32) -> Result<(), BadSample> {
        self.learner.learn(z, y)
    }

    fn upload(&self, out: &mut Upload) -> bool {
        out.numbers.clear();
        out.vote = None;
        false
    }

    fn adopt(&mut self, _broadcast: &Broadcast) -> Result<(), Rejected> {
        Ok(())
    }

    fn forget_round(&mut self) {}

    fn round(&self) -> u64 {
        1
    }

    fn weights(&self, out: &mut [f64]) {
        out.copy_from_slice(self.learner.weights());
    }

    fn norm2(&self) -> f64 {
        self.learner.norm2()
    }

    fn transport(&mut self, transport: &Rescaling) {
        self.learner.transport(transport);
    }

    fn save(&self) -> Vec<u8> {
        save_state(KIND, &self.learner.state)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let setup = &self.setup;
        self.learner.state =
            restore_state(KIND, saved, |state: &OmklState| Omkl::is_sound(setup, state))?;
        Ok(())
    }
}

/// Has nothing to say: its round never closes.
pub(super) struct Server {
    broadcast: Broadcast,
}

impl Server {
    pub(super) fn new() -> Self {
        Self { broadcast: Broadcast { round: 1, ..Broadcast::default() } }
    }
}

impl ServerMethod for Server {
    fn accept(&mut self, _from: NodeId, _upload: &Upload) -> Result<(), Rejected> {
        Err(Rejected::NotExpected)
    }

    fn part(&self) -> PartialSum {
        PartialSum::new(self.broadcast.round, Gathering::new(Aggregation::Mean, 0, 0))
    }

    fn renew(&self, _part: &mut PartialSum) {}

    fn accept_into(
        &self,
        _part: &mut PartialSum,
        _from: NodeId,
        _upload: &Upload,
    ) -> Result<(), Rejected> {
        Err(Rejected::NotExpected)
    }

    fn merge(&mut self, part: &PartialSum) -> Result<(), Rejected> {
        if part.uploads() == 0 { Ok(()) } else { Err(Rejected::NotExpected) }
    }

    fn follow(&mut self, _broadcast: &Broadcast) -> Result<(), Rejected> {
        Ok(())
    }

    fn uploads(&self) -> usize {
        0
    }

    fn close_round(&mut self) -> &Broadcast {
        &self.broadcast
    }

    fn broadcast(&self) -> &Broadcast {
        &self.broadcast
    }

    fn replace_broadcast(&mut self, _told: &[f32]) {}

    fn transport(&mut self, _transport: &Rescaling) {}

    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        if saved.is_empty() { Ok(()) } else { Err(BadState::new("it should be empty")) }
    }
}
