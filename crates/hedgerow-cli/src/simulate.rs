//! `hedgerow simulate`: a federation in one process, and what it learned.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hedgerow_config::Layer;
use hedgerow_config::flags::{Flag, FlagSet, SettingFlags};
use hedgerow_data::Dataset;
use hedgerow_data::samples::SampleStream;
use hedgerow_data::stdin::end_standard_input;
use hedgerow_data::streams::STREAMS;
use hedgerow_data::text::counted;
use hedgerow_lab::live;
use hedgerow_lab::memory::gigabytes;
use hedgerow_lab::output::{OutputFolder, check_file, summary_json};
use hedgerow_lab::predictions;
use hedgerow_lab::results::Results;
use hedgerow_lab::run::{self, Experiment, RunError};
use hedgerow_lab::settings::{Scaling, Settings, Source};
use hedgerow_model::Model;
use hedgerow_node::Exit;
use hedgerow_report::terminal::{View, significant, summary};
use indicatif::ProgressBar;

use crate::terminal::{bar, print, steps_bar};
use crate::{flags, model};

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
    #[command(flatten)]
    flags: SettingFlags<SimulateFlags>,
    /// Show the paper's methods, unless --method names others, and its measures
    #[arg(long)]
    paper: bool,
    /// Print the summary as JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone)]
struct SimulateFlags;

impl FlagSet for SimulateFlags {
    const GROUPS: &'static [&'static [Flag]] = &[
        &[flags::DATA],
        flags::DATA_OPTIONS,
        &[
            flags::METHOD,
            flags::NODES,
            flags::BUDGET,
            flags::TRIALS,
            flags::ROUNDS,
            flags::INTERVAL,
            flags::SEED,
            flags::PARTITION,
            flags::DROPOUT,
            flags::THREADS,
            flags::MEMORY_LIMIT,
            flags::OUT,
            flags::PREDICTIONS,
            flags::SAVE_MODEL,
        ],
    ];
    const SET: &'static str = "Any other setting, such as learning.ridge=0.001; may be repeated";
}

/// Bytes of memory from which on a run says what it will take.
const WORTH_TELLING: f64 = 1e9;

pub(crate) fn simulate(arguments: &Arguments) -> anyhow::Result<()> {
    // Whatever can go wrong should do so before the work, not after it.
    let paper =
        arguments.paper.then(|| Layer::value("--paper", "federation.methods", vec!["paper"]));
    let layers = arguments.flags.layers(arguments.file.as_deref())?;
    let settings = Settings::load(&paper.into_iter().chain(layers).collect::<Vec<_>>())?;
    settings.save_model.iter().try_for_each(|file| Model::check_replaceable(file))?;
    settings.predictions.iter().try_for_each(|file| check_file(file))?;
    let talks = !arguments.quiet && !arguments.json;
    let (folder, mut results, data, because) = match &settings.data.source {
        Source::Files { files, .. } if settings.data.is_live() => {
            live::check(&settings)?;
            let stream =
                SampleStream::open(files, &settings.data.columns).map_err(RunError::from)?;
            let folder = OutputFolder::prepare(&settings.out, hedgerow_report::run::FILES)?;
            let ended = learn_live(&settings, stream, talks)?;
            (folder, ended.results, None, ended.because)
        }
        source => {
            let bytes = bytes_bar(source, talks);
            let data = run::load_data(&settings, &|read| bytes.set_position(read));
            bytes.finish_and_clear();
            let data = data?;
            let experiment = Experiment::new(&settings, &data)?;
            let bar = steps_bar(experiment.steps(), talks);
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
            let results = Results { memory_bytes: Some(memory as u64), ..results? };
            (folder, results, Some(data), None)
        }
    };
    folder.write(&hedgerow_report::run::files(&results)?)?;
    if let Some(path) = &settings.predictions {
        predictions::write(path, &results, data.as_ref())?;
    }
    let model = match (&settings.save_model, results.model.take()) {
        (Some(path), Some(model)) => saved(path, model)?,
        _ => String::new(),
    };
    if arguments.json {
        print(&summary_json(&results)?)?;
    } else if !arguments.quiet {
        let report = folder.path().join("report.html");
        let view = if arguments.paper { View::Paper } else { View::Plain };
        let report = report.display();
        print(&format!("{}\nReport: {report}\n{model}", summary(&results, view)))?;
    }
    because.map_or(Ok(()), |error| Err(error.into()))
}

