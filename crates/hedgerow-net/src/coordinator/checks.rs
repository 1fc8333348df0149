//! [`Checks`] of uploads, beyond what the server's half checks itself.

use hedgerow::limits::MAX_NORM;
use hedgerow::message::{Rejected, Upload};
use hedgerow::{Method, SetupConfig};

use super::Errors;
use crate::learning::Plan;

/// Why a message was not taken. It changed nothing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refused {
    /// Its half, or its scaling, says no.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// A model that is too long: the paper's second assumption.
    #[error("the norm of a model must be at most {bound:e}, but is {norm:e}")]
    Norm {
        /// C.
        bound: f32,
        /// What it is.
        norm: f64,
    },
    /// A model can't be in a scale that nobody knows.
    #[error("no scale has been agreed on yet, so there can't be a model")]
    Unscaled,
    /// Errors that can't be.
    #[error("a sum of squared errors must be a number and at least 0, but is {value}")]
    SquaredError {
        /// What it is.
        value: f32,
    },
    /// Too often.
    #[error("a node may send {bound} messages a second, but sent more")]
    Rate {
        /// The bound.
        bound: u32,
    },
    /// It came on a stream that is no longer the node's.
    #[error("another stream of this node has taken the place of this one")]
    Replaced,
}

/// What uploads of a plan are checked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checks {
    norm: f32,
    method: Method,
    /// Length of a model.
    len: usize,
    kernels: usize,
}

impl Checks {
    pub(super) fn new(plan: &Plan, norm: f32) -> Self {
        let method = plan.learning().method;
        let SetupConfig { kernels, frequencies, inputs, .. } = plan.learning().setup;
        let len = match method {
            Method::LinearSgd | Method::LinearNewton => inputs + 1,
            _ => 2 * frequencies,
        };
        Self { norm, method, len, kernels }
    }

    /// Whether uploads are models alone, of which one more or less does no harm, and of any of the
    /// latest rounds.
    pub(super) fn uploads_are_models(&self) -> bool {
        match self.method {
            Method::SkOfl { .. }
            | Method::MkOfl
            | Method::Naive
            | Method::EmKofl
            | Method::FedPoe => true,
            Method::LinearSgd | Method::LinearNewton => true,
            Method::GrOfl | Method::PofMkl | Method::Local => false,
        }
    }

    pub(super) fn check(&self, upload: &Upload, errors: Errors) -> Result<(), Refused> {
        let value = errors.squared_error;
        if !value.is_finite() || value < 0.0 {
            return Err(Refused::SquaredError { value });
        }
        self.models(upload).try_for_each(|model| {
            let norm = model.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
            // A model that was pulled back to the bound may be rounded beyond it; what isn't a
            // number is refused by its own name.
            if norm > f64::from(self.norm) * (1.0 + 1e-6) {
                Err(Refused::Norm { bound: self.norm, norm })
            } else {
                Ok(())
            }
        })
    }

    /// The models of an upload, which come first.
    fn models<'a>(&self, upload: &'a Upload) -> impl Iterator<Item = &'a [f32]> + use<'a> {
        let numbers = &upload.numbers[..];
        let (len, models) = match self.method {
            // Sums over histories are as long as histories: only who asks for a bound has one.
            Method::GrOfl if self.norm < MAX_NORM => (numbers.len(), 1),
            Method::GrOfl | Method::Local => (1, 0),
            Method::Naive | Method::FedPoe => (self.len, self.kernels),
            Method::PofMkl => (self.len, (numbers.len() + 1) / (self.len + 1)),
            _ => (self.len, 1),
        };
        numbers.chunks(len.max(1)).take(models)
    }
}
