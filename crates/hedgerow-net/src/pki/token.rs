//! [`Token`]: with it one new node gets its first certificate from the server. It has the node's
//! name, the server's address, the fingerprint of the authority that the server must have, and a
//! secret, of which the authority keeps only a hash.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::identity::check_node_name;

/// What every token begins with, so that people and programs that look for secrets know one.
const PREFIX: &str = "hedgerow-token-1-";

/// Longest token, and longest address in it.
const MAX_LENGTH: usize = 1024;
const MAX_SERVER: usize = 300;

/// Bytes of the checksum at the end. It finds tokens that were not copied completely.
const CHECKSUM_BYTES: usize = 4;

/// SHA-256 of something public: of a certificate or of a key.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Whether it is that of this certificate.
    pub(super) fn is_of(&self, certificate: &CertificateDer<'_>) -> bool {
        *self == Self::of(certificate)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// The secret of a token, which `Debug` doesn't show.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub(super) [u8; 20]);

impl Secret {
    /// From the bytes that a node sent.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// For the message to the server.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// What the authority keeps of it.
    #[cfg(feature = "server")]
    pub(super) fn hash(&self) -> String {
        Fingerprint::of(&self.0).to_string()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret")
    }
}

/// What a new node needs to get its certificate. As text it is a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The node's name.
    pub name: String,
    /// The server's address, HOST:PORT; empty if it is not known.
    pub server: String,
    /// The authority that signed the server's certificate.
    pub authority: Fingerprint,
    /// Proves that the authority made the token.
    pub secret: Secret,
}

/// Not a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no token of `hedgerow pki token`, or a part of it is missing")]
pub struct BadToken;

impl Token {
    /// The one text that a person copies to the device.
    pub fn encode(&self) -> String {
        // Only containers without a known length can't be written.
        let mut bytes = postcard::to_allocvec(self).unwrap_or_default();
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        PREFIX.to_owned() + &BASE64URL_NOPAD.encode(&bytes)
    }
}

impl FromStr for Token {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Self, BadToken> {
        let text = text.trim();
        let body =
            text.strip_prefix(PREFIX).filter(|_| text.len() <= MAX_LENGTH).ok_or(BadToken)?;
        let bytes = BASE64URL_NOPAD.decode(body.as_bytes()).map_err(|_| BadToken)?;
        let (body, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(BadToken)?;
        if crc32fast::hash(body) != u32::from_le_bytes(*checksum) {
            return Err(BadToken);
        }
        let (token, rest): (Self, _) = postcard::take_from_bytes(body).map_err(|_| BadToken)?;
        let is_sound = rest.is_empty()
            && check_node_name(&token.name).is_ok()
            && token.server.len() <= MAX_SERVER
            && !token.server.contains(|letter: char| letter.is_control() || letter == '"');
        if is_sound { Ok(token) } else { Err(BadToken) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token {
            name: "boiler-3".to_owned(),
            server: "hedge.example.org:7443".to_owned(),
            authority: Fingerprint::of(b"authority"),
            secret: Secret([7; 20]),
        }
    }

    #[test]
    fn tokens_survive_as_text() {
        let text = token().encode();
        assert!(text.starts_with("hedgerow-token-1-") && text.len() < 200, "{text}");
        assert_eq!(text.parse::<Token>().unwrap(), token());
        assert_eq!(format!(" {text}\n").parse::<Token>().unwrap(), token());
        // Of its secret nothing is shown.
        let shown = format!("{:?}", token());
        assert!(
            shown.contains("boiler-3")
                && shown.contains("Secret")
                && !shown.contains('7'.to_string().repeat(2).as_str()),
            "{shown}"
        );
    }

    #[test]
    fn parts_of_tokens_and_other_texts_are_refused() {
        let text = token().encode();
        for length in 0..text.len() {
            assert_eq!(text[..length].parse::<Token>(), Err(BadToken), "{length}");
        }
        for place in PREFIX.len()..text.len() {
            let mut other = text.clone().into_bytes();
            other[place] = if other[place] == b'A' { b'B' } else { b'A' };
            assert_eq!(String::from_utf8(other).unwrap().parse::<Token>(), Err(BadToken));
        }
        for odd in ["", PREFIX, "hello", &"A".repeat(5000), &format!("{PREFIX}ä")] {
            assert_eq!(odd.parse::<Token>(), Err(BadToken));
        }
        for odd in [
            Token { name: "../a".to_owned(), ..token() },
            Token { server: "a\nb".to_owned(), ..token() },
            Token { server: "a".repeat(301), ..token() },
        ] {
            assert_eq!(odd.encode().parse::<Token>(), Err(BadToken));
        }
    }
}
