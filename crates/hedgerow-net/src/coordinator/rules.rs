//! [`Rules`] by which rounds close, and [`Limits`] to what a node may do.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hedgerow_config::within;
use serde::Deserialize;

use crate::duration::Span;

/// What closes a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// Nodes that must have answered.
    pub quorum: Quorum,
    /// No round closes with fewer uploads.
    pub least: usize,
    /// How long a round waits for others after its first answer.
    pub deadline: Option<Duration>,
    /// A fixed interval. If set, rounds close only at it, not by quorum or deadline.
    pub cadence: Option<Duration>,
    /// How many deadlines in a row a node may miss before rounds don't wait for it; any number if
    /// none.
    pub silent_after: Option<u32>,
    /// How uploads for closed rounds are handled.
    pub late: Late,
}

impl Rules {
    /// In words, for people.
    pub fn describe(&self) -> String {
        if let Some(cadence) = self.cadence {
            return format!("every {}", Span(cadence));
        }
        match self.deadline {
            Some(deadline) => format!("{}, or {} after the first", self.quorum, Span(deadline)),
            None => self.quorum.to_string(),
        }
    }
}

/// How many nodes must have answered.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "Written")]
pub enum Quorum {
    /// A number of nodes, connected or not.
    Count(usize),
    /// A share of the connected nodes.
    Share(f64),
}

/// A quorum in settings: `20`, `"20"`, `"80%"` or `"all"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Count(usize),
    Text(String),
}

/// Text that isn't a quorum. The message states what it must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"all\", a share such as \"80%\" (more than 0% and at most 100%), or a number of nodes from 1"
)]
pub struct NotAQuorum;

impl FromStr for Quorum {
    type Err = NotAQuorum;

    fn from_str(text: &str) -> Result<Self, NotAQuorum> {
        let share = |percent: &str| {
            percent.trim().parse().ok().filter(|share| *share > 0.0 && *share <= 100.0)
        };
        let quorum = match text.strip_suffix('%') {
            _ if text == "all" => Some(Self::Share(1.0)),
            Some(percent) => share(percent).map(|percent: f64| Self::Share(percent / 100.0)),
            None => text.parse().ok().filter(|count| *count > 0).map(Self::Count),
        };
        quorum.ok_or(NotAQuorum)
    }
}

impl TryFrom<Written> for Quorum {
    type Error = NotAQuorum;

    fn try_from(written: Written) -> Result<Self, NotAQuorum> {
        match written {
            Written::Count(count) => count.to_string().parse(),
            Written::Text(text) => text.parse(),
        }
    }
}

impl fmt::Display for Quorum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(1) => write!(out, "1 node"),
            Self::Count(count) => write!(out, "{count} nodes"),
            Self::Share(1.0) => write!(out, "all connected nodes"),
            Self::Share(share) => write!(out, "{}% of the connected nodes", 100.0 * share),
        }
    }
}

impl Quorum {
    /// The number of answers that fulfils it.
    pub fn needed(self, connected: usize) -> usize {
        match self {
            Self::Count(count) => count,
            // A little less, so that 70% of 10 are 7 in spite of rounding.
            Self::Share(share) => ((share * connected as f64 - 1e-9).ceil() as usize).max(1),
        }
    }
}

/// How late uploads are handled. All are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// They are dropped.
    Drop,
    /// An upload counts in the open round if it is not too old, its node has none there, uploads
    /// are models, and the open round asks for the same kernel in the same scale.
    Merge {
        /// The greatest age in rounds.
        rounds: u64,
    },
}

/// What a node may do at most.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Limits {
    /// C: the norm of an uploaded model. It depends on the plan, so it is set afterwards.
    #[serde(skip)]
    pub norm: f32,
    /// Nodes that a run may have: at most as many as the core keeps reports of.
    #[serde(deserialize_with = "within::<1, 1_048_576, _, _>")]
    pub nodes: u32,
    /// Messages a second from one node.
    #[serde(deserialize_with = "within::<1, 100_000_000, _, _>")]
    pub messages_per_second: u32,
    /// Bad messages in a row, after which a stream ends.
    #[serde(deserialize_with = "within::<1, 100_000_000, _, _>")]
    pub bad_messages: u32,
    /// Bytes of a message; 0 is as many as the plan's largest has.
    #[serde(deserialize_with = "within::<0, 1_073_741_824, _, _>")]
    pub message_bytes: usize,
    /// Connections in all.
    #[serde(deserialize_with = "within::<1, 100_000_000, _, _>")]
    pub connections: usize,
    /// Connections from one address.
    #[serde(deserialize_with = "within::<1, 100_000_000, _, _>")]
    pub connections_per_address: usize,
    /// How long TLS and Hello may take.
    pub handshake: Span,
}

#[cfg(test)]
mod tests {
    use hedgerow::limits::MAX_NORM;

    use super::*;

    impl Default for Rules {
        fn default() -> Self {
            let quorum = Quorum::Share(1.0);
            let (deadline, cadence, silent_after) = (None, None, None);
            Self { quorum, least: 1, deadline, cadence, silent_after, late: Late::Drop }
        }
    }

    impl Default for Limits {
        fn default() -> Self {
            Self {
                norm: MAX_NORM,
                nodes: 100_000,
                messages_per_second: 20_000,
                bad_messages: 10,
                message_bytes: 0,
                connections: 20_000,
                connections_per_address: 2_000,
                handshake: Span(Duration::from_secs(10)),
            }
        }
    }

    #[test]
    fn quorums_are_read_and_told() {
        for (text, quorum, told) in [
            ("all", Quorum::Share(1.0), "all connected nodes"),
            ("80%", Quorum::Share(0.8), "80% of the connected nodes"),
            ("100%", Quorum::Share(1.0), "all connected nodes"),
            ("1", Quorum::Count(1), "1 node"),
            ("20", Quorum::Count(20), "20 nodes"),
        ] {
            assert_eq!(text.parse(), Ok(quorum));
            assert_eq!(quorum.to_string(), told);
        }
        for text in ["", "0", "0%", "101%", "-1", "NaN%", "half", "1.5"] {
            assert!(text.parse::<Quorum>().is_err(), "{text}");
        }
        #[derive(Deserialize)]
        struct Table {
            quorum: Quorum,
        }
        let read = |text: &str| toml::from_str::<Table>(text).map(|table| table.quorum);
        assert_eq!(read("quorum = 7").unwrap(), Quorum::Count(7));
        assert_eq!(read("quorum = \"50%\"").unwrap(), Quorum::Share(0.5));
        assert!(read("quorum = 0").unwrap_err().to_string().contains("from 1"));
    }

    #[test]
    fn shares_are_of_those_who_are_there() {
        let needed = |text: &str, connected| text.parse::<Quorum>().unwrap().needed(connected);
        assert_eq!([0, 1, 9, 10].map(|connected| needed("all", connected)), [1, 1, 9, 10]);
        assert_eq!([1, 2, 3, 10].map(|connected| needed("70%", connected)), [1, 2, 3, 7]);
        assert_eq!(needed("3", 1), 3);
    }

    #[test]
    fn rules_are_told_in_words() {
        let rules = Rules { deadline: Some(Duration::from_secs(5)), ..Rules::default() };
        assert_eq!(rules.describe(), "all connected nodes, or 5s after the first");
        assert_eq!(
            Rules { cadence: Some(Duration::from_millis(250)), ..rules }.describe(),
            "every 250ms"
        );
    }
}
