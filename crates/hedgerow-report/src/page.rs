//! [`Document`]: a text with tables and figures, as Markdown and as an HTML page without scripts;
//! and the frame of all pages.

use crate::figures::markup::escape;
use crate::table::{Table, plain};

/// A title and sections under headings.
pub(crate) struct Document {
    pub(crate) title: String,
    /// What was run, in lines below the title.
    pub(crate) setting: Vec<String>,
    pub(crate) sections: Vec<Section>,
}

pub(crate) struct Section {
    /// For links within the page.
    pub(crate) id: &'static str,
    pub(crate) heading: &'static str,
    pub(crate) parts: Vec<Part>,
}

pub(crate) enum Part {
    /// The most important sentences.
    Verdict(String),
    Text(String),
    /// Small print.
    Note(String),
    /// A heading within a section; the id for links may be empty.
    Heading {
        id: String,
        text: String,
    },
    /// A table and its accessible name.
    Table(String, Table),
    /// The file of a figure, its name (may be empty) and what it shows.
    Figure {
        file: String,
        name: String,
        caption: String,
    },
    /// Names and what they mean.
    List(Vec<(String, String)>),
}

impl Document {
    /// Figures are expected beside it.
    pub(crate) fn markdown(&self) -> String {
        let mut parts = vec![format!("# {}", plain(&self.title))];
        parts.extend(self.setting.iter().map(|line| plain(line)));
        for Section { heading, parts: content, .. } in &self.sections {
            parts.push(format!("## {heading}"));
            parts.extend(content.iter().map(Part::markdown));
        }
        let parts = parts.iter().map(|part| part.trim_end()).filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join("\n\n") + "\n"
    }

    /// One page with its figures (file name and SVG document) inside.
    pub(crate) fn html(&self, figures: &[(String, String)]) -> String {
        let link = |Section { id, heading, .. }: &Section| {
            format!("<li><a href=\"#{id}\">{}</a></li>\n", escape(heading))
        };
        let section = |Section { id, heading, parts }: &Section| {
            let heading = escape(heading);
            let content: String = parts.iter().map(|part| part.html(figures)).collect();
            format!(
                "<section id=\"{id}\" aria-labelledby=\"{id}-heading\">\n\
                 <h2 id=\"{id}-heading\">{heading}</h2>\n{content}</section>\n"
            )
        };
        let setting: Vec<String> = self.setting.iter().map(|line| escape(line)).collect();
        let links: String = self.sections.iter().map(link).collect();
        let head = format!(
            "<p class=\"setting\">{}</p>\n<nav aria-label=\"On this page\"><ul>\n{links}</ul></nav>\n",
            setting.join("<br>")
        );
        let main: String = self.sections.iter().map(section).collect();
        page(&self.title, &head, &main, (include_str!("page/document.css"), ""))
    }
}

impl Part {
    fn markdown(&self) -> String {
        match self {
            Self::Verdict(text) | Self::Text(text) | Self::Note(text) => plain(text),
            Self::Heading { text, .. } => format!("### {}", plain(text)),
            Self::Table(_, table) => table.markdown(),
            Self::Figure { file, name, caption } if name.is_empty() => {
                format!("![{}]({file})", plain(caption))
            }
            Self::Figure { file, name, caption } => {
                format!("![{name}]({file})\n\n{name}: {}", plain(caption))
            }
            Self::List(items) => {
                let item =
                    |(name, text): &(String, String)| format!("- `{name}`: {}\n", plain(text));
                items.iter().map(item).collect()
            }
        }
    }

    fn html(&self, figures: &[(String, String)]) -> String {
        match self {
            Self::Verdict(text) => format!("<p class=\"verdict\">{}</p>\n", escape(text)),
            Self::Text(text) => format!("<p>{}</p>\n", escape(text)),
            Self::Note(text) => format!("<p class=\"caption\">{}</p>\n", escape(text)),
            Self::Heading { id, text } if id.is_empty() => format!("<h3>{}</h3>\n", escape(text)),
            Self::Heading { id, text } => format!("<h3 id=\"{id}\">{}</h3>\n", escape(text)),
            Self::Table(label, table) => table.html(label),
            Self::Figure { file, name, caption } => {
                let svg =
                    figures.iter().find(|(found, _)| found == file).map_or("", |(_, svg)| svg);
                let id = file.trim_end_matches(".svg");
                let name = if name.is_empty() { String::new() } else { format!("{name}: ") };
                let caption = escape(caption);
                format!(
                    "<figure id=\"{id}\">\n{svg}<figcaption>{name}{caption}</figcaption>\n</figure>\n"
                )
            }
            Self::List(items) if items.is_empty() => String::new(),
            Self::List(items) => {
                let item = |(name, text): &(String, String)| {
                    format!("<li><code>{}</code>: {}</li>\n", escape(name), escape(text))
                };
                let items: String = items.iter().map(item).collect();
                format!("<ul class=\"meanings\">\n{items}</ul>\n")
            }
        }
    }
}

/// A self-contained page. `head`, `main`, the style that it adds and its script are ready HTML, CSS
/// and JavaScript; without a script none may run.
pub(crate) fn page(title: &str, head: &str, main: &str, (style, script): (&str, &str)) -> String {
    let (policy, script) = match script {
        "" => ("", String::new()),
        script => (
            "; script-src 'unsafe-inline'; img-src data: blob:",
            format!("<script>\n{script}\n</script>\n"),
        ),
    };
    fill(
        include_str!("page/page.html"),
        &[
            ("policy", policy),
            ("title", &escape(title)),
            ("style", &format!("{}{style}", include_str!("page/page.css"))),
            ("head", head),
            ("main", main),
            ("script", &script),
        ],
    )
}

/// Replaces each `{{name}}` once, from left to right, so that no value is searched for names.
pub(crate) fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut page = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{")
        && let Some((name, after)) = after.split_once("}}")
    {
        let value = values.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value);
        page.extend([before, value]);
        rest = after;
    }
    page + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_not_searched_for_slots() {
        assert_eq!(fill("a {{x}} b {{y}}{{none}}", &[("x", "{{y}}"), ("y", "1")]), "a {{y}} b 1");
    }
}
