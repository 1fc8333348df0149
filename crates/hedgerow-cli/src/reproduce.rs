//! `hedgerow reproduce`: the paper's figures again.

use std::path::{Path, PathBuf};

use hedgerow_config::Layer;
use hedgerow_config::flags::{Flag, FlagSet, SettingFlags};
use hedgerow_data::catalog::NotFound;
use hedgerow_lab::output::{OutputError, OutputFolder, write_file};
use hedgerow_lab::settings::Settings;
use hedgerow_lab::suite::{FedPoe, Runs, Scope, Suite};
use hedgerow_report::reproduction;

use crate::flags;
use crate::terminal::{print, print_json, steps_bar};

/// Run the paper's experiments again and draw its figures.
///
/// Runs are stored as they finish: after an interruption the same command goes on where it was.
/// Figures go to the folder as SVG (and as PNG if built with `--features png`), tables as Markdown
/// and CSV, and all of it together as report.html.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Data sets that are missing are named and left out, and the exit code is 5. `hedgerow data fetch NAME` gets them."
)]
pub(crate) struct Arguments {
    /// Which figure of the paper, or all of them
    #[arg(value_enum)]
    what: What,
    /// Folder for runs, figures, tables and the report; one figure gets a folder in it
    #[arg(long, value_name = "DIR", default_value = "hedgerow-reproduction")]
    out: PathBuf,
    #[command(flatten)]
    flags: SettingFlags<ReproduceFlags>,
    /// Run everything again, whatever is stored
    #[arg(long)]
    fresh: bool,
    /// Print the table as JSON
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone)]
struct ReproduceFlags;

impl FlagSet for ReproduceFlags {
    const GROUPS: &'static [&'static [Flag]] = &[&[
        flags::DATA_DIR,
        Flag {
            help: "Repetitions with fresh random features, instead of the paper's 50 (10 for the \
                   variants of mk, 3 for fed-poe)",
            ..flags::TRIALS
        },
        flags::THREADS,
    ]];
    const SET: &'static str = "";
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum What {
    /// Convergence to the best kernel, on all data sets
    Fig2,
    /// Errors in online regression, six data sets
    Fig3,
    /// Errors in time-series prediction, three data sets
    Fig4,
    /// All three, and the variants of mk
    All,
    /// Another paper's benchmark: Fed-POE's, 400 clients in Beijing
    FedPoe,
}

/// Everything went well but for data sets that are not there.
#[derive(Debug, thiserror::Error)]
#[error("the rest is done, but {} not there: {}", if .0.len() == 1 { "a data set is" } else { "data sets are" }, .0.join(", "))]
pub(crate) struct Incomplete(pub(crate) Vec<String>);

pub(crate) fn reproduce(arguments: &Arguments) -> anyhow::Result<()> {
    let talks = !arguments.quiet && !arguments.json;
    let runs = arguments.out.join("runs");
    // Flags that make no sense are found out before anything is removed or made.
    let layers = arguments.flags.layers(None)?;
    Settings::load(&layers)?;
    if arguments.fresh {
        forget(&runs)?;
    }
    OutputFolder::prepare(&arguments.out, &[])?;
    let scope = match arguments.what {
        What::FedPoe => return fed_poe(arguments, &layers, &runs, talks),
        What::Fig2 => Scope::Figure(2),
        What::Fig3 => Scope::Figure(3),
        What::Fig4 => Scope::Figure(4),
        What::All => Scope::All,
    };
    let mut suite = Suite::prepare(scope, &layers, &runs)?;
    let missing = tell_state(suite.runs.missing(), suite.runs.finished(), &runs, talks);
    run_all(&mut suite.runs, talks)?;
    let reproduction = suite.reproduction();
    // One figure doesn't replace the report of all.
    let folder = match scope {
        Scope::Figure(figure) => arguments.out.join(format!("fig{figure}")),
        Scope::All => arguments.out.clone(),
    };
    let texts = [
        ("table.csv", reproduction::table_csv(&reproduction)),
        ("reproduction.md", reproduction::document(&reproduction)),
        ("report.html", reproduction::page(&reproduction)),
    ];
    write_all(&folder, &reproduction::figures(&reproduction), &texts)?;
    if arguments.json {
        print_json(&reproduction::json(&reproduction, &missing))?;
    } else if talks {
        let report = folder.join("report.html");
        print(&format!("{}Report: {}\n", reproduction::text(&reproduction), report.display()))?;
    }
    complete(missing)
}

