//! Any bytes given as a table are read or refused. Nothing panics, and every cell has its promised
//! type.

#![allow(clippy::unwrap_used)]

use std::io::{self, Read, Write};
use std::path::Path;

use flate2::{Compression, write::GzEncoder};
use hedgerow_data::rows::{self, Cell, Format, ReadError, Row, Rows};
use proptest::prelude::*;
use proptest::sample::Index;

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zstandard(content: &[u8]) -> Vec<u8> {
    zstd::encode_all(content, 1).unwrap()
}

/// Returns a few bytes per read.
struct Slow(io::Cursor<Vec<u8>>, usize);

impl Read for Slow {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(self.1);
        self.0.read(&mut buffer[..most])
    }
}

/// Rows read, and whether an error ended them.
fn drain(rows: Result<Box<dyn Rows>, ReadError>) -> Result<(u64, bool), TestCaseError> {
    let mut rows = match rows {
        Ok(rows) => rows,
        Err(error) => {
            prop_assert!(!error.to_string().contains('\n'), "{error:?}");
            return Ok((0, true));
        }
    };
    let columns = rows.columns().len();
    prop_assert!(columns > 0);
    let mut row = Row::default();
    let (mut read, mut line) = (0, 0);
    loop {
        match rows.next(&mut row) {
            Ok(true) => read += 1,
            Ok(false) => {
                prop_assert!(read > 0 && !rows.next(&mut row).unwrap());
                return Ok((read, false));
            }
            Err(error) => {
                let again = rows.next(&mut row).unwrap_err();
                prop_assert_eq!(again.to_string(), error.to_string());
                return Ok((read, true));
            }
        }
        prop_assert_eq!((row.len(), rows.columns().len()), (columns, columns));
        prop_assert!(row.line() > line);
        line = row.line();
        for column in 0..columns {
            match row.cell(column) {
                Cell::Missing => {}
                Cell::Number(number) => prop_assert!(number.is_finite()),
                Cell::Text(text) => prop_assert!(!text.is_empty() && text.trim() == text),
            }
        }
    }
}

/// Reads the bytes at once and in pieces. Both must give the same rows, except that smaller pieces
/// may give more rows of a damaged archive.
fn check(content: Vec<u8>, piece: usize, format: &Format) -> Result<(), TestCaseError> {
    let is_text = !content.starts_with(b"\x1f\x8b") && !content.starts_with(b"\x28\xb5");
    let (rows, failed) =
        drain(rows::read(io::Cursor::new(content.clone()), Path::new("t"), format))?;
    let slow = drain(rows::read(Slow(io::Cursor::new(content), piece), Path::new("t"), format))?;
    prop_assert_eq!(slow.1, failed);
    prop_assert!(slow.0 == rows || failed && !is_text);
    Ok(())
}

fn formats() -> impl Strategy<Value = Format> {
    let separator =
        prop::option::weighted(0.3, prop::sample::select(vec![',', ';', '\t', '|', ' ']));
    let decimal = prop::option::weighted(0.3, prop::sample::select(vec!['.', ',']));
    let missing = prop::sample::select(vec![
        vec![],
        vec!["-200".to_owned(), "NA".to_owned(), "nan".to_owned()],
    ]);
    (separator, decimal, prop::option::weighted(0.3, any::<bool>()), missing).prop_map(
        |(separator, decimal, header, missing)| Format { separator, decimal, header, missing },
    )
}

/// One good table of each kind.
fn good() -> Vec<Vec<u8>> {
    let texts = [
        "a,b,y\n1,2,3\n4.5,-5e-1,6\n\n7,NA,9\n",
        "\u{feff}Date;CO;;\r\n10/03/2004;2,6;;\r\n;-200;;\r\n;;;\r\n",
        "  1.0e0  2.5\n  -1.5\t 7\n",
        "\"a \"\"b\"\"\",\"c\nd\"\r\"1\", \" 2\" \r\"\",x\r",
        "{\"a\":1,\"b\":\"x\\u00e9\",\"c\":null}\n{\"c\":true,\"a\":-2.5e3}\n{}\n",
    ];
    let texts: Vec<Vec<u8>> = texts.into_iter().map(|text| text.as_bytes().to_vec()).collect();
    let packed = texts.iter().flat_map(|text| [gzip(text), zstandard(text)]);
    packed.chain(texts.iter().cloned()).collect()
}

