//! A node's own certificate: the first one for a token ([`enroll`]) or from a file ([`accept`]),
//! and a new one before the old one ends ([`renew`]). Private keys are made here and never leave.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tracing::{info, warn};

use super::backoff::Backoff;
use super::client::{ConnectError, Dial, share, tcp};
use super::config::{Settings, SettingsError};
use crate::file::{Access, FileError, read_whole, with_suffix, write_whole};
use crate::pki::identity::{BadName, IdentityError, MAX_PEM_BYTES, NodeIdentity, check_node_name};
use crate::pki::request::{NewKey, NoRequest};
use crate::pki::token::Token;
use crate::transport::signing::{SigningAnswer, SigningRequest, ask};

/// Why a node has no new certificate.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The settings can't be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The server can't be reached, or is not the right one.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server refuses.
    #[error("the server gives no certificate: {0}")]
    Refused(String),
    /// What the server answers can't be used.
    #[error("the server's answer can't be used: {0}")]
    Answer(IdentityError),
    /// The file belongs to another node.
    #[error(
        "{} is the file of {found}, but the token is for {wanted}: name another file with \
         --identity",
        file.display()
    )]
    OtherNode {
        /// The file.
        file: PathBuf,
        /// Its owner.
        found: String,
        /// The token's.
        wanted: String,
    },
    /// The node has its file already.
    #[error("{} is there already: a node makes one request", .0.display())]
    Enrolled(PathBuf),
    /// There is no key for the certificate.
    #[error("{}: there is no such key (--request makes it)", .0.display())]
    NoKey(PathBuf),
    /// Not the name of a node.
    #[error(transparent)]
    Name(#[from] BadName),
    /// A file can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file has another content than expected.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The system gives no key.
    #[error(transparent)]
    Request(#[from] NoRequest),
}

/// Where the key waits until it has a certificate.
fn key_file(identity: &Path) -> PathBuf {
    with_suffix(identity, ".key")
}

/// Gets the node's first certificate for a token, unless its file is there already. The key is on
/// the disk before the server hears of it: if the answer is lost, the same key asks again.
pub async fn enroll(settings: &Settings, dial: &Dial, token: &Token) -> Result<(), EnrolError> {
    let file = &settings.server.identity;
    let waiting = key_file(file);
    if fs::exists(file).map_err(FileError::unreadable(file))? {
        let identity = NodeIdentity::open(file)?;
        if identity.name() != token.name {
            let (found, wanted) = (identity.name().to_owned(), token.name.clone());
            return Err(EnrolError::OtherNode { file: file.clone(), found, wanted });
        }
        info!(node = token.name, "the node is enrolled already: the token is not needed");
        remove(&waiting);
        return Ok(());
    }
    let key = waiting_key(&waiting)?;
    let (request, _) = key.request(&token.name)?;
    let request = SigningRequest { request, secret: token.secret.as_bytes().to_vec() };
    let config = NodeIdentity::first_contact(token.authority)?;
    let answer = timeout(
        settings.server.connect_timeout.0,
        exchange(dial, config, settings.server_name().map_err(SettingsError::from)?, request),
    );
    let silent = |_| ConnectError::Silent(settings.server.connect_timeout.0);
    let certificates = match answer.await.map_err(silent)?? {
        SigningAnswer::Issued(certificates) => certificates,
        SigningAnswer::TooEarly => return Err(EnrolError::Refused("it is too early".to_owned())),
        SigningAnswer::Refused(reason) => return Err(EnrolError::Refused(reason)),
    };
    store(file, &key, &certificates, &token.name)?;
    remove(&waiting);
    info!(node = token.name, file = %file.display(), "the node is enrolled");
    Ok(())
}

/// The same, again and again while the server can't be reached, unless the node should connect only
/// once.
pub async fn enroll_patiently(settings: &Settings, token: &Token) -> Result<(), EnrolError> {
    let server = &settings.server;
    let dial = tcp(&server.address, server.plain_text);
    let mut backoff = Backoff::new(server.retry_least.0, server.retry_most.0);
    loop {
        match enroll(settings, &dial, token).await {
            Err(EnrolError::Connect(trouble)) if !trouble.is_lasting() && !server.once => {
                let wait = backoff.wait(share());
                warn!(again_in_ms = wait.as_millis() as u64, "can't enrol yet: {trouble}");
                sleep(wait).await;
            }
            outcome => return outcome,
        }
    }
}

/// Makes a key and writes a request to a file, for an authority that no server can reach.
pub fn write_request(identity: &Path, name: &str, file: &Path) -> Result<(), EnrolError> {
    check_node_name(name)?;
    if fs::exists(identity).map_err(FileError::unreadable(identity))? {
        return Err(EnrolError::Enrolled(identity.to_owned()));
    }
    let (_, pem) = waiting_key(&key_file(identity))?.request(name)?;
    Ok(write_whole(file, Access::Shared, |file| file.write_all(pem.as_bytes()))?)
}

/// Takes the certificate that the authority made for the request of [`write_request`].
pub fn accept(identity: &Path, certificates: &Path) -> Result<String, EnrolError> {
    let waiting = key_file(identity);
    if !fs::exists(&waiting).map_err(FileError::unreadable(&waiting))? {
        return Err(EnrolError::NoKey(waiting));
    }
    let key = waiting_key(&waiting)?;
    let what = IdentityError::Unfit { file: certificates.to_owned(), what: "is no text" };
    let text = String::from_utf8(read_whole(certificates, MAX_PEM_BYTES)?).map_err(|_| what)?;
    let made = NodeIdentity::parse(certificates, &(key.pem() + &text))?;
    write_identity(identity, &key, &text)?;
    remove(&waiting);
    Ok(made.name().to_owned())
}

/// What became of an attempt to renew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// The file has a new certificate.
    Yes,
    /// The server says that it is too early.
    TooEarly,
}

