//! TR-OFL, tuned ridge: GR-OFL and cosine units whose frequencies are learned from sums.
//!
//! # The idea
//!
//! GR-OFL's features are drawn once, so on long streams what its r numbers can carry limits it. A
//! few cosines with *learned* frequencies do better than many drawn ones. Learning them is a small
//! nonlinear least-squares problem. Block Gauss-Newton steps fit the wire: a block of about r
//! parameters costs its gradient up and its step down. Nodes compute gradients over their whole
//! history from samples that they keep and that never leave them. The curvature costs nothing: JᵀJ
//! depends on inputs only, not on labels, and the server draws synthetic inputs from the normal law
//! whose moments are the linear rows of GR-OFL's Gram matrix. A step is tested on the true history
//! before it counts.
//!
//! # The model
//!
//! x̃ = (x − m)/s, with q inputs: x itself if m and s fit a broadcast (45 inputs for r = 100), else
//! as many of the dictionary's linear features. f₀ is GR-OFL's model at the time the units began:
//!
//! F(x) = f₀(x) + a₀ + a·x̃ + Σⱼ wⱼ cos(vⱼ·x̃ + bⱼ), and the prediction is p + ω·(clip(F) − p),
//! where p is GR-OFL's prediction. GR-OFL goes on beside the units in a share of the rounds, so it
//! is a complete method by itself, and the units can be abandoned at any time.
//!
//! Blocks: the *output* block (a₀, a, w), and *groups* (w, b, v) of some units each.
//!
//! # A round
//!
//! The broadcast of a round says what its uploads are:
//!
//! - *ridge*: GR-OFL's upload, and Σ(F̂ − y)² over the round;
//! - *a block*: half the gradient of the history's squared errors at θ + s with respect to the
//!   block, where θ are the parameters and s is the step on trial; by how much the history's
//!   squared errors change at θ + ½s and θ + s; the squared errors at θ; samples in the history and
//!   in the round; the round's squared errors of GR-OFL and of F;
//! - *errors*: only the last three, before the units begin.
//!
//! A node predicts with θ + s or θ, whichever has the smaller error on its own history.
//!
//! # The server
//!
//! *Verdict*: a step is accepted if the errors fall, and at θ + s by at least 0.6 of the fall at
//! θ + ½s. Otherwise half of it is taken if the errors fall there, else nothing, and the same block
//! is asked for again: nothing counts that wasn't tested. Damping μ of a block falls if a step did
//! what it promised, and grows if not. *Step*: s = −(JᵀJ/n + μ·D)⁻¹ g/N. For weights D is the sum
//! of their part of the diagonal of JᵀJ/n over the number of the block's parameters; for phases and
//! frequencies it is that times half the mean squared error: those have no unit, weights have that
//! of the label. So steps are the same in every unit, and new units, whose weights are small,
//! aren't held back. *Next block*: every sixth is the output block, else the groups in turn.
//! A step that promises to lower the error by more than half is made with more damping.
//! *Growth*: if there are enough samples for another group, the next block is that of the
//! *candidates*: a₀, a, and the weights of up to 64 pairs of a cosine and a sine that follow from
//! the seed. The server takes those that lower the errors most, one after the other, with their
//! best phases. Every second candidate sees three inputs at most. The broadcast has the rows of the
//! new group; its weights are zero.
//!
//! *Who gets the round*: the odds of F against GR-OFL follow their squared errors, without
//! forgetting: F has to earn back what it cost. GR-OFL has every eighth round if F is ahead, every
//! other one at a draw, four of five if F is behind. As long as GR-OFL's own error falls, units
//! don't begin, and a draw counts as being behind. Units that fall behind for twelve rounds are
//! abandoned, and begin again when the history is half as long again. After a surprising round
//! GR-OFL comes first.
//!
//! *Forgetting* is that of GR-OFL: its checks and trials get the rounds that they need. After an
//! order to forget, losses and gradients of F are over the samples of what is left. Units that have
//! less than six samples for each parameter then begin anew.
//!
//! # Nodes that miss a broadcast
//!
//! Broadcasts only say what has changed. A node that doesn't have the one before gets all of θ, f₀,
//! m, s and GR-OFL's model at once ([`crate::method::ServerMethod::catch_up`]).
//!
//! # Lost uploads
//!
//! If less than 0.7 of the known samples are behind the sums of a block, the same block is asked
//! for once more with θ and s as they are. Nodes that were heard send zeros, so the sums of both
//! rounds add up. Growth and the beginning of the units follow the samples of all known nodes, not
//! only of those that answered. GR-OFL has its own way with losses.
//!
//! *Huber loss*: gradients and changes of the units are those of the Huber loss, exactly, since
//! nodes have their samples. GR-OFL weighs samples as they come. *Logistic loss*: F is in log-odds,
//! f₀ are GR-OFL's log-odds, and gradients and changes are those of eight times the logistic loss:
//! its curvature is at most that of a square, so JᵀJ is an upper bound. Log-odds of F and GR-OFL
//! are compared by the squared errors of the means that they stand for. *Change of scale*: m, s and
//! the weights are converted exactly; f₀ as in GR-OFL. If inputs are projected, samples of another
//! scale are useless: the memory is emptied and the units begin anew.
//!
//! # Costs
//!
//! With 1,000 samples of 16 inputs and 60 units a node evaluates 60,000 to 120,000 cosines in a
//! round of units. The server multiplies a Jacobian of 2,500 synthetic inputs with itself and
//! solves one system. Memory: GR-OFL's sums, and 4·(q + 4) bytes a sample within the plan's bound;
//! the oldest samples make room.

