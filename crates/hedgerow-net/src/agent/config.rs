//! [`Settings`] of a node: commented defaults, a file, flags.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustls::pki_types::ServerName;
use serde::Deserialize;

use super::client::{Patience, Security};
use super::rows::Format;
use super::sample::Others;
use crate::duration::Span;
use crate::file::FileError;
use crate::layers::{self, LayerError};
use crate::log::Log;
use crate::pki::identity::{BadName, IdentityError, NodeIdentity, check_node_name};

/// The commented defaults.
pub const DEFAULTS: &str = include_str!("../node-defaults.toml");

/// Why a node can't be as it should.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// It can't be read.
    #[error(transparent)]
    Layers(#[from] LayerError),
    /// A value that makes no sense.
    #[error("{key} is {value:?}, but {needed}")]
    Unfit {
        /// Such as `server.address`.
        key: &'static str,
        /// What it is.
        value: String,
        /// What it should be.
        needed: &'static str,
    },
    /// A name that no node has.
    #[error("server.node: {0}")]
    Name(#[from] BadName),
    /// Neither samples nor questions could ever come.
    #[error(
        "samples.source is \"none\" and http.address is \"\": this node would have nothing to do"
    )]
    Idle,
    /// No certificate.
    #[error(
        "there is no {}: name this node's file with --identity (`hedgerow pki issue NODE` makes it, on the server's side)",
        .0.display()
    )]
    NoIdentity(PathBuf),
    /// A certificate that won't do.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// What a node is told.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Whom it joins.
    pub server: Server,
    /// Where its samples come from.
    pub samples: Samples,
    /// Its own endpoint.
    pub http: Http,
    /// Where it is kept.
    pub state: State,
    /// What it tells.
    pub log: Log,
}

/// Whom a node joins.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "node-defaults.toml has what they mean")]
pub struct Server {
    pub address: String,
    pub identity: PathBuf,
    pub name: String,
    pub plain_text: bool,
    pub node: String,
    pub connect_timeout: Span,
    pub keep_alive: Span,
    pub retry_least: Span,
    pub retry_most: Span,
    pub retry_refused: Span,
    pub once: bool,
}

/// Where samples come from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "node-defaults.toml has what they mean")]
pub struct Samples {
    pub source: Source,
    pub path: PathBuf,
    pub format: Format,
    pub others: Others,
    pub pace: Pace,
    pub patience: Span,
    pub at_end: AtEnd,
    pub quiet: bool,
}

/// What is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Standard input.
    Stdin,
    /// A file that grows.
    Follow,
    /// Nothing.
    None,
}

/// When the next sample is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// As where they come from suggests.
    Auto,
    /// When it comes.
    Free,
    /// When the round that the one before answered has closed.
    Round,
}

/// What happens when the input has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtEnd {
    /// The node leaves unless it has an endpoint.
    Auto,
    /// It stays.
    Stay,
    /// It leaves.
    Leave,
}

/// A node's own endpoint.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "node-defaults.toml has what they mean")]
pub struct Http {
    pub address: String,
    pub anywhere: bool,
    pub names: Vec<String>,
    pub queue: usize,
    pub connections: usize,
    pub most_bytes: usize,
    pub most_samples: usize,
}

/// Where a node is kept.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "node-defaults.toml has what they mean")]
pub struct State {
    pub path: PathBuf,
    pub save_every: Span,
}

impl Settings {
    /// The defaults, a file over them, and changes such as `samples.pace="round"` over both.
    pub fn read(file: Option<&Path>, changes: &[String]) -> Result<Self, SettingsError> {
        let settings: Self = layers::read(DEFAULTS, file, changes)?;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), SettingsError> {
        let Self { server, samples, http, state, .. } = self;
        let unfit = |key, value: &dyn ToString, needed| {
            Err(SettingsError::Unfit { key, value: value.to_string(), needed })
        };
        if self.host().is_none() {
            return unfit("server.address", &server.address, "it should look like HOST:PORT");
        }
        if server.plain_text {
            check_node_name(&server.node)?;
        } else if self.server_name().is_none() {
            return unfit("server.name", &server.name, "it should be a host's name or address");
        }
        if samples.source == Source::Follow && samples.path.as_os_str().is_empty() {
            return unfit("samples.path", &"", "a file to follow is needed");
        }
        if samples.source == Source::None && http.address.is_empty() {
            return Err(SettingsError::Idle);
        }
        if let Some(address) = self.http_address()?
            && !http.anywhere
            && !address.ip().to_canonical().is_loopback()
        {
            return unfit(
                "http.address",
                &address,
                "it is not loopback: set http.anywhere to true if that is meant",
            );
        }
        for (key, count) in [
            ("http.queue", http.queue),
            ("http.connections", http.connections),
            ("http.most_bytes", http.most_bytes),
            ("http.most_samples", http.most_samples),
        ] {
            if !(1..=1 << 28).contains(&count) {
                return unfit(key, &count, "it should be from 1 to 268435456");
            }
        }
        if state.path.file_name().is_none() {
            return unfit("state.path", &state.path.display(), "it should name a file");
        }
        if state.save_every.0.is_zero() {
            return unfit(
                "state.save_every",
                &state.save_every,
                "it should be longer than nothing",
            );
        }
        if server.keep_alive.0.is_zero() || server.connect_timeout.0.is_zero() {
            return unfit(
                "server.keep_alive",
                &server.keep_alive,
                "it and server.connect_timeout should be longer than nothing",
            );
        }
        Ok(())
    }

