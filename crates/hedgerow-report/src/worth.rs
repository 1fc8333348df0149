//! Whether federating pays, in a sentence.

use hedgerow_lab::compare::{Cell, Comparison, geometric_mean};
use hedgerow_lab::measure::Measure;
use hedgerow_lab::results::Results;
use hedgerow_lab::settings::Scope;
use hedgerow_lab::worth::Worth;

use crate::figures::number::significant;

/// Changes of less than this share are called none.
const NO_CHANGE: f64 = 0.005;

/// What federating changes, compared with each device alone and with all data in one place; none if
/// the run doesn't say.
pub fn sentence(results: &Results) -> Option<String> {
    let Some(worth) = Worth::of(results) else {
        let would_tell = |left: &String| left.contains(Scope::Alone.suffix());
        let is_left_out = results.left_out.iter().any(would_tell);
        return is_left_out.then(|| {
            "Whether federating pays can't be said: the methods that tell it were left out."
                .to_owned()
        });
    };
    let what = match Measure::of(results) {
        Measure::Mse => "the error",
        Measure::ErrorRate => "the share of wrong classes",
        Measure::Loss => "the loss",
    };
    let Worth { method, ratio, interval, pooled, trivial } = worth;
    let change_by = change(ratio);
    let is_unsure = !matches!(change_by, Change::None)
        && interval.is_some_and(|(low, high)| low < 1.0 && high > 1.0);
    let mut text = match change_by {
        Change::None => format!("Federating ({method}) leaves {what} as it is"),
        Change::Lower(by) => format!("Federating ({method}) lowers {what} by {by}"),
        Change::Raise(by) => format!("Federating ({method}) raises {what} by {by}"),
    };
    if let Some((low, high)) = interval {
        text += &format!(" ({})", range(low, high));
    }
    text += " compared with each device alone";
    if is_unsure {
        text += ", which may be chance";
    }
    text += &in_one_place(pooled);
    text.push('.');
    if let Some((name, error)) = trivial.filter(|(_, error)| *error < ratio.min(1.0)) {
        let times = significant(ratio / error, 3);
        text += &format!(
            " But {name} needs no learning and has less error than both: {method} has {times} times its error."
        );
    }
    Some(text)
}

/// What federating changes on average over the runs of a grid, and in the best and worst of them.
pub(crate) fn of_grid(comparison: &Comparison) -> Option<String> {
    let all: Vec<(&Cell, Worth)> = comparison
        .found()
        .filter_map(|(cell, results, _)| Some((cell, Worth::of(results)?)))
        .collect();
    let (_, first) = all.first()?;
    let same: Vec<&(&Cell, Worth)> =
        all.iter().filter(|(_, worth)| worth.method == first.method).collect();
    let mean = |of: &dyn Fn(&Worth) -> Option<f64>| {
        let ratios: Option<Vec<f64>> = same.iter().map(|(_, worth)| of(worth)).collect();
        geometric_mean(&ratios?)
    };
    let ratio = mean(&|worth| Some(worth.ratio))?;
    let by_ratio = |a: &&&(&Cell, Worth), b: &&&(&Cell, Worth)| a.1.ratio.total_cmp(&b.1.ratio);
    let ends = [same.iter().min_by(by_ratio)?, same.iter().max_by(by_ratio)?];
    let [best, worst] = ends.map(|(cell, worth)| {
        let percent = 100.0 * (worth.ratio - 1.0);
        let side = if percent > 0.0 { "higher" } else { "lower" };
        format!("{:.0}% {side} on {}, {}", percent.abs(), cell.title, cell.case())
    });
    let method = &first.method;
    let change = match change(ratio) {
        Change::None => "leaves the error as it is".to_owned(),
        Change::Lower(by) => format!("lowers the error by {by}"),
        Change::Raise(by) => format!("raises the error by {by}"),
    };
    Some(format!(
        "Federating ({method}) {change} on average over {} runs (from {best} to {worst}) compared \
         with each device alone{}.",
        same.len(),
        in_one_place(mean(&|worth| worth.pooled))
    ))
}

/// What one model of all data would change, as the end of a sentence.
fn in_one_place(pooled: Option<f64>) -> String {
    let Some(pooled) = pooled else { return String::new() };
    let change = match change(pooled) {
        Change::None => " would not change it".to_owned(),
        Change::Lower(by) => format!(" would lower it by {by}"),
        Change::Raise(by) => format!(", which isn't told the device, would raise it by {by}"),
    };
    format!("; one model of all data in one place{change}")
}

enum Change {
    None,
    Lower(String),
    Raise(String),
}

