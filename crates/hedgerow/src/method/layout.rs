//! [`Layout`]: what a method's messages consist of. Servers, relays, checks, codecs and memory
//! estimates all read it.

use alloc::vec::Vec;
use core::ops::Range;

use super::Setup;
use crate::aggregation::Aggregation;
use crate::aggregation::Gathering;
use crate::codec::{Kind, Section};
use crate::message::{Broadcast, Selection};
use crate::scaling::Rescaling;

/// The selection of the first round.
pub(super) const FIRST: Selection = Selection { current: 0, next: 0 };

/// What a method's messages consist of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The numbers of an upload.
    pub upload: UploadLayout,
    /// What the server does with the votes of uploads.
    pub votes: Votes,
    /// The models of a broadcast.
    pub broadcast: BroadcastLayout,
}

impl Layout {
    /// Of a method whose messages are the same models up and down.
    pub fn of_models(broadcast: BroadcastLayout) -> Self {
        let (models, len) = broadcast.size();
        let upload = UploadLayout::Models { models, len, losses: 0 };
        Self { upload, votes: Votes::None, broadcast }
    }

    /// Numbers that the server keeps sums of.
    pub fn sums(&self) -> usize {
        match self.votes {
            Votes::Summed { kernels } => kernels * self.upload.part_len(),
            Votes::None | Votes::Counted { .. } => self.upload.part_len(),
        }
    }

    /// Numbers that a compressing sender keeps to correct its rounding later, at most.
    pub fn remembered(&self) -> usize {
        let (models, len) = self.broadcast.all();
        self.upload.max_len().max(models * len)
    }

    /// Numbers of an upload, or of the models of a broadcast, whichever has more.
    pub fn max_len(&self) -> usize {
        let (models, len) = self.broadcast.size();
        self.upload.max_len().max(models * len)
    }

    pub(super) fn gathering(&self, aggregation: Aggregation) -> Gathering {
        let len = self.upload.part_len();
        let gathering = match self.votes {
            Votes::None => Gathering::new(aggregation, len, 0),
            Votes::Counted { kernels } => Gathering::new(aggregation, len, kernels),
            Votes::Summed { kernels } => Gathering::by_vote(aggregation, len, kernels),
        };
        gathering.with_parts(self.upload.parts())
    }
}

/// What the numbers of an upload are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadLayout {
    /// Nodes upload nothing.
    Nothing,
    /// Models, then losses, which are at least zero. Such an upload does no harm if it is of one
    /// of the latest rounds, or missing.
    Models {
        /// Models.
        models: usize,
        /// Numbers of each.
        len: usize,
        /// Losses.
        losses: usize,
    },
    /// Steps of the models of some kernels: of the one that the upload votes for, then of others,
    /// then the indices of the others.
    Steps {
        /// Kernels, at most.
        kernels: usize,
        /// Numbers of each step.
        len: usize,
    },
    /// Sums over a node's whole history, which may be of any size.
    Sums {
        /// Numbers, at most.
        len: usize,
    },
}

impl UploadLayout {
    /// Whether an upload consists of models, which stand for themselves.
    pub fn is_models(&self) -> bool {
        matches!(self, Self::Models { .. })
    }

    /// Whether numbers can grow without bound although models don't.
    pub fn is_unbounded(&self) -> bool {
        matches!(self, Self::Sums { .. })
    }

    /// Numbers of an upload, at most.
    pub fn max_len(&self) -> usize {
        match *self {
            Self::Steps { kernels, len } => (kernels * (len + 1)).saturating_sub(1),
            _ => self.part_len(),
        }
    }

    /// The vectors of an upload whose length is bounded: its models or steps, or all of its sums.
    pub fn vectors<'a>(&self, numbers: &'a [f32]) -> impl Iterator<Item = &'a [f32]> + use<'a> {
        let (len, vectors) = match *self {
            Self::Nothing => (1, 0),
            Self::Models { models, len, .. } => (len, models),
            Self::Steps { len, .. } => (len, (numbers.len() + 1) / (len + 1)),
            Self::Sums { .. } => (numbers.len(), 1),
        };
        numbers.chunks(len.max(1)).take(vectors)
    }

    /// Numbers that are added up as one vector.
    fn part_len(&self) -> usize {
        match *self {
            Self::Nothing => 0,
            Self::Models { models, len, losses } => models * len + losses,
            Self::Steps { len, .. } | Self::Sums { len } => len,
        }
    }

    /// Such vectors in an upload, at most.
    fn parts(&self) -> usize {
        if let Self::Steps { kernels, .. } = *self { kernels } else { 1 }
    }
}

/// What the server does with the votes of uploads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Votes {
    /// Uploads have none.
    None,
    /// It counts them.
    Counted {
        /// Kernels that can be voted for.
        kernels: usize,
    },
    /// It counts them, and adds up the numbers of each kernel's voters apart from the others.
    Summed {
        /// Kernels that can be voted for.
        kernels: usize,
    },
}

/// The models that a broadcast begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BroadcastLayout {
    /// Models of several kernels.
    Kernels {
        /// Which kernels, from 0.
        kernels: Range<usize>,
        /// Numbers of each model.
        len: usize,
    },
    /// The model of the current kernel of the broadcast's selection.
    Selected {
        /// Kernels in the dictionary.
        among: usize,
        /// Numbers of the model.
        len: usize,
    },
    /// A linear model of the inputs.
    Inputs {
        /// Numbers of the model.
        len: usize,
    },
    /// No models, or none that may be rounded or rescaled number by number.
    Nothing,
}

impl BroadcastLayout {
    /// Models of all kernels.
    pub fn every_kernel(setup: &Setup) -> Self {
        Self::Kernels { kernels: 0..setup.kernels(), len: setup.model_len() }
    }

    /// Appends what the numbers of a broadcast are, in order, as far as it has so many. A broadcast
    /// that no server sends has no section of a kernel that doesn't exist.
    pub fn sections(&self, broadcast: &Broadcast, out: &mut Vec<Section>) {
        let (slots, len) = self.slots(broadcast);
        let models = broadcast.numbers.chunks_exact(len);
        out.extend(slots.zip(models).map(|(slot, _)| Section { len, kind: Kind::Model { slot } }));
    }

    /// Models of one broadcast, and numbers of each.
    pub(super) fn size(&self) -> (usize, usize) {
        match self {
            Self::Selected { len, .. } => (1, *len),
            _ => self.all(),
        }
    }

    /// Moves the models of a broadcast to another scale.
    pub(super) fn rescale(&self, broadcast: &mut Broadcast, rescaling: &Rescaling) {
        let (slots, len) = self.slots(broadcast);
        let models = slots.zip(broadcast.numbers.chunks_exact_mut(len));
        match self {
            Self::Inputs { .. } => models.for_each(|(_, model)| rescaling.apply_linear(model)),
            _ => models.for_each(|(kernel, model)| rescaling.apply(kernel, model)),
        }
    }

    /// Models that broadcasts can be of, and numbers of each.
    fn all(&self) -> (usize, usize) {
        match self {
            Self::Kernels { kernels, len } => (kernels.len(), *len),
            Self::Selected { among, len } => (*among, *len),
            Self::Inputs { len } => (1, *len),
            Self::Nothing => (0, 0),
        }
    }

    /// The slots of the models, and how many numbers each has.
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
}
