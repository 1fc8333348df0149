//! The naive extension (the paper's first remark): everything travels.
//!
//! A node uploads the models of all P kernels and its P losses, P·2D + P numbers; the server
//! averages the models kernel by kernel, charges the weights with the losses of all nodes, and
//! broadcasts both. The prediction is Σ_p q_p·w_pᵀz_p(x). With every node present this is
//! centralised mini-batch learning, at P times the cost of MK-OFL.

use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::rows::{Models, are_losses, descend, pack_losses};
use super::server::{Rule, Server, check_broadcast, check_losses};
use super::{BadSample, NodeMethod, Setup};
use crate::aggregation::gathering::Gathering;
use crate::codec::{Kind, Section};
use crate::features::Features;
use crate::learning::weights::{ExponentialWeights, is_distribution};
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::{BadState, is_count, restore_state, save_state};

/// Length of both messages: models, then losses or weights.
fn message_len(setup: &Setup) -> usize {
    setup.width() + setup.kernels()
}

const KIND: &str = "naive-node";

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
    /// The models of the last broadcast.
    global: Models,
    /// Those and the gradient steps since.
    models: Models,
    /// The weights of the last broadcast.
    weights: Vec<f64>,
    /// Loss of each kernel since.
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
                global: Models::zero(kernels, setup.model_len()),
                models: Models::zero(kernels, setup.model_len()),
                weights: vec![1.0 / kernels as f64; kernels],
                losses: vec![0.0; kernels],
            },
            sample_losses: vec![0.0; kernels],
        }
    }
}

impl NodeMethod for Node {
    fn predict(&self, z: Features<'_>) -> f32 {
        self.setup.assert_width(z);
        self.state.global.predict_mixture(&self.state.weights, z)
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
        state.models.pack(&mut out.numbers);
        pack_losses(&state.losses, &mut out.numbers);
        state.learned > 0
    }

    fn sections(&self, out: &mut Vec<Section>) {
        let len = self.setup.model_len();
        out.extend(
            (0..self.setup.kernels()).map(|slot| Section { len, kind: Kind::Model { slot } }),
        );
    }

    fn adopt(&mut self, broadcast: &Broadcast) -> Result<(), Rejected> {
        check_broadcast(broadcast, message_len(&self.setup))?;
        if broadcast.round > self.state.round {
            let (models, weights) = broadcast.numbers.split_at(self.setup.width());
            self.state.round = broadcast.round;
            self.state.learned = 0;
            self.state.global.set(0, models);
            self.state.models.set(0, models);
            normalise(weights, &mut self.state.weights);
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
        out.copy_from_slice(&self.state.weights);
    }

    fn norm2(&self) -> f64 {
        self.state.global.norm2_mixture(&self.state.weights)
    }

    fn transport(&mut self, transport: &Rescaling) {
        self.state.global.transport_all(transport);
        self.state.models.transport_all(transport);
    }

    fn save(&self) -> Vec<u8> {
        save_state(KIND, &self.state)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let (len, kernels) = (self.setup.model_len(), self.setup.kernels());
        self.state = restore_state(KIND, saved, |state: &NodeState| {
            is_count(state.round)
                && is_count(state.learned)
                && state.global.is_sound(kernels, len)
                && state.models.is_sound(kernels, len)
                && state.weights.len() == kernels
                && is_distribution(&state.weights)
                && are_losses(&state.losses, kernels)
        })?;
        Ok(())
    }
}

/// Weights that sum to one again after rounding on the wire; a hostile sum of zero becomes equal
/// weights.
fn normalise(received: &[f32], weights: &mut [f64]) {
    let total: f64 = received.iter().map(|weight| f64::from(weight.max(0.0))).sum();
    let equal = 1.0 / weights.len() as f64;
    for (weight, received) in weights.iter_mut().zip(received) {
        *weight = if total > 0.0 { f64::from(received.max(0.0)) / total } else { equal };
    }
}

/// Averages the models kernel by kernel and charges the weights with everybody's losses.
pub(super) struct Mixture {
    setup: Setup,
    /// Weights that sum to one; scratch.
    probabilities: Vec<f64>,
}

impl Rule for Mixture {
    type Memory = ExponentialWeights;

    fn kind(&self) -> &'static str {
        "naive-server"
    }

    fn close(
        &mut self,
        weights: &mut ExponentialWeights,
        sums: &Gathering,
        broadcast: &mut Broadcast,
    ) {
        let (models, shown) = broadcast.numbers.split_at_mut(self.setup.width());
        sums.mean(models);
        weights.charge(self.setup.weight_rate(broadcast.round), sums.totals().skip(models.len()));
        weights.probabilities(&mut self.probabilities);
        for (shown, weight) in shown.iter_mut().zip(&self.probabilities) {
            *shown = *weight as f32;
        }
    }

    fn transport(
        &self,
        weights: &mut ExponentialWeights,
        _broadcast: &mut Broadcast,
        transport: &Rescaling,
    ) {
        // Those of the broadcast stay, so that predictions do.
        weights.in_other_units(transport.loss_factor());
    }

    fn check(&self, upload: &Upload, _broadcast: &Broadcast) -> Result<(), Rejected> {
        check_losses(upload, self.setup.width())
    }

    fn is_sound(&self, weights: &ExponentialWeights, broadcast: &Broadcast) -> bool {
        broadcast.kernels.is_none()
            && weights.is_sound(self.setup.config.weight_rule, self.setup.kernels())
    }
}

pub(super) fn server(setup: &Setup, basis: Basis) -> Server<Mixture> {
    let kernels = setup.kernels();
    let mut numbers = vec![0.0; message_len(setup)];
    numbers[setup.width()..].fill(1.0 / kernels as f32);
    let rule = Mixture { setup: *setup, probabilities: vec![0.0; kernels] };
    let weights = ExponentialWeights::new(setup.config.weight_rule, kernels);
    let gathering = Gathering::new(setup.config.aggregation, numbers.len(), 0);
    let opening = Broadcast { round: 1, kernels: None, numbers };
    Server::new(rule, weights, opening, gathering, basis)
}
