//! The two traits that every method implements, and [`Method`]: a name and a [`Setup`] give a node
//! half and a server half.
//!
//! Halves are state machines: no clock, no sockets, no threads, no hidden randomness. A round is:
//! every node predicts and learns its samples, uploads; the server accepts what comes, closes the
//! round and everyone adopts its broadcast. A new method is one file in this folder and one line in
//! each function of [`Method`].

use serde::{Deserialize, Serialize};

use crate::aggregation::Aggregation;
use crate::codec::Section;
use crate::features::SampleMap;
use crate::features::dictionary::Dictionary;
use crate::features::{FeatureError, FeatureMap, FeatureSpec, Features};
use crate::learning::Schedule;
use crate::learning::loss::{Loss, Objective};
use crate::learning::weights::WeightRule;
use crate::limits::MAX_LABEL;
use crate::message::{Broadcast, NodeId, Rejected, Upload};
use crate::relay::PartialSum;
use crate::scaling::Rescaling;
use crate::simd;
use crate::state::BadState;

use basis::Basis;

mod basis;
mod em_kofl;
mod fed_poe;
mod gr_ofl;
mod linear_newton;
mod linear_sgd;
mod local;
mod mk_ofl;
mod naive;
mod pof_mkl;
pub(crate) mod rows;
mod server;
mod sk_ofl;

pub use mk_ofl::{Average, MkOptions};
pub use pof_mkl::PofOptions;

