//! `hedgerow export`: the current model of a server, as a file.

use std::path::PathBuf;

use hedgerow_net::export::Model;
use serde_json::json;

use crate::terminal::{print, print_json};

/// Write the current model of a server to a file.
///
/// The server may be running or not. The file has all that `hedgerow predict` needs: the shared
/// model, what it was learned with, and the scale of its numbers. Layers that nodes have of their
/// own stay on the nodes. It is in the safetensors format, so other programs can read it as well.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Store of the server
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// File to write; an older model is replaced, anything else is not
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Example:
  hedgerow export --from server.db --out model.safetensors
  hedgerow predict --model model.safetensors --data new.csv";

pub(crate) fn export(arguments: &Arguments) -> anyhow::Result<()> {
    let model = Model::from_store(&arguments.from)?;
    model.write(&arguments.out)?;
    let learning = model.plan().config();
    let (method, numbers) = (model.plan().method().name, model.broadcast().numbers.len());
    let (file, run, round) = (arguments.out.display(), model.run(), model.round());
    if arguments.json {
        return print_json(&json!({
            "file": file.to_string(),
            "run": run,
            "round": round,
            "method": method,
            "numbers": numbers,
            "inputs": model.plan().inputs(),
            "columns": learning.columns,
            "target": learning.target,
            "own_layers": model.plan().has_own_layers(),
        }));
    }
    let mut told = format!(
        "{file}: the shared model of round {round} of run {run} ({method}, {numbers} numbers)\n"
    );
    if model.plan().has_own_layers() {
        told += "Nodes have layers of their own over it. They stay on the nodes: predictions of the \
                 file are those of the shared model.\n";
    }
    Ok(print(&told)?)
}
