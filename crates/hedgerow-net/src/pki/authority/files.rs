//! The folder of an authority: private, and changed by one process at a time.

use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::path::Path;

use super::PkiError;
use crate::file::FileError;
use crate::pki::identity::IdentityError;

/// Makes a folder that only its owner can use. An existing one stays as it is.
pub(super) fn make_folder(folder: &Path) -> Result<(), PkiError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    Ok(builder.create(folder).map_err(FileError::unwritable(folder))?)
}

/// Waits until no other process changes this folder, and locks it until the file is dropped.
pub(super) fn lock(folder: &Path) -> Result<File, PkiError> {
    let path = folder.join("lock");
    let unwritable = FileError::unwritable(&path);
    let lock = File::options().create(true).append(true).open(&path).map_err(&unwritable)?;
    lock.lock().map_err(&unwritable)?;
    Ok(lock)
}

/// Whether something has this name, also a link to nothing.
pub(super) fn is_there(path: &Path) -> Result<bool, IdentityError> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(source) => Err(FileError::unreadable(path)(source).into()),
    }
}
