//! What is to be compared: data sets, partitions and settings, from flags or from a file such as
//! `experiments/compare.toml`.

use std::path::Path;

use hedgerow::method::METHODS;
use serde::Deserialize;
use toml::Table;

use crate::settings::{MethodChoice, SettingsError};

/// The methods that are compared by default: all, with references.
pub fn default_methods() -> impl Iterator<Item = MethodChoice> {
    METHODS.iter().map(|&info| {
        let personal = info.prefers_personal;
        MethodChoice { personal, ..MethodChoice::from(info) }
    })
}

/// The grid that comes with the program.
const PUBLISHED_GRID: &str = include_str!("../../experiments/compare.toml");

/// A grid of runs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridConfig {
    /// Data sets; none is what the settings say.
    #[serde(default)]
    pub data: Option<Vec<String>>,
    /// Partitions; none is what the settings say.
    #[serde(default)]
    pub partitions: Option<Vec<String>>,
    /// The method whose error is 1 in ratios.
    #[serde(default)]
    pub against: Option<String>,
    /// Settings that differ from the defaults.
    #[serde(default)]
    pub settings: Table,
}

impl GridConfig {
    /// The grid that comes with the program: nine data sets, dealt in five ways.
    pub fn published() -> Result<Self, SettingsError> {
        Self::parse("experiments/compare.toml", PUBLISHED_GRID)
    }

    /// The grid of a file.
    pub fn read(file: &Path) -> Result<Self, SettingsError> {
        let unreadable = |source| SettingsError::Unreadable { file: file.to_owned(), source };
        Self::parse(
            &file.display().to_string(),
            &std::fs::read_to_string(file).map_err(unreadable)?,
        )
    }

    fn parse(origin: &str, text: &str) -> Result<Self, SettingsError> {
        toml::from_str(text).map_err(|error| SettingsError::NotToml {
            origin: origin.to_owned(),
            // On one line, as all messages are.
            message: error.to_string().split_whitespace().collect::<Vec<_>>().join(" "),
        })
    }

    /// Whether its settings name methods.
    pub(super) fn names_methods(&self) -> bool {
        self.settings.get("federation").and_then(|section| section.get("methods")).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_data::catalog;
    use hedgerow_data::partition::Partition;

    #[test]
    fn the_published_grid_names_what_there_is() {
        let config = GridConfig::published().unwrap();
        let (data, partitions) = (config.data.clone().unwrap(), config.partitions.clone().unwrap());
        assert_eq!((data.len(), partitions.len()), (9, 5));
        assert!(data.iter().all(|name| catalog::find(name).is_some()), "{data:?}");
        assert!(partitions.iter().all(|name| Partition::parse(name).is_some()), "{partitions:?}");
        assert!(!config.names_methods());
        assert_eq!(
            default_methods().next().map(MethodChoice::name).as_deref(),
            Some("gr+personal")
        );
    }

    #[test]
    fn a_file_with_a_wrong_key_is_refused_in_one_line() {
        let message =
            GridConfig::parse("my.toml", "partition = [\"blocks\"]\n").unwrap_err().to_string();
        assert!(
            message.starts_with("my.toml is not valid TOML") && message.contains("`partition`"),
            "{message}"
        );
        assert_eq!(message.lines().count(), 1);
    }
}
