//! [`Server`]: everything the server of a federation does, without sockets, disks and clocks. It
//! takes what nodes say, closes rounds and has a message for every node; the driver decides when.

mod codec;
mod masked;
mod screening;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::aggregation::{Aggregation, PartialSum};
use crate::codec::Reference;
use crate::importance::{ImportanceSum, SharedImportance};
use crate::masking::MaskedSum;
use crate::message::{
    Broadcast, BroadcastHead, BroadcastMessage, NodeId, Numbers, Rejected, Report, ScaleMessage,
    ToNode, ToServer, Upload, UploadMessage,
};
use crate::method::ServerMethod;
use crate::plan::Plan;
use crate::scaling::{Rescaling, Scale, ScaleChange, ServerScaling};
use crate::state::{BadState, StateKind};

pub(crate) use codec::Down;
pub use codec::UploadReader;
use screening::Screening;
pub use screening::Suspect;

const KIND: StateKind = StateKind::new("server-heads");

/// The server of a federation. [`Plan::server`] makes one.
pub struct Server {
    plan: Plan,
    /// One for each output.
    pub(crate) heads: Vec<Box<dyn ServerMethod>>,
    scaling: Option<ServerScaling>,
    scale_change: Option<ScaleChange>,
    pub(crate) down: Down,
    /// By node; only of those that are connected, and only if uploads are compressed.
    readers: Vec<UploadReader>,
    uploads: Vec<Upload>,
    /// If the plan asks for it.
    importance: Option<Box<SharedImportance>>,
    /// If the plan asks for it.
    screening: Option<Box<Screening>>,
    /// What came in the open round, if uploads are masked.
    masked: Option<Box<MaskedSum>>,
}

/// What came of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Closed {
    /// Whether there were uploads, so that there is a new broadcast.
    pub has_uploads: bool,
    /// Whether another scale was agreed on.
    pub has_scale: bool,
}

impl Closed {
    /// Whether there is something to tell the nodes.
    pub fn is_news(self) -> bool {
        self.has_uploads || self.has_scale
    }
}

impl Plan {
    /// A new server.
    pub fn server(&self) -> Server {
        let heads: Vec<_> = (0..self.outputs()).map(|_| self.server_method()).collect();
        let mut down = Down::new(self);
        down.learn_broadcast(&heads);
        let is_screened = self.config().aggregation == Aggregation::Screened;
        let mut server = Server {
            screening: is_screened.then(|| Box::new(Screening::new(&heads))),
            plan: self.clone(),
            heads,
            scaling: self.server_scaling(),
            scale_change: None,
            down,
            readers: Vec::new(),
            uploads: Vec::new(),
            importance: self.shared_importance().map(Box::new),
            masked: None,
        };
        server.renew_masked();
        server
    }
}

impl Server {
    /// What the federation agreed on.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The open round.
    pub fn round(&self) -> u64 {
        self.heads[0].broadcast().round
    }

    /// Uploads that the open round has so far, for drivers that wait for a quorum.
    pub fn uploads(&self) -> usize {
        self.masked().map_or_else(|| self.readable_uploads(), MaskedSum::uploads)
    }

    /// Uploads that the round would close with now: masked ones have to be opened before.
    fn readable_uploads(&self) -> usize {
        let held = self.screening.as_ref().map_or(0, |screening| screening.uploads());
        held + self.heads[0].uploads()
    }

    /// Whether uploads are compared before they count, so that they can't be added up on the way.
    pub fn is_screening(&self) -> bool {
        self.screening.is_some()
    }

    /// Nodes whose uploads look wrong, by number; see [`Aggregation::Screened`].
    pub fn suspects(&self) -> impl Iterator<Item = (NodeId, &Suspect)> {
        self.screening.iter().flat_map(|screening| screening.suspects())
    }

    /// For each output, the round in which the history that nodes go by begins. One that changes
    /// means that nodes are told to forget the past.
    pub fn history_begins(&self) -> impl Iterator<Item = u64> {
        self.heads.iter().map(|head| head.history_begin())
    }

    /// The method's server half of an output.
    ///
    /// # Panics
    /// If the plan has no such output.
    pub fn method(&self, output: usize) -> &dyn ServerMethod {
        self.heads[output].as_ref()
    }

    /// The latest broadcast of an output.
    ///
    /// # Panics
    /// If the plan has no such output.
    pub fn broadcast(&self, output: usize) -> &Broadcast {
        self.heads[output].broadcast()
    }

