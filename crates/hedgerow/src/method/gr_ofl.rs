//! GR-OFL, growing ridge: Hedgerow's own method. Ridge regression on a
//! [`crate::features::Dictionary`], kept up to date by sums that nodes upload.
//!
//! # The idea
//!
//! A gradient method sends what one sample says. A node has more to say in r numbers: it keeps A =
//! Σ z zᵀ, b = Σ z y and c = Σ 1 over its **whole history**, so it can send the exact gradient of
//! everything it ever saw at the model just broadcast. Sums over nodes are exact whatever each
//! node's share of the data is, so heterogeneous nodes are no problem; and no kernel has to be
//! guessed, since features of all bandwidths stand in one model and ridge regression weighs them.
//!
//! # What is minimised
//!
//! With y₀ the mean label of the first round, the model w of the first n features says f =
//! clip(wᵀz, lo, hi) of y − y₀. It approaches the minimum of (1/N)·[Σ (wᵀz − (y − y₀))² + δ‖w‖²]
//! over all N samples of all nodes that answer; half its gradient is ḡ = (Σₖ gₖ + δw)/N with gₖ =
//! Aₖw − bₖ + y₀·Aₖe₁, half its Hessian the mean Gram matrix. A node's history counts in exactly
//! those rounds in which the node answers: who leaves for good takes it along, who comes back
//! brings it back. The prediction is y₀ + m + θ·(f − m), where m is a running mean of y − y₀ and θ,
//! near one as a rule, the weight of the model against that constant by their errors so far.
//!
//! # A round
//!
//! *Node*, on a broadcast: takes w over; V = the last two moves of w, each a broadcast less the one
//! before, if it heard them all. After its samples (none, one or many) it uploads
//!
//! - gₖ: n numbers;
//! - a slice of its Gram matrix as it was when the epoch began, row by row of the lower triangle:
//!   as many numbers as the budget leaves;
//! - the curvature VᵀAₖV in the plane of the last moves (3), the samples behind it and the samples
//!   behind the slice (2);
//! - Σ(y₀ + f − y)² over the round (1);
//! - in even rounds Σ(y − y₀ − m)² and Σ(y − y₀ − m) over the round; in odd rounds how far its
//!   labels exceed hi (or, in turn, lo), and the square of that (2);
//! - c, and the round's number of samples (2).
//!
//! In a trial (see below) there is a vote before the errors, in place of one number of the slice.
//! In the first round of all it uploads A and b of as many features as fit instead, Σy² and c.
//!
//! *Server*, from the sums alone: K = Σ VᵀAV / samples. In the plane of the last moves the best
//! point is known in hindsight: w ← w − V K⁻¹ Vᵀḡ. Where K shows more curvature than the
//! preconditioner H knew, H is raised there. The damping μ grows fourfold if the curvature along
//! the last move came as a surprise even so, else it is halved. If that move went too far by half,
//! the corrected w is all that is broadcast; else a new step s = −(H + (μ/age·mean diag H +
//! δ/N)I)⁻¹ḡ follows, divided by 1 + N·|ḡᵀs|/Σ(y₀ + f − y)²: samples that came as a surprise bring
//! curvature of their own, at least that much along s, which no H can know yet. Slices make up the
//! next H row by row: as soon as rows beyond n are complete the model grows to them. An epoch has
//! as many slices as the history has rounds, or all rows, so H is renewed again and again. A matrix
//! that isn't positive has its diagonal raised until it is.
//!
//! *Lost uploads*: slices that were summed over different nodes don't fit together, and the small
//! eigenvalues of H are lost. So an epoch has members: the nodes whose first slice was taken. Each
//! further slice is asked for until all of them have delivered it, at most ten times. Nodes learn
//! which uploads were taken ([`crate::method::NodeMethod::acknowledge`]); a node that has delivered
//! a slice, or is no member, sends zeros. Gradients are always over the nodes that answer.
//!
//! *New nodes*, and those that missed a broadcast, don't know the last moves: ḡ has their samples,
//! K doesn't. In such a round the way to the best point in the plane is divided like a step: by 1 +
//! N times what it promises to gain, over Σ(y₀ + f − y)².
//!
//! *Label range*: a minimum is no sum. The server moves hi by Σu²/Σu where u is by how much a
//! node's labels exceed it: never beyond the largest label, and near it within a few rounds.
//!
//! # Forgetting
//!
//! Every 16 rounds there is a *mark*: nodes store their sums, a checkpoint ([`ladder`]). Four are
//! kept, the youngest up to 16 rounds old, the others 16 to 32, 32 to 64 and 64 to 128. A window of
//! the history is a difference of sums, so nodes need no samples for it.
//!
//! *Suspicion*: every 24 rounds uploads tell of a window W instead of the whole history: its
//! gradient at w, its squared errors and its count N. With ḡ the mean gradient and σ² the mean
//! squared error, Q = N·ḡᵀH⁻¹ḡ/σ² is about n if nothing changed. If the recent error is 1.5 times
//! the usual one, that is an *alarm*: there is a mark at once, and a check as soon as the window
//! from there has enough samples.
//!
//! *Rival*: if Q > 1.25n + 10, the next broadcast has w − (1 − n/Q)·H⁻¹ḡ in place of w, which stays
//! as it is. *Trial*: in at most 24 rounds nodes vote. A vote is by how much the rival's squared
//! errors of the round are less than those of w, as a multiple of twice the history's mean squared
//! error, between −1 and 1. The rival has won if the sum of the rounds' mean votes exceeds three
//! standard errors and one, and their mean is at least a tenth. So neither wild labels nor a few
//! nodes that lie decide, and a change that matters is found within a dozen rounds.
//!
//! *Order*: w becomes the rival, and all nodes subtract 0.995 of the sums before the window from
//! all others. They keep those aside. *Return*: every third check, and the first after an alarm, is
//! for a history that has them back, and lacks what came between instead, if it is an alarm. It
//! needs two standard errors. That takes back what was forgotten wrongly, and a function that comes
//! back is known at once.
//!
//! A node that joined later, or missed broadcasts, uses the nearest checkpoint that it has. A
//! broadcast with a rival lacks w: nodes that missed the one before get w without the rival, and
//! don't vote ([`crate::method::ServerMethod::catch_up`]).
//!
//! *Huber loss*: a sample enters the sums with the weight min(1, δ_H/|ŷ − y|) that it has when it
//! comes (one step of iterated reweighting). *Logistic loss*: its weights change with the model,
//! and sums can't be reweighted afterwards. So the model is fitted to labels ±1 by least squares,
//! which estimates their mean, and a prediction is the log-odds of that mean, within ±7.6.
//!
//! # Costs
//!
//! With M = 0.8·r features a node keeps M(M + 1)/2 sums in f64, as many in f32 for the slices, and
//! a few vectors: 39 kB for r = 100. Four checkpoints and what was forgotten have 26 kB each. A
//! sample costs M(d + M/2) multiplications, an upload 2n². The server solves one n×n system a
//! round. Sums have to be f64: gradients are differences of sums that nearly cancel.

