//! [`Learning`]: all that the members of a federation must agree on, and [`Plan`]: the same,
//! checked and ready to be used. A server hands it to every node that joins, so a node needs no
//! copy of its own.

use std::sync::Arc;

use hedgerow::codec::{Coding, Compression};
use hedgerow::features::{FeatureError, FeatureSpec, SampleMap};
use hedgerow::learning::Loss;
use hedgerow::scaling::{NodeScaling, Scale, ScaleKind, ServerScaling};
use hedgerow::{Method, NodeId, NodeMethod, ServerMethod, Setup, SetupConfig, SetupError};
use serde::{Deserialize, Serialize};

pub mod config;

/// Most numbers in a sample.
pub const MAX_INPUTS: usize = 10_000;

/// Most features of a sample: what P·2D or the like may come to.
const MAX_WIDTH: usize = 1 << 20;

/// How raw numbers become numbers of the order of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Scaling {
    /// They are so already.
    None,
    /// By a scale that is known beforehand.
    Fixed(Scale),
    /// By one that the nodes agree on as they go.
    Online {
        /// What it is made from.
        kind: ScaleKind,
    },
}

/// What a federation learns, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learning {
    /// The method.
    pub method: Method,
    /// What its halves agree on.
    pub setup: SetupConfig,
    /// What its features are made from.
    pub features: FeatureSpec,
    /// How numbers are scaled.
    pub scaling: Scaling,
    /// How messages are made smaller.
    pub compression: Compression,
    /// Whether each node has a layer of its own over the federation's predictions.
    pub personal: bool,
    /// Names of the inputs, in order; may be empty where samples come without names.
    pub columns: Vec<String>,
    /// Name of the label.
    pub target: String,
}

impl From<Learning> for hedgerow::PlanConfig {
    fn from(learning: Learning) -> Self {
        let Learning { method, setup, features, .. } = learning;
        Self::default()
            .method(method.into())
            .inputs(setup.inputs)
            .nodes(setup.nodes)
            .budget(setup.budget)
            .frequencies(Some(setup.frequencies))
            .kernels(features.kernels)
            .draw(features.draw)
            .amplitude(features.amplitude)
            .seed(setup.seed)
            .loss(setup.loss)
            .ridge(setup.ridge)
            .step_size(setup.step_size)
            .weight_rate(setup.weight_rate)
            .weight_rule(setup.weight_rule)
            .aggregation(setup.aggregation)
            .mk(setup.mk)
            .pof(setup.pof)
            .scaling(match learning.scaling {
                Scaling::None => hedgerow::plan::Scaling::None,
                Scaling::Fixed(scale) => hedgerow::plan::Scaling::Fixed(scale),
                Scaling::Online { kind } => hedgerow::plan::Scaling::Online { kind },
            })
            .compression(learning.compression)
            .personal(learning.personal)
            .columns(learning.columns)
            .target(learning.target)
    }
}

