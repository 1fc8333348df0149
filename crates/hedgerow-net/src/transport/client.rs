//! [`Client`]: keeps a node in touch with its server. It connects, introduces itself, hands over
//! what it hears, and begins again when the stream ends, ever more patiently.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use futures_util::stream;
use hedgerow::NodeId;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tonic::transport::Endpoint;
use tonic::{Status, Streaming};

pub use super::connect_error::ConnectError;
use super::watched::{Note, Watched};
use crate::agent::backoff::Backoff;
use crate::learning::Plan;
use crate::pki::identity::{NodeIdentity, check_plain_text};
use crate::transport::counted::{Counted, Traffic};
use crate::transport::protocol::{self, wire};

/// Most bytes of a message from the server.
const MAX_MESSAGE: usize = 8 << 20;

/// Messages that may wait to be sent: a node says little, and waits for answers.
const MAX_UNSENT: usize = 64;

/// Messages that may wait to be heard.
const MAX_UNHEARD: usize = 16;

/// How long one of a server's addresses is tried before the next one is.
const ATTEMPT: Duration = Duration::from_secs(4);

/// How long a server may take to end a stream on which the node says no more.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection of any kind.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Makes a connection.
pub type Dial = Arc<
    dyn Fn() -> Pin<Box<dyn Future<Output = Result<Box<dyn Connection>, ConnectError>> + Send>>
        + Send
        + Sync,
>;

/// How one proves who one is.
#[derive(Debug)]
pub enum Security {
    /// By a certificate, to a server that has one of the same authority and for this name.
    Tls {
        /// The node's.
        identity: Box<NodeIdentity>,
        /// The server's.
        server: ServerName<'static>,
    },
    /// Not at all: on loopback only.
    PlainText {
        /// Who the node says it is.
        name: String,
    },
}

impl Security {
    /// The node's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Tls { identity, .. } => identity.name(),
            Self::PlainText { name } => name,
        }
    }
}

/// How patient a node is.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For a connection to be made and to be welcomed on it.
    pub connect: Duration,
    /// Between two signs of life, which a dead server doesn't answer.
    pub keep_alive: Duration,
    /// The first wait before another try.
    pub least: Duration,
    /// The longest.
    pub most: Duration,
    /// The wait after a refusal that another try won't mend.
    pub refused: Duration,
}

/// What a client tells.
#[derive(Debug)]
pub enum Event {
    /// A stream is up. It ends when the sender is dropped.
    Up {
        /// The run that is joined.
        run: String,
        /// The node's number in it.
        number: NodeId,
        /// What is learned.
        plan: Box<Plan>,
        /// Takes what the node says.
        sender: mpsc::Sender<wire::FromNode>,
    },
    /// The server has said something.
    Heard(wire::FromServer),
    /// The stream is down, or none could be made.
    Down {
        /// Why.
        trouble: ConnectError,
        /// When it is tried again.
        again_in: Duration,
    },
}

/// Keeps in touch.
pub struct Client {
    dial: Dial,
    security: Security,
    patience: Patience,
    /// The run that the node's state belongs to; empty if it has none.
    run: watch::Receiver<String>,
    traffic: Arc<Traffic>,
    backoff: Backoff,
    /// What was said about the node's certificate, so that it is said once.
    warned: Option<String>,
}

