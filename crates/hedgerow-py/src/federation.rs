//! [`Federation`]: K nodes and their server in one process.

use std::sync::{Mutex, PoisonError};

use hedgerow::Node;
use hedgerow::node::{Answer, BadInput, LinkSnapshot};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyType};
use serde::{Deserialize, Serialize};

use crate::arrays::Table;
use crate::batch::{self, SAMPLES_PER_SIGNAL_CHECK, lock};
use crate::engine;
use crate::errors;
use crate::labels::{self, Labels};
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
    /// The state, and the number of missing labels, which federations of 0.1.0 didn't count.
    fn read(saved: &[u8]) -> PyResult<(Self, u64)> {
        let unreadable =
            |error| errors::value(format!("the saved federation can't be read: {error}"));
        let (saved, rest) = postcard::take_from_bytes(saved).map_err(unreadable)?;
        match rest {
            [] => Ok((saved, 0)),
            rest => Ok((saved, postcard::from_bytes(rest).map_err(unreadable)?)),
        }
    }
}

/// A federation, and what travelled before it was saved.
struct State {
    federation: hedgerow::Federation,
    before: Traffic,
    missing_labels: u64,
}

impl State {
    /// A sample is predicted and learned where it is, or only predicted if it has no label.
    fn learn(&mut self, node: usize, x: &[f32], y: Option<&[f32]>) -> Result<Answer, BadInput> {
        match y {
            Some(y) => self.node(node).learn(x, y),
            None => {
                self.missing_labels += 1;
                self.node(node).predict(x)
            }
        }
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
        postcard::to_allocvec(&(saved, self.missing_labels)).map_err(errors::value)
    }

    fn restore(saved: &[u8]) -> PyResult<Self> {
        let (saved, missing_labels) = Saved::read(saved)?;
        let Saved { plan, nodes: saved, server, traffic } = saved;
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
        Ok(Self { federation, before: traffic, missing_labels })
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
    // Buffers, and what the method keeps of each output.
    let kept = (plan.method().memory)(plan.setup()) as f64 * plan.outputs() as f64;
    let each = 1024.0 + 64.0 * (width + inputs) + kept;
    let most = MAX_MEMORY / each;
    if nodes as f64 <= most {
        return Ok(());
    }
    Err(errors::value(format!(
        "nodes must be at most {most:.0}, or their models need more than 16 GiB, but is {nodes}"
    )))
}

/// K nodes and their server in one process, as many as the plan has. The Python class of this name
/// is made from it.
#[pyclass(frozen, subclass, name = "_Federation", module = "hedgerow._hedgerow")]
pub(crate) struct Federation {
    plan: hedgerow::Plan,
    state: Mutex<State>,
}

type Outcome<'py> = (Bound<'py, PyAny>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f64>>);

#[pymethods]
impl Federation {
    #[new]
    fn new(plan: &Plan) -> PyResult<Self> {
        check(&plan.0)?;
        let mut federation = hedgerow::Federation::new(&plan.0);
        federation.connect();
        let state = State { federation, before: Traffic::default(), missing_labels: 0 };
        Ok(Self { plan: plan.0.clone(), state: Mutex::new(state) })
    }

