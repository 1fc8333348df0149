//! HTTP/1 endpoints: which names they answer to ([`Hosts`]), and connections in bounded number.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower::ServiceExt;

mod hosts;
#[cfg(feature = "server")]
pub(crate) mod json;

pub use hosts::{Hosts, Misdirected};

/// How long to wait when the system has no resources for another connection.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Where connections come from.
pub trait Accept: Send + Sync {
    /// The bytes of a connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// Its other end. Requests have it as an extension.
    type Peer: Clone + Send + Sync + 'static;

    /// The next connection; none if it must not be served.
    fn accept(&self)
    -> impl Future<Output = io::Result<Option<(Self::Stream, Self::Peer)>>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;
    type Peer = SocketAddr;

    async fn accept(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        Self::accept(self).await.map(Some)
    }
}

/// Serves at most so many connections at once; others wait. The head of a request must arrive
/// within `head_timeout`. If the future is dropped, all connections end.
pub async fn serve<A: Accept>(
    listener: A,
    routes: Router,
    connections: usize,
    head_timeout: Duration,
    mut http: http1::Builder,
) {
    http.timer(TokioTimer::new()).header_read_timeout(head_timeout);
    let free = Arc::new(Semaphore::new(connections));
    let mut open = JoinSet::new();
    loop {
        let next = async { (Arc::clone(&free).acquire_owned().await, listener.accept().await) };
        tokio::select! {
            Some(_) = open.join_next() => {}
            (permit, accepted) = next => match accepted {
                Ok(None) => {}
                Ok(Some((stream, peer))) => {
                    let routes = routes.clone().map_request(move |mut request: Request<Incoming>| {
                        request.extensions_mut().insert(peer.clone());
                        request
                    });
                    let service = TowerToHyperService::new(routes);
                    let connection = http.serve_connection(TokioIo::new(stream), service);
                    open.spawn(async move {
                        if let Err(error) = connection.await {
                            tracing::debug!("a connection failed: {error}");
                        }
                        drop(permit);
                    });
                }
                // Most likely there are no file descriptors left; some may be closed soon.
                Err(error) => {
                    tracing::warn!(%error, "a connection can't be accepted");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
}
