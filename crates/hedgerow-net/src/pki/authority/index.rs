//! The index of an authority: a heading, then one line of JSON for each issued certificate.

use std::path::Path;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::serde::rfc3339;

use super::PkiError;
use super::lines::Lines;
use crate::pki::identity::Role;

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The server.
    Server,
    /// A node.
    Node,
    /// An operator.
    Operator,
}

impl From<Role> for Kind {
    fn from(role: Role) -> Self {
        match role {
            Role::Node => Self::Node,
            Role::Operator => Self::Operator,
        }
    }
}

/// A certificate that was issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issued {
    /// Whom it is for.
    pub kind: Kind,
    /// The name of the node or operator, or `server`.
    pub name: String,
    /// Names and addresses that the server is reached by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Serial number, in hexadecimal.
    pub serial: String,
    /// When it was issued.
    #[serde(with = "rfc3339")]
    pub issued_at: OffsetDateTime,
    /// When it ends.
    #[serde(with = "rfc3339")]
    pub not_after: OffsetDateTime,
    /// When it was revoked, if it was.
    #[serde(with = "rfc3339::option")]
    pub revoked_at: Option<OffsetDateTime>,
    /// SHA-256 of the certificate of the authority that issued it, in hexadecimal. Version 0.1.0
    /// wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
    /// Whether its file names a second authority: it was issued while one replaced the other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusts_two: bool,
}

impl Issued {
    /// Whether it is valid at this time.
    pub fn is_good(&self, now: OffsetDateTime) -> bool {
        self.revoked_at.is_none() && now <= self.not_after
    }

    /// What its owner may do; none for the server.
    pub fn role(&self) -> Option<Role> {
        match self.kind {
            Kind::Server => None,
            Kind::Node => Some(Role::Node),
            Kind::Operator => Some(Role::Operator),
        }
    }

    /// Whether it has this serial number.
    pub(super) fn has_serial(&self, serial: &[u8]) -> bool {
        from_hexadecimal(&self.serial).is_some_and(|own| own == serial)
    }

    /// Whether it belongs to the node or operator of this name.
    pub(super) fn is_of(&self, name: &str) -> bool {
        self.kind != Kind::Server && self.name == name
    }
}

const LINES: Lines = Lines { key: "hedgerow_certificates", what: "index of certificates" };

pub(super) fn load(file: &Path) -> Result<Vec<Issued>, PkiError> {
    LINES.load(file, |issued: &Issued| match from_hexadecimal(&issued.serial) {
        Some(_) => Ok(()),
        None => Err(format!("serial must be hexadecimal, but is {:?}", issued.serial)),
    })
}

pub(super) fn save(file: &Path, all: &[Issued]) -> Result<(), PkiError> {
    LINES.save(file, all)
}

pub(super) fn to_hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| u8::try_from(16 * digit(*high)? + digit(*low)?).ok();
    if pairs.is_empty() || !rest.is_empty() { None } else { pairs.iter().map(byte).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issued(name: &str) -> Issued {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        Issued {
            kind: Kind::Node,
            name: name.to_owned(),
            hosts: vec![],
            serial: "40ff".to_owned(),
            issued_at: now,
            not_after: now + time::Duration::days(2),
            revoked_at: None,
            authority: None,
            trusts_two: false,
        }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("index.jsonl");
        let mut all = vec![issued("a"), issued("b")];
        all[0].revoked_at = Some(all[0].issued_at);
        all[1].kind = Kind::Server;
        all[1].hosts = vec!["::1".to_owned()];
        save(&file, &all).unwrap();
        assert_eq!(load(&file).unwrap(), all);
        save(&file, &[]).unwrap();
        assert_eq!(load(&file).unwrap(), []);
    }

    #[test]
    fn what_is_damaged_or_newer_is_refused_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("index.jsonl");
        save(&file, &[issued("a"), issued("b")]).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        for (from, to, line, what) in [
            ("_certificates\":1", "_certificates\":2", 1, "version must be 1, but is 2"),
            ("hedgerow", "hedge", 1, "no index"),
            ("\"b\"", "\"b\",\"x\":1", 3, "unknown field"),
            ("\"name\":\"a\"", "\"nam", 2, "column"),
            ("40ff", "4xff", 2, "hexadecimal"),
            ("40ff", "", 2, "hexadecimal"),
            ("2027-", "2x27-", 2, "year"),
            ("\"node\"", "\"king\"", 2, "unknown variant"),
        ] {
            assert!(text.contains(from), "{from}");
            std::fs::write(&file, text.replacen(from, to, 1)).unwrap();
            let message = load(&file).unwrap_err().to_string();
            let place = format!("{}, line {line}: ", file.display());
            assert!(message.starts_with(&place) && message.contains(what), "{message}");
        }
        for content in [&b""[..], b"\n", b"\xff", &text.as_bytes()[..text.len() - 9]] {
            std::fs::write(&file, content).unwrap();
            assert!(load(&file).is_err());
        }
    }

    #[test]
    fn serials_as_text() {
        assert_eq!(to_hexadecimal(&[0x40, 0, 0xff]), "4000ff");
        assert_eq!(from_hexadecimal("4000ff").unwrap(), [0x40, 0, 0xff]);
        for odd in ["", "4", "4g", "+4", "ä"] {
            assert_eq!(from_hexadecimal(odd), None, "{odd}");
        }
    }
}
