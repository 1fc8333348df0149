//! The importance of columns: as bars, and over time.

use hedgerow::learning::Loss;
use hedgerow_lab::results::{ColumnImportance, ImportanceResult, MethodResult, Results};

use super::bars::{Bar, Bars};
use super::chart::{Chart, Entry, Mark};
use super::number::{percent, significant};
use super::palette;
use super::scale::{Axis, Spacing};
use super::series::{self, Line, Point};
use super::words;

/// Bars of a figure.
const MOST_BARS: usize = 25;
/// Lines of a chart.
const MOST_LINES: usize = 7;

/// What increases are shown as.
#[derive(Clone, Copy)]
enum Unit {
    /// A share of the mean squared error.
    OfError(f64),
    /// The loss, in the scaled unit. Classes, several targets and losses that are not squared have
    /// no error in the unit of their increases.
    ScaledLoss,
}

impl Unit {
    fn of(results: &Results, method: &MethodResult) -> Option<Self> {
        let has_error = method.classes.is_none()
            && method.targets.is_empty()
            && results.loss == Loss::Squared.name();
        match method.mse.mean {
            _ if !has_error => Some(Self::ScaledLoss),
            error if error > 0.0 && error.is_finite() => Some(Self::OfError(error)),
            _ => None,
        }
    }

    fn value(self, increase: f64) -> f64 {
        match self {
            Self::OfError(error) => increase / error,
            Self::ScaledLoss => increase,
        }
    }

    fn words(self, increase: f64) -> String {
        match self {
            Self::OfError(error) => signed(increase / error),
            Self::ScaledLoss => significant(increase, 3),
        }
    }

    /// What grows.
    fn quantity(self) -> &'static str {
        match self {
            Self::OfError(_) => "MSE",
            Self::ScaledLoss => "loss",
        }
    }
}

/// The columns that were measured, the most important first, and what their increases are shown as.
fn most_first<'a>(
    results: &Results,
    method: &'a MethodResult,
) -> Option<(&'a ImportanceResult, Vec<&'a ColumnImportance>, Unit)> {
    let importance = method.importance.as_ref()?;
    let mut columns: Vec<&ColumnImportance> =
        importance.columns.iter().filter(|column| column.measured > 0).collect();
    columns.sort_by(|a, b| b.increase.total_cmp(&a.increase));
    let unit = Unit::of(results, method)?;
    (!columns.is_empty()).then_some((importance, columns, unit))
}

/// How much the error grows without each column; none if it was not measured.
pub(crate) fn importance_bars(results: &Results, method: &MethodResult) -> Option<Bars> {
    let (_, columns, unit) = most_first(results, method)?;
    let quantity = unit.quantity();
    let bar = |column: &&ColumnImportance| Bar {
        label: column.name.clone(),
        value: unit.value(column.increase),
        words: unit.words(column.increase),
        hint: format!(
            "the {quantity} grows by {}; {} measurements",
            significant(column.increase, 3),
            column.measured
        ),
    };
    let note = match columns.len().checked_sub(MOST_BARS) {
        Some(more) if more > 0 => format!("{more} more columns are in summary.json. "),
        _ => String::new(),
    };
    Some(Bars {
        title: format!("Importance of columns on {}", results.data_name()),
        subtitle: format!("{}, {}", method.label(), results.sizes()),
        quantity: match unit {
            Unit::OfError(_) => {
                format!("growth of the MSE of {} without the column", method.label())
            }
            Unit::ScaledLoss => format!(
                "growth of the {} loss of {} without the column, in the scaled unit",
                results.loss,
                method.label()
            ),
        },
        color: palette::method(results, &method.name).color,
        rows: columns.iter().take(MOST_BARS).map(bar).collect(),
        note: format!(
            "{note}Without: with values of an earlier sample of the device. About 0: it says nothing."
        ),
    })
}

fn signed(share: f64) -> String {
    match percent(share) {
        zero if share.abs() < 0.005 => zero.replace('-', ""),
        words if share > 0.0 => format!("+{words}"),
        words => words.replace('-', "−"),
    }
}

