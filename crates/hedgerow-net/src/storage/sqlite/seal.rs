//! Checksums of rows, and numbers as SQLite has them.

use rusqlite::Row;

/// CRC-32 of what a row has.
#[derive(Debug, Clone, Default)]
pub(super) struct Seal(crc32fast::Hasher);

impl Seal {
    pub(super) fn number(mut self, number: i64) -> Self {
        self.0.update(&number.to_le_bytes());
        self
    }

    /// All that aren't a number are the same.
    pub(super) fn real(self, number: f64) -> Self {
        let number = if number.is_nan() { f64::NAN } else { number };
        // SQLite may keep a whole number as one, and there is no zero below zero then.
        self.number((number + 0.0).to_bits() as i64)
    }

    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        let mut seal = self.number(bytes.len() as i64);
        seal.0.update(bytes);
        seal
    }

    pub(super) fn finish(self) -> i64 {
        self.0.finalize().into()
    }
}

/// A count as it is stored; nothing that counts gets farther.
pub(super) fn stored(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A count of a row; one below zero is none that we wrote.
pub(super) fn count(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    let count: i64 = row.get(column)?;
    let index = row.as_ref().column_index(column)?;
    u64::try_from(count).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(index, count))
}

/// The sum of squared errors of a row; what isn't a number is stored as nothing.
pub(super) fn error_sum(row: &Row<'_>) -> rusqlite::Result<f64> {
    Ok(row.get::<_, Option<f64>>("squared_error")?.unwrap_or(f64::NAN))
}
