//! A figure as a PNG, twice its size in pixels, for places that don't show SVG. Letters come from a
//! font within the program, so that every machine draws the same picture.

use std::sync::{Arc, OnceLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{self, fontdb};

/// Pixels of the picture per pixel of the figure.
const SCALE: f32 = 2.0;
/// More pixels than this on a side are no figure of ours.
const MOST_PIXELS: u32 = 16_384;

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub enum PngError {
    /// The document can't be read.
    #[error("not a figure: {0}")]
    Svg(#[from] usvg::Error),
    /// It would fill the memory.
    #[error("a picture of {width} x {height} pixels, but {MOST_PIXELS} is the most on a side")]
    TooLarge {
        /// Pixels from left to right.
        width: u32,
        /// Pixels from top to bottom.
        height: u32,
    },
    /// The picture could not be packed.
    #[error("could not write the picture: {0}")]
    Encode(String),
}

/// The SVG document of a figure as a PNG file. The same document gives the same bytes.
pub fn to_png(svg: &str) -> Result<Vec<u8>, PngError> {
    let options = usvg::Options { fontdb: fonts(), ..usvg::Options::default() };
    let figure = usvg::Tree::from_str(svg, &options)?;
    let pixels = |length: f32| (length * SCALE).ceil() as u32;
    let (width, height) = (pixels(figure.size().width()), pixels(figure.size().height()));
    let too_large = || PngError::TooLarge { width, height };
    if width.max(height) > MOST_PIXELS {
        return Err(too_large());
    }
    let mut picture = Pixmap::new(width, height).ok_or_else(too_large)?;
    resvg::render(&figure, Transform::from_scale(SCALE, SCALE), &mut picture.as_mut());
    picture.encode_png().map_err(|error| PngError::Encode(error.to_string()))
}

/// The one family there is. Condensed, because its letters are as wide as those of the fonts that
/// the figures name first.
fn fonts() -> Arc<fontdb::Database> {
    static FONTS: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
    let load = || {
        let mut fonts = fontdb::Database::new();
        fonts.load_font_data(dejavu::sans_condensed::regular().to_vec());
        fonts.load_font_data(dejavu::sans_condensed::bold().to_vec());
        let family =
            fonts.faces().find_map(|face| face.families.first()).map(|(family, _)| family.clone());
        fonts.set_sans_serif_family(family.unwrap_or_default());
        Arc::new(fonts)
    };
    FONTS.get_or_init(load).clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::render;
    use hedgerow_lab::testing as sample;

    fn document(inside: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"200\" height=\"40\" viewBox=\"0 0 200 40\">\
             <rect width=\"200\" height=\"40\" fill=\"white\"/>{inside}</svg>"
        )
    }

    fn text(text: &str, attributes: &str) -> String {
        document(&format!(
            "<text x=\"100\" y=\"25\" font-size=\"16\" font-family=\"Helvetica, Arial, sans-serif\" {attributes}>{text}</text>"
        ))
    }

    /// The first and the last column with ink, in pixels of the figure.
    fn inked(svg: &str) -> Option<(f32, f32)> {
        let picture = Pixmap::decode_png(&to_png(svg).unwrap()).unwrap();
        let dark = |x: u32| (0..picture.height()).any(|y| picture.pixel(x, y).unwrap().red() < 128);
        let columns: Vec<u32> = (0..picture.width()).filter(|x| dark(*x)).collect();
        Some((*columns.first()? as f32 / SCALE, (*columns.last()? + 1) as f32 / SCALE))
    }

    #[test]
    fn the_same_figure_gives_the_same_bytes() {
        let (_, svg) = render(&sample::results(5, 60, 3)).swap_remove(0);
        let png = to_png(&svg).unwrap();
        assert_eq!(png, to_png(&svg).unwrap());
        assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
        let picture = Pixmap::decode_png(&png).unwrap();
        assert_eq!((picture.width(), picture.height()), (1640, 940));
    }

    #[test]
    fn letters_have_their_widths_and_keep_to_their_anchors() {
        // In Arial (and Liberation Sans, by Chromium) these words are 78.25 pixels wide at this
        // size; ink is a little narrower.
        let (left, right) = inked(&text("Mean error", "")).unwrap();
        assert!((left - 100.0).abs() < 3.0 && (right - left - 78.25).abs() < 3.0, "{left} {right}");
        let (left, right) = inked(&text("Mean error", "text-anchor=\"end\"")).unwrap();
        assert!((right - 100.0).abs() < 3.0, "{left} {right}");
        let (left, right) = inked(&text("Mean error", "text-anchor=\"middle\"")).unwrap();
        assert!(((left + right) / 2.0 - 100.0).abs() < 3.0, "{left} {right}");
    }

    #[test]
    fn bold_letters_are_bolder() {
        let width =
            |attributes| inked(&text("Mean error", attributes)).map(|(left, right)| right - left);
        assert!(width("font-weight=\"bold\"") > width("").map(|width| width + 2.0));
    }

    #[test]
    fn every_sign_of_the_figures_is_in_the_font() {
        let missing = to_png(&text("\u{10ffff}", "")).unwrap();
        for sign in "σ²√±−×·…⁰¹³⁴⁵⁶⁷⁸⁹⁻ηλé–→≥".chars() {
            let drawn = to_png(&text(&sign.to_string(), "")).unwrap();
            assert!(inked(&text(&sign.to_string(), "")).is_some() && drawn != missing, "{sign}");
        }
        // A thin space has no ink, and no box instead of it.
        let (left, right) = inked(&text("1\u{202f}1", "")).unwrap();
        assert!((right - left) < 26.0, "{left} {right}");
    }

    #[test]
    fn what_is_no_figure_is_refused() {
        assert!(matches!(to_png("<html>"), Err(PngError::Svg(_))));
        let huge = document("").replace(
            "width=\"200\" height=\"40\" viewBox",
            "width=\"90000\" height=\"40\" viewBox",
        );
        assert!(matches!(to_png(&huge), Err(PngError::TooLarge { width: 180_000, height: 80 })));
    }
}
