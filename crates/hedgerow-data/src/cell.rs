//! Parses text as a [`Cell`]: numbers with a decimal point or comma, and marks of missing values.

use super::rows::{Cell, CellPosition, ReadError};
use super::text::excerpt;

/// Default marks of a missing value, besides an empty cell.
const USUAL_MARKERS: [&str; 6] = ["NA", "N/A", "NaN", "nan", "null", "?"];

/// Those texts, and `more`: what [`Format::missing`](super::rows::Format) takes.
pub fn usual_markers(more: impl IntoIterator<Item = String>) -> Vec<String> {
    USUAL_MARKERS.map(str::to_owned).into_iter().chain(more).collect()
}

/// Reads cells.
#[derive(Debug, Clone, Default)]
pub(crate) struct CellReader {
    missing_numbers: Vec<f64>,
    missing_texts: Vec<String>,
}

/// Why a number can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadNumber {
    /// NaN or infinity, spelled out.
    #[error("is not finite")]
    NotFinite,
    /// Too many digits: the nearest number is infinite.
    #[error("is beyond the bound of ±{max:e}", max = f64::MAX)]
    TooLarge,
}

impl BadNumber {
    /// The error for that text at that place.
    pub(crate) fn at(self, place: CellPosition, text: &str) -> ReadError {
        match self {
            Self::NotFinite => ReadError::NotFinite(place, excerpt(text)),
            Self::TooLarge => ReadError::TooLarge(place, excerpt(text)),
        }
    }
}

impl CellReader {
    /// A reader with these markers for a missing value.
    pub(crate) fn new(missing: &[String]) -> Self {
        let mut reader = Self::default();
        for marker in missing.iter().map(|marker| marker.trim()) {
            match parse_number(marker, b'.').or_else(|| parse_number(marker, b',')) {
                Some(number) => reader.missing_numbers.push(number),
                None => reader.missing_texts.push(marker.to_owned()),
            }
        }
        reader
    }

    /// Reads a text without blanks around it.
    #[inline]
    pub(crate) fn read<'a>(&self, text: &'a str, decimal: u8) -> Result<Cell<'a>, BadNumber> {
        if text.is_empty() {
            return Ok(Cell::Missing);
        }
        match parse_number(text, decimal) {
            Some(number) => self.number(number).map_err(|bad| {
                // A number that overflows is read as infinite, too, but has digits.
                if text.contains(|c: char| c.is_ascii_digit()) { BadNumber::TooLarge } else { bad }
            }),
            None if self.missing_texts.iter().any(|marker| marker == text) => Ok(Cell::Missing),
            None => Ok(Cell::Text(text)),
        }
    }

    /// A number, unless it marks a missing value.
    #[inline]
    pub(crate) fn number(&self, number: f64) -> Result<Cell<'static>, BadNumber> {
        let is_marker = |marker: &f64| *marker == number || marker.is_nan() && number.is_nan();
        if !self.missing_numbers.is_empty() && self.missing_numbers.iter().any(is_marker) {
            return Ok(Cell::Missing);
        }
        if !number.is_finite() {
            return Err(BadNumber::NotFinite);
        }
        Ok(Cell::Number(number))
    }
}

/// Most decimals of a number that is read the short way: ten to this power is still exact.
const SHORT_DECIMALS: usize = 15;
/// Powers of ten.
const POWERS_OF_TEN: [f64; SHORT_DECIMALS + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// The number that is nearest to a text; infinities and NaN are numbers here.
#[inline]
pub(crate) fn parse_number(text: &str, decimal: u8) -> Option<f64> {
    parse_short(text.as_bytes(), decimal).or_else(|| parse_long(text, decimal))
}

/// At most 15 digits and a sign: one exact division, so that the result is the nearest number.
#[inline]
fn parse_short(text: &[u8], decimal: u8) -> Option<f64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.len() > SHORT_DECIMALS + 1 {
        return None;
    }
    let mut whole = 0_u64;
    let mut point = None;
    for (position, &byte) in digits.iter().enumerate() {
        match byte.wrapping_sub(b'0') {
            digit @ 0..=9 => whole = 10 * whole + u64::from(digit),
            _ if byte == decimal && point.is_none() => point = Some(position),
            _ => return None,
        }
    }
    let count = digits.len() - usize::from(point.is_some());
    if count == 0 || count > SHORT_DECIMALS {
        return None;
    }
    let decimals = point.map_or(0, |point| digits.len() - 1 - point);
    let size = whole as f64 / POWERS_OF_TEN[decimals];
    Some(if negative { -size } else { size })
}

