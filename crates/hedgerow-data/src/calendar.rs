//! The calendar as inputs: hour of day, day of week and day of year as points on a circle, so that
//! the end of a cycle is next to its beginning. They are of the label's own time, which is known
//! before the label is.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// A cycle of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cycle {
    /// The time of day.
    Hour,
    /// The day of the week, with its time.
    Weekday,
    /// The day of the year, with its time.
    Yearday,
}

impl Cycle {
    /// All cycles, the shortest first.
    pub const ALL: [Self; 3] = [Self::Hour, Self::Weekday, Self::Yearday];

    /// Inputs that a cycle becomes: a sine and a cosine.
    pub const WIDTH: usize = 2;

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Weekday => "weekday",
            Self::Yearday => "yearday",
        }
    }

    /// Its length in seconds.
    fn seconds(self) -> f64 {
        const DAY: f64 = 86400.0;
        match self {
            Self::Hour => DAY,
            Self::Weekday => 7.0 * DAY,
            Self::Yearday => 365.2425 * DAY,
        }
    }

    /// Sine and cosine of where a time is in the cycle. The same bits on every platform.
    pub fn inputs(self, time: f64) -> [f32; Self::WIDTH] {
        let angle = std::f64::consts::TAU * (time.rem_euclid(self.seconds()) / self.seconds());
        [libm::sin(angle) as f32, libm::cos(angle) as f32]
    }
}

/// Which cycles are inputs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum CalendarChoice {
    /// The shortest that the times of the data resolve and cover; see [`CycleFinder`].
    Auto,
    /// These; none if empty.
    Cycles(Vec<Cycle>),
}

impl TryFrom<String> for CalendarChoice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "auto" => return Ok(Self::Auto),
            "none" => return Ok(Self::Cycles(Vec::new())),
            _ => {}
        }
        let mut cycles = Vec::new();
        for name in text.split(',').map(str::trim) {
            let found = Cycle::ALL.into_iter().find(|cycle| cycle.name() == name);
            match found.filter(|cycle| !cycles.contains(cycle)) {
                Some(cycle) => cycles.push(cycle),
                None => {
                    let names = Cycle::ALL.map(Cycle::name).join(", ");
                    return Err(format!("\"auto\", \"none\", or each once of {names}"));
                }
            }
        }
        Ok(Self::Cycles(cycles))
    }
}

/// Cycles that times must cover.
const COVERED_CYCLES: f64 = 2.0;
/// Readings per cycle that resolve it.
const READINGS_PER_CYCLE: f64 = 4.0;

/// Finds the cycles that times can show: they cover the cycle at least twice, and at least half of
/// the steps from one reading of a device to its next are at most a quarter of the cycle. Labels
/// have no part in it.
#[derive(Debug, Default)]
pub struct CycleFinder {
    range: Option<(f64, f64)>,
    /// Time of each device's last reading.
    last: HashMap<u32, f64>,
    steps: u64,
    fine_steps: [u64; 3],
}

impl CycleFinder {
    /// The next reading of a device.
    pub fn see(&mut self, device: u32, time: f64) {
        let (first, last) = self.range.unwrap_or((time, time));
        self.range = Some((first.min(time), last.max(time)));
        let Some(before) = self.last.insert(device, time).filter(|before| *before != time) else {
            return;
        };
        self.steps += 1;
        for (cycle, fine) in Cycle::ALL.into_iter().zip(&mut self.fine_steps) {
            let step = (time - before).abs();
            *fine += u64::from(step <= cycle.seconds() / READINGS_PER_CYCLE);
        }
    }

    /// The cycles so far, the shortest first.
    pub fn cycles(&self) -> Vec<Cycle> {
        let Some((first, last)) = self.range else { return Vec::new() };
        let is_shown = |(cycle, fine): &(Cycle, u64)| {
            last - first >= COVERED_CYCLES * cycle.seconds() && 2 * fine >= self.steps
        };
        Cycle::ALL
            .into_iter()
            .zip(self.fine_steps)
            .filter(is_shown)
            .map(|(cycle, _)| cycle)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::parse;

    #[test]
    fn a_cycle_is_a_circle() {
        let near = |found: [f32; 2], expected: [f32; 2]| {
            found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6)
        };
        let at = |cycle: Cycle, text: &str| cycle.inputs(parse(text).unwrap());
        assert!(near(at(Cycle::Hour, "2026-03-01 00:00"), [0.0, 1.0]));
        assert!(near(at(Cycle::Hour, "2026-03-01 06:00"), [1.0, 0.0]));
        assert!(near(at(Cycle::Hour, "1960-03-01 18:00"), [-1.0, 0.0]));
        // The first of January 1970 was a Thursday: so is this day.
        assert!(near(at(Cycle::Weekday, "2026-11-19"), [0.0, 1.0]));
        let summers = ["2001-07-01", "2026-07-01"].map(|day| at(Cycle::Yearday, day));
        assert!((summers[0][0] - summers[1][0]).abs() < 0.02, "{summers:?}");
        for cycle in Cycle::ALL {
            for time in [-1e12, 0.1, 1e9, 3e11] {
                let [sine, cosine] = cycle.inputs(time);
                assert!((sine.hypot(cosine) - 1.0).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn names_are_read() {
        let read = |text: &str| CalendarChoice::try_from(text.to_owned());
        assert_eq!(read("auto"), Ok(CalendarChoice::Auto));
        assert_eq!(read("none"), Ok(CalendarChoice::Cycles(vec![])));
        let both = vec![Cycle::Weekday, Cycle::Hour];
        assert_eq!(read("weekday, hour"), Ok(CalendarChoice::Cycles(both)));
        for text in ["", "hours", "hour,hour", "hour,none", "auto,hour", ","] {
            assert!(read(text).unwrap_err().contains("hour, weekday, yearday"), "{text}");
        }
    }

    /// The cycles of readings at equal steps, as names.
    fn found(step: f64, count: u32, devices: u32) -> Vec<&'static str> {
        let mut finder = CycleFinder::default();
        for at in 0..count {
            (0..devices).for_each(|device| finder.see(device, f64::from(at) * step));
        }
        finder.cycles().into_iter().map(Cycle::name).collect()
    }

    #[test]
    fn cycles_are_covered_twice_and_resolved() {
        const HOUR: f64 = 3600.0;
        assert!(found(HOUR, 48, 1).is_empty());
        assert_eq!(found(HOUR, 49, 3), ["hour"]);
        assert_eq!(found(HOUR, 2 * 168 + 1, 1), ["hour", "weekday"]);
        assert_eq!(found(HOUR, 2 * 8767, 1), ["hour", "weekday", "yearday"]);
        assert_eq!(found(24.0 * HOUR, 365, 1), ["weekday"]);
        assert_eq!(found(24.0 * HOUR, 732, 1), ["weekday", "yearday"]);
        assert_eq!(found(30.0 * 24.0 * HOUR, 36, 1), ["yearday"]);
        assert!(found(365.0 * 24.0 * HOUR, 30, 1).is_empty());
        assert!(CycleFinder::default().cycles().is_empty());
    }
}