mod candidates;
mod inputs;
mod memory;
mod node;
mod order;
mod server;
mod synthetic;
mod told;
mod tuner;
mod units;

use super::gr_ofl::{self, LEAST_BUDGET};
use super::info::{DictionarySize, FeatureKind, Halves, Look, MethodInfo};
use super::node_shell::NodeShell;
use super::setup::Setup;
use crate::simd::vector::LANES;

pub(super) static INFO: MethodInfo = MethodInfo {
    name: "tr",
    aliases: &["tr-ofl"],
    title: "TR-OFL",
    summary: "tuned ridge: growing ridge, and cosines whose frequencies are learned from sums",
    look: Look::solid([0x5b, 0x2a, 0x86]),
    features: FeatureKind::Dictionary(|budget| {
        let ridge = ridge_sizes(budget);
        DictionarySize { features: ridge.features, linear: ridge.linear }
    }),
    memory: |setup| (gr_ofl::INFO.memory)(setup) + setup.memory(),
    catch_up_len: |setup| Sizes::new(setup).catch_up_len(),
    least_memory: |setup| LEAST_SAMPLES * Sizes::new(setup).sample_bytes(),
    halves: Some(Halves {
        node: |setup, _, map| NodeShell::boxed(setup, node::Node::new(setup, map())),
        server: |setup, map| server::server(setup, map()),
    }),
    // The second one, of builds before the first release, had no candidates.
    revision: 3,
    // Budgets, losses and layout are those of the method that it contains.
    ..gr_ofl::INFO
};

/// Numbers that are added to each upload of GR-OFL.
const RIDGE_EXTRA: usize = 1;

/// Numbers of an upload for a block after the gradient.
const BLOCK_EXTRA: usize = 7;

/// Numbers at the end of an upload that are of the round: samples, and errors of GR-OFL and of F.
const ROUND_NUMBERS: usize = 3;

/// Numbers that a block leaves free in its upload, and in the broadcast with its step.
const BLOCK_RESERVE: usize = 10;

/// Parameters of a group at most: groups that are larger begin late, and their units are chosen
/// without knowing what the others leave.
const MOST_GROUP_NUMBERS: usize = 90;

/// Units at most.
const MOST_UNITS: usize = 60;

/// Units that are compared before a group is added, at most.
const MOST_CANDIDATES: usize = 64;

/// Inputs of the units, at most.
const MOST_INPUTS: usize = 64;

/// A memory holds this many samples at least.
const LEAST_SAMPLES: usize = 4 * LANES;

/// Lines of a block of samples beside inputs and features: label, residual, and its change at half
/// and at the whole of the step on trial.
const SAMPLE_LINES: usize = 4;

fn ridge_sizes(budget: usize) -> gr_ofl::Sizes {
    gr_ofl::Sizes::reserving(budget, RIDGE_EXTRA)
}

