//! What the numbers amount to, in a paragraph that says no more than they do.

use super::compare::{ErrorComparison, compare};
use crate::figures::number::{percent, significant, times, with_spread};
use crate::figures::series;
use hedgerow::method::{Reference, Role};
use hedgerow_lab::measure::Measure;
use hedgerow_lab::results::{MethodResult, Results};
use hedgerow_lab::settings::Scope;

/// Plain sentences about one method and those that it is compared with.
pub(super) fn verdict(results: &Results) -> String {
    let Some(subject) = results.subject() else {
        return "No method was run.".to_owned();
    };
    let name = subject.label();
    if !Measure::of(results).moments(subject).mean.is_finite() {
        return format!(
            "On {}, {name} diverged: its error is not a finite number.",
            results.data_name()
        );
    }
    let comparisons: Vec<String> =
        [Some(against_best_single(results, subject)), against_all_models(results, subject)]
            .into_iter()
            .flatten()
            .chain(against_trivial(results, subject))
            .chain(lowest(results, subject))
            .collect();
    let rest = [
        meaning_of_level(results, &comparisons),
        against_hindsight(results, subject),
        best_kernel(results, subject),
        growth(subject),
        different_nodes(results),
        (results.trials == 1)
            .then(|| "With a single trial, nothing is known about the spread.".to_owned()),
    ];
    comparisons.into_iter().chain(rest.into_iter().flatten()).collect::<Vec<_>>().join(" ")
}

/// A value of the measure, and of the log loss of classes.
fn value(results: &Results, method: &MethodResult) -> String {
    let value = with_spread(Measure::of(results).moments(method), results.trials);
    match &method.classes {
        Some(classes) => format!("{value}, log loss {}", significant(classes.log_loss.mean, 3)),
        None => value,
    }
}

fn comparison(
    results: &Results,
    mine: &MethodResult,
    other: &MethodResult,
) -> Option<ErrorComparison> {
    compare(Measure::of(results), mine, other, results.trials)
}

fn against_best_single(results: &Results, subject: &MethodResult) -> String {
    let reached = format!(
        "On {}, {} reached {} of {}",
        results.data_name(),
        subject.label(),
        Measure::of(results).one(results),
        value(results, subject)
    );
    let best = series::best_single(results).filter(|_| !subject.info().takes_kernel);
    let Some((best, found)) =
        best.and_then(|best| Some((best, comparison(results, subject, best)?)))
    else {
        return format!("{reached}.");
    };
    let count = found.count("; ", "");
    format!(
        "{reached}, {} that of the best single kernel ({}: {}{count}).",
        found.relation(),
        best.label(),
        value(results, best)
    )
}

/// Error and cost beside the method that uploads all models.
fn against_all_models(results: &Results, subject: &MethodResult) -> Option<String> {
    let uploads_all = |method: &&MethodResult| method.info().uploads_all_models;
    let other = results.methods.iter().find(uploads_all).filter(|_| !uploads_all(&subject))?;
    let name = &other.name;
    let sent = match other.numbers_up / subject.numbers_up {
        ratio if !ratio.is_finite() || ratio <= 0.0 => return None,
        ratio if ratio > 1.005 => format!("{} times fewer numbers up than {name}", times(ratio)),
        ratio if ratio < 0.995 => {
            format!("{} times more numbers up than {name}", times(1.0 / ratio))
        }
        _ => format!("as many numbers up as {name}"),
    };
    let found = comparison(results, subject, other)?;
    let count = found.count(" (", ")");
    let measure = Measure::of(results).name(results);
    Some(format!(
        "It sent {sent}, and its {measure} was {} that of {name}{count}.",
        found.relation()
    ))
}

