//! [`Federation`]: K nodes and their server in one process.

use std::sync::{Mutex, PoisonError};

use hedgerow::Node;
use hedgerow::node::{Answer, BadInput, LinkSnapshot};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};
use serde::{Deserialize, Serialize};

use crate::arrays::Numbers;
use crate::batch::{self, SAMPLES_PER_SIGNAL_CHECK, lock};
use crate::engine;
use crate::errors;
use crate::plan::Plan;
use crate::server::SavedServer;

/// Numbers sent up and down by all nodes.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Traffic {
    up: u64,
    down: u64,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    plan: String,
    nodes: Vec<(Vec<u8>, LinkSnapshot)>,
    server: Vec<u8>,
    traffic: Traffic,
}

impl Saved {
    fn read(saved: &[u8]) -> PyResult<Self> {
        let unreadable =
            |error| errors::value(format!("the saved federation can't be read: {error}"));
        postcard::from_bytes(saved).map_err(unreadable)
    }
}

/// A federation, and what travelled before it was saved.
struct State {
    federation: hedgerow::Federation,
    before: Traffic,
}

impl State {
    /// A round: samples are predicted and learned where they are, every node that has learned
    /// speaks, and all hear what came of it.
    fn round(
        &mut self,
        rows: &[Row<'_>],
        mut seen: impl FnMut(usize, Answer),
    ) -> Result<(), BadInput> {
        for row in rows {
            seen(row.at, self.node(row.node).learn(row.x, &[row.y])?);
        }
        self.federation.exchange();
        Ok(())
    }

    fn node(&mut self, number: usize) -> &mut Node {
        &mut self.federation.nodes_mut()[number]
    }

    fn traffic(&self) -> Traffic {
        let Traffic { up, down } = self.before;
        let since = self.federation.traffic();
        Traffic { up: up + since.numbers_up, down: down + since.numbers_down }
    }

    fn save(&self, plan: &Plan) -> PyResult<Vec<u8>> {
        let nodes = self.federation.nodes().iter().map(|node| (node.save(), node.link()));
        let saved = Saved {
            plan: plan.to_json(),
            nodes: nodes.collect(),
            server: SavedServer::new(self.federation.server()).to_bytes()?,
            traffic: self.traffic(),
        };
        postcard::to_allocvec(&saved).map_err(errors::value)
    }

    fn restore(saved: &[u8]) -> PyResult<Self> {
        let Saved { plan, nodes: saved, server, traffic } = Saved::read(saved)?;
        let plan = Plan::from_json(&plan)?.0;
        check(&plan)?;
        let (expected, found) = (plan.config().nodes, saved.len());
        if expected != found {
            return Err(errors::value(format!(
                "{expected} nodes were expected, but {found} were saved"
            )));
        }
        let mut nodes = Vec::new();
        for (node, link) in saved {
            let mut node = Node::restore(&plan, &node).map_err(errors::value)?;
            node.resume(link);
            nodes.push(node);
        }
        let server = SavedServer::from_bytes(&server)?.restore(&plan)?;
        let federation = hedgerow::Federation::from_parts(server, nodes);
        Ok(Self { federation, before: traffic })
    }
}

/// Bytes that all nodes may take; more would end the process instead of raising an exception.
const MAX_MEMORY: f64 = 16.0 * 1024.0 * 1024.0 * 1024.0;

/// Refuses what has no meaning in one process, or doesn't fit into it.
fn check(plan: &hedgerow::Plan) -> PyResult<()> {
    if !plan.is_plain() {
        return Err(errors::value(
            "compression must be \"none\" and part 1 in a federation of one process: simulate() \
             has the others",
        ));
    }
    let nodes = plan.config().nodes;
    let (width, inputs) = (plan.width() as f64, plan.inputs() as f64);
    // Buffers, and what the method keeps.
    let each = 1024.0 + 64.0 * (width + inputs) + (plan.method().memory)(plan.setup()) as f64;
    let most = MAX_MEMORY / each;
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
    plan: hedgerow::Plan,
    state: Mutex<State>,
}

type Outcome<'py> =
    (Bound<'py, PyArray1<f32>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<bool>>);

#[pymethods]
impl Federation {
    #[new]
    fn new(plan: &Plan) -> PyResult<Self> {
        check(&plan.0)?;
        let mut federation = hedgerow::Federation::new(&plan.0);
        federation.connect();
        let state = State { federation, before: Traffic::default() };
        Ok(Self { plan: plan.0.clone(), state: Mutex::new(state) })
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
        let x = Numbers::samples(x, inputs, &self.plan.config().columns)?;
        let y = batch::labels(&self.plan, y, x.rows())?;
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
            let mut seen = vec![0; self.plan.config().nodes];
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
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                let end = rows.len().min(played.saturating_add(SAMPLES_PER_SIGNAL_CHECK));
                while played < end {
                    let round = rounds[rows[played].at];
                    let len =
                        rows[played..].iter().take_while(|row| rounds[row.at] == round).count();
                    state.round(&rows[played..played + len], |at, answer| {
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
        x: &Bound<'py, PyAny>,
        node: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let node = self.node(node)?;
        batch::predict(&self.state, &self.plan, x, move |state| state.node(node))
    }

    /// The intervals in which labels at one node are expected; see ``Learner.predict_interval``.
    #[pyo3(signature = (x, node=None, level=0.9), text_signature = "($self, x, node=0, level=0.9)")]
    fn predict_interval<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        node: Option<&Bound<'py, PyAny>>,
        level: f64,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let node = self.node(node)?;
        batch::predict_interval(&self.state, &self.plan, x, level, move |state| state.node(node))
    }

    /// Predicts the label of one sample with the model of one node.
    #[pyo3(signature = (x, node=None), text_signature = "($self, x, node=0)")]
    fn predict_one(&self, x: &Bound<'_, PyAny>, node: Option<&Bound<'_, PyAny>>) -> PyResult<f64> {
        let node = self.node(node)?;
        batch::predict_one(&self.state, &self.plan, x, |state| state.node(node))
    }

    /// The weight of each kernel in the predictions of a node.
    #[pyo3(signature = (node=None), text_signature = "($self, node=0)")]
    fn shares(&self, py: Python<'_>, node: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<f64>> {
        let node = self.node(node)?;
        Ok(batch::shares(&lock(py, &self.state).federation.nodes()[node]))
    }

    /// The plan.
    #[getter]
    fn plan(&self) -> Plan {
        Plan(self.plan.clone())
    }

    /// The open round, from 1. Rounds without a model, before nodes agree on a scale, are not
    /// counted.
    #[getter]
    fn rounds(&self, py: Python<'_>) -> u64 {
        lock(py, &self.state).federation.server().round()
    }

    /// Number of labels learned by all nodes.
    #[getter]
    fn samples(&self, py: Python<'_>) -> u64 {
        lock(py, &self.state).federation.nodes().iter().map(|node| node.tally().samples).sum()
    }

    /// Mean squared error of the models' predictions before their labels; 0 before the first. With
    /// online scaling there is no model until nodes have agreed on a scale, and predictions before
    /// that aren't counted.
    #[getter]
    fn mse(&self, py: Python<'_>) -> f64 {
        let state = lock(py, &self.state);
        let (mut scored, mut squared_error) = (0, 0.0);
        for tally in state.federation.nodes().iter().map(Node::tally) {
            scored += tally.scored;
            squared_error += tally.squared_error;
        }
        if scored == 0 { 0.0 } else { squared_error / scored as f64 }
    }

    /// Numbers sent up and down by all nodes.
    #[getter]
    fn traffic(&self, py: Python<'_>) -> (u64, u64) {
        let Traffic { up, down } = lock(py, &self.state).traffic();
        (up, down)
    }

    /// The complete state, with the plan.
    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let saved = lock(py, &self.state).save(&self.plan())?;
        Ok(PyBytes::new(py, &saved))
    }

    fn __getstate__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.save(py)
    }

    fn __setstate__(&self, py: Python<'_>, saved: &[u8]) -> PyResult<()> {
        let state = State::restore(saved)?;
        if *state.federation.plan() != self.plan {
            return Err(errors::value("the saved federation has another plan"));
        }
        *lock(py, &self.state) = state;
        Ok(())
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyType>, (Plan,), Bound<'py, PyBytes>)> {
        let this = slf.get();
        Ok((slf.get_type(), (this.plan(),), this.save(slf.py())?))
    }

    #[staticmethod]
    fn _plan_of(saved: &[u8]) -> PyResult<Plan> {
        Plan::from_json(&Saved::read(saved)?.plan)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let (round, samples) = (self.rounds(py), self.samples(py));
        format!("Federation({}, round={round}, samples={samples})", self.plan().__repr__())
    }
}

impl Federation {
    fn node(&self, node: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
        let number = node.map_or(Ok(0), engine::node)? as usize;
        let nodes = self.plan.config().nodes;
        if number < nodes {
            Ok(number)
        } else {
            Err(errors::value(format!("node must be from 0 to {}, but is {number}", nodes - 1)))
        }
    }

    /// The node of each sample: as given, or in turn.
    fn nodes_of(&self, rows: usize, node: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<usize>> {
        let nodes = self.plan.config().nodes;
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
