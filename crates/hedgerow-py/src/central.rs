//! [`Central`]: the server's half and its scaling, without sockets, clock or store.

use std::collections::BTreeMap;

use hedgerow::message::{Rejected, Report, Upload};
use hedgerow::scaling::ServerScaling;
use hedgerow::state::BadState;
use hedgerow::{NodeId, ServerMethod};
use hedgerow_net::Plan;
use hedgerow_net::transport::protocol::{self, wire};
use serde::{Deserialize, Serialize};

/// Why an upload was not taken; nothing changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    Rejected(#[from] Rejected),
    #[error("no scale has been agreed on yet, so there can't be a model")]
    Unscaled,
    #[error("a sum of squared errors must be a number and at least 0, but is {0}")]
    SquaredError(f64),
}

/// Why a server can't go on from a saved state.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadServer {
    #[error("the saved server can't be read: {0}")]
    Unreadable(#[from] postcard::Error),
    #[error("the saved server and the plan differ on whether scales are agreed on")]
    Scaling,
    #[error(transparent)]
    State(#[from] BadState),
}

/// A server.
pub(crate) struct Central {
    plan: Plan,
    half: Box<dyn ServerMethod>,
    scaling: Option<ServerScaling>,
    counted: Counted,
}

/// What the open round and those before have brought.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Counted {
    /// The latest round of each node whose upload was taken.
    taken: BTreeMap<NodeId, u64>,
    samples: u64,
    squared_error: f64,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    half: Vec<u8>,
    scaling: Option<Vec<u8>>,
    counted: Counted,
}

impl Central {
    pub(crate) fn new(plan: Plan) -> Self {
        let (half, scaling) = (plan.server(), plan.server_scaling());
        Self { plan, half, scaling, counted: Counted::default() }
    }

    /// Takes what a node has seen, or refuses it.
    pub(crate) fn accept_report(&mut self, node: NodeId, report: &Report) -> Result<(), Refused> {
        let scaling = self.scaling.as_mut().ok_or(Rejected::NotExpected)?;
        Ok(scaling.accept(node, report)?)
    }

    /// Takes what a node has learned, or refuses it.
    pub(crate) fn accept_upload(
        &mut self,
        node: NodeId,
        upload: &Upload,
        samples: u64,
        squared_error: f64,
    ) -> Result<(), Refused> {
        if self.scaling.as_ref().is_some_and(|scaling| scaling.scale().is_none()) {
            return Err(Refused::Unscaled);
        }
        if !(0.0..=f64::MAX).contains(&squared_error) {
            return Err(Refused::SquaredError(squared_error));
        }
        self.half.accept(node, upload)?;
        let counted = &mut self.counted;
        counted.taken.insert(node, upload.round);
        counted.samples = counted.samples.saturating_add(samples);
        counted.squared_error = (counted.squared_error + squared_error).min(f64::MAX);
        Ok(())
    }

    /// Closes the round with whoever came: first the models, then reports become a scale and the
    /// models follow. Says whether there is something new to be told.
    pub(crate) fn close_round(&mut self) -> bool {
        let has_uploads = self.half.uploads() > 0;
        if has_uploads {
            self.half.close_round();
        }
        self.close_scaling() || has_uploads
    }

    fn close_scaling(&mut self) -> bool {
        let Some(scaling) = &mut self.scaling else { return false };
        let before = scaling.scale().cloned();
        let Some(scale) = scaling.close_round() else { return false };
        if let Some(before) = before {
            self.half.rescale(&self.plan.map().rescaling(&before, scale));
        }
        true
    }

    pub(crate) fn half(&self) -> &dyn ServerMethod {
        self.half.as_ref()
    }

    /// The scale as it travels, once there is one.
    pub(crate) fn scale(&self) -> Option<wire::Scale> {
        let scaling = self.scaling.as_ref()?;
        Some(protocol::scale_to_wire(scaling.version(), scaling.scale()?))
    }

    /// The broadcast as it travels to a node.
    pub(crate) fn broadcast(&self, node: NodeId) -> wire::Broadcast {
        wire::Broadcast {
            taken: self.taken(node),
            ..protocol::broadcast_to_wire(self.half.broadcast())
        }
    }

    /// The latest round whose upload of this node was taken; 0 if none was.
    pub(crate) fn taken(&self, node: NodeId) -> u64 {
        self.counted.taken.get(&node).copied().unwrap_or(0)
    }

    /// Samples that uploads have told of, and their squared errors.
    pub(crate) fn errors(&self) -> (u64, f64) {
        (self.counted.samples, self.counted.squared_error)
    }

    pub(crate) fn save(&self) -> Vec<u8> {
        let scaling = self.scaling.as_ref().map(ServerScaling::save);
        let saved = Saved { half: self.half.save(), scaling, counted: self.counted.clone() };
        // Writing to memory can't fail; were it to, an empty state would be refused.
        postcard::to_stdvec(&saved).unwrap_or_default()
    }

    pub(crate) fn restore(plan: Plan, saved: &[u8]) -> Result<Self, BadServer> {
        let Saved { half, scaling, counted } = postcard::from_bytes(saved)?;
        let mut server = Self::new(plan);
        server.half.restore(&half)?;
        match (&mut server.scaling, &scaling) {
            (Some(scaling), Some(saved)) => scaling.restore(saved)?,
            (None, None) => {}
            _ => return Err(BadServer::Scaling),
        }
        server.counted = counted;
        Ok(server)
    }
}
