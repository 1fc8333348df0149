//! `cargo xtask bench`: node steps of this library and of plain numpy. They run in turns, so that
//! their ratio is meaningful on a shared machine.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{executable, output, root};

const MARK: &str = "node-step";
const HEAD: &str = "\
# Benchmarks

Measured on one core by `cargo xtask bench --write`, which replaces the marked section below.
Machines are shared and differ: compare only ratios between programs that ran in turns on the same
core.
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
                    options.rounds = rounds
                        .with_context(|| format!("--rounds {number:?}: at least 1 is needed"))?;
                }
                _ => bail!("`bench` takes --rounds N and --write, and no {word:?}"),
            }
        }
        Ok(options)
    }
}

/// The output of one turn of each program: a JSON object per case.
struct Round {
    ours: Vec<Value>,
    threads: Vec<Value>,
    numpy: Vec<Value>,
}

/// The keys that identify a case.
const CASE: [&str; 5] = ["kernels", "frequencies", "inputs", "draw", "batch"];

/// A number of the same case in a list.
fn of_case(list: &[Value], case: &Value, name: &str) -> Option<f64> {
    list.iter().find(|other| CASE.iter().all(|key| other[key] == case[key]))?[name].as_f64()
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let binary =
        executable("bench --package hedgerow --features probe --bench node_step --no-run")?;
    let python = python_with_numpy()
        .inspect_err(|error| eprintln!("continuing without numpy and its ratios: {error:#}"))
        .ok();
    let mut rounds = Vec::new();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        let ours = measure(&binary, None, true)?;
        let numpy = match &python {
            Some((python, _)) => measure(python, Some("crates/xtask/bench/node_step.py"), true)?,
            None => Vec::new(),
        };
        let threads = measure(&binary, Some("threads"), false)?;
        rounds.push(Round { ours, threads, numpy });
    }
    let numpy = python.map_or("no numpy".to_owned(), |(_, version)| format!("numpy {version}"));
    let section = section(&rounds, &numpy)?;
    println!("{section}");
    if options.write {
        let file = root().join("BENCHMARKS.md");
        let document = if file.exists() { fs::read_to_string(&file)? } else { HEAD.to_owned() };
        fs::write(&file, with_section(&document, MARK, &section)?)?;
    }
    Ok(())
}

/// A Python environment with numpy, made at the first run, and numpy's version.
fn python_with_numpy() -> Result<(PathBuf, String)> {
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into());
    let folder = root().join(target).join("bench-venv");
    let python = folder.join("bin/python");
    if !folder.join("numpy-installed").exists() {
        eprintln!("making a Python environment with numpy for the comparison");
        output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))
            .context("python3 with its venv module is needed")?;
        output(Command::new(&python).args(["-m", "pip", "install", "--quiet", "numpy"]))
            .context("numpy can't be installed; is there a network?")?;
        fs::write(folder.join("numpy-installed"), "")?;
    }
    let version =
        output(Command::new(&python).args(["-c", "import numpy; print(numpy.__version__)"]))?;
    Ok((python, version.trim().to_owned()))
}

/// Runs a program, on one core if requested and possible, and parses the cases that it prints.
fn measure(program: &Path, argument: Option<&str>, on_one_core: bool) -> Result<Vec<Value>> {
    let pin = ["-c", "0"];
    let can_pin = on_one_core
        && Command::new("taskset")
            .args(pin)
            .arg("true")
            .status()
            .is_ok_and(|status| status.success());
    let mut command = Command::new(if can_pin { Path::new("taskset") } else { program });
    if can_pin {
        command.args(pin).arg(program);
    }
    command.args(argument).current_dir(root());
    let lines = output(command.envs([("OPENBLAS_NUM_THREADS", "1"), ("OMP_NUM_THREADS", "1")]))?;
    lines.lines().map(|line| serde_json::from_str(line).context(line.to_owned())).collect()
}

fn section(rounds: &[Round], numpy: &str) -> Result<String> {
    let cases = &rounds.first().context("no round")?.ours;
    let machine = cases.first().context("the benchmark printed nothing")?;
    let date = output(Command::new("date").args(["-u", "+%F"]))?;
    let mut text = format!(
        "## A node's step\n\n\
         Features of one sample (d inputs, P kernels of D frequencies), prediction, learning and\n\
         upload of MK-OFL: {}, {} rounds, {}. Medians over the rounds, one core. Two threads:\n\
         steps per second of two nodes as a multiple of one node's, and in brackets the same for\n\
         multiplications that touch no memory, which is what two cores can give.\n\n\
         | P, D, d | draw | samples | steps per second | ns | floor, ns | share of the floor \
         | two threads |\n\
         |---|---|---|--:|--:|--:|--:|--:|\n",
        machine["cpu"].as_str().unwrap_or("unknown"),
        rounds.len(),
        date.trim(),
    );
    for case in cases {
        let ours =
            |name: &str| median(rounds.iter().filter_map(|round| of_case(&round.ours, case, name)));
        let both = rounds.iter().map(|round| {
            Some(of_case(&round.ours, case, "floor_ns")? / of_case(&round.ours, case, "ns")?)
        });
        let of_threads =
            |name| median(rounds.iter().filter_map(|round| of_case(&round.threads, case, name)));
        let (threads, spinning) = (of_threads("speedup"), of_threads("speedup_of_spinning"));
        text += &format!(
            "| {}, {}, {} | {} | {} | {:.0} | {:.0} | {:.0} | {:.2} | {} |\n",
            case["kernels"],
            case["frequencies"],
            case["inputs"],
            name_of(&case["draw"]),
            way(case),
            1e9 / ours("ns"),
            ours("ns"),
            ours("floor_ns"),
            median(both.flatten()),
            if threads.is_nan() {
                "–".to_owned()
            } else {
                format!("{threads:.2} ({spinning:.2})")
            },
        );
    }
    let rate =
        |name: &str| median(rounds.iter().filter_map(|round| round.ours.first()?[name].as_f64()));
    text += &format!(
        "\nThe floor is the sum of the least time of each phase, since each needs the one before.\n\
         Projection: its multiply-adds at the core's measured {:.1} per ns, or reading the\n\
         frequencies (once per batch) at the rate of a loop that only reads as much memory as the\n\
         step uses, whichever takes longer. Sines and cosines: {:.2} ns a pair. Learning: four\n\
         multiply-adds for each number of the models, or loading features and models, or storing\n\
         models. The global prediction, and one exponential ({:.1} ns) for each kernel whose\n\
         weight still matters.\n\n",
        rate("mul_adds_per_ns"),
        rate("ns_per_sin_cos"),
        rate("ns_per_exp"),
    );
    Ok(text + &beside_numpy(rounds, cases, numpy))
}

