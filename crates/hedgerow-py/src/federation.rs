//! [`Federation`]: K nodes and their server in one process.

use std::sync::{Arc, Mutex, PoisonError};

use hedgerow::message::{Report, Upload};
use hedgerow::{Method, NodeId};
use hedgerow_net::agent::engine::{Answer, BadInput, Engine, LinkSnapshot};
use hedgerow_net::transport::protocol::{self, wire};
use numpy::{PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};
use serde::{Deserialize, Serialize};

use crate::arrays::{self, Numbers};
use crate::batch::lock;
use crate::central::Central;
use crate::engine;
use crate::errors;
use crate::plan::Plan;

/// Samples between two looks at whether somebody wants to end it.
const PIECE: usize = 256;

/// Everybody.
struct Everybody {
    engines: Vec<Engine>,
    server: Central,
    traffic: Traffic,
    said: Vec<wire::FromNode>,
    report: Report,
    upload: Upload,
}

/// Numbers that went up and down, all nodes together.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Traffic {
    up: u64,
    down: u64,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    plan: String,
    engines: Vec<(Vec<u8>, LinkSnapshot)>,
    server: Vec<u8>,
    traffic: Traffic,
}

impl Everybody {
    fn new(plan: &hedgerow_net::Plan) -> Self {
        let nodes = 0..plan.setup().config().nodes as NodeId;
        let engines = nodes.map(|number| Engine::new(plan.clone(), "", number)).collect();
        let mut all = Self::of(engines, Central::new(plan.clone()), Traffic::default());
        for number in 0..all.engines.len() {
            all.engines[number].connected();
            all.hear(number);
        }
        all.traffic = Traffic::default();
        all
    }

    fn of(engines: Vec<Engine>, server: Central, traffic: Traffic) -> Self {
        let (said, report, upload) = (Vec::new(), Report::default(), Upload::default());
        Self { engines, server, traffic, said, report, upload }
    }

    /// A node hears what the server has to tell. It refuses nothing that its own server says.
    fn hear(&mut self, number: usize) {
        let engine = &mut self.engines[number];
        if let Some(scale) = self.server.scale() {
            _ = engine.hear(&wire::from_server::Message::Scale(scale).into());
        }
        let broadcast = self.server.broadcast(number as NodeId);
        _ = engine.hear(&wire::from_server::Message::Broadcast(broadcast).into());
        self.traffic.down =
            self.traffic.down.saturating_add(self.server.half().broadcast().count() as u64);
    }

    /// A node says what it has to say.
    fn speak(&mut self, number: usize) {
        let engine = &mut self.engines[number];
        engine.speak(false, &mut self.said);
        let (node, most) = (number as NodeId, engine.plan().most_numbers());
        for message in self.said.drain(..) {
            match message.message {
                Some(wire::from_node::Message::Report(report)) => {
                    if protocol::numbers_from_bytes(&report.numbers, most, &mut self.report.numbers)
                        .is_ok()
                    {
                        self.traffic.up =
                            self.traffic.up.saturating_add(self.report.count() as u64);
                        _ = self.server.accept_report(node, &self.report);
                    }
                }
                Some(wire::from_node::Message::Upload(upload)) => {
                    (self.upload.round, self.upload.vote) = (upload.round, upload.vote);
                    if protocol::numbers_from_bytes(&upload.numbers, most, &mut self.upload.numbers)
                        .is_ok()
                    {
                        self.traffic.up =
                            self.traffic.up.saturating_add(self.upload.count() as u64);
                        let errors = (upload.samples.into(), upload.squared_error.into());
                        _ = self.server.accept_upload(node, &self.upload, errors.0, errors.1);
                    }
                }
                Some(wire::from_node::Message::Idle(_) | wire::from_node::Message::Hello(_))
                | None => {}
            }
        }
    }

