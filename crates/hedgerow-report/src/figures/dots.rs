//! Methods in rows: a dot and an interval each, the least error first, with the curves of the
//! errors beside them.

use super::chart::{FEW_TICKS, Frame, Mark, framed_sentence, plot, rule, shortened};
use super::errors::{self, Errors};
use super::palette::{Dash, FINE_GRID, GRID, INK, LineStyle, PAPER, SOFT_INK};
use super::panels::error_axis;
use super::scale::{Axis, Spacing};
use super::series::Line;
use super::svg::{Anchor, PLAIN, SMALL, Spot, Svg, Writing};
use super::{last_round, number};
use hedgerow_lab::measure::Measure;
use hedgerow_lab::results::Results;

/// One method.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// Name of the method, as its course has it.
    pub(crate) method: String,
    pub(crate) label: String,
    pub(crate) style: LineStyle,
    /// Whether it is only shown for comparison: its dot is hollow.
    pub(crate) is_reference: bool,
    pub(crate) mean: f64,
    /// Ends of its interval, where it has one.
    pub(crate) ends: Option<(f64, f64)>,
    /// What stands at the end of the row.
    pub(crate) value: String,
}

/// Words around the charts.
pub(crate) struct Heading<'h> {
    pub(crate) title: &'h str,
    pub(crate) subtitle: &'h str,
    pub(crate) note: &'h str,
}

const SHEET_WIDTH: f64 = 980.0;
const ROW: f64 = 23.0;
const TOP: f64 = 84.0;
/// Below the axes: names of ticks, of the axis, and the note.
const FOOT: f64 = 76.0;
/// Fewer rows than this leave the chart beside them too flat.
const LEAST_HEIGHT: f64 = 210.0;
/// From where to where the dots are, and the courses.
const DOTS: (f64, f64) = (150.0, 520.0);
const COURSES: (f64, f64) = (668.0, 964.0);

/// The chart of the rows, in their order, beside the course of the errors of these results.
pub(crate) fn dots(results: &Results, heading: &Heading<'_>, rows: &[Row]) -> String {
    let bottom = TOP + (ROW * rows.len() as f64).max(LEAST_HEIGHT);
    let said: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {}", row.label, number::significant(row.mean, 3)))
        .collect();
    let alternative =
        format!("{}. {}: {}.", heading.title, Measure::of(results).name(results), said.join(", "));
    Svg::document(&alternative, (SHEET_WIDTH, bottom + FOOT), |svg| {
        let head = Writing { size: 15.5, bold: true, ..PLAIN };
        svg.text(&shortened(heading.title, 100), (16.0, 20.0), head);
        let soft = Writing { size: 12.5, color: SOFT_INK, ..PLAIN };
        svg.text(&shortened(heading.subtitle, 150), (16.0, 42.0), soft);
        draw_rows(svg, results, rows, bottom);
        draw_courses(svg, results, rows, bottom);
        svg.text(heading.note, (16.0, bottom + FOOT - 14.0), SMALL);
    })
}

