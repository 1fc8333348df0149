//! [`Signing`]: gives certificates to nodes that have a token, and new ones to nodes whose
//! certificate ends soon. It needs the authority's key, which a server may or may not have.

use std::collections::HashMap;
use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use super::listener::neighbourhood;
use super::metrics::Metrics;
use super::throttle::Throttle;
use crate::pki::identity::Peer;
use crate::pki::request::Requested;
use crate::pki::token::Secret;
use crate::pki::{Authority, EnrolmentError, Granted};
use crate::transport::signing::{SigningAnswer, SigningRequest, answer, asked};

/// An address may fail so often in this time; then it is not listened to until the time has passed.
const MAX_FAILURES: u32 = 10;
const COUNTING_TIME: Duration = Duration::from_secs(60);

/// Most addresses whose failures are counted.
const MAX_ADDRESSES: usize = 10_000;

/// Signs requests.
pub(super) struct Signing {
    authority: Authority,
    /// One signature at a time: the authority's folder has one lock.
    turn: Semaphore,
    failures: Mutex<HashMap<IpAddr, (Instant, u32)>>,
    throttle: Throttle,
    metrics: Metrics,
}

/// Why a request was not granted.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("too many failed requests from this address: try again in a minute")]
    TooOften,
    #[error("a request without a token needs a certificate that is to be renewed")]
    NoToken,
    #[error(transparent)]
    Enrolment(#[from] EnrolmentError),
    #[error("the server is going down")]
    Stopped,
}

impl Refused {
    fn kind(&self) -> &'static str {
        match self {
            Self::TooOften => "too-often",
            Self::NoToken => "no-token",
            Self::Enrolment(error) => error.kind(),
            Self::Stopped => "stopped",
        }
    }

    fn told(&self) -> String {
        match self {
            Self::Enrolment(error) => error.told(),
            other => other.to_string(),
        }
    }

    /// Whether it may have been a guess.
    fn is_suspicious(&self) -> bool {
        match self {
            Self::Enrolment(EnrolmentError::TooEarly { .. } | EnrolmentError::Pki(_)) => false,
            Self::Enrolment(_) | Self::NoToken => true,
            Self::TooOften | Self::Stopped => false,
        }
    }
}

impl Signing {
    pub(super) fn new(authority: Authority, metrics: Metrics) -> Self {
        Self {
            authority,
            turn: Semaphore::new(1),
            failures: Mutex::default(),
            throttle: Throttle::default(),
            metrics,
        }
    }

    /// Serves one connection. `peer` is whose certificate TLS has checked, if there was one.
    pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: S,
        peer: Option<Peer>,
        address: SocketAddr,
    ) -> io::Result<()> {
        let request = asked(&mut stream).await?;
        let name = peer.as_ref().map(|peer| peer.name.clone());
        let outcome = match self.grant(request, peer, address.ip()).await {
            Ok(Granted { issued, certificates }) => {
                let action = if name.is_some() { "renewed" } else { "enrolled" };
                tracing::info!(name = issued.name, %address, serial = issued.serial, "{action}");
                self.metrics.signing(action);
                SigningAnswer::Issued(certificates)
            }
            Err(Refused::Enrolment(EnrolmentError::TooEarly { .. })) => SigningAnswer::TooEarly,
            Err(refused) => {
                self.metrics.signing(refused.kind());
                self.tell(address, name.as_deref(), &refused);
                SigningAnswer::Refused(refused.told())
            }
        };
        answer(&mut stream, outcome).await
    }

    async fn grant(
        &self,
        SigningRequest { request, secret }: SigningRequest,
        peer: Option<Peer>,
        address: IpAddr,
    ) -> Result<Granted, Refused> {
        let address = neighbourhood(address);
        if !self.may_try(address, Instant::now()) {
            return Err(Refused::TooOften);
        }
        let _turn = self.turn.acquire().await.map_err(|_| Refused::Stopped)?;
        let authority = self.authority.clone();
        let signing = tokio::task::spawn_blocking(move || {
            let request = Requested::from_der(&request).map_err(EnrolmentError::from)?;
            match (peer, Secret::from_bytes(&secret)) {
                (Some(peer), _) if secret.is_empty() => Ok(authority.renew(&peer, &request)?),
                (None, _) if secret.is_empty() => Err(Refused::NoToken),
                (peer, Some(secret)) => {
                    let address = peer.map_or_else(|| address.to_string(), |peer| peer.name);
                    Ok(authority.acting_for(&address).enroll(&secret, &request)?)
                }
                (_, None) => Err(EnrolmentError::UnknownToken.into()),
            }
        });
        let granted = signing.await.unwrap_or(Err(Refused::Stopped));
        if granted.as_ref().is_err_and(Refused::is_suspicious) {
            self.failed(address, Instant::now());
        }
        granted
    }

    fn may_try(&self, address: IpAddr, now: Instant) -> bool {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= MAX_ADDRESSES {
            failures.retain(|_, (since, _)| now.saturating_duration_since(*since) < COUNTING_TIME);
        }
        match failures.get(&address) {
            None => failures.len() < MAX_ADDRESSES,
            Some((since, count)) => {
                *count < MAX_FAILURES || now.saturating_duration_since(*since) >= COUNTING_TIME
            }
        }
    }

    fn failed(&self, address: IpAddr, now: Instant) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = failures.entry(address).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= COUNTING_TIME {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
    }

    fn tell(&self, address: SocketAddr, name: Option<&str>, reason: &dyn Display) {
        if self.throttle.allows() {
            tracing::warn!(%address, name, %reason, "a request for a certificate was refused");
        } else {
            tracing::debug!(%address, name, %reason, "a request for a certificate was refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signing() -> Signing {
        let folder = tempfile::tempdir().unwrap();
        Signing::new(Authority::init(&folder.path().join("pki"), &[]).unwrap(), Metrics::new())
    }

    #[test]
    fn an_address_that_guesses_is_not_listened_to_for_a_while() {
        let (signing, start) = (signing(), Instant::now());
        let [one, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        for _ in 0..MAX_FAILURES {
            assert!(signing.may_try(one, start));
            signing.failed(one, start);
        }
        assert!(!signing.may_try(one, start) && signing.may_try(other, start));
        assert!(signing.may_try(one, start + COUNTING_TIME));
        signing.failed(one, start + COUNTING_TIME);
        assert!(signing.may_try(one, start + COUNTING_TIME));
    }

    #[test]
    fn addresses_are_bounded_and_forgotten() {
        let (signing, start) = (signing(), Instant::now());
        for number in 0..MAX_ADDRESSES as u32 {
            signing.failed(IpAddr::from(number.to_be_bytes()), start);
        }
        let fresh = IpAddr::from([200, 0, 0, 1]);
        assert!(!signing.may_try(fresh, start));
        assert!(signing.may_try(fresh, start + COUNTING_TIME));
        assert!(signing.failures.lock().unwrap().is_empty());
    }
}
