//! What is between the nodes and the server of a compressed federation: every message becomes bytes
//! and is read from them again.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::codec::{Cost, Encoder, Section};
use crate::message::{Rejected, Upload};
use crate::node::Node;
use crate::plan::Plan;
use crate::server::{Server, UploadReader};
use crate::state::BadState;

/// A message on its way.
#[derive(Default)]
pub(super) struct Scratch {
    sections: Vec<Section>,
    bytes: Vec<u8>,
}

impl Scratch {
    /// Sends the uploads of a node, one for each output: their numbers become those that arrive.
    pub(super) fn send_up(
        &mut self,
        node: &mut Node,
        reader: &mut UploadReader,
        server: &Server,
        uploads: &mut [Upload],
    ) -> Result<Cost, Rejected> {
        let Self { sections, bytes } = self;
        let mut total = Cost::default();
        for (output, upload) in uploads.iter_mut().enumerate() {
            sections.clear();
            node.heads[output].sections(sections);
            let known = &server.down.known[output];
            node.encoders[output].encode(upload.round, sections, &upload.numbers, known, bytes);
            let (reader, most) = (&mut reader.readers[output], upload.numbers.len());
            let Cost { numbers, bytes } = reader.read(bytes, known, most, &mut upload.numbers)?;
            total.numbers += numbers;
            total.bytes += bytes;
        }
        Ok(total)
    }
}

/// What has to survive a restart.
#[derive(Serialize, Deserialize)]
pub(super) struct Saved {
    /// Encoders of all nodes, and of all outputs of a node one after the other.
    up: Vec<Vec<u8>>,
    /// The server's encoders.
    down: Vec<u8>,
    latest: Option<Cost>,
    pub(super) passes: u16,
}

impl Saved {
    pub(super) fn new(nodes: &[Node], server: &Server, passes: u16) -> Self {
        let up = nodes.iter().flat_map(|node| &node.encoders).map(Encoder::save).collect();
        Self { up, down: server.down.save(), latest: server.down.cost, passes }
    }

    /// Whether it is of a federation of this plan.
    pub(super) fn is_sound(&self, plan: &Plan, nodes: usize) -> bool {
        // No message of a federation is larger, and adding it up goes well for long.
        let is_message = |cost: Cost| cost.numbers.max(cost.bytes) <= u64::from(u32::MAX);
        self.up.len() == nodes * plan.outputs()
            && self.passes < plan.config().compression.every.get()
            && self.latest.is_none_or(is_message)
    }

    /// Continues from a saved state. The server must have its models already.
    pub(super) fn restore(
        &self,
        nodes: &mut [Node],
        readers: &mut [UploadReader],
        server: &mut Server,
    ) -> Result<(), BadState> {
        let mut up = self.up.iter();
        for (node, UploadReader { readers }) in nodes.iter_mut().zip(readers) {
            for ((encoder, reader), saved) in node.encoders.iter_mut().zip(readers).zip(&mut up) {
                encoder.restore(saved)?;
                *reader = encoder.reader();
            }
        }
        server.down.restore(&self.down, self.latest)
    }
}
