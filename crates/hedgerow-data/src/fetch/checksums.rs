//! Checksums of files: of their content, and those on record in a folder's `SHA256SUMS`, as
//! `sha256sum` reads and writes it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};

use super::FetchError;
use crate::file::waiting_file;

/// Name of the record.
pub(super) const CHECKSUM_FILE: &str = "SHA256SUMS";
/// A record longer than this is none of ours.
const MOST_BYTES: u64 = 1 << 20;

/// The record of a folder.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Checksums {
    by_name: BTreeMap<String, String>,
}

impl Checksums {
    /// Empty where there is none. Lines that are no record of a file are refused, because a later
    /// write would lose them.
    pub(super) fn read(folder: &Path) -> Result<Self, FetchError> {
        let path = folder.join(CHECKSUM_FILE);
        let unreadable = |cause| FetchError::Unreadable(path.clone(), cause);
        let mut text = String::new();
        match File::open(&path) {
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(Self::default());
            }
            opened => opened.and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text)),
        }
        .map_err(unreadable)?;
        let mut by_name = BTreeMap::new();
        for (line, number) in text.lines().zip(1..) {
            let Some((sum, name)) = record(line) else {
                let why = format!("line {number} is not a checksum and a name");
                return Err(unreadable(io::Error::new(ErrorKind::InvalidData, why)));
            };
            by_name.insert(name.to_owned(), sum.to_ascii_lowercase());
        }
        Ok(Self { by_name })
    }

    pub(super) fn find(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(String::as_str)
    }

    pub(super) fn record(&mut self, name: &str, sum: &str) {
        self.by_name.insert(name.to_owned(), sum.to_owned());
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), FetchError> {
        let path = folder.join(CHECKSUM_FILE);
        let lines: Vec<_> =
            self.by_name.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect();
        let written = waiting_file(folder).and_then(|mut file| {
            file.write_all(lines.concat().as_bytes())?;
            file.persist(&path).map_err(|error| error.error)
        });
        written.map(drop).map_err(|cause| FetchError::Unwritable(path, cause))
    }
}

/// Checksum and name; a star marks a binary file.
fn record(line: &str) -> Option<(&str, &str)> {
    let (sum, name) = line.split_once(' ')?;
    let name = name.strip_prefix([' ', '*'])?;
    let is_sum = sum.len() == 64 && sum.bytes().all(|digit| digit.is_ascii_hexdigit());
    (is_sum && !name.is_empty()).then_some((sum, name))
}

/// A checksum in hexadecimal digits.
pub(super) fn hexadecimal(sum: Sha256) -> String {
    sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checksum of a file's content, unpacked if it is gzipped; `None` if it is packed otherwise.
pub(super) fn sha256_of_file(path: &Path) -> io::Result<Option<String>> {
    let file = File::open(path)?;
    let mut content: Box<dyn Read> = match path.extension().and_then(|ending| ending.to_str()) {
        Some("gz") => Box::new(MultiGzDecoder::new(file)),
        Some("zst") => return Ok(None),
        _ => Box::new(file),
    };
    let (mut sum, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match content.read(&mut buffer) {
            Ok(0) => return Ok(Some(hexadecimal(sum))),
            Ok(length) => sum.update(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    /// Of "abc", from the standard.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_checksum_is_of_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("plain"), "abc").unwrap();
        let mut gzipped = GzEncoder::new(Vec::new(), Compression::default());
        gzipped.write_all(b"abc").unwrap();
        std::fs::write(path("packed.gz"), gzipped.finish().unwrap()).unwrap();
        std::fs::write(path("other.zst"), "abc").unwrap();
        let sum = |name| sha256_of_file(&path(name)).unwrap();
        assert_eq!((sum("plain"), sum("packed.gz")), (Some(ABC.to_owned()), Some(ABC.to_owned())));
        assert_eq!(sum("other.zst"), None);
    }

    #[test]
    fn a_record_keeps_what_others_wrote() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Checksums::read(folder.path()).unwrap(), Checksums::default());
        std::fs::write(folder.path().join(CHECKSUM_FILE), format!("{ABC} *their file\n")).unwrap();
        let mut sums = Checksums::read(folder.path()).unwrap();
        sums.record("ours", &"0".repeat(64));
        sums.write(folder.path()).unwrap();
        let written = std::fs::read_to_string(folder.path().join(CHECKSUM_FILE)).unwrap();
        assert_eq!(written, format!("{}  ours\n{ABC}  their file\n", "0".repeat(64)));
        assert_eq!(Checksums::read(folder.path()).unwrap().find("their file"), Some(ABC));
    }

    #[test]
    fn a_record_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for wrong in ["hello", "abc  name", &format!("{ABC}  "), &format!("{ABC}name"), "\n"] {
            std::fs::write(folder.path().join(CHECKSUM_FILE), wrong).unwrap();
            let message = Checksums::read(folder.path()).unwrap_err().to_string();
            assert!(message.contains(CHECKSUM_FILE) && message.contains("line 1"), "{message}");
        }
    }
}
