//! `hedgerow config`: the commented defaults.

use hedgerow_lab::settings::DEFAULTS;

/// Print every setting with its default and what it means.
///
/// Save it, change it, and pass it on: hedgerow config > my.toml && hedgerow simulate my.toml
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print the defaults as JSON, without comments
    #[arg(long)]
    json: bool,
}

pub(crate) fn print(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.json {
        let table: serde_json::Value = hedgerow_lab::settings::defaults_as_json()?;
        println!("{}", serde_json::to_string_pretty(&table)?);
    } else {
        print!("{DEFAULTS}");
    }
    Ok(())
}
