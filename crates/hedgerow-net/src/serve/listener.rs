//! [`Listener`]: accepts, counts, limits and authenticates connections, and serves each in a task
//! of its own.
//!
//! An error of one connection affects no other. The loop continues even if the system has no
//! resources for another connection.

use std::convert::Infallible;
use std::error::Error;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http2;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tower::{Service, ServiceExt};

use super::descriptors::Places;
use super::hub::Hub;
use super::metrics::Metrics;
use super::signing::Signing;
use super::throttle::Throttle;
use crate::coordinator::rules::Limits;
use crate::pki::Authority;
use crate::pki::identity::{Peer, SIGNING_PROTOCOL, ServerIdentity, time_left};
use crate::transport::counted::{Counted, Traffic};

mod connection;
mod duplicate_identity;
mod peer;
mod reasons;
mod slot;

use connection::Connection;
use duplicate_identity::DuplicateIdentity;
pub use peer::PeerConnection;
use reasons::TurnedAway;
pub(crate) use slot::neighbourhood;
use slot::{Count, Slot};

/// Flow control window of a connection and of its one stream, and unsent bytes for a node that
/// doesn't read.
const WINDOW_BYTES: u32 = 1 << 16;
const UNSENT_BYTES: usize = 1 << 14;

/// Most bytes of a request's headers.
const HEADER_BYTES: u32 = 8 << 10;

/// Keep-alive messages: their interval and how long an answer may take.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a node has to receive the reason before its connection is cut.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait when the system has no resources for another connection.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// An HTTP/2 service that a listener can serve: a transport's.
pub trait Serves:
    Service<
        Request<Incoming>,
        Response = Response<Self::Body>,
        Error = Infallible,
        Future: Send + 'static,
    > + Clone
    + Send
    + 'static
{
    /// The body of its responses.
    type Body: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;
}

impl<S, B> Serves for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    type Body = B;
}

/// Takes connections.
pub struct Listener {
    tcp: TcpListener,
    admission: Arc<Admission>,
}

/// What every connection has to pass.
struct Admission {
    limits: Limits,
    places: Places,
    /// None is plain text.
    identity: Option<Arc<ServerIdentity>>,
    /// Gives certificates.
    signing: Option<Signing>,
    traffic: Arc<Traffic>,
    count: Arc<Mutex<Count>>,
    throttle: Throttle,
    duplicates: DuplicateIdentity,
    metrics: Metrics,
}

impl Listener {
    /// On an address; port 0 is any. The authority signs certificates of nodes, if it can.
    pub(super) async fn bind(
        (address, places): (SocketAddr, Places),
        identity: Option<Arc<ServerIdentity>>,
        authority: Option<Authority>,
        hub: &Hub,
    ) -> io::Result<Self> {
        let tcp = TcpListener::bind(address).await?;
        let admission = Admission {
            limits: *hub.limits(),
            places,
            identity,
            signing: authority.map(|authority| Signing::new(authority, hub.metrics().clone())),
            traffic: Arc::clone(hub.traffic()),
            count: Arc::default(),
            throttle: Throttle::default(),
            duplicates: DuplicateIdentity::default(),
            metrics: hub.metrics().clone(),
        };
        Ok(Self { tcp, admission: Arc::new(admission) })
    }

