//! [`Listener`]: connections come in here, are counted, limited, and proved to be who they are; then they are served, one task each.
//!
//! Whatever goes wrong with one of them is its own affair. The loop goes on, even if the system has no more room for connections.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error;
use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tonic::codegen::{Service as Serves, http};

use super::hub::{Hub, Notice};
use super::metrics::Metrics;
use super::rules::Limits;
use super::service::Service;
use super::throttle::Throttle;
use crate::counted::{Counted, Traffic};
use crate::identity::{BadCertificate, Peer, ServerIdentity};
use crate::protocol::wire::federation_server::FederationServer;

mod connection;

use connection::Connection;

/// Bytes that may be under way to the server on one connection, and that may wait for a node that doesn't read. There is one stream on it.
const WINDOW_BYTES: u32 = 1 << 16;
const WAITING_BYTES: usize = 1 << 14;

/// Bytes of a request's headers.
const HEADER_BYTES: u32 = 8 << 10;

/// Signs of life are asked for after so long, and waited for.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
const KEEP_ALIVE_PATIENCE: Duration = Duration::from_secs(10);

/// Whoever is told to go has so long to hear why.
const LAST_WORD: Duration = Duration::from_secs(1);

/// How long to wait when the system has no room for another connection.
const BREATHER: Duration = Duration::from_millis(100);

/// Who is at the other end of a connection.
pub struct Link {
    /// Who it has proved to be; nobody in plain text.
    pub peer: Option<Peer>,
    /// Where from.
    pub address: SocketAddr,
    /// Whether it has a stream. A connection without one ends soon.
    pub has_joined: AtomicBool,
    /// Says when to go; whoever doesn't listen is cut off.
    pub notice: Arc<Notice>,
    /// Whether the log has heard of it.
    is_noted: AtomicBool,
    door: Arc<Door>,
}

impl Link {
    /// Somebody joined.
    pub fn joined(&self) {
        self.has_joined.store(true, Relaxed);
        self.is_noted.store(true, Relaxed);
    }

    /// Somebody was not let in: to be counted and logged.
    pub fn turned_away(&self, reason: &dyn Display) {
        self.is_noted.store(true, Relaxed);
        let name = self.peer.as_ref().map(|peer| peer.name.as_str());
        self.door.turn_away(self.address, name, reason);
    }

    /// Whether its certificate was revoked after it was shown.
    pub fn is_revoked(&self) -> bool {
        let (identity, peer) = (self.door.identity.as_ref(), self.peer.as_ref());
        identity.zip(peer).is_some_and(|(identity, peer)| identity.is_revoked(peer))
    }

    /// The connection is over. If it broke before anybody joined, nobody was let in.
    fn ended(&self, ended: Result<(), hyper::Error>) {
        let Err(error) = ended else { return };
        if self.is_noted.load(Relaxed) {
            tracing::debug!(address = %self.address, error = &error as &dyn Error, "a connection broke");
        } else {
            self.turned_away(&innermost(&error));
        }
    }
}

