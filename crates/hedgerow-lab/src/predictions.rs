//! The predictions of a run one by one, for files and figures.

#[cfg(feature = "parquet")]
mod parquet;

use std::collections::BTreeMap;
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
    /// The label; of a class, its number from 0.
    pub truth: f32,
    /// The prediction, made before the label was known; of a class, the number of the likeliest.
    pub value: f32,
    /// The interval around it, if one was known.
    pub interval: Option<Interval>,
}

/// The predictions of a method in the first trial, in the order of their rounds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MethodPredictions {
    /// Name of the method, with the number of its kernel if it has one for each.
    pub method: String,
    /// Its predictions. Those of several targets of a sample follow each other.
    pub predictions: Vec<ScoredPrediction>,
    /// The probability of each class for each of them; empty if labels are numbers.
    pub probabilities: Vec<f32>,
}

/// A line of a file of predictions.
#[derive(Debug, Serialize)]
struct PredictionRow<'a> {
    row: u64,
    time: Option<String>,
    node: String,
    method: &'a str,
    /// Of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    truth: Value<'a>,
    prediction: Value<'a>,
    /// The ends of the interval around a number, if one was known.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    interval: Option<Ends>,
    /// Names and probabilities of the classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    probabilities: Option<BTreeMap<&'a str, f32>>,
}

/// A label.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
enum Value<'a> {
    Number(f32),
    Class(&'a str),
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Ends {
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

/// An error if predictions can't be written to a file of that name, or would replace the data.
pub(crate) fn check(path: &Path, data: &Path) -> Result<(), SettingsError> {
    Format::of(path)?;
    match (path.canonicalize(), data.canonicalize()) {
        (Ok(file), Ok(data)) if file.starts_with(&data) => {
            let bound = "a file that is not among the data";
            Err(SettingsError::out_of_bounds("run.predictions", bound, path.display()))
        }
        _ => Ok(()),
    }
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
        Format::Parquet => parquet::write(&columns(results), rows(results, data))
            .map_err(|source| OutputError::Unwritable { path: path.to_owned(), source })?,
    };
    write_file(path, &content)
}

fn rows<'a>(
    results: &'a Results,
    data: Option<&'a Dataset>,
) -> impl Iterator<Item = PredictionRow<'a>> {
    let classes = &results.classes;
    let time = move |index: usize| {
        let data = data?;
        let seconds = *data.times.get(index)?;
        Some(if data.has_dates { timestamp::write(seconds) } else { seconds.to_string() })
    };
    let value = move |value: f32| match classes.get(value as usize) {
        Some(class) => Value::Class(class),
        None => Value::Number(value),
    };
    let of_method = move |all: &'a MethodPredictions| {
        let row = move |(at, scored): (usize, &ScoredPrediction)| {
            let index = scored.index as usize;
            let name = results.node_names.get(scored.node as usize).cloned();
            let ends = Ends {
                lower: scored.interval.map(|interval| interval.lower),
                upper: scored.interval.map(|interval| interval.upper),
            };
            let probabilities = all.probabilities.chunks_exact(classes.len().max(1)).nth(at);
            PredictionRow {
                row: data.map_or(scored.index + 1, |data| data.row(index)),
                time: time(index),
                node: name.unwrap_or_else(|| (scored.node + 1).to_string()),
                method: &all.method,
                target: target_of(results, at),
                truth: value(scored.truth),
                prediction: value(scored.value),
                interval: classes.is_empty().then_some(ends),
                probabilities: probabilities.map(|probabilities| {
                    let names = classes.iter().map(String::as_str);
                    names.zip(probabilities.iter().copied()).collect()
                }),
            }
        };
        all.predictions.iter().enumerate().map(row)
    };
    results.predictions.iter().flat_map(of_method)
}

/// The target of a prediction by its place, if there are several.
fn target_of(results: &Results, at: usize) -> Option<&str> {
    let targets = &results.targets;
    (!targets.is_empty()).then(|| targets[at % targets.len()].as_str())
}

/// Names of the columns of a file: row, time, node, method, target if there are several, truth,
/// prediction, then the ends of the interval or the probability of each class.
pub fn columns(results: &Results) -> Vec<String> {
    let before: &[&str] = match results.targets.is_empty() {
        true => &["row", "time", "node", "method", "truth", "prediction"],
        false => &["row", "time", "node", "method", "target", "truth", "prediction"],
    };
    let mut columns: Vec<String> = before.iter().map(|name| (*name).to_owned()).collect();
    if results.classes.is_empty() {
        columns.extend(["lower", "upper"].map(str::to_owned));
    }
    columns.extend(results.classes.iter().map(|class| format!("{PROBABILITY}{class}")));
    columns
}

