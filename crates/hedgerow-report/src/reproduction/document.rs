//! A reproduction as a document in Markdown and as a page.

use super::claims::{Claim, Finding, claims};
use super::{Reproduction, captions, checks, figures, file, tables, variants};
use crate::page::{Document, Part, Section};
use crate::table::Table;

/// Everything but the figures themselves, which it expects beside it as `fig2.svg` and so on.
pub fn document(reproduction: &Reproduction) -> String {
    described(reproduction).markdown()
}

/// One page with its figures inside, without scripts, that opens without a network.
pub fn page(reproduction: &Reproduction) -> String {
    described(reproduction).html(&figures(reproduction))
}

fn described(reproduction: &Reproduction) -> Document {
    let section = |id, heading, parts| Section { id, heading, parts };
    let table = |label: &str, table| Part::Table(label.to_owned(), table);
    let claims = claims(reproduction);
    let numbers = vec![
        table("Errors", tables::errors(reproduction)),
        table("Costs and selection", tables::costs(reproduction)),
        Part::Note(tables::note(reproduction)),
    ];
    let figure = |(number, caption)| Part::Figure {
        file: file(number),
        name: format!("Figure {number}"),
        caption,
    };
    let mut details = vec![Part::Text(checks::ABOUT_CRITERIA.to_owned())];
    details.extend(claims.iter().flat_map(detailed));
    let outline = vec![table("Claims", outline(&claims))];
    let mut sections = vec![
        section("claims", "What the paper says and what was measured", outline),
        section("numbers", "Errors and costs", numbers),
        section("figures", "Figures", captions(reproduction).into_iter().map(figure).collect()),
        section("details", "Claim by claim", details),
    ];
    if let Some(variants) = variants::table(reproduction) {
        let parts = vec![
            table("Variants of mk", variants),
            Part::List(variants::meanings(reproduction)),
            Part::Note(variants::text(reproduction).join(" ")),
        ];
        sections.push(section("variants", "The authors' code and the paper", parts));
    }
    let data = vec![table("Data sets", tables::provenance(reproduction))];
    sections.push(section("data", "Data", data));
    let title = "The paper's experiments, again".to_owned();
    Document { title, setting: vec![reproduction.setting()], sections }
}

/// One row per claim.
fn outline(claims: &[Claim]) -> Table {
    let row =
        |claim: &Claim| vec![format!("({}) {}", claim.letter, claim.statement), claim.summary()];
    Table::of_words(["Claim", "Measured"], claims.iter().map(row))
}

/// A claim with one row per data set.
fn detailed(claim: &Claim) -> [Part; 3] {
    let Claim { letter, statement, criterion, findings } = claim;
    let row = |Finding { title, verdict, why }: &Finding| {
        vec![title.clone(), verdict.words().to_owned(), why.clone()]
    };
    let table = Table::of_words(["Data", "Measurement", "Why"], findings.iter().map(row));
    [
        Part::Heading { id: format!("claim-{letter}"), text: format!("({letter}) {statement}") },
        Part::Note(format!("Counts as true: {criterion}.")),
        Part::Table(format!("Claim {letter}, by data set"), table),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::reproduction;
    use super::*;

    #[test]
    fn figures_tables_claims_variants_and_data_are_all_there() {
        let document = document(&reproduction());
        for part in [
            "K = 20 nodes, r = 100 numbers per message, 4 trials",
            "| (a) mk comes close to the best single kernel | holds on 2 of 2 data sets |",
            "](fig2.svg)",
            "](fig4.svg)",
            "| Twitter | 4000 | 77 | 200 | 6.60 ± 0.20 |",
            "| Large | not available | – |",
            "| Traffic | does not agree | mk has 2.00 times the MSE of last",
            "## The authors' code and the paper",
            "- `mk:voters`: the mean of those who voted for it",
            "| Large | Large from a &lt;drawer> |",
        ] {
            assert!(document.contains(part), "{part}\n{document}");
        }
        assert!(!document.contains("\n\n\n") && document.ends_with("|\n"));
    }

    #[test]
    fn foreign_text_stays_text_in_the_document() {
        let mut reproduction = reproduction();
        reproduction.figures[0].panels[0].title = "<script>|[x](y)".into();
        reproduction.figures[0].title = "![x](y)".into();
        let document = document(&reproduction);
        assert!(!document.contains("<script") && !document.contains("[x]("));
        assert!(document.contains("&lt;script>\\|\\[x\\](y)"));
    }

    #[test]
    fn every_part_is_there_and_can_be_jumped_to() {
        let page = page(&reproduction());
        for id in ["claims", "numbers", "figures", "details", "variants", "data"] {
            assert!(page.contains(&format!("<section id=\"{id}\"")), "{id}");
            assert!(page.contains(&format!("href=\"#{id}\"")), "{id}");
        }
        for part in [
            "<figure id=\"fig2\">",
            "<figure id=\"fig4\">",
            "id=\"claim-f\"",
            "<code>mk:voters</code>: the mean of",
            "holds on 2 of 2 data sets",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert_eq!(page.matches("role=\"img\"").count(), 3);
        assert!(!page.contains("{{"));
    }

    #[test]
    fn nothing_is_fetched_and_nothing_runs() {
        let page = page(&reproduction());
        // The name of the format of the figures is no address.
        let page = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for foreign in [
            "http:",
            "https:",
            "src=",
            "href=\"h",
            "@import",
            "url(",
            "<script",
            "onload",
            "javascript",
        ] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(
            page.contains("default-src 'none'; style-src 'unsafe-inline'\"")
                && page.contains("prefers-color-scheme")
        );
    }

    #[test]
    fn foreign_text_cannot_break_out_of_the_page() {
        let attack = "</title></svg><script>alert(1)</script>{{style}}\"'";
        let mut reproduction = reproduction();
        for panel in reproduction.figures.iter_mut().flat_map(|figure| &mut figure.panels) {
            (panel.title, panel.name, panel.provenance) =
                (attack.into(), attack.into(), attack.into());
        }
        reproduction.figures[0].title = attack.into();
        reproduction.variants.panels[0].title = attack.into();
        reproduction.variants.meanings[0].1 = attack.into();
        let page = page(&reproduction);
        assert!(!page.contains("<script"));
        assert_eq!((page.matches("</svg>").count(), page.matches("</section>").count()), (3, 6));
        assert!(page.contains("{{style}}"), "values are not searched for slots");
    }
}
