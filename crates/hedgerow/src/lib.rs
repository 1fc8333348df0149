//! Online federated learning with many kernels: the mathematics, and nothing else.
//!
//! Devices that can't share their data learn one nonlinear predictor together, sample by sample, at
//! the wire cost of a single small model. This crate has no I/O, clock, threads or global
//! randomness: a [`FeatureMap`] turns samples into features, a [`NodeMethod`] predicts and learns
//! from them, a [`ServerMethod`] combines what nodes upload, and a [`Federation`] drives both in
//! one process.
//!
//! ```
//! use hedgerow::{Federation, Method, Setup, SetupConfig};
//! use hedgerow::features::{Amplitude, Draw, FeatureMap, FeatureSpec, Kernel};
//! use hedgerow::federation::{Contact, NodeRound};
//!
//! let frequencies = Method::MkOfl.frequencies(100)?; // what a budget of 100 numbers per message allows
//! let map = FeatureMap::new(&FeatureSpec {
//!     kernels: Kernel::paper_dictionary(),
//!     draw: Draw::Independent,
//!     inputs: 1,
//!     frequencies,
//!     seed: 7,
//!     amplitude: Amplitude::Normalised,
//! })?;
//! let setup = Setup::try_from(SetupConfig { nodes: 2, frequencies, ..SetupConfig::default() })?;
//! let mut federation = Federation::new(Method::MkOfl, &setup);
//!
//! let mut buffer = vec![0.0; map.width()];
//! let mut last_error = 0.0;
//! for t in 0..600 {
//!     let x = (t % 20) as f32 / 20.0;
//!     let z = map.map(&[x], &mut buffer);
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
