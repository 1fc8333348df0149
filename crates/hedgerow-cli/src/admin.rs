//! `hedgerow admin`: what operators do with a server.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use hedgerow_net::admin::client::{Client, ClientError};
use hedgerow_net::admin::token::Token;
use hedgerow_net::operations::{Action, NodeFilter, NodeSort, Outcome};
use hedgerow_net::serve::status::NodeState;

use crate::terminal::{print, print_json};

mod audit;
mod restore;
mod tables;
mod target;

pub(crate) use audit::AuditError;

/// Command a running server: nodes, rounds, settings, backups, the log of what was done.
///
/// On the server's machine, as its user, a socket beside the store is used. From elsewhere, an
/// operator's certificate is needed. What is changed holds at once, without a restart, and is in
/// the audit log with the name of who did it.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    access: Access,
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
Examples:
  hedgerow admin --store server.db status
  hedgerow admin nodes --state suspect
  hedgerow admin quarantine meter-17 --reason 'new firmware'
  hedgerow admin ban meter-17 --reason 'wrong unit'
  hedgerow admin set rounds.quorum=80%
  hedgerow admin backup /backup/monday.db
  hedgerow admin restore /backup/monday.db          # while the server is stopped
  hedgerow admin rollback 2h --yes

From another machine, with an operator's certificate:
  hedgerow pki issue alice --operator
  hedgerow admin --server hedge.example.org:7443 --identity pki/operators/alice.pem status";

// What all commands have; a doc comment would be their help.
#[derive(Debug, clap::Args)]
struct Access {
    /// Store of a server on this machine [default: hedgerow.db]
    #[arg(long, global = true, value_name = "FILE")]
    store: Option<PathBuf>,
    /// Address of a server on another machine; needs --identity
    #[arg(long, global = true, value_name = "HOST:PORT")]
    server: Option<String>,
    /// An operator's file, as `hedgerow pki issue NAME --operator` makes it
    #[arg(long, global = true, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// Don't ask before what can't be undone
    #[arg(long, short, global = true)]
    yes: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show the state of the server
    Status,
    Nodes(NodesArguments),
    /// Refuse a node until `unban`; its stream ends
    Ban(NodeAndReason),
    /// Lift a ban
    Unban(OneNode),
    /// End the stream of a node once; it may join again
    Kick(OneNode),
    /// Let a node hear and predict, but contribute nothing, until `release`
    Quarantine(NodeAndReason),
    /// End a quarantine
    Release(OneNode),
    /// Keep the open round open until `resume`
    Pause,
    /// Let rounds close again
    Resume,
    /// List rounds that `rollback` can go back to
    Snapshots,
    Rollback(RollbackArguments),
    /// Drop the scale and all reports: nodes agree on a new one
    ResetScale,
    Set(SetArguments),
    Backup(BackupArguments),
    Restore(restore::Arguments),
    /// Remove a node that is not connected; if its name joins again, it is a new node
    Forget(OneNode),
    Audit(audit::Arguments),
    Token(TokenArguments),
}

#[derive(Debug, clap::Args)]
struct OneNode {
    /// Its name
    node: String,
}

