//! `hedgerow simulate`: a federation in one process, and what it learned.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hedgerow_data::Dataset;
use hedgerow_data::builtin::Builtin;
use hedgerow_data::samples::SampleStream;
use hedgerow_data::stdin::end_standard_input;
use hedgerow_lab::live;
use hedgerow_lab::memory::gigabytes;
use hedgerow_lab::output::{OutputError, OutputFolder, summary_json};
use hedgerow_lab::results::Results;
use hedgerow_lab::run::{self, Experiment, RunError};
use hedgerow_lab::settings::{Override, Scaling, Settings, SettingsError, Source};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::table;

/// Run a federation on this machine and show what it learned.
///
/// Without a file and flags it runs on a built-in stream. Nodes see their samples one by one; each
/// prediction is scored before its label is learned. Results go to a folder: summary.json,
/// curves.csv, figures and report.html, which opens in a browser without a network.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true, after_help = after_help())]
pub(crate) struct Arguments {
    /// Settings that differ from the defaults
    #[arg(value_name = "EXPERIMENT.toml")]
    file: Option<PathBuf>,
    /// Built-in stream, data set by name (see `hedgerow data list`), file, folder, or - for
    /// standard input, read live
    #[arg(long, value_name = "NAME|FILE|-")]
    data: Option<String>,
    /// Folder with data sets, to be looked into first
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    #[command(flatten)]
    columns: ColumnFlags,
    /// What makes numbers of the order of one: none, online, online-range, whole-file,
    /// whole-file-joint, auto, or known ranges
    #[arg(long, value_name = "KIND|FILE.toml")]
    scaling: Option<String>,
    /// What to run: gr, mk, sk, naive, emk, pof, fedpoe, linear, linear-newton, central,
    /// central-batch, local, hindsight, last, mean, mk:OPTION; with /q8 and the like for fewer
    /// bytes, +personal for a layer of the nodes' own (see `hedgerow config`)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    method: Option<Vec<String>>,
    /// Number of nodes, K; 20, or as many as the data names
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
    /// Who sees what: round-robin, shuffled, blocks, sorted-label, sorted-direction,
    /// dirichlet:ALPHA, unequal:ALPHA, column:NAME
    #[arg(long, value_name = "KIND")]
    partition: Option<String>,
    /// Share of node-rounds without contact to the server
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    dropout: Option<f64>,
    /// Threads; 0 is one per core. Results don't depend on it
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<i64>,
    /// Gigabytes of memory that the run may take; what the machine has left by default. A run that
    /// needs more is refused
    #[arg(long, value_name = "GB", allow_negative_numbers = true)]
    memory_limit: Option<f64>,
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

/// What the columns of a file mean.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Columns of a file")]
struct ColumnFlags {
    /// Column to predict; the last one by default. Several (a,b) are several series, one node each
    #[arg(long, value_name = "COLUMN")]
    target: Option<String>,
    /// Columns to predict from; all others by default, - for none
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    features: Option<Vec<String>>,
    /// Columns to leave out
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    drop: Option<Vec<String>>,
    /// Column of the time; several are joined (Date+Time)
    #[arg(long, value_name = "COLUMN")]
    time: Option<String>,
    /// Column that says whose sample it is; @file makes every file a node
    #[arg(long, value_name = "COLUMN")]
    node: Option<String>,
    /// What stands for a missing value, besides an empty cell
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true)]
    missing: Option<Vec<String>>,
    /// Columns with text: refuse, one-hot, hashed:N
    #[arg(long, value_name = "KIND")]
    categories: Option<String>,
    /// Past labels among the features: AR(s)
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    lags: Option<i64>,
    /// Steps ahead to predict
    #[arg(long, value_name = "H", allow_negative_numbers = true)]
    horizon: Option<i64>,
}

/// Bytes of memory from which on a run says what it will take.
const WORTH_TELLING: f64 = 1e9;

