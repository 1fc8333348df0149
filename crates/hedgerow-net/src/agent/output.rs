//! [`Output`]: predictions as JSON Lines. A separate thread writes them, so that a slow reader
//! stops the input but never the node.

use std::collections::BTreeMap;
use std::io::Write;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// Lines that may wait to be written.
const MAX_UNWRITTEN: usize = 64;

/// How long the end waits for a reader that is slow.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// How often the end checks whether everything is written.
const FLUSH_POLL: Duration = Duration::from_millis(2);

/// The result of a line.
#[derive(Debug, Serialize)]
pub struct Written<'a> {
    /// Its number.
    pub line: u64,
    /// The id that it had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
    /// What was predicted from it.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Predicted>,
    /// The label that it had, or several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Shown>,
    /// Rows that must come before one like it makes a sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for_rows: Option<usize>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A prediction as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// ŷ.
    pub prediction: Shown,
    /// The probability of each class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probabilities: Option<BTreeMap<String, f32>>,
    /// The round of the model.
    pub round: u64,
    /// Whether there was a model.
    pub known: bool,
    /// The interval in which the label is expected, if enough is known.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Ends>,
}

/// Lower and upper ends of intervals, for each target as the prediction is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ends {
    /// Their lower ends.
    pub lower: Shown,
    /// Their upper ends.
    pub upper: Shown,
}

/// Labels, or predictions of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Shown {
    /// Of one target.
    Number(f32),
    /// Of several targets.
    Numbers(Vec<f32>),
    /// A class.
    Class(String),
}

/// Where predictions go.
#[derive(Debug)]
pub struct Output(Option<Writer>);

#[derive(Debug)]
struct Writer {
    lines: mpsc::Sender<Vec<u8>>,
    thread: JoinHandle<()>,
}

impl Output {
    /// Predictions are dropped.
    pub fn none() -> Self {
        Self(None)
    }

    /// Standard output.
    pub fn standard() -> Self {
        Self::to(std::io::stdout())
    }

    /// Anything that can be written to.
    pub fn to(mut target: impl Write + Send + 'static) -> Self {
        let (lines, mut unwritten) = mpsc::channel::<Vec<u8>>(MAX_UNWRITTEN);
        let thread = std::thread::spawn(move || {
            while let Some(line) = unwritten.blocking_recv() {
                let outcome = target.write_all(&line).and_then(|()| target.flush());
                if let Err(error) = outcome {
                    tracing::warn!("predictions can't be written any more: {error}");
                    break;
                }
            }
        });
        Self(Some(Writer { lines, thread }))
    }

    /// Waits until there is room for another line.
    pub async fn has_room(&self) {
        if let Some(writer) = &self.0 {
            // A closed output accepts everything.
            _ = writer.lines.reserve().await;
        }
    }

    /// Writes a line. One that there is no room for is lost: ask [`Output::has_room`] before.
    pub fn write(&self, line: &Written<'_>) {
        let Some(writer) = &self.0 else { return };
        if let Ok(mut text) = serde_json::to_vec(line) {
            text.push(b'\n');
            _ = writer.lines.try_send(text);
        }
    }

    /// Waits a limited time until everything is written.
    pub async fn finish(self) {
        let Some(Writer { lines, thread }) = self.0 else { return };
        drop(lines);
        let is_written = tokio::task::spawn_blocking(move || {
            let deadline = Instant::now() + FLUSH_TIMEOUT;
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(FLUSH_POLL);
            }
            thread.is_finished()
        });
        if !is_written.await.unwrap_or(false) {
            tracing::warn!("the last predictions were not read by anybody");
        }
    }
}
