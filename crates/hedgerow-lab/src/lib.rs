//! Experiments: what to run ([`settings`]), on which data ([`data`]), the run itself ([`run`]), and
//! its [`results`]. [`suite`] and [`compare`] make many runs. Data flows one way:
//!
//! ```text
//! TOML + flags ─▶ Settings ─▶ run ─▶ Results ─▶ files
//! ```

pub mod compare;
pub mod drift;
mod grids;
pub mod live;
pub mod measure;
pub mod memory;
mod method_run;
pub mod output;
mod parallelism;
mod preprocessor;
pub mod results;
mod round_generator;
pub mod run;
pub mod settings;
pub mod suite;
mod summary;
pub mod testing;
mod trial;