pub(crate) fn simulate(arguments: &Arguments) -> anyhow::Result<()> {
    // Whatever can go wrong should do so before the work, not after it.
    let settings = Settings::load(arguments.file.as_deref(), &arguments.overrides()?)?;
    let talks = !arguments.quiet && !arguments.json;
    let (folder, results, because) = match &settings.data.source {
        Source::Files { files, .. } if files.iter().any(|file| file == Path::new("-")) => {
            live::check(&settings)?;
            let stream =
                SampleStream::open(files, &settings.data.columns).map_err(RunError::from)?;
            let folder = OutputFolder::prepare(&settings.out, hedgerow_report::run::FILES)?;
            let ended = learn_live(&settings, stream, talks)?;
            (folder, ended.results, ended.because)
        }
        source => {
            let bytes = bytes_bar(source, talks);
            let data = run::load_data(&settings, &|read| bytes.set_position(read));
            bytes.finish_and_clear();
            let data = data?;
            let experiment = Experiment::new(&settings, &data)?;
            let bar = progress_bar(experiment.steps(), talks);
            tell_when_interrupted(&bar);
            let folder = OutputFolder::prepare(&settings.out, hedgerow_report::run::FILES)?;
            if talks && let Some(note) = scale_note(&settings, &data) {
                eprintln!("{note}");
            }
            let memory = experiment.memory().total();
            if talks && memory >= WORTH_TELLING {
                eprintln!("needs about {} of memory", gigabytes(memory));
            }
            let results = experiment.run(&|| bar.inc(1));
            bar.finish_and_clear();
            (folder, Results { memory_bytes: Some(memory as u64), ..results? }, None)
        }
    };
    folder.write(&hedgerow_report::run::files(&results)?)?;
    if arguments.json {
        print(&summary_json(&results)?)?;
    } else if !arguments.quiet {
        let report = folder.path().join("report.html");
        print(&format!("{}\nReport: {}\n", table::render(&results), report.display()))?;
    }
    because.map_or(Ok(()), |error| Err(error.into()))
}

/// Says what an interruption costs: errors are means over all trials, of which half a run has none.
fn tell_when_interrupted(bar: &ProgressBar) {
    let bar = bar.clone();
    // Without a handler an interruption ends the program, as it always does.
    _ = ctrlc::set_handler(move || {
        bar.finish_and_clear();
        eprintln!("interrupted: results are written at the end alone");
        std::process::exit(130);
    });
}

/// Learns as samples come; shows how it is doing, and ends where the stream does, or when the user
/// has seen enough.
fn learn_live(
    settings: &Settings,
    stream: SampleStream,
    talks: bool,
) -> Result<live::Ended, RunError> {
    let mut was_interrupted = false;
    // Without a handler an interruption ends the program, as it always does.
    _ = ctrlc::set_handler(move || {
        if was_interrupted {
            std::process::exit(130);
        }
        was_interrupted = true;
        end_standard_input();
    });
    let shows = talks && std::io::stderr().is_terminal();
    let line = ProgressBar::with_draw_target(None, draw_target(shows));
    let style = ProgressStyle::with_template("{spinner} {elapsed}  {wide_msg}");
    line.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    line.set_message("waiting for samples (Ctrl-C ends the stream and writes the results)");
    line.enable_steady_tick(Duration::from_millis(200));
    let mut told = Instant::now();
    let results = live::run(settings, stream, |progress| {
        if shows && told.elapsed() >= Duration::from_millis(200) {
            told = Instant::now();
            let now = progress();
            let known = now.mse.iter().filter(|(_, mse)| mse.is_finite());
            let errors = known.map(|(name, mse)| format!("{name} {}", table::significant(*mse)));
            let errors = errors.collect::<Vec<_>>().join("  ");
            line.set_message(format!(
                "round {}, {} samples, MSE so far: {errors}",
                now.round, now.samples
            ));
        }
        true
    });
    line.finish_and_clear();
    results
}

/// What to tell someone whose numbers are not as kernels and rates need them, and who wanted
/// nothing done about it.
fn scale_note(settings: &Settings, data: &Dataset) -> Option<String> {
    (settings.scaling == Scaling::None && !data.is_of_order_one).then(|| {
        "note: kernels and rates are made for numbers of the order of one, and these are not: try --scaling online".to_owned()
    })
}

