//! What an [`Engine`] hears from the server, and what it says.

use hedgerow::NodeId;
use hedgerow::codec::{Encoder, Reference, decode};
use hedgerow::message::{Rejected, Report, Upload};

use serde::{Deserialize, Serialize};

use super::{Engine, Scratch, UnackedErrors};
use crate::learning::{Plan, Scaling};
use crate::transport::protocol::{self, wire};

/// Where a stream is, for those who put a node away in the middle of it and go on with it later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkSnapshot {
    is_up: bool,
    is_in_step: bool,
    answered: Option<u64>,
    is_report_due: bool,
    is_idle: bool,
    has_scale: bool,
}

/// What lasts as long as a stream.
pub(super) struct Link {
    is_up: bool,
    /// Whether this stream has brought a broadcast.
    is_in_step: bool,
    /// The round whose upload was sent.
    pub(super) answered: Option<u64>,
    is_report_due: bool,
    /// Whether the server knows that there is nothing to wait for.
    is_idle: bool,
    /// Whether the server's scale is known: it tells it before its first broadcast, unless it has
    /// none, or lost it.
    has_scale: bool,
    encoder: Encoder,
    known: Reference,
}

impl Link {
    pub(super) fn new(plan: &Plan, number: NodeId) -> Self {
        let seed = plan.setup().config().seed;
        Self {
            is_up: false,
            is_in_step: false,
            answered: None,
            is_report_due: false,
            is_idle: false,
            has_scale: !matches!(plan.learning().scaling, Scaling::Online { .. }),
            encoder: Encoder::for_node(plan.learning().compression.up, seed, number),
            known: Reference::default(),
        }
    }
}

impl Engine {
    /// A stream is up: it begins with nothing owed on either side.
    pub fn connected(&mut self) {
        self.link = Link { is_up: true, ..Link::new(&self.plan, self.state.number) };
        self.link.is_report_due = self.state.report.is_some();
    }

    /// Where its stream is.
    pub fn standing(&self) -> LinkSnapshot {
        let Link { is_up, is_in_step, answered, is_report_due, is_idle, has_scale, .. } = self.link;
        LinkSnapshot { is_up, is_in_step, answered, is_report_due, is_idle, has_scale }
    }

    /// Goes on where its stream was. What compression remembers of it is gone, so that compressed
    /// ones begin anew.
    pub fn resume(&mut self, standing: LinkSnapshot) {
        let LinkSnapshot { is_up, is_in_step, answered, is_report_due, is_idle, has_scale } =
            standing;
        match (is_up, self.plan.is_plain()) {
            (true, true) => {
                let link = Link::new(&self.plan, self.state.number);
                self.link =
                    Link { is_up, is_in_step, answered, is_report_due, is_idle, has_scale, ..link };
            }
            (true, false) => self.connected(),
            (false, _) => self.link = Link::new(&self.plan, self.state.number),
        }
    }

    /// It is down: from here on samples are learned as they come.
    pub fn disconnected(&mut self) {
        self.link = Link::new(&self.plan, self.state.number);
        self.learn_held();
    }

    /// Takes a message of the server, or refuses it and stays as it was.
    pub fn hear(&mut self, message: &wire::FromServer) -> Result<(), Rejected> {
        match &message.message {
            Some(wire::from_server::Message::Broadcast(broadcast)) => {
                self.hear_broadcast(broadcast)
            }
            Some(wire::from_server::Message::Scale(scale)) => self.hear_scale(scale),
            Some(wire::from_server::Message::Refusal(_)) => {
                self.state.tally.refused += 1;
                Ok(())
            }
            Some(wire::from_server::Message::Welcome(_)) => {
                Err(Rejected::Garbled { what: "a second welcome" })
            }
            None => Err(Rejected::Garbled { what: "an empty message" }),
        }
    }

