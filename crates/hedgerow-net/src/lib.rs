//! Hedgerow over a network: the same state machines as in a simulation, driven by sockets.
//!
//! A server and each of its nodes exchange messages over one long-lived stream ([`transport`]). What
//! they must agree on is a [`Plan`], which the server sends to every node that joins. Without the
//! feature `server`, the crate contains only what a device needs.

pub mod agent;
#[cfg(feature = "server")]
pub mod coordinator;
pub mod duration;
#[cfg(feature = "server")]
pub mod export;
pub mod file;
pub mod hosts;
pub mod learning;
pub mod log;
pub mod pki;
pub mod plan_json;
#[cfg(feature = "server")]
pub mod serve;
pub mod session;
#[cfg(feature = "server")]
pub mod storage;
pub mod transport;

pub use learning::{Learning, Plan, PlanError, Scaling};
