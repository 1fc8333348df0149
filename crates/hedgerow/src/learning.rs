//! How a model learns: losses, rates, exponential weights over kernels, and a node's own layer.

pub(crate) mod loss;
mod personal;
mod schedule;
pub mod weights;

pub use loss::{Loss, Objective};
pub use personal::Personal;
pub use schedule::Schedule;
pub use weights::{ExponentialWeights, WeightRule};
