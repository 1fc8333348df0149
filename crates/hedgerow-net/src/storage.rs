//! [`Store`]: where a server keeps its run, so that it can be killed at any moment. SQLite with a
//! write-ahead log: a round is one transaction, and its commit waits for no disk unless it has to
//! outlive a loss of power. Whoever wants to look while the server runs opens a [`View`].

use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hedgerow::NodeId;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior};
use serde::{Deserialize, Serialize};

use crate::file::{FileError, Lock};
use history::Record;

mod checkpointer;
pub mod history;
mod nodes;
mod schema;
mod seal;

use checkpointer::Checkpointer;
pub use nodes::NodeRecord;
use seal::{Seal, count, error_sum, stored};

/// What a committed round survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// The end of the process, however it comes. After a loss of power the latest rounds may be
    /// missing; what is there is whole.
    #[default]
    Kill,
    /// A loss of power too. Every commit waits for the disk.
    PowerLoss,
}

/// What a store is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Identity of the run.
    pub id: String,
    /// What is learned and how, as [`crate::Plan::to_json`] writes it.
    pub learning: String,
}

/// Where a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// The round that is open.
    pub round: u64,
    /// The server half.
    pub server: Vec<u8>,
    /// The server's part of the scaling, where there is one.
    pub scaling: Option<Vec<u8>>,
    /// What the server has counted.
    pub totals: Vec<u8>,
}

/// What is stored when a round closes, all of it or nothing.
#[derive(Debug, Clone, Copy)]
pub struct Commit<'a> {
    /// The round that is open now.
    pub round: u64,
    /// The server half.
    pub server: &'a [u8],
    /// The server's part of the scaling, where it has changed.
    pub scaling: Option<&'a [u8]>,
    /// What the server has counted.
    pub totals: &'a [u8],
    /// What is to be remembered of the round that closed; none if only the scaling moved on.
    pub record: Option<&'a Record>,
}

/// Why a store can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The server is started twice.
    #[error("{}: another server is using it", path.display())]
    InUse {
        /// Which.
        path: PathBuf,
    },
    /// There is none.
    #[error("{}: there is no such store", path.display())]
    Missing {
        /// Which.
        path: PathBuf,
    },
    /// Another program's file, or one of ours whose beginning is lost.
    #[error("{}: not a store of hedgerow: {reason}", path.display())]
    NotOurs {
        /// Which.
        path: PathBuf,
        /// What it is instead.
        reason: String,
    },
    /// From the future.
    #[error("{}: written by a newer hedgerow: format {found}, this one knows up to {newest}", path.display())]
    Newer {
        /// Which.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest that is known.
        newest: i64,
    },
    /// Not what was written. It is left as it is.
    #[error("{}: damaged: {what}", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// In what way.
        what: String,
    },
    /// A log without its store: a new store would swallow it.
    #[error("{}: missing, but its log {} is there: bring the store back, or move the log away", path.display(), log.display())]
    LogAlone {
        /// The store.
        path: PathBuf,
        /// The log.
        log: PathBuf,
    },
    /// The disk is full. Nothing of what was to be stored is.
    #[error("{}: no room left on the disk; nothing was stored, and it can be tried again", path.display())]
    Full {
        /// Which.
        path: PathBuf,
    },
    /// The system or SQLite won't.
    #[error("{}: {source}", path.display())]
    Unusable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// A file beside it.
    #[error(transparent)]
    File(#[from] FileError),
    /// A store is of one run.
    #[error("{}: already has the run {run}", path.display())]
    HasRun {
        /// Which.
        path: PathBuf,
        /// The run.
        run: String,
    },
    /// One node too many.
    #[error("node {name:?} would be one more than the {most} that a run may have")]
    TooManyNodes {
        /// Who came last.
        name: String,
        /// How many there may be.
        most: u32,
    },
    /// Nobody of that name and number has joined.
    #[error("{}: there is no node {number} named {name:?}", path.display())]
    NoSuchNode {
        /// Which.
        path: PathBuf,
        /// Its number.
        number: NodeId,
        /// Its name.
        name: String,
    },
}

/// How long a statement waits for another's to end; only checkpoints are ever in its way.
const PATIENCE: Duration = Duration::from_secs(10);

/// A store to look at; several can look while a server writes.
#[derive(Debug)]
pub struct View {
    connection: Connection,
    path: PathBuf,
    run: Option<Run>,
}

/// The store of a running server, which alone may write. All that can be asked of a [`View`] can be
/// asked of it.
#[derive(Debug)]
pub struct Store {
    // Closes before the lock is given back.
    view: View,
    checkpointer: Option<Checkpointer>,
    _lock: Lock,
}

