//! A chart as part of a page: its picture, with what the page's script has to know in `data-`
//! attributes, and its legend.

use std::fmt::Write;

use super::chart::{
    Chart, Entry, Frame, Mark, Readout, Shape, TICKS, draw_key, grid, rules, shape,
};
use super::markup::escape;
use super::svg::{Anchor, PLAIN, Svg, Writing};

/// Size of the picture; the script fits it to the page.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const FRAME: Frame = Frame { left: 64.0, right: 748.0, top: 10.0, bottom: 374.0 };

impl Chart {
    /// The picture and the legend, as HTML.
    pub(crate) fn in_page(&self) -> String {
        let described = escape(&self.described);
        let (x_title, y_title) = (escape(&self.words.x), escape(&self.words.y));
        let Frame { left, right, top, bottom } = FRAME;
        let (width, height) = (right - left, bottom - top);
        let (x, y) = (self.x.specification(), self.y.specification());
        let shared = rounds(self.marks.iter().find_map(read).unwrap_or_default());
        let (mut grid_shapes, mut marks, mut axes) =
            (Svg::default(), Svg::default(), Svg::default());
        grid(&mut grid_shapes, FRAME, (&self.x, &self.y), TICKS);
        let title = Writing { size: 13.0, anchor: Anchor::Middle, ..PLAIN };
        grid_shapes.text(&self.words.x, ((left + right) / 2.0, HEIGHT - 10.0), title);
        let upwards = Writing { upwards: true, ..title };
        grid_shapes.text(&self.words.y, (12.0, (top + bottom) / 2.0), upwards);
        for mark in &self.marks {
            marks.group(&self.attributes(mark, &shared), |svg| {
                shape(svg, FRAME, (&self.x, &self.y), &mark.shape);
            });
        }
        rules(&mut axes, FRAME);
        let (grid, marks, axes) =
            (grid_shapes.into_shapes(), marks.into_shapes(), axes.into_shapes());
        let heading = escape(self.legend_heading);
        let legend: String = self.legend.iter().enumerate().map(entry).collect();
        format!(
            "<div class=\"plot\"><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-label=\"{described}\" stroke-linejoin=\"round\" data-x=\"{x}\" data-y=\"{y}\" \
             data-x-title=\"{x_title}\" data-y-title=\"{y_title}\" data-rounds=\"{shared}\">\n\
             <g class=\"grid\">\n{grid}</g>\n\
             <svg class=\"marks\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"{left} {top} {width} {height}\" preserveAspectRatio=\"none\">\n{marks}</svg>\n\
             <g class=\"rules\">\n{axes}</g>\n<g class=\"pointer\"></g>\n</svg></div>\n\
             <div class=\"legend\"><p>{heading}</p><ul>\n{legend}</ul></div>\n"
        )
    }

    fn attributes(&self, mark: &Mark, shared: &str) -> String {
        let mut attributes = String::new();
        if let Some(entry) = self.legend.iter().position(|entry| entry.label == mark.entry) {
            _ = write!(attributes, " data-entry=\"{entry}\"");
        }
        let (label, readout) = match (&mark.shape, mark.readout) {
            (_, Readout::Never) => return attributes,
            (Shape::Layer { .. }, _) => (&mark.entry, "layer"),
            (Shape::Line(line), Readout::Nearest) => (&line.label, "nearest"),
            (Shape::Line(line), Readout::Always) => (&line.label, "always"),
            _ => return attributes,
        };
        _ = write!(attributes, " data-label=\"{}\" data-readout=\"{readout}\"", escape(label));
        let own = rounds(read(mark).unwrap_or_default());
        if own != shared {
            _ = write!(attributes, " data-rounds=\"{own}\"");
        }
        attributes
    }
}

/// The rounds of a mark whose values can be read.
fn read(mark: &Mark) -> Option<Vec<f64>> {
    match &mark.shape {
        _ if mark.readout == Readout::Never => None,
        Shape::Line(line) => Some(line.points.iter().map(|point| point.round).collect()),
        Shape::Layer { rounds, .. } => Some(rounds.clone()),
        _ => None,
    }
}

fn rounds(rounds: Vec<f64>) -> String {
    rounds.iter().map(|round| format!("{}", round.round())).collect::<Vec<_>>().join(" ")
}

fn entry((place, entry): (usize, &Entry)) -> String {
    let mut key = Svg::default();
    draw_key(&mut key, &entry.key, (0.5, 6.0));
    let (label, value, key) = (escape(&entry.label), escape(&entry.value), key.into_shapes());
    let label = if entry.bold { format!("<b>{label}</b>") } else { label };
    format!(
        "<li><button type=\"button\" data-entry=\"{place}\" aria-pressed=\"true\">\
         <svg width=\"24\" height=\"12\" aria-hidden=\"true\">{key}</svg><span>{label}</span>\
         <span class=\"value\">{value}</span></button></li>\n"
    )
}
