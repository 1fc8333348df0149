//! The paper's experiments again: finished runs in; figures, tables, a check of the paper's claims,
//! a page and a document out. Pure functions: nothing is read, written or fetched.

mod checks;
mod claims;
mod document;
mod measured;
mod tables;
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
    let mut drawn = vec![(file(CONVERGENCE), convergence_panels(CONVERGENCE_TITLE, &panes))];
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

#[cfg(test)]
mod sample {
    use hedgerow_lab::results::Results;
    use hedgerow_lab::suite::{Figure, Variants};

    use super::*;
    use hedgerow_lab::testing::results;

    /// Two figures; one data set is missing, one has rules that learn nothing, and there are
    /// variants.
    pub(super) fn reproduction() -> Reproduction {
        let panel = |name: &str, results| Panel {
            name: name.to_lowercase(),
            title: name.to_owned(),
            provenance: format!("{name} from a <drawer>"),
            results,
        };
        let mut simple = with_selection(results(11, 200, 4));
        for (name, level) in [("last", 0.5), ("mean", 4.0)] {
            let mut rule = simple.methods[0].clone();
            rule.name = name.into();
            rule.mse.mean *= level;
            rule.mse_trials.iter_mut().for_each(|error| *error *= level);
            rule.curve.shares.clear();
            simple.methods.push(rule);
        }
        let mut variants = with_selection(results(11, 50, 4));
        for (name, level) in [("mk:voters", 2.0), ("mk:authors", 1.0)] {
            let mut variant = variants.methods[0].clone();
            variant.name = name.into();
            variant.mse.mean *= level;
            variant.mse_trials.iter_mut().for_each(|error| *error *= level);
            variants.methods.push(variant);
        }
        Reproduction {
            figures: vec![
                Figure {
                    number: 3,
                    title: "Regression".into(),
                    columns: 2,
                    panels: vec![
                        panel("Twitter", Some(with_selection(results(11, 200, 4)))),
                        panel("Large", None),
                    ],
                },
                Figure {
                    number: 4,
                    title: "Time series".into(),
                    columns: 3,
                    panels: vec![panel("Traffic", Some(simple))],
                },
            ],
            variants: Variants {
                panels: vec![panel("Twitter", Some(variants))],
                meanings: vec![
                    ("mk:voters".into(), "the mean of those who voted for it".into()),
                    ("mk:authors".into(), "all of it".into()),
                ],
            },
        }
    }

    fn with_selection(mut results: Results) -> Results {
        let shares = &results.methods[0].curve.shares;
        let mean = |kernel: usize| {
            shares.iter().map(|shares| shares[kernel]).sum::<f64>() / shares.len() as f64
        };
        results.methods[0].selected = (0..results.kernels.len()).map(mean).collect();
        results
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_its_number_and_its_caption() {
        let reproduction = sample::reproduction();
        let drawn = figures(&reproduction);
        let files: Vec<&str> = drawn.iter().map(|(file, _)| file.as_str()).collect();
        assert_eq!(files, ["fig2.svg", "fig3.svg", "fig4.svg"]);
        let captions = captions(&reproduction);
        assert_eq!(captions.iter().map(|(number, _)| file(*number)).collect::<Vec<_>>(), files);
        assert!(captions[1].1.starts_with("Regression. "));
        // The convergence has all data sets, missing ones too.
        assert!(["Twitter", "Large", "Traffic"].iter().all(|title| drawn[0].1.contains(title)));
    }

    #[test]
    fn nothing_at_all_is_still_a_reproduction() {
        let empty = Reproduction::default();
        assert_eq!(figures(&empty).len(), 1);
        assert_eq!(empty.setting(), "No data set was available.");
        assert!(page(&empty).contains("No data set was available."));
        assert!(document(&empty).contains("No data set was available."));
    }
}
