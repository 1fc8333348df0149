//! Experiments with Hedgerow: settings, runs over several trials, results, and comparisons.
//!
//! | task | module |
//! |---|---|
//! | read and check the settings of a run | [`settings`] |
//! | run trials on known data | [`run`] |
//! | run on a stream that is read once | [`live`] |
//! | read what a run found | [`results`] |
//! | tell whether federating pays | [`worth`] |
//! | estimate the memory of a run | [`memory`] |
//! | rank methods, with intervals and tests | [`compare`] |
//! | repeat the paper's experiments | [`suite`] |
//! | write files that appear complete or not at all | [`output`] |
//!
//! Data flows in one direction:
//!
//! ```text
//! TOML + flags ─▶ Settings ─▶ run ─▶ Results ─▶ files
//! ```
//!
//! All methods of a trial see the same stream and the same random features. Every prediction is
//! scored before its label is learned. Results depend only on the settings and the seed, not on the
//! number of threads. The crate `hedgerow-report` draws figures and pages from results.

mod accuracy;
mod class_meter;
pub mod compare;
pub mod drift;
pub mod given;
mod grids;
mod group_run;
mod importance;
mod learners;
pub mod live;
pub mod measure;
mod measures;
pub mod memory;
mod method_run;
mod model;
pub mod output;
mod parallelism;
pub mod predictions;
mod preprocessor;
pub mod results;
mod role;
mod round_generator;
pub mod run;
mod sampler;
pub mod settings;
pub mod suite;
mod summary;
pub mod testing;
mod trial;
pub mod worth;
