//! A real server over loopback with two honest nodes, and attackers of all kinds. Every attack is
//! refused, counted and logged, and honest rounds continue meanwhile.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod load;
mod messages;
mod nodes;
mod raw;
mod secrets;
pub(crate) mod server;
mod text;
