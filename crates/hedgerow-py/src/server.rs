//! [`Server`]: the server's half without sockets.

use std::sync::{Arc, Mutex};

use hedgerow::message::Report;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

use crate::Pickled;
use crate::arrays::Numbers;
use crate::batch::lock;
use crate::central::Central;
use crate::engine::node;
use crate::errors;
use crate::messages::{Broadcast, Upload};
use crate::plan::Plan;

/// A server without sockets: it takes what nodes say, closes rounds, and has a broadcast and a
/// scale for everybody; whoever drives it carries the messages. See :class:`Engine` for the other
/// side.
#[pyclass(frozen, module = "hedgerow")]
pub(crate) struct Server {
    plan: Arc<hedgerow_net::Plan>,
    central: Mutex<Central>,
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
        Ok(Self { plan: Arc::clone(&plan.0), central: Mutex::new(Central::new((*plan.0).clone())) })
    }

    /// What opens the round: tell it to everybody.
    #[getter]
    fn broadcast(&self, py: Python<'_>) -> Broadcast {
        let broadcast = lock(py, &self.central).half().broadcast().clone();
        Broadcast::new(py, &broadcast)
    }

    /// The scale that it is in: its version and what a node hears. None if there is none, or none
    /// yet.
    #[getter]
    fn scale<'py>(&self, py: Python<'py>) -> Option<(u64, Bound<'py, PyBytes>)> {
        let scale = lock(py, &self.central).scale()?;
        Some((scale.version, PyBytes::new(py, &scale.scale)))
    }

    /// The latest round whose upload of this node was taken; 0 if none was. Tell it to the node
    /// with the broadcast.
    fn taken(&self, py: Python<'_>, node: &Bound<'_, PyAny>) -> PyResult<u64> {
        let node = self::node(node)?;
        Ok(lock(py, &self.central).taken(node))
    }

    /// Takes a node's report of what it has seen. ValueError if it makes no sense; then nothing
    /// changes.
    fn accept_report(
        &self,
        py: Python<'_>,
        node: &Bound<'_, PyAny>,
        numbers: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let node = self::node(node)?;
        let report = Report { numbers: Numbers::vector(numbers)?.as_slice().to_vec() };
        lock(py, &self.central).accept_report(node, &report).map_err(errors::value)
    }

    /// Takes a node's upload. ValueError if it is of another round, a second one, or makes no
    /// sense; then nothing changes.
    fn accept_upload(
        &self,
        py: Python<'_>,
        node: &Bound<'_, PyAny>,
        upload: &Upload,
    ) -> PyResult<()> {
        let node = self::node(node)?;
        let (upload, samples, squared_error) = upload.read(py)?;
        let accepted =
            lock(py, &self.central).accept_upload(node, &upload, samples.into(), squared_error);
        accepted.map_err(errors::value)
    }

    /// Closes the round with whoever came. Whether there is a new broadcast or scale to be told.
    fn close_round(&self, py: Python<'_>) -> bool {
        py.detach(|| {
            self.central.lock().unwrap_or_else(std::sync::PoisonError::into_inner).close_round()
        })
    }

    /// Uploads that the open round has so far.
    #[getter]
    fn uploads(&self, py: Python<'_>) -> usize {
        lock(py, &self.central).half().uploads()
    }

    /// The open round.
    #[getter]
    fn round(&self, py: Python<'_>) -> u64 {
        lock(py, &self.central).half().broadcast().round
    }

    /// Samples that uploads have told of.
    #[getter]
    fn samples(&self, py: Python<'_>) -> u64 {
        lock(py, &self.central).errors().0
    }

    /// Mean squared error of the nodes' predictions, as they tell; 0 before the first.
    #[getter]
    fn mse(&self, py: Python<'_>) -> f64 {
        let (samples, squared_error) = lock(py, &self.central).errors();
        if samples == 0 { 0.0 } else { squared_error / samples as f64 }
    }

    /// What everybody agreed on.
    #[getter]
    fn plan(&self) -> Plan {
        Plan(Arc::clone(&self.plan))
    }

    /// Everything that has to survive a restart. Uploads of the open round are not part of it.
    fn save<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &lock(py, &self.central).save())
    }

    /// Goes on from a saved state of the same plan.
    #[staticmethod]
    fn restore(plan: &Plan, saved: &[u8]) -> PyResult<Self> {
        let central = Central::restore((*plan.0).clone(), saved).map_err(errors::value)?;
        Ok(Self { plan: Arc::clone(&plan.0), central: Mutex::new(central) })
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Pickled<'py, (Plan, Bound<'py, PyBytes>)> {
        Ok((PyType::new::<Self>(py).getattr("restore")?, (self.plan(), self.save(py))))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let (round, uploads) = (self.round(py), self.uploads(py));
        format!("Server({}, round={round}, uploads={uploads})", self.plan().__repr__())
    }
}
