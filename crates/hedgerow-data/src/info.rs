//! The description of a table: columns, types, ranges, missing values, and suggested flags.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;

use super::columns::{BY_FILE, Categories, ColumnChoice};
use super::rows::{self, Cell, Row, usual_markers};
use super::tables::LOOKED_AT;
use super::text::excerpt;
use super::{DataError, timestamp};

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
    /// What the user should check before a run.
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
    name: String,
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

    fn info(&self) -> ColumnInfo {
        let kind = self.kind();
        let mean = self.sum / self.numbers.max(1) as f64;
        let is_text = self.texts > 0 && kind != ColumnKind::Time;
        let shown = || self.different.iter().take(SHOWN_TEXTS).map(|text| excerpt(text));
        ColumnInfo {
            name: self.name.clone(),
            kind,
            missing: self.missing,
            range: self.range.map(|(least, greatest)| (least, mean, greatest)),
            texts: is_text.then(|| (self.different.len(), shown().collect())),
            turns_to_text: self.first_text.filter(|_| kind == ColumnKind::Mixed),
        }
    }
}

/// Reads the files once. What is chosen already is not suggested again. `default_nodes` is the number of nodes of a run that isn't told another.
/// `progress` gets the number of bytes read.
pub fn look_at(
    files: &[PathBuf],
    choice: &ColumnChoice,
    default_nodes: usize,
    progress: &dyn Fn(u64),
) -> Result<TableInfo, DataError> {
    let mut columns: Vec<Column> = Vec::new();
    let (mut rows, mut bytes) = (0, 0);
    let mut row = Row::default();
    let mut notes = Vec::new();
    for file in files {
        let mut table = rows::open(file, &choice.format)?;
        let names = table.columns();
        if columns.is_empty() {
            let column = |name: &String| Column { name: name.clone(), ..Column::default() };
            columns = names.iter().map(column).collect();
            choice.check_names(file, names)?;
        } else if !columns.iter().map(|column| &column.name).eq(names) {
            notes.push(format!("{} has other columns and was left out", file.display()));
            continue;
        }
        while table.next(&mut row)? {
            rows += 1;
            for (at, column) in columns.iter_mut().enumerate() {
                column.see(row.cell(at), row.line());
            }
            if rows % 4096 == 0 {
                progress(bytes + table.bytes_read());
            }
        }
        bytes += table.bytes_read();
    }
    notes.extend(notes_on(&columns));
    let suggestion = suggest(&columns, choice, files.len(), rows, default_nodes);
    let columns = columns.iter().map(Column::info).collect();
    Ok(TableInfo { files: files.to_vec(), rows, columns, suggestion, notes })
}

fn notes_on(columns: &[Column]) -> Vec<String> {
    let mut notes = Vec::new();
    for column in columns {
        let Column { name, texts, times_back, times_repeated, .. } = column;
        match column.kind() {
            ColumnKind::Constant => {
                notes.push(format!("{name:?} is the same in all rows: nothing is learned from it"))
            }
            ColumnKind::Empty => notes.push(format!("{name:?} has no value at all")),
            ColumnKind::Mixed => {
                let row = column.first_text.unwrap_or_default();
                let text = column.different.first().map(|text| excerpt(text)).unwrap_or_default();
                notes.push(format!("{name:?} has numbers, but also {texts} texts ({text:?} in row {row} or later): a marker for missing values?"));
            }
            ColumnKind::Time => {
                if *times_back > 0 {
                    notes.push(format!("{name:?} goes back in time {times_back} times"));
                }
                if *times_repeated > 0 {
                    let times = format!("the row before {times_repeated} times");
                    notes.push(format!("{name:?} repeats the time of {times}"));
                }
            }
            _ => {}
        }
    }
    for (marker, names) in markers(columns) {
        let names = names.join(", ");
        notes.push(format!("{marker} is the least value in {names}: a marker for missing values?"));
    }
    notes
}

