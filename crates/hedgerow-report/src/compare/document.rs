//! A comparison as a document in Markdown and as a page.

use hedgerow_data::text::counted;
use hedgerow_lab::compare::{Cell, Comparison};

use super::{advice, pictures, tables};
use crate::drift;
use crate::page::{Document, Part, Section};
use crate::table::Table;
use crate::worth;

/// `compare.md`; the figures are expected beside it.
pub fn document(comparison: &Comparison) -> String {
    described(comparison).markdown()
}

/// `compare.html`: one page with its figures inside, without scripts, that opens without a network.
pub fn page(comparison: &Comparison) -> String {
    described(comparison).html(&pictures::figures(comparison))
}

fn described(comparison: &Comparison) -> Document {
    let section = |id, heading, parts| Section { id, heading, parts };
    let figure = |(file, caption): (&str, String)| Part::Figure {
        file: file.to_owned(),
        name: String::new(),
        caption,
    };
    let unnamed = |table| Part::Table("Numbers".to_owned(), table);
    let figures = pictures::captions(comparison).map(figure).into();
    let advice = [advice::worth(comparison), Some(advice::advice(comparison))];
    let advice = advice.into_iter().flatten().map(Part::Verdict).collect();
    let mut sections = vec![
        section("advice", "Advice", advice),
        section("numbers", "Errors and costs", numbers(comparison)),
        section("figures", "Figures", figures),
    ];
    let changing = comparison.changing();
    if !changing.is_empty() {
        let (file, caption) = pictures::CHANGES_CAPTION;
        let parts = vec![
            figure((file, caption.to_owned())),
            unnamed(drift::table(&changing)),
            Part::Note(drift::meaning(&changing)),
        ];
        sections.push(section("changes", "When the data changes", parts));
    }
    let title = match comparison.only() {
        Some((results, _)) => format!("Methods on {}", results.data_name()),
        None => {
            let parts = vec![unnamed(runs(comparison))];
            sections.push(section("data", "Data and advice, run by run", parts));
            "Methods compared".to_owned()
        }
    };
    Document { title, setting: circumstances(comparison), sections }
}

/// What a reader has to know of the runs, in a line each.
fn circumstances(comparison: &Comparison) -> Vec<String> {
    let mut lines = vec![comparison.setting()];
    if let Some((results, _)) = comparison.only() {
        lines[0] += &format!(
            ", {} of {}, {}, {}, seed {}",
            counted(results.data.samples, "sample"),
            counted(results.data.features, "number"),
            results.partition,
            counted(results.rounds, "round"),
            results.seed
        );
        lines.extend(
            results.circumstances().into_iter().map(|(name, words)| format!("{name}: {words}")),
        );
    }
    lines
}

/// Of a grid, all runs first, then partition by partition.
fn numbers(comparison: &Comparison) -> Vec<Part> {
    let mut tables = tables::tables(comparison);
    tables.rotate_right(1);
    let is_alone = comparison.only().is_some();
    let part = |(heading, table): (String, Table)| match is_alone {
        true => vec![Part::Table("Numbers".to_owned(), table)],
        false => vec![
            Part::Heading { id: String::new(), text: heading.clone() },
            Part::Table(heading, table),
        ],
    };
    let mut parts: Vec<Part> = tables.into_iter().flat_map(part).collect();
    parts.push(Part::Note(tables::note(comparison)));
    parts
}

/// One row per run.
fn runs(comparison: &Comparison) -> Table {
    let row = |cell: &Cell| {
        let name = format!("{}, {}", cell.title, cell.case());
        let Some((results, ranking)) = cell.results.as_ref().zip(cell.ranking.as_ref()) else {
            return vec![name, "not available".to_owned(), "".into(), "".into(), "".into()];
        };
        let sizes = format!(
            "{} × {}, {} rounds",
            results.data.samples, results.data.features, results.rounds
        );
        let words: Vec<String> =
            results.circumstances().into_iter().map(|(_, words)| words).collect();
        let worth = worth::sentence(results).unwrap_or_default();
        vec![name, sizes, words.join("; "), worth, advice::of_run(results, ranking)]
    };
    Table::of_words(
        ["Run", "Sizes", "Data", "Federating", "Advice"],
        comparison.cells.iter().map(row),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::markup::escape;
    use crate::table::plain;
    use hedgerow_lab::testing::{grid, one, run};

    #[test]
    fn advice_tables_and_figures_are_in_document_and_page() {
        for comparison in [one(run(&[("mk", 1.1), ("gr/q8", 1.0)])), grid()] {
            let (document, page) = (document(&comparison), page(&comparison));
            for id in ["advice", "numbers", "figures"] {
                assert!(
                    page.contains(&format!("<section id=\"{id}\""))
                        && page.contains(&format!("#{id}")),
                    "{id}"
                );
            }
            for file in ["](compare.svg)", "](bytes.svg)"] {
                assert!(document.contains(file), "{file}");
            }
            assert!(document.contains(&plain(&advice::advice(&comparison))));
            assert!(page.contains(&escape(&advice::advice(&comparison))));
            assert_eq!(page.matches("role=\"img\"").count(), 2);
            assert!(
                !document.contains("\n\n\n") && document.ends_with('\n') && !page.contains("{{")
            );
        }
        let document = document(&grid());
        let order = [
            "### All runs",
            "### shuffled",
            "### blocks",
            "## Figures",
            "| two, blocks | not available |",
        ];
        let places: Vec<usize> = order.iter().map(|part| document.find(part).unwrap()).collect();
        assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn foreign_text_stays_text_and_nothing_is_fetched() {
        let attack = "</title></svg><script>alert(1)</script>{{style}}|[x](y)\"'";
        let mut results = run(&[("mk", 1.0), ("naive", 2.0)]);
        results.data.name = attack.into();
        results.partition = attack.into();
        results.scaling = attack.into();
        results
            .methods
            .iter_mut()
            .filter(|m| m.name == "naive")
            .for_each(|m| m.name = attack.into());
        let cells =
            [attack, "two"].map(|data| Cell::new(data, data, "p", Some(results.clone()))).to_vec();
        for comparison in [one(results), Comparison::new(cells, "mk")] {
            let (document, page) = (document(&comparison), page(&comparison));
            assert!(
                !page.contains("<script")
                    && !document.contains("<script")
                    && !document.contains("[x](")
            );
            assert_eq!(page.matches("</svg>").count(), 2);
            let page = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
            for foreign in ["http:", "https:", "src=", "href=\"h", "@import", "url("] {
                assert!(!page.contains(foreign), "{foreign}");
            }
        }
    }
}
