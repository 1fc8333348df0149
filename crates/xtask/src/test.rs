//! `cargo xtask test`: every check that a change has to pass.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, ensure};

use crate::{CHORES, cargo, deploy, guard, output, python, root};

const LINTS: &str = "clippy --workspace --all-targets --all-features -- -D warnings";
const DOCUMENTATION: &str = "doc --workspace --no-deps --document-private-items --all-features";
// Not --all-targets: that would run the benchmarks too. With all features, so that nothing is built
// twice.
const TESTS: &str = "test --workspace --all-features --lib --bins --tests --examples";
// The only crate whose documentation has examples; for all of them half of everything would be
// built once more.
const DOCUMENTED: &str = "test --package hedgerow --all-features --doc";
// Without what only a server needs. The other packages are named to keep the features of most
// crates as the lints had them, or all would be checked once more.
const LEAN: &str = "check --package hedgerow-node --package hedgerow --package hedgerow-lab \
                    --package xtask --all-features";
// The core without the standard library.
const NO_STD: &str = "check --package hedgerow --no-default-features";
const EXAMPLE: &str = "run --release --package hedgerow --example first_federation";
/// What steps after the tests need.
const AHEAD: [&str; 3] = [
    "build --release --package hedgerow --example first_federation --example hot_path",
    LEAN,
    NO_STD,
];

/// Debian's packages that tests use, and a file of each.
const TOOLS: [(&str, &str); 4] = [
    ("chromium", "/usr/bin/chromium"),
    ("faketime", "/usr/bin/faketime"),
    guard::VALGRIND,
    deploy::SYSTEMD,
];

pub(crate) fn run() -> Result<()> {
    let python = python::prepare();
    let tools = thread::spawn(install_tools);
    // Macros declare the modules of methods and streams, so rustfmt doesn't find them by itself.
    let mut files = Vec::new();
    for folder in ["crates/hedgerow/src/method", "crates/hedgerow-data/src/streams"] {
        for entry in fs::read_dir(root().join(folder))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            files.extend(name.ends_with(".rs").then(|| format!("{folder}/{name}")));
        }
    }
    step("formatting", &format!("fmt --all --check -- {}", files.join(" ")))?;
    step("lints", LINTS)?;
    step("documentation", DOCUMENTATION)?;
    let python = python
        .join()
        .map_err(|_| anyhow!("python's environment"))?
        .context("python's environment")?;
    let python = python::Tests::start(&python)?;
    let missing = tools.join().map_err(|_| anyhow!("installation of tools"))?;
    let ahead = build_ahead();
    step("tests", TESTS)?;
    step("documentation tests", DOCUMENTED)?;
    python.finish()?;
    ahead.join().map_err(|_| anyhow!("builds for later steps"))?;
    step("lean node", LEAN)?;
    step("core without the standard library", NO_STD)?;
    step("first example", EXAMPLE)?;
    guard::run(false)?;
    deploy::check().context("files of deploy/")?;
    check_commands(&fs::read_to_string(root().join("README.md"))?).context("README's commands")?;
    for tool in missing {
        println!("\nnot tested: {tool} is missing and can't be installed");
    }
    println!("\nall checks passed");
    Ok(())
}

/// Installs missing tools while other steps run. Returns those that are still missing.
fn install_tools() -> Vec<&'static str> {
    let missing = || {
        TOOLS.iter().filter(|(_, file)| !Path::new(file).exists()).map(|(name, _)| *name).collect()
    };
    let mut wanted: Vec<&str> = missing();
    let needs_promtool = deploy::promtool().is_none();
    if wanted.is_empty() && !needs_promtool {
        return wanted;
    }
    println!("\n== tools: {} {}", wanted.join(" "), if needs_promtool { "promtool" } else { "" });
    let apt = |arguments: &[&str]| {
        // The files tell whether it succeeded.
        _ = Command::new("apt-get").args(arguments).stdout(Stdio::null()).status();
    };
    apt(&["update", "-q"]);
    if !wanted.is_empty() {
        apt(&[&["install", "-q", "-y", "--no-install-recommends"], &wanted[..]].concat());
        wanted = missing();
    }
    if needs_promtool {
        deploy::unpack();
        wanted.extend(deploy::promtool().is_none().then_some(deploy::PACKAGE));
    }
    wanted
}

