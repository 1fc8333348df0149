//! The table of methods: plain HTML; the script only sorts its rows and folds the single kernels.

use super::charts::GROWTH;
use crate::figures::REGRET_MEANING;
use crate::figures::markup::escape;
use crate::figures::number::{fixed, percent, significant, with_spread};
use crate::figures::{palette, series};
use crate::table::or_nothing;
use hedgerow::method::Reference;
use hedgerow_lab::measure::Measure;
use hedgerow_lab::results::{ClassResult, MethodResult, Moments, Results};

/// What stands in a cell and what it is sorted by; empty cells come last.
struct SortedCell {
    text: String,
    key: Option<f64>,
}

struct Column<'r> {
    heading: String,
    /// An explanation of the numbers.
    meaning: &'static str,
    /// For the style sheet; may be empty.
    class: &'static str,
    cell: Box<dyn Fn(&MethodResult) -> SortedCell + 'r>,
}

/// One row per method. Single kernels besides the best are marked as such.
pub(super) fn table(results: &Results) -> String {
    let columns = columns(results);
    let is_other = |method: &MethodResult| series::is_other_single(results, method);
    let headings: String = columns.iter().map(heading).collect();
    let rows: String = results
        .methods
        .iter()
        .map(|method| {
            let swatch = palette::method(results, &method.name).color.hex();
            // The one colour that would vanish on a dark page is left to the style sheet.
            let known_in_hindsight = method.is(Reference::Hindsight);
            let swatch = if known_in_hindsight { String::new() } else { format!(" style=\"background:{swatch}\"") };
            let kind = if is_other(method) { " class=\"sk-other\"" } else { "" };
            let mark = if series::is_best_single(results, method) { " (best)" } else { "" };
            let cells: String = columns.iter().map(|column| cell(column.class, &(column.cell)(method))).collect();
            let label = escape(&method.label());
            format!("<tr{kind}><th scope=\"row\"><span class=\"swatch\"{swatch}></span>{label}{mark}</th>{cells}</tr>\n")
        })
        .collect();
    let others = results.methods.iter().filter(|method| is_other(method)).count();
    let fold = match others {
        0 => String::new(),
        1 => fold_button("the other single kernel"),
        _ => fold_button(&format!("the {others} other single kernels")),
    };
    format!(
        "{fold}<p class=\"hint\" id=\"more-columns\" hidden>The table is wider than the page: scroll it sideways →</p>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"methods-heading\"><table>\n\
         <thead><tr><th scope=\"col\" aria-sort=\"none\"><button type=\"button\">Method</button></th>{headings}</tr></thead>\n\
         <tbody>\n{rows}</tbody></table></div>\n"
    )
}

fn fold_button(what: &str) -> String {
    format!(
        "<button type=\"button\" id=\"fold\" aria-expanded=\"true\" data-what=\"{what}\" hidden>Hide {what}</button>\n"
    )
}

fn heading(Column { heading, meaning, class, .. }: &Column<'_>) -> String {
    format!(
        "<th scope=\"col\"{} aria-sort=\"none\"><button type=\"button\" title=\"{}\">{}</button></th>",
        class_of(class),
        escape(meaning),
        escape(heading)
    )
}

fn cell(class: &str, SortedCell { text, key }: &SortedCell) -> String {
    let key = key
        .filter(|key| key.is_finite())
        .map_or(String::new(), |key| format!(" data-key=\"{key}\""));
    format!("<td{}{key}>{}</td>", class_of(class), escape(text))
}

fn class_of(class: &str) -> String {
    if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") }
}

