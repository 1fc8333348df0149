//! Figures for a paper: pure functions from [`Results`] to SVG documents.
//!
//! `series` and `errors` pick the curves (the report draws the same ones), `palette` gives every
//! method its colour, `scale` finds ranges and ticks, `chart` draws on a `canvas`. Plotters places
//! strokes and text; its own axes and legends are not used, since they have neither readable
//! logarithmic ticks nor a legend outside the frame.

mod canvas;
mod chart;
pub(crate) mod dots;
pub mod drift;
pub(crate) mod errors;
pub(crate) mod frontier;
pub mod growth;
pub(crate) mod heat;
pub(crate) mod markup;
pub(crate) mod number;
pub(crate) mod palette;
pub mod panels;
pub mod png;
pub(crate) mod scale;
pub(crate) mod series;

use canvas::{Canvas, DrawError, HEIGHT, WIDTH};
use chart::{Chart, Entry, Frame, Key, LEGEND, Words, legend_for};
use hedgerow_lab::measure::Measure;
use scale::{Axis, Spacing};
use series::Line;

use hedgerow_lab::results::Results;

/// The size of a sheet with one chart.
const SHEET: (f64, f64) = (WIDTH, HEIGHT);

/// Why a figure could not be drawn.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// The drawing backend gave up.
    #[error("could not draw {figure}: {source}")]
    Draw {
        /// File name of the figure.
        figure: &'static str,
        /// What the backend says.
        source: plotters::drawing::DrawingAreaErrorKind<std::io::Error>,
    },
}

