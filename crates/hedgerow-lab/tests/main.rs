//! Integration tests of experiments. `cargo test -p hedgerow-lab --test all runs::` runs one file.

mod answers;
mod classes;
mod common;
mod hostile_streams;
mod layers;
mod live;
mod no_divergence;
mod paper;
mod pictures;
mod refusals;
mod runs;
mod streams;
mod threads;
