//! [`Token`]: the secret that operators log in with at the dashboard. It is in a file beside the
//! store that only its owner can read.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustls::crypto::ring::default_provider;
use subtle::ConstantTimeEq;

use super::beside;
use crate::file::{Access, FileError, read_whole, write_whole};

/// Bytes of a secret.
const SECRET_BYTES: usize = 32;

/// Characters of a token: the fewest, for those that people choose, and the most.
const LEAST_CHARACTERS: usize = 32;
const MOST_CHARACTERS: usize = 256;

/// What a token can't be.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is none.
    #[error(
        "{}: a token is one line of {LEAST_CHARACTERS} to {MOST_CHARACTERS} characters without \
         spaces; delete the file, and the server makes another", file.display()
    )]
    Unfit {
        /// The file.
        file: PathBuf,
    },
    /// Others could have read it.
    #[error("{}: others than its owner can read it: delete the file, and the server makes another", file.display())]
    Open {
        /// The file.
        file: PathBuf,
    },
    /// The system has no randomness.
    #[error("the system has no randomness for a token")]
    NoRandomness,
}

/// A secret of operators.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Where the token of a store is.
    pub fn path(store: &Path) -> PathBuf {
        beside(store, "token")
    }

    /// The token of a store; a new one if there is none.
    pub fn open(store: &Path) -> Result<Self, TokenError> {
        match Self::read(store) {
            Err(TokenError::File(FileError::Unreadable { source, .. }))
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                Self::renew(store)
            }
            read => read,
        }
    }

    /// The token of a store.
    pub fn read(store: &Path) -> Result<Self, TokenError> {
        let file = Self::path(store);
        let content = read_whole(&file, MOST_CHARACTERS as u64 + 2)?;
        check_owner_only(&file)?;
        let text = String::from_utf8(content).unwrap_or_default();
        let token = text.trim_end();
        let is_sound = (LEAST_CHARACTERS..=MOST_CHARACTERS).contains(&token.len())
            && token.bytes().all(|byte| byte.is_ascii_graphic());
        if is_sound { Ok(Self(token.to_owned())) } else { Err(TokenError::Unfit { file }) }
    }

    /// Writes a new token in place of the one of a store.
    pub fn renew(store: &Path) -> Result<Self, TokenError> {
        let token = secret().ok_or(TokenError::NoRandomness)?;
        write_whole(&Self::path(store), Access::Private, |file| writeln!(file, "{token}"))?;
        Ok(Self(token))
    }

    /// Whether it is this one, in a time that doesn't tell how much of it is right.
    pub fn is(&self, other: &str) -> bool {
        is_same(&self.0, other)
    }

    /// The characters, for the operator.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token")
    }
}

/// Whether two secrets are the same, in a time that depends on their lengths only.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// Random characters that nobody can guess; none if the system has no randomness.
pub(crate) fn secret() -> Option<String> {
    let mut bytes = [0; SECRET_BYTES];
    default_provider().secure_random.fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(unix)]
fn check_owner_only(file: &Path) -> Result<(), TokenError> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(file).map_err(FileError::unreadable(file))?.permissions().mode();
    if mode & 0o077 == 0 { Ok(()) } else { Err(TokenError::Open { file: file.to_owned() }) }
}

/// Other systems have other permissions.
#[cfg(not(unix))]
fn check_owner_only(_: &Path) -> Result<(), TokenError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_made_once_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("run.db");
        let token = Token::open(&store).unwrap();
        assert_eq!(Token::open(&store).unwrap(), token);
        assert!(token.is(token.reveal()) && token.reveal().len() == 64);
        for other in ["", "0", &token.reveal()[..63], &format!("{}0", token.reveal())] {
            assert!(!token.is(other), "{other}");
        }
        assert!(!format!("{token:?}").contains(token.reveal()));
        assert_ne!(Token::renew(&store).unwrap(), token);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let file = Token::path(&store);
            let mode = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode));
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
            mode(0o640).unwrap();
            assert!(matches!(Token::open(&store), Err(TokenError::Open { .. })));
            mode(0o600).unwrap();
        }
        for bad in ["", "short", &"a b".repeat(20), &"ä".repeat(40), &"a".repeat(300)] {
            std::fs::write(Token::path(&store), bad).unwrap();
            let message = Token::open(&store).unwrap_err().to_string();
            assert!(message.contains("run.db.token"), "{message}");
        }
        std::fs::write(Token::path(&store), "x".repeat(32) + "\n").unwrap();
        assert!(Token::open(&store).unwrap().is(&"x".repeat(32)));
    }
}
