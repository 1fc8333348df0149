//! How a model learns: losses, rates, exponential weights over kernels; and how wrong it is:
//! intervals around predictions.

mod interval;
pub(crate) mod loss;
mod schedule;
pub mod weights;

pub use interval::{BadLevel, ErrorQuantiles, Interval, Level};
pub use loss::{Loss, Objective};
pub use schedule::Schedule;
pub use weights::{ExponentialWeights, WeightRule};