mod delivery;
pub(super) mod forgetting;
pub(super) mod ladder;
pub(super) mod matrix;
pub(super) mod node;
pub(super) mod order;
mod plane;
pub(super) mod server;

use alloc::vec::Vec;

use super::info::{DictionarySize, FeatureKind, Halves, Look, MethodInfo, frequencies_within};
use super::layout::{BroadcastLayout, Layout, UploadLayout, Votes};
use super::node_shell::NodeShell;
use crate::limits::{MAX_DICTIONARY, MAX_NUMBER};
use crate::math;
pub(super) use order::Order;
use order::UploadShape;

pub(super) static INFO: MethodInfo = MethodInfo {
    name: "gr",
    aliases: &["gr-ofl"],
    title: "GR-OFL",
    summary: "growing ridge: sums over whole histories, one model of all bandwidths",
    look: Look::solid([0xa8, 0x00, 0x2a]),
    is_featured: true,
    // Broadcasts of the first one had an order to forget in the place of marks.
    revision: 2,
    prefers_personal: true,
    features: FeatureKind::Dictionary(|budget| {
        let Sizes { features, linear, .. } = Sizes::new(budget);
        DictionarySize { features, linear }
    }),
    // Its features are its own: the number is what other methods would have.
    frequencies: |budget, _| match budget {
        ..LEAST_BUDGET => Err(LEAST_BUDGET),
        _ => frequencies_within(budget, 2),
    },
    // Uploads are parts of one system of equations, which centres of its coordinates don't solve:
    // the error was 1.5 to 6 times as large without a single bad node.
    is_robust: false,
    is_screened: true,
    layout: |setup| Layout {
        upload: UploadLayout::Sums { len: setup.budget() },
        votes: Votes::None,
        // Broadcasts are exact: large moves of numbers that nearly cancel would be rounded by more
        // than what is left of them.
        broadcast: BroadcastLayout::Nothing,
    },
    memory: |setup| {
        // The sums in f64, and what is left to send of them in f32; checkpoints, and what was
        // forgotten.
        let features = Sizes::new(setup.budget()).features;
        (6 + 4 * (ladder::SLOTS + 1)) * features * features + (64 + 8 * ladder::SLOTS) * features
    },
    halves: Some(Halves {
        node: |setup, _, _| {
            NodeShell::boxed(setup, node::Node::new(setup, Sizes::new(setup.budget())))
        },
        server: |setup, _| server::server(setup),
    }),
    ..MethodInfo::BASE
};

