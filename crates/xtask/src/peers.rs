//! `cargo xtask bench-peers`: this library and its alternatives (numpy, River, scikit-learn, Vowpal
//! Wabbit, Flower) on the same streams, in turns. Tables show errors beside speeds: a faster
//! program may have learned less.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::bench::with_section;
use crate::{cargo, output, python, root};

const MARK: &str = "peers";
const BUILD: &str =
    "build --profile dist --package hedgerow-cli --package hedgerow-node --package hedgerow-py";
/// Not needed by the tests, and not available for every machine.
const WABBIT: &str = "vowpalwabbit==9.11.9";

pub(crate) struct Options {
    quick: bool,
    write: bool,
}

impl Options {
    pub(crate) fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self { quick: false, write: false };
        for &word in words {
            match word {
                "--quick" => options.quick = true,
                "--write" => options.write = true,
                _ => bail!("`bench-peers` takes --quick and --write, and no {word:?}"),
            }
        }
        Ok(options)
    }
}

/// A script, its arguments for long and quick runs, and the programs that it needs.
struct Part {
    title: &'static str,
    script: &'static str,
    long: &'static str,
    quick: &'static str,
    programs: &'static [&'static str],
}

const PARTS: [Part; 3] = [
    Part {
        title: "numpy",
        script: "crates/xtask/peers/mk_ofl.py",
        long: "--turns 3",
        quick: "--turns 2",
        programs: &["hedgerow"],
    },
    Part {
        title: "River, scikit-learn, Vowpal Wabbit",
        script: "crates/hedgerow-py/benches/estimators.py",
        long: "--samples 2000 --trials 3",
        quick: "--samples 600 --trials 2",
        programs: &[],
    },
    Part {
        title: "Flower",
        script: "crates/hedgerow-py/benches/flower.py",
        long: "--rounds 5 --turns 2",
        quick: "--rounds 4 --turns 1",
        programs: &["hedgerow", "node"],
    },
];

pub(crate) fn run(options: &Options) -> Result<()> {
    let python = python::prepare();
    let status =
        cargo(&BUILD.split(' ').collect::<Vec<_>>()).status().context("can't run cargo")?;
    ensure!(status.success(), "`cargo {BUILD}` ended with {status}");
    let built = python::target()?.join("dist");
    let python = python.join().map_err(|_| anyhow!("python's environment"))??;
    python::place_module(&built)?;
    // Without it the table has a note.
    _ = install_wabbit(&python)
        .inspect_err(|error| eprintln!("going on without Vowpal Wabbit: {error:#}"));
    let mut text = heading(options)?;
    for part in &PARTS {
        eprintln!("{}", part.title);
        let mut command = Command::new(&python);
        command.current_dir(root()).arg(part.script);
        command.args(if options.quick { part.quick } else { part.long }.split(' '));
        for program in part.programs {
            let name = if *program == "node" { "hedgerow-node" } else { program };
            command.arg(format!("--{program}")).arg(built.join(name));
        }
        let table = output(&mut command).with_context(|| part.script)?;
        text += &format!("\n### {}\n\n{}\n", part.title, table.trim_end());
    }
    println!("{text}");
    if options.write {
        let file = root().join("BENCHMARKS.md");
        let document = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        fs::write(&file, with_section(&document, MARK, &text)?)?;
    }
    Ok(())
}

fn install_wabbit(python: &Path) -> Result<()> {
    let wanted =
        format!("import vowpalwabbit as w; assert 'vowpalwabbit==' + w.__version__ == '{WABBIT}'");
    let there =
        Command::new(python).args(["-c", &wanted]).stderr(std::process::Stdio::null()).status();
    if there.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    output(Command::new(python).args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--only-binary=:all:",
        WABBIT,
    ]))?;
    Ok(())
}

fn heading(options: &Options) -> Result<String> {
    let date = output(Command::new("date").args(["-u", "+%F"]))?;
    let cores = std::thread::available_parallelism()?;
    let quick = if options.quick { " --quick" } else { "" };
    Ok(format!(
        "## Beside the peers\n\n\
         `cargo xtask bench-peers{quick} --write`, {}, {cores} cores: the same streams and\n\
         samples, in turns in one script, errors beside speeds. More in\n\
         [docs/python.md](docs/python.md#how-fast) and\n\
         [docs/flower.md](docs/flower.md#a-mini-batch-a-round).\n",
        date.trim(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_known_or_refused() {
        let options = Options::parse(&["--write", "--quick"]).unwrap();
        assert!(options.write && options.quick);
        assert!(Options::parse(&["--fast"]).is_err());
    }

    #[test]
    fn scripts_are_there() {
        for part in &PARTS {
            assert!(root().join(part.script).exists(), "{}", part.script);
        }
    }
}
