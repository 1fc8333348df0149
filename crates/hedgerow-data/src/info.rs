//! The description of a table: columns, types, ranges, missing values, and suggested flags.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;

use super::rows::{self, Cell, Format, ReadError, Row};
use super::tables::LOOKED_AT;
use super::text::excerpt;
use super::timestamp;
use crate::partition::DEFAULT_NODES;

/// The description of a whole table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableInfo {
    /// The files.
    pub files: Vec<PathBuf>,
    /// Rows of all files together.
    pub rows: u64,
    /// The columns, in the file's order.
    pub columns: Vec<ColumnInfo>,
    /// Flags for `hedgerow simulate` that fit.
    pub suggestion: Vec<String>,
    /// What should be looked at before a run.
    pub notes: Vec<String>,
}

/// One column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ColumnInfo {
    /// Its name.
    pub name: String,
    /// What its cells are.
    pub kind: ColumnKind,
    /// Cells without a value.
    pub missing: u64,
    /// Of numbers: the least, the mean and the greatest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<(f64, f64, f64)>,
    /// Of texts: how many different ones there are, as far as was counted, and some of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub texts: Option<(usize, Vec<String>)>,
    /// The row of the first text in a column that began with numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns_to_text: Option<u64>,
}

/// What the cells of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColumnKind {
    /// Numbers only.
    Number,
    /// Numbers, all of them 0 or 1.
    Flag,
    /// The same number everywhere.
    Constant,
    /// Times.
    Time,
    /// Texts.
    Text,
    /// Numbers and texts.
    Mixed,
    /// Nothing at all.
    Empty,
}

impl ColumnKind {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Flag => "0 or 1",
            Self::Constant => "constant",
            Self::Time => "time",
            Self::Text => "text",
            Self::Mixed => "mixed",
            Self::Empty => "empty",
        }
    }
}

/// Rows from which on a scale is suggested that has to be agreed on.
const ROWS_FOR_A_SCALE: u64 = 100;
/// Different texts that are counted and kept.
const MOST_TEXTS: usize = 1000;
/// Longer ones are kept shortened, so that a hostile file can't fill the memory.
const LONGEST_TEXT: usize = 256;
/// Texts that are shown.
const SHOWN_TEXTS: usize = 5;
/// Of a column with more texts than this, no inputs are made by suggestion.
const FEW_TEXTS: usize = 50;
/// At most this number of texts among numbers are treated as marks of missing values.
const FEW_MARKERS: usize = 5;
/// Past labels that a series without other inputs is learned from: the paper's s.
const SUGGESTED_LAGS: u64 = 5;

#[derive(Default)]
struct Column {
    numbers: u64,
    zeros_and_ones: u64,
    missing: u64,
    texts: u64,
    times: u64,
    sum: f64,
    range: Option<(f64, f64)>,
    different: BTreeSet<String>,
    first_text: Option<u64>,
    last_time: Option<f64>,
    times_repeated: u64,
    times_back: u64,
}

impl Column {
    fn see(&mut self, cell: Cell<'_>, line: u64) {
        match cell {
            Cell::Missing => self.missing += 1,
            Cell::Number(number) => {
                self.numbers += 1;
                self.zeros_and_ones += u64::from(number == 0.0 || number == 1.0);
                self.sum += number;
                let (least, greatest) = self.range.unwrap_or((number, number));
                self.range = Some((least.min(number), greatest.max(number)));
            }
            Cell::Text(text) => {
                self.texts += 1;
                self.first_text.get_or_insert(line);
                if let Some(time) = timestamp::parse(text) {
                    self.times += 1;
                    if let Some(last) = self.last_time {
                        self.times_repeated += u64::from(time == last);
                        self.times_back += u64::from(time < last);
                    }
                    self.last_time = Some(time);
                }
                if self.different.len() < MOST_TEXTS && !self.different.contains(text) {
                    self.different.insert(if text.len() > LONGEST_TEXT {
                        excerpt(text)
                    } else {
                        text.to_owned()
                    });
                }
            }
        }
    }

