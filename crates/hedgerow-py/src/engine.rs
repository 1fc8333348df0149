//! [`Engine`]: a node without sockets.

use std::sync::{Arc, Mutex};

use hedgerow::NodeId;
use hedgerow::message::Selection;
use hedgerow_net::agent::engine::{self, Answer, BadInput, LinkSnapshot};
use hedgerow_net::transport::protocol::{self, wire};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyType};

use crate::Pickled;
use crate::arrays::{self, Numbers};
use crate::batch::{self, Predictor, lock};
use crate::errors;
use crate::messages::{Speech, Upload, count, kernels, narrow};
use crate::plan::Plan;

impl Predictor for engine::Engine {
    fn predict(&mut self, x: &[f32]) -> Result<Answer, BadInput> {
        self.predict(x)
    }

    fn learn(&mut self, x: &[f32], y: f32) -> Result<Answer, BadInput> {
        self.learn(x, y)
    }
}

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
    plan: Arc<hedgerow_net::Plan>,
    engine: Mutex<engine::Engine>,
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (plan, run="", number=None), text_signature = "(plan, run='', number=0)")]
    fn new(plan: &Plan, run: &str, number: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let number = number.map_or(Ok(0), node)?;
        let engine = engine::Engine::new((*plan.0).clone(), run, number);
        Ok(Self { plan: Arc::clone(&plan.0), engine: Mutex::new(engine) })
    }

    /// Predicts the label of one sample.
    fn predict_one(&self, py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<f64> {
        let x = self.sample(x)?;
        let answer = lock(py, &self.engine).predict(&x).map_err(errors::value)?;
        Ok(f64::from(answer.value))
    }

    /// Learns from one sample; the result is what it would have predicted.
    fn learn_one(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        y: &Bound<'_, PyAny>,
    ) -> PyResult<f64> {
        let (x, y) = (self.sample(x)?, arrays::label(y)?);
        let answer = lock(py, &self.engine).learn(&x, y).map_err(errors::value)?;
        Ok(f64::from(answer.value))
    }

    /// Predicts the labels of samples, a row for each.
    fn predict<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        batch::predict(py, &self.engine, &self.plan, x)
    }

    /// Learns from samples, one after the other; the result is what was predicted before each.
    fn learn<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        y: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        batch::learn(py, &self.engine, &self.plan, x, y)
    }

    /// Predicts, and remembers the sample until its label comes.
    fn predict_later(&self, py: Python<'_>, id: &str, x: &Bound<'_, PyAny>) -> PyResult<f64> {
        let x = self.sample(x)?;
        let answer = lock(py, &self.engine).predict_later(id, &x).map_err(errors::value)?;
        Ok(f64::from(answer.value))
    }

    /// Learns the label of an earlier prediction, which is the result. KeyError if none waits under
    /// this name.
    fn learn_by_id(&self, py: Python<'_>, id: &str, y: &Bound<'_, PyAny>) -> PyResult<f64> {
        let y = arrays::label(y)?;
        let answer = lock(py, &self.engine).learn_by_id(id, y).map_err(errors::input)?;
        Ok(f64::from(answer.value))
    }

    /// A connection is up: it begins with nothing said on either side.
    fn connected(&self, py: Python<'_>) {
        lock(py, &self.engine).connected();
    }

    /// It is down: from here on samples are learned as they come.
    fn disconnected(&self, py: Python<'_>) {
        lock(py, &self.engine).disconnected();
    }

    /// Takes a scale, as ``Server.scale`` tells it. Hear it before the broadcast that comes with
    /// it.
    fn hear_scale(&self, py: Python<'_>, version: &Bound<'_, PyAny>, scale: &[u8]) -> PyResult<()> {
        let scale =
            wire::Scale { version: count("version", version)?, scale: scale.to_vec().into() };
        self.hear(py, wire::from_server::Message::Scale(scale))
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
        let numbers = Numbers::vector(numbers)?.as_slice().to_vec();
        let broadcast =
            hedgerow::message::Broadcast { round: count("round", round)?, kernels, numbers };
        let taken = taken.map_or(Ok(0), |taken| count("taken", taken))?;
        let broadcast = wire::Broadcast { taken, ..protocol::broadcast_to_wire(&broadcast) };
        self.hear(py, wire::from_server::Message::Broadcast(broadcast))
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
        lock(py, &self.engine).speak(even_so, &mut said);
        let mut speech = Speech { report: None, upload: None };
        for message in said {
            match message.message {
                Some(wire::from_node::Message::Report(report)) => {
                    let numbers = self.numbers(&report.numbers)?;
                    speech.report = Some(PyArray1::from_vec(py, numbers).unbind());
                }
                Some(wire::from_node::Message::Upload(upload)) => {
                    let wire::Upload { round, vote, numbers, samples, squared_error } = upload;
                    let upload =
                        hedgerow::message::Upload { round, vote, numbers: self.numbers(&numbers)? };
                    let upload = Upload::new(py, upload, samples, squared_error.into());
                    speech.upload = Some(Py::new(py, upload)?);
                }
                Some(wire::from_node::Message::Idle(_) | wire::from_node::Message::Hello(_))
                | None => {}
            }
        }
        Ok(speech)
    }

    /// How much each kernel has in the predictions; zero everywhere if the method has no kernels.
    fn shares(&self, py: Python<'_>) -> Vec<f64> {
        let mut shares = vec![0.0; self.plan.setup().config().kernels];
        lock(py, &self.engine).half().shares(&mut shares);
        shares
    }

    /// What it belongs to.
    #[getter]
    fn plan(&self) -> Plan {
        Plan(Arc::clone(&self.plan))
    }

    /// The run that it belongs to.
    #[getter]
    fn run(&self, py: Python<'_>) -> String {
        lock(py, &self.engine).run().to_owned()
    }

    /// Its number in the run.
    #[getter]
    fn number(&self, py: Python<'_>) -> NodeId {
        lock(py, &self.engine).number()
    }

    /// The round that it is in.
    #[getter]
    fn round(&self, py: Python<'_>) -> u64 {
        lock(py, &self.engine).round()
    }

    /// Whether it has a scale: without one nothing can be learned yet.
    #[getter]
    fn is_scaled(&self, py: Python<'_>) -> bool {
        lock(py, &self.engine).is_scaled()
    }

    /// Whether it has answered the open round and waits for the next one.
    #[getter]
    fn awaits_broadcast(&self, py: Python<'_>) -> bool {
        lock(py, &self.engine).awaits_broadcast()
    }

    /// What it has seen and done: samples, mse, imputed, uploads, taken, refused, forgotten,
    /// waiting, held.
    #[getter]
    fn tally<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (tally, (waiting, held)) = {
            let engine = lock(py, &self.engine);
            (*engine.tally(), engine.waiting())
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
        PyBytes::new(py, &lock(py, &self.engine).save())
    }

    /// Goes on from a saved state of the same plan, without a connection.
    #[staticmethod]
    fn restore(plan: &Plan, saved: &[u8]) -> PyResult<Self> {
        let engine = engine::Engine::restore((*plan.0).clone(), saved).map_err(errors::value)?;
        Ok(Self { plan: Arc::clone(&plan.0), engine: Mutex::new(engine) })
    }

    /// The same, in the middle of a connection.
    #[staticmethod]
    fn _resume(plan: &Plan, saved: &[u8], standing: &[u8]) -> PyResult<Self> {
        let standing: LinkSnapshot = postcard::from_bytes(standing).map_err(errors::value)?;
        let mut engine =
            engine::Engine::restore((*plan.0).clone(), saved).map_err(errors::value)?;
        engine.resume(standing);
        Ok(Self { plan: Arc::clone(&plan.0), engine: Mutex::new(engine) })
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> Pickled<'py, (Plan, Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let (saved, standing) = {
            let engine = lock(py, &self.engine);
            (engine.save(), engine.standing())
        };
        let standing = postcard::to_stdvec(&standing).map_err(errors::value)?;
        let parts = (self.plan(), PyBytes::new(py, &saved), PyBytes::new(py, &standing));
        Ok((PyType::new::<Self>(py).getattr("_resume")?, parts))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let engine = lock(py, &self.engine);
        let samples = engine.tally().samples;
        format!(
            "Engine({}, number={}, round={}, samples={samples})",
            self.plan().__repr__(),
            engine.number(),
            engine.round()
        )
    }
}

impl Engine {
    fn sample(&self, x: &Bound<'_, PyAny>) -> PyResult<Vec<f32>> {
        arrays::sample(x, self.plan.inputs(), &self.plan.learning().columns)
    }

    fn hear(&self, py: Python<'_>, message: wire::from_server::Message) -> PyResult<()> {
        lock(py, &self.engine).hear(&message.into()).map_err(errors::value)
    }

    fn numbers(&self, bytes: &[u8]) -> PyResult<Vec<f32>> {
        let mut numbers = Vec::new();
        protocol::numbers_from_bytes(bytes, self.plan.most_numbers(), &mut numbers)
            .map_err(errors::value)?;
        Ok(numbers)
    }
}

/// A node's number.
pub(crate) fn node(number: &Bound<'_, PyAny>) -> PyResult<NodeId> {
    narrow("a node's number", count("a node's number", number)?)
}
