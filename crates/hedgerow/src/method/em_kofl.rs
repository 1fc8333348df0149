//! eM-KOFL (Hong & Chae): one kernel's model travels, and the losses of all.
//!
//! A node keeps a model of every kernel and takes a gradient step on each of them per sample, as in
//! MK-OFL; in place of a vote it uploads ℓ_1 … ℓ_P, the objectives of its P models on the round's
//! samples: 2D + P numbers. The server adds up everybody's losses, logweight_p −= η_g·Σ_k ℓ_p,k,
//! draws a kernel with probability ∝ exp(logweight), and broadcasts the mean of the models that
//! came and both kernels: 2D + 2 numbers. Predictions are those of the one global model.
//!
//! Readings taken. The paper's server names a kernel and collects its models within one round; here
//! a message goes up and one down, so the kernel that is drawn when a round closes is the one whose
//! models come in the round after, as in MK-OFL. A sum over the nodes has no factor K, and whoever
//! is missing adds nothing. η_g is the setup's rate, with its factor ln P. Of the server's weights
//! a node hears only the draw, so its own are that kernel's alone.

use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::rows::{Models, are_losses, descend, one_hot, pack_losses};
use super::server::{FIRST, Rule, Server, check_losses, check_selection, is_selection};
use super::{BadSample, NodeMethod, Setup};
use crate::aggregation::gathering::Gathering;
use crate::codec::{Kind, Section};
use crate::features::Features;
use crate::learning::weights::{ExponentialWeights, draw};
use crate::message::{Broadcast, Rejected, Selection, Upload};
use crate::random::{CounterRng, Purpose};
use crate::scaling::Rescaling;
use crate::state::{BadState, is_count, restore_state, save_state};

const KIND: &str = "emk-node";

pub(super) struct Node {
    setup: Setup,
    state: NodeState,
    /// Objective of each kernel's model on the sample at hand; scratch.
    sample_losses: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
struct NodeState {
    round: u64,
    /// Samples learned since the last broadcast.
    learned: u64,
    selection: Selection,
    /// The global model.
    global: Models,
    /// The node's own of every kernel, one after the other.
    models: Models,
    /// Loss of each kernel since the last broadcast.
    losses: Vec<f64>,
}

impl Node {
    pub(super) fn new(setup: &Setup) -> Self {
        let kernels = setup.kernels();
        Self {
            setup: *setup,
            state: NodeState {
                round: 1,
                learned: 0,
                selection: FIRST,
                global: Models::zero(1, setup.model_len()),
                models: Models::zero(kernels, setup.model_len()),
                losses: vec![0.0; kernels],
            },
            sample_losses: vec![0.0; kernels],
        }
    }
}

impl NodeMethod for Node {
    fn predict(&self, z: Features<'_>) -> f32 {
        self.setup.assert_width(z);
        let (kernel, len) = (self.state.selection.current as usize, self.setup.model_len());
        self.state.global.predict(0, z.part(kernel * len..(kernel + 1) * len))
    }

    fn learn(&mut self, z: Features<'_>, y: f32) -> Result<(), BadSample> {
        let rate = self.setup.config.step_size.rate(self.state.round + self.state.learned);
        descend(&self.setup, rate, &mut self.state.models, z, y, &mut self.sample_losses)?;
        for (total, loss) in self.state.losses.iter_mut().zip(&self.sample_losses) {
            *total += loss;
        }
        self.state.learned += 1;
        Ok(())
    }

    fn upload(&self, out: &mut Upload) -> bool {
        let state = &self.state;
        out.round = state.round;
        out.vote = None;
        out.numbers.clear();
        state.models.pack_row(state.selection.next as usize, &mut out.numbers);
        pack_losses(&state.losses, &mut out.numbers);
        state.learned > 0
    }

    fn sections(&self, out: &mut Vec<Section>) {
        let slot = self.state.selection.next as usize;
        out.push(Section { len: self.setup.model_len(), kind: Kind::Model { slot } });
    }

