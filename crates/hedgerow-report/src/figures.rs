//! Figures for a paper: pure functions from [`Results`] to SVG documents.
//!
//! `series` and `errors` select the curves, `palette` gives every method its colour, `scale` finds
//! ranges and ticks. A `chart` describes all of it; figures and the report's page are drawn from
//! this description with `svg`.

pub(crate) mod bars;
pub(crate) mod chart;
pub(crate) mod confusion;
pub(crate) mod convergence;
mod dates;
pub(crate) mod dots;
pub(crate) mod drift;
pub(crate) mod errors;
pub(crate) mod frontier;
pub mod growth;
pub(crate) mod heat;
pub(crate) mod importance;
mod interactive;
pub(crate) mod markup;
pub(crate) mod number;
pub(crate) mod palette;
pub(crate) mod panels;
#[cfg(feature = "png")]
pub mod png;
pub(crate) mod predictions;
pub(crate) mod scale;
pub(crate) mod series;
pub(crate) mod subsets;
mod svg;

use bars::Bars;
use chart::{Chart, Entry, Key, Mark, Readout, Shape, Words};
use confusion::Confusion;
use hedgerow_lab::measure::Measure;
use hedgerow_lab::results::{MethodResult, Results};
use importance::{importance_bars, importance_chart};
use predictions::{Stretch, course_chart, coverage_chart, scatter_chart};
use scale::{Axis, Spacing};
use series::{Line, Point, last_round};
use subsets::{device_bars, hour_bars, weekday_bars};

/// Every figure that the results have data for: file name and SVG document.
///
/// Errors, predictions and coverage over time, errors by device, hour and weekday, kernels and
/// regret: a part of [`crate::run::FILES`], in their order. Nothing is written.
pub fn render(results: &Results) -> Vec<(String, String)> {
    let running = errors::errors(results, errors::Error::Running);
    let mse = running.map(|found| match found.log_axis() {
        Some(axis) => error_chart(results, &found, errors::Error::Running, axis).sheet(),
        None => nothing_positive(results),
    });
    let subject = results.subject();
    let chart = |draw: &dyn Fn(&MethodResult) -> Option<Chart>| Some(draw(subject?)?.sheet());
    let bars =
        |draw: fn(&Results, &MethodResult) -> Option<Bars>| Some(draw(results, subject?)?.sheet());
    let course = |rank: &str| {
        let devices = subject?.sampled.as_ref()?.devices.len();
        let place = (0..devices).find(|place| predictions::rank(*place, devices) == rank)?;
        Some(course_chart(results, subject?, place, Stretch::Recent)?.sheet())
    };
    let figures = [
        ("mse.svg", mse),
        ("predictions.svg", course("typical").or_else(|| course("best")).or_else(|| course(""))),
        ("predictions-worst.svg", course("worst")),
        ("scatter.svg", chart(&|subject| scatter_chart(results, subject))),
        ("coverage.svg", chart(&|subject| coverage_chart(results, subject))),
        (
            "confusion.svg",
            subject.and_then(|subject| Some(Confusion::of(results, subject)?.sheet())),
        ),
        ("importance.svg", bars(importance_bars)),
        ("importance-over-time.svg", chart(&|subject| importance_chart(results, subject))),
        ("devices.svg", bars(device_bars)),
        ("hours.svg", bars(hour_bars)),
        ("weekdays.svg", bars(weekday_bars)),
        ("kernels.svg", kernel_chart(results).map(|chart| chart.sheet())),
        ("convergence.svg", convergence_chart(results).map(|chart| chart.sheet())),
        ("regret.svg", regret_chart(results).map(|chart| chart.sheet())),
    ];
    figures.into_iter().filter_map(|(name, svg)| Some((name.to_owned(), svg?))).collect()
}

/// The legend's entry for the single kernels besides the best.
const OTHER_KERNELS: &str = "sk, other kernels";