    /// A round: samples are predicted and learned where they are, everybody who has learned speaks,
    /// and all hear what came of it.
    fn round(
        &mut self,
        rows: &[Row<'_>],
        mut seen: impl FnMut(usize, Answer),
    ) -> Result<(), BadInput> {
        for row in rows {
            let answer = self.engines[row.node].learn(row.x, row.y)?;
            seen(row.at, answer);
        }
        for number in 0..self.engines.len() {
            self.speak(number);
        }
        if self.server.close_round() {
            (0..self.engines.len()).for_each(|number| self.hear(number));
        }
        Ok(())
    }

    fn save(&self, plan: &hedgerow_net::Plan) -> Vec<u8> {
        let engines =
            self.engines.iter().map(|engine| (engine.save(), engine.standing())).collect();
        let (plan, server) = (plan.to_json(), self.server.save());
        // Writing to memory can't fail; were it to, an empty state would be refused.
        postcard::to_stdvec(&Saved { plan, engines, server, traffic: self.traffic })
            .unwrap_or_default()
    }

    fn restore(saved: &[u8]) -> PyResult<(hedgerow_net::Plan, Self)> {
        let unreadable =
            |error| errors::value(format!("the saved federation can't be read: {error}"));
        let Saved { plan, engines: saved, server, traffic } =
            postcard::from_bytes(saved).map_err(unreadable)?;
        let plan = hedgerow_net::Plan::from_json(&plan).map_err(errors::value)?;
        check(&plan)?;
        let (expected, found) = (plan.setup().config().nodes, saved.len());
        if expected != found {
            return Err(errors::value(format!(
                "{expected} nodes were expected, but {found} were saved"
            )));
        }
        let mut engines = Vec::new();
        for (engine, standing) in saved {
            let mut engine = Engine::restore(plan.clone(), &engine).map_err(errors::value)?;
            engine.resume(standing);
            engines.push(engine);
        }
        let server = Central::restore(plan.clone(), &server).map_err(errors::value)?;
        Ok((plan, Self::of(engines, server, traffic)))
    }
}

/// Bytes that all nodes may take; more would be the end of the process, not an exception.
const MOST_MEMORY: f64 = 16.0 * 1024.0 * 1024.0 * 1024.0;

/// Refuses what has no meaning in one process, or doesn't fit into it.
fn check(plan: &hedgerow_net::Plan) -> PyResult<()> {
    if !plan.is_plain() {
        return Err(errors::value(
            "compression must be \"none\" and part 1 in a federation of one process: simulate() has the others",
        ));
    }
    let nodes = plan.setup().config().nodes;
    let (width, inputs) = (plan.map().width() as f64, plan.inputs() as f64);
    let is_square = matches!(plan.learning().method, Method::GrOfl | Method::LinearNewton);
    // Models and buffers, and what methods of second order know of their features.
    let each = 1024.0 + 64.0 * (width + inputs) + if is_square { 8.0 * width * width } else { 0.0 };
    let most = MOST_MEMORY / each;
    if nodes as f64 <= most {
        return Ok(());
    }
    Err(errors::value(format!(
        "nodes must be at most {most:.0}, or their models need more than 16 GiB, but is {nodes}"
    )))
}

/// A sample and whose it is; `at` is where its prediction goes.
struct Row<'a> {
    at: usize,
    node: usize,
    x: &'a [f32],
    y: f32,
}

/// K nodes and their server in one process, as many as the plan has. The Python class of this name
/// is made from it.
#[pyclass(frozen, subclass, name = "_Federation", module = "hedgerow._hedgerow")]
pub(crate) struct Federation {
    plan: Arc<hedgerow_net::Plan>,
    all: Mutex<Everybody>,
}

