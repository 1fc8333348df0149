//! [`Plan`]: all that a federation agrees on.

use hedgerow::features::{Family, Kernel};
use hedgerow::message::Upload;
use hedgerow_config::Layer;
use hedgerow_net::learning::config::read_plan;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PyString, PyTuple, PyType};
use toml::{Table, Value};

use crate::Pickled;
use crate::errors;

/// All that a federation agrees on: what is learned, and how. It takes what `[learning]` of
/// `hedgerow serve` takes, by the same names.
///
/// ``method`` gr (growing ridge), tr (tuned ridge), mk (MK-OFL), sk:N (SK-OFL with the N-th kernel,
/// from 1), naive, emk, pof, fedpoe, linear or linear-newton. ``inputs``, ``columns`` How many
/// numbers a sample has, or their names; samples with names are then taken by them. ``categories``
/// The texts of columns of text, ``{"sky": ["clear", "rain"]}``. ``target`` Name of the label, or
/// names of several with commas. ``classes`` Names of the classes, if the label is
/// one. ``nodes`` K, how many nodes are expected. Rates are made for it. ``budget`` r, numbers that
/// a message may have. It decides how many random features a kernel has. ``kernels``, ``draw`` The
/// dictionary: pairs of a family (gaussian, laplacian, cauchy, matern32, matern52) and a squared
/// bandwidth, or bandwidths alone, which are of Gaussians. Frequencies are shared, independent,
/// orthogonal or structured. ``loss``, ``huber_delta``, ``ridge`` squared, logistic (labels -1 and
/// +1) or huber, and where that turns into a straight line; the weight of the ridge term.
/// ``step_size``, ``step_schedule``, ``weight_rate``, ``weight_schedule``, ``weight_rule`` Rates of
/// gradient steps and of the kernels' weights: anytime (by the root of the round) or constant;
/// incremental or cumulative. ``memory`` Bytes for samples that a node of tr keeps. ``scaling``,
/// ``ranges`` none, online (mean and spread, agreed between nodes), online-range (minimum and
/// maximum), or ranges with ``ranges={"temperature": [-30, 50], ...}`` for each column and the
/// label. ``compression``, ``every``, ``part`` none, f16, q8 or q4; a node answers only after this
/// number of samples; one in this number of numbers travels at a time.
/// ``personal`` Whether each node has a layer of its own; None is what the method prefers: with gr
/// and tr it has, unless the loss is logistic. ``aggregation`` mean, screened (gr, tr),
/// median or trimmed-mean:SHARE. ``seed`` Where everything random begins.
///
/// None is the default everywhere. ``to_json`` has all that was made of it.
///
/// >>> from hedgerow import Plan
/// >>> plan = Plan(method="mk", inputs=3, kernels=[0.1, 1.0, ("laplacian", 1.0)])
/// >>> plan.kernels
/// [('gaussian', 0.1), ('gaussian', 1.0), ('laplacian', 1.0)]
/// >>> plan == Plan.from_json(plan.to_json())
/// True
/// >>> Plan(inputs=3, budget=3)
/// Traceback (most recent call last):
///     ...
/// ValueError: learning.budget: tr needs a budget of at least 16 numbers, but has 3
#[pyclass(frozen, module = "hedgerow", from_py_object)]
#[derive(Clone)]
pub(crate) struct Plan(pub(crate) hedgerow::Plan);

