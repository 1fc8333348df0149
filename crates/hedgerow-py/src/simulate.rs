//! [`simulate`]: what `hedgerow simulate` does, on a named stream, a file or arrays, with its
//! results as a [`Run`].

use std::collections::HashMap;
use std::path::PathBuf;

use hedgerow::limits::MAX_LABEL;
use hedgerow_config::Layer;
use hedgerow_data::{Dataset, Owners};
use hedgerow_lab::given::GivenSamples;
use hedgerow_lab::output::{OutputFolder, summary_json};
use hedgerow_lab::predictions;
use hedgerow_lab::results::{Moments, Results, from_stored_json, to_stored_json};
use hedgerow_lab::run::{self, Experiment};
use hedgerow_lab::settings::Settings;
use hedgerow_lab::suite::SuiteError;
use hedgerow_model::{Model, ModelError};
use hedgerow_report::{report, run as run_files, worth};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::Pickled;
use crate::arrays::Numbers;
use crate::errors;
use crate::plan::to_toml;
use crate::work;

/// What a run is asked for: settings such as ``{"federation.nodes": 20}``, as ``hedgerow config``
/// prints them, and samples, unless settings name the data.
#[derive(FromPyObject)]
pub(crate) struct Request<'py> {
    changes: Bound<'py, PyDict>,
    x: Option<Bound<'py, PyAny>>,
    y: Option<Bound<'py, PyAny>>,
    /// The node of each sample.
    node: Option<Vec<String>>,
    /// What samples are called; else data has its own name.
    name: Option<String>,
}

impl Request<'_> {
    /// Settings, and samples if there are any.
    pub(crate) fn read(self) -> PyResult<(Vec<Layer>, Option<GivenSamples>)> {
        let given = match (&self.x, &self.y) {
            (Some(x), Some(y)) => {
                Some(arrays(self.name.as_deref().unwrap_or("arrays"), x, y, self.node)?)
            }
            (None, None) => None,
            _ => return Err(errors::kind("X and y come together or not at all")),
        };
        let mut layers = Vec::new();
        for (key, value) in self.changes {
            let key: String = key.extract()?;
            let value = to_toml(&key, &value)?;
            layers.push(Layer::value("", &key, value));
        }
        if let Some(given) = &given
            && !layers.iter().any(|layer| layer.changes("run.rounds"))
        {
            // All of them, however they are dealt.
            layers.push(Layer::value("", "run.rounds", given.y.len().max(1) as i64));
        }
        Ok((layers, given))
    }
}

/// Runs trials of one or more methods. With ``predictions`` those of the first trial come with the
/// results, as columns.
#[pyfunction]
#[pyo3(signature = (request, *, predictions=false))]
pub(crate) fn simulate<'py>(
    py: Python<'py>,
    request: Request<'py>,
    predictions: bool,
) -> PyResult<(Run, Option<Bound<'py, PyDict>>)> {
    let name = request.name.clone();
    let (layers, given) = request.read()?;
    let mut settings = Settings::load(&layers).map_err(|error| errors::settings(&error))?;
    if let (Some(name), Some(data)) = (&name, settings.effective.get_mut("data"))
        && let Some(data) = data.as_table_mut()
    {
        // What samples are called, instead of the file that they were written to.
        data.insert("name".to_owned(), name.as_str().into());
    }
    settings.keeps_predictions |= predictions;
    let unsaved = |error: ModelError| errors::of_system(&error);
    settings
        .save_model
        .iter()
        .try_for_each(|path| Model::check_replaceable(path))
        .map_err(unsaved)?;
    let outcome = work::run(py, |stop| {
        let mut data = match given {
            Some(given) => given.dataset(&settings)?,
            None => run::load_data(&settings, &|_| stop.check())?,
        };
        data.name = name.unwrap_or(data.name);
        let results = Experiment::new(&settings, &data)?.run(&|| stop.check())?;
        let scored = predictions.then(|| PredictionColumns::new(&results, &data));
        if let Some(path) = &settings.predictions {
            predictions::write(path, &results, Some(&data))?;
        }
        Ok((results, scored))
    })?;
    let (mut results, scored) = outcome.map_err(|error: SuiteError| errors::suite(&error))?;
    if let (Some(path), Some(model)) = (&settings.save_model, results.model.take()) {
        model.write(path).map_err(unsaved)?;
    }
    let scored = scored.map(|scored| scored.into_dict(py)).transpose()?;
    Ok((Run(results), scored))
}

