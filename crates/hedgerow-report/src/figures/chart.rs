//! A chart: heading, axes, grid, content and a legend beside it.

use plotters::style::text_anchor::HPos;
use plotters::style::{RGBColor, WHITE};

use super::canvas::{Canvas, DrawError, HEIGHT, Spot, WIDTH, Writing};
use super::palette::{self, Dash, INK, LineStyle};
use super::scale::{Axis, Spacing};
use super::series::Line;

/// Where the axes stand, in pixels.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// Of the only chart on a sheet, with room for a legend so wide beside it.
    pub(super) fn alone(legend: f64) -> Self {
        Self { left: 74.0, right: WIDTH - legend, top: 66.0, bottom: HEIGHT - 74.0 }
    }
}

/// What a usual legend needs.
pub(super) const LEGEND: f64 = 196.0;

/// What a legend with numbers needs for these names, within bounds.
pub(super) fn legend_for<'l>(names: impl Iterator<Item = &'l str>) -> f64 {
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    (LEGEND + 6.4 * longest.saturating_sub(14) as f64).min(1.5 * LEGEND)
}

pub(super) const SOFT_INK: RGBColor = RGBColor(0x5a, 0x60, 0x68);
pub(super) const GRID: RGBColor = RGBColor(0xdd, 0xe0, 0xe4);
pub(super) const FINE_GRID: RGBColor = RGBColor(0xf0, 0xf2, 0xf4);

const LEGEND_ROW: f64 = 19.0;
/// Rows that fit beside the frame.
const LEGEND_ROWS: usize = 17;

/// The words around a chart.
pub(super) struct Words {
    pub(super) title: String,
    pub(super) subtitle: String,
    pub(super) x: String,
    pub(super) y: String,
}

/// One row of the legend.
pub(super) struct Entry {
    pub(super) label: String,
    pub(super) key: Key,
    /// A number at the end of the row; may be empty.
    pub(super) value: String,
    pub(super) bold: bool,
}

/// What a row of the legend shows of the picture.
pub(super) enum Key {
    Line(LineStyle),
    Patch(RGBColor),
    /// There is nothing of it in the picture.
    Nothing,
}

pub(super) struct Chart<'c, 'a> {
    canvas: &'c Canvas<'a>,
    frame: Frame,
    x: Axis,
    y: Axis,
}

impl<'c, 'a> Chart<'c, 'a> {
    /// An empty chart: words and grid.
    pub(super) fn new(
        canvas: &'c Canvas<'a>,
        frame: Frame,
        words: &Words,
        (x, y): (Axis, Axis),
    ) -> Result<Self, DrawError> {
        let chart = Self::blank(canvas, frame, words, (x, y))?;
        chart.grid((7, 6), 11.5)?;
        Ok(chart)
    }

    /// One of several on a sheet: a grid with few names, and no words.
    pub(super) fn small(
        canvas: &'c Canvas<'a>,
        frame: Frame,
        (x, y): (Axis, Axis),
    ) -> Result<Self, DrawError> {
        let chart = Self { canvas, frame, x, y };
        chart.grid((4, 4), 10.5)?;
        Ok(chart)
    }

    /// A box that has no axes.
    pub(super) fn framed(canvas: &'c Canvas<'a>, frame: Frame) -> Result<Self, DrawError> {
        let chart =
            Self { canvas, frame, x: Axis::exactly(0.0..=1.0), y: Axis::exactly(0.0..=1.0) };
        let Frame { left, right, top, bottom } = frame;
        for (from, to) in [((left, top), (right, top)), ((right, top), (right, bottom))] {
            chart.rule(from, to, GRID)?;
            let opposite = |(x, y): Spot| (left + right - x, top + bottom - y);
            chart.rule(opposite(from), opposite(to), GRID)?;
        }
        Ok(chart)
    }

    /// The words alone.
    pub(super) fn blank(
        canvas: &'c Canvas<'a>,
        frame: Frame,
        words: &Words,
        (x, y): (Axis, Axis),
    ) -> Result<Self, DrawError> {
        let chart = Self { canvas, frame, x, y };
        let Frame { left, right, top, bottom } = frame;
        let plain =
            Writing { size: 12.5, color: INK, bold: false, anchor: HPos::Left, upwards: false };
        canvas.text(
            &shortened(&words.title, 80),
            (left, 20.0),
            Writing { size: 15.5, bold: true, ..plain },
        )?;
        canvas.text(
            &shortened(&words.subtitle, 120),
            (left, 42.0),
            Writing { color: SOFT_INK, ..plain },
        )?;
        let centered = Writing { size: 13.0, anchor: HPos::Center, ..plain };
        canvas.text(&words.x, ((left + right) / 2.0, bottom + 38.0), centered)?;
        canvas.text(
            &words.y,
            (16.0, (top + bottom) / 2.0),
            Writing { upwards: true, ..centered },
        )?;
        Ok(chart)
    }

