//! The lanes that a round is divided into. A lane has its own nodes and adds up their uploads
//! by itself. Lanes don't depend on each other, so the number of threads changes no bit.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use super::wire::Scratch;
use super::{Contact, NodeRound, Prediction, RoundError, cost_with_indices};
use crate::aggregation::PartialSum;
use crate::codec::Encoder;
use crate::executor::Executor;
use crate::importance::ImportanceSum;
use crate::message::{BYTES_PER_NUMBER, NodeId, Rejected, Upload};
use crate::metrics::Traffic;
use crate::node::Node;
use crate::server::{Server, UploadReader};

/// Lanes of a round, at most. Their number doesn't depend on the executor.
pub(super) const LANES: usize = 32;

/// Features of a round from which on it is divided into lanes.
const MIN_FEATURES: usize = 1 << 18;

/// Numbers that a caller records for every prediction, sample by sample.
#[derive(Debug)]
pub struct Observations<'a> {
    /// All of them, one after the other.
    pub numbers: &'a mut [f64],
    /// Numbers of one.
    pub width: usize,
}

impl<'a> Observations<'a> {
    /// Hands out one after the other.
    pub(super) fn each(self) -> impl Iterator<Item = &'a mut [f64]> {
        self.numbers.chunks_exact_mut(self.width.max(1))
    }
}

/// What all nodes of a round share.
#[derive(Clone, Copy)]
pub(super) struct RoundContext<'a> {
    pub(super) server: &'a Server,
    /// Features of one sample.
    pub(super) width: usize,
    pub(super) is_last_pass: bool,
}

impl RoundContext<'_> {
    /// Hands the latest broadcast to a node that doesn't have it yet.
    pub(super) fn deliver(self, node: &mut Node, traffic: &mut Traffic) -> Result<(), Rejected> {
        let (round, before) = (self.server.round(), node.round());
        if round > before {
            let (mut count, mut numbers) = (0, 0);
            for (head, server) in node.heads.iter_mut().zip(&self.server.heads) {
                let broadcast = match before + 1 == round {
                    true => Cow::Borrowed(server.broadcast()),
                    false => server.catch_up(),
                };
                head.adopt(&broadcast)?;
                count += broadcast.count();
                numbers += broadcast.numbers.len();
            }
            // A node that missed the one before gets all of it, exactly.
            let cost = self.server.down.cost.filter(|_| before + 1 == round);
            let cost = cost_with_indices(cost, count, numbers);
            traffic.numbers_down += cost.numbers;
            traffic.bytes_down += cost.bytes;
        }
        Ok(())
    }
}

/// The results of some of a round's nodes.
#[derive(Default)]
pub(super) struct Lane {
    /// One for each output, once there are any.
    pub(super) parts: Vec<PartialSum>,
    pub(super) uploads: Vec<Upload>,
    pub(super) scratch: Scratch,
    pub(super) traffic: Traffic,
    pub(super) late: Vec<NodeId>,
    /// What nodes have told of the importance of columns.
    pub(super) importance: ImportanceSum,
    votes: Vec<u32>,
    failure: Option<RoundError>,
}