/// A note for every method that loses to a trivial forecast.
fn against_trivial(results: &Results, subject: &MethodResult) -> Vec<String> {
    let rules =
        results.methods.iter().filter(|method| method.is_trivial() && !subject.is_trivial());
    let sentence = |rule: &MethodResult| {
        let found = comparison(results, subject, rule)?;
        let what = rule.info().summary;
        let count = found.count("; ", "");
        let behind = format!("({}: {}{count})", rule.label(), value(results, rule));
        let measure = Measure::of(results).name(results);
        let relation = found.relation();
        Some(match (found.level, found.is_lower()) {
            (true, _) => {
                format!("Its {measure} was {relation} that of predicting {what} {behind}.")
            }
            (false, true) => {
                format!(
                    "It beats {what}: its {measure} was {relation} that of predicting it {behind}."
                )
            }
            (false, false) => format!(
                "It loses to {what}, which takes no learning: its {measure} was {relation} that of predicting it {behind}."
            ),
        })
    };
    rules.filter_map(sentence).collect()
}

/// The best method that can be chosen, and whether its lead could be chance.
fn lowest(results: &Results, subject: &MethodResult) -> Option<String> {
    let measure = Measure::of(results);
    let error = |method: &MethodResult| measure.moments(method).mean;
    let mut contenders: Vec<&MethodResult> = results
        .methods
        .iter()
        .filter(|method| method.role() != Role::Hindsight && error(method).is_finite())
        .collect();
    contenders.sort_by(|a, b| error(a).total_cmp(&error(b)));
    let [lowest, second, ..] = contenders.as_slice() else { return None };
    if subject.info().takes_kernel {
        return None;
    }
    let won = std::ptr::eq(*lowest, subject);
    let (rival, loser) = if won { (second, *second) } else { (lowest, subject) };
    let close = match comparison(results, subject, rival) {
        Some(found) if found.level => format!(", level with that of {}", loser.label()),
        _ => String::new(),
    };
    let name = measure.name(results);
    if won {
        return Some(format!(
            "Of all methods that need no hindsight it had the lowest {name}{close}."
        ));
    }
    let kind = match lowest.role() {
        Role::Central => ", with all samples in one place",
        Role::Trivial => ", although it learns nothing",
        _ if lowest.info().is_local || lowest.name.ends_with(Scope::Alone.suffix()) => {
            ", although its nodes learn alone"
        }
        _ => "",
    };
    Some(format!(
        "Of all methods that need no hindsight {} had the lowest {name}, {}{close}{kind}.",
        lowest.label(),
        value(results, lowest)
    ))
}

/// What `level` means; nothing if nothing is.
fn meaning_of_level(results: &Results, sentences: &[String]) -> Option<String> {
    let meaning = match Measure::of(results) {
        Measure::Mse | Measure::ErrorRate => {
            "the mean difference between the same trials is within two standard errors"
        }
        Measure::Loss => "the means differ by no more than two standard errors of unpaired trials",
    };
    let said = results.trials > 1
        && sentences.iter().any(|sentence| sentence.contains("level with that of"));
    said.then(|| format!("Level: {meaning}."))
}

fn against_hindsight(results: &Results, subject: &MethodResult) -> Option<String> {
    let is_fixed = |method: &&MethodResult| method.is(Reference::Hindsight);
    let fixed = results.methods.iter().find(is_fixed).filter(|_| !is_fixed(&subject))?;
    let ratio = subject.mse.mean / fixed.mse.mean;
    let usable = ratio.is_finite() && ratio > 0.0 && Measure::of(results).is_known_for(fixed);
    usable.then(|| {
        format!(
            "The best fixed function, known only in hindsight, has {}.",
            significant(fixed.mse.mean, 3)
        )
    })
}

/// If nodes see different distributions, the error is not that of one model on one stream.
fn different_nodes(results: &Results) -> Option<String> {
    let how = match results.partition.as_str() {
        "sorted-label" => "samples are dealt by their labels",
        "sorted-direction" => "samples are dealt by their inputs",
        name if name.starts_with("dirichlet:") => "labels are dealt in unequal shares",
        "blocks" => "each has its own stretch of time",
        "by owner" => "each has its own samples",
        _ => return None,
    };
    Some(format!("Nodes see different data ({how}), and each is scored on its own."))
}