    fn grid(&self, about: (usize, usize), size: f64) -> Result<(), DrawError> {
        let Frame { left, right, top, bottom } = self.frame;
        let writing =
            Writing { size, color: SOFT_INK, bold: false, anchor: HPos::Center, upwards: false };
        // The fine grid first, so that no line of it crosses a named one.
        let (x, y) = (self.x.ticks(about.0), self.y.ticks(about.1));
        for fine in [true, false] {
            let color = if fine { FINE_GRID } else { GRID };
            for tick in x.iter().filter(|tick| tick.label.is_empty() == fine) {
                let (across, _) = self.spot(tick.value, self.y.low());
                self.rule((across, top), (across, bottom), color)?;
                self.canvas.text(&tick.label, (across, bottom + 16.0), writing)?;
            }
            for tick in y.iter().filter(|tick| tick.label.is_empty() == fine) {
                let (_, up) = self.spot(self.x.low(), tick.value);
                self.rule((left, up), (right, up), color)?;
                let right_aligned = Writing { anchor: HPos::Right, ..writing };
                self.canvas.text(&tick.label, (left - 8.0, up), right_aligned)?;
            }
        }
        Ok(())
    }

    /// The two axes, over everything that touches them.
    pub(super) fn axes(&self) -> Result<(), DrawError> {
        let Frame { left, right, top, bottom } = self.frame;
        self.rule((left, bottom), (right, bottom), SOFT_INK)?;
        self.rule((left, top), (left, bottom), SOFT_INK)
    }

    /// Small print below, in up to two lines.
    pub(super) fn note(&self, note: &str) -> Result<(), DrawError> {
        let left = self.frame.left;
        let small = Writing {
            size: 10.5,
            color: SOFT_INK,
            bold: false,
            anchor: HPos::Left,
            upwards: false,
        };
        match note.split_once('\n') {
            Some((first, second)) => {
                self.canvas.text(first, (left, HEIGHT - 20.0), small)?;
                self.canvas.text(second, (left, HEIGHT - 7.0), small)
            }
            None => self.canvas.text(note, (left, HEIGHT - 12.0), small),
        }
    }

    /// A sentence in the middle of the frame where there is nothing to draw.
    pub(super) fn instead(&self, sentence: &str) -> Result<(), DrawError> {
        let Frame { left, right, top, bottom } = self.frame;
        let middle = ((left + right) / 2.0, (top + bottom) / 2.0);
        let writing = Writing {
            size: 12.5,
            color: SOFT_INK,
            bold: false,
            anchor: HPos::Center,
            upwards: false,
        };
        self.canvas.text(sentence, middle, writing)
    }

    fn rule(&self, from: Spot, to: Spot, color: RGBColor) -> Result<(), DrawError> {
        self.canvas
            .line(&[from, to], LineStyle { color, dash: Dash::Solid, width: 1.0, opacity: 1.0 })
    }

    fn spot(&self, x: f64, y: f64) -> Spot {
        let Frame { left, right, top, bottom } = self.frame;
        let (across, up) = (self.x.position(x), self.y.position(y));
        (left + (right - left) * across, bottom - (bottom - top) * up)
    }

    /// A line through the means. Gaps where a logarithmic axis has no place for a value would hide
    /// it: it is drawn at the edge.
    pub(super) fn line(&self, line: &Line) -> Result<(), DrawError> {
        let spots: Vec<Spot> =
            line.points.iter().map(|point| self.spot(point.round, point.mean)).collect();
        self.canvas.line(&spots, line.style)
    }

    /// Mean ± standard deviation as a shade; as a bar where there is one point only.
    pub(super) fn band(&self, line: &Line) -> Result<(), DrawError> {
        if line.points.iter().all(|point| point.sd <= 0.0) {
            return Ok(());
        }
        if let [point] = line.points.as_slice() {
            let ends =
                [point.mean - point.sd, point.mean + point.sd].map(|y| self.spot(point.round, y));
            return self.canvas.line(&ends, LineStyle { width: 1.0, ..line.style });
        }
        let upper = line.points.iter().map(|point| self.spot(point.round, point.mean + point.sd));
        let lower =
            line.points.iter().rev().map(|point| self.spot(point.round, point.mean - point.sd));
        let outline: Vec<Spot> = upper.chain(lower).collect();
        self.canvas.area(&outline, line.style.color, 0.16)
    }

    /// What was measured at one place, from the least to the most.
    pub(super) fn range(
        &self,
        x: f64,
        (least, most): (f64, f64),
        style: LineStyle,
    ) -> Result<(), DrawError> {
        self.canvas
            .line(&[least, most].map(|y| self.spot(x, y)), LineStyle { opacity: 0.6, ..style })
    }

