//! [`Source`]: the bytes of a file or of standard input, unpacked on the way and cut into lines. It
//! keeps one buffer, which grows to the longest row and no further, and never waits for more than
//! the line it is asked for.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use memchr::{memchr_iter, memchr2};

use super::packing::{Input, Packing, READ_BLOCK_BYTES, read_some, tells_what_it_is};
use super::rows::{CellPosition, MAX_ROW_BYTES, ReadError};
use super::stdin::StandardInput;
use super::text::excerpt;

/// Where a row is in the bytes that haven't been consumed yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    begin: usize,
    end: usize,
    /// Where the row after it begins.
    pub(crate) next: usize,
    /// How many lines it has.
    lines: u64,
}

/// Bytes, unpacked, line by line.
pub(crate) struct Source {
    file: PathBuf,
    is_file: bool,
    input: Input,
    /// What was read and not yet consumed is `buffer[start..filled]`.
    buffer: Vec<u8>,
    start: usize,
    filled: usize,
    end: Option<End>,
    /// Number of the line at `start`.
    line: u64,
    /// The byte before `start`: a line feed behind a return ends no second line.
    before: u8,
}

enum End {
    Reached,
    Failed(io::ErrorKind, String),
}

/// Why there is no line.
enum Stop {
    Failed,
    TooLong,
}

impl Source {
    /// A file; `-` is standard input.
    pub(crate) fn open(path: &Path) -> Result<Self, ReadError> {
        let unreadable = |cause| {
            ReadError::Unreadable(
                CellPosition { file: path.to_owned(), row: None, column: None },
                cause,
            )
        };
        if path.as_os_str() == "-" {
            return Self::live(Box::new(StandardInput::new()), path);
        }
        let file = File::open(path).map_err(unreadable)?;
        // Pipes have names too.
        let is_file = file.metadata().map_err(unreadable)?.is_file();
        Ok(Self { is_file, ..Self::live(Box::new(file), path)? })
    }

    /// A stream that may have to be waited for; `file` is its name in messages.
    pub(crate) fn live(input: Box<dyn Read + Send>, file: &Path) -> Result<Self, ReadError> {
        let place = || CellPosition { file: file.to_owned(), row: None, column: None };
        let input =
            Input::recognised(input).map_err(|cause| ReadError::Unreadable(place(), cause))?;
        Ok(Self {
            file: file.to_owned(),
            is_file: false,
            input,
            buffer: vec![0; READ_BLOCK_BYTES],
            start: 0,
            filled: 0,
            end: None,
            line: 1,
            before: 0,
        })
    }

    /// Whether it can be read ahead without waiting.
    pub(crate) fn is_file(&self) -> bool {
        self.is_file
    }

    /// Whether it is a file that isn't packed.
    pub(crate) fn is_plain_file(&self) -> bool {
        self.is_file && self.input.packing().is_none()
    }

