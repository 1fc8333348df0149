//! A tick for chores.

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

/// Ticks once a second, and not faster after a delay.
pub(super) fn every_second() -> Interval {
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    seconds
}
