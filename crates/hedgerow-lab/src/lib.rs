//! Experiments: what to run ([`settings`]), on which data ([`data`]), the run itself ([`run`]), and
//! its [`results`]. [`suite`] and [`compare`] make many runs. Data flows one way:
//!
//! ```text
//! TOML + flags ─▶ Settings ─▶ run ─▶ Results ─▶ files
//! ```

pub mod compare;
mod crew;
pub mod drift;
mod grids;
mod intake;
pub mod live;
pub mod measure;
pub mod memory;
pub mod output;
mod plan;
mod player;
pub mod results;
pub mod run;
pub mod settings;
pub mod suite;
mod summary;
pub mod testing;
mod trial;