#[derive(Debug, Clone)]
enum Change {
    Put(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Cut(Index),
    Repeat(Index),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let telling = prop::sample::select(b"\"\"\"\r\n,;|\t {}[]:0e-\\\0\xff".to_vec());
    let byte = prop_oneof![telling, any::<u8>()];
    let change = (0..12_u8, any::<Index>(), byte).prop_map(|(kind, at, byte)| match kind {
        0..5 => Change::Put(at, byte),
        5..9 => Change::Insert(at, byte),
        9 => Change::Remove(at),
        10 => Change::Cut(at),
        _ => Change::Repeat(at),
    });
    prop::collection::vec(change, 0..4)
}

fn changed(mut content: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        let length = content.len();
        if length == 0 {
            break;
        }
        match change {
            Change::Put(at, byte) => content[at.index(length)] = *byte,
            Change::Insert(at, byte) => content.insert(at.index(length), *byte),
            Change::Remove(at) => _ = content.remove(at.index(length)),
            Change::Cut(at) => content.truncate(at.index(length)),
            Change::Repeat(at) => content.extend_from_within(at.index(length)..),
        }
    }
    content
}

#[test]
fn good_tables_are_read() {
    for content in good() {
        let (rows, failed) =
            drain(rows::read(io::Cursor::new(content), Path::new("t"), &Format::default()))
                .unwrap();
        assert!(rows >= 2 && !failed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(content in prop::collection::vec(any::<u8>(), 0..80), piece in 1_usize..20, format in formats()) {
        check(content, piece, &format)?;
    }

    #[test]
    fn text_of_telling_letters(
        letters in prop::collection::vec(prop::sample::select("aé07.,;|\t \"\"\r\n\n-+einf\u{feff}{}:".chars().collect::<Vec<_>>()), 0..60),
        piece in 1_usize..20,
        format in formats(),
    ) {
        check(letters.into_iter().collect::<String>().into_bytes(), piece, &format)?;
    }

    #[test]
    fn headers_of_archives(
        magic in prop::sample::select(vec![&b"\x1f\x8b\x08"[..], b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18", b"PAR1"]),
        tail in prop::collection::vec(any::<u8>(), 0..60),
        piece in 1_usize..20,
    ) {
        check([magic, &tail].concat(), piece, &Format::default())?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn good_tables_gone_bad(which in any::<Index>(), changes in changes(), piece in 1_usize..40, format in formats()) {
        thread_local!(static GOOD: Vec<Vec<u8>> = good());
        let content = GOOD.with(|good| which.get(good).clone());
        check(changed(content, &changes), piece, &format)?;
    }

    #[test]
    fn good_text_gone_bad_and_packed(which in any::<Index>(), changes in changes(), packed in any::<bool>()) {
        thread_local!(static GOOD: Vec<Vec<u8>> = good());
        let content = GOOD.with(|good| changed(which.get(&good[10..]).clone(), &changes));
        check(if packed { gzip(&content) } else { zstandard(&content) }, 7, &Format::default())?;
    }
}

#[cfg(feature = "parquet")]
mod parquet_files {
    use std::sync::Arc;

    use parquet::basic::Compression;
    use parquet::column::writer::ColumnWriter;
    use parquet::data_type::ByteArray;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    fn good(packed: Compression) -> Vec<u8> {
        let schema = "message m { required int64 a; optional double b; required binary c (UTF8); }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = Arc::new(WriterProperties::builder().set_compression(packed).build());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
        for _ in 0..2 {
            let mut group = writer.next_row_group().unwrap();
            while let Some(mut column) = group.next_column().unwrap() {
                match column.untyped() {
                    ColumnWriter::Int64ColumnWriter(column) => {
                        column.write_batch(&[1, 2, 3, -4], None, None).unwrap();
                    }
                    ColumnWriter::DoubleColumnWriter(column) => {
                        column.write_batch(&[0.5, 2.5], Some(&[1, 0, 1, 0]), None).unwrap();
                    }
                    ColumnWriter::ByteArrayColumnWriter(column) => {
                        let texts = ["red", "7", "", "red"].map(ByteArray::from);
                        column.write_batch(&texts, None, None).unwrap();
                    }
                    _ => unreachable!(),
                }
                column.close().unwrap();
            }
            group.close().unwrap();
        }
        writer.into_inner().unwrap()
    }

    fn open(content: &[u8]) -> Result<(u64, bool), TestCaseError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        drain(rows::open(file.path(), &Format::default()))
    }

    fn all() -> Vec<Vec<u8>> {
        let packings = [
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            Compression::GZIP(Default::default()),
            Compression::ZSTD(Default::default()),
        ];
        packings.into_iter().map(good).collect()
    }

    #[test]
    fn good_files_are_read() {
        for content in all() {
            assert_eq!(open(&content).unwrap(), (8, false));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn good_files_gone_bad(which in any::<Index>(), changes in changes()) {
            thread_local!(static GOOD: Vec<Vec<u8>> = all());
            let content = GOOD.with(|good| changed(which.get(good).clone(), &changes));
            open(&content)?;
        }
    }
}
