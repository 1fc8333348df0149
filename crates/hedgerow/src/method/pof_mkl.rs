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
//! Interpretation of the paper, where the authors' published code leaves it open or is otherwise.
//! The bin is drawn when a round opens, by the weights of that moment. Several samples in a round
//! are steps one after the other from θ_p, and their sum travels; weights are charged with the
//! losses of θ itself, which makes the predictions, and act at once, so that a node out of contact
//! goes on learning which kernels suit it. Weights that tie are sorted by index. η_g is the setup's
//! rate, with its factor ln P (their code has one η for both rates).
//!
//! A step is divided by its probability, so that rates of other methods make it b times as long at
//! first and up to b/ξ times later: models may swing out until η_l has fallen below u. Weights turn
//! away from them, and with everyone present that suffices; where many are missing it may not, and
//! then smaller rates are needed. The server pulls back models longer than
//! [`crate::limits::MAX_NORM`].

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::info::{Halves, Look, MethodInfo, frequencies_within, row_bytes};
use super::layout::{BroadcastLayout, Layout, UploadLayout, Votes};
use super::node_shell::{NodeRule, NodeShell};
use super::rows::{Models, descend};
use super::server_shell::{ServerRule, ServerShell, check_broadcast};
use super::{ServerMethod, Setup};
use crate::aggregation::Gathering;
use crate::codec::{Kind, Section};
use crate::features::Features;
use crate::learning::weights::Mixture;
use crate::limits::MAX_NUMBER;
use crate::linear_algebra::write_bounded;
use crate::message::{Broadcast, NodeId, Rejected, Upload};
use crate::random::{CounterRng, Purpose};
use crate::scaling::Rescaling;
use crate::state::StateKind;

pub(super) static INFO: MethodInfo = MethodInfo {
    name: "pof",
    aliases: &["pof-mkl"],
    title: "POF-MKL",
    summary: "the server's models of all kernels, mixed by each node's own weights",
    look: Look::solid([0x99, 0x99, 0x33]),
    frequencies: |budget, pof| {
        // The largest D with M·(2D + 1) ≤ r.
        let kernels = pof.kernels_per_upload.max(1);
        frequencies_within(budget / kernels, 1).map_err(|least| least * kernels)
    },
    // Nodes choose the kernels of their uploads, so a few bad nodes can be the majority of any.
    is_robust: false,
    layout,
    memory: |setup| {
        let models = setup.kernels() + setup.pof().kernels_per_upload;
        models * row_bytes(setup.model_len()) + 5 * 8 * setup.kernels()
    },
    halves: Some(Halves {
        node: |setup, id, _| NodeShell::boxed(setup, Node::new(setup, id)),
        server: |setup, _| server(setup),
    }),
    ..MethodInfo::BASE
};

fn layout(setup: &Setup) -> Layout {
    let (kernels, len) = (setup.pof().kernels_per_upload, setup.model_len());
    Layout {
        upload: UploadLayout::Steps { kernels, len },
        votes: Votes::Summed { kernels: setup.kernels() },
        broadcast: BroadcastLayout::every_kernel(setup),
    }
}

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

struct Node {
    setup: Setup,
    choices: CounterRng,
    state: State,
    /// Objective of each kernel's model on the current sample; scratch.
    losses: Vec<f64>,
    /// Kernels, the heaviest first; scratch.
    order: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// θ of the last broadcast.
    global: Models,
    mixture: Mixture,
    /// Kernels of the bin that was drawn for this round, the heaviest first.
    chosen: Vec<u32>,
    /// Its probability.
    probability: f64,
    /// Their models and the gradient steps since the last broadcast; M of them, also where fewer
    /// are chosen.
    stepped: Vec<Models>,
}

impl Node {
    fn new(setup: &Setup, id: NodeId) -> Self {
        let (kernels, len) = (setup.kernels(), setup.model_len());
        let mut node = Self {
            setup: *setup,
            choices: CounterRng::from_seed(setup.seed()).derive(Purpose::Vote, u64::from(id)),
            state: State {
                global: Models::zero(kernels, len),
                mixture: Mixture::new(setup.weight_rule(), kernels),
                chosen: Vec::new(),
                probability: 1.0,
                stepped: vec![Models::zero(1, len); setup.pof().kernels_per_upload],
            },
            losses: vec![0.0; kernels],
            order: (0..kernels as u32).collect(),
        };
        node.choose(1);
        node
    }

