//! [`Encoder`]: a row of a table becomes numbers. Texts become inputs that are one or zero
//! ([`Levels`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use hedgerow::limits::{MAX_CLASSES, MAX_LABEL};

use super::columns::BY_FILE;
use super::rows::{Cell, CellPosition, Row};
use super::schema::{Encoding, TableSchema};
use super::text::{excerpt, listing};
use super::{DataError, timestamp};

/// Most inputs that a column of text may become.
pub(super) const MOST_LEVELS: usize = 1000;
/// From here on f64 no longer has all whole numbers.
const LARGEST_COUNT: f64 = 9_007_199_254_740_992.0;

/// A row as numbers; NaN is missing.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Numbers {
    /// The inputs of this row, then the lagged columns, then the labels.
    pub(super) values: Vec<f32>,
    /// The node; 0 if the data names none.
    pub(super) owner: u32,
    /// The time in seconds; 0 if the data has none.
    pub(super) time: f64,
    /// The line it begins in.
    pub(super) line: u64,
}

/// Turns rows of one table into [`Numbers`].
#[derive(Debug)]
pub(super) struct Encoder {
    file: PathBuf,
    names: Vec<String>,
    inputs: Vec<Input>,
    lagged: Vec<usize>,
    /// None where the table doesn't have it, which only predictions do without.
    targets: Vec<Option<usize>>,
    time: Vec<usize>,
    node: Option<usize>,
    /// Names of the classes, and the number of each; empty if the target is a number.
    classes: Vec<String>,
    class_numbers: HashMap<String, usize>,
    joined: String,
    /// Texts of columns that are none of the known ones.
    unknown: BTreeMap<usize, UnknownTexts>,
    /// Whether a time was a date, not a plain number.
    has_dates: bool,
}

/// Texts that a column of text did not have when its inputs were made. They set no input to one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnknownTexts {
    /// The column.
    pub column: String,
    /// How many cells have such a text.
    pub count: u64,
    /// Some of the texts.
    pub examples: BTreeSet<String>,
}

/// Examples of unknown texts that are kept of a column.
const MOST_EXAMPLES: usize = 5;

/// What the columns of a table must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// All that the schema names.
    Learning,
    /// The inputs. The label, the time and the node may be missing if no input needs them.
    Predicting,
}

/// How a column enters: as its number, or as numbers of which its text sets one to 1.
#[derive(Debug)]
struct Input {
    column: usize,
    slots: Option<Slots>,
}

#[derive(Debug)]
enum Slots {
    /// One for each known text.
    Known(HashMap<String, usize>),
    /// This many; the hash of a text chooses one.
    Hashed(usize),
}

impl Slots {
    fn new(encoding: &Encoding) -> Option<Self> {
        match encoding {
            Encoding::Number => None,
            Encoding::Hashed(count) => Some(Self::Hashed(*count)),
            Encoding::OneHot(texts) => Some(Self::Known(texts.iter().cloned().zip(0..).collect())),
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Known(levels) => levels.len(),
            Self::Hashed(count) => *count,
        }
    }

    /// The slot of a text; none if the first reading did not meet it.
    fn of(&self, text: &str) -> Option<usize> {
        match self {
            Self::Known(levels) => levels.get(text).copied(),
            Self::Hashed(count) => Some((hash(text) % *count as u64) as usize),
        }
    }
}

/// Nodes by the order in which they first appear.
#[derive(Debug, Default)]
pub(super) struct Owners {
    ids: HashMap<String, u32>,
    pub(super) names: Vec<String>,
}

impl Owners {
    pub(super) fn id(&mut self, name: &str) -> u32 {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = self.names.len() as u32;
        self.ids.insert(name.to_owned(), id);
        self.names.push(name.to_owned());
        id
    }
}

/// The columns of inputs that hold text, and their texts, found by a first reading; and the classes
/// of the target, if it is one.
#[derive(Debug, Clone, Default)]
pub(super) struct Levels {
    inputs: BTreeMap<usize, BTreeSet<String>>,
    pub(super) classes: Option<BTreeSet<String>>,
    /// How many texts and how many numbers the target has.
    target_texts: u64,
    target_numbers: u64,
}

impl Levels {
    /// A column that holds text.
    pub(super) fn add(&mut self, column: usize) {
        self.inputs.entry(column).or_default();
    }

    /// The texts of a column that holds text.
    pub(super) fn texts(&self, column: usize) -> Option<&BTreeSet<String>> {
        self.inputs.get(&column)
    }

    /// Notes what the target holds in this row.
    pub(super) fn note_target(&mut self, row: &Row, target: usize) {
        match row.cell(target) {
            Cell::Text(_) => self.target_texts += 1,
            Cell::Number(_) => self.target_numbers += 1,
            Cell::Missing => {}
        }
    }

