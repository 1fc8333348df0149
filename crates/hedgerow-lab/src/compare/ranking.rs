//! The ranking of one run: methods that can be chosen, by mean error, and an interval and a ratio
//! to the best for all.

use hedgerow::method::{Reference, Role, find};
use serde::Serialize;

use super::paired::{self, Interval, Ratio, SIGNIFICANCE};
use crate::measure::Measure;
use crate::results::{MethodResult, Moments, Results};

/// All methods of one run, the least error first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranking {
    /// What they are compared by: `MSE`, or the mean of another loss.
    pub measure: String,
    /// One per method; of a method that was run with every kernel, its best in hindsight.
    pub methods: Vec<RankedMethod>,
}

/// One method of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankedMethod {
    /// Name on the command line.
    pub name: String,
    /// The kernel of a method that has one, counted from 1.
    pub kernel: Option<usize>,
    /// Whether one could choose it.
    pub role: Role,
    /// Its place among those one could choose, from 1; none for the others, and where errors are
    /// not finite.
    pub rank: Option<usize>,
    /// The error over trials.
    pub error: Moments,
    /// The confidence interval of the mean error.
    pub interval: Option<Interval>,
    /// The error as a multiple of that of the first in rank, trial by trial; none for the first
    /// itself.
    pub to_best: Option<Ratio>,
    /// The p value of that ratio after Holm's correction for all that are ranked; none for the
    /// others.
    pub p_holm: Option<f64>,
    /// The error as a multiple of that of the best single kernel; none for that itself, and where
    /// `sk` was not run.
    pub to_sk: Option<Ratio>,
    /// Numbers sent to the server, per node and round.
    pub numbers_up: f64,
    /// Numbers received from it.
    pub numbers_down: f64,
    /// Payload bytes sent to the server, per node and round.
    pub bytes_up: f64,
    /// Payload bytes received from it.
    pub bytes_down: f64,
}

impl RankedMethod {
    /// For tables and legends: `mk`, `sk 6 (best)`.
    pub fn label(&self) -> String {
        match self.kernel {
            Some(kernel) if self.is_fixed_function() => format!("{} {kernel}", self.name),
            Some(kernel) => format!("{} {kernel} (best)", self.name),
            None => self.name.clone(),
        }
    }

    /// Bytes in both directions, per node and round; none for what is only known afterwards and
    /// never ran anywhere.
    pub fn bytes(&self) -> Option<f64> {
        let bytes = self.bytes_up + self.bytes_down;
        (!self.is_fixed_function() && bytes.is_finite()).then_some(bytes)
    }

    /// Whether it is the best fixed function, which is not learned.
    fn is_fixed_function(&self) -> bool {
        find(&self.name).is_some_and(|info| info.reference == Some(Reference::Hindsight))
    }

    /// Whether what separates it from the first in rank may be chance.
    pub fn may_equal(&self, best: &Self) -> bool {
        match (self.p_holm, self.interval, best.interval) {
            (Some(p), ..) => p >= SIGNIFICANCE,
            (None, Some(mine), Some(other)) => mine.low <= other.high,
            _ => true,
        }
    }
}

impl Ranking {
    /// Ranks the methods of a run.
    pub fn new(results: &Results) -> Self {
        let measure = Measure::of(results);
        let error = |method: &MethodResult| measure.moments(method).mean;
        let mut shown = representatives(results, measure);
        // NaN is the largest in this order.
        shown.sort_by(|a, b| error(a).abs().total_cmp(&error(b).abs()));
        let is_ranked =
            |method: &MethodResult| method.role() == Role::Choice && error(method).is_finite();
        let best = shown.iter().copied().find(|method| is_ranked(method));
        let sk = shown.iter().copied().find(|method| method.info().takes_kernel);
        let compared = |method: &MethodResult, other: Option<&MethodResult>| {
            let other = other.filter(|other| other.name != method.name)?;
            ratio(measure, method, other)
        };
        let mut rank = 0;
        let mut methods: Vec<RankedMethod> = shown
            .iter()
            .map(|method| RankedMethod {
                name: method.name.clone(),
                kernel: method.kernel,
                role: method.role(),
                rank: is_ranked(method).then(|| {
                    rank += 1;
                    rank
                }),
                error: measure.moments(method),
                interval: paired::of_mean(measure.moments(method), results.trials),
                to_best: compared(method, best),
                p_holm: None,
                to_sk: compared(method, sk),
                numbers_up: method.numbers_up,
                numbers_down: method.numbers_down,
                bytes_up: method.bytes_up,
                bytes_down: method.bytes_down,
            })
            .collect();
        correct(&mut methods);
        Self { measure: measure.name(results), methods }
    }

