//! The predictions of a run one by one, for files and figures.

#[cfg(feature = "parquet")]
mod parquet;

use std::fmt::Write;
use std::path::Path;

use hedgerow::learning::Interval;
use hedgerow_data::{Dataset, timestamp};
use serde::Serialize;

use crate::output::{OutputError, write_file};
use crate::results::Results;
use crate::settings::SettingsError;

/// A prediction and its label, in the label's own unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoredPrediction {
    /// Number of the sample in the data, from 0.
    pub index: u64,
    /// The node that made it.
    pub node: u32,
    /// The label.
    pub truth: f32,
    /// The prediction, made before the label was known.
    pub value: f32,
    /// The interval around it, if one was known.
    pub interval: Option<Interval>,
}

/// The predictions of a method in the first trial, in the order of their rounds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MethodPredictions {
    /// Name of the method, with the number of its kernel if it has one for each.
    pub method: String,
    /// Its predictions.
    pub predictions: Vec<ScoredPrediction>,
}

/// A line of a file of predictions.
#[derive(Debug, Serialize)]
struct PredictionRow<'a> {
    row: u64,
    time: Option<String>,
    node: String,
    method: &'a str,
    truth: f32,
    prediction: f32,
    lower: Option<f32>,
    upper: Option<f32>,
}

/// A kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    JsonLines,
    #[cfg(feature = "parquet")]
    Parquet,
}

impl Format {
    fn of(path: &Path) -> Result<Self, SettingsError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Ok(Self::Csv),
            Some("jsonl") => Ok(Self::JsonLines),
            #[cfg(feature = "parquet")]
            Some("parquet") => Ok(Self::Parquet),
            _ => {
                let bound = match cfg!(feature = "parquet") {
                    true => "a file whose name ends in .csv, .jsonl or .parquet",
                    false => {
                        "a file whose name ends in .csv or .jsonl (.parquet needs a build with the feature parquet)"
                    }
                };
                Err(SettingsError::out_of_bounds("run.predictions", bound, path.display()))
            }
        }
    }
}

/// An error if predictions can't be written to a file of that name.
pub(crate) fn check(path: &Path) -> Result<(), SettingsError> {
    Format::of(path).map(drop)
}

/// Writes the predictions of a run to a file, a line for each. `data` says in which row, and when,
/// each label was; without it rows have the numbers of samples, from 1. Nodes have their names, or
/// else numbers from 1.
pub fn write(path: &Path, results: &Results, data: Option<&Dataset>) -> Result<(), OutputError> {
    // The name was checked with the settings.
    let content = match Format::of(path).unwrap_or(Format::Csv) {
        Format::Csv => csv(results, data).into_bytes(),
        Format::JsonLines => json_lines(results, data)?.into_bytes(),
        #[cfg(feature = "parquet")]
        Format::Parquet => parquet::write(rows(results, data))
            .map_err(|source| OutputError::Unwritable { path: path.to_owned(), source })?,
    };
    write_file(path, &content)
}

fn rows<'a>(
    results: &'a Results,
    data: Option<&'a Dataset>,
) -> impl Iterator<Item = PredictionRow<'a>> {
    let time = move |index: usize| {
        let data = data?;
        let seconds = *data.times.get(index)?;
        Some(if data.has_dates { timestamp::write(seconds) } else { seconds.to_string() })
    };
    let row = move |method: &'a str, scored: &ScoredPrediction| {
        let index = scored.index as usize;
        let name = results.node_names.get(scored.node as usize).cloned();
        PredictionRow {
            row: data.map_or(scored.index + 1, |data| data.row(index)),
            time: time(index),
            node: name.unwrap_or_else(|| (scored.node + 1).to_string()),
            method,
            truth: scored.truth,
            prediction: scored.value,
            lower: scored.interval.map(|interval| interval.lower),
            upper: scored.interval.map(|interval| interval.upper),
        }
    };
    let of_method = move |MethodPredictions { method, predictions }: &'a MethodPredictions| {
        predictions.iter().map(move |scored| row(method, scored))
    };
    results.predictions.iter().flat_map(of_method)
}

fn csv(results: &Results, data: Option<&Dataset>) -> String {
    let mut text = String::from("row,time,node,method,truth,prediction,lower,upper\n");
    for line in rows(results, data) {
        let PredictionRow { row, time, node, method, truth, prediction, lower, upper } = line;
        let number =
            |number: Option<f32>| number.map_or(String::new(), |number| number.to_string());
        let (time, node) = (time.unwrap_or_default(), quoted(&node));
        let (lower, upper) = (number(lower), number(upper));
        // Writing to a string can't fail.
        _ = writeln!(text, "{row},{time},{node},{method},{truth},{prediction},{lower},{upper}");
    }
    text
}

/// A cell of a CSV file.
pub fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn json_lines(results: &Results, data: Option<&Dataset>) -> Result<String, serde_json::Error> {
    let mut text = String::new();
    for line in rows(results, data) {
        text += &serde_json::to_string(&line)?;
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_results() -> Results {
        let scored = |index, node, interval| ScoredPrediction {
            index,
            node,
            truth: 1.5,
            value: 2.0,
            interval,
        };
        let interval = Some(Interval { lower: 1.0, upper: 3.0 });
        let predictions = vec![scored(0, 0, None), scored(7, 1, interval)];
        Results {
            predictions: vec![MethodPredictions { method: "tr".into(), predictions }],
            node_names: vec!["a, \"b\"".into()],
            ..Results::default()
        }
    }

    #[test]
    fn files_have_a_line_for_each_prediction() {
        let results = some_results();
        assert_eq!(
            csv(&results, None),
            "row,time,node,method,truth,prediction,lower,upper\n\
             1,,\"a, \"\"b\"\"\",tr,1.5,2,,\n\
             8,,2,tr,1.5,2,1,3\n"
        );
        let lines = json_lines(&results, None).unwrap();
        assert_eq!(
            lines.lines().next(),
            Some(
                "{\"row\":1,\"time\":null,\"node\":\"a, \\\"b\\\"\",\"method\":\"tr\",\
                 \"truth\":1.5,\"prediction\":2.0,\"lower\":null,\"upper\":null}"
            )
        );
        assert_eq!(lines.lines().count(), 2);
    }

    #[test]
    fn other_names_are_refused() {
        for name in ["predictions", "predictions.txt", ".csv"] {
            let error = check(Path::new(name)).unwrap_err().to_string();
            assert!(error.contains("run.predictions") && error.contains(name), "{error}");
        }
        assert!(check(Path::new("a/b.csv")).is_ok() && check(Path::new("c.jsonl")).is_ok());
    }
}