/// What the names of columns with probabilities begin with.
pub const PROBABILITY: &str = "probability_";

/// What a cell of a file has.
#[derive(Debug, Clone, PartialEq)]
enum Content {
    Text(String),
    Whole(u64),
    Number(f32),
    Nothing,
}

impl PredictionRow<'_> {
    /// The cell in a column of that name.
    fn cell(&self, column: &str) -> Content {
        let text = |text: &str| Content::Text(text.to_owned());
        let number = |number: Option<f32>| number.map_or(Content::Nothing, Content::Number);
        let value = |value: Value<'_>| match value {
            Value::Number(number) => Content::Number(number),
            Value::Class(class) => text(class),
        };
        match column {
            "row" => Content::Whole(self.row),
            "time" => self.time.as_deref().map_or(Content::Nothing, text),
            "node" => text(&self.node),
            "method" => text(self.method),
            "target" => self.target.map_or(Content::Nothing, text),
            "truth" => value(self.truth),
            "prediction" => value(self.prediction),
            "lower" => number(self.interval.and_then(|ends| ends.lower)),
            "upper" => number(self.interval.and_then(|ends| ends.upper)),
            other => {
                let class = other.strip_prefix(PROBABILITY).unwrap_or_default();
                let all = self.probabilities.as_ref();
                number(all.and_then(|all| all.get(class).copied()))
            }
        }
    }
}

fn csv(results: &Results, data: Option<&Dataset>) -> String {
    let columns = columns(results);
    let headings: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
    let mut text = headings.join(",") + "\n";
    for line in rows(results, data) {
        let cells = columns.iter().map(|column| match line.cell(column) {
            Content::Text(text) => quoted(&text),
            Content::Whole(number) => number.to_string(),
            Content::Number(number) => number.to_string(),
            Content::Nothing => String::new(),
        });
        text += &cells.collect::<Vec<_>>().join(",");
        text.push('\n');
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
            predictions: vec![MethodPredictions {
                method: "tr".into(),
                predictions,
                probabilities: Vec::new(),
            }],
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
    fn classes_have_names_and_probabilities() {
        let scored =
            |truth, value| ScoredPrediction { index: 3, node: 0, truth, value, interval: None };
        let results = Results {
            predictions: vec![MethodPredictions {
                method: "tr".into(),
                predictions: vec![scored(0.0, 1.0), scored(1.0, 1.0)],
                probabilities: vec![0.25, 0.75, 0.125, 0.875],
            }],
            classes: vec!["no, never".into(), "yes".into()],
            ..Results::default()
        };
        assert_eq!(
            csv(&results, None),
            "row,time,node,method,truth,prediction,\"probability_no, never\",probability_yes\n\
             4,,1,tr,\"no, never\",yes,0.25,0.75\n4,,1,tr,yes,yes,0.125,0.875\n"
        );
        let lines = json_lines(&results, None).unwrap();
        let first = lines.lines().next().unwrap();
        assert!(
            first.ends_with(
                "\"truth\":\"no, never\",\"prediction\":\"yes\",\
             \"probabilities\":{\"no, never\":0.25,\"yes\":0.75}}"
            ),
            "{first}"
        );
    }

    #[test]
    fn several_targets_have_a_line_each() {
        let mut results = some_results();
        results.targets = vec!["load".into(), "wind".into()];
        assert_eq!(
            csv(&results, None),
            "row,time,node,method,target,truth,prediction,lower,upper\n\
             1,,\"a, \"\"b\"\"\",tr,load,1.5,2,,\n\
             8,,2,tr,wind,1.5,2,1,3\n"
        );
    }

    #[test]
    fn other_names_are_refused() {
        for name in ["predictions", "predictions.txt", ".csv"] {
            let error = check(Path::new(name), Path::new("d.csv")).unwrap_err().to_string();
            assert!(error.contains("run.predictions") && error.contains(name), "{error}");
        }
        for name in ["a/b.csv", "c.jsonl"] {
            assert!(check(Path::new(name), Path::new("friedman")).is_ok(), "{name}");
        }
        // The data is not replaced.
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("d.csv");
        std::fs::write(&file, "a,y\n1,2\n").unwrap();
        for data in [file.as_path(), folder.path()] {
            let error = check(&file, data).unwrap_err().to_string();
            assert!(error.contains("not among the data") && error.contains("d.csv"), "{error}");
        }
        assert!(check(&folder.path().join("new.csv"), &file).is_ok());
    }
}