    /// The scale that was agreed on; none if there is none, or none yet.
    pub fn scale(&self) -> Option<&Scale> {
        self.scaling.as_ref()?.scale()
    }

    /// Version of that scale; 0 if there is none.
    pub fn scale_version(&self) -> u64 {
        self.scaling.as_ref().map_or(0, ServerScaling::version)
    }

    /// The error of a forecast that costs nothing: that always says the mean of all labels which a
    /// node has reported; of classes, the share of wrong answers if it always says the most
    /// frequent one. None if the node has reported no label, or scales aren't agreed on.
    pub fn mean_forecast_error(&self, node: NodeId) -> Option<f64> {
        let summary = self.scaling.as_ref()?.reported(node)?;
        let labels = self.plan.inputs()..summary.columns();
        let means: Option<Vec<f64>> = labels.clone().map(|label| summary.mean(label)).collect();
        let means = means?;
        if self.plan.classes().is_none() {
            let squares = labels.map(|label| summary.deviation(label) * summary.deviation(label));
            return Some(squares.sum::<f64>() / means.len() as f64);
        }
        // Labels of a class are -1 and +1. Two classes have one label.
        let share = |mean: f64| 0.5 * (1.0 + mean);
        let most = match *means {
            [mean] => share(mean).max(share(-mean)),
            _ => means.iter().fold(0.0, |most: f64, mean| most.max(share(*mean))),
        };
        Some((1.0 - most).clamp(0.0, 1.0))
    }

    /// Whether nodes are still to agree on their first scale: until then there are no uploads.
    pub fn is_unscaled(&self) -> bool {
        self.scaling.as_ref().is_some_and(|scaling| scaling.scale().is_none())
    }

    /// Nodes that have reported a label, and how many must have before the first scale; none if
    /// there is nothing to agree on.
    pub fn labelled_nodes(&self) -> Option<(usize, usize)> {
        self.scaling.as_ref().map(ServerScaling::labelled_nodes)
    }

    /// How the latest scale differs from the one before; none if it hasn't changed since this
    /// server was made or restored.
    pub fn scale_change(&self) -> Option<&ScaleChange> {
        self.scale_change.as_ref()
    }

    /// Forgets what a node has reported of its samples, and says whether there was something: the
    /// next scale is made without it. For nodes that are banned or whose certificates are revoked.
    /// If a node reports again, it counts again. The scale changes when a round closes next.
    pub fn forget_node(&mut self, node: NodeId) -> bool {
        self.screening.iter_mut().for_each(|screening| screening.forget(node));
        self.scaling.as_mut().is_some_and(|scaling| scaling.forget_node(node))
    }

    /// Begins the agreement on a scale anew, from the reports that are known: the scale that
    /// results when a round closes next doesn't depend on the present one. Says whether there is
    /// anything to agree on. Until the reports are enough for a first scale, the present one stays.
    pub fn reset_scale(&mut self) -> bool {
        self.scaling.as_mut().map(ServerScaling::reset).is_some()
    }

    /// Whether a report says what the node has reported last: nodes repeat their report on every
    /// connection.
    pub fn has_report(&self, node: NodeId, report: &Report) -> bool {
        self.scaling.as_ref().is_some_and(|scaling| scaling.has_report(node, report))
    }

    /// What nodes have told of the importance of columns; none unless the plan has
    /// [`crate::importance::ImportanceScope::Shared`].
    pub fn importance(&self) -> Option<&SharedImportance> {
        self.importance.as_deref()
    }

    /// See [`Plan::importance_unit`].
    pub fn importance_unit(&self) -> f64 {
        self.plan.importance_unit(self.scale().map(|scale| scale.axis(self.plan.inputs())))
    }

    /// A node is connected: what it compresses starts anew.
    pub fn connected(&mut self, node: NodeId) {
        if !self.plan.is_plain_up() {
            let (at, outputs) = (node as usize, self.plan.outputs());
            if at >= self.readers.len() {
                self.readers.resize_with(at + 1, || UploadReader::new(outputs));
            }
            self.readers[at].forget();
        }
    }

    /// Takes a node's message, or refuses it and stays as it was.
    pub fn accept(&mut self, from: NodeId, message: &ToServer) -> Result<(), Rejected> {
        match message {
            ToServer::Report(report) => self.accept_report(from, report),
            ToServer::Upload(upload) => self.accept_message(from, upload),
            ToServer::Idle => Ok(()),
        }
    }

