//! How a [`Hub`] stores its run: rounds before they are announced, nodes now and then.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Hub, Inner, NODES_PER_TRANSACTION, RETRY_COMMIT, end, now, unix_ms};
use crate::coordinator::events::Event;
use crate::coordinator::records::Commit;
use crate::coordinator::{Closing, Opening};
use crate::session::CloseReason;
use crate::storage::StoreError;
use crate::storage::writer::Writer;

/// Why the latest commit failed, and when it is tried again.
pub(super) struct CommitFailure {
    pub(super) message: String,
    retry_at: Instant,
}

/// The last round of a server that ended was not stored.
#[derive(Debug, thiserror::Error)]
#[error("the last round could not be stored: {0}")]
pub struct NotStored(String);

impl Hub {
    /// Closes a round that is due, and tries the commit again that has failed.
    pub(super) fn advance(&self, inner: &mut Inner, now: Instant) {
        if inner.is_going_back {
            return;
        }
        if inner.coordinator.is_due(now) {
            self.close_round(inner);
        }
        self.commit_again(inner, now);
    }

    /// Closes the open round, if it has answers. The work of the method and the commit are queued:
    /// neither holds the lock.
    pub(super) fn close_round(&self, inner: &mut Inner) {
        let Inner { coordinator, writer: Some(writer), is_committing, .. } = inner else { return };
        let Some(closing) = coordinator.close(unix_ms(), self.wire()) else { return };
        *is_committing = true;
        let hub = self.me.clone();
        self.queue_commit(writer, move || Some(hub.upgrade()?.work(closing)));
    }

    /// Does the work of the method for a round that closes.
    fn work(&self, closing: Closing) -> Arc<Commit> {
        let closed = catch_unwind(AssertUnwindSafe(|| closing.work())).unwrap_or_else(|_| end());
        Arc::clone(self.lock().coordinator.closed(closed))
    }

    /// Queues the commit of a round whose work is done, unless it is queued already or failed a
    /// moment ago.
    fn commit_again(&self, inner: &mut Inner, now: Instant) {
        let Inner { coordinator, writer, is_committing, failure, .. } = inner;
        let (Some(commit), Some(writer), false) = (coordinator.closing(), writer, *is_committing)
        else {
            return;
        };
        if failure.as_ref().is_some_and(|failure| now < failure.retry_at) {
            return;
        }
        *is_committing = true;
        let commit = Arc::clone(commit);
        self.queue_commit(writer, || Some(commit));
    }

    /// Queues a commit. It is made on the writing thread; there is none if the hub is gone.
    fn queue_commit(
        &self,
        writer: &Writer,
        make: impl FnOnce() -> Option<Arc<Commit>> + Send + 'static,
    ) {
        let (hub, runtime) = (self.me.clone(), self.runtime.clone());
        writer.queue(
            move |storage| {
                let commit = make().ok_or(StoreError::Closed)?;
                let start = Instant::now();
                storage.commit(&commit).map(|()| start.elapsed())
            },
            move |outcome| {
                // The runtime's clock, which tests control.
                let _context = runtime.enter();
                if let Some(hub) = hub.upgrade() {
                    hub.committed(outcome);
                }
            },
        );
    }

