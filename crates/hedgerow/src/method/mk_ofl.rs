//! MK-OFL, the paper's method: many kernels at the wire cost of one.
//!
//! A node keeps a model w̃^p and a log-weight per kernel. In round t it predicts with the global
//! model ŵ_t, whose kernel the last broadcast named; takes a gradient step on the model of every
//! kernel (for the global one's kernel starting at ŵ_t); charges the weights, logweight_p −=
//! η_g·K·ℓ_p; votes for a kernel drawn from them; and uploads the vote and the model of the *next*
//! kernel, 2D + 1 numbers. The server averages those models, draws the kernel after next with
//! probability ∝ N_p^n, and broadcasts the mean and both kernels, 2D + 2 numbers. [`MkOptions`]
//! names where the authors' published code does otherwise.

use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::rows::{Models, descend, one_hot};
use super::server::{FIRST, Rule, Server, check_selection, is_selection};
use super::{BadSample, NodeMethod, Setup};
use crate::aggregation::gathering::Gathering;
use crate::codec::{Kind, Section};
use crate::features::Features;
use crate::learning::weights::{ExponentialWeights, draw, vote_log_weights};
use crate::message::{Broadcast, NodeId, Rejected, Selection, Upload};
use crate::random::{CounterRng, Purpose};
use crate::scaling::Rescaling;
use crate::state::{BadState, is_count, restore_state, save_state};

const KIND: &str = "mk-node";

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
    /// Everybody's.
    #[default]
    All,
    /// Those of the nodes that voted for the kernel that was drawn.
    Voters,
}

pub(super) struct Node {
    setup: Setup,
    votes: CounterRng,
    state: NodeState,
    /// Objective of each kernel's model on the sample at hand; scratch.
    losses: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
struct NodeState {
    round: u64,
    /// Samples learned since the last broadcast.
    learned: u64,
    selection: Selection,
    /// ŵ_t.
    global: Models,
    /// w̃^p of every kernel, one after the other.
    models: Models,
    weights: ExponentialWeights,
}

impl Node {
    pub(super) fn new(setup: &Setup, id: NodeId) -> Self {
        Self {
            setup: *setup,
            votes: CounterRng::from_seed(setup.config.seed).derive(Purpose::Vote, u64::from(id)),
            state: NodeState {
                round: 1,
                learned: 0,
                selection: FIRST,
                global: Models::zero(1, setup.model_len()),
                models: Models::zero(setup.kernels(), setup.model_len()),
                weights: ExponentialWeights::new(setup.config.weight_rule, setup.kernels()),
            },
            losses: vec![0.0; setup.kernels()],
        }
    }
}

impl NodeMethod for Node {
    fn predict(&self, z: Features<'_>) -> f32 {
        self.setup.assert_width(z);
        let (kernel, len) = (self.state.selection.current as usize, self.setup.model_len());
        self.state.global.predict(0, z.part(kernel * len..(kernel + 1) * len))
    }

    fn learn(&mut self, z: Features<'_>, y: f32) -> Result<(), BadSample> {
        // Several samples in a round go on from one another, and so does the rate.
        let round = self.state.round + self.state.learned;
        let rate = self.setup.config.step_size.rate(round);
        descend(&self.setup, rate, &mut self.state.models, z, y, &mut self.losses)?;
        let nodes = if self.setup.config.mk.count_nodes { self.setup.config.nodes } else { 1 };
        let rate = self.setup.weight_rate(round) * nodes as f64;
        self.state.weights.charge(rate, self.losses.iter().copied());
        self.state.learned += 1;
        Ok(())
    }

    fn upload(&self, out: &mut Upload) -> bool {
        let state = &self.state;
        let uniform = self.votes.uniform_at(state.round);
        out.round = state.round;
        out.vote = Some(draw(state.weights.log(), uniform) as u32);
        out.numbers.clear();
        state.models.pack_row(state.selection.next as usize, &mut out.numbers);
        state.learned > 0
    }

    fn sections(&self, out: &mut Vec<Section>) {
        let slot = self.state.selection.next as usize;
        out.push(Section { len: self.setup.model_len(), kind: Kind::Model { slot } });
    }

