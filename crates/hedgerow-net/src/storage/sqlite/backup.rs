//! Copies of a store: [`backup`] while a server runs, and [`restore`] while none does.

use std::io;
use std::path::{Path, PathBuf};

use hedgerow::Server;
use rusqlite::{Connection, OpenFlags};

use super::opening::{self, Condition};
use super::{View, decisions, failed, nodes, schema};
use crate::audit::{Draft, Entry};
use crate::coordinator::records::Saved;
use crate::file::{FileError, Lock, real_path, sync_folder, with_suffix};
use crate::plan_json::{OtherMethods, plan_from_json};
use crate::storage::StoreError;

/// A copy that was made and read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackedUp {
    /// The round that is open in it; none if no round was stored yet.
    pub round: Option<u64>,
    /// Its bytes.
    pub bytes: u64,
}

/// A store that was put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The round that is open in it; none if no round was stored yet.
    pub round: Option<u64>,
    /// Where the store is that was there before; none if there was none.
    pub replaced: Option<PathBuf>,
    /// Entries of the audit log that were taken over from that store; none if its log doesn't
    /// continue that of the copy, or can't be read: then that store is the only place that has it.
    pub taken_over: Option<u64>,
}

/// Copies the store `from` to the new file `to`, also while a server writes `from`: the copy is of
/// one moment. It is read back before it gets its name: every page, every checksum, and whether its
/// state restores. Only its owner can read it. `others` are methods beside the built-in ones.
pub fn backup(from: &Path, to: &Path, others: OtherMethods<'_>) -> Result<BackedUp, StoreError> {
    if std::fs::symlink_metadata(to).is_ok() {
        return Err(StoreError::Exists { path: to.to_owned() });
    }
    let copy = Copy::make(from, to)?;
    let view = copy.check(others)?;
    let round = view.load()?.map(|saved| saved.round);
    drop(view);
    let unwritable = FileError::unwritable(to);
    let bytes = copy.path.metadata().map_err(&unwritable)?.len();
    copy.finish(to)?;
    Ok(BackedUp { round, bytes })
}

/// Puts the copy `from` in the place of the store `to`, with an entry of `actor` in its audit log.
/// A store that is there is kept under a new name, with its log. If its audit log continues that of
/// the copy, it goes on. The run gets a new epoch: nodes go on from its round. Fails without a
/// change if a server uses `to`, or if `from` can't be used.
pub fn restore(
    from: &Path,
    to: &Path,
    actor: &str,
    others: OtherMethods<'_>,
) -> Result<Restored, StoreError> {
    let to = &*real_path(to);
    let lock = Lock::take(to).map_err(|error| match error {
        FileError::Busy { path } => StoreError::InUse { path },
        other => StoreError::File(other),
    })?;
    drop(View::open(from)?);
    let copy = Copy::make(from, to)?;
    let later = later_entries(&View::open(&copy.path)?, to)?;
    let at_ms = nodes::unix_ms();
    let generation = copy.change(|connection| {
        let generation = opening::stamp(connection, false, Condition::AsLeft)?;
        let epoch = opening::draw_epoch(connection)?;
        let entry = Draft {
            at_ms,
            actor: actor.to_owned(),
            action: "restore".to_owned(),
            subject: "store".to_owned(),
            details: format!("from {}; epoch {epoch}", from.display()),
        };
        later.iter().flatten().try_for_each(|entry| decisions::append(connection, entry))?;
        let entry = decisions::chain(connection)?.next(&entry);
        decisions::append(connection, &entry)?;
        Ok(generation)
    })?;
    let round = copy.check(others)?.load()?.map(|saved| saved.round);
    let replaced = set_aside(to, at_ms)?;
    copy.finish(to)?;
    opening::write_mark(to, generation)?;
    drop(lock);
    Ok(Restored { round, replaced, taken_over: later.map(|later| later.len() as u64) })
}

/// What the audit log of the store `there` has beyond that of `copy`. None if one log isn't the
/// beginning of the other, or `there` can't be read: a damaged store is a reason to restore.
fn later_entries(copy: &View, there: &Path) -> Result<Option<Vec<Entry>>, StoreError> {
    const ALL: usize = usize::MAX >> 1;
    let log = copy.audit(1, ALL)?;
    let read = || {
        opening::check_log(there)?;
        let view = View::open(there)?;
        Ok((view.audit(1, ALL)?, view.run().map(|run| run.id.clone())))
    };
    let (mut entries, run) = match read() {
        Ok(read) => read,
        Err(StoreError::Missing { .. }) => return Ok(Some(Vec::new())),
        Err(_) => return Ok(None),
    };
    // The same hash means that all entries before are the same.
    let common = log.len().min(entries.len());
    let is_same_run = run.as_ref() == copy.run().map(|run| &run.id);
    let is_same = is_same_run && log[..common].last() == entries[..common].last();
    let later = entries.split_off(common);
    Ok(is_same.then_some(later))
}