    /// Where it really listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves until `stop` is true, then until all connections have ended. If the sender of `stop`
    /// is dropped, all connections are dropped. The role in a certificate decides whether a
    /// connection gets the service of nodes or that of operators.
    pub async fn serve<N: Serves, O: Serves>(
        self,
        nodes: N,
        operators: O,
        stop: watch::Receiver<bool>,
    ) {
        // Every connection holds a sender; the channel closes with the last one.
        let (here, mut gone) = mpsc::channel::<()>(1);
        let mut stopped = stop.clone();
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => {}
            () = self.accept(nodes, operators, stop, here) => {}
        }
        drop(self.tcp);
        gone.recv().await;
    }

    async fn accept<N: Serves, O: Serves>(
        &self,
        nodes: N,
        operators: O,
        stop: watch::Receiver<bool>,
        here: mpsc::Sender<()>,
    ) {
        loop {
            let (tcp, address) = match self.tcp.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // No descriptor or memory left, or the other side is gone already. Waiting
                    // helps against the former.
                    if self.admission.throttle.allows() {
                        tracing::warn!(%error, "a connection could not be accepted");
                    }
                    sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            let Admission { count, limits, places, .. } = &*self.admission;
            let most = limits.connections_per_address;
            let Some(slot) = Slot::take(count, address.ip(), (most, places)) else {
                self.admission.turn_away(address, None, &TurnedAway::TooMany);
                continue;
            };
            // Messages are small and must not be delayed.
            _ = tcp.set_nodelay(true);
            let (admission, nodes, operators) =
                (Arc::clone(&self.admission), nodes.clone(), operators.clone());
            let (stop, here) = (stop.clone(), here.clone());
            tokio::spawn(async move {
                let _here = here;
                // Boxes: for as long as a node is connected, the task would have their size.
                match Box::pin(admission.pass(tcp, address, slot, stop.clone())).await {
                    Ok(None) => {}
                    Ok(Some((connection, link))) if link.is_operator() => {
                        // Bounds before a join are for nodes.
                        link.joined();
                        link.ended(Box::pin(talk(connection, operators, &link, stop)).await);
                    }
                    Ok(Some((connection, link))) => {
                        link.ended(talk(connection, nodes, &link, stop).await);
                    }
                    Err(reason) => admission.turn_away(address, None, &reason),
                }
            });
        }
    }
}

/// Speaks HTTP/2 on a connection until it ends. Requests have the other end as an extension.
async fn talk<S: Serves>(
    connection: Connection,
    service: S,
    link: &Arc<PeerConnection>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), hyper::Error> {
    let peer = Arc::clone(link);
    let service = service.map_request(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&peer));
        request
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(1)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(UNSENT_BYTES)
        .max_header_list_size(HEADER_BYTES)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    let mut talk =
        pin!(builder.serve_connection(TokioIo::new(connection), TowerToHyperService::new(service)));
    tokio::select! {
        ended = talk.as_mut() => return ended,
        // Its stream may not hear of it, if the node doesn't read.
        () = async {
            tokio::select! {
                _ = link.close_signal.given() => {}
                () = link.expire() => {}
            }
            sleep(CLOSE_TIMEOUT).await;
        } => return Ok(()),
        stopped = stop.wait_for(|stop| *stop) => {
            if stopped.is_err() {
                return Ok(());
            }
            talk.as_mut().graceful_shutdown();
        }
    }
    talk.await
}

impl Admission {
    /// Counts and logs a refused connection.
    fn turn_away(&self, address: SocketAddr, name: Option<&str>, reason: &dyn Display) {
        self.metrics.turned_away();
        if self.throttle.allows() {
            tracing::warn!(%address, name, %reason, "turned away");
        } else {
            tracing::debug!(%address, name, %reason, "turned away");
        }
    }

    /// Checks who connects. None if only a certificate was asked for, which is done then.
    async fn pass(
        self: &Arc<Self>,
        tcp: TcpStream,
        address: SocketAddr,
        mut slot: Slot,
        mut stop: watch::Receiver<bool>,
    ) -> Result<Option<(Connection, Arc<PeerConnection>)>, TurnedAway> {
        let patience = self.limits.handshake.0;
        let tcp = Counted::new(tcp, Arc::clone(&self.traffic));
        let link = |peer, end| Arc::new(PeerConnection::new(peer, end, address, Arc::clone(self)));
        let Some(identity) = &self.identity else {
            slot.admit(&self.places)?;
            let link = link(None, None);
            let connection = Connection::new(Box::new(tcp), Arc::clone(&link), slot, patience);
            return Ok(Some((connection, link)));
        };
        let (asks, tls) = tokio::select! {
            shaken = timeout(patience, shake(identity, tcp)) => {
                shaken.map_err(|_| TurnedAway::Timeout(patience))??
            }
            _ = stop.wait_for(|stop| *stop) => return Err(TurnedAway::Stopped),
            () = slot.taken() => return Err(TurnedAway::Displaced),
        };
        let certificate = tls.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let peer = certificate.map(Peer::from_certificate).transpose()?;
        if let (true, Some(signing)) = (asks, &self.signing) {
            tokio::select! {
                signed = timeout(patience, signing.serve(tls, peer, address)) => {
                    signed.map_err(|_| TurnedAway::Timeout(patience))??;
                }
                () = slot.taken() => return Err(TurnedAway::Displaced),
            }
            return Ok(None);
        }
        let certificate = certificate.filter(|_| !asks).ok_or(TurnedAway::NoCertificate)?;
        let end = Instant::now().checked_add(time_left(certificate)?);
        slot.admit(&self.places)?;
        let link = link(peer, end);
        let connection = Connection::new(Box::new(tls), Arc::clone(&link), slot, patience);
        Ok(Some((connection, link)))
    }
}