type Outcome<'py> =
    (Bound<'py, PyArray1<f32>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<bool>>);

#[pymethods]
impl Federation {
    #[new]
    fn new(plan: &Plan) -> PyResult<Self> {
        check(&plan.0)?;
        Ok(Self { plan: Arc::clone(&plan.0), all: Mutex::new(Everybody::new(&plan.0)) })
    }

    /// Plays samples: in a single round, or as many rounds as it takes if each node sees one sample
    /// a round. Predictions, their rounds, and whether there was a model for each.
    #[pyo3(signature = (x, y, node=None, single=false))]
    fn _play<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        y: &Bound<'py, PyAny>,
        node: Option<&Bound<'py, PyAny>>,
        single: bool,
    ) -> PyResult<Outcome<'py>> {
        let inputs = self.plan.inputs();
        let x = Numbers::samples(x, inputs, &self.plan.learning().columns)?;
        let y = Numbers::labels(y, x.rows())?;
        for (row, y) in y.as_slice().iter().enumerate() {
            self.plan
                .setup()
                .check_label(*y)
                .map_err(|error| errors::value(format!("row {row}: {error}")))?;
        }
        let nodes = self.nodes_of(x.rows(), node)?;
        let mut rows: Vec<Row<'_>> = x
            .as_slice()
            .chunks_exact(inputs)
            .zip(y.as_slice())
            .zip(nodes)
            .enumerate()
            .map(|(at, ((x, y), node))| Row { at, node, x, y: *y })
            .collect();
        let mut rounds = vec![0i64; rows.len()];
        if !single {
            let mut seen = vec![0; self.plan.setup().config().nodes];
            for row in &rows {
                rounds[row.at] = seen[row.node];
                seen[row.node] += 1;
            }
            rows.sort_by_key(|row| rounds[row.at]);
        }
        let (mut predictions, mut known) = (vec![0f32; rows.len()], vec![false; rows.len()]);
        let mut played = 0;
        while played < rows.len() {
            let piece = py.detach(|| {
                let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
                let end = rows.len().min(played.saturating_add(PIECE));
                while played < end {
                    let round = rounds[rows[played].at];
                    let len =
                        rows[played..].iter().take_while(|row| rounds[row.at] == round).count();
                    all.round(&rows[played..played + len], |at, answer| {
                        (predictions[at], known[at]) = (answer.value, answer.known);
                    })?;
                    played += len;
                }
                Ok(())
            });
            piece.map_err(|error: BadInput| errors::value(error))?;
            py.check_signals()?;
        }
        Ok((
            PyArray1::from_vec(py, predictions),
            PyArray1::from_vec(py, rounds),
            PyArray1::from_vec(py, known),
        ))
    }

    /// Predicts the labels of samples with the model of one node.
    #[pyo3(signature = (x, node=None), text_signature = "($self, x, node=0)")]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        node: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let inputs = self.plan.inputs();
        let (node, x) =
            (self.node(node)?, Numbers::samples(x, inputs, &self.plan.learning().columns)?);
        let mut predictions = Vec::with_capacity(x.rows());
        for piece in x.as_slice().chunks(PIECE * inputs) {
            let outcome = py.detach(|| {
                let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
                piece.chunks_exact(inputs).try_for_each(|x| {
                    predictions.push(all.engines[node].predict(x)?.value);
                    Ok(())
                })
            });
            outcome.map_err(|error: BadInput| errors::value(error))?;
            py.check_signals()?;
        }
        Ok(PyArray1::from_vec(py, predictions))
    }

    /// Predicts the label of one sample with the model of one node.
    #[pyo3(signature = (x, node=None), text_signature = "($self, x, node=0)")]
    fn predict_one(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        node: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<f64> {
        let node = self.node(node)?;
        let x = arrays::sample(x, self.plan.inputs(), &self.plan.learning().columns)?;
        let answer = lock(py, &self.all).engines[node].predict(&x).map_err(errors::value)?;
        Ok(f64::from(answer.value))
    }

    /// How much each kernel has in the predictions of a node.
    #[pyo3(signature = (node=None), text_signature = "($self, node=0)")]
    fn shares(&self, py: Python<'_>, node: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<f64>> {
        let node = self.node(node)?;
        let mut shares = vec![0.0; self.plan.setup().config().kernels];
        lock(py, &self.all).engines[node].half().shares(&mut shares);
        Ok(shares)
    }

    /// What everybody agreed on.
    #[getter]
    fn plan(&self) -> Plan {
        Plan(Arc::clone(&self.plan))
    }

    /// The open round, from 1. Rounds without a model, before nodes agree on a scale, are not
    /// counted.
    #[getter]
    fn rounds(&self, py: Python<'_>) -> u64 {
        lock(py, &self.all).server.half().broadcast().round
    }

    /// Labels that were learned, by all nodes together.
    #[getter]
    fn samples(&self, py: Python<'_>) -> u64 {
        lock(py, &self.all).engines.iter().map(|engine| engine.tally().samples).sum()
    }

    /// Mean squared error of the models' predictions before their labels; 0 before the first. With
    /// online scaling there is no model until nodes have agreed on a scale, and predictions before
    /// that aren't counted.
    #[getter]
    fn mse(&self, py: Python<'_>) -> f64 {
        let all = lock(py, &self.all);
        let (mut scored, mut squared_error) = (0, 0.0);
        for tally in all.engines.iter().map(Engine::tally) {
            scored += tally.scored;
            squared_error += tally.squared_error;
        }
        if scored == 0 { 0.0 } else { squared_error / scored as f64 }
    }

    /// Numbers that went up and down, all nodes together.
    #[getter]
    fn traffic(&self, py: Python<'_>) -> (u64, u64) {
        let Traffic { up, down } = lock(py, &self.all).traffic;
        (up, down)
    }

    /// Everything that has to survive a restart, the plan among it.
    fn save<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &lock(py, &self.all).save(&self.plan))
    }

    fn __getstate__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.save(py)
    }

    fn __setstate__(&self, py: Python<'_>, saved: &[u8]) -> PyResult<()> {
        let (plan, all) = Everybody::restore(saved)?;
        if plan.learning() != self.plan.learning() {
            return Err(errors::value("the saved federation has another plan"));
        }
        *lock(py, &self.all) = all;
        Ok(())
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> (Bound<'py, PyType>, (Plan,), Bound<'py, PyBytes>) {
        let this = slf.get();
        (slf.get_type(), (this.plan(),), this.save(slf.py()))
    }

    #[staticmethod]
    fn _plan_of(saved: &[u8]) -> PyResult<Plan> {
        Ok(Plan(Arc::new(Everybody::restore(saved)?.0)))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let (round, samples) = (self.rounds(py), self.samples(py));
        format!("Federation({}, round={round}, samples={samples})", self.plan().__repr__())
    }
}

