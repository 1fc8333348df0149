//! Certificates for keys that the authority never sees: a first one for a token, a new one before
//! the old one ends, and one for a request in a file.

use std::path::PathBuf;
use std::time::Duration as Span;

use rustls::crypto::ring;
use time::{Duration, OffsetDateTime};

use super::signer::Signed;
use super::tokens::{self, MAX_TOKENS, TokenRecord, TokenState};
use super::{
    AUTHORITY_FILE, Authority, INDEX_FILE, Issued, Issuing, KEY_FILE, Kind, PkiError, TOKENS_FILE,
    end_after, index, is_there, lock, write,
};
use crate::file::Access;
use crate::pki::identity::{Peer, Role, SERVER_FILE, certificate_in, check_node_name};
use crate::pki::request::{BadRequest, Requested};
use crate::pki::token::{Fingerprint, Secret, Token};

/// Longest life of a token.
pub const MAX_TOKEN_LIFE: Span = Span::from_secs(30 * 86_400);

/// Most certificates of one name that are valid at the same time. More would mean that a node asks
/// again and again, and can't store what it gets.
const MAX_GOOD: usize = 8;

/// A certificate, and what its owner has to trust.
#[derive(Debug, Clone)]
pub struct Granted {
    /// The line of the index.
    pub issued: Issued,
    /// The certificate and the authorities' own, in PEM.
    pub certificates: String,
}

/// Why no certificate was granted.
#[derive(Debug, thiserror::Error)]
pub enum EnrolmentError {
    /// The authority made no such token, or forgot it long ago.
    #[error("the token is unknown")]
    UnknownToken,
    /// Another key used it.
    #[error("the token was used on {}, for another key: ask for a new one (hedgerow pki token)", .0.date())]
    Used(OffsetDateTime),
    /// It has ended.
    #[error("the token ended on {}: ask for a new one (hedgerow pki token)", .0.date())]
    Expired(OffsetDateTime),
    /// It was cancelled.
    #[error("the token was cancelled on {}", .0.date())]
    Cancelled(OffsetDateTime),
    /// It is for another node.
    #[error("the token is for {token}, but the request names {name}")]
    OtherName {
        /// The name in the token.
        token: String,
        /// The name in the request.
        name: String,
    },
    /// The certificate that should be renewed is not in the index, or is revoked.
    #[error("the authority knows no valid certificate of {0} with this serial number")]
    UnknownCertificate(String),
    /// Operators have no process that could renew by itself.
    #[error("an operator's certificate is renewed with `hedgerow pki issue --renew`")]
    Operator,
    /// The certificate has more than a third of its life left.
    #[error("it is too early: the certificate is renewed from {from} on")]
    TooEarly {
        /// From when on.
        from: OffsetDateTime,
    },
    /// A new certificate would end no later.
    #[error("the authority ends on {}: make a new one (hedgerow pki rotate)", .0.date())]
    AuthorityEnds(OffsetDateTime),
    /// There are many valid ones already.
    #[error(
        "{0} has {MAX_GOOD} valid certificates: does it lose them? revoke it and enrol it again"
    )]
    TooMany(String),
    /// The request itself.
    #[error(transparent)]
    Request(#[from] BadRequest),
    /// Everything else.
    #[error(transparent)]
    Pki(#[from] PkiError),
}

impl EnrolmentError {
    /// A word for counters.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::UnknownToken => "unknown-token",
            Self::Used(_) => "used-token",
            Self::Expired(_) => "expired-token",
            Self::Cancelled(_) => "cancelled-token",
            Self::OtherName { .. } => "other-name",
            Self::UnknownCertificate(_) => "unknown-certificate",
            Self::Operator => "operator",
            Self::TooEarly { .. } => "too-early",
            Self::AuthorityEnds(_) => "authority-ends",
            Self::TooMany(_) => "too-many",
            Self::Request(_) => "bad-request",
            Self::Pki(PkiError::Enrolled { .. }) => "enrolled",
            Self::Pki(_) => "can-not-sign",
        }
    }

    /// What whoever asked may hear. The server's own files are none of its business.
    pub fn told(&self) -> String {
        match self {
            Self::Pki(PkiError::Enrolled { .. }) => self.to_string(),
            Self::Pki(_) => {
                "the server can't sign certificates; its log says why. `hedgerow pki sign` signs \
                 requests where the authority's key is"
                    .to_owned()
            }
            other => other.to_string(),
        }
    }
}

