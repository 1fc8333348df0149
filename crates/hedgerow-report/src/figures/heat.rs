//! Ratios as colours: a block per partition, a row per method, a column per data set.

use super::chart::shortened;
use super::dots::Heading;
use super::number;
use super::palette::{Color, INK, PAPER, SOFT_INK};
use super::svg::{Anchor, PLAIN, SMALL, Svg, WIDTH, Writing};

/// One block.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) title: String,
    pub(crate) rows: Vec<HeatRow>,
}

/// One method in a block.
#[derive(Debug, Clone)]
pub(crate) struct HeatRow {
    pub(crate) label: String,
    /// Whether it is only shown for comparison.
    pub(crate) is_reference: bool,
    /// One per column; none where there is no ratio.
    pub(crate) ratios: Vec<Option<f64>>,
}

const LABELS: f64 = 138.0;
const ROW: f64 = 20.0;
const TOP: f64 = 60.0;
const BLOCK_HEAD: f64 = 26.0;
const FOOT: f64 = 58.0;
/// What titles and the scale of colours need.
const LEAST_WIDTH: f64 = 560.0;
/// Widths of a cell.
const WIDEST: f64 = 96.0;
const NARROWEST: f64 = 36.0;
const LETTER: f64 = 5.4;
/// More than this in either direction is no picture; the tables have the rest.
const MOST_COLUMNS: usize = 100;
const MOST_HEIGHT: f64 = 7500.0;
/// Ratios so far from 1, or further, have the full colour.
const FULL: f64 = 2.0;

/// Blue is below 1, red above.
const BELOW: (u8, u8, u8) = (0x00, 0x72, 0xb2);
const ABOVE: (u8, u8, u8) = (0xd5, 0x5e, 0x00);

/// Text on the colours of cells, which are the same on light and dark pages.
const LIGHT_TEXT: Color = Color::rgb(0xff, 0xff, 0xff);
const DARK_TEXT: Color = Color::rgb(0x1a, 0x1a, 0x1a);

/// The blocks below each other, with these columns in each.
pub(crate) fn heat(heading: &Heading<'_>, columns: &[String], blocks: &[Block]) -> String {
    let columns_shown = &columns[..columns.len().min(MOST_COLUMNS)];
    let sheet = Sheet::new(columns_shown);
    let (mut height, mut blocks_shown) = (TOP, 0);
    for block in blocks {
        if blocks_shown > 0 && height + sheet.height(block) > MOST_HEIGHT {
            break;
        }
        height += sheet.height(block);
        blocks_shown += 1;
    }
    let alternative = format!("{}. {}", heading.title, heading.subtitle);
    Svg::document(&alternative, (sheet.width, height + FOOT), |svg| {
        let head = Writing { size: 15.5, bold: true, ..PLAIN };
        svg.text(&shortened(heading.title, 90), (16.0, 20.0), head);
        let soft = Writing { size: 12.5, color: SOFT_INK, ..PLAIN };
        svg.text(&shortened(heading.subtitle, 120), (16.0, 42.0), soft);
        let mut top = TOP;
        for block in &blocks[..blocks_shown] {
            draw_block(svg, &sheet, columns_shown, block, top);
            top += sheet.height(block);
        }
        draw_scale(svg, height + 10.0);
        let left_out = (blocks.len() - blocks_shown, columns.len() - columns_shown.len());
        let note = match left_out {
            (0, 0) => heading.note.to_owned(),
            (blocks, columns) => {
                format!(
                    "{} {blocks} partitions and {columns} data sets more are in the tables.",
                    heading.note
                )
            }
        };
        svg.text(&note, (16.0, height + FOOT - 14.0), SMALL);
    })
}

/// How the sheet is divided.
struct Sheet {
    width: f64,
    cell: f64,
    /// Height of the names of columns; they are written upwards where they are too long.
    names: f64,
    upwards: bool,
}

impl Sheet {
    fn new(columns: &[String]) -> Self {
        let count = columns.len().max(1) as f64;
        let cell = ((WIDTH - LABELS - 20.0) / count).clamp(NARROWEST, WIDEST);
        let longest = columns.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(24);
        let length = LETTER * longest as f64;
        let upwards = length > cell - 2.0;
        let names = if upwards { length + 6.0 } else { 16.0 };
        Self { width: LEAST_WIDTH.max(LABELS + cell * count + 20.0), cell, names, upwards }
    }

    fn height(&self, block: &Block) -> f64 {
        BLOCK_HEAD + self.names + ROW * block.rows.len() as f64 + 14.0
    }
}

