//! [`SampleStream`]: files, or standard input, as samples in order of time, one by one, in bounded
//! memory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::DataError;
use super::columns::{BY_FILE, Categories, ColumnChoice, Disorder, Duplicates, Roles};
use super::encoder::{Encoder, Levels, Numbers, Owners};
use super::rows::{self, Place, Row, Rows};
use super::series::{Series, Shape};
use super::store::{Store, StoreWriter};
use super::text::excerpt;

/// One sample; NaN is missing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// The inputs.
    pub x: Vec<f32>,
    /// The label.
    pub y: f32,
    /// The node of the sample.
    pub owner: u32,
    /// In a time series, the latest label that was known when the forecast was made.
    pub last: Option<f32>,
}

/// Which columns each input may come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InputColumns {
    /// None for an input that is one where a text stands, and zero elsewhere; several for a past
    /// label of one of several series.
    pub inputs: Vec<Vec<String>>,
    /// Names of the targets.
    pub targets: Vec<String>,
}

/// Rows that are looked at to tell columns of text from columns of numbers.
pub(super) const LOOKED_AT: usize = 1000;

/// Samples from one or more tables of the same columns.
pub struct SampleStream {
    input: Input,
    choice: ColumnChoice,
    shape: Shape,
    columns: InputColumns,
    owners: Owners,
    /// By owner and target.
    series: HashMap<(u32, usize), Series>,
    /// Time of each owner's last row.
    clock: HashMap<u32, f64>,
    numbers: Numbers,
    /// The next target of the row at hand.
    target: usize,
    rows_taken: usize,
    is_live: bool,
}

/// Where rows come from.
enum Input {
    Tables(Box<Tables>),
    /// Sorted by time.
    Sorted(Sorted),
}

struct Tables {
    files: Vec<PathBuf>,
    /// Of each file, where each is a node.
    nodes: Vec<String>,
    /// Which of them is being read.
    at: usize,
    rows: Box<dyn Rows>,
    encoder: Encoder,
    row: Row,
    /// The first row has been read already.
    peeked: bool,
    levels: Levels,
    /// Bytes of the files before this one.
    bytes_before: u64,
}

struct Sorted {
    store: Store,
    order: Vec<u32>,
    at: usize,
    owners: Vec<u32>,
    times: Vec<f64>,
    /// For messages: the line of each row, the first row of each file, and the column of the time.
    lines: Vec<u64>,
    files: Vec<(usize, PathBuf)>,
    column: Option<String>,
    bytes: u64,
}

impl SampleStream {
    /// Opens the files; `-` alone is standard input, which is read live.
    pub fn open(files: &[PathBuf], choice: &ColumnChoice) -> Result<Self, DataError> {
        if !files.iter().any(|file| file == Path::new("-")) {
            let levels = levels(files, choice)?;
            return Self::over(Tables::open(files, choice, levels)?, choice, false);
        }
        if files.len() > 1 {
            return Err(DataError::NeedsWholeFile("a file beside it"));
        }
        // Refuse before waiting for the first row.
        check_live(choice)?;
        Self::live(rows::open(Path::new("-"), &choice.format)?, choice)
    }

    /// Samples of a table that is made while it is read, such as standard input.
    pub fn live(rows: Box<dyn Rows>, choice: &ColumnChoice) -> Result<Self, DataError> {
        check_live(choice)?;
        Self::over(Tables::live(rows, choice)?, choice, true)
    }

    fn over(tables: Tables, choice: &ColumnChoice, is_live: bool) -> Result<Self, DataError> {
        let encoder = &tables.encoder;
        let shape = Shape {
            inputs: encoder.width(),
            lagged: encoder.lagged(),
            lags: choice.lags,
            horizon: choice.horizon,
            exogenous: choice.exogenous,
        };
        let targets = encoder.target_names();
        let mut columns =
            InputColumns { inputs: encoder.input_columns(), targets: targets.clone() };
        for names in
            [targets.clone()].into_iter().chain(choice.lagged.iter().map(|name| vec![name.clone()]))
        {
            columns.inputs.extend(std::iter::repeat_n(names, choice.lags));
        }
        let mut stream = Self {
            input: Input::Tables(Box::new(tables)),
            choice: choice.clone(),
            shape,
            columns,
            target: targets.len(),
            owners: Owners::default(),
            series: HashMap::new(),
            clock: HashMap::new(),
            numbers: Numbers::default(),
            rows_taken: 0,
            is_live,
        };
        if targets.len() > 1 {
            // Every series is a node.
            targets.iter().for_each(|name| _ = stream.owners.id(name));
        }
        if choice.disorder == Disorder::Sort && !choice.time.is_empty() {
            stream.sort()?;
        }
        Ok(stream)
    }

