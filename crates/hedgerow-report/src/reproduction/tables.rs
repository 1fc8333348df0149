//! The tables of a reproduction: errors, costs and selection, and everything as CSV.

use super::measured::{favourite, mse_ratio, selection, worst_single};
use super::{Panel, Reproduction};
use crate::figures::number::{fixed, percent, significant, with_spread};
use crate::figures::series::best_single;
use crate::table::{Table, quoted};
use hedgerow_lab::results::{MethodResult, Moments, Results};

/// What stands where there is nothing to say.
const NOTHING: &str = "–";

/// Heading that must not be broken into lines.
const RATIO: &str = "mk\u{a0}/\u{a0}best\u{a0}sk";

/// Columns of errors after those of the single kernels.
const COMPARED: [&str; 7] =
    ["naive", "central", "central-batch", "local", "last", "mean", "hindsight"];

/// MSE × 1000 of every method.
pub(super) fn errors(reproduction: &Reproduction) -> Table {
    let compared: Vec<&str> = COMPARED
        .into_iter()
        .filter(|name| reproduction.found().any(|(_, results)| results.method(name).is_some()))
        .collect();
    let always = ["Data", "n", "d", "T", "mk", "best sk (p)", RATIO, "worst sk (p)"];
    let headings = always.iter().chain(&compared);
    let headings: Vec<String> = headings.map(|heading| (*heading).to_owned()).collect();
    let row = |panel: &Panel| {
        let Some(results) = &panel.results else { return missing(panel, headings.len()) };
        let best = best_single(results);
        let error = |method: Option<&MethodResult>| {
            method.map_or(NOTHING.into(), |m| thousandfold(results, m))
        };
        let mut row = vec![
            panel.title.clone(),
            count(results.data.samples),
            count(results.data.features),
            count(results.rounds),
            error(results.method("mk")),
            error(best),
            or_nothing(mse_ratio(results.method("mk"), best), |ratio| significant(ratio, 3)),
            error(worst_single(results)),
        ];
        row.extend(compared.iter().map(|name| error(results.method(name))));
        row
    };
    let rows = reproduction.panels().map(row).collect();
    Table { headings, rows, of_words: false }
}

/// What travels, which kernel is selected, and how long it took.
pub(super) fn costs(reproduction: &Reproduction) -> Table {
    let headings = [
        "Data",
        "numbers up, mk",
        "numbers up, naive",
        "best kernel",
        "trials that end on it",
        "at least 90% from round",
        "mk selects most",
        "seconds",
    ]
    .map(str::to_owned)
    .to_vec();
    let row = |panel: &Panel| {
        let Some(results) = &panel.results else { return missing(panel, headings.len()) };
        let numbers =
            |name| or_nothing(results.method(name), |method| significant(method.numbers_up, 3));
        let found = selection(results);
        vec![
            panel.title.clone(),
            numbers("mk"),
            numbers("naive"),
            or_nothing(results.best_kernel, |kernel| kernel.to_string()),
            or_nothing(found.as_ref(), |found| percent(found.at_end)),
            or_nothing(found.as_ref(), |found| {
                found.from_round.map_or("never".into(), |round| fixed(round as f64, 0))
            }),
            or_nothing(results.method("mk").and_then(favourite), |(kernel, share)| {
                format!("{kernel} ({})", percent(share))
            }),
            significant(results.seconds, 3),
        ]
    };
    let rows = reproduction.panels().map(row).collect();
    Table { headings, rows, of_words: false }
}

/// Where the data came from.
pub(super) fn provenance(reproduction: &Reproduction) -> Table {
    let row = |panel: &Panel| vec![panel.title.clone(), panel.provenance.clone()];
    let rows = reproduction.panels().map(row).collect();
    Table { headings: vec!["Data".into(), "Where from".into()], rows, of_words: true }
}

