//! Predictions as a Parquet file.

use std::io;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::PredictionRow;

const SCHEMA: &str = "message predictions {
    required int64 row;
    optional binary time (utf8);
    required binary node (utf8);
    required binary method (utf8);
    required float truth;
    required float prediction;
    optional float lower;
    optional float upper;
}";

/// Rows of a group.
const GROUP: usize = 1 << 20;

/// The file.
pub(super) fn write<'a>(rows: impl Iterator<Item = PredictionRow<'a>>) -> io::Result<Vec<u8>> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    let mut rows = rows.peekable();
    while rows.peek().is_some() {
        let rows: Vec<PredictionRow<'_>> = rows.by_ref().take(GROUP).collect();
        let mut group = writer.next_row_group()?;
        let mut number = 0;
        while let Some(mut column) = group.next_column()? {
            write_column(column.untyped(), number, &rows)?;
            column.close()?;
            number += 1;
        }
        group.close()?;
    }
    Ok(writer.into_inner()?)
}

/// Writes a column of the schema by its number.
fn write_column(
    writer: &mut ColumnWriter<'_>,
    number: usize,
    rows: &[PredictionRow<'_>],
) -> io::Result<()> {
    let text = |text: &str| ByteArray::from(text.as_bytes().to_vec());
    match writer {
        ColumnWriter::Int64ColumnWriter(writer) => {
            let values: Vec<i64> = rows.iter().map(|row| row.row as i64).collect();
            writer.write_batch(&values, None, None)?;
        }
        ColumnWriter::ByteArrayColumnWriter(writer) => {
            let column = |row: &PredictionRow<'_>| match number {
                1 => row.time.as_deref().map(text),
                2 => Some(text(&row.node)),
                _ => Some(text(row.method)),
            };
            let (values, levels) = split(rows.iter().map(column));
            writer.write_batch(&values, (number == 1).then_some(&levels), None)?;
        }
        ColumnWriter::FloatColumnWriter(writer) => {
            let column = |row: &PredictionRow<'_>| match number {
                4 => Some(row.truth),
                5 => Some(row.prediction),
                6 => row.lower,
                _ => row.upper,
            };
            let (values, levels) = split(rows.iter().map(column));
            writer.write_batch(&values, (number >= 6).then_some(&levels), None)?;
        }
        _ => return Err(io::Error::other("the schema has no other kinds of columns")),
    }
    Ok(())
}

/// The values that are there, and for each place whether there is one.
fn split<T>(values: impl Iterator<Item = Option<T>>) -> (Vec<T>, Vec<i16>) {
    let (mut there, mut levels) = (Vec::new(), Vec::new());
    for value in values {
        levels.push(i16::from(value.is_some()));
        there.extend(value);
    }
    (there, levels)
}
