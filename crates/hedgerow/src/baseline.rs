//! What federated methods are compared with: learning in one place and the best fixed function in
//! hindsight.

mod hindsight;

pub use crate::method::omkl::Omkl;
pub use hindsight::{BestFunction, Hindsight};
