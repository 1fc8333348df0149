//! Methods in rows: a dot and an interval each, the least error first, with the curves of the
//! errors beside them.

use plotters::style::WHITE;
use plotters::style::text_anchor::HPos;

use super::canvas::{Canvas, DrawError, Spot, Writing};
use super::chart::{Chart, FINE_GRID, Frame, GRID, SOFT_INK, shortened};
use super::errors::{self, Errors};
use super::palette::{Dash, INK, LineStyle};
use super::panels::error_axis;
use super::scale::{Axis, Spacing};
use super::{FigureError, last_round, number};
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

pub(super) const PLAIN: Writing =
    Writing { size: 12.0, color: INK, bold: false, anchor: HPos::Left, upwards: false };
pub(super) const SMALL: Writing = Writing { size: 10.5, color: SOFT_INK, ..PLAIN };

/// The chart of the rows, in their order, beside the course of the errors of these results.
pub(crate) fn dots(
    results: &Results,
    heading: &Heading<'_>,
    rows: &[Row],
) -> Result<String, FigureError> {
    draw(results, heading, rows)
        .map_err(|source| FigureError::Draw { figure: "the comparison of methods", source })
}

fn draw(results: &Results, heading: &Heading<'_>, rows: &[Row]) -> Result<String, DrawError> {
    let bottom = TOP + (ROW * rows.len() as f64).max(LEAST_HEIGHT);
    let said: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {}", row.label, number::significant(row.mean, 3)))
        .collect();
    let alternative =
        format!("{}. {}: {}.", heading.title, Measure::of(results).name(results), said.join(", "));
    Canvas::document(&alternative, (SHEET_WIDTH, bottom + FOOT), |canvas| {
        let head = Writing { size: 15.5, bold: true, ..PLAIN };
        canvas.text(&shortened(heading.title, 100), (16.0, 20.0), head)?;
        let soft = Writing { size: 12.5, color: SOFT_INK, ..PLAIN };
        canvas.text(&shortened(heading.subtitle, 150), (16.0, 42.0), soft)?;
        draw_rows(canvas, results, rows, bottom)?;
        draw_courses(canvas, results, rows, bottom)?;
        canvas.text(heading.note, (16.0, bottom + FOOT - 14.0), SMALL)
    })
}

fn draw_rows(
    canvas: &Canvas<'_>,
    results: &Results,
    rows: &[Row],
    bottom: f64,
) -> Result<(), DrawError> {
    let (left, right) = DOTS;
    let positive =
        || rows.iter().map(|row| row.mean).filter(|mean| mean.is_finite() && *mean > 0.0);
    let spread =
        |row: &Row| row.ends.map_or([row.mean; 2], |(low, high)| [low.max(row.mean / 2.0), high]);
    let reach = rows.iter().filter(|row| row.mean.is_finite() && row.mean > 0.0).flat_map(spread);
    if positive().next().is_none() {
        return Chart::framed(canvas, Frame { left, right, top: TOP, bottom })?
            .instead("No error is positive.");
    }
    let axis = Axis::log(reach, 0.05);
    let across = |value: f64| left + (right - left) * axis.position(value);
    let ticks = axis.ticks(5);
    for fine in [true, false] {
        let color = if fine { FINE_GRID } else { GRID };
        for tick in ticks.iter().filter(|tick| tick.label.is_empty() == fine) {
            rule(canvas, (across(tick.value), TOP), (across(tick.value), bottom), color)?;
            let below = (across(tick.value), bottom + 14.0);
            canvas.text(&tick.label, below, Writing { anchor: HPos::Center, ..SMALL })?;
        }
    }
    rule(canvas, (left, bottom), (right, bottom), SOFT_INK)?;
    let title = format!("{} (log scale)", Measure::of(results).name(results));
    canvas.text(
        &title,
        ((left + right) / 2.0, bottom + 34.0),
        Writing { anchor: HPos::Center, ..PLAIN },
    )?;
    canvas.text("ratio to the best", (right + 12.0, TOP - 12.0), SMALL)?;
    for (place, row) in rows.iter().enumerate() {
        let height = TOP + ROW * (place as f64 + 0.5);
        let ink = if row.is_reference { SOFT_INK } else { INK };
        let label = Writing { color: ink, anchor: HPos::Right, ..PLAIN };
        canvas.text(&shortened(&row.label, 20), (left - 12.0, height), label)?;
        canvas.text(
            &row.value,
            (right + 12.0, height),
            Writing { color: ink, size: 11.0, ..PLAIN },
        )?;
        if !(row.mean.is_finite() && row.mean > 0.0) {
            let words = if row.mean == 0.0 { "no error at all" } else { "not finite" };
            canvas.text(words, (left + 8.0, height), SMALL)?;
            continue;
        }
        if let Some((low, high)) = row.ends {
            let whisker = LineStyle { dash: Dash::Solid, width: 2.0, ..row.style };
            let (from, to) = (across(low), across(high));
            canvas.line(&[(from, height), (to, height)], whisker)?;
            for end in [from, to] {
                canvas.line(&[(end, height - 4.0), (end, height + 4.0)], whisker)?;
            }
        }
        dot(canvas, (across(row.mean), height), row.style, row.is_reference)?;
    }
    Ok(())
}