/// Does the handshake. Also says whether the client is here to ask for a certificate: then it may
/// have none.
async fn shake<S: AsyncRead + AsyncWrite + Unpin>(
    identity: &ServerIdentity,
    stream: S,
) -> io::Result<(bool, TlsStream<S>)> {
    let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let asks = start
        .client_hello()
        .alpn()
        .is_some_and(|mut names| names.any(|name| name == SIGNING_PROTOCOL));
    let config = if asks { identity.signing_config() } else { identity.config() };
    Ok((asks, start.into_stream(config).await?))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::duration::Span;

    fn admission(limits: Limits) -> Arc<Admission> {
        Arc::new(Admission {
            limits,
            places: Places::new(limits.connections, None),
            identity: None,
            signing: None,
            traffic: Arc::default(),
            count: Arc::default(),
            throttle: Throttle::default(),
            duplicates: DuplicateIdentity::default(),
            metrics: Metrics::new(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_cut_off() {
        use tokio::io::AsyncWriteExt;
        let admission =
            admission(Limits { handshake: Span(Duration::from_secs(3)), ..Limits::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for (has_joined, seconds) in [(false, 3), (true, 10)] {
            let there = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (tcp, address) = listener.accept().await.unwrap();
            let slot = Slot::take(&admission.count, address.ip(), (9, &admission.places)).unwrap();
            let (_stop, stopped) = watch::channel(false);
            let (mut connection, link) =
                admission.pass(tcp, address, slot, stopped).await.ok().flatten().unwrap();
            if has_joined {
                link.joined();
            }
            let mut fill = async || loop {
                if let Err(error) = connection.write_all(&[0; 1 << 14]).await {
                    break error;
                }
                connection.flush().await.unwrap();
            };
            // Whoever takes something in time is waited for again and again.
            for _ in 0..3 {
                assert!(timeout(Duration::from_secs(seconds - 1), fill()).await.is_err());
                while there.try_read(&mut [0; 1 << 16]).is_ok() {}
            }
            let since = Instant::now();
            assert_eq!(fill().await.kind(), io::ErrorKind::TimedOut);
            assert_eq!(since.elapsed().as_secs(), seconds);
        }
        assert_eq!(admission.count.lock().unwrap().admitted, 0);
    }

    #[tokio::test]
    async fn who_says_much_lets_others_speak() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let admission = admission(Limits::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut there = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (tcp, address) = listener.accept().await.unwrap();
        let slot = Slot::take(&admission.count, address.ip(), (9, &admission.places)).unwrap();
        let (_stop, stopped) = watch::channel(false);
        let (mut connection, link) =
            admission.pass(tcp, address, slot, stopped).await.ok().flatten().unwrap();
        // All of it is there before any is read.
        there.write_all(&[7; 100_000]).await.unwrap();
        let mut part = [0; 1_000];
        let reading = async {
            for _ in 0..100 {
                connection.read_exact(&mut part).await.unwrap();
                assert_eq!(part, [7; 1_000]);
            }
        };
        let (mut turns, mut reading) = (0, pin!(reading));
        std::future::poll_fn(|context| {
            turns += 1;
            reading.as_mut().poll(context)
        })
        .await;
        assert!(turns > 100_000 / (1 << 13), "{turns} turns");
        // Only joined nodes may send without a bound.
        for (has_joined, expected) in [(true, 100), (false, 100), (false, 32)] {
            link.has_joined.store(has_joined, Relaxed);
            there.write_all(&[7; 100_000]).await.unwrap();
            let mut parts = 0;
            while parts < 100 && connection.read_exact(&mut part).await.is_ok() {
                parts += 1;
            }
            assert_eq!(parts, expected);
        }
    }
}
