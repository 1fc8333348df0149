//! The table of nodes.

use std::time::{SystemTime, UNIX_EPOCH};

use hedgerow::NodeId;
use rusqlite::{Connection, OptionalExtension, params};

use super::decisions::{NEXT_NODE, fact, write_fact};
use super::seal::{Seal, count, error_sum, stored};
use crate::coordinator::records::NodeRecord;

/// The record of a node that joins now.
pub(super) fn new_node(number: NodeId, name: &str) -> NodeRecord {
    let now = unix_ms();
    let name = name.to_owned();
    NodeRecord { number, name, first_seen_ms: now, last_seen_ms: now, ..NodeRecord::default() }
}

/// The time for people.
pub(super) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

/// Checksum of a row. Without a certificate it is that of the formats before.
pub(super) fn seal(node: &NodeRecord) -> i64 {
    let seal = Seal::default().number(node.number.into()).bytes(node.name.as_bytes());
    let seal = counts(node).into_iter().fold(seal, Seal::number).real(node.squared_error);
    let certificate = &node.certificate;
    if certificate.is_empty() { seal.finish() } else { seal.bytes(certificate).finish() }
}

fn counts(node: &NodeRecord) -> [i64; 8] {
    let NodeRecord {
        first_seen_ms,
        last_seen_ms,
        uploads,
        refused,
        late,
        samples,
        bytes_up,
        bytes_down,
        ..
    } = *node;
    [first_seen_ms, last_seen_ms, uploads, refused, late, samples, bytes_up, bytes_down].map(stored)
}

pub(super) fn read(connection: &Connection) -> rusqlite::Result<Vec<(NodeRecord, i64)>> {
    let mut statement = connection.prepare_cached("SELECT * FROM nodes ORDER BY number")?;
    let has_certificates = statement.column_index("certificate").is_ok();
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
            certificate: if has_certificates { row.get("certificate")? } else { Vec::new() },
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
    let after_last: NodeId = statement.query_row([], |row| row.get(0))?;
    // Numbers of removed nodes are not given again.
    let kept = fact(connection, NEXT_NODE)?.and_then(|next| next.parse().ok());
    Ok(after_last.max(kept.unwrap_or(0)))
}

pub(super) fn insert(connection: &Connection, node: &NodeRecord) -> rusqlite::Result<()> {
    let sql = "INSERT INTO nodes (number, name, first_seen_ms, last_seen_ms, uploads, refused, late, samples, \
               bytes_up, bytes_down, squared_error, certificate, checksum) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    write(connection, sql, node).map(drop)
}

/// Removes a node; returns whether there is such a node.
pub(super) fn delete(
    connection: &Connection,
    number: NodeId,
    name: &str,
) -> rusqlite::Result<bool> {
    let next = next_number(connection)?;
    write_fact(connection, NEXT_NODE, Some(&next.to_string()))?;
    let sql = "DELETE FROM nodes WHERE number = ?1 AND name = ?2";
    Ok(connection.execute(sql, (number, name))? > 0)
}

/// Returns whether there is such a node.
pub(super) fn update(connection: &Connection, node: &NodeRecord) -> rusqlite::Result<bool> {
    let sql = "UPDATE nodes SET first_seen_ms = ?3, last_seen_ms = ?4, uploads = ?5, refused = ?6, late = ?7, \
               samples = ?8, bytes_up = ?9, bytes_down = ?10, squared_error = ?11, \
               certificate = ?12, checksum = ?13 \
               WHERE number = ?1 AND name = ?2";
    Ok(write(connection, sql, node)? > 0)
}

fn write(connection: &Connection, sql: &str, node: &NodeRecord) -> rusqlite::Result<usize> {
    let [first, last, uploads, refused, late, samples, up, down] = counts(node);
    let NodeRecord { number, name, squared_error, certificate, .. } = node;
    let seal = seal(node);
    connection.prepare_cached(sql)?.execute(params![
        number,
        name,
        first,
        last,
        uploads,
        refused,
        late,
        samples,
        up,
        down,
        squared_error,
        certificate,
        seal
    ])
}