/// A connection over TCP to whatever answers first under this address, which has a host and a port.
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
        match timeout(ATTEMPT, TcpStream::connect(found)).await {
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
    /// One that hasn't tried yet.
    pub fn new(
        dial: Dial,
        security: Security,
        patience: Patience,
        run: watch::Receiver<String>,
        traffic: Arc<Traffic>,
    ) -> Self {
        let backoff = Backoff::new(patience.least, patience.most);
        Self { dial, security, patience, run, traffic, backoff, warned: None }
    }

    /// Begins, on a task of its own. It ends when nobody listens any more.
    pub fn start(mut self) -> (mpsc::Receiver<Event>, tokio::task::JoinHandle<()>) {
        let (events, heard) = mpsc::channel(MAX_UNHEARD);
        let task = tokio::spawn(async move {
            while !events.is_closed() {
                let trouble = self.stay(&events).await;
                let again_in = if trouble.is_lasting() {
                    // Not all at the same moment.
                    self.patience.refused.mul_f64(0.5 + 0.5 * share())
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

    /// Connects and listens until there is nothing more to hear.
    async fn stay(&mut self, events: &mpsc::Sender<Event>) -> ConnectError {
        let joined = tokio::select! {
            joined = timeout(self.patience.connect, self.join()) => joined,
            () = events.closed() => return ConnectError::Ended,
        };
        let Joined { mut stream, run, number, plan, sender, mut silent, note } = match joined {
            Ok(Ok(joined)) => joined,
            Ok(Err(trouble)) => return trouble,
            Err(_) => return ConnectError::Silent(self.patience.connect),
        };
        let since = Instant::now();
        if events.send(Event::Up { run, number, plan, sender }).await.is_err() {
            return ConnectError::Ended;
        }
        // A node that says no more waits for the server to end the stream, but not for ever.
        let mut end = std::pin::pin!(async move {
            // The sender of this is never used, only dropped.
            _ = (&mut silent).await;
            sleep(FAREWELL).await;
        });
        let trouble = loop {
            let message = tokio::select! {
                message = stream.message() => message,
                () = &mut end => break ConnectError::Ended,
            };
            match message {
                Ok(Some(message)) => {
                    if events.send(Event::Heard(message)).await.is_err() {
                        break ConnectError::Ended;
                    }
                }
                Ok(None) => break ConnectError::Ended,
                Err(status) => {
                    break note.read().unwrap_or_else(|| ConnectError::from_status(&status, false));
                }
            }
        };
        // Two that take each other's place do so ever more rarely.
        if trouble != ConnectError::Replaced {
            self.backoff.lasted(since.elapsed());
        }
        trouble
    }

    /// A connection, and the server's welcome on it.
    async fn join(&mut self) -> Result<Joined, ConnectError> {
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
        }
        let connection = Counted::new((self.dial)().await?, Arc::clone(&self.traffic));
        let (note, connection) = self.secure(connection).await?;
        let is_plain = matches!(self.security, Security::PlainText { .. });
        let outcome = self.introduce(connection, &note).await;
        // What TLS says is the reason for all that comes after.
        outcome.map_err(|trouble| note.read().unwrap_or_else(|| trouble.before_welcome(is_plain)))
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
        note: &Note,
    ) -> Result<Joined, ConnectError> {
        // The name in the address is of no use: the connection is there already.
        let endpoint = Endpoint::from_static("http://hedgerow")
            .http2_keep_alive_interval(self.patience.keep_alive)
            .keep_alive_timeout(self.patience.keep_alive)
            .keep_alive_while_idle(true);
        let mut connection = Some(connection);
        let once = tower::service_fn(move |_| {
            let connection =
                connection.take().ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionAborted));
            std::future::ready(connection.map(TokioIo::new))
        });
        let broken = |error: tonic::transport::Error| ConnectError::broken(&error);
        let channel = endpoint.connect_with_connector(once).await.map_err(broken)?;
        let mut client = wire::federation_client::FederationClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let (sender, mut unsent) = mpsc::channel(MAX_UNSENT);
        let hello = wire::Hello {
            protocol: protocol::VERSION,
            name: self.security.name().to_owned(),
            run: self.run.borrow().clone(),
            software: concat!("hedgerow-node ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        // There is room for the first message.
        _ = sender.try_send(wire::from_node::Message::Hello(hello).into());
        let (speaking, silent) = oneshot::channel();
        let mut speaking = Some(speaking);
        let outgoing = stream::poll_fn(move |context| {
            let message = ready!(unsent.poll_recv(context));
            if message.is_none() {
                drop(speaking.take());
            }
            Poll::Ready(message)
        });
        let refused = |status: Status| ConnectError::from_status(&status, true);
        let answer = client.join(outgoing).await.map_err(refused)?;
        let mut stream = answer.into_inner();
        let first = stream.message().await.map_err(refused)?.ok_or(ConnectError::Ended)?;
        match first.message {
            Some(wire::from_server::Message::Welcome(welcome))
                if welcome.protocol == protocol::VERSION =>
            {
                let wire::Welcome { run, node: number, learning, .. } = welcome;
                let plan = Plan::from_json(&learning)
                    .map_err(|error| ConnectError::Plan(error.to_string()))?;
                let plan = Box::new(plan);
                Ok(Joined { stream, run, number, plan, sender, silent, note: note.clone() })
            }
            Some(wire::from_server::Message::Welcome(welcome)) => {
                Err(ConnectError::Foreign(format!(
                    "it speaks version {}, and this node version {}",
                    welcome.protocol,
                    protocol::VERSION
                )))
            }
            Some(wire::from_server::Message::Refusal(refusal)) => {
                Err(ConnectError::Refused(refusal.reason))
            }
            _ => Err(ConnectError::Foreign("its first message is no welcome".to_owned())),
        }
    }
}

/// A stream that is up.
struct Joined {
    stream: Streaming<wire::FromServer>,
    run: String,
    number: NodeId,
    plan: Box<Plan>,
    sender: mpsc::Sender<wire::FromNode>,
    /// Comes when the node has no more to say.
    silent: oneshot::Receiver<()>,
    note: Note,
}

/// A random number from 0 to 1.
fn share() -> f64 {
    // Every state has a key of its own.
    let number = RandomState::new().hash_one(());
    number as f64 / u64::MAX as f64
}
