//! The paper's experiments again: finished runs in; figures, tables, a check of the paper's claims,
//! a page and a document out. Pure functions: nothing is read, written or fetched.

mod checks;
mod claims;
mod document;
pub mod fed_poe;
mod measured;
mod tables;
#[cfg(test)]
mod tests;
mod variants;

pub use claims::{Claim, Finding, Verdict, claims};
pub use document::{document, page};
pub use tables::table_csv;

use serde_json::{Map, Value, json};

use crate::figures::convergence::convergence_panels;
use crate::figures::panels::{Pane, mse_panels};
use hedgerow_lab::suite::{Panel, Reproduction};

/// What the paper claims, and whether it was so, a line each.
pub fn text(reproduction: &Reproduction) -> String {
    let line =
        |claim: &Claim| format!("{}) {}: {}\n", claim.letter, claim.statement, claim.summary());
    claims(reproduction).iter().map(line).collect()
}

/// All results and the claims; `missing` names data sets that were not available.
pub fn json(reproduction: &Reproduction, missing: &[String]) -> Value {
    let runs = |panels: &[Panel]| -> Map<String, Value> {
        panels.iter().map(|panel| (panel.name.clone(), json!(panel.results))).collect()
    };
    let figures: Vec<_> = reproduction
        .figures
        .iter()
        .map(|figure| json!({ "figure": figure.number, "title": figure.title, "runs": runs(&figure.panels) }))
        .collect();
    let claims: Vec<_> = claims(reproduction)
        .iter()
        .map(|claim| json!({ "claim": claim.statement, "summary": claim.summary() }))
        .collect();
    json!({
        "schema": 1,
        "missing": missing,
        "figures": figures,
        "claims": claims,
        "variants": runs(&reproduction.variants.panels),
    })
}

/// Number of the figure of convergence in the paper.
const CONVERGENCE: u32 = 2;

/// Every figure as file name and SVG document: `fig2.svg` and so on.
pub fn figures(reproduction: &Reproduction) -> Vec<(String, String)> {
    let panes: Vec<Pane<'_>> = reproduction.panels().map(pane).collect();
    let mut drawn = vec![(file(CONVERGENCE), convergence_panels(CONVERGENCE_TITLE, "mk", &panes))];
    for figure in &reproduction.figures {
        let panes: Vec<Pane<'_>> = figure.panels.iter().map(pane).collect();
        drawn.push((file(figure.number), mse_panels(&figure.title, figure.columns, &panes)));
    }
    drawn
}

const CONVERGENCE_TITLE: &str = "Convergence to the best kernel";

/// Name and caption of every figure, in the order of [`figures`].
fn captions(reproduction: &Reproduction) -> Vec<(u32, String)> {
    let convergence = "Share of the trials in which mk has selected the kernel that is best in hindsight. The legend has the \
                       mean share of the last rounds.";
    let errors = "MSE(t) of mk, of sk with every kernel, of the naive extension and of what they are compared with.";
    let mut captions = vec![(CONVERGENCE, format!("{CONVERGENCE_TITLE}. {convergence}"))];
    captions.extend(
        reproduction
            .figures
            .iter()
            .map(|figure| (figure.number, format!("{}. {errors}", figure.title))),
    );
    captions
}

fn file(number: u32) -> String {
    format!("fig{number}.svg")
}

fn pane(panel: &Panel) -> Pane<'_> {
    Pane { title: &panel.title, results: panel.results.as_ref() }
}
