//! The tables of a reproduction: errors, costs and selection, and everything as CSV.

use super::measured::{Selection, mse_ratio, selection, worst_single};
use super::{Panel, Reproduction};
use crate::figures::number::{fixed, percent, significant, with_spread};
use crate::figures::series::{best_single, favourite};
use crate::table::{NOTHING, Table, csv_number as number, csv_whole as whole, or_nothing, quoted};
use hedgerow_lab::results::{MethodResult, Moments, Results};

/// Heading that must not be broken into lines.
const RATIO: &str = "mk\u{a0}/\u{a0}best\u{a0}sk";

/// Columns of errors after those of the single kernels.
const COMPARED: [&str; 8] =
    ["naive", "central", "central-batch", "local", "last", "mean", "previous", "hindsight"];

/// MSE × 1000 of every method.
pub(super) fn errors(reproduction: &Reproduction) -> Table {
    let compared: Vec<&str> = COMPARED
        .into_iter()
        .filter(|name| reproduction.found().any(|(_, results)| results.method(name).is_some()))
        .collect();
    let always = ["Data", "n", "d", "T", "mk", "best sk (p)", RATIO, "worst sk (p)"];
    let headings: Vec<&str> = always.into_iter().chain(compared.iter().copied()).collect();
    let row = |panel: &Panel| {
        let Some(results) = &panel.results else { return missing(panel, headings.len()) };
        let best = best_single(results);
        let error = |method: Option<&MethodResult>| {
            or_nothing(method, |method| thousandfold(results, method))
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
    let rows: Vec<Vec<String>> = reproduction.panels().map(row).collect();
    Table::of_numbers(headings, rows)
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
    ];
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
            or_nothing(mk_favourite(results), |(kernel, share)| {
                format!("{kernel} ({})", percent(share))
            }),
            significant(results.seconds, 3),
        ]
    };
    Table::of_numbers(headings, reproduction.panels().map(row))
}

/// Where the data came from.
pub(super) fn provenance(reproduction: &Reproduction) -> Table {
    let row = |panel: &Panel| vec![panel.title.clone(), panel.provenance.clone()];
    Table::of_words(["Data", "Where from"], reproduction.panels().map(row))
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
    let methods: Vec<&str> = ["mk", "best_sk", "worst_sk"].into_iter().chain(COMPARED).collect();
    let mut headings: Vec<String> = ["name", "title", "provenance"].map(str::to_owned).to_vec();
    headings.extend(SIZES.map(|(heading, _)| heading.to_owned()));
    headings
        .extend(methods.iter().flat_map(|name| [format!("{name}_mse"), format!("{name}_mse_sd")]));
    headings.extend(FINDINGS.map(|(heading, _)| heading.to_owned()));
    let mut csv = headings.join(",") + "\n";
    for panel in reproduction.panels() {
        let mut cells = vec![quoted(&panel.name), quoted(&panel.title), quoted(&panel.provenance)];
        if let Some(results) = &panel.results {
            cells.extend(SIZES.map(|(_, write)| write(results)));
            cells.extend(methods.iter().flat_map(|name| {
                let mse = single_or_method(results, name).map(|method| method.mse);
                [number(mse.map(|mse| mse.mean)), number(mse.map(|mse| mse.sd))]
            }));
            cells.extend(FINDINGS.map(|(_, write)| write(results)));
        }
        cells.resize(headings.len(), String::new());
        csv += &(cells.join(",") + "\n");
    }
    csv
}

/// A heading of CSV and its cell.
type Column = (&'static str, fn(&Results) -> String);

const SIZES: [Column; 5] = [
    ("n", |results| results.data.samples.to_string()),
    ("d", |results| results.data.features.to_string()),
    ("rounds", |results| results.rounds.to_string()),
    ("trials", |results| results.trials.to_string()),
    ("seed", |results| results.seed.to_string()),
];

const FINDINGS: [Column; 12] = [
    ("best_sk_kernel", |results| whole(best_single(results).and_then(|sk| sk.kernel))),
    ("worst_sk_kernel", |results| whole(worst_single(results).and_then(|sk| sk.kernel))),
    ("mk_over_best_sk", |results| number(mse_ratio(results.method("mk"), best_single(results)))),
    ("mk_numbers_up", |results| number(results.method("mk").map(|mk| mk.numbers_up))),
    ("naive_numbers_up", |results| number(results.method("naive").map(|naive| naive.numbers_up))),
    ("best_kernel", |results| whole(results.best_kernel)),
    ("best_kernel_share_at_end", |results| number(selection(results).map(|found| found.at_end))),
    ("best_kernel_from_round", |results| {
        whole(selection(results).and_then(|Selection { from_round, .. }| from_round))
    }),
    ("mk_favourite_kernel", |results| whole(mk_favourite(results).map(|(kernel, _)| kernel))),
    ("mk_favourite_share", |results| number(mk_favourite(results).map(|(_, share)| share))),
    ("mk_regret_exponent", |results| {
        number(results.method("mk").and_then(|mk| mk.regret.as_ref()?.exponent))
    }),
    ("seconds", |results| number(results.seconds)),
];

fn single_or_method<'r>(results: &'r Results, name: &str) -> Option<&'r MethodResult> {
    match name {
        "best_sk" => best_single(results),
        "worst_sk" => worst_single(results),
        name => results.method(name),
    }
}

fn mk_favourite(results: &Results) -> Option<(usize, f64)> {
    results.method("mk").and_then(favourite)
}

/// `6.44 ± 0.31`, with the kernel of a method that has one.
pub(super) fn thousandfold(results: &Results, method: &MethodResult) -> String {
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

/// The row of a data set that was not available.
pub(super) fn missing(panel: &Panel, columns: usize) -> Vec<String> {
    let mut row = vec![panel.title.clone(), "not available".to_owned()];
    row.resize(columns, NOTHING.to_owned());
    row
}

#[cfg(test)]
mod tests {
    use super::super::tests::reproduction;
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
