//! [`HistoryCache`]: the course of a run for the dashboard, in bounded memory. If there are too
//! many points, every second one is dropped.

use super::status::Point;
use crate::coordinator::records::RoundRecord;
use crate::coordinator::{Totals, WINDOW_ROUNDS, Window};

/// At most so many points are kept.
const MAX_POINTS: usize = 4_096;

/// Points of the past, oldest first.
#[derive(Debug, Default)]
pub struct HistoryCache {
    points: Vec<Point>,
    /// Only rounds whose number is a multiple of this are kept.
    stride: u64,
}

impl HistoryCache {
    /// Of the stored rounds of a run that has these totals. Fills the window with the last ones.
    pub fn from_records(records: &[RoundRecord], totals: &Totals, window: &mut Window) -> Self {
        let mut past = Self::default();
        // The totals are exact. Going back from them, sums are exact as far as all rounds are
        // stored. Where rounds are missing, the stored ones are counted for them.
        let mut sums = vec![(0, 0.0, 0, 0); records.len()];
        let (mut samples, mut error) = (totals.samples as f64, totals.squared_error);
        let (mut up, mut down) = (totals.messages_up as f64, totals.messages_down as f64);
        for (at, record) in records.iter().enumerate().rev() {
            sums[at] =
                (samples.max(0.0) as u64, error.max(0.0), up.max(0.0) as u64, down.max(0.0) as u64);
            let before = at.checked_sub(1).map_or(0, |before| records[before].round);
            let rounds = record.round.saturating_sub(before) as f64;
            samples -= rounds * record.samples as f64;
            error -= rounds * record.squared_error;
            up -= rounds * record.bytes_up as f64;
            down -= rounds * record.bytes_down as f64;
        }
        let mut last = 0;
        for (record, (samples, squared_error, bytes_up, bytes_down)) in records.iter().zip(sums) {
            // A window needs consecutive rounds.
            if record.round != last + 1 {
                *window = Window::default();
            }
            last = record.round;
            window.push(record.clone());
            let mse = crate::coordinator::mean(squared_error, samples);
            let is_whole = window.rounds() >= WINDOW_ROUNDS.min(record.round as usize);
            let window_mse = window.mse().filter(|_| is_whole);
            past.add(point(record, mse, window_mse, bytes_up, bytes_down));
        }
        past
    }

    /// A round has closed.
    pub fn push(&mut self, record: &RoundRecord, totals: &Totals, window: &Window) {
        // Most rounds are not kept once there are many.
        if !self.keeps(record.round) {
            return;
        }
        let Totals { messages_up, messages_down, .. } = *totals;
        self.add(point(record, totals.mse(), window.mse(), messages_up, messages_down));
    }

    /// At most so many of them, evenly thinned.
    pub fn points(&self, most: usize) -> Vec<Point> {
        let step = self.points.len().div_ceil(most.max(1)).max(1);
        // The latest is always among them.
        let first = self.points.len().saturating_sub(1) % step;
        self.points.iter().skip(first).step_by(step).cloned().collect()
    }

    fn keeps(&self, round: u64) -> bool {
        round.is_multiple_of(self.stride.max(1))
    }

    fn add(&mut self, point: Point) {
        if !self.keeps(point.round) {
            return;
        }
        if self.points.len() >= MAX_POINTS {
            self.stride = 2 * self.stride.max(1);
            let stride = self.stride;
            self.points.retain(|point| point.round.is_multiple_of(stride));
            if !self.keeps(point.round) {
                return;
            }
        }
        self.points.push(point);
    }
}

fn point(
    record: &RoundRecord,
    mse: Option<f64>,
    window_mse: Option<f64>,
    bytes_up: u64,
    bytes_down: u64,
) -> Point {
    let RoundRecord { round, closed_at_ms: at_ms, selected, uploads, .. } = *record;
    Point { round, at_ms, mse, window_mse, selected, uploads, bytes_up, bytes_down }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(round: u64) -> RoundRecord {
        RoundRecord {
            round,
            closed_at_ms: 1000 * round,
            uploads: 2,
            samples: 4,
            squared_error: (round % 7) as f64,
            bytes_up: 10,
            bytes_down: 20,
            ..RoundRecord::default()
        }
    }

    /// What a server counts as rounds close.
    fn live(rounds: u64) -> (HistoryCache, Totals, Window) {
        let (mut past, mut totals, mut window) =
            (HistoryCache::default(), Totals::default(), Window::default());
        for round in 1..=rounds {
            let record = record(round);
            totals.samples += record.samples;
            totals.squared_error += record.squared_error;
            totals.messages_up += record.bytes_up;
            totals.messages_down += record.bytes_down;
            window.push(record.clone());
            past.push(&record, &totals, &window);
        }
        (past, totals, window)
    }

    #[test]
    fn what_was_stored_gives_the_same_points() {
        for rounds in [1, 50, 150, 5_000] {
            let (live, totals, live_window) = live(rounds);
            let records: Vec<_> = (1..=rounds).map(record).collect();
            let mut window = Window::default();
            let past = HistoryCache::from_records(&records, &totals, &mut window);
            assert_eq!(past.points(usize::MAX), live.points(usize::MAX), "{rounds} rounds");
            assert_eq!((window.rounds(), window.mse()), (live_window.rounds(), live_window.mse()));
        }
    }

    #[test]
    fn rounds_that_are_forgotten_are_made_up_for() {
        let (_, totals, _) = live(1_000);
        let records: Vec<_> =
            (1..=1_000).filter(|round| *round > 500 || round % 100 == 0).map(record).collect();
        let mut window = Window::default();
        let points = HistoryCache::from_records(&records, &totals, &mut window).points(usize::MAX);
        assert_eq!((points.len(), points[0].round, points[0].window_mse), (505, 100, None));
        assert!((0.0..2.0).contains(&points[0].mse.unwrap()), "{:?}", points[0]);
        assert_eq!(points[504].mse, totals.mse());
        // Round 599 is the hundredth of those that follow each other.
        let has_window = |round: usize| points[round - 496].window_mse.is_some();
        assert_eq!([598, 599, 1_000].map(has_window), [false, true, true]);
    }

    #[test]
    fn memory_is_bounded_and_the_latest_is_always_there() {
        let (past, ..) = live(50_000);
        let all = past.points(usize::MAX);
        assert!((MAX_POINTS / 2..=MAX_POINTS).contains(&all.len()), "{} points", all.len());
        assert!(all.windows(2).all(|pair| pair[1].round - pair[0].round == past.stride));
        let few = past.points(100);
        assert!((50..=100).contains(&few.len()) && few.last() == all.last());
        assert!(HistoryCache::default().points(10).is_empty() && past.points(0).len() <= 1);
    }
}
