//! [`Renewal`]: the server's own certificate is renewed in time, if the authority's key is there.

use std::time::{Duration, Instant};

use crate::pki::Authority;
use crate::pki::identity::ServerIdentity;

/// The wait after an attempt. Also after one that succeeded: if the new file can't be read, each
/// further attempt would make another certificate.
const RETRY: Duration = Duration::from_secs(3600);

/// Renews the certificate of one server.
pub(super) struct Renewal {
    authority: Authority,
    not_before: Option<Instant>,
}

impl Renewal {
    pub(super) fn new(authority: Authority) -> Self {
        Self { authority, not_before: None }
    }

    /// Tries to renew, unless that was tried a short while ago. Whoever watches the file sees the
    /// new one.
    pub(super) async fn attempt(&mut self, identity: &ServerIdentity) {
        if self.not_before.is_some_and(|not_before| Instant::now() < not_before) {
            return;
        }
        let authority = self.authority.clone();
        let renewing = tokio::task::spawn_blocking(move || authority.prolong_server());
        let days = identity.days_left();
        self.not_before = Instant::now().checked_add(RETRY);
        match renewing.await {
            Ok(Ok((_, issued))) => {
                tracing::info!(until = %issued.not_after.date(), "the server's certificate was renewed");
            }
            Ok(Err(error)) => {
                tracing::warn!(
                    days,
                    "the server's certificate ends soon, and could not be renewed: {error}"
                );
            }
            Err(error) => tracing::error!(%error, "the server's certificate could not be renewed"),
        }
    }
}
