//! [`JsonLines`]: tables of one JSON object a line. The first object's keys are the columns; an
//! object may lack some of them, but has no others.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::cell::{BadNumber, CellReader};
use super::rows::{Cell, CellPosition, Format, MAX_COLUMNS, ReadError, Row, Rows, TableFormat};
use super::source::Source;
use super::text::foreign_message;

/// One JSON object per line. The first line starts with a brace.
pub(crate) static FORMAT: TableFormat = TableFormat {
    matches: |source| {
        let first = source.first_line()?;
        Ok(first.is_some_and(|line| line.trim_ascii_start().starts_with(b"{")))
    },
    open: |source, format| Ok(Box::new(JsonLines::new(source, format)?)),
};

/// A table of JSON objects.
pub(crate) struct JsonLines {
    source: Source,
    keys: Keys,
    /// The first row, which was read to know the columns, until it is asked for.
    first: Option<Row>,
}

/// The columns, and how their cells are read.
struct Keys {
    cells: CellReader,
    decimal: u8,
    columns: Vec<String>,
    positions: HashMap<String, usize>,
    /// Objects begun, and the last of them that set each column.
    objects: u64,
    set_in: Vec<u64>,
    /// Whether the first object has been read, so that no key can be added.
    complete: bool,
}

impl JsonLines {
    /// Reads the first object.
    pub(crate) fn new(source: Source, format: &Format) -> Result<Self, ReadError> {
        let keys = Keys {
            cells: CellReader::new(&format.missing),
            decimal: if format.decimal == Some(',') { b',' } else { b'.' },
            columns: Vec::new(),
            positions: HashMap::new(),
            objects: 0,
            set_in: Vec::new(),
            complete: false,
        };
        let mut lines = Self { source, keys, first: None };
        let mut first = Row::default();
        if !lines.read(&mut first)? {
            return Err(ReadError::Empty(lines.source.place(None, None)));
        }
        if lines.keys.columns.is_empty() {
            return Err(ReadError::NoKeys(lines.source.place(Some(first.line()), None)));
        }
        lines.keys.complete = true;
        lines.first = Some(first);
        Ok(lines)
    }

    fn read(&mut self, row: &mut Row) -> Result<bool, ReadError> {
        while let Some(span) = self.source.find_row(0, false)? {
            let text = self.source.text(span)?;
            if !text.trim_ascii().is_empty() {
                row.clear(self.source.line());
                let place = |key: Option<&str>| self.source.place(Some(self.source.line()), key);
                self.keys.fill(row, text, place)?;
                self.source.consume(span);
                return Ok(true);
            }
            self.source.consume(span);
        }
        Ok(false)
    }
}

impl Rows for JsonLines {
    fn columns(&self) -> &[String] {
        &self.keys.columns
    }

    fn next(&mut self, row: &mut Row) -> Result<bool, ReadError> {
        match self.first.take() {
            Some(first) => *row = first,
            None => return self.read(row),
        }
        Ok(true)
    }

    fn bytes_read(&self) -> u64 {
        self.source.bytes_read()
    }
}

impl Keys {
    fn fill(
        &mut self,
        row: &mut Row,
        text: &str,
        place: impl Fn(Option<&str>) -> CellPosition,
    ) -> Result<(), ReadError> {
        self.objects += 1;
        let mut json = serde_json::Deserializer::from_str(text);
        let mut problem = None;
        let object = Object { keys: self, row, place: &place, problem: &mut problem };
        let Err(error) = json.deserialize_map(object).and_then(|()| json.end()) else {
            row.pad(self.columns.len());
            return Ok(());
        };
        let key = match problem {
            Some(Problem::Told(told)) => return Err(told),
            Some(Problem::Within(key)) => Some(key),
            None => None,
        };
        let message = error.to_string();
        let message =
            message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        Err(ReadError::BadJson(place(key.as_deref()), error.column(), foreign_message(message)))
    }

    /// The column of a key, which is most often the one after the last.
    fn position(&self, key: &str, guess: usize) -> Option<usize> {
        match self.columns.get(guess) {
            Some(column) if column == key => Some(guess),
            _ => self.positions.get(key).copied(),
        }
    }
}

/// A string, borrowed if nothing in it is escaped.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

enum Problem {
    /// An error of this crate.
    Told(ReadError),
    /// The value of this key is not JSON.
    Within(String),
}

/// Fills a row from an object.
struct Object<'r, P> {
    keys: &'r mut Keys,
    row: &'r mut Row,
    place: &'r P,
    problem: &'r mut Option<Problem>,
}

