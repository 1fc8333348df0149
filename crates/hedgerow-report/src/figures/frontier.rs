//! Error against bytes: one dot per method, and the Pareto front.

use super::chart::{
    Frame, Heading, Words, draw_words, grid, instead, note, rule, rules, shortened,
};
use super::dots::Dot;
use super::palette::{GUIDE, SOFT_INK};
use super::scale::Axis;
use super::svg::{HEIGHT, PLAIN, SMALL, Spot, Svg, WIDTH, Writing};

/// Pixels for methods that send nothing, which a logarithmic axis can't show.
const NOTHING_SENT: f64 = 58.0;
/// Pixels that a letter of a label takes, about.
const LETTER: f64 = 6.0;
const LABEL_HEIGHT: f64 = 13.0;

/// The chart of the dots that send a known number of bytes; `y` says what the error is.
pub(crate) fn frontier(heading: &Heading<'_>, y: &str, dots: &[Dot]) -> String {
    let dots: Vec<(&Dot, f64)> = dots
        .iter()
        .filter(|dot| dot.is_drawable())
        .filter_map(|dot| Some((dot, dot.bytes.filter(|bytes| bytes.is_finite())?)))
        .collect();
    let words = Words {
        title: heading.title.to_owned(),
        subtitle: heading.subtitle.to_owned(),
        x: "bytes up and down per node and round (log scale)".into(),
        y: format!("{y} (log scale)"),
    };
    let front = front(&dots);
    let named: Vec<&str> = front.iter().map(|place| dots[*place].0.label.as_str()).collect();
    let alternative = format!(
        "{}. Nobody beats these in both, by rising bytes: {}.",
        words.title,
        named.join(", ")
    );
    let (frame, spots) = spots(&dots);
    Svg::document(&alternative, (WIDTH, HEIGHT), |svg| {
        draw_words(svg, frame, &words);
        if dots.is_empty() {
            return instead(svg, frame, "No error is positive.");
        }
        draw_axes(svg, frame, &dots);
        svg.line(&stairs(&front, &spots, frame), GUIDE);
        for wanted in [true, false] {
            for ((dot, _), spot) in dots.iter().zip(&spots) {
                if dot.is_reference == wanted {
                    dot.draw(svg, *spot);
                }
            }
        }
        for ((dot, _), (label, spot)) in dots.iter().zip(labels(&dots, &spots, &front, frame)) {
            svg.text(&label, spot, Writing { size: 11.0, color: dot.ink(), ..PLAIN });
        }
        note(svg, frame, heading.note);
    })
}

/// Places in `dots` of those that no other beats in both, by rising bytes and falling errors;
/// references have no part in it.
fn front(dots: &[(&Dot, f64)]) -> Vec<usize> {
    let mut order: Vec<usize> =
        (0..dots.len()).filter(|place| !dots[*place].0.is_reference).collect();
    let key = |place: &usize| (dots[*place].1, dots[*place].0.error);
    order.sort_by(|a, b| key(a).0.total_cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1)));
    let mut least = f64::INFINITY;
    order.retain(|place| {
        let error = dots[*place].0.error;
        let is_better = error < least;
        least = least.min(error);
        is_better
    });
    order
}

fn axes(frame: Frame, dots: &[(&Dot, f64)]) -> (Axis, Axis) {
    let x = Axis::log(dots.iter().map(|(_, bytes)| *bytes), 0.08);
    let has_silent = dots.iter().any(|(_, bytes)| *bytes <= 0.0);
    let zero = if has_silent { NOTHING_SENT / (frame.right - frame.left) } else { 0.0 };
    (x.with_zero(zero), Axis::log(dots.iter().map(|(dot, _)| dot.error), 0.08))
}

/// The frame, and where the dots fall in it.
fn spots(dots: &[(&Dot, f64)]) -> (Frame, Vec<Spot>) {
    let frame = Frame::of_sheet(24.0);
    let (x, y) = axes(frame, dots);
    let spot = |(dot, bytes): &(&Dot, f64)| frame.spot((&x, &y), *bytes, dot.error);
    (frame, dots.iter().map(spot).collect())
}

fn draw_axes(svg: &mut Svg, frame: Frame, dots: &[(&Dot, f64)]) {
    let (x, y) = axes(frame, dots);
    grid(svg, frame, (&x, &y), (7, 6, SMALL.size));
    if x.position(x.low()) > 0.0 {
        // The axis is broken.
        for shift in [0.0, 5.0] {
            let (middle, height) = (frame.left + NOTHING_SENT - 10.0 + shift, frame.bottom);
            rule(svg, (middle - 2.0, height + 5.0), (middle + 2.0, height - 5.0), SOFT_INK);
        }
    }
    rules(svg, frame);
}

/// From corner to corner: the least error for each number of bytes.
fn stairs(front: &[usize], spots: &[Spot], frame: Frame) -> Vec<Spot> {
    let mut stairs: Vec<Spot> = Vec::new();
    for (across, up) in front.iter().map(|place| spots[*place]) {
        stairs.extend(stairs.last().map(|(_, height)| (across, *height)));
        stairs.push((across, up));
    }
    stairs.extend(stairs.last().map(|(_, height)| (frame.right, *height)));
    stairs
}

