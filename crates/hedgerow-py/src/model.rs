//! [`Model`]: predictions from a file, without a server.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hedgerow::Node;
use hedgerow_data::rows;
use hedgerow_data::samples::{Sample, SampleStream};
use hedgerow_model::NoModel;
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

use crate::Pickled;
use crate::batch::{self, lock};
use crate::errors;

/// What a federation has learned.
#[pyclass(frozen, name = "_Model", module = "hedgerow._hedgerow")]
pub(crate) struct Model {
    model: hedgerow_model::Model,
    /// Nodes that have predicted already; the shared model has no name.
    known: Mutex<HashMap<Option<String>, Arc<Mutex<Node>>>>,
}

/// The inputs of a table row by row, the line of each row, and its node if rows have one.
type Encoded<'py> = (Bound<'py, PyArray2<f32>>, Bound<'py, PyArray1<u64>>, Option<Vec<String>>);

impl Model {
    fn node(&self, py: Python<'_>, name: Option<String>) -> PyResult<Arc<Mutex<Node>>> {
        let mut known = lock(py, &self.known);
        if let Some(node) = known.get(&name) {
            return Ok(Arc::clone(node));
        }
        let made = match &name {
            Some(name) => self.model.node(name),
            None => self.model.shared(),
        };
        let made = Arc::new(Mutex::new(made.map_err(no_model)?));
        known.insert(name, Arc::clone(&made));
        Ok(made)
    }
}

fn no_model(error: NoModel) -> PyErr {
    match error {
        NoModel::UnknownNode { .. } => PyKeyError::new_err(error.to_string()),
        _ => errors::value(error),
    }
}

#[pymethods]
impl Model {
    /// Reads a file.
    #[staticmethod]
    fn read(path: PathBuf) -> PyResult<Self> {
        let model =
            hedgerow_model::Model::read(&path).map_err(|error| errors::of_system(&error))?;
        Ok(Self { model, known: Mutex::default() })
    }

    /// Everything but the numbers, as JSON.
    fn describe_json(&self) -> String {
        self.model.describe().to_string()
    }

    /// The inputs of the rows of a file with the columns of the run. Rows that only give the past
    /// are left out.
    fn encode<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Encoded<'py>> {
        let schema = self.model.schema().ok_or_else(|| {
            errors::value("the model has no names of columns: give an array of its inputs")
        })?;
        let table = rows::open(&path, &schema.format).map_err(|error| errors::of_system(&error))?;
        let mut stream = SampleStream::predicting(&path, table, schema).map_err(errors::value)?;
        let (mut x, mut lines, mut owners) = (Vec::new(), Vec::new(), Vec::new());
        let mut sample = Sample::default();
        while stream.next(&mut sample).map_err(errors::value)? {
            x.extend_from_slice(&sample.x);
            lines.push(sample.row);
            owners.extend(stream.owners().get(sample.owner as usize).cloned());
        }
        let shape = [lines.len(), self.model.plan().inputs()];
        let owners = stream.has_owners().then_some(owners);
        Ok((PyArray1::from_vec(py, x).reshape(shape)?, PyArray1::from_vec(py, lines), owners))
    }

    /// Predicts each row by a node or by the shared model: a number, several, or the name of a
    /// class.
    #[pyo3(signature = (x, node=None))]
    fn predict<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        node: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let node = self.node(x.py(), node)?;
        batch::predictions(&node, self.model.plan(), x, |node| node)
    }

    /// The probability of each class.
    #[pyo3(signature = (x, node=None))]
    fn predict_proba<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        node: Option<String>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let node = self.node(x.py(), node)?;
        batch::predict_proba(&node, self.model.plan(), x, |node| node)
    }

    /// Lower and upper ends of the intervals around predictions; NaN by the shared model, and for
    /// classes.
    #[pyo3(signature = (x, node=None, level=None))]
    fn predict_interval<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        node: Option<String>,
        level: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let level = level.or(self.model.card().interval).unwrap_or(0.9);
        let node = self.node(x.py(), node)?;
        batch::intervals(&node, self.model.plan(), x, level, |node| node)
    }

    /// Names of the classes; empty if labels are numbers.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.model.classes().to_vec()
    }

    /// Names of the targets, if there are several.
    #[getter]
    fn targets(&self) -> Vec<String> {
        self.model.targets()
    }

    /// Names of its nodes.
    #[getter]
    fn nodes(&self) -> Vec<&str> {
        self.model.nodes().collect()
    }

    /// Numbers in a sample.
    #[getter]
    fn inputs(&self) -> usize {
        self.model.plan().inputs()
    }

    /// Whether there is a shared model.
    #[getter]
    fn is_shared(&self) -> bool {
        self.model.is_shared()
    }

    #[staticmethod]
    fn _restore(saved: &[u8]) -> PyResult<Self> {
        let model = hedgerow_model::Model::from_bytes(Path::new("a pickled model"), saved);
        Ok(Self { model: model.map_err(errors::value)?, known: Mutex::default() })
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Pickled<'py, (Bound<'py, PyBytes>,)> {
        let saved = PyBytes::new(py, &self.model.to_bytes());
        Ok((PyType::new::<Self>(py).getattr("_restore")?, (saved,)))
    }
}
