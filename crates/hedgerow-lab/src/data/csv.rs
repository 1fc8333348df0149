//! Data sets from comma-separated files with a header, plain or gzipped.
//!
//! Read line by line, so that a message can name the row as an editor shows it. Nothing is repaired or skipped: a cell that
//! isn't a finite number, or an empty line between rows, is an error, for a series must not silently lose a step.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::{Dataset, TooShort};

/// Largest label in size: the squares of a hundred million of them still sum to an `f32`.
const LABEL_BOUND: f32 = 1e15;
/// Longest piece of a file that a message repeats, in characters.
const QUOTED_LENGTH: usize = 40;
/// Most columns that a message lists.
const LISTED_COLUMNS: usize = 10;
/// How alike two names have to be for one to be suggested, of 1.
const SUGGESTION_LIKENESS: f64 = 0.6;

/// Why a file is no data set. Pieces of the file are shortened.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    /// Not found, not allowed, or failed on the way, and what the system said.
    #[error("can't read {0}: {1}")]
    Unreadable(Place, io::Error),
    /// The gzip stream stops before its end.
    #[error("{0}: the gzipped data breaks off here")]
    TruncatedGzip(Place),
    /// The gzip stream is broken, and what the decoder said.
    #[error("{0}: the gzipped data is damaged here: {1}")]
    DamagedGzip(Place, io::Error),
    /// Nothing in it.
    #[error("{0}: empty, and a header and at least 1 row are needed")]
    Empty(Place),
    /// Nothing below the header.
    #[error("{0}: only a header, and at least 1 row is needed")]
    NoRows(Place),
    /// Bytes that are no text.
    #[error("{0}: not UTF-8")]
    NotUtf8(Place),
    /// A quoted field without its end.
    #[error("{0}: a quoted field must end on its line, with a quote before the comma")]
    BadQuotes(Place),
    /// The header lacks the target named first; what it has, the nearest name in front, comes after.
    #[error("{0}: no column {1:?}{2}")]
    NoTarget(Place, String, String),
    /// The column stands twice in the header, at both positions counted from 1.
    #[error("{0}: twice in the header, as columns {1} and {2}")]
    DuplicateColumn(Place, usize, usize),
    /// Only the target, and no lags to learn it from.
    #[error("{0}: the only column is the target, and at least 1 feature, or lags of the target, are needed")]
    NoFeatures(Place),
    /// A row that doesn't match the header; an empty line has no field.
    #[error("{place}: {expected} fields expected, as in the header, and {found} found")]
    Ragged {
        /// The row.
        place: Place,
        /// Fields of the header.
        expected: usize,
        /// Fields of the row.
        found: usize,
    },
    /// Text, or nothing, where a number should be.
    #[error("{0}: {1:?} is not a number")]
    NotANumber(Place, String),
    /// NaN or infinity, spelled out.
    #[error("{0}: {1:?} is not finite")]
    NotFinite(Place, String),
    /// A number too large to compute with, and the largest size allowed there.
    #[error("{0}: {1:?} is beyond the bound of ±{2:e}")]
    TooLarge(Place, String, f32),
    /// More lags than the file has past.
    #[error("{0}: {1}")]
    TooShort(Place, TooShort),
}

/// Where in a file, as far as it can be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1 as an editor does.
    pub row: Option<usize>,
    /// Name of the column.
    pub column: Option<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(row) = self.row {
            write!(f, ", row {row}")?;
        }
        match &self.column {
            Some(column) => write!(f, ", column {column:?}"),
            None => Ok(()),
        }
    }
}

