//! The log of a program, on standard error.

use std::io::IsTerminal;
use std::sync::OnceLock;

use serde::Deserialize;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, Registry, fmt};

/// Changes the level of the log that was started.
static FILTER: OnceLock<Handle<Targets, Registry>> = OnceLock::new();

/// Changes the level of this program's log, if it was started.
pub fn set_level(level: Level) {
    if let Some(filter) = FILTER.get() {
        // This fails only when the log is gone.
        _ = filter.reload(filter_of(level));
    }
}

/// The level and format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// The least severe level that is logged.
    pub level: Level,
    /// For people or for programs.
    pub format: Format,
}

/// Levels, from the most severe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "they are as everywhere")]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// A line of words.
    Text,
    /// An object a line.
    Json,
}

impl Log {
    /// Starts the log. Only once per process.
    pub fn start(self) -> Result<(), TryInitError> {
        let lines = fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false);
        let lines = match self.format {
            Format::Text => lines.boxed(),
            Format::Json => lines.json().flatten_event(true).boxed(),
        };
        let (filter, handle) = reload::Layer::new(filter_of(self.level));
        tracing_subscriber::registry().with(lines.with_filter(filter)).try_init()?;
        FILTER.get_or_init(|| handle);
        Ok(())
    }
}

/// Hedgerow's own messages at this level; only warnings and errors of libraries.
fn filter_of(level: Level) -> Targets {
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("hedgerow", level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_speak_more_quietly() {
        let filter = filter_of(Level::Trace);
        assert!(filter.would_enable("hedgerow_net::serve::hub", &tracing::Level::TRACE));
        assert!(filter.would_enable("h2::proto", &tracing::Level::WARN));
        assert!(!filter.would_enable("h2::proto", &tracing::Level::INFO));
        let filter = filter_of(Level::Error);
        assert!(!filter.would_enable("h2::proto", &tracing::Level::WARN));
        assert!(!filter.would_enable("hedgerow_net", &tracing::Level::WARN));
    }
}
