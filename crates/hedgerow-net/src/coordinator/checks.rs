//! [`Checks`] of uploads, beyond what the server's method checks itself.

use hedgerow::Plan;
use hedgerow::limits::MAX_NORM;
use hedgerow::message::{Errors, Rejected, Upload};
use hedgerow::method::UploadLayout;

/// Why a message was refused. It changed nothing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The core's server rejects it.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// A model is too long: the paper's second assumption.
    #[error("the norm of a model must be at most {bound:e}, but is {norm:e}")]
    Norm {
        /// The paper's C.
        bound: f32,
        /// The norm of the model.
        norm: f64,
    },
    /// The node sends too often.
    #[error("a node may send {bound} messages a second, but sent more")]
    Rate {
        /// The bound.
        bound: u32,
    },
    /// The node reports its scale too often.
    #[error(
        "a node may report its columns 64 times, and then 6 times a minute, but did so more often"
    )]
    Reports,
    /// It came on a stream that is no longer the node's.
    #[error("another stream of this node has taken the place of this one")]
    Replaced,
}

/// What uploads of a plan are checked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checks {
    norm: f32,
    layout: UploadLayout,
}

impl Checks {
    pub(super) fn new(plan: &Plan, norm: f32) -> Self {
        let layout = (plan.method().layout)(plan.setup()).upload;
        Self { norm, layout }
    }

    /// Whether an upload that is late, or counts twice, does no harm.
    pub(super) fn uploads_are_models(&self) -> bool {
        self.layout.is_models()
    }

    pub(super) fn check(&self, uploads: &[Upload], errors: Errors) -> Result<(), Refused> {
        let value = errors.squared_error;
        if !value.is_finite() || value < 0.0 {
            return Err(Rejected::SquaredError { value }.into());
        }
        // Sums over histories grow with the histories: they have a bound only if it was asked for.
        if self.layout.is_unbounded() && self.norm >= MAX_NORM {
            return Ok(());
        }
        let vectors = uploads.iter().flat_map(|upload| self.layout.vectors(&upload.numbers));
        for vector in vectors {
            let norm = vector.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
            // A model that was projected to the bound may be rounded beyond it. Numbers that are
            // not finite are rejected by the method.
            if norm > f64::from(self.norm) * (1.0 + 1e-6) {
                return Err(Refused::Norm { bound: self.norm, norm });
            }
        }
        Ok(())
    }
}
