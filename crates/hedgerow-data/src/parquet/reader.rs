//! [`Parquet`]: flat Parquet files, read in batches of rows within row groups. Only one batch and
//! the current page of every column are in memory.

use std::collections::VecDeque;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parquet::basic::{ConvertedType, LogicalType, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use crate::cell::CellReader;
use crate::rows::{Cell, CellPosition, Format, MAX_COLUMNS, ReadError, Row, Rows, check_names};
use crate::text::{excerpt, foreign_message};

/// Most rows of a batch, and most cells.
const BATCH_ROWS: usize = 1024;
const BATCH_CELLS: usize = 1 << 20;

/// A Parquet file.
pub(crate) struct Parquet {
    file: PathBuf,
    reader: SerializedFileReader<File>,
    cells: CellReader,
    names: Vec<String>,
    /// The row groups that were begun.
    groups: usize,
    /// Bytes of the row groups before the last of them.
    bytes: u64,
    /// The columns of that one, and how many of its rows were read.
    columns: Vec<Column>,
    rows_read: usize,
    /// Rows of the batch that are left.
    batch: usize,
    /// Rows handed out.
    row: u64,
    /// What is wrong with the file, once it is known.
    damage: Option<String>,
}

impl Parquet {
    /// Reads what the file says of its columns.
    pub(crate) fn open(path: &Path, format: &Format) -> Result<Self, ReadError> {
        let place = |column: Option<&str>| CellPosition {
            file: path.to_owned(),
            row: None,
            column: column.map(excerpt),
        };
        let file = File::open(path).map_err(|cause| ReadError::Unreadable(place(None), cause))?;
        let reader = guarded(|| SerializedFileReader::new(file))
            .map_err(|damage| ReadError::DamagedParquet(place(None), damage))?;
        let metadata = reader.metadata();
        let columns = metadata.file_metadata().schema_descr().columns();
        if columns.len() > MAX_COLUMNS {
            return Err(ReadError::TooManyColumns(place(None)));
        }
        let names: Vec<_> = columns.iter().map(|column| column.path().string()).collect();
        for (column, name) in columns.iter().zip(&names) {
            if let Some(kind) = unusable(column) {
                return Err(ReadError::UnusableColumn(place(Some(name)), kind));
            }
        }
        check_names(&names, |name| place(Some(name)))?;
        if names.is_empty() || metadata.row_groups().iter().all(|group| group.num_rows() <= 0) {
            return Err(ReadError::NoRows(place(None)));
        }
        Ok(Self {
            file: path.to_owned(),
            reader,
            cells: CellReader::new(&format.missing),
            names,
            groups: 0,
            bytes: 0,
            columns: Vec::new(),
            rows_read: 0,
            batch: 0,
            row: 0,
            damage: None,
        })
    }

    fn place(&self, column: Option<&str>) -> CellPosition {
        CellPosition {
            file: self.file.clone(),
            row: Some(self.row + 1),
            column: column.map(excerpt),
        }
    }

    fn cell<'a>(&self, value: Option<&'a Value>, name: &str) -> Result<Cell<'a>, ReadError> {
        let place = || self.place(Some(name));
        match value {
            None => Ok(Cell::Missing),
            Some(Value::Number(number)) => {
                let cell = self.cells.number(*number);
                cell.map_err(|unusable| unusable.at(place(), &number.to_string()))
            }
            Some(Value::Text(text)) => {
                let text = text.as_utf8().map_err(|_| ReadError::NotUtf8(place()))?.trim();
                self.cells.read(text, b'.').map_err(|unusable| unusable.at(place(), text))
            }
        }
    }

    /// Loads a batch; false if the file has no more.
    fn load(&mut self) -> Result<bool, String> {
        let most = (BATCH_CELLS / self.names.len()).clamp(1, BATCH_ROWS);
        loop {
            let mut rows = None;
            for column in &mut self.columns {
                let loaded = guarded(|| column.load(most))?;
                if *rows.get_or_insert(loaded) != loaded {
                    return Err("its columns are not of one length".to_owned());
                }
            }
            self.batch = rows.unwrap_or(0);
            self.rows_read += self.batch;
            if self.batch > 0 {
                return Ok(true);
            }
            if !self.begin_group()? {
                return Ok(false);
            }
        }
    }

    fn begin_group(&mut self) -> Result<bool, String> {
        let groups = self.reader.metadata().row_groups();
        if let Some(last) = self.groups.checked_sub(1) {
            let expected = groups[last].num_rows();
            if i64::try_from(self.rows_read) != Ok(expected) {
                return Err(format!(
                    "{expected} rows were promised for row group {last}, and there are {}",
                    self.rows_read
                ));
            }
            self.bytes += u64::try_from(groups[last].compressed_size()).unwrap_or(0);
        }
        if self.groups == groups.len() {
            self.columns.clear();
            return Ok(false);
        }
        self.columns = guarded(|| {
            let group = self.reader.get_row_group(self.groups)?;
            let schema = self.reader.metadata().file_metadata().schema_descr();
            let column = |index| {
                let is_unsigned = is_unsigned(&schema.column(index));
                let reader = group.get_column_reader(index)?;
                Ok(Column { reader, is_unsigned, values: VecDeque::new() })
            };
            (0..self.names.len()).map(column).collect()
        })?;
        self.groups += 1;
        self.rows_read = 0;
        Ok(true)
    }
}

