//! What the numbers amount to, in a sentence or two.

use hedgerow::method::find;
use hedgerow_data::text::counted;
use hedgerow_lab::compare::{
    BudgetPoint, Comparison, GridSummary, NEARLY_AS_GOOD_RATIO, RankedMethod, Ranking, Ratio, Role,
    SIGNIFICANCE, TRIALS_TO_TELL, geometric_mean, least, recommended,
};
use hedgerow_lab::results::Results;

use crate::figures::number::{bytes_in_words, listed, percent, significant};
use crate::worth;

/// A method is cheaper if it sends at most this share of the bytes.
const CHEAPER_SHARE: f64 = 0.8;
/// More names than this are counted instead.
const MOST_NAMES: usize = 4;

/// The recommended method, its significance, its message size, and a cheaper alternative.
pub fn advice(comparison: &Comparison) -> String {
    match (comparison.only(), comparison.found().count()) {
        (Some((results, ranking)), _) => of_run(results, ranking),
        (None, 0) => "No data set was available.".to_owned(),
        (None, _) if !comparison.budgets().is_empty() => of_budgets(&comparison.budgets()),
        (None, _) => of_grid(comparison),
    }
}

/// The method and the budget to choose.
fn of_budgets(points: &[BudgetPoint]) -> String {
    let (Some(chosen), Some(best)) = (recommended(points), least(points)) else {
        return "No method can be recommended: all that ran are references, or diverged."
            .to_owned();
    };
    let named = |point: &BudgetPoint| format!("{} with a budget of {}", point.method, point.budget);
    let sent = |point: &BudgetPoint| match point.bytes {
        bytes if bytes <= 0.0 => "nothing".to_owned(),
        bytes => format!("{} per node and round", bytes_in_words(bytes)),
    };
    let near = percent(NEARLY_AS_GOOD_RATIO - 1.0);
    let worth = match chosen.bytes > 0.0 {
        true => "",
        false => " Federating is hardly worth its bytes here.",
    };
    if chosen == best {
        return format!(
            "Choose {}: it has the least error and sends {}; nothing that sends less comes within \
             {near} of it.{worth}",
            named(best),
            sent(best)
        );
    }
    format!(
        "Choose {}: it sends {}, the least of all within {near} of the least error, which {} has \
         for {}; it has {}.{worth}",
        named(chosen),
        sent(chosen),
        named(best),
        sent(best),
        more_error(chosen.ratio / best.ratio)
    )
}

/// Whether federating pays; none if the runs don't say.
pub(super) fn worth(comparison: &Comparison) -> Option<String> {
    match comparison.only() {
        Some((results, _)) => worth::sentence(results),
        None => worth::of_grid(comparison),
    }
}

/// The advice for one run.
pub(super) fn of_run(results: &Results, ranking: &Ranking) -> String {
    let Some(best) = ranking.best() else {
        return "No method can be recommended: all that ran are references, or diverged."
            .to_owned();
    };
    let mut sentences: Vec<String> = Vec::new();
    sentences.extend(trivial_winner(ranking, best));
    let level: Vec<&RankedMethod> =
        ranking.ranked().filter(|entry| entry.rank != Some(1) && entry.may_equal(best)).collect();
    let others = ranking.ranked().count() - 1;
    let error = significant(best.error.mean, 3);
    let measure = &ranking.measure;
    let (mut chosen, mut first) = (best, String::new());
    if others == 0 {
        first += &format!("{} is the only one to choose, with {measure} {error}", best.name);
    } else if results.trials < TRIALS_TO_TELL {
        first += &format!(
            "{} has the least {measure}, {error}, but {} can't tell a difference from chance (--trials 10 could)",
            best.name,
            counted(results.trials, "trial")
        );
    } else if level.is_empty() {
        first += &format!(
            "Choose {}: its {measure} of {error} is the least of {}",
            best.name,
            others + 1
        );
        first += &lead(ranking);
    } else {
        let together: Vec<&RankedMethod> =
            [best].into_iter().chain(level.iter().copied()).collect();
        let names: Vec<&str> = together.iter().map(|entry| entry.name.as_str()).collect();
        first += &format!(
            "There is no single best method: {} can't be told apart in {} trials ({} has the least {measure}, {error})",
            listed(&names),
            results.trials,
            best.name
        );
        let bytes = |entry: &&RankedMethod| entry.bytes().unwrap_or(f64::INFINITY);
        chosen = together.into_iter().min_by(|a, b| bytes(a).total_cmp(&bytes(b))).unwrap_or(best);
    }
    sentences.push(first + ".");
    sentences.extend(cost(ranking, best, chosen));
    sentences.join(" ")
}

