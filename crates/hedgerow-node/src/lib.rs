//! The command line of a node, shared by `hedgerow-node` and `hedgerow join`, and [`Exit`], the
//! exit codes of both programs.

mod exit;
mod wipe;

use std::io::{Write, stdout};
use std::path::PathBuf;

use hedgerow_config::Layer;
use hedgerow_config::flags::{Flag, FlagSet, SettingFlags, Takes};
use hedgerow_net::agent::config::{Settings, SettingsError};
use hedgerow_net::agent::driver::AgentError;
use hedgerow_net::agent::enrolment::{self, EnrolError};
use hedgerow_net::agent::{self, NodeError};
use hedgerow_net::file::FileError;
use hedgerow_net::pki::token::{BadToken, Token};
use tokio::signal;

pub use exit::{EXIT_CODES, Exit};
pub use wipe::{WipeArguments, WipeError, wipe};

/// Join a federation: learn from samples as they come, and predict.
///
/// Samples are JSON objects or CSV rows, from standard input, a file that grows, or POST /learn.
/// Predictions go to standard output as JSON, one per line. While the server can't be reached, the
/// node learns and predicts on its own, and catches up later.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Settings in TOML; see `hedgerow config join`
    #[arg(value_name = "CONFIG.toml")]
    config: Option<PathBuf>,
    /// Get the node's certificate from the server with a token of `hedgerow pki token`, or with the
    /// one in a file (@FILE), unless the node has one. The token names the server, too
    #[arg(long, value_name = "TOKEN")]
    enroll: Option<String>,
    /// Make a key and a request for a certificate of the name in --name, for `hedgerow pki sign`;
    /// then end
    #[arg(long, value_name = "FILE", conflicts_with_all = ["enroll", "certificate"])]
    request: Option<PathBuf>,
    /// Take the certificate that `hedgerow pki sign` made; then end
    #[arg(long, value_name = "FILE", conflicts_with = "enroll")]
    certificate: Option<PathBuf>,
    #[command(flatten)]
    flags: SettingFlags<NodeFlags>,
}

#[derive(Debug, Clone)]
struct NodeFlags;

impl FlagSet for NodeFlags {
    const GROUPS: &'static [&'static [Flag]] = &[&[
        Flag::new("server", "server.address", Takes::Text("HOST:PORT"), "Address of the server"),
        Flag::new(
            "identity",
            "server.identity",
            Takes::Text("NODE.pem"),
            "The node's key and certificate, in the file that --enroll or `hedgerow pki issue` made",
        ),
        Flag {
            requires: Some("name"),
            ..Flag::new(
                "plain-text",
                "server.plain_text",
                Takes::Nothing(true),
                "Connect without TLS; on loopback addresses only",
            )
        },
        Flag::new(
            "name",
            "server.node",
            Takes::Text("NAME"),
            "The node's name, if it has no certificate",
        ),
        Flag {
            also: Some(("samples.source", "follow")),
            conflicts_with: Some("no-samples"),
            ..Flag::new(
                "follow",
                "samples.path",
                Takes::Text("FILE"),
                "Read samples from a file that grows instead of standard input",
            )
        },
        Flag::new(
            "no-samples",
            "samples.source",
            Takes::NothingFor("none"),
            "Read no samples; they come over HTTP",
        ),
        Flag::new(
            "format",
            "samples.format",
            Takes::OneOf(&["auto", "json", "csv"]),
            "Format of the lines with samples",
        ),
        Flag::new(
            "pace",
            "samples.pace",
            Takes::OneOf(&["auto", "free", "round"]),
            "Take samples as they come (free), or one for each round (round); auto is round if \
             standard input is a file",
        ),
        Flag::new(
            "http",
            "http.address",
            Takes::Text("IP:PORT"),
            "Answer POST /predict and POST /learn at this address",
        ),
        Flag::new("state", "state.path", Takes::Text("FILE"), "File for the node's state"),
        Flag::new("quiet", "samples.quiet", Takes::Nothing(true), "Write no predictions"),
        Flag::new(
            "once",
            "server.once",
            Takes::Nothing(true),
            "Give up when the connection fails or ends",
        ),
        Flag::new(
            "log",
            "log.level",
            Takes::OneOf(&["error", "warn", "info", "debug", "trace"]),
            "Least severe messages to write to standard error",
        ),
        Flag::new("log-json", "log.format", Takes::NothingFor("json"), "Log as JSON"),
    ]];
    const SET: &'static str = "Any other setting, such as samples.others=ignore; may be repeated";
}

