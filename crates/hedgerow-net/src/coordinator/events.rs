//! [`Event`]: what happened that an operator should know. The coordinator and the hub collect
//! events in [`Events`]; whoever drives them logs, counts and shows them.

use std::fmt;

use hedgerow::NodeId;
use hedgerow_data::text::counted;
use serde::{Deserialize, Serialize};

/// Most events that wait to be told. Beyond it the oldest ones stay and the others are counted.
const MAX_WAITING: usize = 1_000;

/// How urgent an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something that is expected to happen.
    Info,
    /// Someone should look at it.
    Warning,
    /// Rounds can't go on, or the run was changed in a way that can't be undone.
    Error,
}

/// Defines [`Event`]: name, kind, severity, fields and sentence of each.
macro_rules! events {
    ($(
        $(#[$doc:meta])*
        $name:ident = $kind:literal, $severity:ident, { $($field:ident: $type:ty),* },
        $text:literal $(, $argument:expr)*;
    )+) => {
        /// What happened. Written as JSON, it is an object of its fields.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(untagged)]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "the sentence of each event says what its fields are")]
        pub enum Event {
            $($(#[$doc])* $name { $($field: $type),* },)+
        }

        impl Event {
            /// All kinds.
            pub const KINDS: &[&str] = &[$($kind),+];

            /// What happened, in a word that never changes.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => $kind,)+
                }
            }

            /// How urgent it is.
            pub fn severity(&self) -> Severity {
                match self {
                    $(Self::$name { .. } => Severity::$severity,)+
                }
            }
        }

        impl fmt::Display for Event {
            #[allow(unused_variables)]
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name { $($field),* } => {
                        write!(out, $text $(, $argument)*)
                    })+
                }
            }
        }
    };
}

events! {
    /// A stream of a node began.
    NodeJoined = "node-joined", Info,
        { node: String, number: NodeId, address: String, is_new: bool },
        "node {node:?} joined from {address}";
    /// A stream of a node ended.
    NodeLeft = "node-left", Info, { node: String, number: NodeId }, "node {node:?} left";
    /// Rounds don't wait for a node.
    NodeSilent = "node-silent", Warning, { node: String, number: NodeId, missed: u32 },
        "node {node:?} missed {} in a row: rounds don't wait for it until it answers",
        counted(*missed, "round");
    /// A silent node has answered.
    NodeBack = "node-back", Info, { node: String, number: NodeId },
        "node {node:?} answers again";
    /// Uploads of a node look wrong.
    NodeSuspect = "node-suspect", Warning, { node: String, number: NodeId, reason: String },
        "uploads of node {node:?} look wrong: {reason}";
    /// Uploads of a node are left out by the aggregation.
    NodeExcluded = "node-excluded", Warning, { node: String, number: NodeId, reason: String },
        "uploads of node {node:?} are left out: {reason}";
    /// Uploads of a node look right again.
    NodeCleared = "node-cleared", Info, { node: String, number: NodeId },
        "uploads of node {node:?} look right again";
    /// All nodes are told to forget the past.
    Forget = "forget", Warning, { round: u64 },
        "the data has changed: nodes are told in round {round} to forget what came before";
    /// The scale has changed; the column is the one that has changed most.
    ScaleChanged = "scale-changed", Info,
        { version: u64, changed: usize, column: String, offset: f64, width: f64 },
        "the nodes have agreed on scale {version}: {} changed, most of all {column:?}, which has \
         the offset {offset} and the width {width} now",
        counted(*changed, "column");
    /// The operator set the scale back.
    ScaleReset = "scale-reset", Warning, { actor: String },
        "{actor} set the scale back: nodes agree on a new one";
    /// A node may not join.
    NodeBanned = "node-banned", Warning, { node: String, reason: String, actor: String },
        "{actor} banned node {node:?}: {reason}";
    /// A node may join again.
    NodeUnbanned = "node-unbanned", Info, { node: String, actor: String },
        "{actor} lifted the ban of node {node:?}";
    /// The operator ended a stream.
    NodeKicked = "node-kicked", Info, { node: String, actor: String },
        "{actor} ended the stream of node {node:?}";
    /// A node no longer contributes.
    NodeQuarantined = "node-quarantined", Warning,
        { node: String, reason: String, actor: String },
        "{actor} put node {node:?} in quarantine: {reason}";
    /// A node contributes again.
    NodeReleased = "node-released", Info, { node: String, actor: String },
        "{actor} released node {node:?} from quarantine";
    /// A node was removed from the tables.
    NodeForgotten = "node-forgotten", Info, { node: String, number: NodeId, actor: String },
        "{actor} removed node {node:?} from the run";
    /// The certificate of a connected node is on the revocation list.
    NodeRevoked = "node-revoked", Warning, { node: String, number: NodeId },
        "the certificate of node {node:?} is revoked: its stream ends";
    /// Rounds no longer close.
    Paused = "paused", Warning, { actor: String, round: u64 },
        "{actor} paused the run: round {round} stays open";
    /// Rounds close again.
    Resumed = "resumed", Info, { actor: String, round: u64 },
        "{actor} resumed the run in round {round}";
    /// The run was set back.
    RolledBack = "rolled-back", Error, { actor: String, from: u64, to: u64 },
        "{actor} set the run back from round {from} to round {to}";
    /// A setting differs from the file.
    SettingChanged = "setting-changed", Info,
        { actor: String, key: String, before: String, now: String },
        "{actor} set {key} to {now} (it was {before})";
    /// The store was copied.
    BackedUp = "backed-up", Info, { actor: String, path: String, round: u64 },
        "{actor} backed the run up to {path} at round {round}";
    /// A round needs more nodes than are connected.
    Shortage = "shortage", Warning, { needed: usize, connected: usize },
        "the round waits for {}, {connected} connected", counted(*needed, "node");
    /// There are enough nodes again.
    ShortageOver = "shortage-over", Info, { needed: usize, connected: usize },
        "enough nodes are connected again: {connected} of {needed} that a round needs";
    /// A round can't be stored.
    StoreFailed = "store-failed", Error, { round: u64, reason: String },
        "round {round} can't be stored, and is tried again until it can: {reason}";
    /// Rounds can be stored again.
    StoreRecovered = "store-recovered", Info, { round: u64 },
        "rounds can be stored again, from round {round} on";
    /// The store is not as it was left.
    StoreSuspect = "store-suspect", Warning, { reason: String }, "{reason}";
    /// A certificate of this server ends soon.
    CertificateEndsSoon = "certificate-ends-soon", Warning, { subject: String, days: i64 },
        "the certificate of {subject} ends in {}", counted(*days, "day");
    /// A certificate was replaced.
    CertificateRenewed = "certificate-renewed", Info, { subject: String },
        "the certificate of {subject} was renewed";
    /// The revocation list can't be read or is too old.
    ListStale = "list-stale", Error, { reason: String },
        "the revocation list is not up to date: {reason}";
    /// The revocation list is up to date again.
    ListFresh = "list-fresh", Info, { number: String },
        "the revocation list is up to date: number {number}";
    /// More happened than could be told.
    EventsLost = "events-lost", Warning, { count: u64 },
        "{} dropped, because too many came at once", counted(*count, "event");
}