/// Columns that have the same kind of numbers for every method: heading, meaning, class and value.
type Amount = (&'static str, &'static str, &'static str, fn(&MethodResult) -> f64);

const SENT: [Amount; 4] = [
    ("Numbers up", "sent to the server, per node and round", "", |m| m.numbers_up),
    ("Numbers down", "received from the server, per node and round", "", |m| m.numbers_down),
    ("Bytes up", "payload sent to the server, per node and round", "bytes", |m| m.bytes_up),
    ("Bytes down", "payload received, per node and round", "bytes", |m| m.bytes_down),
];

const UPLOADS: [Amount; 2] = [
    ("Uploads taken", "by the server, per node and round", "", |m| m.uploads_accepted),
    ("Uploads late", "after their round had closed, per node and round", "", |m| m.uploads_late),
];

fn columns(results: &Results) -> Vec<Column<'_>> {
    let trials = results.trials;
    let seconds: f64 = results.methods.iter().map(|method| method.seconds).sum();
    let any = |has: fn(&MethodResult) -> bool| results.methods.iter().any(has);
    let mut columns = Vec::new();
    let measure = Measure::of(results);
    if measure == Measure::Loss {
        let meaning = "mean loss per prediction, without the ridge term";
        columns.push(column("Loss", meaning, move |m| {
            spread(measure.is_known_for(m).then_some(m.mean_loss), trials)
        }));
    }
    if measure == Measure::ErrorRate {
        columns.extend(class_measures(results));
    } else {
        let meaning = match results.targets.is_empty() {
            true => "mean squared error over every prediction of every node",
            false => "mean over targets, each in units of its standard deviation",
        };
        columns.push(column("MSE", meaning, move |m| spread(Some(m.mse), trials)));
        columns.extend(known_measures(results));
        for (at, target) in results.targets.iter().enumerate() {
            let meaning = "root of the mean squared error of this target, in its own unit";
            columns.push(column(&format!("RMSE, {target}"), meaning, move |m| {
                optional(m.targets.get(at).map(|one| one.mse.sqrt()), |rmse| significant(rmse, 3))
            }));
        }
        let heading = format!("MSE, last {}", results.window);
        columns.push(column(&heading, "the same over the last rounds", move |m| {
            spread(m.mse_last_window, trials)
        }));
    }
    columns.push(column("Kernel", "its kernel, or the one it used most and how often", favourite));
    columns.extend(SENT.map(amount));
    if any(|m| m.uploads_late > 0.0) || !results.participation.is_empty() {
        columns.extend(UPLOADS.map(amount));
    }
    if any(|m| m.regret.is_some()) {
        columns.push(column("Regret", REGRET_MEANING, move |m| {
            let regret = m.regret.as_ref();
            spread(regret.map(|regret| Moments { mean: regret.mean, sd: regret.sd }), trials)
        }));
        columns.push(column("Growth of regret", GROWTH, |m| {
            let exponent = m.regret.as_ref().and_then(|regret| regret.exponent);
            optional(exponent, |a| format!("t^{a:.2}"))
        }));
    }
    let meaning = "of the time spent in all methods, all trials together";
    columns.push(column("Share of time", meaning, move |m| {
        optional((seconds > 0.0).then(|| m.seconds / seconds), percent)
    }));
    columns
}

/// Measures of classes.
fn class_measures(results: &Results) -> Vec<Column<'_>> {
    type Part = fn(&ClassResult) -> f64;
    let part = |heading: &str, meaning, part: Part, write: fn(f64) -> String| {
        column(heading, meaning, move |m| {
            optional(m.classes.as_ref().map(part).filter(|value| value.is_finite()), write)
        })
    };
    let share: fn(f64) -> String = |share| format!("{}%", fixed(100.0 * share, 1));
    let last = format!("Wrong, last {}", results.window);
    vec![
        part("Accuracy", "share of right classes", |c| c.accuracy.mean, share),
        part(
            "Balanced accuracy",
            "mean over classes of the share of each that is found",
            |c| c.balanced_accuracy.mean,
            share,
        ),
        part(
            "Log loss",
            "mean of -ln of the right class's probability",
            |c| c.log_loss.mean,
            |loss| significant(loss, 3),
        ),
        part(
            "AUC",
            "0.5 is chance, 1 is perfect order; over classes, one against the others",
            |c| c.auc.mean,
            |auc| fixed(auc, 3),
        ),
        column(&last, "share of wrong classes in the last rounds", move |m| {
            optional(m.mse_last_window.map(|rate| rate.mean), share)
        }),
    ]
}

/// Measures that people know besides the MSE.
fn known_measures(results: &Results) -> Vec<Column<'_>> {
    let mut columns = vec![
        column("RMSE", "root of the MSE, in the same unit", |m| {
            optional(Some(m.mse.mean.sqrt()), |rmse| significant(rmse, 3))
        }),
        column("MAE", "mean absolute error", |m| {
            optional(m.mae.map(|mae| mae.mean), |mae| significant(mae, 3))
        }),
        column("R²", "1 is exact, 0 is no better than the mean of all labels", |m| {
            optional(m.r2, |r2| fixed(r2, 3))
        }),
    ];
    let is_last = |method: &&MethodResult| method.is(Reference::LastLabel);
    if let Some(last) = results.methods.iter().find(is_last).map(|method| method.mse.mean) {
        let meaning = "share of the error of predicting the device's last label that is avoided";
        columns.push(column("Skill", meaning, move |m| {
            optional(Some(1.0 - m.mse.mean / last), percent)
        }));
    }
    if results.methods.iter().any(|method| method.interval.is_some()) {
        let heading = format!("Within {}", percent(results.interval));
        let meaning = "share of labels within the interval of that level around the prediction";
        columns.push(column(&heading, meaning, |m| {
            let share = m.interval.map(|interval| interval.coverage);
            optional(share, |share| format!("{}%", fixed(100.0 * share, 1)))
        }));
    }
    columns
}

