//! What operators do with a running server: over a Unix socket beside the store, over the port of
//! the nodes with an operator's certificate, or on the dashboard.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::operations::{Action, ActionError, Actor, Outcome};
use crate::serve::status::Source;

pub mod client;
pub mod router;
#[cfg(unix)]
pub mod socket;
pub mod token;

/// The file of this kind beside a store.
fn beside(store: &Path, kind: &str) -> PathBuf {
    let mut path = store.as_os_str().to_owned();
    path.push(".");
    path.push(kind);
    path.into()
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
