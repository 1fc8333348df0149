//! The two traits that every method implements, and [`METHODS`]: one description per method.
//!
//! Both parts of a method are state machines: no clock, no sockets, no threads, no hidden
//! randomness. In a round every node predicts and learns its samples and uploads; the server
//! accepts what comes, closes the round, and everyone adopts its broadcast.
//!
//! A new method is one file in this folder, which describes it in a [`MethodInfo`], and one line in
//! the list `methods!` below. Everything else reads the description. [`NodeShell`] and
//! [`ServerShell`] do what all methods have in common; a method adds a [`NodeRule`] and a
//! [`ServerRule`].

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::aggregation::{Compared, PartialSum};
use crate::codec::Section;
use crate::features::Features;
use crate::limits::MAX_LABEL;
use crate::message::{Broadcast, NodeId, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::BadState;

mod info;
mod layout;
mod node_shell;
pub(crate) mod omkl;
mod references;
pub(crate) mod rows;
mod selected;
mod server_shell;
mod setup;
mod spec;

/// Declares the module of each method and lists the descriptions, in the order in which lists show
/// them. The description of a method is the `INFO` of its module.
macro_rules! methods {
    ($($method:ident),* $(,)?) => {
        $(mod $method;)*

        /// Every method and reference that comes with the crate.
        pub static METHODS: &[&MethodInfo] = &[
            $(&$method::INFO,)*
            &references::CENTRAL,
            &references::CENTRAL_BATCH,
            &references::HINDSIGHT,
            &references::LAST,
            &references::MEAN,
            &references::PREVIOUS,
        ];
    };
}

methods! {
    gr_ofl,
    tr_ofl,
    mk_ofl,
    em_kofl,
    pof_mkl,
    fed_poe,
    naive,
    linear_sgd,
    linear_newton,
    local,
    sk_ofl,
}

pub use info::{
    BudgetTooSmall, Dash, DictionarySize, FeatureKind, Halves, Look, MapSource, MethodInfo,
    Reference, Role, frequencies_within, row_bytes,
};
pub use layout::{BroadcastLayout, Layout, UploadLayout, Votes};
pub use mk_ofl::{Average, MkOptions};
pub use node_shell::{NodeRule, NodeShell};
pub use pof_mkl::PofOptions;
pub use server_shell::{Mean, ServerRule, ServerShell, ServerState, check_broadcast};
pub(crate) use setup::Numbers;
pub use setup::Setup;
pub use spec::{MethodSpec, NotAMethod};

/// The method or reference of this name among [`METHODS`], aliases included.
pub fn find(name: &str) -> Option<&'static MethodInfo> {
    METHODS.iter().copied().find(|info| info.has_name(name))
}

/// The part of a method on a node.
pub trait NodeMethod: Send {
    /// Predicts from one sample's features, with the latest global model and what the node keeps to
    /// itself. Pure.
    ///
    /// # Panics
    /// If they were made for another dictionary.
    #[must_use]
    fn predict(&self, z: Features<'_>) -> f32;
    /// Learns from one sample. Refuses what makes no sense, and then stays as it was.
    fn learn(&mut self, z: Features<'_>, y: f32) -> Result<(), BadSample>;
    /// Writes the message for the server and says whether there is one (nothing learned, nothing to
    /// say). Pure: asking again gives the same message.
    fn upload(&self, out: &mut Upload) -> bool;
    /// Appends what the numbers of its upload are, in order, for those who compress it. Numbers
    /// that aren't named travel as they are.
    fn sections(&self, _out: &mut Vec<Section>) {}
    /// From here on its votes follow from this seed, which nobody else knows, and not from that of
    /// the plan.
    fn vote_privately(&mut self, _seed: u64) {}
    /// The upload of the round that it is in has left.
    fn sent(&mut self) {}
    /// The server took the upload of this round, and none later; 0 if none is known. A node that
    /// is never told may say more than it has to.
    fn acknowledge(&mut self, _taken: u64) {}
    /// Takes over the server's state; one that isn't newer than its own is ignored.
    fn adopt(&mut self, broadcast: &Broadcast) -> Result<(), Rejected>;
    /// The server has lost rounds: accepts the next broadcast even if it is older. The node keeps
    /// what it learned itself.
    fn forget_round(&mut self);
    /// The round that it is in: that of the latest broadcast it adopted.
    fn round(&self) -> u64;
    /// How much each kernel has in the predictions; sums to one, or is zero everywhere if the
    /// method has no kernels.
    fn shares(&self, out: &mut [f64]);
    /// ‖w‖² of the model behind the predictions, for the ridge term of the regret.
    fn norm2(&self) -> f64;
    /// Writes the weights w of the linear model behind the predictions and says so, if predictions
    /// are wᵀz within some bounds. `out` may be shorter than the features: then all further weights
    /// have to be zero.
    fn linear_model(&self, _out: &mut [f64]) -> bool {
        false
    }
    /// Takes all models from the scale that they were learned in to another; call it before a
    /// broadcast of the new scale is adopted. Weights are left alone.
    ///
    /// # Panics
    /// If the rescaling was made for another dictionary.
    fn rescale(&mut self, rescaling: &Rescaling);
    /// Forgets the samples that it keeps, and says how many they were. What it has learned stays.
    fn forget_samples(&mut self) -> usize {
        0
    }
    /// Everything that has to survive a restart.
    #[must_use]
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
    /// What to compare between the uploads of the open round, for
    /// [`crate::aggregation::Aggregation::Screened`].
    fn compared(&self) -> Vec<Compared> {
        Vec::new()
    }
    /// From the open round on, uploads of other nodes count than before.
    fn members_changed(&mut self) {}
    /// Uploads that the open round has so far, for those who wait for a quorum.
    fn uploads(&self) -> usize;
    /// Closes the round with whoever came. If nobody did, nothing changes and the round stays open.
    fn close_round(&mut self) -> &Broadcast;
    /// The latest broadcast, for nodes that have the one before; see [`ServerMethod::catch_up`].
    fn broadcast(&self) -> &Broadcast;
    /// What a node needs that doesn't have the broadcast before, because it joins, comes back or
    /// missed one. The broadcast itself, unless that only says what has changed.
    fn catch_up(&self) -> Cow<'_, Broadcast> {
        Cow::Borrowed(self.broadcast())
    }
    /// The round in which the history that nodes go by begins; it changes when they are told to
    /// forget the past. 0 if the method never tells them.
    fn history_begin(&self) -> u64 {
        0
    }
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
    #[must_use]
    fn save(&self) -> Vec<u8>;
    /// Goes on from a saved state, or refuses it and stays as it was.
    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState>;
}

/// A sample that can't be learned from.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BadSample {
    /// The label isn't a number of reasonable size.
    #[error("label {label} is not a finite number of size at most {MAX_LABEL:e}")]
    Label {
        /// The label.
        label: f32,
    },
    /// A class that is neither of the two labels of an output.
    #[error("label {label} is neither -1 nor +1, as classes are")]
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
