//! A finished run as one JSON document with its curves, bit for bit. The summary has no
//! curves, and JSON has neither NaN nor infinity: these are listed separately, each by its place.

use serde::{Deserialize, Serialize};

use super::{
    ClassResult, Curve, ImportanceResult, IntervalResult, MethodResult, Moments, Regret, Results,
    SampledPredictions, TargetError,
};

/// Version of this layout.
const STORED_LAYOUT: u32 = 4;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    layout: u32,
    results: Results,
    /// One per method, in their order.
    curves: Vec<Curve>,
    /// One per method, in their order.
    sampled: Vec<Option<SampledPredictions>>,
    /// Numbers that are not finite (0 stands in their place), by their place in the order of
    /// [`numbers`].
    not_finite: Vec<(usize, NotFinite)>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum NotFinite {
    Nan,
    Infinity,
    MinusInfinity,
}

/// Why a stored run can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// Not JSON, or not of this shape.
    #[error("not a stored run: {0}")]
    Json(#[from] serde_json::Error),
    /// Written by another version of the program.
    #[error("a stored run of layout {found}, but this program reads layout {STORED_LAYOUT}")]
    Layout {
        /// What it says.
        found: u32,
    },
    /// Parts that don't belong together.
    #[error("a stored run that can't be: {place} has {what} = {found}, but must be {bound}")]
    Contradiction {
        /// Which method, or the run itself.
        place: String,
        /// Which of its parts.
        what: &'static str,
        /// The stored number.
        found: usize,
        /// What it would have to be.
        bound: String,
    },
}

/// The whole run, curves included. [`from_stored_json`] gives it back bit for bit.
pub fn to_stored_json(results: &Results) -> Result<String, serde_json::Error> {
    let mut results = results.clone();
    let mut not_finite = Vec::new();
    for (place, number) in numbers(&mut results).into_iter().enumerate() {
        let kind = match *number {
            number if number.is_finite() => continue,
            number if number.is_nan() => NotFinite::Nan,
            number if number > 0.0 => NotFinite::Infinity,
            _ => NotFinite::MinusInfinity,
        };
        not_finite.push((place, kind));
        *number = 0.0;
    }
    let (curves, sampled) = results
        .methods
        .iter_mut()
        .map(|method| (std::mem::take(&mut method.curve), method.sampled.take()))
        .unzip();
    let layout = STORED_LAYOUT;
    serde_json::to_string(&Stored { layout, results, curves, sampled, not_finite })
}

/// Reads a run that [`to_stored_json`] wrote. The lengths of all columns are checked.
pub fn from_stored_json(json: &str) -> Result<Results, StoredError> {
    #[derive(Deserialize)]
    struct Head {
        layout: u32,
    }
    let Head { layout } = serde_json::from_str(json)?;
    if layout != STORED_LAYOUT {
        return Err(StoredError::Layout { found: layout });
    }
    let Stored { mut results, curves, sampled, not_finite, .. } = serde_json::from_str(json)?;
    same("the run", "curves", curves.len(), results.methods.len())?;
    same("the run", "sampled", sampled.len(), results.methods.len())?;
    for (method, (curve, sampled)) in
        results.methods.iter_mut().zip(curves.into_iter().zip(sampled))
    {
        method.curve = curve;
        method.sampled = sampled;
    }
    let mut numbers = numbers(&mut results);
    let count = numbers.len();
    for (place, kind) in not_finite {
        let Some(number) = numbers.get_mut(place) else {
            return Err(contradiction("not_finite", "place", place, format!("below {count}")));
        };
        **number = match kind {
            NotFinite::Nan => f64::NAN,
            NotFinite::Infinity => f64::INFINITY,
            NotFinite::MinusInfinity => f64::NEG_INFINITY,
        };
    }
    check(&results)?;
    Ok(results)
}

