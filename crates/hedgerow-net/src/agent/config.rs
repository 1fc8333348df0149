//! [`Settings`] of a node: commented defaults, a file, flags.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;

use hedgerow::learning::Level;
use hedgerow_config::{ConfigError, Layer, Merged, within};
use rustls::pki_types::ServerName;
use serde::Deserialize;

use super::client::Security;
use super::rows::Format;
use super::sample::Others;
use crate::duration::Span;
use crate::file::FileError;
use crate::log::Log;
use crate::pki::identity::{IdentityError, NodeIdentity, check_node_name};

/// The commented defaults.
pub const DEFAULTS: &str = include_str!("../node-defaults.toml");

/// Settings that a node can't run with.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A wrong key or value.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no file with the node's certificate.
    #[error(
        "there is no {}: name this node's file with --identity, or get one with --enroll TOKEN \
         (`hedgerow pki token NODE` makes the token, on the server's side)",
        .0.display()
    )]
    NoIdentity(PathBuf),
    /// A certificate that can't be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// The settings of a node.
#[derive(Debug, Clone, Deserialize)]
pub struct Settings {
    /// The server that it joins.
    pub server: Server,
    /// Where its samples come from.
    pub samples: Samples,
    /// Its own HTTP endpoint.
    pub http: Http,
    /// Where its state is stored.
    pub state: State,
    /// Its log.
    pub log: Log,
}

/// The server that a node joins.
#[derive(Debug, Clone, Deserialize)]
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
    pub renew: bool,
    pub renew_every: Span,
    pub once: bool,
}

/// Where samples come from.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "node-defaults.toml has what they mean")]
pub struct Samples {
    pub source: Source,
    pub path: PathBuf,
    pub format: Format,
    pub others: Others,
    pub missing: Vec<String>,
    pub pace: Pace,
    pub patience: Span,
    pub at_end: AtEnd,
    pub interval: Level,
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
    /// A suitable one for the source.
    Auto,
    /// As soon as it comes.
    Free,
    /// When the round that the previous sample answered has closed.
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

/// A node's own HTTP endpoint.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "node-defaults.toml has what they mean")]
pub struct Http {
    pub address: String,
    pub anywhere: bool,
    pub names: Vec<String>,
    #[serde(deserialize_with = "within::<1, 268_435_456, _, _>")]
    pub queue: usize,
    #[serde(deserialize_with = "within::<1, 268_435_456, _, _>")]
    pub connections: usize,
    #[serde(deserialize_with = "within::<1, 268_435_456, _, _>")]
    pub most_bytes: usize,
    #[serde(deserialize_with = "within::<1, 268_435_456, _, _>")]
    pub most_samples: usize,
}

/// Where a node's state is stored.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "node-defaults.toml has what they mean")]
pub struct State {
    pub path: PathBuf,
    pub save_every: Span,
}

impl Settings {
    /// The defaults with layers over them.
    pub fn read(layers: &[Layer]) -> Result<Self, ConfigError> {
        let merged = Merged::new(DEFAULTS, layers)?;
        let settings: Self = merged.read()?;
        settings.check().map_err(|error| merged.locate(error))?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let Self { server, samples, http, state, .. } = self;
        let refuse = |key, bound, value: &dyn Display| {
            Err(ConfigError::out_of_bounds(key, bound, format!("\"{value}\"")))
        };
        if self.host().is_none() {
            return refuse("server.address", "HOST:PORT", &server.address);
        }
        if server.plain_text {
            if check_node_name(&server.node).is_err() {
                let bound = "a node's name, of a-z, 0-9, '.', '_' and '-'";
                return refuse("server.node", bound, &server.node);
            }
        } else {
            self.server_name()?;
        }
        if samples.source == Source::Follow && samples.path.as_os_str().is_empty() {
            return refuse("samples.path", "the file to follow", &"");
        }
        if samples.source == Source::None && http.address.is_empty() {
            let bound = "stdin or follow, or http.address must be set: else the node has nothing \
                         to do";
            return refuse("samples.source", bound, &"none");
        }
        if let Some(address) = self.http_address()?
            && !http.anywhere
            && !address.ip().to_canonical().is_loopback()
        {
            let bound = "a loopback address, unless http.anywhere is true";
            return refuse("http.address", bound, &address);
        }
        if !state.path.as_os_str().is_empty() && state.path.file_name().is_none() {
            return refuse("state.path", "the name of a file", &state.path.display());
        }
        for (key, span) in [
            ("state.save_every", state.save_every),
            ("server.keep_alive", server.keep_alive),
            ("server.connect_timeout", server.connect_timeout),
            ("server.renew_every", server.renew_every),
        ] {
            if span.0.is_zero() {
                return refuse(key, "longer than 0s", &span);
            }
        }
        Ok(())
    }

