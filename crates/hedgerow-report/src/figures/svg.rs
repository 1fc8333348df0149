//! An SVG document, written shape by shape. Lengths are pixels from the upper left corner.

use std::fmt::Write;

use super::markup::escape;
use super::palette::{Color, Dash, INK, LineStyle, PAPER, SOFT_INK};

/// Pixels from the left and from the top.
pub(super) type Spot = (f64, f64);

/// Size of a sheet with one chart.
pub(super) const WIDTH: f64 = 820.0;
pub(super) const HEIGHT: f64 = 470.0;

/// Which end of a text is at its spot.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text looks.
#[derive(Clone, Copy)]
pub(super) struct Writing {
    pub(super) size: f64,
    pub(super) color: Color,
    pub(super) bold: bool,
    pub(super) anchor: Anchor,
    pub(super) upwards: bool,
}

/// Usual text, titles, subtitles and small print.
pub(super) const PLAIN: Writing =
    Writing { size: 12.0, color: INK, bold: false, anchor: Anchor::Start, upwards: false };
pub(super) const TITLE: Writing = Writing { size: 15.5, bold: true, ..PLAIN };
pub(super) const SUBTITLE: Writing = Writing { size: 12.5, color: SOFT_INK, ..PLAIN };
pub(super) const SMALL: Writing = Writing { size: 10.5, color: SOFT_INK, ..PLAIN };

/// The shapes written so far.
#[derive(Default)]
pub(super) struct Svg {
    body: String,
}

impl Svg {
    /// A document with a paper background and what `paint` draws; a screen reader says `title`.
    pub(super) fn document(
        title: &str,
        (width, height): (f64, f64),
        paint: impl FnOnce(&mut Self),
    ) -> String {
        let mut svg = Self::default();
        paint(&mut svg);
        let (title, paper) = (escape(title), PAPER.attributes("fill"));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\" stroke-linejoin=\"round\" \
             font-family=\"Helvetica, Arial, sans-serif\"><title>{title}</title>\n\
             <rect width=\"{width}\" height=\"{height}\"{paper}/>\n{}</svg>\n",
            svg.body
        )
    }

    /// The shapes, for an element that the caller writes.
    pub(super) fn into_shapes(self) -> String {
        self.body
    }

    /// A group of what `paint` draws, with ready attributes.
    pub(super) fn group(&mut self, attributes: &str, paint: impl FnOnce(&mut Self)) {
        _ = writeln!(self.body, "<g{attributes}>");
        paint(self);
        self.body.push_str("</g>\n");
    }

    /// A line; a dot where there is only one spot.
    pub(super) fn line(&mut self, spots: &[Spot], style: LineStyle) {
        let (width, cap) = match spots {
            [] => return,
            [_] => (3.2 * style.width, " stroke-linecap=\"round\""),
            _ => (style.width, ""),
        };
        let dash = match style.dash {
            _ if spots.len() == 1 => "",
            Dash::Solid => "",
            Dash::Dashes => " stroke-dasharray=\"6 3.5\"",
            Dash::Dots => " stroke-dasharray=\"1.6 2.6\"",
        };
        let (color, opacity) = (style.color.attributes("stroke"), opacity(style.opacity));
        let width = rounded(width);
        _ = write!(self.body, "<polyline fill=\"none\"{color} stroke-width=\"{width}\"");
        _ = write!(self.body, "{cap}{dash}{opacity} points=\"");
        // A line of no length has ends: it is drawn as a dot.
        let again = if let [spot] = spots { Some(spot) } else { None };
        self.points(spots.iter().chain(again));
        self.body.push_str("\"/>\n");
    }

    /// Small dots in one path.
    pub(super) fn dots(&mut self, spots: &[Spot], color: Color) {
        let color = color.attributes("stroke");
        _ = write!(
            self.body,
            "<path fill=\"none\"{color} stroke-width=\"4\" stroke-linecap=\"round\" opacity=\"0.5\" d=\""
        );
        for (x, y) in spots {
            _ = write!(self.body, "M{} {}h0", rounded(*x), rounded(*y));
        }
        self.body.push_str("\"/>\n");
    }

    pub(super) fn area(&mut self, outline: &[Spot], color: Color, alpha: f64) {
        let (color, opacity) = (color.attributes("fill"), opacity(alpha));
        _ = write!(self.body, "<polygon{color}{opacity} points=\"");
        self.points(outline.iter());
        self.body.push_str("\"/>\n");
    }

    /// A filled rectangle.
    pub(super) fn rectangle(&mut self, (left, top): Spot, (right, bottom): Spot, color: Color) {
        self.area(&[(left, top), (right, top), (right, bottom), (left, bottom)], color, 1.0);
    }

    pub(super) fn text(&mut self, text: &str, (x, y): Spot, writing: Writing) {
        if text.is_empty() {
            return;
        }
        let (x, y, size) = (rounded(x), rounded(y), rounded(writing.size));
        let anchor = match writing.anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let weight = if writing.bold { " font-weight=\"bold\"" } else { "" };
        let turn = match writing.upwards {
            true => format!(" transform=\"rotate(270 {x} {y})\""),
            false => String::new(),
        };
        let (color, text) = (writing.color.attributes("fill"), escape(text));
        _ = writeln!(
            self.body,
            "<text x=\"{x}\" y=\"{y}\" dy=\"0.5ex\" font-size=\"{size}\"{anchor}{weight}{turn}{color}>{text}</text>"
        );
    }

    fn points<'s>(&mut self, spots: impl Iterator<Item = &'s Spot>) {
        for (i, (x, y)) in spots.enumerate() {
            let separator = if i == 0 { "" } else { " " };
            _ = write!(self.body, "{separator}{},{}", rounded(*x), rounded(*y));
        }
    }
}

fn opacity(opacity: f64) -> String {
    if opacity < 1.0 { format!(" opacity=\"{opacity}\"") } else { String::new() }
}

/// Two decimals are finer than a screen.
fn rounded(length: f64) -> f64 {
    (length * 100.0).round() / 100.0
}