/// Every number of a run that may not be finite, in a fixed order. Fields are taken apart by name
/// so that none can be forgotten.
fn numbers(results: &mut Results) -> Vec<&mut f64> {
    let mut numbers = vec![&mut results.seconds];
    for method in &mut results.methods {
        let MethodResult {
            name: _,
            kernel: _,
            best: _,
            mse,
            mse_trials,
            mse_last_window,
            mae,
            r2,
            interval,
            nodes,
            hours,
            weekdays,
            // Finite.
            importance: _,
            mean_loss,
            targets,
            classes,
            numbers_up,
            numbers_down,
            bytes_up,
            bytes_down,
            selected,
            votes,
            uploads_accepted,
            uploads_late,
            regret,
            seconds,
            curve,
            // Finite.
            sampled: _,
        } = method;
        let Curve {
            rounds: _,
            mse: mse_course,
            mse_window,
            loss,
            coverage,
            shares,
            regret_rounds: _,
            regret: regrets,
        } = curve;
        numbers.extend([
            numbers_up,
            numbers_down,
            bytes_up,
            bytes_down,
            uploads_accepted,
            uploads_late,
            seconds,
        ]);
        numbers.extend(
            mse_trials.iter_mut().chain(selected).chain(votes).chain(shares.iter_mut().flatten()),
        );
        numbers.extend(r2);
        numbers.extend(
            interval.iter_mut().flat_map(|IntervalResult { coverage, width }| [coverage, width]),
        );
        numbers.extend(nodes.iter_mut().chain(hours).chain(weekdays).map(|part| &mut part.mse));
        for TargetError { target: _, mse, mae, r2 } in targets {
            numbers.extend([mse, mae, r2]);
        }
        let classes = classes.iter_mut().flat_map(
            |ClassResult { accuracy, balanced_accuracy, log_loss, auc, confusion: _ }| {
                [accuracy, balanced_accuracy, log_loss, auc]
            },
        );
        let all = [mse, mean_loss].into_iter().chain(mae).chain(mse_last_window).chain(classes);
        let all =
            all.chain(mse_course).chain(mse_window).chain(loss).chain(coverage).chain(regrets);
        numbers.extend(all.flat_map(|Moments { mean, sd }| [mean, sd]));
        if let Some(Regret { mean, sd, exponent }) = regret {
            numbers.extend([mean, sd].into_iter().chain(exponent));
        }
    }
    numbers
}

/// Figures and tables take columns to be as long as each other and kernels to be in the dictionary.
fn check(results: &Results) -> Result<(), StoredError> {
    let kernels = results.kernels.len();
    let in_dictionary = |place: &str, what, kernel: Option<usize>| match kernel {
        Some(kernel) if !(1..=kernels).contains(&kernel) => {
            Err(contradiction(place, what, kernel, format!("in 1..={kernels}")))
        }
        _ => Ok(()),
    };
    in_dictionary("the run", "best_kernel", results.best_kernel)?;
    for method in &results.methods {
        let place = method.label();
        let same = |what, found, bound| same(&place, what, found, bound);
        let none_or =
            |what, found, bound| if found == 0 { Ok(()) } else { same(what, found, bound) };
        let Curve { rounds, mse, mse_window, loss, coverage, shares, regret_rounds, regret } =
            &method.curve;
        in_dictionary(&place, "kernel", method.kernel)?;
        same("trials", method.mse_trials.len(), results.trials)?;
        none_or("selected", method.selected.len(), kernels)?;
        none_or("votes", method.votes.len(), kernels)?;
        same("mse", mse.len(), rounds.len())?;
        none_or("mse_window", mse_window.len(), rounds.len())?;
        none_or("loss", loss.len(), rounds.len())?;
        none_or("coverage", coverage.len(), rounds.len())?;
        if let Some(ImportanceResult { columns, rounds }) = &method.importance {
            columns
                .iter()
                .try_for_each(|column| same("windows", column.windows.len(), rounds.len()))?;
        }
        if let Some(ClassResult { confusion, .. }) = &method.classes {
            let classes = results.classes.len();
            none_or("rows of confusion", confusion.len(), classes)?;
            confusion.iter().try_for_each(|row| same("confusion", row.len(), classes))?;
        }
        none_or("hours", method.hours.len(), 24)?;
        none_or("weekdays", method.weekdays.len(), 7)?;
        none_or("shares", shares.len(), rounds.len())?;
        shares.iter().try_for_each(|shares| same("shares of kernels", shares.len(), kernels))?;
        same("regret", regret.len(), regret_rounds.len())?;
        for rounds in [rounds, regret_rounds] {
            if let Some(place_of_fall) = rounds.windows(2).position(|pair| pair[0] >= pair[1]) {
                return Err(contradiction(
                    &place,
                    "falling round",
                    place_of_fall + 1,
                    "absent".into(),
                ));
            }
        }
    }
    Ok(())
}

fn same(place: &str, what: &'static str, found: usize, bound: usize) -> Result<(), StoredError> {
    if found == bound { Ok(()) } else { Err(contradiction(place, what, found, bound.to_string())) }
}

