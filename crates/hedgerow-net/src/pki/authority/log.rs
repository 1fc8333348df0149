//! The audit log of an authority: what was issued, revoked and changed, as a chain of entries (see
//! [`crate::audit`]).

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::{Authority, Issued, PkiError, is_there};
use crate::audit::{Chain, Draft, Entry};
use crate::file::{FileError, read_whole};
use crate::pki::identity::MAX_LIST_BYTES;

/// Most bytes of the last entry: four texts of at most 4,096 bytes, each byte escaped.
const MAX_ENTRY_BYTES: u64 = 1 << 17;

impl Authority {
    /// All entries, in order. [`crate::audit::verify`] checks them.
    pub fn audit(&self) -> Result<Vec<Entry>, PkiError> {
        let file = self.folder.join(super::AUDIT_FILE);
        if !is_there(&file)? {
            return Ok(Vec::new());
        }
        let content = read_whole(&file, MAX_LIST_BYTES)?;
        let damaged =
            |line: usize, what: String| PkiError::Index { file: file.clone(), line, what };
        let text = str::from_utf8(&content).map_err(|_| damaged(1, "that is no text".into()))?;
        let read = |(line, text): (usize, &str)| {
            serde_json::from_str(text).map_err(|error| damaged(line, error.to_string()))
        };
        (1..).zip(text.lines()).map(read).collect()
    }

    /// Adds an entry. The folder is locked.
    pub(super) fn note(&self, action: &str, subject: &str, details: &str) -> Result<(), PkiError> {
        let now = self.now().unix_timestamp_nanos() / 1_000_000;
        let draft = Draft {
            at_ms: u64::try_from(now).unwrap_or_default(),
            actor: self.actor.clone(),
            action: action.to_owned(),
            subject: subject.to_owned(),
            details: details.to_owned(),
        };
        append(&self.folder.join(super::AUDIT_FILE), &draft)
    }

    /// Adds an entry about a certificate.
    pub(super) fn note_issued(&self, action: &str, issued: &Issued) -> Result<(), PkiError> {
        let role = issued.role().map_or("server", |role| role.name());
        let Issued { serial, not_after, name, .. } = issued;
        self.note(action, name, &format!("{role}, serial {serial}, until {not_after}"))
    }
}

/// Adds an entry to a file, on the disk. What a crash has left behind the last whole line is
/// removed: nobody was told that it was done.
fn append(path: &Path, draft: &Draft) -> Result<(), PkiError> {
    let unwritable = FileError::unwritable(path);
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path).map_err(&unwritable)?;
    let length = file.metadata().map_err(&unwritable)?.len();
    let begin = length.saturating_sub(MAX_ENTRY_BYTES);
    file.seek(SeekFrom::Start(begin)).map_err(&unwritable)?;
    let mut tail = Vec::new();
    (&mut file).take(MAX_ENTRY_BYTES).read_to_end(&mut tail).map_err(&unwritable)?;
    let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
    let last = tail[..whole].trim_ascii_end().rsplit(|byte| *byte == b'\n').next();
    let chain = match last.filter(|line| !line.is_empty()) {
        None if begin == 0 => Chain::default(),
        last => {
            let entry: Option<Entry> = last.and_then(|line| serde_json::from_slice(line).ok());
            let Some(Entry { number, hash, .. }) = entry else {
                return Err(PkiError::Audit { file: path.to_owned() });
            };
            Chain { number, hash }
        }
    };
    let mut line =
        serde_json::to_vec(&chain.next(draft)).map_err(|error| unwritable(error.into()))?;
    line.push(b'\n');
    let end = begin + whole as u64;
    file.set_len(end).map_err(&unwritable)?;
    file.seek(SeekFrom::Start(end)).map_err(&unwritable)?;
    file.write_all(&line).and_then(|()| file.sync_data()).map_err(&unwritable)?;
    Ok(())
}
