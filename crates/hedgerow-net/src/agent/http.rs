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
use axum::routing::{get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::config::Http;
use super::sample::Sample;
use crate::hosts::Hosts;

/// How long a request may take to arrive, head and body each.
const ARRIVAL: Duration = Duration::from_secs(10);

/// What is asked.
#[derive(Debug)]
pub enum Question {
    /// Predictions from the samples in this body.
    Predict(Bytes),
    /// To learn from them.
    Learn(Bytes),
    /// What a sample asks for that has been read already: by a program that has the node within
    /// itself.
    Sample(Sample),
    /// How things are.
    Status,
    /// What is learned, as JSON in a text.
    Plan,
    /// Whether predictions can be made.
    Ready,
    /// Whether anybody is there.
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
    /// As HTTP knows it.
    pub status: StatusCode,
    /// As JSON.
    pub body: Value,
}

impl Reply {
    /// All is well.
    pub fn ok(body: Value) -> Self {
        Self { status: StatusCode::OK, body }
    }

    /// Something isn't.
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

/// All routes, and the questions that come by them.
pub fn router(settings: &Http) -> (Router, mpsc::Receiver<Asked>) {
    let (asked, questions) = mpsc::channel(settings.queue);
    let hosts = Arc::new(Hosts::new(settings.names.iter().cloned()));
    let router = Router::new()
        .route("/predict", post(predict))
        .route("/learn", post(learn))
        .route(
            "/status",
            get(async |State(asked): State<Asker>| ask(&asked, Question::Status).await),
        )
        .route(
            "/readyz",
            get(async |State(asked): State<Asker>| ask(&asked, Question::Ready).await),
        )
        .route(
            "/healthz",
            get(async |State(asked): State<Asker>| ask(&asked, Question::Health).await),
        )
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

/// Answers connections, so many at once, for ever.
pub async fn serve(listener: TcpListener, router: Router, connections: usize) {
    let room = Arc::new(Semaphore::new(connections));
    loop {
        // It is never closed.
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!("a connection can't be taken: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let _permit = permit;
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(ARRIVAL)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!("a connection failed: {error}");
            }
        });
    }
}

type Asker = mpsc::Sender<Asked>;

/// A page from elsewhere that got its own name to point here is refused.
async fn guard(State(hosts): State<Arc<Hosts>>, request: Request, next: Next) -> Response {
    match hosts.check(&request) {
        Ok(()) => next.run(request).await,
        Err(misdirected) => {
            Reply::error(StatusCode::MISDIRECTED_REQUEST, misdirected).into_response()
        }
    }
}

async fn predict(State(asked): State<Asker>, request: Request) -> Reply {
    match body(request).await {
        Ok(body) => ask(&asked, Question::Predict(body)).await,
        Err(refused) => refused,
    }
}

async fn learn(State(asked): State<Asker>, request: Request) -> Reply {
    match body(request).await {
        Ok(body) => ask(&asked, Question::Learn(body)).await,
        Err(refused) => refused,
    }
}

async fn body(request: Request) -> Result<Bytes, Reply> {
    // Browsers send JSON to other places only after asking, and get no leave here.
    if !is_json(request.headers()) {
        let needed = "the content type must be application/json";
        return Err(Reply::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, needed));
    }
    match timeout(ARRIVAL, Bytes::from_request(request, &())).await {
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
