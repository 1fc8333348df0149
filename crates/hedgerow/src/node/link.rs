//! What a [`Node`] hears from the server, and what it says.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Node, Raw, UnackedErrors};
use crate::codec::{Encoder, Reference, Section, decode};
use crate::masking::RoundTag;
use crate::message::{
    Broadcast, BroadcastMessage, Errors, Numbers, Rejected, Report, ScaleMessage, ToNode, ToServer,
    Upload, UploadHead, UploadMessage,
};
use crate::plan::Plan;
use crate::scaling::Scale;

/// Where a connection is, for drivers that put a node away in the middle of one and go on later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkSnapshot {
    is_up: bool,
    /// Whether this connection has brought a broadcast.
    is_in_step: bool,
    /// The round whose upload was sent.
    pub(super) answered: Option<u64>,
    is_report_due: bool,
    /// Whether the server knows that there is nothing to wait for.
    is_idle: bool,
    /// Whether the server's scale is known: it tells it before its first broadcast, unless it has
    /// none, or lost it.
    has_scale: bool,
    /// Whether the next broadcast is taken whatever its round.
    is_set_back: bool,
}

impl LinkSnapshot {
    /// A connection that is down.
    pub(super) fn new(plan: &Plan) -> Self {
        Self { has_scale: !plan.is_scaled_online(), ..Self::default() }
    }
}

/// Buffers for messages.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) uploads: Vec<Upload>,
    broadcasts: Vec<Broadcast>,
    sections: Vec<Section>,
}

/// What a node has to say to the round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing, or nothing new.
    Nothing,
    /// That nobody should wait for it.
    Idle,
    /// What is in the buffers.
    Upload,
}

impl Node {
    /// A connection is up: it begins with nothing owed on either side.
    pub fn connected(&mut self) {
        self.cut_link();
        let Raw { link, state, .. } = self.raw();
        link.is_up = true;
        link.is_report_due = state.report.is_some();
    }

    /// Where its connection is.
    pub fn link(&self) -> LinkSnapshot {
        self.raw.as_ref().map_or_else(|| LinkSnapshot::new(&self.plan), |raw| raw.link)
    }

    /// Goes on where its connection was. What compression and masks remember of it is lost, so such
    /// a connection begins anew.
    pub fn resume(&mut self, link: LinkSnapshot) {
        match (link.is_up, self.plan.is_plain() && !self.plan.is_masked()) {
            (true, true) => {
                self.cut_link();
                self.raw().link = link;
            }
            (true, false) => self.connected(),
            (false, _) => self.cut_link(),
        }
    }

    /// The connection is down: from here on samples are learned as they come.
    pub fn disconnected(&mut self) {
        self.cut_link();
        self.learn_held();
    }

    fn cut_link(&mut self) {
        self.encoders = self.plan.encoders(self.id);
        let link = LinkSnapshot::new(&self.plan);
        let raw = self.raw();
        raw.link = link;
        raw.known.clear();
    }

    /// The server's run was set back while this node knew later rounds, or was away. The next
    /// broadcast is taken whatever its round, and uploads since then count as lost.
    pub fn set_back(&mut self) {
        let Raw { link, state, .. } = self.raw();
        link.is_set_back = true;
        state.told = None;
    }

    /// Whether it has answered the open round and waits for the next one. Without a scale, whether
    /// it has reported and waits for one.
    pub fn awaits_broadcast(&self) -> bool {
        self.raw.as_ref().is_some_and(|raw| {
            raw.link.answered == Some(self.round())
                || (!raw.is_scaled() && raw.state.report.is_some())
        })
    }

    /// The server refused a message.
    pub fn refused(&mut self) {
        self.raw().state.tally.refused += 1;
    }

    /// Takes a message of the server, or refuses it and stays as it was.
    pub fn hear(&mut self, message: &ToNode) -> Result<(), Rejected> {
        match message {
            ToNode::Broadcast(broadcast) => self.hear_broadcast(broadcast),
            ToNode::Scale(scale) => self.hear_scale(scale),
        }
    }

