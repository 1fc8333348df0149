//! The node process: it reads samples, drives the core's node, answers HTTP requests, saves its
//! state, and stays connected to the server.

mod answers;
mod backoff;
pub mod client;
pub mod config;
mod dialogue;
pub mod driver;
pub mod enrolment;
pub mod follow;
pub mod http;
pub mod input;
pub mod lines;
mod local;
mod object;
pub mod output;
mod renewal;
pub mod rows;
pub mod sample;
mod saving;
pub mod state;

use std::future::Future;
use std::net::SocketAddr;

use tokio::net::TcpListener;
use tracing::info;

use config::{Settings, SettingsError, Source};
use driver::{AgentError, Parts};
use input::Input;
use output::Output;

use crate::plan_json::OtherMethods;

/// Why a node can't run, or ended.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The settings are wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The HTTP endpoint can't listen.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The running agent failed.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// Runs a node until it is told to end or has nothing more to do.
pub async fn run(settings: Settings, shutdown: impl Future<Output = ()>) -> Result<(), NodeError> {
    run_with_methods(settings, &[], shutdown).await
}

/// The same, where the server may also ask for one of `others`.
pub async fn run_with_methods(
    settings: Settings,
    others: OtherMethods<'static>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), NodeError> {
    let security = settings.security()?;
    let dial = client::tcp(&settings.server.address, settings.server.plain_text);
    let (source, path) = (settings.samples.source, settings.samples.path.clone());
    let output = if source == Source::None || settings.samples.quiet {
        Output::none()
    } else {
        Output::standard()
    };
    let mut endpoint = None;
    let mut questions = None;
    if let Some(address) = settings.http_address().map_err(SettingsError::from)? {
        let listen = |source| NodeError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        info!(address = %listener.local_addr().map_err(listen)?, "listening for questions");
        let (router, asked) = http::router(&settings.http);
        questions = Some(asked);
        endpoint = Some((listener, router, settings.http.connections));
    }
    let input = Box::new(move |reading: Option<&state::Reading>| match source {
        Source::None => Input::None,
        Source::Stdin => Input::standard(),
        Source::Follow => Input::following(&path, reading.map(|reading| &reading.bookmark)),
    });
    let parts = Parts { dial, security, input, output, asked: questions, methods: others };
    let serving =
        endpoint.map(|(listener, router, most)| tokio::spawn(http::serve(listener, router, most)));
    let outcome = driver::run(settings, parts, shutdown).await;
    if let Some(serving) = serving {
        serving.abort();
    }
    Ok(outcome?)
}
