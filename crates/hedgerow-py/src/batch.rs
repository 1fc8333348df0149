//! What predicts and learns, one sample or many in one call. Long calls release the interpreter and
//! look for Ctrl-C now and then.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hedgerow::node::BadInput;
use hedgerow::{Federation, Node, Plan};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::arrays::{self, Numbers};
use crate::errors;

/// Samples between two looks at whether the user wants to end the call.
pub(crate) const SAMPLES_PER_SIGNAL_CHECK: usize = 256;

/// A node that predicts and learns.
pub(crate) trait Predictor: Send {
    fn node(&mut self) -> &mut Node;
    /// The node has learned a sample.
    fn learned(&mut self) {}
}

impl Predictor for Node {
    fn node(&mut self) -> &mut Node {
        self
    }
}

/// The first node of a federation, which exchanges messages after every sample.
impl Predictor for Federation {
    fn node(&mut self) -> &mut Node {
        &mut self.nodes_mut()[0]
    }

    fn learned(&mut self) {
        self.exchange();
    }
}

/// Takes the lock, and lets others run while it waits.
pub(crate) fn lock<'a, T>(py: Python<'_>, shared: &'a Mutex<T>) -> MutexGuard<'a, T> {
    shared.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
}

/// A sample as a plan has it.
pub(crate) fn sample(plan: &Plan, x: &Bound<'_, PyAny>) -> PyResult<Vec<f32>> {
    arrays::sample(x, plan.inputs(), &plan.config().columns)
}

/// The prediction of one sample.
pub(crate) fn predict_one(
    shared: &Mutex<impl Predictor>,
    plan: &Plan,
    x: &Bound<'_, PyAny>,
) -> PyResult<f64> {
    let (py, x) = (x.py(), sample(plan, x)?);
    let answer = lock(py, shared).node().predict(&x).map_err(errors::value)?;
    Ok(f64::from(answer.value))
}

/// Learns one sample; the result is the prediction before.
pub(crate) fn learn_one(
    shared: &Mutex<impl Predictor>,
    plan: &Plan,
    x: &Bound<'_, PyAny>,
    y: &Bound<'_, PyAny>,
) -> PyResult<f64> {
    let (py, x, y) = (x.py(), sample(plan, x)?, arrays::label(y)?);
    let mut predictor = lock(py, shared);
    let answer = predictor.node().learn(&x, &[y]).map_err(errors::value)?;
    predictor.learned();
    Ok(f64::from(answer.value))
}

/// Predictions of all rows.
pub(crate) fn predict<'py>(
    shared: &Mutex<impl Predictor>,
    plan: &Plan,
    x: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyArray1<f32>>> {
    let (py, inputs) = (x.py(), plan.inputs());
    let x = Numbers::samples(x, inputs, &plan.config().columns)?;
    let mut predictions = Vec::with_capacity(x.rows());
    for piece in x.as_slice().chunks(SAMPLES_PER_SIGNAL_CHECK * inputs) {
        py.detach(|| {
            let mut predictor = shared.lock().unwrap_or_else(PoisonError::into_inner);
            piece.chunks_exact(inputs).try_for_each(|x| {
                predictions.push(predictor.node().predict(x)?.value);
                Ok(())
            })
        })
        .map_err(|error: BadInput| errors::value(error))?;
        py.check_signals()?;
    }
    Ok(PyArray1::from_vec(py, predictions))
}

/// Learns all rows in order. Returns the predictions made before each. A bad label is refused with
/// its row, and nothing is learned.
pub(crate) fn learn<'py>(
    shared: &Mutex<impl Predictor>,
    plan: &Plan,
    x: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyArray1<f32>>> {
    let (py, inputs) = (x.py(), plan.inputs());
    let x = Numbers::samples(x, inputs, &plan.config().columns)?;
    let y = labels(plan, y, x.rows())?;
    let mut predictions = Vec::with_capacity(x.rows());
    let pieces = x.as_slice().chunks(SAMPLES_PER_SIGNAL_CHECK * inputs);
    for (x, y) in pieces.zip(y.as_slice().chunks(SAMPLES_PER_SIGNAL_CHECK)) {
        py.detach(|| {
            let mut predictor = shared.lock().unwrap_or_else(PoisonError::into_inner);
            x.chunks_exact(inputs).zip(y).try_for_each(|(x, y)| {
                predictions.push(predictor.node().learn(x, &[*y])?.value);
                predictor.learned();
                Ok(())
            })
        })
        .map_err(|error: BadInput| errors::value(error))?;
        py.check_signals()?;
    }
    Ok(PyArray1::from_vec(py, predictions))
}

/// Labels of so many rows, all of which can be learned.
pub(crate) fn labels<'py>(
    plan: &Plan,
    y: &Bound<'py, PyAny>,
    rows: usize,
) -> PyResult<Numbers<'py>> {
    let y = Numbers::labels(y, rows)?;
    for (row, y) in y.as_slice().iter().enumerate() {
        plan.check_label(*y).map_err(|error| errors::value(format!("row {row}: {error}")))?;
    }
    Ok(y)
}

/// The weight of each kernel in the predictions of a node.
pub(crate) fn shares(node: &Node) -> Vec<f64> {
    let mut shares = vec![0.0; node.plan().kernels()];
    node.method(0).shares(&mut shares);
    shares
}
