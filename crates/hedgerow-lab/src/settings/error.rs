//! [`SettingsError`].

use std::path::PathBuf;

use hedgerow::PlanError;
use hedgerow::features::FeatureError;
use hedgerow::method::BudgetTooSmall;
use hedgerow_config::ConfigError;

use hedgerow_data::catalog::NotFound;

/// Settings that can't be used, or data that they name and that isn't there.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A wrong key or value.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A folder without files.
    #[error("{}: a folder without files", .0.display())]
    NoFiles(PathBuf),
    /// A data set that isn't on this machine.
    #[error(transparent)]
    NotFound(#[from] NotFound),
}

impl SettingsError {
    /// A value that can't be used.
    pub(crate) fn out_of_bounds(key: &str, bound: impl ToString, value: impl ToString) -> Self {
        ConfigError::out_of_bounds(key, bound, value).into()
    }
}

impl From<PlanError> for SettingsError {
    fn from(error: PlanError) -> Self {
        ConfigError::from_plan(error, "federation.budget", "federation.methods").into()
    }
}

impl From<BudgetTooSmall> for SettingsError {
    fn from(error: BudgetTooSmall) -> Self {
        PlanError::from(error).into()
    }
}

impl From<FeatureError> for SettingsError {
    fn from(error: FeatureError) -> Self {
        PlanError::from(error).into()
    }
}
