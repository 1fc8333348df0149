//! How an operator sets the run of a [`Hub`] back, and changes its settings.

use std::sync::Arc;

use super::{Hub, Inner, now, unix_ms};
use crate::coordinator::Earlier;
use crate::coordinator::events::Event;
use crate::coordinator::records::{Change, Saved, Target};
use crate::operations::{ActionError, Actor, Outcome};
use crate::serve::history_cache::HistoryCache;
use crate::serve::live_settings::LiveSettings;
use crate::session::CloseReason;

impl Hub {
    /// Sets the run back. Rounds that are being closed are stored first, and no other closes
    /// meanwhile. All streams end: on new ones, nodes go on from the earlier round.
    pub(super) async fn roll_back(
        &self,
        actor: &Actor,
        to: Target,
    ) -> Result<Outcome, ActionError> {
        let (plan, nodes) = {
            let mut inner = self.lock();
            inner.is_going_back = true;
            (self.plan.clone(), inner.coordinator.members().len())
        };
        let (who, at_ms) = (actor.to_string(), unix_ms());
        let done = self.on_writer(move |storage| {
            let mut earlier = None;
            let mut check = |saved: &Saved| {
                let restored = Earlier::restore(&plan, saved, nodes);
                earlier = Some(restored.map_err(|error| error.to_string())?);
                Ok(())
            };
            let back = storage.roll_back(to, &who, at_ms, &mut check)?;
            Ok((earlier, back))
        });
        let done = done.await;
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.is_going_back = false;
        let (earlier, back) = match done {
            Ok((Some(earlier), back)) => (earlier, back),
            Ok((None, _)) => return Err(ActionError::GoingDown),
            Err(error) => {
                self.advance(inner, now());
                return Err(error);
            }
        };
        let Inner { coordinator, sessions, failure, history, pace, epoch, .. } = inner;
        let from = coordinator.opening().round;
        coordinator.go_back(earlier, &back.history, now());
        *epoch = back.epoch;
        *failure = None;
        // Rounds per second are counted from here on.
        pace.clear();
        let mut window = coordinator.window().clone();
        *history = HistoryCache::from_records(&back.history, coordinator.totals(), &mut window);
        for (_, signal) in sessions.drain() {
            signal.give(CloseReason::SetBack);
        }
        let opening = Arc::clone(coordinator.opening());
        let to = opening.round;
        coordinator.events().note(Event::RolledBack { actor: actor.to_string(), from, to });
        self.openings.send_replace(opening);
        Ok(Outcome::RolledBack { from, to })
    }

    /// Changes a setting, or takes a change back.
    pub(super) async fn set(
        &self,
        actor: &Actor,
        key: String,
        value: Option<String>,
    ) -> Result<Outcome, ActionError> {
        let live = self.lock().settings.clone();
        let (asked, wanted) = (key.clone(), value.clone());
        // Settings are read as a whole, with the plan, which takes a while.
        let changed = tokio::task::spawn_blocking(move || live.with(&asked, wanted.as_deref()));
        let (live, before, after) = changed.await.unwrap_or(Err(ActionError::GoingDown))?;
        let change = Change::Setting { key: key.clone(), value: value.clone() };
        self.decide(actor, change, ("set", &key, &format!("{after} (it was {before})"))).await?;
        let mut guard = self.lock();
        self.apply(&mut guard, live);
        let (name, was) = (key.clone(), before.clone());
        let event = Event::SettingChanged {
            actor: actor.to_string(),
            key: name,
            before: was,
            now: after.clone(),
        };
        guard.coordinator.events().note(event);
        self.advance(&mut guard, now());
        Ok(Outcome::Set { key, before, now: after })
    }

    /// Goes on with these settings.
    pub(super) fn apply(&self, inner: &mut Inner, live: LiveSettings) {
        let (rules, limits, log) = (live.rules(), live.limits(), live.log());
        inner.coordinator.set_rules(rules, limits, now());
        crate::log::set_level(log.level);
        inner.settings = live;
        // The time at which the round is due may be another.
        self.rules_changed.notify_one();
    }
}