/// -200, -999 and their like, where they are the least value, usually mean that nothing was
/// measured.
fn markers(columns: &[Column]) -> Vec<(f64, Vec<String>)> {
    let of = |marker: f64| -> Vec<String> {
        let is_marked = |column: &&Column| column.range.is_some_and(|(least, _)| least == marker);
        columns.iter().filter(is_marked).map(|column| format!("{:?}", column.name)).collect()
    };
    let known = [-200.0, -999.0, -9999.0, -99999.0].map(|marker| (marker, of(marker)));
    known.into_iter().filter(|(_, names)| !names.is_empty()).collect()
}

/// A text in quotes, if a shell needs them.
pub fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:+,=@".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Flags for a first run.
fn suggest(
    columns: &[Column],
    choice: &ColumnChoice,
    files: usize,
    rows: u64,
    default_nodes: usize,
) -> Vec<String> {
    let mut flags = Vec::new();
    // Targets, times, nodes and dropped columns are no inputs.
    let chosen = [&choice.targets, &choice.time, &choice.drop].into_iter().flatten();
    let mut taken: BTreeSet<&str> = chosen.chain(&choice.node).map(String::as_str).collect();
    let is_number =
        |column: &&Column| column.kind() == ColumnKind::Number || column.markers().is_some();
    let is_flag = |column: &&Column| column.kind() == ColumnKind::Flag;
    let is_input =
        |name: &String| choice.features.as_ref().is_some_and(|named| named.contains(name));
    let is_left =
        |column: &&Column| !taken.contains(column.name.as_str()) && !is_input(&column.name);
    let left = || columns.iter().filter(is_left);
    let target = left().rfind(is_number).or_else(|| left().rfind(is_flag));
    if let Some(target) = target.filter(|_| choice.targets.is_empty()) {
        taken.insert(&target.name);
        flags.push(format!("--target {}", quoted(&target.name)));
    }
    let is_time = |column: &&Column| column.kind() == ColumnKind::Time && column.missing == 0;
    let is_chosen = |column: &&Column| choice.time.first() == Some(&column.name);
    let time = match choice.time.is_empty() {
        true => columns.iter().find(is_time),
        false => columns.iter().find(is_chosen),
    };
    if let Some(time) = time {
        taken.insert(&time.name);
        // A date that repeats, and beside it the time of day.
        let is_clock = |column: &&Column| column.is_clock() && column.missing == 0;
        let clock = columns.iter().find(is_clock).filter(|_| time.times_repeated > 0);
        let has_clock = clock.is_some() || choice.time.len() > 1;
        taken.extend(clock.map(|clock| clock.name.as_str()));
        let named =
            clock.map_or(time.name.clone(), |clock| format!("{}+{}", time.name, clock.name));
        if choice.time.is_empty() {
            flags.push(format!("--time {}", quoted(&named)));
        }
        if time.times_back > 0 {
            flags.push("--set data.disorder=sort".to_owned());
        }
        // Sorting brings together what was apart.
        if time.times_back > 0 || time.times_repeated > 0 && !has_clock {
            flags.push("--set data.duplicates=first".to_owned());
        }
    }
    let node_words = ["node", "station", "device", "sensor", "meter", "site", "client", "id"];
    let is_node = |column: &&Column| {
        let name = column.name.to_lowercase();
        let names_a_node =
            node_words.iter().any(|word| name == *word || name.ends_with(&format!("_{word}")));
        // A name that is never seen again is no node that learns.
        let returns = 2 * column.different.len() as u64 <= rows;
        let is_text = column.kind() == ColumnKind::Text && !taken.contains(column.name.as_str());
        is_text && names_a_node && column.missing == 0 && returns
    };
    let node = match &choice.node {
        Some(node) => Some(node.clone()),
        None => {
            let by_file = (files > 1).then(|| BY_FILE.to_owned());
            let found = columns.iter().find(is_node).map(|node| node.name.clone()).or(by_file);
            flags.extend(found.iter().map(|node| format!("--node {}", quoted(node))));
            found
        }
    };
    let is_node = |column: &Column| node.as_ref() == Some(&column.name);
    let is_useless = |column: &&Column| match column.kind() {
        ColumnKind::Empty | ColumnKind::Time => true,
        ColumnKind::Mixed => column.markers().is_none(),
        ColumnKind::Text => {
            let is_late = column.first_text.is_some_and(|line| line > LOOKED_AT as u64);
            column.different.len() > FEW_TEXTS || is_late
        }
        ColumnKind::Number | ColumnKind::Flag | ColumnKind::Constant => false,
    };
    let free = |column: &&Column| match &choice.features {
        Some(named) => named.contains(&column.name),
        None => !taken.contains(column.name.as_str()) && !is_node(column),
    };
    let (useless, inputs): (Vec<&Column>, Vec<&Column>) =
        columns.iter().filter(free).partition(is_useless);
    if !useless.is_empty() && choice.features.is_none() {
        let useless = useless.iter().map(|column| &column.name);
        let names: Vec<&str> = choice.drop.iter().chain(useless).map(String::as_str).collect();
        flags.push(format!("--drop {}", quoted(&names.join(","))));
    }
    let has_text = inputs.iter().any(|column| column.kind() == ColumnKind::Text);
    if has_text && choice.categories == Categories::Refuse {
        flags.push("--categories one-hot".to_owned());
    }
    let numbers = markers(columns).into_iter().map(|(marker, _)| marker.to_string());
    let texts = columns.iter().filter_map(Column::markers).flatten().cloned();
    let found: BTreeSet<String> = numbers.chain(texts).collect();
    if !found.is_empty() {
        let usual = usual_markers([]);
        let chosen = choice.format.missing.iter().filter(|marker| !usual.contains(marker));
        let found: Vec<&str> = chosen.chain(&found).map(String::as_str).collect();
        flags.push(format!("--missing {}", quoted(&found.join(","))));
    }
    if inputs.is_empty() && choice.lags == 0 {
        flags.push(format!("--lags {SUGGESTED_LAGS}"));
    }
    let samples = rows.saturating_sub(if inputs.is_empty() { SUGGESTED_LAGS } else { 0 });
    if node.is_none() && samples < default_nodes as u64 {
        flags.push("--nodes 1".to_owned());
    }
    let is_large = |column: &Column| {
        column.range.is_some_and(|(least, greatest)| least.abs().max(greatest.abs()) > 3.0)
    };
    // A scale takes some samples to agree on.
    if columns.iter().any(is_large) && rows >= ROWS_FOR_A_SCALE {
        flags.push("--scaling online".to_owned());
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Format;

    fn suggestion_with(content: &str, choice: ColumnChoice) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.csv");
        std::fs::write(&file, content).unwrap();
        let format = Format { missing: usual_markers([]), ..Format::default() };
        let choice = ColumnChoice { format, ..choice };
        look_at(&[file], &choice, 20, &|_| {}).unwrap().suggestion.join(" ")
    }

    fn suggestion(content: &str) -> String {
        suggestion_with(content, ColumnChoice::default())
    }

    #[test]
    fn what_is_chosen_is_not_suggested_again() {
        let rows: String = (0..30)
            .map(|i| format!("2020-01-{:02},s{},{},0.{}\n", i + 1, i % 2, i, i % 7))
            .collect();
        let content = format!("t,site,a,y\n{rows}");
        assert_eq!(suggestion(&content), "--target y --time t --node site");
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let choice = ColumnChoice {
            targets: named(&["a"]),
            time: named(&["t"]),
            drop: named(&["y"]),
            node: Some("site".to_owned()),
            ..ColumnChoice::default()
        };
        assert_eq!(suggestion_with(&content, choice.clone()), "--lags 5");
        let with_feature = ColumnChoice { features: Some(named(&["y"])), drop: vec![], ..choice };
        assert_eq!(suggestion_with(&content, with_feature), "");
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
            "--target y --time t --node site --lags 5"
        );
        let gaps = suggestion(&format!("t,site,y\n{texts},,0.5\n"));
        assert_eq!(gaps, "--target y --drop t --categories one-hot");
    }
}
