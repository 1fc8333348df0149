//! [`Executor`]: who does the work of a round, and the lanes that it is divided into for them. A
//! lane has nodes of its own and adds up their uploads by itself; nothing in it depends on another,
//! so the number of workers changes no bit.

use super::wire::{End, Scratch, Telling};
use super::{Contact, NodeRound, Prediction, RoundError, cost_with_indices};
use crate::executor::Executor;
use crate::message::{NodeId, Rejected, Upload};
use crate::method::{NodeMethod, ServerMethod};
use crate::metrics::Traffic;
use crate::relay::PartialSum;

/// Lanes of a round, at most; how many there are never depends on who works on them.
pub(super) const LANES: usize = 32;

/// Features of a round for which lanes are worth their trouble.
const WORTH: usize = 1 << 18;

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

/// What everybody in a round shares.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) server: &'a dyn ServerMethod,
    /// None if messages travel as they are.
    pub(super) telling: Option<Telling<'a>>,
    /// Features of one sample.
    pub(super) width: usize,
    pub(super) is_last_visit: bool,
}

impl Scene<'_> {
    /// Hands the latest broadcast to a node that doesn't have it yet.
    pub(super) fn deliver(
        self,
        node: &mut dyn NodeMethod,
        traffic: &mut Traffic,
    ) -> Result<(), Rejected> {
        let broadcast = self.server.broadcast();
        if broadcast.round > node.round() {
            // Who missed the one before gets all of it, exactly.
            let is_next = node.round() + 1 == broadcast.round;
            let cost = self.telling.and_then(|telling| telling.latest).filter(|_| is_next);
            let cost = cost_with_indices(cost, broadcast.count(), broadcast.numbers.len());
            node.adopt(broadcast)?;
            traffic.numbers_down += cost.numbers;
            traffic.bytes_down += cost.bytes;
        }
        Ok(())
    }
}

/// Some of a round's nodes, and what came of them.
#[derive(Default)]
pub(super) struct Lane {
    pub(super) part: Option<PartialSum>,
    pub(super) upload: Upload,
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
        scene: Scene<'_>,
        half: &mut dyn NodeMethod,
        end: Option<&mut End>,
        visit: &NodeRound<'_>,
        seen: &mut impl FnMut(Prediction<'_>),
    ) -> Result<bool, RoundError> {
        let (node, width) = (visit.node, scene.width);
        let (labels, numbers) = (visit.y.len(), visit.z.numbers().len());
        if numbers != labels * width {
            return Err(RoundError::Shape { node, labels, numbers, width });
        }
        let rejected = |source| RoundError::Rejected { node, source };
        if visit.contact != Contact::Lost {
            scene.deliver(half, &mut self.traffic).map_err(rejected)?;
        }
        for (z, &label) in visit.z.samples(width).zip(visit.y) {
            seen(Prediction { node, value: half.predict(z), label, half });
            half.learn(z, label).map_err(|source| RoundError::BadSample { node, source })?;
        }
        let upload = &mut self.upload;
        if !scene.is_last_visit || visit.contact == Contact::Lost || !half.upload(upload) {
            return Ok(false);
        }
        let cost = match (end, scene.telling) {
            (Some(end), Some(telling)) => {
                Some(end.send_up(half, telling, &mut self.scratch, upload).map_err(rejected)?)
            }
            _ => None,
        };
        let cost = cost_with_indices(cost, upload.count(), upload.numbers.len());
        self.traffic.numbers_up += cost.numbers;
        self.traffic.bytes_up += cost.bytes;
        if visit.contact == Contact::Late {
            self.late.push(node);
        }
        Ok(visit.contact == Contact::Full)
    }
}

/// What `taken`, the answer to an upload, means for who sent it; whether it counts.
pub(super) fn is_taken(
    end: Option<&mut End>,
    taken: Result<(), Rejected>,
) -> Result<bool, Rejected> {
    match taken {
        Ok(()) => {
            end.into_iter().for_each(End::acknowledge);
            Ok(true)
        }
        // Sent again because the round did not close: the first one stands.
        Err(Rejected::Duplicate { .. }) => Ok(false),
        Err(source) => Err(source),
    }
}

/// Everybody's halves and ends of the wire, of which there may be none.
pub(super) struct Everybody<'a> {
    pub(super) nodes: &'a mut [Box<dyn NodeMethod>],
    pub(super) ends: &'a mut [End],
}

/// Neighbours, and what happens at some of them.
struct Task<'a, V> {
    lane: &'a mut Lane,
    /// Who is the first of the neighbours.
    first: NodeId,
    nodes: &'a mut [Box<dyn NodeMethod>],
    ends: &'a mut [End],
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
        && visits.len().saturating_mul(width) >= WORTH
        && visits.last().is_some_and(|last| (last.node() as usize) < nodes)
        && visits.is_sorted_by(|one, other| one.node() < other.node())
}

