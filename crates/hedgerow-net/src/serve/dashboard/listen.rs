//! Connections of the dashboard: bounded in number and in how long they may take to ask.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// At most so many connections; others wait until one ends.
const MOST_CONNECTIONS: usize = 256;
/// A request has to be there after so long, the next one of a connection too.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest head of a request.
const MOST_HEAD: usize = 16 << 10;

/// Serves `routes` until `stop`, then ends all connections at once: events would go on for ever.
pub async fn serve(listener: TcpListener, routes: Router, stop: impl Future<Output = ()>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(MOST_HEAD);
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let place_and_stream = async {
            let slot = places.clone().acquire_owned().await;
            (slot, listener.accept().await)
        };
        tokio::select! {
            () = &mut stop => return,
            Some(_) = connections.join_next() => (),
            (slot, accepted) = place_and_stream => match accepted {
                Ok((stream, _)) => {
                    let connection =
                        http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes.clone()));
                    connections.spawn(async move {
                        // What goes wrong on one connection is its peer's concern.
                        let _ = connection.await;
                        drop(slot);
                    });
                }
                // No more files, most likely: some may be closed soon.
                Err(error) => {
                    tracing::warn!(%error, "the dashboard can't accept a connection");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            },
        }
    }
}
