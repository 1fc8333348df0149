//! [`ServerSession`]: the server's side of a stream.

use std::sync::Arc;
use std::time::Instant;

use hedgerow::Plan;
use hedgerow::message::{Numbers, Rejected, ToServer, Upload, UploadMessage};
use hedgerow::method::MethodInfo;
use hedgerow::server::UploadReader;

use super::{CloseReason, FromNode, FromServer, Hello, VERSION, Versions, Welcome};
use crate::coordinator::{
    Envelope, HearingResult, Ledger, Opening, Refusal, Said, Sender, Sent, Verdict,
};
use crate::pki::identity::{Peer, Role, check_node_name};
use crate::plan_json::plan_in_version;

/// Nodes of older versions of the protocol read the first revision of all methods only.
const REVISED: u32 = 2;

/// The server's side of a stream, from Hello to the end. It holds at most one unsent refusal; what
/// it sends of rounds is always the latest.
pub struct ServerSession {
    plan: Plan,
    /// The name in the node's certificate; none in plain text.
    certified: Option<Peer>,
    /// When a Hello must have come.
    hello_by: Instant,
    /// The version of the protocol that both sides speak, once a Hello has come.
    version: u32,
    /// None until the node is admitted.
    member: Option<(Sender, Ledger)>,
    opening: Arc<Opening>,
    /// The latest round and scale that were sent; 0 for none.
    told_round: u64,
    told_scale: u64,
    /// What to send before anything else.
    unsent: Option<FromServer>,
    end: Option<CloseReason>,
    reader: UploadReader,
    uploads: Vec<Upload>,
    /// Bytes and broadcasts sent since the node's last message.
    sent: Sent,
}

impl ServerSession {
    /// A stream on which nothing has been said. `certified` is the owner of the certificate.
    pub fn new(
        plan: &Plan,
        certified: Option<Peer>,
        hello_by: Instant,
        opening: Arc<Opening>,
    ) -> Self {
        Self {
            plan: plan.clone(),
            certified,
            hello_by,
            version: VERSION,
            member: None,
            opening,
            told_round: 0,
            told_scale: 0,
            unsent: None,
            end: None,
            reader: UploadReader::new(plan.outputs()),
            uploads: Vec::new(),
            sent: Sent::default(),
        }
    }

    /// The node and its stream, once it is admitted.
    pub fn sender(&self) -> Option<Sender> {
        self.member.map(|(sender, _)| sender)
    }

    /// Bytes and broadcasts that no message of the node has accounted for.
    pub fn unaccounted(&self) -> Sent {
        self.sent
    }

    /// When a Hello must have come; none once it has.
    pub fn deadline(&self) -> Option<Instant> {
        (self.member.is_none() && self.end.is_none()).then_some(self.hello_by)
    }

    /// Ends the session; the first reason stays.
    pub fn close(&mut self, reason: CloseReason) {
        self.end.get_or_insert(reason);
    }

    /// Why the session ends, once everything is sent.
    pub fn ended(&self) -> Option<&CloseReason> {
        self.end.as_ref()
    }

    /// A newer opening.
    pub fn open(&mut self, opening: Arc<Opening>) {
        self.opening = opening;
    }

    /// The driver has admitted the node. The welcome is put in the version that both sides speak.
    pub fn admit(&mut self, sender: Sender, ledger: Ledger, welcome: Welcome) {
        self.member = Some((sender, ledger));
        let protocol = self.version;
        let learning = plan_in_version(&self.plan, welcome.learning, protocol);
        self.unsent = Some(FromServer::Welcome(Welcome { protocol, learning, ..welcome }));
    }

    /// Checks the first message. The driver admits the node that sent it, or ends the session.
    pub fn greet(&mut self, message: Option<FromNode>) -> Result<Hello, CloseReason> {
        let Some(FromNode::Hello(hello)) = message else { return Err(CloseReason::NotHello) };
        let node = hello.versions();
        self.version = Versions::OWN.common(node).ok_or(CloseReason::Version { node })?;
        let MethodInfo { name: method, revision, .. } = *self.plan.method();
        if self.version < REVISED && revision > 1 {
            return Err(CloseReason::Revision { method, revision });
        }
        match &self.certified {
            Some(Peer { role: Role::Operator, .. }) => return Err(CloseReason::NotANode),
            Some(Peer { name, .. }) if *name != hello.name => return Err(CloseReason::OtherName),
            Some(_) => {}
            None => check_node_name(&hello.name)?,
        }
        Ok(hello)
    }