/// Ratios for the shape that numpy computes too.
fn beside_numpy(rounds: &[Round], cases: &[Value], numpy: &str) -> String {
    let nodes = rounds
        .iter()
        .flat_map(|round| &round.numpy)
        .filter_map(|case| case["nodes"].as_u64())
        .max();
    let nodes = nodes.unwrap_or(1);
    let mut text = format!(
        "Beside {numpy}, in turns on the same core, P = 11, D = 49, d = 77. numpy computes in\n\
         double precision, as one would write it from the paper; this library in single precision. How\n\
         many times faster this library is: median [least, most] over the rounds.\n\n\
         | draw | samples | one node, same draw | one node, independent \
         | {nodes} nodes per call, same draw |\n\
         |---|---|--:|--:|--:|\n"
    );
    let shape = |case: &&Value| {
        (&case["kernels"], &case["frequencies"], &case["inputs"])
            == (&11.into(), &49.into(), &77.into())
    };
    for case in cases.iter().filter(shape) {
        let ratio = |draw: &Value, nodes: u64| {
            let numpy = |case: &&Value| case["draw"] == *draw && case["nodes"] == nodes;
            spread(rounds.iter().filter_map(|round| {
                Some(
                    round.numpy.iter().find(numpy)?["ns"].as_f64()?
                        / of_case(&round.ours, case, "ns")?,
                )
            }))
        };
        text += &format!(
            "| {} | {} | {} | {} | {} |\n",
            name_of(&case["draw"]),
            way(case),
            ratio(&case["draw"], 1),
            ratio(&"independent".into(), 1),
            ratio(&case["draw"], nodes),
        );
    }
    text
}

fn name_of(draw: &Value) -> &str {
    draw.as_str().unwrap_or("unknown")
}

fn way(case: &Value) -> String {
    let batch = &case["batch"];
    if *batch == 1 { "one at a time".to_owned() } else { format!("in batches of {batch}") }
}

/// Median, least and most, or a dash without values.
fn spread(values: impl Iterator<Item = f64> + Clone) -> String {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.clone().fold(0.0, f64::max);
    let median = median(values);
    if median.is_nan() { "–".to_owned() } else { format!("{median:.1} [{least:.1}, {most:.1}]") }
}

/// NaN without values.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    (at(values.len().saturating_sub(1) / 2) + at(values.len() / 2)) / 2.0
}

/// The document with the text between the marks of this name replaced, or appended.
pub(crate) fn with_section(document: &str, name: &str, section: &str) -> Result<String> {
    let (first, last) = (format!("<!-- {name}:begin -->"), format!("<!-- {name}:end -->"));
    let marked = format!("{first}\n{section}{last}");
    match (document.find(&first), document.find(&last)) {
        (None, None) => Ok(format!("{}\n\n{marked}\n", document.trim_end())),
        (Some(begin), Some(end)) if begin < end => {
            Ok(format!("{}{marked}{}", &document[..begin], &document[end + last.len()..]))
        }
        _ => {
            bail!("BENCHMARKS.md needs {first} and {last} once each and in this order, or neither")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_marked_section_changes() {
        let (begin, end) = ("<!-- here:begin -->", "<!-- here:end -->");
        let first = with_section("# Head\n", "here", "one\n").unwrap();
        assert_eq!(first, format!("# Head\n\n{begin}\none\n{end}\n"));
        let second = with_section(&format!("{first}\n## Other\n"), "here", "two\n").unwrap();
        assert_eq!(second, format!("# Head\n\n{begin}\ntwo\n{end}\n\n## Other\n"));
        assert!(with_section(&format!("{end}{begin}"), "here", "three").is_err());
    }

    #[test]
    fn spreads_show_median_least_and_most() {
        assert_eq!(spread([3.0, 1.0, 2.0, 5.0].into_iter()), "2.5 [1.0, 5.0]");
        assert_eq!(spread([].into_iter()), "–");
    }
}
