//! [`Store`]: a run in an SQLite file with a write-ahead log. The server can be killed at any
//! moment: a round is one transaction. A commit waits for the disk only if it has to survive a loss
//! of power. A [`View`] reads the file while a server writes it.

use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hedgerow::NodeId;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior};

use super::{CheckState, Durability, RolledBack, Storage, StoreError};
use crate::audit::{Chain, Draft, Entry};
use crate::coordinator::records::{
    Change, Commit, Decisions, NodeRecord, RoundRecord, Run, Saved, Snapshot, Target,
};
use crate::file::{FileError, Lock, real_path};

pub mod backup;
mod checkpointer;
mod decisions;
mod nodes;
mod opening;
mod operating;
pub mod retention;
mod rounds;
mod schema;
mod seal;
mod snapshots;

use checkpointer::Checkpointer;
use decisions::Bad;
pub use opening::Condition;
use retention::{Retention, SnapshotLimits, Stored};
pub use rounds::KEPT_WHOLE;
use seal::Seal;
use snapshots::Found;

/// How long a statement waits for another one: only checkpoints are ever in its way.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// A store opened for reading; several readers can read while a server writes.
#[derive(Debug)]
pub struct View {
    connection: Connection,
    path: PathBuf,
    run: Option<Run>,
}

/// The store of a running server, the only one that may write. It can be read like a [`View`].
#[derive(Debug)]
pub struct Store {
    // Closed before the lock is released.
    view: View,
    checkpointer: Option<Checkpointer>,
    /// A random number of this opening; see [`opening`].
    generation: i64,
    condition: Condition,
    retention: Retention,
    /// The end of the audit log.
    chain: Chain,
    _lock: Lock,
}

