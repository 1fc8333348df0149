//! MK-OFL, the paper's method: many kernels at the wire cost of one.
//!
//! A node keeps a model w̃^p and a log-weight per kernel. In round t it predicts with the global
//! model ŵ_t, whose kernel the last broadcast named; takes a gradient step on the model of every
//! kernel (for the global one's kernel starting at ŵ_t); charges the weights, logweight_p −=
//! η_g·K·ℓ_p; votes for a kernel drawn from them; and uploads the vote and the model of the *next*
//! kernel, 2D + 1 numbers. The server averages those models, draws the kernel after next with
//! probability ∝ N_p^n, and broadcasts the mean and both kernels, 2D + 2 numbers. [`MkOptions`]
//! names where the authors' published code does otherwise.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Setup;
use super::info::{Halves, Look, MethodInfo, row_bytes};
use super::layout::{Layout, UploadLayout, Votes};
use super::node_shell::{NodeRule, NodeShell};
use super::rows::descend;
use super::selected::{self, SelectedModels, check_selection};
use super::server_shell::{ServerRule, ServerShell};
use crate::aggregation::Gathering;
use crate::codec::Section;
use crate::features::Features;
use crate::learning::weights::{ExponentialWeights, draw, vote_log_weights};
use crate::message::{Broadcast, NodeId, Rejected, Upload};
use crate::random::{CounterRng, Purpose};
use crate::scaling::Rescaling;
use crate::state::StateKind;

pub(super) static INFO: MethodInfo = MethodInfo {
    name: "mk",
    aliases: &["mk-ofl"],
    title: "MK-OFL",
    summary: "nodes vote for a kernel and upload one model",
    look: Look::solid([0xd5, 0x5e, 0x00]),
    is_featured: true,
    is_baseline: true,
    has_variants: true,
    layout,
    memory: |setup| (setup.kernels() + 1) * row_bytes(setup.model_len()) + 3 * 8 * setup.kernels(),
    halves: Some(Halves {
        node: |setup, id, _| NodeShell::boxed(setup, Node::new(setup, id)),
        server: |setup, _| server(setup),
    }),
    ..MethodInfo::BASE
};

fn layout(setup: &Setup) -> Layout {
    let (kernels, len) = (setup.kernels(), setup.model_len());
    Layout {
        upload: UploadLayout::Models { models: 1, len, losses: 0 },
        votes: match setup.mk().average {
            Average::All => Votes::Counted { kernels },
            Average::Voters => Votes::Summed { kernels },
        },
        broadcast: selected::layout(setup),
    }
}

/// Where the paper and its authors' published code part. The default is the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MkOptions {
    /// Whether losses enter the weights with the factor K.
    pub count_nodes: bool,
    /// Whose models the server averages.
    pub average: Average,
}

impl Default for MkOptions {
    fn default() -> Self {
        Self { count_nodes: true, average: Average::All }
    }
}

/// Whose models the server averages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Average {
    /// All models.
    #[default]
    All,
    /// Those of the nodes that voted for the kernel that was drawn.
    Voters,
}

struct Node {
    setup: Setup,
    votes: CounterRng,
    state: State,
    /// Objective of each kernel's model on the current sample; scratch.
    losses: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
struct State {
    selected: SelectedModels,
    weights: ExponentialWeights,
}

impl Node {
    fn new(setup: &Setup, id: NodeId) -> Self {
        let kernels = setup.kernels();
        Self {
            setup: *setup,
            votes: CounterRng::from_seed(setup.seed()).derive(Purpose::Vote, u64::from(id)),
            state: State {
                selected: SelectedModels::zero(setup),
                weights: ExponentialWeights::new(setup.weight_rule(), kernels),
            },
            losses: vec![0.0; kernels],
        }
    }
}

impl NodeRule for Node {
    type State = State;
    const KIND: StateKind = StateKind::new("mk-node");

    fn width(&self) -> usize {
        self.setup.width()
    }

    fn predict(&self, z: Features<'_>) -> f32 {
        self.state.selected.predict(&self.setup, z)
    }

    fn learn(&mut self, step: u64, z: Features<'_>, y: f32) {
        let setup = &self.setup;
        let models = &mut self.state.selected.models;
        descend(setup, setup.step_size(step), models, z, y, &mut self.losses);
        let nodes = if setup.mk().count_nodes { setup.nodes() } else { 1 };
        let rate = setup.weight_rate(step) * nodes as f64;
        self.state.weights.charge(rate, self.losses.iter().copied());
    }

    fn write(&self, round: u64, upload: &mut Upload) {
        let state = &self.state;
        upload.vote = Some(draw(state.weights.log(), self.votes.uniform_at(round)) as u32);
        state.selected.write(&mut upload.numbers);
    }

