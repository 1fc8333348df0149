//! Errors against bytes where the same runs were made with several budgets.

use serde::Serialize;

use super::Cell;
use super::grid::geometric_mean;
use super::ranking::RankedMethod;
use crate::results::each_once;
use hedgerow::method::Role;

/// An error within this factor of the least counts as nearly as good.
pub const NEARLY_AS_GOOD_RATIO: f64 = 1.1;

/// A method with one of several budgets, over all runs with that budget.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BudgetPoint {
    /// Name on the command line.
    pub method: String,
    /// Numbers that a message may have, r.
    pub budget: usize,
    /// The error as a multiple of the least of all methods and budgets: the geometric mean over
    /// runs.
    pub ratio: f64,
    /// Mean over runs of the bytes in both directions per node and round.
    pub bytes: f64,
}

/// Every method that one could choose, with each budget that it was run with in all runs.
pub(super) fn points(cells: &[Cell]) -> Vec<BudgetPoint> {
    let budgets = each_once(cells.iter().filter_map(|cell| cell.budget));
    if budgets.len() < 2 {
        return Vec::new();
    }
    let found: Vec<&Cell> = cells.iter().filter(|cell| cell.ranking.is_some()).collect();
    let groups = each_once(found.iter().map(|cell| cell.without_budget()));
    let choices = |cell: &Cell| -> Vec<RankedMethod> {
        let all = cell.ranking.iter().flat_map(|ranking| &ranking.methods);
        all.filter(|entry| entry.role == Role::Choice && entry.error.mean > 0.0).cloned().collect()
    };
    let names = each_once(found.iter().flat_map(|cell| choices(cell)).map(|entry| entry.name));
    let least = |group: &(String, String, String)| {
        let cells = found.iter().filter(|cell| cell.without_budget() == *group);
        cells.flat_map(|cell| choices(cell)).map(|entry| entry.error.mean).fold(f64::MAX, f64::min)
    };
    let point = |method: &String, budget: usize| {
        let of_group = |group: &(String, String, String)| {
            let is_it =
                |cell: &&&Cell| cell.budget == Some(budget) && cell.without_budget() == *group;
            let entry = choices(found.iter().find(is_it)?);
            let entry = entry.into_iter().find(|entry| entry.name == *method)?;
            let ratio = entry.error.mean / least(group);
            Some((ratio, entry.bytes()?)).filter(|_| ratio.is_finite())
        };
        let each: Option<Vec<(f64, f64)>> = groups.iter().map(of_group).collect();
        let (ratios, bytes): (Vec<f64>, Vec<f64>) = each?.into_iter().unzip();
        let count = bytes.len() as f64;
        Some(BudgetPoint {
            method: method.clone(),
            budget,
            ratio: geometric_mean(&ratios)?,
            bytes: bytes.iter().sum::<f64>() / count,
        })
    };
    let all = names.iter().flat_map(|name| budgets.iter().map(move |budget| (name, *budget)));
    all.filter_map(|(name, budget)| point(name, budget)).collect()
}

/// The point with the fewest bytes of those whose error is nearly the least; of several with the
/// same bytes the one with the least error.
pub fn recommended(points: &[BudgetPoint]) -> Option<&BudgetPoint> {
    let least = least(points)?.ratio;
    let near = points.iter().filter(|point| point.ratio <= NEARLY_AS_GOOD_RATIO * least);
    near.min_by(|a, b| a.bytes.total_cmp(&b.bytes).then(a.ratio.total_cmp(&b.ratio)))
}

/// The point with the least error.
pub fn least(points: &[BudgetPoint]) -> Option<&BudgetPoint> {
    points.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cell, run, with_bytes};

    fn with_budget(data: &str, budget: usize, levels: &[(&str, f64)], bytes: f64) -> Cell {
        let mut results = run(levels);
        results.budget = budget;
        levels.iter().for_each(|(name, _)| with_bytes(&mut results, name, bytes, bytes));
        let variant = format!("budget {budget}");
        Cell { variant, budget: Some(budget), ..cell(data, "blocks", Some(results)) }
    }

    #[test]
    fn the_cheapest_of_the_nearly_best_is_recommended() {
        let cells = [
            with_budget("a", 50, &[("mk", 4.0), ("tr", 2.0)], 100.0),
            with_budget("b", 50, &[("mk", 4.0), ("tr", 2.0)], 100.0),
            with_budget("a", 100, &[("mk", 3.0), ("tr", 1.05)], 200.0),
            with_budget("b", 100, &[("mk", 3.0), ("tr", 1.05)], 200.0),
            with_budget("a", 300, &[("mk", 2.0), ("tr", 1.0)], 600.0),
            with_budget("b", 300, &[("mk", 2.0), ("tr", 1.0)], 600.0),
        ];
        let points = points(&cells);
        let of = |method: &str, budget: usize| {
            points.iter().find(|point| (point.method.as_str(), point.budget) == (method, budget))
        };
        let tr = of("tr", 50).unwrap();
        assert!((tr.ratio - 2.0).abs() < 1e-9 && tr.bytes == 200.0, "{tr:?}");
        assert!((of("mk", 300).unwrap().ratio - 2.0).abs() < 1e-3);
        let best = recommended(&points).unwrap();
        assert_eq!((best.method.as_str(), best.budget), ("tr", 100));
        assert_eq!(least(&points).unwrap().budget, 300);
        // What one run lacks is no point, and one budget is none to choose from.
        let mut partial = cells.to_vec();
        partial[0] = with_budget("a", 50, &[("mk", 4.0)], 100.0);
        let is_tr_at_50 = |point: &BudgetPoint| point.method == "tr" && point.budget == 50;
        assert!(!super::points(&partial).iter().any(is_tr_at_50));
        assert!(super::points(&cells[..2]).is_empty());
        assert_eq!(recommended(&[]), None);
    }
}
