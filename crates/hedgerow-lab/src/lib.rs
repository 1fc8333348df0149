//! Experiments: streams, runs over trials, results, figures and the report.

pub mod data;
pub mod figures;
pub mod report;
pub mod results;
