//! Requests for certificates (PKCS #10): a node makes a key and asks ([`NewKey`]), the authority
//! reads what is asked for ([`Requested`]). Of a request only name and public key count.

use std::fmt;
use std::path::Path;
#[cfg(feature = "server")]
use std::path::PathBuf;

#[cfg(feature = "server")]
use rcgen::SubjectPublicKeyInfo;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
#[cfg(feature = "server")]
use rustls::pki_types::CertificateSigningRequestDer;
#[cfg(feature = "server")]
use rustls::pki_types::pem::PemObject;
#[cfg(feature = "server")]
use x509_parser::certification_request::X509CertificationRequest;
#[cfg(feature = "server")]
use x509_parser::prelude::FromDer;

use super::identity::IdentityError;
#[cfg(feature = "server")]
use super::identity::{BadName, MAX_PEM_BYTES, check_node_name};
#[cfg(feature = "server")]
use super::token::Fingerprint;
#[cfg(feature = "server")]
use crate::file::{FileError, read_whole};

/// Most bytes of a request.
pub const MAX_REQUEST_BYTES: usize = 4096;

/// No key or no request can be made.
#[derive(Debug, thiserror::Error)]
#[error("can't make a key or a request for a certificate: {0}")]
pub struct NoRequest(#[from] rcgen::Error);

/// A private key that has no certificate yet.
pub struct NewKey(KeyPair);

impl NewKey {
    /// A new one.
    pub fn generate() -> Result<Self, NoRequest> {
        Ok(Self(KeyPair::generate()?))
    }

    /// From the content of a file that [`NewKey::pem`] made.
    pub fn from_pem(file: &Path, pem: &str) -> Result<Self, IdentityError> {
        let what = "holds no private key in PEM that can be used";
        // The library's own message might quote the key.
        let unfit = |_| IdentityError::Unfit { file: file.to_owned(), what };
        KeyPair::from_pem(pem).map(Self).map_err(unfit)
    }

    /// The key itself.
    pub fn pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// A request for a certificate of this name: DER, and PEM.
    pub fn request(&self, name: &str) -> Result<(Vec<u8>, String), NoRequest> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let request = params.serialize_request(&self.0)?;
        Ok((request.der().to_vec(), request.pem()?))
    }
}

impl fmt::Debug for NewKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("NewKey")
    }
}

/// Why a request is refused.
#[cfg(feature = "server")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// It is too long or not in DER.
    #[error("the request can't be read as PKCS #10")]
    Unreadable,
    /// Its key did not sign it.
    #[error("the request is not signed by its own key")]
    Signature,
    /// Its key is of another kind.
    #[error("the request's key must be one for ECDSA on P-256")]
    Key,
    /// It asks for more than a name.
    #[error("the request must ask for one common name, and for nothing else")]
    Subject,
    /// Its name is not that of a node.
    #[error(transparent)]
    Name(#[from] BadName),
}

/// A file without a request that can be granted.
#[cfg(feature = "server")]
#[derive(Debug, thiserror::Error)]
pub enum UnreadRequest {
    /// It can't be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It holds no request, or one that is refused.
    #[error("{}: {source}", file.display())]
    Bad {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: BadRequest,
    },
}

/// What is asked for: this name for this key, which the sender has.
#[cfg(feature = "server")]
#[derive(Debug)]
pub struct Requested {
    /// The name of the certificate.
    pub name: String,
    /// Its key.
    pub(super) key: SubjectPublicKeyInfo,
    /// SHA-256 of the key.
    pub(super) fingerprint: Fingerprint,
}

/// How the public key of every P-256 certificate begins, up to the point on the curve.
#[cfg(feature = "server")]
const P256_HEADER: [u8; 27] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
];

#[cfg(feature = "server")]
impl Requested {
    /// Reads a file with a request in PEM.
    pub fn read(file: &Path) -> Result<Self, UnreadRequest> {
        let bad = |source| UnreadRequest::Bad { file: file.to_owned(), source };
        let content = read_whole(file, MAX_PEM_BYTES)?;
        let der = CertificateSigningRequestDer::from_pem_slice(&content);
        Self::from_der(&der.map_err(|_| bad(BadRequest::Unreadable))?).map_err(bad)
    }

    /// Reads a request in DER.
    pub fn from_der(der: &[u8]) -> Result<Self, BadRequest> {
        if der.len() > MAX_REQUEST_BYTES {
            return Err(BadRequest::Unreadable);
        }
        let Ok(([], request)) = X509CertificationRequest::from_der(der) else {
            return Err(BadRequest::Unreadable);
        };
        let info = &request.certification_request_info;
        let key = info.subject_pki.raw;
        if key.len() != P256_HEADER.len() + 64 || !key.starts_with(&P256_HEADER) {
            return Err(BadRequest::Key);
        }
        request.verify_signature().map_err(|_| BadRequest::Signature)?;
        let mut attributes = info.subject.iter_attributes();
        let (Some(_), None) = (attributes.next(), attributes.next()) else {
            return Err(BadRequest::Subject);
        };
        let name = info.subject.iter_common_name().next().and_then(|name| name.as_str().ok());
        let name = name.filter(|_| info.attributes().is_empty()).ok_or(BadRequest::Subject)?;
        check_node_name(name)?;
        let (name, fingerprint) = (name.to_owned(), Fingerprint::of(key));
        let key = SubjectPublicKeyInfo::from_der(key).map_err(|_| BadRequest::Key)?;
        Ok(Self { name, key, fingerprint })
    }
}