    /// A straight line, on these axes, between two points.
    pub(super) fn guide(&self, ends: [(f64, f64); 2]) -> Result<(), DrawError> {
        self.canvas.line(&ends.map(|(x, y)| self.spot(x, y)), palette::GUIDE)
    }

    /// Rounds in which the data changes: a line, or a shade where it takes longer.
    pub(super) fn change(&self, from: f64, to: f64) -> Result<(), DrawError> {
        let (low, high) = (self.y.low(), self.y.high());
        let corners =
            [(from, low), (from, high), (to, high), (to, low)].map(|(x, y)| self.spot(x, y));
        if corners[2].0 - corners[1].0 < 3.0 {
            return self.canvas.line(&corners[..2], palette::CHANGE);
        }
        self.canvas.area(&corners, palette::CHANGE.color, 0.13)
    }

    /// Areas on top of each other. Each is drawn down to the floor and covered by the ones below
    /// it, so that no seams show.
    pub(super) fn stack(
        &self,
        rounds: &[f64],
        layers: &[(&[f64], RGBColor)],
    ) -> Result<(), DrawError> {
        let mut tops = vec![0.0; rounds.len()];
        let mut outlines = Vec::new();
        for (heights, color) in layers {
            for (top, height) in tops.iter_mut().zip(*heights) {
                *top += height;
            }
            outlines.push((tops.clone(), *color));
        }
        for (i, (tops, color)) in outlines.iter().enumerate().rev() {
            let edge: Vec<Spot> = rounds.iter().zip(tops).map(|(x, y)| self.spot(*x, *y)).collect();
            let floor =
                [rounds.last(), rounds.first()].into_iter().flatten().map(|x| self.spot(*x, 0.0));
            let outline: Vec<Spot> = edge.iter().copied().chain(floor).collect();
            self.canvas.area(&outline, *color, 1.0)?;
            if i + 1 < outlines.len() {
                self.canvas.line(
                    &edge,
                    LineStyle { color: WHITE, dash: Dash::Solid, width: 0.5, opacity: 0.7 },
                )?;
            }
        }
        Ok(())
    }

    /// Rows beside the frame, under a heading for the numbers.
    pub(super) fn legend(&self, heading: &str, entries: &[Entry]) -> Result<(), DrawError> {
        let Frame { right, top, .. } = self.frame;
        let key_left = right + 16.0;
        let text_left = key_left + 30.0;
        let numbers_right = WIDTH - 10.0;
        let plain =
            Writing { size: 12.0, color: INK, bold: false, anchor: HPos::Left, upwards: false };
        let number = Writing { size: 11.0, color: SOFT_INK, anchor: HPos::Right, ..plain };
        self.canvas.text(heading, (numbers_right, top), number)?;
        let mut height = if heading.is_empty() { top + 4.0 } else { top + LEGEND_ROW };
        let shown = if entries.len() > LEGEND_ROWS { LEGEND_ROWS - 1 } else { entries.len() };
        for entry in &entries[..shown] {
            draw_key(self.canvas, &entry.key, (key_left, height))?;
            // Names give way to numbers.
            let number_width = match entry.value.chars().count() {
                0 => 0.0,
                digits => 5.8 * digits as f64 + 6.0,
            };
            let room = ((numbers_right - text_left - number_width) / 6.36) as usize;
            let writing = Writing { bold: entry.bold, ..plain };
            self.canvas.text(&shortened(&entry.label, room), (text_left, height), writing)?;
            self.canvas.text(&entry.value, (numbers_right, height), number)?;
            height += LEGEND_ROW;
        }
        if shown < entries.len() {
            self.canvas.text(
                &format!("and {} more", entries.len() - shown),
                (text_left, height),
                plain,
            )?;
        }
        Ok(())
    }

    /// Whether some value lies below a logarithmic axis.
    pub(super) fn cuts(&self, lines: &[Line]) -> bool {
        self.y.spacing() == Spacing::Log
            && lines.iter().flat_map(|line| &line.points).any(|point| point.mean < self.y.low())
    }
}

/// A piece of the picture, from its left end.
pub(super) fn draw_key(
    canvas: &Canvas<'_>,
    key: &Key,
    (left, height): Spot,
) -> Result<(), DrawError> {
    match *key {
        Key::Line(style) => canvas.line(&[(left, height), (left + 23.0, height)], style),
        Key::Patch(color) => {
            let (from, to) = ((left, height - 5.5), (left + 23.0, height + 5.5));
            canvas.area(&[from, (to.0, from.1), to, (from.0, to.1)], color, 1.0)
        }
        Key::Nothing => Ok(()),
    }
}

pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(std::iter::once('…')).collect()
}