fn column<'r>(
    heading: &str,
    meaning: &'static str,
    cell: impl Fn(&MethodResult) -> SortedCell + 'r,
) -> Column<'r> {
    Column { heading: heading.to_owned(), meaning, class: "", cell: Box::new(cell) }
}

fn amount((heading, meaning, class, value): Amount) -> Column<'static> {
    let cell = move |method: &MethodResult| {
        let value = value(method);
        let text = if value.fract() == 0.0 { fixed(value, 0) } else { significant(value, 3) };
        SortedCell { text, key: Some(value) }
    };
    Column { class, ..column(heading, meaning, cell) }
}

fn spread(moments: Option<Moments>, trials: usize) -> SortedCell {
    SortedCell {
        text: or_nothing(moments, |moments| with_spread(moments, trials)),
        key: moments.map(|moments| moments.mean),
    }
}

fn optional(value: Option<f64>, write: impl Fn(f64) -> String) -> SortedCell {
    SortedCell { text: or_nothing(value, write), key: value }
}

/// The kernel of a method that has one, or the one that made most predictions.
fn favourite(method: &MethodResult) -> SortedCell {
    match (method.kernel, series::favourite(method)) {
        (Some(kernel), _) => SortedCell { text: kernel.to_string(), key: Some(kernel as f64) },
        (None, Some((kernel, share))) => {
            SortedCell { text: format!("{kernel} ({})", percent(share)), key: Some(kernel as f64) }
        }
        (None, None) => optional(None, |_| String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::testing::results;

    #[test]
    fn every_row_has_a_cell_for_every_heading() {
        let mut results = results(5, 10, 3);
        results.participation = "a tenth of the uploads was lost".into();
        let table = table(&results);
        let columns = table.matches("<th scope=\"col\"").count() - 1;
        assert_eq!(columns, 15);
        assert_eq!(table.matches("<td").count(), columns * results.methods.len());
    }

    #[test]
    fn only_single_kernels_besides_the_best_can_be_folded() {
        let folded = table(&results(5, 10, 3));
        assert_eq!(folded.matches("sk-other").count(), 4);
        assert!(folded.contains("the 4 other single kernels") && folded.contains("sk 3 (best)"));
        assert!(!table(&results(1, 10, 3)).contains("id=\"fold\""));
    }

    #[test]
    fn the_most_used_kernel_is_named_with_its_share() {
        let mut results = results(3, 10, 3);
        results.methods[0].selected = vec![0.1, 0.2, 0.7];
        assert_eq!(favourite(&results.methods[0]).text, "3 (70%)");
        assert_eq!(favourite(&results.methods[1]).text, "–");
        results.methods[1].selected = vec![0.0; 3];
        assert_eq!(favourite(&results.methods[1]).text, "–");
    }

    #[test]
    fn what_is_not_a_number_has_no_place_in_the_order() {
        let cell = cell("", &SortedCell { text: "not finite".into(), key: Some(f64::INFINITY) });
        assert_eq!(cell, "<td>not finite</td>");
    }

    fn headings(results: &Results) -> Vec<String> {
        columns(results).into_iter().map(|column| column.heading).collect()
    }

    #[test]
    fn the_loss_comes_first_where_it_is_not_the_squared_error() {
        let mut results = results(3, 10, 2);
        assert_eq!(headings(&results)[..5], ["MSE", "RMSE", "MAE", "R²", "MSE, last 100"]);
        results.loss = "huber".into();
        assert_eq!(headings(&results)[..3], ["Loss", "MSE", "RMSE"]);
        results.classes = vec!["no".into(), "yes".into()];
        let expected = ["Accuracy", "Balanced accuracy", "Log loss", "AUC", "Wrong, last 100"];
        assert_eq!(headings(&results)[..5], expected);
    }

    #[test]
    fn regret_growth_and_time_say_what_they_are() {
        let table = table(&results(3, 10, 2));
        for meaning in [REGRET_MEANING, GROWTH, "of the time spent in all methods"] {
            assert!(table.contains(&format!("title=\"{meaning}")), "{meaning}");
        }
    }

    #[test]
    fn only_bytes_make_way_on_narrow_pages_and_the_rest_has_a_hint() {
        let results = results(3, 10, 2);
        let table = table(&results);
        assert_eq!(table.matches("class=\"bytes\"").count(), 2 * (results.methods.len() + 1));
        assert!(table.contains("id=\"more-columns\" hidden"));
    }
}