impl Rows for Parquet {
    fn columns(&self) -> &[String] {
        &self.names
    }

    fn next(&mut self, row: &mut Row) -> Result<bool, ReadError> {
        if let Some(damage) = &self.damage {
            return Err(ReadError::DamagedParquet(self.place(None), damage.clone()));
        }
        if self.batch == 0 {
            match self.load() {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(damage) => {
                    self.damage = Some(damage.clone());
                    return Err(ReadError::DamagedParquet(self.place(None), damage));
                }
            }
        }
        row.clear(self.row + 1);
        for (column, name) in self.columns.iter().zip(&self.names) {
            row.push(self.cell(column.values.front().and_then(Option::as_ref), name)?);
        }
        self.columns.iter_mut().for_each(|column| _ = column.values.pop_front());
        self.batch -= 1;
        self.row += 1;
        Ok(true)
    }

    fn bytes_read(&self) -> u64 {
        let group = self.groups.checked_sub(1).map(|last| self.reader.metadata().row_group(last));
        let share = |rows: i64| (self.rows_read as f64 / rows.max(1) as f64).min(1.0);
        let begun = group.filter(|_| !self.columns.is_empty());
        self.bytes
            + begun.map_or(0, |group| {
                (group.compressed_size() as f64 * share(group.num_rows())) as u64
            })
    }
}

/// What a column is if it can't be read.
fn unusable(column: &ColumnDescriptor) -> Option<String> {
    use ConvertedType::{ENUM, INT_8, INT_16, INT_32, INT_64, NONE, UTF8};
    use ConvertedType::{UINT_8, UINT_16, UINT_32, UINT_64};
    if column.path().parts().len() > 1 || column.max_rep_level() > 0 {
        return Some("a nested column".to_owned());
    }
    let physical = column.physical_type();
    let kind = match column.logical_type_ref() {
        None | Some(LogicalType::Integer(_) | LogicalType::String | LogicalType::Enum) => None,
        Some(other) => Some(format!("{other:?}")),
    };
    // Older files have this instead.
    let kind = kind.or_else(|| match column.converted_type() {
        NONE | UTF8 | ENUM | INT_8 | INT_16 | INT_32 | INT_64 => None,
        UINT_8 | UINT_16 | UINT_32 | UINT_64 => None,
        other => Some(other.to_string()),
    });
    match (kind, physical) {
        (Some(kind), _) => {
            Some(format!("a column of {physical} that stands for {}", excerpt(&kind)))
        }
        (None, Type::INT96 | Type::FIXED_LEN_BYTE_ARRAY) => Some(format!("a column of {physical}")),
        (None, _) => None,
    }
}

/// What a column holds where it isn't null.
enum Value {
    Number(f64),
    Text(ByteArray),
}

/// A column of a row group.
struct Column {
    reader: ColumnReader,
    is_unsigned: bool,
    /// The rest of the batch; `None` is null.
    values: VecDeque<Option<Value>>,
}

