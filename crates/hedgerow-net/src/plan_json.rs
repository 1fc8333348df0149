//! A [`Plan`] as JSON: how it travels to nodes and how stores keep it.
//!
//! A node refuses a plan with a key that it doesn't know, because it would compute something else
//! than the others. Some keys a node may ignore: it then leaves something out that nothing depends
//! on. The server lists these in `ignorable`, so that a node can ignore keys that are newer than
//! itself. Nodes of version 1 of the protocol don't know that list: they get a plan without them.

#[cfg(any(feature = "server", test))]
use hedgerow::importance::ImportanceScope;
use hedgerow::method::{MethodInfo, find};
use hedgerow::{Plan, PlanConfig, PlanError};
use hedgerow_data::schema::TableSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Where a server lists the keys that a node may ignore.
const IGNORABLE: &str = "ignorable";

/// The keys of this version's plans that a node may ignore: it then shares no importance of
/// columns. And only the server needs to know how many nodes make a first scale.
#[cfg(feature = "server")]
const OWN_IGNORABLE: [&str; 3] = ["importance", "column_groups", "scale_nodes"];

/// All keys of this version's plans.
const KNOWN: [&str; 15] = [
    "method",
    "setup",
    "features",
    "scaling",
    "compression",
    "personal",
    "columns",
    "target",
    "classes",
    "outputs",
    "importance",
    "column_groups",
    "scale_nodes",
    "series",
    "revision",
];

/// At most so many keys are ignored.
const MAX_IGNORED: usize = 64;

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
    let json = &without_ignorable(json)?;
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

/// A plan as a node hears it that speaks this version of the protocol.
#[cfg(feature = "server")]
pub(crate) fn plan_in_version(plan: &Plan, json: String, version: u32) -> String {
    let config = plan.config();
    if config.importance == ImportanceScope::None && config.scale_nodes.is_none() {
        return json;
    }
    let Ok(mut keys) = serde_json::from_str::<Map<String, Value>>(&json) else { return json };
    if version < 2 {
        keys.retain(|key, _| !OWN_IGNORABLE.contains(&key.as_str()));
    } else {
        keys.insert(IGNORABLE.to_owned(), OWN_IGNORABLE.to_vec().into());
    }
    Value::Object(keys).to_string()
}

/// A server's plan without the keys that it allows to ignore and that this program doesn't know.
fn without_ignorable(json: &str) -> Result<String, ReadPlanError> {
    #[derive(Deserialize)]
    struct Listed {
        #[serde(default)]
        ignorable: Option<Vec<String>>,
    }
    let Listed { ignorable: Some(ignorable) } = serde_json::from_str(json)? else {
        return Ok(json.to_owned());
    };
    let mut keys: Map<String, Value> = serde_json::from_str(json)?;
    keys.remove(IGNORABLE);
    for key in ignorable.iter().take(MAX_IGNORED).map(String::as_str) {
        if !KNOWN.contains(&key) && keys.remove(key).is_some() {
            tracing::info!(
                key,
                "the server's plan has a key that this node is too old for and may ignore"
            );
        }
    }
    Ok(Value::Object(keys).to_string())
}

#[cfg(test)]
mod tests {
    use hedgerow::PlanConfig;
    use hedgerow::plan::SeriesRule;

    use super::*;

    fn plan() -> Plan {
        let config = PlanConfig::default()
            .method("mk".parse().unwrap())
            .inputs(2)
            .importance(ImportanceScope::Shared)
            .column_groups(vec![0, 0])
            .scale_nodes(2)
            .columns(vec!["a".into(), "b".into()])
            .target("y".into());
        Plan::new(config).unwrap()
    }

    fn keys(json: &str) -> Vec<String> {
        serde_json::from_str::<Map<String, Value>>(json).unwrap().keys().cloned().collect()
    }

    #[test]
    fn known_keys_are_those_of_plans() {
        let config = PlanConfig::default()
            .method("gr".parse().unwrap())
            .classes(["a", "b", "c"].map(String::from).to_vec())
            .outputs(3)
            .importance(ImportanceScope::Local)
            .column_groups(vec![0])
            .scale_nodes(2)
            .series(SeriesRule::default());
        let mut found = keys(&serde_json::to_string(&config).unwrap());
        let mut known = KNOWN.map(str::to_owned).to_vec();
        found.sort();
        known.sort();
        assert_eq!(found, known);
    }

    #[test]
    fn a_node_hears_what_its_version_of_the_protocol_knows() {
        let (plan, json) = (plan(), plan_to_json(&plan()));
        let older = plan_in_version(&plan, json.clone(), 1);
        assert!(!keys(&older).iter().any(|key| OWN_IGNORABLE.contains(&key.as_str())), "{older}");
        let read = plan_from_server(&older, &[]).unwrap();
        assert_eq!(read.config().importance, ImportanceScope::None);
        let newer = plan_in_version(&plan, json.clone(), 2);
        assert!(keys(&newer).contains(&IGNORABLE.to_owned()), "{newer}");
        assert_eq!(plan_from_server(&newer, &[]).unwrap(), plan);
        // The list is no part of what is stored.
        assert_eq!(plan_to_json(&plan_from_server(&newer, &[]).unwrap()), json);
    }

    #[test]
    fn a_key_that_is_newer_than_this_program_is_ignored_only_if_the_server_allows_it() {
        let with = |key: &str, ignorable: Option<&[&str]>| {
            let mut keys: Map<String, Value> =
                serde_json::from_str(&plan_to_json(&plan())).unwrap();
            keys.entry(key).or_insert(7.into());
            if let Some(ignorable) = ignorable {
                keys.insert(IGNORABLE.into(), ignorable.to_vec().into());
            }
            plan_from_server(&Value::Object(keys).to_string(), &[])
        };
        assert_eq!(with("ripeness", Some(&["importance", "ripeness"])).unwrap(), plan());
        for allowed in [None, Some(&[][..]), Some(&["other"])] {
            let refused = with("ripeness", allowed).unwrap_err().to_string();
            assert!(refused.contains("unknown field `ripeness`"), "{refused}");
        }
        // What this program knows is not ignored, whatever the server says.
        let importance = with("method", Some(&["importance", "method"])).unwrap();
        assert_eq!(importance.config().importance, ImportanceScope::Shared);
    }
}
