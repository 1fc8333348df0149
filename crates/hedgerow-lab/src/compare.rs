//! Methods compared: finished runs in, rankings out. One run is a [`Ranking`]; a grid of data sets
//! and partitions also has a [`GridSummary`] per method. Only [`Grid`] reads and
//! writes: it makes the runs.

mod grid;
mod grid_config;
mod paired;
mod ranking;
mod runs;
mod student;
pub(crate) use student::critical;

pub use grid::{GridSummary, Worst, geometric_mean};
pub use grid_config::{GridConfig, default_methods};
pub use hedgerow::method::Role;
pub use paired::{Interval, Ratio, SIGNIFICANCE};
pub use ranking::{RankedMethod, Ranking};
pub use runs::Grid;

use crate::results::{Results, all_sizes, each_once};

/// One run: a data set with one partition.
#[derive(Debug, Clone)]
pub struct Cell {
    /// What the user called the data.
    pub data: String,
    /// What to call it in tables and figures.
    pub title: String,
    /// The partition.
    pub partition: String,
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
        Self { data: data.to_owned(), title: title.to_owned(), partition, results, ranking }
    }
}

/// All runs of a comparison.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Data set by data set, and for each the partitions.
    pub cells: Vec<Cell>,
    /// The method whose error is 1 in the ratios of a grid.
    pub against: String,
    /// Every method over all runs, the least ratio first.
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

    /// The partitions of the runs with data; of all runs if none has data.
    pub fn partitions(&self) -> Vec<&str> {
        let found = |cell: &Cell| cell.results.is_some();
        let any = self.cells.iter().any(found);
        let mut partitions = self.each_once(|cell| &cell.partition);
        partitions.retain(|partition| {
            !any || self.cells.iter().any(|cell| found(cell) && cell.partition == *partition)
        });
        partitions
    }

    /// Each value once, in the order of the runs.
    pub fn each_once<'c>(&'c self, of: impl Fn(&'c Cell) -> &'c str) -> Vec<&'c str> {
        each_once(self.cells.iter().map(of))
    }

    /// The run on this data with this partition.
    pub fn cell(&self, title: &str, partition: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.title == title && cell.partition == partition)
    }

    /// The settings in a line; all of them where runs differ.
    pub fn setting(&self) -> String {
        all_sizes(self.found().map(|(_, results, _)| results))
    }
}
