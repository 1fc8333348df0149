//! Figures of several runs: one small chart per data set with a common legend.

use super::chart::{
    Entry, FEW_TICKS, Frame, Key, Mark, Readout, Shape, draw_key, framed_sentence, plot, shortened,
};
use super::errors::{self, Error, Errors};
use super::number;
use super::palette::{self, LineStyle, SOFT_INK};
use super::series::{self, Line};
use super::svg::{Anchor, PLAIN, SMALL, Spot, Svg, TITLE, WIDTH, Writing};
use hedgerow::method::{METHODS, find};
use hedgerow_data::streams::Change;
use hedgerow_lab::measure::Measure;
use hedgerow_lab::results::Results;

/// One data set of a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pane<'r> {
    /// What to call it.
    pub(crate) title: &'r str,
    /// The results; none if the data was not available.
    pub(crate) results: Option<&'r Results>,
}

/// What stands where there is no data.
pub(crate) const NOT_AVAILABLE: &str = "This data set was not available.";

/// More charts than this on one sheet can't be read.
const MOST_COLUMNS: usize = 6;

/// MSE(t) of every method, a chart per data set, with this number of charts in a row.
pub(crate) fn mse_panels(title: &str, columns: usize, panes: &[Pane<'_>]) -> String {
    draw_errors(title, columns, panes, Error::Running)
}

/// When the data of a run changes; marked where the error is that of a window.
fn changes(results: &Results, error: Error) -> Vec<Change> {
    match error {
        Error::Running => Vec::new(),
        Error::Windowed => hedgerow_lab::drift::changes(results),
    }
}

/// How the sheet is divided.
struct Sheet {
    columns: usize,
    width: f64,
    legend_top: f64,
    height: f64,
}

const HEAD: f64 = 52.0;
/// Above the axes of a chart: its title and a line below it.
const CHART_HEAD: f64 = 44.0;
const CHART_HEIGHT: f64 = 186.0;
/// Below them: the rounds.
const CHART_FOOT: f64 = 28.0;
const ROW: f64 = CHART_HEAD + CHART_HEIGHT + CHART_FOOT;
const AXIS_TITLE: f64 = 22.0;
const LEGEND_CELL: f64 = 150.0;
const LEGEND_ROW: f64 = 20.0;

impl Sheet {
    fn new(columns: usize, panes: usize, entries: usize) -> Self {
        let width = WIDTH.max(310.0 * columns as f64);
        let legend_top = HEAD + ROW * panes.div_ceil(columns) as f64 + 34.0;
        let legend_rows = entries.div_ceil(Self::legend_columns(width));
        let height = legend_top + LEGEND_ROW * legend_rows as f64 + 18.0;
        Self { columns, width, legend_top, height }
    }

    fn legend_columns(width: f64) -> usize {
        ((width - AXIS_TITLE) / LEGEND_CELL) as usize
    }

    /// Where the axes of the chart at this place stand.
    fn frame(&self, place: usize) -> Frame {
        let cell = (self.width - AXIS_TITLE - 8.0) / self.columns as f64;
        let left = AXIS_TITLE + cell * (place % self.columns) as f64 + 44.0;
        let top = HEAD + ROW * (place / self.columns) as f64 + CHART_HEAD;
        Frame { left, right: left + cell - 56.0, top, bottom: top + CHART_HEIGHT }
    }

    /// Where the key of this entry of the legend begins.
    fn legend_spot(&self, entry: usize) -> Spot {
        let columns = Self::legend_columns(self.width);
        let (row, column) = (entry / columns, entry % columns);
        (AXIS_TITLE + 44.0 + LEGEND_CELL * column as f64, self.legend_top + LEGEND_ROW * row as f64)
    }
}

/// The errors of all methods, a chart per data set.
pub(super) fn draw_errors(title: &str, columns: usize, panes: &[Pane<'_>], error: Error) -> String {
    let columns = columns.clamp(1, MOST_COLUMNS);
    let found: Vec<Option<Errors>> = panes
        .iter()
        .map(|pane| pane.results.and_then(|results| errors::errors(results, error)))
        .map(|found| found.map(quietened))
        .collect();
    let shown = panes.iter().filter_map(|pane| pane.results);
    let changes: Vec<Change> = shown.flat_map(|results| changes(results, error)).collect();
    let mut entries = common_legend(found.iter().flatten());
    if !changes.is_empty() {
        let (label, key) = ("the data changes".to_owned(), Key::Line(palette::CHANGE));
        entries.push(Entry::plain(label, key));
    }
    let sheet = Sheet::new(columns, panes.len(), entries.len());
    let alternative = format!("{title}. {}", in_words(panes, &found, error));
    Svg::document(&alternative, (sheet.width, sheet.height), |svg| {
        head(svg, title, panes);
        for (place, (pane, found)) in panes.iter().zip(&found).enumerate() {
            draw_pane(svg, &sheet, (place, panes.len()), pane, found.as_ref(), error);
        }
        for (place, entry) in entries.iter().enumerate() {
            let (left, height) = sheet.legend_spot(place);
            draw_key(svg, &entry.key, (left, height));
            let writing = Writing { bold: entry.bold, ..PLAIN };
            svg.text(&shortened(&entry.label, 18), (left + 30.0, height), writing);
        }
        let mut notes = vec!["Lower is better; the vertical axes differ.".to_owned()];
        if let Some(trials) = same(panes, |results| results.trials).filter(|trials| *trials > 1) {
            let shaded = found.iter().flatten().flat_map(|errors| &errors.lines).find(is_baseline);
            notes.extend(shaded.map(|Line { method, .. }| {
                format!("Shaded: {method}, mean ± standard deviation over {trials} trials.")
            }));
        }
        if changes.iter().any(|change| !change.is_sudden()) {
            notes.push("Shaded in grey: while the data changes.".into());
        }
        let cut = |found: &Errors| {
            let low = found.settled_axis().map_or(0.0, |axis| axis.low());
            found.all().flat_map(Line::settled).any(|point| point.mean < low)
        };
        if found.iter().flatten().any(cut) {
            notes.push("Early errors below an axis are drawn at its lower end.".into());
        }
        svg.text(&notes.join(" "), (AXIS_TITLE + 44.0, sheet.height - 12.0), SMALL);
    })
}

fn head(svg: &mut Svg, title: &str, panes: &[Pane<'_>]) {
    let left = AXIS_TITLE + 44.0;
    svg.text(&shortened(title, 90), (left, 18.0), TITLE);
    let setting = same(panes, Results::sizes).unwrap_or_default();
    svg.text(&setting, (left, 39.0), Writing { color: SOFT_INK, ..PLAIN });
}

/// What holds for all that was run; none if it differs.
pub(super) fn same<T: PartialEq>(panes: &[Pane<'_>], of: impl Fn(&Results) -> T) -> Option<T> {
    let mut all = panes.iter().filter_map(|pane| pane.results).map(of);
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

fn draw_pane(
    svg: &mut Svg,
    sheet: &Sheet,
    (place, panes): (usize, usize),
    pane: &Pane<'_>,
    found: Option<&Errors>,
    error: Error,
) {
    let frame = sheet.frame(place);
    let Frame { left, right, top, bottom } = frame;
    let room = ((right - left) / 7.2) as usize;
    let title = format!("{}{}", letter(place, panes), pane.title);
    svg.text(
        &shortened(&title, room),
        (left, top - 29.0),
        Writing { size: 13.0, bold: true, ..PLAIN },
    );
    let sizes = pane.results.map_or(String::new(), sizes);
    svg.text(&shortened(&sizes, ((right - left) / 5.4) as usize), (left, top - 12.0), SMALL);
    let centered = Writing { anchor: Anchor::Middle, ..PLAIN };
    let (across, up) = frame.middle();
    if place.is_multiple_of(sheet.columns)
        && let Some(results) = pane.results
    {
        let axis = match error {
            Error::Running => Measure::of(results).axis(results),
            Error::Windowed => format!("MSE over {} rounds", results.window),
        };
        svg.text(&axis, (12.0, up), Writing { upwards: true, ..centered });
    }
    // Below the last chart of each column.
    if place + sheet.columns >= panes {
        svg.text("round t", (across, bottom + 33.0), centered);
    }
    let Some((found, y)) = found.and_then(|found| Some((found, found.settled_axis()?))) else {
        let sentence = match (found, pane.results) {
            (Some(_), _) => "Every error is zero.",
            (None, Some(_)) => "No course of the error is known.",
            (None, None) => NOT_AVAILABLE,
        };
        return framed_sentence(svg, frame, sentence);
    };
    let change = |change: Change| {
        let (from, to) = (change.after as f64, change.complete as f64);
        Mark::plain(Shape::Change { from, to })
    };
    let changes = pane.results.map_or(Vec::new(), |results| changes(results, error));
    let changes = changes.into_iter().map(change);
    let others = found.others.iter().map(|line| Mark::quiet(line, "", Readout::Never));
    let bands = found.lines.iter().filter(is_baseline).filter_map(Mark::band);
    let mut lines: Vec<&Line> = found.lines.iter().collect();
    lines.sort_by_key(|line| std::cmp::Reverse(rank(&line.method)));
    let lines = lines.iter().map(|line| Mark::line(&line.entering(&y)));
    let marks: Vec<Mark> = changes.chain(others).chain(bands).chain(lines).collect();
    plot(svg, frame, (&found.rounds(), &y), &marks, FEW_TICKS);
}

/// `(a) `, as charts are called in a paper; nothing for a single one.
fn letter(place: usize, panes: usize) -> String {
    match u8::try_from(place) {
        Ok(place @ 0..26) if panes > 1 => format!("({}) ", char::from(b'a' + place)),
        _ => String::new(),
    }
}

/// `13 813 × 77, best kernel: 6`
fn sizes(results: &Results) -> String {
    let samples = number::fixed(results.data.samples as f64, 0);
    let best = series::best_single(results).and_then(|best| best.kernel).or(results.best_kernel);
    let best = best.map_or(String::new(), |best| format!(", best kernel: {best}"));
    format!("{samples} × {}{best}", results.data.features)
}

/// Featured methods stand out, then those that bound them; whatever else they are compared with is
/// lighter.
fn quietened(errors: Errors) -> Errors {
    let quiet = |line: Line| {
        let (width, opacity) = match line.method.as_str() {
            method if palette::is_bold(method) => (2.2, 1.0),
            method if bounds_others(method) => (1.6, 1.0),
            _ => (1.1, 0.75),
        };
        Line { style: LineStyle { width, opacity, ..line.style }, ..line }
    };
    Errors { lines: errors.lines.into_iter().map(quiet).collect(), ..errors }
}

/// Whether a method has a single kernel or uploads the models of all: the two ends between which
/// methods that choose kernels stand.
fn bounds_others(method: &str) -> bool {
    find(method).is_some_and(|info| info.takes_kernel || info.uploads_all_models)
}

fn is_baseline(line: &&Line) -> bool {
    find(&line.method).is_some_and(|info| info.is_baseline)
}

/// One entry for all charts in which a method appears, in the order of [`rank`].
fn common_legend<'e>(found: impl Iterator<Item = &'e Errors>) -> Vec<Entry> {
    let (mut lines, mut other): (Vec<&Line>, Option<&Line>) = (Vec::new(), None);
    for errors in found {
        for line in &errors.lines {
            if lines.iter().all(|known| known.method != line.method) {
                lines.push(line);
            }
        }
        other = other.or(errors.others.first());
    }
    lines.sort_by_key(|line| rank(&line.method));
    let entry = |label: &str, style| {
        let (label, key) = (label.to_owned(), Key::Line(style));
        Entry { bold: palette::is_bold(&label), label, key, value: String::new() }
    };
    let name = |method: &str| match find(method) {
        Some(info) if info.takes_kernel => format!("{method}, best kernel"),
        _ => method.to_owned(),
    };
    let mut entries: Vec<Entry> =
        lines.iter().map(|line| entry(&name(&line.method), line.style)).collect();
    if let Some(other) = other {
        let own = rank(&other.method);
        let after = lines.iter().filter(|line| rank(&line.method) <= own).count();
        entries.insert(after, entry(&format!("{}, other kernels", other.method), other.style));
    }
    entries
}

/// The order of [`METHODS`], each method before its variants; the first is drawn on top.
fn rank(method: &str) -> usize {
    let own = |name: &str| METHODS.iter().position(|info| info.has_name(name)).map(|at| 2 * at);
    own(method)
        .or_else(|| Some(own(method.split_once([':', '/', '+'])?.0)? + 1))
        .unwrap_or(2 * METHODS.len())
}

fn in_words(panes: &[Pane<'_>], found: &[Option<Errors>], error: Error) -> String {
    let name = |results: &Results| match error {
        Error::Running => Measure::of(results).name(results),
        Error::Windowed => format!("MSE over the last {} rounds", results.window),
    };
    let sentence = |(pane, found): (&Pane<'_>, &Option<Errors>)| match (pane.results, found) {
        (Some(results), Some(found)) => {
            format!("{}: {}", pane.title, series::describe(&found.lines, &name(results)))
        }
        _ => format!("{}: not available.", pane.title),
    };
    panes.iter().zip(found).map(sentence).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::results::Moments;
    use hedgerow_lab::testing::results;

    fn pane<'r>(title: &'r str, results: Option<&'r Results>) -> Pane<'r> {
        Pane { title, results }
    }

    /// What is written, in order.
    fn texts(svg: &str) -> Vec<&str> {
        let inside = |rest: &'_ str| rest.find('>').map(|start| start + 1);
        svg.split("<text")
            .skip(1)
            .map(|rest| &rest[inside(rest).unwrap()..rest.find("</text>").unwrap()])
            .map(str::trim)
            .collect()
    }

    #[test]
    fn one_chart_per_data_set_and_one_legend_for_all() {
        let mut with_trivial = results(3, 50, 4);
        for name in ["last", "mean", "mk:voters"] {
            let mut method = with_trivial.methods[0].clone();
            method.name = name.into();
            with_trivial.methods.push(method);
        }
        let plain = results(11, 50, 4);
        let panes =
            [pane("One", Some(&plain)), pane("Two", Some(&with_trivial)), pane("Three", None)];
        let svg = mse_panels("All", 2, &panes);
        let texts = texts(&svg);
        for title in ["(a) One", "(b) Two", "(c) Three", "1000 × 77, best kernel: 6", NOT_AVAILABLE]
        {
            assert_eq!(texts.iter().filter(|text| **text == title).count(), 1, "{title}");
        }
        let first = texts.iter().position(|text| *text == "mk").unwrap();
        let legend = [
            "mk",
            "mk:voters",
            "naive",
            "local",
            "sk, best kernel",
            "sk, other kernels",
            "central",
        ];
        assert_eq!(texts[first..first + 7], legend);
        assert_eq!(texts[first + 7..first + 10], ["hindsight", "last", "mean"]);
        // In the first column of charts and below the last of each column.
        assert_eq!(texts.iter().filter(|text| **text == "MSE(t)").count(), 1);
        assert_eq!(texts.iter().filter(|text| **text == "round t").count(), 2);
        assert!(svg.contains("Three: not available."), "for those who can't see it");
    }

    #[test]
    fn charts_keep_off_each_other_and_on_the_sheet() {
        for (columns, panes) in [(1, 1), (2, 6), (3, 3), (3, 7), (6, 12)] {
            let sheet = Sheet::new(columns, panes, 9);
            for place in 0..panes {
                let Frame { left, right, top, bottom } = sheet.frame(place);
                assert!(
                    left >= 60.0 && right - left > 180.0 && right < sheet.width,
                    "{columns} {place}"
                );
                assert!(
                    top > HEAD + 40.0
                        && bottom - top > 150.0
                        && bottom + 33.0 < sheet.legend_top - 10.0
                );
                // Room for the names of the next axis.
                if !(place + 1).is_multiple_of(columns) {
                    assert!(sheet.frame(place + 1).left - right >= 50.0);
                }
            }
            let (left, top) = sheet.legend_spot(8);
            assert!(left + LEGEND_CELL < sheet.width + 50.0 && top + 20.0 < sheet.height);
        }
    }

    #[test]
    fn luck_in_the_first_rounds_does_not_stretch_the_axis() {
        let mut results = results(3, 100, 2);
        let found = errors::errors(&results, errors::Error::Running).unwrap();
        let plain = found.settled_axis().unwrap();
        results.methods[0].curve.mse[3].mean = 1e-9;
        let found = errors::errors(&results, errors::Error::Running).unwrap();
        assert_eq!(found.settled_axis().unwrap().low(), plain.low());
        let svg = mse_panels("All", 2, &[pane("One", Some(&results))]);
        assert!(svg.contains("drawn at its lower end"));
        results.methods[0].curve.mse[60].mean = 1e-9;
        let found = errors::errors(&results, errors::Error::Running).unwrap();
        assert!(found.settled_axis().unwrap().low() < 1e-9);
    }

    #[test]
    fn every_extreme_is_drawn_somewhere() {
        let mut zero = results(2, 5, 1);
        zero.methods.iter_mut().for_each(|method| {
            method.mse = Moments::default();
            method.curve.mse.fill(Moments::default());
        });
        let mut wild = results(3, 20, 2);
        for (t, value) in [f64::NAN, f64::INFINITY, 1e300, 1e-320, -1.0].into_iter().enumerate() {
            wild.methods[0].curve.mse[t] = Moments { mean: value, sd: value };
        }
        let mut nothing = results(3, 5, 2);
        nothing.methods.clear();
        let (one, many) = (results(1, 1, 1), results(1000, 3, 2));
        let all =
            [&zero, &wild, &nothing, &one, &many].map(|results| pane("<b>&\u{1}", Some(results)));
        for panes in [&all[..], &all[..1], &[]] {
            for columns in [0, 1, 3, usize::MAX] {
                let svg = mse_panels("<b>", columns, panes);
                assert!(!svg.contains("NaN") && !svg.contains("\"inf") && !svg.contains("<b>"));
                assert!(!svg.contains('\u{1}'));
            }
            let convergence = super::super::convergence::convergence_panels("<b>", "mk", panes);
            assert!(!convergence.contains("<b>"));
        }
        let svg = mse_panels("All", 2, &all);
        assert!(
            svg.contains("Every error is zero.")
                && svg.contains("No course of the error is known.")
        );
    }

    #[test]
    fn what_differs_between_runs_is_not_said_of_all() {
        let (few, many) = (results(3, 50, 4), results(3, 50, 9));
        let svg =
            |other| mse_panels("All", 2, &[pane("One", Some(&few)), pane("Two", Some(other))]);
        assert!(svg(&few).contains("4 trials") && !svg(&many).contains("4 trials"));
    }
}
