//! HTTP/1 endpoints: which names they answer to ([`Hosts`]), and connections in bounded number.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

mod hosts;

pub use hosts::{Hosts, Misdirected};

/// How long to wait when the system has no resources for another connection.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Serves at most so many connections at once; others wait. The head of a request must arrive
/// within `head_timeout`. If the future is dropped, all connections end.
pub async fn serve(
    listener: TcpListener,
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
                Ok((stream, _)) => {
                    let service = TowerToHyperService::new(routes.clone());
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
