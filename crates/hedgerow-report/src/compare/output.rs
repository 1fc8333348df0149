//! A comparison as a table of numbers and as JSON.

use serde_json::{Value, json};

use hedgerow_lab::compare::{
    Cell, Comparison, GridSummary, Interval, RankedMethod, Ratio, recommended,
};
use hedgerow_lab::results::Results;

use super::{advice, document, page};
use crate::table::{csv_number as number, csv_whole as whole, quoted};
use crate::worth;

/// The files of a comparison that are no figures: names and contents. `missing` names data sets
/// that were not available.
pub fn texts(
    comparison: &Comparison,
    missing: &[String],
) -> Result<[(&'static str, String); 4], serde_json::Error> {
    let json = serde_json::to_string_pretty(&json(comparison, missing))? + "\n";
    Ok([
        ("compare.csv", csv(comparison)),
        ("compare.json", json),
        ("compare.md", document(comparison)),
        ("compare.html", page(comparison)),
    ])
}

/// `compare.csv`: one row per run and method, every number as it was measured; cells of what is not
/// there are empty.
pub fn csv(comparison: &Comparison) -> String {
    let mut csv = COLUMNS.map(|(heading, _)| heading).join(",") + "\n";
    for (cell, results, ranking) in comparison.found() {
        for entry in &ranking.methods {
            let line = Line { cell, results, measure: &ranking.measure, entry };
            csv += &(COLUMNS.map(|(_, write)| write(&line)).join(",") + "\n");
        }
    }
    csv
}

/// A method in a run.
struct Line<'c> {
    cell: &'c Cell,
    results: &'c Results,
    measure: &'c str,
    entry: &'c RankedMethod,
}

type Column = (&'static str, fn(&Line<'_>) -> String);

const COLUMNS: [Column; 29] = [
    ("data", |line| quoted(&line.cell.data)),
    ("partition", |line| quoted(&line.cell.partition)),
    ("variant", |line| quoted(&line.cell.variant)),
    ("nodes", |line| line.results.nodes.to_string()),
    ("rounds", |line| line.results.rounds.to_string()),
    ("trials", |line| line.results.trials.to_string()),
    ("seed", |line| line.results.seed.to_string()),
    ("budget", |line| line.results.budget.to_string()),
    ("measure", |line| quoted(line.measure)),
    ("method", |line| quoted(&line.entry.name)),
    ("kernel", |line| whole(line.entry.kernel)),
    ("role", |line| json!(line.entry.role).as_str().unwrap_or_default().to_owned()),
    ("rank", |line| whole(line.entry.rank)),
    ("error", |line| number(line.entry.error.mean)),
    ("error_sd", |line| number(line.entry.error.sd)),
    ("error_low", |line| number(low(line.entry.interval))),
    ("error_high", |line| number(high(line.entry.interval))),
    ("ratio_to_best", |line| number(value(line.entry.to_best))),
    ("ratio_low", |line| number(low(interval(line.entry.to_best)))),
    ("ratio_high", |line| number(high(interval(line.entry.to_best)))),
    ("p", |line| number(line.entry.to_best.and_then(|ratio| ratio.p))),
    ("p_holm", |line| number(line.entry.p_holm)),
    ("ratio_to_sk", |line| number(value(line.entry.to_sk))),
    ("to_sk_low", |line| number(low(interval(line.entry.to_sk)))),
    ("to_sk_high", |line| number(high(interval(line.entry.to_sk)))),
    ("numbers_up", |line| number(line.entry.numbers_up)),
    ("numbers_down", |line| number(line.entry.numbers_down)),
    ("bytes_up", |line| number(line.entry.bytes_up)),
    ("bytes_down", |line| number(line.entry.bytes_down)),
];

fn value(ratio: Option<Ratio>) -> Option<f64> {
    ratio.map(|ratio| ratio.value)
}

fn interval(ratio: Option<Ratio>) -> Option<Interval> {
    ratio.and_then(|ratio| ratio.interval)
}

fn low(interval: Option<Interval>) -> Option<f64> {
    interval.map(|interval| interval.low)
}

fn high(interval: Option<Interval>) -> Option<f64> {
    interval.map(|interval| interval.high)
}