    /// The address of the node's own HTTP endpoint, if it has one.
    pub fn http_address(&self) -> Result<Option<SocketAddr>, ConfigError> {
        let address = &self.http.address;
        if address.is_empty() {
            return Ok(None);
        }
        let bound = "an address in digits with a port, such as 127.0.0.1:7411";
        let refused = |_| ConfigError::out_of_bounds("http.address", bound, format!("{address:?}"));
        address.parse().map(Some).map_err(refused)
    }

    /// Its identity.
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
        Ok(Security::Tls { identity: Box::new(identity), server: self.server_name()? })
    }

    /// The file with the state of a node: as set, or named after it. A file of the old default name
    /// is used if there is no other.
    pub(super) fn state_path(&self, node: &str) -> PathBuf {
        if !self.state.path.as_os_str().is_empty() {
            return self.state.path.clone();
        }
        let (own, old) = (PathBuf::from(format!("{node}.state")), PathBuf::from("node.state"));
        if !own.exists() && old.exists() { old } else { own }
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

    pub(super) fn server_name(&self) -> Result<ServerName<'static>, ConfigError> {
        let name = &self.server.name;
        let known = if name.is_empty() { self.host().unwrap_or_default() } else { name };
        let bound = "a host's name or address";
        let refused = |_| ConfigError::out_of_bounds("server.name", bound, format!("{name:?}"));
        ServerName::try_from(known.to_owned()).map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(changes: &[&str]) -> Result<Settings, ConfigError> {
        Settings::read(&Layer::sets(changes)?)
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
    fn a_state_is_named_after_its_node_unless_something_is_said() {
        let path = |changes: &[&str]| read(changes).unwrap().state_path("meter-17");
        assert_eq!(path(&[]), PathBuf::from("meter-17.state"));
        assert_eq!(path(&["state.path=here/s"]), PathBuf::from("here/s"));
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
            (&["samples.source=file"], &["samples.source", "one of stdin, follow, none"]),
            (&["samples.pace=fast"], &["samples.pace", "one of auto, free, round", "\"fast\""]),
            (&["samples.patience=5"], &["samples.patience", "a string"]),
            (&["samples.patience=5x"], &["samples.patience", "\"10s\"", "\"5x\""]),
            (&["http.address=localhost:80"], &["http.address", "in digits"]),
            (&["http.address=0.0.0.0:80"], &["http.address", "loopback", "http.anywhere"]),
            (&["http.queue=0"], &["http.queue", "at least 1", "is 0"]),
            (&["state.path=\"..\""], &["state.path"]),
            (&["state.save_every=0s"], &["state.save_every"]),
            (&["server.adress=a:1"], &["server.adress", "did you mean \"server.address\"?"]),
        ] {
            let error = read(changes).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{changes:?} give {error:?}");
        }
        assert!(read(&["http.address=0.0.0.0:80", "http.anywhere=true"]).is_ok());
        assert!(read(&["server.plain_text=true", "server.node=n1"]).is_ok());
    }
}
