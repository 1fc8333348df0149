use serde::{Deserialize, Serialize};

/// A model card: where a model comes from and how good it was.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// When it was made, as a date and time; none if whoever made it had no clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// The data of the run, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<CardData>,
    /// Name of the method of this model among the errors.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub method: String,
    /// The share of labels that intervals were to contain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<f64>,
    /// Errors of all methods of the run, over predictions that were made before their labels were
    /// known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<CardError>,
    /// Every setting of the run, section by section.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub settings: serde_json::Value,
}

/// The data that a model was learned from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardData {
    /// Name of the stream or path of the file.
    pub name: String,
    /// Where it comes from; empty for a user's own file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provenance: String,
    /// Samples that were learned from.
    pub samples: u64,
    /// Nodes that they were dealt to.
    pub nodes: u64,
}

/// The errors of a method, in the label's own unit; none where they are not known.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardError {
    /// Name of the method, such as `tr`, or `tr+alone` for each device alone.
    pub method: String,
    /// Mean squared error.
    pub mse: Option<f64>,
    /// Its square root.
    pub rmse: Option<f64>,
    /// Mean absolute error.
    pub mae: Option<f64>,
    /// Share of the variance of the labels that predictions explain, R².
    pub r2: Option<f64>,
    /// Of classes, the share of right ones. Then `mse` is the share of wrong ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Of classes, the mean of −ln of the probability of the right one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_loss: Option<f64>,
    /// Of several targets, the root mean squared error of each, in its own unit. Then the others
    /// are means over targets, each in units of its standard deviation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub target_rmse: Vec<f64>,
}
