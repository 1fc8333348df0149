//! Methods in rows: a dot and an interval each, the least error first, with the curves of the
//! errors beside them.

use super::chart::{
    FEW_TICKS, Frame, Heading, Mark, framed_sentence, grid, head, plot, rule, shortened,
};
use super::errors::{self, Errors};
use super::number;
use super::palette::{Dash, INK, LineStyle, PAPER, SOFT_INK};
use super::scale::Axis;
use super::svg::{Anchor, PLAIN, SMALL, Spot, Svg, Writing};
use hedgerow_lab::measure::Measure;
use hedgerow_lab::results::Results;

/// A method as a dot.
#[derive(Debug, Clone)]
pub(crate) struct Dot {
    /// Name of the method, as its course has it.
    pub(crate) method: String,
    pub(crate) label: String,
    pub(crate) style: LineStyle,
    /// Whether it is only shown for comparison: its dot is hollow.
    pub(crate) is_reference: bool,
    pub(crate) error: f64,
    /// Ends of its interval, where it has one.
    pub(crate) ends: Option<(f64, f64)>,
    /// Its error as a multiple of the least; may be empty.
    pub(crate) ratio: String,
    /// What it sends, up and down, where that is known.
    pub(crate) bytes: Option<f64>,
}

impl Dot {
    /// Whether a logarithmic axis has a place for its error.
    pub(super) fn is_drawable(&self) -> bool {
        self.error.is_finite() && self.error > 0.0
    }

    /// Labels of references are lighter.
    pub(super) fn ink(&self) -> super::palette::Color {
        if self.is_reference { SOFT_INK } else { INK }
    }

    /// Filled for what one could choose, hollow for what is only shown.
    pub(super) fn draw(&self, svg: &mut Svg, spot: Spot) {
        svg.line(&[spot], LineStyle { width: 3.0, ..self.style });
        if self.is_reference {
            svg.line(&[spot], LineStyle { width: 1.8, color: PAPER, ..self.style });
        }
    }
}

const SHEET_WIDTH: f64 = 980.0;
const ROW: f64 = 23.0;
const TOP: f64 = 84.0;
/// Below the axes: names of ticks, of the axis, and the note.
const FOOT: f64 = 76.0;
/// Fewer rows than this leave the chart beside them too flat.
const LEAST_HEIGHT: f64 = 210.0;

/// The chart of the dots, in their order, beside the course of the errors of these results.
pub(crate) fn dots(results: &Results, heading: &Heading<'_>, dots: &[Dot]) -> String {
    let bottom = TOP + (ROW * dots.len() as f64).max(LEAST_HEIGHT);
    let said: Vec<String> = dots
        .iter()
        .map(|dot| format!("{} {}", dot.label, number::significant(dot.error, 3)))
        .collect();
    let measure = Measure::of(results).name(results);
    let alternative = format!("{}. {measure}: {}.", heading.title, said.join(", "));
    Svg::document(&alternative, (SHEET_WIDTH, bottom + FOOT), |svg| {
        head(svg, 16.0, (heading.title, 100), heading.subtitle);
        draw_rows(svg, Frame { left: 150.0, right: 520.0, top: TOP, bottom }, &measure, dots);
        draw_courses(svg, Frame { left: 668.0, right: 964.0, top: TOP, bottom }, results, dots);
        svg.text(heading.note, (16.0, bottom + FOOT - 14.0), SMALL);
    })
}

