//! Writing results: folders are checked before a run, and files are renamed into place after it,
//! once all of them are written.

use std::io::Write;
use std::path::{Path, PathBuf};

use hedgerow_data::file::{waiting_file, write_whole};
use tempfile::NamedTempFile;

use crate::results::{MethodResult, Moments, Results};

/// A folder that results can be written to.
#[derive(Debug)]
pub struct OutputFolder {
    path: PathBuf,
    /// Every file that may be written.
    names: &'static [&'static str],
}

/// Why results could not be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The folder or a file in it.
    #[error("can't write {}: {source}", path.display())]
    Unwritable {
        /// The folder or file.
        path: PathBuf,
        /// What the system reported.
        source: std::io::Error,
    },
    /// The summary could not be written as JSON.
    #[error("summary.json: {0}")]
    Json(#[from] serde_json::Error),
}

impl OutputFolder {
    /// Makes the folder if it doesn't exist, and checks that files with these names can be written.
    pub fn prepare(path: &Path, names: &'static [&'static str]) -> Result<Self, OutputError> {
        let unwritable = |source| OutputError::Unwritable { path: path.to_owned(), source };
        std::fs::create_dir_all(path).map_err(unwritable)?;
        let mut probe = NamedTempFile::new_in(path).map_err(unwritable)?;
        probe.write_all(b"probe").map_err(unwritable)?;
        // Find obstacles before the run, not after it.
        names.iter().try_for_each(|name| check_file(&path.join(name)))?;
        Ok(Self { path: path.to_owned(), names })
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes files by name, replacing those of an earlier run. No file appears before all of them
    /// have been written to temporary files. Returns their paths.
    pub fn write(&self, files: &[(String, String)]) -> Result<Vec<PathBuf>, OutputError> {
        let mut waiting = Vec::new();
        for (name, content) in files {
            let path = self.path.join(name);
            waiting.push((write_waiting(&self.path, &path, content.as_bytes())?, path));
        }
        let mut written = Vec::new();
        for (file, path) in waiting {
            put_in_place(file, &path)?;
            written.push(path);
        }
        // A figure of an earlier run would mislead.
        let known = self.names.iter().map(|name| self.path.join(name));
        for stale in known.filter(|path| !written.contains(path)) {
            match std::fs::remove_file(&stale) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(OutputError::Unwritable { path: stale, source });
                }
                _ => {}
            }
        }
        Ok(written)
    }
}

/// Writes a file, and creates its folder. The file appears only when it is complete.
pub fn write_file(path: &Path, content: &[u8]) -> Result<(), OutputError> {
    let unwritable = |source| OutputError::Unwritable { path: path.to_owned(), source };
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).and_then(|()| write_whole(path, content)).map_err(unwritable)
}

/// An error if something is in the way of a file that [`write_file`] is to write later.
pub fn check_file(path: &Path) -> Result<(), OutputError> {
    let is_there = |path: &&Path| !path.as_os_str().is_empty() && path.exists();
    let folder = path.ancestors().skip(1).find(is_there);
    let source = match folder {
        Some(folder) if !folder.is_dir() => {
            std::io::Error::other(format!("{} is not a folder", folder.display()))
        }
        _ if path.exists() && !path.is_file() => {
            std::io::Error::other("something that is not a file is in the way")
        }
        _ => return Ok(()),
    };
    Err(OutputError::Unwritable { path: path.to_owned(), source })
}

/// Writes the content of a file to a temporary file in its folder.
fn write_waiting(folder: &Path, path: &Path, content: &[u8]) -> Result<NamedTempFile, OutputError> {
    let written = waiting_file(folder).and_then(|mut file| {
        file.write_all(content)?;
        file.as_file().sync_all()?;
        Ok(file)
    });
    written.map_err(|source| OutputError::Unwritable { path: path.to_owned(), source })
}

fn put_in_place(file: NamedTempFile, path: &Path) -> Result<(), OutputError> {
    let unwritable = |source| OutputError::Unwritable { path: path.to_owned(), source };
    file.persist(path).map(drop).map_err(|error| unwritable(error.error))
}

/// `summary.json`.
pub fn summary_json(results: &Results) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(results)? + "\n")
}

/// `curves.csv`: one row per method and recorded round, averaged over trials.
pub fn curves_csv(results: &Results) -> String {
    let mut csv = String::from(
        "method,kernel,round,mse,mse_sd,mse_window,mse_window_sd,loss,loss_sd,coverage,coverage_sd,regret,regret_sd",
    );
    for kernel in 1..=results.kernels.len() {
        csv.push_str(&format!(",share_{kernel}"));
    }
    csv.push('\n');
    for method in &results.methods {
        push_curve(&mut csv, method, results.kernels.len());
    }
    csv
}

fn push_curve(csv: &mut String, method: &MethodResult, kernels: usize) {
    let curve = &method.curve;
    let both = |moments: Option<&Moments>| match moments {
        Some(Moments { mean, sd }) if mean.is_finite() => format!("{mean},{sd}"),
        _ => ",".to_owned(),
    };
    // The regret is recorded at some of the rounds only, and some of its rounds are its own.
    let mut rounds: Vec<u64> = curve.rounds.iter().chain(&curve.regret_rounds).copied().collect();
    rounds.sort_unstable();
    rounds.dedup();
    for round in rounds {
        let point = curve.rounds.binary_search(&round).ok();
        let regret = curve.regret_rounds.binary_search(&round).ok();
        let kernel = method.kernel.map(|kernel| kernel.to_string()).unwrap_or_default();
        let mse = both(point.map(|point| &curve.mse[point]));
        let window = both(point.and_then(|point| curve.mse_window.get(point)));
        let loss = both(point.and_then(|point| curve.loss.get(point)));
        let coverage = both(point.and_then(|point| curve.coverage.get(point)));
        let regret = both(regret.map(|point| &curve.regret[point]));
        let name = &method.name;
        csv.push_str(&format!("{name},{kernel},{round},{mse},{window},{loss},{coverage},{regret}"));
        let shares = point.and_then(|point| curve.shares.get(point));
        for kernel in 0..kernels {
            csv.push(',');
            if let Some(shares) = shares {
                csv.push_str(&shares[kernel].to_string());
            }
        }
        csv.push('\n');
    }
}