#[derive(Debug, clap::Args)]
struct NodeAndReason {
    /// Its name
    node: String,
    /// Why, for the log and the node
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

/// List nodes one by one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hedgerow admin nodes --sort error --most 10
  hedgerow admin nodes --name hall-b --json")]
struct NodesArguments {
    /// Only those in this state: connected, silent, suspect, quarantined, banned, revoked, away
    #[arg(long, value_parser = tables::state)]
    state: Option<NodeState>,
    /// Only those with this text in their name
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Order: number, name, error (the largest first), seen or sample (the longest ago first),
    /// samples or refused (the most first)
    #[arg(long, value_name = "BY", default_value = "number", value_parser = tables::sort)]
    sort: NodeSort,
    /// At most so many
    #[arg(long, value_name = "N")]
    most: Option<usize>,
}

/// Set the run back to an earlier round; nodes follow.
///
/// What was learned since is lost.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hedgerow admin rollback 12000                   # a round; `snapshots` lists those that are kept
  hedgerow admin rollback 90m                     # the latest snapshot that is older than that
  hedgerow admin rollback '2026-11-18 06:00'      # UTC
  hedgerow admin rollback 2026-11-18T06:00:00+01:00")]
struct RollbackArguments {
    /// A round, a time, or how long ago
    #[arg(value_name = "ROUND|TIME")]
    to: String,
}

/// Change a setting without a restart.
///
/// It stays changed, also over restarts, until it is taken back.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hedgerow admin set rounds.quorum=80% rounds.deadline=10s
  hedgerow admin set log.level=debug
  hedgerow admin set rounds.quorum                # that of the file again")]
struct SetArguments {
    /// Keys as in `hedgerow config serve`, each with its value; without one, that of the file again
    #[arg(value_name = "KEY[=VALUE]", required = true)]
    settings: Vec<String>,
}

/// Copy the store while the server runs, and check the copy.
///
/// The server writes it, so that only its owner can read it. From another machine, FILE is a name:
/// the copy is beside the store.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  hedgerow admin backup /backup/monday.db")]
struct BackupArguments {
    /// A new file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Show the token that the dashboard asks for.
///
/// It is in the file STORE.token, which `hedgerow serve` makes at its first start. Who has it can
/// do everything that this command can.
#[derive(Debug, clap::Args)]
struct TokenArguments {
    /// Make a new one first: all sessions end
    #[arg(long)]
    new: bool,
}

/// What is asked for can't be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    #[error("--server needs --identity: an operator's file (hedgerow pki issue NAME --operator)")]
    NoIdentity,
    #[error("--identity is for a server on another machine: say which with --server HOST:PORT")]
    NoServer,
    #[error("either --store, for a server on this machine, or --server, for one elsewhere")]
    BothWays,
    #[error("{0}; say --yes if it is to be done")]
    Unconfirmed(&'static str),
    #[error("not done")]
    Declined,
    #[error("the token is in a file beside the store: use `hedgerow admin token` on that machine")]
    RemoteToken,
    #[error("a store is put back on its own machine, while its server is stopped")]
    RemoteRestore,
    #[error("{}: there is no such store: name it with --store", .0.display())]
    NoStore(PathBuf),
    #[error(
        "{0:?} is neither a round (12000), nor a time (2026-11-18 06:00), nor how long ago (90m)"
    )]
    Target(String),
}

pub(crate) fn admin(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { access, command } = arguments;
    access.check()?;
    if let Command::Token(TokenArguments { new }) = command {
        return access.token(*new);
    }
    if let Some(question) = command.question() {
        access.confirm(question)?;
    }
    if let Command::Restore(restore::Arguments { file }) = command {
        return access.restore(file);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut client = access.connect().await?;
        if let Command::Audit(arguments) = command {
            return audit::audit(&mut client, arguments, access.json).await;
        }
        for action in command.actions(access)? {
            access.tell(&client.operate(&action).await?)?;
        }
        Ok(())
    })
}

impl Access {
    fn check(&self) -> Result<(), AdminError> {
        match (&self.store, &self.server, &self.identity) {
            (Some(_), Some(_), _) => Err(AdminError::BothWays),
            (_, Some(_), None) => Err(AdminError::NoIdentity),
            (_, None, Some(_)) => Err(AdminError::NoServer),
            _ => Ok(()),
        }
    }

    fn store(&self) -> &Path {
        self.store.as_deref().unwrap_or(Path::new("hedgerow.db"))
    }

    async fn connect(&self) -> Result<Client, ClientError> {
        match (&self.server, &self.identity) {
            (Some(server), Some(identity)) => Client::remote(server, identity).await,
            _ => Client::local(self.store()).await,
        }
    }

