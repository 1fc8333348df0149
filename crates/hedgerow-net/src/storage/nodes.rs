//! The nodes of a run in its store.

use std::time::{SystemTime, UNIX_EPOCH};

use hedgerow::NodeId;
use rusqlite::{Connection, OptionalExtension, params};

use super::seal::{Seal, count, error_sum, stored};

/// A node as the server knows it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeRecord {
    /// Its number in the run.
    pub number: NodeId,
    /// Its name.
    pub name: String,
    /// When it first joined, in milliseconds since 1970.
    pub first_seen_ms: u64,
    /// When it was last heard of.
    pub last_seen_ms: u64,
    /// Uploads that were taken.
    pub uploads: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// Uploads that came late.
    pub late: u64,
    /// Samples that it has learned from.
    pub samples: u64,
    /// Sum of its squared errors, in the label's own unit.
    pub squared_error: f64,
    /// Bytes that it sent.
    pub bytes_up: u64,
    /// Bytes that it was sent.
    pub bytes_down: u64,
}

impl NodeRecord {
    /// One that joins now.
    pub(super) fn new(number: NodeId, name: &str) -> Self {
        let now =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
        let name = name.to_owned();
        Self { number, name, first_seen_ms: now, last_seen_ms: now, ..Self::default() }
    }

    fn counts(&self) -> [i64; 8] {
        let Self {
            first_seen_ms,
            last_seen_ms,
            uploads,
            refused,
            late,
            samples,
            bytes_up,
            bytes_down,
            ..
        } = *self;
        [first_seen_ms, last_seen_ms, uploads, refused, late, samples, bytes_up, bytes_down]
            .map(stored)
    }

    pub(super) fn seal(&self) -> i64 {
        let seal = Seal::default().number(self.number.into()).bytes(self.name.as_bytes());
        self.counts().into_iter().fold(seal, Seal::number).real(self.squared_error).finish()
    }
}

pub(super) fn read(connection: &Connection) -> rusqlite::Result<Vec<(NodeRecord, i64)>> {
    let mut statement = connection.prepare_cached("SELECT * FROM nodes ORDER BY number")?;
    let rows = statement.query_map([], |row| {
        let node = NodeRecord {
            number: row.get("number")?,
            name: row.get("name")?,
            first_seen_ms: count(row, "first_seen_ms")?,
            last_seen_ms: count(row, "last_seen_ms")?,
            uploads: count(row, "uploads")?,
            refused: count(row, "refused")?,
            late: count(row, "late")?,
            samples: count(row, "samples")?,
            squared_error: error_sum(row)?,
            bytes_up: count(row, "bytes_up")?,
            bytes_down: count(row, "bytes_down")?,
        };
        Ok((node, row.get("checksum")?))
    })?;
    rows.collect()
}

pub(super) fn number_of(connection: &Connection, name: &str) -> rusqlite::Result<Option<NodeId>> {
    let mut statement = connection.prepare_cached("SELECT number FROM nodes WHERE name = ?1")?;
    statement.query_row([name], |row| row.get(0)).optional()
}

pub(super) fn next_number(connection: &Connection) -> rusqlite::Result<NodeId> {
    let mut statement =
        connection.prepare_cached("SELECT coalesce(max(number) + 1, 0) FROM nodes")?;
    statement.query_row([], |row| row.get(0))
}

pub(super) fn insert(connection: &Connection, node: &NodeRecord) -> rusqlite::Result<()> {
    let sql = "INSERT INTO nodes (number, name, first_seen_ms, last_seen_ms, uploads, refused, late, samples, \
               bytes_up, bytes_down, squared_error, checksum) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    write(connection, sql, node).map(drop)
}

/// Says whether there is such a node.
pub(super) fn update(connection: &Connection, node: &NodeRecord) -> rusqlite::Result<bool> {
    let sql = "UPDATE nodes SET first_seen_ms = ?3, last_seen_ms = ?4, uploads = ?5, refused = ?6, late = ?7, \
               samples = ?8, bytes_up = ?9, bytes_down = ?10, squared_error = ?11, checksum = ?12 \
               WHERE number = ?1 AND name = ?2";
    Ok(write(connection, sql, node)? > 0)
}

fn write(connection: &Connection, sql: &str, node: &NodeRecord) -> rusqlite::Result<usize> {
    let [first, last, uploads, refused, late, samples, up, down] = node.counts();
    let (number, name, error, seal) = (node.number, &node.name, node.squared_error, node.seal());
    connection.prepare_cached(sql)?.execute(params![
        number, name, first, last, uploads, refused, late, samples, up, down, error, seal
    ])
}
