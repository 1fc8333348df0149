//! [`Rows`]: a table of any format, read row by row in bounded memory. [`Row`] is one reused
//! buffer.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use super::cell::{BadNumber, usual_markers};
use super::csv::Csv;
use super::jsonl::JsonLines;
use super::packing::Packing;
use super::source::Source;

/// Most bytes of a row: hostile input must not fill the memory.
pub const MAX_ROW_BYTES: usize = 16 << 20;
/// Most columns of a table.
pub const MAX_COLUMNS: usize = 100_000;

/// What one cell holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell<'a> {
    /// Nothing, or one of the markers that stand for it.
    Missing,
    /// A finite number.
    Number(f64),
    /// Anything else, without the blanks and quotes around it; never empty.
    Text(&'a str),
}

/// One row: a buffer that is filled again and again.
#[derive(Debug, Clone, Default)]
pub struct Row {
    text: String,
    cells: Vec<Stored>,
    line: u64,
}

#[derive(Debug, Clone, Copy)]
enum Stored {
    Missing,
    Number(f64),
    /// Where in `text`.
    Text {
        start: usize,
        end: usize,
    },
}

impl Row {
    /// Empties it for the row that begins in this line.
    pub fn clear(&mut self, line: u64) {
        self.text.clear();
        self.cells.clear();
        self.line = line;
    }

    /// Appends a cell.
    pub fn push(&mut self, cell: Cell<'_>) {
        let stored = self.store(cell);
        self.cells.push(stored);
    }

    /// Puts a cell in its column; cells before it that were never set are missing.
    pub fn set(&mut self, column: usize, cell: Cell<'_>) {
        let stored = self.store(cell);
        self.pad(column + 1);
        self.cells[column] = stored;
    }

    /// Appends missing cells until there are as many.
    pub fn pad(&mut self, columns: usize) {
        if self.cells.len() < columns {
            self.cells.resize(columns, Stored::Missing);
        }
    }

    fn store(&mut self, cell: Cell<'_>) -> Stored {
        match cell {
            Cell::Missing => Stored::Missing,
            Cell::Number(number) => Stored::Number(number),
            Cell::Text(text) => {
                let start = self.text.len();
                self.text.push_str(text);
                Stored::Text { start, end: self.text.len() }
            }
        }
    }

    /// Number of cells.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// One cell.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn cell(&self, column: usize) -> Cell<'_> {
        match self.cells[column] {
            Stored::Missing => Cell::Missing,
            Stored::Number(number) => Cell::Number(number),
            Stored::Text { start, end } => Cell::Text(&self.text[start..end]),
        }
    }

    /// The line it begins in, counted from 1 as an editor does (for Parquet the row, counted from
    /// 1).
    pub fn line(&self) -> u64 {
        self.line
    }
}

/// A table that is read from front to back.
pub trait Rows: Send {
    /// Names of the columns; `c1`, `c2`, … where the file has none.
    fn columns(&self) -> &[String];
    /// Fills `row` with as many cells as there are columns; false at the end.
    fn next(&mut self, row: &mut Row) -> Result<bool, ReadError>;
    /// Bytes of the file taken in so far, for a progress bar.
    fn bytes_read(&self) -> u64;
}

/// How a text file is read. `None` means that it is detected.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Format {
    /// Between cells; a blank stands for any run of blanks and tabs.
    pub separator: Option<char>,
    /// `.` or `,`.
    pub decimal: Option<char>,
    /// Whether the first row names the columns.
    pub header: Option<bool>,
    /// Marks of a missing value, besides an empty cell. Numbers are compared as numbers: `-200` is
    /// also `-200.0`.
    pub missing: Vec<String>,
}

/// Where in a file, as far as it can be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file; `-` is standard input.
    pub file: PathBuf,
    /// The line, or the first of a row with several, counted from 1 as an editor does.
    pub row: Option<u64>,
    /// Name of the column.
    pub column: Option<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file.as_os_str() == "-" {
            true => write!(f, "standard input")?,
            false => write!(f, "{}", self.file.display())?,
        }
        self.row.map_or(Ok(()), |row| write!(f, ", row {row}"))?;
        self.column.as_ref().map_or(Ok(()), |column| write!(f, ", column {column:?}"))
    }
}

