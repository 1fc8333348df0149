//! POF-MKL (Ghari & Shen 2022): the server's models of all kernels, mixed by weights of each node's
//! own.
//!
//! The server broadcasts a model θ_p of every kernel, P·2D numbers. A node predicts Σ_p q_p·θ_pᵀz_p
//! with its personal weights q and charges them with its own losses, logweight_p −= η_g·L(θ_p; x,
//! y). For its upload it sorts the kernels by weight, the heaviest first, and deals them in this
//! order into b = ⌈P/M⌉ bins of M; bin i has probability u_i = (1 − ξ)·Σ_{p in i} q_p + ξ/b. Of the
//! bin that is drawn it uploads η_l·∇L(θ_p)/u_i and the index of each kernel: M·(2D + 1) numbers,
//! fewer for a last bin with fewer kernels. The server takes θ_p −= (1/n)·Σ of what came for p,
//! with n the number of nodes that uploaded anything. A node that chose otherwise counts with zero,
//! so that in expectation every model takes its whole mean gradient step.
//!
//! Readings taken, where the authors' published code leaves it open or is otherwise. The bin is
//! drawn when a round opens, by the weights of that moment. Several samples in a round are steps
//! one after the other from θ_p, and their sum travels; weights are charged with the losses of θ
//! itself, which makes the predictions, and act at once, so that a node out of contact goes on
//! learning which kernels suit it. Weights that tie are sorted by index. η_g is the setup's rate,
//! with its factor ln P (their code has one η for both rates).
//!
//! A step is divided by its probability, so that rates of other methods make it b times as long at
//! first and up to b/ξ times later: models may swing out until η_l has fallen below u. Weights turn
//! away from them, and with everyone present that suffices; where many are missing it may not, and
//! then smaller rates are needed. The server pulls back models longer than
//! [`crate::limits::MAX_NORM`].

use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::rows::{Models, descend, write_pulled_back};
use super::server::{Rule, Server, check_broadcast};
use super::{BadSample, BudgetTooSmall, NodeMethod, Setup, frequencies_within};
use crate::aggregation::gathering::Gathering;
use crate::codec::{Kind, Section};
use crate::features::Features;
use crate::learning::weights::{ExponentialWeights, is_distribution};
use crate::limits::MAX_NUMBER;
use crate::message::{Broadcast, NodeId, Rejected, Upload};
use crate::random::{CounterRng, Purpose};
use crate::scaling::Rescaling;
use crate::state::{BadState, is_count, restore_state, save_state};

const KIND: &str = "pof-node";

/// How POF-MKL chooses what to upload.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PofOptions {
    /// M: kernels in an upload, at most.
    pub kernels_per_upload: usize,
    /// ξ: how much of the choice ignores the weights, from 0 to 1.
    pub exploration: f64,
}

impl Default for PofOptions {
    /// A single kernel, so that an upload fits the budget of one; every tenth choice ignores the
    /// weights.
    fn default() -> Self {
        Self { kernels_per_upload: 1, exploration: 0.1 }
    }
}

impl PofOptions {
    /// How many frequencies per kernel a budget of r numbers allows: the largest D with M·(2D + 1)
    /// ≤ r.
    pub fn frequencies(self, budget: usize) -> Result<usize, BudgetTooSmall> {
        let kernels = self.kernels_per_upload.max(1);
        frequencies_within("pof", budget / kernels, 1).map_err(|error| BudgetTooSmall {
            least: error.least * kernels,
            budget,
            ..error
        })
    }
}

