//! Files that survive what happens to files: a [`Format`] writes them whole or not at all, and
//! refuses what is damaged, newer or something else. A file that can't be read is never written
//! over.
//!
//! ```text
//! magic 8 | kind 16 | version u32 | length of the body u64 | CRC-32 of the body | CRC-32 of all that so far | body
//! ```

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// One kind of file, and what this program knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    kind: &'static str,
    newest: u32,
    most: u64,
}

/// What was in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Version of its format, at most the newest that the [`Format`] knows.
    pub version: u32,
    /// What was written.
    pub body: Vec<u8>,
}

/// The permissions of a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Its owner.
    Private,
    /// The user's default permissions.
    Shared,
}

/// Why a file can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system won't let us.
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
    /// Some other program's file.
    #[error("{}: not a {kind} file of hedgerow", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What was expected.
        kind: String,
    },
    /// One of ours, but with something else in it.
    #[error("{}: a {found:?} file, and {expected:?} is needed", path.display())]
    OtherKind {
        /// The file.
        path: PathBuf,
        /// What was expected.
        expected: String,
        /// What it says it is.
        found: String,
    },
    /// From the future.
    #[error("{}: written by a newer hedgerow: format {found}, this one knows up to {newest}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The newest that is known.
        newest: u64,
    },
    /// It stops before its end.
    #[error("{}: breaks off: {expected} bytes expected, but {found} are there", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// What it should have.
        expected: u64,
        /// What it has.
        found: u64,
    },
    /// Not what was written.
    #[error("{}: damaged: the checksum of its {part} is {found:08x}, and {expected:08x} was written", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Of what in it.
        part: &'static str,
        /// What was written down.
        expected: u32,
        /// What it comes to.
        found: u32,
    },
    /// Not what was written, in some other way.
    #[error("{}: damaged: {reason}", path.display())]
    Senseless {
        /// The file.
        path: PathBuf,
        /// In what way.
        reason: String,
    },
    /// More than anyone would write.
    #[error("{}: {found} bytes, and {bound} are the most that it may have", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Most bytes.
        bound: u64,
        /// What it has or should have.
        found: u64,
    },
    /// What is there can't be read, so it is not written over.
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
    pub fn read(&self, path: &Path) -> Result<Option<Content>, FileError> {
        let bound = self.most.saturating_add(HEADER_LENGTH as u64);
        let Some(mut bytes) = read_bounded(path, bound)? else { return Ok(None) };
        let version = self.check(path, &bytes)?;
        Ok(Some(Content { version, body: bytes.split_off(HEADER_LENGTH) }))
    }

    /// Writes a file of the newest version in place of an older one. It appears when it is whole
    /// and on the disk; what is there and can't be read stays.
    pub fn write(&self, path: &Path, body: &[u8]) -> Result<(), FileError> {
        let found = body.len() as u64;
        if found > self.most {
            return Err(FileError::TooLarge { path: path.to_owned(), bound: self.most, found });
        }
        self.read(path).map_err(|error| FileError::Kept(Box::new(error)))?;
        let mut file = NewFile::create(path, Access::Private)?;
        let unwritable = |source| FileError::Unwritable { path: path.to_owned(), source };
        file.write_all(&self.header(body))
            .and_then(|()| file.write_all(body))
            .map_err(unwritable)?;
        file.finish()
    }

    fn header(&self, body: &[u8]) -> [u8; HEADER_LENGTH] {
        let mut kind = [0; KIND_LENGTH];
        kind[..self.kind.len()].copy_from_slice(self.kind.as_bytes());
        let mut header = [0; HEADER_LENGTH];
        let mut rest = &mut header[..];
        let version = self.newest.to_le_bytes();
        let length = (body.len() as u64).to_le_bytes();
        let checksum = crc32fast::hash(body).to_le_bytes();
        for part in [&MAGIC[..], &kind, &version, &length, &checksum] {
            let (place, others) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = others;
        }
        let checked = HEADER_LENGTH - 4;
        let checksum = crc32fast::hash(&header[..checked]);
        header[checked..].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    /// The version of a file, all of whose bits are right.
    fn check(&self, path: &Path, bytes: &[u8]) -> Result<u32, FileError> {
        let path = || path.to_owned();
        let begun = bytes.len().min(MAGIC.len());
        if bytes[..begun] != MAGIC[..begun] {
            return Err(FileError::NotOurs { path: path(), kind: self.kind.to_owned() });
        }
        let truncated =
            |expected| FileError::Truncated { path: path(), expected, found: bytes.len() as u64 };
        let Some((header, body)) = bytes.split_first_chunk::<HEADER_LENGTH>() else {
            return Err(truncated(HEADER_LENGTH as u64));
        };
        let (checked, checksum) = header.split_at(HEADER_LENGTH - 4);
        let damaged =
            |part, expected, found| FileError::Damaged { path: path(), part, expected, found };
        let (expected, found) =
            (u32::from_le_bytes(Fields(checksum).take()), crc32fast::hash(checked));
        if found != expected {
            return Err(damaged("header", expected, found));
        }
        let mut fields = Fields(&checked[MAGIC.len()..]);
        let kind = fields.take::<KIND_LENGTH>();
        let version = u32::from_le_bytes(fields.take());
        let length = u64::from_le_bytes(fields.take());
        let checksum = u32::from_le_bytes(fields.take());
        let kind = String::from_utf8_lossy(&kind);
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
        let found = crc32fast::hash(body);
        if found != checksum {
            return Err(damaged("body", checksum, found));
        }
        Ok(version)
    }
}

