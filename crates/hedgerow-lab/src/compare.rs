//! Methods compared: finished runs in; rankings, tables, figures, advice, a document and a page
//! out. One run is a [`Ranking`]; a grid of data sets and partitions also has a [`Standing`] per
//! method. Nothing is read or written but by [`Grid`], which makes the runs.

mod advice;
mod grid;
mod output;
mod paired;
mod pictures;
mod plan;
mod ranking;
mod role;
mod runs;
mod sections;
mod student;
mod tables;

pub use crate::reproduction::table::Table;
pub use advice::advice;
pub use grid::{Standing, Worst};
pub use output::{csv, document, json, page};
pub use paired::{Interval, Ratio};
pub use pictures::figures;
pub use plan::{METHODS, Plan};
pub use ranking::{Entry, Ranking};
pub use role::Role;
pub use runs::Grid;
pub use tables::tables;

use crate::results::Results;

/// One run: a data set, dealt in one way.
#[derive(Debug, Clone)]
pub struct Cell {
    /// What the user called the data.
    pub data: String,
    /// What to call it in tables and figures.
    pub title: String,
    /// How it was dealt.
    pub partition: String,
    /// What was found; none if the data was not to be had.
    pub results: Option<Results>,
    /// The same as a ranking.
    pub ranking: Option<Ranking>,
}

impl Cell {
    /// Ranks what was found.
    pub fn new(data: &str, title: &str, partition: &str, results: Option<Results>) -> Self {
        // A run knows better than a flag who dealt its samples.
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
    pub standings: Vec<Standing>,
}

impl Comparison {
    /// Ranks methods in every run and over all.
    pub fn new(cells: Vec<Cell>, against: &str) -> Self {
        let standings = grid::standings(&cells, against);
        Self { cells, against: against.to_owned(), standings }
    }

    /// The only run, unless there are several.
    pub(crate) fn only(&self) -> Option<(&Results, &Ranking)> {
        match self.cells.as_slice() {
            [cell] => Some((cell.results.as_ref()?, cell.ranking.as_ref()?)),
            _ => None,
        }
    }

    /// What was found in every run that could be made.
    fn found(&self) -> impl Iterator<Item = (&Cell, &Results, &Ranking)> {
        self.cells
            .iter()
            .filter_map(|cell| Some((cell, cell.results.as_ref()?, cell.ranking.as_ref()?)))
    }

    /// What was found in every run if it is known of any of them when its data changes; else
    /// nothing.
    pub(crate) fn changing(&self) -> Vec<Results> {
        let any = self.found().any(|(_, results, _)| !crate::drift::changes(results).is_empty());
        self.found().filter(|_| any).map(|(_, results, _)| results.clone()).collect()
    }

    /// How samples were dealt in the runs that could be made; in all if none could.
    fn partitions(&self) -> Vec<&str> {
        let found = |cell: &Cell| cell.results.is_some();
        let any = self.cells.iter().any(found);
        let mut partitions = self.each_once(|cell| &cell.partition);
        partitions.retain(|partition| {
            !any || self.cells.iter().any(|cell| found(cell) && cell.partition == *partition)
        });
        partitions
    }

    /// Each value once, in the order of the runs.
    fn each_once<'c>(&'c self, of: impl Fn(&'c Cell) -> &'c str) -> Vec<&'c str> {
        let mut values = Vec::new();
        for value in self.cells.iter().map(of) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }

    fn cell(&self, title: &str, partition: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.title == title && cell.partition == partition)
    }

    /// The settings in a line; all of them where runs differ.
    fn setting(&self) -> String {
        let mut settings: Vec<String> = Vec::new();
        for (_, results, _) in self.found() {
            let setting = crate::figures::setting(results);
            if !settings.contains(&setting) {
                settings.push(setting);
            }
        }
        if settings.is_empty() {
            "No data set was available.".to_owned()
        } else {
            settings.join("; ")
        }
    }
}

#[cfg(test)]
mod sample {
    use super::*;
    use crate::figures::sample::results;
    use crate::results::{MethodResult, Moments};

    /// A run of four trials with `sk` for three kernels (the second is best, at level 1),
    /// `hindsight`, and these methods at these levels. Trials differ in what methods have in
    /// common, and a little in what they haven't.
    pub(super) fn run(levels: &[(&str, f64)]) -> Results {
        let mut run = results(3, 40, 4);
        let model = run.methods[0].clone();
        run.methods.retain(|method| matches!(method.name.as_str(), "sk" | "hindsight"));
        run.methods.extend(
            levels.iter().map(|(name, _)| MethodResult { name: (*name).into(), ..model.clone() }),
        );
        for (place, (name, level)) in levels.iter().enumerate() {
            let trials: Vec<f64> = [0.97, 0.99, 1.01, 1.03]
                .iter()
                .enumerate()
                .map(|(trial, common)| {
                    let own = if (trial + place).is_multiple_of(2) { 1e-4 } else { -1e-4 };
                    0.006 * level * common * (1.0 + own)
                })
                .collect();
            with_trials(&mut run, name, &trials);
        }
        let scaled: Vec<f64> = [0.97, 0.99, 1.01, 1.03].map(|common| 0.006 * common).to_vec();
        let sk = run.methods.iter_mut().find(|method| method.name == "sk" && method.best);
        if let Some(sk) = sk {
            sk.mse_trials = scaled;
        }
        run
    }

    /// Gives a method these errors, one per trial.
    pub(super) fn with_trials(results: &mut Results, name: &str, trials: &[f64]) {
        let mean = trials.iter().sum::<f64>() / trials.len() as f64;
        let squares: f64 = trials.iter().map(|error| (error - mean) * (error - mean)).sum();
        let method = results.methods.iter_mut().find(|method| method.name == name).unwrap();
        method.mse = Moments { mean, sd: (squares / (trials.len() - 1) as f64).sqrt() };
        method.mse_trials = trials.to_vec();
    }

    /// Gives a method this traffic per node and round.
    pub(super) fn with_bytes(results: &mut Results, name: &str, up: f64, down: f64) {
        let method = results.methods.iter_mut().find(|method| method.name == name).unwrap();
        (method.bytes_up, method.bytes_down) = (up, down);
    }

    pub(super) fn cell(data: &str, partition: &str, results: Option<Results>) -> Cell {
        let results = results.map(|results| Results { partition: partition.into(), ..results });
        Cell::new(data, data, partition, results)
    }

    pub(super) fn one(results: Results) -> Comparison {
        Comparison::new(vec![Cell::new("twitter", "Twitter", "round-robin", Some(results))], "mk")
    }

    /// Two data sets, two partitions, one run missing.
    pub(super) fn grid() -> Comparison {
        let cells = vec![
            cell("one", "shuffled", Some(run(&[("mk", 2.0), ("gr", 1.0), ("last", 4.0)]))),
            cell("one", "blocks", Some(run(&[("mk", 2.0), ("gr", 0.9), ("last", 0.5)]))),
            cell("two", "shuffled", Some(run(&[("mk", 1.0), ("gr", 1.2), ("last", 3.0)]))),
            cell("two", "blocks", None),
        ];
        Comparison::new(cells, "mk")
    }
}