/// The half that lives on a device.
pub trait NodeMethod: Send {
    /// Predicts from one sample's features, with the latest global model and what the node keeps to
    /// itself. Pure.
    ///
    /// # Panics
    /// If they were made for another dictionary.
    fn predict(&self, z: Features<'_>) -> f32;
    /// Learns from one sample. Refuses what makes no sense, and then stays as it was.
    fn learn(&mut self, z: Features<'_>, y: f32) -> Result<(), BadSample>;
    /// Writes the message for the server and says whether there is one (nothing learned, nothing to
    /// say). Pure: asking again gives the same message.
    fn upload(&self, out: &mut Upload) -> bool;
    /// Appends what the numbers of its upload are, in order, for those who compress it. Numbers
    /// that aren't named travel as they are.
    fn sections(&self, _out: &mut Vec<Section>) {}
    /// Takes over the server's state; one that isn't newer than its own is ignored.
    fn adopt(&mut self, broadcast: &Broadcast) -> Result<(), Rejected>;
    /// Its server has lost rounds: whatever broadcast comes next is adopted, though it be older
    /// than its own. What the node knows by itself it keeps.
    fn forget_round(&mut self);
    /// The round that it is in: that of the latest broadcast it adopted.
    fn round(&self) -> u64;
    /// How much the node trusts each kernel; sums to one, or is zero everywhere if the method has
    /// no kernels.
    fn weights(&self, out: &mut [f64]);
    /// How much each kernel has in the predictions; sums to what the weights sum to. The weights,
    /// unless the method selects a single kernel.
    fn shares(&self, out: &mut [f64]) {
        self.weights(out);
    }
    /// ‖w‖² of the model behind the predictions, for the ridge term of the regret.
    fn norm2(&self) -> f64;
    /// Takes all models from the scale that they were learned in to another; call it before a
    /// broadcast of the new scale is adopted. Weights are left alone.
    ///
    /// # Panics
    /// If the transport was made for another dictionary.
    fn transport(&mut self, transport: &Rescaling);
    /// Everything that has to survive a restart.
    fn save(&self) -> Vec<u8>;
    /// Goes on from a saved state, or refuses it and stays as it was.
    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState>;
}

/// The half that lives on the server.
pub trait ServerMethod: Send + Sync {
    /// Takes an upload for the open round, or refuses it and stays as it was.
    fn accept(&mut self, from: NodeId, upload: &Upload) -> Result<(), Rejected>;
    /// Nothing yet of the open round, to be added to by [`ServerMethod::accept_into`].
    fn part(&self) -> PartialSum;
    /// Makes a part that [`ServerMethod::part`] began one of the open round again, and empty.
    fn renew(&self, part: &mut PartialSum);
    /// The same as [`ServerMethod::accept`] for a part of the round, of which there may be several:
    /// relays and threads each have their own.
    fn accept_into(
        &self,
        part: &mut PartialSum,
        from: NodeId,
        upload: &Upload,
    ) -> Result<(), Rejected>;
    /// Takes all uploads of a part at once, or refuses it and stays as it was. Bits are those of
    /// the uploads one by one, whatever the parts.
    fn merge(&mut self, part: &PartialSum) -> Result<(), Rejected>;
    /// Takes over the broadcast of another server of the same setup, for relays: it knows what
    /// uploads of that round look like, but can't close it.
    fn follow(&mut self, broadcast: &Broadcast) -> Result<(), Rejected>;
    /// Uploads that the open round has so far, for those who wait for a quorum.
    fn uploads(&self) -> usize;
    /// Closes the round with whoever came. If nobody did, nothing changes and the round stays open.
    fn close_round(&mut self) -> &Broadcast;
    /// The latest broadcast, for those who join or come back.
    fn broadcast(&self) -> &Broadcast;
    /// Appends what the numbers of its broadcast are, in order, for those who compress it. Numbers
    /// that aren't named travel as they are.
    fn sections(&self, _out: &mut Vec<Section>) {}
    /// Learns what nodes were really told, after compression, of the broadcast that
    /// [`ServerMethod::close_round`] made: from here on that is the broadcast.
    ///
    /// # Panics
    /// If it has another number of numbers.
    fn replace_broadcast(&mut self, told: &[f32]);
    /// Takes the broadcast's models from one scale to another; call it right after
    /// [`ServerMethod::close_round`]. Uploads that the open round may have by then belong to the
    /// old scale and are forgotten: who sent them can send again.
    ///
    /// # Panics
    /// If the transport was made for another dictionary.
    fn transport(&mut self, transport: &Rescaling);
    /// Everything that has to survive a restart.
    fn save(&self) -> Vec<u8>;
    /// Goes on from a saved state, or refuses it and stays as it was.
    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState>;
}

/// A sample that can't be learned from.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum BadSample {
    /// The label isn't a number of reasonable size.
    #[error("label {label} is not a finite number of size at most {MAX_LABEL:e}")]
    Label {
        /// What it is.
        label: f32,
    },
    /// The logistic loss knows two labels.
    #[error("label {label} is neither -1 nor +1, which the logistic loss needs")]
    NotASign {
        /// What it is.
        label: f32,
    },
    /// Features of another map.
    #[error("{expected} features expected, but {found} came")]
    Width {
        /// What the setup says.
        expected: usize,
        /// What came.
        found: usize,
    },
}

/// What both halves of a method must agree on, as it is written down.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetupConfig {
    /// Kernels in the dictionary, P.
    pub kernels: usize,
    /// Frequencies per kernel, D; [`Method::frequencies`] derives it from a budget.
    pub frequencies: usize,
    /// Nodes in the federation, K.
    pub nodes: usize,
    /// Numbers in a sample, d.
    #[serde(default = "one")]
    pub inputs: usize,
    /// Numbers that one upload may have, r; methods that send models of 2D numbers follow
    /// `frequencies` instead.
    #[serde(default = "hundred")]
    pub budget: usize,
    /// The loss.
    pub loss: Loss,
    /// λ.
    pub ridge: f64,
    /// η_l: the step of a model.
    pub step_size: Schedule,
    /// η_g / ln P: the rate of the weights, before the factor ln P.
    pub weight_rate: Schedule,
    /// How losses enter the weights.
    pub weight_rule: WeightRule,
    /// Seed of votes and selections.
    pub seed: u64,
    /// What the server makes of uploads.
    #[serde(default)]
    pub aggregation: Aggregation,
    /// Variants of MK-OFL.
    #[serde(default)]
    pub mk: MkOptions,
    /// Variants of POF-MKL.
    #[serde(default)]
    pub pof: PofOptions,
}

fn one() -> usize {
    1
}

fn hundred() -> usize {
    100
}

impl Default for SetupConfig {
    /// The paper's experiments: P = 11, r = 100, K = 20, λ = 0.01, anytime rates.
    fn default() -> Self {
        Self {
            kernels: 11,
            frequencies: 49,
            nodes: 20,
            inputs: one(),
            budget: hundred(),
            loss: Loss::Squared,
            ridge: 0.01,
            step_size: Schedule::Anytime { scale: 1.0 },
            weight_rate: Schedule::Anytime { scale: 1.0 },
            weight_rule: WeightRule::Incremental,
            seed: 1,
            aggregation: Aggregation::default(),
            mk: MkOptions::default(),
            pof: PofOptions::default(),
        }
    }
}

