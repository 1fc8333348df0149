//! What is learned from: which files, which columns, and what makes their numbers of the order of
//! one.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use hedgerow::learning::Loss;
use hedgerow::scaling::ScaleKind;
use hedgerow_config::ConfigError;
use serde::Deserialize;
use toml::Table;

use super::config::DataConfig;
use super::{SettingsError, out_of_bounds, unknown_name};
use hedgerow_data::calendar::CalendarChoice;
use hedgerow_data::catalog::{self, Kind};
use hedgerow_data::columns::{ColumnChoice, Disorder, Duplicates, Exogenous, Task};
use hedgerow_data::folders::data_folders;
use hedgerow_data::rows::{Format, usual_markers};
use hedgerow_data::streams::{self, STREAMS, Stream};

/// What is learned from.
#[derive(Debug, Clone, PartialEq)]
pub struct DataChoice {
    /// What the user called it.
    pub name: String,
    /// Where it comes from.
    pub source: Source,
    /// What its columns mean.
    pub columns: ColumnChoice,
}

/// Where samples come from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// Generated.
    Builtin(&'static Stream),
    /// Read from these files, in this order; `-` is standard input.
    Files {
        /// The files.
        files: Vec<PathBuf>,
        /// What is known about where they come from; empty for the user's own.
        provenance: String,
    },
}

impl DataChoice {
    /// Whether it is standard input, which is read once, live.
    pub fn is_live(&self) -> bool {
        let Source::Files { files, .. } = &self.source else { return false };
        files.iter().any(|file| file == Path::new("-"))
    }

    /// An error for data that can be read only once.
    pub fn check_rereadable(&self) -> Result<(), SettingsError> {
        let bound = "something that can be read again, not standard input";
        if self.is_live() { Err(out_of_bounds("data.name", bound, "\"-\"")) } else { Ok(()) }
    }
}

/// What makes numbers of the order of one.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub enum Scaling {
    /// None if the first samples are of that order already, else online.
    Auto,
    /// Nothing.
    None,
    /// Running summaries, agreed between the nodes.
    Online(ScaleKind),
    /// Ranges from a file.
    Ranges(PathBuf),
    /// Least and greatest values over all rows, known in hindsight.
    WholeFile {
        /// One range for all features.
        jointly: bool,
    },
}

/// A data set that has been found, and what the catalogue says of its columns.
pub(super) struct Located {
    pub(super) source: Source,
    pub(super) settings: Option<Table>,
}

/// Finds what is called by that name: a built-in stream, a file or folder, or a data set of the
/// catalogue.
pub(super) fn locate(config: &DataConfig) -> Result<Located, SettingsError> {
    let wanted = one_of(
        "data.variant",
        &config.variant,
        &[("auto", None), ("original", Some(Kind::Original)), ("excerpt", Some(Kind::Excerpt))],
    )?;
    if let Some(stream) = streams::find(&config.name) {
        return Ok(Located { source: Source::Builtin(stream), settings: None });
    }
    if let Some(entry) = catalog::find(&config.name) {
        if let Some(kind) = wanted
            && !entry.variants.iter().any(|variant| variant.kind == kind)
        {
            let bound = format!("auto for {}, which has no such variant", entry.name);
            return Err(out_of_bounds("data.variant", bound, format!("{:?}", config.variant)));
        }
        let named = Some(Path::new(&config.dir)).filter(|_| !config.dir.is_empty());
        let found = catalog::locate(entry, wanted, &data_folders(named))?;
        let source = Source::Files { files: found.files, provenance: found.provenance };
        return Ok(Located { source, settings: Some(found.settings) });
    }
    let path = Path::new(&config.name);
    let is_a_name = !config.name.contains(['/', '\\', '.']) && config.name != "-";
    if !path.exists() && is_a_name {
        let streams = STREAMS.iter().map(|stream| stream.name);
        let known: Vec<&str> = streams
            .chain(catalog::entries().iter().map(|entry| entry.name.as_str()))
            .chain(["FILE"])
            .collect();
        return Err(unknown_name("data.name", &config.name, &known));
    }
    let files = if path.is_dir() { files_in(path)? } else { vec![path.to_owned()] };
    Ok(Located { source: Source::Files { files, provenance: String::new() }, settings: None })
}

/// The files of a folder in the order of their names.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>, SettingsError> {
    let unreadable = |source| ConfigError::Unreadable { file: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let is_hidden =
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if path.is_file() && !is_hidden {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(SettingsError::NoFiles(folder.to_owned()));
    }
    Ok(files)
}

