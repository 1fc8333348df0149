//! Labels from Python, and predictions for it: numbers, several numbers of a sample, or classes.

use hedgerow::node::Answer;
use hedgerow::{Node, Plan};
use hedgerow_data::text::shortened;
use numpy::{PyArray1, PyArrayMethods};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyString, PyTuple};

use crate::arrays::{self, Numbers};
use crate::errors;

/// The labels of all outputs of a sample; none if one is missing.
pub(crate) fn read(plan: &Plan, y: &Bound<'_, PyAny>) -> PyResult<Option<Vec<f32>>> {
    if let Some(classes) = plan.classes() {
        return Ok(class(plan, y)?.map(|class| classes.labels(class).collect()));
    }
    if plan.outputs() == 1 {
        return Ok(arrays::label(y)?.map(|y| vec![y]));
    }
    if y.is_none() {
        return Ok(None);
    }
    let labels = arrays::targets(y, plan.outputs(), &targets(plan))
        .map_err(|error| with_place(y.py(), "y", &error))?;
    Ok(Some(labels).filter(|labels| !labels.iter().any(|label| label.is_nan())))
}

/// The labels of a prediction that waits for them. Missing ones are refused by the node.
pub(crate) fn known(plan: &Plan, y: &Bound<'_, PyAny>) -> PyResult<Vec<f32>> {
    Ok(read(plan, y)?.unwrap_or_else(|| vec![f32::NAN; plan.outputs()]))
}

/// Names of the targets.
fn targets(plan: &Plan) -> Vec<String> {
    plan.config().target.split(',').map(str::to_owned).collect()
}

/// The class that a text, a truth value or a number names; none if it is missing.
fn class(plan: &Plan, y: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    let names = &plan.config().classes;
    let position = |text: &str| names.iter().position(|name| name == text);
    if y.is_none() || arrays::is_missing(y) {
        return Ok(None);
    }
    let found = if let Ok(text) = y.cast::<PyString>() {
        position(&text.to_cow()?)
    } else if let Ok(truth) = y.extract::<bool>() {
        let known = if truth { ["true", "True", "1"] } else { ["false", "False", "0"] };
        known.into_iter().find_map(position)
    } else {
        position(&y.extract::<f64>()?.to_string())
    };
    found.map(Some).ok_or_else(|| {
        let known = shortened(&names.join(", "), 200);
        let shown = y.repr().map_or_else(|_| "another".to_owned(), |text| text.to_string());
        let shown = shortened(&shown, 50);
        errors::value(format!("a label must be one of the classes {known}, but is {shown}"))
    })
}

/// The labels of many samples.
pub(crate) struct Labels {
    /// Row by row; NaN is missing.
    numbers: Vec<f32>,
    outputs: usize,
}

impl Labels {
    /// Labels of `rows` rows, all of which can be learned or are missing.
    pub(crate) fn read(plan: &Plan, y: &Bound<'_, PyAny>, rows: usize) -> PyResult<Self> {
        let outputs = plan.outputs();
        let numbers = match plan.classes() {
            Some(_) => of_classes(plan, y, rows)?,
            None => Numbers::labels(y, rows, outputs)?.as_slice().to_vec(),
        };
        for (row, labels) in numbers.chunks_exact(outputs).enumerate() {
            for label in labels.iter().filter(|label| !label.is_nan()) {
                plan.check_label(*label)
                    .map_err(|error| errors::value(format!("row {row}: {error}")))?;
            }
        }
        Ok(Self { numbers, outputs })
    }

    /// Those of a row; none if one of them is missing.
    pub(crate) fn of(&self, row: usize) -> Option<&[f32]> {
        let labels = &self.numbers[row * self.outputs..][..self.outputs];
        (!labels.iter().any(|label| label.is_nan())).then_some(labels)
    }
}

