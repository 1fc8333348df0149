//! The two traits that every method implements, and [`METHODS`]: one description per method.
//!
//! Both parts of a method are state machines: no clock, no sockets, no threads, no hidden
//! randomness. In a round every node predicts and learns its samples and uploads; the server
//! accepts what comes, closes the round, and everyone adopts its broadcast.
//!
//! A new method is one file in this folder, which describes it in a [`MethodInfo`], and one line in
//! [`METHODS`]. Everything else reads the description. [`NodeShell`] and [`ServerShell`] do what
//! all methods have in common; a method adds a [`NodeRule`] and a [`ServerRule`].

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::aggregation::{Aggregation, PartialSum};
use crate::codec::Section;
use crate::features::{FeatureError, FeatureSpec, Features, SampleMap};
use crate::limits::MAX_LABEL;
use crate::message::{Broadcast, NodeId, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::BadState;

mod em_kofl;
mod fed_poe;
mod gr_ofl;
mod info;
mod layout;
mod linear_newton;
mod linear_sgd;
mod local;
mod mk_ofl;
mod naive;
mod node_shell;
pub(crate) mod omkl;
mod pof_mkl;
mod references;
pub(crate) mod rows;
mod server_shell;
mod setup;
mod sk_ofl;
mod spec;

pub use info::{
    BudgetTooSmall, Dash, DictionarySize, FeatureKind, Halves, Look, METHODS, MethodInfo,
    Reference, Role, all, find, frequencies_within, register, row_bytes,
};
pub use layout::{BroadcastLayout, Layout, UploadLayout, Votes};
pub use mk_ofl::{Average, MkOptions};
pub use node_shell::{NodeRule, NodeShell};
pub use pof_mkl::PofOptions;
pub use server_shell::{Mean, ServerRule, ServerShell, check_broadcast};
pub use setup::{Setup, SetupConfig, SetupError};
pub use spec::{MethodSpec, NotAMethod};

/// The part of a method on a node.
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
    /// The server has lost rounds: accepts the next broadcast even if it is older. The node keeps
    /// what it learned itself.
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
    /// If the rescaling was made for another dictionary.
    fn rescale(&mut self, rescaling: &Rescaling);
    /// Everything that has to survive a restart.
    fn save(&self) -> Vec<u8>;
    /// Goes on from a saved state, or refuses it and stays as it was.
    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState>;
}

/// The part of a method on the server.
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
    /// If the rescaling was made for another dictionary.
    fn rescale(&mut self, rescaling: &Rescaling);
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
        /// The label.
        label: f32,
    },
    /// The logistic loss knows two labels.
    #[error("label {label} is neither -1 nor +1, which the logistic loss needs")]
    NotASign {
        /// The label.
        label: f32,
    },
    /// Features of another map.
    #[error("{expected} features expected, but {found} came")]
    Width {
        /// Features that the setup has.
        expected: usize,
        /// Features that came.
        found: usize,
    },
}

/// The methods that travel: each has a node half and a server half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// GR-OFL, growing ridge: sums over whole histories, one model of all bandwidths.
    GrOfl,
    /// SK-OFL: one kernel, chosen beforehand (by index, from 0).
    SkOfl {
        /// The kernel, from 0.
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

impl Method {
    /// Its description.
    pub fn info(self) -> &'static MethodInfo {
        match self {
            Self::GrOfl => &gr_ofl::INFO,
            Self::SkOfl { .. } => &sk_ofl::INFO,
            Self::MkOfl => &mk_ofl::INFO,
            Self::Naive => &naive::INFO,
            Self::Local => &local::INFO,
            Self::EmKofl => &em_kofl::INFO,
            Self::PofMkl => &pof_mkl::INFO,
            Self::FedPoe => &fed_poe::INFO,
            Self::LinearSgd => &linear_sgd::INFO,
            Self::LinearNewton => &linear_newton::INFO,
        }
    }

    fn setup(self, setup: &Setup) -> Setup {
        if let Self::SkOfl { kernel } = self { setup.with_kernel(kernel) } else { *setup }
    }

    /// Short name, as on the command line.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Length of the z that it learns from.
    pub fn width(self, setup: &Setup) -> usize {
        self.info().width(setup)
    }

    /// The map that makes these features, and nothing that the method doesn't look at.
    ///
    /// # Panics
    /// If SK-OFL's kernel is not among those of the spec.
    pub fn map(self, setup: &Setup, spec: &FeatureSpec) -> Result<SampleMap, FeatureError> {
        self.info().map(&self.setup(setup), spec)
    }

    /// How many frequencies per kernel a budget of r numbers allows.
    pub fn frequencies(self, budget: usize) -> Result<usize, BudgetTooSmall> {
        self.info().frequencies(budget, &PofOptions::default())
    }

    /// A new node half.
    ///
    /// # Panics
    /// If SK-OFL is given a kernel that the setup doesn't have.
    pub fn node(self, setup: &Setup, id: NodeId) -> Box<dyn NodeMethod> {
        (self.halves(setup).node)(&self.setup(setup), id)
    }

    /// Whether its server can make this of uploads. Mean is for all.
    pub fn supports(self, aggregation: Aggregation) -> bool {
        self.info().supports(aggregation)
    }

    /// A new server half.
    ///
    /// # Panics
    /// If the method doesn't support the setup's aggregation, see [`Method::supports`].
    pub fn server(self, setup: &Setup) -> Box<dyn ServerMethod> {
        let aggregation = setup.config().aggregation;
        assert!(self.supports(aggregation), "{} has no {aggregation}", self.name());
        (self.halves(setup).server)(&self.setup(setup))
    }

    #[expect(clippy::expect_used, reason = "every variant has both halves")]
    fn halves(self, setup: &Setup) -> Halves {
        let (info, loss) = (self.info(), setup.config().loss);
        assert!((info.supports_loss)(&loss), "{} has no {loss:?} loss", info.title);
        info.halves.expect("both halves")
    }

    /// Appends what the numbers of a broadcast are, in order.
    pub fn broadcast_sections(self, setup: &Setup, broadcast: &Broadcast, out: &mut Vec<Section>) {
        (self.info().layout)(&self.setup(setup)).broadcast.sections(broadcast, out);
    }
}
