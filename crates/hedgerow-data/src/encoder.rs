//! [`Encoder`]: a row of a table becomes numbers. Texts become inputs that are one or zero
//! ([`Levels`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use hedgerow::limits::{MAX_CLASSES, MAX_LABEL};

use super::columns::{Categories, ColumnChoice, Roles, Task};
use super::rows::{Cell, CellPosition, Row};
use super::text::excerpt;
use super::{DataError, timestamp};

/// Most inputs that a column of text may become.
const MOST_LEVELS: usize = 1000;
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
    targets: Vec<usize>,
    time: Vec<usize>,
    node: Option<usize>,
    /// Names of the classes, and the number of each; empty if the target is a number.
    classes: Vec<String>,
    class_numbers: HashMap<String, usize>,
    joined: String,
    /// Whether a time was a date, not a plain number.
    has_dates: bool,
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
    /// Whether the target has texts, and whether it has numbers.
    target_has: (bool, bool),
}

impl Levels {
    /// Notes what the target holds in this row.
    pub(super) fn note_target(&mut self, row: &Row, target: usize) {
        match row.cell(target) {
            Cell::Text(_) => self.target_has.0 = true,
            Cell::Number(_) => self.target_has.1 = true,
            Cell::Missing => {}
        }
    }

    /// Whether the target has texts only, so that it is a class.
    pub(super) fn has_class(&self) -> bool {
        self.target_has == (true, false)
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
    fn class_names(&self) -> Vec<String> {
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
                self.inputs.entry(column).or_default();
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
    /// Finds the columns.
    pub(super) fn new(
        file: PathBuf,
        names: &[String],
        choice: &ColumnChoice,
        levels: &Levels,
    ) -> Result<Self, DataError> {
        let Roles { features, lagged, targets, time, node } = Roles::find(&file, names, choice)?;
        let mut inputs = Vec::new();
        for column in features {
            let slots = match (levels.inputs.get(&column), choice.categories) {
                (None, _) | (Some(_), Categories::Refuse) => None,
                (Some(_), Categories::Hashed(count)) => Some(Slots::Hashed(count)),
                (Some(texts), Categories::OneHot) if texts.len() > MOST_LEVELS => {
                    let place =
                        CellPosition { file, row: None, column: Some(names[column].clone()) };
                    return Err(DataError::TooManyLevels(place, MOST_LEVELS));
                }
                (Some(texts), Categories::OneHot) => {
                    Some(Slots::Known(texts.iter().cloned().zip(0..).collect()))
                }
            };
            inputs.push(Input { column, slots });
        }
        let place = || {
            let column = targets.first().map(|target| names[*target].clone());
            CellPosition { file: file.clone(), row: None, column }
        };
        let classes = match choice.task {
            Task::Numbers => Vec::new(),
            _ if !choice.classes.is_empty() => choice.classes.clone(),
            _ => levels.class_names(),
        };
        let found = levels.classes.as_ref().map_or(0, BTreeSet::len);
        if classes.len() > MAX_CLASSES {
            return Err(DataError::TooManyClasses(place(), MAX_CLASSES));
        }
        if !classes.is_empty() && choice.lags > 0 {
            return Err(DataError::LaggedClass(place()));
        }
        if found == 1 && classes.len() == 1 {
            return Err(DataError::OneClass(place(), classes[0].clone()));
        }
        let class_numbers = classes.iter().cloned().zip(0..).collect();
        Ok(Self {
            names: names.to_vec(),
            inputs,
            lagged,
            time,
            node,
            classes,
            class_numbers,
            joined: String::new(),
            has_dates: false,
            targets,
            file,
        })
    }

    /// Numbers of the row's own inputs.
    pub(super) fn width(&self) -> usize {
        self.inputs.iter().map(|input| input.slots.as_ref().map_or(1, Slots::count)).sum()
    }

    /// The column of each of them; none where it is of a text.
    pub(super) fn input_columns(&self) -> Vec<Vec<String>> {
        let columns = self.inputs.iter().flat_map(|input| match &input.slots {
            None => vec![vec![self.names[input.column].clone()]],
            Some(slots) => vec![vec![]; slots.count()],
        });
        columns.collect()
    }

    /// Lagged columns.
    pub(super) fn lagged(&self) -> usize {
        self.lagged.len()
    }

    /// Names of the classes, if the target is one.
    pub(super) fn classes(&self) -> Vec<String> {
        self.classes.clone()
    }

    /// Names of the targets.
    pub(super) fn target_names(&self) -> Vec<String> {
        self.targets.iter().map(|column| self.names[*column].clone()).collect()
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
            if let Some(slot) = text_of(row.cell(input.column)).and_then(|text| slots.of(&text)) {
                out.values[start + slot] = 1.0;
            }
        }
        for &column in &self.lagged {
            out.values.push(self.number(row, column, f32::MAX)?);
        }
        for &column in &self.targets {
            out.values.push(match self.classes.is_empty() {
                true => self.number(row, column, MAX_LABEL)?,
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
            match row.cell(column) {
                // Without its time of day a row would be at midnight.
                Cell::Missing => {
                    return Err(DataError::BadTime(
                        self.place(row.line(), Some(column)),
                        String::new(),
                    ));
                }
                Cell::Text(text) => self.joined.push_str(text),
                Cell::Number(number) => {
                    let text = number.to_string();
                    self.joined.push_str(&text);
                    // Beside a date, 17.30 is half past five.
                    let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
                    if self.time.len() > 1 && decimals == 1 {
                        self.joined.push('0');
                    }
                }
            }
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

fn text_of(cell: Cell<'_>) -> Option<String> {
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
