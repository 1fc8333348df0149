//! eM-KOFL (Hong & Chae): one kernel's model travels, and the losses of all.
//!
//! A node keeps a model of every kernel and takes a gradient step on each of them per sample, as in
//! MK-OFL; in place of a vote it uploads ℓ_1 … ℓ_P, the objectives of its P models on the round's
//! samples: 2D + P numbers. The server adds up everybody's losses, logweight_p −= η_g·Σ_k ℓ_p,k,
//! draws a kernel with probability ∝ exp(logweight), and broadcasts the mean of the models that
//! came and both kernels: 2D + 2 numbers. Predictions are those of the one global model.
//!
//! Interpretation of the paper. The paper's server names a kernel and collects its models within
//! one round; here a message goes up and one down, so the kernel that is drawn when a round closes
//! is the one whose models come in the round after, as in MK-OFL. A sum over the nodes has no
//! factor K, and whoever is missing adds nothing. η_g is the setup's rate, with its factor ln P. Of
//! the server's weights a node hears only the draw, so its own are that kernel's alone.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::info::{Halves, Look, MethodInfo};
use super::layout::{Layout, UploadLayout, Votes};
use super::node_shell::{NodeRule, NodeShell};
use super::rows::{add_losses, are_losses, descend, pack_losses};
use super::selected::{self, SelectedModels, check_selection};
use super::server_shell::{ServerRule, ServerShell, check_losses};
use super::{ServerMethod, Setup};
use crate::aggregation::Gathering;
use crate::codec::Section;
use crate::features::Features;
use crate::learning::weights::{ExponentialWeights, draw};
use crate::limits::MAX_LOSS;
use crate::message::{Broadcast, Rejected, Upload};
use crate::random::{CounterRng, Purpose};
use crate::scaling::Rescaling;
use crate::state::StateKind;

pub(super) static INFO: MethodInfo = MethodInfo {
    name: "emk",
    aliases: &["em-kofl"],
    title: "eM-KOFL",
    summary: "nodes upload one model and all losses, and the server draws the kernel",
    look: Look::solid([0x8a, 0x6f, 0xd1]),
    layout,
    memory: super::mk_ofl::INFO.memory,
    halves: Some(Halves {
        node: |setup, _, _| NodeShell::boxed(setup, Node::new(setup)),
        server: |setup, _| server(setup),
    }),
    ..MethodInfo::BASE
};

fn layout(setup: &Setup) -> Layout {
    let (kernels, len) = (setup.kernels(), setup.model_len());
    Layout {
        upload: UploadLayout::Models { models: 1, len, losses: kernels },
        votes: Votes::None,
        broadcast: selected::layout(setup),
    }
}

struct Node {
    setup: Setup,
    state: State,
    /// Objective of each kernel's model on the current sample; scratch.
    sample_losses: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
struct State {
    selected: SelectedModels,
    /// Loss of each kernel since the last broadcast.
    losses: Vec<f64>,
}

impl Node {
    fn new(setup: &Setup) -> Self {
        let kernels = setup.kernels();
        Self {
            setup: *setup,
            state: State { selected: SelectedModels::zero(setup), losses: vec![0.0; kernels] },
            sample_losses: vec![0.0; kernels],
        }
    }
}

impl NodeRule for Node {
    type State = State;
    const KIND: StateKind = StateKind::new("emk-node");

    fn width(&self) -> usize {
        self.setup.width()
    }

    fn predict(&self, z: Features<'_>) -> f32 {
        self.state.selected.predict(&self.setup, z)
    }

    fn learn(&mut self, step: u64, z: Features<'_>, y: f32) {
        let (rate, losses) = (self.setup.step_size(step), &mut self.sample_losses);
        descend(&self.setup, rate, &mut self.state.selected.models, z, y, losses);
        add_losses(&mut self.state.losses, losses);
    }

    fn write(&self, _round: u64, upload: &mut Upload) {
        self.state.selected.write(&mut upload.numbers);
        pack_losses(&self.state.losses, &mut upload.numbers);
    }

    fn sections(&self, out: &mut Vec<Section>) {
        out.push(self.state.selected.section(&self.setup));
    }

    fn check(&self, broadcast: &Broadcast) -> Result<(), Rejected> {
        check_selection(&self.setup, broadcast)
    }

    fn adopt(&mut self, broadcast: &Broadcast) {
        self.state.selected.adopt(broadcast);
        self.state.losses.fill(0.0);
    }

    fn shares(&self, out: &mut [f64]) {
        self.state.selected.shares(out);
    }

    fn norm2(&self) -> f64 {
        self.state.selected.norm2()
    }

    fn rescale(&mut self, rescaling: &Rescaling) {
        self.state.selected.rescale(rescaling);
        let factor = rescaling.loss_factor();
        self.state.losses.iter_mut().for_each(|loss| *loss = (*loss * factor).min(MAX_LOSS));
    }

    fn state(&self) -> impl Serialize {
        &self.state
    }

    fn is_sound(&self, state: &State) -> bool {
        state.selected.is_sound(&self.setup) && are_losses(&state.losses, self.setup.kernels())
    }

    fn restore(&mut self, state: State) {
        self.state = state;
    }
}

/// Averages the uploaded models, charges the weights with the losses of all nodes and draws the
/// kernel after next from them.
struct Randomised {
    setup: Setup,
    selections: CounterRng,
}

fn server(setup: &Setup) -> Box<dyn ServerMethod> {
    let selections = CounterRng::from_seed(setup.seed()).derive(Purpose::Selection, 0);
    let weights = ExponentialWeights::new(setup.weight_rule(), setup.kernels());
    let rule = Randomised { setup: *setup, selections };
    ServerShell::boxed(setup, layout(setup), rule, weights, selected::opening(setup))
}

impl ServerRule for Randomised {
    type Memory = ExponentialWeights;

    fn kind(&self) -> StateKind {
        StateKind::new("emk-server")
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
        let drawn = draw(weights.log(), self.selections.uniform_at(broadcast.round));
        selected::advance(broadcast, drawn);
    }

    fn rescale(
        &self,
        weights: &mut ExponentialWeights,
        _broadcast: &mut Broadcast,
        rescaling: &Rescaling,
    ) {
        weights.in_other_units(rescaling.loss_factor());
    }

    fn check(&self, upload: &Upload, _broadcast: &Broadcast) -> Result<(), Rejected> {
        check_losses(upload, self.setup.model_len())
    }

    fn is_sound(&self, weights: &ExponentialWeights, broadcast: &Broadcast) -> bool {
        check_selection(&self.setup, broadcast).is_ok()
            && weights.is_sound(self.setup.weight_rule(), self.setup.kernels())
    }
}
