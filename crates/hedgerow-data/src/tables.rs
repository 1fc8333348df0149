//! [`Tables`]: the rows of one or more files with the same columns, as numbers.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::DataError;
use super::calendar::{CalendarChoice, Cycle, CycleFinder};
use super::columns::{BY_FILE, Categories, ColumnChoice, Roles, Task};
use super::encoder::{Encoder, Levels, Numbers, Owners, Purpose};
use super::rows::{self, Cell, CellPosition, Row, Rows};
use super::schema::TableSchema;
use super::text::excerpt;

/// What a live stream can't have.
pub(super) const CLASSES_UNNAMED: &str = "a class, unless data.classes names all classes,";

/// Rows of a file that are looked at to tell columns of text from columns of numbers.
pub(super) const LOOKED_AT: usize = 1000;

/// Files that are read one after the other.
pub(super) struct Tables {
    pub(super) files: Vec<PathBuf>,
    /// Of each file, where each is a node.
    nodes: Vec<String>,
    /// Which of them is being read.
    pub(super) at: usize,
    rows: Box<dyn Rows>,
    pub(super) encoder: Encoder,
    purpose: Purpose,
    row: Row,
    /// The first row has been read already.
    peeked: bool,
    /// Bytes of the files before this one.
    bytes_before: u64,
}

impl Tables {
    /// Opens the first file. The schema is what a first reading of all of them finds.
    pub(super) fn open(
        files: &[PathBuf],
        choice: &ColumnChoice,
    ) -> Result<(Self, TableSchema), DataError> {
        let levels = levels(files, choice)?;
        let first = files.first().ok_or(DataError::NoFiles)?;
        let rows = rows::open(first, &choice.format)?;
        let mut schema = TableSchema::new(first, rows.columns(), choice, &levels)?;
        if choice.calendar == CalendarChoice::Auto && !schema.time.is_empty() {
            schema.calendar = cycles(files, choice, &schema)?.into_iter().take(1).collect();
        }
        Ok((Self::new(files.to_vec(), rows, &schema, Purpose::Learning)?, schema))
    }

    /// Rows that come one by one. No more than the first is looked at beforehand.
    pub(super) fn live(
        mut rows: Box<dyn Rows>,
        choice: &ColumnChoice,
    ) -> Result<(Self, TableSchema), DataError> {
        let file = PathBuf::from("-");
        let roles = Roles::find(&file, rows.columns(), choice)?;
        let (mut levels, mut row) = (Levels::default(), Row::default());
        let peeked = rows.next(&mut row)?;
        if peeked {
            levels.note_columns(&row, &roles.features);
            if let ([target], true) = (&roles.targets[..], finds_classes(choice)) {
                levels.note_target(&row, *target);
            }
        }
        if levels.has_class() {
            return Err(DataError::NeedsWholeFile(CLASSES_UNNAMED));
        }
        let schema = TableSchema::new(&file, rows.columns(), choice, &levels)?;
        let tables = Self::new(vec![file], rows, &schema, Purpose::Learning)?;
        Ok((Self { row, peeked, ..tables }, schema))
    }

    /// A table to predict from, of a schema that is known.
    pub(super) fn predicting(
        file: &Path,
        rows: Box<dyn Rows>,
        schema: &TableSchema,
    ) -> Result<Self, DataError> {
        Self::new(vec![file.to_owned()], rows, schema, Purpose::Predicting)
    }

    fn new(
        files: Vec<PathBuf>,
        rows: Box<dyn Rows>,
        schema: &TableSchema,
        purpose: Purpose,
    ) -> Result<Self, DataError> {
        let encoder = Encoder::new(files[0].clone(), rows.columns(), schema, purpose)?;
        let is_by_file = schema.node.as_deref() == Some(BY_FILE);
        Ok(Self {
            nodes: if is_by_file { node_names(&files) } else { vec![] },
            files,
            at: 0,
            rows,
            encoder,
            purpose,
            row: Row::default(),
            peeked: false,
            bytes_before: 0,
        })
    }

    /// Whether rows say whose they are.
    pub(super) fn has_nodes(&self) -> bool {
        !self.nodes.is_empty() || self.encoder.has_nodes()
    }

    /// Bytes of the files taken in so far.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_before + self.rows.bytes_read()
    }

    /// Writes the next row of all files; false at the end.
    pub(super) fn next(
        &mut self,
        schema: &TableSchema,
        owners: &mut Owners,
        numbers: &mut Numbers,
    ) -> Result<bool, DataError> {
        while !std::mem::take(&mut self.peeked) && !self.rows.next(&mut self.row)? {
            let Some(next) = self.files.get(self.at + 1) else { return Ok(false) };
            self.at += 1;
            self.bytes_before += self.rows.bytes_read();
            let rows = rows::open(next, &schema.format)?;
            check_columns(&self.files[0], self.rows.columns(), next, rows.columns())?;
            self.rows = rows;
            self.encoder = Encoder::new(next.clone(), self.rows.columns(), schema, self.purpose)?;
        }
        if let Some(node) = self.nodes.get(self.at) {
            numbers.owner = owners.id(node);
        }
        self.encoder.encode(&self.row, owners, numbers)?;
        Ok(true)
    }
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