/// The errors of all methods over time.
pub(crate) fn error_chart(
    results: &Results,
    found: &errors::Errors,
    error: errors::Error,
    y: Axis,
) -> Chart {
    let measure = Measure::of(results);
    let (name, axis) = match error {
        errors::Error::Running => (measure.name(results), measure.axis(results)),
        errors::Error::Windowed => {
            let name = format!("{} of the last {} rounds", measure.name(results), results.window);
            (name.clone(), name)
        }
    };
    let lines: Vec<Line> = found.lines.iter().map(|line| line.entering(&y)).collect();
    let quiet = |line| Mark::quiet(line, OTHER_KERNELS, Readout::Nearest);
    let mut legend = Entry::ranked(&found.lines);
    if let Some(line) = found.others.first() {
        legend.push(Entry::plain(OTHER_KERNELS, Key::Line(line.style)));
    }
    let mut note = spread_note(results);
    if found.others.len() < found.others_in_all {
        let (drawn, all) = (found.others.len(), found.others_in_all);
        note += &format!("{drawn} of {all} other kernels are drawn. ");
    }
    if chart::cuts(&y, &lines) {
        note += "Values too small for the axis are drawn at its lower end.";
    }
    Chart {
        words: words(results, &measure.title(results), &axis),
        described: series::describe(&found.lines, &name),
        x: found.rounds(),
        y,
        marks: found.others.iter().map(quiet).chain(Mark::lines(&lines)).collect(),
        legend_heading: "at the end",
        legend,
        note,
    }
}

/// The figure of errors where no error is positive.
fn nothing_positive(results: &Results) -> String {
    let measure = Measure::of(results);
    let chart = Chart {
        words: words(results, &measure.title(results), &measure.axis(results)),
        described: errors::NOTHING_POSITIVE.to_owned(),
        x: Axis::exactly(0.0..=1.0),
        y: Axis::exactly(0.0..=1.0),
        marks: Vec::new(),
        legend_heading: "",
        legend: Vec::new(),
        note: String::new(),
    };
    chart.sheet_with_sentence(errors::NOTHING_POSITIVE)
}

/// The share of each kernel in the predictions of the baseline, or else of the first method that
/// chooses.
pub(crate) fn kernel_chart(results: &Results) -> Option<Chart> {
    let shares = series::shares(results)?;
    let count = shares.groups.len();
    let mut tops = vec![0.0; shares.rounds.len()];
    let (mut marks, mut legend) = (Vec::new(), Vec::new());
    for (i, group) in shares.groups.iter().enumerate() {
        tops.iter_mut().zip(&group.shares).for_each(|(top, share)| *top += share);
        let color = palette::kernel(i, count);
        let (rounds, tops) = (shares.rounds.clone(), tops.clone());
        marks.push(Mark {
            shape: Shape::Layer { rounds, tops, color, has_edge: i + 1 < count },
            entry: group.label.clone(),
            readout: Readout::Always,
        });
        let entry = Entry::plain(&group.label, Key::Patch(color));
        legend.push(Entry { bold: group.has_best, ..entry });
    }
    // From the top of the stack down: so they cover each other, and so they are read.
    marks.reverse();
    legend.reverse();
    let mut notes = Vec::new();
    if results.best_kernel.is_some() {
        notes.push("Bold: the best kernel in hindsight.".to_owned());
    }
    if shares.averaged > 1 {
        notes.push(format!("Averages of {} neighbouring points.", shares.averaged));
    }
    let at_end = |group: &&series::Group| group.shares.last().copied().unwrap_or(0.0);
    let leading = shares.groups.iter().max_by(|a, b| at_end(a).total_cmp(&at_end(b)))?;
    let share = number::percent(at_end(&leading));
    let title = format!("Kernels used by {}", shares.method);
    Some(Chart {
        words: words(results, &title, "share of the predictions"),
        described: format!("At the end, the largest share is {share}, of {}.", leading.label),
        x: Axis::rounds(Spacing::Linear, shares.rounds.last().copied().unwrap_or(1.0)),
        y: Axis::exactly(0.0..=1.0),
        marks,
        legend_heading: "",
        legend,
        note: notes.join(" "),
    })
}

