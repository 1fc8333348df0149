//! `hedgerow pki rotate`, `passphrase` and `audit`: the authority itself.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hedgerow_net::audit::verify;
use hedgerow_net::pki::{AUTHORITY_DAYS, Passphrase, Rotation};
use hedgerow_report::table::aligned;
use serde_json::json;
use time::OffsetDateTime;

use super::tokens::moment;
use super::{Common, days};

/// The environment variable with the passphrase of the authority's key, and that with a new one.
const PASSPHRASE: &str = "HEDGEROW_PKI_PASSPHRASE";
const NEW_PASSPHRASE: &str = "HEDGEROW_PKI_NEW_PASSPHRASE";

/// Replace the authority by a new one, with a time in which both are trusted.
///
/// First `rotate` makes the new authority. Nodes get a certificate of it when they renew, which
/// they do by themselves within a day or two if the server can sign; nodes of 0.1.0 need a new
/// file. `rotate --status` says who still has only a certificate of the old one. At the end,
/// `rotate --finish` makes the server's certificate one of the new authority, and nothing of the
/// old one is accepted any more. A server elsewhere needs server.pem and crl.pem again after both.
#[derive(Debug, clap::Args)]
pub(super) struct RotateArguments {
    /// Say how far the rotation is
    #[arg(long, conflicts_with = "finish")]
    status: bool,
    /// End the overlap: only the new authority is trusted
    #[arg(long)]
    finish: bool,
    /// Finish although some nodes know only the old authority
    #[arg(long, requires = "finish")]
    even_so: bool,
    /// How long the new authority is good
    #[arg(long, value_name = "N", default_value_t = AUTHORITY_DAYS, value_parser = days())]
    authority_days: u32,
    #[command(flatten)]
    common: Common,
}

/// Encrypt the authority's key with a passphrase, change it, or remove it.
///
/// The new one comes from --new-passphrase-file, from HEDGEROW_PKI_NEW_PASSPHRASE, or from the
/// terminal.
#[derive(Debug, clap::Args)]
pub(super) struct PassphraseArguments {
    /// File whose first line is the new passphrase
    #[arg(long, value_name = "FILE", conflicts_with = "remove")]
    new_passphrase_file: Option<PathBuf>,
    /// Don't encrypt the key any more
    #[arg(long)]
    remove: bool,
    #[command(flatten)]
    common: Common,
}

/// Show what was done with this authority: issued, revoked, enrolled, renewed, changed.
#[derive(Debug, clap::Args)]
pub(super) struct AuditArguments {
    /// Check that no entry was changed or removed, and print the hash of the last one. Whoever
    /// keeps that hash elsewhere can prove later that nothing before it was rewritten
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    common: Common,
}

pub(super) fn rotate(arguments: &RotateArguments) -> anyhow::Result<()> {
    let RotateArguments { status, finish, even_so, authority_days, common } = arguments;
    if *finish {
        let (file, issued) = common.signing()?.finish_rotation(*even_so)?;
        let file = file.display().to_string();
        return common.tell(&json!({ "file": file, "certificate": issued }), || {
            format!(
                "only the new authority is trusted; {file}: until {}\n",
                issued.not_after.date()
            )
        });
    }
    let rotation = if *status {
        common.authority()?.rotation()?
    } else {
        Some(common.signing()?.rotate(*authority_days)?)
    };
    let Some(Rotation { waiting, ends }) = rotation else {
        return common.tell(&json!({ "rotating": false }), || "no rotation has begun\n".to_owned());
    };
    let [old, new] = ends;
    let shown = json!({
        "rotating": true,
        "waiting": waiting,
        "old_authority_ends": old.to_string(),
        "new_authority_ends": new.to_string(),
    });
    common.tell(&shown, || {
        let mut text = format!(
            "both authorities are trusted: the old one until {}, the new one until {}\n",
            old.date(),
            new.date()
        );
        text += &match &waiting[..] {
            [] => "everybody knows the new one. Next: hedgerow pki rotate --finish\n".to_owned(),
            names => format!(
                "{} know only the old one: {}\n",
                names.len(),
                names.iter().take(20).map(String::as_str).collect::<Vec<_>>().join(", ")
            ),
        };
        text
    })
}