    fn kind(&self) -> ColumnKind {
        match (self.numbers, self.texts, self.range) {
            (0, 0, _) => ColumnKind::Empty,
            (0, texts, _) if texts == self.times => ColumnKind::Time,
            (0, _, _) => ColumnKind::Text,
            (_, 0, Some((least, greatest))) if least == greatest => ColumnKind::Constant,
            (numbers, 0, _) if numbers == self.zeros_and_ones => ColumnKind::Flag,
            (_, 0, _) => ColumnKind::Number,
            _ => ColumnKind::Mixed,
        }
    }

    /// Whether its texts are times of day.
    fn is_clock(&self) -> bool {
        let is_clock = |text: &String| {
            text.contains(['.', ':'])
                && text.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ':')
        };
        self.numbers == 0
            && self.times == 0
            && !self.different.is_empty()
            && self.different.iter().all(is_clock)
    }

    /// The texts among the numbers, if they may well stand for missing values.
    fn markers(&self) -> Option<&BTreeSet<String>> {
        let is_one = |text: &String| !text.contains(',');
        let are_few = self.different.len() <= FEW_MARKERS && self.different.iter().all(is_one);
        Some(&self.different).filter(|_| are_few && self.kind() == ColumnKind::Mixed)
    }

    fn info(&self, name: &str) -> ColumnInfo {
        let kind = self.kind();
        let mean = self.sum / self.numbers.max(1) as f64;
        let is_text = self.texts > 0 && kind != ColumnKind::Time;
        let shown = || self.different.iter().take(SHOWN_TEXTS).map(|text| excerpt(text));
        ColumnInfo {
            name: name.to_owned(),
            kind,
            missing: self.missing,
            range: self.range.map(|(least, greatest)| (least, mean, greatest)),
            texts: is_text.then(|| (self.different.len(), shown().collect())),
            turns_to_text: self.first_text.filter(|_| kind == ColumnKind::Mixed),
        }
    }
}

/// Reads the files once. `progress` gets the number of bytes read.
pub fn look_at(
    files: &[PathBuf],
    format: &Format,
    progress: &dyn Fn(u64),
) -> Result<TableInfo, ReadError> {
    let mut names: Vec<String> = Vec::new();
    let mut columns: Vec<Column> = Vec::new();
    let (mut rows, mut bytes) = (0, 0);
    let mut row = Row::default();
    let mut notes = Vec::new();
    for file in files {
        let mut table = rows::open(file, format)?;
        if names.is_empty() {
            names = table.columns().to_vec();
            columns.resize_with(names.len(), Column::default);
        } else if names != table.columns() {
            notes.push(format!("{} has other columns and was left out", file.display()));
            continue;
        }
        while table.next(&mut row)? {
            rows += 1;
            columns
                .iter_mut()
                .enumerate()
                .for_each(|(at, column)| column.see(row.cell(at), row.line()));
            if rows % 4096 == 0 {
                progress(bytes + table.bytes_read());
            }
        }
        bytes += table.bytes_read();
    }
    let infos: Vec<ColumnInfo> =
        names.iter().zip(&columns).map(|(name, column)| column.info(name)).collect();
    notes.extend(notes_on(&infos, &columns));
    let suggestion = suggest(&infos, &columns, files.len(), rows);
    Ok(TableInfo { files: files.to_vec(), rows, columns: infos, suggestion, notes })
}

fn notes_on(infos: &[ColumnInfo], columns: &[Column]) -> Vec<String> {
    let mut notes = Vec::new();
    for (info, column) in infos.iter().zip(columns) {
        let name = &info.name;
        match info.kind {
            ColumnKind::Constant => {
                notes.push(format!("{name:?} is the same in all rows: nothing is learned from it"))
            }
            ColumnKind::Empty => notes.push(format!("{name:?} has no value at all")),
            ColumnKind::Mixed => {
                let row = column.first_text.unwrap_or_default();
                let text = column.different.iter().next().map(|text| excerpt(text));
                let text = text.unwrap_or_default();
                notes.push(format!("{name:?} has numbers, but also {} texts ({text:?} in row {row} or later): a marker for missing values?", column.texts));
            }
            ColumnKind::Time if column.times_back > 0 => {
                notes.push(format!("{name:?} goes back in time {} times", column.times_back));
            }
            _ => {}
        }
        if column.times_repeated > 0 && info.kind == ColumnKind::Time {
            notes.push(format!(
                "{name:?} repeats the time of the row before {} times",
                column.times_repeated
            ));
        }
    }
    for (marker, names) in markers(infos) {
        notes.push(format!(
            "{marker} is the least value in {}: a marker for missing values?",
            names.join(", ")
        ));
    }
    notes
}