fn change(ratio: f64) -> Change {
    match ratio {
        ratio if (ratio - 1.0).abs() < NO_CHANGE => Change::None,
        ratio if ratio < 1.0 => Change::Lower(share(1.0 - ratio)),
        ratio if ratio < 10.0 => Change::Raise(share(ratio - 1.0)),
        ratio => Change::Raise(format!("a factor of {}", significant(ratio, 2))),
    }
}

/// Percent, with a digit more where most of the error goes.
fn share(share: f64) -> String {
    let percent = 100.0 * share;
    if (99.0..100.0).contains(&percent) {
        format!("{percent:.1}%")
    } else {
        format!("{percent:.0}%")
    }
}

/// The ends of an interval for a ratio, as changes in percent, the smaller first.
fn range(low: f64, high: f64) -> String {
    let percent = |ratio: f64| format!("{:.0}", 100.0 * (1.0 - ratio).abs());
    match (low < 1.0, high > 1.0) {
        (true, true) => format!("{}% lower to {}% higher", percent(low), percent(high)),
        (true, false) => format!("{} to {}%", percent(high), percent(low)),
        (false, _) => format!("{} to {}%", percent(low), percent(high)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::results::SubsetError;
    use hedgerow_lab::testing::run;

    fn said(levels: &[(&str, f64)]) -> String {
        sentence(&run(levels)).unwrap_or_default()
    }

    #[test]
    fn gains_and_losses_are_said() {
        assert_eq!(
            said(&[("tr", 0.87), ("tr+alone", 1.0), ("tr+pooled", 0.79)]),
            "Federating (tr) lowers the error by 13% compared with each device alone; \
             one model of all data in one place would lower it by 21%."
        );
        assert_eq!(
            said(&[("tr", 3.26), ("tr+alone", 0.68)]),
            "Federating (tr) raises the error by 379% compared with each device alone."
        );
        assert_eq!(
            said(&[("tr", 1.001), ("tr+alone", 1.0), ("tr+pooled", 25.0)]),
            "Federating (tr) leaves the error as it is compared with each device alone; \
             one model of all data in one place, which isn't told the device, would raise it by a \
             factor of 25."
        );
        assert_eq!(said(&[("tr", 1.0), ("mk", 2.0)]), "");
    }

    #[test]
    fn methods_that_were_left_out_are_missed() {
        let mut results = run(&[("mk", 1.0)]);
        results.left_out = vec!["tr, tr+alone (too few numbers)".to_owned()];
        assert!(sentence(&results).unwrap().contains("can't be said"));
    }

    #[test]
    fn a_grid_has_the_mean_and_the_ends() {
        let levels = |tr: f64| run(&[("tr", tr), ("tr+alone", 1.0), ("tr+pooled", 0.25)]);
        let cell = |name: &str, tr| Cell::new(name, name, "blocks", Some(levels(tr)));
        let mut cells = vec![cell("a", 0.5), cell("b", 1.125)];
        cells.push(Cell::new("c", "c", "blocks", None));
        cells.push(Cell::new("d", "d", "blocks", Some(run(&[("mk", 1.0)]))));
        let partition = &cells[0].partition;
        assert_eq!(
            of_grid(&Comparison::new(cells.clone(), "mk")).unwrap(),
            format!(
                "Federating (tr) lowers the error by 25% on average over 2 runs (from 50% lower \
                 on a, {partition} to 12% higher on b, {partition}) compared with each device \
                 alone; one model of all data in one place would lower it by 75%."
            )
        );
        assert_eq!(of_grid(&Comparison::new(cells[2..].to_vec(), "mk")), None);
    }

    #[test]
    fn a_trivial_forecast_that_wins_is_named() {
        let text = said(&[("tr", 0.9), ("tr+alone", 1.0), ("last", 0.3), ("mean", 2.0)]);
        assert!(
            text.ends_with(
                "But last needs no learning and has less error than both: tr has 3.00 times its error."
            ),
            "{text}"
        );
        assert!(!said(&[("tr", 0.9), ("tr+alone", 1.0), ("last", 0.95)]).contains("But"));
    }

    #[test]
    fn devices_that_disagree_make_the_answer_unsure() {
        let mut results = run(&[("tr", 0.95), ("tr+alone", 1.0)]);
        let mut give = |name: &str, errors: [f64; 4]| {
            let method = results.methods.iter_mut().find(|method| method.name == name).unwrap();
            method.nodes = errors.map(|mse| SubsetError { predictions: 100, mse }).to_vec();
        };
        give("tr+alone", [1.0, 1.0, 1.0, 1.0]);
        give("tr", [0.2, 1.8, 0.3, 1.5]);
        let text = sentence(&results).unwrap();
        assert!(text.contains("% lower to ") && text.contains("which may be chance"), "{text}");
    }
}
