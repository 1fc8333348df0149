//! The server process: listener, limits, metrics, dashboard.

mod certificates;
pub mod config;
pub mod conversation;
pub mod dashboard;
mod descriptors;
mod difference;
pub mod history_cache;
pub mod hub;
pub mod listener;
pub mod live_settings;
pub mod metrics;
#[cfg(feature = "otlp")]
pub mod otlp;
mod renewal;
pub mod server;
mod signing;
pub mod status;
pub(crate) mod throttle;
mod ticks;

pub use config::ServeSettings;
pub use server::{ServeError, Served, Server, serve};
