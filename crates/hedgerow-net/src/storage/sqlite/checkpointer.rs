//! [`Checkpointer`]: a thread that copies the log into the store, so that commits don't have to.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use super::{failed, writer};
use crate::file::FileError;
use crate::storage::StoreError;

/// How often it copies the log.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);

/// It also copies the log when so many bytes were committed.
const WAKE_BYTES: u64 = 16 << 20;

/// Bytes in the log for each commit beside its content: whole pages, and the pages above them.
const COMMIT_BYTES: u64 = 12 << 10;

/// A log of so many bytes must start again from its beginning.
const LONG_LOG: u64 = 64 << 20;

/// A long log can start again only while nobody commits or reads: how often that is tried, and the
/// time between.
const RESTART_TRIES: u32 = 20;
const RESTART_PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Checkpointer {
    wake: SyncSender<()>,
    thread: JoinHandle<()>,
    /// Bytes committed since it was last woken.
    pending: u64,
}

impl Checkpointer {
    pub(super) fn start(path: &Path) -> Result<Self, StoreError> {
        let connection = writer(path).map_err(|error| failed(path, error))?;
        // Waiting for readers would delay commits.
        connection.busy_timeout(Duration::ZERO).map_err(|error| failed(path, error))?;
        let (wake, woken) = sync_channel(1);
        let thread = std::thread::Builder::new().name("checkpoints".to_owned());
        let thread = thread.spawn(move || run(&connection, &woken)).map_err(|source| {
            StoreError::File(FileError::Unwritable { path: path.to_owned(), source })
        })?;
        Ok(Self { wake, thread, pending: 0 })
    }

    /// Counts what was committed.
    pub(super) fn wrote(&mut self, bytes: u64) {
        self.pending += bytes + COMMIT_BYTES;
        if self.pending >= WAKE_BYTES {
            self.pending = 0;
            // It is awake already if nothing more fits.
            _ = self.wake.try_send(());
        }
    }

    pub(super) fn stop(self) {
        drop(self.wake);
        // A panic of it has been reported, and the store can be closed anyway.
        _ = self.thread.join();
    }
}

fn run(connection: &Connection, woken: &Receiver<()>) {
    while woken.recv_timeout(CHECKPOINT_INTERVAL) != Err(RecvTimeoutError::Disconnected) {
        match shorten(connection, LONG_LOG) {
            Ok(true) => {}
            Ok(false) => tracing::debug!("somebody reads the store, and its log grows meanwhile"),
            Err(error) => {
                tracing::warn!(%error, "the log could not be brought into the store; it is tried again");
            }
        }
    }
}

/// Copies what it can without blocking anyone. A log that has become long starts again, for which a
/// commit may have to wait a moment. Returns whether the log is short, or soon will be.
pub(super) fn shorten(connection: &Connection, long: u64) -> rusqlite::Result<bool> {
    let page: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    if checkpoint(connection, "PASSIVE")?.frames * u64::from(page) < long {
        return Ok(true);
    }
    for _ in 0..RESTART_TRIES {
        if checkpoint(connection, "RESTART")?.is_copied {
            return Ok(true);
        }
        std::thread::sleep(RESTART_PAUSE);
    }
    Ok(false)
}

/// What a checkpoint left.
pub(super) struct Log {
    /// Pages in the log.
    frames: u64,
    /// Whether nothing was in its way.
    is_copied: bool,
}

/// Copies the log into the store as far as others let it.
pub(super) fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<Log> {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    connection.prepare_cached(&sql)?.query_row([], |row| {
        let (busy, frames): (bool, i64) = (row.get(0)?, row.get(1)?);
        Ok(Log { frames: frames.max(0) as u64, is_copied: !busy })
    })
}