pub(super) fn choice(
    config: DataConfig,
    source: Source,
    by_column: Option<String>,
    loss: Loss,
) -> Result<DataChoice, SettingsError> {
    let list = |text: &str, separator: char| -> Vec<String> {
        text.split(separator)
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    };
    if by_column.as_ref().is_some_and(String::is_empty) {
        let bound = "column:NAME with the name of a column, or column:@file";
        return Err(out_of_bounds("federation.partition", bound, "\"column:\""));
    }
    let node = Some(config.node.clone()).filter(|node| !node.is_empty());
    let node = match (node, by_column) {
        (Some(node), Some(column)) if node != column => {
            let bound =
                format!("{column:?}, as in federation.partition = \"column:{column}\", or empty");
            return Err(out_of_bounds("data.node", bound, format!("{node:?}")));
        }
        (node, column) => node.or(column),
    };
    // A forecast uses only what is known when it is made.
    let is_forecast = config.lags > 0 || config.horizon > 1;
    let forecast = if is_forecast { Exogenous::Origin } else { Exogenous::SameRow };
    let columns = ColumnChoice {
        format: format(&config)?,
        targets: list(&config.target, ','),
        series: list(&config.series, ','),
        task: match (config.task, loss) {
            (Task::Auto, Loss::Logistic) => Task::Classes,
            (Task::Numbers, Loss::Logistic) => {
                let bound = "\"auto\" or \"classes\" with the logistic loss";
                return Err(out_of_bounds("data.task", bound, "\"numbers\""));
            }
            (task, _) => task,
        },
        classes: config.classes,
        features: match &config.features[..] {
            [] => None,
            [none] if none == "-" => Some(vec![]),
            named => Some(named.to_vec()),
        },
        drop: config.drop,
        time: list(&config.time, '+'),
        calendar: config.calendar,
        node,
        categories: config.categories,
        rows: Some(config.rows).filter(|rows| *rows > 0),
        lags: config.lags,
        horizon: config.horizon,
        lagged: config.lagged,
        exogenous: one_of(
            "data.exogenous",
            &config.exogenous,
            &[("auto", forecast), ("same-row", Exogenous::SameRow), ("origin", Exogenous::Origin)],
        )?,
        disorder: config.disorder,
        duplicates: config.duplicates,
    };
    check_columns(&columns)?;
    if matches!(source, Source::Builtin(_)) {
        let stream = format!("for the built-in stream {:?}", config.name);
        let speaks_of_columns = [
            ("data.target", columns.targets.join(",")),
            ("data.series", columns.series.join(",")),
            ("data.classes", columns.classes.join(",")),
            ("data.features", config.features.join(",")),
            ("data.drop", columns.drop.join(",")),
            ("data.time", columns.time.join("+")),
            ("data.node", columns.node.clone().unwrap_or_default()),
            ("data.lagged", columns.lagged.join(",")),
        ];
        if let Some((key, value)) = speaks_of_columns.iter().find(|(_, value)| !value.is_empty()) {
            let bound = format!("empty {stream}, which has no named columns");
            return Err(out_of_bounds(key, bound, format!("{value:?}")));
        }
        if let Some(rows) = columns.rows {
            let bound = format!("0 {stream}, which run.rounds bounds");
            return Err(out_of_bounds("data.rows", bound, rows));
        }
    }
    let name = if config.name == "-" { "standard input".to_owned() } else { config.name };
    Ok(DataChoice { name, source, columns })
}

