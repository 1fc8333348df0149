//! The description of a table: columns, types, ranges, missing values, and suggested flags.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;

use super::columns::ColumnChoice;
use super::rows::{self, Cell, Row};
use super::text::excerpt;
use super::{DataError, timestamp};
use clock::Clock;
use suggest::{Roles, forecast, notes_on, suggest};

mod clock;
mod suggest;

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
    /// More flags with which the past is learned from as well; empty if that is suggested already,
    /// or rows have no order.
    pub forecast: Vec<String>,
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

/// Different texts that are counted and kept.
const MOST_TEXTS: usize = 1000;
/// Longer ones are kept shortened, so that a hostile file can't fill the memory.
const LONGEST_TEXT: usize = 256;
/// Texts that are shown.
const SHOWN_TEXTS: usize = 5;
/// Different whole numbers that are kept.
const MOST_WHOLE: usize = 100;
/// Larger whole numbers are no classes.
const LARGEST_CLASS: f64 = 1e9;
/// At most this number of texts among numbers are treated as marks of missing values.
const FEW_MARKERS: usize = 5;

#[derive(Default)]
struct Column {
    name: String,
    numbers: u64,
    zeros_and_ones: u64,
    /// The different numbers, as far as they are whole and few.
    whole: BTreeSet<i64>,
    /// Whether all numbers so far are in `whole`.
    is_whole: bool,
    missing: u64,
    texts: u64,
    times: u64,
    sum: f64,
    range: Option<(f64, f64)>,
    different: BTreeSet<String>,
    first_text: Option<u64>,
    /// The first text that is no time, with its row.
    first_other: Option<(u64, String)>,
}

impl Column {
    fn see(&mut self, cell: Cell<'_>, line: u64) {
        match cell {
            Cell::Missing => self.missing += 1,
            Cell::Number(number) => {
                self.numbers += 1;
                self.zeros_and_ones += u64::from(number == 0.0 || number == 1.0);
                self.is_whole |= self.numbers == 1;
                self.is_whole &= number.fract() == 0.0 && number.abs() < LARGEST_CLASS;
                if self.is_whole && self.whole.len() < MOST_WHOLE {
                    self.whole.insert(number as i64);
                }
                self.sum += number;
                let (least, greatest) = self.range.unwrap_or((number, number));
                self.range = Some((least.min(number), greatest.max(number)));
            }
            Cell::Text(text) => {
                self.texts += 1;
                self.first_text.get_or_insert(line);
                match timestamp::parse(text) {
                    Some(_) => self.times += 1,
                    None if self.first_other.is_none() => {
                        self.first_other = Some((line, excerpt(text)));
                    }
                    None => {}
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

    /// A text that is no time among many that are, with its row.
    fn bad_time(&self) -> Option<&(u64, String)> {
        let is_time = self.numbers == 0 && 10 * self.times >= 9 * self.texts;
        self.first_other.as_ref().filter(|_| is_time && self.times > 0)
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

/// Reads the files once, and once more if they have a time; a few times more if that repeats or
/// goes back, and it isn't known who the devices are. What is chosen already is not suggested
/// again. `default_nodes` is the number of nodes of a run that isn't told another. `progress` gets
/// the number of bytes read.
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
    let mut roles = Roles::guess(&columns, choice, files.len(), rows);
    let mut clock = Clock::read(files, choice, &roles)?;
    // Of two devices every second time is repeated; some may be missing.
    let is_repeated = 4 * clock.repeated >= rows.max(1);
    if roles.node.is_none() && (is_repeated || clock.back > 0) {
        for name in roles.possible_nodes(&columns, choice, rows) {
            let with_node = Roles { node: Some(name), ..roles.clone() };
            let by_device = Clock::read(files, choice, &with_node)?;
            if is_repeated && by_device.explains(&clock) || by_device.is_device_by_device(&clock) {
                (roles, clock) = (with_node, by_device);
                break;
            }
        }
    }
    notes.extend(notes_on(&columns, &roles, &clock, rows));
    let suggestion = suggest(&columns, choice, &roles, &clock, rows, default_nodes);
    let forecast = forecast(&columns, choice, &roles, &suggestion);
    let columns = columns.iter().map(Column::info).collect();
    Ok(TableInfo { files: files.to_vec(), rows, columns, suggestion, forecast, notes })
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
