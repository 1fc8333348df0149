//! Files that appear only once they are whole.

use std::path::Path;

use tempfile::NamedTempFile;

/// A temporary file in this folder, to be renamed into place once it is written. Unlike other
/// temporary files it has the permissions of the user's own files.
pub fn waiting_file(folder: &Path) -> std::io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}
