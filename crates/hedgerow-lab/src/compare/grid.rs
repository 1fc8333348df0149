//! Results of a method over all data sets and partitions.

use hedgerow::method::Role;
use serde::Serialize;

use super::Cell;
use super::ranking::{RankedMethod, Ranking};
use crate::results::each_once;
use crate::role::role_of;

/// How one method did over all runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GridSummary {
    /// Name on the command line.
    pub name: String,
    /// Whether one could choose it.
    pub role: Role,
    /// Runs in which its error and that of the reference are positive and finite: those that the
    /// ratio is over.
    pub runs: usize,
    /// Runs in which its error is not finite.
    pub diverged: usize,
    /// Geometric mean of its error as a multiple of the reference's.
    pub ratio: Option<f64>,
    /// The largest of these ratios; none for the reference itself.
    pub worst: Option<Worst>,
    /// Runs in which it has the least error of those one could choose.
    pub wins: usize,
    /// Those of them in which no other may equal it.
    pub clear_wins: usize,
    /// Runs in which its error is above that of the best single kernel in hindsight.
    pub above_sk: usize,
    /// Those of them in which the difference is significant.
    pub clearly_above_sk: usize,
    /// Its largest error as a multiple of that of the best single kernel.
    pub worst_to_sk: Option<Worst>,
    /// Mean over runs of the bytes in both directions per node and round.
    pub bytes: Option<f64>,
}

/// The run in which a ratio is largest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Worst {
    /// The ratio.
    pub ratio: f64,
    /// Data set of that run.
    pub data: String,
    /// Partition of that run, and its variant.
    pub partition: String,
}

/// Every method over all runs, the least ratio first. Those that were not run everywhere come last,
/// because their ratios are over other runs.
pub(super) fn summaries(cells: &[Cell], against: &str) -> Vec<GridSummary> {
    let entries = cells.iter().flat_map(|cell| &cell.ranking).flat_map(|ranking| &ranking.methods);
    let names = each_once(entries.map(|entry| entry.name.as_str()));
    let mut summaries: Vec<GridSummary> =
        names.iter().map(|name| summary_of(cells, name, against)).collect();
    let all = cells.iter().flat_map(|cell| &cell.ranking);
    let is_partial = |name: &str| all.clone().any(|ranking| ranking.method(name).is_none());
    let key = |summary: &GridSummary| summary.ratio.unwrap_or(f64::INFINITY);
    summaries.sort_by(|a, b| key(a).total_cmp(&key(b)));
    summaries.sort_by_key(|summary| is_partial(&summary.name));
    summaries
}

fn summary_of(cells: &[Cell], name: &str, against: &str) -> GridSummary {
    let found = || {
        cells.iter().filter_map(|cell| {
            let ranking = cell.ranking.as_ref()?;
            Some((cell, ranking, ranking.method(name)?))
        })
    };
    let to_reference: Vec<(&Cell, f64)> = found()
        .filter_map(|(cell, ranking, _)| Some((cell, ranking.ratio(name, against)?)))
        .collect();
    let ratios: Vec<f64> = to_reference.iter().map(|(_, ratio)| *ratio).collect();
    let has_won = |entry: &RankedMethod| entry.rank == Some(1);
    let is_clear = |ranking: &Ranking, best: &RankedMethod| {
        ranking.ranked().filter(|other| other.rank != Some(1)).all(|other| !other.may_equal(best))
    };
    let to_sk = || found().filter_map(|(cell, _, entry)| Some((cell, entry.to_sk?)));
    let bytes: Vec<f64> = found().filter_map(|(_, _, entry)| entry.bytes()).collect();
    GridSummary {
        name: name.to_owned(),
        role: role_of(name),
        runs: ratios.len(),
        diverged: found().filter(|(_, _, entry)| !entry.error.mean.is_finite()).count(),
        ratio: geometric_mean(&ratios),
        worst: worst(to_reference.into_iter()).filter(|_| name != against),
        wins: found().filter(|(_, _, entry)| has_won(entry)).count(),
        clear_wins: found()
            .filter(|(_, ranking, entry)| has_won(entry) && is_clear(ranking, entry))
            .count(),
        above_sk: to_sk().filter(|(_, ratio)| ratio.value > 1.0).count(),
        clearly_above_sk: to_sk().filter(|(_, ratio)| ratio.is_clearly_above()).count(),
        worst_to_sk: worst(to_sk().map(|(cell, ratio)| (cell, ratio.value))),
        bytes: (!bytes.is_empty()).then(|| bytes.iter().sum::<f64>() / bytes.len() as f64),
    }
}

