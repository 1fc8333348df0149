//! The paper and its authors' code: errors of variants of `mk` relative to `mk`.

use super::measured::mse_ratio;
use super::tables::{missing, thousandfold};
use super::{Panel, Reproduction};
use crate::figures::number::significant;
use crate::report::compare::compare;
use crate::table::{Table, or_nothing};
use hedgerow_lab::measure::Measure;
use hedgerow_lab::results::{MethodResult, Results};

/// One row per data set, one column per variant; none if there are no variants.
pub(super) fn table(reproduction: &Reproduction) -> Option<Table> {
    let names = names(reproduction);
    let panels = &reproduction.variants.panels;
    if names.is_empty() || panels.is_empty() {
        return None;
    }
    let headings = ["Data", "mk, MSE × 1000"].into_iter().chain(names.iter().map(String::as_str));
    let row = |panel: &Panel| {
        let Some((results, mk)) = subject(panel) else { return missing(panel, 2 + names.len()) };
        let mut row = vec![panel.title.clone(), thousandfold(results, mk)];
        row.extend(names.iter().map(|name| cell(results, mk, name)));
        row
    };
    Some(Table::of_numbers(headings, panels.iter().map(row)))
}

/// `1.27`, or `1.01 ≈` where the difference may be chance.
fn cell(results: &Results, mk: &MethodResult, name: &str) -> String {
    or_nothing(results.method(name), |variant| match mse_ratio(Some(variant), Some(mk)) {
        None => "not finite".to_owned(),
        Some(ratio) if is_level(results, variant, mk) => format!("{} ≈", significant(ratio, 3)),
        Some(ratio) => significant(ratio, 3),
    })
}

fn is_level(results: &Results, variant: &MethodResult, mk: &MethodResult) -> bool {
    compare(Measure::Mse, variant, mk, results.trials).is_some_and(|found| found.level)
}

/// What the variants are, for a list.
pub(super) fn meanings(reproduction: &Reproduction) -> Vec<(String, String)> {
    let meaning = |name: String| {
        let known = reproduction.variants.meanings.iter().find(|(known, _)| *known == name);
        Some((name, known?.1.clone()))
    };
    names(reproduction).into_iter().filter_map(meaning).collect()
}

/// A variant whose error is this many times mk's has diverged.
const DIVERGED: f64 = 1000.0;

/// How to read the table, and what each variant amounts to.
pub(super) fn text(reproduction: &Reproduction) -> Vec<String> {
    let mut sentences = vec![
        "MSE of each variant as a multiple of that of mk on the same trials: below 1 the variant is better. ≈: within two \
         standard errors of the difference trial by trial."
            .to_owned(),
    ];
    for name in names(reproduction) {
        let [mut better, mut worse, mut diverged, mut level] = [0; 4];
        for (results, mk) in reproduction.variants.panels.iter().filter_map(subject) {
            let Some(variant) = results.method(&name) else { continue };
            // What has diverged differs so much between trials that no standard error says so.
            *match mse_ratio(Some(variant), Some(mk)).unwrap_or(f64::INFINITY) {
                DIVERGED.. => &mut diverged,
                _ if is_level(results, variant, mk) => &mut level,
                ..1.0 => &mut better,
                _ => &mut worse,
            } += 1;
        }
        let all = better + worse + diverged + level;
        let parts =
            [(better, "better"), (worse, "worse"), (diverged, "diverges"), (level, "no different")];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{what} on {count}"))
            .collect();
        sentences.push(format!("{name}, of {all} data sets: {}.", parts.join(", ")));
    }
    sentences
}

fn subject(panel: &Panel) -> Option<(&Results, &MethodResult)> {
    let results = panel.results.as_ref()?;
    Some((results, results.method("mk")?))
}

/// Those with a meaning in the order of their meanings, then others in the order in which they
/// come.
fn names(reproduction: &Reproduction) -> Vec<String> {
    let run = || reproduction.variants.panels.iter().filter_map(|panel| panel.results.as_ref());
    let was_run = |name: &&String| run().any(|results| results.method(name).is_some());
    let mut names: Vec<String> = reproduction
        .variants
        .meanings
        .iter()
        .map(|(name, _)| name)
        .filter(was_run)
        .cloned()
        .collect();
    for method in run().flat_map(|results| &results.methods) {
        if method.name.starts_with("mk:") && !names.contains(&method.name) {
            names.push(method.name.clone());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::tests::reproduction;
    use super::*;

    #[test]
    fn variants_are_multiples_of_mk() {
        let mut reproduction = reproduction();
        reproduction.variants.meanings.reverse();
        reproduction.variants.meanings.push(("mk:never-run".into(), "nothing".into()));
        let table = table(&reproduction).unwrap();
        assert_eq!(table.headings, ["Data", "mk, MSE × 1000", "mk:authors", "mk:voters"]);
        assert_eq!(table.rows, [["Twitter", "6.60 ± 0.20", "1.00 ≈", "2.00"]]);
        assert_eq!(
            meanings(&reproduction)[1],
            ("mk:voters".into(), "the mean of those who voted for it".into())
        );
        assert_eq!(
            text(&reproduction)[1..],
            [
                "mk:authors, of 1 data sets: no different on 1.",
                "mk:voters, of 1 data sets: worse on 1."
            ]
        );
    }

    #[test]
    fn a_variant_without_a_meaning_is_shown_and_one_that_diverged_says_so() {
        let mut reproduction = reproduction();
        reproduction.variants.meanings.clear();
        let results = reproduction.variants.panels[0].results.as_mut().unwrap();
        results.methods.last_mut().unwrap().mse.mean = f64::INFINITY;
        let table = table(&reproduction).unwrap();
        assert_eq!(table.headings[2..], ["mk:voters", "mk:authors"]);
        assert_eq!(table.rows[0][3], "not finite");
        assert!(meanings(&reproduction).is_empty());
    }

    #[test]
    fn without_variants_there_is_no_table_and_without_data_a_word() {
        let mut reproduction = reproduction();
        let mut missing = reproduction.variants.panels[0].clone();
        missing.results = None;
        reproduction.variants.panels.push(missing);
        assert_eq!(table(&reproduction).unwrap().rows[1], ["Twitter", "not available", "–", "–"]);
        reproduction.variants.panels.remove(0);
        assert!(table(&reproduction).is_none());
    }
}
