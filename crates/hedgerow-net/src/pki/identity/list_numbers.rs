//! [`ListNumbers`]: which lists of revoked certificates are in force.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use x509_parser::num_bigint::BigUint;

use super::{CRL_FILE, IdentityError};

/// The number of the list of each authority, by the authority's fingerprint. As text:
/// `FINGERPRINT=NUMBER`, with spaces between them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListNumbers(BTreeMap<String, BigUint>);

impl ListNumbers {
    pub(super) fn insert(&mut self, authority: String, number: BigUint) {
        self.0.insert(authority, number);
    }

    /// The first list that is older than the one in `known` of the same authority: its number, and
    /// the known one.
    fn first_older_than(&self, known: &Self) -> Option<(String, String)> {
        self.0.iter().find_map(|(authority, number)| {
            let known = known.0.get(authority).filter(|known| *known > number)?;
            Some((number.to_string(), known.to_string()))
        })
    }

    /// Refuses the lists in a folder, which have these numbers, if one is older than a known one.
    pub(super) fn check(&self, folder: &Path, known: &Self) -> Result<(), IdentityError> {
        match self.first_older_than(known) {
            None => Ok(()),
            Some((number, known)) => {
                Err(IdentityError::OldList { file: folder.join(CRL_FILE), number, known })
            }
        }
    }

    /// The numbers alone, for people.
    pub fn numbers(&self) -> String {
        let numbers: Vec<String> = self.0.values().map(BigUint::to_string).collect();
        numbers.join(", ")
    }
}

impl fmt::Display for ListNumbers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (authority, number)) in self.0.iter().enumerate() {
            write!(out, "{}{authority}={number}", if at == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

/// A text that has no such numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("FINGERPRINT=NUMBER is needed, but {0:?} was found")]
pub struct NotListNumbers(String);

impl FromStr for ListNumbers {
    type Err = NotListNumbers;

    fn from_str(text: &str) -> Result<Self, NotListNumbers> {
        let one = |word: &str| {
            let (authority, number) = word.split_once('=')?;
            Some((authority.to_owned(), number.parse().ok()?))
        };
        let all = text.split_whitespace();
        all.map(|word| one(word).ok_or_else(|| NotListNumbers(word.to_owned())))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_older_lists_of_the_same_authority_are_old() {
        let read = |text: &str| text.parse::<ListNumbers>().unwrap();
        let known = read("aa=7 bb=100000000000000000000000000");
        assert_eq!(read(&known.to_string()), known);
        assert_eq!(known.numbers(), "7, 100000000000000000000000000");
        for text in ["", "cc=1", "aa=7", "aa=8 bb=100000000000000000000000001"] {
            assert_eq!(read(text).first_older_than(&known), None, "{text}");
        }
        let old = Some(("6".to_owned(), "7".to_owned()));
        assert_eq!(read("aa=6 cc=1").first_older_than(&known), old);
        for text in ["aa", "aa=", "aa=-1", "aa=seven"] {
            assert!(text.parse::<ListNumbers>().is_err(), "{text}");
        }
    }
}