impl<P: Fn(Option<&str>) -> CellPosition> Object<'_, P> {
    fn column(&mut self, key: &str, guess: usize) -> Result<usize, ReadError> {
        let place = || (self.place)(Some(key));
        let keys = &mut *self.keys;
        let column = match keys.position(key, guess) {
            Some(column) => column,
            None if keys.complete => return Err(ReadError::UnknownKey(place())),
            None if keys.columns.len() == MAX_COLUMNS => {
                return Err(ReadError::TooManyColumns((self.place)(None)));
            }
            None => {
                keys.columns.push(key.to_owned());
                keys.positions.insert(key.to_owned(), keys.set_in.len());
                keys.set_in.push(0);
                keys.set_in.len() - 1
            }
        };
        if std::mem::replace(&mut keys.set_in[column], keys.objects) == keys.objects {
            return Err(ReadError::DuplicateKey(place()));
        }
        Ok(column)
    }

    fn set(&mut self, column: usize, key: &str, value: &RawValue) -> Result<(), ReadError> {
        let place = || (self.place)(Some(key));
        let Keys { cells, decimal, .. } = &*self.keys;
        let json = value.get();
        let text: Text<'_>;
        let read = |text, decimal| {
            cells.read(text, decimal).map_err(|unusable: BadNumber| unusable.at(place(), text))
        };
        let cell = match json.as_bytes().first() {
            Some(b'n') => Cell::Missing,
            Some(b't') => Cell::Number(1.0),
            Some(b'f') => Cell::Number(0.0),
            Some(b'"') => {
                text = serde_json::from_str(json).map_err(|error| {
                    ReadError::BadJson(place(), error.column(), "a string that is none".to_owned())
                })?;
                read(text.0.trim(), *decimal)?
            }
            Some(b'{' | b'[') => return Err(ReadError::Nested(place())),
            _ => read(json, b'.')?,
        };
        self.row.set(column, cell);
        Ok(())
    }
}

impl<'de, P: Fn(Option<&str>) -> CellPosition> Visitor<'de> for Object<'_, P> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut guess = 0;
        while let Some(Text(key)) = map.next_key::<Text<'de>>()? {
            let value = match map.next_value::<&RawValue>() {
                Ok(value) => value,
                Err(error) => {
                    *self.problem = Some(Problem::Within(key.into_owned()));
                    return Err(error);
                }
            };
            let set = self.column(&key, guess).and_then(|column| {
                guess = column + 1;
                self.set(column, &key, value)
            });
            if let Err(told) = set {
                *self.problem = Some(Problem::Told(told));
                return Err(A::Error::custom("told"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::path::Path;

    use super::super::rows;
    use super::*;

    fn read(content: &str, format: &Format) -> Result<(Vec<String>, Vec<String>), ReadError> {
        let mut rows = rows::read(Cursor::new(content.to_owned()), Path::new("t"), format)?;
        let mut cells = Vec::new();
        let mut row = Row::default();
        while rows.next(&mut row)? {
            assert_eq!(row.len(), rows.columns().len());
            let shown = (0..row.len()).map(|column| match row.cell(column) {
                Cell::Missing => "-".to_owned(),
                Cell::Number(number) => number.to_string(),
                Cell::Text(text) => format!("{text:?}"),
            });
            cells.push(format!("{}: {}", row.line(), shown.collect::<Vec<_>>().join(" ")));
        }
        Ok((rows.columns().to_vec(), cells))
    }

    #[test]
    fn keys_are_columns_in_the_first_object_s_order() {
        let content = "\n {\"z\": 1, \"a\": \"x\\ty\", \"\\u00e9\": null}\r\n\n{\"é\":true,\"z\":-2.5e1}\n{}\n";
        let (columns, rows) = read(content, &Format::default()).unwrap();
        assert_eq!(columns, ["z", "a", "é"]);
        assert_eq!(rows, ["2: 1 \"x\\ty\" -", "4: -25 - 1", "5: - - -"]);
    }

    #[test]
    fn strings_are_read_like_cells_of_text() {
        let missing = vec!["NA".to_owned(), "-200".to_owned()];
        let format = Format { missing, decimal: Some(','), ..Format::default() };
        let content = "\u{feff}{\"a\":\" 2,5 \",\"b\":\"NA\",\"c\":-200.0,\"d\":\" \",\"e\":false,\"f\":0.1}\n";
        assert_eq!(read(content, &format).unwrap().1, ["1: 2.5 - - - 0 0.1"]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_row_and_key() {
        for (line, expected) in [
            ("{\"c\":1}", "row 2, column \"c\": the first object has no such key"),
            ("{\"a\":1,\"a\":2}", "row 2, column \"a\": twice in the same object"),
            (
                "{\"b\":[[1]]}",
                "row 2, column \"b\": a nested value, and only numbers, booleans, strings and null can be read",
            ),
            (
                "{\"a\":1e999}",
                "row 2, column \"a\": \"1e999\" is beyond the bound of ±1.7976931348623157e308",
            ),
            ("{\"a\":\"NaN\"}", "row 2, column \"a\": \"NaN\" is not finite"),
            (
                "{\"a\":nul}",
                "row 2, column \"a\": not one JSON object a line: expected ident (at byte 9)",
            ),
            (
                "{\"a\":1",
                "row 2: not one JSON object a line: EOF while parsing an object (at byte 6)",
            ),
            ("{\"a\":1}}", "row 2: not one JSON object a line: trailing characters (at byte 8)"),
            (
                "\"aéb\\n\"",
                "row 2: not one JSON object a line: invalid type: string \"aéb\\n\", expected an object (at byte 8)",
            ),
            (
                "[1]",
                "row 2: not one JSON object a line: invalid type: sequence, expected an object (at byte 0)",
            ),
        ] {
            let error =
                read(&format!("{{\"a\":1,\"b\":2}}\n{line}\n"), &Format::default()).unwrap_err();
            assert_eq!(error.to_string(), format!("t, {expected}"), "{line}");
        }
        for (content, expected) in [
            ("{\"a\":1,\"a\":2}", "t, row 1, column \"a\": twice in the same object"),
            ("{}\n", "t, row 1: the first object names the columns, and it has none"),
        ] {
            assert_eq!(read(content, &Format::default()).unwrap_err().to_string(), expected);
        }
    }
}
