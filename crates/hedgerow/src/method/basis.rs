//! [`Basis`]: what the models are of that a broadcast begins with. Servers and whoever reads their
//! broadcasts have it from one place.

use std::ops::Range;

use super::server::FIRST;
use crate::codec::{Kind, Section};
use crate::message::Broadcast;
use crate::scaling::Rescaling;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Basis {
    /// Kernels, one after the other, with models of so many numbers.
    Kernels { kernels: Range<usize>, len: usize },
    /// The current kernel of the broadcast's selection, out of a dictionary of so many.
    Selected { among: usize, len: usize },
    /// The inputs themselves: a single linear model.
    Inputs { len: usize },
    /// No models, or none that may be rounded.
    Nothing,
}

impl Basis {
    /// The slots of the models, and how many numbers each has. A kernel that the dictionary doesn't
    /// have is no slot.
    fn slots(&self, broadcast: &Broadcast) -> (Range<usize>, usize) {
        match self {
            Self::Kernels { kernels, len } => (kernels.clone(), *len),
            Self::Selected { among, len } => {
                let current = broadcast.kernels.unwrap_or(FIRST).current as usize;
                let slots = if current < *among { current..current + 1 } else { 0..0 };
                (slots, *len)
            }
            Self::Inputs { len } => (0..1, *len),
            Self::Nothing => (0..0, 1),
        }
    }

    /// Numbers of all models of a broadcast.
    pub(super) fn numbers(&self) -> usize {
        match self {
            Self::Kernels { kernels, len } => kernels.len() * len,
            Self::Selected { len, .. } | Self::Inputs { len } => *len,
            Self::Nothing => 0,
        }
    }

    /// Appends what the numbers of a broadcast are, as far as there are so many.
    pub(super) fn sections(&self, broadcast: &Broadcast, out: &mut Vec<Section>) {
        let (slots, len) = self.slots(broadcast);
        let models = broadcast.numbers.chunks_exact(len);
        out.extend(slots.zip(models).map(|(slot, _)| Section { len, kind: Kind::Model { slot } }));
    }

    /// Takes the models of a broadcast to another scale.
    pub(super) fn transport(&self, broadcast: &mut Broadcast, transport: &Rescaling) {
        let (slots, len) = self.slots(broadcast);
        let models = slots.zip(broadcast.numbers.chunks_exact_mut(len));
        match self {
            Self::Inputs { .. } => models.for_each(|(_, model)| transport.apply_linear(model)),
            _ => models.for_each(|(kernel, model)| transport.apply(kernel, model)),
        }
    }
}
