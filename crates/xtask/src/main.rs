//! The project's chores: `cargo xtask NAME`.

// Chores print for a person at a terminal; nothing depends on this crate.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod deploy;
mod guard;
mod peers;
mod previous;
mod python;
mod test;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

const CHORES: [&str; 5] = ["test", "bench", "bench-peers", "guard", "previous"];

const HELP: &str = "\
The project's chores. Each stops at the first failure.

cargo xtask test
    Everything that a change has to pass: formatting, lints, documentation, tests, tests of the
    Python package, the first example, instruction counts of the hot path, the files of deploy/, the
    README's commands.
    Needs cargo and python3 (3.11 or later). The first run installs Python packages below target/,
    and chromium, faketime, systemd and valgrind with apt-get where they are missing. Prometheus'
    promtool is unpacked below target/.

cargo xtask bench [--rounds N] [--write]
    Speed of a node's step, in turns with plain numpy, as a Markdown table. The first run installs
    numpy below target/; without python3 or a network the table lacks the ratios.
    --rounds N   turns of each program [default: 7]
    --write      put the table into BENCHMARKS.md

cargo xtask bench-peers [--quick] [--write]
    This library beside numpy, River, scikit-learn, Vowpal Wabbit and Flower on the same streams, in
    turns, with errors and speeds, as Markdown tables. Takes ten minutes. The first run installs the
    peers below target/; Vowpal Wabbit is left out where it can't be installed.
    --quick      fewer turns, for a first look
    --write      put the tables into BENCHMARKS.md

cargo xtask guard [--write]
    Instructions of the hot path under valgrind, compared with
    crates/xtask/bench/instructions.json: fails if they differ by more than 5%. Without valgrind it
    only says so; with another compiler than the baseline's it only warns.
    --write      make the current counts the baseline

cargo xtask previous [--write]
    Nodes and servers of the previous release with those of this version, over runs with
    certificates, and an upgrade in the middle of one. The first run builds the release from the
    history below target/previous, which takes ten minutes.
    --write      record what its programs say to each other, for the tests that repeat it

Exit codes: 0 success, 1 a chore failed, 2 the command line is wrong.";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        [] | ["help"] | [.., "--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        ["test"] => test::run(),
        ["test", option, ..] => return misuse(&format!("`test` takes no options, not {option:?}")),
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
            return misuse(&format!("`guard` takes only --write, not {options:?}"));
        }
        ["previous"] => previous::run(false),
        ["previous", "--write"] => previous::run(true),
        ["previous", ref options @ ..] => {
            return misuse(&format!("`previous` takes only --write, not {options:?}"));
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

/// The workspace's root, from cargo at run time: a program that was built in another checkout with
/// the same target folder would have the wrong path.
fn root() -> PathBuf {
    let here = env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).join("../..")
}

/// The cargo that runs this, at the workspace's root.
fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    command.current_dir(root()).args(arguments);
    // Variables that cargo set for this program. Some build scripts would see a change and build
    // everything again.
    for (name, _) in env::vars_os() {
        let is_own =
            |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(is_own) {
            command.env_remove(name);
        }
    }
    command
}

/// The path of the one program that cargo builds with these arguments.
fn executable(arguments: &str) -> Result<PathBuf> {
    let arguments = arguments.split(' ').chain(["--message-format", "json-render-diagnostics"]);
    let messages = output(&mut cargo(&arguments.collect::<Vec<_>>()))?;
    let mut artifacts =
        messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let program =
        artifacts.find_map(|artifact| Some(PathBuf::from(artifact["executable"].as_str()?)));
    program.context("cargo built no program")
}

/// What a command prints if it succeeds. Its standard error goes to the terminal.
fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.stderr(std::process::Stdio::inherit()).output();
    let output = output.with_context(|| format!("can't run {name}"))?;
    ensure!(output.status.success(), "{name}: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
