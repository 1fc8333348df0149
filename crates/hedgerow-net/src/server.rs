//! The server's side: what a device doesn't need.

pub mod config;
pub mod coordinator;
pub mod dashboard;
pub mod history;
pub mod hub;
pub mod listener;
pub mod metrics;
pub mod past;
pub mod rules;
pub mod serve;
pub mod service;
pub mod status;
pub mod store;
mod throttle;

pub use config::ServeSettings;
pub use serve::{ServeError, Served, Server, serve};
