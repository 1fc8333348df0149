//! [`PlanConfig`]: what a federation agrees on, as it is written down.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::aggregation::Aggregation;
use crate::codec::Compression;
use crate::features::{Amplitude, Draw, FeatureSpec, Kernel};
use crate::importance::ImportanceScope;
use crate::learning::{Loss, Schedule, WeightRule};
use crate::limits::DEFAULT_MEMORY;
use crate::masking::Privacy;
use crate::method::{MethodSpec, MkOptions, Numbers, PofOptions, find};
use crate::scaling::{Scale, ScaleKind};

/// How raw numbers become numbers of the order of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Scaling {
    /// They are of that order already.
    None,
    /// By a scale that is known beforehand.
    Fixed(Scale),
    /// By a scale that the nodes agree on as they learn.
    Online {
        /// What it is made from.
        kind: ScaleKind,
    },
}

/// How the inputs of samples follow from the rows of a node, where they are more than numbers of
/// the sample's own row. `hedgerow-data` says what cycles there are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesRule {
    /// Numbers of a row that are inputs; they come first.
    pub inputs: usize,
    /// Columns that make up the time, joined by blanks.
    pub time: Vec<String>,
    /// Cycles of the label's time that are inputs, by name.
    pub calendar: Vec<String>,
    /// Past labels among the inputs, s.
    pub lags: usize,
    /// Columns whose past values are inputs, like those of the label.
    pub lagged: Vec<String>,
    /// Whether the numbers of a row are those of the row before the label's.
    pub origin: bool,
}

/// What a setter takes: the type of its field, unless another is given.
macro_rules! argument {
    ($type:ty) => {
        $type
    };
    ($type:ty, $argument:ty) => {
        $argument
    };
}