/// Events that wait to be told, in bounded memory.
#[derive(Debug, Default)]
pub struct Events {
    waiting: Vec<Event>,
    lost: u64,
}

impl Events {
    /// Adds an event.
    pub fn note(&mut self, event: Event) {
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push(event);
        } else {
            self.lost += 1;
        }
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes all that wait, in order.
    pub fn take(&mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.waiting);
        match std::mem::take(&mut self.lost) {
            0 => {}
            count => events.push(Event::EventsLost { count }),
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_in_words_and_as_json() {
        let event = Event::NodeBanned {
            node: "n\n1".into(),
            reason: "wrong unit".into(),
            actor: "alice".into(),
        };
        assert_eq!(event.kind(), "node-banned");
        assert_eq!(event.severity(), Severity::Warning);
        assert_eq!(event.to_string(), "alice banned node \"n\\n1\": wrong unit");
        let json = serde_json::to_value(&event).unwrap();
        assert_eq!(
            json,
            serde_json::json!({ "node": "n\n1", "reason": "wrong unit", "actor": "alice" })
        );
    }

    #[test]
    fn each_kind_is_one_word_of_its_own() {
        let mut kinds = Event::KINDS.to_vec();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), Event::KINDS.len());
        for kind in kinds {
            assert!(kind.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{kind}");
        }
    }

    #[test]
    fn memory_is_bounded_and_what_is_lost_is_said() {
        let mut events = Events::default();
        for missed in 0..1_500 {
            events.note(Event::NodeSilent { node: "a".into(), number: 0, missed });
        }
        let told = events.take();
        assert_eq!(told.len(), MAX_WAITING + 1);
        assert_eq!(told.last(), Some(&Event::EventsLost { count: 500 }));
        assert!(events.is_empty() && events.take().is_empty());
    }
}
