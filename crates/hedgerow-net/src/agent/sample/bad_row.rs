//! [`BadRow`]: why a line, a row or a request is no sample.

use hedgerow_data::csv::BadQuotes;
use hedgerow_data::text::counted;

use super::MAX_ID;
use crate::agent::lines::MAX_LINE;

/// Why a line or an object is no sample.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BadRow {
    /// Not JSON, or not an object.
    #[error("it is no JSON object: {0}")]
    NotAnObject(String),
    /// A quoted cell without its end, or a quote inside a cell that isn't quoted.
    #[error(transparent)]
    BadQuotes(#[from] BadQuotes),
    /// The line is not UTF-8.
    #[error("column {column:?} is not UTF-8")]
    NotText {
        /// The column.
        column: String,
    },
    /// Text, a list, an object or a truth value where a number belongs.
    #[error("column {column:?}: {value} is not a number")]
    NotANumber {
        /// The column.
        column: String,
        /// What it is, shortened.
        value: String,
    },
    /// A number that no f32 can hold.
    #[error("column {column:?}: {value} is larger than {:e}", f32::MAX)]
    TooLarge {
        /// The column.
        column: String,
        /// What it is, shortened.
        value: String,
    },
    /// A text that is no time, or none where one is needed.
    #[error(
        "column {column:?}: {value} is no time; times are written as 2026-03-01 17:00:00, \
         2026-03-01T17:00:00Z, 01/03/2026 17:00 (day first) or seconds"
    )]
    NotATime {
        /// The first column of the time.
        column: String,
        /// What it is, shortened.
        value: String,
    },
    /// A label that is none of the federation's classes.
    #[error(
        "column {column:?}: {value} is none of the classes {known}; a server with another list (learning.classes) begins another run"
    )]
    UnknownClass {
        /// The column.
        column: String,
        /// What it is, shortened.
        value: String,
        /// The classes.
        known: String,
    },
    /// Some of several labels.
    #[error("there is a label for {found}, but this federation has {known}: all or none")]
    SomeLabels {
        /// The label that is there.
        found: String,
        /// Those that it has.
        known: String,
    },
    /// A column that the federation doesn't have.
    #[error(
        "there is no column {column:?} (there are {known}); set samples.others to \"ignore\" to pass over it"
    )]
    UnknownColumn {
        /// The column.
        column: String,
        /// Those that it has.
        known: String,
    },
    /// The same column again.
    #[error("column {column:?} comes twice")]
    Twice {
        /// The column.
        column: String,
    },
    /// Too many or too few inputs.
    #[error("x has {}, but a sample of this federation has {expected}", counted(*.found, "number"))]
    WrongLength {
        /// What a sample has.
        expected: usize,
        /// Numbers in `x`.
        found: usize,
    },
    /// Too many or too few labels in a list.
    #[error(
        "{column} has {}, but a sample of this federation has {expected}",
        counted(*.found, "label")
    )]
    WrongLabels {
        /// The list.
        column: String,
        /// What a sample has.
        expected: usize,
        /// Labels in the list.
        found: usize,
    },
    /// An id of another type, or too long.
    #[error("the id must be text or a whole number of at most {MAX_ID} bytes, but is {value}")]
    BadId {
        /// What it is, shortened.
        value: String,
    },
    /// Neither inputs nor a label.
    #[error("there are neither inputs nor a label")]
    Nothing,
    /// A label that belongs to no prediction.
    #[error("a label without inputs needs the id of its prediction")]
    LabelAlone,
    /// A row with another number of cells than its header.
    #[error("the row has {}, but the header {expected}", counted(*.found, "cell"))]
    WrongCells {
        /// What the header has.
        expected: usize,
        /// Cells of the row.
        found: usize,
    },
    /// A header without a single input.
    #[error("the header {header} names no input (there are {known})")]
    NoInputs {
        /// What it is, shortened.
        header: String,
        /// The federation's columns.
        known: String,
    },
    /// A header without some of the inputs.
    #[error("no column {missing}; the header has {header}")]
    MissingColumns {
        /// Which, in quotes.
        missing: String,
        /// What it is, shortened.
        header: String,
    },
    /// A header with another number of inputs than the federation, whose inputs have no names.
    #[error(
        "the header names {}, but a sample of this federation has {expected}",
        counted(*.found, "input")
    )]
    WrongInputs {
        /// What a sample has.
        expected: usize,
        /// Inputs that the header names.
        found: usize,
    },
    /// No usable header came before it.
    #[error("no header has told what the cells are")]
    NoHeader,
    /// More bytes than a line may have.
    #[error("it has more than {} bytes", MAX_LINE)]
    TooLong,
}

impl BadRow {
    /// The field that is wrong.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::NotText { column }
            | Self::NotANumber { column, .. }
            | Self::TooLarge { column, .. }
            | Self::NotATime { column, .. }
            | Self::UnknownColumn { column, .. }
            | Self::UnknownClass { column, .. }
            | Self::Twice { column } => Some(column),
            Self::WrongLength { .. } => Some("x"),
            Self::BadId { .. } => Some("id"),
            _ => None,
        }
    }
}