/// Reads a file whose every cell is a number. The label is the column called `target`, or else the last one; all others
/// are features, in the file's order, and behind them the last `lags` labels.
pub fn read_csv(path: &Path, target: Option<&str>, lags: usize) -> Result<Dataset, CsvError> {
    let place = |row: Option<usize>, column: Option<&str>| Place {
        file: path.to_owned(),
        row,
        column: column.map(shortened),
    };
    let whole = || place(None, None);
    let mut lines = Lines::open(path).map_err(|cause| CsvError::Unreadable(whole(), cause))?;
    let names = header(&mut lines)?.ok_or_else(|| CsvError::Empty(whole()))?;
    let mut columns = HashMap::new();
    for (second, name) in names.iter().enumerate() {
        if let Some(first) = columns.insert(name.as_str(), second) {
            return Err(CsvError::DuplicateColumn(place(None, Some(name)), first + 1, second + 1));
        }
    }
    let label = match target {
        None => names.len() - 1,
        Some(target) => *columns.get(target).ok_or_else(|| no_target(whole(), target, &names))?,
    };
    if names.len() == 1 && lags == 0 {
        return Err(CsvError::NoFeatures(place(None, Some(&names[label]))));
    }

    let (mut x, mut y) = (Vec::new(), Vec::new());
    let mut empty_row = None;
    while let Some((row, fields)) = lines.next_row()? {
        if fields.is_empty() {
            empty_row = empty_row.or(Some(row));
            continue;
        }
        let (row, found) = empty_row.map_or((row, fields.len()), |empty_row| (empty_row, 0));
        if found != names.len() {
            return Err(CsvError::Ragged { place: place(Some(row), None), expected: names.len(), found });
        }
        for (column, (name, field)) in names.iter().zip(&fields).enumerate() {
            let place = || place(Some(row), Some(name));
            if column == label {
                y.push(number(field, LABEL_BOUND, place)?);
            } else {
                x.push(number(field, f32::MAX, place)?);
            }
        }
    }
    if y.is_empty() {
        return Err(CsvError::NoRows(whole()));
    }
    let name = path.display().to_string();
    let data = Dataset { name, features: names.len() - 1, x, y, owner: None };
    data.lagged(lags).map_err(|cause| CsvError::TooShort(whole(), cause))
}

fn number(field: &str, bound: f32, place: impl Fn() -> Place) -> Result<f32, CsvError> {
    let value: f32 = field.parse().map_err(|_| CsvError::NotANumber(place(), shortened(field)))?;
    // What overflows an f32 is read as infinite too, but it has digits.
    if !value.is_finite() && !field.contains(|c: char| c.is_ascii_digit()) {
        return Err(CsvError::NotFinite(place(), shortened(field)));
    }
    if value.abs() > bound {
        return Err(CsvError::TooLarge(place(), shortened(field), bound));
    }
    Ok(value)
}

/// The names on the first line that has any.
fn header(lines: &mut Lines) -> Result<Option<Vec<String>>, CsvError> {
    while let Some((_, fields)) = lines.next_row()? {
        if !fields.is_empty() {
            return Ok(Some(fields.into_iter().map(Cow::into_owned).collect()));
        }
    }
    Ok(None)
}