/// Sizes that follow from a setup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    ridge: gr_ofl::Sizes,
    /// Inputs of the units, q.
    inputs: usize,
    /// Whether those are projections.
    is_projected: bool,
    /// Parameters of a block, at most.
    block: usize,
    /// Units in a group.
    group: usize,
    /// Units, at most.
    most_units: usize,
    /// Samples that a node remembers, at most.
    capacity: usize,
}

impl Sizes {
    fn new(setup: &Setup) -> Self {
        let ridge = ridge_sizes(setup.budget());
        let block = setup.budget().max(LEAST_BUDGET) - BLOCK_RESERVE;
        // m and s are one broadcast.
        let inputs = setup.inputs().min(ridge.linear).min(MOST_INPUTS).min(block / 2);
        let most_units = MOST_UNITS.min(block - 1 - inputs);
        let group = (block.min(MOST_GROUP_NUMBERS) / (inputs + 2)).clamp(1, most_units);
        let most_units = most_units / group * group;
        let is_projected = inputs < setup.inputs();
        let sizes = Self { ridge, inputs, is_projected, block, group, most_units, capacity: 0 };
        let capacity = setup.memory() / sizes.sample_bytes() / LANES * LANES;
        Self { capacity, ..sizes }
    }

    /// Numbers of a unit.
    fn row(&self) -> usize {
        self.inputs + 2
    }

    /// Features of a sample that don't follow from the inputs of the units.
    fn rest(&self) -> usize {
        if self.is_projected { self.ridge.features - 1 - self.inputs } else { 0 }
    }

    /// Lines of a block of samples.
    fn stride(&self) -> usize {
        self.inputs + SAMPLE_LINES + self.rest()
    }

    fn sample_bytes(&self) -> usize {
        4 * self.stride()
    }

    /// Units that are compared before a group is added.
    fn candidates(&self) -> usize {
        ((self.block - 1 - self.inputs) / 2).min(MOST_CANDIDATES)
    }

    /// Parameters with so many units.
    fn parameters(&self, units: usize) -> usize {
        1 + self.inputs + units * self.row()
    }

    fn catch_up_len(&self) -> usize {
        let ridge = self.ridge.features + gr_ofl::BROADCAST_EXTRA;
        let base = self.ridge.features + units::BASE_NUMBERS;
        let step = (1 + self.inputs + self.most_units).max(self.group * self.row());
        ridge + base + 2 * self.inputs + self.parameters(self.most_units) + step + order::HEADER
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::plan::{Plan, PlanConfig};

    fn sizes(inputs: usize, budget: usize) -> Sizes {
        let config = PlanConfig::default().method("tr".parse().unwrap());
        Sizes::new(Plan::new(config.inputs(inputs).budget(budget)).unwrap().setup())
    }

    #[test]
    fn every_message_fits_its_budget() {
        for budget in (16..300).chain([1000, 5000]) {
            for inputs in [1, 2, 5, 16, 48, 49, 100, 1000] {
                let sizes = sizes(inputs, budget);
                assert!(sizes.group >= 1 && sizes.most_units >= sizes.group, "{budget} {sizes:?}");
                let output = 1 + sizes.inputs + sizes.most_units;
                let block = output.max(sizes.group * sizes.row());
                let block = block.max(units::Block::Candidates.len(&sizes, 0));
                assert!(sizes.candidates() >= sizes.group, "{budget} {sizes:?}");
                assert!(block + BLOCK_EXTRA <= budget, "{budget} {inputs}");
                let down = block.max(2 * sizes.inputs) + order::HEADER;
                assert!(down <= budget, "{budget} {inputs}");
            }
        }
        // Larger messages don't make larger groups.
        for budget in [1000, 100] {
            let sizes = sizes(8, budget);
            assert_eq!((sizes.inputs, sizes.group, sizes.most_units), (8, 9, 54));
        }
        let sizes = sizes(8, 100);
        assert_eq!(sizes.ridge.features + gr_ofl::BROADCAST_EXTRA + order::HEADER, 99);
    }

    #[test]
    fn too_small_a_memory_is_refused_by_name() {
        let config = |memory| PlanConfig::default().method("tr".parse().unwrap()).memory(memory);
        let refused = Plan::new(config(100).inputs(3)).unwrap_err().to_string();
        let expected = "memory must be 0, for none, or at least 1792 bytes, but is 100";
        assert_eq!(refused, expected);
        assert!(Plan::new(config(0)).is_ok() && Plan::new(config(1792).inputs(3)).is_ok());
    }
}