impl Federation {
    fn node(&self, node: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
        let number = node.map_or(Ok(0), engine::node)? as usize;
        let nodes = self.plan.setup().config().nodes;
        if number < nodes {
            Ok(number)
        } else {
            Err(errors::value(format!("node must be from 0 to {}, but is {number}", nodes - 1)))
        }
    }

    /// Whose each sample is: in turn, unless somebody says so.
    fn nodes_of(&self, rows: usize, node: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<usize>> {
        let nodes = self.plan.setup().config().nodes;
        let Some(node) = node else { return Ok((0..rows).map(|row| row % nodes).collect()) };
        let numpy = node.py().import("numpy")?;
        let numbers = numpy.call_method1("asarray", (node,))?;
        let numbers = numbers.cast::<PyArray1<i64>>().map_err(|_| {
            errors::kind("node must be a vector of whole numbers, one for each row of X")
        })?;
        if numbers.len() != rows {
            let found = numbers.len();
            return Err(errors::value(format!(
                "node must have {rows} numbers, as X has rows, but has {found}"
            )));
        }
        let numbers = numbers.try_readonly().map_err(errors::value)?;
        let check = |(row, number): (usize, &i64)| match usize::try_from(*number) {
            Ok(number) if number < nodes => Ok(number),
            _ => {
                let last = nodes - 1;
                Err(errors::value(format!(
                    "node must be from 0 to {last}, but row {row} has {number}"
                )))
            }
        };
        numbers.as_array().iter().enumerate().map(check).collect()
    }
}
