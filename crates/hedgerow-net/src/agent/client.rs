//! [`Client`]: keeps a node connected to its server. It connects, joins, passes on what it
//! receives, and connects again when the stream ends, after waits that grow.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;

use super::backoff::Backoff;
use super::config;
use super::renewal::Renewal;
use crate::pki::identity::{NodeIdentity, Role, check_plain_text};
use crate::plan_json::OtherMethods;
pub use crate::session::ConnectError;
use crate::session::{Joined, hello};
use crate::transport::Connection;
use crate::transport::counted::{Counted, Traffic};
use crate::transport::grpc::{ClientSender, ClientStream, Opened, Received};
use crate::transport::watched::{Note, Watched};

/// Messages that may wait to be handled.
const MAX_UNHEARD: usize = 16;

/// How long one of a server's addresses is tried before the next one.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(4);

/// How long a server may take to end a stream after the node's last message.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Makes a connection.
pub type Dial = Arc<
    dyn Fn() -> Pin<Box<dyn Future<Output = Result<Box<dyn Connection>, ConnectError>> + Send>>
        + Send
        + Sync,
>;

/// How a node proves its identity.
#[derive(Debug)]
pub enum Security {
    /// By a certificate, to a server with a certificate of the same authority and for this name.
    Tls {
        /// The node's certificate and key.
        identity: Box<NodeIdentity>,
        /// The name in the server's certificate.
        server: ServerName<'static>,
    },
    /// Not at all: only on loopback.
    PlainText {
        /// The node's name.
        name: String,
    },
}

impl Security {
    /// When the node's certificate ends, in seconds of Unix time.
    pub fn certificate_end(&self) -> Option<i64> {
        match self {
            Self::Tls { identity, .. } => Some(identity.peer().end),
            Self::PlainText { .. } => None,
        }
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Tls { identity, .. } => identity.name(),
            Self::PlainText { name } => name,
        }
    }
}

/// What a client reports.
#[derive(Debug)]
pub enum Event {
    /// A stream is up. It ends when the sender is dropped.
    Up {
        /// The run that was joined.
        joined: Box<Joined>,
        /// Sends the node's messages.
        sender: ClientSender,
        /// When the node's certificate ends, in seconds of Unix time.
        certificate_end: Option<i64>,
    },
    /// A message of the server came.
    Heard(Received),
    /// The stream is down, or none could be made.
    Down {
        /// The reason.
        trouble: ConnectError,
        /// When the next attempt begins.
        again_in: Duration,
    },
}

/// Keeps a node connected.
pub struct Client {
    dial: Dial,
    security: Security,
    settings: config::Server,
    /// The run that the node's state belongs to; empty if it has none.
    run: watch::Receiver<String>,
    traffic: Arc<Traffic>,
    /// Methods beside the built-in ones.
    methods: OtherMethods<'static>,
    backoff: Backoff,
    /// The latest warning about the node's certificate, so that it is logged once.
    warned: Option<String>,
    /// Serial number of the certificate of the latest connection.
    serial: Vec<u8>,
    /// Told when the file of the certificate may have been replaced.
    replaced: Arc<Notify>,
}

/// Connects over TCP to the first of a host's addresses that answers; `address` is HOST:PORT.
pub fn tcp(address: &str, is_plain: bool) -> Dial {
    let address: Arc<str> = address.into();
    Arc::new(move || {
        let address = Arc::clone(&address);
        Box::pin(
            async move { Ok(Box::new(connect(&address, is_plain).await?) as Box<dyn Connection>) },
        )
    })
}

async fn connect(address: &str, is_plain: bool) -> Result<TcpStream, ConnectError> {
    let found = tokio::net::lookup_host(address).await;
    let mut trouble = ConnectError::unreachable(address, "no such host");
    for found in found.map_err(|error| ConnectError::unreachable(address, error))? {
        if is_plain && let Err(refused) = check_plain_text(found) {
            trouble = refused.into();
            continue;
        }
        match timeout(ADDRESS_TIMEOUT, TcpStream::connect(found)).await {
            Ok(Ok(stream)) => {
                stream
                    .set_nodelay(true)
                    .map_err(|error| ConnectError::unreachable(address, error))?;
                return Ok(stream);
            }
            Ok(Err(error)) => trouble = ConnectError::unreachable(address, error),
            Err(_) => {
                trouble =
                    ConnectError::unreachable(address, io::Error::from(io::ErrorKind::TimedOut))
            }
        }
    }
    Err(trouble)
}

impl Client {
    /// A client that has not connected yet.
    pub fn new(
        dial: Dial,
        security: Security,
        settings: config::Server,
        run: watch::Receiver<String>,
        traffic: Arc<Traffic>,
        methods: OtherMethods<'static>,
    ) -> Self {
        let backoff = Backoff::new(settings.retry_least.0, settings.retry_most.0);
        Self {
            dial,
            security,
            settings,
            run,
            traffic,
            methods,
            backoff,
            warned: None,
            serial: Vec::new(),
            replaced: Arc::default(),
        }
    }

    /// Starts its task. The task ends when the receiver is dropped.
    pub fn start(mut self) -> (mpsc::Receiver<Event>, tokio::task::JoinHandle<()>) {
        let (events, heard) = mpsc::channel(MAX_UNHEARD);
        let renewal = self.renewal();
        let task = tokio::spawn(async move {
            // It ends with this task.
            let mut renewing = JoinSet::new();
            if let Some(renewal) = renewal {
                renewing.spawn(renewal.run());
            }
            while !events.is_closed() {
                let trouble = self.stay(&events).await;
                let again_in = if trouble.is_lasting() && !self.has_new_certificate() {
                    // Not all at the same moment.
                    self.settings.retry_refused.0.mul_f64(0.5 + 0.5 * share())
                } else if trouble == ConnectError::NewCertificate {
                    Duration::ZERO
                } else {
                    self.backoff.wait(share())
                };
                if events.send(Event::Down { trouble, again_in }).await.is_err() {
                    return;
                }
                tokio::select! {
                    () = sleep(again_in) => {}
                    () = events.closed() => return,
                }
            }
        });
        (heard, task)
    }

