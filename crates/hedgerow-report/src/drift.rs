//! How methods get through changes of the data, as a table.

use hedgerow::method::Reference;
use hedgerow_data::catalog;
use hedgerow_lab::drift::{RECOVERED_RATIO, passages};
use hedgerow_lab::results::{MethodResult, Results};

use crate::figures::{number, series};
use crate::table::{NOTHING, Table};

/// A row per run and method: means over the changes of its data, and the MSE of the whole run. Of
/// the single kernels only the best; not what is known only in hindsight.
pub(crate) fn table(results: &[Results]) -> Table {
    let headings = ["Data", "Method", "Before", "After", "Rounds until back", "MSE"];
    let rows = results.iter().flat_map(|results| {
        let shown = |method: &&MethodResult| {
            !method.is(Reference::Hindsight) && !series::is_other_single(results, method)
        };
        results.methods.iter().filter(shown).map(|method| row(results, method))
    });
    Table::of_numbers(headings, rows)
}

/// What the columns mean.
pub(crate) fn meaning(results: &[Results]) -> String {
    let mut windows = results.iter().map(|results| results.window);
    let first = windows.next();
    let window = match first.filter(|first| windows.all(|window| window == *first)) {
        Some(window) => format!("a window of {window} rounds"),
        None => "a window of rounds".to_owned(),
    };
    format!(
        "Errors over {window}: the last before a change of the data and the first whole one after it, means over all changes. Back: \
         rounds from the end of a change until the windowed error is at most {RECOVERED_RATIO} times what it was before; means over the changes \
         after which it was, and of how many. MSE: over all rounds. A dash: it is unknown when the data changes, or there is no whole \
         window."
    )
}

fn row(results: &Results, method: &MethodResult) -> Vec<String> {
    let passages = passages(results, method);
    let mean = |values: &[f64]| match values.len() {
        0 => NOTHING.to_owned(),
        count => number::significant(values.iter().sum::<f64>() / count as f64, 3),
    };
    let before: Vec<f64> = passages.iter().map(|passage| passage.before).collect();
    let after: Vec<f64> = passages.iter().filter_map(|passage| passage.after).collect();
    let back: Vec<u64> = passages.iter().filter_map(|passage| passage.back).collect();
    let rounds = || number::fixed(back.iter().sum::<u64>() as f64 / back.len() as f64, 0);
    let back = match (passages.len(), back.len()) {
        (0, _) => NOTHING.to_owned(),
        (_, 0) => "never".to_owned(),
        (1, _) => rounds(),
        (all, some) => format!("{} ({some} of {all})", rounds()),
    };
    let mse = number::with_spread(method.mse, results.trials);
    vec![title(results).to_owned(), method.label(), mean(&before), mean(&after), back, mse]
}

/// What to call the data of a run.
pub(crate) fn title(results: &Results) -> &str {
    catalog::find(&results.data.name).map_or(results.data_name(), |entry| &entry.title)
}

#[cfg(test)]
mod tests {
    use hedgerow_lab::results::Moments;
    use hedgerow_lab::testing::run_on_stream as run;

    use super::*;

    #[test]
    fn means_are_over_the_changes_and_say_how_many() {
        // Back within 20 rounds of each change but the third, and not within 100 of that.
        let course = |round: u64| match (round - 1) / 100 {
            0 => 1.0,
            3 => 5.0,
            _ if (round - 1) % 100 < 20 => 5.0,
            _ => 1.0,
        };
        let run = run("drift-recurring", 600, 10, course);
        let table = table(std::slice::from_ref(&run));
        assert_eq!(table.rows[0][4], "15 (4 of 5)");
        assert_eq!(table.rows[0][2], "1.80");
    }

    #[test]
    fn the_table_has_a_row_for_each_method_that_learns_in_time() {
        let mut unknown = run("air-quality", 200, 10, |_| 1.0);
        unknown.methods[0].curve.mse_window.fill(Moments { mean: f64::NAN, sd: 0.0 });
        let known = run("drift", 200, 10, |_| 1.0);
        let runs = [known, unknown];
        let text = table(&runs).markdown();
        assert!(text.contains("| drift | mk | 1.00 | 1.00 | 0 | 0.00660 ± 0.00020 |"), "{text}");
        assert!(text.contains("| Air quality | mk | – | – | – |"), "{text}");
        assert_eq!(text.matches("| sk 2 |").count(), 2, "{text}");
        assert!(!text.contains("hindsight") && !text.contains("| sk 1 |"), "{text}");
        assert!(meaning(&runs).contains("a window of 10 rounds"));
    }

    #[test]
    fn no_runs_make_no_rows() {
        assert!(table(&[]).rows.is_empty() && meaning(&[]).contains("a window of rounds"));
    }
}
