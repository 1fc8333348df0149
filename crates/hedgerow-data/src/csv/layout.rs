//! [`Layout`]: what the first rows of a text file tell about the others.

use super::fields::Fields;
use crate::cell::parse_number;
use crate::rows::{Format, ReadError};

/// Separators that are looked for; of two that fit as well, the one before.
const SEPARATORS: [u8; 5] = [b'\t', b';', b'|', b',', b' '];

/// How a text file is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Between fields; a blank stands for any run of blanks.
    pub(crate) separator: u8,
    /// Point or comma; `None` if no row has told so far.
    pub(crate) decimal: Option<u8>,
    /// Whether the first row names the columns.
    pub(crate) header: bool,
}

impl Layout {
    /// The given format, completed from these rows, of which there is at least one.
    pub(crate) fn find(rows: &[&str], format: &Format) -> Result<Self, ReadError> {
        let separator = match format.separator {
            Some(separator) => checked_separator(separator)?,
            None => find_separator(rows, format.decimal),
        };
        let decimal = match format.decimal {
            Some(decimal @ ('.' | ',')) => Some(decimal as u8),
            Some(other) => return Err(ReadError::BadFormat("decimal mark", other, "'.' or ','")),
            None if separator == b',' => Some(b'.'),
            None => decimal_of(rows.iter().copied(), separator),
        };
        let header = format.header.unwrap_or_else(|| {
            let first = rows.first().copied().unwrap_or_default();
            !Fields::new(first, separator)
                .any(|field| field.is_ok_and(|field| is_number(&field, separator)))
        });
        Ok(Self { separator, decimal, header })
    }

    /// The layout that a header alone shows. Blanks may belong to a name, so they separate nothing.
    pub(crate) fn of_header(header: &str) -> Self {
        let cuts = |separator: &u8| Fields::new(header, *separator).nth(1).is_some();
        let separator = SEPARATORS.into_iter().filter(|separator| *separator != b' ').find(cuts);
        let separator = separator.unwrap_or(b',');
        Self { separator, decimal: (separator == b',').then_some(b'.'), header: true }
    }
}

/// The decimal mark that numbers in these rows have: a point if one has it, else a comma if one has
/// that.
pub(crate) fn decimal_of<'a>(rows: impl Iterator<Item = &'a str>, separator: u8) -> Option<u8> {
    let mut found = None;
    for field in rows.flat_map(|row| Fields::new(row, separator)).flatten() {
        if field.contains('.') && is_finite(parse_number(&field, b'.')) {
            return Some(b'.');
        }
        if field.contains(',') && is_finite(parse_number(&field, b',')) {
            found = Some(b',');
        }
    }
    found
}

fn checked_separator(separator: char) -> Result<u8, ReadError> {
    let usable = separator == '\t' || separator == ' ' || separator.is_ascii_punctuation();
    if !usable || "\".+-".contains(separator) {
        let allowed =
            "a comma, a semicolon, a tab, a bar, a blank or another sign that is in no number";
        return Err(ReadError::BadFormat("separator", separator, allowed));
    }
    Ok(separator as u8)
}

/// The separator that cuts most rows into as many fields as the first; of several, the one that
/// leaves most numbers.
fn find_separator(rows: &[&str], decimal: Option<char>) -> u8 {
    let mut best = (b',', (0.0, 0.0));
    for separator in
        SEPARATORS.into_iter().filter(|separator| Some(char::from(*separator)) != decimal)
    {
        if let Some(merit) = merit(rows, separator)
            && merit > best.1
        {
            best = (separator, merit);
        }
    }
    best.0
}

