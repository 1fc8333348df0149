//! The roles of columns: as the user chooses them ([`ColumnChoice`]), and as found in the table
//! (`Roles`).

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::DataError;
use super::calendar::CalendarChoice;
use super::rows::{CellPosition, Format};
use super::text::{excerpt, listing};

/// What the user says about a table.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnChoice {
    /// How its text is to be read.
    pub format: Format,
    /// The targets. Empty means the last column without another role. Every sample has all of them.
    pub targets: Vec<String>,
    /// Targets that are series of a node each, instead of `targets`.
    pub series: Vec<String>,
    /// What the target is.
    pub task: Task,
    /// Names of the classes, if the target is one and they are known; else they are found in the
    /// files.
    pub classes: Vec<String>,
    /// The inputs, in this order; empty for a series that is predicted from its own past alone.
    /// `None` means all columns without another role.
    pub features: Option<Vec<String>>,
    /// Columns to leave out.
    pub drop: Vec<String>,
    /// Columns that make up the time, joined by blanks; empty if there is none.
    pub time: Vec<String>,
    /// Which cycles of the time are inputs.
    pub calendar: CalendarChoice,
    /// The column with the node of a sample; [`BY_FILE`] uses the file's name.
    pub node: Option<String>,
    /// How to handle columns with text.
    pub categories: Categories,
    /// The maximal number of rows.
    pub rows: Option<usize>,
    /// Past labels among the inputs, s.
    pub lags: usize,
    /// Steps ahead that are predicted, from 1.
    pub horizon: usize,
    /// Columns whose past values are inputs, like those of the label.
    pub lagged: Vec<String>,
    /// Whether the other inputs are of the label's own row or of the row that the forecast is made
    /// in.
    pub exogenous: Exogenous,
    /// How to handle rows that go back in time.
    pub disorder: Disorder,
    /// How to handle rows with the same time as the row before.
    pub duplicates: Duplicates,
}

impl Default for ColumnChoice {
    /// The last column is predicted from all others, row by row.
    fn default() -> Self {
        Self {
            format: Format::default(),
            targets: Vec::new(),
            series: Vec::new(),
            task: Task::Auto,
            classes: Vec::new(),
            features: None,
            drop: Vec::new(),
            time: Vec::new(),
            calendar: CalendarChoice::Auto,
            node: None,
            categories: Categories::Refuse,
            rows: None,
            lags: 0,
            horizon: 1,
            lagged: Vec::new(),
            exogenous: Exogenous::SameRow,
            disorder: Disorder::Refuse,
            duplicates: Duplicates::Refuse,
        }
    }
}

/// In the place of a node column: every file is a node.
pub const BY_FILE: &str = "@file";

/// What a target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// A class if it is text, else a number.
    #[default]
    Auto,
    /// A number.
    Numbers,
    /// A class, also if it is a number.
    Classes,
}

/// How columns with text are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Categories {
    /// They are an error.
    Refuse,
    /// An input for each text there is.
    OneHot,
    /// This number of inputs; the hash of a text chooses one.
    Hashed(usize),
}

impl TryFrom<String> for Categories {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let slots = || text.strip_prefix("hashed:")?.parse().ok();
        let known = match text.as_str() {
            "refuse" => Some(Self::Refuse),
            "one-hot" => Some(Self::OneHot),
            _ => slots().filter(|slots| (1..=1000).contains(slots)).map(Self::Hashed),
        };
        known.ok_or("\"refuse\", \"one-hot\", or \"hashed:N\" with N from 1 to 1000")
    }
}

/// When the other inputs of a time series are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exogenous {
    /// Together with the label's row: calendars, plans, weather forecasts, soft sensors.
    SameRow,
    /// In the row that the forecast is made in.
    Origin,
}

/// How rows that go back in time are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Disorder {
    /// They are an error.
    Refuse,
    /// The order of the file holds.
    Keep,
    /// Time decides.
    Sort,
}

