//! The operator's page, and the server's other routes over HTTP: status, history, events, metrics,
//! health, and what operators do there.
//!
//! Nothing can be changed without a login ([`Logins`]). Reading needs none by default, as long as
//! the server listens on loopback. It answers only requests for its own names ([`Hosts`]).

mod assets;
mod live;
mod login;
mod operators;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    RETRY_AFTER, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hyper::server::conn::http1;
use serde::Deserialize;
use tokio::net::TcpListener;

use crate::admin::Operates;
pub use crate::http::Hosts;
use crate::http::json;
use live::{Live, MAX_POINTS};
pub use login::Logins;

use super::metrics::{self, Metrics};

/// Own scripts, styles and pictures only, none inline, and nothing from elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Headers of every answer.
const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// How long a request may take to arrive, also the next one of a connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Most bytes of a request's head.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Serves the routes until the future is dropped, which ends all connections. At most so many
/// connections are open; others wait until one ends.
pub async fn serve(listener: TcpListener, routes: Router, connections: usize) {
    let mut http = http1::Builder::new();
    http.max_buf_size(MAX_HEAD_BYTES);
    crate::http::serve(listener, routes, connections, HEAD_TIMEOUT, http).await;
}

/// All routes, for requests that name one of `hosts`. Of so many connections at most half are
/// streams of events, so that other requests are answered.
pub fn router(
    desk: Arc<dyn Operates>,
    metrics: Metrics,
    hosts: Hosts,
    logins: Arc<Logins>,
    connections: usize,
) -> Router {
    let files = assets::FILES.into_iter().fold(Router::new(), |router, file| {
        router.route(file.path, get(async move |headers: HeaderMap| file.answer(&headers)))
    });
    let reading = Router::new()
        .route("/api/status", get(status))
        .route("/api/history", get(history))
        .route("/events", get(events))
        .route("/metrics", get(prometheus))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&logins), guard_reading));
    let operators = Router::new()
        .route("/api/session", get(operators::session))
        .route("/api/login", post(operators::log_in))
        .route("/api/logout", post(operators::log_out))
        .route("/api/operate", post(operators::operate))
        .with_state(operators::Operators { desk: Arc::clone(&desk), logins });
    files
        .merge(reading)
        .route("/healthz", get(async || "alive\n"))
        .route("/readyz", get(ready))
        .fallback(async || (StatusCode::NOT_FOUND, "there is nothing here\n"))
        .with_state(Arc::new(Live::new(desk, metrics, connections / 2)))
        .merge(operators)
        .layer(middleware::from_fn_with_state(Arc::new(hosts), guard))
}

/// Refuses requests for other hosts, and adds the headers to every answer.
async fn guard(State(hosts): State<Arc<Hosts>>, request: Request, next: Next) -> Response {
    let mut answer = match hosts.check(&request) {
        Ok(()) => next.run(request).await,
        Err(refused) => (StatusCode::MISDIRECTED_REQUEST, format!("{refused}\n")).into_response(),
    };
    let headers = answer.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // Live data is not cached; files have their own rule.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    answer
}

/// Refuses readers that have to log in and have not.
async fn guard_reading(
    State(logins): State<Arc<Logins>>,
    request: Request,
    next: Next,
) -> Response {
    if logins.may_read(request.headers()) {
        return next.run(request).await;
    }
    let message = "log in first: open / in a browser, or send the token as Authorization: Bearer";
    json::error(StatusCode::UNAUTHORIZED, "login-needed", message)
}

type Shared = State<Arc<Live>>;

async fn status(State(live): Shared) -> Response {
    match live.snapshot().await {
        Some(snapshot) => {
            ([(CONTENT_TYPE, "application/json")], snapshot.json.clone()).into_response()
        }
        None => broken(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    most: Option<usize>,
}

async fn history(State(live): Shared, wanted: Result<Query<Wanted>, QueryRejection>) -> Response {
    let most = match wanted {
        Ok(Query(Wanted { most })) => most.unwrap_or(MAX_POINTS).min(MAX_POINTS),
        Err(_) => {
            let words =
                format!("the one parameter is `most`: a number of points, at most {MAX_POINTS}\n");
            return (StatusCode::BAD_REQUEST, words).into_response();
        }
    };
    match live.history(most).await {
        Some(points) => Json(points).into_response(),
        None => broken(),
    }
}

async fn events(State(live): Shared) -> Response {
    match live.events() {
        Some(events) => events.into_response(),
        None => {
            let words = "as many pages watch as may watch at once; try again later\n";
            (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "10")], words).into_response()
        }
    }
}

async fn prometheus(State(live): Shared) -> Response {
    let kind = [(CONTENT_TYPE, metrics::CONTENT_TYPE)];
    match live.snapshot().await {
        Some(snapshot) => (kind, live.metrics().render(&snapshot.status)).into_response(),
        None => broken(),
    }
}

async fn ready(State(live): Shared) -> Response {
    match live.is_ready().await.as_deref() {
        Some(Ok(())) => "ready\n".into_response(),
        Some(Err(why)) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")).into_response()
        }
        None => broken(),
    }
}

/// The source failed to answer.
fn broken() -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, "the server can't tell how it is doing\n").into_response()
}

/// Whether the client's copy is the one tagged `tag`.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let names = |value: &HeaderValue| {
        value.to_str().is_ok_and(|value| {
            value
                .split(',')
                .any(|known| matches!(known.trim(), known if known == "*" || known == tag))
        })
    };
    headers.get_all(axum::http::header::IF_NONE_MATCH).iter().any(names)
}
