//! Predictions as a Parquet file.

use std::io;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};

use super::{Content, PredictionRow};

/// Rows of a group.
const GROUP: usize = 1 << 20;

/// The file.
pub(super) fn write<'a>(
    columns: &[String],
    rows: impl Iterator<Item = PredictionRow<'a>>,
) -> io::Result<Vec<u8>> {
    let mut rows = rows.peekable();
    let fields = columns.iter().map(|name| {
        let first = rows.peek().map_or(Content::Nothing, |row| row.cell(name));
        field(name, &first)
    });
    let fields = fields.collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("predictions").with_fields(fields).build()?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    while rows.peek().is_some() {
        let rows: Vec<PredictionRow<'_>> = rows.by_ref().take(GROUP).collect();
        let mut group = writer.next_row_group()?;
        let mut names = columns.iter();
        while let (Some(mut column), Some(name)) = (group.next_column()?, names.next()) {
            write_column(column.untyped(), name, &rows)?;
            column.close()?;
        }
        group.close()?;
    }
    Ok(writer.into_inner()?)
}

/// A column of the schema, by its name and what its first cell has.
fn field(name: &str, first: &Content) -> Result<TypePtr, ParquetError> {
    let (physical, logical) = match first {
        Content::Whole(_) => (Physical::INT64, None),
        Content::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        // Only the time of a text may be missing.
        Content::Nothing if name == "time" => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Content::Number(_) | Content::Nothing => (Physical::FLOAT, None),
    };
    let has_gaps = ["time", "lower", "upper"].contains(&name);
    let repetition = if has_gaps { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let builder = Type::primitive_type_builder(name, physical).with_logical_type(logical);
    Ok(Arc::new(builder.with_repetition(repetition).build()?))
}

fn write_column(
    writer: &mut ColumnWriter<'_>,
    name: &str,
    rows: &[PredictionRow<'_>],
) -> io::Result<()> {
    let cells = rows.iter().map(|row| row.cell(name));
    let levels: Vec<i16> = cells.clone().map(|cell| i16::from(cell != Content::Nothing)).collect();
    // Required columns ignore them.
    let levels = Some(&levels[..]);
    match writer {
        ColumnWriter::Int64ColumnWriter(writer) => {
            let whole =
                |cell| if let Content::Whole(number) = cell { Some(number as i64) } else { None };
            writer.write_batch(&cells.filter_map(whole).collect::<Vec<_>>(), levels, None)?;
        }
        ColumnWriter::ByteArrayColumnWriter(writer) => {
            let text = |cell| match cell {
                Content::Text(text) => Some(ByteArray::from(text.into_bytes())),
                _ => None,
            };
            writer.write_batch(&cells.filter_map(text).collect::<Vec<_>>(), levels, None)?;
        }
        ColumnWriter::FloatColumnWriter(writer) => {
            let number =
                |cell| if let Content::Number(number) = cell { Some(number) } else { None };
            writer.write_batch(&cells.filter_map(number).collect::<Vec<_>>(), levels, None)?;
        }
        _ => return Err(io::Error::other("the schema has no other kinds of columns")),
    }
    Ok(())
}