    /// Takes a node's report in place of its last one, or refuses it and stays as it was.
    pub fn accept_report(&mut self, from: NodeId, report: &Report) -> Result<(), Rejected> {
        self.scaling.as_mut().ok_or(Rejected::NotExpected)?.accept(from, report)
    }

    fn accept_message(&mut self, from: NodeId, message: &UploadMessage) -> Result<(), Rejected> {
        let mut uploads = core::mem::take(&mut self.uploads);
        let (known, most) = (&self.down.known, self.plan.most_numbers());
        let reader = self.readers.get_mut(from as usize);
        let mut accepted = codec::read(reader, message, known, most, &mut uploads);
        if accepted.is_ok() {
            accepted = self.accept_with(from, &uploads, &message.importance);
        }
        self.uploads = uploads;
        if accepted.is_ok() {
            self.readers.get_mut(from as usize).into_iter().for_each(UploadReader::acknowledge);
        }
        accepted
    }

    /// Takes the uploads of a node with what it tells of the importance of columns, or refuses both
    /// and stays as it was. With [`Aggregation::Screened`], numbers that no node can have are
    /// evidence against the node.
    pub fn accept_with(
        &mut self,
        from: NodeId,
        uploads: &[Upload],
        importance: &[f32],
    ) -> Result<(), Rejected> {
        self.check_importance(importance)?;
        if self.is_screening() {
            return self.hold(from, uploads, importance);
        }
        self.accept_uploads(from, uploads)?;
        self.importance.iter_mut().for_each(|shared| shared.open.add(importance));
        Ok(())
    }

    /// Refuses what no node can tell in the open round.
    pub(crate) fn check_importance(&self, told: &[f32]) -> Result<(), Rejected> {
        match &self.importance {
            Some(shared) => shared.open.check(self.round(), told),
            None => check_outputs(0, told.len()),
        }
    }

    /// Nothing yet of what nodes tell of the importance of columns; none if they don't.
    pub(crate) fn importance_sum(&self) -> Option<ImportanceSum> {
        let shared = self.importance.as_ref()?;
        let mut sum = shared.open.clone();
        sum.clear();
        Some(sum)
    }

    /// Keeps uploads until the round closes and they can be compared.
    fn hold(
        &mut self,
        from: NodeId,
        uploads: &[Upload],
        importance: &[f32],
    ) -> Result<(), Rejected> {
        if self.is_unscaled() {
            return Err(Rejected::Unscaled);
        }
        check_outputs(self.heads.len(), uploads.len())?;
        let Some(screening) = &mut self.screening else { return Err(Rejected::NotExpected) };
        screening.hold(&self.heads, from, uploads, importance)
    }

    /// Takes the uploads of a node, one for each output, or refuses them and stays as it was.
    pub fn accept_uploads(&mut self, from: NodeId, uploads: &[Upload]) -> Result<(), Rejected> {
        if self.is_screening() {
            return self.hold(from, uploads, &[]);
        }
        if self.is_unscaled() {
            return Err(Rejected::Unscaled);
        }
        self.check_unmasked()?;
        match (&mut self.heads[..], uploads) {
            ([head], [upload]) => head.accept(from, upload),
            _ => {
                // All outputs or none.
                let mut parts = self.parts();
                self.accept_into(&mut parts, from, uploads)?;
                self.merge(&parts)
            }
        }
    }

    /// Refuses uploads that anyone can read, where they should be masked.
    fn check_unmasked(&self) -> Result<(), Rejected> {
        if self.plan.is_masked() { Err(Rejected::Unmasked) } else { Ok(()) }
    }

    /// Nothing yet of the open round, for each output, to be added to by [`Server::accept_into`].
    pub fn parts(&self) -> Vec<PartialSum> {
        self.heads.iter().map(|head| head.part()).collect()
    }

    /// Makes parts that [`Server::parts`] began parts of the open round again, and empty.
    pub fn renew(&self, parts: &mut [PartialSum]) {
        self.heads.iter().zip(parts).for_each(|(head, part)| head.renew(part));
    }

    /// Takes the uploads of a node into a part of the round, of which relays and threads each have
    /// their own. If it refuses them, the parts of several outputs are of no use any more.
    pub fn accept_into(
        &self,
        parts: &mut [PartialSum],
        from: NodeId,
        uploads: &[Upload],
    ) -> Result<(), Rejected> {
        self.check_unmasked()?;
        check_outputs(self.heads.len(), uploads.len())?;
        let mut heads = self.heads.iter().zip(parts).zip(uploads);
        heads.try_for_each(|((head, part), upload)| head.accept_into(part, from, upload))
    }

