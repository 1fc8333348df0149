//! [`Service`]: the protocol on the server's side. A call is one `Conversation`, which reads and
//! writes by turns: while a node doesn't read, nothing of it is read either, and it hears the
//! latest opening, not all that it missed.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, unfold};
use hedgerow::codec::Reader;
use hedgerow::message::{Rejected, Report, Upload};
use prost::Message;
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::coordinator::{Envelope, Errors, Opening, Refusal, Sent, Verdict};
use crate::pki::identity::check_node_name;
use crate::serve::hub::{Hub, Session};
use crate::serve::listener::PeerConnection;
use crate::session::{CloseReason, VERSION, Welcome};
use crate::transport::protocol::wire::{self, from_node, from_server};
use crate::transport::protocol::{FRAME, numbers_from_bytes};

/// A message without numbers is never longer.
const HEAD: usize = 1024;

/// Lets nodes join.
#[derive(Clone)]
pub struct Service {
    hub: Arc<Hub>,
}

impl Service {
    /// What is to be served, with its limits.
    pub fn server(hub: Arc<Hub>) -> wire::federation_server::FederationServer<Self> {
        let most = hub.limits().message_bytes.unwrap_or(4 * hub.plan().most_numbers() + HEAD);
        wire::federation_server::FederationServer::new(Self { hub }).max_decoding_message_size(most)
    }
}

#[tonic::async_trait]
impl wire::federation_server::Federation for Service {
    type JoinStream = BoxStream<'static, Result<wire::FromServer, Status>>;

    async fn join(
        &self,
        request: Request<Streaming<wire::FromNode>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        let link = request.extensions().get::<Arc<PeerConnection>>().cloned();
        let link = link.ok_or_else(|| Status::internal("a connection without an address"))?;
        let conversation = Conversation::new(Arc::clone(&self.hub), link, request.into_inner());
        let next = async |mut conversation: Conversation| {
            let said = conversation.next().await?;
            Some((said, conversation))
        };
        Ok(Response::new(unfold(conversation, next).boxed()))
    }
}

/// A node's stream.
struct Conversation {
    hub: Arc<Hub>,
    link: Arc<PeerConnection>,
    inbound: Streaming<wire::FromNode>,
    openings: watch::Receiver<Arc<Opening>>,
    opening: Arc<Opening>,
    /// None until its Hello has been heard.
    session: Option<Session>,
    reader: Reader,
    upload: Upload,
    report: Report,
    /// The latest that this stream has heard; 0 is nothing.
    told_round: u64,
    told_scale: u64,
    sent: Sent,
    is_over: bool,
}

impl Conversation {
    fn new(hub: Arc<Hub>, link: Arc<PeerConnection>, inbound: Streaming<wire::FromNode>) -> Self {
        let mut openings = hub.openings();
        let opening = Arc::clone(&openings.borrow_and_update());
        Self {
            hub,
            link,
            inbound,
            openings,
            opening,
            session: None,
            reader: Reader::default(),
            upload: Upload::default(),
            report: Report::default(),
            told_round: 0,
            told_scale: 0,
            sent: Sent::default(),
            is_over: false,
        }
    }

    /// What to say next; nothing if all is said.
    async fn next(&mut self) -> Option<Result<wire::FromServer, Status>> {
        if self.is_over {
            return None;
        }
        if self.session.is_none() {
            return match self.greet().await {
                Ok(welcome) => Some(Ok(self.say(from_server::Message::Welcome(welcome)))),
                Err(reason) => {
                    self.link.turned_away(&reason.message());
                    self.end(reason)
                }
            };
        }
        loop {
            if let Some(message) = self.due() {
                return Some(Ok(self.say(message)));
            }
            if self.opening.is_last {
                return self.end(CloseReason::GoingDown.into());
            }
            let close_signal =
                self.session.as_ref().map(|session| Arc::clone(&session.close_signal))?;
            tokio::select! {
                biased;
                reason = close_signal.given() => return self.end(reason.into()),
                () = self.link.expired() => {
                    return self.end(CloseReason::Expired.into());
                }
                changed = self.openings.changed() => {
                    if changed.is_err() {
                        return self.end(CloseReason::GoingDown.into());
                    }
                    self.opening = Arc::clone(&self.openings.borrow_and_update());
                }
                heard = self.inbound.message() => match heard {
                    Ok(Some(message)) => {
                        if let Some(Refusal { round, reason, is_last }) = self.hear(message) {
                            if is_last {
                                return self.end(CloseReason::BadMessages(reason.to_string()).into());
                            }
                            let refusal = wire::Refusal { round, reason: reason.to_string() };
                            return Some(Ok(self.say(from_server::Message::Refusal(refusal))));
                        }
                    }
                    Ok(None) => return None,
                    Err(broken) => return self.break_off(broken),
                },
            }
        }
    }

    fn end(&mut self, reason: Status) -> Option<Result<wire::FromServer, Status>> {
        self.is_over = true;
        Some(Err(reason))
    }

    /// The connection broke, or what came can't be read: too long, or no message.
    fn break_off(&mut self, broken: Status) -> Option<Result<wire::FromServer, Status>> {
        let is_bad =
            matches!(broken.code(), Code::OutOfRange | Code::Internal | Code::InvalidArgument);
        if let Some(session) = self.session.as_ref().filter(|_| is_bad) {
            let envelope = Envelope { sent: std::mem::take(&mut self.sent), ..Envelope::default() };
            let reason = Rejected::Garbled { what: "it is too long, or no message" };
            self.hub.garbled(session.sender, reason, envelope);
        }
        self.end(broken)
    }

