//! [`Model`]: the global model of a run as a safetensors file, with all that predictions need.
//! [`Predictor`]: predictions from it, without a server.
//!
//! Predictions are those of a node that has just joined, bit for bit. Other nodes may predict a
//! little differently: in POF-MKL and Fed-POE every node has its own weights (those of a new node
//! are equal), an own layer belongs to one node, and missing inputs are replaced by what the
//! node has seen (here by the middle of the scale).

use std::io::Write;
use std::path::{Path, PathBuf};

use hedgerow::features::SampleMap;
use hedgerow::message::{Broadcast, Rejected};
use hedgerow::scaling::{NodeScaling, Scale};
use hedgerow::{NodeMethod, Plan};

use crate::coordinator::records::Run;
use crate::file::{Access, FileError, read_whole, write_whole};
use crate::plan_json::plan_from_json;
use crate::storage::{StoreError, View};

mod layout;

/// What a run has learned so far.
#[derive(Debug, Clone)]
pub struct Model {
    plan: Plan,
    run: String,
    broadcast: Broadcast,
    /// The latest scale and its version, if nodes agree on scales.
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
    /// Another file.
    #[error("{}: not a model of hedgerow: {reason}", path.display())]
    NotAModel {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The learning configuration is invalid, or the state doesn't fit it.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// The store or file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The model doesn't fit the configuration.
    #[error("{}: the model does not fit its configuration: {source}", path.display())]
    Unfit {
        /// The store or file.
        path: PathBuf,
        /// The cause.
        source: Rejected,
    },
    /// The existing file is no model, so it is not overwritten.
    #[error("{0}; it is left as it is: move it away first")]
    Kept(Box<ModelError>),
}

impl ModelError {
    fn invalid(path: &Path, error: impl ToString) -> Self {
        Self::Invalid { path: path.to_owned(), reason: error.to_string() }
    }
}

/// Most bytes of a file.
const MAX_FILE: u64 = 32 << 20;

impl Model {
    /// Reads a server's store, also while the server runs.
    pub fn from_store(path: &Path) -> Result<Self, ModelError> {
        let view = View::open(path)?;
        let nothing = |what| ModelError::NothingYet { path: path.to_owned(), what };
        let Run { id, learning } = view.run().ok_or_else(|| nothing("no run has begun"))?;
        let plan =
            plan_from_json(learning, &[]).map_err(|error| ModelError::invalid(path, error))?;
        let saved = view.load()?.ok_or_else(|| nothing("no round has closed"))?;
        let unfit = |error| ModelError::invalid(path, error);
        let mut server = plan.server_method();
        server.restore(&saved.server).map_err(unfit)?;
        let mut scale = None;
        if let Some(mut scaling) = plan.server_scaling() {
            let saved = saved.scaling.as_deref();
            scaling.restore(saved.ok_or_else(|| nothing("no scale is stored"))?).map_err(unfit)?;
            let agreed = scaling.scale().ok_or_else(|| nothing("no scale has been agreed on"))?;
            scale = Some((scaling.version(), agreed.clone()));
        }
        // A broadcast may only say what has changed.
        let broadcast = server.catch_up().into_owned();
        let software = format!("hedgerow {}", env!("CARGO_PKG_VERSION"));
        Self { plan, run: id.clone(), broadcast, scale, software }.checked(path)
    }

    /// Reads a file that [`Model::write`] wrote, and checks all of it.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        Self::from_bytes(path, &read_whole(path, MAX_FILE)?)
    }

    /// Writes it to a file, completely or not at all. An older model is replaced; any other file is
    /// refused.
    pub fn write(&self, path: &Path) -> Result<(), ModelError> {
        if path.try_exists().unwrap_or(true) {
            Self::read(path).map_err(|error| ModelError::Kept(Box::new(error)))?;
        }
        Ok(write_whole(path, Access::Shared, |file| file.write_all(&self.to_bytes()))?)
    }

    /// The plan of the run.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Identity of the run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The round that the model opens.
    pub fn round(&self) -> u64 {
        self.broadcast.round
    }

    /// The model as nodes receive it.
    pub fn broadcast(&self) -> &Broadcast {
        &self.broadcast
    }

    /// The scale that nodes agreed on, if they do.
    pub fn scale(&self) -> Option<&Scale> {
        self.scale.as_ref().map(|(_, scale)| scale)
    }

    /// The program and version that wrote it.
    pub fn software(&self) -> &str {
        &self.software
    }

    /// Checks that a node can predict with it.
    fn checked(self, path: &Path) -> Result<Self, ModelError> {
        if !self.plan.method().travels() {
            return Err(ModelError::Local { path: path.to_owned() });
        }
        let taken = Predictor::new(&self);
        taken.map_err(|source| ModelError::Unfit { path: path.to_owned(), source })?;
        Ok(self)
    }
}

/// Predicts like a node that has just joined.
pub struct Predictor {
    half: Box<dyn NodeMethod>,
    scaling: NodeScaling,
    map: SampleMap,
    scaled: Vec<f32>,
    features: Vec<f32>,
}

impl Predictor {
    /// A predictor with this model. A [`Model`] was checked, so it is not refused.
    pub fn new(model: &Model) -> Result<Self, Rejected> {
        let plan = &model.plan;
        let mut scaling = plan.node_scaling();
        if let Some((version, scale)) = &model.scale {
            scaling.adopt(*version, scale)?;
        }
        // A node begins in round 1 like the server. The broadcast of round 1 is not new to it.
        let mut half = plan.node_method(0);
        half.adopt(&model.broadcast)?;
        let (scaled, features) = (vec![0.0; plan.inputs()], vec![0.0; plan.map().width()]);
        Ok(Self { half, scaling, map: plan.map().clone(), scaled, features })
    }

    /// Numbers in a sample.
    pub fn inputs(&self) -> usize {
        self.scaled.len()
    }

    /// The prediction for a raw sample, in the label's own unit. A number that isn't finite is
    /// missing, and the middle of its scale is used instead.
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