    /// Takes all uploads of a part at once, or refuses it and stays as it was. The result has the
    /// bits of the uploads one by one. A server that compares uploads refuses all parts.
    pub fn merge(&mut self, parts: &[PartialSum]) -> Result<(), Rejected> {
        if self.is_screening() {
            return Err(Rejected::NotExpected);
        }
        self.check_parts(parts)?;
        self.heads.iter_mut().zip(parts).try_for_each(|(head, part)| head.merge(part))
    }

    /// The same with what its nodes tell of the importance of columns, for relays.
    pub fn merge_with(
        &mut self,
        parts: &[PartialSum],
        importance: Option<&ImportanceSum>,
    ) -> Result<(), Rejected> {
        self.check_parts(parts)?;
        let told = importance.filter(|told| !told.is_empty());
        if let Some(told) = told {
            // All or nothing.
            let mut sum = self.importance_sum().ok_or(Rejected::NotExpected)?;
            sum.merge(told)?;
        }
        self.merge(parts)?;
        self.add_importance(told)
    }

    /// Adds what was checked before.
    pub(crate) fn add_importance(&mut self, told: Option<&ImportanceSum>) -> Result<(), Rejected> {
        match (&mut self.importance, told) {
            (Some(shared), Some(told)) => shared.open.merge(told),
            _ => Ok(()),
        }
    }

    /// Refuses parts of several outputs that one output could merge and another could not.
    pub(crate) fn check_parts(&self, parts: &[PartialSum]) -> Result<(), Rejected> {
        check_outputs(self.heads.len(), parts.len())?;
        let [first, others @ ..] = parts else { return Ok(()) };
        if others.is_empty() {
            return Ok(());
        }
        let mut heads = self.heads.iter().zip(parts);
        heads.try_for_each(|(head, part)| part.fits(&head.part()))?;
        if others.iter().all(|part| part.has_same_nodes(first)) {
            Ok(())
        } else {
            Err(Rejected::Garbled { what: "parts of different nodes" })
        }
    }

    /// Takes over the broadcasts of another server of the same plan, for relays: it knows what
    /// uploads of that round look like, but can't close it.
    pub(crate) fn follow(&mut self, broadcasts: &[Broadcast]) -> Result<(), Rejected> {
        check_outputs(self.heads.len(), broadcasts.len())?;
        self.heads.iter_mut().zip(broadcasts).try_for_each(|(head, one)| head.follow(one))?;
        self.renew_masked();
        Ok(())
    }

    /// Closes the round with the accepted uploads: first the models, then reports become a scale,
    /// and the models are rescaled.
    pub fn close_round(&mut self) -> Closed {
        let has_uploads = self.readable_uploads() > 0;
        if has_uploads {
            let round = self.round();
            if let Some(screening) = &mut self.screening {
                let importance = self.importance.as_mut().map(|shared| &mut shared.open);
                screening.close(&mut self.heads, importance);
            }
            self.importance.iter_mut().for_each(|shared| shared.close_round(round));
            self.heads.iter_mut().for_each(|head| _ = head.close_round());
            self.down.send(&mut self.heads);
            self.renew_masked();
        }
        Closed { has_uploads, has_scale: self.close_scaling() }
    }

    fn close_scaling(&mut self) -> bool {
        let Some(scaling) = &mut self.scaling else { return false };
        let (version, before) = (scaling.version(), scaling.scale().cloned());
        let Some(scale) = scaling.close_round() else { return false };
        let change = ScaleChange::new((version, before.as_ref()), (version + 1, scale));
        self.scale_change = Some(change);
        if let Some(before) = before {
            let rescalings = self.plan.rescalings(&before, scale);
            for (output, rescaling) in rescalings.iter().enumerate() {
                if rescaling.is_some() {
                    // Nodes forget what they owe when they hear of the scale.
                    self.readers.iter_mut().for_each(|node| node.readers[output].forget());
                }
            }
            self.rescale(&rescalings);
        }
        true
    }

    /// Takes the models of all outputs to another scale, between two rounds, for drivers that scale
    /// samples themselves; see [`Plan::rescalings`].
    ///
    /// # Panics
    /// If a rescaling was made for another dictionary.
    pub fn rescale(&mut self, rescalings: &[Option<Rescaling>]) {
        for (head, rescaling) in self.heads.iter_mut().zip(rescalings) {
            rescaling.iter().for_each(|rescaling| head.rescale(rescaling));
        }
        self.screening.iter_mut().for_each(|screening| screening.rescaled(rescalings));
        if let (Some(shared), Some(Some(first))) = (&mut self.importance, rescalings.first()) {
            shared.rescale(first);
        }
        self.down.rescaled(&self.heads);
        self.renew_masked();
    }

