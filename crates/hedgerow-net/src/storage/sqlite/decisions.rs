//! The tables of what operators decided: facts and standings of nodes. And the audit log.

use rusqlite::{Connection, OptionalExtension, Row};

use super::seal::{Seal, count, stored};
use crate::audit::{Chain, Entry, Hash};
use crate::coordinator::records::{Decisions, Standing, StandingRecord};

/// See [`Decisions::epoch`].
pub(super) const EPOCH: &str = "epoch";
/// `1` while the run is paused.
pub(super) const PAUSED: &str = "paused";
/// See [`Decisions::lists`].
pub(super) const LISTS: &str = "lists";
/// The number of the next new node, once a node was removed.
pub(super) const NEXT_NODE: &str = "next-node";
/// Before the key of a setting.
const SETTING: &str = "set.";

/// A row that can't be used.
pub(super) enum Bad {
    Sql(rusqlite::Error),
    /// The checksum that was written, that of the row, and what the row is of.
    Checksum(i64, i64, String),
    /// The checksum is right and the value is not.
    Value(String),
}

impl From<rusqlite::Error> for Bad {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

fn seal_of_fact(name: &str, value: &str) -> i64 {
    Seal::default().bytes(name.as_bytes()).bytes(value.as_bytes()).finish()
}

fn seal_of_standing(record: &StandingRecord) -> i64 {
    let StandingRecord { node, standing, reason, since_ms } = record;
    let texts = [node, standing.word(), reason];
    let seal = texts.iter().fold(Seal::default(), |seal, text| seal.bytes(text.as_bytes()));
    seal.number(stored(*since_ms)).finish()
}

/// All facts, by name.
fn facts(connection: &Connection) -> Result<Vec<(String, String)>, Bad> {
    let mut statement =
        connection.prepare("SELECT name, value, checksum FROM facts ORDER BY name")?;
    let rows = statement.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?))
    })?;
    let mut facts = Vec::new();
    for row in rows {
        let (name, value, written) = row?;
        let is = seal_of_fact(&name, &value);
        if written != is {
            return Err(Bad::Checksum(written, is, format!("the fact {name:?}")));
        }
        facts.push((name, value));
    }
    Ok(facts)
}

pub(super) fn read(connection: &Connection) -> Result<Decisions, Bad> {
    let mut decisions = Decisions::default();
    for (name, value) in facts(connection)? {
        match name.as_str() {
            EPOCH => {
                let epoch = value.parse().map_err(|_| Bad::Value(format!("epoch {value:?}")))?;
                decisions.epoch = epoch;
            }
            PAUSED => decisions.is_paused = value == "1",
            LISTS => decisions.lists = value,
            name => {
                if let Some(key) = name.strip_prefix(SETTING) {
                    decisions.settings.push((key.to_owned(), value));
                }
            }
        }
    }
    let sql = "SELECT name, standing, reason, since_ms, checksum FROM standings ORDER BY name";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| {
        let word: String = row.get("standing")?;
        let standing = Standing::ALL.iter().find(|(name, _)| *name == word);
        let record = standing.map(|(_, standing)| {
            Ok::<_, rusqlite::Error>(StandingRecord {
                node: row.get("name")?,
                standing: *standing,
                reason: row.get("reason")?,
                since_ms: count(row, "since_ms")?,
            })
        });
        Ok((word, record.transpose()?, row.get::<_, i64>("checksum")?))
    })?;
    for row in rows {
        let (word, record, written) = row?;
        let Some(record) = record else { return Err(Bad::Value(format!("standing {word:?}"))) };
        let is = seal_of_standing(&record);
        if written != is {
            let what = format!("the standing of node {:?}", record.node);
            return Err(Bad::Checksum(written, is, what));
        }
        decisions.standings.push(record);
    }
    Ok(decisions)
}

pub(super) fn write_fact(
    connection: &Connection,
    name: &str,
    value: Option<&str>,
) -> rusqlite::Result<()> {
    match value {
        Some(value) => {
            let sql = "INSERT OR REPLACE INTO facts (name, value, checksum) VALUES (?1, ?2, ?3)";
            connection.execute(sql, (name, value, seal_of_fact(name, value))).map(drop)
        }
        None => connection.execute("DELETE FROM facts WHERE name = ?1", [name]).map(drop),
    }
}

pub(super) fn write_setting(
    connection: &Connection,
    key: &str,
    value: Option<&str>,
) -> rusqlite::Result<()> {
    write_fact(connection, &format!("{SETTING}{key}"), value)
}

/// The value of a fact; its checksum was checked when the store was opened.
pub(super) fn fact(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT value FROM facts WHERE name = ?1";
    connection.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional()
}

pub(super) fn write_standing(
    connection: &Connection,
    record: &StandingRecord,
) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO standings (name, standing, reason, since_ms, checksum) \
               VALUES (?1, ?2, ?3, ?4, ?5)";
    let StandingRecord { node, standing, reason, since_ms } = record;
    let values = (node, standing.word(), reason, stored(*since_ms), seal_of_standing(record));
    connection.execute(sql, values).map(drop)
}

pub(super) fn delete_standing(connection: &Connection, node: &str) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM standings WHERE name = ?1", [node]).map(drop)
}

/// The end of the audit log.
pub(super) fn chain(connection: &Connection) -> rusqlite::Result<Chain> {
    let last = connection.query_row("SELECT * FROM audit ORDER BY number DESC LIMIT 1", [], entry);
    let last = last.optional()?;
    Ok(last.map_or_else(Chain::default, |last| Chain { number: last.number, hash: last.hash }))
}

/// At most `most` entries, from number `from` on.
pub(super) fn entries(
    connection: &Connection,
    from: u64,
    most: usize,
) -> rusqlite::Result<Vec<Entry>> {
    let sql = "SELECT * FROM audit WHERE number >= ?1 ORDER BY number LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([stored(from), stored(most as u64)], entry)?;
    rows.collect()
}

pub(super) fn append(connection: &Connection, entry: &Entry) -> rusqlite::Result<()> {
    let sql = "INSERT INTO audit (number, at_ms, actor, action, subject, details, before, hash) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let Entry { number, at_ms, actor, action, subject, details, before, hash } = entry;
    let (number, at_ms) = (stored(*number), stored(*at_ms));
    let values = (number, at_ms, actor, action, subject, details, before.0, hash.0);
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let hash = |column: &str| Ok::<_, rusqlite::Error>(Hash(row.get(column)?));
    Ok(Entry {
        number: count(row, "number")?,
        at_ms: count(row, "at_ms")?,
        actor: row.get("actor")?,
        action: row.get("action")?,
        subject: row.get("subject")?,
        details: row.get("details")?,
        before: hash("before")?,
        hash: hash("hash")?,
    })
}
