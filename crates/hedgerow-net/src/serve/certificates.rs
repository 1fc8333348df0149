//! [`CertificateWatch`]: looks after the server's certificate and the list of revoked ones while
//! the server runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::hub::Hub;
use super::renewal::Renewal;
use super::ticks::every_second;
use crate::coordinator::events::Event;
use crate::pki::Authority;
use crate::pki::identity::{ListNumbers, ServerIdentity, WARNING_DAYS, days_until};

/// Whose certificates are watched, in the order of [`ServerIdentity::ends`].
pub(super) const SUBJECTS: [&str; 2] = ["server", "authority"];

/// How often a certificate that ends soon is an event.
const DAY: Duration = Duration::from_secs(86_400);

/// Watches the files of a server's identity.
pub(super) struct CertificateWatch {
    identity: Arc<ServerIdentity>,
    renewal: Renewal,
    /// The lists whose numbers are stored.
    stored: ListNumbers,
    /// Why the files can't be used, if they can't.
    trouble: Option<String>,
    ends: [i64; 2],
    /// When the end of each certificate was an event last.
    told: [Option<Instant>; 2],
}

impl CertificateWatch {
    /// `stored` are the lists that were in force last.
    pub(super) fn new(
        identity: Arc<ServerIdentity>,
        authority: Authority,
        stored: ListNumbers,
    ) -> Self {
        let (renewal, ends) = (Renewal::new(authority), identity.ends());
        Self { identity, renewal, stored, trouble: None, ends, told: [None; 2] }
    }

    /// Once a second: renews the certificate in time, reads files that have changed, and ends the
    /// streams of revoked nodes.
    pub(super) async fn run(mut self, hub: Arc<Hub>) {
        let mut seconds = every_second();
        loop {
            seconds.tick().await;
            if self.identity.is_due() {
                self.renewal.attempt(&self.identity).await;
            }
            self.read_again(&hub);
            self.store_lists(&hub).await;
            self.tell_ends(&hub);
        }
    }

    fn read_again(&mut self, hub: &Hub) {
        let identity = &self.identity;
        match identity.reload_if_changed() {
            Ok(is_new) => {
                if is_new {
                    tracing::info!("certificate or list of revoked ones read again");
                    hub.expel(|serial| identity.is_revoked(serial));
                }
                if self.trouble.take().is_some() {
                    hub.note(Event::ListFresh { number: identity.list_numbers().numbers() });
                }
            }
            Err(error) => {
                let reason = error.to_string();
                if self.trouble.as_ref() != Some(&reason) {
                    hub.note(Event::ListStale { reason: reason.clone() });
                    self.trouble = Some(reason);
                }
            }
        }
        hub.metrics().identity(identity.ends(), self.trouble.is_none());
    }

    /// An older list must not be in force after a restart.
    async fn store_lists(&mut self, hub: &Hub) {
        let numbers = self.identity.list_numbers();
        // What can't be stored is tried again.
        if numbers != self.stored && hub.store_lists(&numbers).await.is_ok() {
            self.stored = numbers;
        }
    }

    fn tell_ends(&mut self, hub: &Hub) {
        let ends = self.identity.ends();
        let before = std::mem::replace(&mut self.ends, ends);
        for (at, subject) in SUBJECTS.into_iter().enumerate() {
            let (subject, days) = (subject.to_owned(), days_until(ends[at]));
            if ends[at] != before[at] {
                self.told[at] = None;
                hub.note(Event::CertificateRenewed { subject: subject.clone() });
            }
            if days <= WARNING_DAYS && self.told[at].is_none_or(|told| told.elapsed() >= DAY) {
                self.told[at] = Some(Instant::now());
                hub.note(Event::CertificateEndsSoon { subject, days });
            }
        }
    }
}