/// A copy that has no name yet. It is removed unless it is finished.
struct Copy {
    path: PathBuf,
    is_finished: bool,
}

impl Copy {
    /// Copies a store to a file beside `to`, closed and of a generation of its own.
    fn make(from: &Path, to: &Path) -> Result<Self, StoreError> {
        if !from.is_file() {
            return Err(StoreError::Missing { path: from.to_owned() });
        }
        let unwritable = FileError::unwritable(to);
        let path = with_suffix(to, ".new");
        for left in ["", "-journal", "-wal", "-shm"] {
            match std::fs::remove_file(with_suffix(&path, left)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(unwritable(error).into());
                }
                _ => {}
            }
        }
        schema::private_file(&path).map_err(&unwritable)?;
        let copy = Self { path, is_finished: false };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let source = Connection::open_with_flags(from, flags).and_then(|source| {
            source.busy_timeout(super::BUSY_TIMEOUT)?;
            schema::distrust(&source)?;
            Ok(source)
        });
        let source = source.map_err(|error| failed(from, error))?;
        // One read of the source. Its writer doesn't wait for it.
        let name = copy.path.to_str().ok_or_else(|| {
            unwritable(io::Error::new(io::ErrorKind::InvalidFilename, "the name is not UTF-8"))
        })?;
        source.execute("VACUUM INTO ?1", [name]).map_err(|error| failed(to, error))?;
        copy.change(|connection| {
            schema::migrate(connection)?;
            opening::stamp(connection, false, Condition::AsLeft)
        })?;
        Ok(copy)
    }

    /// Changes the copy. Everything is on the disk when it returns.
    fn change<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let changed = Connection::open_with_flags(&self.path, flags).and_then(|mut connection| {
            schema::distrust(&connection)?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            let done = work(&mut connection)?;
            // A copy has no log: it is one file that can be moved.
            connection.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))?;
            connection.close().map_err(|(_, error)| error)?;
            Ok(done)
        });
        changed.map_err(|error| failed(&self.path, error))
    }

    /// Reads the copy back.
    fn check(&self, others: OtherMethods<'_>) -> Result<View, StoreError> {
        let view = View::open(&self.path)?;
        let saved = view.load()?;
        view.nodes()?;
        view.decisions()?;
        view.audit(1, usize::MAX >> 1)?;
        view.history(1)?;
        if let (Some(run), Some(saved)) = (view.run(), &saved) {
            restores(&run.learning, saved, others)
                .map_err(|reason| StoreError::Unfit { path: self.path.clone(), reason })?;
        }
        Ok(view)
    }

    /// Gives it its name.
    fn finish(mut self, to: &Path) -> Result<(), StoreError> {
        let named = std::fs::File::open(&self.path)
            .and_then(|file| file.sync_all())
            .and_then(|()| std::fs::rename(&self.path, to))
            .and_then(|()| sync_folder(to));
        named.map_err(FileError::unwritable(to))?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if !self.is_finished {
            // If it can't be removed, the next copy of this name removes it.
            _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether a server could go on from a state.
fn restores(learning: &str, saved: &Saved, others: OtherMethods<'_>) -> Result<(), String> {
    let plan = plan_from_json(learning, others).map_err(|error| error.to_string())?;
    let server = Server::restore(&plan, &saved.server, saved.scaling.as_deref());
    let found = server.map_err(|error| error.to_string())?.round();
    if found == saved.round {
        return Ok(());
    }
    Err(format!("the state is of round {found}, but round {} was stored", saved.round))
}

/// Renames a store that is in the way, with its log. First the log: a store whose log is missing is
/// noticed when it is opened, a log alone too.
fn set_aside(path: &Path, at_ms: u64) -> Result<Option<PathBuf>, StoreError> {
    let aside = with_suffix(path, &format!(".replaced-{at_ms}"));
    let mut is_there = false;
    for suffix in ["-wal", "-shm", ""] {
        let from = with_suffix(path, suffix);
        match std::fs::rename(&from, with_suffix(&aside, suffix)) {
            Ok(()) => is_there |= suffix.is_empty(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(FileError::unwritable(&from)(error).into()),
        }
    }
    Ok(is_there.then_some(aside))
}
