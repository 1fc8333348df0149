//! [`SampleStream`]: files, or standard input, as samples in order of time, one by one, in bounded
//! memory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::DataError;
use super::columns::{Categories, ColumnChoice, Disorder, Duplicates, Task};
pub use super::encoder::UnknownTexts;
use super::encoder::{Numbers, Owners};
use super::rows::{self, CellPosition, Rows};
use super::schema::TableSchema;
use super::series::{Series, Shape};
use super::store::{Store, StoreWriter};
use super::tables::{CLASSES_UNNAMED, Tables};

/// One sample; NaN is missing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// The inputs.
    pub x: Vec<f32>,
    /// The labels; of a class, its number from 0.
    pub y: Vec<f32>,
    /// The node of the sample.
    pub owner: u32,
    /// The latest of each label that was known when the forecast was made.
    pub last: Vec<f32>,
    /// The row of the label in its file, from 1.
    pub row: u64,
    /// Its time in seconds since 1970; 0 without a time.
    pub time: f64,
}

/// Which columns each input may come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InputColumns {
    /// None for an input that is one where a text stands, and zero elsewhere; several for a past
    /// label of one of several series.
    pub inputs: Vec<Vec<String>>,
    /// The same of each label: none for a label of a class, several if each is a series.
    pub labels: Vec<Vec<String>>,
    /// Names of the targets.
    pub targets: Vec<String>,
    /// Names of the classes, if the target is one.
    pub classes: Vec<String>,
}

/// Samples from one or more tables of the same columns.
pub struct SampleStream {
    input: Input,
    schema: TableSchema,
    /// The maximal number of rows.
    most_rows: Option<usize>,
    has_owners: bool,
    has_time: bool,
    has_labels: bool,
    shape: Shape,
    owners: Owners,
    /// By owner.
    series: HashMap<u32, Series>,
    /// Time of each owner's last row.
    clock: HashMap<u32, f64>,
    numbers: Numbers,
    /// The next series of the row at hand.
    at: usize,
    rows_taken: usize,
    repeated_rows: u64,
    /// By node.
    rows_without_past: HashMap<u32, u64>,
    is_live: bool,
    has_dates: bool,
}

/// Where rows come from.
enum Input {
    Tables(Box<Tables>),
    /// Sorted by time.
    Sorted(Sorted),
}

struct Sorted {
    store: Store,
    rows: std::vec::IntoIter<SortedRow>,
    /// The row that was last taken.
    last: u32,
    /// For messages: the first row of each file, and the column of the time.
    files: Vec<(usize, PathBuf)>,
    column: Option<String>,
    unknown: Vec<UnknownTexts>,
    bytes: u64,
}

/// A row before its values are read: where they are in the store, and what goes with them.
struct SortedRow {
    index: u32,
    owner: u32,
    time: f64,
    line: u64,
}

