//! [`Chart`]: the description of a chart, from which figures and pages are drawn.

use super::number;
use super::palette::{self, Color, FINE_GRID, GRID, LineStyle, PAPER, SOFT_INK};
use super::scale::{Axis, Spacing};
use super::series::{Line, Point};
use super::svg::{Anchor, HEIGHT, PLAIN, SMALL, SUBTITLE, Spot, Svg, TITLE, WIDTH, Writing};

/// Everything that a chart shows.
pub(crate) struct Chart {
    pub(crate) words: Words,
    /// The chart in words, for readers who can't see it.
    pub(crate) described: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// What is drawn between the axes, the lowest first.
    pub(crate) marks: Vec<Mark>,
    /// What the numbers of the legend are.
    pub(crate) legend_heading: &'static str,
    pub(crate) legend: Vec<Entry>,
    /// Small print below a figure, in up to two lines.
    pub(crate) note: String,
}

/// The words around a figure of methods.
pub(crate) struct Heading<'h> {
    pub(crate) title: &'h str,
    pub(crate) subtitle: &'h str,
    pub(crate) note: &'h str,
}

/// The words around a chart.
#[derive(Clone)]
pub(crate) struct Words {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) x: String,
    pub(crate) y: String,
}

/// One row of a legend.
pub(crate) struct Entry {
    pub(crate) label: String,
    pub(crate) key: Key,
    /// A number at the end of the row; may be empty.
    pub(crate) value: String,
    pub(crate) bold: bool,
}

/// How a row of the legend shows what it names.
pub(crate) enum Key {
    Line(LineStyle),
    Patch(Color),
    /// It is not in the chart.
    Nothing,
}

/// One thing between the axes.
pub(crate) struct Mark {
    pub(crate) shape: Shape,
    /// The label of the legend's row that it belongs to; empty for none.
    pub(crate) entry: String,
    pub(crate) readout: Readout,
}

/// What is drawn.
pub(crate) enum Shape {
    /// A line through the means.
    Line(Line),
    /// Mean ± standard deviation as a shade; as a bar where there is one point only.
    Band(Line),
    /// What was measured at one place, from the least to the most.
    Range { x: f64, ends: (f64, f64), style: LineStyle },
    /// An area from the floor to its tops, below the layers drawn before it.
    Layer { rounds: Vec<f64>, tops: Vec<f64>, color: Color, has_edge: bool },
    /// Places across and up.
    Dots { spots: Vec<(f64, f64)>, color: Color },
    /// Rounds in which the data changes: a line, or a shade where it takes longer.
    Change { from: f64, to: f64 },
}

/// Whether a page shows the value at the pointer.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Readout {
    Always,
    /// Only if no other line is nearer.
    Nearest,
    Never,
}

impl Mark {
    pub(crate) fn line(line: &Line) -> Self {
        Self {
            shape: Shape::Line(line.clone()),
            entry: line.label.clone(),
            readout: Readout::Always,
        }
    }

    /// A line that belongs to the entry of another, or to that of a group.
    pub(crate) fn quiet(line: &Line, entry: &str, readout: Readout) -> Self {
        Self { shape: Shape::Line(line.clone()), entry: entry.to_owned(), readout }
    }

    /// The spread of a line; none if it has none.
    pub(crate) fn band(line: &Line) -> Option<Self> {
        line.points.iter().any(|point| point.sd > 0.0).then(|| Self {
            shape: Shape::Band(line.clone()),
            entry: line.label.clone(),
            readout: Readout::Never,
        })
    }

    /// What has no entry in the legend.
    pub(crate) fn plain(shape: Shape) -> Self {
        Self { shape, entry: String::new(), readout: Readout::Never }
    }

    /// Spreads below all lines, the first line on top.
    pub(crate) fn lines(lines: &[Line]) -> impl Iterator<Item = Self> {
        let bands = lines.iter().rev().filter_map(Self::band);
        bands.chain(lines.iter().rev().map(Self::line))
    }
}

impl Entry {
    pub(crate) fn plain(label: impl Into<String>, key: Key) -> Self {
        Self { label: label.into(), key, value: String::new(), bold: false }
    }

