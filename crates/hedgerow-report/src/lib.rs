//! Results as figures, tables and pages. Every function is pure: it takes finished
//! [`Results`](hedgerow_lab::results::Results) and returns text. Nothing is run, read or written.

pub mod compare;
pub mod drift;
pub mod figures;
mod page;
pub mod report;
pub mod reproduction;
pub mod run;
mod table;