impl Authority {
    /// A token for a node without a valid certificate, which gets one for so many days with it.
    pub fn token(
        &self,
        name: &str,
        server: &str,
        life: Span,
        days: u32,
    ) -> Result<(Token, TokenRecord), PkiError> {
        check_node_name(name)?;
        let now = self.now();
        end_after(now, days)?;
        if life.is_zero() || life > MAX_TOKEN_LIFE {
            return Err(PkiError::TokenLife(life));
        }
        let ends_at = now + life;
        let _lock = lock(&self.folder)?;
        self.check_free(name, &known(&self.list()?, name), Issuing::First(Role::Node), now)?;
        let mut all = tokens::load(&self.folder.join(TOKENS_FILE))?;
        if all.len() >= MAX_TOKENS {
            return Err(PkiError::TooManyTokens);
        }
        let mut secret = Secret([0; 20]);
        let random = ring::default_provider().secure_random.fill(&mut secret.0);
        random.map_err(|_| PkiError::Random)?;
        let authority = Fingerprint::of(&certificate_in(&self.folder.join(AUTHORITY_FILE))?);
        let record = TokenRecord {
            name: name.to_owned(),
            hash: secret.hash(),
            days,
            made_at: now,
            ends_at,
            used_at: None,
            used_for: None,
            cancelled_at: None,
        };
        all.push(record.clone());
        tokens::save(&self.folder.join(TOKENS_FILE), all, now)?;
        self.note("token", name, &format!("until {ends_at}"))?;
        let (name, server) = (name.to_owned(), server.to_owned());
        Ok((Token { name, server, authority, secret }, record))
    }

    /// All tokens that were made, oldest first, without those that ended over 30 days ago.
    pub fn tokens(&self) -> Result<Vec<TokenRecord>, PkiError> {
        tokens::load(&self.folder.join(TOKENS_FILE))
    }

    /// Cancels the open tokens of a node; returns how many there were.
    pub fn cancel_tokens(&self, name: &str) -> Result<usize, PkiError> {
        let now = self.now();
        let _lock = lock(&self.folder)?;
        let count = self.cancel(&[name], now)?;
        if count > 0 {
            self.note("cancel-token", name, "")?;
        }
        Ok(count)
    }

    /// Cancels all tokens of these names that a key could still use. The folder is locked.
    pub(super) fn cancel(
        &self,
        names: &[impl AsRef<str>],
        now: OffsetDateTime,
    ) -> Result<usize, PkiError> {
        let file = self.folder.join(TOKENS_FILE);
        let mut all = tokens::load(&file)?;
        let (mut count, mut is_changed) = (0, false);
        for token in all.iter_mut().filter(|token| {
            token.cancelled_at.is_none()
                && now < token.ends_at
                && names.iter().any(|name| name.as_ref() == token.name)
        }) {
            count += usize::from(token.state(now) == TokenState::Open);
            token.cancelled_at = Some(now);
            is_changed = true;
        }
        if is_changed {
            tokens::save(&file, all, now)?;
        }
        Ok(count)
    }

    /// A first certificate for the sender of a token. The key that used a token may use it again
    /// until it ends, because the answer may have been lost.
    pub fn enroll(&self, secret: &Secret, request: &Requested) -> Result<Granted, EnrolmentError> {
        let now = self.now();
        self.check_key()?;
        let _lock = lock(&self.folder)?;
        let file = self.folder.join(TOKENS_FILE);
        let mut tokens = tokens::load(&file)?;
        let (hash, key) = (secret.hash(), request.fingerprint.to_string());
        let token = tokens.iter_mut().find(|token| token.hash == hash);
        let token = token.ok_or(EnrolmentError::UnknownToken)?;
        let is_repeated = token.used_for.as_ref() == Some(&key);
        match token.state(now) {
            TokenState::Cancelled(at) => return Err(EnrolmentError::Cancelled(at)),
            TokenState::Used(at) if !is_repeated => return Err(EnrolmentError::Used(at)),
            _ if token.ends_at <= now => return Err(EnrolmentError::Expired(token.ends_at)),
            _ => {}
        }
        if token.name != request.name {
            let (token, name) = (token.name.clone(), request.name.clone());
            return Err(EnrolmentError::OtherName { token, name });
        }
        let all = self.list()?;
        let known = known(&all, &request.name);
        if is_repeated {
            check_count(&known, &request.name, now)?;
        } else {
            self.check_free(&request.name, &known, Issuing::First(Role::Node), now)?;
        }
        let end = end_after(now, token.days)?;
        // Signed before the token is used up: a server without the key must not use it up.
        let (certificates, issued) =
            self.signer()?.certify_peer(Role::Node, &request.name, &request.key, now, end)?;
        token.used_at.get_or_insert(now);
        token.used_for = Some(key);
        tokens::save(&file, tokens, now)?;
        self.granted("enrol", all, issued, certificates)
    }

