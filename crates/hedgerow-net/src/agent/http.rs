//! A node's HTTP endpoint. Requests go to the agent in order, and its answers back. Too many
//! requests at once are refused.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{MethodRouter, get, post};
use hyper::server::conn::http1;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::config::Http;
use super::sample::Sample;
use crate::http::Hosts;

/// How long a request may take to arrive, head and body each.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// What is asked.
#[derive(Debug)]
pub enum Question {
    /// Predictions from the samples in this body.
    Predict(Bytes),
    /// To learn from them.
    Learn(Bytes),
    /// A sample that was read already, by a program that contains the node.
    Sample(Sample),
    /// The node's state and counters.
    Status,
    /// What is learned, as JSON in a text.
    Plan,
    /// Whether predictions can be made.
    Ready,
    /// Whether the process runs.
    Health,
}

/// A question, and where the answer goes.
#[derive(Debug)]
pub struct Asked {
    /// What is asked.
    pub question: Question,
    /// The receiver of the answer, if it still waits.
    pub reply: oneshot::Sender<Reply>,
}

/// An answer.
#[derive(Debug, PartialEq)]
pub struct Reply {
    /// The status of HTTP.
    pub status: StatusCode,
    /// The content, as JSON.
    pub body: Value,
}

impl Reply {
    /// An answer with content.
    pub fn ok(body: Value) -> Self {
        Self { status: StatusCode::OK, body }
    }

    /// An answer that says what is wrong.
    pub fn error(status: StatusCode, message: impl ToString) -> Self {
        Self { status, body: json!({ "error": message.to_string() }) }
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let is_busy =
            matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let mut response = (self.status, Json(self.body)).into_response();
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if is_busy {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// All routes, and the questions that they receive.
pub fn router(settings: &Http) -> (Router, mpsc::Receiver<Asked>) {
    let (asked, questions) = mpsc::channel(settings.queue);
    let hosts = Arc::new(Hosts::new(settings.names.iter().cloned()));
    let router = Router::new()
        .route("/predict", samples(Question::Predict))
        .route("/learn", samples(Question::Learn))
        .route("/status", state(|| Question::Status))
        .route("/readyz", state(|| Question::Ready))
        .route("/healthz", state(|| Question::Health))
        .method_not_allowed_fallback(async || {
            Reply::error(
                StatusCode::METHOD_NOT_ALLOWED,
                "predict and learn take POST, the others GET",
            )
        })
        .fallback(async || {
            let known =
                "there are POST /predict, POST /learn, GET /status, GET /healthz and GET /readyz";
            Reply::error(StatusCode::NOT_FOUND, known)
        })
        .layer(DefaultBodyLimit::max(settings.most_bytes))
        .layer(middleware::from_fn_with_state(hosts, guard))
        .with_state(asked);
    (router, questions)
}

/// Serves the routes until the future is dropped, which ends all connections.
pub async fn serve(listener: TcpListener, router: Router, connections: usize) {
    let http = http1::Builder::new();
    crate::http::serve(listener, router, connections, ARRIVAL_TIMEOUT, http).await;
}

type Asker = mpsc::Sender<Asked>;

/// Refuses requests for other names: a page of another site could let its name point here.
async fn guard(State(hosts): State<Arc<Hosts>>, request: Request, next: Next) -> Response {
    match hosts.check(&request) {
        Ok(()) => next.run(request).await,
        Err(misdirected) => {
            Reply::error(StatusCode::MISDIRECTED_REQUEST, misdirected).into_response()
        }
    }
}

/// A route that takes samples.
fn samples(question: fn(Bytes) -> Question) -> MethodRouter<Asker> {
    post(async move |State(asked): State<Asker>, request: Request| match body(request).await {
        Ok(body) => ask(&asked, question(body)).await,
        Err(refused) => refused,
    })
}

/// A route that shows how the node is doing.
fn state(question: fn() -> Question) -> MethodRouter<Asker> {
    get(async move |State(asked): State<Asker>| ask(&asked, question()).await)
}

async fn body(request: Request) -> Result<Bytes, Reply> {
    // Browsers send JSON to another site only if that site allows it, and this one doesn't.
    if !is_json(request.headers()) {
        let needed = "the content type must be application/json";
        return Err(Reply::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, needed));
    }
    match timeout(ARRIVAL_TIMEOUT, Bytes::from_request(request, &())).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(rejection)) => {
            Err(Reply::error(BytesRejection::status(&rejection), rejection.body_text()))
        }
        Err(_) => {
            Err(Reply::error(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time"))
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let (kind, _) = kind.split_once(';').unwrap_or((kind, ""));
    kind.trim().eq_ignore_ascii_case("application/json")
}

async fn ask(asked: &Asker, question: Question) -> Reply {
    let (reply, answer) = oneshot::channel();
    match asked.try_send(Asked { question, reply }) {
        Ok(()) => answer.await.unwrap_or_else(|_| {
            Reply::error(StatusCode::SERVICE_UNAVAILABLE, "the node is ending")
        }),
        Err(mpsc::error::TrySendError::Full(_)) => {
            Reply::error(StatusCode::TOO_MANY_REQUESTS, "too many requests are waiting")
        }
        Err(mpsc::error::TrySendError::Closed(_)) => {
            Reply::error(StatusCode::SERVICE_UNAVAILABLE, "the node is ending")
        }
    }
}
