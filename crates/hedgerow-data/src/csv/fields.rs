//! [`Fields`]: a row of text, cut at its separators. Quotes are never guessed at.

use std::borrow::Cow;

use memchr::memchr;

/// A quoted field without its end, or a quote inside a field that isn't quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a quoted field must begin and end with a quote, next to the separators around it")]
pub struct BadQuotes;

/// The fields of a row, without the blanks and quotes around them. The separator is an ASCII
/// character; a blank stands for any run of blanks and tabs.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    /// The rest of the row; `None` after the last field.
    rest: Option<&'a str>,
    separator: u8,
    has_quotes: bool,
}

impl<'a> Fields<'a> {
    /// The fields of this row.
    pub(crate) fn new(row: &'a str, separator: u8) -> Self {
        Self { rest: Some(row), separator, has_quotes: memchr(b'"', row.as_bytes()).is_some() }
    }

    /// `inside` is what follows the opening quote. Behind bad quotes nothing is left.
    fn quoted(&mut self, inside: &'a str) -> Result<Cow<'a, str>, BadQuotes> {
        self.rest = None;
        let mut end = 0;
        let mut doubled = false;
        loop {
            end += inside[end..].find('"').ok_or(BadQuotes)?;
            if !inside[end + 1..].starts_with('"') {
                break;
            }
            doubled = true;
            end += 2;
        }
        let behind = &inside[end + 1..];
        let next = behind.trim_start_matches(self.padding());
        self.rest = match next.as_bytes().first() {
            None => None,
            Some(&byte) if is_separator(byte, self.separator) => Some(&next[1..]),
            Some(_) => return Err(BadQuotes),
        };
        let text = inside[..end].trim();
        Ok(if doubled { Cow::Owned(text.replace("\"\"", "\"")) } else { Cow::Borrowed(text) })
    }

    /// The blanks that may be between a quote and a separator.
    fn padding(&self) -> impl Fn(char) -> bool + use<> {
        let separator = self.separator;
        move |c| c.is_whitespace() && !(c.is_ascii() && is_separator(c as u8, separator))
    }
}

/// Whether a byte separates fields.
#[inline]
fn is_separator(byte: u8, separator: u8) -> bool {
    byte == separator || separator == b' ' && byte == b'\t'
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Cow<'a, str>, BadQuotes>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let mut rest = self.rest?;
        if self.separator == b' ' {
            rest = rest.trim_start_matches([' ', '\t']);
            if rest.is_empty() {
                self.rest = None;
                return None;
            }
        }
        if self.has_quotes
            && let Some(inside) = rest.trim_start_matches(self.padding()).strip_prefix('"')
        {
            return Some(self.quoted(inside));
        }
        let end = rest.bytes().position(|byte| is_separator(byte, self.separator));
        let field = &rest[..end.unwrap_or(rest.len())];
        self.rest = end.map(|end| &rest[end + 1..]);
        if self.has_quotes && field.contains('"') {
            return Some(Err(BadQuotes));
        }
        let is_bare = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_graphic);
        let bytes = field.as_bytes();
        let bare =
            if is_bare(bytes.first()) && is_bare(bytes.last()) { field } else { field.trim() };
        Some(Ok(Cow::Borrowed(bare)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(row: &str, separator: u8) -> Result<Vec<String>, BadQuotes> {
        Fields::new(row, separator).map(|field| field.map(Cow::into_owned)).collect()
    }

    #[test]
    fn separators_quotes_and_blanks() {
        for (row, separator, expected) in [
            ("1,2,3", b',', &["1", "2", "3"][..]),
            (" 1 ,, ", b',', &["1", "", ""]),
            ("", b',', &[""]),
            ("1;\"a;b\"; \" 2\" ;", b';', &["1", "a;b", "2", ""]),
            ("\"a \"\"b\"\", c\",\"\"", b',', &["a \"b\", c", ""]),
            ("\"1\n\",2", b',', &["1", "2"]),
            ("\t1\t \"2\" \t", b'\t', &["", "1", "2", ""]),
            ("  1.5 \t2  \"a b\"\tc ", b' ', &["1.5", "2", "a b", "c"]),
            (" \t", b' ', &[]),
            ("é|\u{a0}ü ", b'|', &["é", "ü"]),
        ] {
            assert_eq!(fields(row, separator).unwrap(), expected, "{row:?}");
        }
    }

    #[test]
    fn quotes_stand_around_whole_fields() {
        for row in
            ["3,\"4\"5", "3,4\"5\"", "3,\"4\" 5", "3,4\"", "3,\"4", "\"3\"\"4,5", "\"", "\"\"\""]
        {
            assert_eq!(fields(row, b','), Err(BadQuotes), "{row:?}");
        }
        assert_eq!(fields("\"a\"b", b' '), Err(BadQuotes));
    }
}