/// What [`errors`] and [`costs`] show.
pub(super) fn note(reproduction: &Reproduction) -> String {
    let spread = reproduction.found().any(|(_, results)| results.trials > 1);
    let spread = if spread { ", mean ± standard deviation over trials" } else { "" };
    format!(
        "MSE × 1000 over every prediction of every node{spread}; in parentheses the kernel p. Numbers up are per node and round. \
         n: samples; d: numbers per sample; T: rounds; hindsight: the best fixed function, known only afterwards."
    )
}

/// One line per data set with every number as it was measured; cells of what is not there are
/// empty.
pub fn table_csv(reproduction: &Reproduction) -> String {
    let mut headings: Vec<String> =
        ["name", "title", "provenance", "n", "d", "rounds", "trials", "seed"]
            .map(str::to_owned)
            .to_vec();
    let entries: Vec<&str> = ["mk", "best_sk", "worst_sk"].into_iter().chain(COMPARED).collect();
    headings
        .extend(entries.iter().flat_map(|name| [format!("{name}_mse"), format!("{name}_mse_sd")]));
    headings.extend(
        [
            "best_sk_kernel",
            "worst_sk_kernel",
            "mk_over_best_sk",
            "mk_numbers_up",
            "naive_numbers_up",
            "best_kernel",
            "best_kernel_share_at_end",
            "best_kernel_from_round",
            "mk_favourite_kernel",
            "mk_favourite_share",
            "mk_regret_exponent",
            "seconds",
        ]
        .map(str::to_owned),
    );
    let mut csv = headings.join(",") + "\n";
    for panel in reproduction.panels() {
        let mut cells = vec![quoted(&panel.name), quoted(&panel.title), quoted(&panel.provenance)];
        if let Some(results) = &panel.results {
            cells.extend(numbers(results, &entries));
        }
        cells.resize(headings.len(), String::new());
        csv.push_str(&cells.join(","));
        csv.push('\n');
    }
    csv
}

fn numbers(results: &Results, entries: &[&str]) -> Vec<String> {
    let number = |value: Option<f64>| {
        value.filter(|v| v.is_finite()).map_or(String::new(), |v| v.to_string())
    };
    let whole = |value: Option<u64>| value.map_or(String::new(), |v| v.to_string());
    let method = |name: &str| match name {
        "best_sk" => best_single(results),
        "worst_sk" => worst_single(results),
        name => results.method(name),
    };
    let counts = [results.data.samples, results.data.features, results.rounds, results.trials];
    let mut cells: Vec<String> = counts.map(|count| count.to_string()).to_vec();
    cells.push(results.seed.to_string());
    for entry in entries {
        let mse = method(entry).map(|method| method.mse);
        cells.extend([number(mse.map(|mse| mse.mean)), number(mse.map(|mse| mse.sd))]);
    }
    let kernel =
        |method: Option<&MethodResult>| whole(method.and_then(|m| m.kernel).map(|k| k as u64));
    let (mk, found) = (results.method("mk"), selection(results));
    let favourite = mk.and_then(favourite);
    cells.extend([
        kernel(best_single(results)),
        kernel(worst_single(results)),
        number(mse_ratio(mk, best_single(results))),
        number(mk.map(|mk| mk.numbers_up)),
        number(results.method("naive").map(|naive| naive.numbers_up)),
        whole(results.best_kernel.map(|kernel| kernel as u64)),
        number(found.as_ref().map(|found| found.at_end)),
        whole(found.and_then(|found| found.from_round)),
        whole(favourite.map(|(kernel, _)| kernel as u64)),
        number(favourite.map(|(_, share)| share)),
        number(mk.and_then(|mk| mk.regret.as_ref()?.exponent)),
        number(Some(results.seconds)),
    ]);
    cells
}

/// `6.44 ± 0.31`, with the kernel of a method that has one.
fn thousandfold(results: &Results, method: &MethodResult) -> String {
    let Moments { mean, sd } = method.mse;
    let text = with_spread(Moments { mean: mean * 1000.0, sd: sd * 1000.0 }, results.trials);
    match method.kernel {
        Some(kernel) => format!("{text} ({kernel})"),
        None => text,
    }
}