/// -200, -999 and their like, where they are the least value, usually mean that nothing was
/// measured.
fn markers(infos: &[ColumnInfo]) -> Vec<(f64, Vec<String>)> {
    let of = |marker: f64| -> Vec<String> {
        let marked =
            infos.iter().filter(|info| info.range.is_some_and(|(least, ..)| least == marker));
        marked.map(|info| format!("{:?}", info.name)).collect()
    };
    let known = [-200.0, -999.0, -9999.0, -99999.0].map(|marker| (marker, of(marker)));
    known.into_iter().filter(|(_, names)| !names.is_empty()).collect()
}

/// As a shell takes it.
pub fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:+,=@".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Flags for a first run.
fn suggest(infos: &[ColumnInfo], columns: &[Column], files: usize, rows: u64) -> Vec<String> {
    let all = || infos.iter().zip(columns);
    let mut flags = Vec::new();
    // Targets, times, nodes and dropped columns are no inputs.
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    let is_number = |(info, column): &(&ColumnInfo, &Column)| {
        info.kind == ColumnKind::Number || column.markers().is_some()
    };
    let is_flag = |(info, _): &(&ColumnInfo, &Column)| info.kind == ColumnKind::Flag;
    let target = all().rev().find(is_number).or_else(|| all().rev().find(is_flag));
    if let Some((target, _)) = target {
        taken.insert(&target.name);
        flags.push(format!("--target {}", quoted(&target.name)));
    }
    let is_time = |info: &ColumnInfo| info.kind == ColumnKind::Time && info.missing == 0;
    if let Some((time, column)) = all().find(|(info, _)| is_time(info)) {
        taken.insert(&time.name);
        // A date that repeats, and beside it the time of day.
        let is_clock =
            |(info, column): &(&ColumnInfo, &Column)| column.is_clock() && info.missing == 0;
        let clock = if column.times_repeated > 0 { all().find(is_clock) } else { None };
        if let Some((clock, _)) = clock {
            taken.insert(&clock.name);
            flags.push(format!("--time {}", quoted(&format!("{}+{}", time.name, clock.name))));
        } else {
            flags.push(format!("--time {}", quoted(&time.name)));
        }
        if column.times_back > 0 {
            flags.push("--set data.disorder=sort".to_owned());
        }
        // Sorting brings together what was apart.
        if column.times_back > 0 || column.times_repeated > 0 && clock.is_none() {
            flags.push("--set data.duplicates=first".to_owned());
        }
    }
    let is_text =
        |info: &ColumnInfo| info.kind == ColumnKind::Text && !taken.contains(info.name.as_str());
    let node_words = ["node", "station", "device", "sensor", "meter", "site", "client", "id"];
    let is_node = |info: &&ColumnInfo| {
        let name = info.name.to_lowercase();
        let names_a_node =
            node_words.iter().any(|word| name == *word || name.ends_with(&format!("_{word}")));
        // A name that is never seen again is no node that learns.
        let count = info.texts.as_ref().map_or(0, |(count, _)| *count as u64);
        is_text(info) && names_a_node && info.missing == 0 && 2 * count <= rows
    };
    let node = infos.iter().find(is_node);
    match node {
        Some(node) => flags.push(format!("--partition column:{}", quoted(&node.name))),
        None if files > 1 => flags.push("--partition column:@file".to_owned()),
        None => {}
    }
    taken.extend(node.map(|node| node.name.as_str()));
    let is_useless = |info: &ColumnInfo, column: &Column| match info.kind {
        ColumnKind::Empty | ColumnKind::Time => true,
        ColumnKind::Mixed => column.markers().is_none(),
        ColumnKind::Text => {
            let is_late = column.first_text.is_some_and(|line| line > LOOKED_AT as u64);
            column.different.len() > FEW_TEXTS || is_late
        }
        ColumnKind::Number | ColumnKind::Flag | ColumnKind::Constant => false,
    };
    let useless = all()
        .filter(|(info, column)| !taken.contains(info.name.as_str()) && is_useless(info, column));
    let useless: Vec<&str> = useless.map(|(info, _)| info.name.as_str()).collect();
    if !useless.is_empty() {
        flags.push(format!("--drop {}", quoted(&useless.join(","))));
    }
    taken.extend(useless);
    let inputs: Vec<_> = infos.iter().filter(|info| !taken.contains(info.name.as_str())).collect();
    if inputs.iter().any(|info| info.kind == ColumnKind::Text) {
        flags.push("--categories one-hot".to_owned());
    }
    let numbers = markers(infos).into_iter().map(|(marker, _)| marker.to_string());
    let texts = columns.iter().filter_map(Column::markers).flatten().cloned();
    let found: BTreeSet<String> = numbers.chain(texts).collect();
    if !found.is_empty() {
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        flags.push(format!("--missing {}", quoted(&found.join(","))));
    }
    if inputs.is_empty() {
        flags.push(format!("--lags {SUGGESTED_LAGS}"));
    }
    let samples = rows.saturating_sub(if inputs.is_empty() { SUGGESTED_LAGS } else { 0 });
    if node.is_none() && files == 1 && samples < DEFAULT_NODES as u64 {
        flags.push("--nodes 1".to_owned());
    }
    let is_large = |info: &ColumnInfo| {
        info.range.is_some_and(|(least, _, greatest)| least.abs().max(greatest.abs()) > 3.0)
    };
    // A scale takes some samples to agree on.
    if infos.iter().any(is_large) && rows >= ROWS_FOR_A_SCALE {
        flags.push("--scaling online".to_owned());
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suggestion(content: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.csv");
        std::fs::write(&file, content).unwrap();
        let format = Format { missing: vec!["NA".to_owned(), "?".to_owned()], ..Format::default() };
        look_at(&[file], &format, &|_| {}).unwrap().suggestion.join(" ")
    }

    #[test]
    fn a_shell_takes_what_is_quoted_as_it_is() {
        for (text, expected) in [
            ("a_1", "a_1"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("NA,?", "'NA,?'"),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn markers_are_suggested_as_missing() {
        let rows: String =
            (0..30).map(|i| format!("{},{}\n", if i == 7 { -999 } else { i % 3 }, i % 2)).collect();
        assert_eq!(suggestion(&format!("a,y\n{rows}2,bad\n")), "--target y --missing -999,bad");
    }

    #[test]
    fn a_series_alone_is_learned_from_its_past() {
        let rows = |count: usize| (0..count).map(|i| format!("0.{}\n", i % 7)).collect::<String>();
        assert_eq!(suggestion(&format!("y\n{}", rows(30))), "--target y --lags 5");
        assert_eq!(suggestion(&format!("y\n{}", rows(24))), "--target y --lags 5 --nodes 1");
    }

    #[test]
    fn times_and_nodes_with_gaps_are_neither() {
        let rows: String =
            (0..30).map(|i| format!("2020-01-{:02},{},0.{}\n", i + 1, i % 2, i % 7)).collect();
        assert_eq!(suggestion(&format!("t,site,y\n{rows}")), "--target y --time t");
        let texts = rows.replace(",0,", ",north,").replace(",1,", ",south,");
        assert_eq!(
            suggestion(&format!("t,site,y\n{texts}")),
            "--target y --time t --partition column:site --lags 5"
        );
        let gaps = suggestion(&format!("t,site,y\n{texts},,0.5\n"));
        assert_eq!(gaps, "--target y --drop t --categories one-hot");
    }
}
