//! Every bound of the core, in one place.

/// Largest size of a label that a node learns from.
pub const MAX_LABEL: f32 = 1e12;

/// Largest norm of a model: C of the paper's second assumption. Longer ones are shortened to it,
/// which excludes overflow.
pub const MAX_NORM: f32 = 1e15;

/// Largest size of a number in a message.
pub const MAX_NUMBER: f32 = 1e30;

/// Saved states whose rounds or samples have been counted this far are refused: counting on could
/// overflow.
pub(crate) const LAST_COUNT: u64 = 1 << 62;

/// Most nodes of a federation: ids have 32 bits.
pub const MAX_NODES: usize = u32::MAX as usize;

/// Most numbers in a sample.
pub const MAX_INPUTS: usize = 10_000;

/// Most classes of a label.
pub const MAX_CLASSES: usize = 100;

/// Most labels of a sample.
pub const MAX_OUTPUTS: usize = 1_000;

/// Most features of a sample: kernels times frequencies times two.
pub const MAX_WIDTH: usize = 1 << 20;

/// Largest budget of numbers per upload.
pub const MAX_BUDGET: usize = 100_000;

/// Bytes for samples that a node keeps, at most.
pub const MAX_MEMORY: usize = 1 << 30;

/// Longest id of a prediction that waits for its label, in bytes.
pub const MAX_ID: usize = 256;

/// Largest scale in a message, in bytes.
pub const MAX_SCALE_BYTES: usize = 1 << 20;

/// Most samples of a node that wait for the next round, or for the first scale. Beyond it the
/// oldest is learned in the current round, or forgotten if there is no scale.
pub const MAX_HELD: usize = 256;

/// Largest size of a feature.
pub const MAX_FEATURE: f32 = 32.0;

/// Largest size of a scaled input or label.
pub const MAX_SCALED: f32 = 8.0;

/// Most features of a dictionary for any budget, because sums grow with their square.
pub const MAX_DICTIONARY: usize = 1024;

/// Most nodes whose reports a server keeps.
pub const MAX_REPORTING: usize = 1 << 20;

/// Largest number of samples in a report.
pub const MAX_REPORTED: f64 = 1e15;

/// Largest increase of the loss that a measurement of a column's importance counts as where it is
/// shared, in the scaled unit.
pub const MAX_INCREASE: f32 = 1e6;

/// Most measurements of a column that an upload tells of: as many as f32 can count.
pub const MAX_MEASURED: u32 = 1 << 24;

/// Largest size of a number that follows from uploads or samples: squares of numbers in messages.
pub(crate) const MAX_SUM: f64 = 1e60;

/// Largest size of a log-weight or of a sum of losses.
pub(crate) const MAX_LOSS: f64 = 1e300;

/// Bytes for samples that a node keeps, unless a plan says otherwise.
pub const DEFAULT_MEMORY: usize = 1_000_000;
