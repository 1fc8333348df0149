//! What `hedgerow predict` writes: lines of predictions and the summary.

use std::collections::BTreeMap;

use hedgerow::learning::Interval;
use hedgerow_data::samples::UnknownTexts;
use hedgerow_data::text::{counted, excerpt};
use hedgerow_lab::predictions::{PROBABILITY, quoted};
use hedgerow_report::terminal::significant;
use serde_json::{Value, json};

use super::Predictor;

/// The columns of the output.
pub(super) struct Layout {
    pub(super) has_nodes: bool,
    pub(super) has_intervals: bool,
    pub(super) has_labels: bool,
    /// Names of several targets.
    pub(super) targets: Vec<String>,
    /// Names of the classes; empty if labels are numbers.
    pub(super) classes: Vec<String>,
}

impl Layout {
    pub(super) fn heading(&self) -> String {
        let has_classes = !self.classes.is_empty();
        let columns = [
            ("row", true),
            ("node", self.has_nodes),
            ("target", !self.targets.is_empty()),
            ("prediction", true),
            ("lower,upper", self.has_intervals),
        ];
        let there = columns.iter().filter(|(_, is_there)| *is_there);
        let mut there: Vec<String> = there.map(|(name, _)| (*name).to_owned()).collect();
        there.extend(self.classes.iter().map(|class| quoted(&format!("{PROBABILITY}{class}"))));
        if self.has_labels {
            there.push(if has_classes { "label,wrong" } else { "label,squared_error" }.to_owned());
        }
        there.join(",")
    }
}

/// One prediction of a target.
pub(super) struct Answer<'a> {
    pub(super) row: u64,
    pub(super) owner: Option<&'a str>,
    /// Which of the targets.
    pub(super) output: usize,
    pub(super) predicted: Predicted<'a>,
    pub(super) label: Option<f32>,
}

/// What is predicted.
pub(super) enum Predicted<'a> {
    Number(f32, Option<Interval>),
    /// The number of the class, and the probability of each.
    Class(usize, &'a [f32]),
}

impl Answer<'_> {
    /// The squared error; of a class, whether it is wrong.
    fn error(&self) -> Option<f64> {
        let label = f64::from(self.label?);
        Some(match self.predicted {
            Predicted::Number(value, _) => (f64::from(value) - label).powi(2),
            Predicted::Class(class, _) => f64::from(u8::from(class as f64 != label)),
        })
    }

    fn target<'a>(&self, layout: &'a Layout) -> Option<&'a str> {
        layout.targets.get(self.output).map(String::as_str)
    }

    pub(super) fn csv(&self, layout: &Layout) -> String {
        let mut text = self.row.to_string();
        if layout.has_nodes {
            text += &format!(",{}", quoted(self.owner.unwrap_or_default()));
        }
        if let Some(target) = self.target(layout) {
            text += &format!(",{}", quoted(target));
        }
        match self.predicted {
            Predicted::Number(value, interval) => {
                text += &format!(",{value}");
                if layout.has_intervals {
                    text += &interval.map_or(",,".to_owned(), |Interval { lower, upper }| {
                        format!(",{lower},{upper}")
                    });
                }
            }
            Predicted::Class(class, probabilities) => {
                text += &format!(",{}", quoted(&layout.classes[class]));
                probabilities.iter().for_each(|one| text += &format!(",{one}"));
            }
        }
        if layout.has_labels {
            text += &match (self.label, self.error()) {
                (Some(label), Some(error)) => match layout.classes.get(label as usize) {
                    Some(class) => format!(",{},{error}", quoted(class)),
                    None => format!(",{label},{error}"),
                },
                _ => ",,".to_owned(),
            };
        }
        text
    }

    pub(super) fn json(&self, layout: &Layout) -> String {
        // Numbers are written as they are in CSV; as numbers of twice the size they would have
        // digits that mean nothing.
        let mut text = format!("{{\"row\":{}", self.row);
        if let Some(owner) = self.owner {
            text += &format!(",\"node\":{}", json!(owner));
        }
        if let Some(target) = self.target(layout) {
            text += &format!(",\"target\":{}", json!(target));
        }
        match self.predicted {
            Predicted::Number(value, interval) => {
                text += &format!(",\"prediction\":{value:?}");
                if let Some(Interval { lower, upper }) = interval {
                    text += &format!(",\"lower\":{lower:?},\"upper\":{upper:?}");
                }
            }
            Predicted::Class(class, probabilities) => {
                text += &format!(",\"prediction\":{}", json!(layout.classes[class]));
                let named: BTreeMap<&String, &f32> =
                    layout.classes.iter().zip(probabilities).collect();
                let named = named.iter().map(|(name, one)| format!("{}:{one:?}", json!(name)));
                let named = named.collect::<Vec<_>>().join(",");
                text += &format!(",\"probabilities\":{{{named}}}");
            }
        }
        if let (Some(label), Some(error)) = (self.label, self.error()) {
            text += &match layout.classes.get(label as usize) {
                Some(class) => format!(",\"label\":{},\"wrong\":{}", json!(class), error > 0.0),
                None => format!(",\"label\":{label:?},\"squared_error\":{error:?}"),
            };
        }
        text + "}"
    }
}

