//! Saved states: versioned bytes that are checked before they are used.

use serde::{Deserialize, Serialize};

use crate::limits::LAST_COUNT;

/// A saved state that doesn't fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("saved state does not fit this method and setup: {reason}")]
pub struct BadState {
    reason: String,
}

impl BadState {
    /// A refusal with its reason, in words.
    pub fn new(reason: impl ToString) -> Self {
        let reason = reason.to_string();
        Self { reason }
    }
}

/// Version of saved states: one that this code doesn't know is refused, not guessed at.
const STATE_VERSION: u16 = 4;

/// Parses a saved state of this kind and checks it.
pub(crate) fn restore_state<'a, S: Deserialize<'a>>(
    kind: &str,
    saved: &'a [u8],
    is_sound: impl FnOnce(&S) -> bool,
) -> Result<S, BadState> {
    let (version, rest) = postcard::take_from_bytes::<u16>(saved).map_err(BadState::new)?;
    if version != STATE_VERSION {
        return Err(BadState::new(format!(
            "it has version {version}, and this is version {STATE_VERSION}"
        )));
    }
    let (found, rest) = postcard::take_from_bytes::<&str>(rest).map_err(BadState::new)?;
    if found != kind {
        return Err(BadState::new(format!("it belongs to {found:?}, not to {kind:?}")));
    }
    match postcard::take_from_bytes::<S>(rest) {
        Err(error) => Err(BadState::new(error)),
        Ok((_, rest)) if !rest.is_empty() => {
            Err(BadState::new(format!("{} bytes too many", rest.len())))
        }
        Ok((state, _)) if !is_sound(&state) => {
            Err(BadState::new("sizes or values are out of bounds"))
        }
        Ok((state, _)) => Ok(state),
    }
}

/// Bytes of a state, with its version and kind in front.
#[expect(
    clippy::expect_used,
    reason = "writing to memory can't fail, and an empty state would be a lost one"
)]
pub(crate) fn save_state(kind: &str, state: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(&(STATE_VERSION, kind, state)).expect("states can be written to memory")
}

/// Whether a saved counter is one that a half could have reached.
pub(crate) fn is_count(count: u64) -> bool {
    count < LAST_COUNT
}
