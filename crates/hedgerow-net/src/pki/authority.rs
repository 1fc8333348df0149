//! [`Authority`]: a folder that certificates of a federation come from.
//!
//! ```text
//! ca.key         private key of the authority: keep it secret, and not on the server if possible
//! ca.pem         its certificate
//! server.pem     private key and certificate of the server, and ca.pem; needed with crl.pem
//! crl.pem        the list of revoked certificates, signed
//! nodes/a.pem    private key and certificate of node a, and ca.pem; the node needs only this
//! operators/b.pem  the same of operator b
//! index.jsonl    every certificate that was issued
//! tokens.jsonl   every token for a first certificate, without its secret
//! audit.jsonl    what was done, as a chain of entries
//! ca.next.pem    during a rotation: the new authority
//! ```
//!
//! A certificate is for a server, a node or an operator, never for two of them, so no node can act
//! as the server, or command it. A
//! certificate is in the index before its file is written, and the list of revoked ones is made
//! from the index. Nodes have no such list: a stolen key of a server is valid until its certificate
//! ends, and only a new authority helps against that.

mod enrolling;
mod error;
mod files;
mod index;
mod key;
mod lines;
mod log;
mod rotation;
mod signer;
mod tokens;

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateRevocationListDer, DnsName};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{CertificateRevocationList, FromDer};

use crate::file::{Access, read_whole, write_whole};
use crate::pki::identity::{
    CRL_FILE, IdentityError, MAX_LIST_BYTES, MAX_PEM_BYTES, Peer, Role, SERVER_FILE,
    certificate_in, check_node_name,
};
pub use enrolling::{EnrolmentError, Granted, MAX_TOKEN_LIFE};
pub use error::PkiError;
use files::{is_there, lock, make_folder};
use index::from_hexadecimal;
pub use index::{Issued, Kind};
pub use key::Passphrase;
pub use rotation::Rotation;
use signer::{Signed, Signer};
pub use tokens::{TokenRecord, TokenState};

/// Default validity of the authority's own certificate.
pub const AUTHORITY_DAYS: u32 = 3650;
/// Default validity of all other certificates.
pub const CERTIFICATE_DAYS: u32 = 730;
/// The longest validity.
pub const MAX_DAYS: u32 = 36_500;
/// The default host names of a server.
pub const DEFAULT_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

const KEY_FILE: &str = "ca.key";
const AUTHORITY_FILE: &str = "ca.pem";
const INDEX_FILE: &str = "index.jsonl";
const NODES_FOLDER: &str = "nodes";
const OPERATORS_FOLDER: &str = "operators";
const TOKENS_FILE: &str = "tokens.jsonl";
const AUDIT_FILE: &str = "audit.jsonl";

/// The folder of an authority. The private key is read for each signature and not kept.
#[derive(Debug, Clone)]
pub struct Authority {
    folder: PathBuf,
    /// Of its key, if that is encrypted.
    passphrase: Option<Passphrase>,
    /// Who acts, for the audit log.
    actor: String,
    /// The time, if it isn't that of the system.
    clock: Option<OffsetDateTime>,
}

/// Whether a node that has a good certificate may have another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Issuing {
    /// No: two devices of one name would replace each other's streams. The certificate is for
    /// somebody with this role.
    First(Role),
    /// Yes, in the same role and in place of the existing file. The old certificate stays valid
    /// until the node has the new one.
    Renewal,
}

impl Authority {
    /// Makes an authority, a server's certificate for these DNS names and IP addresses
    /// ([`DEFAULT_HOSTS`] if there are none), and an empty list of revoked ones.
    pub fn init(folder: &Path, hosts: &[String]) -> Result<Self, PkiError> {
        let authority = Self::at(folder);
        authority.make(hosts, CERTIFICATE_DAYS, AUTHORITY_DAYS)?;
        Ok(authority)
    }

