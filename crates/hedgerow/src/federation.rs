//! [`Federation`]: one server and K nodes in one process, round by round, with nodes that miss
//! rounds.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::codec::{Compression, Cost};
use crate::executor::{Executor, Sequential};
use crate::features::Features;
use crate::message::{BYTES_PER_NUMBER, NodeId, Rejected};
use crate::method::{BadSample, NodeMethod};
use crate::metrics::Traffic;
use crate::node::Node;
use crate::own_layer::OwnLayer;
use crate::plan::Plan;
use crate::scaling::Rescaling;
use crate::server::{Server, UploadReader};
use crate::state::{BadState, StateKind, is_count, read_body};

mod lanes;
mod raw;
mod wire;

use lanes::{LANES, Lane, Members, RoundContext, can_be_divided, is_taken};

pub use lanes::Observations;

/// How well a node can reach the server in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Contact {
    /// Its upload arrives in time and it receives the broadcast.
    #[default]
    Full,
    /// Its upload arrives after the round has closed.
    Late,
    /// It sends and receives nothing. It predicts and learns with the model that it has.
    Lost,
}

/// What happens at one node in one round. Nodes without one don't take part.
#[derive(Debug, Clone, Copy)]
pub struct NodeRound<'a> {
    /// The node's number.
    pub node: NodeId,
    /// Features of the samples that arrived, one after the other: none, one or several.
    pub z: Features<'a>,
    /// Their labels; those of all outputs of a sample stand together.
    pub y: &'a [f32],
    /// Whether it can reach the server.
    pub contact: Contact,
}

/// A prediction that a node made before it saw the label.
#[derive(Clone, Copy)]
pub struct Prediction<'a> {
    /// The node that made it.
    pub node: NodeId,
    /// The output that it is of, from 0.
    pub output: usize,
    /// ŷ, the node's.
    pub value: f32,
    /// What the method alone says; the same, unless nodes have layers of their own.
    pub global: f32,
    /// y.
    pub label: f32,
    /// The method's node half as it was then.
    pub method: &'a dyn NodeMethod,
}

/// Why a round failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RoundError {
    /// A node that the federation doesn't have.
    #[error("node {node} was visited, but there are {nodes}")]
    NoSuchNode {
        /// The number that came.
        node: NodeId,
        /// How many nodes there are.
        nodes: usize,
    },
    /// Features and labels don't belong together.
    #[error("node {node}: {labels} labels came with {numbers} features, but a sample has {width}")]
    Shape {
        /// The node's number.
        node: NodeId,
        /// Labels that came.
        labels: usize,
        /// Features that came, all samples together.
        numbers: usize,
        /// Features of one sample.
        width: usize,
    },
    /// A sample that can't be learned from.
    #[error("node {node}: {source}")]
    BadSample {
        /// The node's number.
        node: NodeId,
        /// What is wrong with it.
        source: BadSample,
    },
    /// Node or server refused the other's message: they are in different scales.
    #[error("node {node}: {source}")]
    Rejected {
        /// The node's number.
        node: NodeId,
        /// Why it was refused.
        source: Rejected,
    },
}

/// One server and K nodes.
///
/// ```
/// use hedgerow::{Federation, Plan, PlanConfig};
/// use hedgerow::codec::{Coding, Compression, NumberFormat};
///
/// // Compressed messages really become bytes and are read from them again.
/// let coding = Coding { numbers: NumberFormat::Bits8, ..Coding::default() };
/// let compression = Compression { up: coding, down: coding, ..Compression::default() };
/// let plan = Plan::new(PlanConfig::default().compression(compression))?;
/// let federation = Federation::new(&plan);
/// assert_eq!(federation.traffic().bytes_up, 0); // nobody has spoken yet
/// # Ok::<(), hedgerow::PlanError>(())
/// ```
pub struct Federation {
    plan: Plan,
    server: Server,
    nodes: Vec<Node>,
    /// The server's readers, one for each node; empty if uploads travel as they are.
    readers: Vec<UploadReader>,
    traffic: Traffic,
    votes: Vec<u64>,
    /// Nodes that have run in this round so far.
    participants: Vec<(NodeId, Contact)>,
    late: Vec<NodeId>,
    /// The last round of which each node's upload was taken, where raw samples are learned.
    taken: Vec<u64>,
    lanes: Box<[Lane; LANES]>,
    width: usize,
    /// How often all nodes have run in the open round.
    passes: u16,
}

