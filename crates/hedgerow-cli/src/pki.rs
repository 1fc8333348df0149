//! `hedgerow pki`: certificates of a federation, from nothing to an enrolled node in three
//! commands.

mod authority;
mod tokens;

use std::path::{Path, PathBuf};

use clap::builder::RangedI64ValueParser;
use hedgerow_data::text::counted;
use hedgerow_net::pki::identity::Role;
use hedgerow_net::pki::{
    AUTHORITY_DAYS, Authority, CERTIFICATE_DAYS, Issued, Issuing, Kind, MAX_DAYS,
};
use hedgerow_report::table::aligned;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::terminal::print;

/// Make an authority, and let it issue and revoke certificates of nodes.
///
/// A node that joins shows a certificate, and the server refuses nodes without a good one. All
/// certificates come from one folder, the authority. It can be on any machine; its
/// ca.key can admit any node.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
From nothing to an enrolled node, and out again:
  hedgerow pki init --name host.example --name 10.0.0.5
  hedgerow pki token boiler-3          # on the device: hedgerow-node --enroll TOKEN
  hedgerow pki revoke boiler-3         # a server that uses this folder notices by itself

A server elsewhere needs copies of pki/server.pem and pki/crl.pem, and crl.pem again after each revocation.
It can't sign: use `pki issue` or `pki sign`, or copy ca.key, ca.pem, index.jsonl and tokens.jsonl, too.";

#[derive(Debug, clap::Subcommand)]
enum Command {
    Init(InitArguments),
    Issue(IssueArguments),
    Revoke(RevokeArguments),
    /// List what was issued, until when it is good, and what was revoked.
    List(Common),
    RenewServer(RenewServerArguments),
    Token(tokens::TokenArguments),
    /// List tokens and what became of them.
    Tokens(Common),
    CancelToken(tokens::CancelArguments),
    Sign(tokens::SignArguments),
    Rotate(authority::RotateArguments),
    Passphrase(authority::PassphraseArguments),
    Audit(authority::AuditArguments),
}

// What all commands have; a doc comment would be their help.
#[derive(Debug, clap::Args)]
struct Common {
    /// Folder of the authority
    #[arg(long, value_name = "DIR", default_value = "pki")]
    folder: PathBuf,
    /// File whose first line is the passphrase of the authority's key, if that is encrypted. It can
    /// also be in the variable HEDGEROW_PKI_PASSPHRASE, or is asked for
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

/// Make an authority and a certificate for the server.
///
/// An authority that is there is never overwritten.
#[derive(Debug, clap::Args)]
#[command(after_help = INIT_HELP)]
struct InitArguments {
    /// DNS name or IP address that nodes reach the server by; may be repeated [default: localhost,
    /// 127.0.0.1 and ::1]
    #[arg(long = "name", value_name = "HOST")]
    names: Vec<String>,
    /// How long the server's certificate is good
    #[arg(long, value_name = "N", default_value_t = CERTIFICATE_DAYS, value_parser = days())]
    days: u32,
    /// How long the authority itself is good; nothing that it issues outlives it
    #[arg(long, value_name = "N", default_value_t = AUTHORITY_DAYS, value_parser = days())]
    authority_days: u32,
    /// Encrypt the authority's key with a passphrase
    #[arg(long)]
    encrypt: bool,
    #[command(flatten)]
    common: Common,
}

const INIT_HELP: &str = "\
Example:
  hedgerow pki init --folder pki --name host.example --name 10.0.0.5";

/// Issue certificates for nodes or operators: one file each, which is all that its owner needs.
///
/// A name has one owner: as long as it has a good certificate it gets no other, unless it is
/// renewed. Operators give commands to the server; nodes can't. Operators can't join as nodes.
#[derive(Debug, clap::Args)]
#[command(after_help = ISSUE_HELP)]
struct IssueArguments {
    /// Names: of a-z, 0-9, '.', '_' and '-'
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// Issue certificates for operators, into the folder `operators`
    #[arg(long, conflicts_with = "renew")]
    operator: bool,
    /// How long the certificates are good
    #[arg(long, value_name = "N", default_value_t = CERTIFICATE_DAYS, value_parser = days())]
    days: u32,
    /// Write new files for owners of one, in the same role. The old certificates stay good until
    /// they end, so that owners can change over later; revoke and issue again if one was lost
    #[arg(long)]
    renew: bool,
    #[command(flatten)]
    common: Common,
}

const ISSUE_HELP: &str = "\
Examples:
  hedgerow pki issue boiler-3
  hedgerow pki issue boiler-3 --renew --days 365
  hedgerow pki issue alice --operator
  for n in $(seq 20); do echo node-$n; done | xargs hedgerow pki issue";

/// Revoke all certificates of nodes or operators.
///
/// The list of revoked certificates (`crl.pem`) is always written again. A server on another
/// machine needs a copy of it. A node that was revoked can be enrolled again with `hedgerow pki
/// issue`.
#[derive(Debug, clap::Args)]
struct RevokeArguments {
    /// Names of the nodes or operators
    #[arg(value_name = "NAME", required = true)]
    nodes: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// Make a new key and certificate for the server, before the old one ends or under other names.
///
/// A server that uses this folder takes it into use by itself.
#[derive(Debug, clap::Args)]
struct RenewServerArguments {
    /// DNS name or IP address that nodes reach the server by; may be repeated [default: those of
    /// before]
    #[arg(long = "name", value_name = "HOST")]
    names: Vec<String>,
    /// How long the certificate is good
    #[arg(long, value_name = "N", default_value_t = CERTIFICATE_DAYS, value_parser = days())]
    days: u32,
    #[command(flatten)]
    common: Common,
}

fn days() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(MAX_DAYS))
}

