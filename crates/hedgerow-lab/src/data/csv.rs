//! Data sets from comma-separated files with a header, plain or gzipped.
//!
//! Nothing is repaired: a cell that isn't a finite number is an error, and so are quotes that a lenient reader would guess at.
//! Only blank lines are skipped. The whole text is kept while it is read, so that a message can name the row as an editor
//! shows it.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::{fmt, fs, iter};

use csv::{ReaderBuilder, StringRecord};
use flate2::bufread::MultiGzDecoder;
use hedgerow::method::MAX_LABEL;

use super::{Dataset, TooShort};

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
    /// A quoted field without its end, or a quote inside a field that isn't quoted.
    #[error("{0}: a quoted field must begin and end with a quote, next to the commas around it")]
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
    /// A row that doesn't match the header.
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
    /// The line, or the first of a row with several, counted from 1 as an editor does.
    pub row: Option<usize>,
    /// Name of the column.
    pub column: Option<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        self.row.map_or(Ok(()), |row| write!(f, ", row {row}"))?;
        self.column.as_ref().map_or(Ok(()), |column| write!(f, ", column {column:?}"))
    }
}

/// Reads a file whose every cell is a number. The label is the column called `target`, or else the last one; all others
/// are features, in the file's order, and behind them the last `lags` labels.
pub fn read_csv(path: &Path, target: Option<&str>, lags: usize) -> Result<Dataset, CsvError> {
    let place = |before: Option<&[u8]>, column: Option<&str>| {
        let (row, column) = (before.map(row_after), column.map(shortened));
        Place { file: path.to_owned(), row, column }
    };
    let whole = || place(None, None);
    let text = read_text(path, |before| place(before, None))?;
    let mut rows = rows(&text).map(|row| {
        let (before, row, fields) = row.map_err(|cause| CsvError::Unreadable(whole(), cause.into()))?;
        if !is_well_quoted(row) {
            return Err(CsvError::BadQuotes(place(Some(before), None)));
        }
        Ok((before, fields))
    });
    let (_, header) = rows.next().ok_or_else(|| CsvError::Empty(whole()))??;
    let names: Vec<_> = header.iter().map(|field| bare(field).to_owned()).collect();
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
    for row in rows {
        let (before, fields) = row?;
        if fields.len() != names.len() {
            let (place, expected, found) = (place(Some(before), None), names.len(), fields.len());
            return Err(CsvError::Ragged { place, expected, found });
        }
        for (column, (name, field)) in names.iter().zip(&fields).enumerate() {
            let (numbers, bound) = if column == label { (&mut y, MAX_LABEL) } else { (&mut x, f32::MAX) };
            numbers.push(number(bare(field), bound, || place(Some(before), Some(name)))?);
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

fn no_target(place: Place, target: &str, names: &[String]) -> CsvError {
    let likeness = |name: &String| strsim::jaro_winkler(&name.to_lowercase(), &target.to_lowercase());
    let nearest = names.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let alike = nearest.filter(|name| likeness(name) >= SUGGESTION_LIKENESS);
    let mut there = alike.map_or(String::new(), |name| format!(" (did you mean {:?}?)", shortened(name)));
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

/// The whole file, unpacked.
fn read_text(path: &Path, place: impl Fn(Option<&[u8]>) -> Place) -> Result<String, CsvError> {
    let mut content = fs::read(path).map_err(|cause| CsvError::Unreadable(place(None), cause))?;
    if content.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        let length = MultiGzDecoder::new(&content[..]).read_to_end(&mut unpacked);
        length.map_err(|cause| match cause.kind() {
            io::ErrorKind::UnexpectedEof => CsvError::TruncatedGzip(place(Some(&unpacked))),
            _ => CsvError::DamagedGzip(place(Some(&unpacked)), cause),
        })?;
        content = unpacked;
    }
    String::from_utf8(content)
        .map_err(|error| CsvError::NotUtf8(place(error.as_bytes().get(..error.utf8_error().valid_up_to()))))
}

/// The number of the line behind these bytes. A return alone ends a line too, as it does for the reader.
fn row_after(bytes: &[u8]) -> usize {
    let behind_returns = bytes.split(|&byte| byte == b'\r').skip(1);
    let lone_returns = behind_returns.filter(|rest| !rest.starts_with(b"\n")).count();
    1 + lone_returns + bytes.iter().filter(|&&byte| byte == b'\n').count()
}

/// The rows that aren't blank: what stands before each, its text, and its fields.
fn rows(text: &str) -> impl Iterator<Item = csv::Result<(&[u8], &str, StringRecord)>> {
    let text = text.trim_start_matches('\u{feff}');
    let reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut records = reader.into_records();
    let mut start = 0;
    let rows = iter::from_fn(move || {
        let fields = records.next()?;
        let end = records.reader().position().byte() as usize;
        // To the reader, the blank lines that it skips belong to the row after them, and so does half of a `\r\n`.
        let row = text[start..end].trim_start_matches(['\r', '\n']);
        start = end;
        Some(fields.map(|fields| (&text.as_bytes()[..end - row.len()], row, fields)))
    });
    rows.filter(|row| !row.as_ref().is_ok_and(|(_, row, _)| row.trim().is_empty()))
}

/// A field without the blanks around it, and without quotes that follow a blank: the reader leaves those.
fn bare(field: &str) -> &str {
    let field = field.trim();
    field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).map_or(field, str::trim)
}

/// Whether quotes come in pairs, and only blanks between them and the commas: the reader would make 45 of `"4"5`, and one
/// field of all that follows a lost quote.
fn is_well_quoted(row: &str) -> bool {
    let framed = format!(",{},", row.trim());
    let mut outside = framed.split('"').map(str::trim).step_by(2);
    // Nothing between two quotes stands for a quote inside a field.
    framed.matches('"').count() % 2 == 0
        && outside.all(|piece| piece.is_empty() || piece.starts_with(',') && piece.ends_with(','))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
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
            "\n\"a\",\"b\",\"y\"\n\n\"1\n\",\"2\" , \"3\"\n 4.5 ,\" -0.5\",6",
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
        for (header, target, there) in [
            ("temp,humidity", "Humidty", " (did you mean \"humidity\"?); there are temp, humidity"),
            ("a,b,c,d,e,f,g,h,i,j,k,l", "zzz", "; there are a, b, c, d, e, f, g, h, i, j and 2 more"),
        ] {
            let error = message(read_bytes(header.as_bytes(), Some(target), 0));
            assert_eq!(error, format!("no column {target:?}{there}"));
        }
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
        ] {
            let expected = format!("row {row}: 2 fields expected, as in the header, and {found} found");
            assert_eq!(message(read(content)), expected, "{content:?}");
        }
        for content in [&b"a,y\n1,2\n\xff,4\n"[..], b"a,y\r\n\"1\r\n\xff\",4\n", b"a,y\r1,2\r\xff"] {
            assert_eq!(message(read_bytes(content, None, 0)), "row 3: not UTF-8");
        }
    }

    #[test]
    fn quotes_are_never_guessed_at() {
        for cells in ["\"3,4\n5,6", "3,\"4\"5", "3,4\"5\"", "3,\"4\" 5", "3,4\"", "3,\"4", "\"3\"\"4,5"] {
            let error = message(read(&format!("a,y\n1,2\n{cells}\n7,8\n")));
            assert!(error.starts_with("row 3: a quoted field must begin and end"), "{cells:?}: {error}");
        }
        let nothing = message(read_bytes(b"y\n1\n\n\"\"\n2\n", None, 1));
        assert_eq!(nothing, "row 4, column \"y\": \"\" is not a number");
    }

    #[test]
    fn cells_that_are_no_usable_number() {
        for (cells, column, expected) in [
            ("n/a,4", "a", "\"n/a\" is not a number"),
            ("3,", "y", "\"\" is not a number"),
            ("NaN,4", "a", "\"NaN\" is not finite"),
            ("3,-inf", "y", "\"-inf\" is not finite"),
            ("-1e39,4", "a", "\"-1e39\" is beyond the bound of ±3.4028235e38"),
            ("3,1.1e12", "y", "\"1.1e12\" is beyond the bound of ±1e12"),
            ("3,1e400", "y", "\"1e400\" is beyond the bound of ±1e12"),
        ] {
            let error = message(read(&format!("a,y\n1,2\n{cells}\n")));
            assert_eq!(error, format!("row 3, column {column:?}: {expected}"));
        }
        let long = message(read(&format!("a,y\n{},2\n", "é".repeat(500))));
        let expected = "é".repeat(QUOTED_LENGTH) + "…";
        assert_eq!(long, format!("row 2, column \"a\": {expected:?} is not a number"));
        let largest = read("a,y\n3e38,-1e12\n").unwrap();
        assert_eq!(largest.sample(0), ([3e38].as_slice(), -1e12));
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
        fn what_was_written_is_read_back(rows in prop::collection::vec((any::<f32>(), -1e12_f32..1e12), 1..20)) {
            let rows: Vec<_> = rows.into_iter().filter(|(x, _)| x.is_finite()).collect();
            prop_assume!(!rows.is_empty());
            let lines: String = rows.iter().map(|(x, y)| format!("{x},{y:e}\n")).collect();
            let data = read(&format!("x,y\n{lines}")).unwrap();
            prop_assert_eq!(data.x.into_iter().zip(data.y).collect::<Vec<_>>(), rows);
        }
    }
}