fn worst<'c>(ratios: impl Iterator<Item = (&'c Cell, f64)>) -> Option<Worst> {
    let (cell, ratio) = ratios.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Worst { ratio, data: cell.data.clone(), partition: cell.case() })
}

/// The geometric mean; none for an empty slice.
pub fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let logs: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (logs / ratios.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cell, run, with_trials};

    fn two() -> Vec<Cell> {
        vec![
            cell("one", "shuffled", Some(run(&[("mk", 2.0), ("gr", 1.0), ("last", 4.0)]))),
            cell("two", "blocks", Some(run(&[("mk", 1.0), ("gr", 2.0), ("last", 1.0)]))),
            cell("three", "blocks", None),
        ]
    }

    fn of<'s>(summaries: &'s [GridSummary], name: &str) -> &'s GridSummary {
        summaries.iter().find(|summary| summary.name == name).unwrap()
    }

    #[test]
    fn ratios_are_geometric_means_over_the_runs_that_are_there() {
        let summaries = summaries(&two(), "mk");
        let ratio = |name: &str| of(&summaries, name).ratio.unwrap();
        assert!((ratio("gr") - 1.0).abs() < 1e-5 && (ratio("last") - 2f64.sqrt()).abs() < 1e-5);
        assert_eq!((ratio("mk"), of(&summaries, "mk").runs), (1.0, 2));
        let worst = of(&summaries, "gr").worst.as_ref().unwrap();
        assert!(worst.data == "two" && (worst.ratio - 2.0).abs() < 1e-3, "{worst:?}");
        assert_eq!(of(&summaries, "mk").worst, None);
        // Against the best of several: 1 in the first run, 2 in the second.
        let gr = super::summaries(&two(), "mk,gr,last");
        assert!((of(&gr, "gr").ratio.unwrap() - 2f64.sqrt()).abs() < 1e-3);
        let first: Vec<&str> = summaries.iter().map(|summary| summary.name.as_str()).collect();
        assert_eq!(first[0], "hindsight");
        let mut cells = two();
        cells[0] = cell("one", "shuffled", Some(run(&[("mk", 2.0), ("gr", 1.0)])));
        let last = super::summaries(&cells, "gr").pop().unwrap();
        assert_eq!((last.name.as_str(), last.runs), ("last", 1), "it was run once");
    }

    #[test]
    fn wins_and_the_worst_against_the_best_single_kernel() {
        let summaries = summaries(&two(), "mk");
        let gr = of(&summaries, "gr");
        assert_eq!((gr.wins, gr.clear_wins, of(&summaries, "last").wins), (1, 1, 0));
        // sk is at 1.0 in both: once level, once twice as large.
        assert_eq!((gr.above_sk, gr.clearly_above_sk), (1, 1));
        let worst = gr.worst_to_sk.as_ref().unwrap();
        assert!((worst.ratio - 2.0).abs() < 1e-5);
        assert_eq!((worst.data.as_str(), worst.partition.as_str()), ("two", "blocks"));
        assert_eq!(of(&summaries, "sk").worst_to_sk, None);
        // Exactly level is not above.
        let mut level = run(&[("mk", 2.0), ("gr", 1.0)]);
        let sk = level.methods.iter().find(|method| method.best).unwrap().mse_trials.clone();
        with_trials(&mut level, "gr", &sk);
        let summaries = super::summaries(&[cell("one", "blocks", Some(level))], "mk");
        let gr = of(&summaries, "gr");
        assert_eq!((gr.above_sk, gr.worst_to_sk.as_ref().unwrap().ratio), (0, 1.0));
    }

    #[test]
    fn what_diverged_is_counted_and_left_out_of_the_ratio() {
        let mut results = run(&[("mk", 1.0), ("gr", 1.0)]);
        with_trials(&mut results, "gr", &[f64::INFINITY; 4]);
        let cells = [
            cell("one", "blocks", Some(results)),
            cell("two", "blocks", Some(run(&[("mk", 1.0), ("gr", 0.5)]))),
        ];
        let summaries = summaries(&cells, "mk");
        let gr = of(&summaries, "gr");
        assert_eq!((gr.runs, gr.diverged), (1, 1));
        assert!((gr.ratio.unwrap() - 0.5).abs() < 1e-5);
        assert_eq!(geometric_mean(&[]), None);
    }
}
