//! How methods react to changes of the data: errors before and after, and rounds until recovery.

pub use hedgerow_data::streams::Change;

use crate::results::{MethodResult, Results};
use hedgerow_data::streams;

/// A method has recovered when its windowed error is at most this many times the error before the
/// change.
pub const RECOVERED_RATIO: f64 = 1.5;

/// The changes of a run's data; empty if unknown. They are known for a generated stream whose
/// samples are dealt in turn, the same number in every round.
pub fn changes(results: &Results) -> Vec<Change> {
    let setting = |key: &str| results.settings.pointer(key);
    let is = |key: &str, expected: f64| {
        setting(key).and_then(serde_json::Value::as_f64).is_none_or(|value| value == expected)
    };
    let arrivals =
        setting("/participation/arrivals").and_then(serde_json::Value::as_str).unwrap_or("one");
    let in_turn = results.partition == "round-robin"
        && (arrivals == "one" || arrivals.starts_with("fixed:"))
        && is("/participation/join_within", 0.0)
        && is("/data/lags", 0.0)
        && is("/data/horizon", 1.0);
    match streams::find(&results.data.name) {
        Some(stream) if in_turn && results.data.provenance == "generated" => {
            stream.changes(results.rounds)
        }
        _ => Vec::new(),
    }
}

/// The windowed errors of a method around one change, averaged over trials.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Passage {
    /// Over the last window before it.
    pub before: f64,
    /// Over the first whole window after it was complete; none if the next change or the end comes
    /// first.
    pub after: Option<f64>,
    /// Rounds from its completion until the windowed error was at most [`RECOVERED_RATIO`] times
    /// `before`; 0 if it never was above, or was back by then. None if it wasn't before the next
    /// change or the end.
    pub back: Option<u64>,
}

/// The errors of a method around each change of the data; changes without a windowed error before
/// them are left out.
pub fn passages(results: &Results, method: &MethodResult) -> Vec<Passage> {
    let changes = changes(results);
    let ends = changes.iter().skip(1).map(|next| next.after).chain([results.rounds as u64]);
    let changes = changes.iter().zip(ends);
    changes
        .filter_map(|(change, end)| passage(method, *change, end, results.window as u64))
        .collect()
}

