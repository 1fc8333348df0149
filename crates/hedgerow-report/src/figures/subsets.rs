//! Errors of one method by device, hour of the day and day of the week.

use hedgerow_data::text::counted;
use hedgerow_lab::results::{MethodResult, Results, SubsetError};

use super::bars::{Bar, Bars};
use super::number::significant;
use super::palette;
use super::predictions::device_name;

/// Bars of a figure of devices.
const MOST_DEVICES: usize = 25;

const WEEKDAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// The devices with predictions, the largest error first.
pub(crate) fn worst_first(method: &MethodResult) -> Vec<usize> {
    let mut order: Vec<usize> =
        (0..method.nodes.len()).filter(|node| method.nodes[*node].predictions > 0).collect();
    order.sort_by(|a, b| method.nodes[*b].mse.total_cmp(&method.nodes[*a].mse));
    order
}

/// The devices with the largest errors; none if there is one device.
pub(crate) fn device_bars(results: &Results, method: &MethodResult) -> Option<Bars> {
    let order = worst_first(method);
    if order.len() < 2 {
        return None;
    }
    let error = |place: usize| significant(in_unit(results, method.nodes[order[place]].mse), 3);
    let (middle, last) = (error(order.len() / 2), error(order.len() - 1));
    let shown = order.len().min(MOST_DEVICES);
    let which = match order.len() - shown {
        0 => String::new(),
        more => format!("The worst {shown} of {}; {more} more have less. ", shown + more),
    };
    let rows = order.iter().take(MOST_DEVICES);
    let rows = rows.map(|node| (device_name(results, *node), method.nodes[*node]));
    let measure = measure(results);
    let note = format!("{which}Median {measure} of all devices: {middle}; best: {last}.");
    Some(bars(results, method, "Error per device", rows, note))
}

/// Each hour of the day; none without dates.
pub(crate) fn hour_bars(results: &Results, method: &MethodResult) -> Option<Bars> {
    let rows = (0..).map(|hour| format!("{hour:02}:00")).zip(method.hours.iter().copied());
    let note = "Hours as the data writes them; in UTC if it has offsets from UTC.".to_owned();
    let has_dates = !method.hours.is_empty();
    has_dates.then(|| bars(results, method, "Error by hour of day", rows, note))
}

/// Each day of the week; none without dates.
pub(crate) fn weekday_bars(results: &Results, method: &MethodResult) -> Option<Bars> {
    let rows = WEEKDAYS.map(str::to_owned).into_iter().zip(method.weekdays.iter().copied());
    let has_dates = !method.weekdays.is_empty();
    has_dates.then(|| bars(results, method, "Error by day of the week", rows, String::new()))
}

/// The measure of errors of devices, hours and days.
pub(crate) fn measure(results: &Results) -> &'static str {
    if results.classes.is_empty() { "RMSE" } else { "share of wrong classes" }
}

/// The unit of that measure, in words; empty for a share.
pub(crate) fn unit(results: &Results) -> String {
    match results.data.target.as_str() {
        _ if !results.classes.is_empty() => String::new(),
        _ if !results.targets.is_empty() => "in standard deviations".to_owned(),
        "" => "in the label's unit".to_owned(),
        target => format!("in the unit of {target}"),
    }
}

/// A mean squared error in the label's unit; a share of wrong classes as it is.
pub(crate) fn in_unit(results: &Results, error: f64) -> f64 {
    if results.classes.is_empty() { error.sqrt() } else { error }
}

fn bars(
    results: &Results,
    method: &MethodResult,
    title: &str,
    rows: impl Iterator<Item = (String, SubsetError)>,
    note: String,
) -> Bars {
    let trials = results.trials.max(1) as u64;
    let bar = |(label, SubsetError { predictions, mse }): (String, SubsetError)| {
        let value = in_unit(results, mse);
        let words = match predictions {
            0 => "no predictions".to_owned(),
            _ => significant(value, 3),
        };
        let hint = format!("{} in each trial", counted(predictions / trials, "prediction"));
        Bar { label, value, words, hint }
    };
    let name = method.label();
    let unit = unit(results);
    let comma = if unit.is_empty() { "" } else { ", " };
    let quantity = format!("{} of {name}{comma}{unit}", measure(results));
    Bars {
        title: format!("{title} on {}", results.data_name()),
        subtitle: format!("{}, {}", method.label(), results.sizes()),
        quantity,
        color: palette::method(results, &method.name).color,
        rows: rows.map(bar).collect(),
        note,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::testing::run;

    fn with_errors(count: usize) -> Results {
        let mut results = run(&[("tr", 1.0)]);
        let error = |place: usize| SubsetError { predictions: 8, mse: (place * place) as f64 };
        let tr = results.methods.iter_mut().find(|method| method.name == "tr").unwrap();
        tr.nodes = (0..count).map(error).collect();
        tr.hours = (0..24).map(error).collect();
        tr.weekdays = (0..7).map(error).collect();
        tr.weekdays[6].predictions = 0;
        results
    }

    #[test]
    fn devices_come_with_their_root_mean_squared_errors_worst_first() {
        let mut results = with_errors(1000);
        results.node_names = (0..1000).map(|node| format!("meter {node}")).collect();
        let bars = device_bars(&results, results.method("tr").unwrap()).unwrap();
        assert_eq!(bars.rows.len(), MOST_DEVICES);
        assert_eq!((bars.rows[0].label.as_str(), bars.rows[0].value), ("meter 999", 999.0));
        assert!(bars.note.contains("25 of 1000") && bars.note.contains("best: 0"), "{}", bars.note);
        assert!(bars.quantity.starts_with("RMSE of tr, in "), "{}", bars.quantity);
        assert!(bars.note.contains("Median RMSE of all devices"), "{}", bars.note);
        results.classes = ["no", "yes"].map(str::to_owned).to_vec();
        let bars = device_bars(&results, results.method("tr").unwrap()).unwrap();
        assert_eq!(bars.quantity, "share of wrong classes of tr");
        assert!(bars.note.contains("Median share of wrong classes of all"), "{}", bars.note);
        let one = with_errors(1);
        assert!(device_bars(&one, one.method("tr").unwrap()).is_none());
    }

    #[test]
    fn hours_and_weekdays_have_names() {
        let results = with_errors(1);
        let tr = results.method("tr").unwrap();
        let hours = hour_bars(&results, tr).unwrap();
        assert_eq!((hours.rows.len(), hours.rows[7].label.as_str()), (24, "07:00"));
        let days = weekday_bars(&results, tr).unwrap();
        assert_eq!(
            (days.rows[0].label.as_str(), days.rows[6].words.as_str()),
            ("Monday", "no predictions")
        );
        let none = run(&[("tr", 1.0)]);
        assert!(hour_bars(&none, none.method("tr").unwrap()).is_none());
        assert!(weekday_bars(&none, none.method("tr").unwrap()).is_none());
    }
}