/// The share of the best kernel in every method that chooses.
pub(crate) fn convergence_chart(results: &Results) -> Option<Chart> {
    let convergence = series::convergence(results)?;
    let lines = &convergence.lines;
    let best = series::kernel_label(results, convergence.kernel);
    let mut note = format!(
        "Best in hindsight: kernel {best}. Share: of trials that selected it, or its mean weight \
         in a mixture."
    );
    if !convergence.raw.is_empty() {
        note += &format!(" Strong: averages of {} points.", convergence.averaged);
    }
    let raw = convergence.raw.iter().map(|line| Mark::quiet(line, &line.label, Readout::Never));
    Some(Chart {
        words: words(results, "Convergence to the best kernel", "share of the best kernel"),
        described: series::describe(lines, "Share of the best kernel"),
        x: Axis::rounds(Spacing::Linear, last_round(lines)),
        y: Axis::exactly(0.0..=1.0),
        marks: raw.chain(Mark::lines(lines)).collect(),
        legend_heading: "at the end",
        legend: Entry::ranked(lines),
        note,
    })
}

/// The regret of every method that has one.
pub(crate) fn regret_chart(results: &Results) -> Option<Chart> {
    let lines = series::regrets(results);
    if lines.is_empty() {
        return None;
    }
    let points = || lines.iter().flat_map(|line| &line.points);
    let (rounds, values) = (points().map(|point| point.round), points().map(|point| point.mean));
    let (mut legend, mut marks) = (Entry::ranked(&lines), Vec::new());
    let mut words = words(results, "Regret against the best fixed function", "regret R(t)");
    let mut note = spread_note(results);
    let (x, y) = if series::mostly_positive(&lines) {
        words.x = "round t (log scale)".into();
        note += "Powers of t are straight lines, t^a with slope a; √t has slope 1/2.";
        if let Some(ends) = series::root_guide(&lines) {
            let points = ends.map(|(round, mean)| Point { round, mean, sd: 0.0 }).to_vec();
            let label = "slope of √t".to_owned();
            legend.push(Entry::plain(&label, Key::Line(palette::GUIDE)));
            let guide = Line::guide(label, points);
            marks.push(Mark::quiet(&guide, &guide.label, Readout::Never));
        }
        (Axis::log(rounds, 0.0), Axis::log(values, 0.04))
    } else {
        words.x = "round t (√ scale: growth as √t is straight)".into();
        (Axis::rounds(Spacing::Root, last_round(&lines)), Axis::around(values.chain([0.0])))
    };
    marks.extend(Mark::lines(&lines));
    Some(Chart {
        described: series::describe(&lines, "Regret"),
        words,
        x,
        y,
        marks,
        legend_heading: "at the end",
        legend,
        note: format!("{note}\nR(t): {REGRET_MEANING}."),
    })
}

/// What the regret is.
pub(crate) const REGRET_MEANING: &str = "sum of losses, ridge term included, minus that of the \
    best fixed function known afterwards (for sk: of its kernel)";

/// What the shades are; empty if there are none.
pub(crate) fn spread_note(results: &Results) -> String {
    match results.trials {
        0 | 1 => String::new(),
        trials => format!("Shaded: mean ± standard deviation over {trials} trials. "),
    }
}

