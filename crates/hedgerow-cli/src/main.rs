//! The command line of Hedgerow: flags become [`Settings`](hedgerow_lab::settings::Settings), and a
//! library call does the work. One file a command.

// Errors go to the terminal.
#![allow(clippy::print_stderr)]

mod admin;
mod compare;
mod config;
mod data;
mod demo;
mod exit;
mod export;
mod flags;
mod info;
mod join;
mod model;
mod pki;
mod predict;
mod reproduce;
mod serve;
mod shell;
mod simulate;
mod terminal;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Online federated learning with many kernels.
#[derive(Debug, Parser)]
#[command(name = "hedgerow", version, about, after_help = hedgerow_node::EXIT_CODES, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Simulate(Box<simulate::Arguments>),
    Config(config::Arguments),
    Data(data::Arguments),
    Reproduce(reproduce::Arguments),
    Compare(Box<compare::Arguments>),
    Demo(demo::Arguments),
    Pki(pki::Arguments),
    Export(export::Arguments),
    Predict(Box<predict::Arguments>),
    Model(model::Arguments),
    Join(Box<join::Arguments>),
    Serve(Box<serve::Arguments>),
    Admin(Box<admin::Arguments>),
    Wipe(hedgerow_node::WipeArguments),
    Completions(shell::CompletionsArguments),
    Man(shell::ManArguments),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Simulate(arguments) => simulate::simulate(&arguments),
        Command::Config(arguments) => config::config(&arguments),
        Command::Data(arguments) => data::data(&arguments),
        Command::Reproduce(arguments) => reproduce::reproduce(&arguments),
        Command::Compare(arguments) => compare::compare(&arguments),
        Command::Demo(arguments) => demo::demo(&arguments),
        Command::Pki(arguments) => pki::pki(&arguments),
        Command::Export(arguments) => export::export(&arguments),
        Command::Predict(arguments) => predict::predict(&arguments),
        Command::Model(arguments) => model::show(&arguments),
        Command::Join(arguments) => join::run(&arguments),
        Command::Serve(arguments) => serve::serve(&arguments),
        Command::Admin(arguments) => admin::admin(&arguments),
        Command::Wipe(arguments) => hedgerow_node::wipe(&arguments).map_err(Into::into),
        Command::Completions(arguments) => shell::completions(&arguments, Cli::command()),
        Command::Man(arguments) => shell::man(&arguments, Cli::command()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Our messages name their causes themselves.
            eprintln!("error: {error}");
            exit::of(&error).into()
        }
    }
}
