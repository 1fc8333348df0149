//! Tables of text, row by row. Separator, decimal mark and header are found out from the beginning
//! or given.
//!
//! Nothing is repaired: rows that don't match the first, numbers that aren't finite and quotes that
//! a lenient reader would guess at are errors. Only lines with nothing but blanks and separators
//! are skipped.

mod fields;
mod layout;
mod lines;

pub use fields::{BadQuotes, Fields};
pub use lines::LineReader;

use super::rows::{Format, MAX_COLUMNS, ReadError, Row, Rows, TableFormat, check_names};
use super::source::{Source, Span};
use super::text::excerpt;

/// Rows of a file from which the layout is detected. A live stream uses its first two.
const SAMPLE_ROWS: usize = 100;
/// Where a sample ends in any case.
const SAMPLE_BYTES: usize = 1 << 20;

/// Text with separators. Whatever no other format has claimed is read as such.
pub(crate) static FORMAT: TableFormat = TableFormat {
    matches: |_| Ok(true),
    open: |source, format| Ok(Box::new(Csv::new(source, format)?)),
};

/// A table of text.
struct Csv {
    source: Source,
    lines: LineReader,
    columns: Vec<String>,
    /// Fields of every row: the columns, and empty ones behind them that have no name.
    width: usize,
    /// The row that the width is from, in words.
    model: String,
    /// The first row, which was read to know the columns, until it is asked for.
    first: Option<Row>,
}

impl Csv {
    /// Reads as far as the first row below the header.
    fn new(mut source: Source, format: &Format) -> Result<Self, ReadError> {
        let lines = LineReader::new(&sample(&mut source), format)?;
        let mut csv = Self {
            source,
            lines,
            columns: Vec::new(),
            width: 0,
            model: String::new(),
            first: None,
        };
        let top = csv.next_row()?.ok_or_else(|| ReadError::Empty(csv.source.place(None, None)))?;
        let names = csv.names(top)?;
        csv.width = names.len();
        csv.columns = names.iter().enumerate().map(|(index, name)| named(index, name)).collect();
        if csv.lines.has_header() {
            csv.model = "the header".to_owned();
            csv.source.consume(top);
            csv.drop_nameless(&names)?;
            check_names(&csv.columns, |name| csv.source.place(None, Some(name)))?;
        } else {
            csv.model = format!("row {}", csv.source.line());
        }
        let mut first = Row::default();
        if !csv.read(&mut first)? {
            return Err(ReadError::NoRows(csv.source.place(None, None)));
        }
        csv.first = Some(first);
        Ok(csv)
    }

    /// The names in the header; empty if there is no header.
    fn names(&self, top: Span) -> Result<Vec<String>, ReadError> {
        let place = || self.source.place(Some(self.source.line()), None);
        let mut names = Vec::new();
        for field in self.lines.fields(self.source.text(top)?) {
            let name = field.map_err(|_| ReadError::BadQuotes(place()))?;
            if names.len() == MAX_COLUMNS {
                return Err(ReadError::TooManyColumns(place()));
            }
            names.push(if self.lines.has_header() { name.into_owned() } else { String::new() });
        }
        Ok(names)
    }

    /// Columns without a name at the header's end go if the first row has nothing there.
    fn drop_nameless(&mut self, names: &[String]) -> Result<(), ReadError> {
        let mut kept = names.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
        if let Some(span) = self.next_row()? {
            let fields = self.lines.fields(self.source.text(span)?);
            let filled = fields.map(|field| !field.is_ok_and(|field| field.is_empty()));
            let last = filled.enumerate().filter(|(_, filled)| *filled).last();
            kept = kept.max(last.map_or(0, |(last, _)| last + 1));
        }
        if kept > 0 {
            self.columns.truncate(kept);
        }
        Ok(())
    }

    /// The next row that isn't blank; those before it are consumed.
    fn next_row(&mut self) -> Result<Option<Span>, ReadError> {
        while let Some(span) = self.source.find_row(0, true)? {
            if !self.lines.is_blank(self.source.text(span)?) {
                return Ok(Some(span));
            }
            self.source.consume(span);
        }
        Ok(None)
    }

