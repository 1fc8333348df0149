//! [`simulate`]: what `hedgerow simulate` does, on a named stream, a file or arrays, with its
//! results as a [`Run`].

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;


use hedgerow::limits::MAX_LABEL;
use hedgerow_config::Layer;
use hedgerow_data::columns::Task;
use hedgerow_data::{Dataset, Owners};
use hedgerow_lab::output::{OutputFolder, summary_json};
use hedgerow_lab::results::{Moments, Results, from_stored_json, to_stored_json};
use hedgerow_lab::run::{self, Experiment, RunError};
use hedgerow_lab::settings::{Scaling, Settings};
use hedgerow_report::{report, run as run_files};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::Pickled;
use crate::arrays::Numbers;
use crate::errors;
use crate::plan::to_toml;

/// Interval of checks for Ctrl-C.
const SIGNAL_POLL: Duration = Duration::from_millis(20);

/// Runs trials of one or more methods. ``changes`` are settings such as ``{"federation.nodes":
/// 20}``, as ``hedgerow config`` prints them. Samples come from ``data.name``, or are ``x``, ``y``
/// and, if they belong to nodes, ``node``.
#[pyfunction]
#[pyo3(signature = (changes, x=None, y=None, node=None))]
pub(crate) fn simulate(
    py: Python<'_>,
    changes: &Bound<'_, PyDict>,
    x: Option<&Bound<'_, PyAny>>,
    y: Option<&Bound<'_, PyAny>>,
    node: Option<Vec<String>>,
) -> PyResult<Run> {
    let mut layers = Vec::new();
    for (key, value) in changes {
        let key: String = key.extract()?;
        let value = to_toml(&key, &value)?;
        layers.push(Layer::value("", &key, value));
    }
    let given = match (x, y) {
        (Some(x), Some(y)) => Some(arrays(x, y, node)?),
        (None, None) => None,
        _ => return Err(errors::kind("X and y come together or not at all")),
    };
    if let Some(Given { y, .. }) = &given {
        let has_rounds = layers.iter().any(|layer| layer.changes("run.rounds"));
        if !has_rounds {
            // All of them, however they are dealt.
            layers.push(Layer::value("", "run.rounds", y.len().max(1) as i64));
        }
    }
    let settings = Settings::load(&layers).map_err(|error| errors::settings(&error))?;
    let stop = AtomicBool::new(false);
    let results = thread::scope(|scope| {
        let working = scope.spawn(|| {
            catch_unwind(AssertUnwindSafe(|| {
                let data = match given {
                    Some(given) => given.dataset(&settings)?,
                    None => run::load_data(&settings, &|_| stop_if(&stop))?,
                };
                Experiment::new(&settings, &data)?.run(&|| stop_if(&stop))
            }))
        });
        wait(py, &stop, working)
    })?;
    Ok(Run(results.map_err(|error| errors::run(&error))?))
}

/// The panic payload that ends an interrupted run.
struct Stopped;

fn stop_if(stop: &AtomicBool) {
    if stop.load(Ordering::Relaxed) {
        resume_unwind(Box::new(Stopped));
    }
}

type Outcome = thread::Result<Result<Results, RunError>>;

/// Waits for the work, and ends it if the user wants that.
fn wait(
    py: Python<'_>,
    stop: &AtomicBool,
    working: ScopedJoinHandle<'_, Outcome>,
) -> PyResult<Result<Results, RunError>> {
    let mut interrupted = Ok(());
    while !working.is_finished() {
        py.detach(|| thread::sleep(SIGNAL_POLL));
        if interrupted.is_ok() {
            interrupted = py.check_signals();
            stop.store(interrupted.is_err(), Ordering::Relaxed);
        }
    }
    let outcome = py.detach(|| working.join());
    interrupted?;
    match outcome {
        Ok(Ok(results)) => Ok(results),
        Ok(Err(panic)) | Err(panic) => resume_unwind(panic),
    }
}

/// Samples from Python.
struct Given {
    inputs: usize,
    x: Vec<f32>,
    y: Vec<f32>,
    owners: Option<Owners>,
}

fn arrays(
    x: &Bound<'_, PyAny>,
    y: &Bound<'_, PyAny>,
    node: Option<Vec<String>>,
) -> PyResult<Given> {
    let x = Numbers::table(x)?;
    let (rows, inputs) = (x.rows(), x.columns());
    let y = Numbers::labels(y, rows)?;
    for (row, label) in y.as_slice().iter().enumerate() {
        if label.abs() > MAX_LABEL {
            return Err(errors::value(format!(
                "row {row}: label {label} is beyond the bound of {MAX_LABEL:e}"
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
    Ok(Given { inputs, x, y: y.as_slice().to_vec(), owners: node.map(owners) })
}

/// Nodes by their names, in the order in which they come.
fn owners(named: Vec<String>) -> Owners {
    let (mut names, mut numbers) = (Vec::new(), std::collections::HashMap::new());
    let ids = named.into_iter().map(|name| {
        *numbers.entry(name).or_insert_with_key(|name| {
            names.push(name.clone());
            (names.len() - 1) as u32
        })
    });
    let ids = ids.collect();
    Owners { ids, names }
}

impl Given {
    fn dataset(self, settings: &Settings) -> Result<Dataset, RunError> {
        let Self { inputs, x, y, owners } = self;
        let data = Dataset::from_arrays("arrays", inputs, x, y, owners)?;
        let mut data = data.with_past(&settings.data.columns)?;
        if settings.data.columns.task == Task::Classes {
            data = data.with_classes()?;
        }
        if let Scaling::WholeFile { jointly } = settings.scaling {
            data.scale_with_hindsight(jointly);
        }
        Ok(data)
    }
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
