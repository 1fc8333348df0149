//! [`PartialSum`]: some uploads of a round, added up where they were, and [`Relay`]: who does so
//! between nodes and server.
//!
//! Sums are exact and votes are counted, so it doesn't matter who adds what: a tree of relays of
//! any shape gives the server the bits that all its uploads would have given. A partial sum is as
//! large as a few uploads, however many are in it.

use crate::aggregation::Aggregation;
pub use crate::aggregation::PartialSum;
use crate::message::{Broadcast, NodeId, Rejected, Upload};
use crate::method::{Method, ServerMethod, Setup};
use crate::state::BadState;

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
        Ok(Self { server, sum })
    }

    /// Takes a node's upload, or refuses it and stays as it was.
    pub fn accept(&mut self, from: NodeId, upload: &Upload) -> Result<(), Rejected> {
        self.server.accept_into(&mut self.sum, from, upload)
    }

    /// Takes what a relay further out has added up, or refuses it and stays as it was.
    pub fn merge(&mut self, sum: &PartialSum) -> Result<(), Rejected> {
        self.sum.merge(sum)
    }

    /// What it has of the open round.
    pub fn sum(&self) -> &PartialSum {
        &self.sum
    }

    /// Reads what a relay of the same setup and round has written, or refuses it.
    pub fn read(&self, bytes: &[u8]) -> Result<PartialSum, BadState> {
        self.sum.read(bytes)
    }

    /// Takes over a broadcast that is newer than the round it is in: what it has of that round is
    /// forgotten.
    pub fn follow(&mut self, broadcast: &Broadcast) -> Result<(), Rejected> {
        if broadcast.round > self.sum.round() {
            self.server.follow(broadcast)?;
            self.server.renew(&mut self.sum);
        }
        Ok(())
    }
}