    /// Says what there is to say now: each message once a round and connection. A node that has
    /// learned nothing in this round answers only if `even_so`; if its method has nothing to say
    /// then, it says that nobody should wait for it. Masked uploads are
    /// [`Node::masked_upload`]'s.
    pub fn speak(&mut self, even_so: bool, mut out: impl FnMut(ToServer)) {
        if !self.is_in_step() {
            return;
        }
        let Raw { scaling, state, link, .. } = self.raw();
        let mut report = Report::default();
        if scaling.report(&mut report) {
            state.report = Some(report);
            link.is_report_due = true;
        }
        if let Some(report) = state.report.as_ref().filter(|_| link.is_report_due) {
            out(ToServer::Report(report.clone()));
            (link.is_report_due, link.is_idle) = (false, false);
        }
        match self.write_uploads(even_so) {
            Due::Upload if !self.plan.is_masked() => out(ToServer::Upload(self.upload())),
            Due::Idle => out(ToServer::Idle),
            Due::Upload | Due::Nothing => {}
        }
    }

    /// Whether it is connected and has the server's broadcast.
    pub(super) fn is_in_step(&self) -> bool {
        self.raw.as_ref().is_some_and(|raw| raw.link.is_up && raw.link.is_in_step)
    }

    /// Writes the uploads of the round into the buffers, if they are due.
    pub(super) fn write_uploads(&mut self, even_so: bool) -> Due {
        let (round, is_due) = (self.round(), self.has_learned_enough() || even_so);
        let Self { heads, raw: Some(raw), .. } = self else { return Due::Nothing };
        let Raw { state, link, scratch, .. } = &mut **raw;
        if link.answered == Some(round) || !is_due {
            return Due::Nothing;
        }
        let uploads = &mut scratch.buffers.uploads;
        uploads.resize_with(heads.len(), Upload::default);
        let mut both = heads.iter().zip(uploads.iter_mut());
        if link.has_scale && both.all(|(head, upload)| head.upload(upload)) {
            link.is_idle = false;
            return Due::Upload;
        }
        // A node that has reported has answered, as long as there is no scale.
        let has_reported = !link.has_scale && state.report.is_some();
        if !has_reported && !core::mem::replace(&mut link.is_idle, true) {
            return Due::Idle;
        }
        Due::Nothing
    }

    /// The uploads in the buffers as a message, which is on its way from here on.
    fn upload(&mut self) -> UploadMessage {
        let round = self.round();
        let errors = self.untold_errors();
        let Self { plan, heads, encoders, importance, raw, .. } = self;
        let Raw { known, scratch, .. } = &mut **raw.get_or_insert_with(|| Box::new(Raw::new(plan)));
        let Buffers { uploads, sections, .. } = &mut scratch.buffers;
        let mut messages = Vec::with_capacity(heads.len());
        for (output, (head, upload)) in heads.iter().zip(&*uploads).enumerate() {
            let numbers = if plan.is_plain_up() {
                Numbers::Plain(upload.numbers.clone())
            } else {
                sections.clear();
                head.sections(sections);
                let mut bytes = Vec::new();
                let known = &known[output];
                encoders[output].encode(round, sections, &upload.numbers, known, &mut bytes);
                Numbers::Compressed(bytes)
            };
            messages.push(UploadHead { vote: upload.vote, numbers });
        }
        let importance = importance.as_mut().map_or(Vec::new(), |meter| meter.tell(round).to_vec());
        self.sent();
        UploadMessage { round, heads: messages, errors, importance }
    }

    /// The errors that the server doesn't know of yet.
    pub(super) fn untold_errors(&mut self) -> Errors {
        let UnackedErrors { samples, squared_error } = self.raw().state.unacked;
        // A sum beyond what can be told is told as the largest.
        let squared_error = squared_error.min(f64::from(f32::MAX)) as f32;
        Errors { samples, squared_error }
    }

    /// The uploads of the round, and its errors, are on their way.
    pub(super) fn sent(&mut self) {
        let round = self.round();
        self.heads.iter_mut().for_each(|head| head.sent());
        let Raw { link, state, .. } = self.raw();
        link.answered = Some(round);
        state.told = Some((round, state.unacked));
        state.tally.uploads += 1;
    }

