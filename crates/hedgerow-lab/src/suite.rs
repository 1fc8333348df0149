//! [`Suite`]: the runs behind the paper's figures, from `experiments/*.toml`. Every finished run is
//! stored at once, and a run that is stored is not run again.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Table;

pub use fed_poe::FedPoe;
pub use reproduction::{Figure, Panel, Reproduction, Variants};
pub use runs::Runs;

use crate::output::OutputError;
use crate::run::RunError;
use crate::settings::{Settings, SettingsError};
use hedgerow_config::Layer;
use hedgerow_data::catalog;

mod fed_poe;
mod reproduction;
mod runs;

/// The experiments that come with the program.
const EXPERIMENTS: [(&str, &str); 4] = [
    ("fig2", include_str!("../experiments/fig2.toml")),
    ("fig3", include_str!("../experiments/fig3.toml")),
    ("fig4", include_str!("../experiments/fig4.toml")),
    (AUTHORS_EXPERIMENT, include_str!("../experiments/authors.toml")),
];
const AUTHORS_EXPERIMENT: &str = "authors";

/// Raise this with every change of results: stored runs of another revision are run again.
const RESULTS_REVISION: u32 = 3;

/// One file of `experiments/`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExperimentFile {
    #[serde(default)]
    figure: u32,
    /// Other figures whose runs it uses.
    #[serde(default)]
    runs_of: Vec<u32>,
    #[serde(default)]
    title: String,
    #[serde(default = "one")]
    columns: usize,
    #[serde(default)]
    data: Vec<String>,
    #[serde(default)]
    settings: Table,
    /// What variants of a method do, in the order of the table.
    #[serde(default)]
    meanings: Vec<(String, String)>,
}

fn one() -> usize {
    1
}

/// Why runs failed.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// An experiment file of the program is invalid.
    #[error("experiments/{name}.toml: {source}")]
    Experiment {
        /// Name of the file, without its ending.
        name: &'static str,
        /// What the parser reported.
        source: Box<toml::de::Error>,
    },
    /// The settings are wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A run could not be stored.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A file of the original data is not there.
    #[error("no file whose name contains {name:?} is in the folder of the data")]
    NoFile {
        /// What its name contains.
        name: &'static str,
    },
    /// A file of the original data lacks a column.
    #[error("{}: there is no column {column:?}", path.display())]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
    },
    /// A file of the original data is too short.
    #[error("{}: {expected} rows without gaps are needed, but {found} are there", path.display())]
    TooFewRows {
        /// The file.
        path: PathBuf,
        /// Rows that it must have.
        expected: usize,
        /// Rows that it has.
        found: usize,
    },
}

/// What is to be reproduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One figure of the paper.
    Figure(u32),
    /// All figures, and the variants between the paper and its authors' code.
    All,
}

/// Runs, finished or not.
pub struct Suite {
    figures: Vec<(ExperimentFile, Vec<usize>)>,
    variants: Option<(ExperimentFile, Vec<usize>)>,
    /// The runs of all figures.
    pub runs: Runs,
}

impl Suite {
    /// Looks what is stored in `folder`, and reads the data of what isn't. Flags change the
    /// settings of all runs.
    pub fn prepare(scope: Scope, flags: &[Layer], folder: &Path) -> Result<Self, SuiteError> {
        let mut files: Vec<(&str, ExperimentFile)> = Vec::new();
        for (name, text) in EXPERIMENTS {
            let file = toml::from_str(text)
                .map_err(|source| SuiteError::Experiment { name, source: Box::new(source) })?;
            files.push((name, file));
        }
        let wanted: Vec<u32> = match scope {
            Scope::All => files.iter().map(|(_, file)| file.figure).collect(),
            Scope::Figure(figure) => {
                let runs_of = files
                    .iter()
                    .filter(|(_, file)| file.figure == figure)
                    .flat_map(|(_, file)| &file.runs_of);
                runs_of.copied().chain([figure]).collect()
            }
        };
        let mut suite = Self { figures: vec![], variants: None, runs: Runs::new(folder) };
        for (name, file) in files {
            if !wanted.contains(&file.figure) || file.data.is_empty() {
                continue;
            }
            let mut items = Vec::new();
            for data in &file.data {
                items.push(suite.runs.len());
                suite.add(data, &file, flags)?;
            }
            match name == AUTHORS_EXPERIMENT {
                true => suite.variants = Some((file, items)),
                false => suite.figures.push((file, items)),
            }
        }
        Ok(suite)
    }

    fn add(
        &mut self,
        data: &str,
        file: &ExperimentFile,
        flags: &[Layer],
    ) -> Result<(), SuiteError> {
        let title =
            catalog::find(data).map_or_else(|| data.to_owned(), |entry| entry.title.clone());
        let mut layers = vec![Layer::table("experiments", file.settings.clone())];
        layers.extend(flags.iter().cloned());
        layers.push(Layer::value("experiments", "data.name", data));
        let settings = Settings::load(&layers);
        self.runs.add(data, &title, settings, |_, _| {})
    }

    /// All that is finished, in the paper's arrangement.
    pub fn reproduction(&self) -> Reproduction {
        let panels =
            |items: &[usize]| items.iter().filter_map(|place| self.panel(*place)).collect();
        let figures = self.figures.iter().map(|(file, items)| Figure {
            number: file.figure,
            title: file.title.clone(),
            columns: file.columns,
            panels: panels(items),
        });
        let variants = self.variants.as_ref().map(|(file, items)| Variants {
            panels: panels(items),
            meanings: file.meanings.clone(),
        });
        Reproduction { figures: figures.collect(), variants: variants.unwrap_or_default() }
    }

    fn panel(&self, place: usize) -> Option<Panel> {
        let (name, title) = self.runs.names(place)?;
        let results = self.runs.results(place).cloned();
        let provenance = results.as_ref().map_or_else(
            || "not available".to_owned(),
            |results| match results.scaling.as_str() {
                "" => results.data.provenance.clone(),
                scaling => format!("{}; scaled {scaling}", results.data.provenance),
            },
        );
        Some(Panel { name: name.to_owned(), title: title.to_owned(), provenance, results })
    }
}
