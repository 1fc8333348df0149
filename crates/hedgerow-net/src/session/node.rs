//! [`NodeSession`]: the node's side of a stream.

use std::time::{Duration, Instant};

use hedgerow::message::{Rejected, ToNode, ToServer};
use hedgerow::{Node, NodeId, Plan};

use super::{ConnectError, FromServer, Hello, OLDEST, VERSION, Versions, Welcome};
use crate::plan_json::{OtherMethods, plan_from_server};

/// How long a node that is in step with the rounds waits for the first scale before it takes
/// another sample: too few samples may have been seen.
const SCALE_WAIT: Duration = Duration::from_secs(2);

/// The Hello of this program.
pub fn hello(name: &str, run: &str) -> Hello {
    Hello {
        protocol: OLDEST,
        newest: VERSION,
        name: name.to_owned(),
        run: run.to_owned(),
        software: concat!("hedgerow-node ", env!("CARGO_PKG_VERSION")).to_owned(),
    }
}

/// What a node has joined.
#[derive(Debug, Clone)]
pub struct Joined {
    /// Identity of the run.
    pub run: String,
    /// Changes whenever the run is set back to an earlier round.
    pub epoch: u64,
    /// The node's number in the run.
    pub number: NodeId,
    /// What is learned.
    pub plan: Plan,
}

impl Joined {
    /// What a node remembers of its run: its identity, and its epoch behind a `~` if it was ever
    /// set back.
    pub fn mark(&self) -> String {
        match self.epoch {
            0 => self.run.clone(),
            epoch => format!("{}~{epoch}", self.run),
        }
    }

    /// Whether a node that remembers this mark belongs to the run.
    pub fn is_of(&self, mark: &str) -> bool {
        mark.split('~').next() == Some(&self.run)
    }

    /// Checks the server's first message. `others` are methods beside the built-in ones.
    pub fn from_first(message: FromServer, others: OtherMethods<'_>) -> Result<Self, ConnectError> {
        match message {
            FromServer::Welcome(welcome) => {
                let Welcome { protocol, run, node: number, learning, newest, epoch } = welcome;
                if !(OLDEST..=VERSION).contains(&protocol) {
                    let (own, update) =
                        (Versions::OWN, if protocol > VERSION { "node" } else { "server" });
                    return Err(ConnectError::Foreign(format!(
                        "it speaks version {protocol}, and this node {own}: update the {update}"
                    )));
                }
                if newest > VERSION {
                    tracing::info!(
                        newest,
                        own = VERSION,
                        "the server speaks a newer version of the protocol than this node: update the node"
                    );
                }
                let plan = plan_from_server(&learning, others)
                    .map_err(|error| ConnectError::Plan(error.to_string()))?;
                Ok(Self { run, epoch, number, plan })
            }
            FromServer::Refusal { reason, .. } => Err(ConnectError::Refused(reason)),
            FromServer::Message(_) => {
                Err(ConnectError::Foreign("its first message is no welcome".to_owned()))
            }
        }
    }
}

/// What a message of the server was.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerNews {
    /// A round opened. `lost_from` is the node's round if the server has lost rounds.
    Round {
        /// The round that the node was in, if it is later.
        lost_from: Option<u64>,
    },
    /// A scale was agreed on.
    Scale,
    /// A message of the node was refused.
    Refused {
        /// The open round.
        round: u64,
        /// Why it was refused.
        reason: String,
    },
}

/// The node's side of a stream after the Welcome: when to answer, and with what.
#[derive(Debug, Clone)]
pub struct NodeSession {
    /// How long the node waits for more samples before it answers a round with what it has; none if
    /// it answers only when it has learned enough.
    patience: Option<Duration>,
    /// When the node answers with what it has.
    answer_at: Option<Instant>,
    /// Until when a node without a scale waits for one before it takes another sample.
    wait_until: Option<Instant>,
    has_heard_round: bool,
}

impl NodeSession {
    /// A new stream of a node.
    pub fn new(node: &mut Node, patience: Option<Duration>) -> Self {
        node.connected();
        Self { patience, answer_at: None, wait_until: None, has_heard_round: false }
    }

    /// After this time the node answers, even without new samples.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = Some(patience);
    }

    /// Whether this stream has told which round is open.
    pub fn has_heard_round(&self) -> bool {
        self.has_heard_round
    }

    /// Whether the node waits for the first scale.
    pub fn awaits_scale(&self) -> bool {
        self.wait_until.is_some()
    }

    /// Takes a message of the server. One that is rejected means that the two sides are out of
    /// step: only a new stream helps.
    pub fn receive(
        &mut self,
        node: &mut Node,
        message: &FromServer,
        now: Instant,
    ) -> Result<ServerNews, Rejected> {
        match message {
            FromServer::Message(message) => {
                let before = node.round();
                node.hear(message)?;
                self.wait_until = None;
                let ToNode::Broadcast(broadcast) = message else { return Ok(ServerNews::Scale) };
                self.has_heard_round = true;
                self.answer_at = self.patience.map(|patience| now + patience);
                Ok(ServerNews::Round { lost_from: (broadcast.round < before).then_some(before) })
            }
            FromServer::Refusal { round, reason } => {
                node.refused();
                Ok(ServerNews::Refused { round: *round, reason: reason.clone() })
            }
            FromServer::Welcome(_) => Err(Rejected::Garbled { what: "a second welcome" }),
        }
    }

    /// When to call [`NodeSession::wake`], if nothing happens before.
    pub fn wake_at(&self) -> Option<Instant> {
        [self.answer_at, self.wait_until].into_iter().flatten().min()
    }

    /// Time has passed. Returns whether the node answers with what it has.
    #[must_use]
    pub fn wake(&mut self, now: Instant) -> bool {
        self.wait_until.take_if(|until| *until <= now);
        self.answer_at.take_if(|at| *at <= now).is_some()
    }

    /// Sends what the node has to say: each message once per round and stream. A node that has
    /// learned too little in this round answers only if `even_so`.
    pub fn speak(
        &mut self,
        node: &mut Node,
        even_so: bool,
        now: Instant,
        mut send: impl FnMut(ToServer),
    ) {
        let is_unscaled = !node.is_scaled();
        let wait_until = &mut self.wait_until;
        node.speak(even_so, |message| {
            if is_unscaled && matches!(message, ToServer::Report(_)) {
                *wait_until = Some(now + SCALE_WAIT);
            }
            send(message);
        });
        if node.awaits_broadcast() {
            self.answer_at = None;
        } else if node.learned() > 0 && self.answer_at.is_none() {
            self.answer_at = self.patience.map(|patience| now + patience);
        }
    }
}
