//! Time stamps as people write them, as seconds. Only their order and distance matter: what names
//! no offset from Greenwich counts as if it were there.

/// Seconds since the first of January 1970: `2013-03-01 17:00:00`, `2013-03-01T17:00:00Z`,
/// `2013-03-01T18:00:00+01:00`, `10/03/2004 18.00.00` (day first), `2013 3 1 0`, or a bare number,
/// which counts as it is. `None` for what is no time.
pub(super) fn parse(text: &str) -> Option<f64> {
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
    if !(1000..=9999).contains(&year)
        || !is_day(year, month, day)
        || (hour == 24 && minute + second > 0)
    {
        return None;
    }
    let seconds = (hour * 3600 + minute * 60 + second) as f64 + fraction;
    Some(days(year as i64, month as i64, day as i64) as f64 * 86400.0 + seconds - east)
}

/// No place is farther from Greenwich than this.
const LARGEST_OFFSET: f64 = 14.0 * 3600.0;

/// The time without `Z`, `+01:00`, `-0530` or `+02` behind its clock, and by how many seconds that
/// is east of Greenwich.
fn without_offset(text: &str) -> Option<(&str, f64)> {
    if let Some(text) = text.strip_suffix('Z') {
        return Some((text, 0.0));
    }
    // Dates have hyphens too: an offset stands behind the minutes.
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
    if seconds > LARGEST_OFFSET {
        return None;
    }
    Some((time.trim_end(), if offset.starts_with('-') { -seconds } else { seconds }))
}

fn is_day(year: u64, month: u64, day: u64) -> bool {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u64::from(is_leap),
        _ => 0,
    };
    (1..=last).contains(&day)
}

/// Days since the first of January 1970 in the calendar of today.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years that begin in March end with the leap day, so months before it have fixed lengths.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let in_year = (153 * month + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + in_year
        - 719_468
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
