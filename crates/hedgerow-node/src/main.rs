//! The lean node agent: `hedgerow join` without the rest of `hedgerow`.

// Errors go to the terminal.
#![allow(clippy::print_stderr)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use hedgerow_node::{Arguments, EXIT_CODES, Exit, WipeArguments, join, wipe};

#[derive(Debug, Parser)]
#[command(
    name = "hedgerow-node",
    version,
    after_help = EXIT_CODES,
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    arguments: Arguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    Wipe(WipeArguments),
}

fn main() -> ExitCode {
    let Cli { command, arguments } = Cli::parse();
    let outcome = match command {
        Some(Command::Wipe(arguments)) => told(wipe(&arguments), |error| error.exit()),
        None => told(join(&arguments), |error| error.exit()),
    };
    outcome.into()
}

/// The exit code of an outcome, after its error has been told.
fn told<E: std::fmt::Display>(outcome: Result<(), E>, exit: fn(&E) -> Exit) -> Exit {
    match outcome {
        Ok(()) => Exit::Success,
        Err(error) => {
            eprintln!("error: {error}");
            exit(&error)
        }
    }
}