    /// A folder that may have an authority.
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), passphrase: None, actor: String::new(), clock: None }
    }

    /// The same, with the passphrase of its key: of the one that is there, or that will be made.
    pub fn with_passphrase(self, passphrase: Option<Passphrase>) -> Self {
        Self { passphrase, ..self }
    }

    /// The same, on behalf of somebody, which the audit log tells.
    pub fn acting_for(self, actor: &str) -> Self {
        Self { actor: actor.to_owned(), ..self }
    }

    /// The same at another time than the system's. Certificates can so be as old as a test needs.
    pub fn at_time(self, now: OffsetDateTime) -> Self {
        Self { clock: Some(now), ..self }
    }

    /// Makes the authority, with other times for the server's certificate and its own.
    pub fn make(
        &self,
        hosts: &[String],
        server_days: u32,
        authority_days: u32,
    ) -> Result<(), PkiError> {
        let hosts = checked_hosts(hosts)?;
        let now = self.now();
        let end = end_after(now, authority_days)?;
        let server_end = end_after(now, server_days)?;
        let folder = &self.folder;
        make_folder(folder)?;
        let _lock = lock(folder)?;
        let files = [
            KEY_FILE,
            AUTHORITY_FILE,
            INDEX_FILE,
            SERVER_FILE,
            CRL_FILE,
            TOKENS_FILE,
            AUDIT_FILE,
            NODES_FOLDER,
            OPERATORS_FOLDER,
        ];
        for file in files.map(|name| folder.join(name)) {
            if is_there(&file)? {
                return Err(PkiError::Exists { file });
            }
        }
        let made = self.make_files(&hosts, now, end, server_end);
        if made.is_err() {
            // All files were made just now, and they are incomplete.
            for file in files.map(|name| folder.join(name)) {
                let _ = if file.is_dir() {
                    std::fs::remove_dir(&file)
                } else {
                    std::fs::remove_file(&file)
                };
            }
        }
        made
    }

    /// An authority that was made before.
    pub fn open(folder: &Path) -> Result<Self, PkiError> {
        if !is_there(&folder.join(INDEX_FILE))? {
            return Err(PkiError::NoAuthority { folder: folder.to_owned() });
        }
        Ok(Self::at(folder))
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes a certificate for a node and returns the one file that it needs. Refused if the name
    /// has a valid certificate.
    pub fn issue(&self, node: &str, days: u32) -> Result<PathBuf, PkiError> {
        self.issue_all(&[node], days, Issuing::First(Role::Node))?;
        Ok(self.file_of(Role::Node, node))
    }

    /// Certificates for many names, or for none of them if one is refused.
    pub fn issue_all(
        &self,
        nodes: &[impl AsRef<str>],
        days: u32,
        issuing: Issuing,
    ) -> Result<Vec<(PathBuf, Issued)>, PkiError> {
        let now = self.now();
        let end = end_after(now, days)?;
        let _lock = lock(&self.folder)?;
        let mut all = self.list()?;
        let mut seen = HashSet::new();
        for node in nodes.iter().map(AsRef::as_ref) {
            check_node_name(node)?;
            if !seen.insert(node) {
                return Err(PkiError::Twice(node.to_owned()));
            }
        }
        let mut known: HashMap<&str, Vec<&Issued>> = HashMap::new();
        for issued in all.iter().filter(|issued| seen.contains(&*issued.name)) {
            if issued.is_of(&issued.name) {
                known.entry(&issued.name).or_default().push(issued);
            }
        }
        let mut roles = Vec::with_capacity(nodes.len());
        for node in nodes.iter().map(AsRef::as_ref) {
            let known = known.get(node).map_or(&[][..], Vec::as_slice);
            roles.push(self.check_free(node, known, issuing, now)?);
        }
        let signer = self.signer()?;
        let mut signed = Vec::with_capacity(nodes.len());
        for (node, role) in nodes.iter().map(AsRef::as_ref).zip(&roles) {
            signed.push(signer.sign_peer(*role, node, now, end)?);
        }
        if roles.contains(&Role::Operator) {
            make_folder(&self.folder.join(OPERATORS_FOLDER))?;
        }
        all.extend(signed.iter().map(|Signed { issued, .. }| issued.clone()));
        index::save(&self.folder.join(INDEX_FILE), &all)?;
        for Signed { issued, .. } in &signed {
            self.note_issued("issue", issued)?;
        }
        let mut written = Vec::with_capacity(signed.len());
        for (Signed { pem, issued }, role) in signed.into_iter().zip(roles) {
            let file = self.file_of(role, &issued.name);
            write(&file, &pem, Access::Private)?;
            written.push((file, issued));
        }
        Ok(written)
    }

    /// A new private key and certificate for the server, which reloads them. For these names and
    /// addresses, or for the same as before if there are none.
    pub fn renew_server(&self, hosts: &[String], days: u32) -> Result<(PathBuf, Issued), PkiError> {
        let now = self.now();
        let end = end_after(now, days)?;
        let _lock = lock(&self.folder)?;
        let mut all = self.list()?;
        let before = all.iter().rfind(|issued| issued.kind == Kind::Server);
        let same = before.map_or(&[][..], |before| &before.hosts);
        let hosts = checked_hosts(if hosts.is_empty() { same } else { hosts })?;
        let Signed { pem, issued } = self.server_signer()?.sign_server(&hosts, now, end)?;
        all.push(issued.clone());
        index::save(&self.folder.join(INDEX_FILE), &all)?;
        self.note_issued("renew-server", &issued)?;
        let file = self.folder.join(SERVER_FILE);
        write(&file, &pem, Access::Private)?;
        Ok((file, issued))
    }

    /// Revokes every certificate of a node; returns how many of them were valid. The list is
    /// written again in any case, which also repairs a damaged one.
    pub fn revoke(&self, node: &str) -> Result<usize, PkiError> {
        Ok(self.revoke_all(&[node])?.into_iter().sum())
    }

    /// The same for many nodes, or for none of them if one is unknown.
    pub fn revoke_all(&self, nodes: &[impl AsRef<str>]) -> Result<Vec<usize>, PkiError> {
        let now = self.now();
        let _lock = lock(&self.folder)?;
        let mut all = self.list()?;
        let mut counts = Vec::with_capacity(nodes.len());
        for node in nodes.iter().map(AsRef::as_ref) {
            if !all.iter().any(|issued| issued.is_of(node)) {
                return Err(PkiError::Unknown {
                    node: node.to_owned(),
                    folder: self.folder.clone(),
                });
            }
            let mut count = 0;
            for issued in
                all.iter_mut().filter(|issued| issued.is_of(node) && issued.revoked_at.is_none())
            {
                count += usize::from(issued.is_good(now));
                issued.revoked_at = Some(now);
            }
            counts.push(count);
        }
        // Without the authority's key nothing is changed.
        let signers = self.list_signers()?;
        self.cancel(nodes, now)?;
        index::save(&self.folder.join(INDEX_FILE), &all)?;
        self.write_list(&signers, &all, now)?;
        for (node, count) in nodes.iter().zip(&counts) {
            self.note("revoke", node.as_ref(), &format!("{count} valid certificates"))?;
        }
        Ok(counts)
    }

    /// All issued certificates, oldest first.
    pub fn list(&self) -> Result<Vec<Issued>, PkiError> {
        index::load(&self.folder.join(INDEX_FILE))
    }

    /// Where the file of a node or an operator is written.
    pub fn file_of(&self, role: Role, name: &str) -> PathBuf {
        let folder = match role {
            Role::Node => NODES_FOLDER,
            Role::Operator => OPERATORS_FOLDER,
        };
        self.folder.join(folder).join(format!("{name}.pem"))
    }

    fn make_files(
        &self,
        hosts: &[String],
        now: OffsetDateTime,
        end: OffsetDateTime,
        server_end: OffsetDateTime,
    ) -> Result<(), PkiError> {
        let (signer, key) = Signer::generate(now, end)?;
        let server = signer.sign_server(hosts, now, server_end)?;
        let key = key::seal(&key, self.passphrase.as_ref())?;
        make_folder(&self.folder.join(NODES_FOLDER))?;
        write(&self.folder.join(KEY_FILE), &key, Access::Private)?;
        write(&self.folder.join(AUTHORITY_FILE), &signer.pem, Access::Shared)?;
        self.write_list(&[signer], &[], now)?;
        write(&self.folder.join(SERVER_FILE), &server.pem, Access::Private)?;
        self.note("init", "authority", &format!("until {end}"))?;
        self.note_issued("issue", &server.issued)?;
        index::save(&self.folder.join(INDEX_FILE), &[server.issued])
    }

    /// Encrypts the authority's key with another passphrase, or with none.
    pub fn change_passphrase(&self, passphrase: Option<&Passphrase>) -> Result<(), PkiError> {
        let _lock = lock(&self.folder)?;
        for name in self.key_files()? {
            let file = self.folder.join(name);
            let content = self.text(&file)?;
            let begin = content.find("-----BEGIN CERTIFICATE").unwrap_or(content.len());
            let (key, certificate) = content.split_at(begin);
            let key = key::open(&file, key, self.passphrase.as_ref())?;
            write(&file, &(key::seal(&key, passphrase)? + certificate), Access::Private)?;
        }
        let how = if passphrase.is_some() { "encrypted" } else { "not encrypted" };
        self.note("passphrase", "authority", how)
    }

    /// Whether the authority's key is there, and encrypted; none if it is not there.
    pub fn is_sealed(&self) -> Result<Option<bool>, PkiError> {
        let file = self.folder.join(KEY_FILE);
        if !is_there(&file)? {
            return Ok(None);
        }
        Ok(Some(key::is_sealed(&self.text(&file)?)))
    }

    /// Checks that this name, which has the `known` certificates, may have another, and that no
    /// other file has its name. Returns the role of the certificate.
    fn check_free(
        &self,
        name: &str,
        known: &[&Issued],
        issuing: Issuing,
        now: OffsetDateTime,
    ) -> Result<Role, PkiError> {
        let role = match (issuing, known.last()) {
            (Issuing::First(role), _) => {
                if let Some(good) = known.iter().find(|issued| issued.is_good(now)) {
                    let (node, end) = (name.to_owned(), good.not_after);
                    return Err(PkiError::Enrolled { node, end });
                }
                role
            }
            (Issuing::Renewal, None) => {
                let (node, folder) = (name.to_owned(), self.folder.clone());
                return Err(PkiError::Unknown { node, folder });
            }
            (Issuing::Renewal, Some(Issued { revoked_at: Some(at), .. })) => {
                return Err(PkiError::Revoked { node: name.to_owned(), at: *at });
            }
            (Issuing::Renewal, Some(newest)) => newest.role().unwrap_or(Role::Node),
        };
        let file = self.file_of(role, name);
        if is_there(&file)? {
            let peer = certificate_in(&file).ok();
            let peer = peer.and_then(|found| Peer::from_certificate(&found).ok());
            let is_of = |peer: &Peer, issued: &Issued| {
                peer.name == name && from_hexadecimal(&issued.serial).as_ref() == Some(&peer.serial)
            };
            if !peer.is_some_and(|peer| known.iter().any(|issued| is_of(&peer, issued))) {
                return Err(PkiError::InTheWay { file });
            }
        }
        Ok(role)
    }

    /// The authority of `ca.key` and `ca.pem`.
    fn current(&self) -> Result<Signer, PkiError> {
        let (key_file, file) = (self.folder.join(KEY_FILE), self.folder.join(AUTHORITY_FILE));
        let key = self.text(&key_file)?;
        self.read_signer((&key_file, &key), (&file, self.text(&file)?))
    }

    fn read_signer(
        &self,
        key: (&Path, &str),
        certificate: (&Path, String),
    ) -> Result<Signer, PkiError> {
        Signer::read(key, certificate, self.passphrase.as_ref())
    }

    fn text(&self, file: &Path) -> Result<String, IdentityError> {
        let content = read_whole(file, MAX_PEM_BYTES)?;
        let unfit = |_| IdentityError::Unfit { file: file.to_owned(), what: "that is no text" };
        String::from_utf8(content).map_err(unfit)
    }

    /// Writes the list of revoked certificates of each authority, with a greater number than
    /// before.
    fn write_list(
        &self,
        signers: &[Signer],
        all: &[Issued],
        now: OffsetDateTime,
    ) -> Result<(), PkiError> {
        let file = self.folder.join(CRL_FILE);
        // From the clock, so that numbers increase even if the old list is lost.
        let by_time = u64::try_from(now.unix_timestamp()).unwrap_or_default();
        let number =
            list_number(&file).map_or(by_time, |number| by_time.max(number.saturating_add(1)));
        let mut lists = String::new();
        for signer in signers {
            lists += &signer.sign_list(number, all, now)?;
        }
        write(&file, &lists, Access::Shared)
    }

    /// Certificates have no fractions of a second.
    fn now(&self) -> OffsetDateTime {
        let now = self.clock.unwrap_or_else(OffsetDateTime::now_utc);
        now.replace_nanosecond(0).unwrap_or(now)
    }
}