    /// Hears a message of an admitted node that has `bytes` bytes, or one that can't be read.
    /// `hear` passes it to the coordinator.
    pub fn receive(
        &mut self,
        message: Result<FromNode, Rejected>,
        bytes: u64,
        hear: impl FnOnce(Sender, Said<'_>, Envelope) -> HearingResult,
    ) {
        let Some((sender, _)) = self.member else { return };
        let importance;
        let said = match message {
            Ok(FromNode::Message(ToServer::Upload(message))) => {
                let Self { opening, plan, reader, uploads, .. } = self;
                match read(&message, opening, plan, reader, uploads) {
                    Ok(()) => {
                        importance = message.importance;
                        Said::Upload(uploads, message.errors, &importance)
                    }
                    Err(reason) => Said::Garbled(reason),
                }
            }
            Ok(FromNode::Message(ToServer::Report(report))) => Said::Report(report),
            Ok(FromNode::Message(ToServer::Idle)) => Said::Idle,
            Ok(FromNode::Hello(_)) => Said::Garbled(Rejected::Garbled { what: "a second Hello" }),
            Err(reason) => Said::Garbled(reason),
        };
        match hear(sender, said, Envelope { bytes, sent: std::mem::take(&mut self.sent) }) {
            Ok(None) => {}
            Ok(Some((verdict, ledger))) => {
                self.member = Some((sender, ledger));
                // A repeated upload on a new stream is what this stream goes on from: its sender
                // will hear that it was accepted.
                if matches!(verdict, Verdict::Taken | Verdict::Repeated) {
                    self.reader.acknowledge();
                }
            }
            Err(Refusal { reason, is_last: true, .. }) => {
                self.close(CloseReason::BadMessages(reason.to_string()));
            }
            Err(Refusal { round, reason, .. }) => {
                self.unsent = Some(FromServer::Refusal { round, reason: reason.to_string() });
            }
        }
    }

    /// The next message to send; none if everything is sent. A session that ends sends nothing
    /// more.
    pub fn transmit(&mut self) -> Option<FromServer> {
        let (_, ledger) = self.member.filter(|_| self.end.is_none())?;
        if let Some(message) = self.unsent.take() {
            return Some(message);
        }
        let opening = &self.opening;
        if opening.scale_version > self.told_scale {
            self.told_scale = opening.scale_version;
            // What the node owed was in another scale.
            self.reader.forget();
            return opening.scale.clone().map(FromServer::from);
        }
        if opening.round <= self.told_round {
            if opening.is_last {
                self.close(CloseReason::GoingDown);
            }
            return None;
        }
        let has_previous = self.told_round > 0 && self.told_round + 1 == opening.round;
        self.told_round = opening.round;
        self.sent.broadcasts += 1;
        Some(opening.broadcast(ledger.taken(opening.round), has_previous).into())
    }

    /// The last message that was sent has so many bytes.
    pub fn sent(&mut self, bytes: u64) {
        self.sent.bytes += bytes;
    }
}

/// Reads an upload into one for each output.
fn read(
    message: &UploadMessage,
    opening: &Opening,
    plan: &Plan,
    reader: &mut UploadReader,
    uploads: &mut Vec<Upload>,
) -> Result<(), Rejected> {
    if !plan.is_plain_up() && message.round == opening.round {
        return reader.read(message, &opening.references, plan.most_numbers(), uploads);
    }
    let (expected, found) = (plan.outputs(), message.heads.len());
    if found != expected {
        return Err(Rejected::WrongLength { expected, found });
    }
    uploads.resize_with(found, Upload::default);
    for (upload, head) in uploads.iter_mut().zip(&message.heads) {
        (upload.round, upload.vote) = (message.round, head.vote);
        match &head.numbers {
            Numbers::Plain(numbers) => upload.numbers.clone_from(numbers),
            // The broadcast that it differs from is gone: the upload is too late whatever it says.
            Numbers::Compressed(_) => upload.numbers.clear(),
        }
    }
    Ok(())
}
