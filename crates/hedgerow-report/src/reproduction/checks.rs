//! Whether a claim of the paper holds in a run: the verdict and the numbers behind it.

use super::claims::Verdict;
use super::measured::{
    NEARLY_ALL, Selection, late_ratio, mse_ratio, ratio, second_single, selection, worst_single,
};
use crate::figures::number::{fixed, listed, percent, significant, times};
use crate::figures::series::{best_single, favourite};
use hedgerow_lab::results::{MethodResult, Results};

/// One error is close to another if it is at most this many times as large.
pub(super) const CLOSE_RATIO: f64 = 1.35;
/// The naive extension sends P times as much as `mk`, give or take a weight or a vote.
const NEARLY_P: f64 = 0.95;
/// A selection has converged if it holds over this last share of the rounds; a few rounds may be
/// chance.
pub(super) const HELD_SHARE: f64 = 0.1;
/// A regret that grows faster than t to this power is not clearly sublinear.
pub(super) const SUBLINEAR: f64 = 0.95;
/// One kernel is much worse than another if its error is this many times as large.
pub(super) const MUCH_WORSE: f64 = 2.0;

/// What a reader has to know of the criteria.
pub(super) const ABOUT_CRITERIA: &str = "The paper names no thresholds: all of these are ours, and verdicts near them would change with them. That of (c) \
     was made stricter after a first look at the results: without \"throughout\", Air quality counted as converged for reaching the \
     share two rounds before its end.";

pub(super) fn close_to_best(results: &Results) -> (Verdict, String) {
    let (mk, best) = (results.method("mk"), best_single(results));
    let (Some(found), Some(best_kernel)) = (mse_ratio(mk, best), best.map(MethodResult::label))
    else {
        return unknown("An error of mk or of sk is missing or not finite");
    };
    let mut why =
        vec![format!("mk has {} times the MSE of the best, {best_kernel}.", times(found))];
    let close = found <= CLOSE_RATIO;
    if !close {
        why.extend(reasons(results, mk, best));
    }
    (Verdict::of(close), why.join(" "))
}

/// What was measured about the gap: whether the best kernel was used, whether the gap is one of the
/// search at the start, and whether kernels are so alike that the choice is hard.
fn reasons(
    results: &Results,
    mk: Option<&MethodResult>,
    best: Option<&MethodResult>,
) -> Vec<String> {
    let mut why = Vec::new();
    let kernel = best.and_then(|best| best.kernel);
    let share = kernel.and_then(|kernel| mk?.selected.get(kernel.checked_sub(1)?));
    why.extend(
        share.map(|share| format!("The best kernel made {} of its predictions.", percent(*share))),
    );
    why.extend(late_ratio(mk, best).map(|late| {
        let so = if late <= CLOSE_RATIO {
            "the gap was made before them"
        } else {
            "the gap is still there"
        };
        format!("In the last {} rounds it is at {} times: {so}.", results.window, times(late))
    }));
    let second = mse_ratio(second_single(results), best);
    let worst = mse_ratio(worst_single(results), best);
    if let (Some(second), Some(worst)) = (second, worst) {
        let (second, worst) = (times(second), times(worst));
        why.push(format!(
            "Between kernels: the second best has {second} times the MSE of the best, the worst {worst} times."
        ));
    }
    why
}

pub(super) fn close_to_naive(results: &Results) -> (Verdict, String) {
    let (Some(mk), Some(naive)) = (results.method("mk"), results.method("naive")) else {
        return unknown("One of mk and naive was not run");
    };
    let (Some(found), Some(sent)) =
        (mse_ratio(Some(mk), Some(naive)), ratio(naive.numbers_up, mk.numbers_up))
    else {
        return unknown("An error or a cost of mk or of naive is not a finite number");
    };
    let kernels = results.kernels.len();
    let cheap = sent >= NEARLY_P * kernels as f64;
    let why = format!(
        "mk has {} times the MSE of naive for {} numbers up per node and round instead of {}: 1/{} of them, and P is {kernels}.",
        times(found),
        significant(mk.numbers_up, 3),
        significant(naive.numbers_up, 3),
        times(sent)
    );
    (Verdict::of(found <= CLOSE_RATIO && cheap), why)
}

