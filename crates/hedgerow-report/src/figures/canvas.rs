//! A sheet to draw on, measured in pixels with fractions.

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, DashedPathElement, PathElement, Polygon};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, FontTransform, IntoFont, RGBColor, ShapeStyle, WHITE};

use super::markup::{escape, printable};
use super::palette::{Dash, LineStyle};

pub(super) type DrawError = DrawingAreaErrorKind<std::io::Error>;
/// Pixels from the upper left corner.
pub(super) type Spot = (f64, f64);

/// Of a sheet with one chart.
pub(super) const WIDTH: f64 = 820.0;
pub(super) const HEIGHT: f64 = 470.0;

/// The backend knows whole pixels only: everything is drawn this much larger and shown smaller, or
/// curves would step.
const FINENESS: f64 = 10.0;
/// Plotters divides sizes by this before it writes them.
const FONT_CORRECTION: f64 = 1.24;

pub(super) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

/// How a text looks and which of its points is placed.
#[derive(Clone, Copy)]
pub(super) struct Writing {
    pub(super) size: f64,
    pub(super) color: RGBColor,
    pub(super) bold: bool,
    pub(super) anchor: HPos,
    pub(super) upwards: bool,
}

impl Canvas<'_> {
    /// A whole SVG document of what `paint` draws; `title` is what a screen reader says.
    pub(super) fn document(
        title: &str,
        (width, height): (f64, f64),
        paint: impl FnOnce(&Canvas<'_>) -> Result<(), DrawError>,
    ) -> Result<String, DrawError> {
        let (wide, high) = ((width * FINENESS) as u32, (height * FINENESS) as u32);
        let mut drawing = String::new();
        {
            let area = SVGBackend::with_string(&mut drawing, (wide, high)).into_drawing_area();
            area.fill(&WHITE)?;
            let canvas = Canvas { area };
            paint(&canvas)?;
            canvas.area.present()?;
        }
        let title = escape(title);
        Ok(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {wide} {high}\" \
             role=\"img\" stroke-linejoin=\"round\"><title>{title}</title>\n{drawing}</svg>\n"
        ))
    }

    pub(super) fn line(&self, spots: &[Spot], style: LineStyle) -> Result<(), DrawError> {
        let stroke =
            ShapeStyle::from(style.color.mix(style.opacity)).stroke_width(fine(style.width) as u32);
        let gaps = match style.dash {
            Dash::Solid => None,
            Dash::Dashes => Some((fine(6.0), fine(3.5))),
            Dash::Dots => Some((fine(1.6), fine(2.6))),
        };
        let path = || spots.iter().copied().map(pixel).collect::<Vec<_>>();
        match (spots, gaps) {
            ([], _) => Ok(()),
            ([spot], _) => {
                self.area.draw(&Circle::new(pixel(*spot), fine(style.width * 1.6), stroke.filled()))
            }
            (_, Some((size, gap))) => {
                self.area.draw(&DashedPathElement::new(path(), size, gap, stroke))
            }
            (_, None) => self.area.draw(&PathElement::new(path(), stroke)),
        }
    }

    pub(super) fn area(
        &self,
        outline: &[Spot],
        color: RGBColor,
        opacity: f64,
    ) -> Result<(), DrawError> {
        let outline: Vec<_> = outline.iter().copied().map(pixel).collect();
        self.area.draw(&Polygon::new(outline, color.mix(opacity)))
    }

    pub(super) fn text(&self, text: &str, at: Spot, writing: Writing) -> Result<(), DrawError> {
        if text.is_empty() {
            return Ok(());
        }
        let weight = if writing.bold { FontStyle::Bold } else { FontStyle::Normal };
        let turn = if writing.upwards { FontTransform::Rotate270 } else { FontTransform::None };
        let font = ("Helvetica, Arial, sans-serif", writing.size * FINENESS * FONT_CORRECTION)
            .into_font()
            .style(weight)
            .transform(turn);
        let style = font.color(&writing.color).pos(Pos::new(writing.anchor, VPos::Center));
        self.area.draw_text(&printable(text), &style, pixel(at))
    }
}

fn pixel((x, y): Spot) -> (i32, i32) {
    (fine(x), fine(y))
}

fn fine(length: f64) -> i32 {
    (length * FINENESS).round() as i32
}
