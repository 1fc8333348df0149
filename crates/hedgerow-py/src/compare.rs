//! [`compare`]: what `hedgerow compare` does.

use hedgerow_lab::compare::{Grid, GridConfig};
use hedgerow_lab::output::OutputError;
use hedgerow_lab::suite::SuiteError;
use hedgerow_report::compare as report;
use pyo3::prelude::*;

use crate::errors;
use crate::simulate::Request;
use crate::work;

/// Runs all methods, or those that the settings name, on every data set with every partition and
/// budget, and ranks them. Returns the tables and the advice as on a terminal, and the files that
/// the command writes: names and contents.
#[pyfunction]
#[pyo3(signature = (request, *, data=None, partitions=None, budgets=None, against=None))]
pub(crate) fn compare(
    py: Python<'_>,
    request: Request<'_>,
    data: Option<Vec<String>>,
    partitions: Option<Vec<String>>,
    budgets: Option<Vec<i64>>,
    against: Option<String>,
) -> PyResult<(String, Vec<(String, String)>)> {
    let (layers, given) = request.read()?;
    let config = GridConfig { data, partitions, budgets, against, ..GridConfig::default() };
    let done = work::run(py, |stop| {
        let mut grid = match given {
            Some(given) => Grid::prepare_given(&config, &layers, given)?,
            None => Grid::prepare(&config, &layers)?,
        };
        let missing = grid.runs.missing().into_iter().map(|one| one.name.clone());
        let missing: Vec<String> = missing.collect();
        grid.runs.run(&|_| stop.check(), &|| stop.check())?;
        let comparison = grid.comparison();
        let texts = report::texts(&comparison, &missing).map_err(OutputError::from)?;
        let mut files = report::figures(&comparison);
        files.extend(texts.map(|(name, text)| (name.to_owned(), text)));
        Ok((report::text(&comparison), files))
    })?;
    done.map_err(|error: SuiteError| errors::suite(&error))
}