    /// Numbers per sample, d.
    pub fn features(&self) -> usize {
        self.shape.width()
    }

    /// Whether samples come as they are made, and only once.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Whether samples know anything of the past.
    pub fn is_time_series(&self) -> bool {
        self.shape.looks_back() || !self.choice.time.is_empty()
    }

    /// Names of the nodes so far; empty if the data names no nodes.
    pub fn owners(&self) -> &[String] {
        &self.owners.names
    }

    /// Whether the data names nodes.
    pub fn has_owners(&self) -> bool {
        self.choice.node.is_some() || self.columns.targets.len() > 1
    }

    /// Rows of the past that the first sample of a series needs.
    pub fn history(&self) -> usize {
        self.shape.history()
    }

    /// Which column each input comes from.
    pub fn input_columns(&self) -> &InputColumns {
        &self.columns
    }

    /// Bytes of the files taken in so far.
    pub fn bytes_read(&self) -> u64 {
        match &self.input {
            Input::Tables(tables) => tables.bytes_before + tables.rows.bytes_read(),
            Input::Sorted(sorted) => sorted.bytes,
        }
    }

    /// Writes the next sample; false at the end.
    pub fn next(&mut self, sample: &mut Sample) -> Result<bool, DataError> {
        loop {
            if self.target == self.columns.targets.len() {
                if !self.next_row()? {
                    return Ok(false);
                }
                self.target = 0;
            }
            let target = self.target;
            self.target += 1;
            let (inputs, rest) = self.numbers.values.split_at(self.shape.inputs);
            let (lagged, labels) = rest.split_at(self.shape.lagged);
            let owner =
                if self.columns.targets.len() > 1 { target as u32 } else { self.numbers.owner };
            let series = self.series.entry((owner, target)).or_default();
            if series.next(&self.shape, inputs, lagged, labels[target], sample) {
                sample.owner = owner;
                return Ok(true);
            }
        }
    }

    /// Reads the next row with a valid time.
    fn next_row(&mut self) -> Result<bool, DataError> {
        loop {
            if self.choice.rows == Some(self.rows_taken) {
                return Ok(false);
            }
            let line = match &mut self.input {
                Input::Tables(tables) => {
                    tables.next(&self.choice, &mut self.owners, &mut self.numbers)?
                }
                Input::Sorted(sorted) => sorted.next(&mut self.numbers)?,
            };
            let Some(line) = line else { return Ok(false) };
            self.rows_taken += 1;
            if self.choice.time.is_empty() {
                return Ok(true);
            }
            let time = self.numbers.time;
            let before = self.clock.insert(self.numbers.owner, time);
            let place = || match &self.input {
                Input::Tables(tables) => tables.encoder.place(line, tables.encoder.time_column()),
                Input::Sorted(sorted) => sorted.place(),
            };
            match before {
                Some(before) if time < before && self.choice.disorder == Disorder::Refuse => {
                    return Err(DataError::TimeGoesBack(place(), before - time));
                }
                Some(before) if time == before => match self.choice.duplicates {
                    Duplicates::Refuse => return Err(DataError::TimeRepeats(place())),
                    Duplicates::Keep => return Ok(true),
                    Duplicates::First => {}
                },
                _ => return Ok(true),
            }
        }
    }

    /// Reads everything and continues in order of time.
    fn sort(&mut self) -> Result<(), DataError> {
        let mut writer =
            StoreWriter::new(self.shape.inputs + self.shape.lagged + self.columns.targets.len());
        let (mut owners, mut times, mut lines, mut files) = (vec![], vec![], vec![], vec![]);
        let Input::Tables(tables) = &mut self.input else { return Ok(()) };
        while self.choice.rows != Some(times.len())
            && let Some(line) = tables.next(&self.choice, &mut self.owners, &mut self.numbers)?
        {
            if files.len() <= tables.at {
                files.resize(tables.at + 1, (times.len(), tables.files[tables.at].clone()));
            }
            writer.push(&self.numbers.values).map_err(DataError::Store)?;
            owners.push(self.numbers.owner);
            times.push(self.numbers.time);
            lines.push(line);
        }
        let bytes = tables.bytes_before + tables.rows.bytes_read();
        let count = u32::try_from(times.len()).map_err(|_| DataError::TooManyRows(times.len()))?;
        let mut order: Vec<u32> = (0..count).collect();
        order.sort_by(|a, b| times[*a as usize].total_cmp(&times[*b as usize]));
        let store = writer.finish().map_err(DataError::Store)?;
        let column = tables.encoder.place(0, tables.encoder.time_column()).column;
        self.input = Input::Sorted(Sorted {
            store,
            order,
            at: 0,
            owners,
            times,
            lines,
            files,
            column,
            bytes,
        });
        Ok(())
    }
}

