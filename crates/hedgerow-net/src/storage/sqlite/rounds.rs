//! The table of rounds: the newest [`KEPT_WHOLE`] rounds, and every hundredth of the older ones.

use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use super::seal::{Seal, count, error_sum, stored};
use crate::coordinator::records::RoundRecord;

/// How many of the newest rounds are all kept.
pub const KEPT_WHOLE: u64 = 100_000;

/// Older rounds are kept if their number is a multiple of this.
const KEPT_EVERY: u64 = 100;

/// Checksum of a row.
pub(super) fn seal(record: &RoundRecord) -> i64 {
    let seal = counts(record).into_iter().fold(Seal::default(), Seal::number);
    let seal = seal.real(record.squared_error).bytes(&vote_bytes(record));
    seal.number(record.selected.map_or(-1, i64::from)).finish()
}

fn counts(record: &RoundRecord) -> [i64; 8] {
    let RoundRecord {
        round,
        closed_at_ms,
        uploads,
        samples,
        late,
        refused,
        bytes_up,
        bytes_down,
        ..
    } = *record;
    [round, closed_at_ms, uploads, samples, late, refused, bytes_up, bytes_down].map(stored)
}

fn vote_bytes(record: &RoundRecord) -> Vec<u8> {
    record.votes.iter().flat_map(|votes| votes.to_le_bytes()).collect()
}

/// Writes a round and deletes those that need not be kept.
pub(super) fn write(connection: &Connection, record: &RoundRecord) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO history (round, closed_at_ms, uploads, samples, late, refused, bytes_up, \
               bytes_down, squared_error, selected, votes, checksum) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    let [round, closed, uploads, samples, late, refused, up, down] = counts(record);
    let (error, votes, seal) = (record.squared_error, vote_bytes(record), seal(record));
    connection.prepare_cached(sql)?.execute(params![
        round,
        closed,
        uploads,
        samples,
        late,
        refused,
        up,
        down,
        error,
        record.selected,
        votes,
        seal
    ])?;
    if record.round.is_multiple_of(KEPT_EVERY) {
        // A hundred at a time, so that most commits delete nothing.
        let end = record.round.saturating_sub(KEPT_WHOLE);
        let sql = "DELETE FROM history WHERE round > ?1 AND round < ?2 AND round % ?3 != 0";
        let begin = end.saturating_sub(KEPT_EVERY);
        connection.prepare_cached(sql)?.execute([begin, end, KEPT_EVERY].map(stored))?;
    }
    Ok(())
}

/// The number of the latest round.
pub(super) fn last(connection: &Connection) -> rusqlite::Result<Option<u64>> {
    let mut statement = connection.prepare_cached("SELECT max(round) FROM history")?;
    let last: Option<i64> = statement.query_row([], |row| row.get(0))?;
    Ok(last.and_then(|last| u64::try_from(last).ok()))
}

/// Deletes the rounds from this one on.
pub(super) fn go_back(connection: &Connection, to: u64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM history WHERE round >= ?1", [stored(to)]).map(drop)
}

/// Rounds with their checksums: all of them, or about `most`, evenly spaced and with the latest.
pub(super) fn read(
    connection: &Connection,
    most: usize,
) -> rusqlite::Result<Vec<(RoundRecord, i64)>> {
    let sql = "SELECT count(*), min(round), max(round) FROM history";
    let (rounds, first, last): (i64, Option<i64>, Option<i64>) =
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let (Some(first), Some(last)) = (first, last) else { return Ok(Vec::new()) };
    if usize::try_from(rounds).is_ok_and(|rounds| rounds <= most) {
        let mut statement = connection.prepare_cached("SELECT * FROM history ORDER BY round")?;
        return statement.query_map([], record_of)?.collect();
    }
    let mut nearest = connection
        .prepare_cached("SELECT * FROM history WHERE round <= ?1 ORDER BY round DESC LIMIT 1")?;
    let mut records: Vec<(RoundRecord, i64)> = Vec::with_capacity(most);
    for at in 0..most {
        // From the back, so that a single one is the latest.
        let from_last = (most - 1 - at) as f64 / most.saturating_sub(1).max(1) as f64;
        let target = last - (last.saturating_sub(first) as f64 * from_last) as i64;
        let found = nearest_to(&mut nearest, target)?;
        if let Some(found) = found
            && records.last().is_none_or(|(latest, _)| latest.round < found.0.round)
        {
            records.push(found);
        }
    }
    Ok(records)
}