    /// The entries of lines in the order in which they end, highest first.
    pub(crate) fn ranked(lines: &[Line]) -> Vec<Self> {
        let mut ranked: Vec<&Line> = lines.iter().collect();
        ranked.sort_by(|a, b| b.last().total_cmp(&a.last()));
        let entry = |line: &Line| Self {
            label: line.label.clone(),
            key: Key::Line(line.style),
            value: number::significant(line.last(), 3),
            bold: palette::is_bold(&line.method),
        };
        ranked.into_iter().map(entry).collect()
    }
}

/// Where the axes stand, in pixels.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

/// What a usual legend beside a chart needs.
const LEGEND_WIDTH: f64 = 196.0;
const LEGEND_ROW: f64 = 19.0;
/// Rows that fit beside the frame.
const LEGEND_ROWS: usize = 17;

impl Chart {
    /// A figure of its own: an SVG document.
    pub(crate) fn sheet(&self) -> String {
        self.document(|svg, frame| {
            plot(svg, frame, (&self.x, &self.y), &self.marks, TICKS);
            note(svg, frame, &self.note);
            self.draw_legend(svg, frame);
        })
    }

    /// The figure with a sentence in place of the axes and what is between them.
    pub(crate) fn sheet_with_sentence(&self, sentence: &str) -> String {
        self.document(|svg, frame| instead(svg, frame, sentence))
    }

    fn document(&self, paint: impl FnOnce(&mut Svg, Frame)) -> String {
        let frame = Frame::of_sheet(self.legend_width());
        let described = format!("{}. {}", self.words.title, self.described);
        Svg::document(described.trim_end(), (WIDTH, HEIGHT), |svg| {
            draw_words(svg, frame, &self.words);
            paint(svg, frame);
        })
    }

    /// Room for the longest name, within bounds.
    fn legend_width(&self) -> f64 {
        let with_numbers = self.legend.iter().filter(|entry| !entry.value.is_empty());
        let length = |entry: &Entry| {
            entry.label.chars().count() + entry.value.chars().count().saturating_sub(7)
        };
        let longest = with_numbers.map(length).max().unwrap_or(0);
        (LEGEND_WIDTH + 6.4 * longest.saturating_sub(14) as f64).min(1.5 * LEGEND_WIDTH)
    }

    /// Rows beside the frame, under a heading for the numbers.
    fn draw_legend(&self, svg: &mut Svg, Frame { right, top, .. }: Frame) {
        let key_left = right + 16.0;
        let text_left = key_left + 30.0;
        let numbers_right = WIDTH - 10.0;
        let number = Writing { size: 11.0, color: SOFT_INK, anchor: Anchor::End, ..PLAIN };
        svg.text(self.legend_heading, (numbers_right, top), number);
        let mut height = top + if self.legend_heading.is_empty() { 4.0 } else { LEGEND_ROW };
        let entries = &self.legend;
        let shown = if entries.len() > LEGEND_ROWS { LEGEND_ROWS - 1 } else { entries.len() };
        for entry in &entries[..shown] {
            draw_key(svg, &entry.key, (key_left, height));
            // Names give way to numbers.
            let number_width = match entry.value.chars().count() {
                0 => 0.0,
                digits => 5.8 * digits as f64 + 6.0,
            };
            let room = ((numbers_right - text_left - number_width) / 6.36) as usize;
            let writing = Writing { bold: entry.bold, ..PLAIN };
            svg.text(&shortened(&entry.label, room), (text_left, height), writing);
            svg.text(&entry.value, (numbers_right, height), number);
            height += LEGEND_ROW;
        }
        if shown < entries.len() {
            let more = format!("and {} more", entries.len() - shown);
            svg.text(&more, (text_left, height), PLAIN);
        }
    }
}

/// About how many ticks the axes of a large chart have, and the size of their numbers.
pub(super) const TICKS: (usize, usize, f64) = (7, 6, 11.5);
/// The same for one of several charts on a sheet.
pub(super) const FEW_TICKS: (usize, usize, f64) = (4, 4, 10.5);

