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
//! Readings taken. The federated model is that of the regression experiments in the authors'
//! published code, in which every kernel travels; the two parts could be any others. The models it
//! keeps from earlier rounds belong to the part on fine-tuning, and there are none here. η is the
//! setup's weight rate with ln 2 in place of ln P, since two are weighed (their code has one η for
//! all rates). Nodes send models where it has gradients, which is the same once they are averaged.
//! Weights and the node's own models act at once; θ changes with a round only, and its losses are
//! those of θ itself also where a round has several samples.

use std::f64::consts::LN_2;

use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::rows::{Models, descend};
use super::server::{Mean, Server, check_broadcast};
use super::{BadSample, NodeMethod, Setup};
use crate::baseline::omkl::{Omkl, OmklState};
use crate::codec::{Kind, Section};
use crate::features::Features;
use crate::learning::weights::{ExponentialWeights, is_distribution};
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::{BadState, is_count, restore_state, save_state};

const KIND: &str = "fedpoe-node";

pub(super) struct Node {
    setup: Setup,
    state: NodeState,
    /// Learns alone.
    own: Omkl,
    /// Objective of each kernel's model on the sample at hand; scratch.
    losses: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
struct NodeState {
    round: u64,
    /// Samples learned since the last broadcast.
    learned: u64,
    /// θ of the last broadcast.
    global: Models,
    /// Those and the gradient steps since.
    models: Models,
    kernels: ExponentialWeights,
    /// The weights of the federated models, summing to one.
    probabilities: Vec<f64>,
    /// Of the federated and the own prediction.
    parts: ExponentialWeights,
    /// a and b, summing to one.
    shares: [f64; 2],
}

impl Node {
    pub(super) fn new(setup: &Setup) -> Self {
        let (kernels, rule) = (setup.kernels(), setup.config.weight_rule);
        let models = Models::zero(kernels, setup.model_len());
        Self {
            setup: *setup,
            state: NodeState {
                round: 1,
                learned: 0,
                global: models.clone(),
                models,
                kernels: ExponentialWeights::new(rule, kernels),
                probabilities: vec![1.0 / kernels as f64; kernels],
                parts: ExponentialWeights::new(rule, 2),
                shares: [0.5; 2],
            },
            own: Omkl::new(setup),
            losses: vec![0.0; kernels],
        }
    }

    /// The federated and the own prediction.
    fn predictions(&self, z: Features<'_>) -> [f32; 2] {
        [self.state.global.predict_mixture(&self.state.probabilities, z), self.own.predict(z)]
    }
}

impl NodeMethod for Node {
    fn predict(&self, z: Features<'_>) -> f32 {
        self.setup.assert_width(z);
        let [federated, own] = self.predictions(z).map(f64::from);
        (self.state.shares[0] * federated + self.state.shares[1] * own) as f32
    }

    fn learn(&mut self, z: Features<'_>, y: f32) -> Result<(), BadSample> {
        self.setup.check_width(z)?;
        self.setup.check_label(y)?;
        let (config, round) = (&self.setup.config, self.state.round + self.state.learned);
        let lost = self
            .predictions(z)
            .map(|prediction| config.loss.value(f64::from(prediction), f64::from(y)).min(1e60));
        descend(
            &self.setup,
            config.step_size.rate(round),
            &mut self.state.models,
            z,
            y,
            &mut self.losses,
        )?;
        self.own.learn(z, y)?;
        let state = &mut self.state;
        state.global.objectives(self.setup.objective(), z, y, &mut self.losses);
        state.kernels.charge(self.setup.weight_rate(round), self.losses.iter().copied());
        state.kernels.probabilities(&mut state.probabilities);
        state.parts.charge(config.weight_rate.rate(round) * LN_2, lost);
        state.parts.probabilities(&mut state.shares);
        state.learned += 1;
        Ok(())
    }

    fn upload(&self, out: &mut Upload) -> bool {
        out.round = self.state.round;
        out.vote = None;
        out.numbers.clear();
        self.state.models.pack(&mut out.numbers);
        self.state.learned > 0
    }

    fn sections(&self, out: &mut Vec<Section>) {
        let len = self.setup.model_len();
        out.extend(
            (0..self.setup.kernels()).map(|slot| Section { len, kind: Kind::Model { slot } }),
        );
    }

    fn adopt(&mut self, broadcast: &Broadcast) -> Result<(), Rejected> {
        check_broadcast(broadcast, self.setup.width())?;
        if broadcast.round > self.state.round {
            self.state.round = broadcast.round;
            self.state.learned = 0;
            self.state.global.set(0, &broadcast.numbers);
            self.state.models.set(0, &broadcast.numbers);
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
        let [federated, own] = self.state.shares;
        for (out, (of_federated, of_own)) in
            out.iter_mut().zip(self.state.probabilities.iter().zip(self.own.weights()))
        {
            // Two roundings may add up to more than all.
            *out = (federated * of_federated + own * of_own).min(1.0);
        }
    }

    fn norm2(&self) -> f64 {
        let federated = self.state.global.norm2_mixture(&self.state.probabilities);
        self.state.shares[0] * federated + self.state.shares[1] * self.own.norm2()
    }

    fn transport(&mut self, transport: &Rescaling) {
        let state = &mut self.state;
        state.global.transport_all(transport);
        state.models.transport_all(transport);
        self.own.transport(transport);
        // The mixtures at hand stay, so that predictions do.
        state.kernels.in_other_units(transport.loss_factor());
        state.parts.in_other_units(transport.loss_factor());
    }

    fn save(&self) -> Vec<u8> {
        save_state(KIND, &(&self.state, &self.own.state))
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let setup = &self.setup;
        let (kernels, rule) = (setup.kernels(), setup.config.weight_rule);
        let is_sound = |(state, own): &(NodeState, OmklState)| {
            is_count(state.round)
                && is_count(state.learned)
                && state.global.is_sound(kernels, setup.model_len())
                && state.models.is_sound(kernels, setup.model_len())
                && state.kernels.is_sound(rule, kernels)
                && state.probabilities.len() == kernels
                && is_distribution(&state.probabilities)
                && state.parts.is_sound(rule, 2)
                && is_distribution(&state.shares)
                && Omkl::is_sound(setup, own)
        };
        (self.state, self.own.state) = restore_state(KIND, saved, is_sound)?;
        Ok(())
    }
}

pub(super) fn server(setup: &Setup, basis: Basis) -> Server<Mean> {
    Server::averaging(setup, "fedpoe-server", basis)
}