    /// What opens the round, for one node: the scale, if there is one, and the broadcast. See
    /// [`Server::broadcast_message`].
    pub fn opening(&self, taken: u64, has_previous: bool) -> impl Iterator<Item = ToNode> {
        let broadcast = self.broadcast_message(taken, has_previous);
        self.scale_message().into_iter().chain([broadcast])
    }

    /// The scale as it travels; none if there is none.
    #[must_use]
    pub fn scale_message(&self) -> Option<ToNode> {
        let (version, scale) = (self.scale_version(), self.scale()?.to_bytes());
        Some(ToNode::Scale(ScaleMessage { version, scale }))
    }

    /// The broadcast as it travels to a node. `taken` is the last round of which its upload was
    /// taken, 0 if none was. A node that has the broadcast before can be sent a compressed one, or
    /// one that only says what has changed.
    #[must_use]
    pub fn broadcast_message(&self, taken: u64, has_previous: bool) -> ToNode {
        let compressed = self.down.latest().filter(|_| has_previous);
        let heads = self.heads.iter().enumerate().map(|(output, head)| {
            let kernels = head.broadcast().kernels;
            let numbers = match compressed {
                Some(bytes) => Numbers::Compressed(bytes[output].clone()),
                None if has_previous => Numbers::Plain(head.broadcast().numbers.clone()),
                None => Numbers::Plain(head.catch_up().into_owned().numbers),
            };
            BroadcastHead { kernels, numbers }
        });
        ToNode::Broadcast(BroadcastMessage { round: self.round(), heads: heads.collect(), taken })
    }

    /// Whether nodes that have the broadcast before are sent another message than the others.
    pub fn has_difference(&self) -> bool {
        let mut catch_ups = self.heads.iter().map(|head| head.catch_up());
        self.down.latest().is_some() || catch_ups.any(|whole| matches!(whole, Cow::Owned(_)))
    }

    /// What compressed uploads of the open round differ from, for each output; empty if nothing is
    /// compressed. For drivers that read uploads by themselves with an [`UploadReader`].
    pub fn references(&self) -> &Arc<Vec<Reference>> {
        &self.down.known
    }

    /// The models and everything else that has to survive a restart, but for the scaling. Uploads
    /// of the open round are not part of it.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let mut saved = KIND.save_each(self.heads.iter().map(|head| head.save()));
        if let Some(shared) = &self.importance {
            saved = shared.save_with(saved);
        }
        match &self.screening {
            Some(screening) => screening.save_with(saved),
            None => saved,
        }
    }

    /// The scaling, apart from the rest because it is large and rarely changes; none if there is
    /// nothing to agree on.
    pub fn save_scaling(&self) -> Option<Vec<u8>> {
        self.scaling.as_ref().map(ServerScaling::save)
    }

    /// Continues from the states of [`Server::save`] and [`Server::save_scaling`] of the same plan.
    pub fn restore(plan: &Plan, saved: &[u8], scaling: Option<&[u8]>) -> Result<Self, BadState> {
        let mut server = plan.server();
        let mut saved = saved.to_vec();
        if let Some(screening) = &mut server.screening {
            saved = screening.restore_with(&saved)?;
        }
        if let Some(shared) = &mut server.importance {
            saved = shared.restore_with(&saved)?;
        }
        let saved = KIND.restore_each(&saved, plan.outputs())?;
        let mut heads = server.heads.iter_mut().zip(&saved);
        heads.try_for_each(|(head, saved)| head.restore(saved))?;
        match (&mut server.scaling, scaling) {
            (Some(scaling), Some(saved)) => scaling.restore(saved)?,
            (None, None) => {}
            _ => {
                return Err(BadState::new(
                    "it differs from the plan on whether scales are agreed on",
                ));
            }
        }
        server.down.learn_broadcast(&server.heads);
        server.renew_masked();
        Ok(server)
    }
}

/// Refuses messages for another number of outputs.
fn check_outputs(expected: usize, found: usize) -> Result<(), Rejected> {
    if expected == found { Ok(()) } else { Err(Rejected::WrongLength { expected, found }) }
}
