//! Where a run is set back to, as people say it.

use std::time::{SystemTime, UNIX_EPOCH};

use hedgerow_net::duration::Span;
use hedgerow_net::operations::Target;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::AdminError;

/// A round, a time, or how long ago.
pub(super) fn read(text: &str) -> Result<Target, AdminError> {
    let refused = || AdminError::Target(text.to_owned());
    if let Ok(round) = text.parse() {
        return Ok(Target::Round(round));
    }
    if let Ok(Span(span)) = text.parse::<Span>() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = now.checked_sub(span).ok_or_else(refused)?;
        return Ok(Target::Time(u64::try_from(at.as_millis()).map_err(|_| refused())?));
    }
    // Without a zone it is UTC; seconds may be missing.
    let plain = text.replacen(' ', "T", 1);
    let candidates = [plain.clone(), format!("{plain}Z"), format!("{plain}:00Z")];
    let time = candidates.iter().find_map(|text| OffsetDateTime::parse(text, &Rfc3339).ok());
    let milliseconds = time.ok_or_else(refused)?.unix_timestamp_nanos() / 1_000_000;
    Ok(Target::Time(u64::try_from(milliseconds).map_err(|_| refused())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_times_and_spans_are_told_apart() {
        assert_eq!(read("12").unwrap(), Target::Round(12));
        let six = Target::Time(1_795_327_200_000);
        for text in [
            "2026-11-22 06:00",
            "2026-11-22T06:00:00",
            "2026-11-22T07:00:00+01:00",
            "2026-11-22 06:00:00Z",
        ] {
            assert_eq!(read(text).unwrap(), six, "{text}");
        }
        let Target::Time(at) = read("90m").unwrap() else { panic!("a time") };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        assert!((now - 5_460_000..now - 5_399_000).contains(&at), "{at} at {now}");
        for text in ["", "-1", "yesterday", "2026-13-01 06:00", "1969-01-01 00:00"] {
            assert!(read(text).unwrap_err().to_string().contains("nor how long ago"), "{text}");
        }
    }
}
