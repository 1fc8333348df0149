//! `hedgerow serve`: a server that nodes join.

use std::path::PathBuf;

use hedgerow_net::serve::{ServeSettings, Server};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::simulate::print;

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
    /// Where nodes connect to; port 0 is any
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Where the dashboard is; never for none
    #[arg(long, value_name = "ADDRESS")]
    dashboard: Option<String>,
    /// File that the run is kept in
    #[arg(long, value_name = "FILE")]
    store: Option<String>,
    /// Folder with the server's certificate, as `hedgerow pki init` makes it
    #[arg(long, value_name = "DIR")]
    pki: Option<String>,
    /// No TLS, on loopback addresses only: everybody is believed to be who he says
    #[arg(long, conflicts_with = "pki")]
    plain_text: bool,
    /// Log as JSON
    #[arg(long)]
    log_json: bool,
    /// Any other setting, such as rounds.quorum=80%; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
    /// Print the addresses as a line of JSON, once nodes can connect
    #[arg(long)]
    json: bool,
    /// Print nothing but the log
    #[arg(long, short)]
    quiet: bool,
}

const HELP: &str = "\
Example, after `hedgerow pki init`:
  hedgerow serve --set 'learning.columns=[\"temperature\", \"pressure\"]' --set learning.target=power";

pub(crate) fn serve(arguments: &Arguments) -> anyhow::Result<()> {
    let settings = ServeSettings::read(arguments.file.as_deref(), &arguments.changes())?;
    settings.log.start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(settings, arguments))
}

async fn run(settings: ServeSettings, arguments: &Arguments) -> anyhow::Result<()> {
    // From here on they no longer end the process by themselves.
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
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
        // Whoever asks twice doesn't want to wait.
        _ = interrupt.recv() => std::process::exit(130),
    }
}

impl Arguments {
    /// What the flags say, each as a change of a setting; `--set` goes before them.
    fn changes(&self) -> Vec<String> {
        let text = |key: &str, value: &Option<String>| {
            // A value in quotes is taken as it is.
            value.as_ref().map(|value| format!("{key}={}", toml::Value::String(value.clone())))
        };
        let flags = [
            text("listen.address", &self.listen),
            text("listen.dashboard", &self.dashboard),
            text("listen.identity", &self.pki),
            text("store.path", &self.store),
            self.plain_text.then(|| "listen.tls=false".to_owned()),
            self.log_json.then(|| "log.format=json".to_owned()),
        ];
        flags.into_iter().flatten().chain(self.changes.iter().cloned()).collect()
    }
}