impl Sorted {
    fn next(&mut self, numbers: &mut Numbers) -> Result<Option<u64>, DataError> {
        let Some(&row) = self.order.get(self.at) else { return Ok(None) };
        self.at += 1;
        numbers.values.clear();
        self.store.read(&[row], &mut numbers.values).map_err(DataError::Store)?;
        (numbers.owner, numbers.time) = (self.owners[row as usize], self.times[row as usize]);
        Ok(Some(self.lines[row as usize]))
    }

    /// Where the row that was last taken stands.
    fn place(&self) -> Place {
        let row =
            self.at.checked_sub(1).and_then(|at| self.order.get(at)).map_or(0, |row| *row as usize);
        let file = self.files.iter().rev().find(|(first, _)| *first <= row);
        let file = file.map(|(_, file)| file.clone()).unwrap_or_default();
        Place { file, row: self.lines.get(row).copied(), column: self.column.clone() }
    }
}

impl Tables {
    fn open(files: &[PathBuf], choice: &ColumnChoice, levels: Levels) -> Result<Self, DataError> {
        let first = files.first().ok_or(DataError::NoFiles)?;
        let rows = rows::open(first, &choice.format)?;
        let encoder = Encoder::new(first.clone(), rows.columns(), choice, &levels)?;
        let is_by_file = choice.node.as_deref() == Some(BY_FILE);
        Ok(Self {
            files: files.to_vec(),
            nodes: if is_by_file { node_names(files) } else { vec![] },
            at: 0,
            rows,
            encoder,
            row: Row::default(),
            peeked: false,
            levels,
            bytes_before: 0,
        })
    }

    fn live(mut rows: Box<dyn Rows>, choice: &ColumnChoice) -> Result<Self, DataError> {
        let file = PathBuf::from("-");
        let roles = Roles::find(&file, rows.columns(), choice)?;
        // No more than the first row is shown beforehand.
        let (mut levels, mut row) = (Levels::default(), Row::default());
        let peeked = rows.next(&mut row)?;
        if peeked {
            levels.note_columns(&row, &roles.features);
        }
        let encoder = Encoder::new(file.clone(), rows.columns(), choice, &levels)?;
        let nodes = vec!["-".to_owned()];
        Ok(Self {
            files: vec![file],
            nodes,
            at: 0,
            rows,
            encoder,
            row,
            peeked,
            levels,
            bytes_before: 0,
        })
    }

    /// The next row of all files, and its line.
    fn next(
        &mut self,
        choice: &ColumnChoice,
        owners: &mut Owners,
        numbers: &mut Numbers,
    ) -> Result<Option<u64>, DataError> {
        while !std::mem::take(&mut self.peeked) && !self.rows.next(&mut self.row)? {
            let Some(next) = self.files.get(self.at + 1) else { return Ok(None) };
            self.at += 1;
            self.bytes_before += self.rows.bytes_read();
            let rows = rows::open(next, &choice.format)?;
            check_columns(&self.files[0], self.rows.columns(), next, rows.columns())?;
            self.rows = rows;
            self.encoder = Encoder::new(next.clone(), self.rows.columns(), choice, &self.levels)?;
        }
        if choice.node.as_deref() == Some(BY_FILE) {
            numbers.owner = owners.id(&self.nodes[self.at]);
        }
        self.encoder.encode(&self.row, owners, numbers)?;
        Ok(Some(self.row.line()))
    }
}

/// What a stream that is read once, as it is made, can't have.
fn check_live(choice: &ColumnChoice) -> Result<(), DataError> {
    if choice.disorder == Disorder::Sort {
        return Err(DataError::NeedsWholeFile("data.disorder = \"sort\""));
    }
    if choice.categories == Categories::OneHot {
        return Err(DataError::NeedsWholeFile(
            "data.categories = \"one-hot\" (hashed:N does without)",
        ));
    }
    Ok(())
}

