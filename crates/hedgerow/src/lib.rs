//! Online federated learning with many kernels: the mathematics, and nothing else.
//!
//! Devices that can't share their data learn one nonlinear predictor together, sample by sample, at
//! the wire cost of a single small model. This crate has no I/O, clock, threads or global
//! randomness. A [`Plan`] is what everyone agrees on; it makes [`Node`]s, which predict and learn,
//! and a [`Server`], which combines what nodes upload. A [`Federation`] drives them in one process.
//!
//! ```
//! use hedgerow::{Federation, Plan, PlanConfig};
//! use hedgerow::federation::{Contact, NodeRound};
//!
//! // A budget of 100 numbers per message, for two nodes.
//! let plan = Plan::new(PlanConfig::default().budget(100).nodes(2).seed(7))?;
//! let mut federation = Federation::new(&plan);
//!
//! let mut buffer = vec![0.0; plan.width()];
//! let mut last_error = 0.0;
//! for t in 0..600 {
//!     let x = (t % 20) as f32 / 20.0;
//!     let z = plan.map().map_batch(&[x], &mut buffer);
//!     let y = [(6.0 * x).sin()];
//!     let visits = [0, 1].map(|node| NodeRound { node, z, y: &y, contact: Contact::Full });
//!     federation.round(&visits, |prediction| last_error = prediction.value - prediction.label)?;
//! }
//! assert!(last_error.abs() < 0.3);
//! assert_eq!(federation.traffic().numbers_up, 2 * 600 * 99); // a model of 98 numbers and a vote
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod aggregation;
pub mod baseline;
pub mod codec;
pub mod executor;
pub mod features;
pub mod federation;
pub mod learning;
pub mod limits;
mod linear;
mod math;
pub mod message;
pub mod method;
pub mod metrics;
pub mod node;
pub mod plan;
#[cfg(feature = "probe")]
pub mod probe;
pub mod random;
pub mod relay;
pub mod scaling;
pub mod server;
pub mod simd;
pub mod state;

pub use federation::Federation;
pub use message::NodeId;
pub use method::{Method, NodeMethod, ServerMethod, Setup, SetupConfig, SetupError};
pub use node::Node;
pub use plan::{Plan, PlanConfig, PlanError};
pub use server::Server;