/// Declares the configuration: one line per field gives the field, its default and its setter.
macro_rules! plan_config {
    ($($(#[$doc:meta])* $name:ident: $type:ty $(as $argument:ty)? = $default:expr,)*) => {
        /// Everything that the members of a federation must agree on. [`crate::Plan::new`] checks
        /// it.
        ///
        /// The default is the paper's experiment: 11 kernels, a budget of 100 numbers, 20 nodes,
        /// ridge 0.01, anytime rates.
        ///
        /// As JSON it has the shape that servers store and send to their nodes.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(try_from = "Written", into = "Written")]
        #[non_exhaustive]
        pub struct PlanConfig {
            $($(#[$doc])* pub $name: $type,)*
        }

        impl Default for PlanConfig {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl PlanConfig {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $name(mut self, $name: argument!($type $(, $argument)?)) -> Self {
                    self.$name = $name.into();
                    self
                }
            )*
        }
    };
}

plan_config! {
    /// The method.
    method: MethodSpec = MethodSpec::default(),
    /// Numbers in a sample, d.
    inputs: usize = 1,
    /// Labels of a sample, q. If there are classes, their number decides.
    outputs: usize = 1,
    /// Nodes in the federation, K.
    nodes: usize = 20,
    /// Numbers that one upload may have, r.
    budget: usize = 100,
    /// Frequencies per kernel, D; none for as many as the budget allows the method.
    frequencies: Option<usize> = None,
    /// The dictionary, P kernels.
    kernels: Vec<Kernel> = Kernel::paper_dictionary(),
    /// How frequencies are drawn.
    draw: Draw = Draw::default(),
    /// How large features are.
    amplitude: Amplitude = Amplitude::default(),
    /// Seed of frequencies, votes, selections and rounding.
    seed: u64 = 1,
    /// The loss.
    loss: Loss = Loss::Squared,
    /// λ, the weight of the ridge term.
    ridge: f64 = 0.01,
    /// η_l, the step of a model.
    step_size: Schedule = Schedule::Anytime { scale: 1.0 },
    /// η_g / ln P, the rate of the weights before the factor ln P.
    weight_rate: Schedule = Schedule::Anytime { scale: 1.0 },
    /// How losses enter the weights.
    weight_rule: WeightRule = WeightRule::Incremental,
    /// What the server makes of uploads.
    aggregation: Aggregation = Aggregation::default(),
    /// Bytes for the samples that a node keeps for itself, where a method uses them; 0 for none.
    memory: usize = DEFAULT_MEMORY,
    /// Variants of MK-OFL.
    mk: MkOptions = MkOptions::default(),
    /// Variants of POF-MKL.
    pof: PofOptions = PofOptions::default(),
    /// How raw numbers are scaled.
    scaling: Scaling = Scaling::None,
    /// Nodes that must have seen a label before nodes agree on a first scale; none for the smaller
    /// of [`DEFAULT_SCALE_NODES`] and all nodes.
    scale_nodes: Option<usize> as impl Into<Option<usize>> = None,
    /// Whether labels beyond [`Scale::LIMIT`] aren't learned, as with online scaling: for drivers
    /// that scale samples with [`crate::scaling::NodeScaling`] themselves. Not written down.
    limits_labels: bool = false,
    /// How messages are made smaller.
    compression: Compression = Compression::default(),
    /// Whether each node has a layer of its own over the federation's predictions; none for what
    /// the method prefers. A plan always has one of both.
    personal: Option<bool> as impl Into<Option<bool>> = None,
    /// Whether nodes measure how important each column is to their predictions.
    importance: ImportanceScope = ImportanceScope::None,
    /// For that, the group of each input, from 0 without gaps: inputs that come from one column
    /// belong together. Empty where each input is a group of its own.
    column_groups: Vec<usize> = Vec::new(),
    /// Names of the inputs, in order; empty where samples come without names.
    columns: Vec<String> = Vec::new(),
    /// Name of the label, or names of several, joined by commas.
    target: String = String::new(),
    /// Names of the classes, if labels are classes: label 0 is the first; empty for numbers.
    classes: Vec<String> = Vec::new(),
    /// How nodes make inputs of the time and of earlier rows; none where inputs are the numbers of
    /// a row.
    series: Option<SeriesRule> as impl Into<Option<SeriesRule>> = None,
    /// What the server sees of uploads.
    privacy: Privacy = Privacy::None,
}

/// Nodes that must have seen a label before there is a scale, unless a plan says otherwise. Of
/// three, one that has the wrong unit can be told from the others.
pub const DEFAULT_SCALE_NODES: usize = 3;

impl PlanConfig {
    /// Nodes that must have seen a label before there is a scale.
    pub fn first_scale_nodes(&self) -> usize {
        self.scale_nodes.unwrap_or(DEFAULT_SCALE_NODES.min(self.nodes))
    }

    /// What its feature map is made from.
    pub fn feature_spec(&self) -> FeatureSpec {
        FeatureSpec {
            kernels: self.kernels.clone(),
            draw: self.draw,
            inputs: self.inputs,
            frequencies: self.frequencies.unwrap_or(0),
            seed: self.seed,
            amplitude: self.amplitude,
        }
    }

    /// Whether labels are classes, which must not be scaled.
    pub(super) fn has_raw_labels(&self) -> bool {
        self.loss == Loss::Logistic || !self.classes.is_empty()
    }

    /// The numbers that the two halves of its method need.
    pub(super) fn numbers(&self) -> Numbers {
        Numbers {
            kernels: self.kernels.len(),
            frequencies: self.frequencies.unwrap_or(0),
            nodes: self.nodes,
            inputs: self.inputs,
            budget: self.budget,
            loss: self.loss,
            ridge: self.ridge,
            step_size: self.step_size,
            weight_rate: self.weight_rate,
            weight_rule: self.weight_rule,
            seed: self.seed,
            aggregation: self.aggregation,
            memory: self.memory,
            mk: self.mk,
            pof: self.pof,
        }
    }
}

/// The JSON shape. Numbers of inputs, frequencies and kernels and the seed stand in it twice and
/// must agree.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    method: MethodSpec,
    setup: Numbers,
    features: FeatureSpec,
    scaling: Scaling,
    compression: Compression,
    personal: bool,
    columns: Vec<String>,
    target: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    classes: Vec<String>,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    outputs: usize,
    #[serde(default, skip_serializing_if = "ImportanceScope::is_none")]
    importance: ImportanceScope,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    column_groups: Vec<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    series: Option<SeriesRule>,
    /// Only the server needs it: older nodes don't know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale_nodes: Option<usize>,
    #[serde(default, skip_serializing_if = "Privacy::is_none")]
    privacy: Privacy,
    /// [`crate::method::MethodInfo::revision`].
    #[serde(default = "one", skip_serializing_if = "is_one")]
    revision: usize,
}

fn one() -> usize {
    1
}

fn is_one(number: &usize) -> bool {
    *number == 1
}

impl From<PlanConfig> for Written {
    fn from(mut config: PlanConfig) -> Self {
        let info = find(config.method.name());
        // A plan always has a number here.
        config.frequencies =
            config.frequencies.or_else(|| info?.frequencies(config.budget, &config.pof).ok());
        let prefers = || info.is_some_and(|info| info.has_own_layer(&config.loss));
        let personal = config.personal.unwrap_or_else(prefers);
        let revision = info.map_or(1, |info| info.revision as usize);
        let (setup, features) = (config.numbers(), config.feature_spec());
        let PlanConfig { method, scaling, compression, columns, target, classes, outputs, .. } =
            config;
        let PlanConfig { importance, column_groups, series, scale_nodes, privacy, .. } = config;
        Self {
            method,
            setup,
            features,
            scaling,
            compression,
            personal,
            columns,
            target,
            classes,
            outputs,
            importance,
            column_groups,
            series,
            scale_nodes,
            privacy,
            revision,
        }
    }
}

/// What is wrong with a plan that is written down.
#[derive(Debug, thiserror::Error)]
enum BadPlan {
    #[error("the {what} of the features must be {expected}, as in the setup, but is {found}")]
    Disagreement { what: &'static str, expected: u64, found: u64 },
    #[error(
        "messages of {method} are known up to revision {known}, but the plan has {found}: update \
         this program"
    )]
    Revision { method: String, known: u32, found: usize },
}

impl TryFrom<Written> for PlanConfig {
    type Error = BadPlan;

    fn try_from(written: Written) -> Result<Self, BadPlan> {
        let Written { method, setup, features, .. } = written;
        for (what, expected, found) in [
            ("number of inputs", setup.inputs as u64, features.inputs as u64),
            ("number of frequencies", setup.frequencies as u64, features.frequencies as u64),
            ("number of kernels", setup.kernels as u64, features.kernels.len() as u64),
            ("seed", setup.seed, features.seed),
        ] {
            if expected != found {
                return Err(BadPlan::Disagreement { what, expected, found });
            }
        }
        let known = find(method.name()).map_or(1, |info| info.revision);
        if written.revision > known as usize {
            let (method, found) = (method.name().to_owned(), written.revision);
            return Err(BadPlan::Revision { method, known, found });
        }
        Ok(Self {
            method,
            inputs: setup.inputs,
            outputs: written.outputs,
            nodes: setup.nodes,
            budget: setup.budget,
            frequencies: Some(setup.frequencies),
            kernels: features.kernels,
            draw: features.draw,
            amplitude: features.amplitude,
            seed: setup.seed,
            loss: setup.loss,
            ridge: setup.ridge,
            step_size: setup.step_size,
            weight_rate: setup.weight_rate,
            weight_rule: setup.weight_rule,
            aggregation: setup.aggregation,
            memory: setup.memory,
            mk: setup.mk,
            pof: setup.pof,
            scaling: written.scaling,
            compression: written.compression,
            personal: Some(written.personal),
            importance: written.importance,
            column_groups: written.column_groups,
            columns: written.columns,
            target: written.target,
            classes: written.classes,
            series: written.series,
            scale_nodes: written.scale_nodes,
            privacy: written.privacy,
            limits_labels: false,
        })
    }
}