/// The least budget: a smaller one has no room for a slice and a useful gradient.
pub(super) const LEAST_BUDGET: usize = 16;

/// Numbers of a usual upload that are neither gradient nor slice, at most.
const MOST_SCALARS: usize = 10;

/// Numbers of a broadcast after the model.
pub(super) const BROADCAST_EXTRA: usize = 9;

/// Moves of the model whose plane is searched.
pub(super) const SEARCHED_MOVES: usize = 2;

/// Counters on the wire wrap at this number. f32 still distinguishes it from its neighbours.
pub(super) const COUNTER_CYCLE: u32 = 1 << 20;

/// δ: total penalty on the model.
const PENALTY: f64 = 1e-5;

/// Sizes that follow from a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    budget: usize,
    /// Features in the dictionary, M.
    pub(super) features: usize,
    /// Linear ones among them, at most.
    pub(super) linear: usize,
    /// Features of the first round.
    first: usize,
}

impl Sizes {
    fn new(budget: usize) -> Self {
        Self::reserving(budget, 0)
    }

    /// Sizes where another method adds `reserved` numbers to each upload.
    pub(super) fn reserving(budget: usize, reserved: usize) -> Self {
        let whole = budget.max(LEAST_BUDGET);
        let budget = whole - reserved;
        let features = (whole * 4 / 5).min(budget - MOST_SCALARS - 1).min(MAX_DICTIONARY);
        let first =
            (1..=features).take_while(|n| triangle(*n) + n + 2 <= budget).last().unwrap_or(1);
        Self { budget, features, linear: (whole * 12 / 25).min(features - 1), first }
    }
}

/// Entries of a lower triangle.
pub(super) fn triangle(rows: usize) -> usize {
    rows * (rows + 1) / 2
}

/// Whole rows among the first entries of a lower triangle.
fn whole_rows(entries: usize) -> usize {
    let mut rows = (math::sqrt((8 * entries + 1) as f64) as usize).saturating_sub(1) / 2;
    while triangle(rows + 1) <= entries {
        rows += 1;
    }
    while triangle(rows) > entries {
        rows -= 1;
    }
    rows
}

/// Pushes the latest move of a model to the front of the last few, unless it is none.
fn push_move(moves: &mut Vec<Vec<f64>>, now: &[f32], before: &[f32]) {
    let (known, added) = now.split_at(before.len().min(now.len()));
    let apart = |(now, before): (&f32, &f32)| f64::from(*now) - f64::from(*before);
    if known.iter().zip(before).any(|(now, before)| now != before)
        || added.iter().any(|w| *w != 0.0)
    {
        // The oldest makes room.
        let mut room = if moves.len() == SEARCHED_MOVES {
            moves.pop().unwrap_or_default()
        } else {
            Vec::new()
        };
        room.clear();
        room.extend(known.iter().zip(before).map(apart));
        room.extend(added.iter().map(|w| f64::from(*w)));
        moves.insert(0, room);
    }
}

/// Samples that all nodes have, as far as is known, after so many have answered. What is known
/// fades, because nodes may have left.
pub(super) fn known_samples(known: f64, answered: f64) -> f64 {
    const LEFT: f64 = 0.97;
    (LEFT * known).max(answered)
}

/// As a number on the wire.
pub(super) fn to_wire(value: f64) -> f32 {
    let bound = f64::from(MAX_NUMBER);
    if value.is_nan() { 0.0 } else { value.clamp(-bound, bound) as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_fits_its_budget() {
        for budget in (16..300).chain([1000, 5000]) {
            let sizes = Sizes::new(budget);
            let opening = Order::opening(&sizes);
            assert!(opening.layout(&sizes).len <= budget, "{budget}");
            for len in sizes.first..=sizes.features {
                for round in 2..6 {
                    let order =
                        Order { round, len, epoch: 1, begin: 3, moves: SEARCHED_MOVES, ..opening };
                    let UploadShape { slice: (begin, end), len } = order.layout(&sizes);
                    assert!(end > begin && len <= budget, "{budget}");
                    assert!(
                        order.len + BROADCAST_EXTRA <= budget.max(sizes.features + BROADCAST_EXTRA)
                    );
                }
            }
        }
        let sizes = Sizes::new(100);
        assert_eq!((sizes.features, sizes.linear, sizes.first), (80, 48, 12));
    }

    #[test]
    fn rows_are_counted() {
        for rows in 0..200 {
            assert_eq!(whole_rows(triangle(rows)), rows);
            assert_eq!(whole_rows(triangle(rows + 1) - 1), rows);
        }
    }
}