fn no_target(place: Place, target: &str, names: &[String]) -> CsvError {
    let likeness = |name: &String| strsim::jaro_winkler(&name.to_lowercase(), &target.to_lowercase());
    let nearest = names
        .iter()
        .map(|name| (likeness(name), name))
        .filter(|(likeness, _)| *likeness >= SUGGESTION_LIKENESS)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let mut there =
        nearest.map_or(String::new(), |(_, name)| format!(" (did you mean {:?}?)", shortened(name)));
    let listed: Vec<_> = names.iter().take(LISTED_COLUMNS).map(|name| shortened(name)).collect();
    there += &format!("; there are {}", listed.join(", "));
    if names.len() > LISTED_COLUMNS {
        there += &format!(" and {} more", names.len() - LISTED_COLUMNS);
    }
    CsvError::NoTarget(place, target.to_owned(), there)
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(QUOTED_LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The lines of a file, gzipped or not.
struct Lines {
    file: PathBuf,
    gzip: bool,
    source: Box<dyn BufRead>,
    /// The line last asked for.
    row: usize,
    line: Vec<u8>,
}

/// A line's number, and its fields: none, if there is nothing on it.
type Row<'a> = (usize, Vec<Cow<'a, str>>);

impl Lines {
    fn open(path: &Path) -> io::Result<Self> {
        let mut plain = BufReader::new(File::open(path)?);
        let gzip = plain.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let source: Box<dyn BufRead> =
            if gzip { Box::new(BufReader::new(MultiGzDecoder::new(plain))) } else { Box::new(plain) };
        Ok(Self { file: path.to_owned(), gzip, source, row: 0, line: Vec::new() })
    }

    fn next_row(&mut self) -> Result<Option<Row<'_>>, CsvError> {
        self.line.clear();
        self.row += 1;
        let length = self.source.read_until(b'\n', &mut self.line);
        if length.map_err(|cause| self.failure(cause))? == 0 {
            return Ok(None);
        }
        let text = str::from_utf8(&self.line).map_err(|_| CsvError::NotUtf8(self.place()))?;
        let text = if self.row == 1 { text.trim_start_matches('\u{feff}') } else { text };
        if text.trim().is_empty() {
            return Ok(Some((self.row, Vec::new())));
        }
        let fields = split(text.trim_end_matches(['\n', '\r']));
        Ok(Some((self.row, fields.ok_or_else(|| CsvError::BadQuotes(self.place()))?)))
    }

    fn failure(&self, cause: io::Error) -> CsvError {
        match cause.kind() {
            io::ErrorKind::UnexpectedEof if self.gzip => CsvError::TruncatedGzip(self.place()),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData if self.gzip => {
                CsvError::DamagedGzip(self.place(), cause)
            }
            _ => CsvError::Unreadable(self.place(), cause),
        }
    }

    fn place(&self) -> Place {
        Place { file: self.file.clone(), row: Some(self.row), column: None }
    }
}

/// The fields of a line without the blanks around them, or nothing if a quoted one has no proper end.
fn split(line: &str) -> Option<Vec<Cow<'_, str>>> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let (field, after) = match rest.trim_start().strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (Cow::Borrowed(rest[..end].trim()), &rest[end..])
            }
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return after.is_empty().then_some(fields),
        }
    }
}

