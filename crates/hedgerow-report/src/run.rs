//! The files of one run.

use hedgerow_lab::output::{curves_csv, summary_json};
use hedgerow_lab::results::Results;

use crate::figures::{self, FigureError};
use crate::report;

/// Every file that a run may have.
pub const FILES: &[&str] = &[
    "summary.json",
    "curves.csv",
    "report.html",
    "mse.svg",
    "kernels.svg",
    "convergence.svg",
    "regret.svg",
];

/// Why the files of a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// A figure could not be drawn.
    #[error(transparent)]
    Figure(#[from] FigureError),
    /// The summary could not be written as JSON.
    #[error("summary.json: {0}")]
    Json(#[from] serde_json::Error),
}

/// The summary, the curves, the report and the figures: names and contents.
pub fn files(results: &Results) -> Result<Vec<(String, String)>, FilesError> {
    let mut files = vec![
        ("summary.json".to_owned(), summary_json(results)?),
        ("curves.csv".to_owned(), curves_csv(results)),
        ("report.html".to_owned(), report::render(results)),
    ];
    files.extend(figures::render(results)?);
    Ok(files)
}