/// A node that can't run, or ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Settings, the server or the state.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The node gets no certificate.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// It is no token.
    #[error("--enroll: {0}")]
    Token(#[from] BadToken),
    /// The file with the token can't be read.
    #[error("can't read {}: {source}", file.display())]
    TokenFile {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The system refuses signals or threads.
    #[error("the system won't let a node run: {0}")]
    System(#[from] std::io::Error),
}

impl JoinError {
    /// The exit code for it.
    pub fn exit(&self) -> Exit {
        match self {
            Self::System(_) => Exit::Failure,
            Self::Token(_) | Self::TokenFile { .. } => Exit::Usage,
            Self::Enrol(error) => match error {
                EnrolError::Settings(SettingsError::Config(_)) => Exit::Usage,
                EnrolError::Connect(_) | EnrolError::Refused(_) => Exit::Network,
                EnrolError::Name(_) | EnrolError::OtherNode { .. } => Exit::Usage,
                EnrolError::File(FileError::Unwritable { .. }) | EnrolError::Enrolled(_) => {
                    Exit::Output
                }
                _ => Exit::Data,
            },
            Self::Node(NodeError::Settings(SettingsError::Config(_))) => Exit::Usage,
            Self::Node(NodeError::Settings(_)) => Exit::Data,
            Self::Node(NodeError::Listen { .. }) => Exit::Network,
            Self::Node(NodeError::Agent(error)) => match error {
                AgentError::State(_) | AgentError::NothingOfUse { .. } => Exit::Data,
                AgentError::Unsaved(_) => Exit::Output,
                AgentError::ConnectError(_) => Exit::Network,
            },
        }
    }
}

impl Arguments {
    /// Settings. What a token says of the server is overridden by everything else.
    fn settings(&self, token: Option<&Token>) -> Result<Settings, SettingsError> {
        let mut layers = self.flags.layers(self.config.as_deref())?;
        if let Some(token) = token.filter(|token| !token.server.is_empty()) {
            layers.insert(0, Layer::value("--enroll", "server.address", token.server.as_str()));
        }
        Ok(Settings::read(&layers)?)
    }

    fn token(&self) -> Result<Option<Token>, JoinError> {
        let Some(text) = &self.enroll else { return Ok(None) };
        let Some(file) = text.strip_prefix('@').map(PathBuf::from) else {
            return Ok(Some(text.parse()?));
        };
        match std::fs::read_to_string(&file) {
            Ok(text) => Ok(Some(text.parse()?)),
            Err(source) => Err(JoinError::TokenFile { file, source }),
        }
    }
}

/// Runs a node until SIGTERM or Ctrl-C, or until it has nothing more to do.
pub fn join(arguments: &Arguments) -> Result<(), JoinError> {
    let token = arguments.token()?;
    let settings = arguments.settings(token.as_ref()).map_err(NodeError::from)?;
    // Fails if the process logs already: then its settings stay.
    let _log = settings.log.start();
    let identity = &settings.server.identity;
    if let Some(file) = &arguments.request {
        enrolment::write_request(identity, &settings.server.node, file)?;
        let (file, name) = (file.display(), identity.display());
        let next = format!("hedgerow pki sign {file}");
        writeln!(stdout(), "{file}: a request; its key waits beside {name}. Next: {next}")?;
        return Ok(());
    }
    if let Some(file) = &arguments.certificate {
        let name = enrolment::accept(identity, file)?;
        writeln!(stdout(), "{}: all that node {name} needs", identity.display())?;
        return Ok(());
    }
    // One thread is enough for one node.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let mut shutdown = Box::pin(shutdown_signal()?);
        if let Some(token) = &token {
            tokio::select! {
                enrolled = enrolment::enroll_patiently(&settings, token) => enrolled?,
                () = &mut shutdown => return Ok(()),
            }
        }
        Ok(agent::run(settings, shutdown).await?)
    });
    // Doesn't wait for a host name that is still being looked up.
    runtime.shutdown_background();
    outcome
}

/// Ends with the first signal that ends a program.
fn shutdown_signal() -> std::io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    hedgerow_net::file::survive_size_limit()?;
    #[cfg(unix)]
    let mut terminate = signal::unix::signal(signal::unix::SignalKind::terminate())?;
    Ok(async move {
        #[cfg(unix)]
        tokio::select! {
            _ = terminate.recv() => {}
            _ = signal::ctrl_c() => {}
        }
        #[cfg(not(unix))]
        {
            _ = signal::ctrl_c().await;
        }
    })
}
