//! Errors device by device, worst first, and by the hour and the day.

use hedgerow_lab::results::{MethodResult, Results};

use crate::figures::markup::escape;
use crate::figures::number::significant;
use crate::figures::predictions::device_name;
use crate::figures::subsets::{
    device_bars, hour_bars, in_unit, measure, unit, weekday_bars, worst_first,
};
use crate::table::{NOTHING, Table};

/// Devices in the table of a page.
const MOST_SHOWN: usize = 50;

/// The errors of the method at each device, worst first, beside those of other methods; empty if
/// they are not known, or there is one device.
pub(super) fn devices(results: &Results, subject: &MethodResult) -> String {
    let order = worst_first(subject);
    let Some(bars) = device_bars(results, subject) else { return String::new() };
    let others = results.methods.iter().filter(|method| {
        !std::ptr::eq(*method, subject) && method.nodes.len() == subject.nodes.len()
    });
    // One entry for each kernel would fill the page.
    let shown: Vec<&MethodResult> =
        [subject].into_iter().chain(others.filter(|method| method.kernel.is_none())).collect();
    let row = |node: &usize| {
        let error = |method: &&MethodResult| match method.nodes[*node] {
            node if node.predictions > 0 => significant(in_unit(results, node.mse), 3),
            _ => NOTHING.to_owned(),
        };
        let predictions = subject.nodes[*node].predictions / results.trials.max(1) as u64;
        let head = [device_name(results, *node), predictions.to_string()];
        head.into_iter().chain(shown.iter().map(error)).collect()
    };
    let column = if results.classes.is_empty() { "RMSE" } else { "Share wrong" };
    let headings = ["Device".to_owned(), "Predictions".to_owned()]
        .into_iter()
        .chain(shown.iter().map(|method| format!("{column}, {}", method.label())));
    let table = Table::of_numbers(headings, order.iter().take(MOST_SHOWN).map(row));
    let rest = match order.len().checked_sub(MOST_SHOWN) {
        Some(rest) if rest > 0 => format!(" {rest} more are in summary.json."),
        _ => String::new(),
    };
    format!(
        "<section aria-labelledby=\"devices-heading\">\n\
         <h2 id=\"devices-heading\">Error per device</h2>\n{}\
         <p class=\"caption\">{}</p>\n{}\
         <p class=\"caption\">The {}, over all trials, worst first.{rest}</p>\n</section>\n",
        bars.in_page(),
        escape(&bars.note),
        table.html("Error per device"),
        escape(format!("{} {}", measure(results), unit(results)).trim_end())
    )
}

/// Errors by hour of the day and by day of the week; empty without dates.
pub(super) fn calendar(results: &Results, subject: &MethodResult) -> String {
    let (Some(hours), Some(weekdays)) =
        (hour_bars(results, subject), weekday_bars(results, subject))
    else {
        return String::new();
    };
    format!(
        "<section aria-labelledby=\"calendar-heading\">\n\
         <h2 id=\"calendar-heading\">Error by hour of day and day of the week</h2>\n\
         <div class=\"pair\">\n{}{}</div>\n<p class=\"caption\">{}</p>\n</section>\n",
        hours.in_page(),
        weekdays.in_page(),
        escape(&hours.note)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::results::SubsetError;
    use hedgerow_lab::testing::run;

    #[test]
    fn the_worst_device_comes_first() {
        let mut results = run(&[("tr", 1.0), ("mk", 2.0)]);
        results.node_names = ["a", "b<", "c"].map(str::to_owned).to_vec();
        for method in &mut results.methods {
            let errors = [0.1, 0.3, 0.2].map(|mse| SubsetError { predictions: 8, mse });
            method.nodes = errors.to_vec();
        }
        let subject = results.method("tr").unwrap();
        let page = devices(&results, subject);
        let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
        assert!(place("b&lt;") < place("<th scope=\"row\">c") && page.contains("RMSE, mk"));
        // As in the figure: 0.1, 0.2 and 0.3 are squares.
        let roots = ["<td>0.548</td>", "<td>0.447</td>", "<td>0.316</td>"];
        assert!(roots.iter().all(|root| page.contains(root)), "{page}");
        assert!(page.contains("The RMSE in "), "{page}");
        assert!(!page.contains("sk") && page.contains("<td>2</td>"), "{page}");
        let mut alone = results.clone();
        alone.methods.iter_mut().for_each(|method| method.nodes.truncate(1));
        assert_eq!(devices(&alone, alone.method("tr").unwrap()), "");
    }
}
