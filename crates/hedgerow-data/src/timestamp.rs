//! Time stamps in the usual notations, as seconds. Only their order and distance matter: a time
//! without an offset is taken as UTC.

use std::borrow::Cow;

use time::{Date, Month};

use super::rows::Cell;

/// The Julian day number of the first of January 1970.
const JULIAN_DAY_OF_1970: i32 = 2_440_588;

/// Seconds since the first of January 1970: `2013-03-01 17:00:00`, `2013-03-01T17:00:00Z`,
/// `2013-03-01T18:00:00+01:00`, `10/03/2004 18.00.00` (day first), `2013 3 1 0`, or a plain number,
/// which is taken as it is. `None` for a text that is no time.
pub fn parse(text: &str) -> Option<f64> {
    let text = text.trim();
    if let Ok(number) = text.parse::<f64>() {
        return number.is_finite().then_some(number);
    }
    let (text, east) = without_offset(text)?;
    let is_allowed = |c: char| c.is_ascii_digit() || "-/.:, T".contains(c);
    if !text.starts_with(|c: char| c.is_ascii_digit()) || !text.chars().all(is_allowed) {
        return None;
    }
    let mut parts: Vec<&str> =
        text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty()).collect();
    if !(3..=7).contains(&parts.len()) {
        return None;
    }
    let fraction = if parts.len() == 7 { format!("0.{}", parts.pop()?).parse().ok()? } else { 0.0 };
    let parts: Vec<u64> = parts.iter().map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let year_first = parts[0] > 31;
    let (year, day) = if year_first { (parts[0], parts[2]) } else { (parts[2], parts[0]) };
    let month = parts[1];
    let at = |position: usize, most: u64| match parts.get(position) {
        None => Some(0),
        Some(part) if *part <= most => Some(*part),
        Some(_) => None,
    };
    // The day's end may be written as 24:00, and a leap second as 60.
    let (hour, minute, second) = (at(3, 24)?, at(4, 59)?, at(5, 60)?);
    if !(1000..=9999).contains(&year) || (hour == 24 && minute + second > 0) {
        return None;
    }
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date = Date::from_calendar_date(year as i32, month, u8::try_from(day).ok()?).ok()?;
    let seconds = (hour * 3600 + minute * 60 + second) as f64 + fraction;
    Some(f64::from(date.to_julian_day() - JULIAN_DAY_OF_1970) * 86400.0 + seconds - east)
}

/// The text of a cell as a part of a time that has `columns` columns, which blanks join; none if it
/// is missing.
pub fn part(cell: Cell<'_>, columns: usize) -> Option<Cow<'_, str>> {
    match cell {
        Cell::Missing => None,
        Cell::Text(text) => Some(Cow::Borrowed(text)),
        Cell::Number(number) => {
            let mut text = number.to_string();
            // Beside a date, 17.30 is half past five.
            let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            if columns > 1 && decimals == 1 {
                text.push('0');
            }
            Some(Cow::Owned(text))
        }
    }
}

/// A time as it is written: `2013-03-01T17:00:00`, with a fraction if it has one; empty if it is
/// beyond the calendar.
pub fn write(seconds: f64) -> String {
    // To milliseconds, so that nothing is carried over later.
    let seconds = (1e3 * seconds).round() / 1e3;
    let (days, second) = (seconds.div_euclid(86400.0), seconds.rem_euclid(86400.0));
    if days.abs() > 3e6 {
        return String::new();
    }
    let Ok(date) = Date::from_julian_day(days as i32 + JULIAN_DAY_OF_1970) else {
        return String::new();
    };
    let (whole, fraction) = (second as u32, second.fract());
    let (hour, minute, second) = (whole / 3600, whole / 60 % 60, whole % 60);
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if fraction >= 5e-4 {
        text += &format!("{fraction:.3}")[1..];
    }
    text
}

/// Largest offset from UTC that is in use, in seconds.
const MAX_OFFSET: f64 = 14.0 * 3600.0;

/// The time without `Z`, `+01:00`, `-0530` or `+02` at its end, and that offset from UTC in
/// seconds.
fn without_offset(text: &str) -> Option<(&str, f64)> {
    if let Some(text) = text.strip_suffix('Z') {
        return Some((text, 0.0));
    }
    // Dates have hyphens too. An offset comes after the minutes.
    let clock = text.find(':').unwrap_or(text.len());
    let Some(sign) = text[clock..].find(['+', '-']).map(|sign| clock + sign) else {
        return Some((text, 0.0));
    };
    let (time, offset) = text.split_at(sign);
    let (hours, minutes) = match &offset.as_bytes()[1..] {
        [h1, h2] => ([*h1, *h2], *b"00"),
        [h1, h2, m1, m2] | [h1, h2, b':', m1, m2] => ([*h1, *h2], [*m1, *m2]),
        _ => return None,
    };
    let number = |[tens, ones]: [u8; 2]| {
        let are_digits = tens.is_ascii_digit() && ones.is_ascii_digit();
        are_digits.then(|| f64::from(tens - b'0') * 10.0 + f64::from(ones - b'0'))
    };
    let seconds = number(hours)? * 3600.0 + number(minutes)? * 60.0;
    if seconds > MAX_OFFSET {
        return None;
    }
    Some((time.trim_end(), if offset.starts_with('-') { -seconds } else { seconds }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        let noon = 951_825_600.0; // 29 February 2000, 12:00
        for text in [
            "2000-02-29 12:00:00",
            "2000-02-29T12:00:00Z",
            "2000-02-29T12:00",
            "29/02/2000 12.00.00",
            "2000 2 29 12",
            "2000-02-29 12:00:00.000",
            "951825600",
            "2000-02-29T13:00:00+01:00",
            "2000-02-29 13:00:00 +0100",
            "2000-02-29T13:00+01:00",
            "2000-02-29T06:30:00.000-05:30",
            "2000-02-29T14:00:00+02",
            "29.02.2000, 12:00",
        ] {
            assert_eq!(parse(text), Some(noon), "{text}");
        }
        assert_eq!(parse("1970-01-01"), Some(0.0));
        assert_eq!(parse("2000-02-29 12:00:00.25"), Some(noon + 0.25));
        assert_eq!(parse("2000-02-28 24:00"), parse("2000-02-29"));
        assert_eq!(parse("1969-12-31 23:59:59"), Some(-1.0));
        assert_eq!(parse("2013 3 1 1").unwrap() - parse("2013 3 1 0").unwrap(), 3600.0);
    }

    #[test]
    fn written_times_are_read_again() {
        for text in ["2000-02-29T12:00:00", "1969-12-31T23:59:59", "2013-03-01T17:05:09.250"] {
            assert_eq!(write(parse(text).unwrap()), text);
        }
        assert_eq!(write(1e300), "");
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "soon",
            "2000-13-01",
            "2000-00-10",
            "12:00",
            "1/2/3/4/5/6/7/8",
            "2000-02-29 99:00",
            "inf",
            "99999999999999999999-1-1",
            "2000-02-30",
            "1900-02-29",
            "31/04/2013",
            "2000-02-29 24:01",
            "03/15/2013",
            "5:00 PM 2013-03-01",
            "2000-02-29T12:00:00+1",
            "2000-02-29T12:00:00+01:00:00",
            "2000-02-29T12:00:00+aé",
            "2000-02-29+01:00",
            "2000-02-29 16:00-17:00",
            "-5/3/2000",
            "nan",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
