//! [`Rows`]: a table in any format, read row by row in bounded memory. [`Row`] is a reused buffer.

mod error;
mod formats;

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use super::cell::{BadNumber, usual_markers};
use super::encoder::text_of;
use super::source::Source;
pub use error::{CellPosition, ReadError};
pub(crate) use formats::TableFormat;

/// Largest size of a row in bytes. It bounds the memory that hostile input can take.
pub const MAX_ROW_BYTES: usize = 16 << 20;
/// Largest number of columns of a table.
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

impl Cell<'_> {
    /// What it says as the text of a category or a node; none if it is missing. A number is a text
    /// as well.
    pub fn into_text(self) -> Option<String> {
        text_of(self)
    }
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
    /// Clears it for the row that begins in this line.
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

    /// Whether there are no cells.
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// Opens a file (`-` is standard input) in the format that its content shows: a text table, JSON
/// Lines or Parquet; plain, gzipped or compressed with zstandard. Waits for the first row, and for
/// no more if the input is a stream.
pub fn open(path: &Path, format: &Format) -> Result<Box<dyn Rows>, ReadError> {
    formats::open(Source::open(path)?, format)
}

/// The same for a stream; `file` is its name in messages.
pub fn read(
    input: impl Read + Send + 'static,
    file: &Path,
    format: &Format,
) -> Result<Box<dyn Rows>, ReadError> {
    formats::open(Source::live(Box::new(input), file)?, format)
}

/// Whether all names differ.
pub(super) fn check_names(
    names: &[String],
    place: impl Fn(&str) -> CellPosition,
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
}
