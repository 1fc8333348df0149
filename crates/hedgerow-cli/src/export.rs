//! `hedgerow export`: the current model of a server or of a node, as a file.

use std::path::{Path, PathBuf};

use hedgerow_net::export::model_of;

use crate::model;
use crate::terminal::{print, print_json};

/// Write the current model of a server, or of one node, to a file.
///
/// From the store of a server comes the shared model. Layers that nodes have of their own are not
/// in it, because they stay on the devices. From the state file of a node comes that node's own
/// model, with its layer, but without the samples that it keeps. Server and node may be running or
/// not. The file has all that `hedgerow predict` needs; it is in the safetensors format, so other
/// programs can read it as well.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Store of a server, or state file of a node
    #[arg(value_name = "STORE|STATE", required_unless_present = "named_source")]
    source: Option<PathBuf>,
    /// The same, as earlier versions had it
    #[arg(long = "from", value_name = "FILE", hide = true, conflicts_with = "source")]
    named_source: Option<PathBuf>,
    /// File to write; an older model is replaced, anything else is not
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  hedgerow export server.db --out model.safetensors
  hedgerow export meter-17.state --out meter-17.safetensors
  hedgerow predict model.safetensors --data new.csv";

pub(crate) fn export(arguments: &Arguments) -> anyhow::Result<()> {
    let source = arguments.source.as_ref().or(arguments.named_source.as_ref());
    let model = model::dated(model_of(source.map_or(Path::new(""), PathBuf::as_path))?);
    model.write(&arguments.out)?;
    if arguments.json {
        return print_json(&model::as_json(&arguments.out, &model));
    }
    let (file, run, round) = (arguments.out.display(), model.run(), model.round());
    let method = model.plan().method().name;
    let node = model.nodes().next();
    let mut told = match node {
        Some(node) => format!("{file}: node {node} in round {round} of run {run} ({method})\n"),
        None => {
            let numbers: usize = model.broadcasts().iter().map(|one| one.numbers.len()).sum();
            format!(
                "{file}: the shared model of round {round} of run {run} ({method}, {numbers} numbers)\n"
            )
        }
    };
    if node.is_none() && model.plan().has_own_layers() {
        told += "Nodes have layers of their own over it. They stay on the nodes: predictions of the \
                 file are those of the shared model. `hedgerow export STATE_FILE` on a device writes \
                 the model of its node.\n";
    }
    Ok(print(&told)?)
}
