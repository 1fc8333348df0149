//! [`Wire`]: what is between the halves of a compressed federation. Every message becomes bytes and is read from them again.

use serde::{Deserialize, Serialize};

use crate::compression::{Compression, Cost, Encoder, Reader, Reference, Section, decode};
use crate::message::{NodeId, Rejected, Upload};
use crate::method::{BadState, NodeHalf, ServerHalf};

/// The encoders of everyone, and what everyone knows.
pub(super) struct Wire {
    compression: Compression,
    seed: u64,
    up: Vec<Encoder>,
    down: Encoder,
    /// The latest broadcast.
    known: Reference,
    /// The server's, one for each node.
    readers: Vec<Reader>,
    /// What it costs to send to those who have the one before; none where nobody could make sense of that.
    latest: Option<Cost>,
    /// How often everyone was visited in the open round.
    visits: u16,
    sections: Vec<Section>,
    bytes: Vec<u8>,
    numbers: Vec<f32>,
}

/// What has to survive a restart.
#[derive(Serialize, Deserialize)]
pub(super) struct Saved {
    up: Vec<Vec<u8>>,
    down: Vec<u8>,
    latest: Option<Cost>,
    visits: u16,
}

impl Wire {
    pub(super) fn new(compression: Compression, seed: u64, nodes: usize, server: &dyn ServerHalf) -> Self {
        let node = |id| Encoder::for_node(compression.up, seed, id);
        let mut wire = Self {
            compression,
            seed,
            up: (0..nodes as NodeId).map(node).collect(),
            down: Encoder::for_server(compression.down, seed),
            known: Reference::default(),
            readers: vec![Reader::default(); nodes],
            latest: None,
            visits: 0,
            sections: Vec::new(),
            bytes: Vec::new(),
            numbers: Vec::new(),
        };
        wire.learn_broadcast(server);
        wire
    }

    /// Whether the next visit of everyone is the one that closes the open round.
    pub(super) fn is_last_visit(&self, open: u64) -> bool {
        self.visits + 1 >= self.compression.visits(open)
    }

    /// A visit of everyone is over, and the round goes on.
    pub(super) fn count_visit(&mut self) {
        self.visits += 1;
    }

    /// Everyone was visited for the last time in this round.
    pub(super) fn begin_round(&mut self) {
        self.visits = 0;
    }

    /// Sends an upload: its numbers become those that arrive.
    pub(super) fn send_up(
        &mut self,
        node: NodeId,
        half: &dyn NodeHalf,
        upload: &mut Upload,
    ) -> Result<Cost, Rejected> {
        self.sections.clear();
        half.sections(&mut self.sections);
        let Self { up, readers, sections, known, bytes, .. } = self;
        up[node as usize].encode(upload.round, sections, &upload.numbers, known, bytes);
        let most = upload.numbers.len();
        readers[node as usize].read(bytes, known, most, &mut upload.numbers)
    }

    /// The server took what a node sent last.
    pub(super) fn taken(&mut self, node: NodeId) {
        self.up[node as usize].taken();
        self.readers[node as usize].taken();
    }

    /// Sends the broadcast that the server has just made; from here on everyone takes what arrives for it.
    pub(super) fn send_down(&mut self, server: &mut dyn ServerHalf) {
        self.sections.clear();
        server.sections(&mut self.sections);
        let broadcast = server.broadcast();
        let Self { down, sections, known, bytes, numbers, .. } = self;
        down.encode(broadcast.round, sections, &broadcast.numbers, known, bytes);
        // Should rounding take a number beyond its bound, then the broadcast travels as it is.
        self.latest = decode(bytes, known, broadcast.numbers.len(), numbers).ok();
        if self.latest.is_some() {
            down.taken();
            server.settle(numbers);
        }
        self.learn_broadcast(server);
    }

    /// What the latest broadcast costs a node: who missed the one before gets all of it, exactly.
    pub(super) fn cost_down(&self, node: &dyn NodeHalf, server: &dyn ServerHalf) -> Option<Cost> {
        self.latest.filter(|_| node.round() + 1 == server.broadcast().round)
    }

    /// The server is in another scale.
    pub(super) fn transport_server(&mut self, server: &dyn ServerHalf) {
        self.down.forget();
        self.latest = None;
        self.learn_broadcast(server);
    }

    /// A node is in another scale.
    pub(super) fn transport_node(&mut self, node: NodeId) {
        self.up[node as usize].forget();
        self.readers[node as usize].forget();
    }

    fn learn_broadcast(&mut self, server: &dyn ServerHalf) {
        self.sections.clear();
        server.sections(&mut self.sections);
        self.known.set(&self.sections, &server.broadcast().numbers);
    }

    pub(super) fn save(&self) -> Saved {
        let up = self.up.iter().map(Encoder::save).collect();
        Saved { up, down: self.down.save(), latest: self.latest, visits: self.visits }
    }

    /// The wire of a saved state and of the server that belongs to it. There must be as many nodes.
    pub(super) fn restored(&self, saved: &Saved, server: &dyn ServerHalf) -> Result<Self, BadState> {
        let mut wire = Self::new(self.compression, self.seed, self.up.len(), server);
        for ((encoder, reader), saved) in wire.up.iter_mut().zip(&mut wire.readers).zip(&saved.up) {
            encoder.restore(saved)?;
            *reader = encoder.reader();
        }
        wire.down.restore(&saved.down)?;
        wire.latest = saved.latest;
        wire.visits = saved.visits;
        Ok(wire)
    }

    /// Whether a saved state has this shape.
    pub(super) fn is_sound(&self, saved: &Saved) -> bool {
        // No message of a federation is larger, and adding it up goes well for long.
        let is_message = |cost: Cost| cost.numbers.max(cost.bytes) <= u64::from(u32::MAX);
        saved.up.len() == self.up.len()
            && saved.visits < self.compression.every.get()
            && saved.latest.is_none_or(is_message)
    }
}
