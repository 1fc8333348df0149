//! What a run found, as text for a terminal.

use hedgerow::method::{Reference, Role};
use hedgerow_data::text::counted;
use hedgerow_lab::results::{ClassResult, MethodResult, Moments, Results};

use hedgerow_lab::measure::Measure;

use crate::table::Table;
use crate::worth;

/// What a table on a terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Errors in the usual measures, and what is sent.
    Plain,
    /// The paper's measures: kernels, regret, budget.
    Paper,
}

/// Methods with their errors and costs. Of the single kernels the best gets a row and the others
/// share one.
pub fn summary(results: &Results, view: View) -> String {
    let columns = columns(results, view);
    let shown = results.methods.iter().filter(|method| !is_other_kernel(method));
    let row = |method: &MethodResult| columns.iter().map(|column| (column.cell)(method)).collect();
    let mut text = heading(results, view);
    if let Some(sentence) = worth::sentence(results) {
        text += &format!("{sentence}\n\n");
    }
    text += &Table::of_numbers(columns.iter().map(|column| column.heading.clone()), shown.map(row))
        .text();
    text += &other_kernels(results);
    text += &losses_to_trivial(results);
    text += "\nHow to read this: predictions are scored before their label is learned, lower errors are better.\n";
    let meanings = columns.iter().filter(|column| !column.meaning.is_empty());
    text += &meanings
        .map(|column| format!("  {}: {}\n", column.heading, column.meaning))
        .collect::<String>();
    if let Some(best) = results.best_kernel.filter(|_| view == View::Paper) {
        let marked = results.methods.iter().find(|method| method.best);
        let by = marked.map_or("the best fixed function", |method| &method.name);
        let kernel = &results.kernels[best - 1];
        text += &format!("  best kernel in hindsight, by {by}: {best} ({kernel})\n");
    }
    text
}

fn heading(results: &Results, view: View) -> String {
    let Results { data, nodes, rounds, budget, trials, seed, partition, .. } = results;
    let of_paper = if view == View::Paper { format!(", budget {budget}") } else { String::new() };
    let mut text = format!(
        "{}: {} of {}, {} ({partition}), {}{of_paper}, {}, seed {seed}\n",
        data.name,
        counted(data.samples, "sample"),
        counted(data.features, "number"),
        counted(*nodes, "device"),
        counted(*rounds, "round"),
        counted(*trials, "trial")
    );
    for (name, words) in results.circumstances() {
        text += &format!("{}: {words}\n", name.to_lowercase());
    }
    text + "\n"
}

/// A column of the table: what its numbers mean, if the heading doesn't say it, and its cells.
struct Column<'r> {
    heading: String,
    meaning: String,
    cell: Box<dyn Fn(&MethodResult) -> String + 'r>,
}

impl<'r> Column<'r> {
    fn new(
        heading: impl Into<String>,
        meaning: impl Into<String>,
        cell: impl Fn(&MethodResult) -> String + 'r,
    ) -> Self {
        Self { heading: heading.into(), meaning: meaning.into(), cell: Box::new(cell) }
    }
}

