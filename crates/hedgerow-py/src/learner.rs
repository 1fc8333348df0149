//! [`Learner`]: one machine, no network.

use std::sync::Mutex;

use hedgerow::node::{Answer, BadInput};
use hedgerow::{Federation, Node};
use numpy::PyArray2;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyType};
use serde::{Deserialize, Serialize};

use crate::Pickled;
use crate::batch::{self, lock};
use crate::errors;
use crate::plan::Plan;
use crate::server::SavedServer;

#[derive(Serialize, Deserialize)]
struct Saved {
    plan: String,
    node: Vec<u8>,
    server: Vec<u8>,
}

/// Refuses what has no meaning on one machine.
fn check(plan: &hedgerow::Plan) -> PyResult<()> {
    if plan.is_plain() {
        return Ok(());
    }
    Err(errors::value("compression must be \"none\" and part 1 for a learner: nothing travels"))
}

/// A federation of one node, which is connected.
fn alone(plan: &hedgerow::Plan) -> Federation {
    let mut federation = Federation::from_parts(plan.server(), vec![plan.node(0)]);
    federation.connect();
    federation
}

struct State {
    /// Of one node.
    federation: Federation,
    missing_labels: u64,
}

impl State {
    fn node(&self) -> &Node {
        &self.federation.nodes()[0]
    }
}

fn node(state: &mut State) -> &mut Node {
    &mut state.federation.nodes_mut()[0]
}

/// Messages are exchanged after every sample that has a label.
fn learn(state: &mut State, x: &[f32], y: Option<&[f32]>) -> Result<Answer, BadInput> {
    let Some(y) = y else {
        let answer = node(state).predict(x)?;
        state.missing_labels += 1;
        return Ok(answer);
    };
    let answer = node(state).learn(x, y)?;
    state.federation.exchange();
    Ok(answer)
}

/// Online learning on one machine: the federation's method with a single node, whose server is
/// beside it.
///
/// Samples are lists, tuples, arrays, or dictionaries from the names of the plan's columns; many
/// samples are arrays, frames or sparse matrices, whose rows are made dense in parts. What is
/// missing (NaN, None, absent) is filled in by the mean so far. With ``scaling="online"``
/// predictions before the sixteenth label are the mean of the labels.
///
/// A label is a number. Of several targets (``Plan(target="a,b")``) it is a list, a tuple, an array
/// or a dictionary of numbers. Of a plan with classes it is the name of one; a number or a truth
/// value stands for its text, such as ``"1"`` or ``"true"``.
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
    plan: hedgerow::Plan,
    state: Mutex<State>,
}

#[pymethods]
impl Learner {
    #[new]
    fn new(plan: &Plan) -> PyResult<Self> {
        check(&plan.0)?;
        let state = State { federation: alone(&plan.0), missing_labels: 0 };
        Ok(Self { plan: plan.0.clone(), state: Mutex::new(state) })
    }