pub(crate) fn pki(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::Init(arguments) => init(arguments),
        Command::Issue(arguments) => issue(arguments),
        Command::Revoke(arguments) => revoke(arguments),
        Command::List(arguments) => list(arguments),
        Command::RenewServer(arguments) => renew_server(arguments),
        Command::Token(arguments) => tokens::token(arguments),
        Command::Tokens(common) => tokens::list(common),
        Command::CancelToken(arguments) => tokens::cancel(arguments),
        Command::Sign(arguments) => tokens::sign(arguments),
        Command::Rotate(arguments) => authority::rotate(arguments),
        Command::Passphrase(arguments) => authority::passphrase(arguments),
        Command::Audit(arguments) => authority::audit(arguments),
    }
}

fn init(arguments: &InitArguments) -> anyhow::Result<()> {
    let InitArguments { names, days, authority_days, encrypt, common } = arguments;
    let passphrase = match encrypt {
        true => Some(authority::first_passphrase(common.passphrase_file.as_deref())?),
        false => None,
    };
    let authority = Authority::at(&common.folder).acting_for(&user()).with_passphrase(passphrase);
    authority.make(names, *days, *authority_days)?;
    let server = authority.list()?.remove(0);
    let folder = common.folder.display().to_string();
    common.tell(&json!({ "folder": folder, "server": server }), || {
        let flag = if common.folder == Path::new("pki") {
            String::new()
        } else {
            format!(" --folder {folder}")
        };
        format!(
            "{folder}: an authority, and a certificate for {} until {}\n\
             Keep {folder}/ca.key safe: it can admit any node.\n\
             Next: hedgerow pki token NODE{flag}\n",
            server.hosts.join(", "),
            server.not_after.date()
        )
    })
}

fn issue(arguments: &IssueArguments) -> anyhow::Result<()> {
    let IssueArguments { names, operator, days, renew, common } = arguments;
    let role = if *operator { Role::Operator } else { Role::Node };
    let issuing = if *renew { Issuing::Renewal } else { Issuing::First(role) };
    let issued = common.signing()?.issue_all(names, *days, issuing)?;
    let all: Vec<Value> = issued
        .iter()
        .map(|(file, issued)| json!({ "file": file.display().to_string(), "certificate": issued }))
        .collect();
    common.tell(&json!(all), || {
        let line = |(file, issued): &(PathBuf, Issued)| {
            format!(
                "{}: all that {} {} needs, until {}\n",
                file.display(),
                issued.role().map_or("server", Role::name),
                issued.name,
                issued.not_after.date()
            )
        };
        issued.iter().map(line).collect()
    })
}