impl SampleStream {
    /// Opens the files; `-` alone is standard input, which is read live.
    pub fn open(files: &[PathBuf], choice: &ColumnChoice) -> Result<Self, DataError> {
        if !files.iter().any(|file| file == Path::new("-")) {
            return Self::over(Tables::open(files, choice)?, choice.rows, false);
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
        Self::over(Tables::live(rows, choice)?, choice.rows, true)
    }

    /// Samples to predict from, of a table like those that a schema is of: the columns of inputs
    /// must be there, in any order. A label without a column is missing. `file` is its name in
    /// messages; `-` is read live.
    pub fn predicting(
        file: &Path,
        rows: Box<dyn Rows>,
        schema: &TableSchema,
    ) -> Result<Self, DataError> {
        let (is_live, mut schema) = (file == Path::new("-"), schema.clone());
        if !schema.looks_back() {
            // Each row is predicted by itself.
            (schema.disorder, schema.duplicates) = (Disorder::Keep, Duplicates::Keep);
        }
        if is_live && schema.disorder == Disorder::Sort {
            return Err(DataError::NeedsWholeFile("data.disorder = \"sort\""));
        }
        let tables = Tables::predicting(file, rows, &schema)?;
        Self::over((tables, schema), None, is_live)
    }

    fn over(
        (tables, schema): (Tables, TableSchema),
        most_rows: Option<usize>,
        is_live: bool,
    ) -> Result<Self, DataError> {
        let shape = schema.shape();
        let targets = schema.targets.clone();
        let has_time = tables.encoder.time_column().is_some();
        let sorts = schema.disorder == Disorder::Sort && has_time;
        let mut stream = Self {
            has_owners: tables.has_nodes() || schema.each_a_node,
            has_time,
            has_labels: tables.encoder.has_labels(),
            input: Input::Tables(Box::new(tables)),
            schema,
            most_rows,
            shape,
            at: usize::MAX,
            owners: Owners::default(),
            series: HashMap::new(),
            clock: HashMap::new(),
            numbers: Numbers::default(),
            rows_taken: 0,
            repeated_rows: 0,
            rows_without_past: HashMap::new(),
            is_live,
            has_dates: false,
        };
        if stream.schema.each_a_node {
            targets.iter().for_each(|name| _ = stream.owners.id(name));
        }
        if sorts {
            stream.sort()?;
        }
        Ok(stream)
    }

    /// Numbers per sample, d.
    pub fn features(&self) -> usize {
        self.schema.width()
    }

    /// Labels per sample.
    pub fn labels(&self) -> usize {
        self.shape.labels
    }

    /// Whether samples arrive while they are made, and can be read only once.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Whether rows have a time.
    pub fn has_time(&self) -> bool {
        self.has_time
    }

    /// Whether rows may have a label.
    pub fn has_labels(&self) -> bool {
        self.has_labels
    }

    /// What its columns mean.
    pub fn schema(&self) -> &TableSchema {
        &self.schema
    }

    /// Whether times so far are dates, not plain numbers.
    pub fn has_dates(&self) -> bool {
        self.has_dates
    }

    /// Whether rows have an order in time: they have a time, or samples depend on earlier rows.
    pub fn is_time_series(&self) -> bool {
        self.shape.looks_back() || self.has_time()
    }

    /// Names of the nodes so far; empty if the data names no nodes.
    pub fn owners(&self) -> &[String] {
        &self.owners.names
    }

    /// Whether the data names nodes.
    pub fn has_owners(&self) -> bool {
        self.has_owners
    }

    /// Rows of the past that the first sample of a series needs.
    pub fn history(&self) -> usize {
        self.shape.history()
    }

    /// Texts of rows so far that are none of those that the inputs were made of, by column.
    pub fn unknown_texts(&self) -> Vec<UnknownTexts> {
        match &self.input {
            Input::Tables(tables) => tables.encoder.unknown_texts(),
            Input::Sorted(sorted) => sorted.unknown.clone(),
        }
    }

    /// Rows so far that were left out because the row before has their time.
    pub fn repeated_rows(&self) -> u64 {
        self.repeated_rows
    }

    /// Rows so far that made no sample because too few rows of their node came before: of all
    /// nodes, or of one.
    pub fn rows_without_past(&self, node: Option<&str>) -> u64 {
        let is_of = |owner: &u32| match (node, self.owners.names.get(*owner as usize)) {
            (Some(node), Some(name)) => node == name,
            _ => true,
        };
        let rows = self.rows_without_past.iter().filter(|(owner, _)| is_of(owner));
        rows.map(|(_, rows)| rows).sum()
    }

    /// Bytes of the files taken in so far.
    pub fn bytes_read(&self) -> u64 {
        match &self.input {
            Input::Tables(tables) => tables.bytes_read(),
            Input::Sorted(sorted) => sorted.bytes,
        }
    }

    /// Writes the next sample; false at the end.
    pub fn next(&mut self, sample: &mut Sample) -> Result<bool, DataError> {
        loop {
            if self.at >= self.schema.targets.len() / self.shape.labels {
                if !self.next_row()? {
                    return Ok(false);
                }
                self.at = 0;
            }
            let at = self.at;
            self.at += 1;
            let (inputs, rest) = self.numbers.values.split_at(self.shape.inputs);
            let (lagged, labels) = rest.split_at(self.shape.lagged);
            let owner = if self.schema.each_a_node { at as u32 } else { self.numbers.owner };
            let labels = &labels[at * self.shape.labels..(at + 1) * self.shape.labels];
            let series = self.series.entry(owner).or_default();
            if series.next(&self.shape, inputs, lagged, labels, sample) {
                self.schema.add_calendar(self.numbers.time, &mut sample.x);
                sample.owner = owner;
                (sample.row, sample.time) = (self.numbers.line, self.numbers.time);
                return Ok(true);
            }
            *self.rows_without_past.entry(owner).or_default() += 1;
        }
    }

    /// Reads the next row with a valid time.
    fn next_row(&mut self) -> Result<bool, DataError> {
        loop {
            if self.most_rows == Some(self.rows_taken) {
                return Ok(false);
            }
            let numbers = &mut self.numbers;
            let found = match &mut self.input {
                Input::Tables(tables) => tables.next(&self.schema, &mut self.owners, numbers)?,
                Input::Sorted(sorted) => sorted.next(numbers)?,
            };
            if !found {
                return Ok(false);
            }
            if let Input::Tables(tables) = &self.input {
                self.has_dates |= tables.encoder.has_dates();
            }
            self.rows_taken += 1;
            if !self.has_time {
                return Ok(true);
            }
            let Numbers { time, owner, line, .. } = self.numbers;
            let before = self.clock.insert(owner, time);
            let place = || match &self.input {
                Input::Tables(tables) => tables.encoder.place(line, tables.encoder.time_column()),
                Input::Sorted(sorted) => sorted.place(line),
            };
            match before {
                Some(before) if time < before && self.schema.disorder == Disorder::Refuse => {
                    return Err(DataError::TimeGoesBack(place(), before - time));
                }
                Some(before) if time == before => match self.schema.duplicates {
                    Duplicates::Refuse => return Err(DataError::TimeRepeats(place())),
                    Duplicates::Keep => return Ok(true),
                    Duplicates::First => self.repeated_rows += 1,
                },
                _ => return Ok(true),
            }
        }
    }

    /// Reads everything and continues in order of time.
    fn sort(&mut self) -> Result<(), DataError> {
        let mut writer =
            StoreWriter::new(self.shape.inputs + self.shape.lagged + self.schema.targets.len());
        let (mut rows, mut files) = (Vec::new(), Vec::new());
        let Input::Tables(tables) = &mut self.input else { return Ok(()) };
        while self.most_rows != Some(rows.len())
            && tables.next(&self.schema, &mut self.owners, &mut self.numbers)?
        {
            if files.len() <= tables.at {
                files.resize(tables.at + 1, (rows.len(), tables.files[tables.at].clone()));
            }
            let Numbers { values, owner, time, line } = &self.numbers;
            writer.push(values).map_err(DataError::Store)?;
            let index = u32::try_from(rows.len());
            let index = index.map_err(|_| DataError::TooManyRows(rows.len()))?;
            rows.push(SortedRow { index, owner: *owner, time: *time, line: *line });
        }
        rows.sort_by(|a, b| a.time.total_cmp(&b.time));
        let store = writer.finish().map_err(DataError::Store)?;
        let column = tables.encoder.place(0, tables.encoder.time_column()).column;
        self.has_dates = tables.encoder.has_dates();
        let unknown = tables.encoder.unknown_texts();
        let (rows, bytes) = (rows.into_iter(), tables.bytes_read());
        self.input = Input::Sorted(Sorted { store, rows, last: 0, files, column, unknown, bytes });
        Ok(())
    }
}

impl Sorted {
    fn next(&mut self, numbers: &mut Numbers) -> Result<bool, DataError> {
        let Some(SortedRow { index, owner, time, line }) = self.rows.next() else {
            return Ok(false);
        };
        self.last = index;
        (numbers.owner, numbers.time, numbers.line) = (owner, time, line);
        numbers.values.clear();
        self.store.read(&[index], &mut numbers.values).map_err(DataError::Store)?;
        Ok(true)
    }

    /// Where the row that was last taken is.
    fn place(&self, line: u64) -> CellPosition {
        let file = self.files.iter().rev().find(|(first, _)| *first <= self.last as usize);
        let file = file.map(|(_, file)| file.clone()).unwrap_or_default();
        CellPosition { file, row: Some(line), column: self.column.clone() }
    }
}

/// An error for settings that a stream that is read once can't have.
fn check_live(choice: &ColumnChoice) -> Result<(), DataError> {
    if choice.disorder == Disorder::Sort {
        return Err(DataError::NeedsWholeFile("data.disorder = \"sort\""));
    }
    if choice.task == Task::Classes && choice.classes.is_empty() {
        return Err(DataError::NeedsWholeFile(CLASSES_UNNAMED));
    }
    if choice.categories == Categories::OneHot {
        return Err(DataError::NeedsWholeFile(
            "data.categories = \"one-hot\" (hashed:N does without)",
        ));
    }
    Ok(())
}
