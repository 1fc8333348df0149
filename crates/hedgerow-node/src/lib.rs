//! Flags of a node, and what runs it: shared by `hedgerow-node` and `hedgerow join`.

use std::path::PathBuf;

use clap::ValueEnum;
use hedgerow_net::agent::config::{Settings, SettingsError};
use hedgerow_net::agent::driver::AgentError;
use hedgerow_net::agent::{self, NodeError};
use tokio::signal;
use toml::Value;

/// Exit codes of a node, as `--help` shows them; they are those of `hedgerow`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  all went well
  1  something unforeseen
  2  flags, TOML or values that make no sense
  3  samples, a certificate or a state that can't be used
  4  a state that can't be written
  6  the server, with --once, or an address that can't be listened on";

/// Join a federation: learn from samples as they come, and predict.
///
/// Samples are JSON objects or CSV rows, from standard input, a file that grows, or POST /learn.
/// Predictions go to standard output as JSON, a line each. While the server is away, the node goes
/// on and catches up.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Settings in TOML; see `hedgerow config join`
    config: Option<PathBuf>,
    /// Where the server listens
    #[arg(long, value_name = "HOST:PORT")]
    server: Option<String>,
    /// The node's file, as `hedgerow pki issue` made it
    #[arg(long, value_name = "NODE.pem")]
    identity: Option<PathBuf>,
    /// Speak without TLS; on loopback only
    #[arg(long, requires = "name")]
    plain_text: bool,
    /// The node's name, where it has no certificate that says it
    #[arg(long)]
    name: Option<String>,
    /// Read a file that grows instead of standard input
    #[arg(long, value_name = "FILE", conflicts_with = "no_samples")]
    follow: Option<PathBuf>,
    /// Read no samples; they come over HTTP
    #[arg(long)]
    no_samples: bool,
    /// How lines are written
    #[arg(long)]
    format: Option<Format>,
    /// Take samples as they come (free), in step with the rounds (round), or as they are: round
    /// from a file on standard input (auto)
    #[arg(long)]
    pace: Option<Pace>,
    /// Listen for questions on this address
    #[arg(long, value_name = "IP:PORT")]
    http: Option<String>,
    /// Where the node's state is kept
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Write no predictions
    #[arg(long)]
    quiet: bool,
    /// Give up when the connection fails or ends
    #[arg(long)]
    once: bool,
    /// How much to tell on standard error
    #[arg(long, value_name = "LEVEL")]
    log: Option<Level>,
    /// Tell it in JSON
    #[arg(long)]
    log_json: bool,
    /// Change any setting, such as samples.others=ignore; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Auto,
    Json,
    Csv,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Pace {
    Auto,
    Free,
    Round,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Why a node can't run, or ended.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Settings, the server, the state.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The system.
    #[error("the system won't let a node run: {0}")]
    System(#[from] std::io::Error),
}

impl JoinError {
    /// The exit code for it.
    pub fn code(&self) -> u8 {
        match self {
            Self::System(_) => 1,
            Self::Node(NodeError::Settings(
                SettingsError::Identity(_) | SettingsError::NoIdentity(_),
            )) => 3,
            Self::Node(NodeError::Settings(_)) => 2,
            Self::Node(NodeError::Listen { .. }) => 6,
            Self::Node(NodeError::Agent(
                AgentError::State(_) | AgentError::NothingOfUse { .. },
            )) => 3,
            Self::Node(NodeError::Agent(AgentError::Unsaved(_))) => 4,
            Self::Node(NodeError::Agent(AgentError::ConnectError(_))) => 6,
        }
    }
}

impl Arguments {
    /// Defaults, the file, and these flags.
    pub fn settings(&self) -> Result<Settings, SettingsError> {
        let mut changes = self.changes.clone();
        let mut change = |key: &str, value: Value| changes.push(format!("{key}={value}"));
        let text = |text: &str| Value::String(text.to_owned());
        // A path that isn't text would be another path as text: it is shown as it can't be read.
        let path = |path: &PathBuf| Value::String(path.to_string_lossy().into_owned());
        if let Some(address) = &self.server {
            change("server.address", text(address));
        }
        if let Some(file) = &self.identity {
            change("server.identity", path(file));
        }
        if self.plain_text {
            change("server.plain_text", true.into());
        }
        if let Some(name) = &self.name {
            change("server.node", text(name));
        }
        if let Some(file) = &self.follow {
            change("samples.source", text("follow"));
            change("samples.path", path(file));
        }
        if self.no_samples {
            change("samples.source", text("none"));
        }
        if let Some(format) = self.format.and_then(|format| format.to_possible_value()) {
            change("samples.format", text(format.get_name()));
        }
        if let Some(pace) = self.pace.and_then(|pace| pace.to_possible_value()) {
            change("samples.pace", text(pace.get_name()));
        }
        if let Some(address) = &self.http {
            change("http.address", text(address));
        }
        if let Some(file) = &self.state {
            change("state.path", path(file));
        }
        if self.quiet {
            change("samples.quiet", true.into());
        }
        if self.once {
            change("server.once", true.into());
        }
        if let Some(level) = self.log.and_then(|level| level.to_possible_value()) {
            change("log.level", text(level.get_name()));
        }
        if self.log_json {
            change("log.format", text("json"));
        }
        Settings::read(self.config.as_deref(), &changes)
    }
}

/// Runs a node until it is told to end, by SIGTERM or Ctrl-C, or has nothing more to do.
pub fn join(arguments: &Arguments) -> Result<(), JoinError> {
    let settings = arguments.settings().map_err(NodeError::from)?;
    // Whoever has begun to log before goes on.
    _ = settings.log.start();
    // One thread is enough for one node.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let shutdown = told_to_end()?;
        Ok(agent::run(settings, shutdown).await?)
    });
    // A name that is still being looked up is not waited for.
    runtime.shutdown_background();
    outcome
}

/// Comes with the first of the signals that end a program.
fn told_to_end() -> std::io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    let mut terminate = signal::unix::signal(signal::unix::SignalKind::terminate())?;
    Ok(async move {
        #[cfg(unix)]
        tokio::select! {
            _ = terminate.recv() => {}
            // Were it not to be had, the other one would still do.
            _ = signal::ctrl_c() => {}
        }
        #[cfg(not(unix))]
        {
            _ = signal::ctrl_c().await;
        }
    })
}