/// A configuration that has been checked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setup {
    config: SetupConfig,
    /// ln P, which every weight rate has as a factor.
    log_kernels: f64,
}

/// Why a configuration makes no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SetupError {
    /// A count that must be positive.
    #[error("{what} must be at least 1, but is 0")]
    Zero {
        /// Which.
        what: &'static str,
    },
    /// A number outside its bounds.
    #[error("{what} must be {bound}, but is {value}")]
    OutOfBounds {
        /// Which.
        what: &'static str,
        /// In words.
        bound: &'static str,
        /// What it is.
        value: f64,
    },
}

impl TryFrom<SetupConfig> for Setup {
    type Error = SetupError;

    fn try_from(config: SetupConfig) -> Result<Self, SetupError> {
        for (what, count) in [
            ("the number of kernels", config.kernels),
            ("the number of frequencies", config.frequencies),
            ("the number of inputs", config.inputs),
            ("the budget", config.budget),
            ("the number of nodes", config.nodes),
            ("kernels_per_upload", config.pof.kernels_per_upload),
        ] {
            if count == 0 {
                return Err(SetupError::Zero { what });
            }
        }
        let check = |what, value: f64, bound, holds: bool| {
            // NaN fails every comparison, and so the check.
            if holds { Ok(()) } else { Err(SetupError::OutOfBounds { what, bound, value }) }
        };
        let ridge = config.ridge;
        check("ridge (λ)", ridge, "between 0 and 1000", (0.0..=1000.0).contains(&ridge))?;
        if let Loss::Huber { delta } = config.loss {
            let holds = delta > 0.0 && delta.is_finite();
            check("huber_delta", delta, "a positive number", holds)?;
        }
        for (what, schedule) in
            [("step_size", config.step_size), ("weight_rate", config.weight_rate)]
        {
            let scale = schedule.scale();
            let holds = scale > 0.0 && scale <= 1000.0;
            check(what, scale, "positive and at most 1000", holds)?;
        }
        let shrink = config.step_size.rate(1) * ridge;
        check(
            "step_size times ridge",
            shrink,
            "at most 1, or models grow without bound",
            shrink <= 1.0,
        )?;
        if let Aggregation::TrimmedMean { share } = config.aggregation {
            let holds = share > 0.0 && share < 0.5;
            check("the share of a trimmed mean", share, "above 0 and below 0.5", holds)?;
        }
        let chosen = config.pof.kernels_per_upload;
        check(
            "kernels_per_upload",
            chosen as f64,
            "at most the number of kernels",
            chosen <= config.kernels,
        )?;
        let exploration = config.pof.exploration;
        check(
            "exploration (ξ)",
            exploration,
            "between 0 and 1",
            (0.0..=1.0).contains(&exploration),
        )?;
        Ok(Self { config, log_kernels: (config.kernels as f64).ln() })
    }
}

impl Setup {
    /// What was checked.
    pub fn config(&self) -> &SetupConfig {
        &self.config
    }

    pub(crate) fn kernels(&self) -> usize {
        self.config.kernels
    }

    /// Length of a model: 2D.
    pub(crate) fn model_len(&self) -> usize {
        2 * self.config.frequencies
    }

    /// Length of z: P·2D.
    pub(crate) fn width(&self) -> usize {
        self.kernels() * self.model_len()
    }

    /// Length of a linear model, and of its z = (1, x): d + 1.
    pub(crate) fn linear_len(&self) -> usize {
        self.config.inputs + 1
    }

    /// The objective that models descend on.
    pub fn objective(&self) -> Objective {
        Objective { loss: self.config.loss, ridge: self.config.ridge }
    }

    /// η_g in a round.
    pub(crate) fn weight_rate(&self, round: u64) -> f64 {
        self.config.weight_rate.rate(round) * self.log_kernels
    }

    /// # Panics
    /// If features were made for another dictionary.
    pub(crate) fn assert_width(&self, z: Features<'_>) {
        assert_eq!(z.numbers().len(), self.width(), "features of another dictionary");
    }

    /// Refuses features of another dictionary.
    fn check_width(&self, z: Features<'_>) -> Result<(), BadSample> {
        check_width(z, self.width())
    }

    /// Refuses labels that can't be learned from.
    pub fn check_label(&self, y: f32) -> Result<(), BadSample> {
        if !simd::is_within(y, MAX_LABEL) {
            return Err(BadSample::Label { label: y });
        }
        if self.config.loss == Loss::Logistic && y.abs() != 1.0 {
            return Err(BadSample::NotASign { label: y });
        }
        Ok(())
    }
}