fn nearest_to(
    statement: &mut CachedStatement<'_>,
    round: i64,
) -> rusqlite::Result<Option<(RoundRecord, i64)>> {
    statement.query_row([round], record_of).optional()
}

fn record_of(row: &Row<'_>) -> rusqlite::Result<(RoundRecord, i64)> {
    let votes = row.get_ref("votes")?.as_blob()?;
    let record = RoundRecord {
        round: count(row, "round")?,
        closed_at_ms: count(row, "closed_at_ms")?,
        uploads: count(row, "uploads")?,
        samples: count(row, "samples")?,
        squared_error: error_sum(row)?,
        selected: row.get("selected")?,
        // Where bytes are left over, the checksum shows it.
        votes: votes.as_chunks::<4>().0.iter().map(|votes| u32::from_le_bytes(*votes)).collect(),
        late: count(row, "late")?,
        refused: count(row, "refused")?,
        bytes_up: count(row, "bytes_up")?,
        bytes_down: count(row, "bytes_down")?,
    };
    Ok((record, row.get("checksum")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("schema.sql")).unwrap();
        connection
    }

    fn remember(connection: &Connection, rounds: impl IntoIterator<Item = u64>) {
        for round in rounds {
            write(connection, &RoundRecord { round, ..RoundRecord::default() }).unwrap();
        }
    }

    fn rounds(connection: &Connection, most: usize) -> Vec<u64> {
        read(connection, most).unwrap().iter().map(|(record, _)| record.round).collect()
    }

    #[test]
    fn old_rounds_are_thinned() {
        let connection = history();
        connection.execute_batch("BEGIN").unwrap();
        remember(&connection, 1..=KEPT_WHOLE + 750);
        let mut expected: Vec<u64> = (1..=7).map(|hundreds| 100 * hundreds).collect();
        expected.extend(701..=KEPT_WHOLE + 750);
        assert_eq!(rounds(&connection, usize::MAX), expected);
    }

    #[test]
    fn a_few_of_many_are_evenly_spread_and_end_with_the_latest() {
        let connection = history();
        assert!(rounds(&connection, 5).is_empty());
        remember(&connection, 11..=1011);
        assert_eq!(rounds(&connection, 5), [11, 261, 511, 761, 1011]);
        assert_eq!(rounds(&connection, 1), [1011]);
        assert!(rounds(&connection, 0).is_empty());
        assert_eq!(rounds(&connection, 1001).len(), 1001);
        // Where rounds are few and far between, each is told once.
        let connection = history();
        remember(&connection, (1..=10).chain([5000]));
        assert_eq!(rounds(&connection, 8), [1, 10, 5000]);
    }

    #[test]
    fn a_round_that_is_told_again_counts_once() {
        let connection = history();
        let first = RoundRecord {
            round: 4,
            votes: vec![3, 4],
            selected: Some(1),
            ..RoundRecord::default()
        };
        let second = RoundRecord { uploads: 9, squared_error: -0.0, ..first.clone() };
        for record in [&first, &second] {
            write(&connection, record).unwrap();
            assert_eq!(read(&connection, 9).unwrap(), [(record.clone(), seal(record))]);
        }
        assert_ne!(seal(&first), seal(&second));
        assert_eq!(seal(&read(&connection, 9).unwrap()[0].0), seal(&second));
    }
}