/// Why a federation can't be.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Bytes that are no configuration.
    #[error("the learning configuration can't be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// The setup makes no sense.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// Nor do the features.
    #[error(transparent)]
    Features(#[from] FeatureError),
    /// A number that is too large, or two that must agree.
    #[error("{what} must be {bound}, but is {value}")]
    OutOfBounds {
        /// Which.
        what: &'static str,
        /// In words or figures.
        bound: String,
        /// What it is.
        value: usize,
    },
    /// Things that don't go together.
    #[error("{0}")]
    Unfit(&'static str),
}

/// A [`Learning`] that has been checked, with its feature map, which copies share.
#[derive(Debug, Clone)]
pub struct Plan {
    learning: Learning,
    setup: Setup,
    map: Arc<SampleMap>,
}

impl Plan {
    /// Checks everything: what comes from a wire or a file is hostile until it has been here.
    pub fn new(learning: Learning) -> Result<Self, PlanError> {
        let Learning { method, setup, features, .. } = &learning;
        let equal = |what, bound: usize, value: usize| {
            let error = PlanError::OutOfBounds { what, bound: bound.to_string(), value };
            if value == bound { Ok(()) } else { Err(error) }
        };
        let at_most = |what, bound: usize, value: usize| {
            let error = PlanError::OutOfBounds { what, bound: format!("at most {bound}"), value };
            if value <= bound { Ok(()) } else { Err(error) }
        };
        at_most("the number of inputs", MAX_INPUTS, setup.inputs)?;
        equal("the inputs of the features", setup.inputs, features.inputs)?;
        equal("the frequencies of the features", setup.frequencies, features.frequencies)?;
        equal("the kernels of the features", setup.kernels, features.kernels.len())?;
        if !learning.columns.is_empty() {
            equal("the number of columns", setup.inputs, learning.columns.len())?;
        }
        if let Scaling::Fixed(scale) = &learning.scaling {
            equal("the columns of the scale", setup.inputs + 1, scale.columns())?;
        }
        // Before anything is allocated.
        let width = setup.kernels.saturating_mul(setup.frequencies).saturating_mul(2);
        at_most("kernels times frequencies times two", MAX_WIDTH, width)?;
        at_most("width times inputs", MAX_WIDTH * 64, width.saturating_mul(setup.inputs))?;
        at_most("the budget", MAX_BUDGET, setup.budget)?;
        if let Method::SkOfl { kernel } = *method {
            at_most("the kernel", setup.kernels.saturating_sub(1), kernel)?;
        }
        if *method == Method::GrOfl {
            Method::GrOfl.frequencies(setup.budget).map_err(|_| PlanError::OutOfBounds {
                what: "the budget of gr",
                bound: "at least 16".into(),
                value: setup.budget,
            })?;
            if setup.loss == Loss::Logistic {
                return Err(PlanError::Unfit("gr has no logistic loss"));
            }
        }
        if !method.supports(setup.aggregation) {
            return Err(PlanError::Unfit(
                "this method can't have another aggregation than the mean",
            ));
        }
        let setup = Setup::try_from(*setup)?;
        let map = Arc::new(method.map(&setup, features)?);
        Ok(Self { learning, setup, map })
    }

    /// The same as the core has it.
    pub fn core(&self) -> Result<hedgerow::Plan, hedgerow::PlanError> {
        hedgerow::Plan::new(self.learning.clone().into())
    }

    /// Reads what [`Plan::to_json`] wrote.
    pub fn from_json(json: &str) -> Result<Self, PlanError> {
        Self::new(serde_json::from_str(json)?)
    }

    /// As it travels, and as it is stored.
    pub fn to_json(&self) -> String {
        // Writing to memory can't fail: all keys are strings and all numbers finite.
        serde_json::to_string(&self.learning).unwrap_or_default()
    }

    /// What was checked.
    pub fn learning(&self) -> &Learning {
        &self.learning
    }

    /// The setup of both halves.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// What turns samples into features.
    pub fn map(&self) -> &SampleMap {
        &self.map
    }

    /// Numbers in a sample.
    pub fn inputs(&self) -> usize {
        self.learning.setup.inputs
    }

    /// A new node half.
    pub fn node(&self, number: NodeId) -> Box<dyn NodeMethod> {
        self.learning.method.node(&self.setup, number)
    }

    /// A new server half.
    pub fn server(&self) -> Box<dyn ServerMethod> {
        self.learning.method.server(&self.setup)
    }

    /// A node's part of the scaling.
    pub fn node_scaling(&self) -> NodeScaling {
        let columns = self.inputs() + 1;
        match &self.learning.scaling {
            Scaling::None => NodeScaling::fixed(Scale::identity(columns)),
            Scaling::Fixed(scale) => NodeScaling::fixed(scale.clone()),
            Scaling::Online { kind } => NodeScaling::new(*kind, self.inputs()),
        }
    }

    /// The server's part of the scaling, where there is something to agree on.
    pub fn server_scaling(&self) -> Option<ServerScaling> {
        let Scaling::Online { kind } = self.learning.scaling else { return None };
        let scaling = ServerScaling::new(kind, self.inputs());
        // Classes must not be scaled.
        let raw_labels = self.learning.setup.loss == Loss::Logistic;
        Some(if raw_labels { scaling.with_raw_labels() } else { scaling })
    }

    /// More numbers than any message has.
    pub fn most_numbers(&self) -> usize {
        let SetupConfig { kernels, frequencies, inputs, budget, .. } = self.learning.setup;
        let models = kernels * (2 * frequencies + 2);
        let report = 5 * (inputs + 1);
        models.max(4 * budget).max(report).max(self.map.width()) + 64
    }

    /// Whether uploads travel as they are.
    pub fn is_plain_up(&self) -> bool {
        self.learning.compression.up == Coding::default()
    }

    /// Whether all messages travel as they are.
    pub fn is_plain(&self) -> bool {
        self.is_plain_up() && self.learning.compression.down == Coding::default()
    }

    /// Numbers that a node of the naive extension would send and hear in a round.
    pub fn naive_numbers(&self) -> (u64, u64) {
        let SetupConfig { kernels, frequencies, .. } = self.learning.setup;
        let models = (kernels * 2 * frequencies) as u64;
        (models + kernels as u64, models + kernels as u64)
    }
}

/// Largest r.
const MAX_BUDGET: usize = 100_000;