fn best_kernel(results: &Results, subject: &MethodResult) -> Option<String> {
    let best =
        results.best_kernel.filter(|_| subject.kernel.is_none() && results.kernels.len() > 1)?;
    let share = subject.selected.get(best.checked_sub(1)?)?;
    let kernel = series::kernel_label(results, best);
    Some(format!("The best kernel ({kernel}) made {} of its predictions.", percent(*share)))
}

fn growth(subject: &MethodResult) -> Option<String> {
    let exponent = subject.regret.as_ref()?.exponent.filter(|a| a.is_finite())?;
    Some(format!("Its regret grew as t^{exponent:.2}; √t would be t^0.50."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::results::Moments;
    use hedgerow_lab::testing::results;

    /// With `mk` at a multiple of the best single kernel's error in each trial.
    fn with_mk_at(multiples: [f64; 4]) -> String {
        let mut results = results(11, 10, 4);
        let best = series::best_single(&results).unwrap().mse_trials.clone();
        let mk = &mut results.methods[0];
        mk.mse_trials =
            best.iter().zip(multiples).map(|(error, multiple)| error * multiple).collect();
        mk.mse.mean = mk.mse_trials.iter().sum::<f64>() / 4.0;
        verdict(&results)
    }

    #[test]
    fn a_loss_is_called_a_loss() {
        let verdict = with_mk_at([2.0; 4]);
        assert!(
            verdict.contains(
                "2.00 times that of the best single kernel (sk 6: 0.00600 ± 0.00018; worse in 4 of 4 trials)"
            ),
            "{verdict}"
        );
        assert!(
            verdict.contains(
                "11.0 times fewer numbers up than naive, and its MSE was 1.90 times that of naive (worse in 4 of 4 trials)"
            ),
            "{verdict}"
        );
        assert!(verdict.contains("central had the lowest MSE, 0.00612"), "{verdict}");
        assert!(!verdict.contains("evel"), "{verdict}");
    }

    #[test]
    fn a_win_is_called_a_win() {
        let verdict = with_mk_at([0.5; 4]);
        assert!(verdict.contains("50% below that of the best single kernel"), "{verdict}");
        assert!(verdict.contains("it had the lowest MSE."), "{verdict}");
    }

    fn with_rule(name: &str, multiples: [f64; 4]) -> String {
        let mut results = results(11, 10, 4);
        let mut rule = results.methods[0].clone();
        rule.name = name.into();
        rule.mse_trials.iter_mut().zip(multiples).for_each(|(error, multiple)| *error *= multiple);
        rule.mse.mean = rule.mse_trials.iter().sum::<f64>() / 4.0;
        results.methods.push(rule);
        verdict(&results)
    }

    #[test]
    fn losing_to_a_rule_that_learns_nothing_is_said_plainly() {
        let verdict = with_rule("last", [0.5; 4]);
        assert!(
            verdict.contains(
                "It loses to the node's last label, which takes no learning: its MSE was 2.00 times that of predicting it \
                 (last: 0.00330 ± 0.00020; worse in 4 of 4 trials)."
            ),
            "{verdict}"
        );
        assert!(
            verdict.contains(
                "last had the lowest MSE, 0.00330 ± 0.00020, although it learns nothing."
            ),
            "{verdict}"
        );
    }

    #[test]
    fn beating_such_a_rule_and_being_level_with_it_are_said_too() {
        let verdict = with_rule("mean", [2.0; 4]);
        assert!(
            verdict.contains(
                "It beats the mean of the node's labels so far: its MSE was 50% below that of predicting it (mean: 0.0132"
            ),
            "{verdict}"
        );
        let verdict = with_rule("last", [1.05, 0.97, 1.04, 0.96]);
        assert!(
            verdict
                .contains("Its MSE was level with that of predicting the node's last label (last:"),
            "{verdict}"
        );
        assert!(
            verdict.contains("Level: the mean difference") && !verdict.contains("loses"),
            "{verdict}"
        );
        assert!(!with_mk_at([1.0; 4]).contains("last label"));
    }

    #[test]
    fn a_rule_that_learns_nothing_is_never_the_subject_where_something_learns() {
        let mut results = results(3, 5, 2);
        results.methods.truncate(2);
        results.methods[0].name = "last".into();
        results.methods[1].mse.mean = 1.0;
        assert!(verdict(&results).contains("naive reached"));
        results.methods[1].name = "gr".into();
        assert!(verdict(&results).contains("gr reached"));
        results.methods.truncate(1);
        assert!(verdict(&results).contains("last reached"));
    }

    #[test]
    fn a_small_difference_in_every_trial_counts_and_chance_does_not() {
        let verdict = with_mk_at([1.01, 1.012, 1.01, 1.012]);
        assert!(
            verdict.contains("1.01 times that of the best") && !verdict.contains("evel: "),
            "{verdict}"
        );
        let verdict = with_mk_at([1.05, 0.97, 1.04, 0.96]);
        assert!(verdict.contains("level with that of the best single kernel"), "{verdict}");
        assert!(
            verdict.contains("it had the lowest MSE, level with that of central."),
            "{verdict}"
        );
        assert!(
            verdict.contains("Level: the mean difference between the same trials"),
            "{verdict}"
        );
    }

    #[test]
    fn another_loss_is_judged_by_that_loss() {
        let mut results = results(3, 10, 5);
        results.loss = "logistic".into();
        results.methods[0].mse.mean = f64::INFINITY;
        results.methods[0].mean_loss = Moments { mean: 0.5, sd: 0.001 };
        let verdict = verdict(&results);
        assert!(verdict.contains("mk reached a mean logistic loss of 0.500 ± 0.0010"), "{verdict}");
        assert!(
            verdict.contains("its mean logistic loss was 79.4 times that of naive."),
            "{verdict}"
        );
        assert!(!verdict.contains("MSE") && !verdict.contains("fixed function"), "{verdict}");
    }

    #[test]
    fn nodes_in_different_worlds_are_mentioned() {
        let mut results = results(3, 10, 5);
        for (partition, expected) in [
            ("round-robin", false),
            ("shuffled", false),
            ("sorted-label", true),
            ("blocks", true),
            ("sorted-direction", true),
            ("dirichlet:0.3", true),
            ("by owner", true),
        ] {
            results.partition = partition.into();
            assert_eq!(
                verdict(&results).contains("Nodes see different data"),
                expected,
                "{partition}"
            );
        }
    }

    #[test]
    fn one_trial_claims_no_spread() {
        let verdict = verdict(&results(11, 10, 1));
        assert!(
            verdict.contains("nothing is known about the spread") && !verdict.contains('±'),
            "{verdict}"
        );
    }

    #[test]
    fn divergence_and_emptiness_are_said() {
        assert!(with_mk_at([f64::INFINITY; 4]).contains("mk diverged"));
        let mut results = results(3, 5, 2);
        results.methods.clear();
        assert_eq!(verdict(&results), "No method was run.");
    }

    #[test]
    fn the_subject_is_the_best_that_one_could_choose() {
        use hedgerow_lab::testing::run;
        for (methods, expected) in [
            (&[("linear", 3.0), ("mk", 2.0), ("gr", 1.0)][..], "gr"),
            (&[("gr", 1.5), ("linear", 1.0), ("mk", 2.0)], "linear"),
            (&[("gr", 1.5), ("gr+shared", 1.0), ("tr", f64::NAN)], "gr+shared"),
            (
                &[("local", 0.5), ("naive", 0.5), ("central", 0.1), ("last", 0.2), ("pof", 1.0)],
                "pof",
            ),
            (&[("naive", 1.0), ("own-method", 2.0)], "own-method"),
            (&[("naive", 1.0), ("central", 0.5)], "central"),
        ] {
            assert_eq!(run(methods).subject().unwrap().name, expected, "{methods:?}");
        }
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
