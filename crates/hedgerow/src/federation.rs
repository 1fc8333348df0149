//! [`Federation`]: one server and K nodes in one process, round by round, with people missing as
//! they do.

use serde::{Deserialize, Serialize};

use crate::codec::{Compression, Cost};
use crate::features::Features;
use crate::message::{BYTES_PER_NUMBER, NodeId, Rejected};
use crate::method::{BadSample, Method, NodeMethod, ServerMethod, Setup};
use crate::metrics::Traffic;
use crate::scaling::Rescaling;
use crate::state::{BadState, StateKind, is_count};

mod lanes;
mod wire;

use lanes::{Everybody, LANES, Lane, Scene, can_be_divided, is_taken};
use wire::{Telling, Wire};

pub use lanes::Observations;

use crate::executor::{Executor, Sequential};

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
    /// Which.
    pub node: NodeId,
    /// Features of the samples that arrived, one after the other: none, one or several.
    pub z: Features<'a>,
    /// Their labels.
    pub y: &'a [f32],
    /// Whether it can reach the server.
    pub contact: Contact,
}

/// A prediction that a node made before it saw the label.
#[derive(Clone, Copy)]
pub struct Prediction<'a> {
    /// Who made it.
    pub node: NodeId,
    /// ŷ.
    pub value: f32,
    /// y.
    pub label: f32,
    /// The node's half as it was then.
    pub half: &'a dyn NodeMethod,
}

/// Why a round could not be played.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RoundError {
    /// A node that the federation doesn't have.
    #[error("node {node} was visited, but there are {nodes}")]
    NoSuchNode {
        /// Who.
        node: NodeId,
        /// How many there are.
        nodes: usize,
    },
    /// Features and labels don't belong together.
    #[error("node {node}: {labels} labels came with {numbers} features, but a sample has {width}")]
    Shape {
        /// Whose.
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
        /// Whose.
        node: NodeId,
        /// What is wrong with it.
        source: BadSample,
    },
    /// A half refused the other's message: they were not made from one setup.
    #[error("node {node}: {source}")]
    Rejected {
        /// Who.
        node: NodeId,
        /// Why.
        source: Rejected,
    },
}

/// One server and K nodes.
pub struct Federation {
    server: Box<dyn ServerMethod>,
    nodes: Vec<Box<dyn NodeMethod>>,
    traffic: Traffic,
    votes: Vec<u64>,
    /// Who was visited in this round so far.
    visited: Vec<(NodeId, Contact)>,
    late: Vec<NodeId>,
    lanes: Box<[Lane; LANES]>,
    method: Method,
    setup: Setup,
    width: usize,
    /// Between nodes and server; none if messages travel as they are.
    wire: Option<Wire>,
}

const KIND: StateKind = StateKind::new("federation");

/// What has to survive a restart.
#[derive(Serialize, Deserialize)]
struct Saved {
    server: Vec<u8>,
    nodes: Vec<Vec<u8>>,
    traffic: Traffic,
    votes: Vec<u64>,
    wire: Option<wire::Saved>,
}

impl Federation {
    /// A federation of as many nodes as the setup says.
    ///
    /// # Panics
    /// If the method doesn't support the setup's aggregation, see [`Method::supports`].
    pub fn new(method: Method, setup: &Setup) -> Self {
        let nodes = 0..setup.config().nodes as NodeId;
        Self {
            server: method.server(setup),
            nodes: nodes.map(|id| method.node(setup, id)).collect(),
            traffic: Traffic::default(),
            votes: vec![0; setup.kernels()],
            visited: Vec::new(),
            late: Vec::new(),
            lanes: Box::default(),
            width: method.width(setup),
            method,
            setup: *setup,
            wire: None,
        }
    }