fn columns(results: &Results, view: View) -> Vec<Column<'_>> {
    let with_sd = |moments: Moments| match results.trials {
        1 => significant(moments.mean),
        // What is left of equal numbers is rounding.
        _ if moments.sd < 1e-12 * moments.mean.abs() => {
            format!("{} ± 0", significant(moments.mean))
        }
        _ => format!("{} ± {}", significant(moments.mean), significant(moments.sd)),
    };
    let number = |number: Option<f64>| number.map_or("-".to_owned(), significant);
    let sd = if results.trials == 1 { "" } else { " ± sd" };
    let mut columns = vec![Column::new("method", "", |method| match method.best {
        true => format!("{} (best)", method.name),
        false => method.name.clone(),
    })];
    if !results.classes.is_empty() {
        columns.extend(class_measures(results));
    } else {
        let meaning = match results.targets.is_empty() {
            true => "mean squared error of all predictions",
            false => {
                "mean squared error of all predictions and targets, each in units of the \
                 target's standard deviation"
            }
        };
        columns.push(Column::new(format!("MSE{sd}"), meaning, move |method| with_sd(method.mse)));
        if view == View::Plain {
            columns.extend(known_measures(results));
        }
        for (at, target) in results.targets.iter().enumerate() {
            let meaning = "root of the mean squared error of this target, in its own unit";
            columns.push(Column::new(format!("RMSE {target}"), meaning, move |method| {
                number(method.targets.get(at).map(|error| error.mse.sqrt()))
            }));
        }
        let heading = format!("last {} rounds", results.window);
        columns.push(Column::new(heading, "MSE at the end", move |method| {
            number(method.mse_last_window.map(|mse| mse.mean))
        }));
    }
    if view == View::Paper {
        columns.push(Column::new("kernel", "the one it used most, and how often", kernel));
        columns.push(Column::new("regret ~ t^a", "growth against hindsight", |method| {
            let regret = method.regret.as_ref().and_then(|regret| regret.exponent);
            regret.map_or("-".to_owned(), |exponent| format!("{exponent:.2}"))
        }));
    }
    let count = |method: &MethodResult, numbers: f64| match method.is(Reference::Hindsight) {
        true => "-".to_owned(),
        false => format!("{numbers:.1}"),
    };
    let meaning = "numbers per device and round";
    columns.push(Column::new("sent up", meaning, move |method| count(method, method.numbers_up)));
    columns.push(Column::new("received", "", move |method| count(method, method.numbers_down)));
    columns.push(Column::new("time", "", |method| format!("{:.2} s", method.seconds)));
    columns
}

/// Measures of classes.
fn class_measures(results: &Results) -> Vec<Column<'_>> {
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    let of = |value: fn(&ClassResult) -> f64| {
        move |method: &MethodResult| method.classes.as_ref().map(value)
    };
    let (balanced, log_loss) =
        (of(|classes| classes.balanced_accuracy.mean), of(|classes| classes.log_loss.mean));
    let auc = of(|classes| classes.auc.mean);
    let nothing = || "-".to_owned();
    let trials = results.trials;
    let sd = if trials == 1 { "" } else { " ± sd" };
    vec![
        Column::new(format!("accuracy{sd}"), "share of right classes, higher is better", {
            move |method: &MethodResult| match (&method.classes, trials) {
                (None, _) => nothing(),
                (Some(classes), 1) => percent(classes.accuracy.mean),
                (Some(ClassResult { accuracy, .. }), _) => {
                    format!("{} ± {}", percent(accuracy.mean), percent(accuracy.sd))
                }
            }
        }),
        Column::new("balanced", "mean over classes of the share of each that is found", {
            move |method: &MethodResult| balanced(method).map_or_else(nothing, percent)
        }),
        Column::new("log loss", "mean of -ln of the right class's probability", {
            move |method: &MethodResult| log_loss(method).map_or_else(nothing, significant)
        }),
        Column::new(
            "AUC",
            "0.5 is chance, 1 is perfect order; over classes, one against others",
            {
                move |method: &MethodResult| {
                    let auc = auc(method).filter(|auc| auc.is_finite());
                    auc.map_or_else(nothing, |auc| format!("{auc:.3}"))
                }
            },
        ),
        Column::new(
            format!("wrong, last {} rounds", results.window),
            "share of wrong classes at the end",
            move |method| method.mse_last_window.map_or_else(nothing, |rate| percent(rate.mean)),
        ),
    ]
}

/// Measures that people know besides the MSE.
fn known_measures(results: &Results) -> Vec<Column<'_>> {
    let number = |number: Option<f64>| number.map_or("-".to_owned(), significant);
    let mut columns = vec![
        Column::new("RMSE", "its root, in the same unit", |method| {
            significant(method.mse.mean.sqrt())
        }),
        Column::new("MAE", "mean absolute error", move |method| {
            number(method.mae.map(|mae| mae.mean))
        }),
        Column::new("R²", "1 is exact, 0 is no better than the mean of all labels", |method| {
            method.r2.map_or("-".to_owned(), |r2| match r2 {
                r2 if r2 < -99.0 => "< -99".to_owned(),
                r2 => format!("{r2:.3}"),
            })
        }),
    ];
    let is_last = |method: &&MethodResult| method.is(Reference::LastLabel);
    if let Some(last) = results.methods.iter().find(is_last).map(|method| method.mse.mean) {
        let meaning = "share of the error of predicting the device's last label that is avoided";
        columns.push(Column::new("skill", meaning, move |method| {
            match 100.0 * (1.0 - method.mse.mean / last) {
                percent if percent < -999.0 => "< -999%".to_owned(),
                percent => format!("{percent:.0}%"),
            }
        }));
    }
    if results.methods.iter().any(|method| method.interval.is_some()) {
        let heading = format!("in {:.0}%", 100.0 * results.interval);
        let meaning = "share of labels within the interval of that level around the prediction";
        columns.push(Column::new(heading, meaning, |method| {
            let coverage = method.interval.map(|interval| interval.coverage);
            coverage.map_or("-".to_owned(), |share| format!("{:.1}%", 100.0 * share))
        }));
    }
    columns
}

