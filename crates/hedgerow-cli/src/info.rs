//! `hedgerow data info`: what is in a file, and the flags that it suggests.

use hedgerow_config::flags::{Flag, FlagSet, SettingFlags};
use hedgerow_config::{ConfigError, Layer};
use hedgerow_data::catalog;
use hedgerow_data::info::{ColumnInfo, TableInfo, look_at, quoted};
use hedgerow_data::text::counted;
use hedgerow_lab::settings::{Settings, Source};
use hedgerow_report::table::aligned;
use hedgerow_report::terminal::significant;
use serde_json::json;

use crate::flags;
use crate::simulate::bytes_bar;
use crate::terminal::{print, print_json};

/// Show what is in a data set or a file: columns, types, ranges, missing values, and flags for a
/// first run.
///
/// The file is read once, in bounded memory. CSV with any usual separator, JSON Lines, Parquet (if
/// built in), gzipped, zstandard or plain; a folder of files with the same columns counts as one
/// table.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Data set by name, file or folder
    #[arg(value_name = "NAME|FILE", required_unless_present = "data", conflicts_with = "data")]
    name: Option<String>,
    #[command(flatten)]
    flags: SettingFlags<InfoFlags>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone)]
struct InfoFlags;

impl FlagSet for InfoFlags {
    const GROUPS: &'static [&'static [Flag]] =
        &[&[Flag { help: "The same as NAME|FILE", ..flags::DATA }], flags::DATA_OPTIONS];
    const SET: &'static str = flags::SET_READING;
}

pub(crate) fn info(arguments: &Arguments) -> anyhow::Result<()> {
    let data = arguments.name.clone().or(arguments.flags.given("data")).unwrap_or_default();
    let mut layers = arguments.flags.layers(None)?;
    layers.push(Layer::value("", "data.name", data.as_str()));
    let settings = Settings::load(&layers)?;
    let Source::Files { files, provenance } = &settings.data.source else {
        let bound = "a file or a data set: a built-in stream has no columns (hedgerow simulate \
                     --help describes it)";
        let value = format!("{data:?}");
        return Err(ConfigError::out_of_bounds("data.name", bound, value).into());
    };
    let bar = bytes_bar(&settings.data.source, !arguments.json);
    let info = look_at(files, &settings.data.columns, settings.default_nodes, &|read| {
        bar.set_position(read);
    });
    bar.finish_and_clear();
    let mut info = info?;
    arguments.repeat(&mut info.suggestion);
    let entry = catalog::find(&data);
    if arguments.json {
        let about = entry.map(|entry| {
            json!({ "name": entry.name, "title": entry.title, "citation": entry.source.citation, "provenance": provenance })
        });
        return print_json(&json!({ "data_set": about, "table": info }));
    }
    let mut text = String::new();
    if let Some(entry) = entry {
        text += &format!(
            "{}: {}\n{}\n{provenance}\ncite: {}\n",
            entry.name, entry.title, entry.description, entry.source.citation
        );
    }
    text += &in_words(&info);
    text += &match entry {
        Some(entry) => {
            let folder = arguments
                .flags
                .given("data-dir")
                .map(|folder| format!(" --data-dir {}", quoted(&folder)));
            let folder = folder.unwrap_or_default();
            format!("\nIts columns are known: hedgerow simulate --data {}{folder}\n", entry.name)
        }
        None => {
            let command =
                format!("hedgerow simulate --data {} {}", quoted(&data), info.suggestion.join(" "));
            let mut text = format!("\nTo begin with:\n  {command}\n");
            if !info.forecast.is_empty() {
                text += &format!(
                    "To forecast from the past too (other columns are then of the row before; \
                     --set data.exogenous=same-row if they are known ahead):\n  {command} {}\n",
                    info.forecast.join(" ")
                );
            }
            text
        }
    };
    print(&text)?;
    Ok(())
}

fn in_words(info: &TableInfo) -> String {
    let files: Vec<String> = info.files.iter().map(|file| file.display().to_string()).collect();
    let files = match &files[..] {
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first} and {}", counted(rest.len(), "more file")),
        [] => String::new(),
    };
    let (rows, columns) = (counted(info.rows, "row"), counted(info.columns.len(), "column"));
    let mut text = format!("{files}: {rows}, {columns}\n\n");
    let heading =
        ["column", "type", "missing", "least", "mean", "greatest", "texts"].map(str::to_owned);
    let rows: Vec<[String; 7]> =
        [heading].into_iter().chain(info.columns.iter().map(row)).collect();
    for line in aligned(&rows, |column| matches!(column, 0 | 1 | 6)) {
        text += &format!("{}\n", line.trim_end());
    }
    info.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    text
}

fn row(column: &ColumnInfo) -> [String; 7] {
    let [least, mean, greatest] =
        column.range.map_or([const { String::new() }; 3], |(least, mean, greatest)| {
            [least, mean, greatest].map(significant)
        });
    let texts = column.texts.as_ref().map_or(String::new(), |(count, some)| {
        let more = if *count > some.len() { ", …" } else { "" };
        format!("{count}: {}{more}", some.join(", "))
    });
    let missing = if column.missing == 0 { String::new() } else { column.missing.to_string() };
    [column.name.clone(), column.kind.name().to_owned(), missing, least, mean, greatest, texts]
}

impl Arguments {
    /// Adds the user's own flags, which a run needs too, to the suggested ones. A suggestion of
    /// what is dropped or missing names the user's own already.
    fn repeat(&self, suggestion: &mut Vec<String>) {
        let own = flags::DATA_OPTIONS
            .iter()
            .filter_map(|flag| Some((format!("--{}", flag.long), self.flags.given(flag.long)?)));
        for (flag, value) in own {
            let at = suggestion.iter().position(|text| text.split(' ').next() == Some(&flag));
            let is_list = ["--drop", "--missing"].contains(&flag.as_str());
            match at {
                Some(_) if is_list => {}
                Some(at) => suggestion[at] = format!("{flag} {}", quoted(&value)),
                None => suggestion.push(format!("{flag} {}", quoted(&value))),
            }
        }
        suggestion.extend(self.flags.sets().iter().map(|set| format!("--set {}", quoted(set))));
    }
}