impl Lane {
    /// Runs one node up to its upload. Returns whether an upload arrives in time.
    pub(super) fn run_node(
        &mut self,
        context: RoundContext<'_>,
        node: &mut Node,
        reader: Option<&mut UploadReader>,
        round: &NodeRound<'_>,
        seen: &mut impl FnMut(Prediction<'_>),
    ) -> Result<bool, RoundError> {
        let (id, width, outputs) = (round.node, context.width, node.heads.len());
        let (labels, numbers) = (round.y.len(), round.z.numbers().len());
        if numbers * outputs != labels * width {
            return Err(RoundError::Shape { node: id, labels, numbers, width });
        }
        let rejected = |source| RoundError::Rejected { node: id, source };
        if round.contact != Contact::Lost {
            context.deliver(node, &mut self.traffic).map_err(rejected)?;
        }
        for (z, y) in round.z.samples(width).zip(round.y.chunks_exact(outputs)) {
            for (output, &label) in y.iter().enumerate() {
                let (global, value) = node.predict_mapped(output, z);
                let method = node.heads[output].as_ref();
                seen(Prediction { node: id, output, value, global, label, method });
            }
            for (output, &label) in y.iter().enumerate() {
                node.heads[output]
                    .learn(z, label)
                    .map_err(|source| RoundError::BadSample { node: id, source })?;
                node.learn_own(output, label);
            }
        }
        if !context.is_last_pass || round.contact == Contact::Lost || !self.write_uploads(node) {
            return Ok(false);
        }
        let cost = match reader {
            Some(reader) => Some(
                self.scratch
                    .send_up(node, reader, context.server, &mut self.uploads)
                    .map_err(rejected)?,
            ),
            None => None,
        };
        let count = self.uploads.iter().map(Upload::count).sum();
        let numbers = self.uploads.iter().map(|upload| upload.numbers.len()).sum();
        let cost = cost_with_indices(cost, count, numbers);
        let told = node.tell_importance().len();
        self.traffic.numbers_up += cost.numbers + told as u64;
        self.traffic.bytes_up += cost.bytes + (BYTES_PER_NUMBER * told) as u64;
        if round.contact == Contact::Late {
            self.late.push(id);
        }
        Ok(round.contact == Contact::Full)
    }

    /// Writes a node's uploads. Returns whether there are any.
    pub(super) fn write_uploads(&mut self, node: &Node) -> bool {
        self.uploads.resize_with(node.heads.len(), Upload::default);
        node.heads.iter().zip(&mut self.uploads).all(|(head, upload)| head.upload(upload))
    }
}

/// Applies the server's answer to the sender of an upload. Returns whether the upload counts; then
/// what it tells of the importance of columns counts, too.
pub(super) fn is_taken(
    reader: Option<&mut UploadReader>,
    node: &mut Node,
    taken: Result<(), Rejected>,
    importance: &mut ImportanceSum,
) -> Result<bool, Rejected> {
    match taken {
        Ok(()) => {
            importance.add(node.tell_importance());
            node.acknowledge_importance(node.round());
            for head in &mut node.heads {
                head.sent();
                head.acknowledge(head.round());
            }
            if let Some(reader) = reader {
                reader.acknowledge();
                node.encoders.iter_mut().for_each(Encoder::acknowledge);
            }
            Ok(true)
        }
        // Sent again because the round did not close: the first one stands.
        Err(Rejected::Duplicate { .. }) => Ok(false),
        Err(source) => Err(source),
    }
}

/// All nodes and the server's readers for them. There may be no readers.
pub(super) struct Members<'a> {
    pub(super) nodes: &'a mut [Node],
    pub(super) readers: &'a mut [UploadReader],
}

/// Nodes with consecutive numbers, and the rounds of some of them.
struct Task<'a, R> {
    lane: &'a mut Lane,
    /// The first of these nodes.
    first: NodeId,
    nodes: &'a mut [Node],
    readers: &'a mut [UploadReader],
    rounds: &'a [R],
    observations: Observations<'a>,
}

/// An entry of a round that belongs to one node.
pub(super) trait HasNode {
    fn node(&self) -> NodeId;
    fn samples(&self) -> usize;
}

impl HasNode for NodeRound<'_> {
    fn node(&self) -> NodeId {
        self.node
    }

    fn samples(&self) -> usize {
        self.y.len()
    }
}

impl HasNode for (NodeId, Contact) {
    fn node(&self) -> NodeId {
        self.0
    }

    fn samples(&self) -> usize {
        0
    }
}

/// Whether lanes are worth their cost, and every node appears once and in order, so that lanes
/// share no node.
pub(super) fn can_be_divided<R: HasNode>(rounds: &[R], nodes: usize, width: usize) -> bool {
    rounds.len() > 1
        && rounds.len().saturating_mul(width) >= MIN_FEATURES
        && rounds.last().is_some_and(|last| (last.node() as usize) < nodes)
        && rounds.is_sorted_by(|one, other| one.node() < other.node())
}

