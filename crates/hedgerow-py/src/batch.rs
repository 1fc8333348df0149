//! Predicting and learning, one sample or many in one call. Long calls release the interpreter and
//! look for Ctrl-C now and then.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hedgerow::learning::{Interval, Level};
use hedgerow::node::{Answer, BadInput};
use hedgerow::{Node, Plan};
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyDict, PyTuple};

use crate::arrays::{self, Table};
use crate::errors;
use crate::labels::{self, Labels};

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
pub(crate) fn predict_one<'py, T>(
    shared: &Mutex<T>,
    plan: &Plan,
    x: &Bound<'py, PyAny>,
    node: impl Fn(&mut T) -> &mut Node,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, x) = (x.py(), sample(plan, x)?);
    let mut shared = lock(py, shared);
    let node = node(&mut shared);
    let answer = node.predict(&x).map_err(errors::value)?;
    labels::predicted(py, node, &answer)
}

/// The probability of each class for one sample, by name.
pub(crate) fn predict_proba_one<'py, T>(
    shared: &Mutex<T>,
    plan: &Plan,
    x: &Bound<'py, PyAny>,
    node: impl Fn(&mut T) -> &mut Node,
) -> PyResult<Bound<'py, PyDict>> {
    labels::check_classes(plan)?;
    let (py, x) = (x.py(), sample(plan, x)?);
    let mut shared = lock(py, shared);
    let node = node(&mut shared);
    node.predict(&x).map_err(errors::value)?;
    labels::probabilities(py, node)
}

/// Learns one sample; the result is the prediction before. Without a label it is only predicted.
pub(crate) fn learn_one<'py, T>(
    shared: &Mutex<T>,
    plan: &Plan,
    (x, y): (&Bound<'py, PyAny>, &Bound<'py, PyAny>),
    learn: impl Fn(&mut T, &[f32], Option<&[f32]>) -> Result<Answer, BadInput>,
    node: impl Fn(&mut T) -> &mut Node,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, x, y) = (x.py(), sample(plan, x)?, labels::read(plan, y)?);
    let mut shared = lock(py, shared);
    let answer = learn(&mut shared, &x, y.as_deref()).map_err(errors::value)?;
    labels::predicted(py, node(&mut shared), &answer)
}

/// Predictions of all rows by a node of what is shared.
pub(crate) fn predictions<'py, T: Send>(
    shared: &Mutex<T>,
    plan: &Plan,
    x: &Bound<'py, PyAny>,
    node: impl Fn(&mut T) -> &mut Node + Send + Sync,
) -> PyResult<Bound<'py, PyAny>> {
    let table = Table::samples(x, plan.inputs(), &plan.config().columns)?;
    let made = each_row(x.py(), shared, &table, |shared, _, x, made| {
        let node = node(shared);
        let answer = node.predict(x)?;
        labels::push(node, &answer, made);
        Ok(())
    })?;
    labels::array(x.py(), plan, made)
}

/// The probability of each class for all rows: a column for each class.
pub(crate) fn predict_proba<'py, T: Send>(
    shared: &Mutex<T>,
    plan: &Plan,
    x: &Bound<'py, PyAny>,
    node: impl Fn(&mut T) -> &mut Node + Send + Sync,
) -> PyResult<Bound<'py, PyArray2<f32>>> {
    labels::check_classes(plan)?;
    let table = Table::samples(x, plan.inputs(), &plan.config().columns)?;
    let made = each_row(x.py(), shared, &table, |shared, _, x, made| {
        let node = node(shared);
        node.predict(x)?;
        made.extend_from_slice(node.probabilities());
        Ok(())
    })?;
    PyArray1::from_vec(x.py(), made).reshape([table.rows(), plan.config().classes.len()])
}