    /// Appends what there is to say now: each message once a round and stream. A node that has
    /// learned nothing in this round answers only if `even_so`; if its method has nothing to say
    /// then, it says that nobody should wait for it.
    pub fn speak(&mut self, even_so: bool, out: &mut Vec<wire::FromNode>) {
        if !self.link.is_up || !self.link.is_in_step {
            return;
        }
        let mut report = Report::default();
        if self.scaling.report(&mut report) {
            self.state.report = Some(report);
            self.link.is_report_due = true;
        }
        if let Some(report) = self.state.report.as_ref().filter(|_| self.link.is_report_due) {
            let numbers = protocol::numbers_to_bytes(&report.numbers);
            out.push(wire::from_node::Message::Report(wire::Report { numbers }).into());
            (self.link.is_report_due, self.link.is_idle) = (false, false);
        }
        let round = self.half.round();
        let has_learned_enough = self.has_learned_enough() || even_so;
        if self.link.answered == Some(round) || !has_learned_enough {
            return;
        }
        if !self.link.has_scale || !self.half.upload(&mut self.room.upload) {
            // Who has reported has answered, as long as there is no scale.
            let has_reported = !self.link.has_scale && self.state.report.is_some();
            if !has_reported && !std::mem::replace(&mut self.link.is_idle, true) {
                out.push(wire::from_node::Message::Idle(wire::Idle {}).into());
            }
            return;
        }
        self.link.is_idle = false;
        let numbers = self.upload_bytes();
        let Upload { round, vote, .. } = self.room.upload;
        let UnackedErrors { samples, squared_error } = self.state.news;
        // Beyond what can be told it is still large.
        let squared_error = squared_error.min(f64::from(f32::MAX)) as f32;
        let upload = wire::Upload { round, vote, numbers, samples, squared_error };
        out.push(wire::from_node::Message::Upload(upload).into());
        self.link.answered = Some(round);
        self.state.told = Some((round, self.state.news));
        self.state.tally.uploads += 1;
    }

    fn upload_bytes(&mut self) -> bytes::Bytes {
        let Scratch { upload, sections, bytes, .. } = &mut self.room;
        if self.plan.is_plain_up() {
            return protocol::numbers_to_bytes(&upload.numbers);
        }
        sections.clear();
        self.half.sections(sections);
        self.link.encoder.encode(upload.round, sections, &upload.numbers, &self.link.known, bytes);
        bytes::Bytes::copy_from_slice(bytes)
    }

    fn hear_broadcast(&mut self, message: &wire::Broadcast) -> Result<(), Rejected> {
        let Scratch { broadcast, .. } = &mut self.room;
        let most = self.plan.most_numbers();
        broadcast.round = message.round;
        broadcast.kernels = protocol::kernels_from_wire(message);
        if message.compressed {
            if !self.link.is_in_step {
                return Err(Rejected::Garbled { what: "a difference to nothing" });
            }
            decode(&message.numbers, &self.link.known, most, &mut broadcast.numbers)?;
        } else {
            protocol::numbers_from_bytes(&message.numbers, most, &mut broadcast.numbers)?;
        }
        let before = self.half.round();
        if broadcast.round < before {
            // The server has lost rounds (a power cut, an old backup): this node goes on from where
            // the server is, with all it knows.
            let saved = self.half.save();
            self.half.forget_round();
            if let Err(rejected) = self.half.adopt(broadcast) {
                // It was sound a moment ago.
                _ = self.half.restore(&saved);
                return Err(rejected);
            }
        } else {
            self.half.adopt(broadcast)?;
        }
        let is_taken = |(round, _): &mut (u64, UnackedErrors)| *round <= message.taken;
        if let Some((round, UnackedErrors { samples, squared_error })) =
            self.state.told.take_if(is_taken)
        {
            if self.link.answered == Some(round) {
                self.link.encoder.acknowledge();
            }
            let news = &mut self.state.news;
            news.samples = news.samples.saturating_sub(samples);
            news.squared_error = (news.squared_error - squared_error).max(0.0);
            self.state.tally.taken += 1;
        }
        if !self.plan.is_plain() {
            let Scratch { broadcast, sections, .. } = &mut self.room;
            sections.clear();
            let learning = self.plan.learning();
            learning.method.broadcast_sections(self.plan.setup(), broadcast, sections);
            self.link.known.set(sections, &broadcast.numbers);
        }
        self.link.is_in_step = true;
        if self.half.round() != before {
            self.state.learned = 0;
            self.link.answered = None;
        }
        // Nothing learned and nothing answered: what waited for this round, or for a scale, needs
        // to wait no longer.
        if self.state.learned == 0 && self.link.answered.is_none() {
            self.learn_held();
        }
        Ok(())
    }

    fn hear_scale(&mut self, message: &wire::Scale) -> Result<(), Rejected> {
        let (version, scale) = protocol::scale_from_wire(message)?;
        let old = self.scaling.scale().cloned();
        self.link.has_scale = true;
        if !self.scaling.follow(version, &scale)? {
            return Ok(());
        }
        match old {
            Some(old) => {
                self.half.rescale(&self.plan.map().rescaling(&old, &scale));
                // What was owed was in another scale.
                self.link.encoder.forget();
            }
            // On a new stream the round comes first.
            None if self.link.is_in_step => self.learn_held(),
            None => {}
        }
        Ok(())
    }
}
