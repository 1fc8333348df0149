//! How a [`super::Server`] compresses broadcasts and reads compressed uploads.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::check_outputs;
use crate::codec::{Coding, Compression, Cost, Encoder, Reader, Reference, Section, decode};
use crate::message::{Rejected, Upload, UploadMessage};
use crate::method::{BroadcastLayout, ServerMethod};
use crate::plan::{Plan, PlanConfig};
use crate::state::{BadState, StateKind};

const KIND: StateKind = StateKind::new("server-encoders");

/// What the server remembers of one node's compressed uploads.
#[derive(Debug, Clone)]
pub struct UploadReader {
    /// One for each output.
    pub(crate) readers: Vec<Reader>,
}

impl UploadReader {
    /// For a node that has uploaded nothing yet on its connection.
    pub fn new(outputs: usize) -> Self {
        Self { readers: vec![Reader::default(); outputs] }
    }

    /// Reads a message of the open round into one upload for each output, or refuses it. `known` is
    /// what [`super::Server::references`] says, `most` what [`Plan::most_numbers`] says.
    pub fn read(
        &mut self,
        message: &UploadMessage,
        known: &[Reference],
        most: usize,
        uploads: &mut Vec<Upload>,
    ) -> Result<(), Rejected> {
        read(Some(self), message, known, most, uploads)
    }

    /// The upload that was read last was taken.
    pub fn acknowledge(&mut self) {
        self.readers.iter_mut().for_each(Reader::acknowledge);
    }

    /// Forgets what was taken: the node is in another scale, or begins anew.
    pub fn forget(&mut self) {
        self.readers.iter_mut().for_each(Reader::forget);
    }
}

pub(super) fn read(
    mut reader: Option<&mut UploadReader>,
    message: &UploadMessage,
    known: &[Reference],
    most: usize,
    uploads: &mut Vec<Upload>,
) -> Result<(), Rejected> {
    let value = message.errors.squared_error;
    if !value.is_finite() || value < 0.0 {
        return Err(Rejected::SquaredError { value });
    }
    uploads.resize_with(message.heads.len(), Upload::default);
    for (output, (upload, head)) in uploads.iter_mut().zip(&message.heads).enumerate() {
        (upload.round, upload.vote) = (message.round, head.vote);
        let reader = reader.as_deref_mut();
        head.numbers.read(most, &mut upload.numbers, |bytes, numbers| {
            let readers = reader.map_or(&mut [][..], |one| &mut one.readers);
            check_outputs(readers.len(), message.heads.len())?;
            let known =
                known.get(output).ok_or(Rejected::Garbled { what: "nothing is compressed" })?;
            readers[output].read(bytes, known, most, numbers).map(drop)
        })?;
    }
    Ok(())
}

/// The server's encoders, and what every node knows.
pub(crate) struct Down {
    /// Whether anything is compressed, in either direction.
    is_needed: bool,
    /// What the numbers of a broadcast are.
    layout: BroadcastLayout,
    /// One for each output; empty if broadcasts travel as they are.
    pub(crate) encoders: Vec<Encoder>,
    /// The latest broadcast of each output; empty if nothing is compressed.
    pub(crate) known: Arc<Vec<Reference>>,
    /// The latest broadcast of each output for nodes that have the one before.
    bytes: Vec<Vec<u8>>,
    /// The bytes of the difference; none if it can't be decoded.
    pub(crate) cost: Option<Cost>,
    sections: Vec<Section>,
    numbers: Vec<Vec<f32>>,
}

impl Down {
    pub(super) fn new(plan: &Plan) -> Self {
        let PlanConfig { compression, seed, outputs, .. } = *plan.config();
        let encodes = compression.down != Coding::default();
        let outputs_if = |holds: bool| if holds { outputs } else { 0 };
        let encoder = |_| Encoder::for_server(compression.down, seed);
        Self {
            is_needed: compression != Compression::default(),
            encoders: (0..outputs_if(encodes)).map(encoder).collect(),
            layout: plan.layout().broadcast,
            known: Arc::default(),
            bytes: vec![Vec::new(); outputs_if(encodes)],
            cost: None,
            sections: Vec::new(),
            numbers: vec![Vec::new(); outputs_if(encodes)],
        }
    }

    /// The latest broadcast of each output, for nodes that have the one before.
    pub(super) fn latest(&self) -> Option<&[Vec<u8>]> {
        let is_known = self.cost.is_some() && self.bytes.iter().all(|bytes| !bytes.is_empty());
        is_known.then_some(&self.bytes[..])
    }

    /// Compresses the broadcasts that the heads have just made; from here on everyone takes what
    /// arrives for them.
    pub(super) fn send(&mut self, heads: &mut [Box<dyn ServerMethod>]) {
        let Self { layout, encoders, known, bytes, cost, sections, numbers, .. } = self;
        *cost = None;
        let mut total = Cost::default();
        let mut is_readable = !encoders.is_empty();
        for (output, (encoder, head)) in encoders.iter_mut().zip(&*heads).enumerate() {
            let (broadcast, known) = (head.broadcast(), &known[output]);
            sections.clear();
            layout.sections(broadcast, sections);
            let (bytes, numbers) = (&mut bytes[output], &mut numbers[output]);
            encoder.encode(broadcast.round, sections, &broadcast.numbers, known, bytes);
            // If rounding takes a number beyond its bound, the broadcast travels as it is.
            match decode(bytes, known, broadcast.numbers.len(), numbers) {
                Ok(Cost { numbers, bytes }) => {
                    total.numbers += numbers;
                    total.bytes += bytes;
                }
                Err(_) => is_readable = false,
            }
        }
        if is_readable {
            encoders.iter_mut().for_each(Encoder::acknowledge);
            heads.iter_mut().zip(numbers).for_each(|(head, told)| head.replace_broadcast(told));
            *cost = Some(total);
        }
        self.learn_broadcast(heads);
    }

    /// The heads are in another scale, so a difference can't be decoded.
    pub(super) fn rescaled(&mut self, heads: &[Box<dyn ServerMethod>]) {
        self.encoders.iter_mut().for_each(Encoder::forget);
        self.cost = None;
        self.learn_broadcast(heads);
    }

    /// What has to survive a restart, for federations in one process.
    pub(crate) fn save(&self) -> Vec<u8> {
        KIND.save_each(self.encoders.iter().map(Encoder::save))
    }

    /// Continues from it, and from the size of the latest broadcast.
    pub(crate) fn restore(&mut self, saved: &[u8], cost: Option<Cost>) -> Result<(), BadState> {
        if self.encoders.is_empty() {
            // Whatever was saved then says nothing.
            return Ok(());
        }
        let saved = KIND.restore_each(saved, self.encoders.len())?;
        let mut encoders = self.encoders.iter_mut().zip(&saved);
        encoders.try_for_each(|(encoder, saved)| encoder.restore(saved))?;
        self.cost = cost;
        Ok(())
    }

    pub(super) fn learn_broadcast(&mut self, heads: &[Box<dyn ServerMethod>]) {
        if !self.is_needed {
            return;
        }
        if Arc::get_mut(&mut self.known).is_none() {
            self.known = Arc::default();
        }
        let Some(known) = Arc::get_mut(&mut self.known) else { return };
        known.resize_with(heads.len(), Reference::default);
        for (known, head) in known.iter_mut().zip(heads) {
            self.sections.clear();
            self.layout.sections(head.broadcast(), &mut self.sections);
            known.set(&self.sections, &head.broadcast().numbers);
        }
    }
}
