//! The log of a program, on standard error. Nobody who logs waits for it.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;
use std::time::Duration;

use serde::Deserialize;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, Registry, fmt};

mod queue;

use queue::Queue;

/// Changes the level of the log that was started.
static FILTER: OnceLock<Handle<Targets, Registry>> = OnceLock::new();

/// Where the lines of the log that was started wait.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// How long the end of a program waits for a log that nobody reads.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Why a log can't be started.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The process has one already.
    #[error(transparent)]
    Second(#[from] TryInitError),
    /// The system gives no thread.
    #[error("can't start the thread that writes the log: {0}")]
    NoThread(#[from] io::Error),
}

/// A log. When it is dropped, all lines so far are written, if somebody reads them.
#[must_use]
#[derive(Debug)]
pub struct Logging(());

impl Drop for Logging {
    fn drop(&mut self) {
        flush();
    }
}

/// Writes all lines so far, if somebody reads them.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(LAST_LINES);
    }
}

/// Lines that were dropped because nobody read them.
pub fn dropped() -> u64 {
    QUEUE.get().map_or(0, Queue::dropped)
}

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
    pub fn start(self) -> Result<Logging, LogError> {
        let gap: queue::Gap = match self.format {
            Format::Text => |lost| format!("{lost} lines of the log were dropped: nobody read it"),
            Format::Json => |lost| {
                let message = "lines of the log were dropped: nobody read it";
                serde_json::json!({ "level": "WARN", "message": message, "lines": lost })
                    .to_string()
            },
        };
        let queue = Queue::start(io::stderr(), gap)?;
        let out = queue.clone();
        let lines = fmt::layer()
            .with_writer(move || out.clone())
            .with_ansi(io::stderr().is_terminal())
            .with_target(false);
        let lines = match self.format {
            Format::Text => lines.boxed(),
            Format::Json => lines.json().flatten_event(true).boxed(),
        };
        let (filter, handle) = reload::Layer::new(filter_of(self.level));
        tracing_subscriber::registry().with(lines.with_filter(filter)).try_init()?;
        FILTER.get_or_init(|| handle);
        QUEUE.get_or_init(|| queue);
        Ok(Logging(()))
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
