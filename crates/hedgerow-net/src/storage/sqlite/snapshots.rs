//! The tables of snapshots: states of rounds, and the scalings that they share.

use rusqlite::{Connection, OptionalExtension, Row};

use super::retention::{Dropped, Stored};
use super::seal::{Seal, count, stored};
use crate::coordinator::records::{Commit, Saved};

/// A state with its checksums: as they were written, and as they are.
pub(super) struct Found {
    pub(super) saved: Saved,
    /// Of the state.
    pub(super) state: (i64, i64),
    /// Of the scaling, if it has one. None was written if its row is missing.
    pub(super) scaling: Option<(Option<i64>, i64)>,
}

struct Head {
    round: u64,
    at_ms: u64,
    generation: i64,
    scaling: Option<i64>,
}

fn seal(head: &Head, server: &[u8], totals: &[u8]) -> i64 {
    let seal = Seal::default().number(stored(head.round)).number(stored(head.at_ms));
    let seal = seal.number(head.generation).number(head.scaling.unwrap_or(-1));
    seal.bytes(server).bytes(totals).finish()
}

fn seal_of_scaling(scaling: &[u8]) -> i64 {
    Seal::default().bytes(scaling).finish()
}

/// What a store has, by round.
pub(super) fn list(connection: &Connection) -> rusqlite::Result<Vec<Stored>> {
    let sql = "SELECT round, at_ms, length(snapshots.server) + length(totals) AS bytes, \
               scaling, length(scalings.server) AS scaling_bytes \
               FROM snapshots LEFT JOIN scalings ON scalings.id = scaling ORDER BY round";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| {
        let scaling: Option<i64> = row.get("scaling")?;
        let bytes: Option<i64> = row.get("scaling_bytes")?;
        let bytes_of = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        Ok(Stored {
            round: count(row, "round")?,
            at_ms: count(row, "at_ms")?,
            bytes: bytes_of(row.get("bytes")?),
            scaling: scaling.map(|id| (id, bytes.map_or(0, bytes_of))),
        })
    })?;
    rows.collect()
}

/// A state: that in which `round` was open, or the latest.
pub(super) fn read(connection: &Connection, round: Option<u64>) -> rusqlite::Result<Option<Found>> {
    // One statement reads everything at one moment, although a server may be writing.
    let sql = "SELECT round, at_ms, generation, scaling, snapshots.server, totals, \
               snapshots.checksum, scalings.server AS scaling_server, \
               scalings.checksum AS scaling_checksum \
               FROM snapshots LEFT JOIN scalings ON scalings.id = scaling \
               WHERE ?1 IS NULL OR round = ?1 ORDER BY round DESC LIMIT 1";
    let found = |row: &Row<'_>| {
        let head = Head {
            round: count(row, "round")?,
            at_ms: count(row, "at_ms")?,
            generation: row.get("generation")?,
            scaling: row.get("scaling")?,
        };
        let (server, totals): (Vec<u8>, Vec<u8>) = (row.get("server")?, row.get("totals")?);
        let scaling: Option<Vec<u8>> = row.get("scaling_server")?;
        let (written, is) = (row.get("checksum")?, seal(&head, &server, &totals));
        let written_scaling: Option<i64> = row.get("scaling_checksum")?;
        let is_scaling = scaling.as_deref().map_or(0, seal_of_scaling);
        Ok(Found {
            state: (written, is),
            scaling: head.scaling.map(|_| (written_scaling, is_scaling)),
            saved: Saved { round: head.round, server, scaling, totals },
        })
    };
    connection.prepare_cached(sql)?.query_row([round.map(stored)], found).optional()
}

/// A state as format 1 has it.
pub(super) fn read_format_1(connection: &Connection) -> rusqlite::Result<Option<Found>> {
    let sql = "SELECT round, state.server, totals, state.checksum, scaling.server AS scaling, \
               scaling.checksum AS seal FROM state LEFT JOIN scaling ON TRUE";
    let found = |row: &Row<'_>| {
        let (round, server, totals): (_, Vec<u8>, Vec<u8>) =
            (count(row, "round")?, row.get("server")?, row.get("totals")?);
        let scaling: Option<Vec<u8>> = row.get("scaling")?;
        let is = seal_of_format_1(round, &server, &totals);
        let is_scaling = scaling.as_deref().map(seal_of_scaling);
        let written: Option<i64> = row.get("seal")?;
        Ok(Found {
            state: (row.get("checksum")?, is),
            scaling: is_scaling.map(|is| (written, is)),
            saved: Saved { round, server, scaling, totals },
        })
    };
    connection.query_row(sql, [], found).optional()
}