/// Title and subtitle; the title has at most `most` characters.
pub(super) fn head(svg: &mut Svg, left: f64, (title, most): (&str, usize), subtitle: &str) {
    svg.text(&shortened(title, most), (left, 20.0), TITLE);
    svg.text(&shortened(subtitle, most * 3 / 2), (left, 42.0), SUBTITLE);
}

/// Title, subtitle and names of the axes.
pub(super) fn draw_words(svg: &mut Svg, frame: Frame, words: &Words) {
    let (across, up) = frame.middle();
    head(svg, frame.left, (&words.title, 80), &words.subtitle);
    let centered = Writing { size: 13.0, anchor: Anchor::Middle, ..PLAIN };
    svg.text(&words.x, (across, frame.bottom + 38.0), centered);
    svg.text(&words.y, (16.0, up), Writing { upwards: true, ..centered });
}

/// Small print below, in up to two lines.
pub(super) fn note(svg: &mut Svg, Frame { left, .. }: Frame, note: &str) {
    match note.split_once('\n') {
        Some((first, second)) => {
            svg.text(first, (left, HEIGHT - 20.0), SMALL);
            svg.text(second, (left, HEIGHT - 7.0), SMALL);
        }
        None => svg.text(note, (left, HEIGHT - 12.0), SMALL),
    }
}

/// Grid, marks and axes, with about this number of ticks across and up, and numbers of this size.
pub(super) fn plot(
    svg: &mut Svg,
    frame: Frame,
    axes: (&Axis, &Axis),
    marks: &[Mark],
    ticks: (usize, usize, f64),
) {
    grid(svg, frame, axes, ticks);
    for mark in marks {
        shape(svg, frame, axes, &mark.shape);
    }
    rules(svg, frame);
}

pub(super) fn grid(
    svg: &mut Svg,
    frame: Frame,
    (x, y): (&Axis, &Axis),
    (across, up, size): (usize, usize, f64),
) {
    let Frame { left, right, top, bottom } = frame;
    let writing = Writing { size, color: SOFT_INK, anchor: Anchor::Middle, ..PLAIN };
    let (x_ticks, y_ticks) = (x.ticks(across), y.ticks(up));
    // The fine grid first, so that no line of it crosses a named one.
    for fine in [true, false] {
        let color = if fine { FINE_GRID } else { GRID };
        for tick in x_ticks.iter().filter(|tick| tick.label.is_empty() == fine) {
            let (across, _) = frame.spot((x, y), tick.value, y.low());
            rule(svg, (across, top), (across, bottom), color);
            svg.text(&tick.label, (across, bottom + 16.0), writing);
        }
        for tick in y_ticks.iter().filter(|tick| tick.label.is_empty() == fine) {
            let (_, up) = frame.spot((x, y), x.low(), tick.value);
            rule(svg, (left, up), (right, up), color);
            svg.text(&tick.label, (left - 8.0, up), Writing { anchor: Anchor::End, ..writing });
        }
    }
}

/// The two axes, over everything that touches them.
pub(super) fn rules(svg: &mut Svg, Frame { left, right, top, bottom }: Frame) {
    rule(svg, (left, bottom), (right, bottom), SOFT_INK);
    rule(svg, (left, top), (left, bottom), SOFT_INK);
}