pub(super) struct Node {
    setup: Setup,
    choices: CounterRng,
    state: NodeState,
    /// Objective of each kernel's model on the sample at hand; scratch.
    losses: Vec<f64>,
    /// Kernels, the heaviest first; scratch.
    order: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
struct NodeState {
    round: u64,
    /// Samples learned since the last broadcast.
    learned: u64,
    /// θ of the last broadcast.
    global: Models,
    weights: ExponentialWeights,
    /// The weights, summing to one.
    probabilities: Vec<f64>,
    /// Kernels of the bin that was drawn for this round, the heaviest first.
    chosen: Vec<u32>,
    /// Its probability.
    probability: f64,
    /// Their models and the gradient steps since the last broadcast; M of them, also where fewer
    /// are chosen.
    stepped: Vec<Models>,
}

impl Node {
    pub(super) fn new(setup: &Setup, id: NodeId) -> Self {
        let (kernels, len) = (setup.kernels(), setup.model_len());
        let mut node = Self {
            setup: *setup,
            choices: CounterRng::from_seed(setup.config.seed).derive(Purpose::Vote, u64::from(id)),
            state: NodeState {
                round: 1,
                learned: 0,
                global: Models::zero(kernels, len),
                weights: ExponentialWeights::new(setup.config.weight_rule, kernels),
                probabilities: vec![1.0 / kernels as f64; kernels],
                chosen: Vec::new(),
                probability: 1.0,
                stepped: vec![Models::zero(1, len); setup.config.pof.kernels_per_upload],
            },
            losses: vec![0.0; kernels],
            order: (0..kernels as u32).collect(),
        };
        node.choose();
        node
    }

    /// Draws the bin of the round that has opened.
    fn choose(&mut self) {
        let Self { state, order, .. } = self;
        let log = state.weights.log();
        order.sort_unstable_by(|a, b| log[*b as usize].total_cmp(&log[*a as usize]).then(a.cmp(b)));
        let (explored, most) =
            (self.setup.config.pof.exploration, self.setup.config.pof.kernels_per_upload);
        let bins = order.len().div_ceil(most) as f64;
        let mut left = self.choices.uniform_at(state.round);
        for bin in order.chunks(most) {
            let weight: f64 = bin.iter().map(|kernel| state.probabilities[*kernel as usize]).sum();
            let probability = (1.0 - explored) * weight + explored / bins;
            // Rounding may leave a crumb behind the last one: then the last one it is.
            if probability > 0.0 {
                state.chosen.clear();
                state.chosen.extend_from_slice(bin);
                state.probability = probability.min(1.0);
            }
            if left < probability {
                break;
            }
            left -= probability;
        }
    }
}

impl NodeMethod for Node {
    fn predict(&self, z: Features<'_>) -> f32 {
        self.setup.assert_width(z);
        self.state.global.predict_mixture(&self.state.probabilities, z)
    }

    fn learn(&mut self, z: Features<'_>, y: f32) -> Result<(), BadSample> {
        self.setup.check_width(z)?;
        self.setup.check_label(y)?;
        let (state, len) = (&mut self.state, self.setup.model_len());
        let round = state.round + state.learned;
        let rate = self.setup.config.step_size.rate(round);
        for (kernel, model) in state.chosen.iter().zip(&mut state.stepped) {
            let start = *kernel as usize * len;
            descend(&self.setup, rate, model, z.part(start..start + len), y, &mut [0.0])?;
        }
        state.global.objectives(self.setup.objective(), z, y, &mut self.losses);
        state.weights.charge(self.setup.weight_rate(round), self.losses.iter().copied());
        state.weights.probabilities(&mut state.probabilities);
        state.learned += 1;
        Ok(())
    }

    fn upload(&self, out: &mut Upload) -> bool {
        let (state, bound) = (&self.state, f64::from(MAX_NUMBER));
        out.round = state.round;
        out.vote = state.chosen.first().copied();
        out.numbers.clear();
        for (kernel, stepped) in state.chosen.iter().zip(&state.stepped) {
            let pairs = state.global.numbers(*kernel as usize).zip(stepped.numbers(0));
            let fallen = pairs.map(|(before, after)| f64::from(before) - f64::from(after));
            out.numbers
                .extend(fallen.map(|by| (by / state.probability).clamp(-bound, bound) as f32));
        }
        out.numbers.extend(state.chosen.iter().skip(1).map(|kernel| *kernel as f32));
        state.learned > 0
    }

    fn sections(&self, out: &mut Vec<Section>) {
        let len = self.setup.model_len();
        let slots = self.state.chosen.iter().map(|kernel| *kernel as usize);
        out.extend(slots.map(|slot| Section { len, kind: Kind::Steady { slot } }));
    }

    fn adopt(&mut self, broadcast: &Broadcast) -> Result<(), Rejected> {
        check_broadcast(broadcast, self.setup.width())?;
        if broadcast.round > self.state.round {
            self.state.round = broadcast.round;
            self.state.learned = 0;
            self.state.global.set(0, &broadcast.numbers);
            self.choose();
            let (state, len) = (&mut self.state, self.setup.model_len());
            for (kernel, model) in state.chosen.iter().zip(&mut state.stepped) {
                model.set(0, &broadcast.numbers[*kernel as usize * len..][..len]);
            }
        }
        Ok(())
    }

