//! Data, experiments and reports, from outside. `cargo test -p hedgerow-lab --test all runs::` runs
//! one file.

mod catalog;
mod common;
mod fetch;
mod hostile_streams;
mod hostile_tables;
mod layers;
mod live;
mod no_divergence;
mod paper;
mod real_tables;
mod refusals;
mod runs;
mod streams;
mod threads;