fn draw_rows(svg: &mut Svg, results: &Results, rows: &[Row], bottom: f64) {
    let (left, right) = DOTS;
    let positive =
        || rows.iter().map(|row| row.mean).filter(|mean| mean.is_finite() && *mean > 0.0);
    let spread =
        |row: &Row| row.ends.map_or([row.mean; 2], |(low, high)| [low.max(row.mean / 2.0), high]);
    let reach = rows.iter().filter(|row| row.mean.is_finite() && row.mean > 0.0).flat_map(spread);
    if positive().next().is_none() {
        let frame = Frame { left, right, top: TOP, bottom };
        return framed_sentence(svg, frame, "No error is positive.");
    }
    let axis = Axis::log(reach, 0.05);
    let across = |value: f64| left + (right - left) * axis.position(value);
    let ticks = axis.ticks(5);
    for fine in [true, false] {
        let color = if fine { FINE_GRID } else { GRID };
        for tick in ticks.iter().filter(|tick| tick.label.is_empty() == fine) {
            rule(svg, (across(tick.value), TOP), (across(tick.value), bottom), color);
            let below = (across(tick.value), bottom + 14.0);
            svg.text(&tick.label, below, Writing { anchor: Anchor::Middle, ..SMALL });
        }
    }
    rule(svg, (left, bottom), (right, bottom), SOFT_INK);
    let title = format!("{} (log scale)", Measure::of(results).name(results));
    svg.text(
        &title,
        ((left + right) / 2.0, bottom + 34.0),
        Writing { anchor: Anchor::Middle, ..PLAIN },
    );
    svg.text("ratio to the best", (right + 12.0, TOP - 12.0), SMALL);
    for (place, row) in rows.iter().enumerate() {
        let height = TOP + ROW * (place as f64 + 0.5);
        let ink = if row.is_reference { SOFT_INK } else { INK };
        let label = Writing { color: ink, anchor: Anchor::End, ..PLAIN };
        svg.text(&shortened(&row.label, 20), (left - 12.0, height), label);
        svg.text(&row.value, (right + 12.0, height), Writing { color: ink, size: 11.0, ..PLAIN });
        if !(row.mean.is_finite() && row.mean > 0.0) {
            let words = if row.mean == 0.0 { "no error at all" } else { "not finite" };
            svg.text(words, (left + 8.0, height), SMALL);
            continue;
        }
        if let Some((low, high)) = row.ends {
            let whisker = LineStyle { dash: Dash::Solid, width: 2.0, ..row.style };
            let (from, to) = (across(low), across(high));
            svg.line(&[(from, height), (to, height)], whisker);
            for end in [from, to] {
                svg.line(&[(end, height - 4.0), (end, height + 4.0)], whisker);
            }
        }
        dot(svg, (across(row.mean), height), row.style, row.is_reference);
    }
}

/// Errors over all predictions so far, of the methods in the rows.
fn draw_courses(svg: &mut Svg, results: &Results, rows: &[Row], bottom: f64) {
    let (left, right) = COURSES;
    let frame = Frame { left, right, top: TOP, bottom };
    let middle = Writing { anchor: Anchor::Middle, ..PLAIN };
    svg.text("round t", ((left + right) / 2.0, bottom + 34.0), middle);
    let axis_title = Measure::of(results).axis(results);
    svg.text(&axis_title, (left - 46.0, (TOP + bottom) / 2.0), Writing { upwards: true, ..middle });
    let found = errors::errors(results, errors::Error::Running);
    let found = found.map(|found| Errors { others: Vec::new(), ..found });
    let Some((found, y)) = found.and_then(|found| error_axis(&found).map(|axis| (found, axis)))
    else {
        return framed_sentence(svg, frame, "No course of the error is known.");
    };
    let x = Axis::rounds(Spacing::Linear, last_round(found.lines.iter()));
    // References first, so that choices lie over them.
    let is_reference = |name: &str| rows.iter().any(|row| row.is_reference && row.method == name);
    let mut lines: Vec<_> = found.lines.iter().collect();
    lines.sort_by_key(|line| !is_reference(&line.method));
    let entering = |line: &&Line| match line.in_hindsight {
        true => Mark::line(&line.entering(&y)),
        false => Mark::line(line),
    };
    let marks: Vec<Mark> = lines.iter().map(entering).collect();
    plot(svg, frame, (&x, &y), &marks, FEW_TICKS);
}

/// Filled for what one could choose, hollow for what is only shown.
pub(super) fn dot(svg: &mut Svg, spot: Spot, style: LineStyle, is_hollow: bool) {
    svg.line(&[spot], LineStyle { width: 3.0, ..style });
    if is_hollow {
        svg.line(&[spot], LineStyle { width: 1.8, color: PAPER, ..style });
    }
}

#[cfg(test)]
mod tests {
    use super::super::palette;
    use super::*;
    use hedgerow_lab::testing::results;

    fn rows(results: &Results, means: &[f64]) -> Vec<Row> {
        let row = |mean: &f64| Row {
            method: "mk".into(),
            label: "mk".into(),
            style: palette::method(results, "mk"),
            is_reference: *mean > 1.0,
            mean: *mean,
            ends: Some((mean * 0.9, mean * 1.1)),
            value: "×1".into(),
        };
        means.iter().map(row).collect()
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
