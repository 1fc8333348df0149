//! Methods compared: finished runs in, rankings out. One run is a [`Ranking`]; a grid of data sets
//! and partitions also has a [`GridSummary`] per method. Only [`Grid`] reads and
//! writes: it makes the runs.

mod axes;
mod budgets;
mod grid;
mod grid_config;
mod paired;
mod ranking;
mod runs;
mod shard;
mod student;
pub(crate) use student::critical;

pub use budgets::{BudgetPoint, NEARLY_AS_GOOD_RATIO, least, recommended};
pub use grid::{GridSummary, Worst, geometric_mean};
pub use grid_config::{GridConfig, GridVariant, default_methods};
pub use hedgerow::method::Role;
pub use paired::{Interval, Ratio, SIGNIFICANCE, TRIALS_TO_TELL};
pub use ranking::{RankedMethod, Ranking};
pub use runs::Grid;
pub use shard::Shard;

use crate::results::{Results, all_sizes, each_once};

/// One run: a data set with one partition, in one variant of the settings.
#[derive(Debug, Clone)]
pub struct Cell {
    /// What the user called the data.
    pub data: String,
    /// What to call it in tables and figures.
    pub title: String,
    /// The partition.
    pub partition: String,
    /// The variant; empty where there is only one. Where budgets are compared, it ends with them.
    pub variant: String,
    /// Numbers that a message may have, where several budgets are compared.
    pub budget: Option<usize>,
    /// The results; none if the data was not available.
    pub results: Option<Results>,
    /// The ranking of the results.
    pub ranking: Option<Ranking>,
}

impl Cell {
    /// Ranks the results.
    pub fn new(data: &str, title: &str, partition: &str, results: Option<Results>) -> Self {
        // The run names its real partition, which may differ from the flag.
        let partition = results.as_ref().map_or(partition, |results| &results.partition).to_owned();
        let ranking = results.as_ref().map(Ranking::new);
        let (data, title) = (data.to_owned(), title.to_owned());
        Self { data, title, partition, variant: String::new(), budget: None, results, ranking }
    }

    /// Partition and variant: what distinguishes it from other runs on the same data.
    pub fn case(&self) -> String {
        match self.variant.as_str() {
            "" => self.partition.clone(),
            variant => format!("{}, {variant}", self.partition),
        }
    }

    /// Title, partition and variant, which runs with other budgets share.
    fn without_budget(&self) -> (String, String, String) {
        let budget = self.budget.map(budget_variant).unwrap_or_default();
        let variant = self.variant.strip_suffix(&budget).unwrap_or(&self.variant);
        (self.title.clone(), self.partition.clone(), variant.to_owned())
    }
}

/// What distinguishes a run with one of several budgets.
fn budget_variant(budget: usize) -> String {
    format!("budget {budget}")
}

/// All runs of a comparison.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Data set by data set, and for each the partitions.
    pub cells: Vec<Cell>,
    /// The method whose error is 1 in the ratios of a grid. Several, with commas between them: the
    /// one of them that has the least error in a run.
    pub against: String,
    /// Every method over all runs, the least ratio first; those that were not run everywhere last.
    pub summaries: Vec<GridSummary>,
}

impl Comparison {
    /// Ranks methods in every run and over all.
    pub fn new(cells: Vec<Cell>, against: &str) -> Self {
        let summaries = grid::summaries(&cells, against);
        Self { cells, against: against.to_owned(), summaries }
    }

    /// The only run, unless there are several.
    pub fn only(&self) -> Option<(&Results, &Ranking)> {
        match self.cells.as_slice() {
            [cell] => Some((cell.results.as_ref()?, cell.ranking.as_ref()?)),
            _ => None,
        }
    }

    /// Cell, results and ranking of every run with data.
    pub fn found(&self) -> impl Iterator<Item = (&Cell, &Results, &Ranking)> {
        self.cells
            .iter()
            .filter_map(|cell| Some((cell, cell.results.as_ref()?, cell.ranking.as_ref()?)))
    }

    /// The results of all runs if it is known of any of them when its data changes; else nothing.
    pub fn changing(&self) -> Vec<Results> {
        let any = self.found().any(|(_, results, _)| !crate::drift::changes(results).is_empty());
        self.found().filter(|_| any).map(|(_, results, _)| results.clone()).collect()
    }

    /// Every method that one could choose with each of several budgets; empty if there is one
    /// budget.
    pub fn budgets(&self) -> Vec<BudgetPoint> {
        budgets::points(&self.cells)
    }

    /// Methods that settings exclude, and why, over all runs.
    pub fn left_out(&self) -> Vec<&str> {
        let all = self.found().flat_map(|(_, results, _)| &results.left_out);
        each_once(all.map(String::as_str))
    }

    /// Partitions and variants of the runs with data; of all runs if none has data.
    pub fn cases(&self) -> Vec<String> {
        let any = self.found().next().is_some();
        let cells = self.cells.iter().filter(|cell| !any || cell.results.is_some());
        each_once(cells.map(Cell::case))
    }

    /// Each value once, in the order of the runs.
    pub fn each_once<'c>(&'c self, of: impl Fn(&'c Cell) -> &'c str) -> Vec<&'c str> {
        each_once(self.cells.iter().map(of))
    }

    /// The run on this data in this case.
    pub fn cell(&self, title: &str, case: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.title == title && cell.case() == case)
    }

    /// How much more error a method has in a variant than in the first, for each data set that
    /// both have: its title and the ratio.
    pub fn to_first_variant(&self, name: &str, partition: &str, variant: &str) -> Vec<(&str, f64)> {
        let error = |cell: &Cell| Some(cell.ranking.as_ref()?.method(name)?.error.mean);
        let of = |title: &str, variant: &str| {
            let is_it = |cell: &&Cell| {
                (cell.title.as_str(), cell.partition.as_str(), cell.variant.as_str())
                    == (title, partition, variant)
            };
            self.cells.iter().find(is_it).and_then(error)
        };
        let first = self.cells.first().map_or("", |cell| &cell.variant);
        let ratio = |title| Some((title, of(title, variant)? / of(title, first)?));
        let titles = self.each_once(|cell| &cell.title);
        let ratios = titles.into_iter().filter_map(ratio);
        ratios.filter(|(_, ratio)| ratio.is_finite() && *ratio > 0.0).collect()
    }

    /// The settings in a line; all of them where runs differ.
    pub fn setting(&self) -> String {
        all_sizes(self.found().map(|(_, results, _)| results))
    }
}
