//! The page of a reproduction: one HTML document with its figures inside, without scripts, that
//! opens without a network.

use super::claims::ABOUT_CRITERIA;
use super::claims::{Claim, claims};
use super::document::{details, outline};
use super::{Reproduction, captions, figures, tables, variants};
use crate::figures::markup::escape;
use crate::page::{self, Section};

/// The whole page.
pub fn page(reproduction: &Reproduction) -> String {
    let claims = claims(reproduction);
    let mut sections = vec![
        Section {
            id: "claims",
            heading: "What the paper says and what was measured",
            content: outline(&claims).html("Claims"),
        },
        Section { id: "numbers", heading: "Errors and costs", content: numbers(reproduction) },
        Section { id: "figures", heading: "Figures", content: drawn(reproduction) },
        Section {
            id: "details",
            heading: "Claim by claim",
            content: format!("<p>{}</p>\n", escape(ABOUT_CRITERIA))
                + &claims.iter().map(detailed).collect::<String>(),
        },
    ];
    if let Some(table) = variants::table(reproduction) {
        let item = |(name, meaning): &(String, String)| {
            format!("<li><code>{}</code>: {}</li>\n", escape(name), escape(meaning))
        };
        let meanings: String = variants::meanings(reproduction).iter().map(item).collect();
        let meanings = if meanings.is_empty() {
            meanings
        } else {
            format!("<ul class=\"meanings\">\n{meanings}</ul>\n")
        };
        let text = caption(&variants::text(reproduction).join(" "));
        let content = format!("{}{meanings}{text}", table.html("Variants of mk"));
        sections.push(Section { id: "variants", heading: variants::HEADING, content });
    }
    let data = tables::provenance(reproduction).html("Data sets");
    sections.push(Section { id: "data", heading: "Data", content: data });
    page::page("The paper's experiments, again", &escape(&reproduction.setting()), &sections)
}

fn numbers(reproduction: &Reproduction) -> String {
    format!(
        "{}{}{}",
        tables::errors(reproduction).html("Errors"),
        tables::costs(reproduction).html("Costs and selection"),
        caption(&tables::note(reproduction))
    )
}

fn drawn(reproduction: &Reproduction) -> String {
    let figure = |((_, svg), (number, caption)): (&(String, String), (u32, String))| {
        let caption = escape(&caption);
        format!(
            "<figure id=\"fig{number}\">\n{svg}<figcaption>Figure {number}: {caption}</figcaption>\n</figure>\n"
        )
    };
    figures(reproduction).iter().zip(captions(reproduction)).map(figure).collect()
}

fn detailed(claim: &Claim) -> String {
    let (letter, statement) = (claim.letter, escape(&claim.statement));
    format!(
        "<h3 id=\"claim-{letter}\">({letter}) {statement}</h3>\n{}{}",
        caption(&format!("Counts as true: {}.", claim.criterion)),
        details(claim).html(&format!("Claim {letter}, by data set"))
    )
}

fn caption(text: &str) -> String {
    format!("<p class=\"caption\">{}</p>\n", escape(text))
}

#[cfg(test)]
mod tests {
    use super::super::sample::reproduction;
    use super::*;

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
    fn foreign_text_cannot_break_out() {
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