/// Fed-POE's benchmark, in a folder of its own.
fn fed_poe(
    arguments: &Arguments,
    layers: &[Layer],
    runs: &Path,
    talks: bool,
) -> anyhow::Result<()> {
    let mut benchmark = FedPoe::prepare(layers, runs)?;
    let missing = tell_state(benchmark.runs.missing(), benchmark.runs.finished(), runs, talks);
    run_all(&mut benchmark.runs, talks)?;
    let results = benchmark.results();
    if let Some(results) = results {
        let folder = arguments.out.join("fed-poe");
        let texts = [
            ("reproduction.md", reproduction::fed_poe::document(results)),
            ("report.html", reproduction::fed_poe::page(results)),
        ];
        write_all(&folder, &[], &texts)?;
        if talks {
            let (table, report) =
                (reproduction::fed_poe::text(results), folder.join("report.html"));
            print(&format!("{table}Report: {}\n", report.display()))?;
        }
    }
    if arguments.json {
        print_json(&reproduction::fed_poe::json(results, &missing))?;
    }
    complete(missing)
}

/// Runs what is not finished.
fn run_all(runs: &mut Runs, talks: bool) -> anyhow::Result<()> {
    let bar = steps_bar(runs.steps()?, talks);
    let outcome = runs.run(&|name| bar.set_message(name.to_owned()), &|| bar.inc(1));
    bar.finish_and_clear();
    Ok(outcome?)
}

/// Removes stored runs, and nothing else that may be in their folder.
fn forget(runs: &Path) -> Result<(), OutputError> {
    let is_run = |path: &Path| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let hash = stem.rsplit_once('-').map_or("", |(_, hash)| hash);
        path.extension().is_some_and(|ending| ending == "json")
            && hash.len() == 16
            && hash.chars().all(|digit| digit.is_ascii_hexdigit())
    };
    for entry in std::fs::read_dir(runs).into_iter().flatten().flatten() {
        let path = entry.path();
        if is_run(&path) {
            std::fs::remove_file(&path)
                .map_err(|source| OutputError::Unwritable { path, source })?;
        }
    }
    Ok(())
}

/// Says what is missing and what is finished already. Returns the names of what is missing.
pub(crate) fn tell_state(
    missing: Vec<&NotFound>,
    (done, all): (usize, usize),
    runs: &Path,
    talks: bool,
) -> Vec<String> {
    if talks {
        missing.iter().for_each(|missing| eprintln!("skipped: {missing}"));
        if done > 0 {
            let are = if all == 1 { "run is" } else { "runs are" };
            eprintln!("{done} of {all} {are} finished already, in {}", runs.display());
        }
    }
    missing.iter().map(|missing| missing.name.clone()).collect()
}

/// An error if something is missing.
pub(crate) fn complete(missing: Vec<String>) -> anyhow::Result<()> {
    if missing.is_empty() { Ok(()) } else { Err(Incomplete(missing).into()) }
}

/// Writes figures as SVG, and as PNG if the program can, and texts.
pub(crate) fn write_all(
    out: &Path,
    figures: &[(String, String)],
    texts: &[(&str, String)],
) -> anyhow::Result<()> {
    for (name, svg) in figures {
        write_file(&out.join(name), svg.as_bytes())?;
        #[cfg(feature = "png")]
        write_file(
            &out.join(name.replace(".svg", ".png")),
            &hedgerow_report::figures::png::to_png(svg)?,
        )?;
    }
    for (name, text) in texts {
        write_file(&out.join(name), text.as_bytes())?;
    }
    Ok(())
}
