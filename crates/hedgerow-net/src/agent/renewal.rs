//! [`Renewal`]: the task that renews the node's certificate in time. It has connections of its own,
//! so the stream goes on; the client reads the new file at its next connection.

use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use super::client::{Dial, share};
use super::config;
use super::enrolment::{EnrolError, Renewed, renew};
use crate::pki::identity::NodeIdentity;

/// The shortest wait after a failure.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// Renews one node's certificate.
pub(super) struct Renewal {
    pub(super) dial: Dial,
    pub(super) identity: NodeIdentity,
    pub(super) server: ServerName<'static>,
    pub(super) settings: config::Server,
}

impl Renewal {
    /// Runs until it is dropped.
    pub(super) async fn run(mut self) {
        let mut failures = 0;
        let mut told = None;
        // A fleet that starts at once doesn't ask at once. Whose certificate is due asks soon.
        let mut wait = self.settings.renew_every.0.mul_f64(share());
        loop {
            if self.identity.is_due() {
                let most = self.settings.renew_every.0.min(self.identity.time_left() / 10);
                wait = wait.min(retry_after(failures, most));
            }
            sleep(wait).await;
            wait = self.settings.renew_every.0.mul_f64(0.5 + 0.5 * share());
            match self.attempt().await {
                Ok(is_renewed) => {
                    (failures, told) = (0, None);
                    if is_renewed {
                        let days = self.identity.days_left();
                        info!(days, "the node's certificate was renewed");
                    }
                }
                Err(error) => {
                    failures += 1;
                    let error = error.to_string();
                    if self.identity.is_due() && told.as_ref() != Some(&error) {
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
        self.identity.reopen_if_changed()?;
        let patience = self.settings.connect_timeout.0;
        let asking = renew(&self.dial, &self.identity, self.server.clone());
        let silent = |_| super::client::ConnectError::Silent(patience);
        let renewed = timeout(patience, asking).await.map_err(silent)??;
        self.identity.reopen_if_changed()?;
        Ok(renewed == Renewed::Yes)
    }
}

/// How long to wait after so many failures: twice as long each time, up to `most`.
fn retry_after(failures: u32, most: Duration) -> Duration {
    let doubled = LEAST_WAIT.saturating_mul(1 << failures.min(16));
    if failures == 0 { Duration::ZERO } else { doubled.min(most).max(LEAST_WAIT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound() {
        let most = Duration::from_secs(100);
        let seconds = [0, 1, 2, 6, 7, 100].map(|failures| retry_after(failures, most).as_secs());
        assert_eq!(seconds, [0, 2, 4, 64, 100, 100]);
        assert_eq!(retry_after(3, Duration::ZERO), LEAST_WAIT);
    }
}
