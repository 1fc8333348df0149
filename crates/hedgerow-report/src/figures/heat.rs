//! Ratios as colours: a block per partition, a row per method, a column per data set.

use super::chart::{Heading, head, shortened};
use super::number;
use super::palette::{BLACK, BLUE, Color, INK, ORANGE, PAPER, SOFT_INK, WHITE};
use super::svg::{Anchor, PLAIN, SMALL, Spot, Svg, WIDTH, Writing};
use crate::table::or_nothing;

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

/// Names and colours of ratios below and above 1.
pub(crate) const BELOW: (&str, Color) = BLUE;
pub(crate) const ABOVE: (&str, Color) = ORANGE;

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
        head(svg, 16.0, (heading.title, 80), heading.subtitle);
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
pub(super) struct Sheet {
    pub(super) width: f64,
    pub(super) cell: f64,
    /// Height of the names of columns; they are written upwards where they are too long.
    pub(super) names: f64,
    upwards: bool,
}

impl Sheet {
    pub(super) fn new(columns: &[String]) -> Self {
        let count = columns.len().max(1) as f64;
        let cell = ((WIDTH - LABELS - 20.0) / count).clamp(NARROWEST, WIDEST);
        let longest = columns.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(24);
        let length = LETTER * longest as f64;
        let upwards = length > cell - 2.0;
        let names = if upwards { length + 6.0 } else { 16.0 };
        Self { width: LEAST_WIDTH.max(LABELS + cell * count + 20.0), cell, names, upwards }
    }

    /// The left end of a column.
    pub(super) fn left(&self, column: usize) -> f64 {
        LABELS + self.cell * column as f64
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
    draw_columns(svg, sheet, columns, first);
    for (place, row) in block.rows.iter().enumerate() {
        let middle = first + ROW * (place as f64 + 0.5);
        let color = if row.is_reference { SOFT_INK } else { INK };
        draw_row_name(svg, &row.label, middle, color);
        for (column, ratio) in row.ratios.iter().take(columns.len()).enumerate() {
            let colours = ratio.map_or((PAPER, SOFT_INK), colours);
            let upper_left = (sheet.left(column) + 0.5, middle - ROW / 2.0 + 0.5);
            draw_cell(
                svg,
                upper_left,
                (sheet.cell - 1.0, ROW - 1.0),
                colours,
                &or_nothing(*ratio, in_words),
            );
        }
    }
}

/// Names of columns, whose cells begin at this height.
pub(super) fn draw_columns(svg: &mut Svg, sheet: &Sheet, columns: &[String], first: f64) {
    for (place, name) in columns.iter().enumerate() {
        let middle = sheet.left(place) + sheet.cell / 2.0;
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
}

/// The name of a row, left of its cells.
pub(super) fn draw_row_name(svg: &mut Svg, name: &str, middle: f64, color: Color) {
    let label = Writing { anchor: Anchor::End, color, ..PLAIN };
    svg.text(&shortened(name, 19), (LABELS - 8.0, middle), label);
}

/// What the colours mean.
fn draw_scale(svg: &mut Svg, top: f64) {
    svg.text("ratio", (16.0, top + 8.0), SMALL);
    for (place, ratio) in [0.5, 0.71, 0.87, 1.0, 1.15, 1.41, 2.0].into_iter().enumerate() {
        let left = 52.0 + 46.0 * place as f64;
        let text = match place {
            0 => "≤ 0.50".to_owned(),
            6 => "≥ 2.00".to_owned(),
            _ => in_words(ratio),
        };
        draw_cell(svg, (left, top), (45.0, 16.0), colours(ratio), &text);
    }
}

/// A rectangle of this size, in these colours of ground and text.
pub(super) fn draw_cell(
    svg: &mut Svg,
    (left, top): Spot,
    (width, height): (f64, f64),
    (ground, ink): (Color, Color),
    text: &str,
) {
    svg.rectangle((left, top), (left + width, top + height), ground);
    let writing = Writing { color: ink, anchor: Anchor::Middle, ..SMALL };
    svg.text(text, (left + width / 2.0, top + height / 2.0), writing);
}

/// Colours of a cell's ground and text, evenly by the logarithm of the ratio.
fn colours(ratio: f64) -> (Color, Color) {
    let share = (ratio.ln() / FULL.ln()).clamp(-1.0, 1.0);
    let (_, full) = if share < 0.0 { BELOW } else { ABOVE };
    (WHITE.mixed(full, share.abs()), if share.abs() > 0.7 { WHITE } else { BLACK })
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
        assert_eq!(colours(1.0), (WHITE, BLACK));
        assert_eq!(colours(0.1), (BLUE.1, WHITE));
        assert_eq!(colours(1e9), (ORANGE.1, WHITE));
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
