//! [`Federation`]: one server and K nodes in one process, round by round, with people missing as they do.

use crate::features::Features;
use crate::message::{Broadcast, NodeId, Rejected, Upload};
use crate::method::{BadSample, Method, NodeHalf, ServerHalf, Setup};
use crate::metrics::Traffic;
use crate::scaling::Transport;

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
pub struct Visit<'a> {
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
    pub half: &'a dyn NodeHalf,
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
    server: Box<dyn ServerHalf>,
    nodes: Vec<Box<dyn NodeHalf>>,
    traffic: Traffic,
    votes: Vec<u64>,
    upload: Upload,
    late: Vec<NodeId>,
    width: usize,
}

impl Federation {
    /// A federation of as many nodes as the setup says.
    pub fn new(method: Method, setup: &Setup) -> Self {
        let nodes = 0..setup.config().nodes as NodeId;
        Self {
            server: method.server(setup),
            nodes: nodes.map(|id| method.node(setup, id)).collect(),
            traffic: Traffic::default(),
            votes: vec![0; setup.kernels()],
            upload: Upload::default(),
            late: Vec::new(),
            width: setup.width(),
        }
    }

    /// Plays one round: nodes in contact hear the latest broadcast; everyone predicts and learns; uploads go up; the round
    /// closes with whoever came and those in contact hear about it. `seen` is told every prediction. After an error the round is
    /// still open, and the visits before the bad one have taken place.
    pub fn round(
        &mut self,
        visits: &[Visit<'_>],
        mut seen: impl FnMut(Prediction<'_>),
    ) -> Result<(), RoundError> {
        self.late.clear();
        for visit in visits {
            let node = visit.node;
            let Some(half) = self.nodes.get_mut(node as usize) else {
                let nodes = self.nodes.len();
                return Err(RoundError::NoSuchNode { node, nodes });
            };
            let (labels, numbers, width) = (visit.y.len(), visit.z.numbers().len(), self.width);
            if numbers != labels * width {
                return Err(RoundError::Shape { node, labels, numbers, width });
            }
            let half = half.as_mut();
            let rejected = |source| RoundError::Rejected { node, source };
            if visit.contact != Contact::Lost {
                deliver(half, self.server.broadcast(), &mut self.traffic).map_err(rejected)?;
            }
            for (z, &label) in visit.z.samples(self.width).zip(visit.y) {
                seen(Prediction { node, value: half.predict(z), label, half });
                half.learn(z, label).map_err(|source| RoundError::BadSample { node, source })?;
            }
            if visit.contact == Contact::Lost || !half.upload(&mut self.upload) {
                continue;
            }
            self.traffic.numbers_up += self.upload.count() as u64;
            self.traffic.bytes_up += self.upload.bytes() as u64;
            if visit.contact == Contact::Late {
                self.late.push(node);
                continue;
            }
            self.take(node).map_err(rejected)?;
        }
        self.server.close_round();
        // The uploads of the late arrive now; their round is over, unless nobody else came and it is still open.
        for at in 0..self.late.len() {
            let node = self.late[at];
            self.nodes[node as usize].upload(&mut self.upload);
            if self.take(node).is_err() {
                self.traffic.uploads_late += 1;
            }
        }
        for visit in visits.iter().filter(|visit| visit.contact != Contact::Lost) {
            let node = visit.node;
            let half = self.nodes[node as usize].as_mut();
            deliver(half, self.server.broadcast(), &mut self.traffic)
                .map_err(|source| RoundError::Rejected { node, source })?;
        }
        Ok(())
    }

    /// Takes the server to another scale, between two rounds. Nodes have to follow before they are visited in contact again.
    ///
    /// # Panics
    /// If the transport was made for another dictionary.
    pub fn transport_server(&mut self, transport: &Transport) {
        self.server.transport(transport);
    }

    /// Takes a node from the scale that it is in to another.
    ///
    /// # Panics
    /// If the transport was made for another dictionary.
    pub fn transport_node(&mut self, node: NodeId, transport: &Transport) -> Result<(), RoundError> {
        let nodes = self.nodes.len();
        let half = self.nodes.get_mut(node as usize).ok_or(RoundError::NoSuchNode { node, nodes })?;
        half.transport(transport);
        Ok(())
    }

    /// A node in contact hears the latest broadcast, as it would at the start of a round: for predictions that are made
    /// before the round's own samples are there.
    pub fn hear(&mut self, node: NodeId) -> Result<(), RoundError> {
        let nodes = self.nodes.len();
        let half = self.nodes.get_mut(node as usize).ok_or(RoundError::NoSuchNode { node, nodes })?;
        deliver(half.as_mut(), self.server.broadcast(), &mut self.traffic)
            .map_err(|source| RoundError::Rejected { node, source })
    }

    /// One node's half.
    pub fn node(&self, node: NodeId) -> Option<&dyn NodeHalf> {
        self.nodes.get(node as usize).map(|half| half.as_ref())
    }

    /// Hands the upload at hand to the server.
    fn take(&mut self, node: NodeId) -> Result<(), Rejected> {
        match self.server.accept(node, &self.upload) {
            Ok(()) => {
                self.traffic.uploads_accepted += 1;
                if let Some(vote) = self.upload.vote {
                    self.votes[vote as usize] += 1;
                }
                Ok(())
            }
            // Sent again because the round did not close: the first one stands.
            Err(Rejected::Duplicate { .. }) => Ok(()),
            Err(source) => Err(source),
        }
    }

    /// The server's half.
    pub fn server(&self) -> &dyn ServerHalf {
        self.server.as_ref()
    }

    /// The nodes' halves.
    pub fn nodes(&self) -> impl Iterator<Item = &dyn NodeHalf> {
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
}

/// Hands a broadcast to a node that doesn't have it yet.
fn deliver(node: &mut dyn NodeHalf, broadcast: &Broadcast, traffic: &mut Traffic) -> Result<(), Rejected> {
    if broadcast.round > node.round() {
        node.adopt(broadcast)?;
        traffic.numbers_down += broadcast.count() as u64;
        traffic.bytes_down += broadcast.bytes() as u64;
    }
    Ok(())
}