    /// The same with compressed messages: they really become bytes and are read from them again.
    ///
    /// ```
    /// use hedgerow::{Federation, Method, Setup, SetupConfig};
    /// use hedgerow::codec::{Coding, Compression, NumberFormat};
    ///
    /// let setup = Setup::try_from(SetupConfig::default())?;
    /// let coding = Coding { numbers: NumberFormat::Bits8, ..Coding::default() };
    /// let compression = Compression { up: coding, down: coding, ..Compression::default() };
    /// let federation = Federation::compressed(Method::MkOfl, &setup, compression);
    /// assert_eq!(federation.traffic().bytes_up, 0); // nobody has spoken yet
    /// # Ok::<(), hedgerow::SetupError>(())
    /// ```
    pub fn compressed(method: Method, setup: &Setup, compression: Compression) -> Self {
        let mut federation = Self::new(method, setup);
        let (seed, nodes) = (setup.config().seed, federation.nodes.len());
        federation.wire = Some(Wire::new(compression, seed, nodes, federation.server.as_ref()));
        federation
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
        let open = self.server.broadcast().round;
        let is_last_visit = self.wire.as_ref().is_none_or(|wire| wire.is_last_visit(open));
        let (telling, ends) = split(&mut self.wire);
        let scene =
            Scene { server: self.server.as_ref(), telling, width: self.width, is_last_visit };
        let everybody = Everybody { nodes: &mut self.nodes, ends };
        let played =
            lanes::visit_all(&mut self.lanes, scene, everybody, visits, notes, workers, look);
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
        let open = self.server.broadcast().round;
        let is_last_visit = self.wire.as_ref().is_none_or(|wire| wire.is_last_visit(open));
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
        let (node, nodes) = (visit.node, self.nodes.len());
        let half =
            self.nodes.get_mut(node as usize).ok_or(RoundError::NoSuchNode { node, nodes })?;
        let (telling, ends) = split(&mut self.wire);
        let end = ends.get_mut(node as usize);
        let scene =
            Scene { server: self.server.as_ref(), telling, width: self.width, is_last_visit };
        if self.lanes[0].visit(scene, half.as_mut(), end, visit, seen)? {
            self.take(node).map_err(|source| RoundError::Rejected { node, source })?;
        }
        self.visited.push((node, visit.contact));
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
        let open = self.server.broadcast().round;
        if self.wire.as_ref().is_some_and(|wire| !wire.is_last_visit(open)) {
            self.wire.iter_mut().for_each(Wire::count_visit);
            return Ok(());
        }
        self.wire.iter_mut().for_each(Wire::begin_round);
        let is_closed = self.server.close_round().round > open;
        if let Some(wire) = self.wire.as_mut().filter(|_| is_closed) {
            wire.send_down(self.server.as_mut());
        }
        // The uploads of the late arrive now; their round is over, unless nobody else came and it
        // is still open.
        for at in 0..self.late.len() {
            let node = self.late[at];
            let half = self.nodes[node as usize].as_ref();
            let Lane { upload, scratch, .. } = &mut self.lanes[0];
            half.upload(upload);
            let (telling, ends) = split(&mut self.wire);
            if let (Some(telling), Some(end), false) =
                (telling, ends.get_mut(node as usize), is_closed)
            {
                // The same bytes as before.
                end.send_up(half, telling, scratch, upload)
                    .map_err(|source| RoundError::Rejected { node, source })?;
            }
            if self.take(node).is_err() {
                self.traffic.uploads_late += 1;
            }
        }
        let (telling, _) = split(&mut self.wire);
        let scene =
            Scene { server: self.server.as_ref(), telling, width: self.width, is_last_visit: true };
        if can_be_divided(&self.visited, self.nodes.len(), self.width) {
            let heard = lanes::deliver_to_all(
                &mut self.lanes,
                scene,
                &mut self.nodes,
                &self.visited,
                workers,
            );
            self.hear_lanes();
            return heard;
        }
        for &(node, _) in self.visited.iter().filter(|(_, contact)| *contact != Contact::Lost) {
            let half = self.nodes[node as usize].as_mut();
            scene
                .deliver(half, &mut self.traffic)
                .map_err(|source| RoundError::Rejected { node, source })?;
        }
        Ok(())
    }

    /// Adds up what lanes have counted.
    fn hear_lanes(&mut self) {
        for lane in self.lanes.iter_mut() {
            lane.report(&mut self.traffic, &mut self.late, &mut self.votes);
        }
    }

    /// Hands what lanes have added up to the server.
    fn merge_lanes(&mut self) -> Result<(), RoundError> {
        for part in self.lanes.iter_mut().filter_map(|lane| lane.part.as_mut()) {
            if part.uploads() > 0 {
                let merged = self.server.merge(part);
                self.server.renew(part);
                merged.map_err(|source| RoundError::Rejected { node: 0, source })?;
            }
        }
        Ok(())
    }

    /// Takes the server to another scale, between two rounds. Nodes have to follow before they are
    /// visited in contact again.
    ///
    /// # Panics
    /// If the transport was made for another dictionary.
    pub fn transport_server(&mut self, transport: &Rescaling) {
        self.server.rescale(transport);
        if let Some(wire) = &mut self.wire {
            wire.transport_server(self.server.as_ref());
        }
    }

