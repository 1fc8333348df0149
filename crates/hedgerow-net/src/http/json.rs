//! Requests and answers in JSON, bounded in size and time.

use std::time::Duration;

use axum::Json;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::timeout;

/// How long the body of a request may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The body of a request, which has at most so many bytes; or the answer that says what is wrong.
pub(crate) async fn read<T: DeserializeOwned>(
    request: Request,
    most: usize,
) -> Result<T, Response> {
    let body = timeout(BODY_TIMEOUT, to_bytes(request.into_body(), most)).await.map_err(|_| {
        error(StatusCode::REQUEST_TIMEOUT, "timeout", format!("no body within {BODY_TIMEOUT:?}"))
    })?;
    let body = body.map_err(|_| {
        error(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            format!("a body has at most {most} bytes"),
        )
    })?;
    serde_json::from_slice(&body).map_err(|wrong| {
        error(StatusCode::BAD_REQUEST, "bad-request", format!("not the JSON expected: {wrong}"))
    })
}

/// An answer that says what is wrong: in a word that never changes, and in words for people.
pub(crate) fn error(status: StatusCode, kind: &str, message: impl ToString) -> Response {
    (status, Json(json!({ "error": kind, "message": message.to_string() }))).into_response()
}