    fn hear_broadcast(&mut self, message: &BroadcastMessage) -> Result<(), Rejected> {
        self.read_broadcast(message)?;
        let before = self.round();
        self.heads.iter_mut().for_each(|head| head.acknowledge(message.taken));
        let is_set_back = self.raw().link.is_set_back;
        self.adopt(message.round < before || is_set_back)?;
        if self.round() != before {
            self.acknowledge_importance(message.taken);
        }
        let Self { plan, heads, encoders, raw: Some(raw), .. } = self else { return Ok(()) };
        let Raw { state, link, known, tag, scratch, .. } = &mut **raw;
        let is_taken = |(round, _): &mut (u64, UnackedErrors)| *round <= message.taken;
        if let Some((round, told)) = state.told.take_if(is_taken) {
            if link.answered == Some(round) {
                encoders.iter_mut().for_each(Encoder::acknowledge);
            }
            let unacked = &mut state.unacked;
            unacked.samples = unacked.samples.saturating_sub(told.samples);
            unacked.squared_error = (unacked.squared_error - told.squared_error).max(0.0);
            state.tally.taken += 1;
        }
        if !plan.is_plain() {
            let Buffers { broadcasts, sections, .. } = &mut scratch.buffers;
            let layout = plan.layout().broadcast;
            known.resize_with(heads.len(), Reference::default);
            for (known, broadcast) in known.iter_mut().zip(broadcasts) {
                sections.clear();
                layout.sections(broadcast, sections);
                known.set(sections, &broadcast.numbers);
            }
        }
        if plan.is_masked() && (heads[0].round() != before || is_set_back || tag.is_none()) {
            let broadcasts: Vec<_> = scratch.buffers.broadcasts.iter().collect();
            *tag = Some(RoundTag::new(&broadcasts));
        }
        (link.is_in_step, link.is_set_back) = (true, false);
        if heads[0].round() != before || is_set_back {
            state.learned = 0;
            link.answered = None;
        }
        // Nothing learned and nothing answered: what waited for this round, or for a scale, needs
        // to wait no longer.
        if state.learned == 0 && link.answered.is_none() {
            self.learn_held();
        }
        Ok(())
    }

    /// Reads a broadcast into the buffers.
    fn read_broadcast(&mut self, message: &BroadcastMessage) -> Result<(), Rejected> {
        let (expected, found) = (self.heads.len(), message.heads.len());
        if expected != found {
            return Err(Rejected::WrongLength { expected, found });
        }
        let most = self.plan.most_numbers();
        let Raw { link, known, scratch, .. } = self.raw();
        let broadcasts = &mut scratch.buffers.broadcasts;
        broadcasts.resize_with(expected, Broadcast::default);
        for (output, (broadcast, head)) in broadcasts.iter_mut().zip(&message.heads).enumerate() {
            (broadcast.round, broadcast.kernels) = (message.round, head.kernels);
            head.numbers.read(most, &mut broadcast.numbers, |bytes, numbers| {
                let known = known.get(output).filter(|_| link.is_in_step);
                let known = known.ok_or(Rejected::Garbled { what: "a difference to nothing" })?;
                decode(bytes, known, most, numbers).map(drop)
            })?;
        }
        Ok(())
    }

    /// Adopts the broadcasts in the buffers, for all outputs or none. If the server has lost
    /// rounds (a power cut, an old backup), the node goes on from where the server is, with all it
    /// knows.
    fn adopt(&mut self, has_lost_rounds: bool) -> Result<(), Rejected> {
        let Self { heads, raw: Some(raw), .. } = self else { return Ok(()) };
        let broadcasts = &raw.scratch.buffers.broadcasts;
        if heads.len() == 1 && !has_lost_rounds {
            return heads[0].adopt(&broadcasts[0]);
        }
        let saved: Vec<Vec<u8>> = heads.iter().map(|head| head.save()).collect();
        if has_lost_rounds {
            heads.iter_mut().for_each(|head| head.forget_round());
        }
        let adopted = heads.iter_mut().zip(broadcasts).try_for_each(|(head, one)| head.adopt(one));
        if adopted.is_err() {
            for (head, saved) in heads.iter_mut().zip(&saved) {
                // It was sound a moment ago.
                _ = head.restore(saved);
            }
        }
        adopted
    }

    fn hear_scale(&mut self, message: &ScaleMessage) -> Result<(), Rejected> {
        let scale = Scale::from_bytes(&message.scale)?;
        let Raw { scaling, link, .. } = self.raw();
        let old = scaling.scale().cloned();
        link.has_scale = true;
        if !scaling.follow(message.version, &scale)? {
            return Ok(());
        }
        match old {
            Some(old) => self.rescale(&self.plan.rescalings(&old, &scale)),
            // On a new connection the round comes first.
            None if self.raw().link.is_in_step => self.learn_held(),
            None => {}
        }
        Ok(())
    }
}
