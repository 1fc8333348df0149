//! Local only: every node learns alone, with all kernels, and nothing travels. A federation should
//! be better than this.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::Serialize;

use super::info::{Halves, Look, MethodInfo, row_bytes};
use super::layout::{BroadcastLayout, Layout, UploadLayout, Votes};
use super::node_shell::{NodeRule, NodeShell};
use super::omkl::{Omkl, OmklState};
use super::{ServerMethod, Setup};
use crate::aggregation::{Aggregation, Gathering, PartialSum};
use crate::features::Features;
use crate::message::{Broadcast, NodeId, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::{BadState, OlderVersion, StateKind, read_body};

pub(super) static INFO: MethodInfo = MethodInfo {
    name: "local",
    title: "Local",
    summary: "every node learns alone; nothing travels",
    look: Look::dashed([0x56, 0xb4, 0xe9]),
    is_local: true,
    layout: |_| Layout {
        upload: UploadLayout::Nothing,
        votes: Votes::None,
        broadcast: BroadcastLayout::Nothing,
    },
    memory: |setup| setup.kernels() * (row_bytes(setup.model_len()) + 4 * 8),
    halves: Some(Halves {
        node: |setup, _, _| NodeShell::boxed(setup, Node::new(setup)),
        server: |_, _| {
            let broadcast = Broadcast { round: 1, ..Broadcast::default() };
            Box::new(Server { broadcast })
        },
    }),
    ..MethodInfo::BASE
};

struct Node {
    setup: Setup,
    learner: Omkl,
}

impl Node {
    fn new(setup: &Setup) -> Self {
        Self { setup: *setup, learner: Omkl::new(setup) }
    }
}

/// Version 4 had neither round nor number of samples.
fn read_version_4(body: &[u8]) -> Result<(u64, u64, OmklState), BadState> {
    Ok((1, 0, read_body(body)?))
}

impl NodeRule for Node {
    type State = OmklState;
    const KIND: StateKind = StateKind::new("local-node").version(5);
    const OLDER: &'static [OlderVersion<(u64, u64, OmklState)>] = &[(4, read_version_4)];

    fn width(&self) -> usize {
        self.setup.width()
    }

    fn predict(&self, z: Features<'_>) -> f32 {
        self.learner.predict(z)
    }

    fn learn(&mut self, _step: u64, z: Features<'_>, y: f32) {
        self.learner.step(z, y);
    }

    fn write(&self, _round: u64, _upload: &mut Upload) {}

    fn has_news(&self, _learned: u64) -> bool {
        false
    }

    fn check(&self, _broadcast: &Broadcast) -> Result<(), Rejected> {
        Ok(())
    }

    fn adopt(&mut self, _broadcast: &Broadcast) {}

    fn shares(&self, out: &mut [f64]) {
        out.copy_from_slice(self.learner.weights());
    }

    fn norm2(&self) -> f64 {
        self.learner.norm2()
    }

    fn rescale(&mut self, rescaling: &Rescaling) {
        self.learner.rescale(rescaling);
    }

    fn state(&self) -> impl Serialize {
        &self.learner.state
    }

    fn is_sound(&self, state: &OmklState) -> bool {
        Omkl::is_sound(&self.setup, state)
    }

    fn restore(&mut self, state: OmklState) {
        self.learner.state = state;
    }
}

/// Takes no uploads: its round never closes.
struct Server {
    broadcast: Broadcast,
}

impl ServerMethod for Server {
    fn accept(&mut self, _from: NodeId, _upload: &Upload) -> Result<(), Rejected> {
        Err(Rejected::NotExpected)
    }

    fn part(&self) -> PartialSum {
        PartialSum::new(self.broadcast.round, Gathering::new(Aggregation::Mean, 0, 0))
    }

    fn renew(&self, _part: &mut PartialSum) {}

    fn accept_into(
        &self,
        _part: &mut PartialSum,
        _from: NodeId,
        _upload: &Upload,
    ) -> Result<(), Rejected> {
        Err(Rejected::NotExpected)
    }

    fn merge(&mut self, part: &PartialSum) -> Result<(), Rejected> {
        if part.uploads() == 0 { Ok(()) } else { Err(Rejected::NotExpected) }
    }

    fn follow(&mut self, _broadcast: &Broadcast) -> Result<(), Rejected> {
        Ok(())
    }

    fn uploads(&self) -> usize {
        0
    }

    fn close_round(&mut self) -> &Broadcast {
        &self.broadcast
    }

    fn broadcast(&self) -> &Broadcast {
        &self.broadcast
    }

    fn replace_broadcast(&mut self, _told: &[f32]) {}

    fn rescale(&mut self, _rescaling: &Rescaling) {}

    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        if saved.is_empty() { Ok(()) } else { Err(BadState::new("it should be empty")) }
    }
}
