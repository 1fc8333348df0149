//! [`MethodInfo`]: everything that others need to know about a method.

use alloc::boxed::Box;
use alloc::sync::Arc;

use serde::Serialize;

use super::{BroadcastLayout, Layout, NodeMethod, PofOptions, ServerMethod, Setup};
use crate::aggregation::Aggregation;
use crate::features::dictionary::Dictionary;
use crate::features::{FeatureError, FeatureMap, FeatureSpec, SampleMap};
use crate::learning::Loss;
use crate::message::NodeId;

/// The description of a method, or of a reference that methods are compared with.
///
/// A description outside this crate names what it has and takes the rest from
/// [`MethodInfo::BASE`]:
///
/// ```
/// use hedgerow::method::MethodInfo;
///
/// static INFO: MethodInfo = MethodInfo { name: "own", title: "Own", ..MethodInfo::BASE };
/// assert!(INFO.has_name("own") && INFO.halves.is_none());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct MethodInfo {
    /// Short name, as on the command line and in results.
    pub name: &'static str,
    /// Other names that are read, such as the one in stored plans.
    pub aliases: &'static [&'static str],
    /// Name in texts.
    pub title: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// What it is in a comparison.
    pub role: Role,
    /// How its lines look in figures.
    pub look: Look,
    /// The features that it learns from.
    pub features: FeatureKind,
    /// Whether it uses a single kernel, which a plan names.
    pub takes_kernel: bool,
    /// Frequencies per kernel that a budget of numbers per upload allows, or else the least budget.
    pub frequencies: fn(usize, &PofOptions) -> Result<usize, usize>,
    /// Whether it can learn with a loss.
    pub supports_loss: fn(&Loss) -> bool,
    /// Whether its server can combine uploads by other aggregations than the mean.
    pub is_robust: bool,
    /// Whether its server can compare uploads, and leave out nodes whose uploads look wrong:
    /// [`ServerMethod::compared`].
    pub is_screened: bool,
    /// What its messages consist of.
    pub layout: fn(&Setup) -> Layout,
    /// Bytes that a node keeps, without the overhead of allocations.
    pub memory: fn(&Setup) -> usize,
    /// Numbers of a message for nodes that don't have the broadcast before
    /// ([`ServerMethod::catch_up`]), at most; 0 if they get the same as all others.
    pub catch_up_len: fn(&Setup) -> usize,
    /// The least bytes of [`Setup::memory`] that it can use; 0 if nodes keep no samples.
    pub least_memory: fn(&Setup) -> usize,
    /// What runs on nodes and server; references have neither.
    pub halves: Option<Halves>,
    /// How a reference is computed.
    pub reference: Option<Reference>,
    /// Version of its messages. A plan names one above 1, so that nodes of other versions refuse
    /// it.
    pub revision: u32,
    /// Whether nodes learn without a server.
    pub is_local: bool,
    /// Whether [`super::MkOptions`] apply to it.
    pub has_variants: bool,
    /// Whether every node has a layer of its own unless a plan says otherwise.
    pub prefers_personal: bool,
    /// Whether figures draw it wider.
    pub is_featured: bool,
    /// Whether comparisons give errors as multiples of its error unless another method is named,
    /// and figures of several runs show its spread.
    pub is_baseline: bool,
    /// Whether nodes upload the models of all kernels: reports say how much less others send.
    pub uploads_all_models: bool,
}

impl PartialEq for MethodInfo {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for MethodInfo {}

/// How a reference is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// By one learner of all samples, one by one.
    Central,
    /// By one learner of all samples, a round at a time.
    CentralBatch,
    /// As the best fixed function of all samples.
    Hindsight,
    /// As the node's last label.
    LastLabel,
    /// As the mean of the node's labels so far.
    MeanLabel,
    /// As the latest label before in the data, whichever node has it.
    PreviousLabel,
}

/// Gives a method the feature map of its plan, made on the first call. Most methods only see the
/// features of samples and don't call it.
pub type MapSource<'a> = &'a dyn Fn() -> Arc<SampleMap>;

/// Constructors of the two parts of a method.
#[derive(Debug, Clone, Copy)]
pub struct Halves {
    /// The part of a node.
    pub node: fn(&Setup, NodeId, MapSource<'_>) -> Box<dyn NodeMethod>,
    /// The part of the server.
    pub server: fn(&Setup, MapSource<'_>) -> Box<dyn ServerMethod>,
}

/// What a method is in a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Somebody could run it: it is ranked.
    Choice,
    /// It needs all samples in one place.
    Central,
    /// It is known only afterwards.
    Hindsight,
    /// A forecast without learning.
    Trivial,
}

impl Role {
    /// What stands in a table instead of a rank.
    pub fn words(self) -> &'static str {
        match self {
            Self::Choice => "",
            Self::Central => "central",
            Self::Hindsight => "hindsight",
            Self::Trivial => "trivial",
        }
    }
}

/// How the lines of a method look in figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Red, green and blue.
    pub colour: [u8; 3],
    /// How lines are broken.
    pub dash: Dash,
}

impl Look {
    /// A solid line.
    pub const fn solid(colour: [u8; 3]) -> Self {
        Self { colour, dash: Dash::Solid }
    }