/// What came of all rows.
pub(super) struct Summary {
    rows: u64,
    missing: u64,
    /// Rows that were not predicted, and how many rows of a node have to come before.
    without_past: (u64, usize),
    /// Of each target, labels and the sum of their errors.
    errors: Vec<(u64, f64)>,
}

impl Summary {
    pub(super) fn new(layout: &Layout) -> Self {
        let errors = vec![(0, 0.0); layout.targets.len().max(1)];
        Self { rows: 0, missing: 0, without_past: (0, 0), errors }
    }

    pub(super) fn add_row(&mut self, x: &[f32]) {
        self.rows += 1;
        self.missing += x.iter().filter(|value| value.is_nan()).count() as u64;
    }

    /// So many rows were not predicted, because a prediction needs this many rows of its node
    /// before.
    pub(super) fn add_without_past(&mut self, rows: u64, needed: usize) {
        self.without_past = (rows, needed);
    }

    pub(super) fn add(&mut self, answer: &Answer<'_>) {
        if let Some(error) = answer.error() {
            let (labels, sum) = &mut self.errors[answer.output];
            *labels += 1;
            *sum += error;
        }
    }

    /// The mean error of a target.
    fn mean(&self, target: usize) -> Option<f64> {
        let (labels, sum) = self.errors[target];
        (labels > 0).then(|| sum / labels as f64)
    }

    pub(super) fn words(
        &self,
        predictor: &Predictor,
        layout: &Layout,
        unknown: &[UnknownTexts],
    ) -> String {
        let Self { rows, missing, .. } = self;
        let mut words = format!("{}{}", counted(*rows, "row"), predictor.words());
        if *missing > 0 {
            words += &format!(", {} filled in", counted(*missing, "missing value"));
        }
        for (target, (labels, _)) in self.errors.iter().enumerate() {
            let Some(error) = self.mean(target) else { continue };
            let labels = counted(*labels, "label");
            words += &match (layout.targets.get(target), layout.classes.is_empty()) {
                (_, false) => format!(", accuracy {:.4} over {labels}", 1.0 - error),
                (None, true) => format!(", MSE {} over {labels}", significant(error)),
                (Some(name), true) => {
                    let (name, error) = (excerpt(name), significant(error));
                    format!(", MSE of {name} {error} over {labels}")
                }
            };
        }
        if let (rows @ 1.., needed) = self.without_past {
            words += &format!(
                "\n{} not predicted: the model needs the {} of the node before (put older rows, \
                 with their labels, in front)",
                counted(rows, "row"),
                counted(needed, "row")
            );
        }
        for UnknownTexts { column, count, examples } in unknown {
            let shown: Vec<String> = examples.iter().map(|text| excerpt(text)).collect();
            let are = if *count == 1 { "is" } else { "are" };
            words += &format!(
                "\n{} of column `{}` {are} not known to the model: {}{}",
                counted(*count, "value"),
                excerpt(column),
                shown.join(", "),
                if *count > examples.len() as u64 { ", ..." } else { "" }
            );
        }
        words
    }

    pub(super) fn json(
        &self,
        predictor: &Predictor,
        layout: &Layout,
        unknown: &[UnknownTexts],
    ) -> String {
        let Self { rows, missing, .. } = self;
        let labels: u64 = self.errors.iter().map(|(labels, _)| *labels).sum();
        let (without_past, _) = self.without_past;
        let mut summary = json!({
            "rows": rows, "missing": missing, "labels": labels, "rows_without_past": without_past,
        });
        match (layout.targets.is_empty(), layout.classes.is_empty()) {
            (_, false) => summary["accuracy"] = json!(self.mean(0).map(|error| 1.0 - error)),
            (true, true) => summary["mse"] = json!(self.mean(0)),
            (false, true) => {
                let each = layout.targets.iter().enumerate();
                let each = each.map(|(at, name)| (name.clone(), json!(self.mean(at))));
                summary["mse"] = Value::Object(each.collect());
            }
        }
        summary["by"] = match predictor {
            Predictor::Shared(..) => json!("shared"),
            Predictor::One(_, name) => json!({ "node": name }),
            Predictor::EachItsOwn(..) => json!("nodes"),
        };
        let unknown = unknown.iter().map(
            |one| json!({ "column": one.column, "values": one.count, "examples": one.examples }),
        );
        summary["unknown_texts"] = unknown.collect();
        summary.to_string()
    }
}
