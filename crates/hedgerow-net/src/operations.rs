//! What an operator may ask of a running server: an [`Action`] by an [`Actor`], with an [`Outcome`]
//! or an [`ActionError`]. All can be written as JSON. `Hub::operate` (`serve/hub/operate.rs`) does
//! them; the Unix socket, the remote access and the dashboard only carry them.

use std::fmt;
use std::path::PathBuf;

use hedgerow_config::ConfigError;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use crate::audit::Entry;
pub use crate::coordinator::records::{Snapshot, Target};
use crate::serve::status::{NodeState, NodeStatus, Status};
use crate::storage::StoreError;

/// Most bytes of a reason.
pub const MAX_REASON: usize = 500;

/// Most entries of the audit log in one answer.
pub const MAX_AUDIT: usize = 1_000;

/// Who asks. The transport has checked it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The name: of a user of the machine, or in the operator's certificate.
    pub name: String,
    /// How the actor was recognised.
    pub via: Via,
}

/// How an actor was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// The server itself.
    Server,
    /// The Unix socket: a user of this machine.
    Socket,
    /// An operator's certificate.
    Certificate,
    /// The login of the dashboard.
    Dashboard,
    /// A command on the server's files.
    Command,
}

impl Actor {
    /// The server itself.
    pub fn server() -> Self {
        Self { name: "server".to_owned(), via: Via::Server }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let via = match self.via {
            Via::Server => return out.write_str(&self.name),
            Via::Socket => "socket",
            Via::Certificate => "certificate",
            Via::Dashboard => "dashboard",
            Via::Command => "command",
        };
        write!(out, "{} ({via})", self.name)
    }
}

/// What is asked for. As JSON: `{"action": "ban", "node": "n7", "reason": "wrong unit"}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Action {
    /// The state of the server.
    Status {},
    /// Nodes one by one.
    Nodes {
        /// Only these.
        #[serde(default)]
        filter: NodeFilter,
        /// In this order.
        #[serde(default)]
        sort: NodeSort,
        /// At most so many; all if it is missing.
        #[serde(default)]
        most: Option<usize>,
    },
    /// Refuses a node, by name, until [`Action::Unban`]. Its stream ends.
    Ban {
        /// Its name. It need not have joined yet.
        node: String,
        /// Why; the node hears it.
        #[serde(default)]
        reason: String,
    },
    /// Lifts a ban.
    Unban {
        /// The node's name.
        node: String,
    },
    /// Ends the stream of a node once. It may join again at once.
    Kick {
        /// The node's name.
        node: String,
    },
    /// The node hears and predicts, but contributes nothing, and rounds don't wait for it.
    Quarantine {
        /// Its name.
        node: String,
        /// Why.
        #[serde(default)]
        reason: String,
    },
    /// Ends a quarantine.
    Release {
        /// The node's name.
        node: String,
    },
    /// Keeps the open round open, until [`Action::Resume`].
    Pause {},
    /// Lets rounds close again.
    Resume {},
    /// Rounds that [`Action::Rollback`] can go back to.
    Snapshots {},
    /// Sets the run back.
    Rollback {
        /// To where.
        to: Target,
    },
    /// Drops the scale and all reports: nodes agree on a new one.
    ResetScale {},
    /// Changes a setting without a restart. The change stays, also over restarts, until it is
    /// taken back.
    Set {
        /// The key, as in `serve.toml`: `rounds.quorum`.
        key: String,
        /// The value, as in `--set`; without one the setting is again that of the file.
        #[serde(default)]
        value: Option<String>,
    },
    /// Copies the store while the server runs, and checks the copy.
    Backup {
        /// The new file; a relative path is one in the store's folder.
        path: PathBuf,
    },
    /// Removes a node that is not connected from tables and status. If the name joins again, it is
    /// a new node.
    Forget {
        /// The node's name.
        node: String,
    },
    /// The audit log.
    Audit {
        /// The first entry; the latest ones if it is missing.
        #[serde(default)]
        from: Option<u64>,
        /// At most so many, and at most [`MAX_AUDIT`].
        #[serde(default)]
        most: Option<usize>,
    },
}

impl Action {
    /// Whether it changes something.
    pub fn is_change(&self) -> bool {
        !matches!(
            self,
            Self::Status {} | Self::Nodes { .. } | Self::Snapshots {} | Self::Audit { .. }
        )
    }
}

/// Which nodes are listed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeFilter {
    /// In this state.
    pub state: Option<NodeState>,
    /// With this text in their name.
    pub name: Option<String>,
}

/// In which order nodes are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeSort {
    /// By number.
    #[default]
    Number,
    /// By name.
    Name,
    /// The largest recent error first.
    Error,
    /// Those first that were seen longest ago.
    Seen,
    /// Those first whose last sample came longest ago.
    Sample,
    /// Those first with the most samples.
    Samples,
    /// Those first with the most refused messages.
    Refused,
}

/// What came of an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Outcome {
    /// The state of the server.
    Status(Box<Status>),
    /// Nodes.
    Nodes {
        /// Those that were asked for.
        nodes: Vec<NodeStatus>,
        /// How many more there are.
        left_out: u64,
    },
    /// Rounds that can be gone back to, the oldest first.
    Snapshots {
        /// Each with the time at which it was stored.
        snapshots: Vec<Snapshot>,
    },
    /// The run was set back.
    RolledBack {
        /// The round that was open.
        from: u64,
        /// The round that is open now.
        to: u64,
    },
    /// A setting was changed.
    Set {
        /// Its key.
        key: String,
        /// What it was.
        before: String,
        /// Its value from now on.
        now: String,
    },
    /// The store was copied.
    BackedUp {
        /// The new file.
        path: PathBuf,
        /// The round that is open in it.
        round: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// Entries of the audit log, in order.
    Audit {
        /// The entries.
        entries: Vec<Entry>,
        /// The number of the latest entry of the log.
        latest: u64,
    },
    /// Everything else, in a sentence.
    Done {
        /// The sentence.
        message: String,
    },
}