/// Why a table can't be read. Pieces of the file are shortened.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Not found, not allowed, or failed on the way, and what the system said.
    #[error("can't read {0}: {1}")]
    Unreadable(Place, io::Error),
    /// A packed stream, and how it is packed, stops before its end.
    #[error("{0}: the {1} data breaks off here")]
    BrokenOff(Place, &'static str),
    /// A packed stream, and how it is packed, is broken, and what the decoder said.
    #[error("{0}: the {1} data is damaged here: {2}")]
    Damaged(Place, &'static str, io::Error),
    /// Packed, and packed again.
    #[error(
        "{0}: packed more than once, and only one layer is unpacked on the way: unpack it first"
    )]
    PackedTwice(Place),
    /// Text of two bytes a character.
    #[error(
        "{0}: the text is UTF-16, and UTF-8 is needed: convert it, as with iconv -f UTF-16 -t UTF-8"
    )]
    Utf16(Place),
    /// Bytes that are no text.
    #[error("{0}: not UTF-8")]
    NotUtf8(Place),
    /// Nothing in it.
    #[error("{0}: empty, and at least 1 row is needed")]
    Empty(Place),
    /// Nothing below the header.
    #[error("{0}: only a header, and at least 1 row is needed")]
    NoRows(Place),
    /// A quoted field without its end, or a quote inside a field that isn't quoted.
    #[error(
        "{0}: a quoted field must begin and end with a quote, next to the separators around it"
    )]
    BadQuotes(Place),
    /// The column stands twice in the header, at both positions counted from 1.
    #[error("{0}: twice in the header, as columns {1} and {2}")]
    DuplicateColumn(Place, usize, usize),
    /// A row that doesn't match the first.
    #[error("{place}: {expected} fields expected, as in {model}, and {found} found")]
    Ragged {
        /// The row.
        place: Place,
        /// What tells how many: `the header`, or the first row.
        model: String,
        /// Fields there.
        expected: usize,
        /// Fields of the row.
        found: usize,
    },
    /// Something in a column, counted from 1, that was taken for empty.
    #[error(
        "{0}: {2:?} stands in column {1}, which has no name in the header and was empty at first"
    )]
    Nameless(Place, usize, String),
    /// NaN or infinity, spelled out.
    #[error("{0}: {1:?} is not finite")]
    NotFinite(Place, String),
    /// A number too large for f64.
    #[error("{0}: {1:?} is beyond the bound of ±{max:e}", max = f64::MAX)]
    TooLarge(Place, String),
    /// A row without end.
    #[error("{0}: longer than the {max} MiB a row may have", max = MAX_ROW_BYTES >> 20)]
    TooLong(Place),
    /// Columns without end.
    #[error("{0}: more than the {MAX_COLUMNS} columns a table may have")]
    TooManyColumns(Place),
    /// A format that can't be asked for: what, the value, and what it may be.
    #[error("the {0} can't be {1:?}: it is {2}")]
    BadFormat(&'static str, char, &'static str),
    /// A line that is no JSON object: the byte it fails at, counted from 1, and what the parser
    /// said.
    #[error("{0}: not one JSON object a line: {2} (at byte {1})")]
    BadJson(Place, usize, String),
    /// A key of a later object that the first one lacks.
    #[error("{0}: the first object has no such key")]
    UnknownKey(Place),
    /// A key twice in one object.
    #[error("{0}: twice in the same object")]
    DuplicateKey(Place),
    /// An array or an object inside an object.
    #[error("{0}: a nested value, and only numbers, booleans, strings and null can be read")]
    Nested(Place),
    /// An object without keys in the beginning.
    #[error("{0}: the first object names the columns, and it has none")]
    NoKeys(Place),
    /// A Parquet file, and no reader for it.
    #[error("{0}: a Parquet file, and this build can't read it: build with --features parquet")]
    NeedsParquet(Place),
    /// Parquet where nothing can be looked up.
    #[error("{0}: Parquet is read from its end, so it must be a file, and not packed")]
    ParquetStream(Place),
    /// A column of a kind that is no cell, and the kind.
    #[error("{0}: {1}, and only numbers, booleans and strings can be read")]
    UnusableColumn(Place, String),
    /// A Parquet file that isn't one all through, and what its reader said.
    #[error("{0}: the Parquet data is damaged: {1}")]
    DamagedParquet(Place, String),
}

