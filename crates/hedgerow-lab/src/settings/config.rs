//! Settings as `defaults.toml` has them.

use hedgerow::importance::ImportanceScope;
use hedgerow::learning::Level;
use hedgerow_config::{KernelSection, LearningSection, within};
use hedgerow_data::calendar::CalendarChoice;
use hedgerow_data::columns::{Categories, Disorder, Duplicates, Task};
use serde::Deserialize;

use super::{Participation, Scaling};

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Config {
    pub(super) data: DataConfig,
    pub(super) federation: FederationConfig,
    pub(super) run: RunConfig,
    pub(super) learning: LearningSection,
    pub(super) kernels: KernelSection,
    pub(super) participation: Participation,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct DataConfig {
    pub(super) name: String,
    pub(super) dir: String,
    pub(super) variant: String,
    pub(super) target: String,
    pub(super) series: String,
    pub(super) task: Task,
    pub(super) classes: Vec<String>,
    pub(super) features: Vec<String>,
    pub(super) drop: Vec<String>,
    pub(super) time: String,
    pub(super) calendar: CalendarChoice,
    pub(super) node: String,
    pub(super) missing: Vec<String>,
    pub(super) separator: String,
    pub(super) decimal: String,
    pub(super) header: String,
    pub(super) categories: Categories,
    #[serde(deserialize_with = "within::<0, 4_294_967_295, _, _>")]
    pub(super) rows: usize,
    #[serde(deserialize_with = "within::<0, 10_000, _, _>")]
    pub(super) lags: usize,
    pub(super) lagged: Vec<String>,
    #[serde(deserialize_with = "within::<1, 10_000, _, _>")]
    pub(super) horizon: usize,
    pub(super) exogenous: String,
    pub(super) disorder: Disorder,
    pub(super) duplicates: Duplicates,
    pub(super) scaling: Scaling,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct FederationConfig {
    #[serde(deserialize_with = "within::<1, 10_000_000, _, _>")]
    pub(super) nodes: usize,
    #[serde(deserialize_with = "within::<0, 1_000_000, _, _>")]
    pub(super) budget: usize,
    pub(super) methods: Vec<String>,
    pub(super) personal: bool,
    pub(super) partition: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct RunConfig {
    #[serde(deserialize_with = "within::<1, 1_000_000, _, _>")]
    pub(super) trials: usize,
    #[serde(deserialize_with = "within::<0, 1_000_000_000, _, _>")]
    pub(super) rounds: usize,
    #[serde(deserialize_with = "within::<0, { i64::MAX }, _, _>")]
    pub(super) seed: u64,
    #[serde(deserialize_with = "within::<0, 1_024, _, _>")]
    pub(super) threads: usize,
    #[serde(deserialize_with = "within::<1, { i64::MAX }, _, _>")]
    pub(super) window: usize,
    pub(super) memory_limit: f64,
    pub(super) out: String,
    pub(super) interval: Level,
    pub(super) importance: ImportanceScope,
    pub(super) predictions: String,
    pub(super) save_model: String,
}