    fn adopt(&mut self, broadcast: &Broadcast) -> Result<(), Rejected> {
        let selection = check_selection(&self.setup, broadcast)?;
        if broadcast.round > self.state.round {
            self.state.round = broadcast.round;
            self.state.learned = 0;
            self.state.selection = selection;
            self.state.global.set(0, &broadcast.numbers);
            // From here on the model of the global kernel is the global model.
            self.state.models.set(selection.current as usize, &broadcast.numbers);
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
        self.state.weights.probabilities(out);
    }

    fn shares(&self, out: &mut [f64]) {
        one_hot(self.state.selection.current as usize, out);
    }

    fn norm2(&self) -> f64 {
        self.state.global.norm2(0)
    }

    fn transport(&mut self, transport: &Rescaling) {
        self.state.global.transport(0, self.state.selection.current as usize, transport);
        self.state.models.transport_all(transport);
        self.state.weights.in_other_units(transport.loss_factor());
    }

    fn save(&self) -> Vec<u8> {
        save_state(KIND, &self.state)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let setup = &self.setup;
        self.state = restore_state(KIND, saved, |state: &NodeState| {
            let kernels = setup.kernels();
            is_count(state.round)
                && is_count(state.learned)
                && is_selection(setup, state.selection)
                && state.global.is_sound(1, setup.model_len())
                && state.models.is_sound(kernels, setup.model_len())
                && state.weights.is_sound(setup.config.weight_rule, kernels)
        })?;
        Ok(())
    }
}

/// Averages the uploaded models and draws the kernel after next from the votes.
pub(super) struct Vote {
    setup: Setup,
    selections: CounterRng,
    /// Log-probability of each kernel in the draw; scratch.
    log: Vec<f64>,
}

impl Rule for Vote {
    type Memory = ();

    fn kind(&self) -> &'static str {
        "mk-server"
    }

    fn close(&mut self, (): &mut (), sums: &Gathering, broadcast: &mut Broadcast) {
        vote_log_weights(sums.votes(), &mut self.log);
        let drawn = draw(&self.log, self.selections.uniform_at(broadcast.round)) as u32;
        let averaged = broadcast.kernels.unwrap_or(FIRST).next;
        broadcast.kernels = Some(Selection { current: averaged, next: drawn });
        match self.setup.config.mk.average {
            Average::All => sums.mean(&mut broadcast.numbers),
            Average::Voters => sums.mean_of_voters(drawn as usize, &mut broadcast.numbers),
        }
    }

    fn is_sound(&self, (): &(), broadcast: &Broadcast) -> bool {
        check_selection(&self.setup, broadcast).is_ok()
    }
}

pub(super) fn server(setup: &Setup, basis: Basis) -> Server<Vote> {
    let selections = CounterRng::from_seed(setup.config.seed).derive(Purpose::Selection, 0);
    let rule = Vote { setup: *setup, selections, log: vec![0.0; setup.kernels()] };
    let opening =
        Broadcast { round: 1, kernels: Some(FIRST), numbers: vec![0.0; setup.model_len()] };
    let (kernels, len) = (setup.kernels(), setup.model_len());
    let aggregation = setup.config.aggregation;
    let gathering = match setup.config.mk.average {
        Average::All => Gathering::new(aggregation, len, kernels),
        Average::Voters => Gathering::by_vote(aggregation, len, kernels),
    };
    Server::new(rule, (), opening, gathering, basis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::SetupConfig;

    /// Votes of a thousand nodes that have all seen the same sample.
    fn votes(weight_rate: f64) -> (Vec<usize>, Vec<f64>) {
        let weight_rate = crate::learning::Schedule::Constant { scale: weight_rate };
        let config = SetupConfig {
            kernels: 4,
            frequencies: 2,
            nodes: 1,
            weight_rate,
            ..SetupConfig::default()
        };
        let setup = Setup::try_from(config).unwrap();
        // Kernels differ in how well two equal steps fit the label.
        let numbers: Vec<f32> = (0..16).map(|i| 0.1 + 0.05 * (i / 4) as f32).collect();
        let z = Features::checked(&numbers).unwrap();
        let (mut counts, mut weights) = (vec![0; 4], vec![0.0; 4]);
        let mut upload = Upload::default();
        for id in 0..1000 {
            let mut node = Node::new(&setup, id);
            (0..2).for_each(|_| node.learn(z, 1.0).unwrap());
            assert!(node.upload(&mut upload));
            counts[upload.vote.unwrap() as usize] += 1;
            node.weights(&mut weights);
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
