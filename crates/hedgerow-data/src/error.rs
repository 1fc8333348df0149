//! Why data can't be used.

use std::io;
use std::path::PathBuf;

use super::info::quoted;
use super::rows::{CellPosition, ReadError};
use super::text::counted;

/// Why data can't be used. Pieces of a file are shortened.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The table can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A named column that doesn't exist, and the existing columns, the nearest name first.
    #[error("{0}: no column {1:?}{2}")]
    NoColumn(CellPosition, String, String),
    /// No column is left to be the target.
    #[error("{0}: no column is left to be the target")]
    NoTarget(CellPosition),
    /// A column can't be both.
    #[error("{0}: the target can't be a feature as well")]
    TargetAsFeature(CellPosition),
    /// Only the target, and no lags to learn it from.
    #[error(
        "{0}: the target would be the only column, and at least 1 feature, or lags of the target (--lags), are needed"
    )]
    NoFeatures(CellPosition),
    /// The same column twice under one key.
    #[error("{0}: named twice in {1}")]
    NamedTwice(CellPosition, &'static str),
    /// Text where a number should be.
    #[error(
        "{0}: {1:?} is not a number (drop the column with --drop, name what stands for a missing value with --missing, make inputs of texts with --categories; `hedgerow data info` suggests flags)"
    )]
    Text(CellPosition, String),
    /// A few texts in a column of numbers, where columns with text become inputs.
    #[error(
        "{place}: {text:?} is a text in a column of numbers ({texts} of the {cells} cells looked at): name it with --missing {} if it stands for a missing value, mend it, or leave the column out with --drop",
        quoted(text)
    )]
    TextAmongNumbers {
        /// Where the first one is.
        place: CellPosition,
        /// That text.
        text: String,
        /// Texts in the column.
        texts: u64,
        /// Cells that were looked at.
        cells: u64,
    },
    /// A time where a number should be.
    #[error(
        "{0}: {1:?} is a time, not a number (name the column of the time with --time; `hedgerow data info` suggests flags)"
    )]
    TimeAsNumber(CellPosition, String),
    /// A number too large to compute with, and the largest size allowed there.
    #[error("{0}: {1:e} is beyond the bound of ±{2:e}")]
    TooLarge(CellPosition, f64, f32),
    /// A text where one of several targets should be.
    #[error(
        "{0}: {1:?} is not a number, and several targets all have to be numbers (classes are predicted alone: --target with one column; --missing names what stands for a missing value)"
    )]
    TextAmongTargets(CellPosition, String),
    /// A class that is not among those that were named.
    #[error("{0}: {1:?} is none of the classes {2} (data.classes names them)")]
    UnknownClass(CellPosition, String, String),
    /// A target with too many texts to be a class.
    #[error(
        "{0}: more than {1} different values are too many for classes (--target names another column)"
    )]
    TooManyClasses(CellPosition, usize),
    /// Past classes are no inputs.
    #[error("{0}: past classes can't be inputs (data.lags must be 0 where the target is a class)")]
    LaggedClass(CellPosition),
    /// Nothing to learn.
    #[error("{0}: the class is {1:?} in all samples that have one: there is nothing to learn")]
    OneClass(CellPosition, String),
    /// A row without an owner.
    #[error("{0}: no value, but this column says whose the sample is")]
    NoNode(CellPosition),
    /// A number too large for exact whole numbers.
    #[error(
        "{0}: {1} is too long a number to tell nodes apart: 15 digits at most, or a letter among them"
    )]
    LongNode(CellPosition, f64),
    /// No time.
    #[error("{0}: {1:?} is no time (such as 2013-03-01 17:00:00, 01/03/2013 17.00, or seconds)")]
    BadTime(CellPosition, String),
    /// The time goes back by this number of seconds.
    #[error(
        "{0}: time goes back by {1} seconds (--set data.disorder=sort puts rows in order, keep leaves them)"
    )]
    TimeGoesBack(CellPosition, f64),
    /// The same time again.
    #[error(
        "{0}: the same time as in the row before (--node COLUMN if a column says whose rows they are; --set data.duplicates=first takes the first of them, keep all)"
    )]
    TimeRepeats(CellPosition),
    /// A column with too many texts.
    #[error(
        "{0}: more than {1} different texts (--categories hashed:N has room for any number, --drop leaves the column out)"
    )]
    TooManyLevels(CellPosition, usize),
    /// Files that don't belong together.
    #[error("{}: other columns than in {}: {difference}", other.display(), first.display())]
    OtherColumns {
        /// The first file.
        first: PathBuf,
        /// The one that differs.
        other: PathBuf,
        /// In what, in words.
        difference: String,
    },
    /// A folder without files.
    #[error("no file to read")]
    NoFiles,
    /// What a live stream can't have.
    #[error("standard input is read live, and {0} needs the whole file first")]
    NeedsWholeFile(&'static str),
    /// A live stream has more nodes than it was said to have.
    #[error("standard input: {name:?} would be one node more than the {nodes} of --nodes")]
    TooManyNodes {
        /// The one too many.
        name: String,
        /// How many there should be.
        nodes: usize,
    },
    /// Nothing to learn: the name of the data, the target, its value, and how many labels have it.
    #[error(
        "{0}, column {1:?}: the target is {2} in all {3} samples that have one: there is nothing to learn"
    )]
    ConstantTarget(String, String, f32, usize),
    /// Nothing to learn from.
    #[error("{0}, column {1:?}: all {2} labels are missing")]
    NoLabels(String, String, usize),
    /// Too little past.
    #[error(
        "{0}: a sample needs {past} of the past, and no series has more than that",
        past = counted(*.1, "row")
    )]
    TooShort(String, usize),
    /// Arrays of different lengths, and the number of labels.
    #[error("{0}: inputs and owners don't fit its {1} labels")]
    OtherLengths(String, usize),
    /// More rows than can be counted.
    #[error("{0} rows are too many: at most {max} can be dealt", max = u32::MAX)]
    TooManyRows(usize),
    /// The temporary file failed.
    #[error("temporary file: {0}")]
    Store(io::Error),
}
