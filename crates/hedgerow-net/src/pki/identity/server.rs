//! [`ServerIdentity`]: the server's certificate, and which nodes it admits.
//!
//! A node is admitted if its certificate is signed by the authority, is for a node, has not ended
//! and is not revoked. The list of revoked ones is a local file and never expires. Without the list
//! no node is admitted. TLS sessions can't be resumed, because that would skip the list.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use x509_parser::num_bigint::BigUint;
use x509_parser::prelude::{CertificateRevocationList, FromDer};

use super::bundle::{Bundle, MAX_LIST_BYTES, Stamp, Usage, section, unfit_pair};
use super::{
    IdentityError, Peer, days_until, ending, parse, plain_serial, protocols, provider, warning,
};
use crate::file::read_whole;

/// Private key, certificate and the authority's certificate.
pub const SERVER_FILE: &str = "server.pem";
/// The list of revoked certificates.
pub const CRL_FILE: &str = "crl.pem";

/// The server's files, opened. They may be replaced at any time: see
/// [`ServerIdentity::reload_if_changed`].
pub struct ServerIdentity {
    folder: PathBuf,
    current: RwLock<Current>,
}

/// The certificate and the list in use.
struct Current {
    stamps: [Option<Stamp>; 2],
    end: i64,
    number: BigUint,
    revoked: HashSet<Vec<u8>>,
    config: Arc<ServerConfig>,
}

impl ServerIdentity {
    /// Reads `server.pem` and `crl.pem`; nothing else of the authority's folder needs to be where
    /// the server is.
    pub fn open(folder: &Path) -> Result<Self, IdentityError> {
        let current = Current::read(folder, stamps(folder))?;
        Ok(Self { folder: folder.to_owned(), current: RwLock::new(current) })
    }

    /// TLS of the server: 1.3 only, with certificates of nodes, HTTP/2. It changes, so ask for it
    /// at each connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current().config)
    }

    /// Loads a renewed certificate or a newer list. Returns whether something is new: then streams
    /// of [revoked](Self::is_revoked) nodes should end. An error is returned once, and the old
    /// files stay in use.
    pub fn reload_if_changed(&self) -> Result<bool, IdentityError> {
        let stamps = stamps(&self.folder);
        if self.current().stamps == stamps {
            return Ok(false);
        }
        let read = Current::read(&self.folder, stamps.clone());
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        current.stamps = stamps;
        let new = read?;
        // An old copy would admit revoked nodes again.
        if new.number < current.number {
            return Err(IdentityError::OldList {
                file: self.folder.join(CRL_FILE),
                number: new.number.to_string(),
                known: current.number.to_string(),
            });
        }
        *current = new;
        Ok(true)
    }

    /// Whether the certificate of an admitted node was revoked.
    pub fn is_revoked(&self, peer: &Peer) -> bool {
        self.current().revoked.contains(&peer.serial)
    }

    /// Whole days until the server's certificate ends; negative once it has.
    pub fn days_left(&self) -> i64 {
        days_until(self.current().end)
    }

    /// What to log, if the server's certificate ends soon or has ended.
    pub fn warning(&self) -> Option<String> {
        let whose =
            format!("the server's certificate in {}", self.folder.join(SERVER_FILE).display());
        warning(&whose, self.current().end, "hedgerow pki renew-server makes a new one")
    }

    fn current(&self) -> RwLockReadGuard<'_, Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ServerIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ServerIdentity")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl Current {
    fn read(folder: &Path, stamps: [Option<Stamp>; 2]) -> Result<Self, IdentityError> {
        let file = folder.join(SERVER_FILE);
        let Bundle { key, certificate, authority, roots } = Bundle::read(&file, Usage::Server)?;
        let end = ending(&certificate)
            .map_err(|source| IdentityError::Certificate { file: file.clone(), source })?;
        let list = folder.join(CRL_FILE);
        let der =
            section(&list, &read_whole(&list, MAX_LIST_BYTES)?, "holds no revocation list in PEM")?;
        let (number, revoked) = check_list(&list, &der, &authority)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider())
            .with_crls([der])
            .build()
            .map_err(|_| IdentityError::Unfit {
                file: list,
                what: "this revocation list can't be used",
            })?;
        let unfit = |error| unfit_pair(&file, &error);
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(unfit)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate], key)
            .map_err(unfit)?;
        config.alpn_protocols = protocols();
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { stamps, end, number, revoked, config: Arc::new(config) })
    }
}

fn stamps(folder: &Path) -> [Option<Stamp>; 2] {
    [SERVER_FILE, CRL_FILE].map(|name| Stamp::of(&folder.join(name)))
}

/// Number and serials of a list that this authority signed. With a list of another authority no
/// node could join.
fn check_list(
    file: &Path,
    der: &CertificateRevocationListDer<'_>,
    authority: &CertificateDer<'_>,
) -> Result<(BigUint, HashSet<Vec<u8>>), IdentityError> {
    let unfit = |what| IdentityError::Unfit { file: file.to_owned(), what };
    let odd = |source| IdentityError::Certificate { file: file.to_owned(), source };
    let Ok(([], list)) = CertificateRevocationList::from_der(der) else {
        return Err(unfit("the revocation list can't be read"));
    };
    let authority = parse(authority).map_err(odd)?;
    list.verify_signature(authority.public_key())
        .map_err(|_| unfit("the revocation list is not signed by the authority of server.pem"))?;
    let number =
        list.crl_number().cloned().ok_or_else(|| unfit("the revocation list has no number"))?;
    let serials =
        list.iter_revoked_certificates().map(|entry| plain_serial(entry.raw_serial())).collect();
    Ok((number, serials))
}
