//! The node: what runs beside a sensor. An [`agent`] drives an [`Engine`]: it reads samples,
//! answers questions, and keeps in touch with the server.

mod answers;
mod backoff;
pub mod client;
pub mod config;
mod dialogue;
pub mod driver;
pub mod engine;
pub mod follow;
pub mod http;
pub mod input;
pub mod lines;
mod object;
pub mod output;
mod pending;
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
pub use engine::Engine;
use input::Input;
use output::Output;

/// Why a node can't run, or ended.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Settings that make no sense.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Its endpoint's address is taken, or not its own.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// What happened on the way.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// Runs a node until it is told to end or has nothing more to do.
pub async fn run(settings: Settings, shutdown: impl Future<Output = ()>) -> Result<(), NodeError> {
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
    let parts = Parts { dial, security, input, output, asked: questions };
    let serving =
        endpoint.map(|(listener, router, most)| tokio::spawn(http::serve(listener, router, most)));
    let outcome = driver::run(settings, parts, shutdown).await;
    if let Some(serving) = serving {
        serving.abort();
    }
    Ok(outcome?)
}