fn words(results: &Results, what: &str, y: &str) -> Words {
    Words {
        title: format!("{what} on {}", results.data_name()),
        subtitle: results.sizes(),
        x: "round t".into(),
        y: y.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run;
    use hedgerow_lab::results::{Curve, Moments};
    use hedgerow_lab::testing as sample;

    fn drawn(results: &Results) -> Vec<String> {
        render(results).into_iter().map(|(name, _)| name).collect()
    }

    fn svg(results: &Results, name: &str) -> String {
        render(results).into_iter().find(|(n, _)| n == name).unwrap().1
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
    fn figures_are_files_of_a_run_in_their_order() {
        let mut results = sample::results(11, 100, 5);
        let few = ["mse.svg", "coverage.svg", "kernels.svg", "convergence.svg", "regret.svg"];
        assert_eq!(drawn(&results), few);
        sample::add_predictions(&mut results, 3, 50);
        sample::add_classes(&mut results, 3);
        let known: Vec<&str> = run::FILES.iter().copied().filter(|n| n.ends_with("svg")).collect();
        assert_eq!(drawn(&results), known);
    }

    #[test]
    fn figures_without_data_are_left_out() {
        let mut results = sample::results(3, 10, 2);
        results.best_kernel = None;
        results.methods.iter_mut().for_each(|method| method.curve.regret.clear());
        assert_eq!(drawn(&results), ["mse.svg", "coverage.svg", "kernels.svg"]);
        results.methods.iter_mut().for_each(|method| method.curve = Curve::default());
        assert!(drawn(&results).is_empty());
        results.methods.clear();
        assert!(drawn(&results).is_empty());
    }

    #[test]
    fn predictions_stand_at_their_dates() {
        let mut results = sample::results(2, 5, 1);
        sample::add_predictions(&mut results, 2, 48);
        assert!(svg(&results, "predictions.svg").contains(">round t<"));
        let begin = hedgerow_data::timestamp::parse("2026-03-01 12:00").unwrap();
        let place = results.methods.iter().position(|one| one.sampled.is_some()).unwrap();
        let devices = &mut results.methods[place].sampled.as_mut().unwrap().devices;
        for point in devices.iter_mut().flat_map(|device| &mut device.recent) {
            point.time = Some(begin + 3600.0 * point.round as f64);
        }
        let dated = svg(&results, "predictions.svg");
        for part in [">time, from 2026-03-02 13:00 to 2026-03-03 12:00<", ">03-03<", ">18:00<"] {
            assert!(dated.contains(part), "{part}: {dated}");
        }
        // A time that goes back has no place on an axis.
        let place = results.methods.iter().position(|one| one.sampled.is_some()).unwrap();
        let devices = &mut results.methods[place].sampled.as_mut().unwrap().devices;
        devices.iter_mut().for_each(|device| device.recent[3].time = Some(0.0));
        assert!(svg(&results, "predictions.svg").contains(">round t<"));
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
        for (devices, rounds) in [(1, 1), (2, 3), (1000, 2)] {
            let mut results = sample::results(2, 5, 1);
            sample::add_predictions(&mut results, devices, rounds);
            results.node_names = vec!["n".repeat(300); devices as usize];
            results.data.target = "t".repeat(300);
            extremes.push(results.clone());
            // Nothing changes, or everything does.
            for value in [0.0, f32::MAX, f32::MIN_POSITIVE] {
                let place = results.methods.iter().position(|one| one.sampled.is_some()).unwrap();
                let sampled = results.methods[place].sampled.as_mut().unwrap();
                sampled.scatter.fill([value, value]);
                for course in &mut sampled.devices {
                    course.recent[0].truth = value;
                    course.recent.iter_mut().for_each(|point| point.margin = Some(value));
                }
                extremes.push(results.clone());
            }
        }
        for results in extremes {
            for (name, svg) in render(&results) {
                assert!(!svg.contains("NaN") && !svg.contains("\"inf"), "{name}");
                for (x, y) in spots(&svg) {
                    assert!(
                        (0.0..=820.0).contains(&x) && (0.0..=620.0).contains(&y),
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
            assert!(svg(&results, name).contains(">mk:unnormalised-weights<"), "{name}");
        }
        results.methods[0].name = "x".repeat(500);
        assert!(svg(&results, "mse.svg").contains("xx…"));
    }

    #[test]
    fn names_cannot_break_the_document() {
        let mut results = sample::results(2, 5, 2);
        results.data.name = "/home/me/<script>\u{1}&".into();
        results.kernels = vec!["<a>".into(); 2];
        for (name, svg) in render(&results) {
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
        let hex = color.hex();
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
