//! Fed-POE's benchmark: errors beside those of its authors' code.

use serde_json::{Value, json};

use crate::figures::number::{significant, with_spread};
use crate::page::{Document, Part, Section};
use crate::table::{NOTHING, Table};
use hedgerow_lab::results::{MethodResult, Moments, Results};

/// What the authors' published code was seen to reach: what it is, and MSE × 1000.
const AUTHORS: [(&str, f64); 3] = [
    ("authors' code: Fed-POE, mean of two runs (10.28 and 10.06)", 10.1),
    ("authors' code: its federated part alone", 11.4),
    ("authors' code: its local part alone", 10.0),
];

const ABOUT: &str = "Four of Beijing's stations, 400 clients with 250 samples each, 70% of them from one station. \
    The label is NO2, as in the authors' published code. Inputs are divided by the largest norm of a sample and \
    labels scaled to [0, 1], both over all samples. The order of each client's samples is random, and differs from \
    the authors'. All errors count every prediction, the first included.";

/// The table on a terminal.
pub fn text(results: &Results) -> String {
    table(results).text()
}

/// The document in Markdown.
pub fn document(results: &Results) -> String {
    described(results).markdown()
}

/// One page that opens without a network.
pub fn page(results: &Results) -> String {
    described(results).html(&[])
}

/// The results and the authors' figures; none if the data was not available.
pub fn json(results: Option<&Results>, missing: &[String]) -> Value {
    let authors = AUTHORS.map(|(what, mse)| json!({ "what": what, "mse_times_1000": mse }));
    json!({ "schema": 1, "missing": missing, "results": results, "authors": authors })
}

fn described(results: &Results) -> Document {
    let parts = vec![
        Part::Text(ABOUT.to_owned()),
        Part::Table("Errors".to_owned(), table(results)),
        Part::Note("Numbers are per node and round.".to_owned()),
    ];
    let sections = vec![Section { id: "errors", heading: "Errors", parts }];
    let setting = vec![results.sizes()];
    Document { title: "Fed-POE's benchmark, again".to_owned(), setting, sections }
}

fn table(results: &Results) -> Table {
    let headings = ["method", "MSE × 1000", "numbers up", "numbers down"];
    let nothing = || NOTHING.to_owned();
    let authors = AUTHORS
        .map(|(what, mse)| vec![what.to_owned(), format!("{mse:.1}"), nothing(), nothing()])
        .into_iter();
    let row = |method: &MethodResult| {
        let Moments { mean, sd } = method.mse;
        let thousandfold = Moments { mean: 1000.0 * mean, sd: 1000.0 * sd };
        let [up, down] =
            [method.numbers_up, method.numbers_down].map(|numbers| significant(numbers, 3));
        vec![method.label(), with_spread(thousandfold, results.trials), up, down]
    };
    Table::of_numbers(headings, authors.chain(results.methods.iter().map(row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::testing::run;

    #[test]
    fn methods_stand_beside_the_authors_figures() {
        let results = run(&[("tr", 0.5), ("gr+shared", 1.0)]);
        for shown in [text(&results), document(&results), page(&results)] {
            for part in ["10.28 and 10.06", "10.1", "tr", "gr+shared", "3.00"] {
                assert!(shown.contains(part), "{part}: {shown}");
            }
        }
        assert!(document(&results).contains("The label is NO2"));
        let told = json(Some(&results), &[]);
        assert_eq!((told["authors"].as_array().unwrap().len(), &told["missing"]), (3, &json!([])));
        assert!(json(None, &["beijing".to_owned()])["results"].is_null());
    }
}