/// Writes a model, and says what is in it.
fn saved(path: &Path, model: Model) -> anyhow::Result<String> {
    let model = model::dated(model);
    model.write(path)?;
    let nodes = counted(model.nodes().len(), "node");
    let (method, path) = (&model.card().method, path.display());
    let what = match (model.is_shared(), model.plan().has_own_layers()) {
        (true, true) => format!("the shared model and the own layers of {nodes}"),
        (true, false) => format!("the shared model and {nodes}"),
        (false, _) => nodes,
    };
    Ok(format!("Model: {path} ({method}: {what}; hedgerow predict {path} --data FILE)\n"))
}

/// Says what an interruption costs: errors are means over all trials, of which half a run has none.
fn tell_when_interrupted(bar: &ProgressBar) {
    let bar = bar.clone();
    // Without a handler an interruption ends the program, as it always does.
    _ = ctrlc::set_handler(move || {
        bar.finish_and_clear();
        eprintln!("interrupted: results are written at the end alone");
        Exit::Interrupted.now();
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
            Exit::Interrupted.now();
        }
        was_interrupted = true;
        end_standard_input();
    });
    let shows = talks && std::io::stderr().is_terminal();
    let line = bar("{spinner} {elapsed}  {wide_msg}", None, shows);
    line.set_message("waiting for samples (Ctrl-C ends the stream and writes the results)");
    line.enable_steady_tick(Duration::from_millis(200));
    let mut told = Instant::now();
    let results = live::run(settings, stream, |progress| {
        if shows && told.elapsed() >= Duration::from_millis(200) {
            told = Instant::now();
            let now = progress();
            let known = now.mse.iter().filter(|(_, mse)| mse.is_finite());
            let errors = known.map(|(name, mse)| format!("{name} {}", significant(*mse)));
            let errors = errors.collect::<Vec<_>>().join("  ");
            line.set_message(format!(
                "round {}, {}, MSE so far: {errors}",
                now.round,
                counted(now.samples, "sample")
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

fn after_help() -> String {
    let streams =
        STREAMS.iter().map(|stream| format!("  {:<15} {}\n", stream.name, stream.summary));
    format!("Built-in streams:\n{}\n{EXAMPLES}", streams.collect::<String>())
}

const EXAMPLES: &str = "\
Examples:
  hedgerow simulate
  hedgerow simulate --paper
  hedgerow simulate --data drift --method mk,sk --rounds 2000
  hedgerow simulate --data house.csv.gz --target price --nodes 50
  hedgerow simulate --data series.csv --lags 5
  hedgerow simulate --data fleet/ --partition column:@file --scaling online
  hedgerow simulate --data meters.csv --node meter --target load --save-model model.safetensors
  hedgerow simulate --data beijing --data-dir ~/data
  tail -f log.csv | hedgerow simulate --data - --target load
  hedgerow simulate --dropout 0.3 --set participation.late=0.1
  hedgerow simulate my.toml --json

`hedgerow config` prints every setting with its default.";

/// A bar of the bytes of files that are read.
pub(crate) fn bytes_bar(source: &Source, wanted: bool) -> ProgressBar {
    let bytes = match source {
        Source::Builtin(_) => 0,
        Source::Files { files, .. } => {
            files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
        }
    };
    bar("{bar:40} {percent:>3}%  reading, {eta} left", Some(bytes), wanted && bytes > 0)
}
