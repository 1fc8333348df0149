//! SK-OFL: one kernel, chosen beforehand.
//!
//! A node predicts with the global model ŵ_t, takes a gradient step per sample and uploads the result, 2D numbers; the server
//! broadcasts the mean. The best of these over all kernels is the paper's "best kernel in hindsight".

use serde::{Deserialize, Serialize};

use super::rows::{Models, descend, one_hot};
use super::{BadSample, BadState, LAST_COUNT, NodeHalf, ServerHalf, Setup, restore_state, save_state};
use crate::features::Features;
use crate::gathering::{Gathering, check_numbers};
use crate::message::{Broadcast, NodeId, Rejected, Upload};

pub(super) struct Node {
    setup: Setup,
    kernel: usize,
    state: NodeState,
}

#[derive(Serialize, Deserialize)]
struct NodeState {
    round: u64,
    learned: bool,
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
            kernel,
            state: NodeState { round: 1, learned: false, global: model.clone(), local: model },
        }
    }

    fn features<'a>(&self, z: Features<'a>) -> Features<'a> {
        let len = self.setup.model_len();
        z.part(self.kernel * len..(self.kernel + 1) * len)
    }
}

impl NodeHalf for Node {
    fn predict(&self, z: Features<'_>) -> f32 {
        self.state.global.predict(0, self.features(z))
    }

    fn learn(&mut self, z: Features<'_>, y: f32) -> Result<(), BadSample> {
        self.setup.check_width(z)?;
        let rate = self.setup.0.step_size.rate(self.state.round);
        let features = self.features(z);
        descend(&self.setup, rate, &mut self.state.local, features, y, &mut [0.0])?;
        self.state.learned = true;
        Ok(())
    }

    fn upload(&self, out: &mut Upload) -> bool {
        out.round = self.state.round;
        out.vote = None;
        out.numbers.clear();
        self.state.local.pack(&mut out.numbers);
        self.state.learned
    }

    fn adopt(&mut self, broadcast: &Broadcast) -> Result<(), Rejected> {
        check_model(broadcast, self.setup.model_len())?;
        if broadcast.round > self.state.round {
            self.state.round = broadcast.round;
            self.state.learned = false;
            self.state.global.set(0, &broadcast.numbers);
            self.state.local.set(0, &broadcast.numbers);
        }
        Ok(())
    }

    fn round(&self) -> u64 {
        self.state.round
    }

    fn weights(&self, out: &mut [f64]) {
        one_hot(self.kernel, out);
    }

    fn norm2(&self) -> f64 {
        self.state.global.norm2(0)
    }

    fn save(&self) -> Vec<u8> {
        save_state(&self.state)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let len = self.setup.model_len();
        self.state = restore_state(saved, |state: &NodeState| {
            state.round > 0 && state.global.is_sound(1, len) && state.local.is_sound(1, len)
        })?;
        Ok(())
    }
}

/// Refuses a broadcast whose numbers aren't a model of this length.
pub(super) fn check_model(broadcast: &Broadcast, len: usize) -> Result<(), Rejected> {
    if broadcast.numbers.len() != len {
        let (expected, found) = (len, broadcast.numbers.len());
        return Err(Rejected::WrongLength { expected, found });
    }
    check_numbers(&broadcast.numbers)
}

pub(super) struct Server {
    state: ServerState,
}

#[derive(Serialize, Deserialize)]
struct ServerState {
    broadcast: Broadcast,
    gathering: Gathering,
}

impl Server {
    pub(super) fn new(setup: &Setup) -> Self {
        let len = setup.model_len();
        Self {
            state: ServerState {
                broadcast: Broadcast { round: 1, kernels: None, numbers: vec![0.0; len] },
                gathering: Gathering::new(len, 0),
            },
        }
    }
}

impl ServerHalf for Server {
    fn accept(&mut self, from: NodeId, upload: &Upload) -> Result<(), Rejected> {
        let open = self.state.broadcast.round;
        self.state.gathering.accept(open, from, upload)
    }

    fn close_round(&mut self) -> &Broadcast {
        let ServerState { broadcast, gathering } = &mut self.state;
        if gathering.count() > 0 {
            gathering.mean(&mut broadcast.numbers);
            gathering.clear();
            broadcast.round += 1;
        }
        broadcast
    }

    fn broadcast(&self) -> &Broadcast {
        &self.state.broadcast
    }

    fn save(&self) -> Vec<u8> {
        save_state(&self.state)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let len = self.state.broadcast.numbers.len();
        self.state = restore_state(saved, |state: &ServerState| {
            check_model(&state.broadcast, len).is_ok()
                && (1..LAST_COUNT).contains(&state.broadcast.round)
                && state.broadcast.kernels.is_none()
                && state.gathering.is_sound(len, 0)
        })?;
        Ok(())
    }
}