fn check_columns(
    first: &Path,
    names: &[String],
    other: &Path,
    found: &[String],
) -> Result<(), DataError> {
    if names == found {
        return Ok(());
    }
    let difference = match names.iter().zip(found).position(|(name, found)| name != found) {
        Some(at) => {
            let [found, name] = [&found[at], &names[at]].map(|name| excerpt(name));
            format!("column {} is {found:?}, not {name:?}", at + 1)
        }
        None => format!("it has {}, not {}", found.len(), names.len()),
    };
    Err(DataError::OtherColumns { first: first.to_owned(), other: other.to_owned(), difference })
}

/// A first reading, as far as needed: which inputs are columns of text, and which texts they have.
fn levels(files: &[PathBuf], choice: &ColumnChoice) -> Result<Levels, DataError> {
    let mut levels = Levels::default();
    if choice.categories == Categories::Refuse {
        return Ok(levels);
    }
    let mut inputs: Option<(Vec<String>, Vec<usize>)> = None;
    let most = choice.rows.unwrap_or(usize::MAX);
    let mut seen = 0;
    for file in files {
        let mut rows = rows::open(file, &choice.format)?;
        if let Some((names, _)) = &inputs {
            check_columns(&files[0], names, file, rows.columns())?;
        }
        let features = match &mut inputs {
            Some((_, features)) => features,
            none => {
                let features = Roles::find(file, rows.columns(), choice)?.features;
                &mut none.insert((rows.columns().to_vec(), features)).1
            }
        };
        let (mut row, mut seen_here) = (Row::default(), 0);
        while seen < most && seen_here < LOOKED_AT && rows.next(&mut row)? {
            levels.note_columns(&row, features);
            (seen, seen_here) = (seen + 1, seen_here + 1);
        }
    }
    if choice.categories == Categories::OneHot {
        // Which texts there are can only be asked once it is known where.
        seen = 0;
        for file in files {
            let (mut rows, mut row) = (rows::open(file, &choice.format)?, Row::default());
            while seen < most && rows.next(&mut row)? {
                levels.note_texts(&row);
                seen += 1;
            }
        }
    }
    Ok(levels)
}

/// How files are packed, and how tables are written.
const PACKED_ENDINGS: [&str; 3] = [".gz", ".zst", ".zstd"];
const FORMAT_ENDINGS: [&str; 9] =
    [".csv", ".tsv", ".txt", ".dat", ".data", ".json", ".jsonl", ".ndjson", ".parquet"];

/// Names for nodes that are files: without the endings that say how they are written, unless they
/// would be alike then.
fn node_names(files: &[PathBuf]) -> Vec<String> {
    let whole =
        |file: &PathBuf| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let short = |file: &PathBuf| {
        let name = whole(file);
        without_ending(without_ending(&name, &PACKED_ENDINGS), &FORMAT_ENDINGS).to_owned()
    };
    let count = |name: &dyn Fn(&PathBuf) -> String| {
        let mut counts: HashMap<String, usize> = HashMap::new();
        files.iter().for_each(|file| *counts.entry(name(file)).or_default() += 1);
        counts
    };
    let (shorts, wholes) = (count(&short), count(&whole));
    let name = |file| match (short(file), whole(file)) {
        (short, _) if shorts[&short] == 1 => short,
        (_, whole) if wholes[&whole] == 1 => whole,
        _ => file.display().to_string(),
    };
    files.iter().map(name).collect()
}

/// The name without the first of these endings that it has, if something is left.
fn without_ending<'a>(name: &'a str, endings: &[&str]) -> &'a str {
    let cut = endings.iter().filter_map(|ending| {
        let at = name.len().checked_sub(ending.len()).filter(|at| *at > 0)?;
        name.get(at..).filter(|end| end.eq_ignore_ascii_case(ending)).map(|_| &name[..at])
    });
    cut.into_iter().next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &[&str]) -> Vec<String> {
        node_names(&files.iter().map(PathBuf::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_node_has_its_file_s_name_without_endings() {
        let files = [
            "d/a.csv",
            "d/b.csv.gz",
            "d/c.jsonl.zst",
            "d/e.CSV",
            "d/north.2.parquet",
            "d/f.1",
            "d/f.2",
        ];
        assert_eq!(names(&files), ["a", "b", "c", "e", "north.2", "f.1", "f.2"]);
        assert_eq!(names(&["d/.csv", "d/.gz", "d/é.csv"]), [".csv", ".gz", "é"]);
    }

    #[test]
    fn no_two_files_are_one_node() {
        assert_eq!(names(&["d/a.csv", "d/a.csv.gz", "d/b.csv"]), ["a.csv", "a.csv.gz", "b"]);
        assert_eq!(names(&["d/a.csv", "e/a.csv"]), ["d/a.csv", "e/a.csv"]);
    }
}
