//! The audit log: who did what, in entries that form a chain. Each entry has the hash of the one
//! before it, so that no entry can be changed, removed or inserted without changing all that
//! follow. Whoever keeps the latest hash elsewhere can prove that nothing was rewritten.
//!
//! This module knows nothing of where entries are kept. The hash of an entry is the SHA-256 of its
//! number and time (u64, little endian), of its texts (each after its length in bytes, u64, little
//! endian), and of the hash of the entry before (32 zeros before the first).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// Most bytes of a text of an entry; longer ones are cut.
const MAX_TEXT: usize = 4_096;

/// The hash of an entry. As text it is 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hash(pub [u8; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.as_bytes();
        let mut hash = [0; 32];
        let bound = || serde::de::Error::custom("a hash has 64 hexadecimal digits");
        if digits.len() != 2 * hash.len() {
            return Err(bound());
        }
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| bound())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| bound())?;
        }
        Ok(Self(hash))
    }
}

/// What is to be written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who did it.
    pub actor: String,
    /// What was done, in a word: `ban`, `issue`, `join`.
    pub action: String,
    /// To what: the name of a node, a setting, a round.
    pub subject: String,
    /// Everything else, for people.
    pub details: String,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number, from 1.
    pub number: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who did it.
    pub actor: String,
    /// What was done.
    pub action: String,
    /// To what.
    pub subject: String,
    /// Everything else.
    pub details: String,
    /// Hash of the entry before.
    pub before: Hash,
    /// Hash of this entry.
    pub hash: Hash,
}

impl Entry {
    fn computed_hash(&self) -> Hash {
        let mut sum = Sha256::new();
        sum.update(self.number.to_le_bytes());
        sum.update(self.at_ms.to_le_bytes());
        for text in [&self.actor, &self.action, &self.subject, &self.details] {
            sum.update((text.len() as u64).to_le_bytes());
            sum.update(text);
        }
        sum.update(self.before.0);
        Hash(sum.finalize().into())
    }
}

/// The end of a log, to which entries are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chain {
    /// Number of the last entry; 0 if there is none.
    pub number: u64,
    /// Its hash.
    pub hash: Hash,
}

/// Where a log is not what was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// An entry is missing, or stands in the wrong place.
    #[error("entry {expected} of the audit log is missing: {found} stands in its place")]
    Number {
        /// The number that should follow.
        expected: u64,
        /// The number that follows.
        found: u64,
    },
    /// An entry follows another one than that before it.
    #[error("entry {number} of the audit log follows another entry than the one before it")]
    Link {
        /// The entry.
        number: u64,
    },
    /// An entry was changed.
    #[error("entry {number} of the audit log was changed: its hash is {found}, not {expected}")]
    Hash {
        /// The entry.
        number: u64,
        /// The hash that it has.
        expected: Hash,
        /// The hash of what it says.
        found: Hash,
    },
}

impl Chain {
    /// Makes the entry that follows. The chain goes on from it once [`Chain::accept`] has it.
    pub fn next(&self, draft: &Draft) -> Entry {
        let mut entry = Entry {
            number: self.number + 1,
            at_ms: draft.at_ms,
            actor: shortened(&draft.actor),
            action: shortened(&draft.action),
            subject: shortened(&draft.subject),
            details: shortened(&draft.details),
            before: self.hash,
            hash: Hash::default(),
        };
        entry.hash = entry.computed_hash();
        entry
    }

    /// Goes on from an entry, if it follows.
    pub fn accept(&mut self, entry: &Entry) -> Result<(), Broken> {
        let (expected, found) = (self.number + 1, entry.number);
        if expected != found {
            return Err(Broken::Number { expected, found });
        }
        let number = found;
        if entry.before != self.hash {
            return Err(Broken::Link { number });
        }
        let (expected, found) = (entry.hash, entry.computed_hash());
        if expected != found {
            return Err(Broken::Hash { number, expected, found });
        }
        *self = Self { number, hash: entry.hash };
        Ok(())
    }
}

/// Checks a whole log, from its first entry on. Returns its end.
pub fn verify<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Result<Chain, Broken> {
    let mut chain = Chain::default();
    entries.into_iter().try_for_each(|entry| chain.accept(entry))?;
    Ok(chain)
}

/// The text, cut to what an entry may have.
fn shortened(text: &str) -> String {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(at_ms: u64) -> Draft {
        Draft {
            at_ms,
            actor: "alice".into(),
            action: "ban".into(),
            subject: format!("node {at_ms}"),
            details: "wrong unit".into(),
        }
    }

    fn log(entries: u64) -> Vec<Entry> {
        let mut chain = Chain::default();
        let append = |at_ms| {
            let entry = chain.next(&draft(at_ms));
            chain.accept(&entry).unwrap();
            entry
        };
        (1..=entries).map(append).collect()
    }

    #[test]
    fn a_log_that_was_not_changed_is_whole() {
        let log = log(5);
        let end = verify(&log).unwrap();
        assert_eq!((end.number, end.hash), (5, log[4].hash));
        assert_eq!(verify(&[]).unwrap(), Chain::default());
        // Lines of JSON keep everything.
        let lines: Vec<String> =
            log.iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
        let read: Vec<Entry> =
            lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(read, log);
        assert!(serde_json::from_str::<Hash>("\"00\"").is_err());
        assert!(serde_json::from_str::<Hash>(&format!("\"{}\"", "é".repeat(32))).is_err());
    }

    #[test]
    fn whatever_is_changed_removed_inserted_or_moved_is_seen() {
        let whole = log(5);
        let broken = |change: fn(&mut Vec<Entry>)| {
            let mut log = whole.clone();
            change(&mut log);
            verify(&log).unwrap_err()
        };
        assert!(matches!(broken(|log| log[2].at_ms += 1), Broken::Hash { number: 3, .. }));
        for change in [
            (|log| log[1].actor.push('x')) as fn(&mut Vec<Entry>),
            |log| log[1].action.clear(),
            |log| log[1].subject.insert(0, ' '),
            |log| log[1].details = "right unit".into(),
            // The same letters, divided in another way.
            |log| {
                log[1].actor.push('b');
                log[1].action.remove(0);
            },
        ] {
            assert!(matches!(broken(change), Broken::Hash { number: 2, .. }));
        }
        assert_eq!(
            broken(|log| drop(log.remove(1))),
            Broken::Number { expected: 2, found: 3 },
            "removed"
        );
        assert_eq!(broken(|log| log.swap(3, 4)), Broken::Number { expected: 4, found: 5 });
        // An entry that was changed with its own hash breaks the link of the next one.
        let forged = broken(|log| {
            log[1].details = "nothing".into();
            log[1].hash = log[1].computed_hash();
        });
        assert_eq!(forged, Broken::Link { number: 3 });
    }

    #[test]
    fn texts_are_bounded() {
        let long = Draft { details: "é".repeat(MAX_TEXT), ..draft(1) };
        let entry = Chain::default().next(&long);
        assert_eq!(entry.details.len(), MAX_TEXT);
        assert_eq!(verify([&entry]).unwrap().number, 1);
    }
}
