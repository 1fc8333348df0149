//! What figures need of a method's predictions: a part of them, and the importance of columns.

use serde::{Deserialize, Serialize};

/// Predictions of a method in the first trial: as many for a stream of any length. All numbers are
/// finite and in the label's own unit.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SampledPredictions {
    /// Labels and their predictions, drawn evenly from all devices and rounds.
    pub scatter: Vec<[f32; 2]>,
    /// Some devices, from the largest error to the least.
    pub devices: Vec<DeviceCourse>,
}

/// The predictions at a device over time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeviceCourse {
    /// Its number, from 0.
    pub node: u32,
    /// Evenly over the whole run.
    pub whole: Vec<CoursePoint>,
    /// The latest, without gaps.
    pub recent: Vec<CoursePoint>,
}

/// A prediction and its label.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CoursePoint {
    /// Round of the prediction, from 1.
    pub round: u64,
    /// The label.
    pub truth: f32,
    /// The prediction, made before the label was known.
    pub value: f32,
    /// Half of the width of its interval, if it has one.
    pub margin: Option<f32>,
    /// Time of the label in seconds since 1970, if the data has dates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<f64>,
}

/// How important each column is to predictions: how much the loss grows if its values are replaced
/// by those of an earlier sample of the device. In the first trial, all devices together. All
/// numbers are finite.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ImportanceResult {
    /// The columns in their order in the data. Inputs that come from one column are together.
    pub columns: Vec<ColumnImportance>,
    /// The last round of each window of time.
    pub rounds: Vec<u64>,
}

/// The importance of one column.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ColumnImportance {
    /// Its name, or `x1` and so on.
    pub name: String,
    /// Mean increase of the loss; of the squared error, in the label's own unit.
    pub increase: f64,
    /// How many increases were measured.
    pub measured: u64,
    /// The mean in each window; none where nothing was measured.
    pub windows: Vec<Option<f64>>,
}
