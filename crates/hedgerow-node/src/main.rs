//! The lean node agent: `hedgerow join` without the rest of `hedgerow`.

// Errors go to the terminal.
#![allow(clippy::print_stderr)]

use std::process::ExitCode;

use clap::Parser;
use hedgerow_node::{Arguments, EXIT_CODES, join};

#[derive(Debug, Parser)]
#[command(name = "hedgerow-node", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> ExitCode {
    match join(&Cli::parse().arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            error.exit().into()
        }
    }
}
