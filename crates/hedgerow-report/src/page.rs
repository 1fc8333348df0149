//! A page of sections with links to them, without scripts.

use crate::figures::markup::escape;
use crate::report::fill;

/// A part of a page under one heading.
pub(crate) struct Section {
    pub(crate) id: &'static str,
    pub(crate) heading: &'static str,
    /// Ready HTML.
    pub(crate) content: String,
}

/// The page; `setting` is ready HTML.
pub(crate) fn page(title: &str, setting: &str, sections: &[Section]) -> String {
    let link = |Section { id, heading, .. }: &Section| {
        format!("<li><a href=\"#{id}\">{}</a></li>\n", escape(heading))
    };
    let section = |Section { id, heading, content }: &Section| {
        let heading = escape(heading);
        format!(
            "<section id=\"{id}\" aria-labelledby=\"{id}-heading\">\n\
             <h2 id=\"{id}-heading\">{heading}</h2>\n{content}</section>\n"
        )
    };
    fill(
        include_str!("page/page.html"),
        &[
            ("title", &escape(title)),
            ("style", include_str!("report/report.css")),
            ("own_style", include_str!("page/page.css")),
            ("setting", setting),
            ("links", &sections.iter().map(link).collect::<String>()),
            ("sections", &sections.iter().map(section).collect::<String>()),
        ],
    )
}