pub(super) fn converges(results: &Results) -> (Verdict, String) {
    let Some(Selection { best, at_end, late, from_round }) = selection(results) else {
        return unknown("The course of mk's selection or the best kernel is missing");
    };
    let at_end = percent(at_end);
    let share = percent(NEARLY_ALL);
    let of_all = fixed(results.rounds as f64, 0);
    let since = from_round.map(|round| (fixed(round as f64, 0), round as f64));
    let mut why = match since {
        Some((round, t)) if t <= (1.0 - HELD_SHARE) * results.rounds as f64 => {
            let why = format!(
                "From round {round} of {of_all} on at least {share} of trials select kernel {best}; at the end {at_end}."
            );
            return (Verdict::Agrees, why);
        }
        Some((round, _)) => format!("Only from round {round} of {of_all} on {share} of trials: "),
        None => "Never for good: ".to_owned(),
    };
    why += &format!(
        "at the end {at_end} of trials select kernel {best}, over the last {} rounds {}.",
        results.window,
        percent(late)
    );
    let other = results.method("mk").and_then(favourite).filter(|(kernel, _)| *kernel != best);
    if let Some((kernel, share)) = other {
        why +=
            &format!(" Most often mk selects kernel {kernel} ({} of predictions)", percent(share));
        let single = results.methods.iter().find(|m| m.name == "sk" && m.kernel == Some(kernel));
        why += &match mse_ratio(single, best_single(results)) {
            Some(ratio) => format!(", whose sk has {} times the MSE of the best.", times(ratio)),
            None => ".".to_owned(),
        };
    } else if let Some(second) = mse_ratio(second_single(results), best_single(results)) {
        why += &format!(" The second best kernel has {} times the MSE of the best.", times(second));
    }
    (Verdict::Disagrees, why)
}

pub(super) fn sublinear(results: &Results) -> (Verdict, String) {
    let Some(regret) = results.method("mk").and_then(|mk| mk.regret.as_ref()) else {
        return unknown("The regret was not measured");
    };
    match regret.exponent.filter(|exponent| exponent.is_finite()) {
        Some(exponent) => (
            Verdict::of(exponent <= SUBLINEAR),
            format!("The regret of mk grew as t^{exponent:.2}."),
        ),
        None if regret.mean <= 0.0 => (
            Verdict::Agrees,
            format!(
                "mk did better than the best fixed function: its regret is {}.",
                significant(regret.mean, 3)
            ),
        ),
        None => unknown(
            "The regret was not positive throughout the last two decades, so it has no exponent",
        ),
    }
}

pub(super) fn choice_matters(results: &Results) -> (Verdict, String) {
    let (best, worst) = (best_single(results), worst_single(results));
    let (Some(found), Some(best), Some(worst)) = (mse_ratio(worst, best), best, worst) else {
        return unknown("The errors of sk are missing or not finite");
    };
    let why = format!(
        "The worst, {}, has {} times the MSE of {}.",
        worst.label(),
        times(found),
        best.label()
    );
    (Verdict::of(found >= MUCH_WORSE), why)
}

/// None if the run has no rule that learns nothing.
pub(super) fn beats_trivial(results: &Results) -> Option<(Verdict, String)> {
    let mut rules = results.methods.iter().filter(|method| method.is_trivial()).peekable();
    rules.peek()?;
    let against: Option<Vec<(String, f64)>> = rules
        .map(|rule| Some((rule.label(), mse_ratio(results.method("mk"), Some(rule))?)))
        .collect();
    let Some(against) = against else { return Some(unknown("An error is missing or not finite")) };
    let wins = against.iter().all(|(_, ratio)| *ratio < 1.0);
    let told =
        against.iter().map(|(rule, ratio)| format!("{} times the MSE of {rule}", times(*ratio)));
    Some((Verdict::of(wins), format!("mk has {}.", listed(&told.collect::<Vec<_>>()))))
}