fn contradiction(place: &str, what: &'static str, found: usize, bound: String) -> StoredError {
    StoredError::Contradiction { place: place.to_owned(), what, found, bound }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::summary_json;
    use crate::testing;

    /// All numbers as bits: NaN is equal to itself, and 0 is not −0.
    fn bits(results: &Results) -> Vec<u64> {
        numbers(&mut results.clone()).into_iter().map(|number| number.to_bits()).collect()
    }

    /// Numbers whose shortest digits a careless reader gets wrong, and those that JSON can't hold.
    fn awkward() -> Results {
        let mut results = testing::results(3, 40, 2);
        results.seed = u64::MAX;
        results.methods[0].selected = vec![0.1, 0.2, 0.7];
        let mut state = 1u64;
        for number in numbers(&mut results) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let drawn = f64::from_bits(state);
            *number = if drawn.is_finite() { drawn } else { 1.0 / 3.0 };
        }
        let mk = &mut results.methods[0];
        mk.curve.mse_window[0] = Moments { mean: f64::NAN, sd: f64::NAN };
        mk.curve.mse_window[1] = Moments { mean: f64::INFINITY, sd: -0.0 };
        mk.mse = Moments { mean: f64::NEG_INFINITY, sd: f64::MIN_POSITIVE / 8.0 };
        mk.mse_trials[1] = f64::INFINITY;
        let auc = Moments { mean: f64::NAN, sd: 0.5 };
        mk.classes = Some(ClassResult { auc, ..ClassResult::default() });
        mk.targets = vec![TargetError { r2: f64::NEG_INFINITY, ..TargetError::default() }];
        mk.regret = Some(Regret { mean: f64::NAN, sd: 1.0, exponent: Some(f64::INFINITY) });
        results
    }

    #[test]
    fn a_run_comes_back_bit_for_bit() {
        let results = awkward();
        let again = from_stored_json(&to_stored_json(&results).unwrap()).unwrap();
        assert_eq!(bits(&again), bits(&results));
        let plain = testing::results(11, 300, 5);
        assert_eq!(from_stored_json(&to_stored_json(&plain).unwrap()).unwrap(), plain);
        let mut empty = plain;
        empty.methods.clear();
        assert_eq!(from_stored_json(&to_stored_json(&empty).unwrap()).unwrap(), empty);
    }

    #[test]
    fn the_summary_still_leaves_curves_out() {
        let results = awkward();
        let summary = summary_json(&results).unwrap();
        assert!(!summary.contains("curve") && !summary.contains("mse_window"), "{summary}");
        assert_eq!(
            summary_json(&from_stored_json(&to_stored_json(&results).unwrap()).unwrap()).unwrap(),
            summary
        );
    }

    #[test]
    fn a_file_that_contradicts_itself_is_refused() {
        type Break = fn(&mut Results);
        let breaks: [(Break, &str); 10] = [
            (|r| r.best_kernel = Some(4), "the run has best_kernel = 4, but must be in 1..=3"),
            (|r| r.methods[4].kernel = Some(0), "sk 0 has kernel = 0"),
            (|r| r.methods[0].mse_trials.clear(), "mk has trials = 0, but must be 2"),
            (|r| r.methods[0].selected = vec![1.0], "mk has selected = 1, but must be 3"),
            (|r| r.methods[0].curve.mse.truncate(39), "mk has mse = 39, but must be 40"),
            (|r| r.methods[1].curve.loss.truncate(39), "naive has loss = 39"),
            (|r| r.methods[0].curve.shares[7].truncate(2), "mk has shares of kernels = 2"),
            (|r| r.methods[0].curve.regret.truncate(7), "mk has regret = 7, but must be 8"),
            (|r| r.methods[0].curve.rounds.swap(3, 4), "mk has falling round = 4"),
            (
                |r| {
                    testing::add_classes(r, 3);
                    r.classes.truncate(2);
                },
                "mk has rows of confusion = 3, but must be 2",
            ),
        ];
        for (spoil, message) in breaks {
            let mut results = testing::results(3, 40, 2);
            spoil(&mut results);
            let error =
                from_stored_json(&to_stored_json(&results).unwrap()).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn foreign_files_are_refused_without_a_panic() {
        let good = to_stored_json(&awkward()).unwrap();
        for json in ["", "{}", "[]", "{\"layout\":4}", &good[..good.len() / 2]] {
            assert!(matches!(from_stored_json(json), Err(StoredError::Json(_))), "{json}");
        }
        let newer = good.replacen("\"layout\":4", "\"layout\":5", 1);
        assert_eq!(
            from_stored_json(&newer).unwrap_err().to_string(),
            "a stored run of layout 5, but this program reads layout 4"
        );
        let (head, _) = good.split_once("\"not_finite\":").unwrap();
        let beyond = format!("{head}\"not_finite\":[[99999999,\"nan\"]]}}");
        assert!(from_stored_json(&beyond).unwrap_err().to_string().contains("place = 99999999"));
        let (before, after) = good.split_once("\"curves\":[").unwrap();
        let fewer = format!("{before}\"curves\":[],\"sampled\":[],\"not_finite\":[]}}");
        assert!(from_stored_json(&fewer).is_err() && !after.is_empty());
    }
}
