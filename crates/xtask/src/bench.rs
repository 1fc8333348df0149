//! `cargo xtask bench`: node steps of this library and of plain numpy, in turns, so that both meet the same neighbours on a
//! shared machine and their ratio means something.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{cargo, output, root};

const BEGIN: &str = "<!-- node-step:begin -->";
const END: &str = "<!-- node-step:end -->";
const HEAD: &str = "\
# Benchmarks

Measured on one core by `cargo xtask bench --write`, which replaces the marked section below. Machines are shared and differ:
only ratios count, between programs that ran in turns on the same core.
";

pub(crate) struct Options {
    rounds: usize,
    write: bool,
}

impl Options {
    pub(crate) fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self { rounds: 7, write: false };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--write" => options.write = true,
                "--rounds" => {
                    let number = words.next().copied().unwrap_or_default();
                    let rounds = number.parse().ok().filter(|&rounds| rounds > 0);
                    options.rounds =
                        rounds.with_context(|| format!("--rounds {number:?}: at least 1 is needed"))?;
                }
                _ => bail!("`bench` takes --rounds N and --write, and no {word:?}"),
            }
        }
        Ok(options)
    }
}

/// One turn of each program: a JSON object per case.
struct Round {
    ours: Vec<Value>,
    numpy: Vec<Value>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = build()?;
    let python = python_with_numpy()
        .inspect_err(|error| eprintln!("going on without numpy, so without ratios to it: {error:#}"))
        .ok();
    let mut rounds = Vec::new();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        let ours = measure(&binary, None)?;
        let numpy = match &python {
            Some((python, _)) => measure(python, Some("crates/xtask/bench/node_step.py"))?,
            None => Vec::new(),
        };
        rounds.push(Round { ours, numpy });
    }
    let numpy = python.map_or("no numpy".to_owned(), |(_, version)| format!("numpy {version}"));
    let section = section(&rounds, &numpy)?;
    println!("{section}");
    if options.write {
        let file = root().join("BENCHMARKS.md");
        let document = if file.exists() { fs::read_to_string(&file)? } else { HEAD.to_owned() };
        fs::write(&file, with_section(&document, &section)?)?;
    }
    Ok(())
}

/// Where cargo put the benchmark's program.
fn build() -> Result<PathBuf> {
    let arguments = "bench --package hedgerow --features probe --bench node_step --no-run --message-format json-render-diagnostics";
    let messages = output(&mut cargo(&arguments.split(' ').collect::<Vec<_>>()))?;
    let mut artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let program = artifacts.find_map(|artifact| Some(PathBuf::from(artifact["executable"].as_str()?)));
    program.context("cargo built no program for the benchmark")
}

/// A Python of our own with numpy, and numpy's version. Made at the first run.
fn python_with_numpy() -> Result<(PathBuf, String)> {
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into());
    let folder = root().join(target).join("bench-venv");
    let python = folder.join("bin/python");
    if !folder.join("numpy-installed").exists() {
        eprintln!("making a Python environment with numpy for the comparison");
        output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))
            .context("python3 with its venv module is needed")?;
        output(Command::new(&python).args(["-m", "pip", "install", "--quiet", "numpy"]))
            .context("numpy could not be installed; is the network there?")?;
        fs::write(folder.join("numpy-installed"), "")?;
    }
    let version = output(Command::new(&python).args(["-c", "import numpy; print(numpy.__version__)"]))?;
    Ok((python, version.trim().to_owned()))
}

/// The cases that a program prints, run on one core if that can be had.
fn measure(program: &Path, script: Option<&str>) -> Result<Vec<Value>> {
    let pin = ["-c", "0"];
    let can_pin = Command::new("taskset").args(pin).arg("true").status().is_ok_and(|status| status.success());
    let mut command = Command::new(if can_pin { Path::new("taskset") } else { program });
    if can_pin {
        command.args(pin).arg(program);
    }
    command.args(script).current_dir(root());
    let lines = output(command.envs([("OPENBLAS_NUM_THREADS", "1"), ("OMP_NUM_THREADS", "1")]))?;
    lines.lines().map(|line| serde_json::from_str(line).context(line.to_owned())).collect()
}

