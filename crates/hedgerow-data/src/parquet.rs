//! Parquet files, which the feature `parquet` reads.

#[cfg(feature = "parquet")]
mod reader;

use super::rows::{Format, ReadError, Rows, TableFormat};
use super::source::Source;

pub(crate) static FORMAT: TableFormat =
    TableFormat { matches: |source| Ok(source.head().starts_with(b"PAR1")), open };

fn open(source: Source, format: &Format) -> Result<Box<dyn Rows>, ReadError> {
    if !source.is_plain_file() {
        return Err(ReadError::ParquetStream(source.place(None, None)));
    }
    #[cfg(feature = "parquet")]
    return Ok(Box::new(reader::Parquet::open(&source.place(None, None).file, format)?));
    #[cfg(not(feature = "parquet"))]
    {
        _ = format;
        Err(ReadError::NeedsParquet(source.place(None, None)))
    }
}

#[cfg(all(test, not(feature = "parquet")))]
mod tests {
    use super::super::rows::{self, Format};

    #[test]
    fn parquet_needs_a_build_that_has_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "PAR1 and more").unwrap();
        let error = rows::open(file.path(), &Format::default()).err().unwrap().to_string();
        let expected =
            "a Parquet file, and this build can't read it: build with --features parquet";
        assert_eq!(error, format!("{}: {expected}", file.path().display()));
    }
}