/// Writes a file completely or not at all.
fn write(file: &Path, content: &str, access: Access) -> Result<(), PkiError> {
    Ok(write_whole(file, access, |file| file.write_all(content.as_bytes()))?)
}

/// Number of the list in a file, if there is one.
fn list_number(file: &Path) -> Option<u64> {
    let content = read_whole(file, MAX_LIST_BYTES).ok()?;
    let der = CertificateRevocationListDer::from_pem_slice(&content).ok()?;
    let (_, list) = CertificateRevocationList::from_der(&der).ok()?;
    u64::try_from(list.crl_number()?).ok()
}

/// DNS names in lower case and addresses in their usual form, each once.
fn checked_hosts(hosts: &[String]) -> Result<Vec<String>, PkiError> {
    if hosts.is_empty() {
        return Ok(DEFAULT_HOSTS.map(str::to_owned).to_vec());
    }
    let mut checked = Vec::with_capacity(hosts.len());
    for host in hosts {
        let plain = match host.parse::<IpAddr>() {
            Ok(ip) => ip.to_string(),
            Err(_) if DnsName::try_from(host.as_str()).is_ok() && !host.ends_with('.') => {
                host.to_ascii_lowercase()
            }
            Err(_) => return Err(PkiError::Host(host.clone())),
        };
        if !checked.contains(&plain) {
            checked.push(plain);
        }
    }
    Ok(checked)
}

fn end_after(now: OffsetDateTime, days: u32) -> Result<OffsetDateTime, PkiError> {
    if !(1..=MAX_DAYS).contains(&days) {
        return Err(PkiError::Days(days));
    }
    now.checked_add(Duration::days(i64::from(days))).ok_or(PkiError::Days(days))
}
