//! `hedgerow config`: the commented defaults.

use hedgerow_lab::settings::DEFAULTS;
use hedgerow_net::agent::config::DEFAULTS as JOIN_DEFAULTS;
use hedgerow_net::learning::config::DEFAULTS as SERVE_DEFAULTS;

use crate::terminal::{print, print_json};

/// Print every setting with its default and what it means.
///
/// Save it, change it, and pass it on: hedgerow config > my.toml && hedgerow simulate my.toml
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The program whose settings are printed
    #[arg(value_enum, default_value_t = Subject::Simulate)]
    subject: Subject,
    /// Print the defaults as JSON, without comments
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Subject {
    /// `hedgerow simulate`, and `compare`
    Simulate,
    /// `hedgerow serve`
    Serve,
    /// `hedgerow join`, and `hedgerow-node`
    Join,
}

pub(crate) fn config(arguments: &Arguments) -> anyhow::Result<()> {
    let defaults = match arguments.subject {
        Subject::Simulate => DEFAULTS,
        Subject::Serve => SERVE_DEFAULTS,
        Subject::Join => JOIN_DEFAULTS,
    };
    if arguments.json {
        return print_json(&defaults.parse::<toml::Table>()?);
    }
    Ok(print(defaults)?)
}
