//! What an operator sees of a running server: the current [`Status`], the history as [`Point`]s,
//! and the [`Source`] of both.
//!
//! The dashboard and the metrics read nothing else; programs may read it too, as JSON from
//! `/api/status` and `/api/history`.

use serde::{Deserialize, Serialize};

use crate::coordinator::events::Severity;

/// Version of the JSON form of [`Status`]. New fields don't change it.
pub const SCHEMA: u32 = 1;

/// Most nodes that are listed one by one.
pub const MAX_NODES_SHOWN: usize = 1_000;

/// Most columns whose importance is shown, and that have a metric.
pub const MAX_COLUMNS_SHOWN: usize = 100;

/// Most events that are kept, the latest ones.
pub const MAX_EVENTS_SHOWN: usize = 200;

/// Knows the state of the server. It is called about once a second, however many pages are open,
/// and never on a thread that serves connections.
pub trait Source: Send + Sync + 'static {
    /// The current state.
    fn status(&self) -> Status;

    /// The history, oldest first: at most `most` points, evenly spaced if there are more rounds.
    fn history(&self, most: usize) -> Vec<Point>;

    /// Whether nodes can join and rounds can close; if not, why.
    fn is_ready(&self) -> Result<(), String>;
}

/// A server at one moment. Sums are over the whole run, restarts included.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Identity of the run.
    pub run: String,
    /// Name of the method.
    pub method: String,
    /// Random features that a model may have: the paper's budget.
    pub budget: u64,
    /// Wall clock of the server, in milliseconds of Unix time: for people, and for what "ago" means
    /// in [`NodeStatus::last_seen_ms`].
    pub at_ms: u64,
    /// How long this process has been running.
    pub uptime_ms: u64,
    /// The open round.
    pub round: u64,
    /// For how long it has been open.
    pub open_ms: u64,
    /// Uploads taken in it so far.
    pub uploads: u64,
    /// Uploads that would close it, with the nodes that are connected now; `None` if only time
    /// closes rounds.
    pub needed: Option<u64>,
    /// How many nodes the round waits for, in words, while it needs more than are connected.
    #[serde(default)]
    pub shortage: Option<String>,
    /// The rule by which rounds close, in words.
    pub quorum: String,
    /// Nodes with an open stream.
    pub connected: u64,
    /// Nodes that ever joined this run.
    pub nodes_known: u64,
    /// Labelled samples that nodes reported.
    pub samples: u64,
    /// Mean squared error over all of them, in the label's own unit; `None` before the first.
    pub mse: Option<f64>,
    /// The same over the latest rounds.
    pub window_mse: Option<f64>,
    /// How many rounds those are.
    pub window_rounds: u64,
    /// What the error would be if each node always predicted the mean of all its labels; of
    /// classes, its most frequent one. It is from what nodes report for scaling; `None` if they
    /// report nothing, because scales are fixed.
    #[serde(default)]
    pub mean_forecast_mse: Option<f64>,
    /// Changes of the scale so far, the first included; 0 if there is none yet, or scales are
    /// fixed.
    #[serde(default)]
    pub scale_version: u64,
    /// The kernel that predicts in the open round, counted from 0; `None` for methods that select
    /// none.
    pub selected: Option<u32>,
    /// The dictionary, in its order; empty for methods that select no kernel.
    pub kernels: Vec<KernelStatus>,
    /// Rounds closed per second, lately.
    pub rounds_per_second: f64,
    /// Uploads of rounds that had closed, whether dropped or merged.
    pub late: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// Bytes of messages from nodes, with their frames.
    pub messages_up: u64,
    /// Bytes of messages to nodes, with their frames.
    pub messages_down: u64,
    /// Bytes received through sockets, including encryption.
    pub wire_up: u64,
    /// Bytes sent through sockets.
    pub wire_down: u64,
    /// Bytes of messages that the naive extension, one model a kernel, would have received in the
    /// same rounds.
    pub naive_up: u64,
    /// Bytes that it would have sent.
    pub naive_down: u64,
    /// Whether the latest round could be stored.
    pub store_ok: bool,
    /// Whether an operator has paused the run: the open round stays open.
    #[serde(default)]
    pub paused: bool,
    /// Settings that an operator has changed, so that they differ from the file.
    #[serde(default)]
    pub settings_changed: Vec<SettingStatus>,
    /// The latest events, the oldest first; at most [`MAX_EVENTS_SHOWN`].
    #[serde(default)]
    pub events: Vec<EventStatus>,
    /// Nodes one by one, connected ones first; at most [`MAX_NODES_SHOWN`].
    pub nodes: Vec<NodeStatus>,
    /// How many more there are.
    pub nodes_left_out: u64,
    /// Importance of columns, over all nodes; none unless the plan shares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub importance: Option<ImportanceStatus>,
}