/// Asks for a certificate with a new key, over a connection with the present one. The file is
/// replaced as a whole, so there is a working identity at any moment.
pub async fn renew(
    dial: &Dial,
    identity: &NodeIdentity,
    server: ServerName<'static>,
) -> Result<Renewed, EnrolError> {
    let key = NewKey::generate()?;
    let (request, _) = key.request(identity.name())?;
    let request = SigningRequest { request, secret: Vec::new() };
    match exchange(dial, identity.signing_config(), server, request).await? {
        SigningAnswer::Issued(certificates) => {
            store(identity.file(), &key, &certificates, identity.name())?;
            Ok(Renewed::Yes)
        }
        SigningAnswer::TooEarly => Ok(Renewed::TooEarly),
        SigningAnswer::Refused(reason) => Err(EnrolError::Refused(reason)),
    }
}

async fn exchange(
    dial: &Dial,
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
    request: SigningRequest,
) -> Result<SigningAnswer, EnrolError> {
    let connection = dial().await?;
    let failed = |error: io::Error| {
        ConnectError::from_tls(&error).unwrap_or_else(|| ConnectError::broken(&error))
    };
    let mut stream =
        TlsConnector::from(config).connect(server, connection).await.map_err(failed)?;
    Ok(ask(&mut stream, request).await.map_err(failed)?)
}

/// Checks what the server sent, and writes the node's file.
fn store(file: &Path, key: &NewKey, certificates: &str, name: &str) -> Result<(), EnrolError> {
    let made =
        NodeIdentity::parse(file, &(key.pem() + certificates)).map_err(EnrolError::Answer)?;
    if made.name() != name {
        let what = "its certificate has another name";
        return Err(EnrolError::Answer(IdentityError::Unfit { file: file.to_owned(), what }));
    }
    write_identity(file, key, certificates)
}

fn write_identity(file: &Path, key: &NewKey, certificates: &str) -> Result<(), EnrolError> {
    let content = key.pem() + certificates;
    Ok(write_whole(file, Access::Private, |file| file.write_all(content.as_bytes()))?)
}

/// The key in a file, or a new one in it.
fn waiting_key(file: &Path) -> Result<NewKey, EnrolError> {
    if fs::exists(file).map_err(FileError::unreadable(file))? {
        let what = IdentityError::Unfit { file: file.to_owned(), what: "is no text" };
        let pem = String::from_utf8(read_whole(file, MAX_PEM_BYTES)?).map_err(|_| what)?;
        return Ok(NewKey::from_pem(file, &pem)?);
    }
    let key = NewKey::generate()?;
    write_whole(file, Access::Private, |out| out.write_all(key.pem().as_bytes()))?;
    Ok(key)
}

/// A key that is in the node's file now.
fn remove(file: &Path) {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            warn!(file = %file.display(), %error, "a key that is not needed any more stays");
        }
        _ => {}
    }
}