/// Takes fields off the front.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk::<N>().unwrap_or((&[0; N], &[]));
        self.0 = rest;
        *field
    }
}

/// All of a file, unless it has more bytes than this; None if there is no such file.
pub(crate) fn read_bounded(path: &Path, bound: u64) -> Result<Option<Vec<u8>>, FileError> {
    let unreadable = |source| FileError::Unreadable { path: path.to_owned(), source };
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(unreadable)?,
    };
    let too_large = |found| FileError::TooLarge { path: path.to_owned(), bound, found };
    let found = file.metadata().map_err(unreadable)?;
    if found.is_dir() {
        return Err(unreadable(io::ErrorKind::IsADirectory.into()));
    }
    if found.len() > bound {
        return Err(too_large(found.len()));
    }
    // It may grow while it is read, or be something that has no size.
    let mut bytes = Vec::new();
    file.take(bound.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > bound {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(Some(bytes))
}

/// A file that appears only once it is whole. Until then it is beside its place, under the same
/// name with `.new` after it.
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
        let unwritable = |source| FileError::Unwritable { path: path.to_owned(), source };
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
            let file = options.open(&beside).map_err(unwritable)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(FileError::Busy { path: path.to_owned() });
                }
                Err(TryLockError::Error(source)) => return Err(unwritable(source)),
            }
            // Somebody may have finished it between the two: then it is another file's name, or
            // nobody's.
            if is_named(&file, &beside).map_err(unwritable)? {
                file.set_len(0).map_err(unwritable)?;
                return Ok(Self { file, beside, path: path.to_owned(), is_finished: false });
            }
        }
    }

    /// Puts it in its place, once it is on the disk.
    pub fn finish(mut self) -> Result<(), FileError> {
        let unwritable = |source| FileError::Unwritable { path: self.path.clone(), source };
        self.file.sync_all().map_err(unwritable)?;
        std::fs::rename(&self.beside, &self.path).map_err(unwritable)?;
        self.is_finished = true;
        sync_folder(&self.path)
            .map_err(|source| FileError::Unwritable { path: self.path.clone(), source })
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
            // Who can't remove it will find it in the way of nothing.
            _ = std::fs::remove_file(&self.beside);
        }
    }
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