/// A setting that differs from the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingStatus {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Its value in the file.
    pub in_file: String,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventStatus {
    /// Counted from 1 since the server started.
    pub number: u64,
    /// When, in milliseconds of Unix time.
    pub at_ms: u64,
    /// What, in a word: [`Event::kind`](crate::coordinator::events::Event::kind).
    pub kind: String,
    /// How urgent it is.
    pub severity: Severity,
    /// What, in a sentence.
    pub text: String,
    /// The fields of the event.
    pub details: serde_json::Value,
}

/// How much the loss grows without each column.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ImportanceStatus {
    /// The most important first; at most [`MAX_COLUMNS_SHOWN`].
    pub columns: Vec<ColumnStatus>,
    /// How many more there are.
    pub left_out: u64,
    /// The last round of each window of time.
    pub rounds: Vec<u64>,
    /// Whether increases are of the squared error, in the label's own unit. If not, they are of the
    /// loss in the scaled unit.
    pub has_label_unit: bool,
}

/// The importance of a column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnStatus {
    /// Its name, or `x[0]` and so on.
    pub name: String,
    /// Mean increase over the whole run.
    pub increase: f64,
    /// The same over about the last 256 rounds.
    pub recent: f64,
    /// How many increases were measured.
    pub measured: u64,
    /// The mean in each window; none where nothing was measured.
    pub windows: Vec<Option<f64>>,
}

/// A kernel of the dictionary, over the latest [`Status::window_rounds`] rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelStatus {
    /// For people: its law and its width.
    pub name: String,
    /// Share of the rounds in which it was selected.
    pub selected_share: f64,
    /// Share of the votes that were for it.
    pub vote_share: f64,
}

/// What a node does, or may not do. Of several, the one that an operator should know first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NodeState {
    /// It has an open stream.
    Connected,
    /// It has an open stream and misses rounds: they no longer wait for it.
    Silent,
    /// Its uploads look wrong: see [`NodeStatus::reason`].
    Suspect,
    /// An operator has put it in quarantine: it contributes nothing. It may be connected or not.
    Quarantined,
    /// An operator has banned it: it can't join.
    Banned,
    /// Its certificate is revoked: it can't join.
    Revoked,
    /// It joined before and is not connected.
    Away,
}

impl NodeState {
    /// The state in a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Silent => "silent",
            Self::Suspect => "suspect",
            Self::Quarantined => "quarantined",
            Self::Banned => "banned",
            Self::Revoked => "revoked",
            Self::Away => "away",
        }
    }
}

/// A node as the server knows it. Sums are over the whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its number in the run.
    pub number: u32,
    /// The name in its certificate.
    pub name: String,
    /// What it does, or may not do.
    pub state: NodeState,
    /// Whether it has an open stream.
    #[serde(default)]
    pub connected: bool,
    /// Why it is in this state, in words; empty if the state says it all.
    #[serde(default)]
    pub reason: String,
    /// When its latest message came, in milliseconds of Unix time.
    pub last_seen_ms: u64,
    /// When its latest labelled samples came; `None` if none came since the server started.
    #[serde(default)]
    pub last_sample_ms: Option<u64>,
    /// Round of its latest upload.
    pub round: u64,
    /// Labelled samples that it reported.
    pub samples: u64,
    /// Its own mean squared error; `None` before its first sample.
    pub mse: Option<f64>,
    /// The same over its latest uploads.
    pub window_mse: Option<f64>,
    /// What its error would be if it always predicted the mean of all its labels: see
    /// [`Status::mean_forecast_mse`].
    #[serde(default)]
    pub mean_forecast_mse: Option<f64>,
    /// Bytes of its messages.
    pub bytes_up: u64,
    /// Bytes of messages to it.
    pub bytes_down: u64,
    /// Uploads of it that were taken.
    pub uploads: u64,
    /// Messages of it that were refused.
    pub refused: u64,
    /// The program and version that it states.
    pub software: String,
    /// The address that it connects from; empty if it is away.
    pub address: String,
}

/// The state right after a round closed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The round that closed.
    pub round: u64,
    /// When, in milliseconds of Unix time.
    pub at_ms: u64,
    /// Mean squared error over all samples until then.
    pub mse: Option<f64>,
    /// The same over the rounds just before.
    pub window_mse: Option<f64>,
    /// The kernel that predicted in this round.
    pub selected: Option<u32>,
    /// Uploads that were taken in this round.
    pub uploads: u64,
    /// Bytes of messages from nodes, until then.
    pub bytes_up: u64,
    /// Bytes of messages to nodes, until then.
    pub bytes_down: u64,
}