impl View {
    /// Opens a store, and refuses one that is damaged, newer or no store at all. Nothing is
    /// written.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        match path.metadata() {
            Ok(found) if found.is_file() && found.len() == 0 => {
                let reason = "it is empty; remove it if nothing was in it".to_owned();
                return Err(StoreError::NotOurs { path: path.to_owned(), reason });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::Missing { path: path.to_owned() });
            }
            // SQLite says best what else may be wrong with it.
            _ => {}
        }
        let failed = |error| failed(path, error);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.busy_timeout(PATIENCE).map_err(failed)?;
        schema::check(&connection, path)?;
        Self::new(connection, path)
    }

    fn new(connection: Connection, path: &Path) -> Result<Self, StoreError> {
        let mut view = Self { connection, path: path.to_owned(), run: None };
        view.run = view.find_run()?;
        Ok(view)
    }

    /// What it is of; none if nothing has begun.
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

    /// Where the run is; none if no round has been stored yet.
    pub fn load(&self) -> Result<Option<Saved>, StoreError> {
        // One statement, so that both are of one moment although a server may be writing. Not
        // joined by their ids: damage to one of them would look as if there were no scaling.
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
                self.expect(checksum, node.seal(), || format!("node {}", node.number))?;
                Ok(node)
            })
            .collect()
    }

    /// What is remembered of the run, by round: the first and the latest, and between them at most
    /// so many that they are about as far from each other.
    pub fn history(&self, most: usize) -> Result<Vec<Record>, StoreError> {
        let read =
            history::read(&self.connection, most).map_err(|error| failed(&self.path, error))?;
        read.into_iter()
            .map(|(record, checksum)| {
                let seal = record.seal();
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
    /// Opens a store, or makes one. One that is damaged, newer, another program's or another
    /// server's is refused and left as it is.
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

    /// A store to look at; see [`View::open`].
    pub fn read(path: &Path) -> Result<View, StoreError> {
        View::open(path)
    }

    /// Says what the store is of, once.
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

    /// Stores a round, all of it or nothing: after an error the store is as it was, and can be
    /// tried again.
    pub fn commit(&mut self, commit: &Commit<'_>) -> Result<(), StoreError> {
        let Commit { round, server, scaling, totals, record } = *commit;
        self.write(|connection| {
            let sql = "INSERT OR REPLACE INTO state (id, round, server, totals, checksum) VALUES (1, ?1, ?2, ?3, ?4)";
            let seal = seal_of_state(round, server, totals);
            connection.prepare_cached(sql)?.execute((stored(round), server, totals, seal))?;
            if let Some(scaling) = scaling {
                let sql = "INSERT OR REPLACE INTO scaling (id, server, checksum) VALUES (1, ?1, ?2)";
                connection.prepare_cached(sql)?.execute((scaling, seal_of_scaling(scaling)))?;
            }
            record.map_or(Ok(()), |record| history::write(connection, record))
        })?;
        if let Some(checkpointer) = &mut self.checkpointer {
            let bytes = server.len() + scaling.map_or(0, <[u8]>::len) + totals.len();
            checkpointer.wrote(bytes as u64);
        }
        Ok(())
    }

    /// The number of a node, which it gets when it first joins; a run has at most so many nodes.
    pub fn node_number(&mut self, name: &str, most: u32) -> Result<NodeId, StoreError> {
        let known = nodes::number_of(&self.view.connection, name);
        if let Some(number) = known.map_err(|error| failed(&self.view.path, error))? {
            return Ok(number);
        }
        let next = nodes::next_number(&self.view.connection);
        let number = next.map_err(|error| failed(&self.view.path, error))?;
        if number >= most {
            return Err(StoreError::TooManyNodes { name: name.to_owned(), most });
        }
        self.write(|connection| nodes::insert(connection, &NodeRecord::new(number, name)))?;
        Ok(number)
    }

    /// Stores what is known of nodes that have joined, all of it or nothing.
    pub fn save_nodes(&mut self, nodes: &[NodeRecord]) -> Result<(), StoreError> {
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

    /// Brings everything from the log into the store and closes it. So does dropping it, but then
    /// nobody hears of what went wrong.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.finish().map_err(|error| failed(&self.view.path, error))
    }

    fn finish(&mut self) -> rusqlite::Result<()> {
        let Some(checkpointer) = self.checkpointer.take() else { return Ok(()) };
        checkpointer.stop();
        checkpointer::checkpoint(&self.view.connection, "TRUNCATE").map(drop)
    }

    /// One transaction, which nobody sees a part of.
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

impl Deref for Store {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::warn!(%error, "the store could not be tidied up; its log has everything");
        }
    }
}

fn writer(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    schema::distrust(&connection)?;
    // The checkpointer sees to it.
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
        _ => StoreError::Unusable { path, source: error },
    }
}

#[cfg(test)]
mod tests;