pub(super) fn shape(svg: &mut Svg, frame: Frame, axes: (&Axis, &Axis), shape: &Shape) {
    let spot = |x: f64, y: f64| frame.spot(axes, x, y);
    match shape {
        // A value beyond the axis is drawn at its end: a gap would hide it.
        Shape::Line(line) => {
            let spots: Vec<Spot> =
                line.points.iter().map(|point| spot(point.round, point.mean)).collect();
            svg.line(&spots, line.style);
        }
        Shape::Band(line) => {
            let ends = |point: &Point, sign: f64| spot(point.round, point.mean + sign * point.sd);
            if let [point] = line.points.as_slice() {
                let style = LineStyle { width: 1.0, ..line.style };
                return svg.line(&[ends(point, -1.0), ends(point, 1.0)], style);
            }
            let upper = line.points.iter().map(|point| ends(point, 1.0));
            let lower = line.points.iter().rev().map(|point| ends(point, -1.0));
            svg.area(&upper.chain(lower).collect::<Vec<_>>(), line.style.color, 0.16);
        }
        Shape::Range { x, ends: (least, most), style } => {
            let ends = [spot(*x, *least), spot(*x, *most)];
            svg.line(&ends, LineStyle { opacity: 0.6, ..*style });
        }
        Shape::Layer { rounds, tops, color, has_edge } => {
            let edge: Vec<Spot> = rounds.iter().zip(tops).map(|(x, y)| spot(*x, *y)).collect();
            let floor = [rounds.last(), rounds.first()].into_iter().flatten();
            let outline: Vec<Spot> =
                edge.iter().copied().chain(floor.map(|x| spot(*x, 0.0))).collect();
            svg.area(&outline, *color, 1.0);
            if *has_edge {
                svg.line(&edge, LineStyle { opacity: 0.7, ..LineStyle::solid(PAPER, 0.5) });
            }
        }
        Shape::Dots { spots, color } => {
            let spots: Vec<Spot> = spots.iter().map(|(x, y)| spot(*x, *y)).collect();
            svg.dots(&spots, *color);
        }
        Shape::Change { from, to } => {
            let (low, high) = (axes.1.low(), axes.1.high());
            let corners =
                [(*from, low), (*from, high), (*to, high), (*to, low)].map(|(x, y)| spot(x, y));
            if corners[2].0 - corners[1].0 < 3.0 {
                svg.line(&corners[..2], palette::CHANGE);
            } else {
                svg.area(&corners, palette::CHANGE.color, 0.13);
            }
        }
    }
}

impl Frame {
    /// On a sheet with one chart and so much room to the right of it.
    pub(super) fn of_sheet(right: f64) -> Self {
        Self { left: 74.0, right: WIDTH - right, top: 66.0, bottom: HEIGHT - 74.0 }
    }

    pub(super) fn meets(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    pub(super) fn middle(&self) -> Spot {
        ((self.left + self.right) / 2.0, (self.top + self.bottom) / 2.0)
    }

    /// Where a value falls.
    pub(super) fn spot(&self, (x, y): (&Axis, &Axis), across: f64, up: f64) -> Spot {
        let Self { left, right, top, bottom } = *self;
        (left + (right - left) * x.position(across), bottom - (bottom - top) * y.position(up))
    }
}

/// A box without axes and a sentence in it, where there is nothing to draw.
pub(super) fn framed_sentence(svg: &mut Svg, frame: Frame, sentence: &str) {
    let Frame { left, right, top, bottom } = frame;
    let corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
    svg.line(&corners, LineStyle::solid(GRID, 1.0));
    instead(svg, frame, sentence);
}

/// A sentence in the middle of the frame.
pub(super) fn instead(svg: &mut Svg, frame: Frame, sentence: &str) {
    svg.text(sentence, frame.middle(), Writing { anchor: Anchor::Middle, ..SUBTITLE });
}

pub(super) fn rule(svg: &mut Svg, from: Spot, to: Spot, color: Color) {
    svg.line(&[from, to], LineStyle::solid(color, 1.0));
}

/// A piece of what the legend names, from its left end.
pub(super) fn draw_key(svg: &mut Svg, key: &Key, (left, height): Spot) {
    match *key {
        Key::Line(style) => svg.line(&[(left, height), (left + 23.0, height)], style),
        Key::Patch(color) => {
            svg.rectangle((left, height - 5.5), (left + 23.0, height + 5.5), color);
        }
        Key::Nothing => {}
    }
}

/// Whether some value of the lines lies below a logarithmic axis.
pub(super) fn cuts(axis: &Axis, lines: &[Line]) -> bool {
    axis.spacing() == Spacing::Log
        && lines.iter().flat_map(|line| &line.points).any(|point| point.mean < axis.low())
}

/// At most `most` characters, an ellipsis included.
pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.chars().count() <= most {
        true => text.to_owned(),
        false => hedgerow_data::text::shortened(text, most.saturating_sub(1)),
    }
}