    /// Bytes of the file itself that were taken in.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.input.bytes_read()
    }

    /// Number of the line that comes next, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// A place in it.
    pub(crate) fn place(&self, line: Option<u64>, column: Option<&str>) -> CellPosition {
        CellPosition { file: self.file.clone(), row: line, column: column.map(excerpt) }
    }

    /// Its first bytes, as many as tell what it is; fewer if it or its first line is shorter.
    pub(crate) fn head(&mut self) -> &[u8] {
        while !tells_what_it_is(self.unread()) && self.fill() {}
        self.unread()
    }

    /// Skips these bytes if they come first.
    pub(crate) fn skip(&mut self, mark: &[u8]) {
        if self.unread().starts_with(mark) {
            self.start += mark.len();
        }
    }

    /// Consumes blank lines, and shows the first that isn't.
    pub(crate) fn first_line(&mut self) -> Result<Option<&[u8]>, ReadError> {
        while let Some(span) = self.find_row(0, false)? {
            if !self.bytes(span).trim_ascii().is_empty() {
                return Ok(Some(self.bytes(span)));
            }
            self.consume(span);
        }
        Ok(None)
    }

    /// A row's bytes without the line end.
    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        &self.unread()[span.begin..span.end]
    }

    /// A row's text.
    pub(crate) fn text(&self, span: Span) -> Result<&str, ReadError> {
        let bytes = self.bytes(span);
        std::str::from_utf8(bytes).map_err(|error| {
            let line = self.line + line_ends(&bytes[..error.valid_up_to()]);
            ReadError::NotUtf8(self.place(Some(line), None))
        })
    }

    /// Continues after a row.
    pub(crate) fn consume(&mut self, span: Span) {
        if let Some(last) = span.next.checked_sub(1) {
            self.before = self.unread()[last];
        }
        self.start += span.next;
        self.line += span.lines;
    }

    fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.filled]
    }

    /// The row of text that begins `from` bytes ahead: a line, or several if `quoted` and line ends
    /// are within quotes. An odd number of quotes in a line means that the row goes on. Whether
    /// quotes are where they may be is not checked here.
    pub(crate) fn find_row(
        &mut self,
        from: usize,
        quoted: bool,
    ) -> Result<Option<Span>, ReadError> {
        let Some(mut row) = self.find_line(from).map_err(|stop| self.error(stop, 0))? else {
            return Ok(None);
        };
        let mut quotes = if quoted { self.quotes(row) } else { 0 };
        while quotes % 2 == 1 {
            match self.find_line(row.next) {
                Ok(Some(line)) if line.end - row.begin <= MAX_ROW_BYTES => {
                    quotes += self.quotes(line);
                    row = Span { begin: row.begin, lines: row.lines + 1, ..line };
                }
                Ok(None) => break,
                // A missing quote is more likely than a field of that length.
                Ok(Some(_)) | Err(Stop::TooLong) => {
                    return Err(ReadError::BadQuotes(self.place(Some(self.line), None)));
                }
                Err(Stop::Failed) => return Err(self.error(Stop::Failed, row.lines)),
            }
        }
        Ok(Some(row))
    }

    fn quotes(&self, line: Span) -> usize {
        memchr_iter(b'"', self.bytes(line)).count()
    }

    /// A return ends a line, and so does a line feed; the two together are one end.
    fn find_line(&mut self, from: usize) -> Result<Option<Span>, Stop> {
        while self.unread().len() == from {
            if !self.fill() {
                return if self.has_failed() { Err(Stop::Failed) } else { Ok(None) };
            }
        }
        let before = from.checked_sub(1).map_or(self.before, |last| self.unread()[last]);
        let half = before == b'\r' && self.unread()[from] == b'\n';
        let begin = from + usize::from(half);
        let mut searched = begin;
        loop {
            let found = memchr2(b'\n', b'\r', &self.unread()[searched..]);
            let end = found.map_or(self.unread().len(), |at| searched + at);
            if end - begin > MAX_ROW_BYTES {
                return Err(Stop::TooLong);
            }
            if found.is_some() {
                return Ok(Some(Span { begin, end, next: end + 1, lines: 1 }));
            }
            searched = end;
            if !self.fill() {
                return match self.has_failed() {
                    true => Err(Stop::Failed),
                    false => Ok((begin < end).then_some(Span { begin, end, next: end, lines: 1 })),
                };
            }
        }
    }

    /// Reads once; false if nothing more comes.
    fn fill(&mut self) -> bool {
        if self.end.is_some() {
            return false;
        }
        self.buffer.copy_within(self.start..self.filled, 0);
        self.filled -= self.start;
        self.start = 0;
        if self.filled > self.buffer.len() / 2 {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        match read_some(&mut self.input, &mut self.buffer[self.filled..]) {
            Ok(0) => self.end = Some(End::Reached),
            Ok(length) => self.filled += length,
            Err(cause) => self.end = Some(End::Failed(cause.kind(), cause.to_string())),
        }
        self.end.is_none()
    }

    fn has_failed(&self) -> bool {
        matches!(self.end, Some(End::Failed(..)))
    }

    /// The error for the line that many after the next.
    fn error(&self, stop: Stop, lines: u64) -> ReadError {
        let place = self.place(Some(self.line + lines), None);
        let (kind, cause) = match (stop, &self.end) {
            (Stop::Failed, Some(End::Failed(kind, cause))) => {
                (*kind, io::Error::new(*kind, cause.clone()))
            }
            _ => return ReadError::TooLong(place),
        };
        match self.input.packing().map(Packing::name) {
            Some(packed) if !self.input.raw_failed() => match kind {
                io::ErrorKind::UnexpectedEof => ReadError::BrokenOff(place, packed),
                _ => ReadError::Damaged(place, packed, cause),
            },
            _ => ReadError::Unreadable(place, cause),
        }
    }
}

