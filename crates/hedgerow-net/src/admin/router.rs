//! What carries actions of operators: one route, `POST /v1/operate`, with an [`Action`] as JSON.
//! The answer is an [`Outcome`](crate::operations::Outcome) or an [`ActionError`].

use std::path::Component;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};

use super::Operates;
#[cfg(unix)]
use super::socket::LocalPeer;
use crate::http::json;
use crate::operations::{Action, ActionError, Actor, Via};
use crate::pki::identity::Role;
use crate::serve::listener::PeerConnection;

/// Where actions are sent to.
pub const PATH: &str = "/v1/operate";

/// Most bytes of an action.
const MAX_ACTION_BYTES: usize = 64 << 10;

type Desk = State<Arc<dyn Operates>>;

/// For the socket beside the store.
#[cfg(unix)]
pub fn local(desk: Arc<dyn Operates>) -> Router {
    let operate = async |State(desk): Desk, Extension(peer): Extension<LocalPeer>, request| {
        perform(desk, peer.actor(), request).await
    };
    routes(Router::new().route(PATH, post(operate)), desk)
}

/// For connections with an operator's certificate.
pub fn remote(desk: Arc<dyn Operates>) -> Router {
    let operate =
        async |State(desk): Desk, Extension(link): Extension<Arc<PeerConnection>>, request| {
            match &link.peer {
                // The list may have changed since the handshake.
                Some(_) if link.is_revoked() => {
                    forbidden("this operator's certificate has been revoked")
                }
                Some(peer) if peer.role == Role::Operator => {
                    let actor = Actor { name: peer.name.clone(), via: Via::Certificate };
                    perform(desk, actor, request).await
                }
                _ => forbidden("only operators may do this"),
            }
        };
    routes(Router::new().route(PATH, post(operate)), desk)
}

fn routes(router: Router<Arc<dyn Operates>>, desk: Arc<dyn Operates>) -> Router {
    let nothing =
        async || json::error(StatusCode::NOT_FOUND, "not-found", format!("there is POST {PATH}"));
    router.fallback(nothing).with_state(desk)
}

fn forbidden(message: &str) -> Response {
    json::error(StatusCode::FORBIDDEN, "forbidden", message)
}

/// Does what a request asks for.
pub(crate) async fn perform(desk: Arc<dyn Operates>, actor: Actor, request: Request) -> Response {
    let action: Action = match json::read(request, MAX_ACTION_BYTES).await {
        Ok(action) => action,
        Err(answer) => return answer,
    };
    if let Action::Backup { path } = &action
        && actor.via != Via::Socket
        && !is_name(path)
    {
        let message =
            "from elsewhere, a backup is a new file beside the store: give a name without folders";
        return json::error(StatusCode::UNPROCESSABLE_ENTITY, "bad-path", message);
    }
    match desk.operate(actor, action).await {
        Ok(outcome) => Json(outcome).into_response(),
        Err(error) => (status(&error), Json(error)).into_response(),
    }
}

/// Whether a path has no folder.
fn is_name(path: &std::path::Path) -> bool {
    let mut parts = path.components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
}

fn status(error: &ActionError) -> StatusCode {
    match error {
        ActionError::GoingDown => StatusCode::SERVICE_UNAVAILABLE,
        error if error.is_failure() => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_folders() {
        for (path, expected) in [
            ("a.db", true),
            ("", false),
            (".", false),
            ("..", false),
            ("../a.db", false),
            ("/a.db", false),
            ("a/b.db", false),
            ("a.db/..", false),
        ] {
            assert_eq!(is_name(path.as_ref()), expected, "{path:?}");
        }
    }
}