/// The share of rows with as many fields as the first, and the share of fields that are numbers;
/// `None` if the first row has one field only.
fn merit(rows: &[&str], separator: u8) -> Option<(f64, f64)> {
    let (mut alike, mut fields, mut numbers) = (0, 0, 0);
    let mut expected = None;
    for row in rows {
        let mut width = 0_usize;
        for field in Fields::new(row, separator) {
            width += 1;
            numbers += usize::from(field.is_ok_and(|field| is_number(&field, separator)));
        }
        fields += width;
        alike += usize::from(*expected.get_or_insert(width) == width);
    }
    let alike = alike as f64 / rows.len() as f64;
    // Text has blanks too: they separate nothing if they come as they like.
    let separates = expected.is_some_and(|width| width > 1) && (separator != b' ' || alike > 0.5);
    separates.then_some((alike, numbers as f64 / fields as f64))
}

/// Whether a field is a number with either decimal mark.
fn is_number(field: &str, separator: u8) -> bool {
    is_finite(parse_number(field, b'.'))
        || separator != b',' && is_finite(parse_number(field, b','))
}

fn is_finite(number: Option<f64>) -> bool {
    number.is_some_and(f64::is_finite)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str) -> (char, Option<char>, bool) {
        let rows: Vec<_> = text.lines().collect();
        let layout = Layout::find(&rows, &Format::default()).unwrap();
        (layout.separator.into(), layout.decimal.map(char::from), layout.header)
    }

    #[test]
    fn separators_decimals_and_headers_are_found_out() {
        for (text, separator, decimal, header) in [
            ("a,b\n1,2", ',', Some('.'), true),
            ("1,2\n3,4", ',', Some('.'), false),
            ("y\n1\n2", ',', Some('.'), true),
            ("a;b;;\n2,6;18.00.00;;", ';', Some(','), true),
            ("2,6;3,5\n1,0;2,5", ';', Some(','), false),
            ("a;b\n1;2", ';', None, true),
            ("a;b\n2,6;2.5", ';', Some('.'), true),
            ("a|b c\n1|2", '|', None, true),
            ("a\tb\n1.5\tx y", '\t', Some('.'), true),
            ("  1.0e0   2.0\n  1.5   -2", ' ', Some('.'), false),
            ("2,6 3,5\n1,5 2,5", ' ', Some(','), false),
            ("x, y\n1, 2\n3, 4", ',', Some('.'), true),
            ("when,value\n2012-10-02 09:00:00,5", ',', Some('.'), true),
            ("my label\n1\n2", ',', Some('.'), true),
            ("\"a;b\",c\n\"1;2\",3", ',', Some('.'), true),
            ("id,tags\n1,a;b\n2,c;d", ',', Some('.'), true),
            ("a,b\n1,2\n3", ',', Some('.'), true),
            ("inf,nan\n1,2", ',', Some('.'), true),
            ("a;b,c;d\n1;2,5;3\n1;2,5;3", ';', Some(','), true),
        ] {
            assert_eq!(find(text), (separator, decimal, header), "{text:?}");
        }
    }

    #[test]
    fn what_is_given_is_not_looked_for() {
        let given = |separator, decimal, header, text: &str| {
            let format = Format { separator, decimal, header, missing: vec![] };
            let rows: Vec<_> = text.lines().collect();
            Layout::find(&rows, &format)
                .map(|layout| (layout.separator, layout.decimal, layout.header))
        };
        assert_eq!(given(Some(':'), None, None, "a:b,c\n1:2,5").unwrap(), (b':', Some(b','), true));
        assert_eq!(
            given(None, Some(','), Some(false), "a\n1,5").unwrap(),
            (b',', Some(b','), false)
        );
        assert_eq!(
            given(None, Some(','), None, "1,5 2\n3,5 4").unwrap(),
            (b' ', Some(b','), false)
        );
        for separator in ['"', '.', '-', '7', 'x', 'é', '\n'] {
            let error = given(Some(separator), None, None, "a").unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("the separator can't be {separator:?}: ")),
                "{error}"
            );
        }
        let error = given(None, Some(';'), None, "a").unwrap_err().to_string();
        assert_eq!(error, "the decimal mark can't be ';': it is '.' or ','");
    }
}
