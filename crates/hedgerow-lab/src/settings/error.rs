//! Why settings can't be used.

use std::path::PathBuf;

use hedgerow::PlanError;
use hedgerow::features::FeatureError;
use hedgerow::method::BudgetTooSmall;

use hedgerow_data::catalog::NotFound;

/// Why settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file can't be read.
    #[error("can't read {}: {source}{}", file.display(), if source.kind() == std::io::ErrorKind::InvalidData { " (data goes behind --data)" } else { "" })]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file isn't TOML.
    #[error("{origin} is not valid TOML: {message}")]
    NotToml {
        /// Where.
        origin: String,
        /// What the parser says.
        message: String,
    },
    /// An unknown key.
    #[error("{origin}: unknown key {key:?}{}", suggestion.as_ref().map(|s| format!(", did you mean {s:?}?")).unwrap_or_default())]
    UnknownKey {
        /// Where.
        origin: String,
        /// What.
        key: String,
        /// The nearest known key.
        suggestion: Option<String>,
    },
    /// A value of another kind.
    #[error("{origin}: {key} must be {expected}, but is {found}")]
    WrongType {
        /// Where.
        origin: String,
        /// Which.
        key: String,
        /// What kind it must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A value that makes no sense.
    #[error("{key} must be {bound}, but is {value}")]
    OutOfBounds {
        /// Which.
        key: String,
        /// In words.
        bound: String,
        /// What it is.
        value: String,
    },
    /// A folder without files.
    #[error("{}: a folder without files", .0.display())]
    NoFiles(PathBuf),
    /// A data set that isn't there.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// A budget that leaves no room for a model.
    #[error("federation.budget: {0}")]
    Budget(#[from] BudgetTooSmall),
    /// A dictionary that can't be drawn from.
    #[error("kernels: {0}")]
    Kernels(#[from] FeatureError),
    /// Learning parameters that make no sense.
    #[error("learning: {0}")]
    Learning(PlanError),
}

impl From<PlanError> for SettingsError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Budget(error) => Self::Budget(error),
            PlanError::Features(error) => Self::Kernels(error),
            error => Self::Learning(error),
        }
    }
}