fn passage(method: &MethodResult, change: Change, end: u64, window: u64) -> Option<Passage> {
    let points = || {
        let values = method.curve.rounds.iter().zip(&method.curve.mse_window);
        values.map(|(round, value)| (*round, value.mean)).filter(|(_, mean)| mean.is_finite())
    };
    let (_, before) = points().take_while(|(round, _)| *round <= change.after).last()?;
    let mut later = points().filter(|(round, _)| change.after < *round && *round <= end);
    let whole = change.complete.saturating_add(window.saturating_sub(1));
    let after = later.clone().find(|(round, _)| *round >= whole).map(|(_, mean)| mean);
    // The window of the first rounds after a change contains rounds before it. So the error must
    // rise first.
    let back = match later.find(|(_, mean)| *mean > RECOVERED_RATIO * before) {
        None => Some(0),
        Some(gone) => std::iter::once(gone)
            .chain(later)
            .find(|(round, mean)| *round >= change.complete && *mean <= RECOVERED_RATIO * before)
            .map(|(round, _)| round - change.complete),
    };
    Some(Passage { before, after, back })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Moments;
    use crate::settings::Settings;
    use crate::testing::run_on_stream as run;
    use hedgerow_config::Layer;

    fn first(results: &Results) -> Vec<Passage> {
        passages(results, &results.methods[0])
    }

    #[test]
    fn errors_before_and_after_and_the_way_back() {
        // Up for 40 rounds after a change at 100, with the old rounds fading out of the window at
        // first.
        let course = |round| match round {
            ..=102 => 1.0,
            103..=140 => 9.0,
            _ => 1.2,
        };
        let run = run("drift-flip", 200, 10, course);
        assert_eq!(first(&run), [Passage { before: 1.0, after: Some(9.0), back: Some(40) }]);
    }

    #[test]
    fn some_never_leave_and_some_never_return() {
        let passage =
            |after: f64| first(&run("drift", 200, 10, |t| if t <= 100 { 1.0 } else { after }))[0];
        assert_eq!(passage(1.5), Passage { before: 1.0, after: Some(1.5), back: Some(0) });
        assert_eq!(passage(1.6), Passage { before: 1.0, after: Some(1.6), back: None });
    }

    #[test]
    fn the_first_window_after_a_change_is_whole() {
        // The windowed error itself, of squared errors that are 0 before and 1 for ten rounds
        // after.
        let sharp = |t: u64| (10.0 - t.abs_diff(110).min(10) as f64) / 10.0 + 0.01;
        assert_eq!(first(&run("drift", 200, 10, sharp))[0].after, Some(1.01));
        // None fits before the end.
        assert_eq!(first(&run("drift", 16, 10, sharp))[0].after, None);
    }

    #[test]
    fn a_gradual_change_is_over_when_it_is_complete() {
        // From 100 to 200 of 300 rounds; a short relief on the way doesn't count.
        let course = |round| match round {
            ..=110 | 150..=160 | 231.. => 1.0,
            _ => 2.0,
        };
        let run = run("drift-gradual", 300, 10, course);
        assert_eq!(changes(&run), [Change { after: 100, complete: 201 }]);
        assert_eq!(first(&run), [Passage { before: 1.0, after: Some(2.0), back: Some(30) }]);
    }

    #[test]
    fn every_change_is_over_before_the_next_begins() {
        // Back within 20 rounds of each change but the third, and not within 100 of that.
        let course = |round: u64| match (round - 1) / 100 {
            0 => 1.0,
            3 => 5.0,
            _ if (round - 1) % 100 < 20 => 5.0,
            _ => 1.0,
        };
        let run = run("drift-recurring", 600, 10, course);
        let back: Vec<Option<u64>> = first(&run).iter().map(|passage| passage.back).collect();
        // After the third the error before is already high.
        assert_eq!(back, [Some(20), Some(20), None, Some(0), Some(20)]);
    }

    #[test]
    fn changes_are_known_only_where_rounds_are_those_of_the_stream() {
        let plain = run("drift", 200, 10, |_| 1.0);
        assert_eq!(changes(&plain), [Change { after: 100, complete: 101 }]);
        let with = |change: &dyn Fn(&mut Results)| {
            let mut run = plain.clone();
            change(&mut run);
            changes(&run).len()
        };
        assert_eq!(with(&|run| run.partition = "blocks".into()), 0);
        assert_eq!(with(&|run| run.data.provenance = String::new()), 0);
        assert_eq!(with(&|run| run.data.name = "friedman".into()), 0);
        assert_eq!(with(&|run| run.data.name = "air-quality".into()), 0);
        for (section, key, value, known) in [
            ("participation", "arrivals", serde_json::json!("fixed:3"), 1),
            ("participation", "arrivals", serde_json::json!("poisson:1"), 0),
            ("participation", "join_within", serde_json::json!(0.5), 0),
            ("participation", "dropout", serde_json::json!(0.5), 1),
            ("data", "lags", serde_json::json!(2), 0),
            ("data", "horizon", serde_json::json!(1), 1),
        ] {
            let settings = serde_json::json!({ section: { key: value } });
            assert_eq!(with(&|run| run.settings = settings.clone()), known, "{settings}");
        }
    }

    #[test]
    fn the_experiment_is_one_of_streams_that_change() {
        let plan: toml::Table = toml::from_str(include_str!("../experiments/drift.toml")).unwrap();
        let names = plan["data"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
        let (streams, others): (Vec<&str>, Vec<&str>) =
            names.partition(|name| streams::find(name).is_some());
        assert_eq!(others, ["air-quality"]);
        for name in &streams {
            let layer = Layer::table("experiments", plan["settings"].as_table().unwrap().clone());
            let settings = Settings::load(&[layer, Layer::value("", "data.name", *name)]).unwrap();
            // Room for a window between changes.
            let changes = streams::find(name).unwrap().changes(settings.rounds.unwrap());
            let gaps = changes.windows(2).map(|pair| pair[1].after - pair[0].complete);
            assert!(
                !changes.is_empty()
                    && gaps.min().is_none_or(|gap| gap > 4 * settings.window as u64)
            );
        }
        assert_eq!(streams.len(), 4);
    }

    #[test]
    fn gaps_and_missing_courses_are_no_trouble() {
        let mut run = run("drift-flip", 200, 10, |round| if round <= 100 { 1.0 } else { 9.0 });
        run.methods[0].curve.mse_window[..100].fill(Moments { mean: f64::NAN, sd: 0.0 });
        run.methods[1].curve.mse_window.clear();
        run.methods[2].curve.rounds.clear();
        for method in &run.methods[..3] {
            assert!(passages(&run, method).is_empty());
        }
    }
}
