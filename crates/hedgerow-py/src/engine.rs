//! [`Engine`]: a node without sockets.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use hedgerow::NodeId;
use hedgerow::message::{
    BroadcastHead, BroadcastMessage, Numbers as Carried, ScaleMessage, Selection, ToNode, ToServer,
};
use hedgerow::node::{Answer, BadInput, LinkSnapshot};
use numpy::{PyArray1, PyArray2};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyType};

use crate::Pickled;
use crate::arrays::Numbers;
use crate::batch::{self, lock};
use crate::errors;
use crate::labels;
use crate::messages::{Speech, Upload, count, kernels, narrow};
use crate::plan::Plan;

/// A node without sockets: it predicts, learns, hears a server and says what there is to say;
/// the caller carries the messages.
///
/// Values that are missing (NaN, None, or absent from a dictionary) are filled in by the mean so
/// far.
///
/// >>> from hedgerow import Engine, Plan, Server
/// >>> plan = Plan(inputs=1, nodes=1, scaling="none")
/// >>> server, node = Server(plan), Engine(plan)
/// >>> node.connected()
/// >>> for t in range(50):
/// ...     told = server.broadcast
/// ...     node.hear_broadcast(told.round, told.kernels, told.numbers, taken=server.taken(0))
/// ...     x = t % 10 / 10
/// ...     prediction = node.learn_one([x], x * x)
/// ...     server.accept_upload(0, node.speak().upload)
/// ...     _ = server.close_round()
/// >>> abs(prediction - 0.81) < 0.05
/// True
#[pyclass(frozen, module = "hedgerow")]
pub(crate) struct Engine {
    plan: hedgerow::Plan,
    node: Mutex<hedgerow::Node>,
    missing_labels: AtomicU64,
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (plan, run="", number=None), text_signature = "(plan, run='', number=0)")]
    fn new(plan: &Plan, run: &str, number: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        labels::check_one_output(&plan.0)?;
        let number = number.map_or(Ok(0), node)?;
        let mut node = plan.0.node(number);
        node.set_run(run);
        Ok(Self::with(plan.0.clone(), node))
    }

    /// Predicts the label of one sample.
    fn predict_one<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        batch::predict_one(&self.node, &self.plan, x, |node| node)
    }

    /// The probability of each class for one sample, by name.
    fn predict_proba_one<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        batch::predict_proba_one(&self.node, &self.plan, x, |node| node)
    }

    /// Learns from one sample. Returns the prediction made before. Without a label (None, NaN) the
    /// sample is only predicted.
    fn learn_one<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        y: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let learn = |node: &mut hedgerow::Node, x: &[f32], y: Option<&[f32]>| {
            self.learn_or_predict(node, x, y)
        };
        batch::learn_one(&self.node, &self.plan, (x, y), learn, |node| node)
    }

    /// Predicts the labels of samples, one per row.
    fn predict<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        batch::predictions(&self.node, &self.plan, x, |node| node)
    }

    /// The probabilities of classes, one row per sample and one column per class of the plan.
    fn predict_proba<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        batch::predict_proba(&self.node, &self.plan, x, |node| node)
    }

    /// Learns from samples in order. Returns the predictions made before each. Samples without a
    /// label (NaN) are only predicted.
    fn learn<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        y: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let learn = |node: &mut hedgerow::Node, x: &[f32], y: Option<&[f32]>| {
            self.learn_or_predict(node, x, y)
        };
        batch::learn(&self.node, &self.plan, (x, y), learn, |node| node)
    }

    /// Predicts, and remembers the sample until its label arrives.
    fn predict_later<'py>(&self, id: &str, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, x) = (x.py(), batch::sample(&self.plan, x)?);
        let mut node = lock(py, &self.node);
        let answer = node.predict_later(id, &x).map_err(errors::value)?;
        labels::predicted(py, &node, &answer)
    }

    /// Learns the label of an earlier prediction. Returns that prediction. Raises KeyError if no
    /// prediction waits under this id.
    fn learn_by_id<'py>(&self, id: &str, y: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, y) = (y.py(), labels::known(&self.plan, y)?);
        let mut node = lock(py, &self.node);
        let answer = node.learn_by_id(id, &y).map_err(errors::input)?;
        labels::predicted(py, &node, &answer)
    }

    /// Starts a connection, without messages so far.
    fn connected(&self, py: Python<'_>) {
        lock(py, &self.node).connected();
    }

    /// Ends the connection. Samples are then learned without rounds.
    fn disconnected(&self, py: Python<'_>) {
        lock(py, &self.node).disconnected();
    }

    /// Accepts a scale from ``Server.scale``. Call it before ``hear_broadcast`` of the same round.
    fn hear_scale(&self, py: Python<'_>, version: &Bound<'_, PyAny>, scale: &[u8]) -> PyResult<()> {
        let scale = ScaleMessage { version: count("version", version)?, scale: scale.to_vec() };
        self.hear(py, ToNode::Scale(scale))
    }

    /// Accepts a broadcast. ``taken`` is the latest round in which the server accepted an upload of
    /// this node.
    #[pyo3(
        signature = (round, kernels, numbers, taken=None),
        text_signature = "($self, round, kernels, numbers, taken=0)"
    )]
    fn hear_broadcast(
        &self,
        py: Python<'_>,
        round: &Bound<'_, PyAny>,
        kernels: Option<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
        numbers: &Bound<'_, PyAny>,
        taken: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let kernels = self::kernels(kernels)?.map(|(current, next)| Selection { current, next });
        let numbers = Carried::Plain(Numbers::vector(numbers)?.as_slice().to_vec());
        let (round, heads) = (count("round", round)?, vec![BroadcastHead { kernels, numbers }]);
        let taken = taken.map_or(Ok(0), |taken| count("taken", taken))?;
        self.hear(py, ToNode::Broadcast(BroadcastMessage { round, heads, taken }))
    }

    /// Returns the messages for the server, each once per round. A node that has learned nothing in
    /// this round answers only with ``even_so``, and only if the method supports it.
    #[pyo3(signature = (even_so=false))]
    fn speak(&self, py: Python<'_>, even_so: bool) -> PyResult<Speech> {
        if !self.plan.is_plain_up() {
            return Err(errors::value(
                "compression must be \"none\" for messages that Python carries",
            ));
        }
        let mut said = Vec::new();
        lock(py, &self.node).speak(even_so, |message| said.push(message));
        let mut speech = Speech { report: None, upload: None };
        for message in said {
            match message {
                ToServer::Report(report) => {
                    speech.report = Some(PyArray1::from_vec(py, report.numbers).unbind());
                }
                ToServer::Upload(upload) => {
                    speech.upload =
                        Upload::new(py, upload).map(|it| Py::new(py, it)).transpose()?;
                }
                ToServer::Idle => {}
            }
        }
        Ok(speech)
    }

    /// The weight of each kernel in the predictions. All zero if the method has no kernels.
    fn shares(&self, py: Python<'_>) -> Vec<f64> {
        batch::shares(&lock(py, &self.node))
    }

    /// The plan.
    #[getter]
    fn plan(&self) -> Plan {
        Plan(self.plan.clone())
    }

    /// The run of the node.
    #[getter]
    fn run(&self, py: Python<'_>) -> String {
        lock(py, &self.node).run().to_owned()
    }

    /// Its number in the run.
    #[getter]
    fn number(&self, py: Python<'_>) -> NodeId {
        lock(py, &self.node).id()
    }

    /// The current round.
    #[getter]
    fn round(&self, py: Python<'_>) -> u64 {
        lock(py, &self.node).round()
    }

    /// Whether it has a scale. Without one nothing can be learned.
    #[getter]
    fn is_scaled(&self, py: Python<'_>) -> bool {
        lock(py, &self.node).is_scaled()
    }

    /// Whether it has answered the open round and waits for the next one.
    #[getter]
    fn awaits_broadcast(&self, py: Python<'_>) -> bool {
        lock(py, &self.node).awaits_broadcast()
    }

    /// Counters: samples, mse, imputed, uploads, taken, refused, forgotten, waiting, held; and
    /// missing_labels since it was made or restored.
    #[getter]
    fn tally<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (tally, (waiting, held)) = {
            let node = lock(py, &self.node);
            (node.tally(), node.waiting())
        };
        let named = PyDict::new(py);
        named.set_item("samples", tally.samples)?;
        named.set_item("mse", tally.mse())?;
        let counts = [
            ("imputed", tally.imputed),
            ("uploads", tally.uploads),
            ("taken", tally.taken),
            ("refused", tally.refused),
            ("forgotten", tally.forgotten),
            ("waiting", waiting as u64),
            ("held", held as u64),
            ("missing_labels", self.missing_labels.load(Ordering::Relaxed)),
        ];
        counts.into_iter().try_for_each(|(name, count)| named.set_item(name, count))?;
        Ok(named)
    }

    /// The complete state, without the connection.
    fn save<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &lock(py, &self.node).save())
    }

    /// Continues from a saved state of the same plan, without a connection.
    #[staticmethod]
    fn restore(plan: &Plan, saved: &[u8]) -> PyResult<Self> {
        labels::check_one_output(&plan.0)?;
        let node = hedgerow::Node::restore(&plan.0, saved).map_err(errors::value)?;
        Ok(Self::with(plan.0.clone(), node))
    }

    /// The same with the state of the connection.
    #[staticmethod]
    fn _resume(plan: &Plan, saved: &[u8], link: &[u8]) -> PyResult<Self> {
        let link: LinkSnapshot = postcard::from_bytes(link).map_err(errors::value)?;
        let mut node = hedgerow::Node::restore(&plan.0, saved).map_err(errors::value)?;
        node.resume(link);
        Ok(Self::with(plan.0.clone(), node))
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> Pickled<'py, (Plan, Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let (saved, link) = {
            let node = lock(py, &self.node);
            (node.save(), node.link())
        };
        let link = postcard::to_allocvec(&link).map_err(errors::value)?;
        let parts = (self.plan(), PyBytes::new(py, &saved), PyBytes::new(py, &link));
        Ok((PyType::new::<Self>(py).getattr("_resume")?, parts))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let node = lock(py, &self.node);
        let (id, round, samples) = (node.id(), node.round(), node.tally().samples);
        let plan = self.plan().__repr__();
        format!("Engine({plan}, number={id}, round={round}, samples={samples})")
    }
}

impl Engine {
    fn with(plan: hedgerow::Plan, node: hedgerow::Node) -> Self {
        Self { plan, node: Mutex::new(node), missing_labels: AtomicU64::new(0) }
    }

    /// Learns a sample, or only predicts it if there is no label.
    fn learn_or_predict(
        &self,
        node: &mut hedgerow::Node,
        x: &[f32],
        y: Option<&[f32]>,
    ) -> Result<Answer, BadInput> {
        let Some(y) = y else {
            self.missing_labels.fetch_add(1, Ordering::Relaxed);
            return node.predict(x);
        };
        node.learn(x, y)
    }

    fn hear(&self, py: Python<'_>, message: ToNode) -> PyResult<()> {
        lock(py, &self.node).hear(&message).map_err(errors::value)
    }
}

/// A node's number.
pub(crate) fn node(number: &Bound<'_, PyAny>) -> PyResult<NodeId> {
    narrow("a node's number", count("a node's number", number)?)
}
