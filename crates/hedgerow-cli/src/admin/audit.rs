//! `hedgerow admin audit`: the log of who did what.

use std::time::Duration;

use hedgerow_net::admin::client::Client;
use hedgerow_net::audit::{Chain, Entry};
use hedgerow_net::operations::{Action, MAX_AUDIT, Outcome};
use serde_json::json;
use tokio::time::sleep;

use super::tables::{date, table};
use crate::terminal::{print, print_json};

/// How often new entries are asked for.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

/// Show who did what: commands of operators, nodes that joined, certificates, settings.
///
/// Each entry has the hash of the one before, so that none can be changed or removed without a
/// trace. Keep the latest hash elsewhere to be sure that the whole log was not rewritten.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hedgerow admin audit
  hedgerow admin audit --from 1 --most 20 --json
  hedgerow admin audit --verify
  hedgerow admin audit --follow")]
pub(super) struct Arguments {
    /// Check the whole log instead, and show the latest hash
    #[arg(long, conflicts_with_all = ["follow", "from", "most"])]
    verify: bool,
    /// Wait for new entries, until Ctrl-C
    #[arg(long)]
    follow: bool,
    /// The first entry [default: the latest ones]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    from: Option<u64>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50)]
    most: usize,
}

/// The log is not what was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuditError {
    #[error(transparent)]
    Broken(#[from] hedgerow_net::audit::Broken),
    #[error("entry {number} is the last one that the server shows, and its log has {latest}")]
    Missing { number: u64, latest: u64 },
    #[error("the server answered something else than the audit log: is it of another version?")]
    Other,
}

pub(super) async fn audit(
    client: &mut Client,
    arguments: &Arguments,
    is_json: bool,
) -> anyhow::Result<()> {
    if arguments.verify {
        return verify(client, is_json).await;
    }
    let (entries, mut latest) = page(client, arguments.from, arguments.most).await?;
    tell(&entries, is_json, true)?;
    if !arguments.follow {
        return Ok(());
    }
    loop {
        sleep(FOLLOW_INTERVAL).await;
        let (new, _) = page(client, Some(latest + 1), MAX_AUDIT).await?;
        tell(&new, is_json, false)?;
        latest = new.last().map_or(latest, |entry| entry.number);
    }
}

async fn verify(client: &mut Client, is_json: bool) -> anyhow::Result<()> {
    let mut chain = Chain::default();
    let latest = loop {
        let (entries, latest) = page(client, Some(chain.number + 1), MAX_AUDIT).await?;
        let is_end = entries.is_empty();
        for entry in &entries {
            chain.accept(entry).map_err(AuditError::from)?;
        }
        if is_end || chain.number >= latest {
            break latest;
        }
    };
    if chain.number < latest {
        return Err(AuditError::Missing { number: chain.number, latest }.into());
    }
    let Chain { number, hash } = chain;
    if is_json {
        return print_json(&json!({ "entries": number, "hash": hash }));
    }
    Ok(print(&format!(
        "{number} entries, none changed, removed or inserted; the latest hash is {hash}\n"
    ))?)
}

/// Entries, and the number of the latest one.
async fn page(
    client: &mut Client,
    from: Option<u64>,
    most: usize,
) -> anyhow::Result<(Vec<Entry>, u64)> {
    match client.operate(&Action::Audit { from, most: Some(most) }).await? {
        Outcome::Audit { entries, latest } => Ok((entries, latest)),
        _ => Err(AuditError::Other.into()),
    }
}

/// As JSON, each entry is a line.
fn tell(entries: &[Entry], is_json: bool, has_heading: bool) -> anyhow::Result<()> {
    if is_json {
        let lines: Result<Vec<String>, _> = entries.iter().map(serde_json::to_string).collect();
        let text: String = lines?.into_iter().map(|line| line + "\n").collect();
        return Ok(print(&text)?);
    }
    let row = |entry: &Entry| {
        let Entry { number, at_ms, actor, action, subject, details, .. } = entry;
        [
            number.to_string(),
            date(*at_ms),
            actor.clone(),
            action.clone(),
            subject.clone(),
            details.clone(),
        ]
    };
    let heading = ["entry", "time (UTC)", "who", "what", "to", "details"];
    Ok(print(&table(has_heading.then_some(heading), entries.iter().map(row)))?)
}
