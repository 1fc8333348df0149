//! Routes of operators: they log in and out, and have the server do something.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{RETRY_AFTER, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};

use super::login::{LoggedIn, LoginRefused, Logins};
use crate::admin::Operates;
use crate::admin::router::perform;
use crate::http::json;
use crate::operations::{Actor, Via};

/// Most bytes of a login.
const MAX_LOGIN_BYTES: usize = 4 << 10;

#[derive(Clone)]
pub(super) struct Operators {
    pub(super) desk: Arc<dyn Operates>,
    pub(super) logins: Arc<Logins>,
}

type Shared = State<Operators>;

/// What a page may do.
#[derive(Serialize)]
struct Rights {
    /// Whether it may read.
    reads: bool,
    /// What its requests need in the header `x-hedgerow-csrf` to change something; none without a
    /// login.
    csrf: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

pub(super) async fn session(
    State(Operators { logins, .. }): Shared,
    headers: HeaderMap,
) -> Response {
    let rights = Rights { reads: logins.may_read(&headers), csrf: logins.session(&headers) };
    Json(rights).into_response()
}

pub(super) async fn log_in(
    State(Operators { logins, .. }): Shared,
    Extension(from): Extension<SocketAddr>,
    request: Request,
) -> Response {
    let headers = request.headers().clone();
    let token = match json::read(request, MAX_LOGIN_BYTES).await {
        Ok(Login { token }) => token,
        Err(answer) => return answer,
    };
    match logins.log_in(token.trim(), from.ip(), &headers) {
        Ok(LoggedIn { cookie, csrf }) => {
            tracing::info!(address = %from, "an operator has logged in at the dashboard");
            ([(SET_COOKIE, cookie)], Json(Rights { reads: true, csrf: Some(csrf) })).into_response()
        }
        Err(refused) => {
            tracing::warn!(address = %from, %refused, "a login at the dashboard was refused");
            refusal(&refused)
        }
    }
}

fn refusal(refused: &LoginRefused) -> Response {
    match refused {
        LoginRefused::WrongToken => json::error(StatusCode::UNAUTHORIZED, "wrong-token", refused),
        LoginRefused::TooMany(seconds) => {
            let answer = json::error(StatusCode::TOO_MANY_REQUESTS, "too-many", refused);
            ([(RETRY_AFTER, seconds.to_string())], answer).into_response()
        }
        LoginRefused::NoRandomness => {
            json::error(StatusCode::INTERNAL_SERVER_ERROR, "no-randomness", refused)
        }
    }
}

pub(super) async fn log_out(
    State(Operators { logins, .. }): Shared,
    headers: HeaderMap,
) -> Response {
    if !logins.may_act(&headers) {
        return not_logged_in();
    }
    let rights = |reads| Json(Rights { reads, csrf: None });
    ([(SET_COOKIE, logins.log_out(&headers))], rights(!logins.guards_reading())).into_response()
}

pub(super) async fn operate(
    State(Operators { desk, logins }): Shared,
    Extension(from): Extension<SocketAddr>,
    request: Request,
) -> Response {
    if !logins.may_act(request.headers()) {
        return not_logged_in();
    }
    let actor = Actor { name: from.ip().to_string(), via: Via::Dashboard };
    perform(desk, actor, request).await
}

fn not_logged_in() -> Response {
    let message = "log in first, and send x-hedgerow-csrf as /api/session says";
    json::error(StatusCode::FORBIDDEN, "not-logged-in", message)
}
