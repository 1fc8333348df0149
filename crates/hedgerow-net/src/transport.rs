//! How messages travel between a node and a server: gRPC over HTTP/2.

pub mod client;
mod connect_error;
pub mod counted;
pub mod protocol;
#[cfg(feature = "server")]
pub mod service;
mod watched;
