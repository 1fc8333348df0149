//! Running errors of the model and of the constant that it is compared with.

use serde::{Deserialize, Serialize};

use crate::limits::MAX_SUM;
use crate::state::is_count;

/// Samples in the window of the recent error.
const ERROR_WINDOW: f64 = 66.0;

/// It is an alarm if the recent error is so many times the usual error.
const ALARM: f64 = 1.5;

/// The largest weight of one report in the recent error.
const MAX_REPORT_WEIGHT: f64 = 0.2;

/// Rate of the weights of model and constant relative to the constant's usual error, log-odds at
/// first, what is left of them from report to report, and their bound.
const TRUST_RATE: f64 = 0.25;
const TRUST_FIRST: f64 = 1.0;
const TRUST_LEFT: f64 = 0.99;
const TRUST_MOST: f64 = 8.0;

/// Running errors, to tell a drift.
#[derive(Serialize, Deserialize)]
pub(super) struct RunningErrors {
    recent: f64,
    usual: f64,
    /// Of the constant, recently.
    constant: f64,
    /// Reports so far.
    reports: u64,
    /// Log-odds of the model against the constant.
    trust: f64,
}

/// Version 4 had one number more, the last but one.
pub(super) type Version4 = (f64, f64, f64, u64, f64, f64);

impl From<Version4> for RunningErrors {
    fn from((recent, usual, constant, reports, _, trust): Version4) -> Self {
        Self { recent, usual, constant, reports, trust }
    }
}

impl RunningErrors {
    /// Before the first report.
    pub(super) fn new() -> Self {
        Self { recent: 0.0, usual: 0.0, constant: 0.0, reports: 0, trust: TRUST_FIRST }
    }

    /// Log-odds of the model against the constant.
    pub(super) fn trust(&self) -> f64 {
        self.trust
    }

    /// From now on recent errors are the usual ones.
    pub(super) fn begin_anew(&mut self) {
        self.usual = self.recent;
    }

    /// Labels have become so many times as large.
    pub(super) fn rescale(&mut self, gain: f64) {
        for error in [&mut self.recent, &mut self.usual, &mut self.constant] {
            *error = (*error * gain * gain).min(MAX_SUM);
        }
    }

    /// Whether restored ones could have been reached.
    pub(super) fn is_sound(&self) -> bool {
        let Self { recent, usual, constant, reports, trust } = self;
        [recent, usual, constant].iter().all(|error| error.abs() <= MAX_SUM)
            && trust.abs() <= TRUST_MOST
            && is_count(*reports)
    }

    /// Learns from the constant's errors in a round, their squares and themselves in sum, and the
    /// model's squared errors. How far the constant is to move.
    pub(super) fn hear_constant(
        &mut self,
        error: f64,
        told: [f64; 2],
        samples: f64,
    ) -> Option<f64> {
        if samples <= 0.0 {
            return None;
        }
        let [constant, offset] = told.map(|sum| (sum / samples).clamp(-MAX_SUM, MAX_SUM));
        // Reports come in every other round and stand for both.
        let quick = (2.0 * samples / ERROR_WINDOW).min(MAX_REPORT_WEIGHT);
        self.reports = self.reports.saturating_add(1);
        if self.reports == 1 {
            self.constant = constant;
        }
        self.constant += quick * (constant - self.constant);
        if self.constant > 0.0 {
            let gained = TRUST_RATE * (told[0] - error) / self.constant;
            self.trust = (TRUST_LEFT * self.trust + gained).clamp(-TRUST_MOST, TRUST_MOST);
        }
        Some((quick / 3.0).max(0.5 / self.reports as f64) * offset)
    }

    /// Learns from the squared errors of a round. Whether they are an alarm.
    pub(super) fn hear(&mut self, error: f64, samples: f64) -> bool {
        if samples <= 0.0 {
            return false;
        }
        let loss = (error / samples).clamp(0.0, MAX_SUM);
        if self.reports == 0 {
            (self.recent, self.usual) = (loss, loss);
        }
        let quick = (samples / ERROR_WINDOW).min(MAX_REPORT_WEIGHT);
        self.recent += quick * (loss - self.recent);
        let is_alarming = self.recent > ALARM * self.usual;
        let slow = (quick / 10.0).max(0.5 / (2 * self.reports + 1) as f64);
        self.usual += slow * (loss - self.usual);
        is_alarming
    }
}
