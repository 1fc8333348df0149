//! [`Relay`]: adds up the uploads of some nodes between them and the server.
//!
//! Sums are exact and votes are counted, so it doesn't matter who adds what: a tree of relays of
//! any shape gives the server the bits that all its uploads would have given. A partial sum is as
//! large as a few uploads, however many are in it.

use alloc::vec::Vec;

use crate::aggregation::{Aggregation, PartialSum};
use crate::importance::ImportanceSum;
use crate::message::{Broadcast, NodeId, Rejected, Upload};
use crate::plan::Plan;
use crate::server::Server;
use crate::state::BadState;

/// Why there can be no relays.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "relays can't add up uploads for a {aggregation}: the server has to see every upload of its \
     own (aggregation mean can be added up)"
)]
pub struct NotAdditive {
    aggregation: Aggregation,
}

/// Stands between some nodes, or relays, and the server: takes what they send and hands on one sum
/// for each output.
///
/// It hears the server's broadcasts as nodes do, so that it can refuse what the server would. The
/// server relies on it as on all the nodes behind it: a relay that lies about them can't be told
/// from nodes that do.
///
/// ```
/// use hedgerow::{Plan, PlanConfig};
/// use hedgerow::message::Upload;
/// use hedgerow::relay::Relay;
///
/// let plan = Plan::new(PlanConfig::default())?;
/// let (mut server, mut relay) = (plan.server(), Relay::new(&plan)?);
/// for node in 0..20 {
///     relay.accept(node, &[Upload { round: 1, vote: Some(3), numbers: vec![0.5; 98] }])?;
/// }
/// let bytes = relay.sums()[0].to_bytes(); // 2.5 kB instead of 20 times 0.4 kB
/// server.merge(&[relay.read(0, &bytes)?])?;
/// assert_eq!(server.uploads(), 20);
/// assert!(server.close_round().has_uploads);
/// relay.follow(&[server.broadcast(0).clone()])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Relay {
    /// A server of the same plan, which knows what uploads have to look like.
    server: Server,
    sums: Vec<PartialSum>,
    /// If the plan asks for it.
    importance: Option<ImportanceSum>,
}

impl Relay {
    /// A relay before the first round, or why there is none: only what is averaged can be added up.
    pub fn new(plan: &Plan) -> Result<Self, NotAdditive> {
        let aggregation = plan.config().aggregation;
        if aggregation != Aggregation::Mean {
            return Err(NotAdditive { aggregation });
        }
        let server = plan.server();
        let (sums, importance) = (server.parts(), server.importance_sum());
        Ok(Self { server, sums, importance })
    }

    /// Takes a node's uploads, one for each output, or refuses them and stays as it was.
    pub fn accept(&mut self, from: NodeId, uploads: &[Upload]) -> Result<(), Rejected> {
        if let ([sum], [_]) = (&mut self.sums[..], uploads) {
            return self.server.accept_into(core::slice::from_mut(sum), from, uploads);
        }
        // All outputs or none.
        let mut sums = self.server.parts();
        self.server.accept_into(&mut sums, from, uploads)?;
        self.merge(&sums)
    }

    /// The same with what the node tells of the importance of columns.
    pub fn accept_with(
        &mut self,
        from: NodeId,
        uploads: &[Upload],
        importance: &[f32],
    ) -> Result<(), Rejected> {
        self.server.check_importance(importance)?;
        self.accept(from, uploads)?;
        self.importance.iter_mut().for_each(|sum| sum.add(importance));
        Ok(())
    }

    /// Takes what a relay further out has added up, or refuses it and stays as it was.
    pub fn merge(&mut self, sums: &[PartialSum]) -> Result<(), Rejected> {
        self.server.check_parts(sums)?;
        self.sums.iter_mut().zip(sums).try_for_each(|(own, sum)| own.merge(sum))
    }

    /// The same with what its nodes tell of the importance of columns.
    pub fn merge_with(
        &mut self,
        sums: &[PartialSum],
        importance: &ImportanceSum,
    ) -> Result<(), Rejected> {
        let mut own = self.importance.clone().ok_or(Rejected::NotExpected)?;
        own.merge(importance)?;
        self.merge(sums)?;
        self.importance = Some(own);
        Ok(())
    }

    /// What nodes have told of the importance of columns in the open round, for
    /// [`Server::merge_with`]; none unless the plan has
    /// [`crate::importance::ImportanceScope::Shared`].
    pub fn importance(&self) -> Option<&ImportanceSum> {
        self.importance.as_ref()
    }

    /// Reads what [`ImportanceSum::to_bytes`] of a relay of the same plan has written, or refuses
    /// it.
    pub fn read_importance(&self, bytes: &[u8]) -> Result<ImportanceSum, BadState> {
        let own = self.importance.as_ref();
        own.ok_or_else(|| BadState::new("the plan shares no importance of columns"))?.read(bytes)
    }

    /// What it has of the open round, for each output.
    pub fn sums(&self) -> &[PartialSum] {
        &self.sums
    }

    /// Reads what a relay of the same plan and round has written of an output, or refuses it.
    ///
    /// # Panics
    /// If the plan has no such output.
    pub fn read(&self, output: usize, bytes: &[u8]) -> Result<PartialSum, BadState> {
        self.sums[output].read(bytes)
    }

    /// Takes over broadcasts, one for each output, that are newer than the round it is in: what it
    /// has of that round is forgotten.
    pub fn follow(&mut self, broadcasts: &[Broadcast]) -> Result<(), Rejected> {
        if broadcasts.iter().all(|broadcast| broadcast.round > self.sums[0].round()) {
            self.server.follow(broadcasts)?;
            self.server.renew(&mut self.sums);
            self.importance.iter_mut().for_each(ImportanceSum::clear);
        }
        Ok(())
    }
}