/// `compare.json`; `missing` names data sets that were not available.
pub fn json(comparison: &Comparison, missing: &[String]) -> Value {
    let run = |cell: &Cell| {
        let Some((results, ranking)) = cell.results.as_ref().zip(cell.ranking.as_ref()) else {
            return json!({
                "data": cell.data,
                "partition": cell.partition,
                "variant": cell.variant,
                "methods": null,
            });
        };
        json!({
            "data": cell.data,
            "partition": cell.partition,
            "variant": cell.variant,
            "samples": results.data.samples,
            "features": results.data.features,
            "nodes": results.nodes,
            "rounds": results.rounds,
            "budget": results.budget,
            "trials": results.trials,
            "seed": results.seed,
            "scaling": results.scaling,
            "measure": ranking.measure,
            "best": ranking.best().map(|best| &best.name),
            "left_out": results.left_out,
            "advice": advice::of_run(results, ranking),
            "worth": worth::sentence(results),
            "methods": ranking.methods,
        })
    };
    let points = comparison.budgets();
    let budgets = (!points.is_empty())
        .then(|| json!({ "points": points, "recommended": recommended(&points) }));
    let all: Option<&[GridSummary]> = (comparison.cells.len() > 1).then_some(&comparison.summaries);
    json!({
        "schema": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "against": comparison.against,
        "worth": advice::worth(comparison),
        "advice": advice::advice(comparison),
        "missing": missing,
        "runs": comparison.cells.iter().map(run).collect::<Vec<_>>(),
        "all_runs": all,
        "budgets": budgets,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::testing::{grid, one, run, with_trials};

    #[test]
    fn every_line_of_the_csv_has_every_cell() {
        let mut results = run(&[("mk", 1.1), ("naive", 1.0), ("gr", 1.0)]);
        with_trials(&mut results, "gr", &[f64::INFINITY; 4]);
        results.partition = "column:a,b".into();
        let comparison = one(results);
        let table = csv(&comparison);
        let mut reader = ::csv::Reader::from_reader(table.as_bytes());
        let headings = reader.headers().unwrap().clone();
        let rows: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let get = |method: &str, heading: &str| {
            let at = |heading: &str| headings.iter().position(|h| h == heading).unwrap();
            rows.iter().find(|row| &row[at("method")] == method).unwrap()[at(heading)].to_owned()
        };
        assert_eq!(rows.len(), 5);
        let mk = comparison.cells[0].ranking.as_ref().unwrap().method("mk").unwrap();
        assert_eq!(get("mk", "error"), mk.error.mean.to_string());
        assert_eq!(get("mk", "ratio_high"), mk.to_best.unwrap().interval.unwrap().high.to_string());
        assert_eq!(
            (get("sk", "kernel"), get("sk", "role"), get("sk", "rank")),
            ("2".into(), "hindsight".into(), "".into())
        );
        assert_eq!(
            (get("gr", "error"), get("naive", "p_holm"), get("mk", "partition")),
            ("".into(), "".into(), "column:a,b".into())
        );
        assert_eq!(get("mk", "bytes_down"), "404");
        assert_eq!(get("mk", "ratio_to_sk"), mk.to_sk.unwrap().value.to_string());
        assert_eq!(get("mk", "to_sk_low"), mk.to_sk.unwrap().interval.unwrap().low.to_string());
    }

    #[test]
    fn json_has_every_run_and_the_standings_of_a_grid() {
        let found = json(&grid(), &["two".to_owned()]);
        assert_eq!(
            (&found["schema"], &found["missing"], &found["against"]),
            (&1.into(), &json!(["two"]), &"mk".into())
        );
        let runs = found["runs"].as_array().unwrap();
        assert_eq!(
            (runs.len(), &runs[3]["methods"], &runs[0]["best"]),
            (4, &Value::Null, &"gr".into())
        );
        assert_eq!(found["all_runs"].as_array().unwrap().len(), 5);
        let alone = json(&one(run(&[("mk", 1.0)])), &[]);
        assert_eq!(alone["all_runs"], Value::Null);
        assert!(alone["runs"][0]["methods"][0]["interval"]["low"].is_f64());
        assert_eq!(alone["runs"][0]["worth"], Value::Null);
        let worth = json(&one(run(&[("tr", 0.87), ("tr+alone", 1.0)])), &[])["runs"][0].clone();
        assert!(worth["worth"].as_str().unwrap().contains("lowers the error by 13%"), "{worth}");
    }
}
