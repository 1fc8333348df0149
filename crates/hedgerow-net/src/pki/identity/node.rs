//! [`NodeIdentity`]: the certificate of a node or an operator, and the authorities that it trusts.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::version::TLS13;

use super::bundle::{Bundle, MAX_PEM_BYTES, Stamp, Usage, unfit_pair};
use super::first_contact::PinnedAuthority;
use super::{
    IdentityError, Peer, Role, SIGNING_PROTOCOL, days_until, is_due, protocols, provider,
    time_until, unix_time, warning,
};
use crate::pki::token::Fingerprint;

/// A node's or an operator's file, opened. The file may be replaced by a renewed one at any time:
/// see [`NodeIdentity::reopen_if_changed`].
#[derive(Clone)]
pub struct NodeIdentity {
    file: PathBuf,
    stamp: Option<Stamp>,
    peer: Peer,
    begin: i64,
    config: Arc<ClientConfig>,
}

impl NodeIdentity {
    /// Reads the one file that a node needs. A certificate that has ended is no error, because a
    /// node can predict without a server: see [`NodeIdentity::warning`].
    pub fn open(file: &Path) -> Result<Self, IdentityError> {
        Self::open_as(file, Role::Node)
    }

    /// The same for the file of somebody with this role.
    pub fn open_as(file: &Path, role: Role) -> Result<Self, IdentityError> {
        let stamp = Stamp::of(file);
        let bundle = Bundle::read(file, Usage::Node)?;
        Self::new(file, stamp, bundle, role)
    }

    /// A node's identity from the content that a file may get.
    pub fn parse(file: &Path, content: &str) -> Result<Self, IdentityError> {
        if content.len() as u64 > MAX_PEM_BYTES {
            return Err(IdentityError::Unfit { file: file.to_owned(), what: "is too long" });
        }
        let bundle = Bundle::parse(file, content.as_bytes(), Usage::Node)?;
        Self::new(file, None, bundle, Role::Node)
    }

    fn new(
        file: &Path,
        stamp: Option<Stamp>,
        bundle: Bundle,
        role: Role,
    ) -> Result<Self, IdentityError> {
        let Bundle { key, certificate, begin, roots, .. } = bundle;
        let odd = |source| IdentityError::Certificate { file: file.to_owned(), source };
        let peer = Peer::from_certificate(&certificate).map_err(odd)?;
        if peer.role != role {
            let what = match role {
                Role::Node => "its certificate is an operator's, and not for a node",
                Role::Operator => "its certificate is a node's, and not for an operator",
            };
            return Err(IdentityError::Unfit { file: file.to_owned(), what });
        }
        let unfit = |error| unfit_pair(file, &error);
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(unfit)?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)
            .map_err(unfit)?;
        config.alpn_protocols = protocols();
        // The server gives no tickets: see `ServerIdentity`.
        config.resumption = Resumption::disabled();
        Ok(Self { file: file.to_owned(), stamp, peer, begin, config: Arc::new(config) })
    }

    /// TLS of a node without a certificate, for a server of this authority and no other.
    pub fn first_contact(authority: Fingerprint) -> Result<Arc<ClientConfig>, IdentityError> {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|_| IdentityError::NoTls)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(PinnedAuthority::new(authority)))
            .with_no_client_auth();
        config.alpn_protocols = vec![SIGNING_PROTOCOL.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    /// Reads the identity again if the file has changed. Call it before each connection. If the new
    /// file can't be used, the current identity stays.
    pub fn reopen_if_changed(&mut self) -> Result<bool, IdentityError> {
        let stamp = Stamp::of(&self.file);
        if stamp == self.stamp {
            return Ok(false);
        }
        // An error is returned once, not at every call.
        self.stamp = stamp;
        *self = Self::open_as(&self.file, self.peer.role)?;
        Ok(true)
    }

    /// TLS of a client: 1.3 only, this certificate, no authority but its own, HTTP/2.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// The same for a request for a new certificate.
    pub fn signing_config(&self) -> Arc<ClientConfig> {
        let mut config = (*self.config).clone();
        config.alpn_protocols = vec![SIGNING_PROTOCOL.to_vec()];
        Arc::new(config)
    }

    /// Where it was read from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The owner's name.
    pub fn name(&self) -> &str {
        &self.peer.name
    }

    /// The identity that the server sees.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether less than a third of its life is left: then it should be renewed.
    pub fn is_due(&self) -> bool {
        is_due(self.begin, self.peer.end, unix_time())
    }

    /// How long it is still valid.
    pub fn time_left(&self) -> Duration {
        time_until(self.peer.end, unix_time())
    }

    /// Whole days until the certificate ends; negative once it has.
    pub fn days_left(&self) -> i64 {
        days_until(self.peer.end)
    }

    /// What to log, if the certificate ends soon or has ended.
    pub fn warning(&self) -> Option<String> {
        let whose = format!("the certificate in {}", self.file.display());
        warning(&whose, self.peer.end, "ask for a new file (hedgerow pki issue --renew)")
    }
}

impl fmt::Debug for NodeIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("NodeIdentity")
            .field("file", &self.file)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