    /// Whether the target has more texts than numbers, so that it is a class. A number among them
    /// is the name of one.
    pub(super) fn has_class(&self) -> bool {
        self.target_texts > self.target_numbers
    }

    /// Notes the class of this row.
    pub(super) fn note_class(&mut self, row: &Row, target: usize) {
        if let Some(classes) = self.classes.as_mut().filter(|known| known.len() <= MAX_CLASSES)
            && let Some(text) = text_of(row.cell(target))
        {
            classes.insert(text);
        }
    }

    /// Names of the classes: in the order of numbers, if all are, or else of texts.
    pub(super) fn class_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.classes.iter().flatten().cloned().collect();
        let numbers = names.iter().map(|name| name.parse::<f64>().ok()).collect::<Option<Vec<_>>>();
        if let Some(numbers) = numbers {
            let mut both: Vec<_> = numbers.into_iter().zip(names).collect();
            both.sort_by(|a, b| a.0.total_cmp(&b.0));
            names = both.into_iter().map(|(_, name)| name).collect();
        }
        names
    }

    /// Notes which of these columns hold text in this row.
    pub(super) fn note_columns(&mut self, row: &Row, columns: &[usize]) {
        for &column in columns {
            if let Cell::Text(_) = row.cell(column) {
                self.add(column);
            }
        }
    }

    /// Notes what this row has in the columns that hold text: a number there is a text as well.
    pub(super) fn note_texts(&mut self, row: &Row) {
        for (&column, levels) in &mut self.inputs {
            if levels.len() <= MOST_LEVELS
                && let Some(text) = text_of(row.cell(column))
            {
                levels.insert(text);
            }
        }
    }
}

impl Encoder {
    /// Finds the columns of a schema in a table.
    pub(super) fn new(
        file: PathBuf,
        names: &[String],
        schema: &TableSchema,
        purpose: Purpose,
    ) -> Result<Self, DataError> {
        let place = || CellPosition { file: file.clone(), row: None, column: None };
        let position = |name: &String| names.iter().position(|known| known == name);
        let find = |name: &String| {
            let missing = || DataError::NoColumn(place(), excerpt(name), listing(name, names));
            position(name).ok_or_else(missing)
        };
        let find_all = |wanted: &[String]| wanted.iter().map(find).collect::<Result<Vec<_>, _>>();
        let is_for_learning = purpose == Purpose::Learning;
        let optional = |name: &String, is_needed: bool| match position(name) {
            None if is_needed => find(name).map(Some),
            found => Ok(found),
        };
        let mut inputs = Vec::new();
        for input in &schema.inputs {
            inputs.push(Input { column: find(&input.name)?, slots: Slots::new(&input.encoding) });
        }
        let needs_labels = is_for_learning || schema.lags > 0;
        let targets = schema.targets.iter().map(|target| optional(target, needs_labels));
        let targets = targets.collect::<Result<_, _>>()?;
        let has_time = schema.time.iter().any(|name| position(name).is_some());
        let needs_time = is_for_learning || !schema.calendar.is_empty();
        let time = if needs_time || has_time { &schema.time[..] } else { &[] };
        let node = schema.node.as_ref().filter(|name| *name != BY_FILE);
        let node = node.map(|node| optional(node, is_for_learning)).transpose()?.flatten();
        let (lagged, time) = (find_all(&schema.lagged)?, find_all(time)?);
        let classes = schema.classes.clone();
        let class_numbers = classes.iter().cloned().zip(0..).collect();
        Ok(Self {
            names: names.to_vec(),
            inputs,
            lagged,
            targets,
            time,
            node,
            classes,
            class_numbers,
            joined: String::new(),
            unknown: BTreeMap::new(),
            has_dates: false,
            file,
        })
    }

    /// Whether a column names the node of each row.
    pub(super) fn has_nodes(&self) -> bool {
        self.node.is_some()
    }

    /// Whether the table has the column of a target.
    pub(super) fn has_labels(&self) -> bool {
        self.targets.iter().any(Option::is_some)
    }

    /// Where a row and column are.
    pub(super) fn place(&self, line: u64, column: Option<usize>) -> CellPosition {
        let column = column.map(|column| self.names[column].clone());
        CellPosition { file: self.file.clone(), row: Some(line), column }
    }

    /// Whether times so far are dates, not plain numbers.
    pub(super) fn has_dates(&self) -> bool {
        self.has_dates
    }

    /// Texts so far that are none of the known ones, by column.
    pub(super) fn unknown_texts(&self) -> Vec<UnknownTexts> {
        self.unknown.values().cloned().collect()
    }

    /// The first column of the time.
    pub(super) fn time_column(&self) -> Option<usize> {
        self.time.first().copied()
    }