/// To standard output; a reader that has seen enough is no error.
pub(crate) fn print(text: &str) -> Result<(), OutputError> {
    let written = std::io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .and_then(|()| std::io::stdout().flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(OutputError::Unwritable { path: "standard output".into(), source: error })
        }
        _ => Ok(()),
    }
}

fn after_help() -> String {
    let streams =
        Builtin::ALL.map(|stream| format!("  {:<15} {}\n", stream.name(), stream.describe()));
    format!("Built-in streams:\n{}\n{EXAMPLES}", streams.concat())
}

const EXAMPLES: &str = "\
Examples:
  hedgerow simulate
  hedgerow simulate --data drift --method mk,sk --rounds 2000
  hedgerow simulate --data house.csv.gz --target price --nodes 50
  hedgerow simulate --data series.csv --lags 5
  hedgerow simulate --data fleet/ --partition column:@file --scaling online
  hedgerow simulate --data beijing --data-dir ~/data
  tail -f log.csv | hedgerow simulate --data - --target load
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
        let columns = &self.columns;
        flag("data-dir", "data.dir", self.data_dir.clone().map(Into::into));
        flag("target", "data.target", columns.target.clone().map(Into::into));
        flag("features", "data.features", columns.features.clone().map(Into::into));
        flag("drop", "data.drop", columns.drop.clone().map(Into::into));
        flag("time", "data.time", columns.time.clone().map(Into::into));
        flag("node", "data.node", columns.node.clone().map(Into::into));
        flag("missing", "data.missing", columns.missing.clone().map(Into::into));
        flag("categories", "data.categories", columns.categories.clone().map(Into::into));
        flag("lags", "data.lags", columns.lags.map(Into::into));
        flag("horizon", "data.horizon", columns.horizon.map(Into::into));
        flag("scaling", "data.scaling", self.scaling.clone().map(Into::into));
        flag("method", "federation.methods", self.method.clone().map(Into::into));
        flag("nodes", "federation.nodes", self.nodes.map(Into::into));
        flag("budget", "federation.budget", self.budget.map(Into::into));
        flag("partition", "federation.partition", self.partition.clone().map(Into::into));
        flag("trials", "run.trials", self.trials.map(Into::into));
        flag("rounds", "run.rounds", self.rounds.map(Into::into));
        flag("seed", "run.seed", self.seed.map(Into::into));
        flag("threads", "run.threads", self.threads.map(Into::into));
        flag("memory-limit", "run.memory_limit", self.memory_limit.map(Into::into));
        flag("out", "run.out", self.out.clone().map(Into::into));
        flag("dropout", "participation.dropout", self.dropout.map(Into::into));
        for change in &self.changes {
            all.push(Override::parse(change)?);
        }
        Ok(all)
    }
}

/// A bar with an estimate of the time left; invisible where nobody watches.
pub(crate) fn progress_bar(steps: u64, wanted: bool) -> ProgressBar {
    let visible = wanted && std::io::stderr().is_terminal();
    let bar = ProgressBar::with_draw_target(Some(steps), draw_target(visible));
    let style =
        ProgressStyle::with_template("{bar:40} {percent:>3}%  {elapsed} gone, {eta} left  {msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The same while files are read.
pub(crate) fn bytes_bar(source: &Source, wanted: bool) -> ProgressBar {
    let bytes = match source {
        Source::Builtin(_) => 0,
        Source::Files { files, .. } => {
            files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
        }
    };
    let visible = wanted && bytes > 0 && std::io::stderr().is_terminal();
    let bar = ProgressBar::with_draw_target(Some(bytes), draw_target(visible));
    let style = ProgressStyle::with_template("{bar:40} {percent:>3}%  reading, {eta} left");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

pub(crate) fn draw_target(visible: bool) -> ProgressDrawTarget {
    if visible { ProgressDrawTarget::stderr_with_hz(8) } else { ProgressDrawTarget::hidden() }
}
