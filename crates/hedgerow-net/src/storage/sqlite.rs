//! [`Store`]: a run in an SQLite file with a write-ahead log. The server can be killed at any
//! moment: a round is one transaction. A commit waits for the disk only if it has to survive a loss
//! of power. A [`View`] reads the file while a server writes it.

use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hedgerow::NodeId;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior};

use super::{Durability, Storage, StoreError};
use crate::coordinator::records::{Commit, NodeRecord, RoundRecord, Run, Saved};
use crate::file::{FileError, Lock};

mod checkpointer;
mod nodes;
mod rounds;
mod schema;
mod seal;

use checkpointer::Checkpointer;
pub use rounds::KEPT_WHOLE;
use seal::{Seal, count, stored};

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
        // One statement reads both at one moment, although a server may be writing. They are not
        // joined by their ids: a damaged id would look as if there were no scaling.
        let sql = "SELECT round, state.server, totals, state.checksum, scaling.server AS scaling, \
                   scaling.checksum AS seal FROM state LEFT JOIN scaling ON TRUE";
        let found = self.connection.query_row(sql, [], |row| {
            let (round, server, totals) =
                (count(row, "round")?, row.get("server")?, row.get("totals")?);
            let saved = Saved { round, server, scaling: row.get("scaling")?, totals };
            Ok((saved, row.get::<_, i64>("checksum")?, row.get::<_, Option<i64>>("seal")?))
        });
        let Some((saved, checksum, seal)) =
            found.optional().map_err(|error| failed(&self.path, error))?
        else {
            return Ok(None);
        };
        let Saved { round, server, scaling, totals } = &saved;
        self.expect(checksum, seal_of_state(*round, server, totals), || {
            format!("the state of round {round}")
        })?;
        if let (Some(scaling), Some(checksum)) = (scaling, seal) {
            self.expect(checksum, seal_of_scaling(scaling), || "the scaling".to_owned())?;
        }
        Ok(Some(saved))
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
        if written == found {
            return Ok(());
        }
        let what =
            format!("the checksum of {} is {found:08x}, and {written:08x} was written", what());
        Err(StoreError::Damaged { path: self.path.clone(), what })
    }
}

impl Store {
    /// Opens a store, or creates it. Fails without changing the file if it is damaged, newer,
    /// another program's, or in use by another server.
    pub fn open(path: &Path, durability: Durability) -> Result<Self, StoreError> {
        let lock = Lock::take(path).map_err(|error| match error {
            FileError::Busy { path } => StoreError::InUse { path },
            other => StoreError::File(other),
        })?;
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
        let checkpointer = Some(Checkpointer::start(path)?);
        Ok(Self { view: View::new(connection, path)?, checkpointer, _lock: lock })
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
        self.write(|connection| {
            let sql = "INSERT OR REPLACE INTO state (id, round, server, totals, checksum) \
                       VALUES (1, ?1, ?2, ?3, ?4)";
            let seal = seal_of_state(*round, server, totals);
            connection.prepare_cached(sql)?.execute((stored(*round), server, totals, seal))?;
            if let Some(scaling) = scaling {
                let sql =
                    "INSERT OR REPLACE INTO scaling (id, server, checksum) VALUES (1, ?1, ?2)";
                connection.prepare_cached(sql)?.execute((scaling, seal_of_scaling(scaling)))?;
            }
            record.as_ref().map_or(Ok(()), |record| rounds::write(connection, record))
        })?;
        if let Some(checkpointer) = &mut self.checkpointer {
            let bytes = server.len() + scaling.as_ref().map_or(0, Vec::len) + totals.len();
            checkpointer.wrote(bytes as u64);
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
        self.write(|connection| nodes::insert(connection, &nodes::new_node(number, name)))?;
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

fn seal_of_state(round: u64, server: &[u8], totals: &[u8]) -> i64 {
    Seal::default().number(stored(round)).bytes(server).bytes(totals).finish()
}

fn seal_of_scaling(scaling: &[u8]) -> i64 {
    Seal::default().bytes(scaling).finish()
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
