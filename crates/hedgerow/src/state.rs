//! Saved states: bytes with a kind and a version, checked before they are used.
//!
//! Every kind of state has its own version. A change of one method's state raises the version of
//! that kind only and adds a function that reads the version before; all other saved states stay
//! valid.

use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::limits::LAST_COUNT;

/// A saved state that does not fit.
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

/// A kind of saved state: its name and the version that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateKind {
    name: &'static str,
    version: u16,
}

/// A version that is still read, and the function that turns its bytes into today's state.
pub type OlderVersion<S> = (u16, fn(&[u8]) -> Result<S, BadState>);

impl StateKind {
    /// Version of all states before kinds had versions of their own.
    const FIRST_VERSION: u16 = 4;

    /// A kind in its first version.
    pub const fn new(name: &'static str) -> Self {
        Self { name, version: Self::FIRST_VERSION }
    }

    /// The same kind in a later version.
    #[must_use]
    pub const fn version(self, version: u16) -> Self {
        Self { version, ..self }
    }

    /// Bytes of a state, with its version and kind in front.
    #[expect(
        clippy::expect_used,
        reason = "writing to memory can't fail, and an empty state would be a lost one"
    )]
    #[must_use]
    pub fn save(self, state: &impl Serialize) -> Vec<u8> {
        postcard::to_allocvec(&(self.version, self.name, state)).expect("memory can be written")
    }

    /// Bytes of several states, one for each output; those of a single one are its own.
    pub(crate) fn save_each(self, states: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
        let mut states: Vec<_> = states.collect();
        if states.len() == 1 { states.remove(0) } else { self.save(&states) }
    }

    /// The states that [`StateKind::save_each`] wrote.
    pub(crate) fn restore_each(
        self,
        saved: &[u8],
        outputs: usize,
    ) -> Result<Vec<Vec<u8>>, BadState> {
        match outputs {
            1 => Ok(vec![saved.to_vec()]),
            _ => self.restore(saved, |states: &Vec<_>| states.len() == outputs),
        }
    }

    /// Whether bytes are a state of this kind, in whatever version.
    pub(crate) fn is_kind_of(self, saved: &[u8]) -> bool {
        let named = postcard::take_from_bytes::<(u16, &str)>(saved);
        named.is_ok_and(|((_, name), _)| name == self.name)
    }

    fn unknown_version(self, version: u16, older: impl Iterator<Item = u16>) -> BadState {
        let (name, newest) = (self.name, self.version);
        let oldest = older.fold(newest, u16::min);
        let advice = advice(version, newest);
        BadState::new(format!(
            "this program reads versions {oldest} to {newest} of {name:?}, and it has {version}; \
             {advice}"
        ))
    }

    /// Parses and checks a state that [`StateKind::save`] wrote.
    pub fn restore<S: DeserializeOwned>(
        self,
        saved: &[u8],
        is_sound: impl FnOnce(&S) -> bool,
    ) -> Result<S, BadState> {
        self.restore_any(saved, &[], is_sound)
    }

    /// The same, also for bytes of older versions.
    pub fn restore_any<S: DeserializeOwned>(
        self,
        saved: &[u8],
        older: &[OlderVersion<S>],
        is_sound: impl FnOnce(&S) -> bool,
    ) -> Result<S, BadState> {
        let (version, rest) = postcard::take_from_bytes::<u16>(saved).map_err(BadState::new)?;
        let (found, body) = postcard::take_from_bytes::<&str>(rest).map_err(BadState::new)?;
        if found != self.name {
            return Err(BadState::new(format!("it belongs to {found:?}, not to {:?}", self.name)));
        }
        let state = match older.iter().find(|(older, _)| *older == version) {
            _ if version == self.version => read_body(body)?,
            Some((_, read)) => read(body)?,
            None => {
                return Err(self.unknown_version(version, older.iter().map(|(older, _)| *older)));
            }
        };
        if is_sound(&state) {
            Ok(state)
        } else {
            Err(BadState::new("sizes or values are out of bounds"))
        }
    }
}

/// What to do about a state in a version that is not read.
fn advice(version: u16, newest: u16) -> &'static str {
    if version > newest {
        "a newer program wrote it: use that one, or a backup from before the upgrade"
    } else {
        "an older program wrote it: let a version between the two read and write it first, or begin \
         anew"
    }
}

/// Parses what follows a version and a kind.
pub fn read_body<'a, S: Deserialize<'a>>(body: &'a [u8]) -> Result<S, BadState> {
    match postcard::take_from_bytes::<S>(body).map_err(BadState::new)? {
        (state, []) => Ok(state),
        (_, rest) => Err(BadState::new(format!("{} bytes too many", rest.len()))),
    }
}

/// Whether a saved counter is one that a node or server could have reached.
pub(crate) fn is_count(count: u64) -> bool {
    count < LAST_COUNT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_other_versions_are_read_or_refused_with_advice() {
        const KIND: StateKind = StateKind::new("thing").version(6);
        let read = |version: u16| {
            let saved = KIND.version(version).save(&7_u64);
            let older: [OlderVersion<u64>; 1] =
                [(5, |body| read_body::<u64>(body).map(|old| old + 1))];
            KIND.restore_any(&saved, &older, |_| true).map_err(|error| error.to_string())
        };
        assert_eq!((read(6), read(5)), (Ok(7), Ok(8)));
        for (version, advice) in [
            (4, "reads versions 5 to 6 of \"thing\", and it has 4; an older program wrote it"),
            (7, "and it has 7; a newer program wrote it: use that one, or a backup from before"),
        ] {
            let refused = read(version).unwrap_err();
            assert!(refused.contains(advice), "{refused}");
        }
    }
}