/// The intervals around the predictions of all rows: their lower and upper ends, of each target if
/// there are several. They are NaN if nothing is known of the node's errors, and for classes.
pub(crate) fn intervals<'py, T: Send>(
    shared: &Mutex<T>,
    plan: &Plan,
    x: &Bound<'py, PyAny>,
    level: f64,
    node: impl Fn(&mut T) -> &mut Node + Send + Sync,
) -> PyResult<Bound<'py, PyAny>> {
    let level = Level::new(level).map_err(errors::value)?;
    let targets = targets(plan);
    let table = Table::samples(x, plan.inputs(), &plan.config().columns)?;
    let ends = each_row(x.py(), shared, &table, |shared, _, x, made| {
        let node = node(shared);
        node.predict(x)?;
        for target in 0..targets {
            made.extend(ends(node, target, level));
        }
        Ok(())
    })?;
    let ends = PyArray1::from_vec(x.py(), ends);
    match targets {
        1 => Ok(ends.reshape([table.rows(), 2])?.into_any()),
        _ => Ok(ends.reshape([table.rows(), targets, 2])?.into_any()),
    }
}

/// The interval around the prediction of one sample: its ends, or a pair for each of several
/// targets.
pub(crate) fn interval_one<'py, T>(
    shared: &Mutex<T>,
    plan: &Plan,
    x: &Bound<'py, PyAny>,
    level: f64,
    node: impl Fn(&mut T) -> &mut Node,
) -> PyResult<Bound<'py, PyAny>> {
    let level = Level::new(level).map_err(errors::value)?;
    let (py, x) = (x.py(), sample(plan, x)?);
    let mut shared = lock(py, shared);
    let node = node(&mut shared);
    node.predict(&x).map_err(errors::value)?;
    let ends = |target| ends(node, target, level).map(f64::from);
    let pair = |target| PyTuple::new(py, ends(target));
    match targets(plan) {
        1 => Ok(pair(0)?.into_any()),
        targets => {
            let pairs = (0..targets).map(pair).collect::<PyResult<Vec<_>>>()?;
            Ok(PyTuple::new(py, pairs)?.into_any())
        }
    }
}

/// Numbers that have intervals, or one for classes, which have none.
fn targets(plan: &Plan) -> usize {
    if plan.classes().is_some() { 1 } else { plan.outputs() }
}

fn ends(node: &Node, target: usize, level: Level) -> [f32; 2] {
    let ends = node.interval(target, level);
    ends.map_or([f32::NAN; 2], |Interval { lower, upper }| [lower, upper])
}

/// Learns all rows in order. Returns the predictions made before each. A row without a label is
/// only predicted. A bad label is refused with its row, and nothing is learned.
pub(crate) fn learn<'py, T: Send>(
    shared: &Mutex<T>,
    plan: &Plan,
    (x, y): (&Bound<'py, PyAny>, &Bound<'py, PyAny>),
    learn: impl Fn(&mut T, &[f32], Option<&[f32]>) -> Result<Answer, BadInput> + Send + Sync,
    node: impl Fn(&mut T) -> &mut Node + Send + Sync,
) -> PyResult<Bound<'py, PyAny>> {
    let table = Table::samples(x, plan.inputs(), &plan.config().columns)?;
    let labels = Labels::read(plan, y, table.rows())?;
    let made = each_row(x.py(), shared, &table, |shared, row, x, made| {
        let answer = learn(shared, x, labels.of(row))?;
        labels::push(node(shared), &answer, made);
        Ok(())
    })?;
    labels::array(x.py(), plan, made)
}

/// The numbers that `work` appends for each row.
fn each_row<T: Send>(
    py: Python<'_>,
    shared: &Mutex<T>,
    table: &Table<'_>,
    work: impl Fn(&mut T, usize, &[f32], &mut Vec<f32>) -> Result<(), BadInput> + Send + Sync,
) -> PyResult<Vec<f32>> {
    let mut made = Vec::with_capacity(table.rows());
    table.each_part(|first, numbers| {
        let (x, rows, inputs) = (numbers.as_slice(), numbers.rows(), numbers.columns());
        for start in (0..rows).step_by(SAMPLES_PER_SIGNAL_CHECK) {
            py.detach(|| {
                let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                (start..rows.min(start + SAMPLES_PER_SIGNAL_CHECK)).try_for_each(|row| {
                    work(&mut shared, first + row, &x[row * inputs..][..inputs], &mut made)
                })
            })
            .map_err(errors::value)?;
            py.check_signals()?;
        }
        Ok(())
    })?;
    Ok(made)
}

/// The weight of each kernel in the predictions of a node.
pub(crate) fn shares(node: &Node) -> Vec<f64> {
    let mut shares = vec![0.0; node.plan().kernels()];
    node.method(0).shares(&mut shares);
    shares
}