/// The predictions of a run as a table: the columns that files of them have.
struct PredictionColumns {
    /// Names of the columns.
    names: Vec<String>,
    rows: Vec<u64>,
    times: Vec<f64>,
    has_dates: bool,
    /// Positions in the names of nodes, methods and targets.
    nodes: Vec<u32>,
    methods: Vec<u32>,
    targets: Vec<u32>,
    /// Labels and predictions; of classes, their positions in the names of classes.
    truths: Vec<f32>,
    values: Vec<f32>,
    /// The columns after them: ends of intervals, or probabilities of classes.
    others: Vec<Vec<f32>>,
    node_names: Vec<String>,
    method_names: Vec<String>,
    target_names: Vec<String>,
    classes: Vec<String>,
}

impl PredictionColumns {
    fn new(results: &Results, data: &Dataset) -> Self {
        let name = |node| results.node_names.get(node).cloned();
        let (targets, classes) = (results.targets.len().max(1), results.classes.len());
        let mut columns = Self {
            names: predictions::columns(results),
            rows: Vec::new(),
            times: Vec::new(),
            has_dates: data.has_dates,
            nodes: Vec::new(),
            methods: Vec::new(),
            targets: Vec::new(),
            truths: Vec::new(),
            values: Vec::new(),
            others: vec![Vec::new(); if classes == 0 { 2 } else { classes }],
            // Nodes without a name have numbers from 1, as in files of predictions.
            node_names: (0..results.nodes)
                .map(|node| name(node).unwrap_or_else(|| (node + 1).to_string()))
                .collect(),
            method_names: results.predictions.iter().map(|one| one.method.clone()).collect(),
            target_names: results.targets.clone(),
            classes: results.classes.clone(),
        };
        for (at, of_method) in results.predictions.iter().enumerate() {
            for (place, scored) in of_method.predictions.iter().enumerate() {
                columns.truths.push(scored.truth);
                columns.values.push(scored.value);
                let ends = scored.interval.map_or([f32::NAN; 2], |it| [it.lower, it.upper]);
                let others = match classes {
                    0 => &ends[..],
                    _ => &of_method.probabilities[place * classes..][..classes],
                };
                columns.others.iter_mut().zip(others).for_each(|(all, one)| all.push(*one));
                let index = scored.index as usize;
                columns.rows.push(data.row(index));
                columns.times.extend(data.times.get(index));
                columns.nodes.push(scored.node);
                columns.methods.push(at as u32);
                columns.targets.push((place % targets) as u32);
            }
        }
        columns
    }

    fn into_dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let columns = PyDict::new(py);
        let position = |label: &f32| *label as u32;
        let labels = |labels: Vec<f32>| match self.classes.is_empty() {
            true => PyArray1::from_vec(py, labels).into_any(),
            false => PyArray1::from_iter(py, labels.iter().map(position)).into_any(),
        };
        let mut known = HashMap::from([
            ("row", PyArray1::from_vec(py, self.rows).into_any()),
            ("node", PyArray1::from_vec(py, self.nodes).into_any()),
            ("method", PyArray1::from_vec(py, self.methods).into_any()),
            ("target", PyArray1::from_vec(py, self.targets).into_any()),
            ("truth", labels(self.truths)),
            ("prediction", labels(self.values)),
        ]);
        if !self.times.is_empty() {
            known.insert("time", PyArray1::from_vec(py, self.times).into_any());
        }
        let mut others = self.others.into_iter();
        for name in &self.names {
            let column = match known.remove(name.as_str()) {
                Some(column) => Some(column),
                None if name == "time" => None,
                None => others.next().map(|column| PyArray1::from_vec(py, column).into_any()),
            };
            if let Some(column) = column {
                columns.set_item(name, column)?;
            }
        }
        let with_names = PyDict::new(py);
        with_names.set_item("columns", columns)?;
        with_names.set_item("has_dates", self.has_dates)?;
        with_names.set_item("nodes", self.node_names)?;
        with_names.set_item("methods", self.method_names)?;
        with_names.set_item("targets", self.target_names)?;
        with_names.set_item("classes", self.classes)?;
        Ok(with_names)
    }
}

