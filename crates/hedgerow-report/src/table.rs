//! A table in Markdown and in HTML, and cells of CSV.

use crate::figures::markup::{escape, printable};

/// Headings and rows of equal length. The first column names the rows.
#[derive(Debug, Clone)]
pub struct Table {
    /// What stands above the columns.
    pub headings: Vec<String>,
    /// The cells, row by row.
    pub rows: Vec<Vec<String>>,
    /// Whether cells are words and not numbers.
    pub of_words: bool,
}

impl Table {
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let other = if self.of_words { "---|" } else { "---:|" };
        let rule = format!("|---|{}\n", other.repeat(self.headings.len().saturating_sub(1)));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}{rule}{rows}", line(&self.headings))
    }

    /// With an accessible name.
    pub(crate) fn html(&self, label: &str) -> String {
        let headings: String = self
            .headings
            .iter()
            .map(|heading| format!("<th scope=\"col\">{}</th>", escape(heading)))
            .collect();
        let row = |cells: &Vec<String>| {
            let (first, rest) =
                cells.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
            let rest: String =
                rest.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
            format!("<tr><th scope=\"row\">{}</th>{rest}</tr>\n", escape(first))
        };
        let rows: String = self.rows.iter().map(row).collect();
        let kind = if self.of_words { " class=\"words\"" } else { "" };
        format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table{kind}>\n\
             <thead><tr>{headings}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n",
            escape(label)
        )
    }
}

/// Text that means nothing but itself in Markdown.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '<' => plain.push_str("&lt;"),
            '&' => plain.push_str("&amp;"),
            '\\' | '|' | '*' | '[' | ']' | '`' => plain.extend(['\\', c]),
            other => plain.push(other),
        }
    }
    plain
}

/// A cell of CSV: in quotes where a comma, a quote or a line break asks for them.
pub(crate) fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stay_in_their_cells() {
        let table = Table {
            headings: vec!["a|b".into(), "c".into()],
            rows: vec![vec!["<b>\n".into(), "1 | 2".into()]],
            of_words: false,
        };
        assert_eq!(table.markdown(), "| a\\|b | c |\n|---|---:|\n| &lt;b>  | 1 \\| 2 |\n");
        let html = table.html("\"x\"");
        assert!(html.contains("<th scope=\"row\">&lt;b&gt; </th><td>1 | 2</td>"), "{html}");
        assert!(html.contains("aria-label=\"&quot;x&quot;\""), "{html}");
    }
}
