//! [`Table`]: prints as terminal text, Markdown and HTML. Also cells and lines of CSV.

use crate::figures::markup::{escape, printable};

/// Headings and rows of equal length. The first column names the rows.
#[derive(Debug, Clone)]
pub struct Table {
    /// Names of the columns.
    pub headings: Vec<String>,
    /// The cells, row by row.
    pub rows: Vec<Vec<String>>,
    /// Whether cells are words, which are aligned to the left.
    pub of_words: bool,
}

/// An empty cell.
pub(crate) const NOTHING: &str = "–";

/// A value as text, or [`NOTHING`].
pub(crate) fn or_nothing<T>(value: Option<T>, write: impl FnOnce(T) -> String) -> String {
    value.map_or(NOTHING.to_owned(), write)
}

impl Table {
    /// A table of numbers.
    pub fn of_numbers<H: Into<String>>(
        headings: impl IntoIterator<Item = H>,
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Self {
        let headings = headings.into_iter().map(Into::into).collect();
        Self { headings, rows: rows.into_iter().collect(), of_words: false }
    }

    /// A table of words.
    pub fn of_words<H: Into<String>>(
        headings: impl IntoIterator<Item = H>,
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Self {
        Self { of_words: true, ..Self::of_numbers(headings, rows) }
    }

    /// For a terminal, with a rule below the headings.
    pub fn text(&self) -> String {
        let all: Vec<&Vec<String>> = [&self.headings].into_iter().chain(&self.rows).collect();
        let mut lines = aligned(&all, |column| column == 0 || self.of_words);
        lines.insert(1, "─".repeat(lines[0].chars().count()));
        lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
    }

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
            let mut cells = cells.iter().map(|cell| escape(cell));
            let first = cells.next().unwrap_or_default();
            let rest: String = cells.map(|cell| format!("<td>{cell}</td>")).collect();
            format!("<tr><th scope=\"row\">{first}</th>{rest}</tr>\n")
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

/// Lines of equal width: every column is as wide as its widest cell.
pub fn aligned(rows: &[impl AsRef<[String]>], is_left: impl Fn(usize) -> bool) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.as_ref().get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let cell = |(column, cell): (usize, &String)| match width(column) {
        width if is_left(column) => format!("{cell:<width$}"),
        width => format!("{cell:>width$}"),
    };
    let line = |row: &[String]| row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ");
    rows.iter().map(|row| line(row.as_ref())).collect()
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
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// A cell of CSV with a number; empty if there is none, or it isn't finite.
pub(crate) fn csv_number(value: impl Into<Option<f64>>) -> String {
    value.into().filter(|value| value.is_finite()).map_or(String::new(), |value| value.to_string())
}

/// A cell of CSV with a whole number; empty if there is none.
pub(crate) fn csv_whole<T: ToString>(value: Option<T>) -> String {
    value.map_or(String::new(), |value| value.to_string())
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
