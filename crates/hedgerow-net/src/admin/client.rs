//! [`Client`]: asks a running server, over its socket or as an operator over TLS.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::router::PATH;
use crate::agent::client::tcp;
use crate::operations::{Action, Outcome};
use crate::pki::identity::{IdentityError, NodeIdentity, Role};
use crate::session::ConnectError;
use crate::transport::watched::{Note, Watched};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// How long an answer may take: a backup copies the whole store.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// Most bytes of an answer: of all nodes that a run may have.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// Keep-alive of a connection to another machine.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Why a server can't be asked, or doesn't do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens on the socket.
    #[error(
        "{}: no server uses this store: start it (hedgerow serve), or name its store (--store)",
        socket.display()
    )]
    NotRunning {
        /// The socket.
        socket: PathBuf,
    },
    /// The socket is another user's.
    #[error(
        "{}: the server is another user's: run this as its user (sudo -u USER hedgerow admin ...), \
         or use an operator's certificate (--server, --identity)",
        socket.display()
    )]
    OtherUser {
        /// The socket.
        socket: PathBuf,
    },
    /// There can't be a socket.
    #[cfg(unix)]
    #[error(transparent)]
    Socket(#[from] super::socket::SocketError),
    /// This system has no such sockets.
    #[error(
        "this system has no Unix sockets: use an operator's certificate (--server, --identity)"
    )]
    NoSockets,
    /// The operator's file can't be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Not the address of a server.
    #[error("a server's address is HOST:PORT, such as hedge.example.org:7443, but is {0:?}")]
    Address(String),
    /// The server can't be reached, or doesn't want this operator.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection broke off.
    #[error("the server is gone: {0}")]
    Broken(String),
    /// The server took too long.
    #[error("the server did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// The answer is none.
    #[error("the server's answer can't be read ({0}): is it of another version?")]
    Answer(String),
    /// The server refuses.
    #[error("{message}")]
    Refused {
        /// The status of HTTP.
        status: u16,
        /// The server's words.
        message: String,
    },
}

/// A connection to a running server.
pub struct Client {
    sender: Sender,
    /// What TLS says, which is the reason for all that comes after.
    note: Option<Note>,
}

enum Sender {
    Local(http1::SendRequest<Body>),
    Remote(http2::SendRequest<Body>),
}

impl Client {
    /// Connects to the server of a store on this machine.
    #[cfg(unix)]
    pub async fn local(store: &Path) -> Result<Self, ClientError> {
        use super::socket::{Socket, check_length};
        let socket = Socket::path(store);
        check_length(&socket)?;
        let stream = tokio::net::UnixStream::connect(&socket).await.map_err(|source| {
            let socket = socket.clone();
            match source.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    ClientError::NotRunning { socket }
                }
                io::ErrorKind::PermissionDenied => ClientError::OtherUser { socket },
                _ => ClientError::Broken(format!("{}: {source}", socket.display())),
            }
        })?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        tokio::spawn(connection);
        Ok(Self { sender: Sender::Local(sender), note: None })
    }

    /// This system has no such sockets.
    #[cfg(not(unix))]
    pub async fn local(_: &Path) -> Result<Self, ClientError> {
        Err(ClientError::NoSockets)
    }

    /// Connects to a server on another machine as an operator; `address` is HOST:PORT.
    pub async fn remote(address: &str, identity: &Path) -> Result<Self, ClientError> {
        let unfit = || ClientError::Address(address.to_owned());
        let (host, _) = address.rsplit_once(':').ok_or_else(unfit)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|_| unfit())?;
        let identity = NodeIdentity::open_as(identity, Role::Operator)?;
        let connecting = async {
            let connection = tcp(address, false)().await?;
            let secured = TlsConnector::from(identity.config()).connect(name, connection).await;
            let secured = secured.map_err(|error| {
                ConnectError::from_tls(&error).unwrap_or_else(|| ConnectError::broken(&error))
            })?;
            let (note, watched) = Watched::new(secured, false);
            let handshake = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(KEEP_ALIVE)
                .handshake(TokioIo::new(watched))
                .await;
            let (sender, connection) = handshake.map_err(|error| ConnectError::broken(&error))?;
            tokio::spawn(connection);
            Ok(Self { sender: Sender::Remote(sender), note: Some(note) })
        };
        match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected.map_err(ClientError::Connect),
            Err(_) => Err(ClientError::Silent(CONNECT_TIMEOUT)),
        }
    }

    /// Has the server do something.
    pub async fn operate(&mut self, action: &Action) -> Result<Outcome, ClientError> {
        let body = serde_json::to_vec(action).map_err(answer)?;
        let asking = async {
            let answer = self.send(Body::from(body)).await?;
            let status = answer.status();
            let body = to_bytes(Body::new(answer.into_body()), MAX_ANSWER_BYTES).await;
            Ok::<_, ClientError>((
                status,
                body.map_err(|error| ClientError::Broken(error.to_string()))?,
            ))
        };
        let asked = timeout(ANSWER_TIMEOUT, asking).await;
        let (status, body) = match asked.map_err(|_| ClientError::Silent(ANSWER_TIMEOUT))? {
            Ok(answer) => answer,
            // It may come a moment after the connection broke.
            Err(error) => match self.note.as_ref().and_then(Note::read) {
                Some(reason) => return Err(reason.into()),
                None => return Err(error),
            },
        };
        if status == StatusCode::OK {
            return serde_json::from_slice(&body).map_err(answer);
        }
        let told: Option<Value> = serde_json::from_slice(&body).ok();
        let message = told.as_ref().and_then(|told| told["message"].as_str()).map(str::to_owned);
        let message = message.unwrap_or_else(|| format!("the server answered {status}"));
        Err(ClientError::Refused { status: status.as_u16(), message })
    }

    async fn send(&mut self, body: Body) -> Result<Response<Incoming>, ClientError> {
        let uri = match &self.sender {
            Sender::Local(_) => PATH.to_owned(),
            // The authority is not used: the connection exists already.
            Sender::Remote(_) => format!("https://hedgerow{PATH}"),
        };
        let request = Request::post(uri).header(HOST, "localhost");
        let request =
            request.header(CONTENT_TYPE, "application/json").body(body).map_err(answer)?;
        match &mut self.sender {
            Sender::Local(sender) => sender.ready().await.map_err(broken)?,
            Sender::Remote(sender) => sender.ready().await.map_err(broken)?,
        }
        match &mut self.sender {
            Sender::Local(sender) => sender.send_request(request).await.map_err(broken),
            Sender::Remote(sender) => sender.send_request(request).await.map_err(broken),
        }
    }
}

fn broken(error: hyper::Error) -> ClientError {
    ClientError::Broken(ConnectError::causes(&error))
}

fn answer(error: impl ToString) -> ClientError {
    ClientError::Answer(error.to_string())
}