/// `, 12% below that of the next, naive (p < 0.001)`
fn lead(ranking: &Ranking) -> String {
    let Some(next) = ranking.ranked().nth(1) else { return String::new() };
    let least_sure = ranking.ranked().filter_map(|entry| entry.p_holm).reduce(f64::max);
    let sure = least_sure.map_or("their intervals don't overlap".to_owned(), |p| {
        format!("{} against any other", p_in_words(p))
    });
    match next.to_best {
        Some(ratio) if ratio.value > 1.0 => {
            format!(
                ", {} below that of the next, {} ({sure})",
                percent(1.0 - 1.0 / ratio.value),
                next.name
            )
        }
        _ => format!(" ({sure})"),
    }
}

/// The message size of the chosen method, and a cheaper alternative.
fn cost(ranking: &Ranking, best: &RankedMethod, chosen: &RankedMethod) -> Option<String> {
    let bytes = chosen.bytes()?;
    let who = if chosen.name == best.name {
        "It".to_owned()
    } else {
        format!("Of these {}", chosen.name)
    };
    let least = if chosen.name == best.name { "" } else { " the least:" };
    if bytes <= 0.0 {
        return Some(format!(
            "{who} sends nothing at all: here nodes gain little from each other."
        ));
    }
    let mut sentence = format!(
        "{who} sends{least} {} up and {} down per node and round",
        bytes_in_words(chosen.bytes_up),
        bytes_in_words(chosen.bytes_down)
    );
    let others = ranking
        .ranked()
        .filter_map(|entry| Some((entry.name.as_str(), entry.to_best?.value, entry.bytes()?)));
    let own = chosen.to_best.map_or(1.0, |ratio| ratio.value);
    sentence += &cheaper(own, bytes, others);
    Some(sentence + ".")
}

/// A method with nearly the same error for fewer bytes: the cheapest of those that are nearly as
/// good, else the best of all that are cheaper. `others` have a name, an error in the same unit,
/// and bytes.
fn cheaper<'n>(
    error: f64,
    bytes: f64,
    others: impl Iterator<Item = (&'n str, f64, f64)>,
) -> String {
    let others: Vec<(&str, f64, f64)> =
        others.filter(|(.., other)| *other <= CHEAPER_SHARE * bytes).collect();
    let near = others
        .iter()
        .filter(|(_, other, _)| *other <= NEARLY_AS_GOOD_RATIO * error)
        .min_by(|a, b| a.2.total_cmp(&b.2));
    let nearest = || others.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    match near.or_else(nearest) {
        Some((name, other, least)) => {
            let lead = if near.is_some() { "" } else { "of those who send less, " };
            format!("; {lead}{name} has {} for {}", more_error(other / error), share(*least, bytes))
        }
        None => String::new(),
    }
}

fn share(part: f64, whole: f64) -> String {
    if part <= 0.0 {
        "nothing sent at all".to_owned()
    } else {
        format!("{} of these bytes", percent(part / whole))
    }
}

fn more_error(ratio: f64) -> String {
    if ratio > 1.0005 {
        format!("{} more error", percent(ratio - 1.0))
    } else {
        "no more error".to_owned()
    }
}

/// A note if a trivial forecast has less error than every method.
fn trivial_winner(ranking: &Ranking, best: &RankedMethod) -> Option<String> {
    let winner = ranking.methods.iter().find(|entry| entry.role == Role::Trivial)?;
    if !winner.error.mean.is_finite() || winner.error.mean >= best.error.mean {
        return None;
    }
    let how = match winner.to_best {
        Some(ratio) if ratio.is_clearly_below() => {
            format!("{} times the error of", significant(ratio.value, 2))
        }
        _ => "no more error than".to_owned(),
    };
    let name = match find(&winner.name) {
        Some(info) => format!("The {}", info.title.to_lowercase()),
        None => winner.name.clone(),
    };
    Some(format!(
        "{name}, which takes no learning, has {how} the best method: on this stream it is the one to beat."
    ))
}

