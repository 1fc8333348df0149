//! What is to be compared: data sets, partitions and settings, from flags or from a file such as
//! `experiments/compare.toml`.

use std::path::Path;

use hedgerow::method::{METHODS, MethodInfo, Reference};
use hedgerow_config::{ConfigError, Layer, Merged};
use serde::Deserialize;
use toml::Table;

use super::Shard;
use crate::settings::{MethodChoice, Scope, Settings};

/// The methods that are compared by default: all, with references, but for the previous
/// label of the whole stream. It is added to time series; where samples have no order, nobody could
/// know it. Of a method whose nodes have layers of their own, the shared predictions are compared
/// too. The first federated method that is run by default is also run at each device alone and with
/// all samples in one place, to judge federating by.
pub fn default_methods() -> impl Iterator<Item = MethodChoice> {
    let is_known = |info: &&&MethodInfo| info.reference != Some(Reference::PreviousLabel);
    let with_shared = |info: &&'static MethodInfo| {
        let choice = MethodChoice::from(*info);
        let shared = MethodChoice { personal: Some(false), ..choice };
        [Some(choice), info.prefers_personal.then_some(shared)].into_iter().flatten()
    };
    let is_federated =
        |choice: &MethodChoice| choice.scope == Scope::Federated && choice.info.travels();
    let settings = Settings::load(&[]).ok();
    let first = settings.and_then(|settings| settings.methods.into_iter().find(is_federated));
    let apart = move |scope| first.map(|choice| MethodChoice { scope, ..choice });
    let apart = [Scope::Alone, Scope::Pooled].into_iter().filter_map(apart);
    METHODS.iter().filter(is_known).flat_map(with_shared).chain(apart)
}

/// The grid that comes with the program.
const PUBLISHED_GRID: &str = include_str!("../../experiments/compare.toml");

/// The keys of a grid file.
const DEFAULTS: &str =
    "data = []\npartitions = []\nbudgets = []\nagainst = \"\"\nvariants = []\n[settings]\n";

/// A grid of runs.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct GridConfig {
    /// Data sets; none is what the settings say.
    pub data: Option<Vec<String>>,
    /// Partitions; none is what the settings say.
    pub partitions: Option<Vec<String>>,
    /// Budgets that every run is made with; none is what the settings say.
    pub budgets: Option<Vec<i64>>,
    /// The method whose error is 1 in ratios; several with commas between them are the best of
    /// them in each run.
    pub against: Option<String>,
    /// Every run is made in each of these variants, which are compared with the first; none is one
    /// run as the settings say.
    pub variants: Vec<GridVariant>,
    /// Settings that differ from the defaults.
    pub settings: Table,
    /// Which of the runs are made here; flags alone say it.
    #[serde(skip)]
    pub shard: Shard,
}

/// Settings that distinguish some runs of a grid from others.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridVariant {
    /// Name in tables.
    pub name: String,
    /// Settings that differ from those of the grid.
    #[serde(default)]
    pub settings: Table,
}

impl GridConfig {
    /// The grid that comes with the program: nine data sets, dealt in five ways.
    pub fn published() -> Result<Self, ConfigError> {
        Self::from_layer(Layer::toml("experiments/compare.toml", PUBLISHED_GRID)?)
    }

    /// The grid of a file.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        Self::from_layer(Layer::file(file)?)
    }

    fn from_layer(layer: Layer) -> Result<Self, ConfigError> {
        let merged = Merged::new(DEFAULTS, &[layer])?;
        let Self { data, partitions, budgets, against, variants, settings, shard } =
            merged.read()?;
        Ok(Self {
            data: data.filter(|_| merged.is_given("data")),
            partitions: partitions.filter(|_| merged.is_given("partitions")),
            budgets: budgets.filter(|_| merged.is_given("budgets")),
            against: against.filter(|_| merged.is_given("against")),
            variants,
            settings,
            shard,
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
        let names: Vec<String> = default_methods().map(MethodChoice::name).collect();
        assert_eq!(names[..4], ["gr", "gr+shared", "tr", "tr+shared"]);
        assert_eq!(names[names.len() - 2..], ["tr+alone", "tr+pooled"]);
        assert!(!names.contains(&"previous".to_owned()));
    }

    #[test]
    fn the_other_grids_name_what_there_is() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
        for name in ["bytes", "drift", "long", "lost-uploads", "own-layer", "own-layer-nodes"] {
            let config = GridConfig::read(&folder.join(name).with_extension("toml")).unwrap();
            let has_data = |data: &String| {
                catalog::find(data).is_some() || hedgerow_data::streams::find(data).is_some()
            };
            assert!(config.data.unwrap().iter().all(has_data), "{name}");
            let deals = config.partitions.unwrap_or_default();
            assert!(deals.iter().all(|deal| Partition::parse(deal).is_some()), "{name}");
            for variant in config.variants {
                let layers = [config.settings.clone(), variant.settings];
                Settings::load(&layers.map(|table| Layer::table(name, table))).unwrap();
            }
            let settings = Settings::load(&[Layer::table(name, config.settings)]).unwrap();
            let methods: Vec<String> =
                settings.methods.iter().flat_map(|one| [one.name(), one.shared_name()]).collect();
            let against = config.against.unwrap();
            let is_run = |name: &str| methods.iter().any(|known| known == name);
            assert!(name == "drift" || against.split(',').all(is_run), "{name}: {methods:?}");
        }
    }

    #[test]
    fn a_file_with_a_wrong_key_is_refused() {
        let message =
            GridConfig::from_layer(Layer::toml("my.toml", "partition = [\"blocks\"]").unwrap());
        assert_eq!(
            message.unwrap_err().to_string(),
            "my.toml: unknown key \"partition\" (did you mean \"partitions\"?)"
        );
    }
}
