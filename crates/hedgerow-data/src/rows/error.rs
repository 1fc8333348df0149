//! [`ReadError`]: why a table can't be read, and where.

use std::path::PathBuf;
use std::{fmt, io};

use super::{MAX_COLUMNS, MAX_ROW_BYTES};

/// A position in a table, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellPosition {
    /// The file; `-` is standard input.
    pub file: PathBuf,
    /// The line, or the first of a row with several, counted from 1 as an editor does.
    pub row: Option<u64>,
    /// Name of the column.
    pub column: Option<String>,
}

impl fmt::Display for CellPosition {
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
    Unreadable(CellPosition, io::Error),
    /// A packed stream, and how it is packed, stops before its end.
    #[error("{0}: the {1} data breaks off here")]
    BrokenOff(CellPosition, &'static str),
    /// A packed stream, and how it is packed, is broken, and what the decoder said.
    #[error("{0}: the {1} data is damaged here: {2}")]
    Damaged(CellPosition, &'static str, io::Error),
    /// Packed, and packed again.
    #[error(
        "{0}: packed more than once, and only one layer is unpacked on the way: unpack it first"
    )]
    PackedTwice(CellPosition),
    /// Text of two bytes a character.
    #[error(
        "{0}: the text is UTF-16, and UTF-8 is needed: convert it, as with iconv -f UTF-16 -t UTF-8"
    )]
    Utf16(CellPosition),
    /// Bytes that are no text.
    #[error("{0}: not UTF-8: convert the file, as with iconv -f LATIN1 -t UTF-8")]
    NotUtf8(CellPosition),
    /// Nothing in it.
    #[error("{0}: empty, and at least 1 row is needed")]
    Empty(CellPosition),
    /// Nothing below the header.
    #[error("{0}: only a header, and at least 1 row is needed")]
    NoRows(CellPosition),
    /// A quoted field without its end, or a quote inside a field that isn't quoted.
    #[error(
        "{0}: a quoted field must begin and end with a quote, next to the separators around it"
    )]
    BadQuotes(CellPosition),
    /// The column stands twice in the header, at both positions counted from 1.
    #[error("{0}: twice in the header, as columns {1} and {2}")]
    DuplicateColumn(CellPosition, usize, usize),
    /// A row that doesn't match the first.
    #[error("{place}: {expected} fields expected, as in {model}, and {found} found")]
    Ragged {
        /// The row.
        place: CellPosition,
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
    Nameless(CellPosition, usize, String),
    /// NaN or infinity, spelled out.
    #[error("{0}: {1:?} is not finite")]
    NotFinite(CellPosition, String),
    /// A number too large for f64.
    #[error("{0}: {1:?} is beyond the bound of ±{max:e}", max = f64::MAX)]
    TooLarge(CellPosition, String),
    /// A row without end.
    #[error("{0}: longer than the {max} MiB a row may have", max = MAX_ROW_BYTES >> 20)]
    TooLong(CellPosition),
    /// Columns without end.
    #[error("{0}: more than the {MAX_COLUMNS} columns a table may have")]
    TooManyColumns(CellPosition),
    /// A format that can't be asked for: what, the value, and what it may be.
    #[error("the {0} can't be {1:?}: it is {2}")]
    BadFormat(&'static str, char, &'static str),
    /// A line that is no JSON object: the byte it fails at, counted from 1, and what the parser
    /// said.
    #[error("{0}: not one JSON object a line: {2} (at byte {1})")]
    BadJson(CellPosition, usize, String),
    /// A key of a later object that the first one lacks.
    #[error("{0}: the first object has no such key")]
    UnknownKey(CellPosition),
    /// A key twice in one object.
    #[error("{0}: twice in the same object")]
    DuplicateKey(CellPosition),
    /// An array or an object inside an object.
    #[error("{0}: a nested value, and only numbers, booleans, strings and null can be read")]
    Nested(CellPosition),
    /// An object without keys in the beginning.
    #[error("{0}: the first object names the columns, and it has none")]
    NoKeys(CellPosition),
    /// A Parquet file, and no reader for it.
    #[error("{0}: a Parquet file, and this build can't read it: build with --features parquet")]
    NeedsParquet(CellPosition),
    /// Parquet where nothing can be looked up.
    #[error("{0}: Parquet is read from its end, so it must be a file, and not packed")]
    ParquetStream(CellPosition),
    /// A column of a kind that is no cell, and the kind.
    #[error("{0}: {1}, and only numbers, booleans and strings can be read")]
    UnusableColumn(CellPosition, String),
    /// A Parquet file that isn't one all through, and what its reader said.
    #[error("{0}: the Parquet data is damaged: {1}")]
    DamagedParquet(CellPosition, String),
}
