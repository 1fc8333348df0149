//! `hedgerow compare`: the best method on a stream, its significance, and its message size.

use std::path::{Path, PathBuf};

use hedgerow_config::ConfigError;
use hedgerow_config::flags::{Flag, FlagSet, SettingFlags};
use hedgerow_lab::compare::{Grid, GridConfig};
use hedgerow_lab::output::OutputFolder;
use hedgerow_report::compare;
use serde_json::json;

use crate::flags;
use crate::reproduce::{complete, tell_state, write_all};
use crate::terminal::{print, print_json, steps_bar};

/// Compare methods on a stream, or on a grid of data sets and partitions.
///
/// Ranks the methods by their mean error with 95% intervals over trials, tests them trial by trial
/// against the best, shows what each sends, and says in a sentence or two what to choose. With
/// several data sets or partitions every combination is run, and stored as it finishes: after an
/// interruption the same command goes on where it was.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A grid: data, partitions, against, [[variants]] with a name and settings of their own, and
    /// [settings] that differ from the defaults
    #[arg(value_name = "GRID.toml")]
    file: Option<PathBuf>,
    /// The grid that comes with the program: nine data sets, dealt in five ways
    #[arg(long, conflicts_with = "file")]
    published: bool,
    /// Built-in streams, data sets by name (see `hedgerow data list`), files or folders, with
    /// commas between them
    #[arg(long, value_name = "NAME|FILE,...")]
    data: Option<String>,
    /// Who sees what: round-robin, shuffled, blocks, sorted-label, sorted-direction,
    /// dirichlet:ALPHA, unequal:ALPHA, column:NAME
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    partition: Option<Vec<String>>,
    /// The method whose error is 1 in the ratios of a grid, mk by default; of several the best in
    /// each run
    #[arg(long, value_name = "METHOD,...")]
    against: Option<String>,
    /// Numbers per message, r; several, with commas between them, show error against bytes
    #[arg(long, value_name = "R,...", value_delimiter = ',', allow_negative_numbers = true)]
    budget: Option<Vec<String>>,
    /// Make only a part of the runs: the N-th of M machines that share the folder (--out). The one
    /// that finds all runs there writes tables and figures
    #[arg(long, value_name = "N/M")]
    shard: Option<String>,
    #[command(flatten)]
    flags: SettingFlags<CompareFlags>,
    /// Print compare.json instead of tables
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone)]
struct CompareFlags;

impl FlagSet for CompareFlags {
    const GROUPS: &'static [&'static [Flag]] = &[
        flags::DATA_OPTIONS,
        &[
            Flag {
                help: "Methods to compare; all by default, references included",
                ..flags::METHOD
            },
            flags::NODES,
            flags::TRIALS,
            flags::ROUNDS,
            flags::INTERVAL,
            flags::SEED,
            flags::DROPOUT,
            flags::THREADS,
            flags::MEMORY_LIMIT,
            Flag {
                help: "Folder for runs, tables, figures and the page; hedgerow-compare by default",
                ..flags::OUT
            },
        ],
    ];
    const SET: &'static str = "Any other setting, such as learning.ridge=0.001; may be repeated";
}

const EXAMPLES: &str = "\
Examples:
  hedgerow compare
  hedgerow compare --data narma --partition sorted-label --trials 20
  hedgerow compare --data house.csv --target price --method gr,mk,local
  hedgerow compare --data friedman,narma --partition round-robin,sorted-label,dirichlet:0.3
  hedgerow compare --data meters.csv --target load --node meter --time when --budget 50,100,300
  hedgerow compare --published --data-dir ~/data
  hedgerow compare --published --data-dir ~/data --out /shared/grid --shard 3/8

Writes compare.md, compare.html, compare.csv, compare.json, and the figures compare and bytes as SVG (and
as PNG if built with `--features png`). Data sets of a grid that are missing are named and left out, and the exit code is 5.";

pub(crate) fn compare(arguments: &Arguments) -> anyhow::Result<()> {
    let talks = !arguments.quiet && !arguments.json;
    // Errors should appear before the work, not after it.
    let mut grid = Grid::prepare(&arguments.config()?, &arguments.flags.layers(None)?)?;
    let steps = grid.runs.steps()?;
    OutputFolder::prepare(grid.out(), &[])?;
    let missing =
        tell_state(grid.runs.missing(), grid.runs.finished(), &grid.out().join("runs"), talks);
    let bar = steps_bar(steps, talks);
    let outcome = grid.runs.run(&|name| bar.set_message(name.to_owned()), &|| bar.inc(1));
    bar.finish_and_clear();
    outcome?;
    let (done, all) = grid.runs.finished();
    if done < all {
        return tell_shard(arguments, (done, all), grid.out());
    }
    let comparison = grid.comparison();
    let texts = compare::texts(&comparison, &missing)?;
    write_all(grid.out(), &compare::figures(&comparison), &texts)?;
    if arguments.json {
        let (_, json) = &texts[1];
        print(json)?;
    } else if talks {
        let report = grid.out().join("compare.html");
        print(&format!("{}\nReport: {}\n", compare::text(&comparison), report.display()))?;
    }
    complete(missing)
}

/// Says that other machines have not finished their runs.
fn tell_shard(
    arguments: &Arguments,
    (done, all): (usize, usize),
    out: &Path,
) -> anyhow::Result<()> {
    let shard = arguments.shard.as_deref().unwrap_or_default();
    if arguments.json {
        print_json(&json!({ "shard": shard, "finished": done, "runs": all }))?;
    } else if !arguments.quiet {
        print(&format!(
            "Shard {shard} is finished. {done} of {all} runs are in {}; the shard that finds all \
             of them there writes tables and figures, and so does this command without --shard.\n",
            out.join("runs").display()
        ))?;
    }
    Ok(())
}

impl Arguments {
    /// What the file says, changed by what flags say.
    fn config(&self) -> Result<GridConfig, ConfigError> {
        let config = match &self.file {
            Some(file) => GridConfig::read(file)?,
            None if self.published => GridConfig::published()?,
            None => GridConfig::default(),
        };
        Ok(GridConfig {
            data: self.data.as_deref().map(names).or(config.data),
            partitions: self.partition.clone().or(config.partitions),
            budgets: self.budgets()?.or(config.budgets),
            against: self.against.clone().or(config.against),
            shard: self.shard.as_deref().map_or(Ok(config.shard), str::parse)?,
            ..config
        })
    }

    fn budgets(&self) -> Result<Option<Vec<i64>>, ConfigError> {
        let number = |text: &String| {
            let bound = "whole numbers between 1 and 1000000 with commas between them";
            let refused =
                |_| ConfigError::out_of_bounds("federation.budget", bound, format!("{text:?}"));
            text.trim().parse().map_err(refused)
        };
        self.budget.as_ref().map(|texts| texts.iter().map(number).collect()).transpose()
    }
}

/// Split at commas, unless there is a file with these commas in its name.
fn names(text: &str) -> Vec<String> {
    if Path::new(text).exists() {
        return vec![text.to_owned()];
    }
    text.split(',').map(str::to_owned).collect()
}
