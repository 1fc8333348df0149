//! Experiments: what to run ([`settings`]), on which data ([`data`]), the run itself ([`run`]), and what came of it
//! ([`results`], [`output`], [`figures`], [`report`]). Data flows one way:
//!
//! ```text
//! TOML + flags ─▶ Settings ─▶ run ─▶ Results ─▶ files and figures
//! ```

pub mod data;
pub mod figures;
pub mod output;
mod plan;
pub mod report;
pub mod results;
pub mod run;
pub mod settings;
mod trial;
