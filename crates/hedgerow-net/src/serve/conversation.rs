//! [`Conversation`]: drives the [`ServerSession`] of one stream. It reads and writes by turns:
//! while a node doesn't read, nothing of it is read either, and it hears the latest opening, not
//! all that it missed.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use hedgerow::message::Rejected;
use tokio::sync::watch;
use tokio::time::timeout_at;

use super::hub::{Hub, now};
use super::listener::PeerConnection;
use crate::coordinator::Opening;
use crate::session::{CloseReason, FromNode, FromServer, Hello, ServerSession};

/// How a transport fails to receive.
pub trait Failure: Send + 'static {
    /// Whether a message was too long or can't be read, rather than the connection lost.
    fn is_bad_message(&self) -> bool;
    /// The failure in words.
    fn reason(&self) -> String;
}

/// Why a conversation ended.
#[derive(Debug)]
pub enum Ending<E> {
    /// The server ended it.
    Closed(CloseReason),
    /// The transport failed.
    Broken(E),
}

/// Messages of a node with their bytes. A message may be unreadable.
pub type Inbound<E> = BoxStream<'static, Result<(Result<FromNode, Rejected>, u64), E>>;

/// A node's stream.
pub struct Conversation<E> {
    hub: Arc<Hub>,
    peer: Arc<PeerConnection>,
    inbound: Inbound<E>,
    openings: watch::Receiver<Arc<Opening>>,
    session: ServerSession,
    is_over: bool,
}

impl<E: Failure> Conversation<E> {
    /// A stream on which nothing has been said.
    pub fn new(hub: Arc<Hub>, peer: Arc<PeerConnection>, inbound: Inbound<E>) -> Self {
        let mut openings = hub.openings();
        let opening = Arc::clone(&openings.borrow_and_update());
        let certified = peer.peer.clone();
        let hello_by = now() + hub.limits().handshake.0;
        let session = ServerSession::new(hub.plan(), certified, hello_by, opening);
        Self { hub, peer, inbound, openings, session, is_over: false }
    }

    /// The next message to send; none if the conversation is over.
    pub async fn next(&mut self) -> Option<Result<FromServer, Ending<E>>> {
        if self.is_over {
            return None;
        }
        if self.session.sender().is_none()
            && let Err(ending) = self.greet().await
        {
            self.is_over = true;
            let reason = match &ending {
                Ending::Closed(reason) => reason.to_string(),
                Ending::Broken(failure) => failure.reason(),
            };
            self.peer.turned_away(&reason);
            return Some(Err(ending));
        }
        loop {
            if let Some(message) = self.session.transmit() {
                return Some(Ok(message));
            }
            if let Some(reason) = self.session.ended() {
                self.is_over = true;
                return Some(Err(Ending::Closed(reason.clone())));
            }
            tokio::select! {
                biased;
                reason = self.peer.close_signal.given() => self.session.close(reason),
                () = self.peer.expired() => self.session.close(CloseReason::Expired),
                changed = self.openings.changed() => match changed {
                    Ok(()) => self.session.open(Arc::clone(&self.openings.borrow_and_update())),
                    Err(_) => self.session.close(CloseReason::GoingDown),
                },
                received = self.inbound.next() => match received? {
                    Ok((message, bytes)) => self.receive(message, bytes),
                    Err(failure) => {
                        if failure.is_bad_message() {
                            let what = "it is too long, or no message";
                            self.receive(Err(Rejected::Garbled { what }), 0);
                        }
                        self.is_over = true;
                        return Some(Err(Ending::Broken(failure)));
                    }
                },
            }
        }
    }

    /// The message that was returned last has so many bytes.
    pub fn sent(&mut self, bytes: u64) {
        self.session.sent(bytes);
    }

    fn receive(&mut self, message: Result<FromNode, Rejected>, bytes: u64) {
        let Self { session, hub, .. } = self;
        session.receive(message, bytes, |sender, said, envelope| hub.hear(sender, said, envelope));
    }

    /// Hears the Hello and lets the node in.
    async fn greet(&mut self) -> Result<(), Ending<E>> {
        let received = match self.session.deadline() {
            Some(deadline) => timeout_at(deadline.into(), self.inbound.next()).await,
            None => Ok(self.inbound.next().await),
        };
        let first = match received {
            Ok(Some(Ok((message, _)))) => message.ok(),
            Ok(Some(Err(failure))) => return Err(Ending::Broken(failure)),
            Ok(None) => None,
            Err(_) => return Err(Ending::Closed(CloseReason::NoHello)),
        };
        let admitted = async {
            let Hello { name, software, .. } = self.session.greet(first)?;
            let address = self.peer.address.to_string();
            let close_signal = Arc::clone(&self.peer.close_signal);
            let certificate = self.peer.peer.as_ref().map(|peer| &peer.serial[..]);
            let (member, welcome) =
                self.hub.join(&name, certificate, &software, &address, close_signal).await?;
            self.peer.joined();
            self.session.admit(member.sender, member.ledger, welcome);
            // The list may have been read again between the handshake and `join`, when `expel` did
            // not know this stream.
            if self.peer.is_revoked() {
                return Err(CloseReason::Revoked);
            }
            // What has opened since is what it hears first.
            self.session.open(Arc::clone(&self.openings.borrow_and_update()));
            Ok(())
        };
        admitted.await.map_err(Ending::Closed)
    }
}

impl<E> Drop for Conversation<E> {
    fn drop(&mut self) {
        if let Some(sender) = self.session.sender() {
            self.peer.has_joined.store(false, Relaxed);
            self.hub.leave(sender, self.session.unaccounted());
        }
    }
}
