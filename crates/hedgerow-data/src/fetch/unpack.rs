//! Extracts files from an archive by name. Paths in the archive are never used, and sizes are
//! bounded.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;
use zip::ZipArchive;

use super::checksums::hexadecimal;
use super::{FetchError, Progress};
use crate::catalog::SourceFile;
use crate::file::waiting_file;

/// Bytes that archives inside an archive may hold together.
const MOST_INNER_BYTES: u64 = 4 << 30;
/// How deep archives inside archives are opened.
const MAX_ARCHIVE_DEPTH: usize = 2;
/// Bytes of something that is not a zip archive that a message repeats.
const QUOTED_BYTES: usize = 40;

/// A file that waits for its place.
pub(super) struct Unpacked {
    pub(super) file: NamedTempFile,
    pub(super) sha256: String,
}

/// Takes the wanted files out of a zip archive, in their order. They may lie in any folder, be
/// gzipped, and be in a zip or tar.gz archive inside it; the first of a name counts, those outside
/// inner archives before those within.
pub(super) fn unpack(
    archive: File,
    url: &str,
    wanted: &[&SourceFile],
    folder: &Path,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Unpacked>, FetchError> {
    let begins = beginning(&archive);
    let bad_archive = |problem| FetchError::BadArchive(url.to_owned(), problem);
    let archive = ZipArchive::new(archive).map_err(|_| {
        bad_archive(format!("not a zip archive; it begins with {:?}", begins.unwrap_or_default()))
    })?;
    let found = wanted.iter().map(|_| None).collect();
    let mut search = Search { url, wanted, found, folder, inner_bytes: MOST_INNER_BYTES, progress };
    search.zip(archive, 0)?;
    let lacking = search.wanted.iter().zip(&search.found).find(|(_, found)| found.is_none());
    if let Some((file, _)) = lacking {
        let name = &file.name;
        return Err(bad_archive(format!("no {name:?} in the archive; UCI may have changed it")));
    }
    Ok(search.found.into_iter().flatten().collect())
}

struct Search<'a> {
    url: &'a str,
    wanted: &'a [&'a SourceFile],
    found: Vec<Option<Unpacked>>,
    folder: &'a Path,
    /// Bytes that inner archives may still have.
    inner_bytes: u64,
    progress: &'a mut dyn FnMut(Progress<'_>),
}

