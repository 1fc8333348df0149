//! `hedgerow admin restore`: puts a copy of a store back while no server runs.

use std::path::{Path, PathBuf};

use hedgerow_net::admin::this_user;
use hedgerow_net::storage::{Restored, restore};
use serde_json::json;

use crate::terminal::{print, print_json};

/// Put a backup in the place of the store while its server is stopped.
///
/// The copy is checked first. The store that was there is kept under a new name, and its audit log
/// goes on. Nodes go on from the round of the copy, also if they know later ones.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  systemctl stop hedgerow
  hedgerow admin --store server.db restore /backup/monday.db
  systemctl start hedgerow")]
pub(super) struct Arguments {
    /// A file that `backup` wrote
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
}

pub(super) fn run(copy: &Path, store: &Path, is_json: bool) -> anyhow::Result<()> {
    let actor = this_user().to_string();
    let Restored { round, replaced, taken_over } = restore(copy, store, &actor, &[])?;
    if is_json {
        return print_json(&json!({
            "store": store, "round": round, "replaced": replaced, "audit_taken_over": taken_over,
        }));
    }
    let round = round.map_or("no round".to_owned(), |round| format!("round {round}"));
    let mut words = format!("{}: {round}, from {}, checked\n", store.display(), copy.display());
    if let Some(replaced) = replaced {
        words += &format!("the store that was there is {} now\n", replaced.display());
        words += match taken_over {
            Some(_) => "its audit log goes on in the restored store\n",
            None => "keep it: its audit log could not be taken over\n",
        };
    }
    Ok(print(&words)?)
}
