//! Online federated learning without I/O, clocks, threads or hidden randomness.
//!
//! Devices train one prediction model together without collecting their data. They learn from every
//! new reading, and exchange about a hundred numbers per round with a server.
//!
//! A [`Plan`] holds everything a federation agrees on, checked once. It makes a [`Node`] for each
//! device and one [`Server`]. Both are deterministic state machines: you move their messages, over
//! any transport and in any order, and they predict and learn.
//!
//! ```
//! use hedgerow::{Plan, PlanConfig};
//!
//! let plan = Plan::new(PlanConfig::default().method("gr".parse()?).inputs(1).nodes(2))?;
//! let mut server = plan.server();
//! let mut nodes = [plan.node(0), plan.node(1)];
//! for node in &mut nodes {
//!     server.connected(node.id());
//!     node.connected();
//!     for message in server.opening(0, false) {
//!         node.hear(&message)?;
//!     }
//! }
//!
//! for t in 0..300 {
//!     for node in &mut nodes {
//!         // Each device sees its own half of the inputs.
//!         let x = (node.id() as f32 + (t % 20) as f32 / 20.0) / 2.0;
//!         node.learn(&[x], &[(6.0 * x).sin()])?; // the answer is the prediction made before
//!         let from = node.id();
//!         node.speak(false, |message| {
//!             server.accept(from, &message).expect("nodes of the same plan");
//!         });
//!     }
//!     let round = server.round();
//!     server.close_round();
//!     for node in &mut nodes {
//!         for message in server.opening(round, true) {
//!             node.hear(&message)?;
//!         }
//!     }
//! }
//!
//! // The first device also knows the half that it has never seen.
//! let prediction = nodes[0].predict(&[0.9])?.value;
//! assert!((prediction - 5.4f32.sin()).abs() < 0.1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | you want to | use |
//! |---|---|
//! | run many nodes in one process | [`Federation`] |
//! | choose a method | [`method::METHODS`], `"gr".parse()` |
//! | add a method | [`NodeMethod`], [`ServerMethod`], [`method::MethodInfo`] |
//! | add up uploads before the server | [`relay`] |
//! | compute random features alone | [`features::FeatureMap`] |
//! | send fewer bytes | [`codec::Compression`] in the plan |
//! | hide single uploads from the server | [`masking`] |
//!
//! Results are the same bits on every processor and for every number of threads. Messages from the
//! network are checked: a refused message changes nothing, and no number that isn't finite leaves a
//! node or a server. States can be saved and restored at any moment. Single uploads reveal samples
//! to the server: see `docs/privacy.md` of the project.
//!
//! Without the default feature `std` the crate needs `core` and `alloc` alone. It then uses the
//! vector instructions that the build targets, instead of the best that the processor has.

#![no_std]

#[macro_use]
extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod aggregation;
pub mod baseline;
pub mod codec;
pub mod executor;
pub mod features;
pub mod federation;
pub mod importance;
pub mod learning;
pub mod limits;
mod linear_algebra;
pub mod masking;
mod math;
pub mod message;
pub mod method;
pub mod metrics;
pub mod node;
pub mod own_layer;
pub mod plan;
#[cfg(feature = "probe")]
pub mod probe;
pub mod random;
pub mod relay;
pub mod scaling;
pub mod server;
pub mod simd;
pub mod state;
#[cfg(feature = "testing")]
pub mod testing;

pub use federation::Federation;
pub use message::NodeId;
pub use method::{MethodSpec, NodeMethod, ServerMethod};
pub use node::Node;
pub use plan::{Plan, PlanConfig, PlanError};
pub use server::Server;
