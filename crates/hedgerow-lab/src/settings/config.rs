//! Settings as they are written: TOML of this shape, not checked yet.

use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub(super) data: DataConfig,
    pub(super) federation: FederationConfig,
    pub(super) run: RunConfig,
    pub(super) learning: Learning,
    pub(super) kernels: KernelConfig,
    pub(super) participation: ParticipationConfig,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DataConfig {
    pub(super) name: String,
    pub(super) dir: String,
    pub(super) variant: String,
    pub(super) target: String,
    pub(super) features: Vec<String>,
    pub(super) drop: Vec<String>,
    pub(super) time: String,
    pub(super) node: String,
    pub(super) missing: Vec<String>,
    pub(super) separator: String,
    pub(super) decimal: String,
    pub(super) header: String,
    pub(super) categories: String,
    pub(super) rows: i64,
    pub(super) lags: i64,
    pub(super) lagged: Vec<String>,
    pub(super) horizon: i64,
    pub(super) exogenous: String,
    pub(super) disorder: String,
    pub(super) duplicates: String,
    pub(super) scaling: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FederationConfig {
    pub(super) nodes: i64,
    pub(super) budget: i64,
    pub(super) methods: Vec<String>,
    pub(super) personal: bool,
    pub(super) partition: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunConfig {
    pub(super) trials: i64,
    pub(super) rounds: i64,
    pub(super) seed: i64,
    pub(super) threads: i64,
    pub(super) window: i64,
    pub(super) memory_limit: f64,
    pub(super) out: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Learning {
    pub(super) loss: String,
    pub(super) huber_delta: f64,
    pub(super) ridge: f64,
    pub(super) step_size: f64,
    pub(super) step_schedule: String,
    pub(super) weight_rate: f64,
    pub(super) weight_schedule: String,
    pub(super) weight_rule: String,
    pub(super) aggregation: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KernelConfig {
    pub(super) families: Vec<String>,
    pub(super) variances: Vec<f64>,
    pub(super) draw: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ParticipationConfig {
    pub(super) dropout: f64,
    pub(super) late: f64,
    pub(super) join_within: f64,
    pub(super) arrivals: String,
}