impl Column {
    /// Loads the next batch; returns its number of rows.
    fn load(&mut self, most: usize) -> Result<usize, ParquetError> {
        use ColumnReader::{
            BoolColumnReader, ByteArrayColumnReader, DoubleColumnReader, FloatColumnReader,
            Int32ColumnReader, Int64ColumnReader,
        };
        let values = &mut self.values;
        match &mut self.reader {
            BoolColumnReader(reader) => {
                load(reader, most, values, |value| Value::Number(f64::from(u8::from(value))))
            }
            Int32ColumnReader(reader) if self.is_unsigned => {
                load(reader, most, values, |value| Value::Number(f64::from(value.cast_unsigned())))
            }
            Int32ColumnReader(reader) => {
                load(reader, most, values, |value| Value::Number(f64::from(value)))
            }
            Int64ColumnReader(reader) if self.is_unsigned => {
                load(reader, most, values, |value| Value::Number(value.cast_unsigned() as f64))
            }
            Int64ColumnReader(reader) => {
                load(reader, most, values, |value| Value::Number(value as f64))
            }
            FloatColumnReader(reader) => {
                load(reader, most, values, |value| Value::Number(f64::from(value)))
            }
            DoubleColumnReader(reader) => load(reader, most, values, Value::Number),
            ByteArrayColumnReader(reader) => load(reader, most, values, Value::Text),
            // `unusable` refuses these before.
            _ => Err(ParquetError::General("a column changed its type".to_owned())),
        }
    }
}

/// Reads a batch; every level says whether its row has a value, and there are none if all have.
fn load<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    most: usize,
    out: &mut VecDeque<Option<Value>>,
    value: fn(T::T) -> Value,
) -> Result<usize, ParquetError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let (rows, ..) = reader.read_records(most, Some(&mut levels), None, &mut values)?;
    let mut values = values.into_iter().map(value);
    out.clear();
    out.extend((0..rows).map(|row| match levels.get(row) {
        Some(0) => None,
        _ => values.next(),
    }));
    Ok(rows)
}

fn is_unsigned(column: &ColumnDescriptor) -> bool {
    use ConvertedType::{UINT_8, UINT_16, UINT_32, UINT_64};
    match column.logical_type_ref() {
        Some(LogicalType::Integer(kind)) => !kind.is_signed,
        _ => matches!(column.converted_type(), UINT_8 | UINT_16 | UINT_32 | UINT_64),
    }
}