impl View {
    /// Opens a store without writing to it. Fails if the file is damaged, newer or not a store.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        match path.metadata() {
            Ok(found) if found.is_file() && found.len() == 0 => {
                let reason = "it is empty; remove it if nothing was in it".to_owned();
                return Err(StoreError::NotOurs { path: path.to_owned(), reason });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::Missing { path: path.to_owned() });
            }
            // SQLite reports everything else.
            _ => {}
        }
        let failed = |error| failed(path, error);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        schema::check(&connection, path)?;
        Self::new(connection, path)
    }

    fn new(connection: Connection, path: &Path) -> Result<Self, StoreError> {
        let mut view = Self { connection, path: path.to_owned(), run: None };
        view.run = view.find_run()?;
        Ok(view)
    }

    /// Its run; none if no run has begun.
    pub fn run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    fn find_run(&self) -> Result<Option<Run>, StoreError> {
        let sql = "SELECT name, learning, checksum FROM run";
        let found = self.connection.query_row(sql, [], |row| {
            let run = Run { id: row.get("name")?, learning: row.get("learning")? };
            Ok((run, row.get::<_, i64>("checksum")?))
        });
        let Some((run, checksum)) = found.optional().map_err(|error| failed(&self.path, error))?
        else {
            return Ok(None);
        };
        self.expect(checksum, seal_of_run(&run), || "the run".to_owned())?;
        Ok(Some(run))
    }

    /// The state of the run; none if no round has been stored yet.
    pub fn load(&self) -> Result<Option<Saved>, StoreError> {
        let failed = |error| failed(&self.path, error);
        let has_snapshots =
            schema::version(&self.connection).map_err(failed)? >= schema::WITH_SNAPSHOTS;
        let found = if has_snapshots {
            snapshots::read(&self.connection, None)
        } else {
            snapshots::read_format_1(&self.connection)
        };
        let Some(found) = found.map_err(failed)? else { return Ok(None) };
        let saved = self.checked(found)?;
        // A round is stored with its record.
        let last = rounds::last(&self.connection).map_err(failed)?;
        if let Some(last) = last.filter(|last| last + 1 != saved.round) {
            let round = saved.round;
            let what =
                format!("the latest state is of round {round}, and the history ends with {last}");
            return Err(StoreError::Damaged { path: self.path.clone(), what });
        }
        Ok(Some(saved))
    }

    /// The state in which this round was open, if it is still there.
    pub fn snapshot(&self, round: u64) -> Result<Option<Saved>, StoreError> {
        let found = snapshots::read(&self.connection, Some(round));
        let found = found.map_err(|error| failed(&self.path, error))?;
        found.map(|found| self.checked(found)).transpose()
    }

    /// What operators have decided.
    pub fn decisions(&self) -> Result<Decisions, StoreError> {
        decisions::read(&self.connection).map_err(|bad| match bad {
            Bad::Sql(error) => failed(&self.path, error),
            Bad::Checksum(written, found, what) => self.damaged_sum(written, found, &what),
            Bad::Value(what) => StoreError::Damaged { path: self.path.clone(), what },
        })
    }

    /// At most `most` entries of the audit log, from number `from` on, checked as a chain.
    pub fn audit(&self, from: u64, most: usize) -> Result<Vec<Entry>, StoreError> {
        let entries = decisions::entries(&self.connection, from, most);
        let entries = entries.map_err(|error| failed(&self.path, error))?;
        if let Some(first) = entries.first() {
            let number = first.number.saturating_sub(1);
            let mut chain = Chain { number, hash: first.before };
            let whole = entries.iter().try_for_each(|entry| chain.accept(entry));
            whole.map_err(|broken| StoreError::Damaged {
                path: self.path.clone(),
                what: broken.to_string(),
            })?;
        }
        Ok(entries)
    }

    fn checked(&self, found: Found) -> Result<Saved, StoreError> {
        let Found { saved, state: (written, is), scaling, .. } = found;
        let round = saved.round;
        self.expect(written, is, || format!("the state of round {round}"))?;
        match scaling {
            Some((Some(written), is)) => {
                self.expect(written, is, || "the scaling".to_owned())?;
            }
            Some((None, _)) => {
                let what = format!("the scaling of round {round} is missing");
                return Err(StoreError::Damaged { path: self.path.clone(), what });
            }
            None => {}
        }
        Ok(saved)
    }

    /// All nodes that ever joined, by number.
    pub fn nodes(&self) -> Result<Vec<NodeRecord>, StoreError> {
        let read = nodes::read(&self.connection).map_err(|error| failed(&self.path, error))?;
        read.into_iter()
            .map(|(node, checksum)| {
                self.expect(checksum, nodes::seal(&node), || format!("node {}", node.number))?;
                Ok(node)
            })
            .collect()
    }

    /// Stored rounds in order, at most `most`: the first, the latest, and others evenly spaced
    /// between them.
    pub fn history(&self, most: usize) -> Result<Vec<RoundRecord>, StoreError> {
        let read =
            rounds::read(&self.connection, most).map_err(|error| failed(&self.path, error))?;
        read.into_iter()
            .map(|(record, checksum)| {
                let seal = rounds::seal(&record);
                self.expect(checksum, seal, || format!("round {} of the history", record.round))?;
                Ok(record)
            })
            .collect()
    }

    fn expect(
        &self,
        written: i64,
        found: i64,
        what: impl FnOnce() -> String,
    ) -> Result<(), StoreError> {
        if written == found { Ok(()) } else { Err(self.damaged_sum(written, found, &what())) }
    }

    fn damaged_sum(&self, written: i64, found: i64, what: &str) -> StoreError {
        let what = format!("the checksum of {what} is {found:08x}, and {written:08x} was written");
        StoreError::Damaged { path: self.path.clone(), what }
    }
}

