//! `hedgerow data`: data sets with names: where they are, and their download.

use std::path::{Path, PathBuf};

use hedgerow_data::catalog::{self, Entry, Kind, Located, Source, Variant};
use hedgerow_data::fetch::{
    Checked, FetchError, Fetched, Mirror, Options, Patience, Progress, fetch,
};
use hedgerow_data::folders;
use hedgerow_report::table::aligned;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use crate::info;
use crate::terminal::{bar, print, print_json};

/// List, look at and fetch data sets.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(ListArguments),
    Info(info::Arguments),
    Fetch(FetchArguments),
}

/// List the data sets with names, and where on this machine they are.
///
/// They are looked for in --data-dir, in the folder that HEDGEROW_DATA_DIR names, and among those
/// that were fetched.
#[derive(Debug, clap::Args)]
struct ListArguments {
    /// Folder of data sets to look in first
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

/// Fetch data sets from UCI.
///
/// The original files are taken out of UCI's archives and checked. What is there already is not
/// downloaded again; a download that broke off goes on where it stopped. The authors' excerpts,
/// which the paper used, are not at UCI.
#[derive(Debug, clap::Args)]
#[command(after_help = FETCH_HELP)]
struct FetchArguments {
    /// Which, as `hedgerow data list` names them
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// Folder to put them in; by default one in the user's cache
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Where the archives are, if not at UCI
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
    /// Print what was fetched as JSON
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

const FETCH_HELP: &str = "\
Examples:
  hedgerow data fetch naval air-quality
  hedgerow data fetch beijing --data-dir data
  hedgerow data fetch wave --mirror https://mirror.example/uci

HEDGEROW_CACHE_DIR names another cache, HEDGEROW_MIRROR another mirror.";

pub(crate) fn data(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::List(arguments) => list(arguments),
        Command::Info(arguments) => info::info(arguments),
        Command::Fetch(arguments) => fetch_all(arguments),
    }
}

fn list(arguments: &ListArguments) -> anyhow::Result<()> {
    let folders = folders::data_folders(arguments.data_dir.as_deref());
    if arguments.json {
        let all: Vec<Value> =
            catalog::entries().iter().map(|entry| as_json(entry, &folders)).collect();
        return print_json(&all);
    }
    Ok(print(&as_table(&folders))?)
}

/// Two lines a data set: what and where it is, and where it comes from.
fn as_table(folders: &[PathBuf]) -> String {
    let mut rows = vec![["name", "title", "samples x features", "where"].map(str::to_owned)];
    let mut origins = vec![String::new()];
    for entry in catalog::entries() {
        let located = catalog::locate(entry, None, folders).ok();
        let kind = located.as_ref().map(|located| located.variant);
        let shown =
            entry.variants.iter().find(|variant| kind.is_none_or(|kind| variant.kind == kind));
        let size = shown.map_or(String::new(), |Variant { samples, features, .. }| {
            format!("{:>7} x {features:<3}", grouped(*samples))
        });
        rows.push([entry.name.clone(), entry.title.clone(), size, place(entry, located.as_ref())]);
        origins.push(match &located {
            Some(Located { variant, provenance, .. }) => format!("  {variant}: {provenance}\n"),
            None => format!("  {}\n", origin(&entry.source)),
        });
    }
    let lines = aligned(&rows, |_| true);
    let line = |(line, origin): (&String, &String)| format!("{}\n{origin}", line.trim_end());
    lines.iter().zip(&origins).map(line).collect()
}

fn place(entry: &Entry, located: Option<&Located>) -> String {
    match located.map(|located| located.files.as_slice()) {
        Some([file]) => file.display().to_string(),
        Some([file, rest @ ..]) => {
            let folder = file.parent().unwrap_or(Path::new(""));
            format!("{} ({} files)", folder.display(), rest.len() + 1)
        }
        _ if entry.source.uci.is_none() => entry.source.page.clone(),
        _ => format!("hedgerow data fetch {}", entry.name),
    }
}

/// Where files come from, in words.
fn origin(source: &Source) -> String {
    match source.uci {
        Some(id) => format!("UCI {id}, {}", source.title),
        None => source.title.clone(),
    }
}

fn as_json(entry: &Entry, folders: &[PathBuf]) -> Value {
    let variants: Vec<Value> = entry
        .variants
        .iter()
        .map(|variant| {
            let located = catalog::locate(entry, Some(variant.kind), folders).ok();
            let promised = variant.candidates.first().map(|candidate| candidate.provenance.clone());
            let files = located.as_ref().map(|located| located.files.clone());
            json!({
                "variant": variant.kind.to_string(),
                "samples": variant.samples,
                "features": variant.features,
                "files": files,
                "provenance": located.map(|located| located.provenance).or(promised),
                "licence": entry.licence(variant.kind),
            })
        })
        .collect();
    json!({
        "name": entry.name,
        "title": entry.title,
        "description": entry.description,
        "uci": entry.source.uci.map(|id| json!({ "id": id, "title": entry.source.title })),
        "page": entry.source.uci.is_none().then_some(&entry.source.page),
        "citation": entry.source.citation,
        "variants": variants,
    })
}

fn fetch_all(arguments: &FetchArguments) -> anyhow::Result<()> {
    // A misspelt name should be found out before the first download, not after it.
    let entries: Result<Vec<_>, _> =
        arguments.names.iter().map(|name| catalog::lookup(name)).collect();
    let folder =
        arguments.data_dir.clone().or_else(folders::fetched_data).ok_or(FetchError::NoFolder)?;
    let mirror = Mirror::choose(arguments.mirror.as_deref())?;
    let options = Options { folder, mirror, patience: Patience::default() };
    let talks = !arguments.quiet && !arguments.json;
    let mut all = Vec::new();
    for entry in entries? {
        let bar = bar("{msg}  {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}", None, talks);
        let fetched = fetch(entry, &options, &mut |progress| show(&bar, entry, &progress, talks));
        bar.finish_and_clear();
        let fetched = fetched?;
        if talks {
            print(&in_words(entry, &fetched))?;
        }
        all.push(
            json!({ "name": entry.name, "files": fetched.iter().map(file_as_json).collect::<Vec<_>>() }),
        );
    }
    if arguments.json {
        print_json(&all)?;
    }
    Ok(())
}

fn show(bar: &ProgressBar, entry: &Entry, progress: &Progress<'_>, talks: bool) {
    match progress {
        Progress::Asking { .. } => bar.set_message(format!("{}: asking", entry.name)),
        Progress::Downloading { have, total } => {
            bar.set_message(entry.name.clone());
            total.inspect(|total| bar.set_length(*total));
            bar.set_position(*have);
        }
        Progress::Unpacking { file } => {
            bar.set_message(format!("{}: unpacking {file}", entry.name))
        }
        Progress::TryingAgain { because } => {
            if talks {
                bar.suspend(|| eprintln!("note: {because}; trying again"));
            }
        }
    }
}

fn in_words(entry: &Entry, fetched: &[Fetched]) -> String {
    let mut text = format!("{}\n", entry.name);
    for Fetched { path, downloaded, checked } in fetched {
        let how = if *downloaded { "downloaded" } else { "already there" };
        let (_, checked) = in_two_forms(*checked);
        text += &format!("  {}: {how}, {checked}\n", path.display());
    }
    text += &format!(
        "  cite: {}\n  licence: {}\n",
        entry.source.citation,
        entry.licence(Kind::Original)
    );
    text
}

/// How a file was checked, as a name and in words.
fn in_two_forms(checked: Checked) -> (&'static str, &'static str) {
    match checked {
        Checked::Catalogue => ("catalogue", "checksum right"),
        Checked::FirstDownload => {
            ("first-download", "no checksum is known, and it is what was downloaded at first")
        }
        Checked::RecordedNow => (
            "recorded-now",
            "no checksum is known: recorded in SHA256SUMS, to compare later downloads with",
        ),
        Checked::Nothing => (
            "nothing",
            "not checked: no checksum is known, or it is packed in a way that is not read here",
        ),
    }
}

fn file_as_json(fetched: &Fetched) -> Value {
    let (checked, _) = in_two_forms(fetched.checked);
    json!({ "path": fetched.path, "downloaded": fetched.downloaded, "checked": checked })
}

/// With commas between thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        for (number, shown) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (583_250, "583,250"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), shown);
        }
    }
}
