//! The lanes that a round is divided into. A lane has nodes of its own and adds up their uploads by
//! itself; nothing in it depends on another, so the number of workers changes no bit.

use alloc::vec::Vec;

use super::wire::Scratch;
use super::{Contact, NodeRound, Prediction, RoundError, cost_with_indices};
use crate::aggregation::PartialSum;
use crate::codec::Encoder;
use crate::executor::Executor;
use crate::message::{NodeId, Rejected, Upload};
use crate::metrics::Traffic;
use crate::node::Node;
use crate::server::{Server, UploadReader};

/// Lanes of a round, at most; how many there are never depends on who works on them.
pub(super) const LANES: usize = 32;

/// Features of a round from which on it is divided into lanes.
const MIN_FEATURES: usize = 1 << 18;

/// What is written down of every prediction of some visits, sample by sample.
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
    pub(super) is_last_visit: bool,
}

impl RoundContext<'_> {
    /// Hands the latest broadcast to a node that doesn't have it yet.
    pub(super) fn deliver(self, node: &mut Node, traffic: &mut Traffic) -> Result<(), Rejected> {
        let (round, before) = (self.server.round(), node.round());
        if round > before {
            let (mut count, mut numbers) = (0, 0);
            for (head, server) in node.heads.iter_mut().zip(&self.server.heads) {
                let broadcast = server.broadcast();
                head.adopt(broadcast)?;
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

/// Some of a round's nodes, and what came of them.
#[derive(Default)]
pub(super) struct Lane {
    /// One for each output, once there are any.
    pub(super) parts: Vec<PartialSum>,
    pub(super) uploads: Vec<Upload>,
    pub(super) scratch: Scratch,
    pub(super) traffic: Traffic,
    pub(super) late: Vec<NodeId>,
    votes: Vec<u32>,
    failure: Option<RoundError>,
}

impl Lane {
    /// One node's visit, up to its upload; whether there is one that comes in time.
    pub(super) fn visit(
        &mut self,
        context: RoundContext<'_>,
        node: &mut Node,
        reader: Option<&mut UploadReader>,
        visit: &NodeRound<'_>,
        seen: &mut impl FnMut(Prediction<'_>),
    ) -> Result<bool, RoundError> {
        let (id, width, outputs) = (visit.node, context.width, node.heads.len());
        let (labels, numbers) = (visit.y.len(), visit.z.numbers().len());
        if numbers * outputs != labels * width {
            return Err(RoundError::Shape { node: id, labels, numbers, width });
        }
        let rejected = |source| RoundError::Rejected { node: id, source };
        if visit.contact != Contact::Lost {
            context.deliver(node, &mut self.traffic).map_err(rejected)?;
        }
        for (z, y) in visit.z.samples(width).zip(visit.y.chunks_exact(outputs)) {
            for (output, (head, &label)) in node.heads.iter().zip(y).enumerate() {
                let (value, method) = (head.predict(z), head.as_ref());
                seen(Prediction { node: id, output, value, label, method });
            }
            for (head, &label) in node.heads.iter_mut().zip(y) {
                head.learn(z, label)
                    .map_err(|source| RoundError::BadSample { node: id, source })?;
            }
        }
        if !context.is_last_visit || visit.contact == Contact::Lost || !self.write_uploads(node) {
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
        self.traffic.numbers_up += cost.numbers;
        self.traffic.bytes_up += cost.bytes;
        if visit.contact == Contact::Late {
            self.late.push(id);
        }
        Ok(visit.contact == Contact::Full)
    }

    /// Writes what a node has to say, and says whether there is something.
    pub(super) fn write_uploads(&mut self, node: &Node) -> bool {
        self.uploads.resize_with(node.heads.len(), Upload::default);
        node.heads.iter().zip(&mut self.uploads).all(|(head, upload)| head.upload(upload))
    }
}

/// What `taken`, the answer to an upload, means for who sent it; whether it counts.
pub(super) fn is_taken(
    reader: Option<&mut UploadReader>,
    node: &mut Node,
    taken: Result<(), Rejected>,
) -> Result<bool, Rejected> {
    match taken {
        Ok(()) => {
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

/// All nodes, and the server's readers of them, of which there may be none.
pub(super) struct Members<'a> {
    pub(super) nodes: &'a mut [Node],
    pub(super) readers: &'a mut [UploadReader],
}

/// Neighbours, and what happens at some of them.
struct Task<'a, V> {
    lane: &'a mut Lane,
    /// Who is the first of the neighbours.
    first: NodeId,
    nodes: &'a mut [Node],
    readers: &'a mut [UploadReader],
    visits: &'a [V],
    notes: Observations<'a>,
}

/// Somebody to whom something happens.
pub(super) trait Visited {
    fn node(&self) -> NodeId;
    fn samples(&self) -> usize;
}

impl Visited for NodeRound<'_> {
    fn node(&self) -> NodeId {
        self.node
    }

    fn samples(&self) -> usize {
        self.y.len()
    }
}

impl Visited for (NodeId, Contact) {
    fn node(&self) -> NodeId {
        self.0
    }

    fn samples(&self) -> usize {
        0
    }
}

/// Whether lanes are worth it and every node comes once, in order, so that lanes can have nodes of
/// their own.
pub(super) fn can_be_divided<V: Visited>(visits: &[V], nodes: usize, width: usize) -> bool {
    visits.len() > 1
        && visits.len().saturating_mul(width) >= MIN_FEATURES
        && visits.last().is_some_and(|last| (last.node() as usize) < nodes)
        && visits.is_sorted_by(|one, other| one.node() < other.node())
}

/// Divides visits that [`can_be_divided`] among the lanes, and their nodes with them.
fn divide<'a, V: Visited>(
    lanes: &'a mut [Lane; LANES],
    members: Members<'a>,
    visits: &'a [V],
    notes: Observations<'a>,
) -> [Option<Task<'a, V>>; LANES] {
    let Members { mut nodes, mut readers } = members;
    let (mut notes, width) = (notes.numbers, notes.width);
    let mut chunks = visits.chunks(visits.len().div_ceil(LANES).max(1));
    let mut first: NodeId = 0;
    lanes.each_mut().map(|lane| {
        let visits = chunks.next()?;
        let last = visits.last()?.node();
        let len = (last - first) as usize + 1;
        let (own_nodes, rest) = core::mem::take(&mut nodes).split_at_mut(len);
        nodes = rest;
        let of_readers = len.min(readers.len());
        let (own_readers, rest) = core::mem::take(&mut readers).split_at_mut(of_readers);
        readers = rest;
        let samples: usize = visits.iter().map(Visited::samples).sum();
        let of_notes = (samples * width).min(notes.len());
        let (own_notes, rest) = core::mem::take(&mut notes).split_at_mut(of_notes);
        notes = rest;
        let notes = Observations { numbers: own_notes, width };
        let task = Task { lane, first, nodes: own_nodes, readers: own_readers, visits, notes };
        first = last + 1;
        Some(task)
    })
}

/// Plays visits in lanes. What came of them is in the lanes; the first failure is returned.
pub(super) fn visit_all(
    lanes: &mut [Lane; LANES],
    context: RoundContext<'_>,
    members: Members<'_>,
    visits: &[NodeRound<'_>],
    notes: Observations<'_>,
    workers: &impl Executor,
    look: impl Fn(Prediction<'_>, &mut [f64]) + Sync,
) -> Result<(), RoundError> {
    let mut tasks = divide(lanes, members, visits, notes);
    workers.each(&mut tasks, |task| {
        let Some(Task { lane, first, nodes, readers, visits, notes }) = task.take() else { return };
        let mut notes = notes.each();
        let mut seen = |prediction: Prediction<'_>| {
            if let Some(note) = notes.next() {
                look(prediction, note);
            }
        };
        // Parts that are empty may be of an earlier round.
        let mut parts = core::mem::take(&mut lane.parts);
        match parts.first().map(PartialSum::uploads) {
            None => parts = context.server.parts(),
            Some(0) => context.server.renew(&mut parts),
            Some(_) => {}
        }
        for visit in visits {
            let at = (visit.node - first) as usize;
            let mut play = || {
                let (node, mut reader) = (&mut nodes[at], readers.get_mut(at));
                if lane.visit(context, node, reader.as_deref_mut(), visit, &mut seen)? {
                    let taken = context.server.accept_into(&mut parts, visit.node, &lane.uploads);
                    let rejected = |source| RoundError::Rejected { node: visit.node, source };
                    if is_taken(reader, node, taken).map_err(rejected)? {
                        lane.traffic.uploads_accepted += 1;
                        lane.votes.extend(lane.uploads.iter().filter_map(|upload| upload.vote));
                    }
                }
                Ok(())
            };
            if let Err(failure) = play() {
                lane.failure = Some(failure);
                break;
            }
        }
        lane.parts = parts;
    });
    first_failure(lanes)
}

/// Hands the latest broadcast to those in contact, in lanes.
pub(super) fn deliver_to_all(
    lanes: &mut [Lane; LANES],
    context: RoundContext<'_>,
    nodes: &mut [Node],
    visited: &[(NodeId, Contact)],
    workers: &impl Executor,
) -> Result<(), RoundError> {
    let members = Members { nodes, readers: &mut [] };
    let mut tasks = divide(lanes, members, visited, Observations { numbers: &mut [], width: 0 });
    workers.each(&mut tasks, |task| {
        let Some(Task { lane, first, nodes, visits, .. }) = task.take() else { return };
        for (node, _) in visits.iter().filter(|(_, contact)| *contact != Contact::Lost) {
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
