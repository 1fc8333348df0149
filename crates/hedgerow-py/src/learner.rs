//! [`Learner`]: one machine, no network.

use std::sync::{Arc, Mutex};

use hedgerow::message::{Report, Upload};
use hedgerow_net::agent::engine::{Answer, BadInput, Engine};
use hedgerow_net::transport::protocol::{self, wire};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};
use serde::{Deserialize, Serialize};

use crate::Pickled;
use crate::arrays;
use crate::batch::{self, Predictor, lock};
use crate::central::Central;
use crate::errors;
use crate::plan::Plan;

/// The only node of its federation.
const NODE: u32 = 0;

/// A node with a server beside it.
struct Alone {
    engine: Engine,
    server: Central,
    said: Vec<wire::FromNode>,
    report: Report,
    upload: Upload,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    plan: String,
    engine: Vec<u8>,
    server: Vec<u8>,
}

impl Alone {
    fn new(plan: &hedgerow_net::Plan) -> Self {
        let mut alone = Self::of(Engine::new(plan.clone(), "", NODE), Central::new(plan.clone()));
        alone.engine.connected();
        alone.hear();
        alone
    }

    fn of(engine: Engine, server: Central) -> Self {
        Self {
            engine,
            server,
            said: Vec::new(),
            report: Report::default(),
            upload: Upload::default(),
        }
    }

    /// What the server has to tell. A node refuses nothing that its own server says.
    fn hear(&mut self) {
        if let Some(scale) = self.server.scale() {
            _ = self.engine.hear(&wire::from_server::Message::Scale(scale).into());
        }
        let broadcast = self.server.broadcast(NODE);
        _ = self.engine.hear(&wire::from_server::Message::Broadcast(broadcast).into());
    }

    /// A round, if the node has something to say.
    fn speak(&mut self) {
        self.engine.speak(false, &mut self.said);
        if self.said.is_empty() {
            return;
        }
        let most = self.engine.plan().most_numbers();
        for message in self.said.drain(..) {
            match message.message {
                Some(wire::from_node::Message::Report(report)) => {
                    if protocol::numbers_from_bytes(&report.numbers, most, &mut self.report.numbers)
                        .is_ok()
                    {
                        _ = self.server.accept_report(NODE, &self.report);
                    }
                }
                Some(wire::from_node::Message::Upload(upload)) => {
                    (self.upload.round, self.upload.vote) = (upload.round, upload.vote);
                    if protocol::numbers_from_bytes(&upload.numbers, most, &mut self.upload.numbers)
                        .is_ok()
                    {
                        let errors = (upload.samples.into(), upload.squared_error.into());
                        _ = self.server.accept_upload(NODE, &self.upload, errors.0, errors.1);
                    }
                }
                Some(wire::from_node::Message::Idle(_) | wire::from_node::Message::Hello(_))
                | None => {}
            }
        }
        if self.server.close_round() {
            self.hear();
        }
    }

    fn save(&self) -> Vec<u8> {
        let plan = self.engine.plan().to_json();
        let saved = Saved { plan, engine: self.engine.save(), server: self.server.save() };
        // Writing to memory can't fail; were it to, an empty state would be refused.
        postcard::to_stdvec(&saved).unwrap_or_default()
    }

    fn restore(saved: &[u8]) -> PyResult<Self> {
        let unreadable = |error| errors::value(format!("the saved learner can't be read: {error}"));
        let Saved { plan, engine, server } = postcard::from_bytes(saved).map_err(unreadable)?;
        let plan = hedgerow_net::Plan::from_json(&plan).map_err(errors::value)?;
        check(&plan)?;
        let server = Central::restore(plan.clone(), &server).map_err(errors::value)?;
        let engine = Engine::restore(plan.clone(), &engine).map_err(errors::value)?;
        let fresh = Self::new(&plan);
        let mut alone = Self::of(engine, server);
        // As after every round: connected, with nothing due.
        alone.engine.resume(fresh.engine.standing());
        alone.hear();
        Ok(alone)
    }
}

impl Predictor for Alone {
    fn predict(&mut self, x: &[f32]) -> Result<Answer, BadInput> {
        self.engine.predict(x)
    }

    fn learn(&mut self, x: &[f32], y: f32) -> Result<Answer, BadInput> {
        let answer = self.engine.learn(x, y)?;
        self.speak();
        Ok(answer)
    }
}