fn section(rounds: &[Round], numpy: &str) -> Result<String> {
    let first = &rounds.first().context("no round")?.ours;
    let machine = first.first().context("the benchmark printed nothing")?;
    let rate = |name: &str| median(rounds.iter().filter_map(|round| round.ours.first()?[name].as_f64()));
    let date = output(Command::new("date").args(["-u", "+%F"]))?;
    let nodes = rounds.iter().flat_map(|round| &round.numpy).filter_map(|case| case["nodes"].as_u64()).max();
    let nodes = nodes.unwrap_or(1);
    let mut text = format!(
        "## A node's step\n\n\
         Features of one sample (77 inputs, 11 kernels of 49 frequencies), prediction, learning and upload of MK-OFL on one core: \
         {}, {numpy}, {} rounds, {}. numpy computes in double precision, as one would write it from the paper; this library in \
         single. Ratios say how many times faster this library is: median [least, most] over the rounds.\n\n\
         | draw | samples | steps per second | ns | share of the floor | numpy, one node, same draw | \
         numpy, one node, independent | numpy, {nodes} nodes per call, same draw |\n\
         |---|---|--:|--:|--:|--:|--:|--:|\n",
        machine["cpu"].as_str().unwrap_or("unknown"),
        rounds.len(),
        date.trim(),
    );
    for case in first {
        let (draw, batch) = (&case["draw"], &case["batch"]);
        let ours = |round: &Round, name: &str| {
            round.ours.iter().find(|case| case["draw"] == *draw && case["batch"] == *batch)?[name].as_f64()
        };
        let ratio = |draw: &Value, nodes: u64| {
            let numpy = |case: &&Value| case["draw"] == *draw && case["nodes"] == nodes;
            spread(rounds.iter().filter_map(|round| {
                Some(round.numpy.iter().find(numpy)?["ns"].as_f64()? / ours(round, "ns")?)
            }))
        };
        let ns = median(rounds.iter().filter_map(|round| ours(round, "ns")));
        let shares = rounds.iter().filter_map(|round| Some(ours(round, "floor_ns")? / ours(round, "ns")?));
        let share = median(shares);
        let way = if *batch == 1 { "one at a time".to_owned() } else { format!("in batches of {batch}") };
        text += &format!(
            "| {} | {way} | {:.0} | {ns:.0} | {share:.2} | {} | {} | {} |\n",
            draw.as_str().unwrap_or("unknown"),
            1e9 / ns,
            ratio(draw, 1),
            ratio(&"independent".into(), 1),
            ratio(draw, nodes),
        );
    }
    text += &format!(
        "\nThe floor is what the step's arithmetic takes at the core's measured {:.0} Gflop/s plus its sines and cosines at {:.2} ns \
         a pair, or what its memory traffic takes at {:.0} GB/s from the second cache, whichever is longer.\n",
        rate("gflops"),
        rate("ns_per_sin_cos"),
        rate("gbytes"),
    );
    Ok(text)
}

/// Median, least and most, or a dash if there is nothing.
fn spread(values: impl Iterator<Item = f64> + Clone) -> String {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.clone().fold(0.0, f64::max);
    let median = median(values);
    if median.is_nan() { "–".to_owned() } else { format!("{median:.1} [{least:.1}, {most:.1}]") }
}

/// Not a number, if there is nothing.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    (at(values.len().saturating_sub(1) / 2) + at(values.len() / 2)) / 2.0
}

/// The document with the text between its marks replaced, or put at the end.
fn with_section(document: &str, section: &str) -> Result<String> {
    let marked = format!("{BEGIN}\n{section}{END}");
    match (document.find(BEGIN), document.find(END)) {
        (None, None) => Ok(format!("{}\n\n{marked}\n", document.trim_end())),
        (Some(begin), Some(end)) if begin < end => {
            Ok(format!("{}{marked}{}", &document[..begin], &document[end + END.len()..]))
        }
        _ => bail!("BENCHMARKS.md needs {BEGIN} and {END} once each and in this order, or neither"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_marked_section_changes() {
        let first = with_section("# Head\n", "one\n").unwrap();
        assert_eq!(first, format!("# Head\n\n{BEGIN}\none\n{END}\n"));
        let second = with_section(&format!("{first}\n## Other\n"), "two\n").unwrap();
        assert_eq!(second, format!("# Head\n\n{BEGIN}\ntwo\n{END}\n\n## Other\n"));
        assert!(with_section(&format!("{END}{BEGIN}"), "three").is_err());
    }

    #[test]
    fn spreads_show_median_least_and_most() {
        assert_eq!(spread([3.0, 1.0, 2.0, 5.0].into_iter()), "2.5 [1.0, 5.0]");
        assert_eq!(spread([].into_iter()), "–");
    }
}