    /// What looks after the certificate of this node, if it has one.
    fn renewal(&self) -> Option<Renewal> {
        let Security::Tls { identity, server } = &self.security else { return None };
        let settings = &self.settings;
        // A node that connects only once is not there for long.
        (!settings.once && identity.peer().role == Role::Node).then(|| Renewal {
            dial: Arc::clone(&self.dial),
            identity: (**identity).clone(),
            server: server.clone(),
            settings: settings.clone(),
            replaced: Arc::clone(&self.replaced),
        })
    }

    /// Whether the node has another certificate than that of the latest connection. If the server
    /// refused that one, it may have ended during the stream, after it was renewed.
    fn has_new_certificate(&mut self) -> bool {
        let Security::Tls { identity, .. } = &mut self.security else { return false };
        // What is wrong with the file is logged at the next connection.
        _ = identity.reopen_if_changed();
        identity.peer().serial != self.serial
    }

    /// Connects and receives until the stream ends.
    async fn stay(&mut self, events: &mpsc::Sender<Event>) -> ConnectError {
        let joined = tokio::select! {
            joined = timeout(self.settings.connect_timeout.0, self.join()) => joined,
            () = events.closed() => return ConnectError::Ended,
        };
        let (joined, Opened { mut stream, sender, mut silent }, note) = match joined {
            Ok(Ok(joined)) => joined,
            Ok(Err(trouble)) => return trouble,
            Err(_) => return ConnectError::Silent(self.settings.connect_timeout.0),
        };
        let since = Instant::now();
        let certificate_end = self.security.certificate_end();
        if events
            .send(Event::Up { joined: Box::new(joined), sender, certificate_end })
            .await
            .is_err()
        {
            return ConnectError::Ended;
        }
        // After the node's last message, the server is given a moment to end the stream.
        let mut end = std::pin::pin!(async move {
            // Nothing is ever sent on this channel; its sender is dropped.
            _ = (&mut silent).await;
            sleep(END_TIMEOUT).await;
        });
        let replaced = Arc::clone(&self.replaced);
        let trouble = loop {
            let received = tokio::select! {
                received = stream.next() => received,
                () = &mut end => break ConnectError::Ended,
                // What was not acknowledged is sent again on the next stream.
                () = replaced.notified() => {
                    if self.has_new_certificate() {
                        break ConnectError::NewCertificate;
                    }
                    continue;
                }
            };
            match received {
                Ok(received) => {
                    if events.send(Event::Heard(received)).await.is_err() {
                        break ConnectError::Ended;
                    }
                }
                Err(ConnectError::Ended) => break ConnectError::Ended,
                Err(error) => break note.read().unwrap_or(error),
            }
        };
        // Two streams that replace each other do so ever more rarely.
        if trouble != ConnectError::Replaced {
            self.backoff.lasted(since.elapsed());
        }
        trouble
    }

    /// Connects and joins.
    async fn join(&mut self) -> Result<(Joined, Opened, Note), ConnectError> {
        if let Security::Tls { identity, .. } = &mut self.security {
            match identity.reopen_if_changed() {
                Ok(true) => tracing::info!("the node's certificate was renewed"),
                Ok(false) => {}
                Err(error) => tracing::warn!("the node's new certificate is of no use: {error}"),
            }
            let warning = identity.warning();
            if let Some(warning) =
                warning.as_ref().filter(|warning| self.warned.as_ref() != Some(*warning))
            {
                tracing::warn!("{warning}");
            }
            self.warned = warning;
            self.serial.clone_from(&identity.peer().serial);
        }
        let connection = Counted::new((self.dial)().await?, Arc::clone(&self.traffic));
        let (note, connection) = self.secure(connection).await?;
        let is_plain = matches!(self.security, Security::PlainText { .. });
        match self.introduce(connection).await {
            Ok((joined, opened)) => Ok((joined, opened, note)),
            // What TLS says is the reason for all that comes after.
            Err(error) => Err(note.read().unwrap_or_else(|| error.before_welcome(is_plain))),
        }
    }

    async fn secure(
        &self,
        connection: Counted<Box<dyn Connection>>,
    ) -> Result<(Note, Box<dyn Connection>), ConnectError> {
        let Security::Tls { identity, server } = &self.security else {
            let (note, watched) = Watched::new(connection, true);
            return Ok((note, Box::new(watched)));
        };
        let connector = TlsConnector::from(identity.config());
        let secured = connector.connect(server.clone(), connection).await;
        let secured = secured.map_err(|error| {
            ConnectError::from_tls(&error)
                .unwrap_or_else(|| ConnectError::broken(&error).before_welcome(false))
        })?;
        let (note, watched) = Watched::new(secured, false);
        Ok((note, Box::new(watched)))
    }

    async fn introduce(
        &self,
        connection: Box<dyn Connection>,
    ) -> Result<(Joined, Opened), ConnectError> {
        let hello = hello(self.security.name(), &self.run.borrow());
        let keep_alive = self.settings.keep_alive.0;
        let mut opened = ClientStream::open(connection, keep_alive, hello).await?;
        Ok((Joined::from_first(opened.stream.first().await?, self.methods)?, opened))
    }
}

/// A random number from 0 to 1.
pub(super) fn share() -> f64 {
    // Every state has a key of its own.
    let number = RandomState::new().hash_one(());
    number as f64 / u64::MAX as f64
}