fn of_grid(comparison: &Comparison) -> String {
    let runs = comparison.found().count();
    let choices: Vec<&GridSummary> = comparison
        .summaries
        .iter()
        .filter(|summary| summary.role == Role::Choice && summary.ratio.is_some())
        .collect();
    // A method that diverged in some run is never recommended.
    let sound: Vec<&GridSummary> = choices
        .iter()
        .copied()
        .filter(|summary| summary.diverged == 0 && summary.runs == runs)
        .collect();
    let Some(best) = sound.first() else {
        return "No method can be recommended: all that ran are references, or diverged somewhere."
            .to_owned();
    };
    let ratio = best.ratio.unwrap_or(1.0);
    let mut first = format!("Over {runs} runs, {} has the least error on average", best.name);
    if best.name != comparison.against {
        first += &format!(", {} times that of {}", significant(ratio, 3), reference(comparison));
    }
    if let Some(second) = sound.get(1) {
        first += &between(comparison, best, second);
    }
    let wins = format!("It is first in {} of them, clearly in {}", best.wins, best.clear_wins);
    let mut sentences = vec![first + ".", wins + &to_sk(best) + "."];
    sentences.extend(grid_cost(best, &sound));
    sentences.extend(trivial_runs(comparison));
    sentences.join(" ")
}

/// What ratios are to: `mk`, or `the best of gr, last and mean`.
pub(super) fn reference(comparison: &Comparison) -> String {
    let names: Vec<&str> = comparison.against.split(',').collect();
    match names.as_slice() {
        [one] => (*one).to_owned(),
        several => format!("the best of {}", listed(several)),
    }
}

/// `, and never above the best sk`
fn to_sk(best: &GridSummary) -> String {
    match &best.worst_to_sk {
        None => String::new(),
        Some(_) if best.above_sk == 0 => ", and never above the best sk".to_owned(),
        Some(worst) => format!(
            ", and above the best sk in {}, at worst {} times ({}, {})",
            best.above_sk,
            significant(worst.ratio, 3),
            worst.data,
            worst.partition
        ),
    }
}

/// Whether the second could as well be the first. Data sets are what there is a sample of: runs on
/// one of them are no new evidence, so each has one say.
fn between(comparison: &Comparison, best: &GridSummary, second: &GridSummary) -> String {
    let (mut mine, mut other) = (Vec::new(), Vec::new());
    for data in comparison.each_once(|cell| &cell.data) {
        let of = |name: &str| {
            let cells = comparison.found().filter(|(cell, ..)| cell.data == data);
            let errors: Vec<f64> =
                cells.filter_map(|(.., ranking)| Some(ranking.method(name)?.error.mean)).collect();
            geometric_mean(&errors)
        };
        if let (Some(a), Some(b)) = (of(&best.name), of(&second.name)) {
            mine.push(a);
            other.push(b);
        }
    }
    match Ratio::of(&mine, &other).and_then(|ratio| ratio.p) {
        Some(p) if p >= SIGNIFICANCE => {
            format!(
                ", though {} data sets can't tell it from {} ({})",
                mine.len(),
                second.name,
                p_in_words(p)
            )
        }
        Some(p) => {
            format!(", ahead of {} ({} over {} data sets)", second.name, p_in_words(p), mine.len())
        }
        None => String::new(),
    }
}

fn grid_cost(best: &GridSummary, sound: &[&GridSummary]) -> Option<String> {
    let (bytes, ratio) = (best.bytes?, best.ratio?);
    if bytes <= 0.0 {
        return Some("It sends nothing at all.".to_owned());
    }
    let mut sentence = format!("It sends {} up and down per node and round", bytes_in_words(bytes));
    let others = sound
        .iter()
        .filter_map(|summary| Some((summary.name.as_str(), summary.ratio?, summary.bytes?)));
    sentence += &cheaper(ratio, bytes, others);
    Some(sentence + ".")
}

/// Runs in which a trivial forecast has the least error.
fn trivial_runs(comparison: &Comparison) -> Option<String> {
    let lost: Vec<String> = comparison
        .found()
        .filter(|(.., ranking)| {
            ranking.best().is_some_and(|best| trivial_winner(ranking, best).is_some())
        })
        .map(|(cell, ..)| format!("{}, {}", cell.title, cell.case()))
        .collect();
    let named = match lost.len() {
        0 => return None,
        count if count <= MOST_NAMES => format!("{} ({})", runs_in_words(count), lost.join("; ")),
        count => runs_in_words(count),
    };
    Some(format!("In {named} a trivial forecast has less error than every method."))
}

fn runs_in_words(count: usize) -> String {
    counted(count, "run")
}