/// Builds for later steps while tests wait. Errors show in the steps themselves.
fn build_ahead() -> JoinHandle<()> {
    thread::spawn(|| {
        for arguments in AHEAD {
            let mut command = cargo(&arguments.split_whitespace().collect::<Vec<_>>());
            _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    })
}

fn step(name: &str, arguments: &str) -> Result<()> {
    println!("\n== {name}: cargo {arguments}");
    let started = std::time::Instant::now();
    let mut command = cargo(&arguments.split_whitespace().collect::<Vec<_>>());
    if arguments == DOCUMENTATION {
        command.env("RUSTDOCFLAGS", "-D warnings");
    }
    let status = command.status().with_context(|| format!("{name}: can't run cargo"))?;
    ensure!(status.success(), "{name}: `cargo {arguments}` ended with {status}");
    println!("== {name}: {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// The README has to name every chore and no other, and only commands that the program knows.
fn check_commands(readme: &str) -> Result<()> {
    println!("\n== README's commands");
    let (promised, chores) = (commands(readme, "cargo xtask "), BTreeSet::from(CHORES));
    ensure!(
        promised == chores,
        "README.md names the chores {promised:?}, and there are {chores:?}"
    );
    // The tests have built it.
    let program = root().join("target/debug/hedgerow");
    for name in commands(readme, "hedgerow ") {
        println!("hedgerow {name}");
        output(Command::new(&program).args([name, "--help"]))
            .with_context(|| format!("README.md names `hedgerow {name}`"))?;
    }
    Ok(())
}

/// The words that follow `program` in a text's code: indented, or between backticks, where one and
/// three both change sides.
fn commands<'a>(markdown: &'a str, program: &str) -> BTreeSet<&'a str> {
    let indented = markdown.lines().filter(|line| line.starts_with("    "));
    let quoted = markdown.split('`').skip(1).step_by(2).flat_map(str::lines);
    let lines = indented
        .chain(quoted)
        .filter_map(|line| line.trim_start().trim_start_matches("$ ").strip_prefix(program));
    let words = lines.filter_map(|rest| rest.split_whitespace().next());
    words.filter(|word| word.starts_with(|first: char| first.is_ascii_lowercase())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_code_only() {
        let readme = "run\nhedgerow walk\nor `hedgerow demo`:\n```sh\n$ hedgerow data list # all\n\
                      hedgerow --help\n```\n\n    hedgerow serve\n";
        assert_eq!(commands(readme, "hedgerow "), BTreeSet::from(["data", "demo", "serve"]));
        assert_eq!(commands("`cargo xtask test`", "cargo xtask "), BTreeSet::from(["test"]));
    }

    #[test]
    fn every_file_of_tests_is_run() {
        for folder in fs::read_dir(root().join("crates")).unwrap() {
            let folder = folder.unwrap().path();
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
            let Ok(program) = fs::read_to_string(folder.join("tests/main.rs")) else { continue };
            for file in fs::read_dir(folder.join("tests")).unwrap() {
                let file = file.unwrap().path();
                let name = file.file_stem().unwrap().to_str().unwrap();
                let is_program = file.join("main.rs").exists();
                let path =
                    if is_program { format!("{name}/main.rs") } else { format!("{name}.rs") };
                let is_named = program.lines().any(|line| line == format!("mod {name};"))
                    || manifest.lines().any(|line| line == format!("path = \"tests/{path}\""));
                let is_file = file.extension().is_some_and(|ending| ending == "rs");
                let is_code = is_file || is_program || file.join("mod.rs").exists();
                assert!(!is_code || is_named, "{} is not run", file.display());
            }
        }
    }
}
