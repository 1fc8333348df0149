//! How a store is opened and closed, so that a mixture of two stores is seen.
//!
//! A store is a file and, while a server writes it or after it was killed, a log beside it
//! (`-wal`). Copies and moves can tear the two apart, and SQLite doesn't notice: it takes the pages
//! of whatever log has the right name. So every opening draws a random number, the generation. It
//! is in the file itself before the log gets its first page, in every state that is committed
//! (which the log has), and in a small file beside the store (`.mark`).
//!
//! - A log of another generation than the file is refused ([`check_log`]).
//! - A file that was being written and has no log was copied without it, or its log was removed.
//! - A file of another generation than the mark was put in the place of the one that was here.
//!
//! In the last two cases the store is whole, but rounds that nodes know may be missing: the run
//! gets a new epoch, as after a rollback, and the operator is told.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};

use super::seal::Seal;
use super::{checkpointer, decisions, failed, schema, snapshots};
use crate::audit::Draft;
use crate::file::{Access, read_whole, with_suffix, write_whole};
use crate::storage::StoreError;

/// How a store was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// As it was left.
    AsLeft,
    /// Another file than the one that was opened here before.
    Replaced,
    /// It was being written, and its log is missing.
    WithoutLog,
}

impl Condition {
    /// What an operator should know.
    pub fn warning(self) -> Option<&'static str> {
        match self {
            Self::AsLeft => None,
            Self::Replaced => Some(
                "the store is another one than that which was here before: nodes go on from its \
                 round; put a backup back with `hedgerow admin restore`, which keeps the store before",
            ),
            Self::WithoutLog => Some(
                "the store was copied while a server wrote it, without its log (-wal), or its log \
                 was removed: the latest rounds may be missing, and nodes go on from its round; \
                 make copies with `hedgerow admin backup`",
            ),
        }
    }
}

/// The row of the latest opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Opening {
    generation: i64,
    /// That of the opening before.
    before: i64,
    is_open: bool,
}

/// The longest mark.
const MARK_BYTES: u64 = 64;

/// Whether a log is there, even an empty one.
pub(super) fn has_log(path: &Path) -> bool {
    with_suffix(path, "-wal").exists()
}

/// Refuses a log that belongs to another store. Nothing is changed.
pub(super) fn check_log(path: &Path) -> Result<(), StoreError> {
    let log = with_suffix(path, "-wal");
    let is_empty = log.metadata().map_or(true, |log| log.len() == 0);
    if is_empty || !path.exists() {
        return Ok(());
    }
    // What can't be read here is reported when the whole store is checked.
    let read = |connection: rusqlite::Result<Connection>| connection.and_then(|c| Marks::read(&c));
    let Ok(Some(file)) = read(without_log(path)) else { return Ok(()) };
    let is_same = match read(with_log(path)) {
        Ok(Some(Marks { opening, state: Ok(state), format, schema })) => {
            let Opening { generation, before, .. } = opening;
            [generation, before].contains(&file.opening.generation)
                && state.is_none_or(|state| state == generation)
                && (file.format != format || file.schema == schema)
        }
        // The pages of the log make a mixture.
        _ => false,
    };
    if is_same { Ok(()) } else { Err(StoreError::OtherLog { path: path.to_owned(), log }) }
}

/// What shows whether file and log belong together.
struct Marks {
    opening: Opening,
    /// The generation of the latest state. In a file without its log, the table may be torn.
    state: rusqlite::Result<Option<i64>>,
    format: i64,
    /// Other programs that copy stores change it.
    schema: i64,
}

impl Marks {
    fn read(connection: &Connection) -> rusqlite::Result<Option<Self>> {
        let format = schema::version(connection)?;
        if format < schema::WITH_SNAPSHOTS {
            return Ok(None);
        }
        let sql = "SELECT generation FROM snapshots ORDER BY round DESC LIMIT 1";
        let state = connection.query_row(sql, [], |row| row.get(0)).optional();
        let schema = connection.pragma_query_value(None, "schema_version", |row| row.get(0))?;
        let opening = read(connection)?;
        Ok(opening.map(|opening| Self { opening, state, format, schema }))
    }
}

