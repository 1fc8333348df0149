//! [`Wire`]: what is between the halves of a compressed federation. Every message becomes bytes and
//! is read from them again.

use serde::{Deserialize, Serialize};

use crate::codec::{Compression, Cost, Encoder, Reader, Reference, Section, decode};
use crate::message::{NodeId, Rejected, Upload};
use crate::method::{NodeMethod, ServerMethod};
use crate::state::BadState;

/// The encoders of everyone, and what everyone knows.
pub(super) struct Wire {
    compression: Compression,
    seed: u64,
    /// One for each node.
    pub(super) ends: Vec<End>,
    down: Encoder,
    /// The latest broadcast.
    known: Reference,
    /// What it costs to send to those who have the one before; none where nobody could make sense
    /// of that.
    latest: Option<Cost>,
    /// How often everyone was visited in the open round.
    visits: u16,
    scratch: Scratch,
    numbers: Vec<f32>,
}

/// A node's encoder, and the server's reader of what it sends.
pub(super) struct End {
    encoder: Encoder,
    reader: Reader,
}

/// What everyone needs to know of the wire.
#[derive(Clone, Copy)]
pub(super) struct Telling<'a> {
    known: &'a Reference,
    pub(super) latest: Option<Cost>,
}

/// A message on its way.
#[derive(Default)]
pub(super) struct Scratch {
    sections: Vec<Section>,
    bytes: Vec<u8>,
}

impl End {
    /// Sends an upload: its numbers become those that arrive.
    pub(super) fn send_up(
        &mut self,
        half: &dyn NodeMethod,
        telling: Telling<'_>,
        scratch: &mut Scratch,
        upload: &mut Upload,
    ) -> Result<Cost, Rejected> {
        let Scratch { sections, bytes } = scratch;
        sections.clear();
        half.sections(sections);
        self.encoder.encode(upload.round, sections, &upload.numbers, telling.known, bytes);
        let most = upload.numbers.len();
        self.reader.read(bytes, telling.known, most, &mut upload.numbers)
    }

    /// The server took what the node sent last.
    pub(super) fn acknowledge(&mut self) {
        self.encoder.acknowledge();
        self.reader.acknowledge();
    }
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
    pub(super) fn new(
        compression: Compression,
        seed: u64,
        nodes: usize,
        server: &dyn ServerMethod,
    ) -> Self {
        let end = |id| End {
            encoder: Encoder::for_node(compression.up, seed, id),
            reader: Reader::default(),
        };
        let mut wire = Self {
            compression,
            seed,
            ends: (0..nodes as NodeId).map(end).collect(),
            down: Encoder::for_server(compression.down, seed),
            known: Reference::default(),
            latest: None,
            visits: 0,
            scratch: Scratch::default(),
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

    /// What everyone needs to know of it, and their ends.
    pub(super) fn split(&mut self) -> (Telling<'_>, &mut [End]) {
        (Telling { known: &self.known, latest: self.latest }, &mut self.ends)
    }

    /// Sends the broadcast that the server has just made; from here on everyone takes what arrives
    /// for it.
    pub(super) fn send_down(&mut self, server: &mut dyn ServerMethod) {
        let Self { down, known, scratch: Scratch { sections, bytes }, numbers, .. } = self;
        sections.clear();
        server.sections(sections);
        let broadcast = server.broadcast();
        down.encode(broadcast.round, sections, &broadcast.numbers, known, bytes);
        // Should rounding take a number beyond its bound, then the broadcast travels as it is.
        self.latest = decode(bytes, known, broadcast.numbers.len(), numbers).ok();
        if self.latest.is_some() {
            down.acknowledge();
            server.replace_broadcast(numbers);
        }
        self.learn_broadcast(server);
    }

    /// The server is in another scale.
    pub(super) fn transport_server(&mut self, server: &dyn ServerMethod) {
        self.down.forget();
        self.latest = None;
        self.learn_broadcast(server);
    }

    /// A node is in another scale.
    pub(super) fn transport_node(&mut self, node: NodeId) {
        let End { encoder, reader } = &mut self.ends[node as usize];
        encoder.forget();
        reader.forget();
    }

    fn learn_broadcast(&mut self, server: &dyn ServerMethod) {
        let sections = &mut self.scratch.sections;
        sections.clear();
        server.sections(sections);
        self.known.set(sections, &server.broadcast().numbers);
    }

    pub(super) fn save(&self) -> Saved {
        let up = self.ends.iter().map(|end| end.encoder.save()).collect();
        Saved { up, down: self.down.save(), latest: self.latest, visits: self.visits }
    }

    /// The wire of a saved state and of the server that belongs to it. There must be as many nodes.
    pub(super) fn restored(
        &self,
        saved: &Saved,
        server: &dyn ServerMethod,
    ) -> Result<Self, BadState> {
        let mut wire = Self::new(self.compression, self.seed, self.ends.len(), server);
        for (End { encoder, reader }, saved) in wire.ends.iter_mut().zip(&saved.up) {
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
        saved.up.len() == self.ends.len()
            && saved.visits < self.compression.every.get()
            && saved.latest.is_none_or(is_message)
    }
}