    /// Where its endpoint listens, if it has one.
    pub fn http_address(&self) -> Result<Option<SocketAddr>, SettingsError> {
        let address = &self.http.address;
        if address.is_empty() {
            return Ok(None);
        }
        address.parse().map(Some).map_err(|_| SettingsError::Unfit {
            key: "http.address",
            value: address.clone(),
            needed: "it should be an address in digits with a port, such as 127.0.0.1:7411",
        })
    }

    /// How it proves who it is.
    pub fn security(&self) -> Result<Security, SettingsError> {
        if self.server.plain_text {
            return Ok(Security::PlainText { name: self.server.node.clone() });
        }
        let file = &self.server.identity;
        let identity = NodeIdentity::open(file).map_err(|error| match error {
            IdentityError::File(FileError::Unreadable { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                SettingsError::NoIdentity(file.clone())
            }
            other => other.into(),
        })?;
        let server = self.server_name().ok_or_else(|| SettingsError::Unfit {
            key: "server.name",
            value: self.server.name.clone(),
            needed: "it should be a host's name or address",
        })?;
        Ok(Security::Tls { identity: Box::new(identity), server })
    }

    /// How patient its client is.
    pub fn patience(&self) -> Patience {
        let Server { connect_timeout, keep_alive, retry_least, retry_most, retry_refused, .. } =
            self.server;
        Patience {
            connect: connect_timeout.0,
            keep_alive: keep_alive.0,
            least: retry_least.0,
            most: retry_most.0,
            refused: retry_refused.0,
        }
    }

    /// Whether it leaves when its input has ended.
    pub fn leaves_at_end(&self) -> bool {
        match self.samples.at_end {
            AtEnd::Auto => self.http.address.is_empty(),
            AtEnd::Stay => false,
            AtEnd::Leave => true,
        }
    }

    /// The server's host, without brackets and port.
    fn host(&self) -> Option<&str> {
        let (host, port) = self.server.address.rsplit_once(':')?;
        port.parse::<u16>().ok()?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_plain = !host.contains(':') && !host.contains('[');
        bare.or(Some(host).filter(|host| is_plain && !host.is_empty()))
    }

    fn server_name(&self) -> Option<ServerName<'static>> {
        let name = &self.server.name;
        let name = if name.is_empty() { self.host()? } else { name };
        ServerName::try_from(name.to_owned()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(changes: &[&str]) -> Result<Settings, SettingsError> {
        let changes: Vec<String> = changes.iter().map(|change| (*change).to_owned()).collect();
        Settings::read(None, &changes)
    }

    #[test]
    fn the_defaults_are_settings() {
        let settings = read(&[]).unwrap();
        assert_eq!((settings.samples.source, settings.samples.pace), (Source::Stdin, Pace::Auto));
        assert_eq!(settings.http_address().unwrap(), None);
        assert!(settings.leaves_at_end());
        assert!(!read(&["http.address=127.0.0.1:0"]).unwrap().leaves_at_end());
        assert!(!read(&["samples.at_end=stay"]).unwrap().leaves_at_end());
    }

    #[test]
    fn servers_have_hosts_and_names() {
        for (address, name) in
            [("example.org:7400", "example.org"), ("10.0.0.7:1", "10.0.0.7"), ("[::1]:7400", "::1")]
        {
            let settings = read(&[&format!("server.address={address:?}")]).unwrap();
            assert_eq!(settings.server_name().unwrap().to_str(), name);
        }
        let named = read(&["server.address=10.0.0.7:1", "server.name=hub.example"]).unwrap();
        assert_eq!(named.server_name().unwrap().to_str(), "hub.example");
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (changes, parts) in [
            (
                &["server.address=example.org"][..],
                &["server.address", "\"example.org\"", "HOST:PORT"][..],
            ),
            (&["server.address=:7400"], &["server.address"]),
            (&["server.address=a:70000"], &["server.address"]),
            (&["server.address=::1:7400"], &["server.address"]),
            (&["server.name=a b"], &["server.name"]),
            (&["server.plain_text=true"], &["server.node", "name"]),
            (&["samples.source=follow"], &["samples.path"]),
            (&["samples.source=none"], &["nothing to do"]),
            (&["samples.source=file"], &["unknown variant", "follow"]),
            (&["samples.pace=fast"], &["unknown variant", "round"]),
            (&["samples.patience=5"], &["patience"]),
            (&["http.address=localhost:80"], &["http.address", "in digits"]),
            (&["http.address=0.0.0.0:80"], &["http.address", "loopback", "http.anywhere"]),
            (&["http.queue=0"], &["http.queue", "\"0\"", "from 1"]),
            (&["state.path=\"\""], &["state.path"]),
            (&["state.save_every=0s"], &["state.save_every"]),
            (&["server.adress=a:1"], &["server.adress", "address"]),
        ] {
            let error = read(changes).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{changes:?} give {error:?}");
        }
        assert!(read(&["http.address=0.0.0.0:80", "http.anywhere=true"]).is_ok());
        assert!(read(&["server.plain_text=true", "server.node=n1"]).is_ok());
    }
}
