//! Files that are written completely or not at all. A [`Format`] refuses files that are damaged,
//! newer or of another kind, and never overwrites them.
//!
//! ```text
//! magic 8 | kind 16 | version u32 | length of the body u64 | CRC-32 of the body |
//! CRC-32 of everything before | body
//! ```

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use bytes::Buf;

/// One kind of file, and what this program knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    kind: &'static str,
    newest: u32,
    most: u64,
}

/// The permissions of a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only its owner may read and write it.
    Private,
    /// The user's default permissions.
    Shared,
}

/// Why a file can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system can't read it.
    #[error("can't read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file can't be written.
    #[error("can't write {}: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file of another program.
    #[error("{}: not a {kind} file of hedgerow", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What was expected.
        kind: String,
    },
    /// A file of this program, but of another kind.
    #[error("{}: a {found:?} file, and {expected:?} is needed", path.display())]
    OtherKind {
        /// The file.
        path: PathBuf,
        /// What was expected.
        expected: String,
        /// What it says it is.
        found: String,
    },
    /// Written by a newer version of this program.
    #[error("{}: written by a newer hedgerow: format {found}, this one knows up to {newest}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The newest that is known.
        newest: u64,
    },
    /// It is shorter than its header says.
    #[error("{}: breaks off: {expected} bytes expected, but {found} are there", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// What it should have.
        expected: u64,
        /// What it has.
        found: u64,
    },
    /// A checksum is wrong.
    #[error("{}: damaged: the checksum of its {part} is {found:08x}, and {expected:08x} was written", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The part of the file.
        part: &'static str,
        /// The checksum in the file.
        expected: u32,
        /// The checksum of the content.
        found: u32,
    },
    /// It is longer than its header says.
    #[error("{}: damaged: {reason}", path.display())]
    Senseless {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// It has more bytes than such a file may have.
    #[error("{}: {found} bytes, and {bound} are the most that it may have", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Most bytes.
        bound: u64,
        /// Its bytes, or those that its header states.
        found: u64,
    },
    /// The existing file can't be read, so it is not overwritten.
    #[error("{0}; it is left as it is: move it away first")]
    Kept(Box<FileError>),
    /// Another process uses it.
    #[error("{}: in use by another process", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
}

const MAGIC: [u8; 8] = *b"HEDGEROW";
const KIND_LENGTH: usize = 16;
const HEADER_LENGTH: usize = 8 + KIND_LENGTH + 4 + 8 + 4 + 4;

impl FileError {
    /// The system's error, about reading this file.
    pub(crate) fn unreadable(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Unreadable { path: path.to_owned(), source }
    }

    /// The system's error, about writing this file.
    pub(crate) fn unwritable(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Unwritable { path: path.to_owned(), source }
    }
}

impl Format {
    /// Files of this kind, of versions up to `newest` and with at most `most` bytes in them.
    ///
    /// # Panics
    /// If the kind has no or more than 16 bytes.
    pub const fn new(kind: &'static str, newest: u32, most: u64) -> Self {
        assert!(!kind.is_empty() && kind.len() <= KIND_LENGTH, "a kind has 1 to 16 bytes");
        Self { kind, newest, most }
    }

