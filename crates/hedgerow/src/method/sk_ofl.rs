//! SK-OFL: one kernel, chosen beforehand.
//!
//! A node predicts with the global model ŵ_t, takes a gradient step per sample and uploads the
//! result, 2D numbers; the server broadcasts the mean. The best of these over all kernels is the
//! paper's "best kernel in hindsight".

use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::rows::{Models, descend, one_hot};
use super::server::{Mean, Server, check_broadcast};
use super::{BadSample, NodeMethod, Setup};
use crate::codec::{Kind, Section};
use crate::features::Features;
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::{BadState, is_count, restore_state, save_state};

const KIND: &str = "sk-node";

pub(super) struct Node {
    setup: Setup,
    state: NodeState,
}

#[derive(Serialize, Deserialize)]
struct NodeState {
    kernel: usize,
    round: u64,
    /// Samples learned since the last broadcast.
    learned: u64,
    /// ŵ_t.
    global: Models,
    /// ŵ_t and the gradient steps since.
    local: Models,
}

impl Node {
    pub(super) fn new(setup: &Setup, kernel: usize) -> Self {
        assert!(kernel < setup.kernels(), "kernel {kernel} of {}", setup.kernels());
        let model = Models::zero(1, setup.model_len());
        Self {
            setup: *setup,
            state: NodeState { kernel, round: 1, learned: 0, global: model.clone(), local: model },
        }
    }

    fn features<'a>(&self, z: Features<'a>) -> Features<'a> {
        let len = self.setup.model_len();
        z.part(self.state.kernel * len..(self.state.kernel + 1) * len)
    }
}

impl NodeMethod for Node {
    fn predict(&self, z: Features<'_>) -> f32 {
        self.setup.assert_width(z);
        self.state.global.predict(0, self.features(z))
    }

    fn learn(&mut self, z: Features<'_>, y: f32) -> Result<(), BadSample> {
        self.setup.check_width(z)?;
        let rate = self.setup.config.step_size.rate(self.state.round + self.state.learned);
        let features = self.features(z);
        descend(&self.setup, rate, &mut self.state.local, features, y, &mut [0.0])?;
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
        out.push(Section {
            len: self.setup.model_len(),
            kind: Kind::Model { slot: self.state.kernel },
        });
    }

    fn adopt(&mut self, broadcast: &Broadcast) -> Result<(), Rejected> {
        check_broadcast(broadcast, self.setup.model_len())?;
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
        one_hot(self.state.kernel, out);
    }

    fn norm2(&self) -> f64 {
        self.state.global.norm2(0)
    }

    fn transport(&mut self, transport: &Rescaling) {
        self.state.global.transport(0, self.state.kernel, transport);
        self.state.local.transport(0, self.state.kernel, transport);
    }

    fn save(&self) -> Vec<u8> {
        save_state(KIND, &self.state)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let (kernel, len) = (self.state.kernel, self.setup.model_len());
        self.state = restore_state(KIND, saved, |state: &NodeState| {
            state.kernel == kernel
                && is_count(state.round)
                && is_count(state.learned)
                && state.global.is_sound(1, len)
                && state.local.is_sound(1, len)
        })?;
        Ok(())
    }
}

pub(super) fn server(setup: &Setup, basis: Basis) -> Server<Mean> {
    Server::averaging(setup, "sk-server", basis)
}
