//! Rotation: a new authority takes the place of the old one, and for a while both are trusted.
//!
//! During the overlap `ca.next.pem` has key and certificate of the new authority. It signs the
//! certificates of nodes and operators, whose files name both authorities. The server's certificate
//! stays one of the old authority, because some nodes know only that. At the end the new authority
//! takes the place of `ca.key` and `ca.pem`, and issues the server's certificate. Every step can be
//! repeated after a crash.

use std::path::PathBuf;

use time::OffsetDateTime;

use super::signer::{Signed, Signer};
use super::{
    AUTHORITY_FILE, Authority, INDEX_FILE, Issued, KEY_FILE, Kind, PkiError, end_after, index,
    is_there, key, lock, write,
};
use crate::file::{Access, FileError};
use crate::pki::identity::{BadCertificate, IdentityError, SERVER_FILE, certificate_in, ending};
use crate::pki::token::Fingerprint;

/// Key and certificate of the authority that follows.
const NEXT_FILE: &str = "ca.next.pem";

/// Most names in an error.
const NAMED: usize = 5;

/// How far a rotation is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// Owners of a valid certificate whose newest one is still of the old authority.
    pub waiting: Vec<String>,
    /// When the old authority ends, and the new one.
    pub ends: [OffsetDateTime; 2],
}

impl Authority {
    /// Makes a new authority that is good for so many days, and begins the overlap. If one has
    /// begun, its files are written again.
    pub fn rotate(&self, days: u32) -> Result<Rotation, PkiError> {
        let now = self.now();
        let end = end_after(now, days)?;
        let _lock = lock(&self.folder)?;
        let mut all = self.list()?;
        if !self.is_rotating()? {
            let old = self.current()?;
            // Until now there was only one.
            let of_old = Some(old.fingerprint.to_string());
            all.iter_mut().for_each(|issued| {
                issued.authority.get_or_insert_with(|| of_old.clone().unwrap_or_default());
            });
            index::save(&self.folder.join(INDEX_FILE), &all)?;
            let passphrase = self.passphrase.as_ref().filter(|_| old.is_sealed);
            let (next, key) = Signer::generate(now, end)?;
            let pem = key::seal(&key, passphrase)? + &next.pem;
            write(&self.folder.join(NEXT_FILE), &pem, Access::Private)?;
            self.note("rotate", "authority", &format!("{} until {end}", next.fingerprint))?;
        }
        // The list first: the server needs one of every authority that it trusts.
        self.write_list(&self.list_signers()?, &all, now)?;
        let server = self.folder.join(SERVER_FILE);
        let content = self.text(&server)?;
        let next = self.signer()?;
        if !content.contains(next.pem.trim_end()) {
            write(&server, &(content.trim_end().to_owned() + "\n" + &next.pem), Access::Private)?;
        }
        self.progress(&all, now)
    }

    /// How far a rotation is; none if there is none.
    pub fn rotation(&self) -> Result<Option<Rotation>, PkiError> {
        if !self.is_rotating()? {
            return Ok(None);
        }
        self.progress(&self.list()?, self.now()).map(Some)
    }

    /// Ends the overlap: only the new authority is trusted. Refused while somebody has only a
    /// certificate of the old one, unless `even_so`.
    pub fn finish_rotation(&self, even_so: bool) -> Result<(PathBuf, Issued), PkiError> {
        let now = self.now();
        let _lock = lock(&self.folder)?;
        if !self.is_rotating()? {
            return Err(PkiError::NotRotating);
        }
        let mut all = self.list()?;
        let waiting = self.waiting(&all, now)?;
        if !waiting.is_empty() && !even_so {
            let names = waiting[..waiting.len().min(NAMED)].join(", ");
            return Err(PkiError::Waiting { count: waiting.len(), names });
        }
        let next = self.signer()?.alone();
        let server = all.iter().rfind(|issued| issued.kind == Kind::Server);
        let (hosts, life) = server.map_or((Vec::new(), time::Duration::days(1)), |server| {
            (server.hosts.clone(), server.not_after - server.issued_at)
        });
        let Signed { pem, issued } = next.sign_server(&hosts, now, now + life)?;
        all.push(issued.clone());
        index::save(&self.folder.join(INDEX_FILE), &all)?;
        self.note_issued("finish-rotation", &issued)?;
        let file = self.folder.join(NEXT_FILE);
        let content = self.text(&file)?;
        let begin = content.find("-----BEGIN CERTIFICATE").unwrap_or(content.len());
        let (key, certificate) = content.split_at(begin);
        let server = self.folder.join(SERVER_FILE);
        write(&self.folder.join(KEY_FILE), key, Access::Private)?;
        write(&self.folder.join(AUTHORITY_FILE), certificate, Access::Shared)?;
        write(&server, &pem, Access::Private)?;
        self.write_list(&[next], &all, now)?;
        std::fs::remove_file(&file).map_err(FileError::unwritable(&file))?;
        Ok((server, issued))
    }

