//! [`Opening`]: what opens a round, as it is sent to everybody; and [`Down`], which makes
//! broadcasts smaller.

use std::sync::Arc;

use bytes::Bytes;
use hedgerow::ServerMethod;
use hedgerow::codec::{Coding, Encoder, Reference, Section, decode};
use hedgerow::scaling::ServerScaling;

use crate::learning::Plan;
use crate::transport::protocol::{broadcast_to_wire, head_to_wire, scale_to_wire, wire};

/// What opens a round. It is on disk before anybody hears it.
#[derive(Debug, Clone)]
pub struct Opening {
    /// The round.
    pub round: u64,
    /// For whoever has nothing to compare it with.
    pub exact: wire::Broadcast,
    /// For those who have heard the one before, where messages are compressed.
    pub compressed: Option<wire::Broadcast>,
    /// The scale that its numbers are in; none if scales aren't agreed on, or not yet.
    pub scale: Option<wire::Scale>,
    /// What compressed uploads of the round differ from; empty if they aren't compressed.
    pub reference: Arc<Reference>,
    /// The server goes down: nothing comes after it.
    pub is_last: bool,
}

impl Opening {
    /// Version of its scale; 0 if there is none.
    pub fn scale_version(&self) -> u64 {
        self.scale.as_ref().map_or(0, |scale| scale.version)
    }

    pub(super) fn new(
        half: &dyn ServerMethod,
        scaling: Option<&ServerScaling>,
        down: &Down,
    ) -> Self {
        let broadcast = half.broadcast();
        let compressed = down.latest.as_ref().map(|numbers| wire::Broadcast {
            numbers: numbers.clone(),
            compressed: true,
            ..head_to_wire(broadcast)
        });
        let scale =
            scaling.and_then(|scaling| Some(scale_to_wire(scaling.version(), scaling.scale()?)));
        Self {
            round: broadcast.round,
            exact: broadcast_to_wire(broadcast),
            compressed,
            scale,
            reference: Arc::clone(&down.known),
            is_last: false,
        }
    }
}

/// The server's encoder, and what everyone knows: a federation in one process does the same, to the
/// bit.
pub(super) struct Down {
    /// Whether anything is compressed, in either direction.
    is_needed: bool,
    /// None if broadcasts travel as they are.
    encoder: Option<Encoder>,
    known: Arc<Reference>,
    /// The latest broadcast for those who have the one before.
    latest: Option<Bytes>,
    sections: Vec<Section>,
    bytes: Vec<u8>,
    numbers: Vec<f32>,
}

impl Down {
    pub(super) fn new(plan: &Plan, half: &dyn ServerMethod) -> Self {
        let (coding, seed) = (plan.learning().compression.down, plan.setup().config().seed);
        let mut down = Self {
            is_needed: !plan.is_plain(),
            encoder: (coding != Coding::default()).then(|| Encoder::for_server(coding, seed)),
            known: Arc::default(),
            latest: None,
            sections: Vec::new(),
            bytes: Vec::new(),
            numbers: Vec::new(),
        };
        down.learn_broadcast(half);
        down
    }

    /// Compresses the broadcast that the half has just made; from here on everyone takes what
    /// arrives for it.
    pub(super) fn send(&mut self, half: &mut dyn ServerMethod) {
        let Self { encoder, known, latest, sections, bytes, numbers, .. } = self;
        *latest = None;
        if let Some(encoder) = encoder {
            sections.clear();
            half.sections(sections);
            let broadcast = half.broadcast();
            encoder.encode(broadcast.round, sections, &broadcast.numbers, known, bytes);
            // Should rounding take a number beyond its bound, then the broadcast travels as it is.
            if decode(bytes, known, broadcast.numbers.len(), numbers).is_ok() {
                encoder.acknowledge();
                half.replace_broadcast(numbers);
                *latest = Some(Bytes::copy_from_slice(bytes));
            }
        }
        self.learn_broadcast(half);
    }

    /// The half is in another scale: nobody could make sense of a difference.
    pub(super) fn transported(&mut self, half: &dyn ServerMethod) {
        self.encoder.iter_mut().for_each(Encoder::forget);
        self.latest = None;
        self.learn_broadcast(half);
    }

    fn learn_broadcast(&mut self, half: &dyn ServerMethod) {
        if !self.is_needed {
            return;
        }
        self.sections.clear();
        half.sections(&mut self.sections);
        let mut known = Reference::default();
        known.set(&self.sections, &half.broadcast().numbers);
        self.known = Arc::new(known);
    }
}
