//! The tokens of an authority: a file of lines, without their secrets.

use std::path::Path;

use serde::{Deserialize, Serialize};
use time::serde::rfc3339;
use time::{Duration, OffsetDateTime};

use super::lines::Lines;
use super::{PkiError, is_there};

/// Tokens that can't be used any more are listed so long.
const KEPT: Duration = Duration::days(30);

/// Most tokens in the file.
pub(super) const MAX_TOKENS: usize = 10_000;

const LINES: Lines = Lines { key: "hedgerow_tokens", what: "list of tokens" };

/// A token that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// The node that it is for.
    pub name: String,
    /// SHA-256 of its secret, in hexadecimal.
    pub hash: String,
    /// Validity of the certificate that it gives.
    pub days: u32,
    /// When it was made.
    #[serde(with = "rfc3339")]
    pub made_at: OffsetDateTime,
    /// When it ends.
    #[serde(with = "rfc3339")]
    pub ends_at: OffsetDateTime,
    /// When it was first used.
    #[serde(default, with = "rfc3339::option")]
    pub used_at: Option<OffsetDateTime>,
    /// SHA-256 of the public key that it was used for, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_for: Option<String>,
    /// When it was cancelled.
    #[serde(default, with = "rfc3339::option")]
    pub cancelled_at: Option<OffsetDateTime>,
}

/// What a token is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenState {
    /// It can be used.
    Open,
    /// It was used.
    Used(OffsetDateTime),
    /// It was cancelled.
    Cancelled(OffsetDateTime),
    /// It has ended.
    Ended(OffsetDateTime),
}

impl TokenRecord {
    /// Its state at this time.
    pub fn state(&self, now: OffsetDateTime) -> TokenState {
        match (self.cancelled_at, self.used_at) {
            (Some(at), _) => TokenState::Cancelled(at),
            (None, Some(at)) => TokenState::Used(at),
            (None, None) if self.ends_at <= now => TokenState::Ended(self.ends_at),
            (None, None) => TokenState::Open,
        }
    }
}

/// All tokens; none if no file is there.
pub(super) fn load(file: &Path) -> Result<Vec<TokenRecord>, PkiError> {
    if is_there(file)? { LINES.load(file, |_| Ok(())) } else { Ok(Vec::new()) }
}

/// Saves them, without those that have ended long ago.
pub(super) fn save(
    file: &Path,
    mut all: Vec<TokenRecord>,
    now: OffsetDateTime,
) -> Result<(), PkiError> {
    all.retain(|token| now - token.ends_at < KEPT);
    LINES.save(file, &all)
}
