//! Files of lines: a heading with kind and version, then one line of JSON for each record.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{PkiError, write};
use crate::file::{Access, FileError, read_whole};
use crate::pki::identity::MAX_LIST_BYTES;

/// Version of the files that this code writes.
const VERSION: u32 = 1;

/// A kind of file.
pub(super) struct Lines {
    /// The key of the heading.
    pub(super) key: &'static str,
    /// What a file without the heading is not.
    pub(super) what: &'static str,
}

impl Lines {
    /// All records. `check` says what is wrong with one.
    pub(super) fn load<T: DeserializeOwned>(
        &self,
        file: &Path,
        check: impl Fn(&T) -> Result<(), String>,
    ) -> Result<Vec<T>, PkiError> {
        let damaged =
            |line: usize, what: String| PkiError::Index { file: file.to_owned(), line, what };
        let content = read_whole(file, MAX_LIST_BYTES)?;
        let text =
            str::from_utf8(&content).map_err(|_| damaged(1, "that is no text".to_owned()))?;
        let mut lines = text.lines();
        let heading: BTreeMap<String, u32> =
            serde_json::from_str(lines.next().unwrap_or_default()).unwrap_or_default();
        match heading.get(self.key) {
            Some(&VERSION) if heading.len() == 1 => {}
            Some(version) if heading.len() == 1 => {
                return Err(damaged(1, format!("version must be {VERSION}, but is {version}")));
            }
            _ => return Err(damaged(1, format!("that is no {}", self.what))),
        }
        let mut all = Vec::new();
        for (number, line) in (2..).zip(lines) {
            let record =
                serde_json::from_str(line).map_err(|error| damaged(number, error.to_string()))?;
            check(&record).map_err(|what| damaged(number, what))?;
            all.push(record);
        }
        Ok(all)
    }

    /// Replaces the file.
    pub(super) fn save<T: Serialize>(&self, file: &Path, all: &[T]) -> Result<(), PkiError> {
        let unwritable = |error: serde_json::Error| FileError::unwritable(file)(error.into());
        let mut text =
            serde_json::to_string(&BTreeMap::from([(self.key, VERSION)])).map_err(unwritable)?;
        for record in all {
            text += "\n";
            text += &serde_json::to_string(record).map_err(unwritable)?;
        }
        text += "\n";
        write(file, &text, Access::Private)
    }
}
