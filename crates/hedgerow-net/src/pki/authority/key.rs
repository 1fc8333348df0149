//! [`Passphrase`]: the authority's key can be encrypted with one (PKCS #8 with scrypt and AES-256,
//! which `openssl pkey` reads).

use std::fmt;
use std::path::Path;

use pkcs8::der::pem::LineEnding;
use pkcs8::pkcs5::EncryptionScheme;
use pkcs8::pkcs5::pbes2::Kdf;
use pkcs8::{EncryptedPrivateKeyInfoRef, PrivateKeyInfoRef, SecretDocument};
use rcgen::KeyPair;

use super::PkiError;
use crate::file::read_whole;
use crate::pki::identity::IdentityError;

/// Longest passphrase, in bytes.
const MAX_PASSPHRASE: usize = 1024;

/// Bounds of scrypt's cost and block size in a file, so that a damaged one can't take all memory.
const MAX_COST: u64 = 1 << 20;
const MAX_BLOCK_SIZE: u16 = 32;

const LABEL: &str = "ENCRYPTED PRIVATE KEY";

/// A passphrase, which `Debug` doesn't show.
#[derive(Clone)]
pub struct Passphrase(String);

impl Passphrase {
    /// The first line of a text. None if it is empty or too long.
    pub fn new(text: &str) -> Option<Self> {
        let line = text.lines().next().unwrap_or_default();
        (1..=MAX_PASSPHRASE).contains(&line.len()).then(|| Self(line.to_owned()))
    }

    /// The first line of a file.
    pub fn read(file: &Path) -> Result<Self, IdentityError> {
        let content = read_whole(file, 4 * MAX_PASSPHRASE as u64)?;
        let what = "its first line must be a passphrase of 1 to 1024 bytes";
        let unfit = || IdentityError::Unfit { file: file.to_owned(), what };
        let text = str::from_utf8(&content).map_err(|_| unfit())?;
        Self::new(text).ok_or_else(unfit)
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Passphrase")
    }
}

/// Whether this is an encrypted key.
pub(super) fn is_sealed(pem: &str) -> bool {
    pem.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----")
}

/// The key in a file, decrypted if need be.
pub(super) fn open(
    file: &Path,
    pem: &str,
    passphrase: Option<&Passphrase>,
) -> Result<KeyPair, PkiError> {
    // Messages of libraries might quote the key.
    let unfit = || {
        let what = "holds no private key in PEM that can be used";
        PkiError::from(IdentityError::Unfit { file: file.to_owned(), what })
    };
    if !is_sealed(pem) {
        return KeyPair::from_pem(pem).map_err(|_| unfit());
    }
    let begin = pem.find("-----BEGIN ENCRYPTED").unwrap_or_default();
    let end = pem.find("-----END ENCRYPTED PRIVATE KEY-----").ok_or_else(unfit)?;
    let section =
        pem.get(begin..end).ok_or_else(unfit)?.to_owned() + "-----END ENCRYPTED PRIVATE KEY-----\n";
    let (_, document) = SecretDocument::from_pem(&section).map_err(|_| unfit())?;
    let sealed = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes()).map_err(|_| unfit())?;
    if let EncryptionScheme::Pbes2(scheme) = &sealed.encryption_algorithm
        && let Kdf::Scrypt(scrypt) = &scheme.kdf
        && (scrypt.cost_parameter > MAX_COST || scrypt.block_size > MAX_BLOCK_SIZE)
    {
        return Err(unfit());
    }
    let passphrase = passphrase.ok_or_else(|| PkiError::Sealed { file: file.to_owned() })?;
    let opened = sealed
        .decrypt(&passphrase.0)
        .map_err(|_| PkiError::WrongPassphrase { file: file.to_owned() })?;
    KeyPair::try_from(opened.as_bytes()).map_err(|_| unfit())
}

/// The key in PEM, encrypted if there is a passphrase.
pub(super) fn seal(key: &KeyPair, passphrase: Option<&Passphrase>) -> Result<String, PkiError> {
    let Some(passphrase) = passphrase else { return Ok(key.serialize_pem()) };
    let sealed = PrivateKeyInfoRef::try_from(key.serialized_der())
        .and_then(|key| key.encrypt(&passphrase.0))
        .map_err(|_| PkiError::Random)?;
    let pem = sealed.to_pem(LABEL, LineEnding::LF).map_err(|_| PkiError::Random)?;
    Ok(pem.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_opened_by_their_passphrase_only() {
        let file = Path::new("ca.key");
        let (key, right) = (KeyPair::generate().unwrap(), Passphrase::new("right\nx").unwrap());
        let pem = seal(&key, Some(&right)).unwrap();
        assert!(is_sealed(&pem) && !pem.contains(&key.serialize_pem()[40..80]));
        let opened = open(file, &pem, Passphrase::new("right").as_ref()).unwrap();
        assert_eq!(opened.serialized_der(), key.serialized_der());
        let wrong = open(file, &pem, Passphrase::new("wrong").as_ref()).unwrap_err();
        assert!(wrong.to_string().contains("wrong passphrase"), "{wrong}");
        let none = open(file, &pem, None).unwrap_err();
        assert!(none.to_string().contains("is encrypted"), "{none}");
        let plain = seal(&key, None).unwrap();
        assert_eq!(
            open(file, &plain, Some(&right)).unwrap().serialized_der(),
            key.serialized_der()
        );
        for odd in ["", "\n", &"a".repeat(1025)] {
            assert!(Passphrase::new(odd).is_none());
        }
        assert_eq!(format!("{right:?}"), "Passphrase");
    }

    #[test]
    fn damaged_keys_are_refused() {
        let passphrase = Passphrase::new("p").unwrap();
        let pem = seal(&KeyPair::generate().unwrap(), Some(&passphrase)).unwrap();
        for length in (30..pem.trim_end().len()).step_by(17) {
            assert!(open(Path::new("k"), &pem[..length], None).is_err());
        }
        // Scrypt with more memory than is allowed: the cost, then the size of a block.
        let (_, document) = SecretDocument::from_pem(&pem).unwrap();
        let mut der = document.as_bytes().to_vec();
        let costs = [2, 2, 0x40, 0, 2, 1, 8];
        let at = der.windows(costs.len()).position(|bytes| bytes == costs).unwrap();
        der[at + 6] = 0x7f;
        let pem = SecretDocument::try_from(der).unwrap().to_pem(LABEL, LineEnding::LF).unwrap();
        let refused = open(Path::new("k"), &pem, Some(&passphrase)).unwrap_err().to_string();
        assert!(refused.contains("holds no private key"), "{refused}");
    }
}
