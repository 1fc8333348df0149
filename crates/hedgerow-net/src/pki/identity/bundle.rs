//! [`Bundle`]: private key, certificate and the authorities' certificates in one PEM file, and how
//! such files are read and watched.

use std::fs::Metadata;
use std::path::Path;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{BadCertificate, IdentityError, parse};
use crate::file::read_whole;

/// Most bytes of a key with its certificates.
pub(crate) const MAX_PEM_BYTES: u64 = 1 << 20;

/// Most bytes of the lists of issued and revoked certificates.
#[cfg(feature = "server")]
pub(crate) const MAX_LIST_BYTES: u64 = 1 << 26;

/// Most authorities in a file: while one replaces another, both are trusted.
const MAX_AUTHORITIES: usize = 2;

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Usage {
    Node,
    #[cfg(feature = "server")]
    Server,
}

/// All that one side needs. It has no `Debug`, because it contains the key.
pub(super) struct Bundle {
    pub(super) key: PrivateKeyDer<'static>,
    pub(super) certificate: CertificateDer<'static>,
    /// When the certificate begins to be valid, in seconds of Unix time.
    pub(super) begin: i64,
    /// The one that issued it first.
    #[cfg(feature = "server")]
    pub(super) authorities: Vec<CertificateDer<'static>>,
    pub(super) roots: RootCertStore,
}

impl Bundle {
    /// Reads and checks it, and warns if other users can read the file.
    pub(super) fn read(file: &Path, usage: Usage) -> Result<Self, IdentityError> {
        let content = read_whole(file, MAX_PEM_BYTES)?;
        warn_if_open_to_others(file);
        Self::parse(file, &content, usage)
    }

    /// Checks the content of a file.
    pub(super) fn parse(file: &Path, content: &[u8], usage: Usage) -> Result<Self, IdentityError> {
        let unfit = |what| IdentityError::Unfit { file: file.to_owned(), what };
        let odd = |source| IdentityError::Certificate { file: file.to_owned(), source };
        let (mut keys, mut certificates) = (Vec::new(), Vec::new());
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(content) {
            // The library's error might quote the file.
            let (kind, der) =
                section.map_err(|_| unfit("is damaged: a PEM section can't be read"))?;
            match kind {
                SectionKind::Certificate => certificates.push(CertificateDer::from(der)),
                _ => keys.extend(PrivateKeyDer::from_pem(kind, der)),
            }
        }
        let key = match (keys.pop(), keys.is_empty()) {
            (Some(key), true) => key,
            (Some(_), false) => return Err(unfit("holds more than one private key")),
            (None, _) => {
                return Err(unfit("holds no private key in PEM (an encrypted one can't be used)"));
            }
        };
        let is_twice = matches!(&certificates[..], [_, one, other] if one == other);
        if !(2..=1 + MAX_AUTHORITIES).contains(&certificates.len()) || is_twice {
            return Err(unfit(
                "must hold two certificates, its owner's and then the authority's (and another \
                 authority's while one replaces the other), but holds more or fewer",
            ));
        }
        let authorities = certificates.split_off(1);
        let certificate = certificates.swap_remove(0);
        let owner = parse(&certificate).map_err(odd)?;
        for (index, authority) in authorities.iter().enumerate() {
            let issuer = parse(authority).map_err(odd)?;
            if !issuer.is_ca() {
                return Err(unfit("a certificate after its first one is no authority's"));
            }
            if index == 0 && owner.issuer().as_raw() != issuer.subject().as_raw() {
                return Err(unfit(
                    "its first certificate was not issued by the authority that is the second",
                ));
            }
        }
        let begin = owner.validity().not_before.timestamp();
        let purposes = owner.extended_key_usage().map_err(|_| odd(BadCertificate::Unreadable))?;
        match (usage, purposes) {
            (Usage::Node, Some(purposes)) if purposes.value.client_auth => {}
            (Usage::Node, _) => return Err(unfit("its certificate is not for a node")),
            #[cfg(feature = "server")]
            (Usage::Server, Some(purposes)) if purposes.value.server_auth => {}
            #[cfg(feature = "server")]
            (Usage::Server, _) => return Err(unfit("its certificate is not for a server")),
        }
        let mut roots = RootCertStore::empty();
        for authority in &authorities {
            roots
                .add(authority.clone())
                .map_err(|_| unfit("its authority's certificate can't be used"))?;
        }
        Ok(Self {
            key,
            certificate,
            begin,
            #[cfg(feature = "server")]
            authorities,
            roots,
        })
    }
}

/// The error for a key and a certificate that don't belong together.
pub(super) fn unfit_pair(file: &Path, error: &rustls::Error) -> IdentityError {
    let what = match error {
        rustls::Error::InconsistentKeys(_) => "its private key is not that of its certificate",
        _ => "its private key or its certificate can't be used",
    };
    IdentityError::Unfit { file: file.to_owned(), what }
}

/// The first section of a kind in a PEM file.
#[cfg(feature = "server")]
pub(super) fn section<T: PemObject>(
    file: &Path,
    content: &[u8],
    missing: &'static str,
) -> Result<T, IdentityError> {
    T::from_pem_slice(content)
        .map_err(|_| IdentityError::Unfit { file: file.to_owned(), what: missing })
}

/// The first certificate in a PEM file.
#[cfg(feature = "server")]
pub(crate) fn certificate_in(file: &Path) -> Result<CertificateDer<'static>, IdentityError> {
    section(file, &read_whole(file, MAX_PEM_BYTES)?, "holds no certificate in PEM")
}

/// Properties of a file that change when it is written or replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    #[cfg(unix)]
    changed: (u64, i64, i64),
}

impl Stamp {
    /// None if there is no file. Take it before the file is read, so that a change meanwhile is
    /// seen later.
    pub(super) fn of(file: &Path) -> Option<Self> {
        let metadata: Metadata = std::fs::metadata(file).ok()?;
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt;
        Some(Self {
            modified: metadata.modified().ok(),
            length: metadata.len(),
            #[cfg(unix)]
            changed: (metadata.ino(), metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

#[cfg(unix)]
fn warn_if_open_to_others(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(file).map_or(0, |metadata| metadata.permissions().mode() & 0o777);
    if mode & 0o077 != 0 {
        let (file, mode) = (file.display(), format!("{mode:03o}"));
        tracing::warn!(%file, mode, "others than the owner may read or write this private key; chmod 600 mends that");
    }
}

#[cfg(not(unix))]
fn warn_if_open_to_others(_: &Path) {}