impl Store {
    /// Opens a store, or creates it. Fails without changing the file if it is damaged, newer,
    /// another program's, or in use by another server.
    pub fn open(path: &Path, durability: Durability) -> Result<Self, StoreError> {
        let path = &*real_path(path);
        let lock = Lock::take(path).map_err(|error| match error {
            FileError::Busy { path } => StoreError::InUse { path },
            other => StoreError::File(other),
        })?;
        let had_log = opening::has_log(path);
        opening::check_log(path)?;
        match View::open(path) {
            Ok(checked) => drop(checked),
            Err(StoreError::Missing { .. }) => schema::create(path)?,
            Err(refused) => return Err(refused),
        }
        let failed = |error| failed(path, error);
        let mut connection = writer(path).map_err(failed)?;
        let synchronous = match durability {
            Durability::Kill => "NORMAL",
            Durability::PowerLoss => "FULL",
        };
        connection.pragma_update(None, "synchronous", synchronous).map_err(failed)?;
        schema::migrate(&mut connection).map_err(failed)?;
        let (generation, condition) = opening::open(&mut connection, path, had_log)?;
        let stored = snapshots::list(&connection).map_err(failed)?;
        let chain = decisions::chain(&connection).map_err(failed)?;
        let checkpointer = Some(Checkpointer::start(path)?);
        let view = View::new(connection, path)?;
        let retention = Retention::new(SnapshotLimits::default(), stored);
        Ok(Self { view, checkpointer, generation, condition, retention, chain, _lock: lock })
    }

    /// How the store was found when it was opened.
    pub fn condition(&self) -> Condition {
        self.condition
    }

    /// How many snapshots are kept from now on.
    pub fn keep_snapshots(&mut self, limits: SnapshotLimits) -> Result<(), StoreError> {
        let mut retention = Retention::new(limits, self.retention.stored().to_vec());
        let dropped = retention.tidy();
        self.write(|connection| snapshots::drop_all(connection, &dropped))?;
        self.retention = retention;
        Ok(())
    }

    /// Begins the run of a new store.
    pub fn begin(&mut self, run: &Run) -> Result<(), StoreError> {
        if let Some(run) = &self.view.run {
            return Err(StoreError::HasRun { path: self.view.path.clone(), run: run.id.clone() });
        }
        let sql = "INSERT INTO run (id, name, learning, checksum) VALUES (1, ?1, ?2, ?3)";
        let stored = self.view.connection.execute(sql, (&run.id, &run.learning, seal_of_run(run)));
        stored.map_err(|error| failed(&self.view.path, error))?;
        self.view.run = Some(run.clone());
        Ok(())
    }

    /// Copies the log into the store and closes it. Dropping does the same but only logs an error.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.finish().map_err(|error| failed(&self.view.path, error))
    }

    fn finish(&mut self) -> rusqlite::Result<()> {
        let Some(checkpointer) = self.checkpointer.take() else { return Ok(()) };
        checkpointer.stop();
        opening::close(&self.view.connection, self.generation)?;
        checkpointer::checkpoint(&self.view.connection, "TRUNCATE").map(drop)
    }

    /// Runs `work` in one transaction.
    fn write<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let View { connection, path, .. } = &mut self.view;
        let written = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .and_then(|transaction| {
                let done = work(&transaction)?;
                transaction.commit()?;
                Ok(done)
            });
        written.map_err(|error| failed(path, error))
    }
}

impl Storage for Store {
    fn commit(&mut self, commit: &Commit) -> Result<(), StoreError> {
        let Commit { round, server, scaling, totals, record } = commit;
        let at_ms = record.as_ref().map_or_else(nodes::unix_ms, |record| record.closed_at_ms);
        let before = self.retention.latest().and_then(|latest| latest.scaling);
        let scaling = match scaling {
            Some(scaling) => Some((before.map_or(0, |(id, _)| id) + 1, scaling.len() as u64)),
            None => before,
        };
        let bytes = (server.len() + totals.len()) as u64;
        let mut retention = self.retention.clone();
        let dropped = retention.add(Stored { round: *round, at_ms, bytes, scaling });
        let (mark, scaling) = ((self.generation, at_ms), scaling.map(|(id, _)| id));
        self.write(|connection| {
            snapshots::write(connection, commit, mark, scaling, &dropped)?;
            record.as_ref().map_or(Ok(()), |record| rounds::write(connection, record))
        })?;
        self.retention = retention;
        if let Some(checkpointer) = &mut self.checkpointer {
            let scaling = commit.scaling.as_ref().map_or(0, Vec::len);
            checkpointer.wrote(bytes + scaling as u64);
        }
        Ok(())
    }

