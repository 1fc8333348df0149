//! Figures of one method's predictions: over time, against their labels, and how many labels are
//! within their intervals.

use hedgerow_data::text::counted;
use hedgerow_lab::results::{CoursePoint, DeviceCourse, MethodResult, Results};

use super::chart::{Chart, Entry, Key, Mark, Readout, Shape, Words, shortened};
use super::dates;
use super::number::{percent, significant};
use super::palette::{self, LineStyle, SOFT_INK};
use super::scale::{Axis, Spacing};
use super::series::{self, Line, Point, last_round, points};
use super::words;

/// Which predictions of a device.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Stretch {
    /// The latest, without gaps.
    Recent,
    /// Evenly over the whole run.
    Whole,
}

impl Stretch {
    pub(crate) fn of(self, course: &DeviceCourse) -> &[CoursePoint] {
        match self {
            Self::Recent => &course.recent,
            Self::Whole => &course.whole,
        }
    }
}

/// The name of a device: that of the data, or else its number from 1.
pub(crate) fn device_name(results: &Results, node: usize) -> String {
    results.node_names.get(node).cloned().unwrap_or_else(|| (node + 1).to_string())
}

/// What the device is among the devices with a course, which are ordered by their errors.
pub(crate) fn rank(place: usize, devices: usize) -> &'static str {
    match place {
        _ if devices == 1 => "",
        0 => "worst",
        place if place + 1 == devices => "best",
        place if 2 * place + 1 == devices => "typical",
        _ => "",
    }
}

/// The name of the label, for axes.
fn target(results: &Results) -> String {
    match results.data.target.as_str() {
        "" => "label".to_owned(),
        target => shortened(target, 40),
    }
}

/// Labels, predictions and intervals at a device over time; none if there are no predictions.
pub(crate) fn course_chart(
    results: &Results,
    method: &MethodResult,
    place: usize,
    stretch: Stretch,
) -> Option<Chart> {
    let devices = &method.sampled.as_ref()?.devices;
    let course = devices.get(place)?;
    let points = stretch.of(course);
    let times = times(points);
    let across = |point: &CoursePoint| match times {
        Some(_) => point.time.unwrap_or_default(),
        None => point.round as f64,
    };
    let (first, last) = (across(points.first()?), across(points.last()?));
    let line = |label: String, style: LineStyle, value: &dyn Fn(&CoursePoint) -> (f32, f32)| {
        let point = |point: &CoursePoint| {
            let (mean, sd) = value(point);
            Point { round: across(point), mean: f64::from(mean), sd: f64::from(sd) }
        };
        let points = points.iter().map(point).collect();
        Line { label, method: String::new(), style, points, in_hindsight: false }
    };
    let style = LineStyle { width: 1.7, ..palette::method(results, &method.name) };
    let interval = format!("interval of {}", percent(results.interval));
    let plain = LineStyle { opacity: 0.6, ..LineStyle::solid(SOFT_INK, 2.4) };
    let truth = line("truth".into(), plain, &|point| (point.truth, 0.0));
    let value =
        line(format!("prediction of {}", method.label()), style, &|point| (point.value, 0.0));
    let band = line(interval.clone(), style, &|point| (point.value, point.margin.unwrap_or(0.0)));
    let has_intervals = points.iter().any(|point| point.margin.is_some());
    let mut marks = Vec::new();
    if has_intervals {
        let shape = Shape::Band(band.clone());
        marks.push(Mark { shape, entry: interval.clone(), readout: Readout::Never });
    }
    marks.extend([Mark::line(&truth), Mark::line(&value)]);
    let mut legend = vec![
        Entry::plain(&truth.label, Key::Line(truth.style)),
        Entry::plain(&value.label, Key::Line(value.style)),
    ];
    if has_intervals {
        let pale = palette::WHITE.mixed(style.color, 0.3);
        legend.push(Entry::plain(interval, Key::Patch(pale)));
    }
    let device = device_name(results, course.node as usize);
    let rank = match rank(place, devices.len()) {
        "" => String::new(),
        rank => format!("the {rank} of {} devices, ", results.nodes),
    };
    let kept = match stretch {
        Stretch::Recent => format!("the latest {}", counted(points.len(), "prediction")),
        Stretch::Whole => {
            format!("{}, evenly over the run", counted(points.len(), "prediction"))
        }
    };
    let mut words = words(results, "Predictions and truth", &target(results));
    words.subtitle = format!("Device {}: {rank}{kept}", shortened(&device, 40));
    let (x, when) = match times {
        Some((from, to)) => {
            words.x = format!("time, from {} to {}", dates::in_words(from), dates::in_words(to));
            (Axis::dates(first, last), dates::in_words(to))
        }
        None => (Axis::rounds_from(first, last), format!("round {last}")),
    };
    let ends = points.last()?;
    let described = format!(
        "At {when}, the label is {} and the prediction {}.",
        significant(f64::from(ends.truth), 4),
        significant(f64::from(ends.value), 4)
    );
    let y = value_axis(&[&truth, &value], &band);
    Some(Chart {
        words,
        described,
        x,
        y,
        marks,
        legend_heading: "",
        legend,
        note: "Each prediction was made before its label was known.".to_owned(),
    })
}