/// How rows with the same time are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Duplicates {
    /// They are an error.
    Refuse,
    /// All of them count.
    Keep,
    /// The first of them counts.
    First,
}

/// The position of each column that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Roles {
    pub(super) features: Vec<usize>,
    pub(super) lagged: Vec<usize>,
    pub(super) targets: Vec<usize>,
    pub(super) time: Vec<usize>,
    pub(super) node: Option<usize>,
}

impl Roles {
    /// Finds the named columns and the implied ones.
    pub(super) fn find(
        file: &Path,
        names: &[String],
        choice: &ColumnChoice,
    ) -> Result<Self, DataError> {
        let whole = || CellPosition { file: file.to_owned(), row: None, column: None };
        let at = |column: usize| CellPosition { column: Some(names[column].clone()), ..whole() };
        let find = |name: &String| find_column(file, names, name);
        let find_all = |key, wanted: &[String]| {
            let found = wanted.iter().map(find).collect::<Result<Vec<usize>, DataError>>()?;
            let twice = found
                .iter()
                .enumerate()
                .find(|(position, column)| found[..*position].contains(column));
            twice.map_or(Ok(()), |(_, column)| Err(DataError::NamedTwice(at(*column), key)))?;
            Ok::<_, DataError>(found)
        };
        let mut targets = match &choice.series[..] {
            [] => find_all("data.target", &choice.targets)?,
            series => find_all("data.series", series)?,
        };
        let (time, lagged) =
            (find_all("data.time", &choice.time)?, find_all("data.lagged", &choice.lagged)?);
        let dropped = find_all("data.drop", &choice.drop)?;
        let node = choice.node.as_ref().filter(|name| *name != BY_FILE).map(find).transpose()?;
        let named = choice.features.as_ref().map(|named| find_all("data.features", named));
        let named = named.transpose()?;
        let is_free = |column: &usize| {
            !time.contains(column) && node != Some(*column) && !dropped.contains(column)
        };
        if targets.is_empty() {
            let is_used =
                |column: &usize| named.as_ref().is_some_and(|named| named.contains(column));
            let last = (0..names.len())
                .rev()
                .find(|column| is_free(column) && !is_used(column) && !lagged.contains(column));
            targets.push(last.ok_or_else(|| DataError::NoTarget(whole()))?);
        }
        let features = named.unwrap_or_else(|| {
            (0..names.len()).filter(|column| is_free(column) && !targets.contains(column)).collect()
        });
        if let Some(column) = features.iter().find(|column| targets.contains(column)) {
            return Err(DataError::TargetAsFeature(at(*column)));
        }
        if features.is_empty() && choice.lags == 0 && !has_calendar(choice) {
            return Err(DataError::NoFeatures(at(targets[0])));
        }
        Ok(Self { features, lagged, targets, time, node })
    }
}

/// Whether cycles of the time are asked for by name.
fn has_calendar(choice: &ColumnChoice) -> bool {
    matches!(&choice.calendar, CalendarChoice::Cycles(cycles) if !cycles.is_empty())
}

/// The position of a column.
fn find_column(file: &Path, names: &[String], name: &str) -> Result<usize, DataError> {
    let found = names.iter().position(|known| known == name);
    found.ok_or_else(|| {
        let place = CellPosition { file: file.to_owned(), row: None, column: None };
        DataError::NoColumn(place, excerpt(name), listing(name, names))
    })
}

impl ColumnChoice {
    /// An error if a column that is named is not there.
    pub(super) fn check_names(&self, file: &Path, names: &[String]) -> Result<(), DataError> {
        let node = self.node.iter().filter(|name| *name != BY_FILE);
        let features = self.features.iter().flatten();
        let lists = [&self.targets, &self.drop, &self.time, &self.lagged];
        let mut all = lists.into_iter().flatten().chain(features).chain(node);
        all.try_for_each(|name| find_column(file, names, name).map(drop))
    }
}
