//! A linear model, learned together: what kernels have to beat.
//!
//! The model is w on z = (1, x), d + 1 numbers. A node predicts wᵀz with the global model, takes a
//! gradient step on L(w; x, y) per sample, uploads the result, d + 1 numbers, and the server
//! broadcasts the mean, d + 1 numbers: federated averaging, and SK-OFL without a kernel.
//!
//! Interpretation of the paper. z is not of length one as a kernel's is but, for inputs of size
//! one, of length √(d + 1): the setup's η_l is divided by d + 1, so that a step changes a
//! prediction as much as it would a kernel's and doesn't diverge for want of a smaller rate. A z
//! that is longer gets a shorter step where the whole one would make the sample's own loss larger:
//! scales that are agreed on online leave inputs that open late far outside of one. The ridge term
//! is on all of w, the constant too. There are no kernels, and all weights are zero.

use alloc::vec::Vec;

use serde::Serialize;

use super::Setup;
use super::info::{FeatureKind, Halves, Look, MethodInfo, row_bytes};
use super::layout::{BroadcastLayout, Layout};
use super::node_shell::{NodeRule, NodeShell};
use super::rows::{Copies, descend};
use super::server_shell::{ServerShell, check_broadcast};
use crate::codec::{Kind, Section};
use crate::features::Features;
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::simd;
use crate::state::StateKind;

pub(super) static INFO: MethodInfo = MethodInfo {
    name: "linear",
    aliases: &["linear-sgd"],
    title: "Linear",
    summary: "a linear model, learned by gradient steps and averaged",
    look: Look::solid([0x33, 0x66, 0x66]),
    features: FeatureKind::Inputs,
    layout,
    memory: |setup| 2 * row_bytes(setup.linear_len()),
    halves: Some(Halves {
        node: |setup, _, _| NodeShell::boxed(setup, Node::new(setup)),
        server: |setup, _| {
            ServerShell::averaging(setup, StateKind::new("linear-server"), layout(setup))
        },
    }),
    ..MethodInfo::BASE
};

pub(super) fn layout(setup: &Setup) -> Layout {
    Layout::of_models(BroadcastLayout::Inputs { len: setup.linear_len() })
}

pub(super) struct Node {
    pub(super) setup: Setup,
    pub(super) state: Copies,
}

impl Node {
    pub(super) fn new(setup: &Setup) -> Self {
        Self { setup: *setup, state: Copies::zero(1, setup.linear_len()) }
    }
}

impl NodeRule for Node {
    type State = Copies;
    const KIND: StateKind = StateKind::new("linear-node");

    fn width(&self) -> usize {
        self.setup.linear_len()
    }

    fn predict(&self, z: Features<'_>) -> f32 {
        self.state.global.predict(0, z)
    }

    fn learn(&mut self, step: u64, z: Features<'_>, y: f32) {
        let (step_size, squares) = (self.setup.step_size(step), squared_length(z));
        let longest = step_size.max(self.setup.objective().loss.longest_step());
        let rate = (step_size / self.setup.linear_len() as f64).min(longest / squares);
        descend(&self.setup, rate, &mut self.state.local, z, y, &mut [0.0]);
    }

    fn write(&self, _round: u64, upload: &mut Upload) {
        self.state.local.pack(&mut upload.numbers);
    }

    fn sections(&self, out: &mut Vec<Section>) {
        out.push(Section { len: self.setup.linear_len(), kind: Kind::Model { slot: 0 } });
    }

    fn check(&self, broadcast: &Broadcast) -> Result<(), Rejected> {
        check_broadcast(broadcast, self.setup.linear_len())
    }

    fn adopt(&mut self, broadcast: &Broadcast) {
        self.state.adopt(&broadcast.numbers);
    }

    fn norm2(&self) -> f64 {
        self.state.global.norm2(0)
    }

    fn linear_model(&self, out: &mut [f64]) -> bool {
        let weights = self.state.global.numbers(0);
        out.iter_mut().zip(weights).for_each(|(out, w)| *out = f64::from(w));
        out.len() >= self.width()
    }

    fn rescale(&mut self, rescaling: &Rescaling) {
        self.state.each(|model| model.rescale_linear(0, rescaling));
    }

    fn state(&self) -> impl Serialize {
        &self.state
    }

    fn is_sound(&self, state: &Copies) -> bool {
        state.is_sound(1, self.setup.linear_len())
    }

    fn restore(&mut self, state: Copies) {
        self.state = state;
    }
}

/// ‖z‖², which is at least one, since z begins with the constant.
fn squared_length(z: Features<'_>) -> f64 {
    let (lines, rest) = z.numbers().as_chunks();
    let whole: f64 = lines.iter().map(|line| f64::from(simd::dot_line(line, line))).sum();
    rest.iter().fold(whole, |sum, number| sum + f64::from(*number) * f64::from(*number))
}
