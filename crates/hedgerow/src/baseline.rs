//! What federated methods are compared with: learning in one place and the best fixed function in
//! hindsight.

mod hindsight;
pub(crate) mod omkl;

pub use hindsight::{BestFunction, Hindsight};
pub use omkl::Omkl;
