//! The document of a reproduction in Markdown; figures lie beside it in a folder.

use super::claims::ABOUT_CRITERIA;
use super::claims::{Claim, Finding, claims};
use super::{Reproduction, captions, file, tables, variants};
use crate::table::{Table, plain};

/// Everything but the figures themselves, which it expects beside it as `fig2.svg` and so on.
pub fn document(reproduction: &Reproduction) -> String {
    let claims = claims(reproduction);
    let mut parts = vec![
        "# The paper's experiments, again".to_owned(),
        plain(&reproduction.setting()),
        "## What the paper says and what was measured".to_owned(),
        outline(&claims).markdown(),
        "## Errors and costs".to_owned(),
        tables::errors(reproduction).markdown(),
        tables::costs(reproduction).markdown(),
        plain(&tables::note(reproduction)),
        "## Figures".to_owned(),
    ];
    for (number, caption) in captions(reproduction) {
        let caption = plain(&caption);
        parts.push(format!("![Figure {number}]({})", file(number)));
        parts.push(format!("Figure {number}: {caption}"));
    }
    parts.push("## Claim by claim".to_owned());
    parts.push(ABOUT_CRITERIA.to_owned());
    for claim in &claims {
        parts.push(format!("### ({}) {}", claim.letter, plain(&claim.statement)));
        parts.push(format!("Counts as true: {}.", plain(&claim.criterion)));
        parts.push(details(claim).markdown());
    }
    if let Some(table) = variants::table(reproduction) {
        parts.push(format!("## {}", variants::HEADING));
        parts.push(table.markdown());
        let meanings = variants::meanings(reproduction);
        let item = |(name, meaning): &(String, String)| format!("- `{name}`: {}", plain(meaning));
        if !meanings.is_empty() {
            parts.push(meanings.iter().map(item).collect::<Vec<_>>().join("\n"));
        }
        parts.push(plain(&variants::text(reproduction).join(" ")));
    }
    parts.push("## Data".to_owned());
    parts.push(tables::provenance(reproduction).markdown());
    let parts: Vec<&str> =
        parts.iter().map(|part| part.trim_end()).filter(|part| !part.is_empty()).collect();
    parts.join("\n\n") + "\n"
}

/// One row per claim.
pub(super) fn outline(claims: &[Claim]) -> Table {
    let row =
        |claim: &Claim| vec![format!("({}) {}", claim.letter, claim.statement), claim.summary()];
    Table {
        headings: vec!["Claim".into(), "Measured".into()],
        rows: claims.iter().map(row).collect(),
        of_words: true,
    }
}

/// One row per data set.
pub(super) fn details(claim: &Claim) -> Table {
    let row = |Finding { title, verdict, why }: &Finding| {
        vec![title.clone(), verdict.words().to_owned(), why.clone()]
    };
    Table {
        headings: vec!["Data".into(), "Measurement".into(), "Why".into()],
        rows: claim.findings.iter().map(row).collect(),
        of_words: true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::reproduction;
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
    fn foreign_text_stays_text() {
        let mut reproduction = reproduction();
        reproduction.figures[0].panels[0].title = "<script>|[x](y)".into();
        reproduction.figures[0].title = "![x](y)".into();
        let document = document(&reproduction);
        assert!(!document.contains("<script") && !document.contains("[x]("));
        assert!(document.contains("&lt;script>\\|\\[x\\](y)"));
    }
}
