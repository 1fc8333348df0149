//! A real server over loopback, two honest nodes that keep its rounds going, and all kinds of
//! people who mean no good. Whatever they try is refused, counted and logged, and the honest rounds
//! go on meanwhile.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod crowds;
mod house;
mod messages;
mod people;
mod raw;
mod secrets;
mod words;