fn parse_long(text: &str, decimal: u8) -> Option<f64> {
    // The first letter of most texts shows that they are not numbers.
    let first = *text.as_bytes().first()?;
    if !(first.is_ascii_digit() || first == decimal || b"+-iInN".contains(&first)) {
        return None;
    }
    match decimal {
        b',' if text.contains('.') => None,
        b',' if text.contains(',') => text.replacen(',', ".", 1).parse().ok(),
        _ => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reader(missing: &[&str]) -> CellReader {
        CellReader::new(&missing.iter().map(|marker| (*marker).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn points_and_commas() {
        for (text, point, comma) in [
            ("2.6", Some(2.6), None),
            ("2,6", None, Some(2.6)),
            ("-17", Some(-17.0), Some(-17.0)),
            ("+.5", Some(0.5), None),
            ("-,5e1", None, Some(-5.0)),
            ("5.", Some(5.0), None),
            ("1,234,5", None, None),
            ("1.234,5", None, None),
            ("18.00.00", None, None),
            ("1e3", Some(1e3), Some(1e3)),
            (".", None, None),
            ("-", None, None),
            ("0x10", None, None),
            ("10/03/2004", None, None),
            ("123456789012345678901234.5", Some(123456789012345678901234.5), None),
        ] {
            assert_eq!(parse_number(text, b'.'), point, "{text}");
            assert_eq!(parse_number(text, b','), comma, "{text}");
        }
        assert_eq!(parse_number("-0", b'.').map(f64::to_bits), Some((-0.0_f64).to_bits()));
    }

    #[test]
    fn markers_are_compared_as_what_they_are() {
        let cells = reader(&["-200", "NA", " ? ", "nan"]);
        for text in ["", "-200", "-200.0", "-2e2", "NA", "?", "NaN"] {
            assert_eq!(cells.read(text, b'.'), Ok(Cell::Missing), "{text}");
        }
        assert_eq!(cells.read("-200,0", b','), Ok(Cell::Missing));
        assert_eq!(cells.read("na", b'.'), Ok(Cell::Text("na")));
        assert_eq!(cells.read("200", b'.'), Ok(Cell::Number(200.0)));
        assert_eq!(reader(&["1,5"]).read("1.5", b'.'), Ok(Cell::Missing));
        assert_eq!(reader(&["inf"]).read("inf", b'.'), Ok(Cell::Missing));
    }

    #[test]
    fn only_finite_numbers_are_cells() {
        let cells = reader(&[]);
        for text in ["NaN", "inf", "-Infinity"] {
            assert_eq!(cells.read(text, b'.'), Err(BadNumber::NotFinite), "{text}");
        }
        assert_eq!(cells.read("1e400", b'.'), Err(BadNumber::TooLarge));
        assert_eq!(cells.read("-9e999", b'.'), Err(BadNumber::TooLarge));
        assert_eq!(cells.read("1e-400", b'.'), Ok(Cell::Number(0.0)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn the_short_way_is_the_long_way(text in "[+-]?[0-9]{0,17}[.,]?[0-9]{0,17}(e-?[0-9]{1,3})?") {
            let found = parse_number(&text, b'.').map(f64::to_bits);
            prop_assert_eq!(found, text.parse::<f64>().ok().map(f64::to_bits));
            let found = parse_number(&text.replace('.', ","), b',').map(f64::to_bits);
            prop_assert_eq!(found, text.replace(',', ".").parse::<f64>().ok().map(f64::to_bits));
        }
    }
}