/// The field up to its closing quote, and what follows.
fn unquote(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut searched = 0;
    loop {
        let quote = searched + text[searched..].find('"')?;
        let after = &text[quote + 1..];
        if !after.starts_with('"') {
            let inner = text[..quote].trim();
            let field = if inner.contains('"') { inner.replace("\"\"", "\"").into() } else { inner.into() };
            return Some((field, after.trim_start()));
        }
        searched = quote + 2;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use tempfile::NamedTempFile;

    use super::*;

    fn read_bytes(content: &[u8], target: Option<&str>, lags: usize) -> Result<Dataset, CsvError> {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        read_csv(file.path(), target, lags)
    }

    fn read(content: &str) -> Result<Dataset, CsvError> {
        read_bytes(content.as_bytes(), None, 0)
    }

    /// What a message says behind the file's name, with which it has to begin.
    fn message(result: Result<Dataset, CsvError>) -> String {
        let message = result.unwrap_err().to_string();
        let directory = std::env::temp_dir().display().to_string();
        let named = message.strip_prefix(&directory).expect("the file comes first");
        let end = named.find([' ', ',', ':']).unwrap();
        named[end..].trim_start_matches([',', ':', ' ']).to_owned()
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    const PLAIN: &str = "a,b,y\n1,2,3\n4.5,-5e-1,6\n";

    #[test]
    fn the_last_column_is_the_label_unless_another_is_named() {
        let data = read(PLAIN).unwrap();
        assert_eq!((data.features, data.x, data.y), (2, vec![1.0, 2.0, 4.5, -0.5], vec![3.0, 6.0]));
        let data = read_bytes(PLAIN.as_bytes(), Some("a"), 0).unwrap();
        assert_eq!((data.x, data.y), (vec![2.0, 3.0, -0.5, 6.0], vec![1.0, 4.5]));
    }

    #[test]
    fn marks_line_ends_quotes_blanks_and_empty_last_lines_change_nothing() {
        let plain = read(PLAIN).unwrap();
        for same in [
            "\u{feff}a,b,y\r\n1,2,3\r\n4.5,-5e-1,6\r\n\r\n  \r\n",
            "\n\"a\",\"b\",\"y\"\n\"1\",\"2\" , \"3\"\n 4.5 ,\" -0.5\",6",
        ] {
            let data = read(same).unwrap();
            assert!(read_bytes(same.as_bytes(), Some("a"), 0).is_ok(), "{same:?}");
            assert_eq!((data.x, data.y), (plain.x.clone(), plain.y.clone()), "{same:?}");
        }
        let named = read_bytes(b"\"a \"\"b\"\", c\",y\n1,2\n", Some("a \"b\", c"), 0).unwrap();
        assert_eq!(named.y, [1.0]);
    }

    #[test]
    fn gzip_is_known_by_its_content() {
        let packed = gzip(PLAIN.as_bytes());
        assert_eq!(read_bytes(&packed, None, 0).unwrap().x, read(PLAIN).unwrap().x);
        // Two members one after the other are one file.
        let members = [gzip(b"a,y\n1,"), gzip(b"2\n3,4\n")].concat();
        assert_eq!(read_bytes(&members, None, 0).unwrap().y, [2.0, 4.0]);
    }

    #[test]
    fn lags_make_features_of_a_single_column() {
        let data = read_bytes(b"y\n1\n2\n3\n4\n", None, 2).unwrap();
        assert_eq!((data.features, data.x, data.y), (2, vec![2.0, 1.0, 3.0, 2.0], vec![3.0, 4.0]));
        let short = message(read_bytes(b"y\n1\n2\n", None, 2));
        assert_eq!(short, "2 lags need more than 2 samples, and there are 2");
    }

    #[test]
    fn files_that_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        for path in [&folder.path().join("missing.csv"), folder.path()] {
            let error = read_csv(path, None, 0).unwrap_err().to_string();
            let expected = format!("can't read {}: ", path.display());
            assert!(error.starts_with(&expected), "{error}");
        }
        let packed = gzip(PLAIN.as_bytes());
        for (end, row) in [(2, 1), (12, 1), (packed.len() - 1, 4)] {
            let error = message(read_bytes(&packed[..end], None, 0));
            assert_eq!(error, format!("row {row}: the gzipped data breaks off here"));
        }
        let mut damaged = packed.clone();
        damaged[packed.len() - 6] ^= 1;
        let error = message(read_bytes(&damaged, None, 0));
        assert!(error.starts_with("row 4: the gzipped data is damaged here: "), "{error}");
    }

    #[test]
    fn headers_that_make_no_data_set() {
        let nothing = "empty, and a header and at least 1 row are needed";
        assert_eq!(message(read("")), nothing);
        assert_eq!(message(read("\r\n\n")), nothing);
        assert_eq!(message(read("a,y\n\n")), "only a header, and at least 1 row is needed");
        let twice = message(read("a,b,a,y\n1,2,3,4\n"));
        assert_eq!(twice, "column \"a\": twice in the header, as columns 1 and 3");
        let alone = message(read("y\n1\n"));
        assert!(alone.starts_with("column \"y\": the only column is the target, "), "{alone}");
    }

    #[test]
    fn a_missing_target_names_the_nearest_and_lists_the_others() {
        let target = |content: &str, name| message(read_bytes(content.as_bytes(), Some(name), 0));
        assert_eq!(
            target("temp,humidity\n1,2\n", "Humidty"),
            "no column \"Humidty\" (did you mean \"humidity\"?); there are temp, humidity"
        );
        assert_eq!(
            target("a,b,c,d,e,f,g,h,i,j,k,l\n", "zzz"),
            "no column \"zzz\"; there are a, b, c, d, e, f, g, h, i, j and 2 more"
        );
    }

    #[test]
    fn rows_are_counted_as_an_editor_counts_them() {
        for (content, row, found) in
            [("\r\na,y\r\n1,2\r\n3\r\n", 4, 1), ("a,y\n1,2,\n", 2, 3), ("a,y\n1,2\n\n\n3,4\n", 3, 0)]
        {
            let expected = "2 fields expected, as in the header, and";
            assert_eq!(message(read(content)), format!("row {row}: {expected} {found} found"));
        }
        for content in ["a,y\n1,2\n\"3,4\n5,6\n", "a,y\n1,2\n3,\"4\"5\n"] {
            let error = message(read(content));
            assert!(error.starts_with("row 3: a quoted field must end on its line"), "{error}");
        }
        let error = message(read_bytes(b"a,y\n1,2\n\xff,4\n", None, 0));
        assert_eq!(error, "row 3: not UTF-8");
    }

    #[test]
    fn cells_that_are_no_usable_number() {
        for (cells, column, expected) in [
            ("n/a,4", "a", "\"n/a\" is not a number"),
            ("3,", "y", "\"\" is not a number"),
            ("NaN,4", "a", "\"NaN\" is not finite"),
            ("3,-inf", "y", "\"-inf\" is not finite"),
            ("-1e39,4", "a", "\"-1e39\" is beyond the bound of ±3.4028235e38"),
            ("3,1.1e15", "y", "\"1.1e15\" is beyond the bound of ±1e15"),
            ("3,1e400", "y", "\"1e400\" is beyond the bound of ±1e15"),
        ] {
            let error = message(read(&format!("a,y\n1,2\n{cells}\n")));
            assert_eq!(error, format!("row 3, column {column:?}: {expected}"));
        }
        let long = message(read(&format!("a,y\n{},2\n", "é".repeat(500))));
        let expected = "é".repeat(QUOTED_LENGTH) + "…";
        assert_eq!(long, format!("row 2, column \"a\": {expected:?} is not a number"));
        let largest = read("a,y\n3e38,-1e15\n").unwrap();
        assert_eq!(largest.sample(0), ([3e38].as_slice(), -1e15));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3_000))]

        #[test]
        fn any_bytes_are_read_or_refused(
            content in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..60),
                "(\u{feff})?a,[by\"]{0,2}\r?\n[0-9aé\",\r\n .eE+-]{0,60}".prop_map(String::into_bytes),
                "y\n([0-9]{1,3}\r?\n){0,5}".prop_map(|text| gzip(text.as_bytes())),
                prop::collection::vec(any::<u8>(), 0..60).prop_map(|tail| [&[0x1f, 0x8b, 8][..], &tail].concat()),
            ],
            lags in 0_usize..4,
        ) {
            if let Ok(data) = read_bytes(&content, None, lags) {
                prop_assert!(!data.is_empty() && data.features > 0);
                prop_assert_eq!(data.x.len(), data.len() * data.features);
                prop_assert!(data.x.iter().chain(&data.y).all(|value| value.is_finite()));
            }
        }

        #[test]
        fn what_was_written_is_read_back(rows in prop::collection::vec((any::<f32>(), -1e15_f32..1e15), 1..20)) {
            let rows: Vec<_> = rows.into_iter().filter(|(x, _)| x.is_finite()).collect();
            prop_assume!(!rows.is_empty());
            let lines: String = rows.iter().map(|(x, y)| format!("{x},{y:e}\n")).collect();
            let data = read(&format!("x,y\n{lines}")).unwrap();
            prop_assert_eq!(data.x.into_iter().zip(data.y).collect::<Vec<_>>(), rows);
        }
    }
}
