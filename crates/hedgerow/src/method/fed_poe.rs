//! Fed-POE (Ghari & Shen 2024) for online regression: a federated model and one of the node's own,
//! mixed by what each has lost.
//!
//! A node predicts a·f_fed(x) + b·f_own(x) with a + b = 1. Both are mixtures over all P kernels:
//! f_fed of the server's models θ_p, by weights that the node keeps to itself, and f_own of models
//! that never leave it, learned as in [`crate::baseline::Omkl`]. After each sample log a −=
//! η·loss(f_fed(x), y) and log b −= η·loss(f_own(x), y); weights over kernels are charged with the
//! objective of each kernel's model. A node uploads all P federated models after a gradient step
//! per sample, P·2D numbers; the server broadcasts their means, P·2D numbers.
//!
//! Interpretation of the paper. The federated model is that of the regression experiments in the
//! authors' published code, in which every kernel travels; the two parts could be any others. The
//! models it keeps from earlier rounds belong to the part on fine-tuning, and there are none here.
//! η is the setup's weight rate with ln 2 in place of ln P, since two are weighed (their code has
//! one η for all rates). Nodes send models where it has gradients, which is the same once they are
//! averaged. Weights and the node's own models act at once; θ changes with a round only, and its
//! losses are those of θ itself also where a round has several samples.

use alloc::vec::Vec;
use core::f64::consts::LN_2;

use serde::{Deserialize, Serialize};

use super::Setup;
use super::info::{Halves, Look, MethodInfo, row_bytes};
use super::node_shell::{NodeRule, NodeShell};
use super::omkl::{Omkl, OmklState};
use super::rows::{Copies, descend, every_model};
use super::server_shell::{ServerShell, check_broadcast};
use crate::codec::Section;
use crate::features::Features;
use crate::learning::loss::Objective;
use crate::learning::weights::{ExponentialWeights, Mixture, is_distribution};
use crate::limits::MAX_SUM;
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::StateKind;

pub(super) static INFO: MethodInfo = MethodInfo {
    name: "fedpoe",
    aliases: &["fed-poe"],
    title: "Fed-POE",
    summary: "a federated and a local model, mixed by each node's own weights",
    look: Look::solid([0xa6, 0x61, 0x1a]),
    memory: |setup| 3 * setup.kernels() * row_bytes(setup.model_len()) + 7 * 8 * setup.kernels(),
    halves: Some(Halves {
        node: |setup, _, _| NodeShell::boxed(setup, Node::new(setup)),
        server: |setup, _| {
            ServerShell::averaging(setup, StateKind::new("fedpoe-server"), (INFO.layout)(setup))
        },
    }),
    ..MethodInfo::BASE
};

struct Node {
    setup: Setup,
    state: State,
    /// Learns alone.
    own: Omkl,
    /// Objective of each kernel's model on the current sample; scratch.
    losses: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// θ of the last broadcast, and the same after the gradient steps since.
    copies: Copies,
    /// The weights of the federated models.
    mixture: Mixture,
    /// Of the federated and the own prediction.
    parts: ExponentialWeights,
    /// a and b, summing to one.
    shares: [f64; 2],
}

impl Node {
    fn new(setup: &Setup) -> Self {
        let (kernels, rule) = (setup.kernels(), setup.weight_rule());
        Self {
            setup: *setup,
            state: State {
                copies: Copies::zero(kernels, setup.model_len()),
                mixture: Mixture::new(rule, kernels),
                parts: ExponentialWeights::new(rule, 2),
                shares: [0.5; 2],
            },
            own: Omkl::new(setup),
            losses: vec![0.0; kernels],
        }
    }

    /// The federated and the own prediction.
    fn predictions(&self, z: Features<'_>) -> [f32; 2] {
        let State { copies, mixture, .. } = &self.state;
        [copies.global.predict_mixture(mixture.parts(), z), self.own.predict(z)]
    }
}

impl NodeRule for Node {
    type State = (State, OmklState);
    const KIND: StateKind = StateKind::new("fedpoe-node");

    fn width(&self) -> usize {
        self.setup.width()
    }

    fn predict(&self, z: Features<'_>) -> f32 {
        let [federated, own] = self.predictions(z).map(f64::from);
        (self.state.shares[0] * federated + self.state.shares[1] * own) as f32
    }

    fn learn(&mut self, step: u64, z: Features<'_>, y: f32) {
        let (setup, label) = (&self.setup, f64::from(y));
        let Objective { loss, .. } = setup.objective();
        let loss = |prediction: f32| loss.value(f64::from(prediction), label).min(MAX_SUM);
        let lost = self.predictions(z).map(loss);
        let state = &mut self.state;
        descend(setup, setup.step_size(step), &mut state.copies.local, z, y, &mut self.losses);
        self.own.step(z, y);
        state.copies.global.objectives(setup.objective(), z, y, &mut self.losses);
        state.mixture.charge(setup.weight_rate(step), self.losses.iter().copied());
        state.parts.charge(setup.base_weight_rate(step) * LN_2, lost);
        state.parts.probabilities(&mut state.shares);
    }

    fn write(&self, _round: u64, upload: &mut Upload) {
        self.state.copies.local.pack(&mut upload.numbers);
    }

    fn sections(&self, out: &mut Vec<Section>) {
        out.extend(every_model(&self.setup));
    }

    fn check(&self, broadcast: &Broadcast) -> Result<(), Rejected> {
        check_broadcast(broadcast, self.setup.width())
    }

    fn adopt(&mut self, broadcast: &Broadcast) {
        self.state.copies.adopt(&broadcast.numbers);
    }

    fn shares(&self, out: &mut [f64]) {
        let [federated, own] = self.state.shares;
        for (out, (of_federated, of_own)) in
            out.iter_mut().zip(self.state.mixture.parts().iter().zip(self.own.weights()))
        {
            // The sum of two rounded numbers may exceed one.
            *out = (federated * of_federated + own * of_own).min(1.0);
        }
    }

    fn norm2(&self) -> f64 {
        let State { copies, mixture, .. } = &self.state;
        let federated = copies.global.norm2_mixture(mixture.parts());
        self.state.shares[0] * federated + self.state.shares[1] * self.own.norm2()
    }

    fn rescale(&mut self, rescaling: &Rescaling) {
        let state = &mut self.state;
        state.copies.each(|models| models.rescale_all(rescaling));
        self.own.rescale(rescaling);
        state.mixture.in_other_units(rescaling.loss_factor());
        // The shares stay, so that predictions do.
        state.parts.in_other_units(rescaling.loss_factor());
    }

    fn state(&self) -> impl Serialize {
        (&self.state, &self.own.state)
    }

    fn is_sound(&self, (state, own): &(State, OmklState)) -> bool {
        let (setup, kernels) = (&self.setup, self.setup.kernels());
        let rule = setup.weight_rule();
        state.copies.is_sound(kernels, setup.model_len())
            && state.mixture.is_sound(rule, kernels)
            && state.parts.is_sound(rule, 2)
            && is_distribution(&state.shares)
            && Omkl::is_sound(setup, own)
    }

    fn restore(&mut self, state: (State, OmklState)) {
        (self.state, self.own.state) = state;
    }
}