    fn read(&mut self, row: &mut Row) -> Result<bool, ReadError> {
        let Some(span) = self.next_row()? else {
            return Ok(false);
        };
        let text = self.source.text(span)?;
        self.lines.find_decimal(text);
        row.clear(self.source.line());
        // Errors of the whole row come first.
        self.fill(row, text).map_err(|error| self.check_row(text).err().unwrap_or(error))?;
        self.source.consume(span);
        Ok(true)
    }

    fn fill(&self, row: &mut Row, text: &str) -> Result<(), ReadError> {
        let place = |column| self.source.place(Some(self.source.line()), column);
        let mut width = 0;
        for field in self.lines.fields(text) {
            let field = field.map_err(|_| ReadError::BadQuotes(place(None)))?;
            if let Some(name) = self.columns.get(width) {
                let cell = self.lines.cell(&field);
                row.push(cell.map_err(|bad| bad.at(place(Some(name)), &field))?);
            } else if width < self.width && !field.is_empty() {
                return Err(ReadError::Nameless(place(None), width + 1, excerpt(&field)));
            }
            width += 1;
        }
        if width == self.width { Ok(()) } else { self.check_row(text) }
    }

    /// Whether quotes and the number of fields are right.
    fn check_row(&self, text: &str) -> Result<(), ReadError> {
        let place = || self.source.place(Some(self.source.line()), None);
        let found = self.lines.count_fields(text).map_err(|_| ReadError::BadQuotes(place()))?;
        if found == self.width {
            return Ok(());
        }
        Err(ReadError::Ragged {
            place: place(),
            model: self.model.clone(),
            expected: self.width,
            found,
        })
    }
}

