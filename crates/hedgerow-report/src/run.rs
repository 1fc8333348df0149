//! The files of one run.

use hedgerow_lab::output::{curves_csv, summary_json};
use hedgerow_lab::results::Results;

use crate::figures;
use crate::report;

/// Every file that a run may have.
pub const FILES: &[&str] = &[
    "summary.json",
    "curves.csv",
    "report.html",
    "mse.svg",
    "predictions.svg",
    "predictions-worst.svg",
    "scatter.svg",
    "coverage.svg",
    "confusion.svg",
    "importance.svg",
    "importance-over-time.svg",
    "devices.svg",
    "hours.svg",
    "weekdays.svg",
    "kernels.svg",
    "convergence.svg",
    "regret.svg",
];

/// The summary, the curves, the report and the figures: names and contents.
pub fn files(results: &Results) -> Result<Vec<(String, String)>, serde_json::Error> {
    let mut files = vec![
        ("summary.json".to_owned(), summary_json(results)?),
        ("curves.csv".to_owned(), curves_csv(results)),
        ("report.html".to_owned(), report::render(results)),
    ];
    files.extend(figures::render(results));
    Ok(files)
}
