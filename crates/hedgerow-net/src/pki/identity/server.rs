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
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use x509_parser::prelude::{CertificateRevocationList, FromDer};

use super::bundle::{Bundle, MAX_LIST_BYTES, Stamp, Usage, unfit_pair};
use super::list_numbers::ListNumbers;
use super::{
    IdentityError, SIGNING_PROTOCOL, days_until, ending, is_due, parse, plain_serial, protocols,
    provider, unix_time, warning,
};
use crate::file::read_whole;
use crate::pki::token::Fingerprint;

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
    begin: i64,
    end: i64,
    /// When the first of the authorities ends.
    authority_end: i64,
    numbers: ListNumbers,
    revoked: HashSet<Vec<u8>>,
    config: Arc<ServerConfig>,
    signing_config: Arc<ServerConfig>,
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

    /// TLS of a connection on which a certificate is asked for: the client may have none, and is
    /// shown the authorities, of which it may know only the fingerprint.
    pub fn signing_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current().signing_config)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// When the certificate ends, and when its authority does, in seconds of Unix time.
    pub fn ends(&self) -> [i64; 2] {
        let current = self.current();
        [current.end, current.authority_end]
    }

    /// Whether less than a third of the certificate's life is left: then it should be renewed.
    pub fn is_due(&self) -> bool {
        let current = self.current();
        is_due(current.begin, current.end, unix_time())
    }

    /// The lists of revoked certificates in force.
    pub fn list_numbers(&self) -> ListNumbers {
        self.current().numbers.clone()
    }

    /// Refuses lists that are older than those that were in force before.
    pub fn check_lists(&self, known: &ListNumbers) -> Result<(), IdentityError> {
        self.current().numbers.check(&self.folder, known)
    }

    /// Loads a renewed certificate or a newer list. Returns whether something is new: then streams
    /// of [revoked](Self::is_revoked) nodes should end. As long as the files can't be used, each
    /// call returns an error, and what was in force stays so.
    pub fn reload_if_changed(&self) -> Result<bool, IdentityError> {
        let stamps = stamps(&self.folder);
        if self.current().stamps == stamps {
            return Ok(false);
        }
        let new = Current::read(&self.folder, stamps)?;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        // An old copy would admit revoked nodes again.
        new.numbers.check(&self.folder, &current.numbers)?;
        *current = new;
        Ok(true)
    }

    /// Whether the certificate with this serial number was revoked.
    pub fn is_revoked(&self, serial: &[u8]) -> bool {
        self.current().revoked.contains(serial)
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
        let Bundle { key, certificate, begin, authorities, roots } =
            Bundle::read(&file, Usage::Server)?;
        let odd = |source| IdentityError::Certificate { file: file.clone(), source };
        let end = ending(&certificate).map_err(odd)?;
        let mut authority_end = i64::MAX;
        for authority in &authorities {
            authority_end = authority_end.min(ending(authority).map_err(odd)?);
        }
        let list = folder.join(CRL_FILE);
        let lists = read_lists(&list, &authorities)?;
        let roots = Arc::new(roots);
        let verifier = |is_optional: bool| {
            let builder = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider())
                .with_crls(lists.ders.clone());
            let builder = if is_optional { builder.allow_unauthenticated() } else { builder };
            let what = "this revocation list can't be used";
            builder.build().map_err(|_| IdentityError::Unfit { file: list.clone(), what })
        };
        let unfit = |error| unfit_pair(&file, &error);
        let config = |verifier, chain: Vec<CertificateDer<'static>>| {
            let mut config = ServerConfig::builder_with_provider(provider())
                .with_protocol_versions(&[&TLS13])
                .map_err(unfit)?
                .with_client_cert_verifier(verifier)
                .with_single_cert(chain, key.clone_key())
                .map_err(unfit)?;
            config.send_tls13_tickets = 0;
            config.session_storage = Arc::new(NoServerSessionStorage {});
            Ok::<_, IdentityError>(config)
        };
        let mut usual = config(verifier(false)?, vec![certificate.clone()])?;
        usual.alpn_protocols = protocols();
        let chain = [certificate].into_iter().chain(authorities).collect();
        let mut signing = config(verifier(true)?, chain)?;
        signing.alpn_protocols = vec![SIGNING_PROTOCOL.to_vec()];
        let (config, signing_config) = (Arc::new(usual), Arc::new(signing));
        let Lists { numbers, revoked, .. } = lists;
        Ok(Self { stamps, begin, end, authority_end, numbers, revoked, config, signing_config })
    }
}

fn stamps(folder: &Path) -> [Option<Stamp>; 2] {
    [SERVER_FILE, CRL_FILE].map(|name| Stamp::of(&folder.join(name)))
}

/// Lists of revoked certificates.
struct Lists {
    ders: Vec<CertificateRevocationListDer<'static>>,
    numbers: ListNumbers,
    revoked: HashSet<Vec<u8>>,
}

/// Reads the list of each authority. Without it no node of that authority could join. Lists of
/// other authorities are ignored: the two files of the server don't change at the same moment.
fn read_lists(file: &Path, authorities: &[CertificateDer<'_>]) -> Result<Lists, IdentityError> {
    let unfit = |what| IdentityError::Unfit { file: file.to_owned(), what };
    let odd = |source| IdentityError::Certificate { file: file.to_owned(), source };
    let content = read_whole(file, MAX_LIST_BYTES)?;
    let all: Result<Vec<CertificateRevocationListDer<'static>>, _> =
        CertificateRevocationListDer::pem_slice_iter(&content).collect();
    let all = all.map_err(|_| unfit("holds no revocation list in PEM"))?;
    if all.is_empty() {
        return Err(unfit("holds no revocation list in PEM"));
    }
    let mut lists =
        Lists { ders: Vec::new(), numbers: ListNumbers::default(), revoked: HashSet::new() };
    for der_of_authority in authorities {
        let authority = parse(der_of_authority).map_err(odd)?;
        let fingerprint = Fingerprint::of(der_of_authority).to_string();
        let mut is_signed = false;
        for der in &all {
            let Ok(([], list)) = CertificateRevocationList::from_der(der) else {
                return Err(unfit("the revocation list can't be read"));
            };
            if list.verify_signature(authority.public_key()).is_err() {
                continue;
            }
            let number = list.crl_number().cloned();
            let number = number.ok_or_else(|| unfit("the revocation list has no number"))?;
            lists.numbers.insert(fingerprint.clone(), number);
            let serials = list.iter_revoked_certificates();
            lists.revoked.extend(serials.map(|entry| plain_serial(entry.raw_serial())));
            lists.ders.push(der.clone());
            is_signed = true;
        }
        if !is_signed {
            return Err(unfit("the revocation list is not signed by the authority of server.pem"));
        }
    }
    if lists.ders.is_empty() {
        return Err(unfit("the revocation list is not signed by the authority of server.pem"));
    }
    Ok(lists)
}
