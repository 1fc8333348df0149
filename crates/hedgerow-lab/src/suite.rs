//! [`Suite`]: the runs behind the paper's figures, from `experiments/*.toml`. Every finished run is stored at once, and a run that
//! is stored is not run again.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};
use toml::Table;

use crate::data::Dataset;
use crate::data::catalog::{self, NotFound};
use crate::output::{OutputError, write_file};
use crate::reproduction::{Figure, Panel, Reproduction, Variants};
use crate::results::{Results, from_stored_json, to_stored_json};
use crate::run::{Experiment, RunError, load_data};
use crate::settings::{Override, Scaling, Settings, SettingsError, Source};

/// The experiments that come with the program.
const EXPERIMENTS: [(&str, &str); 4] = [
    ("fig2", include_str!("../../../experiments/fig2.toml")),
    ("fig3", include_str!("../../../experiments/fig3.toml")),
    ("fig4", include_str!("../../../experiments/fig4.toml")),
    (AUTHORS, include_str!("../../../experiments/authors.toml")),
];
const AUTHORS: &str = "authors";

/// To be raised with every change that changes results: stored runs of another revision are run again.
const REVISION: u32 = 1;

/// One file of `experiments/`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    #[serde(default)]
    figure: u32,
    /// Other figures whose runs it is drawn from.
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

/// Why runs could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// An experiment of the program's own that can't be used.
    #[error("experiments/{name}.toml: {source}")]
    Plan {
        /// Which.
        name: &'static str,
        /// Why.
        source: Box<toml::de::Error>,
    },
    /// Settings that make no sense.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A run could not be stored.
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// What is to be reproduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One figure of the paper.
    Figure(u32),
    /// All figures, and what lies between the paper and its authors' code.
    All,
}

/// Runs, finished or not.
pub struct Suite {
    figures: Vec<(Plan, Vec<usize>)>,
    variants: Option<(Plan, Vec<usize>)>,
    items: Vec<Item>,
    folder: PathBuf,
}

/// One run on one data set.
struct Item {
    name: String,
    title: String,
    state: State,
}

enum State {
    Missing(NotFound),
    Pending(Box<(Settings, Dataset)>),
    Done(Box<Results>),
}

impl Suite {
    /// Looks what is stored in `folder`, and reads the data of what isn't. Flags change the settings of all runs.
    pub fn prepare(scope: Scope, flags: &[Override], folder: &Path) -> Result<Self, SuiteError> {
        let mut plans: Vec<(&str, Plan)> = Vec::new();
        for (name, text) in EXPERIMENTS {
            let plan =
                toml::from_str(text).map_err(|source| SuiteError::Plan { name, source: Box::new(source) })?;
            plans.push((name, plan));
        }
        let wanted: Vec<u32> = match scope {
            Scope::All => plans.iter().map(|(_, plan)| plan.figure).collect(),
            Scope::Figure(figure) => {
                let runs_of = plans
                    .iter()
                    .filter(|(_, plan)| plan.figure == figure)
                    .flat_map(|(_, plan)| &plan.runs_of);
                runs_of.copied().chain([figure]).collect()
            }
        };
        let mut suite = Self { figures: vec![], variants: None, items: vec![], folder: folder.to_owned() };
        for (name, plan) in plans {
            if !wanted.contains(&plan.figure) || plan.data.is_empty() {
                continue;
            }
            let mut items = Vec::new();
            for data in &plan.data {
                items.push(suite.items.len());
                let item = suite.item(data, &plan, flags)?;
                suite.items.push(item);
            }
            match name == AUTHORS {
                true => suite.variants = Some((plan, items)),
                false => suite.figures.push((plan, items)),
            }
        }
        Ok(suite)
    }

    fn item(&self, data: &str, plan: &Plan, flags: &[Override]) -> Result<Item, SuiteError> {
        let title = catalog::find(data).map_or_else(|| data.to_owned(), |entry| entry.title.clone());
        let named = Override { key: "data.name".into(), value: data.into(), origin: "experiments".into() };
        let flags: Vec<Override> = flags.iter().cloned().chain([named]).collect();
        let state = match Settings::with_layer(plan.settings.clone(), "experiments", &flags) {
            Err(SettingsError::NotFound(missing)) => State::Missing(missing),
            Err(error) => return Err(error.into()),
            Ok(settings) => match self.stored(data, &settings) {
                Some(results) => State::Done(Box::new(results)),
                None => {
                    let data = load_data(&settings, &|_| {})?;
                    State::Pending(Box::new((settings, data)))
                }
            },
        };
        Ok(Item { name: data.to_owned(), title, state })
    }

    fn stored(&self, name: &str, settings: &Settings) -> Option<Results> {
        let text = std::fs::read_to_string(self.file(name, settings)).ok()?;
        from_stored_json(&text).ok()
    }

