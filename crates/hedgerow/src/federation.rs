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
use crate::plan::Plan;
use crate::scaling::Rescaling;
use crate::server::{Server, UploadReader};
use crate::state::{BadState, StateKind, is_count};

mod lanes;
mod raw;
mod wire;

use lanes::{LANES, Lane, Members, RoundContext, can_be_divided, is_taken};

pub use lanes::Observations;

/// How well a node can reach the server in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Contact {
    /// Its upload arrives in time and it hears the broadcast.
    #[default]
    Full,
    /// Its upload arrives after the round has closed.
    Late,
    /// It neither sends nor hears anything; it predicts and learns with what it has.
    Lost,
}

/// What happens at one node in one round. A node that isn't visited doesn't exist yet.
#[derive(Debug, Clone, Copy)]
pub struct NodeRound<'a> {
    /// The number of the node.
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
    /// ŷ.
    pub value: f32,
    /// y.
    pub label: f32,
    /// The method's node half as it was then.
    pub method: &'a dyn NodeMethod,
}

/// Why a round could not be played.
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
        /// The number of the node.
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
        /// The number of the node.
        node: NodeId,
        /// What is wrong with it.
        source: BadSample,
    },
    /// Node or server refused the other's message: they are in different scales.
    #[error("node {node}: {source}")]
    Rejected {
        /// The number of the node.
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
    /// Nodes that were visited in this round so far.
    visited: Vec<(NodeId, Contact)>,
    late: Vec<NodeId>,
    /// The last round of which each node's upload was taken, where raw samples are learned.
    taken: Vec<u64>,
    lanes: Box<[Lane; LANES]>,
    width: usize,
    /// How often everyone was visited in the open round.
    visits: u16,
}

const KIND: StateKind = StateKind::new("federation");

