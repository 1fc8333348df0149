//! [`PartialSum`]: some uploads of a round, added up where they were, and [`Relay`]: who does so
//! between nodes and server.
//!
//! Sums are exact and votes are counted, so it doesn't matter who adds what: a tree of relays of
//! any shape gives the server the bits that all its uploads would have given. A partial sum is as
//! large as a few uploads, however many are in it.

use serde::{Deserialize, Serialize};

use crate::aggregation::Aggregation;
use crate::aggregation::gathering::Gathering;
use crate::message::{Broadcast, NodeId, Rejected, Upload};
use crate::method::{Method, ServerMethod, Setup};
use crate::state::{BadState, restore_state, save_state};

const KIND: &str = "partial-sum";

/// Some uploads of a round, checked and added up. Begin one with [`ServerMethod::part`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartialSum {
    round: u64,
    gathering: Gathering,
}

impl PartialSum {
    pub(crate) fn new(round: u64, gathering: Gathering) -> Self {
        Self { round, gathering }
    }

    /// The round that its uploads answer.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Uploads in it.
    pub fn uploads(&self) -> usize {
        self.gathering.count()
    }

    /// What it is on its way to the server or to a relay above.
    pub fn to_bytes(&self) -> Vec<u8> {
        save_state(KIND, self)
    }

    /// Bytes of its sums and votes alone: what doesn't grow with the nodes. Who has been heard is a
    /// bit for each node.
    pub fn bytes_of_sums(&self) -> usize {
        self.gathering.bytes()
    }

    /// Refuses sums that can't be merged into a round of which `open` is an empty part.
    pub(crate) fn fits(&self, open: &Self) -> Result<(), Rejected> {
        self.check(open.round, &open.gathering)
    }

    /// Whether it has uploads of the same nodes.
    pub(crate) fn has_same_nodes(&self, other: &Self) -> bool {
        self.gathering.has_same_nodes(&other.gathering)
    }

    pub(crate) fn gathering(&self) -> &Gathering {
        &self.gathering
    }

    pub(crate) fn gathering_mut(&mut self) -> &mut Gathering {
        &mut self.gathering
    }

    /// Empty, and for a round of this number, whose uploads have the shape that `like` expects.
    pub(crate) fn renew(&mut self, round: u64, like: &Gathering) {
        self.round = round;
        if !self.gathering.is_alike(like) {
            self.gathering = like.clone();
        }
        self.gathering.clear();
    }

    /// Refuses sums of another round, or of uploads of another shape.
    pub(crate) fn check(&self, open: u64, like: &Gathering) -> Result<(), Rejected> {
        if self.round != open {
            return Err(Rejected::WrongRound { open, found: self.round });
        }
        if !self.gathering.is_alike(like) {
            let (expected, found) = (like.upload_len(), self.gathering.upload_len());
            return Err(Rejected::WrongLength { expected, found });
        }
        Ok(())
    }
}

/// Why there can be no relays.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "relays can't add up uploads for a {aggregation}: the server has to see every upload of its own (aggregation mean can be added up)"
)]
pub struct NotAdditive {
    aggregation: Aggregation,
}

/// Stands between some nodes, or relays, and the server: takes what they send and hands on one sum.
///
/// It hears the server's broadcasts as nodes do, so that it can refuse what the server would. Whom
/// it hands its sum to relies on it as on all the nodes behind it: a relay that lies about them
/// can't be told from nodes that do.
///
/// ```
/// use hedgerow::{Method, Setup, SetupConfig};
/// use hedgerow::message::Upload;
/// use hedgerow::relay::Relay;
///
/// let setup = Setup::try_from(SetupConfig::default())?;
/// let mut server = Method::MkOfl.server(&setup);
/// let mut relay = Relay::new(Method::MkOfl, &setup)?;
/// for node in 0..20 {
///     relay.accept(node, &Upload { round: 1, vote: Some(3), numbers: vec![0.5; 98] })?;
/// }
/// let bytes = relay.sum().to_bytes(); // 2.5 kB instead of 20 times 0.4 kB
/// server.merge(&relay.read(&bytes)?)?;
/// assert_eq!(server.uploads(), 20);
/// relay.follow(server.close_round())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Relay {
    /// A server of the same setup, which knows what uploads have to look like.
    server: Box<dyn ServerMethod>,
    /// Kernels that an upload may have numbers for, at most.
    most: usize,
    sum: PartialSum,
}

impl Relay {
    /// A relay before the first round, or why there is none: only what is averaged can be added up.
    pub fn new(method: Method, setup: &Setup) -> Result<Self, NotAdditive> {
        let config = setup.config();
        if config.aggregation != Aggregation::Mean {
            return Err(NotAdditive { aggregation: config.aggregation });
        }
        let server = method.server(setup);
        let sum = server.part();
        let most = if method == Method::PofMkl { config.pof.kernels_per_upload } else { 1 };
        Ok(Self { server, most, sum })
    }

    /// Takes a node's upload, or refuses it and stays as it was.
    pub fn accept(&mut self, from: NodeId, upload: &Upload) -> Result<(), Rejected> {
        self.server.accept_into(&mut self.sum, from, upload)
    }

    /// Takes what a relay further out has added up, or refuses it and stays as it was.
    pub fn merge(&mut self, sum: &PartialSum) -> Result<(), Rejected> {
        sum.check(self.sum.round, &self.sum.gathering)?;
        self.sum.gathering.merge(&sum.gathering, sum.round)
    }

    /// What it has of the open round.
    pub fn sum(&self) -> &PartialSum {
        &self.sum
    }

    /// Reads what a relay of the same setup and round has written, or refuses it.
    pub fn read(&self, bytes: &[u8]) -> Result<PartialSum, BadState> {
        let known = self.server.part();
        restore_state(KIND, bytes, |sum: &PartialSum| {
            sum.round == known.round && sum.gathering.is_sound(&known.gathering, self.most)
        })
    }

    /// Takes over a broadcast that is newer than the round it is in: what it has of that round is
    /// forgotten.
    pub fn follow(&mut self, broadcast: &Broadcast) -> Result<(), Rejected> {
        if broadcast.round > self.sum.round {
            self.server.follow(broadcast)?;
            self.server.renew(&mut self.sum);
        }
        Ok(())
    }
}