fn seal_of_format_1(round: u64, server: &[u8], totals: &[u8]) -> i64 {
    Seal::default().number(stored(round)).bytes(server).bytes(totals).finish()
}

/// After a migration from format 1: the checksums of today. A state that was damaged before keeps
/// its wrong one.
pub(super) fn seal_again(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "SELECT round, at_ms, scaling, server, totals, checksum FROM snapshots";
    let found = connection.query_row(sql, [], |row| {
        let (round, at_ms) = (count(row, "round")?, count(row, "at_ms")?);
        let head = Head { round, at_ms, generation: 0, scaling: row.get("scaling")? };
        let (server, totals): (Vec<u8>, Vec<u8>) = (row.get("server")?, row.get("totals")?);
        let is_intact = row.get::<_, i64>("checksum")? == seal_of_format_1(round, &server, &totals);
        Ok(is_intact.then(|| (round, seal(&head, &server, &totals))))
    });
    if let Some(Some((round, seal))) = found.optional()? {
        let sql = "UPDATE snapshots SET checksum = ?2 WHERE round = ?1";
        connection.execute(sql, (stored(round), seal))?;
    }
    Ok(())
}

/// Writes a state and deletes what is not kept any more.
pub(super) fn write(
    connection: &Connection,
    commit: &Commit,
    (generation, at_ms): (i64, u64),
    scaling: Option<i64>,
    dropped: &Dropped,
) -> rusqlite::Result<()> {
    let Commit { round, server, totals, .. } = commit;
    if let (Some(bytes), Some(id)) = (&commit.scaling, scaling) {
        let sql = "INSERT INTO scalings (id, server, checksum) VALUES (?1, ?2, ?3)";
        connection.prepare_cached(sql)?.execute((id, bytes, seal_of_scaling(bytes)))?;
    }
    // First, so that the new state can take the room.
    drop_all(connection, dropped)?;
    let sql = "INSERT OR REPLACE INTO snapshots \
               (round, at_ms, generation, scaling, server, totals, checksum) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let head = Head { round: *round, at_ms, generation, scaling };
    let seal = seal(&head, server, totals);
    let (round, at_ms) = (stored(*round), stored(at_ms));
    let values = (round, at_ms, generation, scaling, server, totals, seal);
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

/// Marks the latest state as of this opening. A damaged one keeps its wrong checksum.
pub(super) fn stamp(connection: &Connection, generation: i64) -> rusqlite::Result<()> {
    let sql = "SELECT round, at_ms, generation, scaling, server, totals, checksum FROM snapshots \
               ORDER BY round DESC LIMIT 1";
    let found = connection.query_row(sql, [], |row| {
        let mut head = Head {
            round: count(row, "round")?,
            at_ms: count(row, "at_ms")?,
            generation: row.get("generation")?,
            scaling: row.get("scaling")?,
        };
        let (server, totals): (Vec<u8>, Vec<u8>) = (row.get("server")?, row.get("totals")?);
        let is_intact = row.get::<_, i64>("checksum")? == seal(&head, &server, &totals);
        head.generation = generation;
        Ok(is_intact.then(|| (head.round, seal(&head, &server, &totals))))
    });
    if let Some(Some((round, seal))) = found.optional()? {
        let sql = "UPDATE snapshots SET generation = ?2, checksum = ?3 WHERE round = ?1";
        connection.execute(sql, (stored(round), generation, seal))?;
    }
    Ok(())
}

pub(super) fn drop_all(connection: &Connection, dropped: &Dropped) -> rusqlite::Result<()> {
    for round in &dropped.rounds {
        let sql = "DELETE FROM snapshots WHERE round = ?1";
        connection.prepare_cached(sql)?.execute([stored(*round)])?;
    }
    for id in &dropped.scalings {
        connection.prepare_cached("DELETE FROM scalings WHERE id = ?1")?.execute([id])?;
    }
    Ok(())
}