/// Why an action was not done. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ActionError {
    /// No node of this name has joined.
    #[error("no node named {node:?} has joined this run")]
    NoSuchNode {
        /// The name.
        node: String,
    },
    /// A name that no node can have.
    #[error(transparent)]
    BadName(#[from] crate::pki::identity::BadName),
    /// The node has no stream.
    #[error("node {node:?} is not connected")]
    NotConnected {
        /// The name.
        node: String,
    },
    /// The node has a stream.
    #[error("node {node:?} is connected: ban it or revoke its certificate first")]
    Connected {
        /// The name.
        node: String,
    },
    /// There is nothing to take back.
    #[error("node {node:?} is not {state}")]
    NotSo {
        /// The name.
        node: String,
        /// What it would have to be.
        state: &'static str,
    },
    /// It is so already.
    #[error("node {node:?} is {state} already")]
    AlreadySo {
        /// The name.
        node: String,
        /// The state that the node has already.
        state: &'static str,
    },
    /// The run is paused, or not.
    #[error("the run is {0} already")]
    Already(&'static str),
    /// The reason is too long.
    #[error("a reason may have {MAX_REASON} bytes, but has {found}")]
    Reason {
        /// Its bytes.
        found: usize,
    },
    /// The plan has no scale that nodes agree on.
    #[error("the nodes of this run don't agree on scales: there is nothing to set back")]
    NoScale,
    /// The setting can't be changed while the server runs.
    #[error("{key} can't be changed while the server runs; these can: {}", known.join(", "))]
    Fixed {
        /// The key.
        key: String,
        /// Keys that can be changed.
        known: &'static [&'static str],
    },
    /// The value is refused, in the words of `hedgerow serve`.
    #[error(transparent)]
    Setting(#[from] ConfigError),
    /// The same as in the file.
    #[error("{key} is that of the file already")]
    NotChanged {
        /// The key.
        key: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server is shutting down.
    #[error("the server is going down")]
    GoingDown,
}

impl ActionError {
    /// What went wrong, in a word that never changes.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NoSuchNode { .. } => "no-such-node",
            Self::BadName(_) => "bad-name",
            Self::NotConnected { .. } => "not-connected",
            Self::Connected { .. } => "connected",
            Self::NotSo { .. } => "not-so",
            Self::AlreadySo { .. } | Self::Already(_) => "already-so",
            Self::Reason { .. } => "bad-reason",
            Self::NoScale => "no-scale",
            Self::Fixed { .. } => "fixed",
            Self::Setting(_) => "bad-setting",
            Self::NotChanged { .. } => "not-changed",
            Self::Store(StoreError::NoSnapshot { .. }) => "no-snapshot",
            Self::Store(StoreError::Exists { .. }) => "exists",
            Self::Store(_) => "store",
            Self::GoingDown => "going-down",
        }
    }

    /// Whether the server failed, rather than that something impossible was asked for.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Store(error) => {
                !matches!(error, StoreError::NoSnapshot { .. } | StoreError::Exists { .. })
            }
            Self::GoingDown => true,
            _ => false,
        }
    }
}

impl Serialize for ActionError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("ActionError", 2)?;
        object.serialize_field("error", self.kind())?;
        object.serialize_field("message", &self.to_string())?;
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, to_string};

    use super::*;

    #[test]
    fn actions_are_read_from_json() {
        for (text, action) in [
            (r#"{"action":"status"}"#, Action::Status {}),
            (
                r#"{"action":"ban","node":"n7","reason":"wrong unit"}"#,
                Action::Ban { node: "n7".into(), reason: "wrong unit".into() },
            ),
            (
                r#"{"action":"rollback","to":{"round":7}}"#,
                Action::Rollback { to: Target::Round(7) },
            ),
            (
                r#"{"action":"nodes","filter":{"state":"connected"},"sort":"error"}"#,
                Action::Nodes {
                    filter: NodeFilter { state: Some(NodeState::Connected), name: None },
                    sort: NodeSort::Error,
                    most: None,
                },
            ),
            (
                r#"{"action":"set","key":"rounds.quorum","value":"80%"}"#,
                Action::Set { key: "rounds.quorum".into(), value: Some("80%".into()) },
            ),
        ] {
            assert_eq!(from_str::<Action>(text).unwrap(), action, "{text}");
            assert_eq!(from_str::<Action>(&to_string(&action).unwrap()).unwrap(), action);
        }
        for text in [
            "{}",
            r#"{"action":"reboot"}"#,
            r#"{"action":"ban"}"#,
            r#"{"action":"kick","node":"a","also":"b"}"#,
            r#"{"action":"rollback","to":{"round":-1}}"#,
        ] {
            assert!(from_str::<Action>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn errors_are_told_in_words_and_as_json() {
        let error = ActionError::NotSo { node: "a".into(), state: "banned" };
        assert_eq!(
            to_string(&error).unwrap(),
            r#"{"error":"not-so","message":"node \"a\" is not banned"}"#
        );
        assert!(!error.is_failure() && ActionError::GoingDown.is_failure());
    }
}
