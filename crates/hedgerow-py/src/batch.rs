//! Predicting and learning, one sample or many in one call. Long calls release the interpreter and
//! look for Ctrl-C now and then.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hedgerow::learning::{Interval, Level};
use hedgerow::node::{Answer, BadInput};
use hedgerow::{Node, Plan};
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::arrays::{self, Numbers, Table};
use crate::errors;

/// Samples between two looks at whether the user wants to end the call.
pub(crate) const SAMPLES_PER_SIGNAL_CHECK: usize = 256;

/// Takes the lock, and lets others run while it waits.
pub(crate) fn lock<'a, T>(py: Python<'_>, shared: &'a Mutex<T>) -> MutexGuard<'a, T> {
    shared.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
}

/// A sample as a plan has it.
pub(crate) fn sample(plan: &Plan, x: &Bound<'_, PyAny>) -> PyResult<Vec<f32>> {
    arrays::sample(x, plan.inputs(), &plan.config().columns)
}

/// The prediction of one sample by a node of what is shared.
pub(crate) fn predict_one<T>(
    shared: &Mutex<T>,
    plan: &Plan,
    x: &Bound<'_, PyAny>,
    node: impl Fn(&mut T) -> &mut Node,
) -> PyResult<f64> {
    let (py, x) = (x.py(), sample(plan, x)?);
    let answer = node(&mut lock(py, shared)).predict(&x).map_err(errors::value)?;
    Ok(f64::from(answer.value))
}

/// Learns one sample; the result is the prediction before. Without a label it is only predicted.
pub(crate) fn learn_one<T>(
    shared: &Mutex<T>,
    plan: &Plan,
    (x, y): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
    learn: impl Fn(&mut T, &[f32], Option<f32>) -> Result<Answer, BadInput>,
) -> PyResult<f64> {
    let (py, x, y) = (x.py(), sample(plan, x)?, arrays::label(y)?);
    let answer = learn(&mut lock(py, shared), &x, y).map_err(errors::value)?;
    Ok(f64::from(answer.value))
}

/// Predictions of all rows by a node of what is shared.
pub(crate) fn predict<'py, T: Send>(
    shared: &Mutex<T>,
    plan: &Plan,
    x: &Bound<'py, PyAny>,
    node: impl Fn(&mut T) -> &mut Node + Send + Sync,
) -> PyResult<Bound<'py, PyArray1<f32>>> {
    let table = Table::samples(x, plan.inputs(), &plan.config().columns)?;
    let predictions =
        each_row(x.py(), shared, &table, |shared, _, x| Ok(node(shared).predict(x)?.value))?;
    Ok(PyArray1::from_vec(x.py(), predictions))
}

/// The intervals around the predictions of all rows: their lower and upper ends, which are NaN if
/// nothing is known of the node's errors.
pub(crate) fn predict_interval<'py, T: Send>(
    shared: &Mutex<T>,
    plan: &Plan,
    x: &Bound<'py, PyAny>,
    level: f64,
    node: impl Fn(&mut T) -> &mut Node + Send + Sync,
) -> PyResult<Bound<'py, PyArray2<f32>>> {
    let level = Level::new(level).map_err(errors::value)?;
    let table = Table::samples(x, plan.inputs(), &plan.config().columns)?;
    let ends = each_row(x.py(), shared, &table, |shared, _, x| {
        let node = node(shared);
        node.predict(x)?;
        let ends = node.interval(0, level);
        Ok(ends.map_or([f32::NAN; 2], |Interval { lower, upper }| [lower, upper]))
    })?;
    PyArray1::from_vec(x.py(), ends.concat()).reshape([ends.len(), 2])
}

/// What a node says of all rows: `say` adds as many numbers to a row as there are columns.
pub(crate) fn predict_columns<'py>(
    node: &Mutex<Node>,
    plan: &Plan,
    x: &Bound<'py, PyAny>,
    columns: usize,
    say: impl Fn(&Node, &mut Vec<f32>) + Send + Sync,
) -> PyResult<Bound<'py, PyArray2<f32>>> {
    let table = Table::samples(x, plan.inputs(), &plan.config().columns)?;
    let rows = each_row(x.py(), node, &table, |node, _, x| {
        node.predict(x)?;
        let mut said = Vec::with_capacity(columns);
        say(node, &mut said);
        Ok(said)
    })?;
    PyArray1::from_vec(x.py(), rows.concat()).reshape([rows.len(), columns])
}

/// Learns all rows in order. Returns the predictions made before each. A row without a label is
/// only predicted. A bad label is refused with its row, and nothing is learned.
pub(crate) fn learn<'py, T: Send>(
    shared: &Mutex<T>,
    plan: &Plan,
    (x, y): (&Bound<'py, PyAny>, &Bound<'py, PyAny>),
    learn: impl Fn(&mut T, &[f32], Option<f32>) -> Result<Answer, BadInput> + Send + Sync,
) -> PyResult<Bound<'py, PyArray1<f32>>> {
    let table = Table::samples(x, plan.inputs(), &plan.config().columns)?;
    let labels = labels(plan, y, table.rows())?;
    let predictions =
        each_row(
            x.py(),
            shared,
            &table,
            |shared, row, x| Ok(learn(shared, x, labels[row])?.value),
        )?;
    Ok(PyArray1::from_vec(x.py(), predictions))
}

/// What `work` makes of each row.
fn each_row<T: Send, R: Send>(
    py: Python<'_>,
    shared: &Mutex<T>,
    table: &Table<'_>,
    work: impl Fn(&mut T, usize, &[f32]) -> Result<R, BadInput> + Send + Sync,
) -> PyResult<Vec<R>> {
    let mut made = Vec::with_capacity(table.rows());
    table.each_part(|first, numbers| {
        let (x, rows, inputs) = (numbers.as_slice(), numbers.rows(), numbers.columns());
        for start in (0..rows).step_by(SAMPLES_PER_SIGNAL_CHECK) {
            py.detach(|| {
                let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                (start..rows.min(start + SAMPLES_PER_SIGNAL_CHECK)).try_for_each(|row| {
                    made.push(work(&mut shared, first + row, &x[row * inputs..][..inputs])?);
                    Ok(())
                })
            })
            .map_err(|error: BadInput| errors::value(error))?;
            py.check_signals()?;
        }
        Ok(())
    })?;
    Ok(made)
}

/// Labels of `rows` rows, all of which can be learned or are missing.
pub(crate) fn labels(plan: &Plan, y: &Bound<'_, PyAny>, rows: usize) -> PyResult<Vec<Option<f32>>> {
    let y = Numbers::labels(y, rows)?;
    let label = |(row, y): (usize, &f32)| {
        if y.is_nan() {
            return Ok(None);
        }
        plan.check_label(*y).map_err(|error| errors::value(format!("row {row}: {error}")))?;
        Ok(Some(*y))
    };
    y.as_slice().iter().enumerate().map(label).collect()
}

/// The weight of each kernel in the predictions of a node.
pub(crate) fn shares(node: &Node) -> Vec<f64> {
    let mut shares = vec![0.0; node.plan().kernels()];
    node.method(0).shares(&mut shares);
    shares
}