    pub(super) fn is_rotating(&self) -> Result<bool, PkiError> {
        Ok(is_there(&self.folder.join(NEXT_FILE))?)
    }

    /// The authority that signs certificates of nodes and operators.
    pub(super) fn signer(&self) -> Result<Signer, PkiError> {
        if !self.is_rotating()? {
            return self.current();
        }
        let file = self.folder.join(NEXT_FILE);
        let content = self.text(&file)?;
        let begin = content.find("-----BEGIN CERTIFICATE").unwrap_or(content.len());
        let (key, certificate) = content.split_at(begin);
        let next = self.read_signer((&file, key), (&file, certificate.to_owned()))?;
        Ok(next.beside(self.text(&self.folder.join(AUTHORITY_FILE))?))
    }

    /// The authority that signs the server's certificate.
    pub(super) fn server_signer(&self) -> Result<Signer, PkiError> {
        let current = self.current()?;
        if !self.is_rotating()? {
            return Ok(current);
        }
        Ok(current.beside(self.signer()?.pem))
    }

    /// The authorities that sign lists of revoked certificates: all that are trusted.
    pub(super) fn list_signers(&self) -> Result<Vec<Signer>, PkiError> {
        let mut signers = vec![self.current()?];
        if self.is_rotating()? {
            signers.push(self.signer()?);
        }
        Ok(signers)
    }

    /// The files with a private key of an authority.
    pub(super) fn key_files(&self) -> Result<Vec<&'static str>, PkiError> {
        let is_rotating = self.is_rotating()?;
        Ok([KEY_FILE, NEXT_FILE].into_iter().take(1 + usize::from(is_rotating)).collect())
    }

    /// Whether a certificate is not of the newest authority, or names another one beside it that is
    /// not trusted any more.
    pub(super) fn is_outdated(&self, issued: &Issued) -> Result<bool, PkiError> {
        let is_rotating = self.is_rotating()?;
        let (newest, _) = self.newest()?;
        let is_of_newest = match &issued.authority {
            Some(authority) => *authority == newest,
            None => !is_rotating,
        };
        Ok(!is_of_newest || (issued.trusts_two && !is_rotating))
    }

    /// Fingerprint and end of the newest authority, without its key.
    fn newest(&self) -> Result<(String, OffsetDateTime), PkiError> {
        let file = if self.is_rotating()? { NEXT_FILE } else { AUTHORITY_FILE };
        self.fingerprint_and_end(file)
    }

    fn fingerprint_and_end(&self, file: &str) -> Result<(String, OffsetDateTime), PkiError> {
        let file = self.folder.join(file);
        let certificate = certificate_in(&file)?;
        let odd = |source| IdentityError::Certificate { file: file.clone(), source };
        let end = ending(&certificate).map_err(odd)?;
        let end = OffsetDateTime::from_unix_timestamp(end)
            .map_err(|_| odd(BadCertificate::Unreadable))?;
        Ok((Fingerprint::of(&certificate).to_string(), end))
    }

    fn progress(&self, all: &[Issued], now: OffsetDateTime) -> Result<Rotation, PkiError> {
        let ends = [self.fingerprint_and_end(AUTHORITY_FILE)?.1, self.newest()?.1];
        Ok(Rotation { waiting: self.waiting(all, now)?, ends })
    }

    fn waiting(&self, all: &[Issued], now: OffsetDateTime) -> Result<Vec<String>, PkiError> {
        let newest = Some(self.newest()?.0);
        let of_peers = || all.iter().filter(|issued| issued.kind != Kind::Server);
        let has_new: std::collections::HashSet<&str> = of_peers()
            .filter(|issued| issued.authority == newest)
            .map(|issued| issued.name.as_str())
            .collect();
        let waits = |issued: &&Issued| issued.is_good(now) && !has_new.contains(&*issued.name);
        let mut names: Vec<String> =
            of_peers().filter(waits).map(|issued| issued.name.clone()).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }
}