    fn sections(&self, out: &mut Vec<Section>) {
        out.push(self.state.selected.section(&self.setup));
    }

    fn vote_privately(&mut self, seed: u64) {
        self.votes = CounterRng::from_seed(seed).derive(Purpose::Vote, 0);
    }

    fn check(&self, broadcast: &Broadcast) -> Result<(), Rejected> {
        check_selection(&self.setup, broadcast)
    }

    fn adopt(&mut self, broadcast: &Broadcast) {
        self.state.selected.adopt(broadcast);
    }

    fn shares(&self, out: &mut [f64]) {
        self.state.selected.shares(out);
    }

    fn norm2(&self) -> f64 {
        self.state.selected.norm2()
    }

    fn rescale(&mut self, rescaling: &Rescaling) {
        self.state.selected.rescale(rescaling);
        self.state.weights.in_other_units(rescaling.loss_factor());
    }

    fn state(&self) -> impl Serialize {
        &self.state
    }

    fn is_sound(&self, state: &State) -> bool {
        state.selected.is_sound(&self.setup)
            && state.weights.is_sound(self.setup.weight_rule(), self.setup.kernels())
    }

    fn restore(&mut self, state: State) {
        self.state = state;
    }
}

/// Averages the uploaded models and draws the kernel after next from the votes.
struct Vote {
    setup: Setup,
    selections: CounterRng,
    /// Log-probability of each kernel in the draw; scratch.
    log: Vec<f64>,
}

fn server(setup: &Setup) -> Box<dyn super::ServerMethod> {
    let selections = CounterRng::from_seed(setup.seed()).derive(Purpose::Selection, 0);
    let rule = Vote { setup: *setup, selections, log: vec![0.0; setup.kernels()] };
    ServerShell::boxed(setup, layout(setup), rule, (), selected::opening(setup))
}

impl ServerRule for Vote {
    type Memory = ();

    fn kind(&self) -> StateKind {
        StateKind::new("mk-server")
    }

    fn close(&mut self, (): &mut (), sums: &Gathering, broadcast: &mut Broadcast) {
        vote_log_weights(sums.votes(), &mut self.log);
        let drawn = draw(&self.log, self.selections.uniform_at(broadcast.round));
        selected::advance(broadcast, drawn);
        match self.setup.mk().average {
            Average::All => sums.mean(&mut broadcast.numbers),
            Average::Voters => sums.mean_of_voters(drawn, &mut broadcast.numbers),
        }
    }

    fn is_sound(&self, (): &(), broadcast: &Broadcast) -> bool {
        check_selection(&self.setup, broadcast).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Kernel;
    use crate::method::NodeMethod;
    use crate::{Plan, PlanConfig};

    /// Votes of a thousand nodes that have all seen the same sample.
    fn votes(weight_rate: f64) -> (Vec<usize>, Vec<f64>) {
        let weight_rate = crate::learning::Schedule::Constant { scale: weight_rate };
        let kernels = Kernel::paper_dictionary()[..4].to_vec();
        let config = PlanConfig::default().kernels(kernels).frequencies(Some(2)).nodes(1);
        let plan = Plan::new(config.weight_rate(weight_rate)).unwrap();
        // Kernels differ in how well two equal steps fit the label.
        let numbers: Vec<f32> = (0..16).map(|i| 0.1 + 0.05 * (i / 4) as f32).collect();
        let z = Features::checked(&numbers).unwrap();
        let (mut counts, mut weights) = (vec![0; 4], vec![0.0; 4]);
        let mut upload = Upload::default();
        for id in 0..1000 {
            let mut node = NodeShell::new(plan.setup(), Node::new(plan.setup(), id));
            (0..2).for_each(|_| node.learn(z, 1.0).unwrap());
            assert!(node.upload(&mut upload));
            counts[upload.vote.unwrap() as usize] += 1;
            node.rule.state.weights.probabilities(&mut weights);
        }
        (counts, weights)
    }

    #[test]
    fn nodes_vote_independently_and_by_their_weights() {
        for weight_rate in [1e-9, 2.0] {
            let (counts, weights) = votes(weight_rate);
            for (count, weight) in counts.iter().zip(&weights) {
                // Five standard deviations of a binomial.
                let spread = 5.0 * (1000.0 * weight * (1.0 - weight)).sqrt();
                assert!(
                    (*count as f64 - 1000.0 * weight).abs() < spread,
                    "{counts:?} for {weights:?}"
                );
            }
            let differ = weights.iter().any(|weight| (weight - 0.25).abs() > 0.05);
            assert_eq!(differ, weight_rate > 1.0, "{weights:?}");
        }
    }
}