/// Whether classes are still to be found.
fn finds_classes(choice: &ColumnChoice) -> bool {
    choice.classes.is_empty() && choice.task != Task::Numbers
}

/// A first reading, as far as needed: which inputs are columns of text, and which texts they have;
/// whether the target is a class, and which classes there are.
fn levels(files: &[PathBuf], choice: &ColumnChoice) -> Result<Levels, DataError> {
    let mut levels = Levels::default();
    let finds_classes = finds_classes(choice);
    if choice.categories == Categories::Refuse && !finds_classes {
        return Ok(levels);
    }
    let mut inputs: Option<(Vec<String>, Roles)> = None;
    let mut looks: Vec<Look> = Vec::new();
    let most = choice.rows.unwrap_or(usize::MAX);
    let mut seen = 0;
    for file in files {
        let mut rows = rows::open(file, &choice.format)?;
        if let Some((names, _)) = &inputs {
            check_columns(&files[0], names, file, rows.columns())?;
        }
        let Roles { features, targets, .. } = match &mut inputs {
            Some((_, roles)) => roles,
            none => {
                let roles = Roles::find(file, rows.columns(), choice)?;
                &mut none.insert((rows.columns().to_vec(), roles)).1
            }
        };
        let (mut row, mut seen_here) = (Row::default(), 0);
        while seen < most && seen_here < LOOKED_AT && rows.next(&mut row)? {
            if choice.categories != Categories::Refuse {
                looks.resize_with(features.len(), Look::default);
                for (look, &column) in looks.iter_mut().zip(features.iter()) {
                    look.see(row.cell(column), || CellPosition {
                        file: file.clone(),
                        row: Some(row.line()),
                        column: Some(rows.columns()[column].clone()),
                    });
                }
            }
            if let ([target], true) = (&targets[..], finds_classes) {
                levels.note_target(&row, *target);
            }
            (seen, seen_here) = (seen + 1, seen_here + 1);
        }
    }
    let (features, target) = inputs.map_or((Vec::new(), 0), |(_, roles)| {
        (roles.features, roles.targets.first().copied().unwrap_or(0))
    });
    for (look, column) in looks.into_iter().zip(features) {
        if look.holds_text()? {
            levels.add(column);
        }
    }
    if finds_classes && (choice.task == Task::Classes || levels.has_class()) {
        levels.classes = Some(BTreeSet::new());
    }
    if choice.categories == Categories::OneHot || levels.classes.is_some() {
        // The texts can be read only when the columns of text are known.
        seen = 0;
        for file in files {
            let (mut rows, mut row) = (rows::open(file, &choice.format)?, Row::default());
            while seen < most && rows.next(&mut row)? {
                levels.note_texts(&row);
                levels.note_class(&row, target);
                seen += 1;
            }
        }
    }
    Ok(levels)
}

/// Numbers for each text, from which on a column is one of numbers, and its texts are mistakes.
const NUMBERS_PER_TEXT: u64 = 20;

/// What a first look at a column found.
#[derive(Default)]
struct Look {
    numbers: u64,
    texts: u64,
    first_text: Option<(CellPosition, String)>,
}

impl Look {
    fn see(&mut self, cell: Cell<'_>, place: impl FnOnce() -> CellPosition) {
        match cell {
            Cell::Missing => {}
            Cell::Number(_) => self.numbers += 1,
            Cell::Text(text) => {
                self.texts += 1;
                self.first_text.get_or_insert_with(|| (place(), excerpt(text)));
            }
        }
    }

    /// Whether it is a column of text; an error for one of numbers with a few texts.
    fn holds_text(self) -> Result<bool, DataError> {
        let Self { numbers, texts, first_text } = self;
        match first_text {
            Some((place, text)) if numbers >= NUMBERS_PER_TEXT * texts => {
                Err(DataError::TextAmongNumbers { place, text, texts, cells: numbers + texts })
            }
            first_text => Ok(first_text.is_some()),
        }
    }
}

/// Another reading, for the times alone: which cycles they show. Plain numbers show none, because
/// they may count anything.
fn cycles(
    files: &[PathBuf],
    choice: &ColumnChoice,
    schema: &TableSchema,
) -> Result<Vec<Cycle>, DataError> {
    // The past of nothing needs no inputs.
    let lean = TableSchema { inputs: Vec::new(), lagged: Vec::new(), ..schema.clone() };
    let rows = rows::open(&files[0], &schema.format)?;
    let mut tables = Tables::new(files.to_vec(), rows, &lean, Purpose::Learning)?;
    let (mut owners, mut numbers) = (Owners::default(), Numbers::default());
    let mut finder = CycleFinder::default();
    let mut seen = 0;
    while choice.rows != Some(seen) && tables.next(&lean, &mut owners, &mut numbers)? {
        if !tables.encoder.has_dates() {
            return Ok(Vec::new());
        }
        finder.see(numbers.owner, numbers.time);
        seen += 1;
    }
    Ok(finder.cycles())
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