    /// Reads a file and checks every bit of it. None if there is no such file.
    pub fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, FileError> {
        let mut bytes = match read_whole(path, self.most.saturating_add(HEADER_LENGTH as u64)) {
            Err(FileError::Unreadable { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                return Ok(None);
            }
            read => read?,
        };
        self.check(path, &bytes)?;
        Ok(Some(bytes.split_off(HEADER_LENGTH)))
    }

    /// Writes a file of the newest version, as `write_whole` does. A file that can't be read is
    /// not overwritten.
    pub fn write(&self, path: &Path, body: &[u8]) -> Result<(), FileError> {
        let found = body.len() as u64;
        if found > self.most {
            return Err(FileError::TooLarge { path: path.to_owned(), bound: self.most, found });
        }
        self.read(path).map_err(|error| FileError::Kept(Box::new(error)))?;
        let header = self.header(body);
        write_whole(path, Access::Private, |file| {
            file.write_all(&header).and_then(|()| file.write_all(body))
        })
    }

    fn header(&self, body: &[u8]) -> Vec<u8> {
        let mut header = [&MAGIC[..], self.kind.as_bytes()].concat();
        header.resize(MAGIC.len() + KIND_LENGTH, 0);
        header.extend(self.newest.to_le_bytes());
        header.extend((body.len() as u64).to_le_bytes());
        header.extend(crc32fast::hash(body).to_le_bytes());
        header.extend(crc32fast::hash(&header).to_le_bytes());
        header
    }

    fn check(&self, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
        let path = || path.to_owned();
        let begun = bytes.len().min(MAGIC.len());
        if bytes[..begun] != MAGIC[..begun] {
            return Err(FileError::NotOurs { path: path(), kind: self.kind.to_owned() });
        }
        let truncated =
            |expected| FileError::Truncated { path: path(), expected, found: bytes.len() as u64 };
        let Some((header, body)) = bytes.split_at_checked(HEADER_LENGTH) else {
            return Err(truncated(HEADER_LENGTH as u64));
        };
        let (checked, mut checksum) = header.split_at(HEADER_LENGTH - 4);
        let intact = |part, content: &[u8], expected| {
            let found = crc32fast::hash(content);
            let damaged = || FileError::Damaged { path: path(), part, expected, found };
            if found == expected { Ok(()) } else { Err(damaged()) }
        };
        intact("header", checked, checksum.get_u32_le())?;
        let (kind, mut numbers) = checked[MAGIC.len()..].split_at(KIND_LENGTH);
        let version = numbers.get_u32_le();
        let length = numbers.get_u64_le();
        let checksum = numbers.get_u32_le();
        let kind = String::from_utf8_lossy(kind);
        let kind = kind.trim_end_matches('\0');
        if kind != self.kind {
            let (expected, found) = (self.kind.to_owned(), kind.to_owned());
            return Err(FileError::OtherKind { path: path(), expected, found });
        }
        if version > self.newest {
            let (found, newest) = (u64::from(version), u64::from(self.newest));
            return Err(FileError::Newer { path: path(), found, newest });
        }
        if length > self.most {
            return Err(FileError::TooLarge { path: path(), bound: self.most, found: length });
        }
        let here = body.len() as u64;
        if here < length {
            return Err(truncated(HEADER_LENGTH as u64 + length));
        }
        if here > length {
            let reason = format!("{} bytes more than it should have", here - length);
            return Err(FileError::Senseless { path: path(), reason });
        }
        intact("body", body, checksum)
    }
}

/// Whether a file begins as those of this program do.
#[cfg(feature = "server")]
pub(crate) fn is_ours(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == MAGIC
}

/// All of a file, unless it has more bytes than this.
pub(crate) fn read_whole(path: &Path, bound: u64) -> Result<Vec<u8>, FileError> {
    let unreadable = FileError::unreadable(path);
    let too_large = |found| FileError::TooLarge { path: path.to_owned(), bound, found };
    let file = File::open(path).map_err(&unreadable)?;
    let found = file.metadata().map_err(&unreadable)?;
    if found.is_dir() {
        return Err(unreadable(io::ErrorKind::IsADirectory.into()));
    }
    if found.len() > bound {
        return Err(too_large(found.len()));
    }
    // It may grow while it is read, or be something that has no size.
    let mut bytes = Vec::new();
    file.take(bound.saturating_add(1)).read_to_end(&mut bytes).map_err(&unreadable)?;
    if bytes.len() as u64 > bound {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes)
}

/// Writes a file that replaces an older one once it is complete.
pub(crate) fn write_whole(
    path: &Path,
    access: Access,
    write: impl FnOnce(&mut NewFile) -> io::Result<()>,
) -> Result<(), FileError> {
    let mut file = NewFile::create(path, access)?;
    write(&mut file).map_err(FileError::unwritable(path))?;
    file.finish()
}

/// A file that replaces an older one once it is complete and on the disk. Until then it has the
/// same name with `.new` after it. It is removed if it isn't finished.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    beside: PathBuf,
    path: PathBuf,
    is_finished: bool,
}

