//! What a node says of a sample, and what it counts.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::learning::Interval;
use crate::method::BadSample;

/// A prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// The prediction of the first output, in the label's own unit. [`super::Node::values`] has
    /// all.
    pub value: f32,
    /// The round whose model it is of.
    pub round: u64,
    /// Whether there is a model: before the first scale is agreed on, the value is the mean label
    /// so far.
    pub known: bool,
    /// The range in which the label of the first output is expected; see [`super::Node::interval`].
    pub interval: Option<Interval>,
    /// The likeliest class, counted from 0, if labels are classes. [`super::Node::probabilities`]
    /// has the probability of each.
    pub class: Option<usize>,
}

/// Why a sample or a label was not taken; nothing changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BadInput {
    /// Too many or too few numbers.
    #[error("a sample has {expected} numbers, but {found} came")]
    WrongLength {
        /// Inputs of the plan.
        expected: usize,
        /// Numbers that came.
        found: usize,
    },
    /// Too many or too few labels.
    #[error(
        "a sample has {expected} label{}, but {found} came",
        if *.expected == 1 { "" } else { "s" }
    )]
    WrongLabels {
        /// Outputs of the plan.
        expected: usize,
        /// Labels that came.
        found: usize,
    },
    /// A label that can't be learned from.
    #[error(transparent)]
    Sample(#[from] BadSample),
    /// A label for a prediction that was never made, has its label already, or was forgotten.
    #[error("no prediction with id {id:?} waits for its label")]
    UnknownId {
        /// The id that came.
        id: String,
    },
    /// An id that is in use.
    #[error("a prediction with id {id:?} already waits for its label")]
    RepeatedId {
        /// The id that came.
        id: String,
    },
    /// An id that is too long.
    #[error("an id has at most {bound} bytes, but this one has {found}")]
    LongId {
        /// Largest length allowed.
        bound: usize,
        /// Length of the id that came.
        found: usize,
    },
}

/// What a node has seen and done.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct NodeTally {
    /// Labels that were learned from.
    pub samples: u64,
    /// Sum of the squared errors of their predictions, in the label's own unit and averaged over
    /// outputs; of classes, the number of wrong ones. Those before the first scale don't count.
    pub squared_error: f64,
    /// How many count in that sum.
    pub scored: u64,
    /// Values that were missing and were filled in.
    pub imputed: u64,
    /// Uploads that were sent.
    pub uploads: u64,
    /// Uploads that the server took.
    pub taken: u64,
    /// Messages that the server refused.
    pub refused: u64,
    /// Predictions that were forgotten because too many others waited for their labels.
    pub forgotten: u64,
}

impl NodeTally {
    /// Mean squared error so far, or share of wrong classes; 0 before the first prediction that
    /// counts.
    pub fn mse(&self) -> f64 {
        if self.scored == 0 { 0.0 } else { self.squared_error / self.scored as f64 }
    }
}

/// How many samples [`super::Node::forget_samples`] removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForgottenSamples {
    /// Samples that its method remembered.
    pub remembered: usize,
    /// Predictions that waited for their labels.
    pub unlabelled: usize,
    /// Samples that waited for the next round or for the first scale.
    pub held: usize,
    /// Samples that the importance of columns was measured with.
    pub compared: usize,
}
