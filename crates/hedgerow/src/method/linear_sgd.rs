//! A linear model, learned together: what kernels have to beat.
//!
//! The model is w on z = (1, x), d + 1 numbers. A node predicts wᵀz with the global model, takes a
//! gradient step on L(w; x, y) per sample, uploads the result, d + 1 numbers, and the server
//! broadcasts the mean, d + 1 numbers: federated averaging, and SK-OFL without a kernel.
//!
//! Readings taken. z is not of length one as a kernel's is but, for inputs of size one, of length
//! √(d + 1): the setup's η_l is divided by d + 1, so that a step changes a prediction as much as it
//! would a kernel's and doesn't diverge for want of a smaller rate. The ridge term is on all of w,
//! the constant too. There are no kernels, and all weights are zero.

use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::rows::{Models, descend};
use super::server::{Mean, Server, check_broadcast};
use super::{BadSample, NodeMethod, Setup};
use crate::codec::{Kind, Section};
use crate::features::Features;
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::{BadState, is_count, restore_state, save_state};

const KIND: &str = "linear-node";

pub(super) struct Node {
    pub(super) setup: Setup,
    pub(super) state: NodeState,
}

#[derive(Serialize, Deserialize)]
pub(super) struct NodeState {
    round: u64,
    /// Samples learned since the last broadcast.
    pub(super) learned: u64,
    /// The model of the last broadcast.
    global: Models,
    /// It and the steps since.
    pub(super) local: Models,
}

impl NodeState {
    pub(super) fn is_sound(&self, len: usize) -> bool {
        is_count(self.round)
            && is_count(self.learned)
            && self.global.is_sound(1, len)
            && self.local.is_sound(1, len)
    }
}

impl Node {
    pub(super) fn new(setup: &Setup) -> Self {
        let model = Models::zero(1, setup.linear_len());
        Self {
            setup: *setup,
            state: NodeState { round: 1, learned: 0, global: model.clone(), local: model },
        }
    }
}

impl NodeMethod for Node {
    fn predict(&self, z: Features<'_>) -> f32 {
        self.state.global.predict(0, z)
    }

    fn learn(&mut self, z: Features<'_>, y: f32) -> Result<(), BadSample> {
        let rate = self.setup.config.step_size.rate(self.state.round + self.state.learned);
        let rate = rate / self.setup.linear_len() as f64;
        descend(&self.setup, rate, &mut self.state.local, z, y, &mut [0.0])?;
        self.state.learned += 1;
        Ok(())
    }

    fn upload(&self, out: &mut Upload) -> bool {
        out.round = self.state.round;
        out.vote = None;
        out.numbers.clear();
        self.state.local.pack(&mut out.numbers);
        self.state.learned > 0
    }

    fn sections(&self, out: &mut Vec<Section>) {
        out.push(Section { len: self.setup.linear_len(), kind: Kind::Model { slot: 0 } });
    }

    fn adopt(&mut self, broadcast: &Broadcast) -> Result<(), Rejected> {
        check_broadcast(broadcast, self.setup.linear_len())?;
        if broadcast.round > self.state.round {
            self.state.round = broadcast.round;
            self.state.learned = 0;
            self.state.global.set(0, &broadcast.numbers);
            self.state.local.set(0, &broadcast.numbers);
        }
        Ok(())
    }

    fn forget_round(&mut self) {
        self.state.round = 0;
    }

    fn round(&self) -> u64 {
        self.state.round
    }

    fn weights(&self, out: &mut [f64]) {
        out.fill(0.0);
    }

    fn norm2(&self) -> f64 {
        self.state.global.norm2(0)
    }

    fn transport(&mut self, transport: &Rescaling) {
        self.state.global.transport_linear(0, transport);
        self.state.local.transport_linear(0, transport);
    }

    fn save(&self) -> Vec<u8> {
        save_state(KIND, &self.state)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let len = self.setup.linear_len();
        self.state = restore_state(KIND, saved, |state: &NodeState| state.is_sound(len))?;
        Ok(())
    }
}

/// The server of linear models, however nodes learn them.
pub(super) fn server(setup: &Setup, basis: Basis, kind: &'static str) -> Server<Mean> {
    Server::averaging(setup, kind, basis)
}
