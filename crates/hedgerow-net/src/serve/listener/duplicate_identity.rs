//! [`DuplicateIdentity`]: finds two devices with one identity. Their streams replace each other
//! again and again. A single replacement may be a node that reconnects before its old stream has
//! ended.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many replacements in this time are suspicious. They are logged once in this time.
const SUSPICIOUS_COUNT: u32 = 3;
const COUNTING_TIME: Duration = Duration::from_secs(60);

/// Most names that are counted. Old ones are dropped first.
const MAX_NAMES: usize = 10_000;

/// Counts the replaced streams of each node.
#[derive(Debug, Default)]
pub(super) struct DuplicateIdentity(Mutex<HashMap<String, (Instant, u32)>>);

impl DuplicateIdentity {
    /// A stream of this name was replaced by another. Returns whether to log it.
    pub(super) fn is_worth_telling(&self, name: &str, now: Instant) -> bool {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= MAX_NAMES {
            names.retain(|_, (since, _)| now.saturating_duration_since(*since) < COUNTING_TIME);
        }
        if names.len() >= MAX_NAMES && !names.contains_key(name) {
            return false;
        }
        let (since, count) = names.entry(name.to_owned()).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= COUNTING_TIME {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count == SUSPICIOUS_COUNT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_times_in_a_minute_are_told_once_in_a_minute() {
        let (duplicates, start) = (DuplicateIdentity::default(), Instant::now());
        let at = |name: &str, seconds: u64| {
            duplicates.is_worth_telling(name, start + Duration::from_secs(seconds))
        };
        assert_eq!(
            [0, 1, 2, 3, 50].map(|seconds| at("a", seconds)),
            [false, false, true, false, false]
        );
        assert_eq!([60, 61, 62, 63].map(|seconds| at("a", seconds)), [false, false, true, false]);
        // Rarely is never.
        assert!((0..50).all(|times| !at("b", 40 * times)));
        assert_eq!([0, 1, 2].map(|seconds| at("c", seconds)), [false, false, true]);
    }

    #[test]
    fn names_are_forgotten() {
        let (duplicates, start) = (DuplicateIdentity::default(), Instant::now());
        for number in 0..MAX_NAMES + 5 {
            duplicates.is_worth_telling(&number.to_string(), start);
        }
        assert_eq!(duplicates.0.lock().unwrap().len(), MAX_NAMES);
        duplicates.is_worth_telling("late", start + COUNTING_TIME);
        assert_eq!(duplicates.0.lock().unwrap().len(), 1);
    }
}
