//! How a model learns: losses, rates, exponential weights over kernels; and how wrong it is:
//! intervals around predictions.

mod classes;
mod interval;
pub(crate) mod loss;
mod schedule;
pub mod weights;

pub use classes::{Calibration, Classes};
pub use interval::{BadLevel, ErrorQuantiles, Interval, Level};
pub use loss::{Loss, Objective};
pub use schedule::Schedule;
pub use weights::{ExponentialWeights, WeightRule};