    /// The first in rank.
    pub fn best(&self) -> Option<&RankedMethod> {
        self.methods.iter().find(|entry| entry.rank == Some(1))
    }

    /// Those with a rank, in its order.
    pub fn ranked(&self) -> impl Iterator<Item = &RankedMethod> {
        self.methods.iter().filter(|entry| entry.rank.is_some())
    }

    /// The mean error of one method as a multiple of that of another, or of the least of several
    /// with commas between them; none where an error is not positive or not finite.
    pub fn ratio(&self, name: &str, against: &str) -> Option<f64> {
        let error = |name: &str| {
            let error = self.method(name)?.error.mean;
            (error.is_finite() && error > 0.0).then_some(error)
        };
        let other = against.split(',').filter_map(error).reduce(f64::min)?;
        Some(error(name)? / other)
    }

    /// The one of that name.
    pub fn method(&self, name: &str) -> Option<&RankedMethod> {
        self.methods.iter().find(|entry| entry.name == name)
    }
}

/// One entry per name: as marked, else the one with the least error.
fn representatives(results: &Results, measure: Measure) -> Vec<&MethodResult> {
    let mut chosen: Vec<&MethodResult> = Vec::new();
    for method in results.methods.iter().filter(|method| measure.is_known_for(method)) {
        let is_better = |known: &MethodResult| {
            method.best
                || (!known.best && measure.moments(method).mean < measure.moments(known).mean)
        };
        match chosen.iter_mut().find(|known| known.name == method.name) {
            Some(known) if is_better(known) => *known = method,
            Some(_) => {}
            None => chosen.push(method),
        }
    }
    chosen
}

fn ratio(measure: Measure, mine: &MethodResult, other: &MethodResult) -> Option<Ratio> {
    if measure == Measure::Mse {
        return Ratio::of(&mine.mse_trials, &other.mse_trials);
    }
    // Of other losses only means are known.
    Ratio::of(&[measure.moments(mine).mean], &[measure.moments(other).mean])
}