/// What has to survive a restart.
#[derive(Serialize, Deserialize)]
struct Saved {
    server: Vec<u8>,
    /// Halves of all nodes, and of all outputs of a node one after the other.
    nodes: Vec<Vec<u8>>,
    traffic: Traffic,
    votes: Vec<u64>,
    wire: Option<wire::Saved>,
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
            visited: Vec::new(),
            late: Vec::new(),
            lanes: Box::default(),
            width: plan.width(),
            visits: 0,
            plan,
        }
    }

    /// Plays one round: nodes in contact hear the latest broadcast; everyone predicts and learns;
    /// uploads go up; the round closes with whoever came and those in contact hear about it. `seen`
    /// is told every prediction. After an error the round is still open, and the visits before the
    /// bad one have taken place. Where [`Compression::every`] says so, uploads wait and the round
    /// stays open.
    pub fn round(
        &mut self,
        visits: &[NodeRound<'_>],
        mut seen: impl FnMut(Prediction<'_>),
    ) -> Result<(), RoundError> {
        self.visited.clear();
        self.late.clear();
        self.visit_in_turn(visits, &mut seen)?;
        self.close(&Sequential)
    }

    /// The first half of a round, for many nodes: these visits take place, divided among workers,
    /// and further ones may follow until [`Federation::close`]. Of every prediction `look` writes
    /// down what it wants to know, in the order of the samples; it may be called by several workers
    /// at a time. Bits are those of [`Federation::round`], whoever works.
    ///
    /// After an error other visits than those before the bad one may have taken place, and the
    /// round is still open.
    ///
    /// # Panics
    /// If there are fewer notes than samples.
    pub fn visit(
        &mut self,
        visits: &[NodeRound<'_>],
        workers: &impl Executor,
        notes: Observations<'_>,
        look: impl Fn(Prediction<'_>, &mut [f64]) + Sync,
    ) -> Result<(), RoundError> {
        let samples: usize = visits.iter().map(|visit| visit.y.len()).sum();
        assert!(notes.numbers.len() >= samples * notes.width, "notes of {samples} predictions");
        if !can_be_divided(visits, self.nodes.len(), self.width) {
            let mut notes = notes.each();
            return self.visit_in_turn(visits, &mut |prediction| {
                if let Some(note) = notes.next() {
                    look(prediction, note);
                }
            });
        }
        let (first, last) = (visits.first(), self.visited.last());
        if first.zip(last).is_some_and(|(first, last)| first.node <= last.0) {
            // Who comes again must be known to have come.
            self.merge_lanes()?;
        }
        let is_last_visit = self.is_last_visit();
        let context = RoundContext { server: &self.server, width: self.width, is_last_visit };
        let members = Members { nodes: &mut self.nodes, readers: &mut self.readers };
        let played =
            lanes::visit_all(&mut self.lanes, context, members, visits, notes, workers, look);
        self.hear_lanes();
        self.visited.extend(visits.iter().map(|visit| (visit.node, visit.contact)));
        played
    }

    /// One visit after the other.
    fn visit_in_turn(
        &mut self,
        visits: &[NodeRound<'_>],
        seen: &mut impl FnMut(Prediction<'_>),
    ) -> Result<(), RoundError> {
        self.merge_lanes()?;
        let is_last_visit = self.is_last_visit();
        let mut play = |visit| self.visit_one(visit, is_last_visit, seen);
        let played = visits.iter().try_for_each(&mut play);
        self.lanes[0].report(&mut self.traffic, &mut self.late, &mut self.votes);
        played
    }

    fn visit_one(
        &mut self,
        visit: &NodeRound<'_>,
        is_last_visit: bool,
        seen: &mut impl FnMut(Prediction<'_>),
    ) -> Result<(), RoundError> {
        let (id, nodes) = (visit.node, self.nodes.len());
        let node =
            self.nodes.get_mut(id as usize).ok_or(RoundError::NoSuchNode { node: id, nodes })?;
        let reader = self.readers.get_mut(id as usize);
        let context = RoundContext { server: &self.server, width: self.width, is_last_visit };
        if self.lanes[0].visit(context, node, reader, visit, seen)? {
            self.take(id).map_err(|source| RoundError::Rejected { node: id, source })?;
        }
        self.visited.push((id, visit.contact));
        Ok(())
    }

    /// The second half of a round: it closes with whoever came, and those in contact hear about it.
    pub fn close(&mut self, workers: &impl Executor) -> Result<(), RoundError> {
        let played = self.close_with_whoever_came(workers);
        self.visited.clear();
        self.late.clear();
        played
    }

    fn close_with_whoever_came(&mut self, workers: &impl Executor) -> Result<(), RoundError> {
        self.merge_lanes()?;
        if !self.is_last_visit() {
            self.visits += 1;
            return Ok(());
        }
        self.visits = 0;
        let is_closed = self.server.close_round().has_uploads;
        // The uploads of the late arrive now; their round is over, unless nobody else came and it
        // is still open.
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
        let context = RoundContext { server: &self.server, width: self.width, is_last_visit: true };
        if can_be_divided(&self.visited, self.nodes.len(), self.width) {
            let heard = lanes::deliver_to_all(
                &mut self.lanes,
                context,
                &mut self.nodes,
                &self.visited,
                workers,
            );
            self.hear_lanes();
            return heard;
        }
        for &(node, _) in self.visited.iter().filter(|(_, contact)| *contact != Contact::Lost) {
            context
                .deliver(&mut self.nodes[node as usize], &mut self.traffic)
                .map_err(|source| RoundError::Rejected { node, source })?;
        }
        Ok(())
    }

    /// Whether the next visit of everyone is the one that closes the open round.
    fn is_last_visit(&self) -> bool {
        self.visits + 1 >= self.plan.config().compression.visits(self.server.round())
    }

    /// Adds up what lanes have counted.
    fn hear_lanes(&mut self) {
        for lane in self.lanes.iter_mut() {
            lane.report(&mut self.traffic, &mut self.late, &mut self.votes);
        }
    }

    /// Hands what lanes have added up to the server.
    fn merge_lanes(&mut self) -> Result<(), RoundError> {
        for Lane { parts, .. } in self.lanes.iter_mut() {
            if parts.first().is_some_and(|part| part.uploads() > 0) {
                let merged = self.server.merge(parts);
                self.server.renew(parts);
                merged.map_err(|source| RoundError::Rejected { node: 0, source })?;
            }
        }
        Ok(())
    }

    /// Takes the server to another scale, between two rounds. Nodes have to follow before they are
    /// visited in contact again.
    ///
    /// # Panics
    /// If the rescaling was made for another dictionary.
    pub fn rescale_server(&mut self, rescaling: &Rescaling) {
        self.server.rescale(rescaling);
    }

    /// Takes a node from the scale that it is in to another.
    ///
    /// # Panics
    /// If the rescaling was made for another dictionary.
    pub fn rescale_node(&mut self, node: NodeId, rescaling: &Rescaling) -> Result<(), RoundError> {
        let nodes = self.nodes.len();
        let known = self.nodes.get_mut(node as usize);
        known.ok_or(RoundError::NoSuchNode { node, nodes })?.rescale(rescaling);
        self.readers.get_mut(node as usize).into_iter().for_each(UploadReader::forget);
        Ok(())
    }

    /// A node in contact hears the latest broadcast, as it would at the start of a round: for
    /// predictions that are made before the round's own samples are there.
    pub fn hear(&mut self, node: NodeId) -> Result<(), RoundError> {
        let nodes = self.nodes.len();
        let half =
            self.nodes.get_mut(node as usize).ok_or(RoundError::NoSuchNode { node, nodes })?;
        let context = RoundContext { server: &self.server, width: self.width, is_last_visit: true };
        context
            .deliver(half, &mut self.traffic)
            .map_err(|source| RoundError::Rejected { node, source })
    }

    /// Hands the uploads at hand to the server.
    fn take(&mut self, id: NodeId) -> Result<(), Rejected> {
        let (at, uploads) = (id as usize, &self.lanes[0].uploads);
        let taken = self.server.accept_uploads(id, uploads);
        if is_taken(self.readers.get_mut(at), &mut self.nodes[at], taken)? {
            self.traffic.uploads_accepted += 1;
            let votes = uploads.iter().filter_map(|upload| upload.vote);
            votes.for_each(|vote| self.votes[vote as usize] += 1);
        }
        Ok(())
    }

    /// What everyone agreed on.
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

    /// What has travelled so far.
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
        let saved = Saved {
            server: self.server.save(),
            nodes: halves.map(|half| half.save()).collect(),
            traffic: self.traffic,
            votes: self.votes.clone(),
            wire: self
                .is_compressed()
                .then(|| wire::Saved::new(&self.nodes, &self.server, self.visits)),
        };
        KIND.save(&saved)
    }

    /// Goes on from a saved state of a federation of the same plan, or refuses it and stays as it
    /// was.
    pub fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let (plan, nodes) = (&self.plan, self.nodes.len());
        let saved = KIND.restore(saved, |saved: &Saved| {
            saved.nodes.len() == nodes * plan.outputs()
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
        if let Some(wire) = &saved.wire {
            wire.restore(&mut fresh.nodes, &mut fresh.readers, &mut fresh.server)?;
            fresh.visits = wire.visits;
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