/// Refuses features of a sample that are more or fewer than expected.
fn check_width(z: Features<'_>, expected: usize) -> Result<(), BadSample> {
    let found = z.numbers().len();
    if found == expected { Ok(()) } else { Err(BadSample::Width { expected, found }) }
}

/// The methods that travel: each has a node half and a server half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// GR-OFL, growing ridge: sums over whole histories, one model of all bandwidths.
    GrOfl,
    /// SK-OFL: one kernel, chosen beforehand (by index, from 0).
    SkOfl {
        /// Which.
        kernel: usize,
    },
    /// MK-OFL: nodes vote for a kernel and upload one model.
    MkOfl,
    /// The naive extension: all models and weights travel.
    Naive,
    /// Every node learns alone; nothing travels.
    Local,
    /// eM-KOFL: nodes upload one model and all losses, and the server draws the kernel.
    EmKofl,
    /// POF-MKL: the server's models of all kernels, mixed by each node's own weights.
    PofMkl,
    /// Fed-POE: a federated and a local model, mixed by each node's own weights.
    FedPoe,
    /// A linear model, learned by gradient steps and averaged.
    LinearSgd,
    /// A linear model, learned by online Newton steps and averaged.
    LinearNewton,
}

/// A budget that leaves no room for a single frequency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{method} needs a budget of at least {least} numbers, but has {budget}")]
pub struct BudgetTooSmall {
    method: &'static str,
    least: usize,
    budget: usize,
}