impl Search<'_> {
    fn zip(&mut self, mut archive: ZipArchive<File>, depth: usize) -> Result<(), FetchError> {
        let names: Vec<String> = (0..archive.len())
            .map(|index| match archive.name_for_index(index) {
                Some(Ok(name)) => base_name(&name).to_owned(),
                _ => String::new(),
            })
            .collect();
        for (index, name) in names.iter().enumerate() {
            if self.place(name).is_some() {
                let member = archive.by_index(index).map_err(|error| self.damaged(name, &error))?;
                self.take(name, member)?;
            }
        }
        for (index, name) in names.iter().enumerate() {
            if self.is_done() || depth == MAX_ARCHIVE_DEPTH {
                break;
            }
            let lower = name.to_ascii_lowercase();
            let (is_zip, is_tar) =
                (lower.ends_with(".zip"), lower.ends_with(".tar.gz") || lower.ends_with(".tgz"));
            if is_zip || is_tar {
                let member = archive.by_index(index).map_err(|error| self.damaged(name, &error))?;
                if is_tar {
                    self.tar(name, MultiGzDecoder::new(member))?;
                } else {
                    let inner = self.inner_zip(name, member)?;
                    self.zip(inner, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    /// A zip archive is read from its end, so it has to be unpacked as a whole first.
    fn inner_zip(&mut self, name: &str, member: impl Read) -> Result<ZipArchive<File>, FetchError> {
        let mut copy =
            tempfile::tempfile_in(self.folder).map_err(|cause| self.unwritable(cause))?;
        let most = self.inner_bytes;
        let mut member = Bounded { content: member, left: most };
        self.copy(name, &mut member, most, |bytes| copy.write_all(bytes))?;
        self.inner_bytes = member.left;
        copy.rewind().map_err(|cause| self.unwritable(cause))?;
        ZipArchive::new(copy).map_err(|error| self.damaged(name, &error))
    }

    fn tar(&mut self, name: &str, content: impl Read) -> Result<(), FetchError> {
        let most = self.inner_bytes;
        let mut content = Bounded { content, left: most };
        let mut archive = tar::Archive::new(&mut content);
        let entries = archive.entries().map_err(|error| self.failed(name, most, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| self.failed(name, most, error))?;
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            if entry.header().entry_type().is_file() && self.place(base_name(&path)).is_some() {
                self.take(base_name(&path), entry)?;
            }
        }
        // The checksum is at the very end.
        self.copy(name, &mut content, most, |_| Ok(()))?;
        self.inner_bytes = content.left;
        Ok(())
    }

    /// Which of the wanted files this is, gzipped or not, if it is still missing.
    fn place(&self, name: &str) -> Option<usize> {
        let is =
            |file: &SourceFile| name.strip_suffix(".gz") == Some(&file.name) || name == file.name;
        self.wanted.iter().zip(&self.found).position(|(file, found)| found.is_none() && is(file))
    }

    fn is_done(&self) -> bool {
        self.found.iter().all(Option::is_some)
    }

    fn take(&mut self, name: &str, member: impl Read) -> Result<(), FetchError> {
        let Some(place) = self.place(name) else { return Ok(()) };
        let wanted = self.wanted[place];
        (self.progress)(Progress::Unpacking { file: &wanted.name });
        let mut file = waiting_file(self.folder).map_err(|cause| self.unwritable(cause))?;
        let mut sum = Sha256::new();
        let mut write = |bytes: &[u8]| {
            sum.update(bytes);
            file.write_all(bytes)
        };
        let is_packed = name != wanted.name;
        let content: Box<dyn Read> =
            if is_packed { Box::new(MultiGzDecoder::new(member)) } else { Box::new(member) };
        let mut content = Bounded { content, left: wanted.most_bytes };
        self.copy(name, &mut content, wanted.most_bytes, &mut write)?;
        file.as_file().sync_all().map_err(|cause| self.unwritable(cause))?;
        self.found[place] = Some(Unpacked { file, sha256: hexadecimal(sum) });
        Ok(())
    }

    fn copy<R: Read>(
        &self,
        name: &str,
        content: &mut Bounded<R>,
        most: u64,
        mut write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), FetchError> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            match content.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(length) => write(&buffer[..length]).map_err(|cause| self.unwritable(cause))?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(name, most, error)),
            }
        }
    }

    /// What a failure to read a member means.
    fn failed(&self, name: &str, most: u64, error: io::Error) -> FetchError {
        if error.kind() != ErrorKind::FileTooLarge {
            return self.damaged(name, &error);
        }
        let problem = format!("{name:?} unpacks to more than {most} bytes");
        FetchError::BadArchive(self.url.to_owned(), problem)
    }

    fn damaged(&self, name: &str, why: &dyn std::fmt::Display) -> FetchError {
        let problem = format!("{name:?} can't be unpacked: {why}");
        FetchError::BadArchive(self.url.to_owned(), problem)
    }

    fn unwritable(&self, cause: io::Error) -> FetchError {
        FetchError::Unwritable(self.folder.to_owned(), cause)
    }
}

/// A reader that fails beyond a bound.
struct Bounded<R> {
    content: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.content.read(buffer)?;
        self.left = self.left.checked_sub(length as u64).ok_or(ErrorKind::FileTooLarge)?;
        Ok(length)
    }
}

/// The name after the last slash or backslash. Empty for a folder and for macOS metadata.
fn base_name(path: &str) -> &str {
    if path.starts_with("__MACOSX") {
        return "";
    }
    path.rsplit(['/', '\\']).next().unwrap_or_default()
}

/// How a file begins, as far as it can be shown.
fn beginning(mut file: &File) -> Option<String> {
    let mut bytes = [0; QUOTED_BYTES];
    let length = file.read(&mut bytes).ok()?;
    file.rewind().ok()?;
    Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
}