/// The first and the last time, if all points have one and none goes back.
fn times(points: &[CoursePoint]) -> Option<(f64, f64)> {
    let times: Option<Vec<f64>> = points.iter().map(|point| point.time).collect();
    let times = times.filter(|times| times.is_sorted())?;
    Some((*times.first()?, *times.last()?)).filter(|(first, last)| first < last)
}

/// An axis for lines and as much of their band as leaves them most of the height.
fn value_axis(lines: &[&Line], band: &Line) -> Axis {
    let values = || lines.iter().flat_map(|line| &line.points).map(|point| point.mean);
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
    let most = (high - low) * 0.35;
    let ends = band.points.iter().flat_map(|point| [point.mean - point.sd, point.mean + point.sd]);
    Axis::around(values().chain(ends.map(|end| end.clamp(low - most, high + most))))
}

/// Labels across, predictions up; none if there are none.
pub(crate) fn scatter_chart(results: &Results, method: &MethodResult) -> Option<Chart> {
    let pairs = &method.sampled.as_ref()?.scatter;
    let spots: Vec<(f64, f64)> =
        pairs.iter().map(|[truth, value]| (f64::from(*truth), f64::from(*value))).collect();
    if spots.is_empty() {
        return None;
    }
    let axis = Axis::around(spots.iter().flat_map(|(truth, value)| [*truth, *value]));
    let (low, high) = (axis.low(), axis.high());
    let ends = [low, high].map(|end| Point { round: end, mean: end, sd: 0.0 });
    let guide = Line::guide("no error".to_owned(), ends.to_vec());
    let style = palette::method(results, &method.name);
    let label = format!("predictions of {}", method.label());
    let dots = Shape::Dots { spots, color: style.color };
    let target = target(results);
    let words = Words {
        x: format!("{target}: truth"),
        y: format!("{target}: prediction"),
        ..words(results, "Predictions against truth", "")
    };
    let explained = method.r2.filter(|r2| r2.is_finite());
    let described = explained.map_or(String::new(), |r2| {
        format!("Predictions explain {} of the variance of the labels.", percent(r2.max(0.0)))
    });
    Some(Chart {
        words,
        described,
        x: axis,
        y: axis,
        marks: vec![
            Mark::quiet(&guide, &guide.label, Readout::Never),
            Mark { shape: dots, entry: label.clone(), readout: Readout::Never },
        ],
        legend_heading: "",
        legend: vec![
            Entry::plain(label, Key::Patch(style.color)),
            Entry::plain(&guide.label, Key::Line(guide.style)),
        ],
        note: format!("Predictions of the first trial, drawn from all devices: {}.", pairs.len()),
    })
}

/// The share of labels within their intervals over a sliding window, of the subject and of the
/// baseline; none without intervals.
pub(crate) fn coverage_chart(results: &Results, subject: &MethodResult) -> Option<Chart> {
    let is_baseline =
        |method: &&MethodResult| method.info().is_baseline && !std::ptr::eq(*method, subject);
    let shown = [subject].into_iter().chain(results.methods.iter().find(is_baseline));
    let lines: Vec<Line> = shown
        .map(|method| {
            Line::of(results, method, points(&method.curve.rounds, &method.curve.coverage))
        })
        .filter(|line| !line.points.is_empty())
        .collect();
    let last = lines.first().map(|_| last_round(&lines))?;
    let level = results.interval;
    let ends = [0.0, last].map(|round| Point { round, mean: level, sd: 0.0 });
    let guide = Line::guide(format!("target, {}", percent(level)), ends.to_vec());
    // Windows that are not full yet say little.
    let full = |point: &&Point| point.round >= (results.window as f64).min(last);
    let values = || lines.iter().flat_map(|line| line.points.iter().filter(full));
    let low = values().map(|point| point.mean - point.sd).fold(level, f64::min) - 0.03;
    let high = values().map(|point| point.mean + point.sd).fold(level, f64::max) + 0.03;
    let mut legend = Entry::ranked(&lines);
    legend.push(Entry::plain(&guide.label, Key::Line(guide.style)));
    let share = "share of labels within their interval";
    Some(Chart {
        words: words(results, "Coverage of intervals over time", share),
        described: series::describe(&lines, "Share of labels within their interval"),
        x: Axis::rounds(Spacing::Linear, last),
        y: Axis::exactly(low.max(0.0)..=high.min(1.0)),
        marks: [Mark::quiet(&guide, &guide.label, Readout::Never)]
            .into_iter()
            .chain(Mark::lines(&lines))
            .collect(),
        legend_heading: "at the end",
        legend,
        note: format!(
            "{}Over the last {} rounds of all devices.",
            super::spread_note(results),
            results.window
        ),
    })
}
