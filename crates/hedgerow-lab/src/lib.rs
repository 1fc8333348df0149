//! Experiments: what to run ([`settings`]), on which data ([`data`]), the run itself ([`run`]), and
//! what came of it ([`results`], [`output`], [`figures`], [`report`], and [`reproduction`] for many
//! runs). Data flows one way:
//!
//! ```text
//! TOML + flags ─▶ Settings ─▶ run ─▶ Results ─▶ files and figures
//! ```

pub mod compare;
mod crew;
pub mod drift;
pub mod figures;
mod grids;
mod intake;
pub mod live;
pub mod memory;
pub mod output;
mod plan;
mod player;
pub mod report;
pub mod reproduction;
pub mod results;
pub mod run;
pub mod settings;
pub mod suite;
mod summary;
mod trial;
