//! A part of a method's predictions, for figures.

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
}
