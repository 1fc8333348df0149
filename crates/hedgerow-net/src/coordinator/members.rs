//! [`Member`]: a node as the coordinator knows it.

use std::time::Instant;

use hedgerow::message::Errors;

use super::records::{NodeRecord, Standing};

/// Factor of a node's recent errors per upload: about its last hundred uploads count.
const RECENT_LEFT: f64 = 0.99;

/// A node that has joined the run.
#[derive(Debug, Default)]
pub struct Member {
    /// Its stored record.
    pub record: NodeRecord,
    /// Its program and version.
    pub software: String,
    /// The address that it connects from; empty while it is not connected.
    pub address: String,
    /// Round of its latest accepted upload.
    pub round: u64,
    /// When its latest labelled samples came, in milliseconds since 1970; none if none came since
    /// the server started.
    pub last_sample_ms: Option<u64>,
    /// See [`hedgerow::Server::mean_forecast_error`].
    pub mean_forecast_error: Option<f64>,
    /// Its stream, if it has one.
    pub(super) stream: Option<u64>,
    /// Newest round of an upload on this stream that wasn't refused.
    pub(super) heard: u64,
    /// The turn in which it answered last.
    pub(super) answered: u64,
    /// Whether it has nothing to answer with.
    pub(super) is_idle: bool,
    /// Deadlines in a row that it missed.
    pub(super) missed: u32,
    /// Whether it is idle because it missed too many.
    pub(super) is_silent: bool,
    pub(super) ledger: Ledger,
    /// The errors of its latest accepted upload.
    pub(super) told: Errors,
    pub(super) bucket: Bucket,
    pub(super) report_bucket: Bucket,
    /// Bad messages in a row.
    pub(super) bad: u32,
    /// Whether it is to be stored.
    pub(super) is_changed: bool,
    /// What it may not do.
    pub(super) standing: Option<Standing>,
    recent_samples: f64,
    recent_error: f64,
}

impl Member {
    pub(super) fn new(record: NodeRecord) -> Self {
        Self { record, ..Self::default() }
    }

    /// Whether it is a node, and not the place of one that was removed.
    pub fn is_known(&self) -> bool {
        !self.record.name.is_empty()
    }

    /// Whether it is in quarantine: what it says doesn't count.
    pub(super) fn is_quarantined(&self) -> bool {
        self.standing == Some(Standing::Quarantined)
    }

    /// The run was set back: what was said on its stream is void.
    pub(super) fn end_stream(&mut self) {
        self.stream = None;
        self.address.clear();
        (self.heard, self.answered) = (0, 0);
        self.expect();
        (self.round, self.told) = (0, Errors::default());
    }

    /// Expects it to answer, and says whether nobody did.
    pub(super) fn expect(&mut self) -> bool {
        (self.missed, self.is_silent) = (0, false);
        std::mem::take(&mut self.is_idle)
    }

    /// How many deadlines in a row it missed, if rounds don't wait for it any more.
    pub fn silent_for(&self) -> Option<u32> {
        self.is_silent.then_some(self.missed)
    }

    /// Whether it has a stream.
    pub fn is_connected(&self) -> bool {
        self.stream.is_some()
    }

    /// Its mean squared error; none before its first sample.
    pub fn mse(&self) -> Option<f64> {
        super::totals::mean(self.record.squared_error, self.record.samples)
    }

    /// The same, weighted towards recent uploads.
    pub fn recent_mse(&self) -> Option<f64> {
        (self.recent_samples > 0.0).then(|| self.recent_error / self.recent_samples)
    }

    /// Adds errors of an upload.
    pub(super) fn count(&mut self, Errors { samples, squared_error }: Errors) {
        self.record.samples += u64::from(samples);
        self.record.squared_error += f64::from(squared_error);
        self.recent_samples = RECENT_LEFT * self.recent_samples + f64::from(samples);
        self.recent_error = RECENT_LEFT * self.recent_error + f64::from(squared_error);
    }
}

/// The accepted uploads of a node. An upload of an open round is not accepted yet: the server may
/// be killed before the round closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ledger {
    /// Round of the latest upload.
    latest: u64,
    /// Round of the upload before.
    before: u64,
}

impl Ledger {
    /// Adds an upload of this round.
    pub(super) fn count(&mut self, round: u64) {
        (self.before, self.latest) = (self.latest, round);
    }

    /// The last round in which an upload was accepted, once `open` is open; 0 if none is known.
    pub fn taken(&self, open: u64) -> u64 {
        if self.latest < open { self.latest } else { self.before }
    }
}

/// A token bucket: messages that a node may still send.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bucket {
    /// Tokens and when they were counted; none if it is full.
    level: Option<(f64, Instant)>,
}

impl Bucket {
    /// Takes a token, if there is one. There are `rate` more each second, and at most `full`.
    pub(super) fn take(&mut self, rate: f64, full: f64, now: Instant) -> bool {
        let tokens = match self.level {
            None => full,
            Some((tokens, since)) => {
                (tokens + rate * now.saturating_duration_since(since).as_secs_f64()).min(full)
            }
        };
        let is_left = tokens >= 1.0;
        self.level = Some((if is_left { tokens - 1.0 } else { tokens }, now));
        is_left
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn buckets_fill_with_time() {
        let (mut bucket, start) = (Bucket::default(), Instant::now());
        let mut at = |ms: u64| bucket.take(10.0, 20.0, start + Duration::from_millis(ms));
        assert_eq!((0..25).filter(|_| at(0)).count(), 20);
        assert!(!at(99) && at(101) && !at(150));
        assert_eq!((0..25).filter(|_| at(60_000)).count(), 20);
        // Time that goes back changes nothing.
        assert!(!at(0));
    }

    #[test]
    fn an_upload_is_taken_once_its_round_has_closed() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.taken(1), 0);
        ledger.count(1);
        assert_eq!((ledger.taken(1), ledger.taken(2), ledger.taken(9)), (0, 1, 1));
        ledger.count(9);
        assert_eq!((ledger.taken(9), ledger.taken(10)), (1, 9));
    }

    #[test]
    fn recent_errors_outweigh_old_ones() {
        let mut member = Member::default();
        assert_eq!((member.mse(), member.recent_mse()), (None, None));
        (0..1000).for_each(|round: u32| {
            member.count(Errors { samples: 1, squared_error: if round < 500 { 4.0 } else { 1.0 } })
        });
        assert_eq!(member.mse(), Some(2.5));
        assert!((member.recent_mse().unwrap() - 1.0).abs() < 0.05);
    }
}