const KIND: StateKind = StateKind::new("federation").version(5);

/// What has to survive a restart.
#[derive(Serialize, Deserialize)]
struct Saved {
    server: Vec<u8>,
    /// Halves of all nodes, and of all outputs of a node one after the other.
    nodes: Vec<Vec<u8>>,
    /// The nodes' own layers in the same order; empty where they start afresh.
    own: Vec<Vec<u8>>,
    traffic: Traffic,
    votes: Vec<u64>,
    wire: Option<wire::Saved>,
}

/// Version 4 had no own layers of nodes.
fn read_version_4(body: &[u8]) -> Result<Saved, BadState> {
    let (server, nodes, traffic, votes, wire) = read_body(body)?;
    Ok(Saved { server, nodes, own: Vec::new(), traffic, votes, wire })
}

impl Federation {
    /// A federation of as many nodes as the plan says.
    pub fn new(plan: &Plan) -> Self {
        let nodes = (0..plan.config().nodes as NodeId).map(|id| plan.node(id)).collect();
        Self::from_parts(plan.server(), nodes)
    }

    /// A federation of a server and nodes of its plan.
    pub fn from_parts(server: Server, nodes: Vec<Node>) -> Self {
        let plan = server.plan().clone();
        let readers = if plan.is_plain_up() { 0 } else { nodes.len() };
        Self {
            server,
            readers: vec![UploadReader::new(plan.outputs()); readers],
            taken: vec![0; nodes.len()],
            nodes,
            traffic: Traffic::default(),
            votes: vec![0; plan.kernels()],
            participants: Vec::new(),
            late: Vec::new(),
            lanes: Box::default(),
            width: plan.width(),
            passes: 0,
            plan,
        }
    }