    /// Predicts the label of one sample: a number, a tuple of numbers if the plan has several
    /// targets, or the name of a class.
    fn predict_one<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        batch::predict_one(&self.state, &self.plan, x, node)
    }

    /// The probability of each class for one sample, by name.
    fn predict_proba_one<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        batch::predict_proba_one(&self.state, &self.plan, x, node)
    }

    /// Learns from one sample. Returns the prediction made before. Without a label (None, NaN) the
    /// sample is only predicted, and counted in ``missing_labels``.
    fn learn_one<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        y: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        batch::learn_one(&self.state, &self.plan, (x, y), learn, node)
    }

    /// Predicts the labels of samples, one per row: numbers, rows of numbers if the plan has
    /// several targets, or names of classes.
    fn predict<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        batch::predictions(&self.state, &self.plan, x, node)
    }

    /// The probabilities of classes, one row per sample and one column per class of the plan.
    fn predict_proba<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        batch::predict_proba(&self.state, &self.plan, x, node)
    }

    /// The intervals in which the labels of samples are expected with this probability (from 0.5 to
    /// 0.99), one per row: lower and upper ends, of each target if there are several. Widths follow
    /// the errors of predictions so far; NaN before the first label that was predicted by a model,
    /// and for classes.
    #[pyo3(signature = (x, level=0.9))]
    fn predict_interval<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        level: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        batch::intervals(&self.state, &self.plan, x, level, node)
    }

    /// The interval of one sample: its lower and upper end, or a pair for each of several targets.
    /// See ``predict_interval``.
    #[pyo3(signature = (x, level=0.9))]
    fn predict_interval_one<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        level: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        batch::interval_one(&self.state, &self.plan, x, level, node)
    }

    /// Learns from samples in order. Returns the predictions made before each. Samples without a
    /// label (NaN) are only predicted, and counted in ``missing_labels``.
    fn learn<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        y: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        batch::learn(&self.state, &self.plan, (x, y), learn, node)
    }

    /// Number of labels learned.
    #[getter]
    fn samples(&self, py: Python<'_>) -> u64 {
        lock(py, &self.state).node().tally().samples
    }

    /// Number of samples that came without a label.
    #[getter]
    fn missing_labels(&self, py: Python<'_>) -> u64 {
        lock(py, &self.state).missing_labels
    }

    /// Mean squared error of the model's predictions before each label, over all targets, or the
    /// share of wrong classes; 0 before the first. With
    /// online scaling there is no model until the first sixteen labels have made a scale: until
    /// then the mean of the labels is predicted, and that isn't counted.
    #[getter]
    fn mse(&self, py: Python<'_>) -> f64 {
        lock(py, &self.state).node().tally().mse()
    }

    /// The open round, from 1.
    #[getter]
    fn round(&self, py: Python<'_>) -> u64 {
        lock(py, &self.state).node().round()
    }

    /// The weight of each kernel in the predictions. All zero for methods without kernel weights,
    /// such as gr.
    fn shares(&self, py: Python<'_>) -> Vec<f64> {
        batch::shares(lock(py, &self.state).node())
    }

    /// The plan.
    #[getter]
    fn plan(&self) -> Plan {
        Plan(self.plan.clone())
    }

    /// The complete state, with the plan.
    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let (node, server, missing_labels) = {
            let state = lock(py, &self.state);
            let server = SavedServer::new(state.federation.server()).to_bytes()?;
            (state.node().save(), server, state.missing_labels)
        };
        let saved = (Saved { plan: self.plan().to_json(), node, server }, missing_labels);
        Ok(PyBytes::new(py, &postcard::to_allocvec(&saved).map_err(errors::value)?))
    }

    /// Continues from a saved state.
    #[staticmethod]
    fn restore(saved: &[u8]) -> PyResult<Self> {
        let unreadable = |error| errors::value(format!("the saved learner can't be read: {error}"));
        let (saved, rest) = postcard::take_from_bytes(saved).map_err(unreadable)?;
        let Saved { plan, node, server } = saved;
        // Learners of 0.1.0 didn't count them.
        let missing_labels = match rest {
            [] => 0,
            rest => postcard::from_bytes(rest).map_err(unreadable)?,
        };
        let plan = Plan::from_json(&plan)?.0;
        check(&plan)?;
        let server = SavedServer::from_bytes(&server)?.restore(&plan)?;
        let mut node = Node::restore(&plan, &node).map_err(errors::value)?;
        // As after every round: connected, with nothing due.
        node.resume(alone(&plan).nodes()[0].link());
        for message in server.opening(0, false) {
            node.hear(&message).map_err(errors::value)?;
        }
        let federation = Federation::from_parts(server, vec![node]);
        Ok(Self { plan, state: Mutex::new(State { federation, missing_labels }) })
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Pickled<'py, (Bound<'py, PyBytes>,)> {
        Ok((PyType::new::<Self>(py).getattr("restore")?, (self.save(py)?,)))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let samples = self.samples(py);
        format!("Learner({}, samples={samples})", self.plan().__repr__())
    }
}
