//! Error against bytes: one dot per method, and the Pareto front.

use super::chart::{Frame, Words, draw_words, instead, note, rule, rules, shortened};
use super::dots::{Heading, dot};
use super::number;
use super::palette::{FINE_GRID, GRID, GUIDE, INK, LineStyle, SOFT_INK};
use super::scale::Axis;
use super::svg::{Anchor, HEIGHT, PLAIN, SMALL, Spot, Svg, WIDTH, Writing};

/// One method.
#[derive(Debug, Clone)]
pub(crate) struct Dot {
    pub(crate) label: String,
    pub(crate) style: LineStyle,
    /// Whether it is only shown for comparison: hollow, and no part of the front.
    pub(crate) is_reference: bool,
    pub(crate) bytes: f64,
    pub(crate) error: f64,
}

/// Space for methods that send nothing, which a logarithmic axis can't show.
const NOTHING_SENT: f64 = 58.0;
/// Pixels that a letter of a label takes, about.
const LETTER: f64 = 6.0;
const LABEL_HEIGHT: f64 = 13.0;

/// The chart; `y` says what the error is.
pub(crate) fn frontier(heading: &Heading<'_>, y: &str, dots: &[Dot]) -> String {
    let drawable = |dot: &&Dot| dot.error.is_finite() && dot.error > 0.0 && dot.bytes.is_finite();
    let dots: Vec<Dot> = dots.iter().filter(drawable).cloned().collect();
    let plane = Plane::new(&dots);
    let words = Words {
        title: heading.title.to_owned(),
        subtitle: heading.subtitle.to_owned(),
        x: "bytes up and down per node and round (log scale)".into(),
        y: format!("{y} (log scale)"),
    };
    let front = front(&dots);
    let named: Vec<&str> = front.iter().map(|place| dots[*place].label.as_str()).collect();
    let alternative = format!(
        "{}. Nobody beats these in both, by rising bytes: {}.",
        words.title,
        named.join(", ")
    );
    Svg::document(&alternative, (WIDTH, HEIGHT), |svg| {
        draw_words(svg, plane.frame, &words);
        if dots.is_empty() {
            return instead(svg, plane.frame, "No error is positive.");
        }
        plane.grid(svg);
        let corners: Vec<Spot> =
            front.iter().map(|place| plane.spot(dots[*place].bytes, dots[*place].error)).collect();
        svg.line(&stairs(&corners, &plane), GUIDE);
        let spots: Vec<Spot> = dots.iter().map(|one| plane.spot(one.bytes, one.error)).collect();
        for wanted in [true, false] {
            for (one, spot) in dots.iter().zip(&spots).filter(|(one, _)| one.is_reference == wanted)
            {
                dot(svg, *spot, one.style, one.is_reference);
            }
        }
        for (one, (label, spot)) in dots.iter().zip(labels(&dots, &spots, &front, &plane)) {
            let ink = if one.is_reference { SOFT_INK } else { INK };
            svg.text(&label, spot, Writing { size: 11.0, color: ink, ..PLAIN });
        }
        note(svg, plane.frame, heading.note);
    })
}

/// Places in `dots` of those that nobody beats in both, by rising bytes and falling errors;
/// references have no part in it.
pub(crate) fn front(dots: &[Dot]) -> Vec<usize> {
    let mut order: Vec<usize> =
        (0..dots.len()).filter(|place| !dots[*place].is_reference).collect();
    let key = |place: &usize| (dots[*place].bytes, dots[*place].error);
    order.sort_by(|a, b| key(a).0.total_cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1)));
    let mut least = f64::INFINITY;
    order.retain(|place| {
        let is_better = dots[*place].error < least;
        least = least.min(dots[*place].error);
        is_better
    });
    order
}

/// Where values fall on the sheet.
struct Plane {
    frame: Frame,
    /// Where the logarithmic part of the horizontal axis begins.
    inner: f64,
    x: Axis,
    y: Axis,
}

impl Plane {
    fn new(dots: &[Dot]) -> Self {
        let frame = Frame { left: 74.0, right: WIDTH - 24.0, top: 66.0, bottom: HEIGHT - 74.0 };
        let has_silent = dots.iter().any(|dot| dot.bytes <= 0.0);
        let inner = if has_silent { frame.left + NOTHING_SENT } else { frame.left };
        let x = Axis::log(dots.iter().map(|dot| dot.bytes), 0.08);
        Self { frame, inner, x, y: Axis::log(dots.iter().map(|dot| dot.error), 0.08) }
    }

    fn spot(&self, bytes: f64, error: f64) -> Spot {
        let Frame { left, right, top, bottom } = self.frame;
        let across = match bytes > 0.0 {
            true => self.inner + (right - self.inner) * self.x.position(bytes),
            false => left + NOTHING_SENT / 2.0 - 4.0,
        };
        (across, bottom - (bottom - top) * self.y.position(error))
    }