    /// Plays samples: in a single round, or as many rounds as it takes if each node sees one sample
    /// a round. Predictions, their rounds, and their errors; an error is NaN if there was no model
    /// or no label.
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
        let table = Table::samples(x, inputs, &self.plan.config().columns)?;
        let labels = Labels::read(&self.plan, y, table.rows())?;
        let nodes = self.nodes_of(table.rows(), node)?;
        let mut order: Vec<usize> = (0..table.rows()).collect();
        let mut rounds = vec![0i64; order.len()];
        if !single {
            let mut seen = vec![0; self.plan.config().nodes];
            for (round, node) in rounds.iter_mut().zip(&nodes) {
                *round = seen[*node];
                seen[*node] += 1;
            }
            order.sort_by_key(|row| rounds[*row]);
        }
        let width = if self.plan.classes().is_some() { 1 } else { self.plan.outputs() };
        let mut predictions = vec![0f32; order.len() * width];
        let mut errors = vec![f64::NAN; order.len()];
        let table = table.in_order(&order)?;
        let is_dense = matches!(table, Table::Dense(_));
        table.each_part(|first, numbers| {
            let (x, rows) = (numbers.as_slice(), numbers.rows());
            for start in (0..rows).step_by(SAMPLES_PER_SIGNAL_CHECK) {
                let piece = py.detach(|| {
                    let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                    let mut predicted = Vec::with_capacity(width);
                    for at in start..rows.min(start + SAMPLES_PER_SIGNAL_CHECK) {
                        let row = order[first + at];
                        let x = &x[if is_dense { row } else { at } * inputs..][..inputs];
                        let answer = state.learn(nodes[row], x, labels.of(row))?;
                        let node = state.node(nodes[row]);
                        predicted.clear();
                        labels::push(node, &answer, &mut predicted);
                        predictions[row * width..][..width].copy_from_slice(&predicted);
                        if let Some(y) = labels.of(row).filter(|_| answer.known) {
                            errors[row] = labels::error(node, &answer, y);
                        }
                        let next = order.get(first + at + 1).map(|next| rounds[*next]);
                        // Every node that has learned speaks, and all hear what came of it.
                        if next != Some(rounds[row]) {
                            state.federation.exchange();
                        }
                    }
                    Ok(())
                });
                piece.map_err(|error: BadInput| errors::value(error))?;
                py.check_signals()?;
            }
            Ok(())
        })?;
        Ok((
            labels::array(py, &self.plan, predictions)?,
            PyArray1::from_vec(py, rounds),
            PyArray1::from_vec(py, errors),
        ))
    }

    /// Predicts the labels of samples with the model of one node.
    #[pyo3(signature = (x, node=None), text_signature = "($self, x, node=0)")]
    fn predict<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        node: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let node = self.node(node)?;
        batch::predictions(&self.state, &self.plan, x, move |state| state.node(node))
    }

    /// The probabilities of classes; see ``Learner.predict_proba``.
    #[pyo3(signature = (x, node=None), text_signature = "($self, x, node=0)")]
    fn predict_proba<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        node: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let node = self.node(node)?;
        batch::predict_proba(&self.state, &self.plan, x, move |state| state.node(node))
    }

    /// The intervals in which labels at one node are expected; see ``Learner.predict_interval``.
    #[pyo3(signature = (x, node=None, level=0.9), text_signature = "($self, x, node=0, level=0.9)")]
    fn predict_interval<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        node: Option<&Bound<'py, PyAny>>,
        level: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let node = self.node(node)?;
        batch::intervals(&self.state, &self.plan, x, level, move |state| state.node(node))
    }

    /// The interval of one sample at one node; see ``Learner.predict_interval_one``.
    #[pyo3(signature = (x, node=None, level=0.9), text_signature = "($self, x, node=0, level=0.9)")]
    fn predict_interval_one<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        node: Option<&Bound<'py, PyAny>>,
        level: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let node = self.node(node)?;
        batch::interval_one(&self.state, &self.plan, x, level, move |state| state.node(node))
    }

    /// Predicts the label of one sample with the model of one node.
    #[pyo3(signature = (x, node=None), text_signature = "($self, x, node=0)")]
    fn predict_one<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        node: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let node = self.node(node)?;
        batch::predict_one(&self.state, &self.plan, x, |state| state.node(node))
    }

    /// The probability of each class for one sample, by name, with the model of one node.
    #[pyo3(signature = (x, node=None), text_signature = "($self, x, node=0)")]
    fn predict_proba_one<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        node: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let node = self.node(node)?;
        batch::predict_proba_one(&self.state, &self.plan, x, |state| state.node(node))
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

    /// Number of samples that came without a label.
    #[getter]
    fn missing_labels(&self, py: Python<'_>) -> u64 {
        lock(py, &self.state).missing_labels
    }

    /// Mean squared error of the models' predictions before their labels, over all targets, or the
    /// share of wrong classes; 0 before the first. With
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
        Plan::from_json(&Saved::read(saved)?.0.plan)
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
