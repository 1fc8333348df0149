//! The importance of columns: as bars, and over time.

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

/// The columns that were measured, the most important first, and the error that increases are
/// relative to. Classes and several targets have none: increases are of the squared loss, in
/// another unit than their errors.
fn most_first(method: &MethodResult) -> Option<(&ImportanceResult, Vec<&ColumnImportance>, f64)> {
    let importance = method.importance.as_ref()?;
    let mut columns: Vec<&ColumnImportance> =
        importance.columns.iter().filter(|column| column.measured > 0).collect();
    columns.sort_by(|a, b| b.increase.total_cmp(&a.increase));
    let error = method.mse.mean;
    let has_unit = method.classes.is_none() && method.targets.is_empty();
    (has_unit && !columns.is_empty() && error > 0.0 && error.is_finite())
        .then_some((importance, columns, error))
}

/// How much the error grows without each column; none if it was not measured.
pub(crate) fn importance_bars(results: &Results, method: &MethodResult) -> Option<Bars> {
    let (_, columns, error) = most_first(method)?;
    let bar = |column: &&ColumnImportance| Bar {
        label: column.name.clone(),
        value: column.increase / error,
        words: signed(column.increase / error),
        hint: format!(
            "the MSE grows by {}; {} measurements",
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
        quantity: format!("growth of the MSE of {} without the column", method.label()),
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
    let (importance, columns, error) = most_first(method)?;
    let line = |(place, column): (usize, &&ColumnImportance)| {
        let points = importance.rounds.iter().zip(&column.windows);
        let points = points.filter_map(|(round, increase)| {
            Some(Point { round: *round as f64, mean: (*increase)? / error * 100.0, sd: 0.0 })
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
    let y = "growth of the MSE, in %";
    let hidden = columns.len() - lines.len();
    Some(Chart {
        words: words(results, "Importance of columns over time", y),
        described: series::describe(&lines, "Growth of the MSE in percent"),
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
    fn shares_have_signs() {
        let words = [-0.2, -0.001, 0.0, 0.02, 3.0].map(signed);
        assert_eq!(words, ["−20%", "0%", "0%", "+2.0%", "+300%"]);
    }
}
