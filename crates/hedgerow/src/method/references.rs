//! Descriptions of references: learning in one place, the best function in hindsight, and trivial
//! forecasts. They have no part on nodes or server; [`crate::baseline`] computes them.

use super::info::{Dash, FeatureKind, Look, MethodInfo, Reference, Role};

/// Central learning, sample by sample.
pub(super) static CENTRAL: MethodInfo = MethodInfo {
    name: "central",
    title: "Central",
    reference: Some(Reference::Central),
    summary: "all samples in one place, learned one by one",
    role: Role::Central,
    look: Look::dashed([0xcc, 0x79, 0xa7]),
    memory: |_| 0,
    ..MethodInfo::BASE
};

/// Central learning, a round at a time.
pub(super) static CENTRAL_BATCH: MethodInfo = MethodInfo {
    name: "central-batch",
    title: "Central, in batches",
    reference: Some(Reference::CentralBatch),
    summary: "all samples in one place, learned a round at a time",
    look: Look::dashed([0xe6, 0x9f, 0x00]),
    ..CENTRAL
};

/// The best fixed function.
pub(super) static HINDSIGHT: MethodInfo = MethodInfo {
    name: "hindsight",
    title: "Hindsight",
    reference: Some(Reference::Hindsight),
    summary: "the best fixed function of all samples, known only afterwards",
    role: Role::Hindsight,
    look: Look::dashed([0x1a, 0x1a, 0x1a]),
    memory: |_| 0,
    ..MethodInfo::BASE
};

/// A node's last label.
pub(super) static LAST: MethodInfo = MethodInfo {
    name: "last",
    title: "Last value",
    reference: Some(Reference::LastLabel),
    summary: "the node's last label",
    role: Role::Trivial,
    look: Look { colour: [0x5f, 0x65, 0x6d], dash: Dash::Dots },
    features: FeatureKind::Nothing,
    memory: |_| 16,
    ..MethodInfo::BASE
};

/// The mean of a node's labels.
pub(super) static MEAN: MethodInfo = MethodInfo {
    name: "mean",
    title: "Mean so far",
    reference: Some(Reference::MeanLabel),
    summary: "the mean of the node's labels so far",
    look: Look::dashed([0x8d, 0x93, 0x9b]),
    ..LAST
};

/// The previous label of the whole stream.
pub(super) static PREVIOUS: MethodInfo = MethodInfo {
    name: "previous",
    title: "Previous value",
    reference: Some(Reference::PreviousLabel),
    summary: "the previous label of the whole stream",
    look: Look { colour: [0xa9, 0x8b, 0x5d], dash: Dash::Dots },
    ..LAST
};
