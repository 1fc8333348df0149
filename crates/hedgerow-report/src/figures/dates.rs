//! Ticks of an axis of dates, which are seconds since 1970.

use hedgerow_data::timestamp::{parse, write};

use super::scale::Tick;

/// Steps of less than a month, in seconds.
const STEPS: [f64; 18] = [
    1.0,
    2.0,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    1800.0,
    3600.0,
    7200.0,
    10_800.0,
    21_600.0,
    43_200.0,
    DAY,
    2.0 * DAY,
    WEEK,
];
const DAY: f64 = 86_400.0;
const WEEK: f64 = 7.0 * DAY;
/// The first Monday of 1970.
const MONDAY: f64 = 4.0 * DAY;

/// Longer steps, in months.
const MONTHS: [i64; 13] = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 6000, 24_000];
/// Seconds of a month, on average.
const MONTH: f64 = 2_629_746.0;

/// About this number of ticks at whole hours, days, weeks, months or years.
pub(super) fn ticks(low: f64, high: f64, about: usize) -> Vec<Tick> {
    let rough = (high - low) / about.max(1) as f64;
    match STEPS.into_iter().find(|step| *step >= rough * 0.999) {
        Some(step) => even(low, high, step),
        None => by_months(low, high, rough),
    }
    .into_iter()
    .filter(|tick| !tick.label.is_empty())
    .take(2 * about + 2)
    .collect()
}

fn even(low: f64, high: f64, step: f64) -> Vec<Tick> {
    let from = if step == WEEK { MONDAY } else { 0.0 };
    let first = ((low - from) / step).ceil();
    let count = ((high - from) / step - first).floor().max(-1.0) as usize;
    let tick = |i: usize| {
        let value = from + (first + i as f64) * step;
        let text = write(value);
        let part = match step {
            step if step >= DAY => 0..10,
            _ if value.rem_euclid(DAY) == 0.0 => 5..10,
            step if step >= 60.0 => 11..16,
            _ => 11..19,
        };
        Tick { value, label: text.get(part).unwrap_or_default().to_owned() }
    };
    (0..=count).map(tick).filter(|tick| (low..=high).contains(&tick.value)).collect()
}

fn by_months(low: f64, high: f64, rough: f64) -> Vec<Tick> {
    let fits = |step: &i64| *step as f64 * MONTH >= rough * 0.999;
    let step = MONTHS.into_iter().find(fits).unwrap_or(MONTHS[MONTHS.len() - 1]);
    let month_of = |seconds: f64| -> Option<i64> {
        let text = write(seconds);
        Some(12 * text.get(..4)?.parse::<i64>().ok()? + text.get(5..7)?.parse::<i64>().ok()? - 1)
    };
    let (Some(first), Some(last)) = (month_of(low), month_of(high)) else { return Vec::new() };
    let tick = |step_number: i64| {
        let month = step * step_number;
        let text = format!("{:04}-{:02}-01", month.div_euclid(12), month.rem_euclid(12) + 1);
        let label = if step >= 12 { text[..4].to_owned() } else { text[..7].to_owned() };
        Some(Tick { value: parse(&text)?, label })
    };
    let numbers = first.div_euclid(step)..=last.div_euclid(step);
    numbers.filter_map(tick).filter(|tick| (low..=high).contains(&tick.value)).collect()
}

/// A date with hours and minutes, as it is told in a sentence.
pub(super) fn in_words(seconds: f64) -> String {
    write(seconds).get(..16).unwrap_or_default().replace('T', " ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn named(from: &str, to: &str) -> Vec<String> {
        let [low, high] = [from, to].map(|text| parse(text).unwrap());
        let found = ticks(low, high, 6);
        assert!(found.iter().all(|tick| (low..=high).contains(&tick.value)));
        found.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn steps_are_those_of_clocks_and_calendars() {
        assert_eq!(
            named("2026-03-01 00:00", "2026-03-01 00:00:05"),
            ["03-01", "00:00:01", "00:00:02", "00:00:03", "00:00:04", "00:00:05"]
        );
        assert_eq!(
            named("2026-03-01 21:10", "2026-03-02 01:00"),
            ["22:00", "23:00", "03-02", "01:00"]
        );
        assert_eq!(
            named("2026-03-01 09:00", "2026-03-08 08:00")[..2],
            ["2026-03-02", "2026-03-04"]
        );
        assert_eq!(
            named("2026-03-01", "2026-04-03"),
            ["2026-03-02", "2026-03-09", "2026-03-16", "2026-03-23", "2026-03-30"]
        );
        assert_eq!(
            named("2025-11-20", "2026-05-02"),
            ["2025-12", "2026-01", "2026-02", "2026-03", "2026-04", "2026-05"]
        );
        assert_eq!(named("1969-06-01", "1973-02-01"), ["1970", "1971", "1972", "1973"]);
        assert_eq!(named("1000-01-01", "9999-01-01"), ["2000", "4000", "6000", "8000"]);
        assert_eq!(in_words(0.0), "1970-01-01 00:00");
    }

    #[test]
    fn times_beyond_the_calendar_have_no_ticks() {
        for (low, high) in [(1e300, 1.1e300), (-1e18, 1e18), (0.0, 0.0)] {
            assert!(ticks(low, high, 6).len() <= 14, "{low} {high}");
        }
    }
}
