//! A [`Plan`] as JSON: how it travels to nodes and how stores keep it.

use hedgerow::method::{MethodInfo, find};
use hedgerow::{Plan, PlanConfig, PlanError};
use hedgerow_data::schema::TableSchema;
use serde::Deserialize;

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
    /// Rows can't become its inputs.
    #[error("the learning configuration makes no sense: {0}")]
    Columns(String),
    /// The server's messages are those of an older version.
    #[error(
        "the server sends messages of {method} in revision {found}, and this node reads revision \
         {known}: update the server, or join with a node of the server's version"
    )]
    OldMessages {
        /// The method.
        method: String,
        /// The revision that this program has.
        known: u32,
        /// The revision of the server.
        found: u32,
    },
}

/// Reads what [`plan_to_json`] wrote. `others` are methods beside the built-in ones.
pub fn plan_from_json(json: &str, others: OtherMethods<'_>) -> Result<Plan, ReadPlanError> {
    let plan = Plan::with_methods(serde_json::from_str::<PlanConfig>(json)?, others)?;
    TableSchema::of_plan(plan.config()).map_err(ReadPlanError::Columns)?;
    Ok(plan)
}

/// Reads the plan that a server sent. Its messages have to be of the revision that this program
/// has, whereas a stored plan may be older.
pub fn plan_from_server(json: &str, others: OtherMethods<'_>) -> Result<Plan, ReadPlanError> {
    #[derive(Deserialize)]
    struct Spoken {
        #[serde(default = "first_revision")]
        revision: u32,
    }
    let plan = plan_from_json(json, others)?;
    let Spoken { revision: found } = serde_json::from_str(json)?;
    let method = plan.config().method.name();
    let known = find(method).map_or_else(first_revision, |info| info.revision);
    if found < known {
        return Err(ReadPlanError::OldMessages { method: method.to_owned(), known, found });
    }
    Ok(plan)
}

fn first_revision() -> u32 {
    1
}

/// The configuration of a plan.
pub fn plan_to_json(plan: &Plan) -> String {
    // Writing to memory can't fail: all keys are strings and all numbers finite.
    serde_json::to_string(plan.config()).unwrap_or_default()
}