fn draw_block(svg: &mut Svg, sheet: &Sheet, columns: &[String], block: &Block, top: f64) {
    svg.text(
        &shortened(&block.title, 80),
        (16.0, top + 12.0),
        Writing { size: 13.0, bold: true, ..PLAIN },
    );
    let first = top + BLOCK_HEAD + sheet.names;
    for (place, name) in columns.iter().enumerate() {
        let middle = LABELS + sheet.cell * (place as f64 + 0.5);
        let (anchor, height) = if sheet.upwards {
            (Anchor::Start, first - 4.0)
        } else {
            (Anchor::Middle, first - 8.0)
        };
        svg.text(
            &shortened(name, 24),
            (middle, height),
            Writing { anchor, upwards: sheet.upwards, color: INK, ..SMALL },
        );
    }
    for (place, row) in block.rows.iter().enumerate() {
        let middle = first + ROW * (place as f64 + 0.5);
        let color = if row.is_reference { SOFT_INK } else { INK };
        let label = Writing { anchor: Anchor::End, color, ..PLAIN };
        svg.text(&shortened(&row.label, 19), (LABELS - 8.0, middle), label);
        for (column, ratio) in row.ratios.iter().take(columns.len()).enumerate() {
            let left = LABELS + sheet.cell * column as f64;
            let (paper, ink) = ratio.map_or((PAPER, SOFT_INK), colours);
            patch(
                svg,
                (left + 0.5, middle - ROW / 2.0 + 0.5),
                (sheet.cell - 1.0, ROW - 1.0),
                paper,
            );
            let text = ratio.map_or("–".to_owned(), in_words);
            let writing = Writing { size: 10.5, color: ink, anchor: Anchor::Middle, ..PLAIN };
            svg.text(&text, (left + sheet.cell / 2.0, middle), writing);
        }
    }
}

/// What the colours mean.
fn draw_scale(svg: &mut Svg, top: f64) {
    svg.text("ratio", (16.0, top + 8.0), SMALL);
    for (place, ratio) in [0.5, 0.71, 0.87, 1.0, 1.15, 1.41, 2.0].into_iter().enumerate() {
        let left = 52.0 + 46.0 * place as f64;
        let (paper, ink) = colours(ratio);
        patch(svg, (left, top), (45.0, 16.0), paper);
        let text = match place {
            0 => "≤ 0.50".to_owned(),
            6 => "≥ 2.00".to_owned(),
            _ => in_words(ratio),
        };
        let writing = Writing { size: 10.5, color: ink, anchor: Anchor::Middle, ..PLAIN };
        svg.text(&text, (left + 22.5, top + 8.0), writing);
    }
}

fn patch(svg: &mut Svg, (left, top): (f64, f64), (width, height): (f64, f64), color: Color) {
    let (right, bottom) = (left + width, top + height);
    svg.area(&[(left, top), (right, top), (right, bottom), (left, bottom)], color, 1.0);
}

/// Paper and ink of a cell, evenly by the logarithm of the ratio.
fn colours(ratio: f64) -> (Color, Color) {
    let share = (ratio.ln() / FULL.ln()).clamp(-1.0, 1.0);
    let (r, g, b) = if share < 0.0 { BELOW } else { ABOVE };
    let mixed = |part: u8| (255.0 + (f64::from(part) - 255.0) * share.abs()).round() as u8;
    (
        Color::rgb(mixed(r), mixed(g), mixed(b)),
        if share.abs() > 0.7 { LIGHT_TEXT } else { DARK_TEXT },
    )
}

fn in_words(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 1000.0 => "≥ 1000".to_owned(),
        ratio if ratio >= 100.0 => number::fixed(ratio, 0),
        ratio if ratio >= 10.0 => number::fixed(ratio, 1),
        ratio if ratio >= 0.095 => number::fixed(ratio, 2),
        ratio if ratio >= 0.0005 => number::fixed(ratio, 3),
        _ => "< 0.001".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(ratios: &[Option<f64>]) -> Block {
        let row = HeatRow { label: "m<k>".into(), is_reference: false, ratios: ratios.to_vec() };
        Block { title: "shuffled".into(), rows: vec![row] }
    }

    const HEADING: Heading<'_> = Heading { title: "Ti<t>le", subtitle: "sub", note: "note" };

    #[test]
    fn every_cell_has_its_number_and_its_colour() {
        let columns = ["one".to_owned(), "two".to_owned(), "three".to_owned()];
        let svg = heat(&HEADING, &columns, &[block(&[Some(0.25), Some(12.345), None])]);
        for text in [">0.25<", ">12.3<", ">–<", ">three<", ">shuffled<"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("<k>") && !svg.contains("<t>"));
        let words = [1e-9, 0.004, 0.0949, 0.0951, 9.994, 99.94, 999.4, 1e5].map(in_words);
        assert_eq!(words, ["< 0.001", "0.004", "0.095", "0.10", "9.99", "99.9", "999", "≥ 1000"]);
        assert_eq!(colours(1.0), (LIGHT_TEXT, DARK_TEXT));
        assert_eq!(colours(0.1), (Color::rgb(0x00, 0x72, 0xb2), LIGHT_TEXT));
        assert_eq!(colours(1e9), (Color::rgb(0xd5, 0x5e, 0x00), LIGHT_TEXT));
    }

    #[test]
    fn long_names_go_upwards_and_large_grids_end() {
        assert!(!Sheet::new(&["a".to_owned()]).upwards);
        let many: Vec<String> = (0..150).map(|i| format!("data-set-{i}")).collect();
        assert!(Sheet::new(&many).upwards);
        let blocks = vec![block(&vec![Some(1.0); 150]); 400];
        let svg = heat(&HEADING, &many, &blocks);
        assert!(svg.contains("50 data sets more are in the tables"));
        assert!(svg.ends_with("</svg>\n"));
        assert!(heat(&HEADING, &[], &[]).contains("<svg"));
    }
}