/// Errors over all predictions so far, of the methods in the rows.
fn draw_courses(
    canvas: &Canvas<'_>,
    results: &Results,
    rows: &[Row],
    bottom: f64,
) -> Result<(), DrawError> {
    let (left, right) = COURSES;
    let frame = Frame { left, right, top: TOP, bottom };
    let middle = Writing { anchor: HPos::Center, ..PLAIN };
    canvas.text("round t", ((left + right) / 2.0, bottom + 34.0), middle)?;
    let axis_title = Measure::of(results).axis(results);
    canvas.text(
        &axis_title,
        (left - 46.0, (TOP + bottom) / 2.0),
        Writing { upwards: true, ..middle },
    )?;
    let found = errors::errors(results, errors::Error::Running);
    let found = found.map(|found| Errors { others: Vec::new(), ..found });
    let Some((found, y)) = found.and_then(|found| error_axis(&found).map(|axis| (found, axis)))
    else {
        return Chart::framed(canvas, frame)?.instead("No course of the error is known.");
    };
    let x = Axis::rounds(Spacing::Linear, last_round(found.lines.iter()));
    let chart = Chart::small(canvas, frame, (x, y))?;
    // References first, so that choices lie over them.
    let is_reference = |name: &str| rows.iter().any(|row| row.is_reference && row.method == name);
    for wanted in [true, false] {
        for line in found.lines.iter().filter(|line| is_reference(&line.method) == wanted) {
            chart.line(&if line.in_hindsight { line.entering(&y) } else { line.clone() })?;
        }
    }
    chart.axes()
}

/// Filled for methods that can be chosen, hollow for references.
pub(super) fn dot(
    canvas: &Canvas<'_>,
    spot: Spot,
    style: LineStyle,
    is_hollow: bool,
) -> Result<(), DrawError> {
    canvas.line(&[spot], LineStyle { width: 3.0, ..style })?;
    if is_hollow {
        canvas.line(&[spot], LineStyle { width: 1.8, color: WHITE, ..style })?;
    }
    Ok(())
}

pub(super) fn rule(
    canvas: &Canvas<'_>,
    from: Spot,
    to: Spot,
    color: plotters::style::RGBColor,
) -> Result<(), DrawError> {
    canvas.line(&[from, to], LineStyle { color, dash: Dash::Solid, width: 1.0, opacity: 1.0 })
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
        let svg = dots(&results, &HEADING, &rows(&results, &[0.5, 0.7, 1.2])).unwrap();
        // Two circles make a hollow dot.
        assert_eq!(svg.matches("<circle").count(), 4);
        assert_eq!(svg.matches("×1\n").count(), 3);
        assert!(svg.contains("Ti&lt;t&gt;le") && !svg.contains("<t>"));
    }

    #[test]
    fn every_extreme_is_drawn_somewhere() {
        let results = results(3, 50, 4);
        for means in [&[][..], &[0.0], &[f64::NAN, f64::INFINITY, 0.0, 1e-300, 1e300], &[1.0; 60]] {
            let svg = dots(&results, &HEADING, &rows(&results, means)).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("\"inf"), "{means:?}");
            assert!(super::super::png::to_png(&svg).is_ok());
        }
        let mut nothing = results.clone();
        nothing.methods.clear();
        let svg = dots(&nothing, &HEADING, &[]).unwrap();
        assert!(
            svg.contains("No course of the error is known.")
                && svg.contains("No error is positive.")
        );
    }
}
