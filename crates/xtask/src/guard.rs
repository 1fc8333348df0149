//! `cargo xtask guard`: instructions of the hot path, counted under callgrind and compared with a
//! committed baseline. Unlike times, counts don't depend on how busy the machine is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::{executable, output, root};

const BASELINE: &str = "crates/xtask/bench/instructions.json";
/// Debian's package, and a file of it.
pub(crate) const VALGRIND: (&str, &str) = ("valgrind", "/usr/bin/valgrind");
/// The largest instruction set that valgrind supports.
const CPU: &str = "AVX2";
/// A difference of more than one part in this many fails: more is a regression, less is an
/// improvement whose counts have to be committed.
const PARTS: u64 = 20;
/// Repetitions of the work in two runs. Their difference excludes start-up.
const TIMES: [u64; 2] = [10, 60];

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Baseline {
    /// Counts depend on the compiler.
    rustc: String,
    /// Instructions of one repetition, by case.
    instructions: BTreeMap<String, u64>,
}

pub(crate) fn run(write: bool) -> Result<()> {
    println!("\n== instructions of the hot path");
    if !Path::new(VALGRIND.1).exists() {
        println!("not counted: there is no {}", VALGRIND.1);
        return Ok(());
    }
    let arguments = "build --release --package hedgerow --example hot_path";
    let program = executable(arguments)?;
    let mut instructions = BTreeMap::new();
    for case in output(&mut Command::new(&program))?.lines() {
        let [few, many] = TIMES;
        let (Some(less), Some(more)) = (count(&program, case, few)?, count(&program, case, many)?)
        else {
            println!("not counted: this processor has no {CPU}");
            return Ok(());
        };
        instructions.insert(case.to_owned(), more.saturating_sub(less) / (many - few));
    }
    let now = Baseline { rustc: rustc()?, instructions };
    let file = root().join(BASELINE);
    if write {
        fs::write(&file, format!("{}\n", serde_json::to_string_pretty(&now)?))?;
        println!("{BASELINE} is written");
        return Ok(());
    }
    let text = fs::read_to_string(&file).with_context(|| format!("{BASELINE}: can't be read"))?;
    let then: Baseline = serde_json::from_str(&text).with_context(|| BASELINE.to_owned())?;
    let verdict = compare(&then, &now);
    verdict.lines.iter().for_each(|line| println!("{line}"));
    if then.rustc != now.rustc {
        println!(
            "only a warning: the baseline was counted with {}, this is {}",
            then.rustc, now.rustc
        );
        return Ok(());
    }
    ensure!(
        !verdict.worse,
        "the hot path needs more instructions than {BASELINE} allows; if that is justified, run \
         `cargo xtask guard --write`"
    );
    ensure!(
        !verdict.better,
        "the hot path needs fewer instructions than {BASELINE} says: run \
         `cargo xtask guard --write` and commit the file"
    );
    Ok(())
}

/// Instructions of a whole run. `None` if it didn't use the baseline's instruction set.
fn count(program: &PathBuf, case: &str, times: u64) -> Result<Option<u64>> {
    let mut command = Command::new(VALGRIND.1);
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    let run = command.args([case, &times.to_string()]).output().context("can't run valgrind")?;
    let report = String::from_utf8_lossy(&run.stderr);
    ensure!(run.status.success(), "{case}: valgrind ended with {}\n{report}", run.status);
    if String::from_utf8_lossy(&run.stdout).trim() != CPU {
        return Ok(None);
    }
    let collected = report.lines().find_map(|line| line.split_once("Collected :"));
    let Some((_, number)) = collected else {
        bail!("{case}: callgrind reported no count\n{report}")
    };
    Ok(Some(
        number.trim().parse().with_context(|| format!("{case}: callgrind's count {number:?}"))?,
    ))
}

fn rustc() -> Result<String> {
    Ok(output(Command::new("rustc").arg("--version").current_dir(root()))?.trim().to_owned())
}

struct Verdict {
    lines: Vec<String>,
    worse: bool,
    better: bool,
}

fn compare(then: &Baseline, now: &Baseline) -> Verdict {
    let mut verdict = Verdict { lines: Vec::new(), worse: false, better: false };
    let names: std::collections::BTreeSet<_> =
        then.instructions.keys().chain(now.instructions.keys()).collect();
    for name in names {
        let (before, after) = (then.instructions.get(name), now.instructions.get(name));
        let line = match (before, after) {
            (Some(&before), Some(&after)) => {
                verdict.worse |= PARTS * after > (PARTS + 1) * before;
                verdict.better |= PARTS * after < (PARTS - 1) * before;
                let change = after as f64 / before as f64 - 1.0;
                format!("{name}: {after}, {:+.1}% of {before}", 100.0 * change)
            }
            _ => {
                verdict.worse = true;
                format!("{name}: only {}", if after.is_some() { "here" } else { "in the baseline" })
            }
        };
        verdict.lines.push(line);
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(counts: &[(&str, u64)]) -> Baseline {
        let instructions =
            counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        Baseline { rustc: "rustc 1".to_owned(), instructions }
    }

    #[test]
    fn more_than_a_twentieth_counts_either_way() {
        let then = counts(&[("map", 1000), ("learn", 2000)]);
        let judged = |map: u64, learn: u64| {
            let verdict = compare(&then, &counts(&[("map", map), ("learn", learn)]));
            (verdict.worse, verdict.better)
        };
        assert_eq!(judged(1050, 1900), (false, false));
        assert_eq!(judged(1051, 2000), (true, false));
        assert_eq!(judged(1000, 1899), (false, true));
        assert_eq!(judged(1100, 1000), (true, true));
    }

    #[test]
    fn a_case_that_one_side_lacks_is_a_failure() {
        let (one, two) = (counts(&[("map", 1)]), counts(&[("map", 1), ("learn", 2)]));
        assert!(
            compare(&one, &two).worse && compare(&two, &one).worse && !compare(&one, &one).worse
        );
    }
}