    /// Where a run is stored: by everything that its results depend on.
    fn file(&self, name: &str, settings: &Settings) -> PathBuf {
        let mut effective = settings.effective.clone();
        // Neither where things are nor how many threads there are changes a result.
        if let Some(run) = effective.get_mut("run").and_then(toml::Value::as_table_mut) {
            run.remove("out");
            run.remove("threads");
        }
        if let Some(data) = effective.get_mut("data").and_then(toml::Value::as_table_mut) {
            data.remove("dir");
        }
        let mut hash = Sha256::new();
        hash.update(format!("{} {REVISION} {effective}", env!("CARGO_PKG_VERSION")));
        let files = match &settings.data.source {
            Source::Files { files, .. } => files.as_slice(),
            Source::Builtin(_) => &[],
        };
        let ranges = if let Scaling::Ranges(file) = &settings.scaling { Some(file) } else { None };
        for file in files.iter().chain(ranges) {
            // What can't be read is found out when it is.
            if let Ok(mut file) = std::fs::File::open(file) {
                _ = std::io::copy(&mut file, &mut HashWriter(&mut hash));
            }
            hash.update([0]);
        }
        let name_of_hash: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(format!("{name}-{name_of_hash}.json"))
    }

    /// How many steps of progress are ahead.
    pub fn steps(&self) -> Result<u64, SuiteError> {
        let mut steps = 0;
        for item in &self.items {
            if let State::Pending(pending) = &item.state {
                steps += Experiment::new(&pending.0, &pending.1)?.steps();
            }
        }
        Ok(steps)
    }

    /// How many runs are finished, and how many there are.
    pub fn finished(&self) -> (usize, usize) {
        let done = self.items.iter().filter(|item| matches!(item.state, State::Done(_))).count();
        (done, self.items.len() - self.missing().len())
    }

    /// Data sets that are not to be had, each once.
    pub fn missing(&self) -> Vec<&NotFound> {
        let mut missing: Vec<&NotFound> = Vec::new();
        for item in &self.items {
            if let State::Missing(one) = &item.state
                && !missing.iter().any(|known| known.name == one.name)
            {
                missing.push(one);
            }
        }
        missing
    }

    /// Runs what isn't finished, one after the other, and stores each. `start` is told the name of each, `step` of each step.
    pub fn run(&mut self, start: &dyn Fn(&str), step: &(dyn Fn() + Sync)) -> Result<(), SuiteError> {
        for at in 0..self.items.len() {
            let item = &self.items[at];
            let State::Pending(pending) = &item.state else { continue };
            let (settings, data) = &**pending;
            start(&item.title);
            let results = Experiment::new(settings, data)?.run(step)?;
            let text = to_stored_json(&results).map_err(OutputError::from)?;
            write_file(&self.file(&item.name, settings), text.as_bytes())?;
            self.items[at].state = State::Done(Box::new(results));
        }
        Ok(())
    }

    /// All that is finished, in the paper's arrangement.
    pub fn reproduction(&self) -> Reproduction {
        let panels = |items: &[usize]| items.iter().map(|item| self.panel(&self.items[*item])).collect();
        let figures = self.figures.iter().map(|(plan, items)| Figure {
            number: plan.figure,
            title: plan.title.clone(),
            columns: plan.columns,
            panels: panels(items),
        });
        let variants = self
            .variants
            .as_ref()
            .map(|(plan, items)| Variants { panels: panels(items), meanings: plan.meanings.clone() });
        Reproduction { figures: figures.collect(), variants: variants.unwrap_or_default() }
    }

    fn panel(&self, item: &Item) -> Panel {
        let results = match &item.state {
            State::Done(results) => Some((**results).clone()),
            State::Missing(_) | State::Pending(_) => None,
        };
        let provenance = results.as_ref().map_or_else(
            || "not available".to_owned(),
            |results| match results.scaling.as_str() {
                "" => results.data.provenance.clone(),
                scaling => format!("{}; scaled {scaling}", results.data.provenance),
            },
        );
        Panel { name: item.name.clone(), title: item.title.clone(), provenance, results }
    }
}

/// Takes what is written to it into a hash.
struct HashWriter<'a>(&'a mut Sha256);

impl std::io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_stored_by_what_its_results_depend_on() {
        let folder = tempfile::tempdir().unwrap();
        let table = folder.path().join("t.csv");
        let ranges = folder.path().join("ranges.toml");
        std::fs::write(&table, "a,y\n1,2\n3,4\n").unwrap();
        std::fs::write(&ranges, "[ranges]\na = [0, 1]\ny = [0, 1]\n").unwrap();
        let suite = Suite { figures: vec![], variants: None, items: vec![], folder: "f".into() };
        let name = format!("data.name={}", table.display());
        let file = |flag: &str| {
            let flags = [&name, flag].map(|flag| Override::parse(flag).unwrap());
            suite.file("t", &Settings::load(None, &flags).unwrap())
        };
        let plain = file("run.seed=1");
        for flag in ["run.threads=7", "run.out=elsewhere", "data.dir=elsewhere"] {
            assert_eq!(file(flag), plain, "{flag}");
        }
        for flag in ["run.seed=2", "data.lags=1", "federation.nodes=2", "data.scaling=none"] {
            assert_ne!(file(flag), plain, "{flag}");
        }
        let by_ranges = || file(&format!("data.scaling={}", ranges.display()));
        let before = by_ranges();
        std::fs::write(&ranges, "[ranges]\na = [0, 2]\ny = [0, 1]\n").unwrap();
        assert_ne!(by_ranges(), before);
        std::fs::write(&table, "a,y\n1,2\n3,44\n").unwrap();
        assert_ne!(file("run.seed=1"), plain);
    }
}