    /// Hears the Hello and lets the node in.
    async fn greet(&mut self) -> Result<wire::Welcome, Status> {
        let patience = self.hub.limits().handshake;
        let late = |_| CloseReason::NoHello;
        let heard =
            tokio::time::timeout(patience, self.inbound.message()).await.map_err(late)??;
        let Some(wire::FromNode { message: Some(from_node::Message::Hello(hello)) }) = heard else {
            return Err(CloseReason::NotHello.into());
        };
        let wire::Hello { protocol, name, software, .. } = hello;
        if protocol != VERSION {
            return Err(CloseReason::Version(protocol).into());
        }
        match &self.link.peer {
            Some(peer) if peer.name != name => {
                return Err(CloseReason::OtherName.into());
            }
            Some(_) => {}
            None => check_node_name(&name).map_err(CloseReason::from)?,
        }
        let address = self.link.address.to_string();
        let close_signal = Arc::clone(&self.link.close_signal);
        let (session, welcome) =
            self.hub.join(&name, self.link.peer.clone(), &software, &address, close_signal).await?;
        self.link.joined();
        self.session = Some(session);
        // From here on it would be expelled; it may have been revoked between its certificate and
        // its Hello.
        if self.link.is_revoked() {
            return Err(CloseReason::Revoked.into());
        }
        // What has opened since is what it hears first.
        self.opening = Arc::clone(&self.openings.borrow_and_update());
        let Welcome { protocol, run, node, learning } = welcome;
        Ok(wire::Welcome { protocol, run, node, learning })
    }

    /// What of the latest opening this stream has not heard.
    fn due(&mut self) -> Option<from_server::Message> {
        let Self { opening, told_round, told_scale, .. } = self;
        if opening.scale_version() > *told_scale {
            *told_scale = opening.scale_version();
            // What the node owed was in another scale.
            self.reader.forget();
            return opening.scale.clone().map(from_server::Message::Scale);
        }
        if opening.round <= *told_round {
            return None;
        }
        let has_one_before = *told_round > 0 && *told_round + 1 == opening.round;
        let latest =
            opening.compressed.as_ref().filter(|_| has_one_before).unwrap_or(&opening.exact);
        *told_round = opening.round;
        self.sent.broadcasts += 1;
        let taken = self.session.as_ref().map_or(0, |session| session.ledger.taken(opening.round));
        Some(from_server::Message::Broadcast(wire::Broadcast { taken, ..latest.clone() }))
    }

    fn say(&mut self, message: from_server::Message) -> wire::FromServer {
        let message = wire::FromServer::from(message);
        self.sent.bytes += (message.encoded_len() + FRAME) as u64;
        message
    }

    /// Takes a message, or says why not.
    fn hear(&mut self, message: wire::FromNode) -> Option<Refusal> {
        let session = self.session.as_mut()?;
        let bytes = (message.encoded_len() + FRAME) as u64;
        let envelope = Envelope { bytes, sent: std::mem::take(&mut self.sent) };
        let most = self.hub.plan().most_numbers();
        let garbled = |reason| Some(self.hub.garbled(session.sender, reason, envelope));
        match message.message {
            Some(from_node::Message::Upload(message)) => {
                let wire::Upload { round, vote, numbers: bytes, samples, squared_error } = message;
                let numbers = &mut self.upload.numbers;
                let is_compressed = !self.hub.plan().is_plain_up();
                let read = if !is_compressed {
                    numbers_from_bytes(&bytes, most, numbers)
                } else if round == self.opening.round {
                    self.reader.read(&bytes, &self.opening.reference, most, numbers).map(drop)
                } else {
                    // What it differs from is gone: whatever it says, it is too late.
                    numbers.clear();
                    Ok(())
                };
                if let Err(reason) = read {
                    return garbled(reason);
                }
                (self.upload.round, self.upload.vote) = (round, vote);
                let errors = Errors { samples, squared_error };
                match self.hub.upload(session.sender, &mut self.upload, errors, envelope) {
                    Ok((verdict, ledger)) => {
                        session.ledger = ledger;
                        // One that is said again on a new stream is what this stream goes on from,
                        // too: its sender will hear that it was taken.
                        if is_compressed && matches!(verdict, Verdict::Taken | Verdict::Repeated) {
                            self.reader.acknowledge();
                        }
                        None
                    }
                    Err(refusal) => Some(refusal),
                }
            }
            Some(from_node::Message::Report(report)) => {
                if let Err(reason) =
                    numbers_from_bytes(&report.numbers, most, &mut self.report.numbers)
                {
                    return garbled(reason);
                }
                self.hub.report(session.sender, &self.report, envelope).err()
            }
            Some(from_node::Message::Idle(_)) => self.hub.idle(session.sender, envelope).err(),
            Some(from_node::Message::Hello(_)) => {
                garbled(Rejected::Garbled { what: "a second Hello" })
            }
            None => garbled(Rejected::Garbled { what: "an empty message" }),
        }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            self.link.has_joined.store(false, Relaxed);
            self.hub.leave(session.sender, self.sent);
        }
    }
}

impl From<CloseReason> for Status {
    fn from(reason: CloseReason) -> Self {
        let code = match reason {
            CloseReason::GoingDown | CloseReason::NotStored => Code::Unavailable,
            CloseReason::TooManyNodes { .. } | CloseReason::BadMessages(_) => {
                Code::ResourceExhausted
            }
            CloseReason::Replaced => Code::Aborted,
            CloseReason::Revoked | CloseReason::Expired | CloseReason::OtherName => {
                Code::PermissionDenied
            }
            CloseReason::NoHello => Code::DeadlineExceeded,
            CloseReason::NotHello | CloseReason::BadName(_) => Code::InvalidArgument,
            CloseReason::Version(_) => Code::FailedPrecondition,
        };
        Self::new(code, reason.to_string())
    }
}