    fn adopt(&mut self, broadcast: &Broadcast) -> Result<(), Rejected> {
        let selection = check_selection(&self.setup, broadcast)?;
        if broadcast.round > self.state.round {
            self.state.round = broadcast.round;
            self.state.learned = 0;
            self.state.selection = selection;
            self.state.global.set(0, &broadcast.numbers);
            self.state.models.set(selection.current as usize, &broadcast.numbers);
            self.state.losses.fill(0.0);
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
        one_hot(self.state.selection.current as usize, out);
    }

    fn norm2(&self) -> f64 {
        self.state.global.norm2(0)
    }

    fn transport(&mut self, transport: &Rescaling) {
        self.state.global.transport(0, self.state.selection.current as usize, transport);
        self.state.models.transport_all(transport);
        let factor = transport.loss_factor();
        self.state.losses.iter_mut().for_each(|loss| *loss = (*loss * factor).min(1e300));
    }

    fn save(&self) -> Vec<u8> {
        save_state(KIND, &self.state)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let setup = &self.setup;
        self.state = restore_state(KIND, saved, |state: &NodeState| {
            let (kernels, len) = (setup.kernels(), setup.model_len());
            is_count(state.round)
                && is_count(state.learned)
                && is_selection(setup, state.selection)
                && state.global.is_sound(1, len)
                && state.models.is_sound(kernels, len)
                && are_losses(&state.losses, kernels)
        })?;
        Ok(())
    }
}

/// Averages the uploaded models, charges the weights with everybody's losses and draws the kernel
/// after next from them.
pub(super) struct Randomised {
    setup: Setup,
    selections: CounterRng,
}

impl Rule for Randomised {
    type Memory = ExponentialWeights;

    fn kind(&self) -> &'static str {
        "emk-server"
    }

    fn close(
        &mut self,
        weights: &mut ExponentialWeights,
        sums: &Gathering,
        broadcast: &mut Broadcast,
    ) {
        let losses = sums.totals().skip(broadcast.numbers.len());
        weights.charge(self.setup.weight_rate(broadcast.round), losses);
        sums.mean(&mut broadcast.numbers);
        let drawn = draw(weights.log(), self.selections.uniform_at(broadcast.round)) as u32;
        let averaged = broadcast.kernels.unwrap_or(FIRST).next;
        broadcast.kernels = Some(Selection { current: averaged, next: drawn });
    }

    fn transport(
        &self,
        weights: &mut ExponentialWeights,
        _broadcast: &mut Broadcast,
        transport: &Rescaling,
    ) {
        weights.in_other_units(transport.loss_factor());
    }

    fn check(&self, upload: &Upload, _broadcast: &Broadcast) -> Result<(), Rejected> {
        check_losses(upload, self.setup.model_len())
    }

    fn is_sound(&self, weights: &ExponentialWeights, broadcast: &Broadcast) -> bool {
        check_selection(&self.setup, broadcast).is_ok()
            && weights.is_sound(self.setup.config.weight_rule, self.setup.kernels())
    }
}

pub(super) fn server(setup: &Setup, basis: Basis) -> Server<Randomised> {
    let selections = CounterRng::from_seed(setup.config.seed).derive(Purpose::Selection, 0);
    let (kernels, len) = (setup.kernels(), setup.model_len());
    let weights = ExponentialWeights::new(setup.config.weight_rule, kernels);
    let opening = Broadcast { round: 1, kernels: Some(FIRST), numbers: vec![0.0; len] };
    let gathering = Gathering::new(setup.config.aggregation, len + kernels, 0);
    Server::new(Randomised { setup: *setup, selections }, weights, opening, gathering, basis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::SetupConfig;

    #[test]
    fn states_with_losses_that_can_t_be_are_refused() {
        let config = SetupConfig { kernels: 2, frequencies: 2, ..SetupConfig::default() };
        let mut node = Node::new(&Setup::try_from(config).unwrap());
        for losses in
            [&[1.0, -1.0][..], &[f64::NAN, 1.0], &[1.0, f64::INFINITY], &[1.0], &[1.0, 0.0]]
        {
            let sound = node.save();
            node.state.losses = losses.to_vec();
            let damaged = node.save();
            node.restore(&sound).unwrap();
            assert_eq!(node.restore(&damaged).is_ok(), losses == [1.0, 0.0], "{losses:?}");
        }
    }
}