    /// Runs one round. Connected nodes receive the latest broadcast, all nodes predict and learn,
    /// and uploads are sent. The round closes with the uploads that arrived, and connected nodes
    /// receive the result. `seen` is called with every prediction.
    ///
    /// After an error the round is still open, and the nodes before the bad one have run. If
    /// [`Compression::every`] says so, uploads wait and the round stays open.
    pub fn round(
        &mut self,
        rounds: &[NodeRound<'_>],
        mut seen: impl FnMut(Prediction<'_>),
    ) -> Result<(), RoundError> {
        self.participants.clear();
        self.late.clear();
        self.run_in_order(rounds, &mut seen)?;
        self.close(&Sequential)
    }

    /// Runs the first half of a round for these nodes, in parallel on the executor. It may be
    /// called again with further nodes until [`Federation::close`]. For every prediction, `observe`
    /// writes its numbers, in the order of the samples; several threads may call it at a time. The
    /// bits equal those of [`Federation::round`] for every executor.
    ///
    /// After an error the round is still open, and other nodes than those before the bad one may
    /// have run.
    ///
    /// # Panics
    /// If there are fewer observations than samples.
    pub fn run_nodes(
        &mut self,
        rounds: &[NodeRound<'_>],
        executor: &impl Executor,
        observations: Observations<'_>,
        observe: impl Fn(Prediction<'_>, &mut [f64]) + Sync,
    ) -> Result<(), RoundError> {
        let samples: usize = rounds.iter().map(|round| round.y.len()).sum();
        assert!(
            observations.numbers.len() >= samples * observations.width,
            "observations of {samples} predictions"
        );
        if self.server.is_screening() || !can_be_divided(rounds, self.nodes.len(), self.width) {
            let mut observations = observations.each();
            return self.run_in_order(rounds, &mut |prediction| {
                if let Some(observation) = observations.next() {
                    observe(prediction, observation);
                }
            });
        }
        let (first, last) = (rounds.first(), self.participants.last());
        if first.zip(last).is_some_and(|(first, last)| first.node <= last.0) {
            // A node that appears twice must be merged first.
            self.merge_lanes()?;
        }
        let is_last_pass = self.is_last_pass();
        let context = RoundContext { server: &self.server, width: self.width, is_last_pass };
        let members = Members { nodes: &mut self.nodes, readers: &mut self.readers };
        let outcome = lanes::run_lanes(
            &mut self.lanes,
            context,
            members,
            rounds,
            observations,
            executor,
            observe,
        );
        self.hear_lanes();
        self.participants.extend(rounds.iter().map(|round| (round.node, round.contact)));
        outcome
    }

    /// Runs one node after the other.
    fn run_in_order(
        &mut self,
        rounds: &[NodeRound<'_>],
        seen: &mut impl FnMut(Prediction<'_>),
    ) -> Result<(), RoundError> {
        self.merge_lanes()?;
        let is_last_pass = self.is_last_pass();
        let mut run = |round| self.run_node(round, is_last_pass, seen);
        let outcome = rounds.iter().try_for_each(&mut run);
        self.lanes[0].report(&mut self.traffic, &mut self.late, &mut self.votes);
        outcome
    }

    fn run_node(
        &mut self,
        round: &NodeRound<'_>,
        is_last_pass: bool,
        seen: &mut impl FnMut(Prediction<'_>),
    ) -> Result<(), RoundError> {
        let (id, nodes) = (round.node, self.nodes.len());
        let node =
            self.nodes.get_mut(id as usize).ok_or(RoundError::NoSuchNode { node: id, nodes })?;
        let reader = self.readers.get_mut(id as usize);
        let context = RoundContext { server: &self.server, width: self.width, is_last_pass };
        if self.lanes[0].run_node(context, node, reader, round, seen)? {
            self.take(id).map_err(|source| RoundError::Rejected { node: id, source })?;
        }
        self.participants.push((id, round.contact));
        Ok(())
    }

    /// Runs the second half of a round: it closes with the uploads that arrived, and connected
    /// nodes receive the result.
    pub fn close(&mut self, executor: &impl Executor) -> Result<(), RoundError> {
        let outcome = self.close_with_arrived(executor);
        self.participants.clear();
        self.late.clear();
        outcome
    }

    fn close_with_arrived(&mut self, executor: &impl Executor) -> Result<(), RoundError> {
        self.merge_lanes()?;
        if !self.is_last_pass() {
            self.passes += 1;
            return Ok(());
        }
        self.passes = 0;
        let is_closed = self.server.close_round().has_uploads;
        // Late uploads arrive now. Their round is over, unless no other upload came and it is
        // still open.
        for at in 0..self.late.len() {
            let (id, lane) = (self.late[at], &mut self.lanes[0]);
            let node = &mut self.nodes[id as usize];
            lane.write_uploads(node);
            if let (Some(reader), false) = (self.readers.get_mut(id as usize), is_closed) {
                // The same bytes as before.
                let Lane { uploads, scratch, .. } = lane;
                scratch
                    .send_up(node, reader, &self.server, uploads)
                    .map_err(|source| RoundError::Rejected { node: id, source })?;
            }
            if self.take(id).is_err() {
                self.traffic.uploads_late += 1;
            }
        }
        let context = RoundContext { server: &self.server, width: self.width, is_last_pass: true };
        if can_be_divided(&self.participants, self.nodes.len(), self.width) {
            let heard = lanes::deliver_to_all(
                &mut self.lanes,
                context,
                &mut self.nodes,
                &self.participants,
                executor,
            );
            self.hear_lanes();
            return heard;
        }
        for &(node, _) in self.participants.iter().filter(|(_, contact)| *contact != Contact::Lost)
        {
            context
                .deliver(&mut self.nodes[node as usize], &mut self.traffic)
                .map_err(|source| RoundError::Rejected { node, source })?;
        }
        Ok(())
    }

    /// Whether the open round closes after all nodes run once more.
    fn is_last_pass(&self) -> bool {
        self.passes + 1 >= self.plan.config().compression.passes(self.server.round())
    }

    /// Adds up the lanes' counts.
    fn hear_lanes(&mut self) {
        for lane in self.lanes.iter_mut() {
            lane.report(&mut self.traffic, &mut self.late, &mut self.votes);
        }
    }

    /// Passes the lanes' sums to the server.
    fn merge_lanes(&mut self) -> Result<(), RoundError> {
        for Lane { parts, importance, .. } in self.lanes.iter_mut() {
            if !importance.is_empty() {
                // It has the sizes of the plan, as its nodes have.
                let added = self.server.add_importance(Some(importance));
                importance.clear();
                added.map_err(|source| RoundError::Rejected { node: 0, source })?;
            }
            if parts.first().is_some_and(|part| part.uploads() > 0) {
                let merged = self.server.merge(parts);
                self.server.renew(parts);
                merged.map_err(|source| RoundError::Rejected { node: 0, source })?;
            }
        }
        Ok(())
    }

    /// Takes the server to another scale, between two rounds. Rescale each node before it runs in
    /// contact again.
    ///
    /// # Panics
    /// If a rescaling was made for another dictionary.
    pub fn rescale_server(&mut self, rescalings: &[Option<Rescaling>]) {
        self.server.rescale(rescalings);
    }

    /// Takes a node from the scale that it is in to another.
    ///
    /// # Panics
    /// If a rescaling was made for another dictionary.
    pub fn rescale_node(
        &mut self,
        node: NodeId,
        rescalings: &[Option<Rescaling>],
    ) -> Result<(), RoundError> {
        let nodes = self.nodes.len();
        let known = self.nodes.get_mut(node as usize);
        known.ok_or(RoundError::NoSuchNode { node, nodes })?.rescale(rescalings);
        self.readers.get_mut(node as usize).into_iter().for_each(UploadReader::forget);
        Ok(())
    }

    /// Gives a node the latest broadcast, as at the start of a round: for predictions before the
    /// round's own samples arrive.
    pub fn hear(&mut self, node: NodeId) -> Result<(), RoundError> {
        let nodes = self.nodes.len();
        let half =
            self.nodes.get_mut(node as usize).ok_or(RoundError::NoSuchNode { node, nodes })?;
        let context = RoundContext { server: &self.server, width: self.width, is_last_pass: true };
        context
            .deliver(half, &mut self.traffic)
            .map_err(|source| RoundError::Rejected { node, source })
    }

    /// Predicts an output of a sample at a node with the model that it has: what the method alone
    /// says, and what the node says.
    pub fn predict(
        &mut self,
        node: NodeId,
        output: usize,
        z: Features<'_>,
    ) -> Result<(f32, f32), RoundError> {
        let nodes = self.nodes.len();
        let known = self.nodes.get_mut(node as usize);
        Ok(known.ok_or(RoundError::NoSuchNode { node, nodes })?.predict_mapped(output, z))
    }

    /// Measures the importance of a column at a node, if one is due and the plan asks for it, with
    /// the scaled inputs of a sample, its features and its labels, before it is learned.
    pub fn measure_importance(
        &mut self,
        node: NodeId,
        x: &[f32],
        z: Features<'_>,
        y: &[f32],
    ) -> Result<(), RoundError> {
        let nodes = self.nodes.len();
        let known = self.nodes.get_mut(node as usize);
        known.ok_or(RoundError::NoSuchNode { node, nodes })?.measure_importance(x, z, y);
        Ok(())
    }

    /// Passes the first lane's uploads to the server.
    fn take(&mut self, id: NodeId) -> Result<(), Rejected> {
        let at = id as usize;
        let taken = self.server.accept_uploads(id, &self.lanes[0].uploads);
        let told = &mut self.lanes[0].importance;
        if is_taken(self.readers.get_mut(at), &mut self.nodes[at], taken, told)? {
            self.traffic.uploads_accepted += 1;
            let votes = self.lanes[0].uploads.iter().filter_map(|upload| upload.vote);
            votes.for_each(|vote| self.votes[vote as usize] += 1);
        }
        Ok(())
    }

    /// The plan that server and nodes share.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// All nodes, by number.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Messages and bytes so far.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Votes that the server has counted so far, per kernel.
    pub fn votes(&self) -> &[u64] {
        &self.votes
    }

    /// Everything that has to survive a restart of a federation that is given features: models,
    /// what messages still owe, and what was counted.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let halves = self.nodes.iter().flat_map(|node| &node.heads);
        let layers = self.nodes.iter().flat_map(|node| &node.own);
        let saved = Saved {
            server: self.server.save(),
            nodes: halves.map(|half| half.save()).collect(),
            own: layers.map(OwnLayer::save).collect(),
            traffic: self.traffic,
            votes: self.votes.clone(),
            wire: self
                .is_compressed()
                .then(|| wire::Saved::new(&self.nodes, &self.server, self.passes)),
        };
        KIND.save(&saved)
    }

    /// Goes on from a saved state of a federation of the same plan, or refuses it and stays as it
    /// was.
    pub fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let (plan, nodes) = (&self.plan, self.nodes.len());
        let layers = if plan.has_own_layers() { nodes * plan.outputs() } else { 0 };
        let saved = KIND.restore_any(saved, &[(4, read_version_4)], |saved: &Saved| {
            saved.nodes.len() == nodes * plan.outputs()
                && (saved.own.len() == layers || saved.own.is_empty())
                && saved.votes.len() == self.votes.len()
                && saved.votes.iter().all(|votes| is_count(*votes))
                && saved.traffic.is_sound()
                && saved.wire.is_some() == self.is_compressed()
                && saved.wire.as_ref().is_none_or(|wire| wire.is_sound(plan, nodes))
        })?;
        let server = Server::restore(plan, &saved.server, plan.server().save_scaling().as_deref())?;
        let nodes = (0..nodes as NodeId).map(|id| plan.node(id)).collect();
        let mut fresh = Self::from_parts(server, nodes);
        let halves = fresh.nodes.iter_mut().flat_map(|node| &mut node.heads);
        for (half, saved) in halves.zip(&saved.nodes) {
            half.restore(saved)?;
        }
        let layers = fresh.nodes.iter_mut().flat_map(|node| &mut node.own);
        for (layer, saved) in layers.zip(&saved.own) {
            layer.restore(saved)?;
        }
        if let Some(wire) = &saved.wire {
            wire.restore(&mut fresh.nodes, &mut fresh.readers, &mut fresh.server)?;
            fresh.passes = wire.passes;
        }
        *self = Self { traffic: saved.traffic, votes: saved.votes, ..fresh };
        Ok(())
    }

    fn is_compressed(&self) -> bool {
        self.plan.config().compression != Compression::default()
    }
}

/// Counts votes or kernels with the numbers that they travel with, and numbers that aren't
/// compressed as they are.
fn cost_with_indices(compressed: Option<Cost>, count: usize, numbers: usize) -> Cost {
    let plain =
        |count: usize| Cost { numbers: count as u64, bytes: (BYTES_PER_NUMBER * count) as u64 };
    let indices = plain(count - numbers);
    let cost = compressed.unwrap_or_else(|| plain(numbers));
    Cost { numbers: cost.numbers + indices.numbers, bytes: cost.bytes + indices.bytes }
}
