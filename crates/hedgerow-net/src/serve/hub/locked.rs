//! [`Locked`]: the lock of a [`Hub`]. What happened while it was held is counted and kept when it
//! is released, and logged afterwards: a log that blocks must not stop the server.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

use super::{Hub, Inner, unix_ms};
use crate::coordinator::events::{Event, Severity};
use crate::serve::status::{EventStatus, MAX_EVENTS_SHOWN};

/// The locked part of a hub.
pub(super) struct Locked<'a> {
    hub: &'a Hub,
    // Dropped in this order: first the lock is released, then events are logged.
    inner: MutexGuard<'a, Inner>,
    unlogged: Unlogged,
}

impl<'a> Locked<'a> {
    pub(super) fn new(hub: &'a Hub, inner: MutexGuard<'a, Inner>) -> Self {
        Self { hub, inner, unlogged: Unlogged(Vec::new()) }
    }
}

impl Deref for Locked<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let Inner { coordinator, events, .. } = &mut *self.inner;
        // Almost always there are none.
        if coordinator.events().is_empty() {
            return;
        }
        self.unlogged.0 = coordinator.events().take();
        for event in &self.unlogged.0 {
            self.hub.metrics.event(event);
            events.push(event);
        }
    }
}

/// Events that are logged when it is dropped.
struct Unlogged(Vec<Event>);

impl Drop for Unlogged {
    fn drop(&mut self) {
        for event in &self.0 {
            let kind = event.kind();
            match event.severity() {
                Severity::Info => tracing::info!(event = kind, "{event}"),
                Severity::Warning => tracing::warn!(event = kind, "{event}"),
                Severity::Error => tracing::error!(event = kind, "{event}"),
            }
        }
    }
}

/// The latest events.
#[derive(Debug, Default)]
pub(super) struct RecentEvents {
    events: VecDeque<EventStatus>,
    /// Number of the latest.
    latest: u64,
}

impl RecentEvents {
    fn push(&mut self, event: &Event) {
        self.latest += 1;
        if self.events.len() == MAX_EVENTS_SHOWN {
            self.events.pop_front();
        }
        self.events.push_back(EventStatus {
            number: self.latest,
            at_ms: unix_ms(),
            kind: event.kind().to_owned(),
            severity: event.severity(),
            text: event.to_string(),
            // Fields are texts and numbers: this can't fail.
            details: serde_json::to_value(event).unwrap_or_default(),
        });
    }

    /// The oldest first.
    pub(super) fn shown(&self) -> Vec<EventStatus> {
        self.events.iter().cloned().collect()
    }
}