fn count(count: usize) -> String {
    fixed(count as f64, 0)
}

fn or_nothing<T>(value: Option<T>, write: impl FnOnce(T) -> String) -> String {
    value.map_or(NOTHING.to_owned(), write)
}

/// The row of a data set that was not available.
fn missing(panel: &Panel, columns: usize) -> Vec<String> {
    let mut row = vec![panel.title.clone(), "not available".to_owned()];
    row.resize(columns, NOTHING.to_owned());
    row
}

#[cfg(test)]
mod tests {
    use super::super::sample::reproduction;
    use super::*;

    fn cell<'t>(table: &'t Table, row: &str, heading: &str) -> &'t str {
        let column = table.headings.iter().position(|h| h == heading).unwrap();
        &table.rows.iter().find(|cells| cells[0] == row).unwrap()[column]
    }

    #[test]
    fn errors_are_a_thousandfold_with_kernels_and_spreads() {
        let table = errors(&reproduction());
        assert_eq!(cell(&table, "Twitter", "mk"), "6.60 ± 0.20");
        assert_eq!(cell(&table, "Twitter", "best sk (p)"), "6.00 ± 0.18 (6)");
        assert_eq!(cell(&table, "Twitter", "worst sk (p)"), "36.0 ± 1.1 (11)");
        assert_eq!(cell(&table, "Twitter", RATIO), "1.10");
        assert_eq!(cell(&table, "Twitter", "last"), "–");
        assert_eq!(cell(&table, "Traffic", "last"), "3.30 ± 0.20");
        assert_eq!(cell(&table, "Twitter", "n"), "4000");
        assert_eq!(cell(&table, "Large", "n"), "not available");
    }

    #[test]
    fn columns_that_nobody_has_are_left_out() {
        let mut reproduction = reproduction();
        assert!(!errors(&reproduction).headings.contains(&"central-batch".to_owned()));
        reproduction.figures.truncate(1);
        assert!(!errors(&reproduction).headings.contains(&"last".to_owned()));
    }

    #[test]
    fn costs_and_selection_are_told() {
        let table = costs(&reproduction());
        assert_eq!(cell(&table, "Twitter", "numbers up, naive"), "1089");
        assert_eq!(cell(&table, "Twitter", "trials that end on it"), "100%");
        // The share of the best kernel is 1 - 10/(11 t) in these runs.
        assert_eq!(cell(&table, "Twitter", "at least 90% from round"), "10");
        assert!(cell(&table, "Twitter", "mk selects most").starts_with("6 (97%"));
        assert_eq!(cell(&table, "Large", "seconds"), "–");
    }

    #[test]
    fn every_line_of_the_csv_has_every_cell() {
        let mut reproduction = reproduction();
        reproduction.figures[0].panels[0].provenance = "a \"drawer\", below".into();
        let csv = table_csv(&reproduction);
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let headings = reader.headers().unwrap().clone();
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let get = |row: usize, heading: &str| {
            rows[row].get(headings.iter().position(|h| h == heading).unwrap())
        };
        assert_eq!(rows.len(), 3);
        assert_eq!(get(0, "provenance"), Some("a \"drawer\", below"));
        assert_eq!(
            get(0, "mk_mse"),
            Some(
                reproduction.figures[0].panels[0].results.as_ref().unwrap().methods[0]
                    .mse
                    .mean
                    .to_string()
                    .as_str()
            )
        );
        assert_eq!((get(0, "best_sk_kernel"), get(0, "worst_sk_kernel")), (Some("6"), Some("11")));
        assert_eq!(
            (get(0, "last_mse"), get(1, "mk_mse"), get(1, "seconds")),
            (Some(""), Some(""), Some(""))
        );
        assert_eq!((get(0, "mk_regret_exponent"), get(0, "seconds")), (Some("0.55"), Some("12.5")));
    }
}
