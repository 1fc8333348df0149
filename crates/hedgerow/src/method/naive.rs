//! The naive extension (the paper's first remark): everything travels.
//!
//! A node uploads the models of all P kernels and its P losses, P·2D + P numbers; the server
//! averages the models kernel by kernel, charges the weights with the losses of all nodes, and
//! broadcasts both. The prediction is Σ_p q_p·w_pᵀz_p(x). With every node present this is
//! centralised mini-batch learning, at P times the cost of MK-OFL.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::info::{Halves, Look, MethodInfo, row_bytes};
use super::layout::{BroadcastLayout, Layout, UploadLayout, Votes};
use super::node_shell::{NodeRule, NodeShell};
use super::rows::{Copies, add_losses, are_losses, descend, every_model, pack_losses};
use super::server_shell::{ServerRule, ServerShell, check_broadcast, check_losses};
use super::{ServerMethod, Setup};
use crate::aggregation::Gathering;
use crate::codec::Section;
use crate::features::Features;
use crate::learning::weights::{ExponentialWeights, is_distribution};
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::StateKind;

pub(super) static INFO: MethodInfo = MethodInfo {
    name: "naive",
    title: "Naive",
    summary: "all models and weights travel",
    look: Look::solid([0x00, 0x9e, 0x73]),
    uploads_all_models: true,
    layout,
    memory: |setup| 2 * setup.kernels() * row_bytes(setup.model_len()) + 4 * 8 * setup.kernels(),
    halves: Some(Halves {
        node: |setup, _, _| NodeShell::boxed(setup, Node::new(setup)),
        server: |setup, _| server(setup),
    }),
    ..MethodInfo::BASE
};

fn layout(setup: &Setup) -> Layout {
    let (models, len) = (setup.kernels(), setup.model_len());
    Layout {
        upload: UploadLayout::Models { models, len, losses: models },
        votes: Votes::None,
        broadcast: BroadcastLayout::every_kernel(setup),
    }
}

/// Length of both messages: models, then losses or weights.
fn message_len(setup: &Setup) -> usize {
    setup.width() + setup.kernels()
}

struct Node {
    setup: Setup,
    state: State,
    /// Objective of each kernel's model on the current sample; scratch.
    sample_losses: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
struct State {
    copies: Copies,
    /// The weights of the last broadcast.
    weights: Vec<f64>,
    /// Loss of each kernel since.
    losses: Vec<f64>,
}

impl Node {
    fn new(setup: &Setup) -> Self {
        let kernels = setup.kernels();
        Self {
            setup: *setup,
            state: State {
                copies: Copies::zero(kernels, setup.model_len()),
                weights: vec![1.0 / kernels as f64; kernels],
                losses: vec![0.0; kernels],
            },
            sample_losses: vec![0.0; kernels],
        }
    }
}

impl NodeRule for Node {
    type State = State;
    const KIND: StateKind = StateKind::new("naive-node");

    fn width(&self) -> usize {
        self.setup.width()
    }

    fn predict(&self, z: Features<'_>) -> f32 {
        self.state.copies.global.predict_mixture(&self.state.weights, z)
    }

    fn learn(&mut self, step: u64, z: Features<'_>, y: f32) {
        let (rate, losses) = (self.setup.step_size(step), &mut self.sample_losses);
        descend(&self.setup, rate, &mut self.state.copies.local, z, y, losses);
        add_losses(&mut self.state.losses, losses);
    }

    fn write(&self, _round: u64, upload: &mut Upload) {
        self.state.copies.local.pack(&mut upload.numbers);
        pack_losses(&self.state.losses, &mut upload.numbers);
    }

    fn sections(&self, out: &mut Vec<Section>) {
        out.extend(every_model(&self.setup));
    }

    fn check(&self, broadcast: &Broadcast) -> Result<(), Rejected> {
        check_broadcast(broadcast, message_len(&self.setup))
    }

    fn adopt(&mut self, broadcast: &Broadcast) {
        let (models, weights) = broadcast.numbers.split_at(self.setup.width());
        self.state.copies.adopt(models);
        normalise(weights, &mut self.state.weights);
        self.state.losses.fill(0.0);
    }

    fn shares(&self, out: &mut [f64]) {
        out.copy_from_slice(&self.state.weights);
    }

    fn norm2(&self) -> f64 {
        self.state.copies.global.norm2_mixture(&self.state.weights)
    }

    fn rescale(&mut self, rescaling: &Rescaling) {
        self.state.copies.each(|models| models.rescale_all(rescaling));
    }

    fn state(&self) -> impl Serialize {
        &self.state
    }

    fn is_sound(&self, state: &State) -> bool {
        let (len, kernels) = (self.setup.model_len(), self.setup.kernels());
        state.copies.is_sound(kernels, len)
            && state.weights.len() == kernels
            && is_distribution(&state.weights)
            && are_losses(&state.losses, kernels)
    }

    fn restore(&mut self, state: State) {
        self.state = state;
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

/// Averages the models kernel by kernel and charges the weights with the losses of all nodes.
struct Mixture {
    setup: Setup,
    /// Weights that sum to one; scratch.
    probabilities: Vec<f64>,
}

fn server(setup: &Setup) -> Box<dyn ServerMethod> {
    let kernels = setup.kernels();
    let mut numbers = vec![0.0; message_len(setup)];
    numbers[setup.width()..].fill(1.0 / kernels as f32);
    let rule = Mixture { setup: *setup, probabilities: vec![0.0; kernels] };
    let weights = ExponentialWeights::new(setup.weight_rule(), kernels);
    let opening = Broadcast { round: 1, kernels: None, numbers };
    ServerShell::boxed(setup, layout(setup), rule, weights, opening)
}

impl ServerRule for Mixture {
    type Memory = ExponentialWeights;

    fn kind(&self) -> StateKind {
        StateKind::new("naive-server")
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

    fn rescale(
        &self,
        weights: &mut ExponentialWeights,
        _broadcast: &mut Broadcast,
        rescaling: &Rescaling,
    ) {
        // The weights of the broadcast stay, so that predictions do.
        weights.in_other_units(rescaling.loss_factor());
    }

    fn check(&self, upload: &Upload, _broadcast: &Broadcast) -> Result<(), Rejected> {
        check_losses(upload, self.setup.width())
    }

    fn is_sound(&self, weights: &ExponentialWeights, broadcast: &Broadcast) -> bool {
        broadcast.kernels.is_none()
            && weights.is_sound(self.setup.weight_rule(), self.setup.kernels())
    }
}