/// Holm's correction over all that are ranked.
fn correct(methods: &mut [RankedMethod]) {
    let tested: Vec<(usize, f64)> = methods
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.rank.is_some())
        .filter_map(|(place, entry)| Some((place, entry.to_best?.p?)))
        .collect();
    let p: Vec<f64> = tested.iter().map(|(_, p)| *p).collect();
    for ((place, _), corrected) in tested.iter().zip(paired::holm(&p)) {
        methods[*place].p_holm = Some(corrected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run, with_trials};

    fn names(ranking: &Ranking) -> Vec<(&str, Option<usize>)> {
        ranking.methods.iter().map(|entry| (entry.name.as_str(), entry.rank)).collect()
    }

    #[test]
    fn choices_are_ranked_and_references_only_shown() {
        let ranking =
            Ranking::new(&run(&[("mk", 1.1), ("naive", 1.05), ("local", 3.0), ("last", 0.2)]));
        let shown = names(&ranking);
        let expected = [
            ("last", None),
            ("hindsight", None),
            ("sk", None),
            ("naive", Some(1)),
            ("mk", Some(2)),
            ("local", Some(3)),
        ];
        assert_eq!(shown, expected);
        assert_eq!(ranking.best().unwrap().name, "naive");
        assert_eq!(ranking.method("sk").unwrap().kernel, Some(2));
        assert_eq!(ranking.best().unwrap().to_best, None);
        let local = ranking.method("local").unwrap();
        assert!((local.to_best.unwrap().value - 3.0 / 1.05).abs() < 1e-9, "{local:?}");
        assert!((local.to_sk.unwrap().value - 3.0).abs() < 1e-5);
        assert!(local.p_holm.unwrap() < 1e-6 && ranking.method("last").unwrap().p_holm.is_none());
    }

    #[test]
    fn holm_counts_the_ranked_only() {
        let mut results = run(&[("a", 1.0), ("b", 1.0), ("c", 1.0), ("last", 1.0)]);
        with_trials(&mut results, "a", &[1.0, 1.1, 0.9, 1.0]);
        with_trials(&mut results, "b", &[1.2, 1.1, 1.1, 1.3]);
        with_trials(&mut results, "c", &[1.0, 1.3, 1.2, 1.2]);
        with_trials(&mut results, "last", &[1.0, 1.3, 1.2, 1.2]);
        let ranking = Ranking::new(&results);
        let p = |name: &str| ranking.method(name).unwrap().to_best.unwrap().p.unwrap();
        let corrected = |name: &str| ranking.method(name).unwrap().p_holm.unwrap();
        assert_eq!(ranking.best().unwrap().name, "a");
        let (least, most) = if p("b") < p("c") { ("b", "c") } else { ("c", "b") };
        assert!((corrected(least) - 2.0 * p(least)).abs() < 1e-12);
        assert!((corrected(most) - p(most).max(2.0 * p(least))).abs() < 1e-12);
        let best = ranking.best().unwrap();
        assert_eq!(ranking.method("b").unwrap().may_equal(best), corrected("b") >= 0.05);
    }

    #[test]
    fn what_diverged_has_no_rank_and_comes_last() {
        let mut results = run(&[("mk", 1.0), ("naive", 2.0)]);
        for wrong in [f64::INFINITY, f64::NAN] {
            with_trials(&mut results, "mk", &[wrong; 4]);
            let ranking = Ranking::new(&results);
            assert_eq!(names(&ranking).last(), Some(&("mk", None)));
            assert_eq!(ranking.best().unwrap().name, "naive");
            assert_eq!(ranking.method("mk").unwrap().to_best, None);
        }
    }

    #[test]
    fn the_marked_kernel_stands_for_all_and_else_the_least_error() {
        let mut results = run(&[("mk", 1.0)]);
        let of_sk = |results: &Results| Ranking::new(results).method("sk").unwrap().kernel;
        results.methods.iter_mut().for_each(|method| method.best = false);
        assert_eq!(of_sk(&results), Some(2));
        results
            .methods
            .iter_mut()
            .filter(|m| m.kernel == Some(3))
            .for_each(|m| m.best = m.name == "sk");
        assert_eq!(of_sk(&results), Some(3));
        assert_eq!(Ranking::new(&results).method("sk").unwrap().label(), "sk 3 (best)");
    }

    #[test]
    fn another_loss_is_compared_by_its_means() {
        let mut results = run(&[("mk", 1.0), ("naive", 1.0)]);
        results.loss = "huber".into();
        for (name, mean) in [("mk", 1.0), ("naive", 1.5)] {
            let method = results.methods.iter_mut().find(|method| method.name == name).unwrap();
            method.mean_loss = Moments { mean, sd: 0.1 };
        }
        let ranking = Ranking::new(&results);
        assert_eq!(
            (ranking.measure.as_str(), ranking.method("hindsight")),
            ("mean huber loss", None)
        );
        let naive = ranking.method("naive").unwrap();
        assert_eq!((naive.to_best.unwrap().value, naive.p_holm), (1.5, None));
        assert!(!naive.may_equal(ranking.best().unwrap()) || ranking.best().unwrap().name != "mk");
    }

    #[test]
    fn one_trial_decides_nothing() {
        let mut results = run(&[("mk", 1.0), ("naive", 2.0)]);
        results.trials = 1;
        results.methods.iter_mut().for_each(|method| method.mse_trials.truncate(1));
        let ranking = Ranking::new(&results);
        let naive = ranking.method("naive").unwrap();
        assert_eq!((naive.interval, naive.p_holm), (None, None));
        assert!(naive.may_equal(ranking.best().unwrap()));
    }

    #[test]
    fn nothing_to_choose_from_has_no_best() {
        let ranking = Ranking::new(&run(&[("central", 1.0)]));
        assert!(
            ranking.best().is_none() && ranking.methods.iter().all(|entry| entry.to_best.is_none())
        );
    }
}