fn of_classes(plan: &Plan, y: &Bound<'_, PyAny>, rows: usize) -> PyResult<Vec<f32>> {
    let py = y.py();
    let numpy = py.import(intern!(py, "numpy"))?;
    let array = numpy.call_method1(intern!(py, "asarray"), (y,))?;
    let shape: Vec<usize> = array.getattr(intern!(py, "shape"))?.extract()?;
    if shape != [rows] {
        let found = arrays::tuple(&shape);
        return Err(errors::value(format!(
            "y must have the shape ({rows},), as X has rows, but has {found}"
        )));
    }
    let outputs = plan.outputs();
    let mut numbers = Vec::with_capacity(rows * outputs);
    for (row, item) in array.call_method0(intern!(py, "tolist"))?.try_iter()?.enumerate() {
        let labels =
            read(plan, &item?).map_err(|error| with_place(py, &format!("row {row}"), &error))?;
        numbers.extend(labels.unwrap_or_else(|| vec![f32::NAN; outputs]));
    }
    Ok(numbers)
}

/// An error with the place that it is about.
fn with_place(py: Python<'_>, place: &str, error: &PyErr) -> PyErr {
    PyErr::from_type(error.get_type(py), format!("{place}: {}", error.value(py)))
}

/// The latest prediction of a node: a number, a tuple of numbers, or the name of a class.
pub(crate) fn predicted<'py>(
    py: Python<'py>,
    node: &Node,
    answer: &Answer,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(class) = answer.class {
        return Ok(PyString::new(py, &node.plan().config().classes[class]).into_any());
    }
    match node.values() {
        [_] => Ok(PyFloat::new(py, answer.value.into()).into_any()),
        values => Ok(PyTuple::new(py, values.iter().copied().map(f64::from))?.into_any()),
    }
}

/// Appends the latest prediction of a node: a number for each output, or that of the class.
pub(crate) fn push(node: &Node, answer: &Answer, out: &mut Vec<f32>) {
    match answer.class {
        Some(class) => out.push(class as f32),
        None => out.extend_from_slice(node.values()),
    }
}

/// What [`push`] has made of all rows, as an array: of numbers, of rows of numbers, or of names.
pub(crate) fn array<'py>(
    py: Python<'py>,
    plan: &Plan,
    numbers: Vec<f32>,
) -> PyResult<Bound<'py, PyAny>> {
    let outputs = plan.outputs();
    if plan.classes().is_some() {
        let numpy = py.import(intern!(py, "numpy"))?;
        let names = numpy.call_method1(intern!(py, "array"), (&plan.config().classes,))?;
        let classes = PyArray1::from_iter(py, numbers.iter().map(|class| *class as i64));
        return names.get_item(classes);
    }
    let rows = numbers.len() / outputs;
    let numbers = PyArray1::from_vec(py, numbers);
    match outputs {
        1 => Ok(numbers.into_any()),
        _ => Ok(numbers.reshape([rows, outputs])?.into_any()),
    }
}

/// The probability of each class for the latest prediction of a node, by name.
pub(crate) fn probabilities<'py>(py: Python<'py>, node: &Node) -> PyResult<Bound<'py, PyDict>> {
    let named = PyDict::new(py);
    for (name, probability) in node.plan().config().classes.iter().zip(node.probabilities()) {
        named.set_item(name, f64::from(*probability))?;
    }
    Ok(named)
}

/// Refuses a plan without classes.
pub(crate) fn check_classes(plan: &Plan) -> PyResult<()> {
    if plan.classes().is_some() {
        return Ok(());
    }
    Err(errors::value(
        "the plan has no classes, so there are no probabilities: Plan(classes=[...])",
    ))
}

/// Refuses a plan whose messages have several parts.
pub(crate) fn check_one_output(plan: &Plan) -> PyResult<()> {
    match plan.outputs() {
        1 => Ok(()),
        outputs => Err(errors::value(format!(
            "Engine, Server and Flower carry messages of one output (one target, or two classes), \
             but the plan has {outputs}: use Federation in one process, or Node with `hedgerow serve`"
        ))),
    }
}

/// How wrong the latest prediction of a node is: squared and averaged over outputs; of a class, 1
/// or 0.
pub(crate) fn error(node: &Node, answer: &Answer, y: &[f32]) -> f64 {
    if let Some((classes, class)) = node.plan().classes().zip(answer.class) {
        return f64::from(u8::from(classes.likeliest(y) != class));
    }
    let squares = node.values().iter().zip(y).map(|(value, y)| {
        let error = f64::from(*value) - f64::from(*y);
        error * error
    });
    squares.sum::<f64>() / y.len() as f64
}
