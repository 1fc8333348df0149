//! [`Throttle`]: limits how often something is logged.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Allows a few events in each span of time.
pub(crate) struct Throttle {
    most: u32,
    span: Duration,
    /// When the current span began, and how many events came in it.
    state: Mutex<Option<(Instant, u32)>>,
}

impl Default for Throttle {
    /// Five a second.
    fn default() -> Self {
        Self::new(5, Duration::from_secs(1))
    }
}

impl Throttle {
    pub(crate) fn new(most: u32, span: Duration) -> Self {
        Self { most, span, state: Mutex::new(None) }
    }

    /// Counts an event. Returns whether it is allowed.
    pub(crate) fn allows(&self) -> bool {
        self.allows_at(Instant::now())
    }

    fn allows_at(&self, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (begun, passed) =
            state.filter(|(begun, _)| now < *begun + self.span).unwrap_or((now, 0));
        *state = Some((begun, passed.saturating_add(1)));
        passed < self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_pass_in_each_while() {
        let throttle = Throttle::new(2, Duration::from_secs(1));
        let start = Instant::now();
        let passed = |ms: u64| {
            (0..9).filter(|_| throttle.allows_at(start + Duration::from_millis(ms))).count()
        };
        assert_eq!(
            [passed(0), passed(900), passed(1000), passed(1500), passed(2100)],
            [2, 0, 2, 0, 2]
        );
    }
}