/// Every figure that the results have data for: file name and SVG document.
///
/// `mse.svg`, `kernels.svg`, `convergence.svg` and `regret.svg`, in this order. Nothing is written.
pub fn render(results: &Results) -> Result<Vec<(String, String)>, FigureError> {
    type Draw = fn(&Results) -> Result<Option<String>, DrawError>;
    let figures: [(&'static str, Draw); 4] = [
        ("mse.svg", mse),
        ("kernels.svg", kernels),
        ("convergence.svg", convergence),
        ("regret.svg", regret),
    ];
    let mut drawn = Vec::new();
    for (figure, draw) in figures {
        let svg = draw(results).map_err(|source| FigureError::Draw { figure, source })?;
        drawn.extend(svg.map(|svg| (figure.to_owned(), svg)));
    }
    Ok(drawn)
}

fn mse(results: &Results) -> Result<Option<String>, DrawError> {
    let Some(found) = errors::errors(results, errors::Error::Running) else {
        return Ok(None);
    };
    let measure = Measure::of(results);
    let words = words(results, &measure.title(results), &measure.axis(results));
    let drawn = || found.others.iter().chain(&found.lines);
    let x = Axis::rounds(Spacing::Linear, last_round(drawn()));
    let Some(y) = found.log_axis() else {
        let alternative = format!("{}. {}", words.title, errors::NOTHING_POSITIVE);
        return Canvas::document(&alternative, SHEET, |canvas| {
            Chart::blank(canvas, Frame::alone(LEGEND), &words, (x, Axis::exactly(0.0..=1.0)))?
                .instead(errors::NOTHING_POSITIVE)
        })
        .map(Some);
    };
    let frame = Frame::alone(legend_for(found.lines.iter().map(|line| line.label.as_str())));
    let described = series::describe(&found.lines, &measure.name(results));
    let alternative = format!("{}. {described}", words.title);
    let document = Canvas::document(&alternative, SHEET, |canvas| {
        let chart = Chart::new(canvas, frame, &words, (x, y))?;
        found.others.iter().try_for_each(|line| chart.line(line))?;
        let lines: Vec<Line> = found
            .lines
            .iter()
            .map(|line| if line.in_hindsight { line.entering(&y) } else { line.clone() })
            .collect();
        draw_lines(&chart, &lines)?;
        let mut entries = ranked(&found.lines);
        if !found.others.is_empty() {
            entries.push(Entry {
                label: "sk, other kernels".into(),
                key: Key::Line(found.others[0].style),
                value: String::new(),
                bold: false,
            });
        }
        let mut notes = vec![spread_note(results)];
        if found.others.len() < found.others_in_all {
            notes.push(format!(
                "{} of {} other kernels are drawn. ",
                found.others.len(),
                found.others_in_all
            ));
        }
        if chart.cuts(&lines) {
            notes.push("Values too small for the axis are drawn at its lower end.".into());
        }
        chart.note(&notes.concat())?;
        chart.legend("at the end", &entries)
    })?;
    Ok(Some(document))
}

fn kernels(results: &Results) -> Result<Option<String>, DrawError> {
    let Some(shares) = series::shares(results) else {
        return Ok(None);
    };
    let words =
        words(results, &format!("Kernels used by {}", shares.method), "share of the predictions");
    let count = shares.groups.len();
    let colored =
        || shares.groups.iter().enumerate().map(|(i, group)| (group, palette::kernel(i, count)));
    let layers: Vec<_> = colored().map(|(group, color)| (group.shares.as_slice(), color)).collect();
    // From the top of the stack down, as in the picture.
    let entries: Vec<Entry> = colored()
        .rev()
        .map(|(group, color)| Entry {
            label: group.label.clone(),
            key: Key::Patch(color),
            value: String::new(),
            bold: group.has_best,
        })
        .collect();
    let x = Axis::rounds(Spacing::Linear, shares.rounds.last().copied().unwrap_or(1.0));
    let document = Canvas::document(&words.title, SHEET, |canvas| {
        let chart =
            Chart::new(canvas, Frame::alone(LEGEND), &words, (x, Axis::exactly(0.0..=1.0)))?;
        chart.stack(&shares.rounds, &layers)?;
        chart.axes()?;
        let mut notes = Vec::new();
        if results.best_kernel.is_some() {
            notes.push("Bold: the best kernel in hindsight.".to_owned());
        }
        if shares.averaged > 1 {
            notes.push(format!("Averages of {} neighbouring points.", shares.averaged));
        }
        chart.note(&notes.join(" "))?;
        chart.legend("", &entries)
    })?;
    Ok(Some(document))
}

fn convergence(results: &Results) -> Result<Option<String>, DrawError> {
    let Some(convergence) = series::convergence(results) else { return Ok(None) };
    let lines = &convergence.lines;
    let words = words(results, "Convergence to the best kernel", "share of the best kernel");
    let alternative =
        format!("{}. {}", words.title, series::describe(lines, "Share of the best kernel"));
    let x = Axis::rounds(Spacing::Linear, last_round(lines.iter()));
    let document = Canvas::document(&alternative, SHEET, |canvas| {
        let chart = Chart::new(
            canvas,
            Frame::alone(legend_for(lines.iter().map(|line| line.label.as_str()))),
            &words,
            (x, Axis::exactly(0.0..=1.0)),
        )?;
        convergence.raw.iter().try_for_each(|line| chart.line(line))?;
        draw_lines(&chart, lines)?;
        let mut notes = vec![
            format!(
                "Best in hindsight: kernel {}.",
                series::kernel_label(results, convergence.kernel)
            ),
            "Share: of trials that selected it, or its mean weight in a mixture.".to_owned(),
        ];
        if !convergence.raw.is_empty() {
            notes.push(format!("Strong: averages of {} points.", convergence.averaged));
        }
        chart.note(&notes.join(" "))?;
        chart.legend("at the end", &ranked(lines))
    })?;
    Ok(Some(document))
}

fn regret(results: &Results) -> Result<Option<String>, DrawError> {
    let lines = series::regrets(results);
    if lines.is_empty() {
        return Ok(None);
    }
    let logarithmic = series::mostly_positive(&lines);
    let mut words = words(results, "Regret against the best fixed function", "regret R(t)");
    words.x = if logarithmic {
        "round t (log scale)"
    } else {
        "round t (√ scale: growth as √t is straight)"
    }
    .into();
    let alternative = format!("{}. {}", words.title, series::describe(&lines, "Regret"));
    let values = lines.iter().flat_map(|line| &line.points).map(|point| point.mean);
    let rounds = lines.iter().flat_map(|line| &line.points).map(|point| point.round);
    let (x, y) = if logarithmic {
        (Axis::log(rounds, 0.0), Axis::log(values, 0.04))
    } else {
        (Axis::rounds(Spacing::Root, last_round(lines.iter())), Axis::around(values.chain([0.0])))
    };
    let guide = series::root_guide(&lines).filter(|_| logarithmic);
    let document = Canvas::document(&alternative, SHEET, |canvas| {
        let chart = Chart::new(
            canvas,
            Frame::alone(legend_for(lines.iter().map(|line| line.label.as_str()))),
            &words,
            (x, y),
        )?;
        let mut entries = ranked(&lines);
        if let Some(ends) = guide {
            chart.guide(ends)?;
            let key = Key::Line(palette::GUIDE);
            entries.push(Entry {
                label: "slope of √t".into(),
                key,
                value: String::new(),
                bold: false,
            });
        }
        draw_lines(&chart, &lines)?;
        let spread = spread_note(results);
        let slopes = "Powers of t are straight lines, t^a with slope a; √t has slope 1/2.";
        chart.note(&format!("{spread}{}\n{REGRET}", if logarithmic { slopes } else { "" }))?;
        chart.legend("at the end", &entries)
    })?;
    Ok(Some(document))
}

/// What the regret is.
const REGRET: &str = "R(t): sum of losses, ridge term included, minus that of the best fixed function known afterwards (for sk: \
                      of its kernel).";

/// What the shades are; empty if there are none.
pub(crate) fn spread_note(results: &Results) -> String {
    match results.trials {
        0 | 1 => String::new(),
        trials => format!("Shaded: mean ± standard deviation over {trials} trials. "),
    }
}

/// Shades first, then lines, the first method on top.
fn draw_lines(chart: &Chart<'_, '_>, lines: &[Line]) -> Result<(), DrawError> {
    lines.iter().rev().try_for_each(|line| chart.band(line))?;
    lines.iter().rev().try_for_each(|line| chart.line(line))?;
    chart.axes()
}

/// The legend in the order in which the lines end, highest first.
fn ranked(lines: &[Line]) -> Vec<Entry> {
    let mut ranked: Vec<&Line> = lines.iter().collect();
    ranked.sort_by(|a, b| b.last().total_cmp(&a.last()));
    let entry = |line: &Line| Entry {
        label: line.label.clone(),
        key: Key::Line(line.style),
        value: number::significant(line.last(), 3),
        bold: matches!(line.label.as_str(), "gr" | "mk"),
    };
    ranked.into_iter().map(entry).collect()
}

fn words(results: &Results, what: &str, y: &str) -> Words {
    Words {
        title: format!("{what} on {}", results.data_name()),
        subtitle: results.sizes(),
        x: "round t".into(),
        y: y.into(),
    }
}

/// The last round of any of the lines.
pub(crate) fn last_round<'l>(lines: impl Iterator<Item = &'l Line>) -> f64 {
    lines.flat_map(|line| line.points.last()).map(|point| point.round).fold(1.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::results::{Curve, Moments};
    use hedgerow_lab::testing as sample;

    fn drawn(results: &Results) -> Vec<String> {
        render(results).unwrap().into_iter().map(|(name, _)| name).collect()
    }

    fn svg(results: &Results, name: &str) -> String {
        render(results).unwrap().into_iter().find(|(n, _)| n == name).unwrap().1
    }

    /// Every coordinate of every line and area.
    fn spots(svg: &str) -> Vec<(f64, f64)> {
        svg.split("points=\"")
            .skip(1)
            .flat_map(|rest| rest.split('"').next().unwrap().split_whitespace())
            .map(|pair| pair.split_once(',').unwrap())
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect()
    }

    #[test]
    fn all_four_figures_in_order() {
        let names = drawn(&sample::results(11, 100, 5));
        assert_eq!(names, ["mse.svg", "kernels.svg", "convergence.svg", "regret.svg"]);
    }

    #[test]
    fn figures_without_data_are_left_out() {
        let mut results = sample::results(3, 10, 2);
        results.best_kernel = None;
        results.methods.iter_mut().for_each(|method| method.curve.regret.clear());
        assert_eq!(drawn(&results), ["mse.svg", "kernels.svg"]);
        results.methods.iter_mut().for_each(|method| method.curve = Curve::default());
        assert!(drawn(&results).is_empty());
        results.methods.clear();
        assert!(drawn(&results).is_empty());
    }

    #[test]
    fn every_extreme_stays_on_the_sheet() {
        let mut extremes =
            vec![sample::results(1, 1, 1), sample::results(1000, 3, 2), sample::results(2, 2, 1)];
        for value in [0.0, -1.0, 1e-320, 1e-12, 1e300, f64::MAX, f64::INFINITY, f64::NAN] {
            let mut results = sample::results(3, 20, 2);
            for method in results.methods.iter_mut().take(2) {
                method.curve.mse[7] = Moments { mean: value, sd: value };
                method.curve.regret[2] = Moments { mean: value, sd: value };
                method.curve.shares[3][0] = value.min(1.0);
            }
            extremes.push(results.clone());
            for method in &mut results.methods {
                method.curve.mse.fill(Moments { mean: value, sd: 0.0 });
                method.curve.regret.fill(Moments { mean: value, sd: 0.0 });
            }
            extremes.push(results);
        }
        for results in extremes {
            for (name, svg) in render(&results).unwrap() {
                assert!(!svg.contains("NaN") && !svg.contains("\"inf"), "{name}");
                for (x, y) in spots(&svg) {
                    assert!(
                        (0.0..=8200.0).contains(&x) && (0.0..=4700.0).contains(&y),
                        "{name}: {x}, {y}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_spread_is_shaded_only_where_there_is_one() {
        assert!(svg(&sample::results(3, 50, 4), "mse.svg").contains("<polygon"));
        assert!(!svg(&sample::results(3, 50, 1), "mse.svg").contains("<polygon"));
    }

    #[test]
    fn a_long_dictionary_has_a_short_legend() {
        let results = sample::results(1000, 10, 2);
        for name in ["mse.svg", "kernels.svg"] {
            assert!(svg(&results, name).matches("<text").count() < 60, "{name}");
        }
        assert_eq!(svg(&results, "mse.svg").matches("sk, other kernels").count(), 1);
    }

    #[test]
    fn long_names_have_their_place_in_the_legend() {
        let mut results = sample::results(3, 20, 2);
        results.methods[0].name = "mk:unnormalised-weights".into();
        for name in ["mse.svg", "convergence.svg", "regret.svg"] {
            assert!(svg(&results, name).contains("mk:unnormalised-weights\n"), "{name}");
        }
        results.methods[0].name = "x".repeat(500);
        assert!(svg(&results, "mse.svg").contains("xx…"));
    }

    #[test]
    fn names_cannot_break_the_document() {
        let mut results = sample::results(2, 5, 2);
        results.data.name = "/home/me/<script>\u{1}&".into();
        results.kernels = vec!["<a>".into(); 2];
        for (name, svg) in render(&results).unwrap() {
            assert!(
                !svg.contains("<script") && !svg.contains("<a>") && !svg.contains('\u{1}'),
                "{name}"
            );
            assert!(svg.contains("&lt;script&gt; &amp;") && !svg.contains("home"), "{name}");
        }
    }

    #[test]
    fn negative_regret_gets_a_square_root_axis() {
        let mut results = sample::results(3, 100, 2);
        assert!(svg(&results, "regret.svg").contains("slope of √t"));
        results.methods[0].curve.regret.iter_mut().for_each(|regret| regret.mean -= 100.0);
        let svg = svg(&results, "regret.svg");
        assert!(svg.contains("growth as √t is straight") && !svg.contains("slope of √t"));
    }

    #[test]
    fn one_method_has_one_colour_in_all_figures() {
        let palette::LineStyle { color, .. } = palette::method(&sample::results(3, 50, 2), "mk");
        let hex = palette::hex(color).to_uppercase();
        for name in ["mse.svg", "convergence.svg", "regret.svg"] {
            assert!(svg(&sample::results(3, 50, 2), name).contains(&hex), "{name}");
        }
    }

    #[test]
    fn the_main_figure_speaks_of_the_loss_that_was_minimised() {
        let mut results = sample::results(3, 20, 2);
        assert!(svg(&results, "mse.svg").contains("Mean squared error on twitter"));
        results.loss = "logistic".into();
        let svg = svg(&results, "mse.svg");
        assert!(
            svg.contains("Mean logistic loss on twitter")
                && svg.contains("mean logistic loss up to t")
        );
        assert!(!svg.contains("MSE"));
    }

    #[test]
    fn a_sentence_stands_where_nothing_can_be_drawn() {
        let mut results = sample::results(2, 5, 2);
        assert!(!svg(&results, "mse.svg").contains("Every error is zero"));
        for method in &mut results.methods {
            method.mse = Moments::default();
            method.curve.mse.fill(Moments::default());
        }
        // Once in the title for screen readers and once in the frame.
        assert_eq!(svg(&results, "mse.svg").matches("Every error is zero").count(), 2);
    }

    #[test]
    fn the_regret_is_defined_below_it() {
        assert!(
            svg(&sample::results(3, 50, 2), "regret.svg")
                .contains("minus that of the best fixed function")
        );
    }
}