/// The same over time, of the most important columns; none if there are fewer than two windows.
pub(crate) fn importance_chart(results: &Results, method: &MethodResult) -> Option<Chart> {
    let (importance, columns, unit) = most_first(results, method)?;
    // Shares in percent.
    let factor = if let Unit::OfError(_) = unit { 100.0 } else { 1.0 };
    let line = |(place, column): (usize, &&ColumnImportance)| {
        let points = importance.rounds.iter().zip(&column.windows);
        let points = points.filter_map(|(round, increase)| {
            Some(Point { round: *round as f64, mean: unit.value((*increase)?) * factor, sd: 0.0 })
        });
        Line {
            label: column.name.clone(),
            method: String::new(),
            style: palette::series(place),
            points: points.collect(),
            in_hindsight: false,
        }
    };
    let lines: Vec<Line> = columns.iter().take(MOST_LINES).enumerate().map(line).collect();
    if importance.rounds.len() < 2 {
        return None;
    }
    let values = lines.iter().flat_map(|line| &line.points).map(|point| point.mean);
    let (y, described) = match unit {
        Unit::OfError(_) => ("growth of the MSE, in %", "Growth of the MSE in percent"),
        Unit::ScaledLoss => {
            ("growth of the loss, in the scaled unit", "Growth of the loss in the scaled unit")
        }
    };
    let hidden = columns.len() - lines.len();
    Some(Chart {
        words: words(results, "Importance of columns over time", y),
        described: series::describe(&lines, described),
        x: Axis::rounds(Spacing::Linear, results.rounds as f64),
        y: Axis::around(values.chain([0.0])),
        marks: Mark::lines(&lines).collect(),
        legend_heading: "at the end",
        legend: Entry::ranked(&lines),
        note: match hidden {
            0 => "Means over windows of time. A sensor that dies falls to 0.".to_owned(),
            _ => format!(
                "Means over windows of time. {hidden} less important columns are not drawn."
            ),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::results::{ClassResult, TargetError};
    use hedgerow_lab::testing::{add_predictions, run};

    #[test]
    fn the_most_important_column_comes_first() {
        let mut results = run(&[("tr", 1.0)]);
        assert!(importance_bars(&results, results.method("tr").unwrap()).is_none());
        add_predictions(&mut results, 2, 5);
        let tr = results.method("tr").unwrap();
        let bars = importance_bars(&results, tr).unwrap();
        let names: Vec<&str> = bars.rows.iter().map(|bar| bar.label.as_str()).collect();
        assert_eq!(names, ["column 2", "column 1", "column 0"]);
        // 0.004 of an error of 0.006.
        assert_eq!((bars.rows[0].words.as_str(), bars.rows[2].words.as_str()), ("+67%", "0%"));
        let chart = importance_chart(&results, tr).unwrap();
        assert!(chart.legend[0].label == "column 2" && chart.marks.len() == 3);
    }

    #[test]
    fn classes_and_several_targets_show_the_growth_of_their_loss() {
        let mut results = run(&[("tr", 1.0)]);
        add_predictions(&mut results, 2, 5);
        let is_named = |results: &Results| {
            let tr = results.method("tr").unwrap();
            let bars = importance_bars(results, tr).unwrap();
            assert_eq!(bars.rows[0].label, "column 2");
            assert_eq!((bars.rows[0].value, bars.rows[0].words.as_str()), (0.004, "0.00400"));
            assert!(bars.rows[0].hint.starts_with("the loss grows by 0.00400"));
            assert!(bars.quantity.contains("loss of tr") || bars.quantity.contains("loss of TR"));
            assert!(bars.quantity.ends_with("in the scaled unit"), "{}", bars.quantity);
            let chart = importance_chart(results, tr).unwrap();
            assert_eq!(chart.words.y, "growth of the loss, in the scaled unit");
        };
        let place = results.methods.iter().position(|method| method.name == "tr").unwrap();
        let mut several = results.clone();
        several.methods[place].targets = vec![TargetError::default(); 2];
        is_named(&several);
        let mut classes = results.clone();
        classes.methods[place].classes = Some(ClassResult::default());
        classes.loss = "logistic".into();
        is_named(&classes);
        results.loss = "huber".into();
        is_named(&results);
    }

    #[test]
    fn shares_have_signs() {
        let words = [-0.2, -0.001, 0.0, 0.02, 3.0].map(signed);
        assert_eq!(words, ["−20%", "0%", "0%", "+2.0%", "+300%"]);
    }
}
