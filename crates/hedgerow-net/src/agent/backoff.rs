//! [`Backoff`]: how long to wait before another try.

use std::time::Duration;

/// Waits that double from try to try, each with full jitter, so that nodes which lost the same
/// server don't come back all at once.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    least: Duration,
    most: Duration,
    ceiling: Duration,
}

impl Backoff {
    pub(super) fn new(least: Duration, most: Duration) -> Self {
        Self { least, most, ceiling: least.min(most) }
    }

    /// The next wait: this share, from 0 to 1, of a ceiling that doubles.
    pub(super) fn wait(&mut self, share: f64) -> Duration {
        let wait = self.ceiling.mul_f64(share.clamp(0.0, 1.0));
        self.ceiling = self.ceiling.saturating_mul(2).min(self.most);
        wait
    }

    /// A connection was there for so long. If that is longer than the longest wait that would
    /// follow, it was a good one.
    pub(super) fn lasted(&mut self, time: Duration) {
        if time >= self.ceiling {
            self.ceiling = self.least.min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_start_again_after_a_good_connection() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(100), ms(1000));
        let waits: Vec<Duration> = (0..6).map(|_| backoff.wait(1.0)).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1000, 1000].map(ms));
        backoff.lasted(ms(999));
        assert_eq!(backoff.wait(0.5), ms(500));
        backoff.lasted(ms(1000));
        assert_eq!((backoff.wait(0.0), backoff.wait(0.25)), (ms(0), ms(50)));
        assert_eq!(Backoff::new(ms(100), ms(10)).wait(7.0), ms(10));
    }
}