    /// Takes a node from the scale that it is in to another.
    ///
    /// # Panics
    /// If the transport was made for another dictionary.
    pub fn transport_node(
        &mut self,
        node: NodeId,
        transport: &Rescaling,
    ) -> Result<(), RoundError> {
        let nodes = self.nodes.len();
        let half =
            self.nodes.get_mut(node as usize).ok_or(RoundError::NoSuchNode { node, nodes })?;
        half.rescale(transport);
        self.wire.iter_mut().for_each(|wire| wire.transport_node(node));
        Ok(())
    }

    /// A node in contact hears the latest broadcast, as it would at the start of a round: for
    /// predictions that are made before the round's own samples are there.
    pub fn hear(&mut self, node: NodeId) -> Result<(), RoundError> {
        let nodes = self.nodes.len();
        let half =
            self.nodes.get_mut(node as usize).ok_or(RoundError::NoSuchNode { node, nodes })?;
        let (telling, _) = split(&mut self.wire);
        let scene =
            Scene { server: self.server.as_ref(), telling, width: self.width, is_last_visit: true };
        scene
            .deliver(half.as_mut(), &mut self.traffic)
            .map_err(|source| RoundError::Rejected { node, source })
    }

    /// One node's half.
    pub fn node(&self, node: NodeId) -> Option<&dyn NodeMethod> {
        self.nodes.get(node as usize).map(|half| half.as_ref())
    }

    /// Hands the upload at hand to the server.
    fn take(&mut self, node: NodeId) -> Result<(), Rejected> {
        let upload = &self.lanes[0].upload;
        let (_, ends) = split(&mut self.wire);
        if is_taken(ends.get_mut(node as usize), self.server.accept(node, upload))? {
            self.traffic.uploads_accepted += 1;
            upload.vote.into_iter().for_each(|vote| self.votes[vote as usize] += 1);
        }
        Ok(())
    }

    /// The server's half.
    pub fn server(&self) -> &dyn ServerMethod {
        self.server.as_ref()
    }

    /// The nodes' halves.
    pub fn nodes(&self) -> impl Iterator<Item = &dyn NodeMethod> {
        self.nodes.iter().map(|node| node.as_ref())
    }

    /// What has travelled so far.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Votes that the server has counted so far, per kernel.
    pub fn votes(&self) -> &[u64] {
        &self.votes
    }

    /// Everything that has to survive a restart: both halves, what messages still owe, and what was
    /// counted.
    pub fn save(&self) -> Vec<u8> {
        let saved = Saved {
            server: self.server.save(),
            nodes: self.nodes.iter().map(|node| node.save()).collect(),
            traffic: self.traffic,
            votes: self.votes.clone(),
            wire: self.wire.as_ref().map(Wire::save),
        };
        KIND.save(&saved)
    }

    /// Goes on from a saved state of a federation of the same method, setup and compression, or
    /// refuses it and stays as it was.
    pub fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let saved = KIND.restore(saved, |saved: &Saved| {
            saved.nodes.len() == self.nodes.len()
                && saved.votes.len() == self.votes.len()
                && saved.votes.iter().all(|votes| is_count(*votes))
                && saved.traffic.is_sound()
                && match (&self.wire, &saved.wire) {
                    (Some(wire), Some(saved)) => wire.is_sound(saved),
                    (None, None) => true,
                    _ => false,
                }
        })?;
        let mut fresh = Self::new(self.method, &self.setup);
        fresh.server.restore(&saved.server)?;
        for (node, saved) in fresh.nodes.iter_mut().zip(&saved.nodes) {
            node.restore(saved)?;
        }
        if let (Some(wire), Some(saved)) = (&self.wire, &saved.wire) {
            fresh.wire = Some(wire.restored(saved, fresh.server.as_ref())?);
        }
        *self = Self { traffic: saved.traffic, votes: saved.votes, ..fresh };
        Ok(())
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

/// What everyone needs to know of the wire, and their ends of it; of none, none.
fn split(wire: &mut Option<Wire>) -> (Option<Telling<'_>>, &mut [wire::End]) {
    match wire {
        None => (None, &mut []),
        Some(wire) => {
            let (telling, ends) = wire.split();
            (Some(telling), ends)
        }
    }
}
