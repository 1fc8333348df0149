//! `hedgerow simulate`: a federation in one process, and what it learned.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::PathBuf;

use hedgerow_lab::data::Dataset;
use hedgerow_lab::data::builtin::Builtin;
use hedgerow_lab::output::{OutputError, OutputFolder, summary_json};
use hedgerow_lab::run::{self, Experiment};
use hedgerow_lab::settings::{Override, Settings, SettingsError};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::table;

/// Run a federation on this machine and show what it learned.
///
/// Without a file and flags it runs on a built-in stream. Nodes see their samples one by one; each prediction is scored before
/// its label is learned. Results go to a folder: summary.json, curves.csv, figures and report.html, which opens in a
/// browser without a network.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true, after_help = after_help())]
pub(crate) struct Arguments {
    /// Settings that differ from the defaults
    #[arg(value_name = "EXPERIMENT.toml")]
    file: Option<PathBuf>,
    /// Built-in stream (friedman, mackey-glass, narma, drift, slices, rings) or CSV file
    #[arg(long, value_name = "NAME|FILE")]
    data: Option<String>,
    /// Column to predict; the last one by default
    #[arg(long, value_name = "COLUMN")]
    target: Option<String>,
    /// What to run: mk, sk, naive, central, central-batch, local, hindsight
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    method: Option<Vec<String>>,
    /// Number of nodes, K
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    nodes: Option<i64>,
    /// Numbers per message, r
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    budget: Option<i64>,
    /// Repetitions with fresh random features
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    trials: Option<i64>,
    /// Rounds, T; 0 is 500 for a built-in stream and all of a file
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    rounds: Option<i64>,
    /// Where everything random begins
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    seed: Option<i64>,
    /// Who sees what: round-robin, shuffled, blocks, sorted-label, sorted-direction, dirichlet:ALPHA
    #[arg(long, value_name = "KIND")]
    partition: Option<String>,
    /// Share of node-rounds without contact to the server
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    dropout: Option<f64>,
    /// Threads; 0 is one per core. Results don't depend on it
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<i64>,
    /// Folder for the results
    #[arg(long, value_name = "DIR")]
    out: Option<String>,
    /// Any other setting, such as learning.ridge=0.001; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
    /// Print the summary as JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn simulate(arguments: &Arguments) -> anyhow::Result<()> {
    // Whatever can go wrong should do so before the work, not after it.
    let settings = Settings::load(arguments.file.as_deref(), &arguments.overrides()?)?;
    let data = run::load_data(&settings)?;
    let experiment = Experiment::new(&settings, &data)?;
    let folder = OutputFolder::prepare(&settings.out)?;
    let talks = !arguments.quiet && !arguments.json;
    if talks && let Some(note) = scale_note(&data) {
        eprintln!("{note}");
    }
    let bar = progress_bar(experiment.steps(), talks);
    let results = experiment.run(&|| bar.inc(1));
    bar.finish_and_clear();
    let results = results?;
    folder.write(&results)?;
    if arguments.json {
        print(&summary_json(&results)?)?;
    } else if !arguments.quiet {
        let report = folder.path().join("report.html");
        print(&format!("{}\nReport: {}\n", table::render(&results), report.display()))?;
    }
    Ok(())
}

/// What to tell someone whose numbers are far from the order of one.
fn scale_note(data: &Dataset) -> Option<String> {
    let largest = |numbers: &[f32]| numbers.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let (x, y) = (largest(&data.x), largest(&data.y));
    let far = |size: f32| size > 100.0 || (size > 0.0 && size < 1e-3);
    (far(x) || far(y)).then(|| {
        format!("note: inputs reach {x:.3e} and labels {y:.3e}; kernels and rates are made for numbers of the order of one: scale the columns first")
    })
}

/// To standard output; a reader that has seen enough is no error.
pub(crate) fn print(text: &str) -> Result<(), OutputError> {
    let written =
        std::io::stdout().lock().write_all(text.as_bytes()).and_then(|()| std::io::stdout().flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(OutputError::Unwritable { path: "standard output".into(), source: error })
        }
        _ => Ok(()),
    }
}

fn after_help() -> String {
    let streams = Builtin::ALL.map(|stream| format!("  {:<13} {}\n", stream.name(), stream.describe()));
    format!("Built-in streams:\n{}\n{EXAMPLES}", streams.concat())
}

const EXAMPLES: &str = "\
Examples:
  hedgerow simulate
  hedgerow simulate --data drift --method mk,sk --rounds 2000
  hedgerow simulate --data house.csv.gz --target price --nodes 50
  hedgerow simulate --data series.csv --set data.lags=5
  hedgerow simulate --dropout 0.3 --set participation.late=0.1
  hedgerow simulate my.toml --json

`hedgerow config` prints every setting with its default.";

impl Arguments {
    /// Flags as changes to the settings; `--set` comes last and wins.
    fn overrides(&self) -> Result<Vec<Override>, SettingsError> {
        let mut all = Vec::new();
        let mut flag = |name: &str, key: &str, value: Option<toml::Value>| {
            if let Some(value) = value {
                all.push(Override { key: key.to_owned(), value, origin: format!("--{name}") });
            }
        };
        flag("data", "data.name", self.data.clone().map(Into::into));
        flag("target", "data.target", self.target.clone().map(Into::into));
        flag("method", "federation.methods", self.method.clone().map(Into::into));
        flag("nodes", "federation.nodes", self.nodes.map(Into::into));
        flag("budget", "federation.budget", self.budget.map(Into::into));
        flag("partition", "federation.partition", self.partition.clone().map(Into::into));
        flag("trials", "run.trials", self.trials.map(Into::into));
        flag("rounds", "run.rounds", self.rounds.map(Into::into));
        flag("seed", "run.seed", self.seed.map(Into::into));
        flag("threads", "run.threads", self.threads.map(Into::into));
        flag("out", "run.out", self.out.clone().map(Into::into));
        flag("dropout", "participation.dropout", self.dropout.map(Into::into));
        for change in &self.changes {
            all.push(Override::parse(change)?);
        }
        Ok(all)
    }
}

/// A bar with an estimate of the time left; invisible where nobody watches.
fn progress_bar(steps: u64, wanted: bool) -> ProgressBar {
    let visible = wanted && std::io::stderr().is_terminal();
    let bar = ProgressBar::with_draw_target(
        Some(steps),
        match visible {
            true => ProgressDrawTarget::stderr_with_hz(8),
            false => ProgressDrawTarget::hidden(),
        },
    );
    let style = ProgressStyle::with_template("{bar:40} {percent:>3}%  {elapsed} gone, {eta} left");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
