//! [`Server`]: the server of a federation without sockets.

use std::collections::BTreeMap;
use std::sync::Mutex;

use hedgerow::NodeId;
use hedgerow::message::Report;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};
use serde::{Deserialize, Serialize};

use crate::Pickled;
use crate::arrays::Numbers;
use crate::batch::lock;
use crate::engine::node;
use crate::errors;
use crate::labels;
use crate::messages::{Broadcast, Upload};
use crate::plan::Plan;

/// What the open round and those before have brought.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Counted {
    /// The latest round of each node whose upload was taken.
    taken: BTreeMap<NodeId, u64>,
    samples: u64,
    squared_error: f64,
}

/// A server as it is saved.
#[derive(Serialize, Deserialize)]
pub(crate) struct SavedServer {
    models: Vec<u8>,
    scaling: Option<Vec<u8>>,
    counted: Counted,
}

impl SavedServer {
    pub(crate) fn new(server: &hedgerow::Server) -> Self {
        let counted = Counted::default();
        Self { models: server.save(), scaling: server.save_scaling(), counted }
    }

    pub(crate) fn to_bytes(&self) -> PyResult<Vec<u8>> {
        postcard::to_allocvec(self).map_err(errors::value)
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        let unreadable = |error| errors::value(format!("the saved server can't be read: {error}"));
        postcard::from_bytes(bytes).map_err(unreadable)
    }

    pub(crate) fn restore(&self, plan: &hedgerow::Plan) -> PyResult<hedgerow::Server> {
        hedgerow::Server::restore(plan, &self.models, self.scaling.as_deref())
            .map_err(errors::value)
    }
}

struct State {
    server: hedgerow::Server,
    counted: Counted,
}

/// A server without sockets: it takes what nodes say, closes rounds, and has a broadcast and a
/// scale for all nodes; the caller carries the messages. See :class:`Engine` for the other
/// side.
#[pyclass(frozen, module = "hedgerow")]
pub(crate) struct Server {
    plan: hedgerow::Plan,
    state: Mutex<State>,
}

#[pymethods]
impl Server {
    #[new]
    fn new(plan: &Plan) -> PyResult<Self> {
        if !plan.0.is_plain() {
            return Err(errors::value(
                "compression must be \"none\" for messages that Python carries",
            ));
        }
        labels::check_one_output(&plan.0)?;
        let state = State { server: plan.0.server(), counted: Counted::default() };
        Ok(Self { plan: plan.0.clone(), state: Mutex::new(state) })
    }

    /// The broadcast of the open round, for all nodes.
    #[getter]
    fn broadcast(&self, py: Python<'_>) -> Broadcast {
        let broadcast = lock(py, &self.state).server.broadcast(0).clone();
        Broadcast::new(py, &broadcast)
    }

    /// The current scale: its version and its encoding for nodes. None if there is none.
    #[getter]
    fn scale<'py>(&self, py: Python<'py>) -> Option<(u64, Bound<'py, PyBytes>)> {
        let (version, scale) = {
            let server = &lock(py, &self.state).server;
            (server.scale_version(), server.scale()?.to_bytes())
        };
        Some((version, PyBytes::new(py, &scale)))
    }

    /// The latest round in which an upload of this node was accepted; 0 if none. Send it to the
    /// node with the broadcast.
    fn taken(&self, py: Python<'_>, node: &Bound<'_, PyAny>) -> PyResult<u64> {
        let node = self::node(node)?;
        Ok(lock(py, &self.state).counted.taken.get(&node).copied().unwrap_or(0))
    }

    /// Accepts a node's report. Raises ValueError if it is invalid; then nothing changes.
    fn accept_report(
        &self,
        py: Python<'_>,
        node: &Bound<'_, PyAny>,
        numbers: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let node = self::node(node)?;
        let report = Report { numbers: Numbers::vector(numbers)?.as_slice().to_vec() };
        lock(py, &self.state).server.accept_report(node, &report).map_err(errors::value)
    }

    /// Accepts a node's upload. Raises ValueError if it has another round, is a second one, or is
    /// invalid; then nothing changes.
    fn accept_upload(
        &self,
        py: Python<'_>,
        node: &Bound<'_, PyAny>,
        upload: &Upload,
    ) -> PyResult<()> {
        let node = self::node(node)?;
        let (upload, samples, squared_error) = upload.read(py)?;
        if !(0.0..=f64::MAX).contains(&squared_error) {
            return Err(errors::value(format!(
                "a sum of squared errors must be a number and at least 0, but is {squared_error}"
            )));
        }
        let round = upload.round;
        let State { server, counted } = &mut *lock(py, &self.state);
        server.accept_uploads(node, &[upload]).map_err(errors::value)?;
        counted.taken.insert(node, round);
        counted.samples = counted.samples.saturating_add(samples.into());
        counted.squared_error = (counted.squared_error + squared_error).min(f64::MAX);
        Ok(())
    }

    /// Closes the round with the accepted uploads. Returns whether there is a new broadcast or
    /// scale.
    fn close_round(&self, py: Python<'_>) -> bool {
        py.detach(|| {
            let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            state.server.close_round().is_news()
        })
    }

    /// Uploads that the open round has so far.
    #[getter]
    fn uploads(&self, py: Python<'_>) -> usize {
        lock(py, &self.state).server.uploads()
    }

    /// The open round.
    #[getter]
    fn round(&self, py: Python<'_>) -> u64 {
        lock(py, &self.state).server.round()
    }

    /// Number of samples that uploads reported.
    #[getter]
    fn samples(&self, py: Python<'_>) -> u64 {
        lock(py, &self.state).counted.samples
    }

    /// Mean squared error of the nodes' predictions, as reported; 0 before the first.
    #[getter]
    fn mse(&self, py: Python<'_>) -> f64 {
        let Counted { samples, squared_error, .. } = lock(py, &self.state).counted;
        if samples == 0 { 0.0 } else { squared_error / samples as f64 }
    }

    /// The plan.
    #[getter]
    fn plan(&self) -> Plan {
        Plan(self.plan.clone())
    }

    /// The state, without the uploads of the open round.
    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let saved = {
            let State { server, counted } = &*lock(py, &self.state);
            SavedServer { counted: counted.clone(), ..SavedServer::new(server) }
        };
        Ok(PyBytes::new(py, &saved.to_bytes()?))
    }

    /// Continues from a saved state of the same plan.
    #[staticmethod]
    fn restore(plan: &Plan, saved: &[u8]) -> PyResult<Self> {
        let saved = SavedServer::from_bytes(saved)?;
        let state = State { server: saved.restore(&plan.0)?, counted: saved.counted };
        Ok(Self { plan: plan.0.clone(), state: Mutex::new(state) })
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Pickled<'py, (Plan, Bound<'py, PyBytes>)> {
        Ok((PyType::new::<Self>(py).getattr("restore")?, (self.plan(), self.save(py)?)))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let (round, uploads) = (self.round(py), self.uploads(py));
        format!("Server({}, round={round}, uploads={uploads})", self.plan().__repr__())
    }
}
