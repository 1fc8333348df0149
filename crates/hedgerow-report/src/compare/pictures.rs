//! The figures of a comparison: errors and message sizes.

use hedgerow_lab::compare::{Comparison, GridSummary, RankedMethod, Ranking, Role, TRIALS_TO_TELL};
use hedgerow_lab::results::Results;

use super::advice::reference;
use super::tables::shown_name;
use crate::figures::chart::Heading;
use crate::figures::dots::{Dot, dots};
use crate::figures::drift::drift_panels;
use crate::figures::frontier::frontier;
use crate::figures::heat::{self, Block, HeatRow};
use crate::figures::number::{capitalised, listed, significant};
use crate::figures::palette::{self, LineStyle};
use hedgerow_lab::measure::Measure;

/// File names of the figures.
const ERRORS: &str = "compare.svg";
const BYTES: &str = "bytes.svg";
const CHANGES: &str = "drift.svg";

/// The figures as file name and SVG document: `compare.svg`, `bytes.svg`, and `drift.svg` where it
/// is known when the data changes.
pub fn figures(comparison: &Comparison) -> Vec<(String, String)> {
    let (errors, bytes) = match comparison.only() {
        Some((results, ranking)) => (ranked(results, ranking), costs(results, ranking)),
        None if comparison.budgets().is_empty() => (ratios(comparison), grid_costs(comparison)),
        None => (ratios(comparison), budget_costs(comparison)),
    };
    let mut figures = vec![(ERRORS.to_owned(), errors), (BYTES.to_owned(), bytes)];
    let runs = comparison.changing();
    if !runs.is_empty() {
        let columns = runs.len().min(2);
        figures.push((CHANGES.to_owned(), drift_panels("When the data changes", columns, &runs)));
    }
    figures
}

/// Budgets whose errors differ by less, as a share, share a dot if the bytes are the same, too.
const SAME_ERROR: f64 = 0.005;

/// File name and caption of the picture of changes.
pub(super) const CHANGES_CAPTION: (&str, &str) = (
    CHANGES,
    "Error over a sliding window of rounds; dotted lines are where the data changes, where that is known.",
);

