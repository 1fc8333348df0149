//! What the numbers amount to, in a paragraph that says no more than they do.

use crate::figures::number::{percent, significant, with_spread};
use crate::figures::{data_name, series};
use crate::results::{MethodResult, Moments, Results};

/// Plain sentences about `mk`, or about the method that stands in its place.
pub(super) fn verdict(results: &Results) -> String {
    let Some(subject) = subject(results) else {
        return "No method was run.".to_owned();
    };
    let name = subject.label();
    if !subject.mse.mean.is_finite() {
        return format!("On {}, {name} diverged: its error is not a finite number.", data_name(results));
    }
    let sentences = [
        Some(against_best_single(results, subject)),
        against_naive(results, subject),
        lowest(results, subject),
        against_hindsight(results, subject),
        best_kernel(results, subject),
        growth(subject),
        (results.trials == 1).then(|| "With a single trial, nothing is known about the spread.".to_owned()),
    ];
    sentences.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// `mk`, else the first method that a federation could run, else the one with the least error.
fn subject(results: &Results) -> Option<&MethodResult> {
    let comparators = ["sk", "hindsight", "central", "central-batch", "local", "naive"];
    let methods = || results.methods.iter();
    methods()
        .find(|method| method.name == "mk")
        .or_else(|| methods().find(|method| !comparators.contains(&method.name.as_str())))
        .or_else(|| {
            methods().filter(|m| m.name != "hindsight").min_by(|a, b| a.mse.mean.total_cmp(&b.mse.mean))
        })
        .or_else(|| methods().next())
}

/// How two errors compare.
enum Comparison {
    Level,
    /// So many times the other.
    Higher(f64),
    /// By this share of the other.
    Lower(f64),
}

/// None if one of them is not a positive number.
fn compare(mine: Moments, other: Moments, trials: usize) -> Option<Comparison> {
    let ratio = mine.mean / other.mean;
    if !ratio.is_finite() || ratio <= 0.0 {
        return None;
    }
    let spread = mine.sd.hypot(other.sd);
    if mine.mean == other.mean || (trials > 1 && (mine.mean - other.mean).abs() <= spread) {
        Some(Comparison::Level)
    } else if ratio > 1.0 {
        Some(Comparison::Higher(ratio))
    } else {
        Some(Comparison::Lower(1.0 - ratio))
    }
}

fn against_best_single(results: &Results, subject: &MethodResult) -> String {
    let reached = format!(
        "On {}, {} reached an MSE of {}",
        data_name(results),
        subject.label(),
        with_spread(subject.mse, results.trials)
    );
    let best = series::best_single(results).filter(|_| subject.name != "sk");
    let Some((best, comparison)) =
        best.and_then(|best| Some((best, compare(subject.mse, best.mse, results.trials)?)))
    else {
        return format!("{reached}.");
    };
    let other =
        format!("the best single kernel ({}: {})", best.label(), with_spread(best.mse, results.trials));
    match comparison {
        Comparison::Level => format!("{reached}, within the spread over trials of that of {other}."),
        Comparison::Higher(ratio) => format!("{reached}, {} times that of {other}.", times(ratio)),
        Comparison::Lower(share) => format!("{reached}, {} less than {other}.", percent(share)),
    }
}

fn against_naive(results: &Results, subject: &MethodResult) -> Option<String> {
    let naive = results.methods.iter().find(|method| method.name == "naive" && subject.name != "naive")?;
    let sent = match naive.numbers_up / subject.numbers_up {
        ratio if !ratio.is_finite() || ratio <= 0.0 => return None,
        ratio if ratio > 1.005 => format!("{} times fewer numbers up than naive", times(ratio)),
        ratio if ratio < 0.995 => format!("{} times more numbers up than naive", times(1.0 / ratio)),
        _ => "as many numbers up as naive".to_owned(),
    };
    let error = match compare(subject.mse, naive.mse, results.trials)? {
        Comparison::Level => "and had the same MSE within the spread over trials".to_owned(),
        Comparison::Higher(ratio) => format!("and had {} times its MSE", times(ratio)),
        Comparison::Lower(share) => format!("and had {} less MSE", percent(share)),
    };
    Some(format!("It sent {sent}, {error}."))
}

/// Who won among the methods that know nothing beforehand.
fn lowest(results: &Results, subject: &MethodResult) -> Option<String> {
    let contenders: Vec<&MethodResult> = results
        .methods
        .iter()
        .filter(|method| method.name != "sk" && method.name != "hindsight" && method.mse.mean.is_finite())
        .collect();
    let lowest = contenders.iter().min_by(|a, b| a.mse.mean.total_cmp(&b.mse.mean))?;
    if contenders.len() < 2 || subject.name == "sk" {
        return None;
    }
    if std::ptr::eq(*lowest, subject) {
        return Some("Of all methods that need no hindsight it had the lowest MSE.".to_owned());
    }
    let kind = match lowest.name.as_str() {
        "central" | "central-batch" => ", with all samples in one place",
        "local" => ", although its nodes learn alone",
        _ => "",
    };
    let error = with_spread(lowest.mse, results.trials);
    Some(format!(
        "Of all methods that need no hindsight {} had the lowest MSE, {error}{kind}.",
        lowest.label()
    ))
}

fn against_hindsight(results: &Results, subject: &MethodResult) -> Option<String> {
    let fixed =
        results.methods.iter().find(|method| method.name == "hindsight" && subject.name != "hindsight")?;
    let ratio = subject.mse.mean / fixed.mse.mean;
    let usable = ratio.is_finite() && ratio > 0.0;
    usable.then(|| {
        format!("The best fixed function, known only in hindsight, has {}.", significant(fixed.mse.mean, 3))
    })
}

fn best_kernel(results: &Results, subject: &MethodResult) -> Option<String> {
    let best = results.best_kernel.filter(|_| subject.kernel.is_none() && results.kernels.len() > 1)?;
    let share = subject.selected.get(best.checked_sub(1)?)?;
    let kernel = series::kernel_label(results, best);
    Some(format!("The best kernel ({kernel}) made {} of its predictions.", percent(*share)))
}

fn growth(subject: &MethodResult) -> Option<String> {
    let exponent = subject.regret.as_ref()?.exponent.filter(|a| a.is_finite())?;
    Some(format!("Its regret grew as t^{exponent:.2}; √t would be t^0.50."))
}

/// A ratio with as many digits as matter: `1.17`, `11.0`, `230`.
fn times(ratio: f64) -> String {
    significant(ratio, 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::sample::results;

    fn with_mk_at(mean: f64, sd: f64) -> String {
        let mut results = results(11, 10, 5);
        results.methods[0].mse = Moments { mean, sd };
        verdict(&results)
    }

    #[test]
    fn a_loss_is_called_a_loss() {
        let verdict = with_mk_at(0.0120, 0.0001);
        assert!(
            verdict.contains("0.0120 ± 0.00010, 2.00 times that of the best single kernel (sk 6: 0.00600"),
            "{verdict}"
        );
        assert!(
            verdict.contains("11.0 times fewer numbers up than naive, and had 1.90 times its MSE"),
            "{verdict}"
        );
        assert!(verdict.contains("central had the lowest MSE"), "{verdict}");
    }

    #[test]
    fn a_win_is_called_a_win() {
        let verdict = with_mk_at(0.003, 0.0001);
        assert!(verdict.contains("50% less than the best single kernel"), "{verdict}");
        assert!(verdict.contains("it had the lowest MSE"), "{verdict}");
    }

    #[test]
    fn a_difference_within_the_spread_is_none() {
        let verdict = with_mk_at(0.0061, 0.001);
        assert!(
            verdict.contains("within the spread over trials of that of the best single kernel"),
            "{verdict}"
        );
    }

    #[test]
    fn one_trial_claims_no_spread() {
        let verdict = verdict(&results(11, 10, 1));
        assert!(verdict.contains("nothing is known about the spread") && !verdict.contains('±'), "{verdict}");
    }

    #[test]
    fn divergence_and_emptiness_are_said() {
        assert!(with_mk_at(f64::INFINITY, 0.0).contains("mk diverged"));
        let mut results = results(3, 5, 2);
        results.methods.clear();
        assert_eq!(verdict(&results), "No method was run.");
    }

    #[test]
    fn without_mk_another_method_is_the_subject() {
        let mut results = results(3, 5, 2);
        results.methods[0].name = "gr".into();
        assert!(verdict(&results).contains("gr reached"));
        results.methods.retain(|method| method.name == "sk");
        assert!(verdict(&results).contains("sk 2 reached"));
    }

    #[test]
    fn nothing_is_said_about_what_is_not_there() {
        let mut results = results(3, 5, 2);
        results.methods.truncate(1);
        results.methods[0].regret = None;
        assert_eq!(verdict(&results), "On twitter, mk reached an MSE of 0.00660 ± 0.00020.");
    }
}