    /// A dashed line.
    pub const fn dashed(colour: [u8; 3]) -> Self {
        Self { colour, dash: Dash::Dashes }
    }
}

/// How a line is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dash {
    /// Not at all.
    Solid,
    /// Into dashes.
    Dashes,
    /// Into dots.
    Dots,
}

/// The features that a method learns from.
#[derive(Debug, Clone, Copy)]
pub enum FeatureKind {
    /// Random features of every kernel, one after the other. A method with a single kernel reads
    /// only the features of that kernel.
    Kernels,
    /// A [`Dictionary`] of all bandwidths, of a size that follows from the budget.
    Dictionary(fn(usize) -> DictionarySize),
    /// A one and the inputs themselves.
    Inputs,
    /// None.
    Nothing,
}

/// How many features a [`Dictionary`] has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DictionarySize {
    /// All of them.
    pub features: usize,
    /// The linear ones among them, at most.
    pub linear: usize,
}

/// A budget that leaves no room for a single frequency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{method} needs a budget of at least {least} numbers, but has {budget}")]
pub struct BudgetTooSmall {
    method: &'static str,
    least: usize,
    budget: usize,
}

impl MethodInfo {
    /// What descriptions don't have to say: a method with the features of all kernels, that
    /// uploads and broadcasts their models.
    pub const BASE: Self = Self {
        name: "",
        aliases: &[],
        title: "",
        summary: "",
        role: Role::Choice,
        look: Look::solid([0x44, 0x77, 0xaa]),
        features: FeatureKind::Kernels,
        takes_kernel: false,
        frequencies: |budget, _| frequencies_within(budget, 2),
        supports_loss: |_| true,
        is_robust: true,
        is_screened: false,
        layout: |setup| Layout::of_models(BroadcastLayout::every_kernel(setup)),
        memory: |setup| 2 * setup.kernels() * row_bytes(setup.model_len()),
        catch_up_len: |_| 0,
        least_memory: |_| 0,
        halves: None,
        reference: None,
        revision: 1,
        is_local: false,
        has_variants: false,
        prefers_personal: false,
        is_featured: false,
        is_baseline: false,
        uploads_all_models: false,
    };

    /// Whether it is called so.
    pub fn has_name(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    /// Whether nodes have a layer of their own if a plan doesn't say. The layer needs labels that
    /// are numbers.
    pub fn has_own_layer(&self, loss: &Loss) -> bool {
        self.prefers_personal && *loss != Loss::Logistic
    }

    /// Whether it has messages.
    pub fn travels(&self) -> bool {
        self.halves.is_some() && !self.is_local
    }

    /// Whether it learns from features of kernels.
    pub fn uses_kernels(&self) -> bool {
        matches!(self.features, FeatureKind::Kernels)
    }

    /// Length of the features that it learns from.
    pub fn width(&self, setup: &Setup) -> usize {
        match self.features {
            FeatureKind::Kernels => setup.width(),
            FeatureKind::Dictionary(size) => size(setup.budget()).features,
            FeatureKind::Inputs => setup.linear_len(),
            FeatureKind::Nothing => 0,
        }
    }

    /// The map that makes these features, and nothing that the method doesn't read.
    pub fn map(&self, setup: &Setup, spec: &FeatureSpec) -> Result<SampleMap, FeatureError> {
        Ok(match self.features {
            FeatureKind::Kernels if self.takes_kernel => {
                SampleMap::Kernels(FeatureMap::new(spec)?.only(setup.kernel()))
            }
            FeatureKind::Kernels => SampleMap::Kernels(FeatureMap::new(spec)?),
            FeatureKind::Dictionary(size) => {
                let DictionarySize { features, linear } = size(setup.budget());
                SampleMap::Dictionary(Dictionary::new(spec, features, linear)?)
            }
            FeatureKind::Inputs | FeatureKind::Nothing => SampleMap::Inputs(setup.inputs()),
        })
    }

    /// How many frequencies per kernel a budget of r numbers allows.
    pub fn frequencies(&self, budget: usize, pof: &PofOptions) -> Result<usize, BudgetTooSmall> {
        let too_small = |least| BudgetTooSmall { method: self.name, least, budget };
        (self.frequencies)(budget, pof).map_err(too_small)
    }

    /// Whether its server can combine uploads so.
    pub fn supports(&self, aggregation: Aggregation) -> bool {
        match aggregation {
            Aggregation::Mean => true,
            Aggregation::TrimmedMean { .. } | Aggregation::Median => self.is_robust,
            Aggregation::Screened => self.is_screened || !self.travels(),
        }
    }
}

/// The largest D for which a model of 2D numbers and some indices fit a budget, or else the least
/// budget.
pub fn frequencies_within(budget: usize, indices: usize) -> Result<usize, usize> {
    match budget.checked_sub(indices) {
        Some(left) if left >= 2 => Ok(left / 2),
        _ => Err(indices + 2),
    }
}

/// Bytes of a model in memory, where it begins on a cache line.
pub fn row_bytes(numbers: usize) -> usize {
    64 * numbers.div_ceil(16)
}
