//! `wipe`: removes the samples that a node keeps from its state file.

use std::io::Write;
use std::path::PathBuf;

use hedgerow_net::agent::state::{StateError, StateFile};

use crate::Exit;

/// Remove all samples from the state file of a node.
///
/// A node of TR-OFL remembers raw samples, at most learning.memory bytes, and saves them with its
/// state. A node also keeps samples that wait for their labels. This command removes all of them.
/// What the node has learned stays: its model, its sums and its own layer. The node must not be
/// running.
#[derive(Debug, clap::Args)]
pub struct WipeArguments {
    /// The state file of the node
    #[arg(value_name = "STATE")]
    state: PathBuf,
}

/// Why samples were not removed.
#[derive(Debug, thiserror::Error)]
pub enum WipeError {
    /// The state can't be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// Nothing can be printed.
    #[error("can't write to standard output: {0}")]
    Output(#[from] std::io::Error),
}

impl WipeError {
    /// The exit code for it.
    pub fn exit(&self) -> Exit {
        match self {
            Self::State(_) => Exit::Data,
            Self::Output(_) => Exit::Output,
        }
    }
}

/// Removes the samples, and says how many they were.
pub fn wipe(arguments: &WipeArguments) -> Result<(), WipeError> {
    let forgotten = StateFile::forget_samples(&arguments.state)?;
    writeln!(
        std::io::stdout(),
        "{}: removed {} remembered samples, {} that waited for a label and {} that waited for a \
         round or a scale; what was learned stays",
        arguments.state.display(),
        forgotten.remembered,
        forgotten.unlabelled,
        forgotten.held
    )?;
    Ok(())
}