/// The kernel that made the most predictions, and how many.
fn kernel(method: &MethodResult) -> String {
    if let Some(kernel) = method.kernel {
        return kernel.to_string();
    }
    if method.selected.is_empty() {
        return "-".to_owned();
    }
    // The first of those that share the lead.
    let most = method.selected.iter().enumerate().rev().max_by(|a, b| a.1.total_cmp(b.1));
    most.map_or("-".to_owned(), |(kernel, share)| format!("{} ({:.0}%)", kernel + 1, 100.0 * share))
}

/// A line for each method that one could choose and that has a larger error than a trivial
/// forecast.
fn losses_to_trivial(results: &Results) -> String {
    let trivial = results.methods.iter().filter(|method| method.is_trivial());
    let Some(best) = trivial.min_by(|a, b| a.mse.mean.total_cmp(&b.mse.mean)) else {
        return String::new();
    };
    let what = best.info().summary;
    let line = |method: &MethodResult| {
        let (name, times) = (&method.name, significant(method.mse.mean / best.mse.mean));
        format!("{name} loses to {what}, which takes no learning: {times} times its error\n")
    };
    let loses =
        |method: &&MethodResult| method.role() == Role::Choice && method.mse.mean > best.mse.mean;
    results.methods.iter().filter(loses).map(line).collect()
}

fn is_other_kernel(method: &&MethodResult) -> bool {
    method.info().takes_kernel && !method.best
}

fn other_kernels(results: &Results) -> String {
    let is_squared = results.loss == "squared" || !results.classes.is_empty();
    let others: Vec<&MethodResult> = results.methods.iter().filter(is_other_kernel).collect();
    let Some(MethodResult { name, .. }) = others.first() else { return String::new() };
    let errors = others
        .iter()
        .map(|method| if is_squared { method.mse.mean } else { method.mean_loss.mean });
    let least = significant(errors.clone().fold(f64::INFINITY, f64::min));
    let most = significant(errors.fold(0.0, f64::max));
    let measure = if is_squared { Measure::of(results).name(results) } else { "mean loss".into() };
    format!("{name} with the other {} kernels: {measure} {least} to {most}\n", others.len())
}

/// Four digits that count.
pub fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor();
    if (-5.0..6.0).contains(&magnitude) {
        let decimals = (3.0 - magnitude).max(0.0) as usize;
        format!("{value:.decimals$}")
    } else {
        format!("{value:.3e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::testing::run;

    #[test]
    fn every_choice_that_loses_to_a_trivial_forecast_is_named() {
        let losing = [("linear", 3.0), ("gr+personal", 2.0), ("central", 4.0), ("mk", 0.5)];
        let text =
            summary(&run(&[&losing[..], &[("last", 1.0), ("mean", 5.0)]].concat()), View::Plain);
        let named: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once(" loses to the node's last label,"))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(named, ["linear", "gr+personal"], "{text}");
        assert!(!summary(&run(&losing), View::Plain).contains("loses"));
        let text = summary(&run(&[("gr", 2.0), ("last", 3.0), ("mean", 1.0)]), View::Plain);
        assert!(text.contains("gr loses to the mean of the node's labels so far,"), "{text}");
    }

    #[test]
    fn four_digits_count() {
        for (value, shown) in [
            (0.0, "0"),
            (0.006_437_8, "0.006438"),
            (12.3456, "12.35"),
            (123_456.0, "123456"),
            (1.5e-9, "1.500e-9"),
            (2.5e7, "2.500e7"),
        ] {
            assert_eq!(significant(value), shown);
        }
    }
}