/// An error for settings that don't go together.
fn check_columns(columns: &ColumnChoice) -> Result<(), SettingsError> {
    let ColumnChoice { lags, horizon, lagged, time, targets, series, .. } = columns;
    if *lags == 0 && !lagged.is_empty() {
        let bound = "at least 1 where data.lagged names columns";
        return Err(out_of_bounds("data.lags", bound, lags));
    }
    if *lags == 0 && *horizon > 1 && columns.exogenous == Exogenous::SameRow {
        let bound = "1, unless there are lags or data.exogenous is \"origin\" (else nothing is ahead of anything)";
        return Err(out_of_bounds("data.horizon", bound, horizon));
    }
    let bound = "refuse or keep where data.time names no column";
    if time.is_empty() && columns.disorder == Disorder::Sort {
        return Err(out_of_bounds("data.disorder", bound, "\"sort\""));
    }
    if time.is_empty() && columns.duplicates == Duplicates::First {
        return Err(out_of_bounds("data.duplicates", bound, "\"first\""));
    }
    if let CalendarChoice::Cycles(cycles) = &columns.calendar
        && time.is_empty()
        && !cycles.is_empty()
    {
        let names: Vec<&str> = cycles.iter().map(|cycle| cycle.name()).collect();
        let bound = "auto or none where data.time names no column";
        return Err(out_of_bounds("data.calendar", bound, format!("{:?}", names.join(","))));
    }
    if let Some(node) = columns.node.as_ref().filter(|node| columns.targets.contains(node)) {
        let bound = "another column than data.target: what names a node is not predicted";
        return Err(out_of_bounds("data.node", bound, format!("{node:?}")));
    }
    let shown = || format!("{:?}", series.join(","));
    if !series.is_empty() && columns.node.is_some() {
        let bound = "empty where data.node names whose samples are (data.target = \"a,b\" predicts \
                     several columns at every node)";
        return Err(out_of_bounds("data.series", bound, shown()));
    }
    if !series.is_empty() && !targets.is_empty() {
        let bound = "empty where data.target names what is predicted: data.target = \"a,b\" \
                     predicts both at every node, data.series = \"a,b\" makes a node of each";
        return Err(out_of_bounds("data.series", bound, shown()));
    }
    let is_class = columns.task == Task::Classes || !columns.classes.is_empty();
    if is_class && (!series.is_empty() || targets.len() > 1) {
        let bound = "\"auto\" or \"numbers\" where several columns are predicted";
        return Err(out_of_bounds("data.task", bound, "\"classes\""));
    }
    if is_class && *lags > 0 {
        let bound = "0 where the target is a class: past classes can't be inputs";
        return Err(out_of_bounds("data.lags", bound, lags));
    }
    let mut known = HashSet::new();
    let twice = columns.classes.iter().find(|name| name.is_empty() || !known.insert(*name));
    if twice.is_some() || columns.classes.len() == 1 {
        let bound = "at least two names that differ, or none";
        return Err(out_of_bounds("data.classes", bound, format!("{:?}", columns.classes)));
    }
    Ok(())
}

fn format(config: &DataConfig) -> Result<Format, SettingsError> {
    let mut signs = config.separator.chars();
    let separator = match (config.separator.as_str(), signs.next(), signs.next()) {
        ("auto", ..) => None,
        ("tab", ..) => Some('\t'),
        ("blank", ..) => Some(' '),
        (_, Some(sign), None) if sign.is_ascii_punctuation() && !"\"'.-+".contains(sign) => {
            Some(sign)
        }
        _ => {
            let bound = "\"auto\", \"tab\", \"blank\", or one sign such as \",\" or \";\" (no quote, and nothing that numbers have)";
            return Err(out_of_bounds("data.separator", bound, format!("{:?}", config.separator)));
        }
    };
    let decimal = one_of(
        "data.decimal",
        &config.decimal,
        &[("auto", None), (".", Some('.')), (",", Some(','))],
    )?;
    let header = one_of(
        "data.header",
        &config.header,
        &[("auto", None), ("yes", Some(true)), ("no", Some(false))],
    )?;
    if separator == Some(',') && decimal == Some(',') {
        return Err(out_of_bounds("data.decimal", "another sign than the separator", "\",\""));
    }
    Ok(Format {
        separator,
        decimal,
        header,
        missing: usual_markers(config.missing.iter().cloned()),
    })
}

impl TryFrom<String> for Scaling {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        const NAMES: [&str; 7] = [
            "auto",
            "none",
            "online",
            "online-range",
            "whole-file",
            "whole-file-joint",
            "FILE.toml",
        ];
        Ok(match text.as_str() {
            "auto" => Self::Auto,
            "none" => Self::None,
            "online" => Self::Online(ScaleKind::Spread),
            "online-range" => Self::Online(ScaleKind::Range),
            "whole-file" => Self::WholeFile { jointly: false },
            "whole-file-joint" => Self::WholeFile { jointly: true },
            file if file.ends_with(".toml") => Self::Ranges(PathBuf::from(file)),
            _ => return Err(hedgerow_config::one_of(&text, &NAMES)),
        })
    }
}

/// The value of that name.
fn one_of<T: Copy>(key: &str, name: &str, known: &[(&str, T)]) -> Result<T, SettingsError> {
    let found = known.iter().find(|(known, _)| *known == name);
    let names: Vec<&str> = known.iter().map(|(known, _)| *known).collect();
    found.map(|(_, value)| *value).ok_or_else(|| unknown_name(key, name, &names))
}
