//! What a comparison has to say, part by part, for the document and the page alike.

use hedgerow_lab::compare::Comparison;

use super::{Table, advice, pictures, tables};
use crate::drift;

/// A part under one heading.
pub(super) struct Section {
    pub(super) id: &'static str,
    pub(super) heading: &'static str,
    pub(super) parts: Vec<Part>,
}

pub(super) enum Part {
    Text(String),
    /// With what stands above it; empty if the section's heading says it all.
    Table(String, Table),
    /// File of a figure, and what it shows.
    Figure(&'static str, String),
    Note(String),
}

/// At the head of all.
pub(super) fn title(comparison: &Comparison) -> String {
    match comparison.only() {
        Some((results, _)) => format!("Methods on {}", results.data_name()),
        None => "Methods compared".to_owned(),
    }
}

/// What a reader has to know of the runs, in a line each.
pub(super) fn circumstances(comparison: &Comparison) -> Vec<String> {
    let mut lines = vec![comparison.setting()];
    if let Some((results, _)) = comparison.only() {
        lines[0] += &format!(
            ", {} samples of {} numbers, {}, {} rounds, seed {}",
            results.data.samples,
            results.data.features,
            results.partition,
            results.rounds,
            results.seed
        );
        lines.extend(
            results.circumstances().into_iter().map(|(name, words)| format!("{name}: {words}")),
        );
    }
    lines
}

pub(super) fn sections(comparison: &Comparison) -> Vec<Section> {
    let mut sections = vec![Section {
        id: "advice",
        heading: "Advice",
        parts: vec![Part::Text(advice::advice(comparison))],
    }];
    let is_alone = comparison.only().is_some();
    let mut numbers: Vec<Part> = tables::tables(comparison)
        .into_iter()
        .rev()
        .map(|(heading, table)| Part::Table(if is_alone { String::new() } else { heading }, table))
        .collect();
    // All runs first, then partition by partition in their order.
    if numbers.len() > 2 {
        numbers[1..].reverse();
    }
    numbers.push(Part::Note(tables::note(comparison)));
    sections.push(Section { id: "numbers", heading: "Errors and costs", parts: numbers });
    let figures = pictures::captions(comparison).map(|(file, caption)| Part::Figure(file, caption));
    sections.push(Section { id: "figures", heading: "Figures", parts: figures.into() });
    let changing = comparison.changing();
    if !changing.is_empty() {
        let (file, caption) = pictures::CHANGES_CAPTION;
        let parts = vec![
            Part::Figure(file, caption.to_owned()),
            Part::Table(String::new(), drift::table(&changing)),
            Part::Note(drift::meaning(&changing)),
        ];
        sections.push(Section { id: "changes", heading: "When the data changes", parts });
    }
    if !is_alone {
        sections.push(Section {
            id: "data",
            heading: "Data and advice, run by run",
            parts: vec![Part::Table(String::new(), runs(comparison))],
        });
    }
    sections
}

/// One row per run.
fn runs(comparison: &Comparison) -> Table {
    let headings = ["Run", "Sizes", "Data", "Advice"].map(str::to_owned).to_vec();
    let row = |cell: &hedgerow_lab::compare::Cell| {
        let name = format!("{}, {}", cell.title, cell.partition);
        let Some((results, ranking)) = cell.results.as_ref().zip(cell.ranking.as_ref()) else {
            return vec![name, "not available".to_owned(), String::new(), String::new()];
        };
        let sizes = format!(
            "{} × {}, {} rounds",
            results.data.samples, results.data.features, results.rounds
        );
        let words: Vec<String> =
            results.circumstances().into_iter().map(|(_, words)| words).collect();
        vec![name, sizes, words.join("; "), advice::of_run(results, ranking)]
    };
    Table { headings, rows: comparison.cells.iter().map(row).collect(), of_words: true }
}
