//! [`Confusion`]: how often each class was taken for which.

use hedgerow_lab::results::{ClassResult, MethodResult, Results};

use super::chart::head;
use super::heat::{ABOVE, BELOW, Sheet, draw_cell, draw_columns, draw_row_name};
use super::markup::escape;
use super::number;
use super::palette::{BLACK, INK, PAPER, WHITE};
use super::svg::{SMALL, Svg};
use crate::table::or_nothing;

/// True classes as rows, predicted classes as columns.
pub(crate) struct Confusion {
    title: String,
    subtitle: String,
    /// Names of the classes shown.
    names: Vec<String>,
    rows: Vec<Row>,
    pub(crate) note: String,
}

/// A true class.
struct Row {
    /// How often each class that is shown was predicted.
    counts: Vec<u64>,
    /// Predictions at samples of this class, also of classes that are not shown.
    all: u64,
}

/// Classes that a figure shows.
const MOST_CLASSES: usize = 25;

const TOP: f64 = 60.0;
const ROW: f64 = 22.0;
const FOOT: f64 = 36.0;
/// The corner between the names of rows and columns.
const CORNER: &str = "true ↓  predicted →";
/// The last column: the share of a class that was found.
const FOUND: &str = "found";

impl Confusion {
    /// None where labels are numbers, or nothing was predicted.
    pub(crate) fn of(results: &Results, method: &MethodResult) -> Option<Self> {
        let ClassResult { confusion, .. } = method.classes.as_ref()?;
        let count = |class: usize| {
            confusion[class].iter().fold(0u64, |sum, count| sum.saturating_add(*count))
        };
        let mut shown: Vec<usize> = (0..confusion.len()).collect();
        shown.sort_by_key(|class| std::cmp::Reverse(count(*class)));
        shown.truncate(MOST_CLASSES);
        shown.sort_unstable();
        if shown.iter().all(|class| count(*class) == 0) {
            return None;
        }
        let row = |class: &usize| Row {
            counts: shown.iter().map(|predicted| confusion[*class][*predicted]).collect(),
            all: count(*class),
        };
        let which = match confusion.len() > shown.len() {
            true => format!(
                "The {} most frequent of {} classes; summary.json has all. ",
                shown.len(),
                confusion.len()
            ),
            false => String::new(),
        };
        let trials = match results.trials {
            0 | 1 => String::new(),
            trials => format!(" over {trials} trials"),
        };
        Some(Self {
            title: format!("Confusion of classes on {}", results.data_name()),
            subtitle: format!("{}, {}", method.label(), results.sizes()),
            rows: shown.iter().map(row).collect(),
            names: shown.iter().map(|class| results.classes[*class].clone()).collect(),
            note: format!(
                "{which}Predictions{trials}. Shades: share of the row. Found: share of the class \
                 that was predicted right."
            ),
        })
    }

    /// A figure of its own: an SVG document.
    pub(crate) fn sheet(&self) -> String {
        let columns: Vec<String> = self.names.iter().cloned().chain([FOUND.to_owned()]).collect();
        let sheet = Sheet::new(&columns);
        let first = TOP + sheet.names;
        let height = first + ROW * self.rows.len() as f64 + FOOT;
        let alternative = format!("{}. {}", self.title, self.subtitle);
        Svg::document(&alternative, (sheet.width, height), |svg| {
            head(svg, 16.0, (&self.title, 80), &self.subtitle);
            svg.text(CORNER, (16.0, first - 8.0), SMALL);
            draw_columns(svg, &sheet, &columns, first);
            for (place, (name, row)) in self.names.iter().zip(&self.rows).enumerate() {
                let top = first + ROW * place as f64;
                draw_row_name(svg, name, top + ROW / 2.0, INK);
                let mut cell = |column: usize, colours, text: &str| {
                    let spot = (sheet.left(column) + 0.5, top + 0.5);
                    draw_cell(svg, spot, (sheet.cell - 1.0, ROW - 1.0), colours, text);
                };
                for (column, count) in row.counts.iter().enumerate() {
                    let share = row.share(*count).unwrap_or(0.0);
                    let (_, full) = if column == place { BELOW } else { ABOVE };
                    let ink = if share > 0.7 { WHITE } else { BLACK };
                    cell(column, (WHITE.mixed(full, share), ink), &in_words(*count));
                }
                cell(self.names.len(), (PAPER, INK), &row.found(place));
            }
            svg.text(&self.note, (16.0, height - 14.0), SMALL);
        })
    }

    /// The same as a table of a page.
    pub(crate) fn in_page(&self) -> String {
        let heading = |name: &str| format!("<th scope=\"col\">{}</th>", escape(name));
        let headings: String = self.names.iter().map(|name| heading(name)).collect();
        let row = |(place, (name, row)): (usize, (&String, &Row))| {
            let cell = |(column, count): (usize, &u64)| {
                let share = row.share(*count).unwrap_or(0.0);
                let kind = if column == place { "right" } else { "wrong" };
                format!(
                    "<td class=\"{kind}\" style=\"--share:{share:.3}\" title=\"{}\">{}</td>",
                    number::percent(share),
                    in_words(*count)
                )
            };
            let cells: String = row.counts.iter().enumerate().map(cell).collect();
            let (name, found) = (escape(name), row.found(place));
            format!("<tr><th scope=\"row\">{name}</th>{cells}<td>{found}</td></tr>\n")
        };
        let rows: String = self.names.iter().zip(&self.rows).enumerate().map(row).collect();
        format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\">\
             <table class=\"confusion\">\n<thead><tr><td>{CORNER}</td>{headings}{}</tr></thead>\n\
             <tbody>\n{rows}</tbody></table></div>\n",
            heading(FOUND),
            title = escape(&self.title)
        )
    }
}

impl Row {
    /// The share of the row; none if the class never came.
    fn share(&self, count: u64) -> Option<f64> {
        (self.all > 0).then(|| count as f64 / self.all as f64)
    }

    fn found(&self, place: usize) -> String {
        or_nothing(self.share(self.counts[place]), number::percent)
    }
}

fn in_words(count: u64) -> String {
    number::fixed(count as f64, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::testing;

    fn confusion(classes: usize) -> Confusion {
        let mut results = testing::run(&[("tr", 1.0)]);
        testing::add_classes(&mut results, classes);
        Confusion::of(&results, results.subject().unwrap()).unwrap()
    }

    #[test]
    fn every_pair_of_classes_has_its_count() {
        let found = confusion(3);
        for drawn in [found.sheet(), found.in_page()] {
            for text in [">class 0&lt;<", ">class 2&lt;<", ">found<", ">14<", ">1000<"] {
                assert!(drawn.contains(text), "{text}: {drawn}");
            }
            assert!(!drawn.contains("0<<") && !drawn.contains("NaN"), "{drawn}");
        }
        assert!(found.note.contains("over 4 trials"), "{}", found.note);
        let numbers = testing::run(&[("tr", 1.0)]);
        assert!(Confusion::of(&numbers, numbers.subject().unwrap()).is_none());
    }

    #[test]
    fn of_many_classes_the_most_frequent_are_shown() {
        let found = confusion(100);
        assert_eq!((found.rows.len(), found.names[0].as_str()), (25, "class 75<"));
        assert!(found.note.contains("25 most frequent of 100"), "{}", found.note);
        assert!(found.sheet().ends_with("</svg>\n"));
        // What was taken for a class that isn't shown counts as well.
        assert!(found.rows.iter().all(|row| row.all > row.counts.iter().sum()));
    }
}
