//! `hedgerow pki token`, `tokens`, `cancel-token` and `sign`: certificates for keys that nodes make
//! themselves.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

use hedgerow_net::duration::Span;
use hedgerow_net::pki::request::Requested;
use hedgerow_net::pki::{Authority, CERTIFICATE_DAYS, Kind, TokenRecord, TokenState};
use hedgerow_report::table::aligned;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{Common, days};

/// The port of a server that is not set otherwise.
const PORT: u16 = 7443;

/// Make a token: with it a device makes its own key and gets its certificate from the server.
///
/// A token is good once, for one name, and for a limited time. It contains the server's address
/// and what the device needs to know the server by. Anybody who has it can join under this name, so
/// treat it as a password.
#[derive(Debug, clap::Args)]
#[command(after_help = TOKEN_HELP)]
pub(super) struct TokenArguments {
    /// Name of the node: of a-z, 0-9, '.', '_' and '-'
    #[arg(value_name = "NODE")]
    node: String,
    /// Address that the node reaches the server by [default: the first name of the server's
    /// certificate, port 7443]
    #[arg(long, value_name = "HOST:PORT")]
    server: Option<String>,
    /// How long the token is good, at most 30d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = Span::from_str)]
    valid: Span,
    /// How long the certificate will be good
    #[arg(long, value_name = "N", default_value_t = CERTIFICATE_DAYS, value_parser = days())]
    days: u32,
    #[command(flatten)]
    common: Common,
}

const TOKEN_HELP: &str = "\
Example, and then on the device:
  hedgerow pki token boiler-3
  hedgerow-node --enroll TOKEN --no-samples --http 127.0.0.1:7411

The server needs the authority's key (ca.key in the folder of listen.identity) to sign.";

/// Cancel the tokens of nodes that were not used yet.
#[derive(Debug, clap::Args)]
pub(super) struct CancelArguments {
    /// Names of the nodes
    #[arg(value_name = "NODE", required = true)]
    nodes: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// Sign requests that devices made with `hedgerow-node --request`.
///
/// For authorities whose key no server has. Of a request only its name and its public key count.
/// The device takes the certificate with `hedgerow-node --certificate`.
#[derive(Debug, clap::Args)]
pub(super) struct SignArguments {
    /// Files with requests, in PEM
    #[arg(value_name = "REQUEST", required = true)]
    requests: Vec<PathBuf>,
    /// How long the certificates are good
    #[arg(long, value_name = "N", default_value_t = CERTIFICATE_DAYS, value_parser = days())]
    days: u32,
    #[command(flatten)]
    common: Common,
}

pub(super) fn token(arguments: &TokenArguments) -> anyhow::Result<()> {
    let TokenArguments { node, server, valid, days, common } = arguments;
    let authority = common.authority()?;
    let server = match server {
        Some(server) => server.clone(),
        None => usual_server(&authority)?,
    };
    let (token, record) = authority.token(node, &server, valid.0, *days)?;
    let text = token.encode();
    let shown = json!({ "token": text, "server": server, "ends_at": record.ends_at.to_string() });
    common.tell(&shown, || {
        format!(
            "{text}\nGood once, for {node}, until {}. On the device: hedgerow-node --enroll TOKEN\n",
            moment(record.ends_at)
        )
    })
}

pub(super) fn list(common: &Common) -> anyhow::Result<()> {
    let all = common.authority()?.tokens()?;
    let now = OffsetDateTime::now_utc();
    let as_json = |token: &TokenRecord| {
        let (state, at) = state(token, now);
        json!({ "name": token.name, "state": state, "at": at.to_string() })
    };
    common.tell(&json!(all.iter().map(as_json).collect::<Vec<Value>>()), || {
        let rows = all.iter().map(|token| {
            let (state, at) = state(token, now);
            [token.name.clone(), state.to_owned(), moment(at)]
        });
        let rows: Vec<[String; 3]> = [["name", "state", "since or until"].map(str::to_owned)]
            .into_iter()
            .chain(rows)
            .collect();
        aligned(&rows, |_| true).iter().map(|line| format!("{}\n", line.trim_end())).collect()
    })
}

pub(super) fn cancel(arguments: &CancelArguments) -> anyhow::Result<()> {
    let CancelArguments { nodes, common } = arguments;
    let authority = common.authority()?;
    let mut counts = Vec::with_capacity(nodes.len());
    for node in nodes {
        counts.push((node, authority.cancel_tokens(node)?));
    }
    let as_json = |(node, count): &(&String, usize)| json!({ "node": node, "tokens": count });
    common.tell(&json!(counts.iter().map(as_json).collect::<Vec<Value>>()), || {
        let line = |(node, count): &(&String, usize)| match count {
            0 => format!("{node}: had no open token\n"),
            count => format!("{node}: cancelled {count}\n"),
        };
        counts.iter().map(line).collect()
    })
}

pub(super) fn sign(arguments: &SignArguments) -> anyhow::Result<()> {
    let SignArguments { requests, days, common } = arguments;
    let authority = common.signing()?;
    let mut signed = Vec::with_capacity(requests.len());
    for request in requests {
        signed.push(authority.sign(&Requested::read(request)?, *days)?);
    }
    let as_json = |(file, granted): &(PathBuf, hedgerow_net::pki::Issued)| json!({ "file": file.display().to_string(), "certificate": granted });
    common.tell(&json!(signed.iter().map(as_json).collect::<Vec<Value>>()), || {
        let line = |(file, issued): &(PathBuf, hedgerow_net::pki::Issued)| {
            format!(
                "{}: the certificate of {} until {}; on the device: hedgerow-node --certificate\n",
                file.display(),
                issued.name,
                issued.not_after.date()
            )
        };
        signed.iter().map(line).collect()
    })
}

/// The first name of the server's certificate that others can reach, or the first.
fn usual_server(authority: &Authority) -> anyhow::Result<String> {
    let all = authority.list()?;
    let hosts = all.iter().rfind(|issued| issued.kind == Kind::Server).map(|issued| &issued.hosts);
    let hosts = hosts.map_or(&[][..], Vec::as_slice);
    let is_far = |host: &&String| {
        *host != "localhost" && !host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    };
    let host = hosts.iter().find(is_far).or(hosts.first());
    Ok(match host {
        Some(host) if host.parse::<Ipv6Addr>().is_ok() => format!("[{host}]:{PORT}"),
        Some(host) => format!("{host}:{PORT}"),
        None => String::new(),
    })
}

fn state(token: &TokenRecord, now: OffsetDateTime) -> (&'static str, OffsetDateTime) {
    match token.state(now) {
        TokenState::Open => ("open", token.ends_at),
        TokenState::Used(at) => ("used", at),
        TokenState::Cancelled(at) => ("cancelled", at),
        TokenState::Ended(at) => ("ended", at),
    }
}

/// A moment for people.
pub(super) fn moment(at: OffsetDateTime) -> String {
    format!("{} {:02}:{:02}:{:02} UTC", at.date(), at.hour(), at.minute(), at.second())
}
