//! `hedgerow config`: the commented defaults.

use hedgerow_lab::settings::{DEFAULTS, defaults_as_json};

use crate::simulate::print;

/// Print every setting with its default and what it means.
///
/// Save it, change it, and pass it on: hedgerow config > my.toml && hedgerow simulate my.toml
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print the defaults as JSON, without comments
    #[arg(long)]
    json: bool,
}

pub(crate) fn config(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.json {
        let defaults = defaults_as_json()?;
        print(&format!("{}\n", serde_json::to_string_pretty(&defaults)?))?;
    } else {
        print(DEFAULTS)?;
    }
    Ok(())
}
