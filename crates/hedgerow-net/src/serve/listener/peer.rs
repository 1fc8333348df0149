//! [`PeerConnection`]: what is known of the other end of a connection.

use std::error::Error;
use std::fmt::Display;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Admission;
use super::reasons::reason_of;
use crate::pki::identity::{Peer, Role};
use crate::serve::hub::CloseSignal;
use crate::session::CloseReason;

/// Timers are set again after this time.
const LONGEST_SLEEP: Duration = Duration::from_secs(86_400);

/// The other end of a connection.
pub struct PeerConnection {
    /// Its authenticated identity; none in plain text.
    pub peer: Option<Peer>,
    /// Its address.
    pub address: SocketAddr,
    /// Whether it has a stream. A connection without one is closed after a while.
    pub has_joined: AtomicBool,
    /// Asks it to end; a connection that doesn't is cut.
    pub close_signal: Arc<CloseSignal>,
    /// When its certificate expires.
    end: Option<Instant>,
    has_expired: watch::Sender<bool>,
    /// Whether it was logged.
    is_noted: AtomicBool,
    admission: Arc<Admission>,
}

impl PeerConnection {
    pub(super) fn new(
        peer: Option<Peer>,
        end: Option<Instant>,
        address: SocketAddr,
        admission: Arc<Admission>,
    ) -> Self {
        Self {
            peer,
            address,
            has_joined: AtomicBool::new(false),
            close_signal: Arc::default(),
            end,
            has_expired: watch::Sender::new(false),
            is_noted: AtomicBool::new(false),
            admission,
        }
    }

    fn name(&self) -> Option<&str> {
        self.peer.as_ref().map(|peer| peer.name.as_str())
    }

    /// Whether its certificate is an operator's.
    pub(super) fn is_operator(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.role == Role::Operator)
    }

    /// A node joined on it.
    pub fn joined(&self) {
        self.has_joined.store(true, Relaxed);
        self.is_noted.store(true, Relaxed);
    }

    /// Counts and logs that it was not admitted.
    pub fn turned_away(&self, reason: &dyn Display) {
        self.is_noted.store(true, Relaxed);
        self.admission.turn_away(self.address, self.name(), reason);
    }

    /// Whether its certificate was revoked after the handshake.
    pub fn is_revoked(&self) -> bool {
        let (identity, peer) = (self.admission.identity.as_ref(), self.peer.as_ref());
        identity.zip(peer).is_some_and(|(identity, peer)| identity.is_revoked(&peer.serial))
    }

    /// Waits until its certificate is found to have ended.
    pub async fn expired(&self) {
        // It can't fail: the sender is here.
        _ = self.has_expired.subscribe().wait_for(|has_expired| *has_expired).await;
    }

    /// Waits until its certificate expires. It counts the time that passes, so a jump of the clock
    /// disconnects no node.
    pub(super) async fn expire(&self) {
        let Some(end) = self.end else { return pending().await };
        // In steps, since timers don't reach as far as certificates.
        while Instant::now() < end {
            sleep_until(end.min(Instant::now() + LONGEST_SLEEP)).await;
        }
        self.has_expired.send_replace(true);
        let name = self.name();
        if self.admission.throttle.allows() {
            tracing::warn!(address = %self.address, name, "its certificate has ended: its stream ends");
        } else {
            tracing::debug!(address = %self.address, name, "its certificate has ended: its stream ends");
        }
    }

    /// Another stream of the same node may have taken its slot.
    fn may_be_replaced(&self) {
        let reason = self.close_signal.given().now_or_never();
        let Some(peer) = self.peer.as_ref().filter(|_| reason == Some(CloseReason::Replaced))
        else {
            return;
        };
        if self.admission.duplicates.is_worth_telling(&peer.name, Instant::now().into_std()) {
            tracing::warn!(
                name = peer.name, address = %self.address,
                "streams of this node push each other out: is one identity on two devices?"
            );
        }
    }

    /// The connection ended. Without a join it counts as refused.
    pub(super) fn ended(&self, ended: Result<(), hyper::Error>) {
        self.may_be_replaced();
        let Err(error) = ended else { return };
        if self.is_noted.load(Relaxed) {
            tracing::debug!(address = %self.address, error = &error as &dyn Error, "a connection broke");
        } else {
            self.turned_away(&reason_of(&error, self.peer.is_none()));
        }
    }
}