    /// A commit has ended. A stored round is announced.
    fn committed(&self, outcome: Result<Duration, StoreError>) {
        let now = now();
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.is_committing = false;
        if inner.writer.is_none() {
            return;
        }
        let Inner { coordinator, failure, history, .. } = &mut *inner;
        match outcome {
            Ok(duration) => self.metrics.committed(duration),
            Err(error) => {
                let message = error.to_string();
                if failure.is_none() {
                    let round = coordinator.closing().map_or(0, |commit| commit.round);
                    let reason = message.clone();
                    coordinator.events().note(Event::StoreFailed { round, reason });
                }
                *failure = Some(CommitFailure { message, retry_at: now + RETRY_COMMIT });
                return;
            }
        }
        if failure.take().is_some() {
            let round = coordinator.closing().map_or(0, |commit| commit.round);
            coordinator.events().note(Event::StoreRecovered { round });
        }
        let before = Arc::clone(coordinator.opening());
        let open_for = now.saturating_duration_since(coordinator.opened_at());
        let Some((opening, commit)) = coordinator.committed(now) else { return };
        if let Some(record) = &commit.record {
            self.metrics.round_closed(open_for, record.samples);
            tracing::trace!(round = record.round, uploads = record.uploads, "closed");
            history.push(record, coordinator.totals(), coordinator.window());
        }
        if !Arc::ptr_eq(&opening, &before) {
            self.openings.send_replace(opening);
        }
        // The next round may be due already.
        self.advance(inner, now);
    }

    /// Queues records of nodes that have changed, unless the storage fails.
    pub(super) fn save_nodes(&self, inner: &mut Inner) {
        let Inner { coordinator, writer: Some(writer), failure: None, .. } = inner else { return };
        let nodes = coordinator.changed_nodes(NODES_PER_TRANSACTION);
        if nodes.is_empty() {
            return;
        }
        let hub = self.me.clone();
        writer.queue(
            move |storage| {
                // The records come back, so that they can be stored later.
                let stored = storage.save_nodes(&nodes);
                Ok((nodes, stored))
            },
            move |outcome| {
                if let (Ok((nodes, Err(error))), Some(hub)) = (outcome, hub.upgrade()) {
                    tracing::warn!(%error, "records of nodes can't be stored; it is tried again");
                    hub.lock().coordinator.changed_again(&nodes);
                }
            },
        );
    }

    /// Closes the open round if it has enough uploads, stores everything, and tells all streams
    /// that this was the last round.
    pub async fn close(&self) -> Result<(), NotStored> {
        // First a round that is being committed or waits for it, then the open one.
        for _ in 0..2 {
            self.flush(|inner, now| {
                inner.failure.iter_mut().for_each(|failure| failure.retry_at = now);
            })
            .await;
        }
        self.flush(|inner, _| {
            if inner.coordinator.has_enough() && !inner.is_going_back {
                self.close_round(inner);
            }
        })
        .await;
        loop {
            let nodes = self.lock().coordinator.changed_nodes(NODES_PER_TRANSACTION);
            if nodes.is_empty() {
                break;
            }
            let saving = match &self.lock().writer {
                Some(writer) => writer.run(move |storage| storage.save_nodes(&nodes)),
                None => break,
            };
            if let Err(error) = saving.await {
                tracing::warn!(%error, "records of nodes can't be stored");
                break;
            }
        }
        let (writer, failure) = {
            let mut inner = self.lock();
            let mut last = Opening::clone(inner.coordinator.opening());
            last.is_last = true;
            self.openings.send_replace(Arc::new(last));
            (inner.writer.take(), inner.failure.take())
        };
        if let Some(writer) = writer {
            writer.close().await;
        }
        failure.map_or(Ok(()), |failure| Err(NotStored(failure.message)))
    }

    /// Changes something, tries a failed commit again if it is time, and waits until all queued
    /// jobs are done.
    async fn flush(&self, change: impl FnOnce(&mut Inner, Instant)) {
        let done = {
            let now = now();
            let mut inner = self.lock();
            change(&mut inner, now);
            self.commit_again(&mut inner, now);
            inner.writer.as_ref().map(|writer| writer.run(|_| Ok(())))
        };
        if let Some(done) = done {
            _ = done.await;
        }
    }

    /// Ends at once, as if the process were killed: what isn't stored is lost.
    pub fn abandon(&self) {
        let writer = {
            let mut inner = self.lock();
            for signal in inner.sessions.values() {
                signal.give(CloseReason::GoingDown);
            }
            inner.writer.take()
        };
        if let Some(writer) = writer {
            writer.abandon();
        }
    }
}