impl NewFile {
    /// Starts a new file. Remains of an earlier attempt are removed.
    pub fn create(path: &Path, access: Access) -> Result<Self, FileError> {
        // Only Unix has modes.
        #[cfg(not(unix))]
        let _ = access;
        let unwritable = FileError::unwritable(path);
        if path.is_dir() {
            return Err(unwritable(io::ErrorKind::IsADirectory.into()));
        }
        let beside = with_suffix(path, ".new");
        loop {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false);
            #[cfg(unix)]
            {
                use std::os::unix::fs::OpenOptionsExt;
                options.mode(if access == Access::Private { 0o600 } else { 0o666 });
            }
            let file = options.open(&beside).map_err(&unwritable)?;
            try_lock(&file, path, &unwritable)?;
            // Another process may have renamed it before it was locked: then the name belongs to
            // another file, or to none.
            if is_named(&file, &beside).map_err(&unwritable)? {
                file.set_len(0).map_err(&unwritable)?;
                return Ok(Self { file, beside, path: path.to_owned(), is_finished: false });
            }
        }
    }

    /// Gives it its name, once it is on the disk.
    pub fn finish(mut self) -> Result<(), FileError> {
        let named = self.file.sync_all().and_then(|()| std::fs::rename(&self.beside, &self.path));
        self.is_finished = named.is_ok();
        named.and_then(|()| sync_folder(&self.path)).map_err(FileError::unwritable(&self.path))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // If it can't be removed, the next attempt overwrites it.
            _ = std::fs::remove_file(&self.beside);
        }
    }
}

fn try_lock(
    file: &File,
    path: &Path,
    unwritable: &impl Fn(io::Error) -> FileError,
) -> Result<(), FileError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => FileError::Busy { path: path.to_owned() },
        TryLockError::Error(source) => unwritable(source),
    })
}

#[cfg(unix)]
fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let named = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        named => named?,
    };
    if !named.is_file() {
        return Err(io::Error::other(format!("{} is in the way, and not a file", path.display())));
    }
    let this = file.metadata()?;
    Ok((this.dev(), this.ino()) == (named.dev(), named.ino()))
}

#[cfg(not(unix))]
fn is_named(_file: &File, path: &Path) -> io::Result<bool> {
    path.try_exists()
}

/// A rename is on the disk once its folder is.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// The path with something after its name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// From here on a file that would grow beyond the system's limit is an error, as on a full disk, and
/// doesn't end the process. Call it in a tokio runtime.
#[cfg(unix)]
pub fn survive_size_limit() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    // The system's signal is caught even when nobody listens any more.
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map(drop)
}

/// The file itself, if the path is a link to it: what is beside a file must not depend on the name
/// that it is opened by.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    let Ok(target) = std::fs::read_link(path) else { return path.to_owned() };
    let folder = path.parent().unwrap_or(Path::new(""));
    // A link to nothing yet can't be followed to its end.
    path.canonicalize().unwrap_or_else(|_| folder.join(target))
}

/// Locks a file for this process. The system releases the lock when the process ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock of a file: another file, with `.lock` after the name.
    pub fn take(path: &Path) -> Result<Self, FileError> {
        let beside = with_suffix(&real_path(path), ".lock");
        let unwritable = FileError::unwritable(&beside);
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&beside);
        let file = opened.map_err(&unwritable)?;
        try_lock(&file, path, &unwritable)?;
        Ok(Self { file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a process that is being started may have it open for a moment.
        _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests;
