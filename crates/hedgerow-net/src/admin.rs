//! What operators do with a running server: over a Unix socket beside the store, over the port of
//! the nodes with an operator's certificate, or on the dashboard.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper::server::conn::http1;

use crate::file::{real_path, with_suffix};
use crate::operations::{Action, ActionError, Actor, Outcome, Via};
use crate::serve::hub::Hub;
use crate::serve::status::Source;

pub mod client;
pub mod router;
#[cfg(unix)]
pub mod socket;
pub mod token;

/// The file of this kind beside a store.
fn beside(store: &Path, kind: &str) -> PathBuf {
    with_suffix(&real_path(store), &format!(".{kind}"))
}

/// Who runs this process, for commands on the server's files.
pub fn this_user() -> Actor {
    #[cfg(unix)]
    let name = socket::user_name(rustix::process::geteuid().as_raw());
    #[cfg(not(unix))]
    let name = "user".to_owned();
    Actor { name, via: Via::Command }
}

/// At most so many connections to the socket; others wait.
const MAX_CONNECTIONS: usize = 8;

/// Most bytes of a request's head.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// How long a request's head may take to arrive, also that of the next one of a connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves the socket until the future is dropped.
#[cfg(unix)]
pub async fn serve(socket: socket::Socket, desk: Arc<dyn Operates>) {
    let mut http = http1::Builder::new();
    http.max_buf_size(MAX_HEAD_BYTES);
    crate::http::serve(socket, router::local(desk), MAX_CONNECTIONS, HEAD_TIMEOUT, http).await;
}

/// Does what operators ask for.
pub trait Operates: Source {
    /// Does it, or leaves everything as it was.
    fn operate(
        self: Arc<Self>,
        actor: Actor,
        action: Action,
    ) -> BoxFuture<'static, Result<Outcome, ActionError>>;
}

impl Operates for Hub {
    fn operate(
        self: Arc<Self>,
        actor: Actor,
        action: Action,
    ) -> BoxFuture<'static, Result<Outcome, ActionError>> {
        Box::pin(async move { Self::operate(&self, actor, action).await })
    }
}
