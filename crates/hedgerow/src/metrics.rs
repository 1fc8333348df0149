//! What is measured while a federation runs: errors, running and windowed, and numbers and bytes
//! sent.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::state::is_count;

/// Mean of squared errors over everything and over a sliding window of rounds.
#[derive(Debug, Clone)]
pub struct ErrorMeter(WindowedTally);

/// A tally of everything and of a sliding window of rounds.
#[derive(Debug, Clone)]
pub struct WindowedTally {
    total: Tally,
    /// Tallies of the last rounds, in a ring.
    recent: Vec<Tally>,
    at: usize,
    open: Tally,
}

/// A sum and how many went into it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tally {
    /// Sum.
    pub sum: f64,
    /// Terms.
    pub count: u64,
}

impl Tally {
    /// Adds one term.
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    /// Mean of the terms; 0 if there are none.
    pub fn mean(self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }
}

impl core::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.sum += other.sum;
        self.count += other.count;
    }
}

impl WindowedTally {
    /// With a window of so many rounds (at least one).
    pub fn new(window: usize) -> Self {
        Self {
            total: Tally::default(),
            recent: vec![Tally::default(); window.max(1)],
            at: 0,
            open: Tally::default(),
        }
    }

    /// Adds one term, in the round that is open.
    pub fn add(&mut self, value: f64) {
        self.open.add(value);
    }

    /// All terms in closed rounds.
    pub fn total(&self) -> Tally {
        self.total
    }

    /// Mean over the window of the last closed rounds, if there was any term in them.
    pub fn window_mean(&self) -> Option<f64> {
        let mut window = Tally::default();
        for tally in &self.recent {
            window += *tally;
        }
        (window.count > 0).then(|| window.mean())
    }

    /// Ends a round.
    pub fn close_round(&mut self) {
        self.total += self.open;
        self.recent[self.at] = self.open;
        self.at = (self.at + 1) % self.recent.len();
        self.open = Tally::default();
    }
}

impl ErrorMeter {
    /// A meter with a window of so many rounds (at least one).
    pub fn new(window: usize) -> Self {
        Self(WindowedTally::new(window))
    }

    /// One prediction and its label, in the round that is open.
    pub fn record(&mut self, prediction: f32, label: f32) {
        let error = f64::from(prediction) - f64::from(label);
        self.add(error * error);
    }

    /// The squared error of a prediction, in the round that is open.
    pub fn add(&mut self, squared_error: f64) {
        self.0.add(squared_error);
    }

    /// Ends a round.
    pub fn close_round(&mut self) {
        self.0.close_round();
    }

    /// MSE(t) over all predictions in closed rounds.
    pub fn mse(&self) -> f64 {
        self.0.total().mean()
    }

    /// The same over the window of the last closed rounds, if there was any prediction in them.
    pub fn window_mse(&self) -> Option<f64> {
        self.0.window_mean()
    }
}

/// What travelled, counted from the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Numbers from nodes to the server, whether they were taken or came too late.
    pub numbers_up: u64,
    /// Numbers from the server to nodes.
    pub numbers_down: u64,
    /// Bytes of the former.
    pub bytes_up: u64,
    /// Bytes of the latter.
    pub bytes_down: u64,
    /// Uploads that the server took.
    pub uploads_accepted: u64,
    /// Uploads that came after their round had closed.
    pub uploads_late: u64,
}

impl core::ops::AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.numbers_up += other.numbers_up;
        self.numbers_down += other.numbers_down;
        self.bytes_up += other.bytes_up;
        self.bytes_down += other.bytes_down;
        self.uploads_accepted += other.uploads_accepted;
        self.uploads_late += other.uploads_late;
    }
}

impl Traffic {
    /// Whether a saved state is one that could have been reached.
    pub(crate) fn is_sound(&self) -> bool {
        let Self { numbers_up, numbers_down, bytes_up, bytes_down, uploads_accepted, uploads_late } =
            *self;
        [numbers_up, numbers_down, bytes_up, bytes_down, uploads_accepted, uploads_late]
            .map(is_count)
            == [true; 6]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_forget_and_totals_do_not() {
        let mut meter = ErrorMeter::new(2);
        for error in [3.0, 1.0, 2.0] {
            meter.record(error, 0.0);
            meter.record(0.0, 0.0);
            meter.close_round();
        }
        assert_eq!(meter.mse(), 14.0 / 6.0);
        assert_eq!(meter.window_mse(), Some(5.0 / 4.0));
        (0..2).for_each(|_| meter.close_round());
        assert_eq!((meter.mse(), meter.window_mse()), (14.0 / 6.0, None));
        assert_eq!(ErrorMeter::new(0).mse(), 0.0);
    }
}