    /// A new certificate for a node whose certificate TLS has checked.
    pub fn renew(&self, peer: &Peer, request: &Requested) -> Result<Granted, EnrolmentError> {
        if peer.role == Role::Operator {
            return Err(EnrolmentError::Operator);
        }
        if peer.name != request.name {
            let (token, name) = (peer.name.clone(), request.name.clone());
            return Err(EnrolmentError::OtherName { token, name });
        }
        let now = self.now();
        self.check_key()?;
        let _lock = lock(&self.folder)?;
        let all = self.list()?;
        let known = known(&all, &peer.name);
        let is_it = |issued: &&&Issued| issued.has_serial(&peer.serial) && issued.is_good(now);
        let before = known.iter().find(is_it);
        let before = before.ok_or_else(|| EnrolmentError::UnknownCertificate(peer.name.clone()))?;
        let life = before.not_after - before.issued_at;
        let signer = self.signer()?;
        let is_outdated = self.is_outdated(before)?;
        let from = before.not_after - life / 3;
        if now < from && !is_outdated {
            return Err(EnrolmentError::TooEarly { from });
        }
        check_count(&known, &peer.name, now)?;
        let end = now + life.max(Duration::seconds(1));
        let (certificates, issued) =
            signer.certify_peer(Role::Node, &peer.name, &request.key, now, end)?;
        if issued.not_after <= before.not_after && !is_outdated {
            return Err(EnrolmentError::AuthorityEnds(issued.not_after));
        }
        self.granted("renew", all, issued, certificates)
    }

    /// A new key and certificate for the server, for the same names and as long as before.
    pub fn prolong_server(&self) -> Result<(PathBuf, Issued), EnrolmentError> {
        let now = self.now();
        self.check_key()?;
        let _lock = lock(&self.folder)?;
        let mut all = self.list()?;
        let before = all.iter().rfind(|issued| issued.kind == Kind::Server);
        let before = before.ok_or_else(|| EnrolmentError::UnknownCertificate("server".into()))?;
        let life = before.not_after - before.issued_at;
        let signed = self.server_signer()?.sign_server(&before.hosts, now, now + life)?;
        let Signed { pem, issued } = signed;
        if issued.not_after <= before.not_after {
            return Err(EnrolmentError::AuthorityEnds(issued.not_after));
        }
        all.push(issued.clone());
        index::save(&self.folder.join(INDEX_FILE), &all)?;
        self.note_issued("renew-server", &issued)?;
        let file = self.folder.join(SERVER_FILE);
        write(&file, &pem, Access::Private)?;
        Ok((file, issued))
    }

    /// A first certificate for a request that came in a file.
    /// Returns the file for the device.
    pub fn sign(
        &self,
        request: &Requested,
        days: u32,
    ) -> Result<(PathBuf, Issued), EnrolmentError> {
        let now = self.now();
        let end = end_after(now, days)?;
        let _lock = lock(&self.folder)?;
        let all = self.list()?;
        let known = known(&all, &request.name);
        self.check_free(&request.name, &known, Issuing::First(Role::Node), now)?;
        let (certificates, issued) =
            self.signer()?.certify_peer(Role::Node, &request.name, &request.key, now, end)?;
        let Granted { issued, certificates } = self.granted("sign", all, issued, certificates)?;
        let file = self.file_of(Role::Node, &issued.name);
        write(&file, &certificates, Access::Shared)?;
        Ok((file, issued))
    }

    /// Whether it can sign at all. A server may have only its own files.
    fn check_key(&self) -> Result<(), PkiError> {
        let file = self.folder.join(KEY_FILE);
        if is_there(&file)? { Ok(()) } else { Err(PkiError::NoKey { file }) }
    }

    /// Records a certificate. Nobody has it before this is done.
    fn granted(
        &self,
        action: &str,
        mut all: Vec<Issued>,
        issued: Issued,
        certificates: String,
    ) -> Result<Granted, EnrolmentError> {
        all.push(issued.clone());
        index::save(&self.folder.join(INDEX_FILE), &all)?;
        self.note_issued(action, &issued)?;
        Ok(Granted { issued, certificates })
    }
}

/// The certificates of a name.
fn known<'a>(all: &'a [Issued], name: &str) -> Vec<&'a Issued> {
    all.iter().filter(|issued| issued.is_of(name)).collect()
}

fn check_count(known: &[&Issued], name: &str, now: OffsetDateTime) -> Result<(), EnrolmentError> {
    let good = known.iter().filter(|issued| issued.is_good(now)).count();
    if good < MAX_GOOD { Ok(()) } else { Err(EnrolmentError::TooMany(name.to_owned())) }
}
