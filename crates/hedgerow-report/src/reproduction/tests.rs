//! A reproduction for tests, and tests of its figures.

use hedgerow_lab::results::Results;
use hedgerow_lab::suite::{Figure, Variants};

use hedgerow_lab::testing::results;

use super::*;

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

#[test]
fn every_figure_has_its_number_and_its_caption() {
    let reproduction = reproduction();
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