/// Locks a file for this process. The system releases the lock when the process ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock of a file, which is a file of its own with `.lock` after the name, or says
    /// that another has it.
    pub fn take(path: &Path) -> Result<Self, FileError> {
        let beside = with_suffix(path, ".lock");
        let unwritable = |source| FileError::Unwritable { path: beside.clone(), source };
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&beside);
        let file = opened.map_err(unwritable)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file }),
            Err(TryLockError::WouldBlock) => Err(FileError::Busy { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(unwritable(source)),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // To close it would not do: a process that is just being started may have it open for a
        // moment.
        _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;

    const STATE: Format = Format::new("node", 2, 1000);

    fn state(folder: &TempDir) -> PathBuf {
        folder.path().join("state")
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else_is_left() {
        let folder = TempDir::new().unwrap();
        let path = state(&folder);
        assert_eq!(STATE.read(&path).unwrap(), None);
        for body in [&b"first"[..], b"", &[7; 1000]] {
            STATE.write(&path, body).unwrap();
            assert_eq!(
                STATE.read(&path).unwrap(),
                Some(Content { version: 2, body: body.to_vec() })
            );
        }
        Format::new("node", 1, 1000).write(&folder.path().join("old"), b"older").unwrap();
        let old = STATE.read(&folder.path().join("old")).unwrap();
        assert_eq!(old, Some(Content { version: 1, body: b"older".to_vec() }));
        let names =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["old", "state"]);
    }

    #[test]
    fn what_can_t_be_read_is_named_and_never_written_over() {
        let folder = TempDir::new().unwrap();
        let path = state(&folder);
        let written = |format: Format, body: &[u8]| [&format.header(body)[..], body].concat();
        let newer = written(Format::new("node", 3, 1000), b"from the future");
        let other = written(Format::new("certificates", 1, 1000), b"something else");
        let large = written(Format::new("node", 2, 2000), &[1; 1001]);
        let mut longer = written(STATE, b"body");
        longer.extend(b"xy");
        let mut damaged = written(STATE, b"body");
        *damaged.last_mut().unwrap() ^= 1;
        let short = written(STATE, b"body")[..46].to_vec();
        for (bytes, expected) in [
            (newer, "written by a newer hedgerow: format 3, this one knows up to 2"),
            (other, "a \"certificates\" file, and \"node\" is needed"),
            (large, "1045 bytes, and 1044 are the most that it may have"),
            (longer, "damaged: 2 bytes more than it should have"),
            (damaged, "damaged: the checksum of its body is acaf3b24, and dba80bb2 was written"),
            (short, "breaks off: 48 bytes expected, but 46 are there"),
            (vec![], "breaks off: 44 bytes expected, but 0 are there"),
            (b"time,load\n".to_vec(), "not a node file of hedgerow"),
        ] {
            std::fs::write(&path, &bytes).unwrap();
            let error = STATE.read(&path).unwrap_err().to_string();
            assert_eq!(error, format!("{}: {expected}", path.display()));
            let refused = STATE.write(&path, b"new").unwrap_err().to_string();
            assert_eq!(refused, format!("{error}; it is left as it is: move it away first"));
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
        assert!(matches!(
            STATE.write(&path, &[0; 1001]),
            Err(FileError::TooLarge { found: 1001, .. })
        ));
        assert!(matches!(STATE.read(folder.path()), Err(FileError::Unreadable { .. })));
        assert!(STATE.write(folder.path(), b"x").is_err());
        assert!(matches!(
            STATE.write(&folder.path().join("no/such"), b"x"),
            Err(FileError::Unwritable { .. })
        ));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn every_flipped_bit_and_every_missing_byte_is_seen(body in prop::collection::vec(any::<u8>(), 0..120)) {
            let whole = [&STATE.header(&body)[..], &body].concat();
            let path = Path::new("state");
            prop_assert_eq!(STATE.check(path, &whole).unwrap(), 2);
            for bit in 0..8 * whole.len() {
                let mut flipped = whole.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(STATE.check(path, &flipped).is_err(), "bit {}", bit);
            }
            for end in 0..whole.len() {
                prop_assert!(STATE.check(path, &whole[..end]).is_err(), "{} bytes", end);
            }
        }
    }

    #[test]
    fn a_new_file_appears_once_it_is_whole() {
        let folder = TempDir::new().unwrap();
        let path = state(&folder);
        let beside = folder.path().join("state.new");
        std::fs::write(&beside, "left behind by one that was killed, and longer").unwrap();
        let mut file = NewFile::create(&path, Access::Shared).unwrap();
        file.write_all(b"half").unwrap();
        assert!(!path.exists());
        assert!(matches!(NewFile::create(&path, Access::Shared), Err(FileError::Busy { .. })));
        drop(file);
        assert!(!path.exists() && !beside.exists(), "what isn't finished is gone");
        std::fs::write(&beside, "left behind again").unwrap();
        let mut file = NewFile::create(&path, Access::Shared).unwrap();
        file.write_all(b"whole").unwrap();
        file.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert!(!beside.exists());
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_followed_and_states_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = TempDir::new().unwrap();
        let (path, precious) = (state(&folder), folder.path().join("precious"));
        std::fs::write(&precious, "kept").unwrap();
        std::os::unix::fs::symlink(&precious, folder.path().join("state.new")).unwrap();
        let error = STATE.write(&path, b"x").unwrap_err().to_string();
        assert!(error.contains("in the way, and not a file"), "{error}");
        assert_eq!(std::fs::read(&precious).unwrap(), b"kept");
        std::fs::remove_file(folder.path().join("state.new")).unwrap();
        STATE.write(&path, b"x").unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_lock_has_one_holder() {
        let folder = TempDir::new().unwrap();
        let path = state(&folder);
        let lock = Lock::take(&path).unwrap();
        let refused = Lock::take(&path).unwrap_err().to_string();
        assert_eq!(refused, format!("{}: in use by another process", path.display()));
        // As it is for a moment when the process starts another.
        let shared = lock.file.try_clone().unwrap();
        drop(lock);
        Lock::take(&path).unwrap();
        drop(shared);
    }
}
