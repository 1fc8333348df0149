//! [`Span`]: a length of time as people write it, such as `"250ms"`, `"10s"` or `"5m"`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

/// A length of time in settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(try_from = "String")]
pub struct Span(pub Duration);

/// Text that isn't a length of time. The message states what it must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a number and ms, s, m, h or d, such as \"250ms\" or \"10s\", and at most 365d")]
pub struct NotASpan;

/// From the largest; a span is written in the largest that leaves no rest.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

const MAX_MS: u64 = 365 * 86_400_000;

impl FromStr for Span {
    type Err = NotASpan;

    fn from_str(text: &str) -> Result<Self, NotASpan> {
        let (digits, unit) =
            text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let (_, unit) =
            UNITS.iter().find(|(name, _)| *name == unit.trim_start()).ok_or(NotASpan)?;
        let count: u64 = digits.parse().map_err(|_| NotASpan)?;
        let ms = count.checked_mul(*unit).filter(|ms| *ms <= MAX_MS).ok_or(NotASpan)?;
        Ok(Self(Duration::from_millis(ms)))
    }
}

impl TryFrom<String> for Span {
    type Error = NotASpan;

    fn try_from(text: String) -> Result<Self, NotASpan> {
        text.parse()
    }
}

impl fmt::Display for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis() as u64;
        let fits = |unit: &&(&str, u64)| ms >= unit.1 && ms.is_multiple_of(unit.1);
        match UNITS.iter().find(fits) {
            Some((name, unit)) => write!(out, "{}{name}", ms / unit),
            None => write!(out, "0s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_written() {
        for (text, ms) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("365d", MAX_MS),
            ("0s", 0),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!((span.0.as_millis() as u64, span.to_string().as_str()), (ms, text));
        }
        assert_eq!("60 s".parse::<Span>().unwrap().to_string(), "1m");
        assert_eq!("1500ms".parse::<Span>().unwrap().to_string(), "1500ms");
    }

    #[test]
    fn other_text_is_refused() {
        for text in
            ["", "10", "s", "-1s", "1.5s", "10 sec", "366d", "99999999999999999999s", "1s ", "١s"]
        {
            assert_eq!(text.parse::<Span>(), Err(NotASpan), "{text:?}");
        }
    }
}
