//! Many samples in one call: the interpreter is released, and Ctrl-C is looked for now and then.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hedgerow_net::agent::engine::{Answer, BadInput};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::arrays::Numbers;
use crate::errors;

/// Samples between two looks at whether somebody wants to end it.
const PIECE: usize = 256;

/// Who predicts and learns.
pub(crate) trait Predictor: Send {
    /// Predicts from a sample.
    fn predict(&mut self, x: &[f32]) -> Result<Answer, BadInput>;
    /// Learns from it; the answer is what was predicted before.
    fn learn(&mut self, x: &[f32], y: f32) -> Result<Answer, BadInput>;
}

/// Takes the lock, and lets others run while it waits.
pub(crate) fn lock<'a, T>(py: Python<'_>, shared: &'a Mutex<T>) -> MutexGuard<'a, T> {
    shared.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
}

/// Predictions of all rows.
pub(crate) fn predict<'py>(
    py: Python<'py>,
    shared: &Mutex<impl Predictor>,
    plan: &hedgerow_net::Plan,
    x: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyArray1<f32>>> {
    let inputs = plan.inputs();
    let x = Numbers::samples(x, inputs, &plan.learning().columns)?;
    let mut predictions = Vec::with_capacity(x.rows());
    for piece in x.as_slice().chunks(PIECE * inputs) {
        py.detach(|| {
            let mut predictor = shared.lock().unwrap_or_else(PoisonError::into_inner);
            piece.chunks_exact(inputs).try_for_each(|x| {
                predictions.push(predictor.predict(x)?.value);
                Ok(())
            })
        })
        .map_err(|error: BadInput| errors::value(error))?;
        py.check_signals()?;
    }
    Ok(PyArray1::from_vec(py, predictions))
}

/// Learns all rows, one after the other; the predictions are those before each. A label that can't
/// be learned is refused with its row, and nothing is learned.
pub(crate) fn learn<'py>(
    py: Python<'py>,
    shared: &Mutex<impl Predictor>,
    plan: &hedgerow_net::Plan,
    x: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyArray1<f32>>> {
    let inputs = plan.inputs();
    let x = Numbers::samples(x, inputs, &plan.learning().columns)?;
    let y = Numbers::labels(y, x.rows())?;
    for (row, y) in y.as_slice().iter().enumerate() {
        plan.setup()
            .check_label(*y)
            .map_err(|error| errors::value(format!("row {row}: {error}")))?;
    }
    let mut predictions = Vec::with_capacity(x.rows());
    for (x, y) in x.as_slice().chunks(PIECE * inputs).zip(y.as_slice().chunks(PIECE)) {
        py.detach(|| {
            let mut predictor = shared.lock().unwrap_or_else(PoisonError::into_inner);
            x.chunks_exact(inputs).zip(y).try_for_each(|(x, y)| {
                predictions.push(predictor.learn(x, *y)?.value);
                Ok(())
            })
        })
        .map_err(|error: BadInput| errors::value(error))?;
        py.check_signals()?;
    }
    Ok(PyArray1::from_vec(py, predictions))
}
