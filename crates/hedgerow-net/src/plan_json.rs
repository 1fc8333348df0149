//! A [`Plan`] as JSON: how it travels to nodes and how stores keep it.

use hedgerow::method::MethodInfo;
use hedgerow::{Plan, PlanConfig, PlanError};

/// Methods beside the built-in ones.
pub type OtherMethods<'a> = &'a [&'static MethodInfo];

/// JSON that is no plan.
#[derive(Debug, thiserror::Error)]
pub enum ReadPlanError {
    /// It is not JSON, or not of a configuration.
    #[error("the learning configuration can't be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// The configuration makes no sense.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Reads what [`plan_to_json`] wrote. `others` are methods beside the built-in ones.
pub fn plan_from_json(json: &str, others: OtherMethods<'_>) -> Result<Plan, ReadPlanError> {
    Ok(Plan::with_methods(serde_json::from_str::<PlanConfig>(json)?, others)?)
}

/// The configuration of a plan.
pub fn plan_to_json(plan: &Plan) -> String {
    // Writing to memory can't fail: all keys are strings and all numbers finite.
    serde_json::to_string(plan.config()).unwrap_or_default()
}
