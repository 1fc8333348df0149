//! What methods are compared by: the share of wrong classes, the squared error, or the loss that
//! was minimised where that is another one.

use hedgerow::method::Reference;

use crate::results::{MethodResult, Moments, Results};

/// The quantity of the verdict and of the main chart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measure {
    /// The mean squared error.
    Mse,
    /// The share of wrong classes, which stands in the place of the squared error.
    ErrorRate,
    /// Scores are not labels under another loss: their squared error would say little.
    Loss,
}

impl Measure {
    /// The measure of a run, which depends on the loss.
    pub fn of(results: &Results) -> Self {
        match (results.classes.is_empty(), results.loss.as_str()) {
            (false, _) => Self::ErrorRate,
            (true, "squared") => Self::Mse,
            (true, _) => Self::Loss,
        }
    }

    /// Over all predictions.
    pub fn moments(self, method: &MethodResult) -> Moments {
        match self {
            Self::Mse | Self::ErrorRate => method.mse,
            Self::Loss => method.mean_loss,
        }
    }

    /// In each trial; empty where that is not known.
    pub fn trials(self, method: &MethodResult) -> &[f64] {
        match self {
            Self::Mse | Self::ErrorRate => &method.mse_trials,
            Self::Loss => &[],
        }
    }

    /// Its course over all predictions so far.
    pub fn course(self, method: &MethodResult) -> &[Moments] {
        match self {
            Self::Mse | Self::ErrorRate => &method.curve.mse,
            Self::Loss => &method.curve.loss,
        }
    }

    /// Whether the method has it: the best fixed function is known for the squared error only.
    pub fn is_known_for(self, method: &MethodResult) -> bool {
        self != Self::Loss || !method.is(Reference::Hindsight)
    }

    /// Whether it has a windowed course and a value for each trial and node.
    pub fn is_detailed(self) -> bool {
        self != Self::Loss
    }

    /// Within a sentence: `MSE`, `mean logistic loss`.
    pub fn name(self, results: &Results) -> String {
        match self {
            Self::Mse => "MSE".to_owned(),
            Self::ErrorRate => "share of wrong classes".to_owned(),
            Self::Loss => format!("mean {} loss", results.loss),
        }
    }

    /// The same with its article.
    pub fn one(self, results: &Results) -> String {
        let article = if self == Self::Mse { "an" } else { "a" };
        format!("{article} {}", self.name(results))
    }

    /// At the head of a figure: `Mean squared error`.
    pub fn title(self, results: &Results) -> String {
        match self {
            Self::Mse => "Mean squared error".to_owned(),
            Self::ErrorRate => "Share of wrong classes".to_owned(),
            Self::Loss => format!("Mean {} loss", results.loss),
        }
    }

    /// Beside the vertical axis.
    pub fn axis(self, results: &Results) -> String {
        match self {
            Self::Mse => "MSE(t)".to_owned(),
            Self::ErrorRate => "share of wrong classes up to t".to_owned(),
            Self::Loss => format!("mean {} loss up to t", results.loss),
        }
    }
}
