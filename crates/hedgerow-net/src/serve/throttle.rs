//! [`Throttle`]: a flood must not fill the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lets a few things through in each while.
pub(crate) struct Throttle {
    most: u32,
    span: Duration,
    /// When the current while began, and what it has let through.
    state: Mutex<Option<(Instant, u32)>>,
}

impl Default for Throttle {
    /// A few lines a second are read, more are not.
    fn default() -> Self {
        Self::new(5, Duration::from_secs(1))
    }
}

impl Throttle {
    pub(crate) fn new(most: u32, span: Duration) -> Self {
        Self { most, span, state: Mutex::new(None) }
    }

    /// Whether one more may pass now.
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