pub(super) fn passphrase(arguments: &PassphraseArguments) -> anyhow::Result<()> {
    let PassphraseArguments { new_passphrase_file, remove, common } = arguments;
    let authority = common.signing()?;
    let new = match remove {
        true => None,
        false => Some(new_passphrase(new_passphrase_file.as_deref(), NEW_PASSPHRASE)?),
    };
    authority.change_passphrase(new.as_ref())?;
    let how = if new.is_some() { "encrypted" } else { "not encrypted" };
    common.tell(&json!({ "encrypted": new.is_some() }), || {
        format!("{}: the authority's key is {how}\n", common.folder.display())
    })
}

pub(super) fn audit(arguments: &AuditArguments) -> anyhow::Result<()> {
    let AuditArguments { verify: is_checked, common } = arguments;
    let entries = common.authority()?.audit()?;
    if *is_checked {
        let end = verify(&entries).context("the audit log was changed")?;
        let shown = json!({ "entries": end.number, "hash": end.hash.to_string() });
        return common.tell(&shown, || {
            format!(
                "{} entries, none changed; the last one has the hash {}\n",
                end.number, end.hash
            )
        });
    }
    common.tell(&json!(entries), || {
        let heading = ["number", "time", "by", "action", "subject", "details"].map(str::to_owned);
        let rows = entries.iter().map(|entry| {
            let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(entry.at_ms) * 1_000_000);
            let (number, at) = (entry.number.to_string(), at.map_or(String::new(), moment));
            let [by, action, subject, details] =
                [&entry.actor, &entry.action, &entry.subject, &entry.details]
                    .map(|text| plain(text));
            [number, at, by, action, subject, details]
        });
        let rows: Vec<[String; 6]> = [heading].into_iter().chain(rows).collect();
        aligned(&rows, |_| true).iter().map(|line| format!("{}\n", line.trim_end())).collect()
    })
}

/// A text that can't change the terminal, however it came into the file.
fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// The passphrase of a key that is encrypted: from a file, the environment or the terminal. None if
/// there is none of them.
pub(super) fn known_passphrase(file: Option<&Path>) -> anyhow::Result<Option<Passphrase>> {
    if let Some(given) = given(file, PASSPHRASE)? {
        return Ok(Some(given));
    }
    if !std::io::stdin().is_terminal() {
        return Ok(None);
    }
    let typed = rpassword::prompt_password("passphrase of the authority's key: ")?;
    Ok(Passphrase::new(&typed))
}

/// A passphrase for a key that is not encrypted with it yet.
pub(super) fn new_passphrase(file: Option<&Path>, variable: &str) -> anyhow::Result<Passphrase> {
    if let Some(given) = given(file, variable)? {
        return Ok(given);
    }
    if !std::io::stdin().is_terminal() {
        bail!("no new passphrase: give one in a file, in {variable}, or at a terminal");
    }
    let typed = rpassword::prompt_password("new passphrase of the authority's key: ")?;
    if rpassword::prompt_password("again: ")? != typed {
        bail!("the two passphrases differ");
    }
    Passphrase::new(&typed).context("a passphrase has 1 to 1024 bytes")
}

/// The same for a key that is made.
pub(super) fn first_passphrase(file: Option<&Path>) -> anyhow::Result<Passphrase> {
    new_passphrase(file, PASSPHRASE)
}

fn given(file: Option<&Path>, variable: &str) -> anyhow::Result<Option<Passphrase>> {
    let bound = "a passphrase has 1 to 1024 bytes";
    if let Some(file) = file {
        return Passphrase::read(file).map(Some).map_err(Into::into);
    }
    match std::env::var(variable) {
        Ok(text) => {
            Ok(Some(Passphrase::new(&text).with_context(|| format!("{variable}: {bound}"))?))
        }
        Err(_) => Ok(None),
    }
}
