//! Models of a run over a network: the shared one from a server's store, and that of one node from
//! its state file.

use std::path::{Path, PathBuf};

use hedgerow::Server;
use hedgerow::message::Rejected;
use hedgerow::state::BadState;
use hedgerow_model::Model;

use crate::agent::state::{StateError, StateFile};
use crate::coordinator::records::Run;
use crate::file::{FileError, is_ours};
use crate::plan_json::plan_from_json;
use crate::storage::{StoreError, View};

/// Why there is no model.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The state file can't be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The file can't be read.
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
    #[error("{}: with the method {method} every node has a model of its own, and the server has none (`hedgerow export STATE_FILE` on a device writes that of its node)", path.display())]
    NotShared {
        /// The store.
        path: PathBuf,
        /// The method.
        method: &'static str,
    },
    /// The learning configuration is invalid, or the state doesn't fit it.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// The store or state file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// The model in a file: a server's store, also while the server runs, or a node's state file.
pub fn model_of(path: &Path) -> Result<Model, ExportError> {
    if is_ours(path) { model_of_node(path) } else { model_of_store(path) }
}

/// The shared model of a server's store, also while the server runs.
pub fn model_of_store(path: &Path) -> Result<Model, ExportError> {
    let view = View::open(path)?;
    let nothing = |what| ExportError::NothingYet { path: path.to_owned(), what };
    let invalid = |reason: String| ExportError::Invalid { path: path.to_owned(), reason };
    let Run { id, learning } = view.run().ok_or_else(|| nothing("no run has begun"))?;
    let plan = plan_from_json(learning, &[]).map_err(|error| invalid(error.to_string()))?;
    let saved = view.load()?.ok_or_else(|| nothing("no round has closed"))?;
    let unfit = |error: BadState| invalid(error.to_string());
    let scaling = saved.scaling.as_deref();
    if plan.is_scaled_online() && scaling.is_none() {
        return Err(nothing("no scale is stored"));
    }
    let server = Server::restore(&plan, &saved.server, scaling).map_err(unfit)?;
    if !plan.method().travels() {
        return Err(ExportError::NotShared { path: path.to_owned(), method: plan.method().name });
    }
    if server.is_unscaled() {
        return Err(nothing("no scale has been agreed on"));
    }
    let model = Model::of_server(&server);
    Ok(model.map_err(|error: Rejected| invalid(error.to_string()))?.with_run(id))
}

/// The model of the node in a state file, without the samples that the node keeps; also while the
/// node runs.
pub fn model_of_node(path: &Path) -> Result<Model, ExportError> {
    let (name, node) = StateFile::peek(path)?;
    let invalid =
        |error: BadState| ExportError::Invalid { path: path.to_owned(), reason: error.to_string() };
    Model::of_node(&name, &node).map_err(invalid)
}