/// The file alone, as it is on the disk.
fn without_log(path: &Path) -> rusqlite::Result<Connection> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                uri.push(char::from(*byte));
            }
            other => uri.push_str(&format!("%{other:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    distrusted(Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)?)
}

fn with_log(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    distrusted(Connection::open_with_flags(path, flags)?)
}

fn distrusted(connection: Connection) -> rusqlite::Result<Connection> {
    schema::distrust(&connection)?;
    Ok(connection)
}

/// Marks a store as open, and says how it was found. Returns the generation of this opening.
pub(super) fn open(
    connection: &mut Connection,
    path: &Path,
    had_log: bool,
) -> Result<(i64, Condition), StoreError> {
    let failed = |error| failed(path, error);
    let known = read(connection).map_err(failed)?;
    let mark = read_mark(path);
    let condition = match known {
        _ if mark.is_some_and(|mark| known.is_none_or(|known| known.generation != mark)) => {
            Condition::Replaced
        }
        Some(Opening { is_open: true, .. }) if !had_log => Condition::WithoutLog,
        _ => Condition::AsLeft,
    };
    // Everything is in the file before the generation changes, and the generation before the log
    // gets another page.
    connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
        .and_then(|()| checkpointer::checkpoint(connection, "TRUNCATE"))
        .map_err(failed)?;
    let generation = stamp(connection, true, condition).map_err(failed)?;
    checkpointer::checkpoint(connection, "TRUNCATE").map_err(failed)?;
    write_mark(path, generation)?;
    Ok((generation, condition))
}

/// Draws a new generation. A store that is not as it was left gets a new epoch.
pub(super) fn stamp(
    connection: &mut Connection,
    is_open: bool,
    condition: Condition,
) -> rusqlite::Result<i64> {
    let before = read(connection)?.map_or(0, |known| known.generation);
    let generation = random(connection)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    write(&transaction, Opening { generation, before, is_open })?;
    snapshots::stamp(&transaction, generation)?;
    if condition != Condition::AsLeft {
        let epoch = draw_epoch(&transaction)?;
        let entry = Draft {
            at_ms: super::nodes::unix_ms(),
            actor: "server".to_owned(),
            action: "found".to_owned(),
            subject: "store".to_owned(),
            details: format!("{}; epoch {epoch}", condition.warning().unwrap_or_default()),
        };
        let entry = decisions::chain(&transaction)?.next(&entry);
        decisions::append(&transaction, &entry)?;
    }
    transaction.commit()?;
    Ok(generation)
}

/// Marks a store as closed.
pub(super) fn close(connection: &Connection, generation: i64) -> rusqlite::Result<()> {
    let before = read(connection)?.map_or(0, |known| known.before);
    write(connection, Opening { generation, before, is_open: false })
}

/// A new epoch: nodes that knew the run before take the next broadcast whatever its round.
pub(super) fn draw_epoch(connection: &Connection) -> rusqlite::Result<u64> {
    // JSON keeps numbers of 53 bits.
    let epoch = random(connection)?.unsigned_abs() >> 11 | 1;
    decisions::write_fact(connection, decisions::EPOCH, Some(&epoch.to_string()))?;
    Ok(epoch)
}

fn random(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT random()", [], |row| row.get(0))
}

fn read(connection: &Connection) -> rusqlite::Result<Option<Opening>> {
    let sql = "SELECT generation, before, is_open, checksum FROM opening";
    let found = connection.query_row(sql, [], |row| {
        let opening =
            Opening { generation: row.get(0)?, before: row.get(1)?, is_open: row.get(2)? };
        Ok((opening, row.get::<_, i64>(3)?))
    });
    // A damaged row is none: the store is then not as it was left.
    Ok(found.optional()?.filter(|(opening, sum)| seal(opening) == *sum).map(|(opening, _)| opening))
}

fn write(connection: &Connection, opening: Opening) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO opening (id, generation, before, is_open, checksum) \
               VALUES (1, ?1, ?2, ?3, ?4)";
    let Opening { generation, before, is_open } = opening;
    connection.execute(sql, (generation, before, is_open, seal(&opening))).map(drop)
}

fn seal(Opening { generation, before, is_open }: &Opening) -> i64 {
    let seal = Seal::default().number(*generation).number(*before);
    seal.number((*is_open).into()).finish()
}

/// The generation that was opened here last. A mark that can't be read is none.
fn read_mark(path: &Path) -> Option<i64> {
    let bytes = read_whole(&with_suffix(path, ".mark"), MARK_BYTES).ok()?;
    std::str::from_utf8(&bytes).ok()?.trim().parse().ok()
}

pub(super) fn write_mark(path: &Path, generation: i64) -> Result<(), StoreError> {
    use std::io::Write;
    let mark = with_suffix(path, ".mark");
    Ok(write_whole(&mark, Access::Private, |file| writeln!(file, "{generation}"))?)
}