/// `p < 0.001`, `p = 0.012`
pub(super) fn p_in_words(p: f64) -> String {
    if p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {}", significant(p, 2)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::testing::{grid, one, run, with_bytes, with_trials};

    fn told(results: Results) -> String {
        advice(&one(results))
    }

    #[test]
    fn a_clear_winner_is_named_with_its_cost_and_a_cheaper_one_beside_it() {
        let mut results = run(&[("mk", 1.05), ("naive", 1.0), ("local", 3.0)]);
        with_bytes(&mut results, "naive", 4356.0, 4356.0);
        with_bytes(&mut results, "mk", 400.0, 404.0);
        with_bytes(&mut results, "local", 0.0, 0.0);
        assert_eq!(
            told(results),
            "Choose naive: its MSE of 0.00600 is the least of 3, 4.8% below that of the next, mk (p < 0.001 against any other). It sends 4356 bytes \
             up and 4356 bytes down per node and round; mk has 5.0% more error for 9.2% of these bytes."
        );
    }

    #[test]
    fn who_can_t_be_told_apart_is_not_ranked_by_luck() {
        let mut results = run(&[("mk", 1.0), ("naive", 1.0), ("local", 3.0)]);
        with_trials(&mut results, "mk", &[1.0, 1.1, 0.9, 1.0]);
        with_trials(&mut results, "naive", &[1.1, 1.0, 1.0, 0.92]);
        with_trials(&mut results, "local", &[3.0, 3.1, 3.2, 3.1]);
        with_bytes(&mut results, "mk", 400.0, 404.0);
        with_bytes(&mut results, "naive", 4356.0, 4356.0);
        let advice = told(results.clone());
        assert!(
            advice.starts_with(
                "There is no single best method: mk and naive can't be told apart in 4 trials"
            ),
            "{advice}"
        );
        assert!(advice.contains("It sends 400 bytes up and 404 bytes down"), "{advice}");
        with_bytes(&mut results, "mk", 9000.0, 9000.0);
        let advice = told(results);
        assert!(advice.contains("Of these naive sends the least: 4356 bytes up"), "{advice}");
    }

    #[test]
    fn a_trivial_winner_is_told_first() {
        let advice = told(run(&[("mk", 1.0), ("naive", 2.0), ("last", 0.5)]));
        assert!(
            advice.starts_with(
                "The last value, which takes no learning, has 0.50 times the error of the best method"
            ),
            "{advice}"
        );
        assert!(!told(run(&[("mk", 1.0), ("naive", 2.0), ("last", 1.5)])).contains("no learning"));
    }

    #[test]
    fn one_trial_one_method_and_nobody() {
        let mut results = run(&[("mk", 1.0), ("naive", 2.0)]);
        results.trials = 1;
        results.methods.iter_mut().for_each(|method| method.mse_trials.truncate(1));
        assert!(told(results.clone()).contains("1 trial can't tell"));
        results.trials = 2;
        assert!(told(results).contains("2 trials can't tell"));
        assert!(
            told(run(&[("mk", 1.0)]))
                .starts_with("mk is the only one to choose, with MSE 0.00600.")
        );
        assert!(told(run(&[("central", 1.0)])).starts_with("No method can be recommended"));
    }

    #[test]
    fn where_nobody_cheaper_comes_near_the_best_of_them_is_named() {
        let mut results = run(&[("mk", 1.5), ("naive", 1.0), ("local", 3.0)]);
        with_bytes(&mut results, "naive", 5000.0, 5000.0);
        with_bytes(&mut results, "mk", 500.0, 500.0);
        with_bytes(&mut results, "local", 0.0, 0.0);
        let advice = told(results.clone());
        assert!(
            advice.ends_with(
                "; of those who send less, mk has 50% more error for 10% of these bytes."
            ),
            "{advice}"
        );
        with_bytes(&mut results, "mk", 5000.0, 5000.0);
        with_bytes(&mut results, "local", 5000.0, 5000.0);
        assert!(told(results).ends_with("per node and round."));
    }

    #[test]
    fn silence_is_praised() {
        let mut results = run(&[("local", 1.0), ("mk", 2.0)]);
        with_bytes(&mut results, "local", 0.0, 0.0);
        assert!(
            told(results)
                .ends_with("It sends nothing at all: here nodes gain little from each other.")
        );
    }

    #[test]
    fn a_grid_is_told_by_its_averages_its_wins_and_its_worst() {
        let advice = advice(&grid());
        for part in [
            "Over 3 runs, gr has the least error on average, 0.646 times that of mk",
            "It is first in 2 of them, clearly in 2,",
            "above the best sk in 1, at worst 1.20 times (two, shuffled)",
            ", though 2 data sets can't tell it from mk (p = ",
            "In 1 run (one, blocks) a trivial forecast",
        ] {
            assert!(advice.contains(part), "{part:?} is not in {advice:?}");
        }
    }

    #[test]
    fn without_data_there_is_no_advice() {
        let cells = vec![hedgerow_lab::testing::cell("one", "blocks", None)];
        assert_eq!(advice(&Comparison::new(cells, "mk")), "No data set was available.");
    }
}
