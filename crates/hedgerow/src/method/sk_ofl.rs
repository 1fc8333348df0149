//! SK-OFL: one kernel, chosen beforehand.
//!
//! A node predicts with the global model ŵ_t, takes a gradient step per sample and uploads the
//! result, 2D numbers; the server broadcasts the mean. The best of these over all kernels is the
//! paper's "best kernel in hindsight".

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Setup;
use super::info::{Halves, Look, MethodInfo, Role, frequencies_within, row_bytes};
use super::layout::{BroadcastLayout, Layout};
use super::node_shell::{NodeRule, NodeShell};
use super::rows::{Copies, descend, one_hot};
use super::server_shell::{ServerShell, check_broadcast};
use crate::codec::{Kind, Section};
use crate::features::Features;
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::{BadState, OlderVersion, StateKind, read_body};

pub(super) static INFO: MethodInfo = MethodInfo {
    name: "sk",
    aliases: &["sk-ofl"],
    title: "SK-OFL",
    summary: "one kernel, chosen beforehand; the best of all kernels is known only afterwards",
    role: Role::Hindsight,
    look: Look::solid([0x00, 0x72, 0xb2]),
    takes_kernel: true,
    frequencies: |budget, _| frequencies_within(budget, 0),
    layout,
    memory: |setup| 2 * row_bytes(setup.model_len()),
    halves: Some(Halves {
        node: |setup, _, _| NodeShell::boxed(setup, Node::new(setup)),
        server: |setup, _| {
            ServerShell::averaging(setup, StateKind::new("sk-server"), layout(setup))
        },
    }),
    ..MethodInfo::BASE
};

fn layout(setup: &Setup) -> Layout {
    let (kernel, len) = (setup.kernel(), setup.model_len());
    Layout::of_models(BroadcastLayout::Kernels { kernels: kernel..kernel + 1, len })
}

struct Node {
    setup: Setup,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    kernel: usize,
    /// ŵ_t, and the same after the gradient steps since.
    copies: Copies,
}

impl Node {
    fn new(setup: &Setup) -> Self {
        let copies = Copies::zero(1, setup.model_len());
        Self { setup: *setup, state: State { kernel: setup.kernel(), copies } }
    }

    fn features<'a>(&self, z: Features<'a>) -> Features<'a> {
        z.part(self.setup.kernel_range(self.setup.kernel()))
    }
}

/// Version 4 had the kernel before the round.
fn read_version_4(body: &[u8]) -> Result<(u64, u64, State), BadState> {
    let (kernel, round, learned, copies) = read_body(body)?;
    Ok((round, learned, State { kernel, copies }))
}

impl NodeRule for Node {
    type State = State;
    const KIND: StateKind = StateKind::new("sk-node").version(5);
    const OLDER: &'static [OlderVersion<(u64, u64, State)>] = &[(4, read_version_4)];

    fn width(&self) -> usize {
        self.setup.width()
    }

    fn predict(&self, z: Features<'_>) -> f32 {
        self.state.copies.global.predict(0, self.features(z))
    }

    fn learn(&mut self, step: u64, z: Features<'_>, y: f32) {
        let (rate, z) = (self.setup.step_size(step), self.features(z));
        descend(&self.setup, rate, &mut self.state.copies.local, z, y, &mut [0.0]);
    }

    fn write(&self, _round: u64, upload: &mut Upload) {
        self.state.copies.local.pack(&mut upload.numbers);
    }

    fn sections(&self, out: &mut Vec<Section>) {
        let (len, slot) = (self.setup.model_len(), self.setup.kernel());
        out.push(Section { len, kind: Kind::Model { slot } });
    }

    fn check(&self, broadcast: &Broadcast) -> Result<(), Rejected> {
        check_broadcast(broadcast, self.setup.model_len())
    }

    fn adopt(&mut self, broadcast: &Broadcast) {
        self.state.copies.adopt(&broadcast.numbers);
    }

    fn shares(&self, out: &mut [f64]) {
        one_hot(self.setup.kernel(), out);
    }

    fn norm2(&self) -> f64 {
        self.state.copies.global.norm2(0)
    }

    fn rescale(&mut self, rescaling: &Rescaling) {
        self.state.copies.each(|model| model.rescale(0, self.setup.kernel(), rescaling));
    }

    fn state(&self) -> impl Serialize {
        &self.state
    }

    fn is_sound(&self, state: &State) -> bool {
        state.kernel == self.setup.kernel() && state.copies.is_sound(1, self.setup.model_len())
    }

    fn restore(&mut self, state: State) {
        self.state = state;
    }
}
