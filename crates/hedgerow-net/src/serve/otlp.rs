//! Sends the metrics to a collector of OpenTelemetry, as OTLP over HTTP in JSON. The standard
//! environment variables say where and how often.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use axum::body::{Body, to_bytes};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{Request, StatusCode};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsConnector;

use super::hub::Hub;
use super::status::Source;

mod convert;
mod environment;

pub use environment::OtlpError;
use environment::{Endpoint, Environment};

/// Most bytes of an answer that are read.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Sends metrics again and again.
#[derive(Debug)]
pub(super) struct Exporter {
    environment: Environment,
    /// Whether the latest attempt failed.
    has_failed: bool,
}

impl Exporter {
    /// As the environment of this process asks; none if it asks for nothing.
    pub(super) fn from_environment() -> Result<Option<Self>, OtlpError> {
        let environment = Environment::read(|name| std::env::var(name).ok())?;
        Ok(environment.map(|environment| Self { environment, has_failed: false }))
    }

    /// Until the future is dropped. What a collector misses is in the next message: all are sums
    /// since this process began.
    pub(super) async fn run(mut self, hub: Arc<Hub>) {
        let began = SystemTime::now();
        let patience = self.environment.patience;
        let mut ticks = interval(self.environment.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let status = hub.status();
            let page = hub.metrics().render(&status);
            let mut resource = self.environment.resource.clone();
            resource.push(("service.instance.id".to_owned(), status.run));
            let message = convert::message(&page, &resource, (began, SystemTime::now()));
            let sent = timeout(patience, self.send(&message)).await;
            let sent = sent.unwrap_or_else(|_| Err(format!("no answer within {patience:?}")));
            let had_failed = std::mem::replace(&mut self.has_failed, sent.is_err());
            match sent {
                Ok(()) if had_failed => tracing::info!("the collector takes metrics again"),
                Ok(()) => {}
                Err(reason) if !had_failed => {
                    let endpoint = &self.environment.endpoint;
                    tracing::warn!(%endpoint, %reason, "metrics can't be sent; it is tried again");
                }
                Err(reason) => tracing::debug!(%reason, "metrics can't be sent"),
            }
        }
    }

    async fn send(&self, message: &Value) -> Result<(), String> {
        let Endpoint { host, port, .. } = &self.environment.endpoint;
        let tcp = TcpStream::connect((host.as_str(), *port)).await.map_err(told)?;
        match &self.environment.tls {
            None => self.post(tcp, message).await,
            Some(config) => {
                let name = ServerName::try_from(host.clone()).map_err(told)?;
                let connector = TlsConnector::from(Arc::clone(config));
                let tls = connector.connect(name, tcp).await.map_err(told)?;
                self.post(tls, message).await
            }
        }
    }

    async fn post(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        message: &Value,
    ) -> Result<(), String> {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(told)?;
        let connection = tokio::spawn(connection);
        let Environment { endpoint, headers, .. } = &self.environment;
        let mut request = Request::post(&endpoint.path).header(HOST, endpoint.authority());
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.header(CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(message.to_string())).map_err(told)?;
        let answer = sender.send_request(request).await.map_err(told)?;
        let status = answer.status();
        let body = to_bytes(Body::new(answer.into_body()), MAX_ANSWER_BYTES).await;
        connection.abort();
        if status == StatusCode::OK {
            return Ok(());
        }
        let body = body.unwrap_or_default();
        let words = String::from_utf8_lossy(&body);
        Err(format!("the collector answered {status}: {}", words.trim()))
    }
}

fn told(error: impl ToString) -> String {
    error.to_string()
}

/// A file of certificates can't be used.
fn unusable(file: &str, source: impl ToString) -> OtlpError {
    let source = io::Error::other(source.to_string());
    OtlpError::Certificates { file: file.to_owned(), source }
}