#[pymethods]
impl Plan {
    #[new]
    #[pyo3(
        signature = (**settings),
        text_signature = "(*, method='tr', inputs=0, columns=(), categories=None, target='y', classes=(), nodes=1, budget=100, kernels=None, draw='shared', loss='squared', huber_delta=1.0, ridge=0.01, step_size=1.0, step_schedule='anytime', weight_rate=1.0, weight_schedule='anytime', weight_rule='incremental', memory=1000000, scaling='online', ranges=None, compression='none', every=1, part=1, personal=None, aggregation='mean', seed=1)"
    )]
    fn new(settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let (mut learning, mut sections, mut dictionary) = (Table::new(), Table::new(), None);
        learning.insert("nodes".into(), Value::Integer(1));
        for (key, value) in settings.into_iter().flatten() {
            let key: String = key.extract()?;
            match key.as_str() {
                _ if value.is_none() => {}
                "kernels" => dictionary = Some(kernels(&value)?),
                "columns" | "classes" if value.is_instance_of::<PyString>() => {
                    return Err(errors::kind(format!(
                        "{key} must be a list of names, but is {value:?}"
                    )));
                }
                "draw" => {
                    let draw = to_toml("draw", &value)?;
                    sections.insert("kernels".into(), Table::from_iter([(key, draw)]).into());
                }
                _ => {
                    let value = to_toml(&key, &value)?;
                    learning.insert(key, value);
                }
            }
        }
        sections.insert("learning".into(), learning.into());
        let plan = read_plan(&[Layer::table("", sections)], dictionary);
        Self::checked(plan.map_err(|error| errors::config(&error))?)
    }

    /// Reads the output of ``to_json``, or the plan that a server sends to its nodes.
    #[staticmethod]
    pub(crate) fn from_json(text: &str) -> PyResult<Self> {
        let unreadable =
            |error| errors::value(format!("the learning configuration can't be read: {error}"));
        let config = serde_json::from_str(text).map_err(unreadable)?;
        Self::checked(hedgerow::Plan::new(config).map_err(errors::value)?)
    }

    /// The plan as JSON.
    pub(crate) fn to_json(&self) -> String {
        // Writing to memory can't fail: all keys are strings and all numbers finite.
        serde_json::to_string(self.0.config()).unwrap_or_default()
    }

    /// The name of the method.
    #[getter]
    fn method(&self) -> String {
        self.0.config().method.to_string()
    }

    /// Numbers in a sample.
    #[getter]
    fn inputs(&self) -> usize {
        self.0.inputs()
    }

    /// Names of the inputs; empty if they have none.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.0.config().columns.clone()
    }

    /// Name of the label, or names of several with commas.
    #[getter]
    fn target(&self) -> &str {
        &self.0.config().target
    }

    /// Names of the classes; empty if labels are numbers.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.0.config().classes.clone()
    }

    /// The expected number of nodes, K.
    #[getter]
    fn nodes(&self) -> usize {
        self.0.config().nodes
    }

    /// The largest number of numbers in a message, r.
    #[getter]
    fn budget(&self) -> usize {
        self.0.config().budget
    }

    /// The number of numbers in an upload, with the vote.
    #[getter]
    fn numbers(&self) -> usize {
        let (mut half, mut upload) = (self.0.node_method(0), Upload::default());
        let (x, mut z) = (vec![0.0; self.0.inputs()], vec![0.0; self.0.map().width()]);
        // The label is one that all losses know.
        _ = half.learn(self.0.map().map_batch(&x, &mut z), 1.0);
        half.upload(&mut upload);
        upload.count() * self.0.outputs()
    }

    /// Features of a sample, of all kernels together.
    #[getter]
    fn width(&self) -> usize {
        self.0.map().width()
    }

    /// The dictionary, as pairs of a family and a squared bandwidth.
    #[getter]
    fn kernels(&self) -> Vec<(&'static str, f64)> {
        pairs(&self.0.config().kernels)
    }

    pub(crate) fn __repr__(&self) -> String {
        let (method, inputs, nodes, budget) =
            (self.method(), self.inputs(), self.nodes(), self.budget());
        format!("Plan(method='{method}', inputs={inputs}, nodes={nodes}, budget={budget})")
    }

    fn __richcmp__(&self, other: &Self, compared: CompareOp) -> PyResult<bool> {
        let is_equal = self.0 == other.0;
        match compared {
            CompareOp::Eq => Ok(is_equal),
            CompareOp::Ne => Ok(!is_equal),
            _ => Err(errors::kind("plans have no order")),
        }
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Pickled<'py, (String,)> {
        Ok((PyType::new::<Self>(py).getattr("from_json")?, (self.to_json(),)))
    }

    fn __copy__(&self) -> Self {
        self.clone()
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> Self {
        self.clone()
    }
}

impl Plan {
    /// Refuses a plan whose samples only `hedgerow join` can make.
    fn checked(plan: hedgerow::Plan) -> PyResult<Self> {
        if plan.config().series.is_some() {
            return Err(errors::value(
                "learners and nodes in Python take all inputs of a sample, but this plan makes \
                 some of the time or of earlier rows (learning.calendar, learning.lags): use \
                 `hedgerow join`, with --http for questions from Python, or simulate and compare",
            ));
        }
        Ok(Self(plan))
    }
}