/// File name and caption of the others, in the order of [`figures()`].
pub(super) fn captions(comparison: &Comparison) -> [(&'static str, String); 2] {
    let against = reference(comparison);
    let (errors, bytes) = match comparison.only() {
        Some(_) => (
            "Mean error of every method with its 95% interval, and the error over all predictions so far."
                .to_owned(),
            "Error against bytes; the broken line is the least error for that number of bytes.".to_owned(),
        ),
        None if !comparison.budgets().is_empty() => (
            format!("Error of every method as a multiple of that of {against}, run by run."),
            "Error of every method with every budget as a multiple of the least, against bytes; \
             the broken line is the least for that number of bytes."
                .to_owned(),
        ),
        None => (
            format!("Error of every method as a multiple of that of {against}, run by run."),
            format!(
                "Error as a multiple of that of {against}, on average over all runs, against bytes; the broken line is the least \
                 for that number of bytes."
            ),
        ),
    };
    [(ERRORS, errors), (BYTES, bytes)]
}

const HOLLOW: &str = "Hollow: only for comparison.";

/// Every method as it stands in one run.
fn dots_of(results: &Results, ranking: &Ranking) -> Vec<Dot> {
    let dot = |entry: &RankedMethod| Dot {
        method: entry.name.clone(),
        label: entry.label(),
        style: palette::method(results, &entry.name),
        is_reference: entry.role != Role::Choice,
        error: entry.error.mean,
        ends: entry.interval.map(|interval| (interval.low, interval.high)),
        ratio: match entry.to_best {
            Some(ratio) => significant(ratio.value, 3),
            None if entry.rank == Some(1) => "1".to_owned(),
            None => String::new(),
        },
        bytes: entry.bytes(),
    };
    ranking.methods.iter().map(dot).collect()
}

fn ranked(results: &Results, ranking: &Ranking) -> String {
    let bars = match results.trials {
        ..TRIALS_TO_TELL => String::new(),
        trials => format!("Bars: 95% intervals of the mean over {trials} trials. "),
    };
    let heading = Heading {
        title: &format!("Methods on {} ({})", results.data_name(), results.partition),
        subtitle: &results.sizes(),
        note: &format!("{bars}{HOLLOW}"),
    };
    dots(results, &heading, &dots_of(results, ranking))
}

fn costs(results: &Results, ranking: &Ranking) -> String {
    let heading = Heading {
        title: &format!("Error against bytes on {} ({})", results.data_name(), results.partition),
        subtitle: &results.sizes(),
        note: &format!("Broken line: the least error for that number of bytes. {HOLLOW}"),
    };
    frontier(&heading, &Measure::of(results).name(results), &dots_of(results, ranking))
}

fn ratios(comparison: &Comparison) -> String {
    let titles: Vec<String> =
        comparison.each_once(|cell| &cell.title).into_iter().map(str::to_owned).collect();
    let ratio = |name: &str, title: &str, case: &str| {
        let ranking = comparison.cell(title, case)?.ranking.as_ref()?;
        ranking.ratio(name, &comparison.against)
    };
    let block = |case: &String| Block {
        title: case.clone(),
        rows: comparison
            .summaries
            .iter()
            .map(|summary| HeatRow {
                label: shown_name(&summary.name),
                is_reference: summary.role != Role::Choice,
                ratios: titles.iter().map(|title| ratio(&summary.name, title, case)).collect(),
            })
            .collect(),
    };
    let blocks: Vec<Block> = comparison.cases().iter().map(block).collect();
    let heading = Heading {
        title: &format!("Errors as multiples of that of {}", reference(comparison)),
        subtitle: &comparison.setting(),
        note: &format!(
            "{}: less error; {}: more. In grey: only for comparison.",
            capitalised(heat::BELOW.0),
            heat::ABOVE.0
        ),
    };
    heat::heat(&heading, &titles, &blocks)
}

/// The style of a method, as in the first run that has it.
fn style(comparison: &Comparison, name: &str) -> Option<LineStyle> {
    let (_, results, _) =
        comparison.found().find(|(_, results, _)| results.method(name).is_some())?;
    Some(palette::method(results, name))
}

/// A dot for every method with every budget; one for all budgets that make no difference.
fn budget_costs(comparison: &Comparison) -> String {
    let mut dots: Vec<(Dot, Vec<usize>)> = Vec::new();
    for point in comparison.budgets() {
        let is_same = |(dot, _): &&mut (Dot, Vec<usize>)| {
            dot.method == point.method
                && dot.bytes == Some(point.bytes)
                && (dot.error / point.ratio - 1.0).abs() < SAME_ERROR
        };
        if let Some((_, budgets)) = dots.iter_mut().find(is_same) {
            budgets.push(point.budget);
            continue;
        }
        let Some(style) = style(comparison, &point.method) else { continue };
        let dot = Dot {
            method: point.method.clone(),
            label: String::new(),
            style,
            is_reference: false,
            error: point.ratio,
            ends: None,
            ratio: String::new(),
            bytes: Some(point.bytes),
        };
        dots.push((dot, vec![point.budget]));
    }
    let labelled = |(dot, budgets): (Dot, Vec<usize>)| {
        let (least, most) = (budgets.iter().min(), budgets.iter().max());
        let range = match (least, most) {
            (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
            _ => budgets.iter().map(usize::to_string).collect(),
        };
        Dot { label: format!("{}, {range}", shown_name(&dot.method)), ..dot }
    };
    let dots: Vec<Dot> = dots.into_iter().map(labelled).collect();
    let heading = Heading {
        title: "Error against bytes, budget by budget",
        subtitle: &comparison.setting(),
        note: "Method, numbers per message. Broken line: the least for that number of bytes.",
    };
    frontier(&heading, "error as a multiple of the least", &dots)
}

fn grid_costs(comparison: &Comparison) -> String {
    let dot = |summary: &GridSummary| {
        Some(Dot {
            method: summary.name.clone(),
            label: shown_name(&summary.name),
            style: style(comparison, &summary.name)?,
            is_reference: summary.role != Role::Choice,
            error: summary.ratio?,
            ends: None,
            ratio: String::new(),
            bytes: summary.bytes,
        })
    };
    // A mean over other runs can't be compared.
    let most = comparison.summaries.iter().map(|summary| summary.runs).max().unwrap_or(0);
    let (whole, partial): (Vec<&GridSummary>, Vec<&GridSummary>) =
        comparison.summaries.iter().partition(|summary| summary.runs == most);
    let dots: Vec<Dot> = whole.into_iter().filter_map(dot).collect();
    let names: Vec<String> = partial.iter().map(|summary| shown_name(&summary.name)).collect();
    let without = match names.as_slice() {
        [] => String::new(),
        names => format!(" Not in all runs: {}.", listed(names)),
    };
    let heading = Heading {
        title: &format!("Error against bytes over {} runs", comparison.found().count()),
        subtitle: &comparison.setting(),
        note: &format!("Broken line: the least for that number of bytes. {HOLLOW}{without}"),
    };
    frontier(&heading, &format!("error as a multiple of that of {}", reference(comparison)), &dots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::compare::Cell;
    use hedgerow_lab::testing::{cell, grid, one, run, with_bytes};

    #[test]
    fn both_figures_of_a_run_and_of_a_grid_are_pictures() {
        for comparison in
            [one(run(&[("mk", 1.1), ("gr/q8", 1.0), ("local", 3.0), ("last", 2.0)])), grid()]
        {
            let drawn = figures(&comparison);
            let files: Vec<&str> = drawn.iter().map(|(file, _)| file.as_str()).collect();
            assert_eq!(files, captions(&comparison).each_ref().map(|(file, _)| *file));
            for (file, svg) in &drawn {
                assert!(svg.contains("K = 20 nodes"), "{file}");
            }
        }
    }

    #[test]
    fn every_method_is_in_both_figures_of_a_run() {
        let drawn = figures(&one(run(&[("mk", 1.1), ("gr/q8", 1.0), ("last", 2.0)])));
        for label in ["mk", "gr/q8", "last", "sk 2 (best)"] {
            assert!(drawn.iter().all(|(_, svg)| svg.contains(&format!(">{label}<"))), "{label}");
        }
        // What never ran anywhere has sent nothing that could be compared.
        assert!(drawn[0].1.contains(">hindsight 2<") && !drawn[1].1.contains(">hindsight 2<"));
    }

    #[test]
    fn the_colours_that_the_ratios_name_are_those_of_the_cells() {
        let drawn = &figures(&grid())[0].1;
        assert!(drawn.contains("Blue: less error; orange: more."));
        assert_eq!(heat::BELOW.1.hex(), "#0072b2");
        assert_eq!(heat::ABOVE.1.hex(), "#d55e00");
        assert!(drawn.contains("fill=\"#0072b2\"") && drawn.contains("fill=\"#d55e00\""));
    }

    #[test]
    fn what_was_not_run_everywhere_is_named_and_not_drawn_beside_the_others() {
        let mut cells = grid().cells;
        let results = run(&[("mk", 2.0), ("gr", 1.0)]);
        cells[0] = cell("one", "shuffled", Some(results));
        let [before, after] = [grid(), Comparison::new(cells, "mk")].map(|all| figures(&all));
        assert!(before[1].1.contains(">last<") && !before[1].1.contains("Not in all runs"));
        assert!(!after[1].1.contains(">last<") && after[1].1.contains("Not in all runs: last."));
    }

    #[test]
    fn budgets_that_make_no_difference_share_a_dot() {
        let of_budget = |(budget, error): (usize, f64)| {
            let mut results = run(&[("linear", 3.0), ("tr", error)]);
            results.budget = budget;
            with_bytes(&mut results, "linear", 40.0, 40.0);
            with_bytes(&mut results, "tr", 4.0 * budget as f64, 40.0);
            let variant = format!("budget {budget}");
            Cell { variant, budget: Some(budget), ..cell("one", "blocks", Some(results)) }
        };
        let cells = [(50, 2.0), (100, 1.5), (300, 1.0)].map(of_budget);
        let svg = &figures(&Comparison::new(cells.to_vec(), "mk"))[1].1;
        for label in ["linear, 50 to 300", "tr, 50", "tr, 100", "tr, 300"] {
            assert!(svg.contains(&format!(">{label}<")), "{label}: {svg}");
        }
        assert!(!svg.contains(">linear, 50<") && !svg.contains(">linear, 300<"), "{svg}");
    }

    #[test]
    fn nothing_at_all_is_still_drawn() {
        assert_eq!(figures(&Comparison::new(vec![], "mk")).len(), 2);
        let mut empty = run(&[]);
        empty.methods.clear();
        assert_eq!(figures(&one(empty)).len(), 2);
    }
}