/// How many lines end in these bytes.
fn line_ends(bytes: &[u8]) -> u64 {
    let halves = bytes.windows(2).filter(|pair| pair == b"\r\n").count();
    (bytes.iter().filter(|byte| matches!(byte, b'\r' | b'\n')).count() - halves) as u64
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};
    use std::sync::mpsc::{Receiver, TryRecvError, channel};

    use flate2::{Compression, write::GzEncoder};
    use tempfile::NamedTempFile;

    use super::super::rows::{self, Format, Row, Rows};
    use super::*;

    const PLAIN: &[u8] = b"a,b,y\n1,2,3\n4.5,-5e-1,6\n";

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn zstandard(content: &[u8]) -> Vec<u8> {
        let mut encoder = zstd::Encoder::new(Vec::new(), 0).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    /// The lines of the rows, and the error's message behind the name `t` that ends them.
    fn lines(mut rows: Box<dyn Rows>) -> (Vec<u64>, Option<String>) {
        let mut lines = Vec::new();
        let mut row = Row::default();
        loop {
            match rows.next(&mut row) {
                Ok(true) => lines.push(row.line()),
                Ok(false) => return (lines, None),
                Err(error) => return (lines, Some(error.to_string())),
            }
        }
    }

    fn read(content: Vec<u8>) -> (Vec<u64>, Option<String>) {
        match rows::read(Cursor::new(content), Path::new("t"), &Format::default()) {
            Ok(rows) => lines(rows),
            Err(error) => (vec![], Some(error.to_string())),
        }
    }

    #[test]
    fn packing_is_known_by_its_content() {
        let members = [gzip(b"a,y\n1,"), gzip(b"2\n3,4\n")].concat();
        let frames = [
            zstandard(b"a,y\n1,"),
            b"\x50\x2a\x4d\x18\x02\0\0\0..".to_vec(),
            zstandard(b"2\n3,4\n"),
        ];
        for content in [gzip(PLAIN), zstandard(PLAIN), members, frames.concat()] {
            let mut file = NamedTempFile::new().unwrap();
            file.write_all(&content).unwrap();
            let rows = rows::open(file.path(), &Format::default()).unwrap();
            assert_eq!(rows.bytes_read(), content.len() as u64);
            assert_eq!(lines(rows), (vec![2, 3], None));
            assert_eq!(read(content), (vec![2, 3], None));
        }
    }

    #[test]
    fn damaged_archives_say_how_far_they_reach() {
        let gzip = gzip(PLAIN);
        let zstandard = zstandard(PLAIN);
        for (packed, name, ends) in [
            (&gzip, "gzipped", [(2, 1), (12, 1), (gzip.len() - 1, 4)]),
            (&zstandard, "zstandard", [(4, 1), (8, 1), (zstandard.len() - 1, 4)]),
        ] {
            for (end, row) in ends {
                let (_, error) = read(packed[..end].to_vec());
                assert_eq!(
                    error.unwrap(),
                    format!("t, row {row}: the {name} data breaks off here")
                );
            }
        }
        // The zstandard decoder gives nothing of a block whose checksum is wrong.
        let damages = [(gzip, 6, "gzipped", vec![2, 3], 4), (zstandard, 2, "zstandard", vec![], 1)];
        for (mut packed, back, name, whole, row) in damages {
            let at = packed.len() - back;
            packed[at] ^= 1;
            let (rows, error) = read(packed);
            assert_eq!(rows, whole);
            let error = error.unwrap();
            assert!(
                error.starts_with(&format!("t, row {row}: the {name} data is damaged here: ")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_break_within_quotes_names_its_own_line() {
        let packed = gzip(b"a,y\n1,\"2\n\n\n");
        let (_, error) = read(packed[..packed.len() - 1].to_vec());
        assert_eq!(error.unwrap(), "t, row 5: the gzipped data breaks off here");
    }

    #[test]
    fn what_is_no_text_says_what_to_do() {
        for content in [&b"\xff\xfea\0"[..], b"\xfe\xff\0a", b"a\0,\0y\0\n\0", b"\0a\0,\0y\0\n"] {
            let expected = "t: the text is UTF-16, and UTF-8 is needed: convert it, as with iconv -f UTF-16 -t UTF-8";
            assert_eq!(read(content.to_vec()).1.unwrap(), expected);
        }
        for twice in [gzip(&gzip(PLAIN)), gzip(&zstandard(PLAIN))] {
            let error = read(twice).1.unwrap();
            assert!(error.starts_with("t: packed more than once, "), "{error}");
        }
        for parquet in [b"PAR1 and more".to_vec(), gzip(b"PAR1 and more")] {
            let error = read(parquet).1.unwrap();
            assert_eq!(
                error,
                "t: Parquet is read from its end, so it must be a file, and not packed"
            );
        }
    }

    #[test]
    fn files_that_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        for path in [&folder.path().join("missing.csv"), folder.path()] {
            let error = rows::open(path, &Format::default()).err().unwrap().to_string();
            let expected = format!("can't read {}: ", path.display());
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    /// Gives its pieces one by one, then fails.
    struct Failing(Vec<&'static [u8]>);

    impl Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.is_empty() {
                true => Err(io::Error::other("the disk is gone")),
                false => self.0.remove(0).read(buffer),
            }
        }
    }

    #[test]
    fn failures_of_the_system_are_told_from_damage() {
        let rows =
            rows::read(Failing(vec![b"a,y\n1,2\n3"]), Path::new("t"), &Format::default()).unwrap();
        assert_eq!(
            lines(rows),
            (vec![2], Some("can't read t, row 3: the disk is gone".to_owned()))
        );
        let failing = Failing(vec![b"\x1f\x8b\x08\0\0\0\0"]);
        let error = rows::read(failing, Path::new("t"), &Format::default()).err().unwrap();
        assert_eq!(error.to_string(), "can't read t, row 1: the disk is gone");
    }

    /// Returns what was sent. Fails where a real pipe would wait.
    struct Pipe(Receiver<Vec<u8>>);

    impl Read for Pipe {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.try_recv() {
                Ok(piece) => piece.as_slice().read(buffer),
                Err(TryRecvError::Disconnected) => Ok(0),
                Err(TryRecvError::Empty) => Err(io::Error::other("asked for too early")),
            }
        }
    }

    #[test]
    fn a_slow_pipe_gives_each_row_as_soon_as_its_line_is_there() {
        for (content, first) in [
            ("a;y\n1;2\n3;4\n5;6\n", 1),
            ("1 2\r3 4\r5 6\r", 2),
            ("1\n2\n3\n", 2),
            ("{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n", 2),
        ] {
            let (feed, pieces) = channel();
            let mut lines = content.split_inclusive(['\n', '\r']);
            for line in lines.by_ref().take(2) {
                feed.send(line.into()).unwrap();
            }
            let mut rows = rows::read(Pipe(pieces), Path::new("-"), &Format::default()).unwrap();
            let mut row = Row::default();
            for _ in 0..first {
                assert!(rows.next(&mut row).unwrap(), "{content:?}");
            }
            for line in lines {
                feed.send(line.into()).unwrap();
                assert!(rows.next(&mut row).unwrap(), "{content:?}");
            }
            drop(feed);
            assert!(!rows.next(&mut row).unwrap());
        }
    }

    #[test]
    fn packed_pipes_give_what_was_flushed() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        let mut zstandard = zstd::Encoder::new(Vec::new(), 0).unwrap();
        for line in [&b"a,y\n1,2\n"[..], b"3,4\n"] {
            gzip.write_all(line).unwrap();
            gzip.flush().unwrap();
            zstandard.write_all(line).unwrap();
            zstandard.flush().unwrap();
        }
        for content in [gzip.get_ref(), zstandard.get_ref()] {
            let (feed, pieces) = channel();
            feed.send(content.clone()).unwrap();
            let mut rows = rows::read(Pipe(pieces), Path::new("-"), &Format::default()).unwrap();
            let mut row = Row::default();
            assert!(rows.next(&mut row).unwrap() && rows.next(&mut row).unwrap());
            assert_eq!(row.line(), 3);
        }
    }

    #[test]
    fn rows_have_a_bound() {
        // One byte more than a row may have, so that a larger bound shows.
        let endless = |text: &'static [u8]| {
            Cursor::new(text).chain(io::repeat(b'7').take(MAX_ROW_BYTES as u64 + 1))
        };
        for (start, expected) in [
            (&b""[..], "t, row 1: longer than the 16 MiB a row may have"),
            (b"a,y\n1,2\n3", "t, row 3: longer than the 16 MiB a row may have"),
            (b"{\"a\":1}\n{\"a\":", "t, row 2: longer than the 16 MiB a row may have"),
            (
                b"a,y\n1,2\n\"3\n",
                "t, row 3: a quoted field must begin and end with a quote, next to the separators around it",
            ),
        ] {
            let error = match rows::read(endless(start), Path::new("t"), &Format::default()) {
                Ok(rows) => lines(rows).1.unwrap(),
                Err(error) => error.to_string(),
            };
            assert_eq!(error, expected);
        }
    }
}