impl Method {
    /// Short name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::GrOfl => "gr",
            Self::SkOfl { .. } => "sk",
            Self::MkOfl => "mk",
            Self::Naive => "naive",
            Self::Local => "local",
            Self::EmKofl => "emk",
            Self::PofMkl => "pof",
            Self::FedPoe => "fedpoe",
            Self::LinearSgd => "linear",
            Self::LinearNewton => "linear-newton",
        }
    }

    /// Length of the z that it learns from: P·2D; the features of its dictionary for GR-OFL; d + 1
    /// for a linear model, whose z is (1, x).
    pub fn width(self, setup: &Setup) -> usize {
        match self {
            Self::GrOfl => gr_ofl::Sizes::new(setup.config.budget).features,
            Self::LinearSgd | Self::LinearNewton => setup.linear_len(),
            _ => setup.width(),
        }
    }

    /// The map that makes these features, and nothing that the method doesn't look at.
    ///
    /// # Panics
    /// If SK-OFL's kernel is not among those of the spec.
    pub fn map(self, setup: &Setup, spec: &FeatureSpec) -> Result<SampleMap, FeatureError> {
        Ok(match self {
            Self::GrOfl => {
                let gr_ofl::Sizes { features, linear, .. } =
                    gr_ofl::Sizes::new(setup.config.budget);
                SampleMap::Dictionary(Dictionary::new(spec, features, linear)?)
            }
            Self::LinearSgd | Self::LinearNewton => SampleMap::Inputs(setup.config.inputs),
            Self::SkOfl { kernel } => SampleMap::Kernels(FeatureMap::new(spec)?.only(kernel)),
            _ => SampleMap::Kernels(FeatureMap::new(spec)?),
        })
    }

    /// How many frequencies per kernel a budget of r numbers allows: ⌊r/2⌋ for SK-OFL, ⌊r/2⌋ − 1
    /// for MK-OFL, which also sends two indices, and what [`PofOptions::frequencies`] says for
    /// POF-MKL. Methods without a budget of their own are given as many as MK-OFL.
    pub fn frequencies(self, budget: usize) -> Result<usize, BudgetTooSmall> {
        let indices = match self {
            // Its features are its own: what others would have is told for comparison.
            Self::GrOfl if budget < gr_ofl::LEAST_BUDGET => {
                let (method, least) = (self.name(), gr_ofl::LEAST_BUDGET);
                return Err(BudgetTooSmall { method, least, budget });
            }
            Self::SkOfl { .. } => 0,
            Self::PofMkl => return PofOptions::default().frequencies(budget),
            _ => 2,
        };
        frequencies_within(self.name(), budget, indices)
    }

    /// A new node half.
    ///
    /// # Panics
    /// If SK-OFL is given a kernel that the setup doesn't have.
    pub fn node(self, setup: &Setup, id: NodeId) -> Box<dyn NodeMethod> {
        match self {
            Self::GrOfl => Box::new(gr_ofl::Node::new(setup)),
            Self::SkOfl { kernel } => Box::new(sk_ofl::Node::new(setup, kernel)),
            Self::MkOfl => Box::new(mk_ofl::Node::new(setup, id)),
            Self::Naive => Box::new(naive::Node::new(setup)),
            Self::Local => Box::new(local::Node::new(setup)),
            Self::EmKofl => Box::new(em_kofl::Node::new(setup)),
            Self::PofMkl => Box::new(pof_mkl::Node::new(setup, id)),
            Self::FedPoe => Box::new(fed_poe::Node::new(setup)),
            Self::LinearSgd => Box::new(linear_sgd::Node::new(setup)),
            Self::LinearNewton => Box::new(linear_newton::Node::new(setup)),
        }
    }

    /// Whether its server can make this of uploads. Mean is for all.
    ///
    /// The others are for methods whose nodes upload models that stand for themselves. Uploads of
    /// GR-OFL are parts of one system of equations, which centres of its coordinates don't solve:
    /// its error was 1.5 to 6 times as large without a single bad node. In POF-MKL nodes choose the
    /// kernels that they speak of, so a few bad ones are the majority wherever they like. Steps of
    /// online Newton are so long that what bad nodes gain in a round grows on: three of twenty made
    /// the error a thousand times as large.
    pub fn supports(self, aggregation: Aggregation) -> bool {
        let adds_up = matches!(self, Self::GrOfl | Self::PofMkl | Self::LinearNewton);
        aggregation == Aggregation::Mean || !adds_up
    }

    /// A new server half.
    ///
    /// # Panics
    /// If the method doesn't support the setup's aggregation, see [`Method::supports`].
    pub fn server(self, setup: &Setup) -> Box<dyn ServerMethod> {
        let aggregation = setup.config.aggregation;
        assert!(self.supports(aggregation), "{} has no {aggregation}", self.name());
        let basis = self.basis(setup);
        match self {
            Self::GrOfl => Box::new(gr_ofl::server(setup, basis)),
            Self::SkOfl { .. } => Box::new(sk_ofl::server(setup, basis)),
            Self::MkOfl => Box::new(mk_ofl::server(setup, basis)),
            Self::Naive => Box::new(naive::server(setup, basis)),
            Self::Local => Box::new(local::Server::new()),
            Self::EmKofl => Box::new(em_kofl::server(setup, basis)),
            Self::PofMkl => Box::new(pof_mkl::server(setup, basis)),
            Self::FedPoe => Box::new(fed_poe::server(setup, basis)),
            Self::LinearSgd => Box::new(linear_sgd::server(setup, basis, "linear-server")),
            Self::LinearNewton => {
                Box::new(linear_sgd::server(setup, basis, "linear-newton-server"))
            }
        }
    }

    /// Appends what the numbers of a broadcast are, in order: what its [`ServerMethod::sections`]
    /// says, for a node that has no server half. A broadcast that no server of this setup sends has
    /// no sections beyond its end, and no slots that the dictionary doesn't have.
    pub fn broadcast_sections(self, setup: &Setup, broadcast: &Broadcast, out: &mut Vec<Section>) {
        self.basis(setup).sections(broadcast, out);
    }

    /// What the models of its broadcasts are of.
    fn basis(self, setup: &Setup) -> Basis {
        let (among, len) = (setup.kernels(), setup.model_len());
        match self {
            // Broadcasts are exact: large moves of numbers that nearly cancel would be rounded by
            // more than what is left of them.
            Self::GrOfl => Basis::Nothing,
            Self::SkOfl { kernel } => Basis::Kernels { kernels: kernel..kernel + 1, len },
            Self::MkOfl | Self::EmKofl => Basis::Selected { among, len },
            Self::Naive | Self::PofMkl | Self::FedPoe => Basis::Kernels { kernels: 0..among, len },
            Self::Local => Basis::Nothing,
            Self::LinearSgd | Self::LinearNewton => Basis::Inputs { len: setup.linear_len() },
        }
    }
}

/// The largest D for which a model of 2D numbers and some indices fit a budget.
fn frequencies_within(
    method: &'static str,
    budget: usize,
    indices: usize,
) -> Result<usize, BudgetTooSmall> {
    match budget.checked_sub(indices) {
        Some(left) if left >= 2 => Ok(left / 2),
        _ => Err(BudgetTooSmall { method, least: indices + 2, budget }),
    }
}