/// What caused an error: those around it only say that there was one.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Why a connection was not let in.
#[derive(Debug, thiserror::Error)]
enum TurnedAway {
    #[error("too many connections")]
    TooMany,
    #[error("TLS: {0}")]
    Tls(#[from] io::Error),
    #[error("no TLS within {0:?}")]
    Timeout(Duration),
    #[error("no certificate")]
    NoCertificate,
    #[error("the server is going down")]
    Stopped,
    #[error(transparent)]
    Certificate(#[from] BadCertificate),
}

/// Takes connections.
pub struct Listener {
    tcp: TcpListener,
    door: Arc<Door>,
}

/// What every connection has to pass.
struct Door {
    limits: Limits,
    /// None is plain text.
    identity: Option<Arc<ServerIdentity>>,
    traffic: Arc<Traffic>,
    count: Arc<Mutex<Count>>,
    throttle: Throttle,
    metrics: Metrics,
}

/// Connections that there are.
#[derive(Debug, Default)]
struct Count {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// One connection's place among them.
#[derive(Debug)]
struct Place {
    count: Arc<Mutex<Count>>,
    address: IpAddr,
}

impl Place {
    /// None if there are too many.
    fn take(count: &Arc<Mutex<Count>>, address: IpAddr, limits: &Limits) -> Option<Self> {
        let mut taken = lock(count);
        let from_there = taken.by_address.get(&address).copied().unwrap_or(0);
        if taken.all >= limits.connections || from_there >= limits.connections_per_address {
            return None;
        }
        taken.all += 1;
        taken.by_address.insert(address, from_there + 1);
        Some(Self { count: Arc::clone(count), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut count = lock(&self.count);
        count.all -= 1;
        if let Entry::Occupied(mut from_there) = count.by_address.entry(self.address) {
            *from_there.get_mut() -= 1;
            if *from_there.get() == 0 {
                from_there.remove();
            }
        }
    }
}

fn lock(count: &Mutex<Count>) -> MutexGuard<'_, Count> {
    count.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Listener {
    /// On an address; port 0 is any.
    pub async fn bind(
        address: SocketAddr,
        identity: Option<Arc<ServerIdentity>>,
        hub: &Hub,
    ) -> io::Result<Self> {
        let tcp = TcpListener::bind(address).await?;
        let door = Door {
            limits: *hub.limits(),
            identity,
            traffic: Arc::clone(hub.traffic()),
            count: Arc::default(),
            throttle: Throttle::default(),
            metrics: hub.metrics().clone(),
        };
        Ok(Self { tcp, door: Arc::new(door) })
    }

    /// Where it really listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves until `stop` says that nobody else is let in, and then until all who are there have gone. If nobody is left to say so, all
    /// connections are dropped.
    pub async fn serve(self, service: FederationServer<Service>, stop: watch::Receiver<bool>) {
        // Every connection holds one; the last one that goes closes it.
        let (here, mut gone) = mpsc::channel::<()>(1);
        let mut stopped = stop.clone();
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => {}
            () = self.accept(service, stop, here) => {}
        }
        drop(self.tcp);
        gone.recv().await;
    }

    async fn accept(
        &self,
        service: FederationServer<Service>,
        stop: watch::Receiver<bool>,
        here: mpsc::Sender<()>,
    ) {
        loop {
            let (tcp, address) = match self.tcp.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // No descriptor or memory left, or the other side is gone already. Waiting helps against the former.
                    if self.door.throttle.allows() {
                        tracing::warn!(%error, "a connection could not be accepted");
                    }
                    tokio::time::sleep(BREATHER).await;
                    continue;
                }
            };
            let Some(place) = Place::take(&self.door.count, address.ip(), &self.door.limits) else {
                self.door.turn_away(address, None, &TurnedAway::TooMany);
                continue;
            };
            // Messages are small and wait for nobody.
            _ = tcp.set_nodelay(true);
            let (door, service, stop, here) =
                (Arc::clone(&self.door), service.clone(), stop.clone(), here.clone());
            tokio::spawn(async move {
                let _here = here;
                match door.pass(tcp, address, place, stop.clone()).await {
                    Ok((connection, link)) => {
                        let service = WithLink { service, link: Arc::clone(&link) };
                        link.ended(talk(connection, service, stop).await);
                    }
                    Err(reason) => door.turn_away(address, None, &reason),
                }
            });
        }
    }
}

/// Speaks HTTP/2 on a connection until it ends.
async fn talk(
    connection: Connection,
    service: WithLink,
    mut stop: watch::Receiver<bool>,
) -> Result<(), hyper::Error> {
    let notice = Arc::clone(&service.link.notice);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(1)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(WAITING_BYTES)
        .max_header_list_size(HEADER_BYTES)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_PATIENCE);
    let mut talk =
        pin!(builder.serve_connection(TokioIo::new(connection), TowerToHyperService::new(service)));
    tokio::select! {
        ended = talk.as_mut() => return ended,
        // Its stream may not hear of it, if the node doesn't read.
        () = async {
            notice.given().await;
            tokio::time::sleep(LAST_WORD).await;
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

/// A service whose requests know where they come from.
#[derive(Clone)]
struct WithLink {
    service: FederationServer<Service>,
    link: Arc<Link>,
}

impl<B> Serves<http::Request<B>> for WithLink
where
    FederationServer<Service>: Serves<http::Request<B>>,
{
    type Response = <FederationServer<Service> as Serves<http::Request<B>>>::Response;
    type Error = <FederationServer<Service> as Serves<http::Request<B>>>::Error;
    type Future = <FederationServer<Service> as Serves<http::Request<B>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        request.extensions_mut().insert(Arc::clone(&self.link));
        self.service.call(request)
    }
}

impl Door {
    /// Counts and logs that somebody was not let in.
    fn turn_away(&self, address: SocketAddr, name: Option<&str>, reason: &dyn Display) {
        self.metrics.turned_away();
        if self.throttle.allows() {
            tracing::warn!(%address, name, %reason, "turned away");
        } else {
            tracing::debug!(%address, name, %reason, "turned away");
        }
    }

    async fn pass(
        self: &Arc<Self>,
        tcp: TcpStream,
        address: SocketAddr,
        place: Place,
        mut stop: watch::Receiver<bool>,
    ) -> Result<(Connection, Arc<Link>), TurnedAway> {
        let patience = self.limits.handshake;
        let tcp = Counted::new(tcp, Arc::clone(&self.traffic));
        let link = |peer| {
            Arc::new(Link {
                peer,
                address,
                has_joined: AtomicBool::new(false),
                notice: Arc::default(),
                is_noted: AtomicBool::new(false),
                door: Arc::clone(self),
            })
        };
        let Some(identity) = &self.identity else {
            let link = link(None);
            return Ok((Connection::plain(tcp, Arc::clone(&link), place, patience), link));
        };
        let acceptor = TlsAcceptor::from(identity.config());
        let tls = tokio::select! {
            shaken = tokio::time::timeout(patience, acceptor.accept(tcp)) => {
                shaken.map_err(|_| TurnedAway::Timeout(patience))??
            }
            _ = stop.wait_for(|stop| *stop) => return Err(TurnedAway::Stopped),
        };
        let certificates = tls.get_ref().1.peer_certificates();
        let certificate = certificates.and_then(<[_]>::first).ok_or(TurnedAway::NoCertificate)?;
        let link = link(Some(Peer::from_certificate(certificate)?));
        Ok((Connection::tls(tls, Arc::clone(&link), place, patience), link))
    }
}

/// Asks the system for as many descriptors as it would give: every connection needs one. How many there are.
pub fn raise_descriptor_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum || setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok() {
        maximum
    } else {
        current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_in_all_and_by_address() {
        let limits = Limits { connections: 3, connections_per_address: 2, ..Limits::default() };
        let count = Arc::default();
        let take = |last: u8| Place::take(&count, IpAddr::from([10, 0, 0, last]), &limits);
        let (first, second) = (take(1), take(1));
        assert!(first.is_some() && second.is_some() && take(1).is_none(), "two from one address");
        let third = take(2);
        assert!(third.is_some() && take(3).is_none(), "three in all");
        drop(first);
        let fourth = take(1);
        assert!(fourth.is_some());
        drop((second, third, fourth));
        let left = lock(&count);
        assert_eq!((left.all, left.by_address.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_cut_off() {
        use tokio::io::AsyncWriteExt;
        use tokio::time::{Instant, timeout};
        let door = Arc::new(Door {
            limits: Limits { handshake: Duration::from_secs(3), ..Limits::default() },
            identity: None,
            traffic: Arc::default(),
            count: Arc::default(),
            throttle: Throttle::default(),
            metrics: Metrics::new(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for (has_joined, seconds) in [(false, 3), (true, 10)] {
            let there = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (tcp, address) = listener.accept().await.unwrap();
            let place = Place::take(&door.count, address.ip(), &door.limits).unwrap();
            let (_stop, stopped) = watch::channel(false);
            let (mut connection, link) = door.pass(tcp, address, place, stopped).await.ok().unwrap();
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
        assert_eq!(lock(&door.count).all, 0);
    }

    #[test]
    fn descriptors_are_as_many_as_can_be_had() {
        let after = raise_descriptor_limit();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        assert_eq!((after, limit.current), (limit.maximum, limit.maximum));
    }
}
