//! The project's chores: `cargo xtask NAME`.

// Chores talk to the person at the terminal; nothing depends on this crate.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod guard;
mod peers;
mod python;
mod test;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

const CHORES: [&str; 4] = ["test", "bench", "bench-peers", "guard"];

const HELP: &str = "\
The project's chores. They stop at the first failure.

cargo xtask test
    Everything a change has to pass: formatting, lints, documentation, tests, those of the Python package, the first
    example, instructions of the hot path, the README's commands. Needs cargo and python3 (3.11 or later); what else Python needs is installed below
    target/ at the first run.

cargo xtask bench [--rounds N] [--write]
    Speed of a node's step, in turns with plain numpy, as a Markdown table. numpy is installed below target/ at
    the first run; without python3 or the network the table lacks its ratios.
    --rounds N   how many turns each takes [default: 7]
    --write      put the table into BENCHMARKS.md

cargo xtask bench-peers [--quick] [--write]
    This library beside numpy, River, scikit-learn, Vowpal Wabbit and Flower on the same streams, in turns, errors
    beside speeds, as Markdown tables; ten minutes. They are installed below target/ at the first run; Vowpal Wabbit
    is left out where it can't be.
    --quick      fewer turns, for a first look
    --write      put the tables into BENCHMARKS.md

cargo xtask guard [--write]
    Instructions of the hot path under valgrind, compared with crates/xtask/bench/instructions.json: fails if they are
    more than 5% away. Without valgrind it says so; with another compiler than the baseline's it only warns.
    --write      take today's counts as the baseline

Exit codes: 0 all is well, 1 a chore failed, 2 the command line is wrong.";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        [] | ["help"] | [.., "--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        ["test"] => test::run(),
        ["test", option, ..] => return misuse(&format!("`test` takes no {option:?}")),
        ["bench", ref options @ ..] => match bench::Options::parse(options) {
            Ok(options) => bench::run(&options),
            Err(error) => return misuse(&error.to_string()),
        },
        ["bench-peers", ref options @ ..] => match peers::Options::parse(options) {
            Ok(options) => peers::run(&options),
            Err(error) => return misuse(&error.to_string()),
        },
        ["guard"] => guard::run(false),
        ["guard", "--write"] => guard::run(true),
        ["guard", ref options @ ..] => {
            return misuse(&format!("`guard` takes --write alone, and no {options:?}"));
        }
        [name, ..] => {
            return misuse(&format!("no chore {name:?}; there are {}", CHORES.join(", ")));
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn misuse(message: &str) -> ExitCode {
    eprintln!("{message} (`cargo xtask help` explains)");
    ExitCode::from(2)
}

/// Asked of cargo at run time: a program built in another checkout with the same target folder
/// would know the wrong one.
fn root() -> PathBuf {
    let here = env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).join("../..")
}

/// The cargo that runs this, at the workspace's root.
fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    command.current_dir(root()).args(arguments);
    // What cargo told this program of itself; some build scripts would take it for news and build
    // everything once more.
    for (name, _) in env::vars_os() {
        let is_own =
            |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(is_own) {
            command.env_remove(name);
        }
    }
    command
}

/// Where cargo puts the one program that these arguments make it build.
fn executable(arguments: &str) -> Result<PathBuf> {
    let arguments = arguments.split(' ').chain(["--message-format", "json-render-diagnostics"]);
    let messages = output(&mut cargo(&arguments.collect::<Vec<_>>()))?;
    let mut artifacts =
        messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let program =
        artifacts.find_map(|artifact| Some(PathBuf::from(artifact["executable"].as_str()?)));
    program.context("cargo built no program")
}

/// What a command prints, if it succeeds. Its errors go to the terminal.
fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.stderr(std::process::Stdio::inherit()).output();
    let output = output.with_context(|| format!("can't run {name}"))?;
    ensure!(output.status.success(), "{name}: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
