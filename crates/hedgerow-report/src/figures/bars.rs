//! [`Bars`]: named values as horizontal bars.

use super::chart::{head, shortened};
use super::markup::escape;
use super::palette::{Color, INK, SOFT_INK};
use super::svg::{Anchor, PLAIN, SMALL, Svg, WIDTH, Writing};

/// Named values, in the order in which they are drawn.
pub(crate) struct Bars {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    /// What a value is, such as `root mean squared error`.
    pub(crate) quantity: String,
    pub(crate) color: Color,
    pub(crate) rows: Vec<Bar>,
    /// Small print below a figure.
    pub(crate) note: String,
}

/// One bar.
pub(crate) struct Bar {
    pub(crate) label: String,
    /// Bars of values that are not positive have no length.
    pub(crate) value: f64,
    pub(crate) words: String,
    /// More about it, which a page shows at the pointer.
    pub(crate) hint: String,
}

const TOP: f64 = 62.0;
const ROW: f64 = 20.0;
const FOOT: f64 = 44.0;
const NUMBERS: f64 = 96.0;
const LETTER: f64 = 6.4;
/// Letters of a name on a sheet.
const MOST_LETTERS: usize = 36;

impl Bars {
    /// The length of a bar, as a share of the longest.
    fn share(&self, bar: &Bar) -> f64 {
        let longest = self.rows.iter().map(|bar| bar.value).filter(|value| value.is_finite());
        let longest = longest.fold(0.0, f64::max);
        if longest > 0.0 && bar.value > 0.0 { (bar.value / longest).min(1.0) } else { 0.0 }
    }

    /// A figure of its own: an SVG document.
    pub(crate) fn sheet(&self) -> String {
        let letters = self.rows.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0);
        let left = 28.0 + LETTER * letters.min(MOST_LETTERS) as f64;
        let right = WIDTH - NUMBERS;
        let bottom = TOP + ROW * self.rows.len() as f64;
        let said: Vec<String> =
            self.rows.iter().map(|bar| format!("{} {}", bar.label, bar.words)).collect();
        let described = format!("{}. {}: {}.", self.title, self.quantity, said.join(", "));
        Svg::document(&described, (WIDTH, bottom + FOOT), |svg| {
            head(svg, 16.0, (&self.title, 80), &self.subtitle);
            for (place, bar) in self.rows.iter().enumerate() {
                let (top, middle) = (TOP + ROW * place as f64, TOP + ROW * (place as f64 + 0.5));
                let name = Writing { anchor: Anchor::End, ..PLAIN };
                svg.text(&shortened(&bar.label, MOST_LETTERS), (left - 8.0, middle), name);
                let end = left + (right - left) * self.share(bar);
                if end > left {
                    svg.rectangle((left, top + 3.0), (end, top + ROW - 3.0), self.color);
                }
                let number = Writing { size: 11.5, color: SOFT_INK, ..PLAIN };
                svg.text(&bar.words, (end + 6.0, middle), number);
            }
            let below = Writing { color: INK, ..SMALL };
            svg.text(&self.quantity, (left, bottom + 12.0), below);
            svg.text(&self.note, (16.0, bottom + FOOT - 12.0), SMALL);
        })
    }

    /// The same as a table of a page, which fits any width.
    pub(crate) fn in_page(&self) -> String {
        let color = self.color.attributes("fill");
        let row = |bar: &Bar| {
            let (label, words, hint) = (escape(&bar.label), escape(&bar.words), escape(&bar.hint));
            let share = (1000.0 * self.share(bar)).round() / 10.0;
            format!(
                "<tr title=\"{label}: {hint}\"><th scope=\"row\">{label}</th><td class=\"bar\">\
                 <svg width=\"100%\" height=\"14\" aria-hidden=\"true\">\
                 <rect width=\"{share}%\" height=\"14\"{color}/></svg></td><td>{words}</td></tr>\n"
            )
        };
        let rows: String = self.rows.iter().map(row).collect();
        let (title, quantity) = (escape(&self.title), escape(&self.quantity));
        format!(
            "<table class=\"bars\" aria-label=\"{title}\">\n<thead><tr><td></td>\
             <th scope=\"col\" colspan=\"2\">{quantity}</th></tr></thead>\n\
             <tbody>\n{rows}</tbody></table>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::palette::BLUE;

    fn bars(values: &[f64]) -> Bars {
        let bar = |value: &f64| Bar {
            label: "a<b".into(),
            value: *value,
            words: format!("{value}"),
            hint: "\"more\"".into(),
        };
        Bars {
            title: "Ti<t>le".into(),
            subtitle: "sub".into(),
            quantity: "error".into(),
            color: BLUE.1,
            rows: values.iter().map(bar).collect(),
            note: "note".into(),
        }
    }

    #[test]
    fn lengths_are_shares_of_the_longest() {
        let page = bars(&[4.0, 1.0, 0.0, -2.0, f64::INFINITY, f64::NAN]).in_page();
        let found: Vec<&str> = page.split("<rect width=\"").skip(1).collect();
        let widths: Vec<&str> = found.iter().map(|rest| rest.split('"').next().unwrap()).collect();
        assert_eq!(widths, ["100%", "25%", "0%", "0%", "100%", "0%"]);
        assert!(page.contains("a&lt;b") && page.contains("&quot;more&quot;"), "{page}");
    }

    #[test]
    fn a_sheet_grows_with_its_rows_and_ends() {
        for count in [0, 1, 24] {
            let svg = bars(&vec![1.0; count]).sheet();
            assert!(svg.ends_with("</svg>\n") && !svg.contains("<t>"), "{svg}");
            assert_eq!(svg.matches("<polygon").count(), count);
        }
    }
}
