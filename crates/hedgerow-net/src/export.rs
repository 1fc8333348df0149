//! [`Model`]: the global model of a run with all that is needed to predict where there is no
//! server, as a safetensors file; and [`Predictor`], which does so.
//!
//! Predictions are those of a node that has just joined, bit for bit. In methods whose nodes keep
//! something to themselves, others predict a little differently: in POF-MKL and Fed-POE every node
//! has weights of its own (a new one's are equal), a personal layer is the node's alone, and
//! missing inputs are filled in with what a node has seen (here: the middle of the scale).

use std::io::Write;
use std::path::{Path, PathBuf};

use hedgerow::features::SampleMap;
use hedgerow::message::{Broadcast, Rejected};
use hedgerow::scaling::{NodeScaling, Scale};
use hedgerow::state::BadState;
use hedgerow::{NodeMethod, Plan};

use crate::coordinator::records::Run;
use crate::file::{Access, FileError, NewFile, read_bounded};
use crate::plan_json::{ReadPlanError, plan_from_json};
use crate::storage::{StoreError, View};

mod layout;

/// What a run has learned so far.
#[derive(Debug, Clone)]
pub struct Model {
    plan: Plan,
    run: String,
    broadcast: Broadcast,
    /// Where scales are agreed on: the latest, and its version.
    scale: Option<(u64, Scale)>,
    software: String,
}

/// Why there is no model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The store can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Nothing has been learned.
    #[error("{}: nothing has been learned yet: {what}", path.display())]
    NothingYet {
        /// The store.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
    },
    /// The method has no common model.
    #[error("{}: with the method local every node has a model of its own, and the server has none", path.display())]
    Local {
        /// The store or file.
        path: PathBuf,
    },
    /// Some other file.
    #[error("{}: not a model of hedgerow: {reason}", path.display())]
    NotAModel {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A learning configuration that can't be.
    #[error("{}: {source}", path.display())]
    Plan {
        /// The store or file.
        path: PathBuf,
        /// The cause.
        source: ReadPlanError,
    },
    /// A state that doesn't belong to its configuration.
    #[error("{}: {source}", path.display())]
    State {
        /// The store.
        path: PathBuf,
        /// The cause.
        source: BadState,
    },
    /// Numbers that don't belong to their configuration.
    #[error("{}: the model does not fit its configuration: {source}", path.display())]
    Unfit {
        /// The store or file.
        path: PathBuf,
        /// The cause.
        source: Rejected,
    },
    /// What is there is something else, so it is not written over.
    #[error("{0}; it is left as it is: move it away first")]
    Kept(Box<ModelError>),
}

/// Most bytes of a file.
const MAX_FILE: u64 = 32 << 20;

impl Model {
    /// Of a server's store, also while the server runs.
    pub fn from_store(path: &Path) -> Result<Self, ModelError> {
        let view = View::open(path)?;
        let nothing = |what| ModelError::NothingYet { path: path.to_owned(), what };
        let Run { id, learning } = view.run().ok_or_else(|| nothing("no run has begun"))?;
        let plan = plan_from_json(learning, &[])
            .map_err(|source| ModelError::Plan { path: path.to_owned(), source })?;
        let saved = view.load()?.ok_or_else(|| nothing("no round has closed"))?;
        let unfit = |source| ModelError::State { path: path.to_owned(), source };
        let mut server = plan.server_method();
        server.restore(&saved.server).map_err(unfit)?;
        let mut scale = None;
        if let Some(mut scaling) = plan.server_scaling() {
            let saved = saved.scaling.as_deref();
            scaling.restore(saved.ok_or_else(|| nothing("no scale is stored"))?).map_err(unfit)?;
            let agreed = scaling.scale().ok_or_else(|| nothing("no scale has been agreed on"))?;
            scale = Some((scaling.version(), agreed.clone()));
        }
        let broadcast = server.broadcast().clone();
        let software = format!("hedgerow {}", env!("CARGO_PKG_VERSION"));
        Self { plan, run: id.clone(), broadcast, scale, software }.checked(path)
    }

    /// Reads a file that [`Model::write`] wrote. Nothing in it is believed.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let source = || std::io::ErrorKind::NotFound.into();
        let missing = || FileError::Unreadable { path: path.to_owned(), source: source() };
        let bytes = read_bounded(path, MAX_FILE)?.ok_or_else(missing)?;
        Self::from_bytes(path, &bytes)
    }

    /// Writes it to a file, which appears when it is whole. An older model is replaced; anything
    /// else is left as it is.
    pub fn write(&self, path: &Path) -> Result<(), ModelError> {
        if path.try_exists().unwrap_or(true) {
            Self::read(path).map_err(|error| ModelError::Kept(Box::new(error)))?;
        }
        let mut file = NewFile::create(path, Access::Shared)?;
        let unwritable = |source| FileError::Unwritable { path: path.to_owned(), source };
        file.write_all(&self.to_bytes()).map_err(unwritable)?;
        Ok(file.finish()?)
    }

    /// What was learned, and how.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Identity of the run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The round that it opens: those before it have been learned from.
    pub fn round(&self) -> u64 {
        self.broadcast.round
    }

    /// The model as nodes are told it.
    pub fn broadcast(&self) -> &Broadcast {
        &self.broadcast
    }

    /// The scale that was agreed on, where one had to be.
    pub fn scale(&self) -> Option<&Scale> {
        self.scale.as_ref().map(|(_, scale)| scale)
    }

    /// What wrote it.
    pub fn software(&self) -> &str {
        &self.software
    }

    /// If a node can predict with it.
    fn checked(self, path: &Path) -> Result<Self, ModelError> {
        if !self.plan.method().travels() {
            return Err(ModelError::Local { path: path.to_owned() });
        }
        let taken = Predictor::new(&self);
        taken.map_err(|source| ModelError::Unfit { path: path.to_owned(), source })?;
        Ok(self)
    }
}

/// Predicts as a node does that has just joined.
pub struct Predictor {
    half: Box<dyn NodeMethod>,
    scaling: NodeScaling,
    map: SampleMap,
    scaled: Vec<f32>,
    features: Vec<f32>,
}

impl Predictor {
    /// With this model; one that a [`Model`] has checked is never refused.
    pub fn new(model: &Model) -> Result<Self, Rejected> {
        let plan = &model.plan;
        let mut scaling = plan.node_scaling();
        if let Some((version, scale)) = &model.scale {
            scaling.adopt(*version, scale)?;
        }
        // A half begins in round 1 as the server does: what opens it is no news, and predicts
        // nothing yet.
        let mut half = plan.node_method(0);
        half.adopt(&model.broadcast)?;
        let (scaled, features) = (vec![0.0; plan.inputs()], vec![0.0; plan.map().width()]);
        Ok(Self { half, scaling, map: plan.map().clone(), scaled, features })
    }

    /// Numbers in a sample.
    pub fn inputs(&self) -> usize {
        self.scaled.len()
    }

    /// The prediction for a raw sample, in the label's own unit. What isn't a finite number is
    /// missing, and the middle of its scale is taken for it.
    ///
    /// # Panics
    /// If it has another number of inputs.
    pub fn predict(&mut self, x: &[f32]) -> f32 {
        self.scaling.prepare(x, &mut self.scaled);
        let z = self.map.map_batch(&self.scaled, &mut self.features);
        let prediction = self.half.predict(z);
        self.scaling.scale().map_or(prediction, |scale| scale.unscale_label(prediction))
    }
}

#[cfg(test)]
mod tests;
