//! [`FORMATS`]: the table formats.
//!
//! A new format is one module that reads it as [`Rows`] and describes it in a [`TableFormat`], and
//! one line in [`FORMATS`].

use super::{Format, ReadError, Rows};
use crate::packing::Packing;
use crate::source::Source;
use crate::{csv, jsonl, parquet};

/// Table formats in the order in which a file is compared with them. A text table is what is left.
static FORMATS: &[&TableFormat] = &[&parquet::FORMAT, &jsonl::FORMAT, &csv::FORMAT];

/// Begins to read a source as a table.
type OpenRows = fn(Source, &Format) -> Result<Box<dyn Rows>, ReadError>;

/// Description of a table format.
pub(crate) struct TableFormat {
    /// Whether an input has this format, by its first bytes or its first line. Nothing but blank
    /// lines may be consumed.
    pub(crate) matches: fn(&mut Source) -> Result<bool, ReadError>,
    /// Reads as far as the names of the columns and the first row.
    pub(crate) open: OpenRows,
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Opens a table in the format that it has.
pub(super) fn open(mut source: Source, format: &Format) -> Result<Box<dyn Rows>, ReadError> {
    let head = source.head();
    if Packing::of(head).is_some() {
        return Err(ReadError::PackedTwice(source.place(None, None)));
    }
    // In UTF-16 most letters have a zero byte next to them.
    if matches!(head, [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 1..=255, ..] | [1..=255, 0, ..]) {
        return Err(ReadError::Utf16(source.place(None, None)));
    }
    source.skip(BYTE_ORDER_MARK);
    for known in FORMATS {
        if (known.matches)(&mut source)? {
            return (known.open)(source, format);
        }
    }
    Err(ReadError::Empty(source.place(None, None)))
}