    fn forget_round(&mut self) {
        self.state.round = 0;
    }

    fn round(&self) -> u64 {
        self.state.round
    }

    fn weights(&self, out: &mut [f64]) {
        out.copy_from_slice(&self.state.probabilities);
    }

    fn norm2(&self) -> f64 {
        self.state.global.norm2_mixture(&self.state.probabilities)
    }

    fn transport(&mut self, transport: &Rescaling) {
        let state = &mut self.state;
        state.global.transport_all(transport);
        for (kernel, model) in state.chosen.iter().zip(&mut state.stepped) {
            model.transport(0, *kernel as usize, transport);
        }
        // The mixture at hand stays, so that predictions do.
        state.weights.in_other_units(transport.loss_factor());
    }

    fn save(&self) -> Vec<u8> {
        save_state(KIND, &self.state)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let setup = &self.setup;
        self.state = restore_state(KIND, saved, |state: &NodeState| {
            let (kernels, len) = (setup.kernels(), setup.model_len());
            let most = setup.config.pof.kernels_per_upload;
            let is_new = |(at, kernel): (usize, &u32)| !state.chosen[..at].contains(kernel);
            is_count(state.round)
                && is_count(state.learned)
                && state.global.is_sound(kernels, len)
                && state.weights.is_sound(setup.config.weight_rule, kernels)
                && state.probabilities.len() == kernels
                && is_distribution(&state.probabilities)
                && (1..=most).contains(&state.chosen.len())
                && state.chosen.iter().all(|kernel| (*kernel as usize) < kernels)
                && state.chosen.iter().enumerate().all(is_new)
                && state.probability > 0.0
                && state.probability <= 1.0
                && state.stepped.len() == most
                && state.stepped.iter().all(|model| model.is_sound(1, len))
        })?;
        Ok(())
    }
}

/// Takes the mean step of every kernel's model.
pub(super) struct Steps {
    setup: Setup,
    /// A model after its step; scratch.
    stepped: Vec<f64>,
}

impl Rule for Steps {
    /// M, so that a state of other uploads is refused.
    type Memory = usize;

    fn kind(&self) -> &'static str {
        "pof-server"
    }

    fn close(&mut self, _most: &mut usize, sums: &Gathering, broadcast: &mut Broadcast) {
        let share = 1.0 / sums.count() as f64;
        for (kernel, model) in broadcast.numbers.chunks_exact_mut(self.stepped.len()).enumerate() {
            let steps = model.iter().zip(sums.totals_of(kernel));
            for (stepped, (number, total)) in self.stepped.iter_mut().zip(steps) {
                *stepped = f64::from(*number) - share * total;
            }
            write_pulled_back(&self.stepped, model);
        }
    }

    fn kernels_per_upload(&self) -> usize {
        self.setup.config.pof.kernels_per_upload
    }

    fn is_sound(&self, most: &usize, broadcast: &Broadcast) -> bool {
        *most == self.kernels_per_upload() && broadcast.kernels.is_none()
    }
}

pub(super) fn server(setup: &Setup, basis: Basis) -> Server<Steps> {
    let opening = Broadcast { round: 1, kernels: None, numbers: vec![0.0; setup.width()] };
    let len = setup.model_len();
    let rule = Steps { setup: *setup, stepped: vec![0.0; len] };
    let most = rule.kernels_per_upload();
    let gathering = Gathering::by_vote(setup.config.aggregation, len, setup.kernels());
    Server::new(rule, most, opening, gathering, basis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::SetupConfig;

    #[test]
    fn states_with_odds_that_can_t_be_are_refused() {
        let setup =
            Setup::try_from(SetupConfig { frequencies: 2, ..SetupConfig::default() }).unwrap();
        let mut node = Node::new(&setup, 0);
        for probability in [0.0, -0.5, f64::NAN, 1.5, 0.25] {
            let sound = node.save();
            node.state.probability = probability;
            let damaged = node.save();
            node.restore(&sound).unwrap();
            assert_eq!(node.restore(&damaged).is_ok(), probability == 0.25, "{probability}");
        }
    }
}