/// Refuses what has no meaning on one machine.
fn check(plan: &hedgerow_net::Plan) -> PyResult<()> {
    if plan.is_plain() {
        return Ok(());
    }
    Err(errors::value("compression must be \"none\" and part 1 for a learner: nothing travels"))
}

/// Online learning on one machine: the federation's method with a single node, whose server is
/// beside it.
///
/// Samples are lists, tuples, arrays, or dictionaries from the names of the plan's columns; what is
/// missing (NaN, None, absent) is filled in by the mean so far. With ``scaling="online"``
/// predictions before the sixteenth label are the mean of the labels.
///
/// >>> from hedgerow import Learner, Plan
/// >>> learner = Learner(Plan(inputs=1, scaling="none"))
/// >>> for t in range(200):
/// ...     x = t % 20 / 20
/// ...     before = learner.learn_one([x], x * x)
/// >>> abs(learner.predict_one([0.5]) - 0.25) < 0.02
/// True
/// >>> learner.samples
/// 200
#[pyclass(frozen, module = "hedgerow")]
pub(crate) struct Learner {
    plan: Arc<hedgerow_net::Plan>,
    alone: Mutex<Alone>,
}

#[pymethods]
impl Learner {
    #[new]
    fn new(plan: &Plan) -> PyResult<Self> {
        check(&plan.0)?;
        Ok(Self { plan: Arc::clone(&plan.0), alone: Mutex::new(Alone::new(&plan.0)) })
    }

    /// Predicts the label of one sample.
    fn predict_one(&self, py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<f64> {
        let x = self.sample(x)?;
        let answer = lock(py, &self.alone).predict(&x).map_err(errors::value)?;
        Ok(f64::from(answer.value))
    }

    /// Learns from one sample; the result is the prediction before.
    fn learn_one(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        y: &Bound<'_, PyAny>,
    ) -> PyResult<f64> {
        let (x, y) = (self.sample(x)?, arrays::label(y)?);
        let answer = lock(py, &self.alone).learn(&x, y).map_err(errors::value)?;
        Ok(f64::from(answer.value))
    }

    /// Predicts the labels of samples, a row for each.
    fn predict<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        batch::predict(py, &self.alone, &self.plan, x)
    }

    /// Learns from samples, one after the other; the result is what was predicted before each.
    fn learn<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        y: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        batch::learn(py, &self.alone, &self.plan, x, y)
    }

    /// Labels that were learned.
    #[getter]
    fn samples(&self, py: Python<'_>) -> u64 {
        lock(py, &self.alone).engine.tally().samples
    }

    /// Mean squared error of the model's predictions before each label; 0 before the first. With
    /// online scaling there is no model until the first sixteen labels have made a scale: until
    /// then the mean of the labels is predicted, and that isn't counted.
    #[getter]
    fn mse(&self, py: Python<'_>) -> f64 {
        lock(py, &self.alone).engine.tally().mse()
    }

    /// Rounds that have closed, and one.
    #[getter]
    fn round(&self, py: Python<'_>) -> u64 {
        lock(py, &self.alone).engine.round()
    }

    /// How much each kernel has in the predictions; zero everywhere for methods that have no
    /// weights of kernels, such as gr.
    fn shares(&self, py: Python<'_>) -> Vec<f64> {
        let mut shares = vec![0.0; self.plan.setup().config().kernels];
        lock(py, &self.alone).engine.half().shares(&mut shares);
        shares
    }

    /// What is learned.
    #[getter]
    fn plan(&self) -> Plan {
        Plan(Arc::clone(&self.plan))
    }

    /// Everything that has to survive a restart, the plan among it.
    fn save<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &lock(py, &self.alone).save())
    }

    /// Goes on from a saved state.
    #[staticmethod]
    fn restore(saved: &[u8]) -> PyResult<Self> {
        let alone = Alone::restore(saved)?;
        Ok(Self { plan: Arc::new(alone.engine.plan().clone()), alone: Mutex::new(alone) })
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Pickled<'py, (Bound<'py, PyBytes>,)> {
        Ok((PyType::new::<Self>(py).getattr("restore")?, (self.save(py),)))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let samples = self.samples(py);
        format!("Learner({}, samples={samples})", self.plan().__repr__())
    }
}

impl Learner {
    fn sample(&self, x: &Bound<'_, PyAny>) -> PyResult<Vec<f32>> {
        arrays::sample(x, self.plan.inputs(), &self.plan.learning().columns)
    }
}