/// Divides visits that [`can_be_divided`] among the lanes, and their nodes with them.
fn divide<'a, V: Visited>(
    lanes: &'a mut [Lane; LANES],
    everybody: Everybody<'a>,
    visits: &'a [V],
    notes: Observations<'a>,
) -> [Option<Task<'a, V>>; LANES] {
    let Everybody { mut nodes, mut ends } = everybody;
    let (mut notes, width) = (notes.numbers, notes.width);
    let mut chunks = visits.chunks(visits.len().div_ceil(LANES).max(1));
    let mut first: NodeId = 0;
    lanes.each_mut().map(|lane| {
        let visits = chunks.next()?;
        let last = visits.last()?.node();
        let len = (last - first) as usize + 1;
        let (own_nodes, rest) = std::mem::take(&mut nodes).split_at_mut(len);
        nodes = rest;
        let of_ends = len.min(ends.len());
        let (own_ends, rest) = std::mem::take(&mut ends).split_at_mut(of_ends);
        ends = rest;
        let samples: usize = visits.iter().map(Visited::samples).sum();
        let of_notes = (samples * width).min(notes.len());
        let (own_notes, rest) = std::mem::take(&mut notes).split_at_mut(of_notes);
        notes = rest;
        let notes = Observations { numbers: own_notes, width };
        let task = Task { lane, first, nodes: own_nodes, ends: own_ends, visits, notes };
        first = last + 1;
        Some(task)
    })
}

/// Plays visits in lanes. What came of them is in the lanes; the first failure is returned.
pub(super) fn visit_all(
    lanes: &mut [Lane; LANES],
    scene: Scene<'_>,
    everybody: Everybody<'_>,
    visits: &[NodeRound<'_>],
    notes: Observations<'_>,
    workers: &impl Executor,
    look: impl Fn(Prediction<'_>, &mut [f64]) + Sync,
) -> Result<(), RoundError> {
    let mut tasks = divide(lanes, everybody, visits, notes);
    workers.each(&mut tasks, |task| {
        let Some(Task { lane, first, nodes, ends, visits, notes }) = task.take() else { return };
        let mut notes = notes.each();
        let mut seen = |prediction: Prediction<'_>| {
            if let Some(note) = notes.next() {
                look(prediction, note);
            }
        };
        // A part that is empty may be of an earlier round.
        let mut part = match lane.part.take() {
            Some(mut part) if part.uploads() == 0 => {
                scene.server.renew(&mut part);
                part
            }
            part => part.unwrap_or_else(|| scene.server.part()),
        };
        for visit in visits {
            let at = (visit.node - first) as usize;
            let mut play = || {
                let (half, mut end) = (nodes[at].as_mut(), ends.get_mut(at));
                if lane.visit(scene, half, end.as_deref_mut(), visit, &mut seen)? {
                    let taken = scene.server.accept_into(&mut part, visit.node, &lane.upload);
                    let rejected = |source| RoundError::Rejected { node: visit.node, source };
                    if is_taken(end, taken).map_err(rejected)? {
                        lane.traffic.uploads_accepted += 1;
                        lane.votes.extend(lane.upload.vote);
                    }
                }
                Ok(())
            };
            if let Err(failure) = play() {
                lane.failure = Some(failure);
                break;
            }
        }
        lane.part = Some(part);
    });
    first_failure(lanes)
}

/// Hands the latest broadcast to those in contact, in lanes.
pub(super) fn deliver_to_all(
    lanes: &mut [Lane; LANES],
    scene: Scene<'_>,
    nodes: &mut [Box<dyn NodeMethod>],
    visited: &[(NodeId, Contact)],
    workers: &impl Executor,
) -> Result<(), RoundError> {
    let everybody = Everybody { nodes, ends: &mut [] };
    let mut tasks = divide(lanes, everybody, visited, Observations { numbers: &mut [], width: 0 });
    workers.each(&mut tasks, |task| {
        let Some(Task { lane, first, nodes, visits, .. }) = task.take() else { return };
        for (node, _) in visits.iter().filter(|(_, contact)| *contact != Contact::Lost) {
            let half = nodes[(node - first) as usize].as_mut();
            if let Err(source) = scene.deliver(half, &mut lane.traffic) {
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
        *traffic += std::mem::take(&mut self.traffic);
        late.append(&mut self.late);
        self.votes.drain(..).for_each(|vote| votes[vote as usize] += 1);
    }
}