fn revoke(arguments: &RevokeArguments) -> anyhow::Result<()> {
    let RevokeArguments { nodes, common } = arguments;
    let counts = common.signing()?.revoke_all(nodes)?;
    let revoked = || nodes.iter().zip(&counts);
    let all: Vec<Value> =
        revoked().map(|(node, count)| json!({ "node": node, "certificates": count })).collect();
    common.tell(&json!({ "folder": common.folder.display().to_string(), "revoked": all }), || {
        let line = |(node, count): (&String, &usize)| match count {
            0 => format!("{node}: had no good certificate\n"),
            1 => format!("{node}: revoked\n"),
            count => format!("{node}: revoked, {count} certificates\n"),
        };
        let list = common.folder.join("crl.pem");
        let copy = format!("a server on another machine needs a copy of {}\n", list.display());
        let is_needed = counts.iter().any(|count| *count > 0);
        revoked().map(line).chain(is_needed.then_some(copy)).collect()
    })
}

fn list(common: &Common) -> anyhow::Result<()> {
    let all = common.authority()?.list()?;
    let now = OffsetDateTime::now_utc();
    common.tell(&json!(all), || {
        let rows = all.iter().map(|issued| {
            let name = match issued.kind {
                Kind::Server => format!("server for {}", issued.hosts.join(", ")),
                Kind::Node => issued.name.clone(),
                Kind::Operator => format!("operator {}", issued.name),
            };
            [name, issued.not_after.date().to_string(), state(issued, now), issued.serial.clone()]
        });
        let heading = ["name", "until", "state", "serial"].map(str::to_owned);
        let rows: Vec<[String; 4]> = [heading].into_iter().chain(rows).collect();
        aligned(&rows, |_| true).iter().map(|line| format!("{}\n", line.trim_end())).collect()
    })
}

fn renew_server(arguments: &RenewServerArguments) -> anyhow::Result<()> {
    let RenewServerArguments { names, days, common } = arguments;
    let (file, issued) = common.signing()?.renew_server(names, *days)?;
    let file = file.display().to_string();
    common.tell(&json!({ "file": file, "certificate": issued }), || {
        let (hosts, until) = (issued.hosts.join(", "), issued.not_after.date());
        format!("{file}: a certificate for {hosts} until {until}\n")
    })
}

/// The user who runs this, for the audit log.
fn user() -> String {
    ["SUDO_USER", "USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()))
        .unwrap_or_else(|| "unknown user".to_owned())
}

fn state(issued: &Issued, now: OffsetDateTime) -> String {
    match issued.revoked_at {
        Some(at) => format!("revoked on {}", at.date()),
        None if issued.is_good(now) => {
            format!("good for {}", counted((issued.not_after - now).whole_days(), "day"))
        }
        None => "ended".to_owned(),
    }
}

impl Common {
    /// The authority in the folder.
    fn authority(&self) -> anyhow::Result<Authority> {
        Ok(Authority::open(&self.folder)?.acting_for(&user()))
    }

    /// The same, ready to sign: with the passphrase of its key, if that is encrypted.
    fn signing(&self) -> anyhow::Result<Authority> {
        let authority = self.authority()?;
        if authority.is_sealed()? != Some(true) {
            return Ok(authority);
        }
        let passphrase = authority::known_passphrase(self.passphrase_file.as_deref())?;
        Ok(authority.with_passphrase(passphrase))
    }

    /// Prints one or the other.
    fn tell(&self, json: &Value, words: impl FnOnce() -> String) -> anyhow::Result<()> {
        let text = if self.json { serde_json::to_string_pretty(json)? + "\n" } else { words() };
        Ok(print(&text)?)
    }
}