/// Damaged files make the crate panic here and there: that is damage too.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(result) => result.map_err(|error| foreign_message(&error.to_string())),
        Err(_) => Err("its reader gave up".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::basic::Compression;
    use parquet::column::writer::ColumnWriter;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use tempfile::NamedTempFile;

    use super::*;
    use crate::rows;

    /// A file with these row groups; every column of a group has as many rows as the group says,
    /// and every third value of an optional column is null.
    fn written(schema: &str, groups: &[usize], packed: Compression) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties =
            WriterProperties::builder().set_compression(packed).set_data_page_row_count_limit(700);
        let properties = Arc::new(properties.build());
        let mut writer =
            SerializedFileWriter::new(file.reopen().unwrap(), schema, properties).unwrap();
        for &rows in groups {
            let mut group = writer.next_row_group().unwrap();
            while let Some(mut column) = group.next_column().unwrap() {
                let levels: Vec<i16> = (0..rows).map(|row| i16::from(row % 3 != 2)).collect();
                let there = levels.iter().filter(|level| **level == 1).count() as i32;
                let all = 0..rows as i32;
                match column.untyped() {
                    ColumnWriter::BoolColumnWriter(column) => {
                        let values: Vec<_> = all.map(|i| i % 2 == 0).collect();
                        column.write_batch(&values, None, None).unwrap();
                    }
                    ColumnWriter::Int32ColumnWriter(column) => {
                        let values: Vec<_> = all.map(|i| -1 - i).collect();
                        column.write_batch(&values, None, None).unwrap();
                    }
                    ColumnWriter::Int64ColumnWriter(column) => {
                        let values: Vec<_> = all.map(|i| i64::from(i) * 5_000_000_000).collect();
                        column.write_batch(&values, None, None).unwrap();
                    }
                    ColumnWriter::FloatColumnWriter(column) => {
                        let values: Vec<_> =
                            all.map(|i| if i == 4 { f32::NAN } else { i as f32 }).collect();
                        column.write_batch(&values, None, None).unwrap();
                    }
                    ColumnWriter::DoubleColumnWriter(column) => {
                        let values: Vec<_> = (0..there).map(|i| f64::from(i) / 2.0).collect();
                        column.write_batch(&values, Some(&levels), None).unwrap();
                    }
                    ColumnWriter::ByteArrayColumnWriter(column) => {
                        let texts = ["red", " 7 ", "NA", ""].map(ByteArray::from);
                        let values: Vec<_> = all.map(|i| texts[i as usize % 4].clone()).collect();
                        column.write_batch(&values, None, None).unwrap();
                    }
                    _ => unreachable!(),
                }
                column.close().unwrap();
            }
            group.close().unwrap();
        }
        writer.close().unwrap();
        file
    }

    const FLAT: &str = "message flat {
        required boolean b; required int32 i; required int32 u (UINT_32); required int64 l;
        optional double d; required binary s (UTF8);
    }";

    fn shown(row: &Row) -> String {
        let cells = (0..row.len()).map(|column| match row.cell(column) {
            Cell::Missing => "-".to_owned(),
            Cell::Number(number) => number.to_string(),
            Cell::Text(text) => format!("{text:?}"),
        });
        format!("{}: {}", row.line(), cells.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn rows_come_out_as_they_went_in_across_groups_and_batches() {
        let missing = Format { missing: vec!["NA".into()], ..Format::default() };
        for packed in [
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            Compression::GZIP(Default::default()),
            Compression::ZSTD(Default::default()),
        ] {
            let file = written(FLAT, &[4, 2500], packed);
            let mut rows = rows::open(file.path(), &missing).unwrap();
            assert_eq!(rows.columns(), ["b", "i", "u", "l", "d", "s"]);
            let mut row = Row::default();
            let mut all = Vec::new();
            let mut before = 0;
            while rows.next(&mut row).unwrap() {
                all.push(shown(&row));
                assert!(rows.bytes_read() >= before);
                before = rows.bytes_read();
            }
            assert!(before > 1000 && before < file.as_file().metadata().unwrap().len());
            assert_eq!(all.len(), 2504);
            assert_eq!(all[0], "1: 1 -1 4294967295 0 0 \"red\"");
            assert_eq!(all[1], "2: 0 -2 4294967294 5000000000 0.5 7");
            assert_eq!(all[2], "3: 1 -3 4294967293 10000000000 - -");
            assert_eq!(all[3], "4: 0 -4 4294967292 15000000000 1 -");
            assert_eq!(all[4], "5: 1 -1 4294967295 0 0 \"red\"");
            // In the second group 2001 rows stand before it, and every third of those is null.
            assert_eq!(all[4 + 2001], "2006: 0 -2002 4294965294 10005000000000 667 7");
        }
    }

    fn error(file: &NamedTempFile) -> String {
        let read = || {
            let mut rows = rows::open(file.path(), &Format::default())?;
            let mut row = Row::default();
            while rows.next(&mut row)? {}
            Ok::<_, ReadError>(())
        };
        let error = read().unwrap_err().to_string();
        error.strip_prefix(&file.path().display().to_string()).unwrap().to_owned()
    }

    #[test]
    fn columns_that_are_no_cells_are_named() {
        for (column, kind) in [
            (
                "required int64 x (TIMESTAMP_MILLIS)",
                "a column of INT64 that stands for TIMESTAMP_MILLIS",
            ),
            ("required int96 x", "a column of INT96"),
            ("repeated int32 x", "a nested column"),
            ("required fixed_len_byte_array(3) x", "a column of FIXED_LEN_BYTE_ARRAY"),
        ] {
            let file = written(
                &format!("message m {{ required int32 a; {column}; }}"),
                &[],
                Compression::UNCOMPRESSED,
            );
            let expected = format!(
                ", column \"x\": {kind}, and only numbers, booleans and strings can be read"
            );
            assert_eq!(error(&file), expected);
        }
        let nested = "message m { required group g { required int32 x; } }";
        let error = error(&written(nested, &[], Compression::UNCOMPRESSED));
        assert!(error.starts_with(", column \"g.x\": a nested column"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_row() {
        let file = written("message m { required float x; }", &[9], Compression::UNCOMPRESSED);
        assert_eq!(error(&file), ", row 5, column \"x\": \"NaN\" is not finite");
        let missing = Format { missing: vec!["NaN".into()], ..Format::default() };
        let mut rows = rows::open(file.path(), &missing).unwrap();
        let mut row = Row::default();
        for line in 1..=9 {
            assert!(rows.next(&mut row).unwrap());
            assert_eq!(row.cell(0) == Cell::Missing, line == 5);
        }
        assert!(!rows.next(&mut row).unwrap() && !rows.next(&mut row).unwrap());
        let empty = written(FLAT, &[], Compression::UNCOMPRESSED);
        assert_eq!(error(&empty), ": only a header, and at least 1 row is needed");
    }

    #[test]
    fn files_cut_short_are_damaged() {
        let file = written(FLAT, &[100], Compression::SNAPPY);
        let content = std::fs::read(file.path()).unwrap();
        for end in [4, 12, content.len() / 2, content.len() - 1] {
            file.as_file().set_len(end as u64).unwrap();
            let error = error(&file);
            assert!(error.starts_with(": the Parquet data is damaged: "), "{error}");
        }
    }
}