    /// Draws the bin of a round.
    fn choose(&mut self, round: u64) {
        let Self { state, order, .. } = self;
        let (log, parts) = (state.mixture.log(), state.mixture.parts());
        order.sort_unstable_by(|a, b| log[*b as usize].total_cmp(&log[*a as usize]).then(a.cmp(b)));
        let PofOptions { exploration, kernels_per_upload } = self.setup.pof();
        let bins = order.len().div_ceil(kernels_per_upload) as f64;
        let mut left = self.choices.uniform_at(round);
        for bin in order.chunks(kernels_per_upload) {
            let weight: f64 = bin.iter().map(|kernel| parts[*kernel as usize]).sum();
            let probability = (1.0 - exploration) * weight + exploration / bins;
            // Rounding may leave a little behind the last bin: then the last one is drawn.
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

impl NodeRule for Node {
    type State = State;
    const KIND: StateKind = StateKind::new("pof-node");

    fn width(&self) -> usize {
        self.setup.width()
    }

    fn predict(&self, z: Features<'_>) -> f32 {
        self.state.global.predict_mixture(self.state.mixture.parts(), z)
    }

    fn learn(&mut self, step: u64, z: Features<'_>, y: f32) {
        let (state, len) = (&mut self.state, self.setup.model_len());
        let rate = self.setup.step_size(step);
        for (kernel, model) in state.chosen.iter().zip(&mut state.stepped) {
            let start = *kernel as usize * len;
            descend(&self.setup, rate, model, z.part(start..start + len), y, &mut [0.0]);
        }
        state.global.objectives(self.setup.objective(), z, y, &mut self.losses);
        state.mixture.charge(self.setup.weight_rate(step), self.losses.iter().copied());
    }

    fn write(&self, _round: u64, upload: &mut Upload) {
        let (state, bound) = (&self.state, f64::from(MAX_NUMBER));
        upload.vote = state.chosen.first().copied();
        for (kernel, stepped) in state.chosen.iter().zip(&state.stepped) {
            let pairs = state.global.numbers(*kernel as usize).zip(stepped.numbers(0));
            let fallen = pairs.map(|(before, after)| f64::from(before) - f64::from(after));
            let weighted = fallen.map(|by| (by / state.probability).clamp(-bound, bound) as f32);
            upload.numbers.extend(weighted);
        }
        upload.numbers.extend(state.chosen.iter().skip(1).map(|kernel| *kernel as f32));
    }

    fn sections(&self, out: &mut Vec<Section>) {
        let len = self.setup.model_len();
        let slots = self.state.chosen.iter().map(|kernel| *kernel as usize);
        out.extend(slots.map(|slot| Section { len, kind: Kind::Steady { slot } }));
    }

    fn check(&self, broadcast: &Broadcast) -> Result<(), Rejected> {
        check_broadcast(broadcast, self.setup.width())
    }

    fn adopt(&mut self, broadcast: &Broadcast) {
        self.state.global.set(0, &broadcast.numbers);
        self.choose(broadcast.round);
        let (state, len) = (&mut self.state, self.setup.model_len());
        for (kernel, model) in state.chosen.iter().zip(&mut state.stepped) {
            model.set(0, &broadcast.numbers[*kernel as usize * len..][..len]);
        }
    }

    fn shares(&self, out: &mut [f64]) {
        out.copy_from_slice(self.state.mixture.parts());
    }

    fn norm2(&self) -> f64 {
        self.state.global.norm2_mixture(self.state.mixture.parts())
    }

    fn rescale(&mut self, rescaling: &Rescaling) {
        let state = &mut self.state;
        state.global.rescale_all(rescaling);
        for (kernel, model) in state.chosen.iter().zip(&mut state.stepped) {
            model.rescale(0, *kernel as usize, rescaling);
        }
        state.mixture.in_other_units(rescaling.loss_factor());
    }

    fn state(&self) -> impl Serialize {
        &self.state
    }

    fn is_sound(&self, state: &State) -> bool {
        let (kernels, len) = (self.setup.kernels(), self.setup.model_len());
        let most = self.setup.pof().kernels_per_upload;
        let is_new = |(at, kernel): (usize, &u32)| !state.chosen[..at].contains(kernel);
        state.global.is_sound(kernels, len)
            && state.mixture.is_sound(self.setup.weight_rule(), kernels)
            && (1..=most).contains(&state.chosen.len())
            && state.chosen.iter().all(|kernel| (*kernel as usize) < kernels)
            && state.chosen.iter().enumerate().all(is_new)
            && state.probability > 0.0
            && state.probability <= 1.0
            && state.stepped.len() == most
            && state.stepped.iter().all(|model| model.is_sound(1, len))
    }

    fn restore(&mut self, state: State) {
        self.state = state;
    }
}

/// Takes the mean step of every kernel's model.
struct Steps {
    setup: Setup,
    /// A model after its step; scratch.
    stepped: Vec<f64>,
}

fn server(setup: &Setup) -> Box<dyn ServerMethod> {
    let opening = Broadcast { round: 1, kernels: None, numbers: vec![0.0; setup.width()] };
    let rule = Steps { setup: *setup, stepped: vec![0.0; setup.model_len()] };
    let memory = setup.pof().kernels_per_upload;
    ServerShell::boxed(setup, layout(setup), rule, memory, opening)
}

impl ServerRule for Steps {
    /// M, so that a state of other uploads is refused.
    type Memory = usize;

    fn kind(&self) -> StateKind {
        StateKind::new("pof-server")
    }

    fn close(&mut self, _most: &mut usize, sums: &Gathering, broadcast: &mut Broadcast) {
        let share = 1.0 / sums.count() as f64;
        for (kernel, model) in broadcast.numbers.chunks_exact_mut(self.stepped.len()).enumerate() {
            let steps = model.iter().zip(sums.totals_of(kernel));
            for (stepped, (number, total)) in self.stepped.iter_mut().zip(steps) {
                *stepped = f64::from(*number) - share * total;
            }
            write_bounded(&self.stepped, model);
        }
    }

    fn is_sound(&self, most: &usize, broadcast: &Broadcast) -> bool {
        *most == self.setup.pof().kernels_per_upload && broadcast.kernels.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plan, PlanConfig};

    #[test]
    fn states_with_probabilities_out_of_bounds_are_refused() {
        let plan = Plan::new(PlanConfig::default().frequencies(Some(2))).unwrap();
        let node = Node::new(plan.setup(), 0);
        for probability in [0.0, -0.5, f64::NAN, 1.5, 0.25] {
            let mut state = Node::new(&node.setup, 0).state;
            state.probability = probability;
            assert_eq!(node.is_sound(&state), probability == 0.25, "{probability}");
        }
    }
}
