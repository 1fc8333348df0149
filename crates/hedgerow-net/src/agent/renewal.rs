//! [`Renewal`]: the task that renews the node's certificate in time. It has connections of its own,
//! so the stream goes on; the client reads the new file at its next connection. If somebody else
//! has replaced the file, the client is told, and connects again.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use super::client::{Dial, share};
use super::config;
use super::enrolment::{EnrolError, Renewed, renew};
use crate::pki::identity::NodeIdentity;

/// The shortest wait after an attempt.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// Renews one node's certificate.
pub(super) struct Renewal {
    pub(super) dial: Dial,
    pub(super) identity: NodeIdentity,
    pub(super) server: ServerName<'static>,
    pub(super) settings: config::Server,
    /// Told when somebody else has replaced the file.
    pub(super) replaced: Arc<Notify>,
}

impl Renewal {
    /// Runs until it is dropped.
    pub(super) async fn run(mut self) {
        let (mut tries, mut told) = (0, None);
        // A fleet that starts at once doesn't ask at once.
        let mut usual = self.settings.renew_every.0.mul_f64(share());
        loop {
            let is_due = self.settings.renew && self.identity.is_due();
            tries = if is_due { tries } else { 0 };
            let most = self.settings.renew_every.0.min(self.identity.time_left() / 10);
            sleep(if is_due { usual.min(retry_after(tries, most)) } else { usual }).await;
            usual = self.settings.renew_every.0.mul_f64(0.5 + 0.5 * share());
            // Also if the server finds it too early: its clock may be late.
            tries += 1;
            match self.attempt().await {
                Ok(is_renewed) => {
                    told = None;
                    if is_renewed {
                        let days = self.identity.days_left();
                        info!(days, "the node's certificate was renewed");
                    }
                }
                Err(error) => {
                    let error = error.to_string();
                    if is_due && told.as_ref() != Some(&error) {
                        warn!("the node's certificate could not be renewed: {error}");
                    } else {
                        debug!("the node's certificate could not be renewed: {error}");
                    }
                    told = Some(error);
                }
            }
        }
    }

    /// Asks once. Returns whether there is a new certificate.
    async fn attempt(&mut self) -> Result<bool, EnrolError> {
        // Somebody may have put a new file there.
        if self.identity.reopen_if_changed()? {
            self.replaced.notify_one();
        }
        if !self.settings.renew {
            return Ok(false);
        }
        let patience = self.settings.connect_timeout.0;
        let asking = renew(&self.dial, &self.identity, self.server.clone());
        let silent = |_| super::client::ConnectError::Silent(patience);
        let renewed = timeout(patience, asking).await.map_err(silent)??;
        self.identity.reopen_if_changed()?;
        Ok(renewed == Renewed::Yes)
    }
}

/// How long to wait after so many attempts: twice as long each time, up to `most`.
fn retry_after(tries: u32, most: Duration) -> Duration {
    let doubled = LEAST_WAIT.saturating_mul(1 << tries.min(16));
    if tries == 0 { Duration::ZERO } else { doubled.min(most).max(LEAST_WAIT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound() {
        let most = Duration::from_secs(100);
        let seconds = [0, 1, 2, 6, 7, 100].map(|tries| retry_after(tries, most).as_secs());
        assert_eq!(seconds, [0, 2, 4, 64, 100, 100]);
        assert_eq!(retry_after(3, Duration::ZERO), LEAST_WAIT);
        // Nobody asks without a pause, even if the certificate ends in a moment.
        assert!((1..100).all(|tries| retry_after(tries, Duration::ZERO) >= LEAST_WAIT));
    }
}