    fn token(&self, new: bool) -> anyhow::Result<()> {
        let store = self.store();
        if self.server.is_some() {
            return Err(AdminError::RemoteToken.into());
        }
        if !store.exists() {
            return Err(AdminError::NoStore(store.to_owned()).into());
        }
        let token = if new { Token::renew(store)? } else { Token::open(store)? };
        let file = Token::path(store).display().to_string();
        if self.json {
            return print_json(&serde_json::json!({ "file": file, "token": token.reveal() }));
        }
        Ok(print(&format!("{}\n", token.reveal()))?)
    }

    fn restore(&self, copy: &Path) -> anyhow::Result<()> {
        if self.server.is_some() {
            return Err(AdminError::RemoteRestore.into());
        }
        restore::run(copy, self.store(), self.json)
    }

    /// Asks on a terminal. Scripts have to say --yes.
    fn confirm(&self, question: &'static str) -> anyhow::Result<()> {
        if self.yes {
            return Ok(());
        }
        let (input, mut errors) = (std::io::stdin(), std::io::stderr());
        if !(input.is_terminal() && errors.is_terminal()) {
            return Err(AdminError::Unconfirmed(question).into());
        }
        write!(errors, "{question}. Do it? [y/N] ")?;
        errors.flush()?;
        let mut answer = String::new();
        input.lock().read_line(&mut answer)?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(AdminError::Declined.into()),
        }
    }

    fn tell(&self, outcome: &Outcome) -> anyhow::Result<()> {
        if self.json {
            return print_json(outcome);
        }
        Ok(print(&tables::words(outcome))?)
    }
}

impl Command {
    /// What is to be confirmed.
    fn question(&self) -> Option<&'static str> {
        match self {
            Self::Rollback(_) => Some("what was learned since that round is lost"),
            Self::ResetScale => Some("the scale and all reports are dropped"),
            Self::Forget(_) => Some("the node leaves all tables, with what it has counted"),
            _ => None,
        }
    }

    /// What the server is to do.
    fn actions(&self, access: &Access) -> anyhow::Result<Vec<Action>> {
        let named = |OneNode { node }: &OneNode| node.clone();
        Ok(vec![match self {
            Self::Status => Action::Status {},
            Self::Nodes(NodesArguments { state, name, sort, most }) => {
                let filter = NodeFilter { state: *state, name: name.clone() };
                Action::Nodes { filter, sort: *sort, most: *most }
            }
            Self::Ban(NodeAndReason { node, reason }) => {
                Action::Ban { node: node.clone(), reason: reason.clone() }
            }
            Self::Unban(node) => Action::Unban { node: named(node) },
            Self::Kick(node) => Action::Kick { node: named(node) },
            Self::Quarantine(NodeAndReason { node, reason }) => {
                Action::Quarantine { node: node.clone(), reason: reason.clone() }
            }
            Self::Release(node) => Action::Release { node: named(node) },
            Self::Pause => Action::Pause {},
            Self::Resume => Action::Resume {},
            Self::Snapshots => Action::Snapshots {},
            Self::Rollback(RollbackArguments { to }) => Action::Rollback { to: target::read(to)? },
            Self::ResetScale => Action::ResetScale {},
            Self::Set(SetArguments { settings }) => {
                return Ok(settings.iter().map(|setting| set(setting)).collect());
            }
            // The server runs in a folder of its own.
            Self::Backup(BackupArguments { file }) if access.server.is_none() => {
                Action::Backup { path: std::path::absolute(file)? }
            }
            Self::Backup(BackupArguments { file }) => Action::Backup { path: file.clone() },
            Self::Forget(node) => Action::Forget { node: named(node) },
            // They are done in other ways.
            Self::Audit(_) | Self::Token(_) | Self::Restore(_) => return Ok(vec![]),
        }])
    }
}

fn set(setting: &str) -> Action {
    match setting.split_once('=') {
        Some((key, value)) => {
            Action::Set { key: key.trim().to_owned(), value: Some(value.trim().to_owned()) }
        }
        None => Action::Set { key: setting.trim().to_owned(), value: None },
    }
}
