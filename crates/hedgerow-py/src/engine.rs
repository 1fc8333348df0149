//! [`Engine`]: a node without sockets.

use std::sync::Mutex;

use hedgerow::NodeId;
use hedgerow::message::{
    BroadcastHead, BroadcastMessage, Numbers as Carried, ScaleMessage, Selection, ToNode, ToServer,
};
use hedgerow::node::LinkSnapshot;
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyType};

use crate::Pickled;
use crate::arrays::{self, Numbers};
use crate::batch::{self, lock};
use crate::errors;
use crate::messages::{Speech, Upload, count, kernels, narrow};
use crate::plan::Plan;

/// A node without sockets: it predicts, learns, hears a server and says what there is to say;
/// whoever drives it carries the messages.
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
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (plan, run="", number=None), text_signature = "(plan, run='', number=0)")]
    fn new(plan: &Plan, run: &str, number: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let number = number.map_or(Ok(0), node)?;
        let mut node = plan.0.node(number);
        node.set_run(run);
        Ok(Self { plan: plan.0.clone(), node: Mutex::new(node) })
    }

    /// Predicts the label of one sample.
    fn predict_one(&self, x: &Bound<'_, PyAny>) -> PyResult<f64> {
        batch::predict_one(&self.node, &self.plan, x)
    }

    /// Learns from one sample; the result is what it would have predicted.
    fn learn_one(&self, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<f64> {
        batch::learn_one(&self.node, &self.plan, x, y)
    }

    /// Predicts the labels of samples, a row for each.
    fn predict<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<f32>>> {
        batch::predict(&self.node, &self.plan, x)
    }

    /// Learns from samples, one after the other; the result is what was predicted before each.
    fn learn<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        y: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        batch::learn(&self.node, &self.plan, x, y)
    }

    /// Predicts, and remembers the sample until its label comes.
    fn predict_later(&self, py: Python<'_>, id: &str, x: &Bound<'_, PyAny>) -> PyResult<f64> {
        let x = batch::sample(&self.plan, x)?;
        let answer = lock(py, &self.node).predict_later(id, &x).map_err(errors::value)?;
        Ok(f64::from(answer.value))
    }

    /// Learns the label of an earlier prediction, which is the result. KeyError if none waits under
    /// this name.
    fn learn_by_id(&self, py: Python<'_>, id: &str, y: &Bound<'_, PyAny>) -> PyResult<f64> {
        let y = arrays::label(y)?;
        let answer = lock(py, &self.node).learn_by_id(id, &[y]).map_err(errors::input)?;
        Ok(f64::from(answer.value))
    }

    /// A connection is up: it begins with nothing said on either side.
    fn connected(&self, py: Python<'_>) {
        lock(py, &self.node).connected();
    }

    /// It is down: from here on samples are learned as they come.
    fn disconnected(&self, py: Python<'_>) {
        lock(py, &self.node).disconnected();
    }

    /// Takes a scale, as ``Server.scale`` tells it. Hear it before the broadcast that comes with
    /// it.
    fn hear_scale(&self, py: Python<'_>, version: &Bound<'_, PyAny>, scale: &[u8]) -> PyResult<()> {
        let scale = ScaleMessage { version: count("version", version)?, scale: scale.to_vec() };
        self.hear(py, ToNode::Scale(scale))
    }

    /// Takes a broadcast. ``taken`` is the latest round whose upload of this node the server has
    /// taken.
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

    /// What there is to say now, each thing once a round. Who has learned nothing in this round
    /// answers only if ``even_so``, and if the method has something to say.
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

    /// How much each kernel has in the predictions; zero everywhere if the method has no kernels.
    fn shares(&self, py: Python<'_>) -> Vec<f64> {
        batch::shares(&lock(py, &self.node))
    }

    /// What it belongs to.
    #[getter]
    fn plan(&self) -> Plan {
        Plan(self.plan.clone())
    }

    /// The run that it belongs to.
    #[getter]
    fn run(&self, py: Python<'_>) -> String {
        lock(py, &self.node).run().to_owned()
    }

    /// Its number in the run.
    #[getter]
    fn number(&self, py: Python<'_>) -> NodeId {
        lock(py, &self.node).id()
    }

    /// The round that it is in.
    #[getter]
    fn round(&self, py: Python<'_>) -> u64 {
        lock(py, &self.node).round()
    }

    /// Whether it has a scale: without one nothing can be learned yet.
    #[getter]
    fn is_scaled(&self, py: Python<'_>) -> bool {
        lock(py, &self.node).is_scaled()
    }

    /// Whether it has answered the open round and waits for the next one.
    #[getter]
    fn awaits_broadcast(&self, py: Python<'_>) -> bool {
        lock(py, &self.node).awaits_broadcast()
    }

    /// What it has seen and done: samples, mse, imputed, uploads, taken, refused, forgotten,
    /// waiting, held.
    #[getter]
    fn tally<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (tally, (waiting, held)) = {
            let node = lock(py, &self.node);
            (node.tally(), node.waiting())
        };
        let named = PyDict::new(py);
        named.set_item("samples", tally.samples)?;
        named.set_item("mse", tally.mse())?;
        named.set_item("imputed", tally.imputed)?;
        named.set_item("uploads", tally.uploads)?;
        named.set_item("taken", tally.taken)?;
        named.set_item("refused", tally.refused)?;
        named.set_item("forgotten", tally.forgotten)?;
        named.set_item("waiting", waiting)?;
        named.set_item("held", held)?;
        Ok(named)
    }

    /// Everything that has to survive a restart. Its connection is not part of it.
    fn save<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &lock(py, &self.node).save())
    }

    /// Goes on from a saved state of the same plan, without a connection.
    #[staticmethod]
    fn restore(plan: &Plan, saved: &[u8]) -> PyResult<Self> {
        let node = hedgerow::Node::restore(&plan.0, saved).map_err(errors::value)?;
        Ok(Self { plan: plan.0.clone(), node: Mutex::new(node) })
    }

    /// The same, in the middle of a connection.
    #[staticmethod]
    fn _resume(plan: &Plan, saved: &[u8], link: &[u8]) -> PyResult<Self> {
        let link: LinkSnapshot = postcard::from_bytes(link).map_err(errors::value)?;
        let mut node = hedgerow::Node::restore(&plan.0, saved).map_err(errors::value)?;
        node.resume(link);
        Ok(Self { plan: plan.0.clone(), node: Mutex::new(node) })
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> Pickled<'py, (Plan, Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let (saved, link) = {
            let node = lock(py, &self.node);
            (node.save(), node.link())
        };
        let link = postcard::to_stdvec(&link).map_err(errors::value)?;
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
    fn hear(&self, py: Python<'_>, message: ToNode) -> PyResult<()> {
        lock(py, &self.node).hear(&message).map_err(errors::value)
    }
}

/// A node's number.
pub(crate) fn node(number: &Bound<'_, PyAny>) -> PyResult<NodeId> {
    narrow("a node's number", count("a node's number", number)?)
}