/// Every label where it covers no dot, no other label and nothing of the front, if there is such a
/// place near its dot; those on the front choose first. A label without a place is empty: the table
/// has its numbers.
fn labels(
    dots: &[(&Dot, f64)],
    spots: &[Spot],
    front: &[usize],
    frame: Frame,
) -> Vec<(String, Spot)> {
    // Boxes that no label may cover: dots, and the front with a little air.
    let around = |from: Spot, to: Spot, air: f64| Frame {
        left: from.0.min(to.0) - air,
        right: from.0.max(to.0) + air,
        top: from.1.min(to.1) - air,
        bottom: from.1.max(to.1) + air,
    };
    let mut taken: Vec<Frame> = spots.iter().map(|spot| around(*spot, *spot, 5.0)).collect();
    let stairs = stairs(front, spots, frame);
    taken.extend(stairs.windows(2).map(|ends| around(ends[0], ends[1], 1.0)));
    let mut placed: Vec<(String, Spot)> = vec![(String::new(), (0.0, 0.0)); dots.len()];
    let rest = (0..dots.len()).filter(|place| !front.contains(place));
    for place in front.iter().copied().chain(rest) {
        let label = shortened(&dots[place].0.label, 24);
        let width = LETTER * label.chars().count() as f64;
        let (x, y) = spots[place];
        let heights = [0.0, -12.0, 12.0, -24.0, 24.0, -36.0, 36.0];
        let mut candidates = heights.iter().flat_map(|height| {
            let beside = if *height == 0.0 { 8.0 } else { 4.0 };
            [x + beside, x - beside - width, x - width / 2.0].map(|left| (left, y + height))
        });
        let as_box = |(left, y): Spot| Frame {
            left,
            right: left + width,
            top: y - LABEL_HEIGHT / 2.0,
            bottom: y + LABEL_HEIGHT / 2.0,
        };
        let fits = |spot: &Spot| {
            let mine = as_box(*spot);
            let is_inside = mine.left > frame.left && mine.right < WIDTH - 4.0;
            is_inside
                && mine.top > frame.top
                && mine.bottom < frame.bottom
                && !taken.iter().any(|other| other.meets(&mine))
        };
        if let Some(spot) = candidates.find(fits) {
            taken.push(as_box(spot));
            placed[place] = (label, spot);
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::super::palette;
    use super::*;
    use hedgerow_lab::testing::results;

    fn dots(all: &[(&str, f64, f64, bool)]) -> Vec<Dot> {
        let style = palette::method(&results(1, 1, 1), "mk");
        let dot = |(label, bytes, error, is_reference): &(&str, f64, f64, bool)| Dot {
            method: String::new(),
            label: (*label).into(),
            style,
            is_reference: *is_reference,
            bytes: Some(*bytes),
            error: *error,
            ends: None,
            ratio: String::new(),
        };
        all.iter().map(dot).collect()
    }

    fn with_bytes(dots: &[Dot]) -> Vec<(&Dot, f64)> {
        dots.iter().map(|dot| (dot, dot.bytes.unwrap())).collect()
    }

    const HEADING: Heading<'_> = Heading { title: "Ti<t>le", subtitle: "sub", note: "note" };

    #[test]
    fn the_front_is_what_nobody_beats_in_both() {
        let all = dots(&[
            ("dear", 1000.0, 1.0, false),
            ("beaten", 900.0, 2.5, false),
            ("middle", 400.0, 2.0, false),
            ("silent", 0.0, 5.0, false),
            ("worse for the same", 400.0, 3.0, false),
            ("reference", 10.0, 0.1, true),
        ]);
        let placed = with_bytes(&all);
        let named: Vec<&str> =
            front(&placed).into_iter().map(|place| all[place].label.as_str()).collect();
        assert_eq!(named, ["silent", "middle", "dear"]);
        let svg = frontier(&HEADING, "MSE", &all);
        assert!(svg.contains("by rising bytes: silent, middle, dear.") && !svg.contains("<t>"));
        for label in ["dear", "beaten", "silent", "reference"] {
            assert!(svg.contains(&format!(">{label}<")), "{label}");
        }
    }

    #[test]
    fn labels_keep_off_each_other() {
        let crowd: Vec<(String, f64)> =
            (0..12).map(|i| (format!("method-{i}"), 400.0 + f64::from(i))).collect();
        let all: Vec<(&str, f64, f64, bool)> = crowd
            .iter()
            .map(|(label, bytes)| (label.as_str(), *bytes, 1.0 + bytes / 1e6, false))
            .collect();
        let all = dots(&all);
        let all = with_bytes(&all);
        let (frame, spots) = spots(&all);
        let placed = labels(&all, &spots, &front(&all), frame);
        let shown: Vec<&(String, Spot)> =
            placed.iter().filter(|(label, _)| !label.is_empty()).collect();
        assert!(shown.len() > 3, "{placed:?}");
        for (i, (label, (x, y))) in shown.iter().enumerate() {
            for (_, (other_x, other_y)) in &shown[..i] {
                let apart = (y - other_y).abs() >= LABEL_HEIGHT - 1e-9
                    || (x - other_x).abs() >= LETTER * label.chars().count() as f64 - LETTER;
                assert!(apart, "{placed:?}");
            }
        }
    }

    #[test]
    fn every_extreme_is_drawn_somewhere() {
        for all in [
            &[][..],
            &[("a", 0.0, 0.0, false)],
            &[("a", 0.0, 1.0, false)],
            &[
                ("a", f64::NAN, 1.0, false),
                ("b", 1e300, f64::INFINITY, true),
                ("c", 1e-300, 1e300, false),
            ],
        ] {
            let svg = frontier(&HEADING, "MSE", &dots(all));
            assert!(!svg.contains("NaN") && !svg.contains("\"inf"), "{all:?}");
        }
    }
}