    fn grid(&self, svg: &mut Svg) {
        let Frame { left, right, top, bottom } = self.frame;
        let centred = Writing { anchor: Anchor::Middle, ..SMALL };
        for fine in [true, false] {
            let color = if fine { FINE_GRID } else { GRID };
            for tick in self.x.ticks(7).iter().filter(|tick| tick.label.is_empty() == fine) {
                let (across, _) = self.spot(tick.value, self.y.low());
                rule(svg, (across, top), (across, bottom), color);
                svg.text(&tick.label, (across, bottom + 16.0), centred);
            }
            for tick in self.y.ticks(6).iter().filter(|tick| tick.label.is_empty() == fine) {
                let (_, up) = self.spot(self.x.low(), tick.value);
                rule(svg, (left, up), (right, up), color);
                svg.text(&tick.label, (left - 8.0, up), Writing { anchor: Anchor::End, ..SMALL });
            }
        }
        if self.inner > left {
            let (zero, _) = self.spot(0.0, self.y.low());
            svg.text("0", (zero, bottom + 16.0), centred);
            // Where the axis is broken.
            for shift in [0.0, 5.0] {
                let middle = left + NOTHING_SENT - 10.0 + shift;
                rule(svg, (middle - 2.0, bottom + 5.0), (middle + 2.0, bottom - 5.0), SOFT_INK);
            }
        }
        rules(svg, self.frame);
    }
}

/// From corner to corner: the least error for so many bytes.
fn stairs(corners: &[Spot], plane: &Plane) -> Vec<Spot> {
    let mut stairs: Vec<Spot> = Vec::new();
    for corner in corners {
        if let Some((_, height)) = stairs.last().copied() {
            stairs.push((corner.0, height));
        }
        stairs.push(*corner);
    }
    if let Some((_, height)) = stairs.last().copied() {
        stairs.push((plane.frame.right, height));
    }
    stairs
}

/// A box that nothing else should cover.
#[derive(Clone, Copy)]
struct Taken {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Taken {
    /// A line, with a little air.
    fn along(from: Spot, to: Spot) -> Self {
        Self {
            left: from.0.min(to.0) - 1.0,
            right: from.0.max(to.0) + 1.0,
            top: from.1.min(to.1) - 1.0,
            bottom: from.1.max(to.1) + 1.0,
        }
    }

    fn meets(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }
}

/// Every label where it covers no dot, no other label and nothing of the front, if there is such a
/// place near its dot; those on the front choose first. A label without a place is empty: the table
/// has its numbers.
fn labels(dots: &[Dot], spots: &[Spot], front: &[usize], plane: &Plane) -> Vec<(String, Spot)> {
    let frame = &plane.frame;
    let around =
        |(x, y): Spot| Taken { left: x - 5.0, right: x + 5.0, top: y - 5.0, bottom: y + 5.0 };
    let mut taken: Vec<Taken> = spots.iter().copied().map(around).collect();
    let corners: Vec<Spot> = front.iter().map(|place| spots[*place]).collect();
    taken.extend(stairs(&corners, plane).windows(2).map(|ends| Taken::along(ends[0], ends[1])));
    let mut placed: Vec<(String, Spot)> = vec![(String::new(), (0.0, 0.0)); dots.len()];
    let rest = (0..dots.len()).filter(|place| !front.contains(place));
    for place in front.iter().copied().chain(rest) {
        let label = shortened(&dots[place].label, 24);
        let width = LETTER * label.chars().count() as f64;
        let (x, y) = spots[place];
        let heights = [0.0, -12.0, 12.0, -24.0, 24.0, -36.0, 36.0];
        let candidates = heights.iter().flat_map(|height| {
            let beside = if *height == 0.0 { 8.0 } else { 4.0 };
            [
                (x + beside, y + height),
                (x - beside - width, y + height),
                (x - width / 2.0, y + height),
            ]
        });
        let as_box = |(left, y): Spot| Taken {
            left,
            right: left + width,
            top: y - LABEL_HEIGHT / 2.0,
            bottom: y + LABEL_HEIGHT / 2.0,
        };
        let fits = |spot: &Spot| {
            let mine = as_box(*spot);
            let inside = mine.left > frame.left && mine.right < WIDTH - 4.0;
            inside
                && mine.top > frame.top
                && mine.bottom < frame.bottom
                && !taken.iter().any(|other| other.meets(&mine))
        };
        if let Some(spot) = candidates.into_iter().find(fits) {
            taken.push(as_box(spot));
            placed[place] = (label, spot);
        }
    }
    placed
}

/// `396 bytes`, `12.3 kB`.
pub(crate) fn bytes_in_words(bytes: f64) -> String {
    match bytes {
        1.0 => "1 byte".to_owned(),
        bytes if bytes >= 10_000.0 => format!("{} kB", number::significant(bytes / 1000.0, 3)),
        bytes if bytes >= 100.0 || bytes.fract() == 0.0 => {
            format!("{} bytes", number::fixed(bytes, 0))
        }
        bytes => format!("{} bytes", number::significant(bytes, 3)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::palette;
    use super::*;
    use hedgerow_lab::testing::results;

    fn dots(all: &[(&str, f64, f64, bool)]) -> Vec<Dot> {
        let style = palette::method(&results(1, 1, 1), "mk");
        let dot = |(label, bytes, error, is_reference): &(&str, f64, f64, bool)| Dot {
            label: (*label).into(),
            style,
            is_reference: *is_reference,
            bytes: *bytes,
            error: *error,
        };
        all.iter().map(dot).collect()
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
        let named: Vec<&str> =
            front(&all).into_iter().map(|place| all[place].label.as_str()).collect();
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
        let plane = Plane::new(&all);
        let spots: Vec<Spot> = all.iter().map(|dot| plane.spot(dot.bytes, dot.error)).collect();
        let placed = labels(&all, &spots, &front(&all), &plane);
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

    #[test]
    fn bytes_read_well() {
        for (bytes, words) in [
            (0.0, "0 bytes"),
            (1.0, "1 byte"),
            (11.25, "11.2 bytes"),
            (396.4, "396 bytes"),
            (43_560.0, "43.6 kB"),
        ] {
            assert_eq!(bytes_in_words(bytes), words);
        }
    }
}
