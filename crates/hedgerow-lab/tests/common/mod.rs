//! Helpers for tests of tables: small files, settings as made by flags, and data as readable text.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use hedgerow_config::Layer;
use hedgerow_data::Dataset;
use hedgerow_lab::results::{MethodResult, Results};
use hedgerow_lab::run::{Experiment, load_data};
use hedgerow_lab::settings::Settings;
use tempfile::TempDir;

/// A folder with these files, and settings for each.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        let folder = TempDir::new().unwrap();
        files
            .iter()
            .for_each(|(name, content)| std::fs::write(folder.path().join(name), content).unwrap());
        Self(folder)
    }

    /// One file, called `t.csv`.
    pub(crate) fn one(content: &str) -> Self {
        Self::new(&[("t.csv", content.as_bytes())])
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Settings for that file, or for the whole folder if there is no name.
    pub(crate) fn settings(&self, name: &str, flags: &[&str]) -> Result<Settings, String> {
        let name = format!("data.name={}", self.path().join(name).display());
        let layers = Layer::sets(flags.iter().copied().chain([name.as_str()])).unwrap();
        Settings::load(&layers).map_err(|error| self.shown(&error))
    }

    /// The data of that file, or of the whole folder.
    pub(crate) fn read_named(&self, name: &str, flags: &[&str]) -> Result<Dataset, String> {
        let settings = self.settings(name, flags)?;
        load_data(&settings, &|_| {}).map_err(|error| self.shown(&error))
    }

    pub(crate) fn read(&self, flags: &[&str]) -> Result<Dataset, String> {
        self.read_named("t.csv", flags)
    }

    /// A message without the folder's own path.
    pub(crate) fn shown(&self, error: &dyn std::error::Error) -> String {
        error
            .to_string()
            .replace(&format!("{}/", self.path().display()), "")
            .replace(&self.path().display().to_string(), "FOLDER")
    }

    pub(crate) fn run(&self, flags: &[&str]) -> Result<Results, String> {
        let settings = self.settings("t.csv", flags)?;
        let data = load_data(&settings, &|_| {}).map_err(|error| self.shown(&error))?;
        let experiment = Experiment::new(&settings, &data).map_err(|error| self.shown(&error))?;
        experiment.run(&|| {}).map_err(|error| self.shown(&error))
    }
}

/// Each sample as `x1 x2 > y`; `?` is missing.
pub(crate) fn samples(data: &Dataset) -> Vec<String> {
    let mut x = Vec::new();
    data.inputs(&(0..data.len() as u32).collect::<Vec<_>>(), &mut x).unwrap();
    let rows = x.chunks_exact(data.features).zip(&data.y);
    rows.map(|(x, y)| format!("{} > {}", numbers(x), numbers(&[*y]))).collect()
}

pub(crate) fn numbers(numbers: &[f32]) -> String {
    let shown = numbers.iter().map(|n| if n.is_nan() { "?".to_owned() } else { n.to_string() });
    shown.collect::<Vec<_>>().join(" ")
}

/// The names of the nodes, and the node of each sample.
pub(crate) fn owners(data: &Dataset) -> (Vec<&str>, &[u32]) {
    let owners = data.owners.as_ref().unwrap();
    (owners.names.iter().map(String::as_str).collect(), &owners.ids)
}

pub(crate) fn last(data: &Dataset) -> String {
    numbers(data.last.as_ref().unwrap())
}

/// The result of a method; of `sk` the best.
pub(crate) fn method<'a>(results: &'a Results, name: &str) -> &'a MethodResult {
    results
        .methods
        .iter()
        .find(|method| method.name == name && (name != "sk" || method.best))
        .unwrap()
}

/// Asserts that a message has all these parts and is one line.
pub(crate) fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    assert!(!message.contains('\n'), "{message}");
}
