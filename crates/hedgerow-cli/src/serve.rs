//! `hedgerow serve`: a server that nodes join.

use std::path::PathBuf;

use hedgerow_config::flags::{Flag, FlagSet, SettingFlags, Takes};
use hedgerow_net::serve::{ServeSettings, Server};
use hedgerow_node::Exit;
use serde_json::json;
#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{ctrl_c, ctrl_close};

use crate::terminal::print;

/// Run a server that nodes join and learn through.
///
/// What is learned, and how, is in a file (see `hedgerow config serve`); nodes are told when they
/// join. The run is kept in a store, so that a server that was killed goes on where it was. SIGTERM
/// and Ctrl-C end it: the open round closes if enough have answered, everything is stored, nodes
/// are told.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true, after_help = HELP)]
pub(crate) struct Arguments {
    /// Settings that differ from the defaults
    #[arg(value_name = "CONFIG.toml")]
    file: Option<PathBuf>,
    #[command(flatten)]
    flags: SettingFlags<ServeFlags>,
    /// Print the addresses as a line of JSON, once nodes can connect
    #[arg(long)]
    json: bool,
    /// Print nothing but the log
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone)]
struct ServeFlags;

impl FlagSet for ServeFlags {
    const GROUPS: &'static [&'static [Flag]] = &[&[
        Flag::new(
            "listen",
            "listen.address",
            Takes::Text("ADDRESS"),
            "Address that nodes connect to; port 0 is any free port",
        ),
        Flag::new(
            "dashboard",
            "listen.dashboard",
            Takes::Text("ADDRESS"),
            "Address of the dashboard; never for none",
        ),
        Flag::new("store", "store.path", Takes::Text("FILE"), "File that the run is stored in"),
        Flag::new(
            "pki",
            "listen.identity",
            Takes::Text("DIR"),
            "Folder with the server's certificate, as `hedgerow pki init` makes it",
        ),
        Flag {
            conflicts_with: Some("pki"),
            ..Flag::new(
                "plain-text",
                "listen.tls",
                Takes::Nothing(false),
                "No TLS, on loopback addresses only: every node is believed to be who it says",
            )
        },
        Flag::new("log-json", "log.format", Takes::NothingFor("json"), "Log as JSON"),
    ]];
    const SET: &'static str = "Any other setting, such as rounds.quorum=80%; may be repeated";
}

const HELP: &str = "\
Example, after `hedgerow pki init`:
  hedgerow serve --set 'learning.columns=[\"temperature\", \"pressure\"]' --set learning.target=power";

pub(crate) fn serve(arguments: &Arguments) -> anyhow::Result<()> {
    let settings = ServeSettings::read(&arguments.flags.layers(arguments.file.as_deref())?)?;
    let _log = settings.log.start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(settings, arguments))
}

async fn run(settings: ServeSettings, arguments: &Arguments) -> anyhow::Result<()> {
    #[cfg(unix)]
    hedgerow_net::file::survive_size_limit()?;
    // From here on they no longer end the process by themselves.
    #[cfg(unix)]
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    #[cfg(windows)]
    let (mut terminate, mut interrupt) = (ctrl_close()?, ctrl_c()?);
    let is_plain = settings.identity.is_none();
    let server = Server::start(settings).await?;
    let (run, address, dashboard) = (server.run(), server.address(), server.dashboard());
    if arguments.json {
        let line =
            json!({"run": run, "address": address, "dashboard": dashboard, "tls": !is_plain});
        print(&format!("{line}\n"))?;
    } else if !arguments.quiet {
        let how = if is_plain { " (plain text)" } else { "" };
        print(&format!("Nodes join at {address}{how}\n"))?;
        if let Some(dashboard) = dashboard {
            print(&format!("Dashboard: http://{dashboard}/\n"))?;
        }
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tokio::select! {
        ended = server.stop() => ended.map(drop).map_err(anyhow::Error::from),
        // A second signal ends the process at once.
        _ = interrupt.recv() => Exit::Interrupted.now(),
    }
}
