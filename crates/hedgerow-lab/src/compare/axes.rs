//! The sides of a grid: names of data sets and partitions, variants, budgets.

use super::budget_variant;
use super::grid_config::{GridConfig, GridVariant};
use crate::results::each_once;
use crate::settings::SettingsError;
use hedgerow_config::Layer;
use hedgerow_data::partition::Partition;

/// The names along one side of the grid, each once. If none are given, the settings decide.
pub(super) fn axis(
    names: Option<&[String]>,
    key: &str,
    what: &str,
    flags: &[Layer],
) -> Result<Option<Vec<String>>, SettingsError> {
    let Some(names) = names else { return Ok(None) };
    if let Some(flag) = flags.iter().find(|flag| flag.changes(key)) {
        let bound = format!("said once: the grid has its {what}s already");
        return Err(out_of_bounds(key, bound, flag.origin()));
    }
    let names = names.iter().map(|name| name.trim()).filter(|name| !name.is_empty());
    let each = each_once(names.map(str::to_owned));
    if each.is_empty() { Err(empty(key, what)) } else { Ok(Some(each)) }
}

/// Partitions as they name themselves, each once: `dirichlet:0.30` is `dirichlet:0.3`.
pub(super) fn canonical(names: Vec<String>) -> Vec<String> {
    each_once(names.into_iter().map(|name| {
        let known = Partition::parse(&name).filter(|partition| *partition != Partition::Auto);
        known.map_or(name, Partition::name)
    }))
}

/// The variants to run, each with a name of its own; if there are none, one without name and
/// settings.
pub(super) fn variants(all: &[GridVariant]) -> Result<Vec<GridVariant>, SettingsError> {
    let is_wrong = |(at, variant): &(usize, &GridVariant)| {
        variant.name.trim().is_empty() || all[..*at].iter().any(|other| other.name == variant.name)
    };
    if let Some((_, wrong)) = all.iter().enumerate().find(is_wrong) {
        let value = format!("{:?}", wrong.name);
        return Err(out_of_bounds("variants.name", "a name of its own for each", value));
    }
    Ok(if all.is_empty() { vec![GridVariant::default()] } else { all.to_vec() })
}

/// Every variant with every budget, where several budgets are compared; a single budget is a
/// setting of all runs.
pub(super) fn with_budgets(
    variants: Vec<GridVariant>,
    config: &GridConfig,
    flags: &[Layer],
) -> Result<Vec<(GridVariant, Option<usize>)>, SettingsError> {
    const KEY: &str = "federation.budget";
    let Some(budgets) = &config.budgets else {
        return Ok(variants.into_iter().map(|variant| (variant, None)).collect());
    };
    if let Some(flag) = flags.iter().find(|flag| flag.changes(KEY)) {
        let bound = "said once: the grid has its budgets already";
        return Err(out_of_bounds(KEY, bound, flag.origin()));
    }
    let mut each = Vec::new();
    for budget in each_once(budgets.iter()) {
        let is_known = |budget: &usize| (1..=1_000_000).contains(budget);
        let known = usize::try_from(*budget).ok().filter(is_known);
        each.push(known.ok_or_else(|| out_of_bounds(KEY, "between 1 and 1000000", budget))?);
    }
    if each.is_empty() {
        return Err(empty(KEY, "budget"));
    }
    let mut all = Vec::new();
    for variant in variants {
        for &budget in &each {
            let mut settings = variant.settings.clone();
            let section = settings.entry("federation").or_insert_with(|| toml::Table::new().into());
            if let Some(section) = section.as_table_mut() {
                section.insert("budget".to_owned(), (budget as i64).into());
            }
            let name = match (variant.name.as_str(), each.len()) {
                (name, 1) => name.to_owned(),
                ("", _) => budget_variant(budget),
                (name, _) => format!("{name}, {}", budget_variant(budget)),
            };
            let compared = Some(budget).filter(|_| each.len() > 1);
            all.push((GridVariant { name, settings }, compared));
        }
    }
    Ok(all)
}

pub(super) fn empty(key: &str, what: &str) -> SettingsError {
    out_of_bounds(key, format!("at least 1 {what}"), "empty")
}

fn out_of_bounds(key: &str, bound: impl ToString, value: impl ToString) -> SettingsError {
    SettingsError::out_of_bounds(key, bound, value)
}