/// Opens a file (`-` is standard input) by its content: CSV and its relatives, JSON Lines or
/// Parquet; gzipped, zstandard or plain. Waits for the first row, and for no more if the input
/// comes little by little.
pub fn open(path: &Path, format: &Format) -> Result<Box<dyn Rows>, ReadError> {
    let mut source = Source::open(path)?;
    if source.head().starts_with(PARQUET_MAGIC) && source.is_plain_file() {
        return open_parquet(path, format);
    }
    read_text(source, format)
}

/// The same for a stream that comes little by little; `file` is its name in messages.
pub fn read(
    input: impl Read + Send + 'static,
    file: &Path,
    format: &Format,
) -> Result<Box<dyn Rows>, ReadError> {
    read_text(Source::live(Box::new(input), file)?, format)
}

const PARQUET_MAGIC: &[u8] = b"PAR1";
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

fn read_text(mut source: Source, format: &Format) -> Result<Box<dyn Rows>, ReadError> {
    let head = source.head();
    if head.starts_with(PARQUET_MAGIC) {
        return Err(ReadError::ParquetStream(source.place(None, None)));
    }
    if Packing::of(head).is_some() {
        return Err(ReadError::PackedTwice(source.place(None, None)));
    }
    // Letters of most languages' files have a zero byte beside them.
    if matches!(head, [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 1..=255, ..] | [1..=255, 0, ..]) {
        return Err(ReadError::Utf16(source.place(None, None)));
    }
    source.skip(BYTE_ORDER_MARK);
    let Some(first) = source.first_line()? else {
        return Err(ReadError::Empty(source.place(None, None)));
    };
    match first.trim_ascii_start().first() {
        Some(b'{') => Ok(Box::new(JsonLines::new(source, format)?)),
        _ => Ok(Box::new(Csv::new(source, format)?)),
    }
}

#[cfg(feature = "parquet")]
fn open_parquet(path: &Path, format: &Format) -> Result<Box<dyn Rows>, ReadError> {
    Ok(Box::new(super::parquet::Parquet::open(path, format)?))
}

#[cfg(not(feature = "parquet"))]
fn open_parquet(path: &Path, _format: &Format) -> Result<Box<dyn Rows>, ReadError> {
    Err(ReadError::NeedsParquet(Place { file: path.to_owned(), row: None, column: None }))
}

/// Whether all names differ.
pub(super) fn check_names(
    names: &[String],
    place: impl Fn(&str) -> Place,
) -> Result<(), ReadError> {
    let mut positions = HashMap::new();
    for (second, name) in names.iter().enumerate() {
        if let Some(first) = positions.insert(name.as_str(), second) {
            return Err(ReadError::DuplicateColumn(place(name), first + 1, second + 1));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_filled_again_and_again() {
        let mut row = Row::default();
        for line in 1..3 {
            row.clear(line);
            row.push(Cell::Text("red"));
            row.set(3, Cell::Text("blue"));
            row.set(2, Cell::Number(0.5));
            row.pad(5);
            row.pad(2);
            let cells: Vec<_> = (0..row.len()).map(|column| row.cell(column)).collect();
            let expected = [
                Cell::Text("red"),
                Cell::Missing,
                Cell::Number(0.5),
                Cell::Text("blue"),
                Cell::Missing,
            ];
            assert_eq!((row.line(), cells.as_slice()), (line, expected.as_slice()));
        }
    }

    #[cfg(not(feature = "parquet"))]
    #[test]
    fn parquet_needs_a_build_that_has_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "PAR1 and more").unwrap();
        let error = open(file.path(), &Format::default()).err().unwrap().to_string();
        let expected =
            "a Parquet file, and this build can't read it: build with --features parquet";
        assert_eq!(error, format!("{}: {expected}", file.path().display()));
    }
}