impl Rows for Csv {
    fn columns(&self) -> &[String] {
        &self.columns
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

/// The first rows. What is wrong with them is left to the reader.
fn sample(source: &mut Source) -> Vec<&str> {
    let most = if source.is_file() { SAMPLE_ROWS } else { 2 };
    let mut spans = Vec::new();
    let mut from = 0;
    while spans.len() < most && from < SAMPLE_BYTES {
        let Ok(Some(span)) = source.find_row(from, true) else { break };
        if !source.bytes(span).trim_ascii().is_empty() {
            spans.push(span);
        }
        from = span.next;
    }
    spans.into_iter().map_while(|span| std::str::from_utf8(source.bytes(span)).ok()).collect()
}

fn named(index: usize, name: &str) -> String {
    if name.is_empty() { format!("c{}", index + 1) } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::path::Path;

    use super::super::rows::{self, Cell};
    use super::*;

    fn read_with(content: &[u8], format: &Format) -> Result<Table, ReadError> {
        let rows = rows::read(Cursor::new(content.to_vec()), Path::new("t.csv"), format)?;
        Table::of(rows)
    }

    fn read(content: &str) -> Result<Table, ReadError> {
        read_with(content.as_bytes(), &Format::default())
    }

    /// All of a table, numbers as they are, text in quotes.
    #[derive(Debug, PartialEq)]
    struct Table {
        columns: String,
        rows: Vec<String>,
        lines: Vec<u64>,
    }

    impl Table {
        fn of(mut rows: Box<dyn Rows>) -> Result<Self, ReadError> {
            let mut table = Self { columns: rows.columns().join(" "), rows: vec![], lines: vec![] };
            let mut row = Row::default();
            while rows.next(&mut row)? {
                let cells = (0..row.len()).map(|column| match row.cell(column) {
                    Cell::Missing => "-".to_owned(),
                    Cell::Number(number) => number.to_string(),
                    Cell::Text(text) => format!("{text:?}"),
                });
                table.rows.push(cells.collect::<Vec<_>>().join(" "));
                table.lines.push(row.line());
            }
            Ok(table)
        }
    }

    fn message(content: impl AsRef<[u8]>) -> String {
        let error = read_with(content.as_ref(), &Format::default()).unwrap_err().to_string();
        error
            .strip_prefix("t.csv")
            .expect("the file comes first")
            .trim_start_matches([',', ':', ' '])
            .to_owned()
    }

    const PLAIN: &str = "a,b,y\n1,2,3\n4.5,-5e-1,6\n";

    #[test]
    fn marks_line_ends_quotes_blanks_and_empty_last_lines_change_nothing() {
        let plain = read(PLAIN).unwrap();
        assert_eq!(
            (plain.columns.as_str(), &plain.rows),
            ("a b y", &vec!["1 2 3".into(), "4.5 -0.5 6".into()])
        );
        for same in [
            "\u{feff}a,b,y\r\n1,2,3\r\n4.5,-5e-1,6\r\n\r\n  \r\n",
            "\n\"a\",\"b\",\"y\"\n\n\"1\n\",\"2\" , \"3\"\n 4.5 ,\" -0.5\",6",
            "a,b,y\r1,2,3\r4.5,-.5,6",
            "a;b;y\n1;2;3\n4,5;-5e-1;6\n;;\n;;\n",
            "a b\ty\n1  2 3\n\t 4.5 -5e-1\t 6 ",
            "a|b|y||\n1|2|3||\n4.5|-0.5|6| |\n||||\n",
            "a\tb\ty\n1\t2\t3\n4.5\t-0.5\t6\n\t\t\n",
        ] {
            let found = read(same).unwrap();
            assert_eq!((&found.columns, &found.rows), (&plain.columns, &plain.rows), "{same:?}");
        }
        assert_eq!(read("\"a \"\"b\"\", c\",y\n1,2\n").unwrap().columns, "a \"b\", c y");
    }

    #[test]
    fn cells_are_missing_numbers_or_text() {
        let format = Format { missing: vec!["-200".into(), "NA".into()], ..Format::default() };
        let content = "when;CO;wd\n10/03/2004;2,6;NA\n;-200;N W\n\"\";-200,0;\" \"\n";
        let table = read_with(content.as_bytes(), &format).unwrap();
        assert_eq!(table.rows, ["\"10/03/2004\" 2.6 -", "- - \"N W\"", "- - -"]);
        // Quotes around nothing are a value that is missing, not a blank line.
        assert_eq!(read("y\n1\n\n\"\"\n2\n").unwrap().lines, [2, 4, 5]);
    }

    #[test]
    fn columns_without_a_name_are_numbered() {
        assert_eq!(read("1 2 3\n4 5 6\n").unwrap().columns, "c1 c2 c3");
        assert_eq!(read(",a,,y\n1,2,3,4\n").unwrap().columns, "c1 a c3 y");
        // The last one is filled in the first row, so it is a column.
        assert_eq!(read("a,,\n1,,3\n4,5,6\n").unwrap().columns, "a c2 c3");
        assert_eq!(read("\"\",\"\"\n\"\",\"\"\n").unwrap().rows, ["- -"]);
        let header = Format { header: Some(true), ..Format::default() };
        assert_eq!(read_with(b"1,2\n3,4\n", &header).unwrap().columns, "1 2");
        let none = Format { header: Some(false), ..Format::default() };
        assert_eq!(read_with(b"a,b\n3,4\n", &none).unwrap().rows, ["\"a\" \"b\"", "3 4"]);
        let later = message("a,y,\n1,2,\n3,4,5\n");
        assert_eq!(
            later,
            "row 3: \"5\" stands in column 3, which has no name in the header and was empty at first"
        );
    }

    #[test]
    fn the_decimal_mark_is_that_of_the_first_number_with_one() {
        assert_eq!(
            read("a;b\n1;2\n3;4\n5,5;6\n7.5;8\n").unwrap().rows,
            ["1 2", "3 4", "5.5 6", "\"7.5\" 8"]
        );
        assert_eq!(read("a;b\n1;2\n3;4\n5.5;6,5\n").unwrap().rows, ["1 2", "3 4", "5.5 \"6,5\""]);
        let comma = Format { decimal: Some(','), ..Format::default() };
        assert_eq!(read_with(b"a,b\n\"1,5\",2\n", &comma).unwrap().rows, ["1.5 2"]);
        assert_eq!(read_with(b"a;b\n1.5;2\n", &comma).unwrap().rows, ["\"1.5\" 2"]);
    }

    #[test]
    fn headers_that_make_no_table() {
        assert_eq!(message(""), "empty, and at least 1 row is needed");
        assert_eq!(message("\r\n\n"), "empty, and at least 1 row is needed");
        assert_eq!(message(";;\n"), "empty, and at least 1 row is needed");
        assert_eq!(message("a,y\n\n"), "only a header, and at least 1 row is needed");
        assert_eq!(
            message("a,b,a,y\n1,2,3,4\n"),
            "column \"a\": twice in the header, as columns 1 and 3"
        );
        assert_eq!(message("c2,\n1,2\n"), "column \"c2\": twice in the header, as columns 1 and 2");
        let wide = "a,".repeat(MAX_COLUMNS) + "b\n";
        assert_eq!(message(wide), "row 1: more than the 100000 columns a table may have");
    }

    #[test]
    fn rows_are_counted_as_an_editor_counts_them() {
        for (content, row, found) in [
            ("\r\na,y\r\n1,2\r\n3\r\n", 4, 1),
            ("a,y\n1,2,\n", 2, 3),
            ("a,y\n1,2\n\n\n3\n", 5, 1),
            ("a,y\r\n1,2\r\n\r\n \t\r\n3", 5, 1), // blanks only
            ("a,y\r1,2\r\r3\r", 4, 1),
            ("\u{feff}\n\"a\nb\",y\n\n\"1\n\",2\n3\n", 7, 1),
            ("a,y\n1,2\n\n\"3\n\n\"\n4,5\n", 4, 1),
            ("a,y\n1,2\nNaN\n", 3, 1),
        ] {
            let expected =
                format!("row {row}: 2 fields expected, as in the header, and {found} found");
            assert_eq!(message(content), expected, "{content:?}");
        }
        assert_eq!(message("\n1,2\n3\n"), "row 3: 2 fields expected, as in row 2, and 1 found");
        for content in [&b"a,y\n1,2\n\xff,4\n"[..], b"a,y\r\n\"1\r\n\xff\",4\n", b"a,y\r1,2\r\xff"]
        {
            assert!(message(content).starts_with("row 3: not UTF-8"));
        }
        assert_eq!(read("a,y\r\n\"1\r\n\",2\r\n\r\n3,4").unwrap().lines, [2, 5]);
    }

    #[test]
    fn quotes_are_never_guessed_at() {
        for cells in
            ["\"3,4\n5,6", "3,\"4\"5", "3,4\"5\"", "3,\"4\" 5", "3,4\"", "3,\"4", "\"3\"\"4,5"]
        {
            let error = message(format!("a,y\n1,2\n{cells}\n7,8\n"));
            assert_eq!(
                error,
                "row 3: a quoted field must begin and end with a quote, next to the separators around it",
                "{cells:?}"
            );
        }
    }

    #[test]
    fn numbers_that_are_none() {
        for (cells, column, expected) in [
            ("NaN,4", "a", "\"NaN\" is not finite"),
            ("3,-inf", "y", "\"-inf\" is not finite"),
            ("3,1e400", "y", "\"1e400\" is beyond the bound of ±1.7976931348623157e308"),
        ] {
            let error = message(format!("a,y\n1,2\n{cells}\n"));
            assert_eq!(error, format!("row 3, column {column:?}: {expected}"));
        }
    }

    #[test]
    fn what_is_wrong_stays_wrong() {
        let mut rows =
            rows::read(&b"a,y\n1,2\n3\n4,5\n"[..], Path::new("-"), &Format::default()).unwrap();
        let mut row = Row::default();
        assert!(rows.next(&mut row).unwrap());
        for _ in 0..2 {
            let error = rows.next(&mut row).unwrap_err().to_string();
            assert!(error.starts_with("standard input, row 3: 2 fields expected"), "{error}");
        }
    }
}