/// Divides rounds that [`can_be_divided`] among the lanes, with their nodes.
fn divide<'a, R: HasNode>(
    lanes: &'a mut [Lane; LANES],
    members: Members<'a>,
    rounds: &'a [R],
    observations: Observations<'a>,
) -> [Option<Task<'a, R>>; LANES] {
    let Members { mut nodes, mut readers } = members;
    let (mut observations, width) = (observations.numbers, observations.width);
    let mut chunks = rounds.chunks(rounds.len().div_ceil(LANES).max(1));
    let mut first: NodeId = 0;
    lanes.each_mut().map(|lane| {
        let rounds = chunks.next()?;
        let last = rounds.last()?.node();
        let len = (last - first) as usize + 1;
        let (own_nodes, rest) = core::mem::take(&mut nodes).split_at_mut(len);
        nodes = rest;
        let of_readers = len.min(readers.len());
        let (own_readers, rest) = core::mem::take(&mut readers).split_at_mut(of_readers);
        readers = rest;
        let samples: usize = rounds.iter().map(HasNode::samples).sum();
        let of_own = (samples * width).min(observations.len());
        let (own, rest) = core::mem::take(&mut observations).split_at_mut(of_own);
        observations = rest;
        let observations = Observations { numbers: own, width };
        let task =
            Task { lane, first, nodes: own_nodes, readers: own_readers, rounds, observations };
        first = last + 1;
        Some(task)
    })
}

/// Runs nodes in lanes. The lanes hold the results; the first failure is returned.
pub(super) fn run_lanes(
    lanes: &mut [Lane; LANES],
    context: RoundContext<'_>,
    members: Members<'_>,
    rounds: &[NodeRound<'_>],
    observations: Observations<'_>,
    executor: &impl Executor,
    observe: impl Fn(Prediction<'_>, &mut [f64]) + Sync,
) -> Result<(), RoundError> {
    let mut tasks = divide(lanes, members, rounds, observations);
    executor.each(&mut tasks, |task| {
        let Some(Task { lane, first, nodes, readers, rounds, observations }) = task.take() else {
            return;
        };
        let mut observations = observations.each();
        let mut seen = |prediction: Prediction<'_>| {
            if let Some(observation) = observations.next() {
                observe(prediction, observation);
            }
        };
        // Parts that are empty may be of an earlier round.
        let mut parts = core::mem::take(&mut lane.parts);
        match parts.first().map(PartialSum::uploads) {
            None => parts = context.server.parts(),
            Some(0) => context.server.renew(&mut parts),
            Some(_) => {}
        }
        for round in rounds {
            let at = (round.node - first) as usize;
            let mut run = || {
                let (node, mut reader) = (&mut nodes[at], readers.get_mut(at));
                if lane.run_node(context, node, reader.as_deref_mut(), round, &mut seen)? {
                    let taken = context.server.accept_into(&mut parts, round.node, &lane.uploads);
                    let rejected = |source| RoundError::Rejected { node: round.node, source };
                    if is_taken(reader, node, taken, &mut lane.importance).map_err(rejected)? {
                        lane.traffic.uploads_accepted += 1;
                        lane.votes.extend(lane.uploads.iter().filter_map(|upload| upload.vote));
                    }
                }
                Ok(())
            };
            if let Err(failure) = run() {
                lane.failure = Some(failure);
                break;
            }
        }
        lane.parts = parts;
    });
    first_failure(lanes)
}

/// Gives the latest broadcast to the nodes in contact, in lanes.
pub(super) fn deliver_to_all(
    lanes: &mut [Lane; LANES],
    context: RoundContext<'_>,
    nodes: &mut [Node],
    participants: &[(NodeId, Contact)],
    executor: &impl Executor,
) -> Result<(), RoundError> {
    let members = Members { nodes, readers: &mut [] };
    let mut tasks =
        divide(lanes, members, participants, Observations { numbers: &mut [], width: 0 });
    executor.each(&mut tasks, |task| {
        let Some(Task { lane, first, nodes, rounds, .. }) = task.take() else { return };
        for (node, _) in rounds.iter().filter(|(_, contact)| *contact != Contact::Lost) {
            let half = &mut nodes[(node - first) as usize];
            if let Err(source) = context.deliver(half, &mut lane.traffic) {
                lane.failure = Some(RoundError::Rejected { node: *node, source });
                break;
            }
        }
    });
    first_failure(lanes)
}

fn first_failure(lanes: &mut [Lane; LANES]) -> Result<(), RoundError> {
    lanes
        .iter_mut()
        .filter_map(|lane| lane.failure.take())
        .reduce(|first, _| first)
        .map_or(Ok(()), Err)
}

impl Lane {
    /// Adds what it has counted to the totals.
    pub(super) fn report(
        &mut self,
        traffic: &mut Traffic,
        late: &mut Vec<NodeId>,
        votes: &mut [u64],
    ) {
        *traffic += core::mem::take(&mut self.traffic);
        late.append(&mut self.late);
        self.votes.drain(..).for_each(|vote| votes[vote as usize] += 1);
    }
}
