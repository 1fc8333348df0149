//! What is refused before a plan is made: counts and rates out of bounds, names that don't fit.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use core::ops::RangeInclusive;

use super::{PlanConfig, PlanError, Scaling};
use crate::aggregation::Aggregation;
use crate::features::{self, Draw, FeatureError, FeatureSpec};
use crate::learning::{Classes, Loss};
use crate::limits::{MAX_BUDGET, MAX_CLASSES, MAX_INPUTS, MAX_MEMORY, MAX_NODES, MAX_OUTPUTS};
use crate::method::{FeatureKind, MethodInfo, Setup};

/// Refuses a dictionary that the method's map can't be made from.
pub(super) fn check_features(
    info: &MethodInfo,
    setup: &Setup,
    spec: FeatureSpec,
) -> Result<(), FeatureError> {
    match info.features {
        FeatureKind::Kernels => features::check(&spec),
        FeatureKind::Dictionary(_) => {
            let frequencies = info.width(setup);
            features::check(&FeatureSpec { frequencies, draw: Draw::Independent, ..spec })
        }
        FeatureKind::Inputs | FeatureKind::Nothing => Ok(()),
    }
}

/// Refuses names of classes that are too many, too few or not different.
pub(super) fn check_classes(config: &PlanConfig) -> Result<Option<Classes>, PlanError> {
    let names = &config.classes;
    if names.is_empty() {
        return Ok(None);
    }
    let mut known = BTreeSet::new();
    if let Some(name) = names.iter().find(|name| name.is_empty() || !known.insert(*name)) {
        return Err(PlanError::ClassName { name: name.clone() });
    }
    at_least("classes", 2, names.len())?;
    at_most("classes", MAX_CLASSES, names.len())?;
    Ok(Classes::new(names.len()))
}

/// Refuses counts out of bounds, and counts that differ from what they count.
pub(super) fn check_counts(config: &PlanConfig) -> Result<(), PlanError> {
    let PlanConfig { inputs, outputs, budget, nodes, .. } = *config;
    let kernels = config.kernels.len();
    for (key, least, value, most) in [
        ("inputs", 1, inputs, MAX_INPUTS),
        ("outputs", 1, outputs, MAX_OUTPUTS),
        // The method says what it needs.
        ("budget", 0, budget, MAX_BUDGET),
        ("nodes", 1, nodes, MAX_NODES),
        ("memory", 0, config.memory, MAX_MEMORY),
        ("kernels", 1, kernels, usize::MAX),
        ("pof.kernels_per_upload", 1, config.pof.kernels_per_upload, kernels),
        ("scale_nodes", 1, config.first_scale_nodes(), nodes),
    ] {
        at_least(key, least, value)?;
        at_most(key, most, value)?;
    }
    if !config.columns.is_empty() {
        equal("columns", inputs, config.columns.len())?;
    }
    let groups = &config.column_groups;
    if !groups.is_empty() {
        equal("column_groups", inputs, groups.len())?;
        let largest = groups.iter().max().copied().unwrap_or(0);
        at_most("the largest of column_groups", inputs - 1, largest)?;
        if let Some(gap) = (0..largest).find(|group| !groups.contains(group)) {
            let bound = format!("without gaps, but {gap} is missing below it");
            let (key, value) = ("the largest of column_groups", largest as f64);
            return Err(PlanError::OutOfBounds { key, bound, value });
        }
    }
    if let Scaling::Fixed(scale) = &config.scaling {
        equal("scaling.columns", inputs + outputs, scale.columns())?;
    }
    Ok(())
}

/// Refuses numbers of the learning rule that make no sense.
pub(super) fn check_rates(config: &PlanConfig) -> Result<(), PlanError> {
    let PlanConfig { ridge, step_size, weight_rate, loss, aggregation, pof, .. } = *config;
    let is_rate = |rate: f64| rate > 0.0 && rate <= 1000.0;
    let positive_rate = "positive and at most 1000";
    let delta = if let Loss::Huber { delta } = loss { delta } else { 1.0 };
    let share = if let Aggregation::TrimmedMean { share } = aggregation { share } else { 0.1 };
    let shrink = step_size.rate(1) * ridge;
    // NaN fails every comparison.
    for (key, value, bound, holds) in [
        ("ridge", ridge, "between 0 and 1000", (0.0..=1000.0).contains(&ridge)),
        ("loss.delta", delta, "a positive number", delta > 0.0 && delta.is_finite()),
        ("step_size", step_size.scale(), positive_rate, is_rate(step_size.scale())),
        ("weight_rate", weight_rate.scale(), positive_rate, is_rate(weight_rate.scale())),
        ("step_size · ridge", shrink, "at most 1, or models grow without bound", shrink <= 1.0),
        ("aggregation.share", share, "above 0 and below 0.5", share > 0.0 && share < 0.5),
        (
            "pof.exploration",
            pof.exploration,
            "between 0 and 1",
            (0.0..=1.0).contains(&pof.exploration),
        ),
    ] {
        if !holds {
            return Err(PlanError::OutOfBounds { key, bound: bound.to_owned(), value });
        }
    }
    Ok(())
}

pub(super) fn at_least(key: &'static str, least: usize, value: usize) -> Result<(), PlanError> {
    within(key, least..=usize::MAX, || format!("at least {least}"), value)
}

pub(super) fn at_most(key: &'static str, most: usize, value: usize) -> Result<(), PlanError> {
    within(key, 0..=most, || format!("at most {most}"), value)
}

fn equal(key: &'static str, expected: usize, value: usize) -> Result<(), PlanError> {
    within(key, expected..=expected, || expected.to_string(), value)
}

fn within(
    key: &'static str,
    range: RangeInclusive<usize>,
    bound: impl Fn() -> String,
    value: usize,
) -> Result<(), PlanError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(PlanError::OutOfBounds { key, bound: bound(), value: value as f64 })
}