    fn node_number(&mut self, name: &str, most: u32) -> Result<NodeId, StoreError> {
        let known = nodes::number_of(&self.view.connection, name);
        if let Some(number) = known.map_err(|error| failed(&self.view.path, error))? {
            return Ok(number);
        }
        let next = nodes::next_number(&self.view.connection);
        let number = next.map_err(|error| failed(&self.view.path, error))?;
        if number >= most {
            return Err(StoreError::TooManyNodes { name: name.to_owned(), most });
        }
        let node = nodes::new_node(number, name);
        let entry = Draft {
            at_ms: node.first_seen_ms,
            actor: "server".to_owned(),
            action: "join".to_owned(),
            subject: name.to_owned(),
            details: format!("a new node, number {number}"),
        };
        self.write_with(&entry, |connection| nodes::insert(connection, &node))?;
        Ok(number)
    }

    fn save_nodes(&mut self, nodes: &[NodeRecord]) -> Result<(), StoreError> {
        let mut unknown = None;
        let written = self.write(|connection| {
            for node in nodes {
                if !nodes::update(connection, node)? {
                    unknown = Some(node);
                    return Err(rusqlite::Error::QueryReturnedNoRows);
                }
            }
            Ok(())
        });
        let Some(NodeRecord { number, name, .. }) = unknown else { return written };
        Err(StoreError::NoSuchNode {
            path: self.view.path.clone(),
            number: *number,
            name: name.clone(),
        })
    }

    fn decide(&mut self, change: &Change, entry: &Draft) -> Result<(), StoreError> {
        self.store_decision(change, entry)
    }

    fn snapshots(&self) -> Vec<Snapshot> {
        self.retention.snapshots()
    }

    fn roll_back(
        &mut self,
        to: Target,
        actor: &str,
        at_ms: u64,
        check: CheckState<'_>,
    ) -> Result<RolledBack, StoreError> {
        self.set_back(to, (actor, at_ms), check)
    }

    fn audit(&self, from: Option<u64>, most: usize) -> Result<(Vec<Entry>, u64), StoreError> {
        let latest = self.chain.number;
        let from = from.unwrap_or((latest + 1).saturating_sub(most as u64));
        Ok((self.view.audit(from, most)?, latest))
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.view.path)
    }
}

impl Deref for Store {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::warn!(%error, "the store's log could not be copied into it; nothing is lost");
        }
    }
}

fn writer(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    schema::distrust(&connection)?;
    // The checkpointer does that.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    Ok(connection)
}

fn seal_of_run(run: &Run) -> i64 {
    Seal::default().bytes(run.id.as_bytes()).bytes(run.learning.as_bytes()).finish()
}

fn failed(path: &Path, error: rusqlite::Error) -> StoreError {
    use rusqlite::Error::{
        FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error,
    };
    let path = path.to_owned();
    match (error.sqlite_error_code(), &error) {
        (Some(ErrorCode::DiskFull), _) => StoreError::Full { path },
        (Some(ErrorCode::NotADatabase), _) => {
            StoreError::NotOurs { path, reason: error.to_string() }
        }
        (Some(ErrorCode::DatabaseCorrupt), _)
        | (
            _,
            FromSqlConversionFailure(..)
            | IntegralValueOutOfRange(..)
            | InvalidColumnType(..)
            | Utf8Error(..),
        ) => StoreError::Damaged { path, what: error.to_string() },
        _ => StoreError::Unusable { path, source: error.into() },
    }
}

#[cfg(test)]
mod tests;
