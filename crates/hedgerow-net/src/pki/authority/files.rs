//! Files of an authority: whole or not at all, private where they must be, and written by one
//! process at a time.

use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use super::PkiError;
use crate::file::{Access, FileError, NewFile};
use crate::pki::identity::IdentityError;

/// Writes a file that appears only once it is on the disk as a whole, instead of the one that was
/// there.
pub(super) fn write(path: &Path, content: &[u8], access: Access) -> Result<(), PkiError> {
    let mut file = NewFile::create(path, access)?;
    file.write_all(content)
        .map_err(|source| FileError::Unwritable { path: path.to_owned(), source })?;
    Ok(file.finish()?)
}

/// Makes a folder for the owner alone; one that is there stays as it is.
pub(super) fn make_folder(folder: &Path) -> Result<(), PkiError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let unwritable = |source| FileError::Unwritable { path: folder.to_owned(), source };
    Ok(builder.create(folder).map_err(unwritable)?)
}

/// Waits until no other process changes this folder. It is ours until the file is dropped.
pub(super) fn lock(folder: &Path) -> Result<File, PkiError> {
    let path = folder.join("lock");
    let unwritable = |source| FileError::Unwritable { path: path.clone(), source };
    let lock = File::options().create(true).append(true).open(&path).map_err(unwritable)?;
    lock.lock().map_err(unwritable)?;
    Ok(lock)
}

/// Whether something goes by this name, be it a dangling link.
pub(super) fn is_there(path: &Path) -> Result<bool, IdentityError> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(source) => Err(FileError::Unreadable { path: path.to_owned(), source }.into()),
    }
}