fn arrays(
    name: &str,
    x: &Bound<'_, PyAny>,
    y: &Bound<'_, PyAny>,
    node: Option<Vec<String>>,
) -> PyResult<GivenSamples> {
    let x = Numbers::table(x)?;
    let (rows, features) = (x.rows(), x.columns());
    let y = Numbers::labels(y, rows, 1)?;
    for (row, label) in y.as_slice().iter().enumerate() {
        if label.abs() > MAX_LABEL {
            return Err(errors::value(format!(
                "the {name}, row {row}: label {label} is beyond the bound of {MAX_LABEL:e}"
            )));
        }
    }
    if let Some(node) = node.as_ref().filter(|node| node.len() != rows) {
        return Err(errors::value(format!(
            "node must have {rows} entries, as X has rows, but has {}",
            node.len()
        )));
    }
    // What isn't finite is missing.
    let x = x
        .as_slice()
        .iter()
        .map(|value| if value.is_finite() { *value } else { f32::NAN })
        .collect();
    let (name, y, owners) = (name.to_owned(), y.as_slice().to_vec(), node.map(owners));
    Ok(GivenSamples { name, features, x, y, owners })
}

/// Nodes by their names, in the order in which they come.
fn owners(named: Vec<String>) -> Owners {
    let (mut names, mut numbers) = (Vec::new(), HashMap::new());
    let ids = named.into_iter().map(|name| {
        *numbers.entry(name).or_insert_with_key(|name| {
            names.push(name.clone());
            (names.len() - 1) as u32
        })
    });
    let ids = ids.collect();
    Owners { ids, names }
}

/// The results of a simulation.
#[pyclass(frozen, module = "hedgerow._hedgerow")]
pub(crate) struct Run(Results);

#[pymethods]
impl Run {
    /// The content of ``summary.json``.
    fn summary_json(&self) -> PyResult<String> {
        summary_json(&self.0).map_err(|error| errors::of_system(&error))
    }

    /// The curves of every method, with a row per recorded round, as in ``curves.csv``.
    fn curves<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (mut names, mut kernels, mut rounds) = (Vec::new(), Vec::new(), Vec::new());
        let mut columns: [Vec<f64>; 6] = Default::default();
        for method in &self.0.methods {
            let curve = &method.curve;
            for (at, round) in curve.rounds.iter().enumerate() {
                names.push(method.name.as_str());
                kernels.push(method.kernel.map_or(0, |kernel| kernel as i64));
                rounds.push(*round as i64);
                let known = [&curve.mse, &curve.mse_window, &curve.loss]
                    .map(|curve| curve.get(at).copied());
                let numbers = known.into_iter().flat_map(|moments| match moments {
                    Some(Moments { mean, sd }) => [mean, sd],
                    None => [f64::NAN; 2],
                });
                columns.iter_mut().zip(numbers).for_each(|(column, number)| column.push(number));
            }
        }
        let frame = PyDict::new(py);
        frame.set_item("method", names)?;
        frame.set_item("kernel", PyArray1::from_vec(py, kernels))?;
        frame.set_item("round", PyArray1::from_vec(py, rounds))?;
        let keys = ["mse", "mse_sd", "mse_window", "mse_window_sd", "loss", "loss_sd"];
        for (key, column) in keys.into_iter().zip(columns) {
            frame.set_item(key, PyArray1::from_vec(py, column))?;
        }
        Ok(frame)
    }

    /// Whether federating pays, in a sentence.
    fn worth(&self) -> Option<String> {
        worth::sentence(&self.0)
    }

    /// The self-contained page.
    fn report(&self, py: Python<'_>) -> String {
        py.detach(|| report::render(&self.0))
    }

    /// Writes summary, curves, figures and report to a folder. Returns the files.
    fn write(&self, py: Python<'_>, folder: PathBuf) -> PyResult<Vec<PathBuf>> {
        let files = py.detach(|| run_files::files(&self.0)).map_err(errors::value)?;
        let written = py.detach(|| OutputFolder::prepare(&folder, run_files::FILES)?.write(&files));
        written.map_err(|error| errors::of_system(&error))
    }

    #[staticmethod]
    fn _restore(stored: &str) -> PyResult<Self> {
        from_stored_json(stored).map(Self).map_err(errors::value)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Pickled<'py, (String,)> {
        let stored = to_stored_json(&self.0).map_err(errors::value)?;
        Ok((PyType::new::<Self>(py).getattr("_restore")?, (stored,)))
    }
}
