//! Colours that hold for every figure and for the report: one per method name, and a sequence for kernels.

use plotters::style::RGBColor;

use crate::results::Results;

/// The colour of text, axes and of what is known only in hindsight.
pub(crate) const INK: RGBColor = RGBColor(0x1a, 0x1a, 0x1a);
/// What stays in the background.
pub(crate) const FAINT: RGBColor = RGBColor(0xb4, 0xb8, 0xbe);

/// How the line of a method looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LineStyle {
    pub(crate) color: RGBColor,
    /// Comparators outside federated learning are dashed, so that the kinds differ without colour.
    pub(crate) dashed: bool,
    pub(crate) width: f64,
    pub(crate) opacity: f64,
}

/// A reference slope.
pub(crate) const GUIDE: LineStyle = LineStyle { color: FAINT, dashed: true, width: 1.4, opacity: 1.0 };

/// Of Okabe and Ito, told apart by colour-blind readers; yellow is left out, too pale on white.
const KNOWN: [(&str, RGBColor, bool); 7] = [
    ("mk", RGBColor(0xd5, 0x5e, 0x00), false),
    ("sk", RGBColor(0x00, 0x72, 0xb2), false),
    ("naive", RGBColor(0x00, 0x9e, 0x73), false),
    ("central", RGBColor(0xcc, 0x79, 0xa7), true),
    ("central-batch", RGBColor(0xe6, 0x9f, 0x00), true),
    ("local", RGBColor(0x56, 0xb4, 0xe9), true),
    ("hindsight", INK, true),
];

/// For methods without a colour of their own, in the order in which they come.
const SPARE: [RGBColor; 4] = [
    RGBColor(0x8a, 0x6f, 0xd1),
    RGBColor(0x99, 0x99, 0x33),
    RGBColor(0xa6, 0x61, 0x1a),
    RGBColor(0x88, 0x22, 0x55),
];

/// The style of the method called `name` in every picture of these results.
pub(crate) fn method(results: &Results, name: &str) -> LineStyle {
    let width = if name == "mk" { 2.4 } else { 1.7 };
    if let Some((_, color, dashed)) = KNOWN.into_iter().find(|(known, ..)| *known == name) {
        return LineStyle { color, dashed, width, opacity: 1.0 };
    }
    let mut strangers: Vec<&str> = Vec::new();
    for method in &results.methods {
        let known = KNOWN.iter().any(|(known, ..)| *known == method.name);
        if !known && !strangers.contains(&method.name.as_str()) {
            strangers.push(&method.name);
        }
    }
    let place = strangers.iter().position(|stranger| *stranger == name).unwrap_or(0);
    LineStyle { color: SPARE[place % SPARE.len()], dashed: place >= SPARE.len(), width, opacity: 1.0 }
}

/// `#d55e00`
pub(crate) fn hex(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Kernels are ordered by bandwidth: dark for the first, light for the last, evenly to the eye (after viridis).
pub(crate) fn kernel(index: usize, count: usize) -> RGBColor {
    const STOPS: [(u8, u8, u8); 9] = [
        (68, 1, 84),
        (71, 45, 123),
        (59, 82, 139),
        (44, 114, 142),
        (33, 145, 140),
        (40, 174, 128),
        (94, 201, 98),
        (173, 220, 48),
        (253, 231, 37),
    ];
    let last = STOPS.len() - 1;
    let place = if count > 1 {
        index.min(count - 1) as f64 / (count - 1) as f64 * last as f64
    } else {
        last as f64 / 2.0
    };
    let below = (place.floor() as usize).min(last - 1);
    let (from, to, share) = (STOPS[below], STOPS[below + 1], place - below as f64);
    let blend = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share).round() as u8;
    RGBColor(blend(from.0, to.0), blend(from.1, to.1), blend(from.2, to.2))
}

#[cfg(test)]
mod tests {
    use super::super::sample::results;
    use super::*;

    #[test]
    fn methods_without_a_colour_of_their_own_get_different_ones() {
        let mut results = results(3, 5, 2);
        results.methods[0].name = "new".into();
        results.methods[1].name = "newer".into();
        assert_ne!(method(&results, "new").color, method(&results, "newer").color);
        assert_eq!(method(&results, "mk"), method(&results, "mk"));
    }

    #[test]
    fn kernels_run_from_dark_to_light() {
        for count in [2, 11, 1000] {
            let lightness = |i| {
                let RGBColor(r, g, b) = kernel(i, count);
                0.2126 * f64::from(r) + 0.7152 * f64::from(g) + 0.0722 * f64::from(b)
            };
            assert!((1..count).all(|i| lightness(i) > lightness(i - 1) - 1.0));
            assert!(lightness(count - 1) > lightness(0) + 100.0);
        }
        assert_eq!(kernel(0, 1), RGBColor(33, 145, 140));
    }
}
