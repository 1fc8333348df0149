//! The finished runs of a suite, in the paper's arrangement.

use crate::results::{Results, all_sizes};

/// All runs of a reproduction.
#[derive(Debug, Clone, Default)]
pub struct Reproduction {
    /// The figures of errors, in the paper's order; together they make the figure of convergence.
    pub figures: Vec<Figure>,
    /// The variants between the paper and its authors' code.
    pub variants: Variants,
}

/// A figure of the paper: one chart per data set.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Its number in the paper.
    pub number: u32,
    /// What it shows.
    pub title: String,
    /// Charts in a row.
    pub columns: usize,
    /// Its charts.
    pub panels: Vec<Panel>,
}

/// One data set.
#[derive(Debug, Clone)]
pub struct Panel {
    /// A short name without blanks, such as `toms-hardware`.
    pub name: String,
    /// The paper's name.
    pub title: String,
    /// Where the data came from, and what was done to it, in words.
    pub provenance: String,
    /// The results; none if the data was not available.
    pub results: Option<Results>,
}

/// Runs of `mk` beside its variants (`mk:voters` and so on), and what those are.
#[derive(Debug, Clone, Default)]
pub struct Variants {
    /// One per data set.
    pub panels: Vec<Panel>,
    /// Name of a variant and what it does differently, in the order of the table.
    pub meanings: Vec<(String, String)>,
}

impl Reproduction {
    /// Every data set of every figure.
    pub fn panels(&self) -> impl Iterator<Item = &Panel> {
        self.figures.iter().flat_map(|figure| &figure.panels)
    }

    /// Every data set with results.
    pub fn found(&self) -> impl Iterator<Item = (&Panel, &Results)> {
        self.panels().filter_map(|panel| Some((panel, panel.results.as_ref()?)))
    }

    /// The settings in a line; all of them where runs differ.
    pub fn setting(&self) -> String {
        all_sizes(self.found().map(|(_, results)| results))
    }
}
