//! Hedgerow over a network: the same halves as in a simulation, driven by sockets.
//!
//! A server and its nodes speak over one long-lived stream each ([`protocol`]). What they must
//! agree on is a [`Plan`], which the server hands to every node that joins. With the feature
//! `server` off, only what a device needs is left.

pub mod counted;
pub mod duration;
#[cfg(feature = "server")]
pub mod export;
pub mod file;
pub mod hosts;
pub mod identity;
pub mod layers;
pub mod learning;
pub mod log;
pub mod node;
#[cfg(feature = "server")]
pub mod pki;
pub mod protocol;
#[cfg(feature = "server")]
pub mod server;

pub use learning::{Learning, Plan, PlanError, Scaling};
