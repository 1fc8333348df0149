//! [`LineReader`]: rows of a text table for programs that get them one by one, such as a node.

use super::fields::{BadQuotes, Fields};
use super::layout::{Layout, decimal_of};
use crate::cell::{BadNumber, CellReader};
use crate::rows::{Cell, Format, ReadError};

/// Splits rows of one table into fields and reads fields as cells.
///
/// ```
/// use hedgerow_data::csv::LineReader;
/// use hedgerow_data::rows::Cell;
///
/// let mut lines = LineReader::under_header("\"room\"; temperature", &[]);
/// let row = "kitchen;21,5";
/// lines.find_decimal(row);
/// let fields: Vec<_> = lines.fields(row).collect::<Result<_, _>>()?;
/// assert_eq!(lines.cell(&fields[0]), Ok(Cell::Text("kitchen")));
/// assert_eq!(lines.cell(&fields[1]), Ok(Cell::Number(21.5)));
/// # Ok::<(), hedgerow_data::csv::BadQuotes>(())
/// ```
#[derive(Debug, Clone)]
pub struct LineReader {
    layout: Layout,
    cells: CellReader,
}

impl LineReader {
    /// A reader for rows under this header, which contains its column names between tabs,
    /// semicolons, bars or commas. `missing` stands for missing values, besides an empty cell; see
    /// [`usual_markers`](crate::rows::usual_markers).
    pub fn under_header(header: &str, missing: &[String]) -> Self {
        let layout = Layout::of_header(header);
        Self { layout, cells: CellReader::new(missing) }
    }

    /// A reader for the table with these first rows. What `format` leaves open follows from them.
    pub(super) fn new(rows: &[&str], format: &Format) -> Result<Self, ReadError> {
        let layout = Layout::find(rows, format)?;
        Ok(Self { layout, cells: CellReader::new(&format.missing) })
    }

    /// Whether the first of the rows it was made from names the columns.
    pub(super) fn has_header(&self) -> bool {
        self.layout.header
    }

    /// Whether a row has nothing but separators and blanks.
    pub fn is_blank(&self, row: &str) -> bool {
        row.bytes().all(|byte| byte == self.layout.separator || byte.is_ascii_whitespace())
    }

    /// Notes the decimal mark that the numbers of a row have. The first row with a mark decides;
    /// later calls do nothing.
    #[inline]
    pub fn find_decimal(&mut self, row: &str) {
        if self.layout.decimal.is_none() {
            self.layout.decimal = decimal_of([row].into_iter(), self.layout.separator);
        }
    }

    /// The fields of a row (or the names in a header), without blanks and quotes around them.
    #[inline]
    pub fn fields<'a>(&self, row: &'a str) -> Fields<'a> {
        Fields::new(row, self.layout.separator)
    }

    /// What a field contains.
    #[inline]
    pub fn cell<'a>(&self, field: &'a str) -> Result<Cell<'a>, BadNumber> {
        self.cells.read(field, self.layout.decimal.unwrap_or(b'.'))
    }

    /// Number of fields of a row, if its quotes are right.
    pub(super) fn count_fields(&self, row: &str) -> Result<usize, BadQuotes> {
        self.fields(row).try_fold(0, |count, field| field.map(|_| count + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::usual_markers;

    fn names(header: &str) -> Vec<String> {
        let lines = LineReader::under_header(header, &[]);
        lines.fields(header).map(|field| field.unwrap().into_owned()).collect()
    }

    #[test]
    fn a_header_tells_the_separator() {
        for header in ["a,b", "a ; b", "\"a\"\tb", "a|b"] {
            assert_eq!(names(header), ["a", "b"], "{header:?}");
        }
        assert_eq!(names("outdoor temperature"), ["outdoor temperature"]);
        assert_eq!(names("\"a,b\";c"), ["a,b", "c"]);
    }

    #[test]
    fn cells_are_read_as_in_a_file() {
        let mut lines = LineReader::under_header("a;b;c", &usual_markers([]));
        lines.find_decimal("1;2;x");
        lines.find_decimal("1;2,5;x");
        lines.find_decimal("1;2.5;x");
        assert_eq!(lines.cell("2,5"), Ok(Cell::Number(2.5)));
        assert_eq!(lines.cell("2.5"), Ok(Cell::Text("2.5")));
        for missing in ["", "NA", "N/A", "NaN", "nan", "null", "?"] {
            assert_eq!(lines.cell(missing), Ok(Cell::Missing), "{missing:?}");
        }
        assert_eq!(lines.cell("inf"), Err(BadNumber::NotFinite));
        assert_eq!(lines.cell("1e400"), Err(BadNumber::TooLarge));
        assert!(lines.is_blank(" ;;") && !lines.is_blank("0;;"));
        assert_eq!(lines.fields("1;\"2").last(), Some(Err(BadQuotes)));
    }
}
