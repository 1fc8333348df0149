//! How a model learns: losses, rates, exponential weights over kernels.

pub(crate) mod loss;
mod schedule;
pub mod weights;

pub use loss::{Loss, Objective};
pub use schedule::Schedule;
pub use weights::{ExponentialWeights, WeightRule};