fn unknown(why: &str) -> (Verdict, String) {
    (Verdict::Unknown, format!("{why}."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::results::{Moments, Regret};
    use hedgerow_lab::testing::results;

    fn sets_mse(results: &mut Results, method: usize, mean: f64) {
        results.methods[method].mse.mean = mean;
    }

    #[test]
    fn a_gap_to_the_best_kernel_is_explained_by_what_was_measured() {
        let mut results = results(3, 50, 4);
        assert_eq!(close_to_best(&results).0, Verdict::Agrees);
        sets_mse(&mut results, 0, 0.0081);
        assert_eq!(close_to_best(&results).0, Verdict::Agrees, "1.35 times is still close");
        sets_mse(&mut results, 0, 0.012);
        results.methods[0].selected = vec![0.5, 0.25, 0.25];
        let (verdict, why) = close_to_best(&results);
        assert_eq!(verdict, Verdict::Disagrees);
        for part in [
            "mk has 2.00 times the MSE of the best, sk 2.",
            "The best kernel made 25% of its predictions.",
            "In the last 100 rounds it is at 1.10 times: the gap was made before them.",
            "the second best has 2.00 times the MSE of the best, the worst 2.00 times.",
        ] {
            assert!(why.contains(part), "{why}");
        }
        results.methods[0].mse_last_window = Some(Moments { mean: 0.01, sd: 0.0 });
        assert!(close_to_best(&results).1.contains("2.00 times: the gap is still there."));
    }

    #[test]
    fn nearness_to_naive_needs_both_the_error_and_the_saving() {
        let mut results = results(11, 50, 4);
        let (verdict, why) = close_to_naive(&results);
        assert_eq!(verdict, Verdict::Agrees);
        assert!(why.contains("1.05 times the MSE of naive for 99.0 numbers up"), "{why}");
        assert!(why.contains("instead of 1089: 1/11.0 of them, and P is 11."), "{why}");
        results.methods[1].numbers_up = 500.0;
        assert_eq!(close_to_naive(&results).0, Verdict::Disagrees);
        results.methods[1].numbers_up = 1089.0;
        sets_mse(&mut results, 0, 0.02);
        assert_eq!(close_to_naive(&results).0, Verdict::Disagrees);
        results.methods[0].numbers_up = 0.0;
        assert_eq!(close_to_naive(&results).0, Verdict::Unknown);
    }

    #[test]
    fn convergence_is_told_with_its_round_or_with_what_is_selected_instead() {
        let mut results = results(3, 50, 4);
        let (verdict, why) = converges(&results);
        assert_eq!(verdict, Verdict::Agrees);
        assert_eq!(
            why,
            "From round 7 of 50 on at least 90% of trials select kernel 2; at the end 99%."
        );
        results.methods[0]
            .curve
            .shares
            .iter_mut()
            .for_each(|shares| shares.copy_from_slice(&[0.0, 0.2, 0.8]));
        results.methods[0].selected = vec![0.0, 0.2, 0.8];
        let (verdict, why) = converges(&results);
        assert_eq!(verdict, Verdict::Disagrees);
        assert_eq!(
            why,
            "Never for good: at the end 20% of trials select kernel 2, over the last 100 rounds 20%. Most often mk selects \
             kernel 3 (80% of predictions), whose sk has 2.00 times the MSE of the best."
        );
    }

    #[test]
    fn regret_is_judged_by_its_growth() {
        let mut results = results(3, 50, 4);
        assert_eq!(
            sublinear(&results),
            (Verdict::Agrees, "The regret of mk grew as t^0.55.".into())
        );
        let mut with = |regret| {
            results.methods[0].regret = regret;
            sublinear(&results)
        };
        let regret = |mean, exponent| Some(Regret { mean, sd: 0.0, exponent });
        assert_eq!(with(regret(5.0, Some(1.02))).0, Verdict::Disagrees);
        assert_eq!(with(regret(-5.0, None)).0, Verdict::Agrees);
        assert_eq!(with(regret(5.0, None)).0, Verdict::Unknown);
        assert_eq!(with(None).0, Verdict::Unknown);
    }

    #[test]
    fn a_choice_between_equals_does_not_matter() {
        let mut results = results(3, 50, 4);
        assert_eq!(
            choice_matters(&results),
            (Verdict::Agrees, "The worst, sk 3, has 2.00 times the MSE of sk 2.".into())
        );
        for method in &mut results.methods {
            method.mse.mean = 0.006;
        }
        assert_eq!(choice_matters(&results).0, Verdict::Disagrees);
    }

    #[test]
    fn what_diverged_or_was_not_run_decides_nothing() {
        let mut results = results(3, 50, 4);
        sets_mse(&mut results, 0, f64::INFINITY);
        assert_eq!([close_to_best(&results).0, close_to_naive(&results).0], [Verdict::Unknown; 2]);
        results.methods.clear();
        for check in [close_to_best, close_to_naive, converges, sublinear, choice_matters] {
            let (verdict, why) = check(&results);
            assert!(verdict == Verdict::Unknown && why.ends_with('.') && why.len() > 10, "{why}");
        }
    }
}