    /// Writes the numbers of a row.
    pub(super) fn encode(
        &mut self,
        row: &Row,
        owners: &mut Owners,
        out: &mut Numbers,
    ) -> Result<(), DataError> {
        out.values.clear();
        out.line = row.line();
        for input in &self.inputs {
            let Some(slots) = &input.slots else {
                out.values.push(self.number(row, input.column, f32::MAX)?);
                continue;
            };
            let start = out.values.len();
            out.values.resize(start + slots.count(), 0.0);
            let Some(text) = text_of(row.cell(input.column)) else { continue };
            if let Some(slot) = slots.of(&text) {
                out.values[start + slot] = 1.0;
                continue;
            }
            let column = || self.names[input.column].clone();
            let unknown = self.unknown.entry(input.column);
            let unknown =
                unknown.or_insert_with(|| UnknownTexts { column: column(), ..Default::default() });
            unknown.count += 1;
            if unknown.examples.len() < MOST_EXAMPLES {
                unknown.examples.insert(text);
            }
        }
        for &column in &self.lagged {
            out.values.push(self.number(row, column, f32::MAX)?);
        }
        for &column in &self.targets {
            let Some(column) = column else {
                out.values.push(f32::NAN);
                continue;
            };
            out.values.push(match self.classes.is_empty() {
                true => self.label(row, column)?,
                false => self.class(row, column)?,
            });
        }
        out.time = self.time_of(row)?;
        if let Some(column) = self.node {
            let (cell, place) = (row.cell(column), || self.place(row.line(), Some(column)));
            if let Cell::Number(number) = cell
                && number.abs() >= LARGEST_COUNT
            {
                return Err(DataError::LongNode(place(), number));
            }
            let name = text_of(cell).ok_or_else(|| DataError::NoNode(place()))?;
            out.owner = owners.id(&name);
        }
        Ok(())
    }

    fn number(&self, row: &Row, column: usize, bound: f32) -> Result<f32, DataError> {
        let place = || self.place(row.line(), Some(column));
        match row.cell(column) {
            Cell::Missing => Ok(f32::NAN),
            Cell::Number(number) if number.abs() <= f64::from(bound) => Ok(number as f32),
            Cell::Number(number) => Err(DataError::TooLarge(place(), number, bound)),
            Cell::Text(text) if timestamp::parse(text).is_some() => {
                Err(DataError::TimeAsNumber(place(), excerpt(text)))
            }
            Cell::Text(text) => Err(DataError::Text(place(), excerpt(text))),
        }
    }

    fn label(&self, row: &Row, column: usize) -> Result<f32, DataError> {
        self.number(row, column, MAX_LABEL).map_err(|error| match error {
            DataError::Text(place, text) if self.targets.len() > 1 => {
                DataError::TextAmongTargets(place, text)
            }
            other => other,
        })
    }

    /// The number of the class in a cell; NaN if it is missing.
    fn class(&self, row: &Row, column: usize) -> Result<f32, DataError> {
        let Some(text) = text_of(row.cell(column)) else { return Ok(f32::NAN) };
        let class = self.class_numbers.get(&text).ok_or_else(|| {
            let place = self.place(row.line(), Some(column));
            DataError::UnknownClass(place, excerpt(&text), self.classes.join(", "))
        });
        class.map(|class| *class as f32)
    }

    fn time_of(&mut self, row: &Row) -> Result<f64, DataError> {
        let Some(&first) = self.time.first() else { return Ok(0.0) };
        self.joined.clear();
        for &column in &self.time {
            if column != first {
                self.joined.push(' ');
            }
            // Without its time of day a row would be at midnight.
            let part = timestamp::part(row.cell(column), self.time.len()).ok_or_else(|| {
                DataError::BadTime(self.place(row.line(), Some(column)), String::new())
            })?;
            self.joined.push_str(&part);
        }
        self.has_dates |= self.joined.trim().parse::<f64>().is_err();
        timestamp::parse(&self.joined).ok_or_else(|| {
            DataError::BadTime(self.place(row.line(), Some(first)), excerpt(&self.joined))
        })
    }
}

/// Characters of a category's or a node's name that count, so that a hostile file can't fill the
/// memory with a few of them.
const LONGEST_NAME: usize = 256;

pub(super) fn text_of(cell: Cell<'_>) -> Option<String> {
    match cell {
        Cell::Missing => None,
        Cell::Number(number) => Some(number.to_string()),
        Cell::Text(text) => Some(text.chars().take(LONGEST_NAME).collect()),
    }
}

/// FNV-1a: the same on every machine and in every version.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_the_same_slot_on_every_machine() {
        // Fowler, Noll and Vo's own test values.
        for (text, expected) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(hash(text), expected, "{text}");
        }
    }

    #[test]
    fn nodes_are_counted_as_they_appear() {
        let mut owners = Owners::default();
        assert_eq!(["b", "a", "b", "c", "a"].map(|name| owners.id(name)), [0, 1, 0, 2, 1]);
        assert_eq!(owners.names, ["b", "a", "c"]);
    }
}