fn draw_rows(svg: &mut Svg, frame: Frame, measure: &str, dots: &[Dot]) {
    let Frame { left, right, bottom, .. } = frame;
    if !dots.iter().any(Dot::is_drawable) {
        return framed_sentence(svg, frame, "No error is positive.");
    }
    let spread =
        |dot: &Dot| dot.ends.map_or([dot.error; 2], |(low, high)| [low.max(dot.error / 2.0), high]);
    let reach = dots.iter().filter(|dot| dot.is_drawable()).flat_map(spread);
    let axes = (&Axis::log(reach, 0.05), &Axis::exactly(0.0..=1.0));
    let across = |value: f64| frame.spot(axes, value, 0.0).0;
    grid(svg, frame, axes, (5, 0, SMALL.size));
    rule(svg, (left, bottom), (right, bottom), SOFT_INK);
    let below = (frame.middle().0, bottom + 34.0);
    let centered = Writing { anchor: Anchor::Middle, ..PLAIN };
    svg.text(&format!("{measure} (log scale)"), below, centered);
    svg.text("ratio to the best", (right + 12.0, TOP - 12.0), SMALL);
    for (place, dot) in dots.iter().enumerate() {
        let height = TOP + ROW * (place as f64 + 0.5);
        let label = Writing { color: dot.ink(), anchor: Anchor::End, ..PLAIN };
        svg.text(&shortened(&dot.label, 20), (left - 12.0, height), label);
        let number = Writing { color: dot.ink(), size: 11.0, ..PLAIN };
        svg.text(&dot.ratio, (right + 12.0, height), number);
        if !dot.is_drawable() {
            let words = if dot.error == 0.0 { "no error at all" } else { "not finite" };
            svg.text(words, (left + 8.0, height), SMALL);
            continue;
        }
        if let Some((low, high)) = dot.ends {
            let whisker = LineStyle { dash: Dash::Solid, width: 2.0, ..dot.style };
            let (from, to) = (across(low), across(high));
            svg.line(&[(from, height), (to, height)], whisker);
            for end in [from, to] {
                svg.line(&[(end, height - 4.0), (end, height + 4.0)], whisker);
            }
        }
        dot.draw(svg, (across(dot.error), height));
    }
}

/// Errors over all predictions so far, of the methods in the rows.
fn draw_courses(svg: &mut Svg, frame: Frame, results: &Results, dots: &[Dot]) {
    let centered = Writing { anchor: Anchor::Middle, ..PLAIN };
    let (across, up) = frame.middle();
    svg.text("round t", (across, frame.bottom + 34.0), centered);
    let upwards = Writing { upwards: true, ..centered };
    svg.text(&Measure::of(results).axis(results), (frame.left - 46.0, up), upwards);
    let found = errors::errors(results, errors::Error::Running);
    let found = found.map(|found| Errors { others: Vec::new(), ..found });
    let Some((found, y)) = found.and_then(|found| found.settled_axis().map(|axis| (found, axis)))
    else {
        return framed_sentence(svg, frame, "No course of the error is known.");
    };
    // References first, so that choices lie over them.
    let is_reference = |name: &str| dots.iter().any(|dot| dot.is_reference && dot.method == name);
    let mut lines: Vec<_> = found.lines.iter().collect();
    lines.sort_by_key(|line| !is_reference(&line.method));
    let marks: Vec<Mark> = lines.iter().map(|line| Mark::line(&line.entering(&y))).collect();
    plot(svg, frame, (&found.rounds(), &y), &marks, FEW_TICKS);
}

#[cfg(test)]
mod tests {
    use super::super::palette;
    use super::*;
    use hedgerow_lab::testing::results;

    fn rows(results: &Results, errors: &[f64]) -> Vec<Dot> {
        let row = |error: &f64| Dot {
            method: "mk".into(),
            label: "mk".into(),
            style: palette::method(results, "mk"),
            is_reference: *error > 1.0,
            error: *error,
            ends: Some((error * 0.9, error * 1.1)),
            ratio: "×1".into(),
            bytes: None,
        };
        errors.iter().map(row).collect()
    }

    const HEADING: Heading<'_> = Heading { title: "Ti<t>le", subtitle: "sub", note: "note" };

    #[test]
    fn every_row_has_its_dot_and_whisker() {
        let results = results(3, 50, 4);
        let svg = dots(&results, &HEADING, &rows(&results, &[0.5, 0.7, 1.2]));
        // Two dots make a hollow one.
        assert_eq!(svg.matches("stroke-linecap").count(), 4);
        assert_eq!(svg.matches("×1<").count(), 3);
        assert!(svg.contains("Ti&lt;t&gt;le") && !svg.contains("<t>"));
    }

    #[test]
    fn every_extreme_is_drawn_somewhere() {
        let results = results(3, 50, 4);
        for means in [&[][..], &[0.0], &[f64::NAN, f64::INFINITY, 0.0, 1e-300, 1e300], &[1.0; 60]] {
            let svg = dots(&results, &HEADING, &rows(&results, means));
            assert!(!svg.contains("NaN") && !svg.contains("\"inf"), "{means:?}");
            assert!(svg.ends_with("</svg>\n"));
        }
        let mut nothing = results.clone();
        nothing.methods.clear();
        let svg = dots(&nothing, &HEADING, &[]);
        assert!(
            svg.contains("No course of the error is known.")
                && svg.contains("No error is positive.")
        );
    }
}