/// Pairs of a family's name and a squared bandwidth.
pub(crate) fn pairs(kernels: &[Kernel]) -> Vec<(&'static str, f64)> {
    kernels.iter().map(|kernel| (kernel.family.name(), kernel.variance)).collect()
}

/// The reverse; a number alone is of a Gaussian.
pub(crate) fn kernels(list: &Bound<'_, PyAny>) -> PyResult<Vec<Kernel>> {
    let not_a_list =
        |_| errors::kind(format!("kernels must be a list of kernels, but is {list:?}"));
    let kernels: Vec<Kernel> = list
        .try_iter()
        .map_err(not_a_list)?
        .take(MAX_LIST_ENTRIES + 1)
        .map(|item| kernel(&item?))
        .collect::<PyResult<_>>()?;
    if kernels.len() > MAX_LIST_ENTRIES {
        return Err(too_long("kernels"));
    }
    Ok(kernels)
}

fn kernel(item: &Bound<'_, PyAny>) -> PyResult<Kernel> {
    if let Ok(variance) = item.extract::<f64>() {
        return Ok(Kernel::gaussian(variance));
    }
    let Ok((name, variance)) = item.extract::<(String, f64)>() else {
        return Err(errors::kind(format!(
            "a kernel is a pair of a family and a squared bandwidth, or a squared bandwidth, but not {item}"
        )));
    };
    let known = Family::ALL.into_iter().find(|family| family.name() == name);
    let family = known.ok_or_else(|| {
        let names = Family::ALL.map(Family::name).join(", ");
        errors::value(format!("the family of a kernel must be one of {names}, but is {name:?}"))
    })?;
    Ok(Kernel { family, variance })
}

/// Entries that a list of settings may have: an iterator may never end.
const MAX_LIST_ENTRIES: usize = 100_000;

/// Levels of lists and dictionaries within each other.
const MAX_NESTING: usize = 8;

fn too_long(key: &str) -> PyErr {
    errors::value(format!("{key} may have {MAX_LIST_ENTRIES} entries at most"))
}

/// A setting as a file would have it.
pub(crate) fn to_toml(key: &str, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    nested(key, value, MAX_NESTING)
}

fn nested(key: &str, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    if depth == 0 {
        return Err(errors::value(format!("{key} may be nested {MAX_NESTING} deep at most")));
    }
    if let Ok(truth) = value.extract::<bool>() {
        return Ok(Value::Boolean(truth));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Value::String(text.to_string()));
    }
    if value.is_instance_of::<PyBytes>() {
        return Err(errors::kind(format!("{key} can't be bytes")));
    }
    if let Ok(named) = value.cast::<PyMapping>() {
        let mut entries = Table::new();
        for item in named.items()?.try_iter()? {
            let (name, value): (String, Bound<'_, PyAny>) = item?.extract()?;
            let value = nested(&format!("{key}.{name}"), &value, depth - 1)?;
            entries.insert(name, value);
        }
        return Ok(Value::Table(entries));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return items(key, value, depth);
    }
    match value.extract::<i64>() {
        Ok(whole) => return Ok(Value::Integer(whole)),
        Err(error) if error.is_instance_of::<pyo3::exceptions::PyOverflowError>(value.py()) => {
            return Err(errors::value(format!(
                "{key} must be less than 2^63 in size, but is {value}"
            )));
        }
        Err(_) => {}
    }
    if let Ok(number) = value.extract::<f64>() {
        return Ok(Value::Float(number));
    }
    if value.hasattr("__iter__")? {
        return items(key, value, depth);
    }
    let kind = value.get_type();
    Err(errors::kind(format!("{key} can't be of the type {kind}")))
}

fn items(key: &str, list: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    let items =
        list.try_iter()?.take(MAX_LIST_ENTRIES + 1).map(|item| nested(key, &item?, depth - 1));
    let items: Vec<Value> = items.collect::<PyResult<_>>()?;
    if items.len() > MAX_LIST_ENTRIES { Err(too_long(key)) } else { Ok(Value::Array(items)) }
}
