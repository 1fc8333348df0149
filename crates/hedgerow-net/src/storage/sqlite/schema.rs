//! How a store is laid out: making one, knowing one, and bringing an older one up to date.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};

use super::{failed, snapshots};
use crate::file::{FileError, sync_folder, with_suffix};
use crate::storage::StoreError;

/// What SQLite files of this kind have in their header: `hdgr`.
const APPLICATION_ID: i32 = 0x6864_6772;

/// What brings a store from each format to the next; the first makes it.
const MIGRATIONS: &[Step] = &[
    Step { sql: include_str!("schema.sql"), after: |_| Ok(()) },
    Step { sql: include_str!("operations.sql"), after: snapshots::seal_again },
    Step { sql: include_str!("certificates.sql"), after: |_| Ok(()) },
];

/// The newest format.
pub(super) const NEWEST: i64 = MIGRATIONS.len() as i64;

/// The first format with snapshots in place of one state.
pub(super) const WITH_SNAPSHOTS: i64 = 2;

/// Brings a store to the next format.
#[derive(Clone, Copy)]
struct Step {
    sql: &'static str,
    /// What SQL can't do.
    after: fn(&Connection) -> rusqlite::Result<()>,
}

/// Makes an empty store. It appears when it is whole.
pub(super) fn create(path: &Path) -> Result<(), StoreError> {
    let unwritable =
        |source| StoreError::File(FileError::Unwritable { path: path.to_owned(), source });
    let log = with_suffix(path, "-wal");
    if log.metadata().is_ok_and(|log| log.len() > 0) {
        return Err(StoreError::LogAlone { path: path.to_owned(), log });
    }
    let beside = with_suffix(path, ".new");
    for left in ["", "-journal", "-wal", "-shm"] {
        match std::fs::remove_file(with_suffix(&beside, left)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unwritable(error)),
            _ => {}
        }
    }
    // SQLite gives its logs the access of their store.
    private_file(&beside).map_err(unwritable)?;
    make(&beside).map_err(|error| failed(path, error))?;
    std::fs::rename(&beside, path).and_then(|()| sync_folder(path)).map_err(unwritable)
}

/// An empty file that only its owner may read: what it will hold are models and names of nodes.
pub(super) fn private_file(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

fn make(path: &Path) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    take_steps(&mut connection, MIGRATIONS)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)
}

/// Brings a store that was [checked](check) to the newest format, in one transaction.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    take_steps(connection, MIGRATIONS)
}

fn take_steps(connection: &mut Connection, steps: &[Step]) -> rusqlite::Result<()> {
    let version = version(connection)?;
    let missing = steps.get(usize::try_from(version).unwrap_or(usize::MAX)..).unwrap_or_default();
    if missing.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for step in missing {
        transaction.execute_batch(step.sql)?;
        (step.after)(&transaction)?;
    }
    transaction.pragma_update(None, "user_version", steps.len() as i64)?;
    transaction.commit()
}

/// Refuses what is newer, damaged or something else.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |error| failed(path, error);
    distrust(connection).map_err(failed)?;
    let application: i32 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(failed)?;
    if application != APPLICATION_ID {
        let reason =
            format!("its application id is {application:#x}, and {APPLICATION_ID:#x} is needed");
        return Err(StoreError::NotOurs { path: path.to_owned(), reason });
    }
    let newest = NEWEST;
    let found = version(connection).map_err(failed)?;
    if found > newest {
        return Err(StoreError::Newer { path: path.to_owned(), found, newest });
    }
    let damaged = |what| StoreError::Damaged { path: path.to_owned(), what };
    let steps = usize::try_from(found).ok().and_then(|found| MIGRATIONS.get(..found));
    let Some(steps) = steps.filter(|steps| !steps.is_empty()) else {
        return Err(damaged(format!("there is no format {found}")));
    };
    let found: String =
        connection.pragma_query_value(None, "integrity_check", |row| row.get(0)).map_err(failed)?;
    if found != "ok" {
        return Err(damaged(found.replace('\n', " ")));
    }
    // Nothing but our own tables: what looks like one could be computed without end.
    let mut model = Connection::open_in_memory().map_err(failed)?;
    take_steps(&mut model, steps).map_err(failed)?;
    if layout(connection).map_err(failed)? != layout(&model).map_err(failed)? {
        return Err(damaged("its tables are not those of its format".to_owned()));
    }
    Ok(())
}

/// Files may come from anywhere: nothing in them is run.
pub(super) fn distrust(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.pragma_update(None, "cell_size_check", true)
}

/// The format of a store.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// What was made, and by which words.
fn layout(connection: &Connection) -> rusqlite::Result<Vec<(String, String, Option<String>)>> {
    let mut statement =
        connection.prepare("SELECT type, name, sql FROM sqlite_schema ORDER BY name")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_store_takes_the_steps_that_it_lacks_or_none() {
        let columns = |connection: &Connection| {
            let mut statement = connection.prepare("SELECT * FROM a").unwrap();
            (statement.column_count(), version(connection).unwrap(), statement.query([]).is_ok())
        };
        let step = |sql| Step { sql, after: |_| Ok(()) };
        let steps =
            ["CREATE TABLE a (x INTEGER)", "ALTER TABLE a ADD y REAL", "ALTER TABLE a ADD z REAL"]
                .map(step);
        let mut connection = Connection::open_in_memory().unwrap();
        take_steps(&mut connection, &steps[..1]).unwrap();
        assert_eq!(columns(&connection), (1, 1, true));
        let wrong = ["", "ALTER TABLE a ADD y REAL", "nonsense"].map(step);
        take_steps(&mut connection, &wrong).unwrap_err();
        assert_eq!(columns(&connection), (1, 1, true));
        for _ in 0..2 {
            take_steps(&mut connection, &steps).unwrap();
            assert_eq!(columns(&connection), (3, 3, true));
        }
    }
}
