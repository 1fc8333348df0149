//! What methods share whose broadcasts have the model of one selected kernel: a node keeps that
//! model and one of its own for every kernel.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Setup;
use super::layout::{BroadcastLayout, FIRST};
use super::rows::{Models, one_hot};
use super::server_shell::check_broadcast;
use crate::codec::{Kind, Section};
use crate::features::Features;
use crate::message::{Broadcast, Rejected, Selection};
use crate::scaling::Rescaling;

/// The models of a node.
#[derive(Serialize, Deserialize)]
pub(super) struct SelectedModels {
    selection: Selection,
    /// ŵ_t, the model of the last broadcast.
    global: Models,
    /// w̃^p of every kernel, one after the other.
    pub(super) models: Models,
}

impl SelectedModels {
    pub(super) fn zero(setup: &Setup) -> Self {
        let (kernels, len) = (setup.kernels(), setup.model_len());
        let (global, models) = (Models::zero(1, len), Models::zero(kernels, len));
        Self { selection: FIRST, global, models }
    }

    /// The prediction of the global model.
    pub(super) fn predict(&self, setup: &Setup, z: Features<'_>) -> f32 {
        self.global.predict(0, z.part(setup.kernel_range(self.current())))
    }

    /// Appends the model of the next kernel.
    pub(super) fn write(&self, numbers: &mut Vec<f32>) {
        self.models.pack_row(self.next(), numbers);
    }

    /// What [`SelectedModels::write`] appends.
    pub(super) fn section(&self, setup: &Setup) -> Section {
        Section { len: setup.model_len(), kind: Kind::Model { slot: self.next() } }
    }

    pub(super) fn adopt(&mut self, broadcast: &Broadcast) {
        self.selection = broadcast.kernels.unwrap_or(FIRST);
        self.global.set(0, &broadcast.numbers);
        // From here on the model of the global kernel is the global model.
        self.models.set(self.current(), &broadcast.numbers);
    }

    pub(super) fn shares(&self, out: &mut [f64]) {
        one_hot(self.current(), out);
    }

    pub(super) fn norm2(&self) -> f64 {
        self.global.norm2(0)
    }

    pub(super) fn rescale(&mut self, rescaling: &Rescaling) {
        self.global.rescale(0, self.current(), rescaling);
        self.models.rescale_all(rescaling);
    }

    pub(super) fn is_sound(&self, setup: &Setup) -> bool {
        is_selection(setup, self.selection)
            && self.global.is_sound(1, setup.model_len())
            && self.models.is_sound(setup.kernels(), setup.model_len())
    }

    fn current(&self) -> usize {
        self.selection.current as usize
    }

    fn next(&self) -> usize {
        self.selection.next as usize
    }
}

/// The broadcast of the first round.
pub(super) fn opening(setup: &Setup) -> Broadcast {
    Broadcast { round: 1, kernels: Some(FIRST), numbers: vec![0.0; setup.model_len()] }
}

/// The uploads of a round were of the next kernel: it becomes the current one, and the drawn one
/// the next.
pub(super) fn advance(broadcast: &mut Broadcast, drawn: usize) {
    let current = broadcast.kernels.unwrap_or(FIRST).next;
    broadcast.kernels = Some(Selection { current, next: drawn as u32 });
}

pub(super) fn layout(setup: &Setup) -> BroadcastLayout {
    BroadcastLayout::Selected { among: setup.kernels(), len: setup.model_len() }
}

/// Refuses a broadcast of one model that doesn't name two kernels of the dictionary.
pub(super) fn check_selection(setup: &Setup, broadcast: &Broadcast) -> Result<(), Rejected> {
    check_broadcast(broadcast, setup.model_len())?;
    match broadcast.kernels {
        Some(selection) if is_selection(setup, selection) => Ok(()),
        other => {
            let found = other.map(|selection| selection.current.max(selection.next));
            let last = setup.kernels() as u32 - 1;
            Err(Rejected::WrongKernel { found, last })
        }
    }
}

fn is_selection(setup: &Setup, selection: Selection) -> bool {
    let kernels = setup.kernels();
    (selection.current as usize) < kernels && (selection.next as usize) < kernels
}
