//! Colours that hold for every figure and for the report: one per method name, and a sequence for
//! kernels.

pub(crate) use hedgerow::method::Dash;
use hedgerow::method::{Look, find};
use hedgerow_lab::results::Results;

/// A colour of the figures. On a page, those with a role take the colour of the page's style.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Color {
    rgb: (u8, u8, u8),
    role: &'static str,
}

impl Color {
    pub(crate) const fn rgb(red: u8, green: u8, blue: u8) -> Self {
        Self { rgb: (red, green, blue), role: "" }
    }

    const fn with_role(red: u8, green: u8, blue: u8, role: &'static str) -> Self {
        Self { rgb: (red, green, blue), role }
    }

    /// A colour between this one (a share of 0) and another (a share of 1).
    pub(crate) fn mixed(self, other: Self, share: f64) -> Self {
        let ((r, g, b), (to_r, to_g, to_b)) = (self.rgb, other.rgb);
        let part = |from: u8, to: u8| {
            (f64::from(from) + (f64::from(to) - f64::from(from)) * share).round() as u8
        };
        Self::rgb(part(r, to_r), part(g, to_g), part(b, to_b))
    }

    /// `#d55e00`
    pub(crate) fn hex(self) -> String {
        let (red, green, blue) = self.rgb;
        format!("#{red:02x}{green:02x}{blue:02x}")
    }

    /// Attributes that paint a shape, where `of` is `fill` or `stroke`; the class is for the style
    /// of a page.
    pub(crate) fn attributes(self, of: &str) -> String {
        match self.role {
            "" => format!(" {of}=\"{}\"", self.hex()),
            role => format!(" class=\"{role}-{of}\" {of}=\"{}\"", self.hex()),
        }
    }
}

/// The colour of text, axes and of what is known only in hindsight.
pub(crate) const INK: Color = Color::with_role(0x1a, 0x1a, 0x1a, "ink");
/// Text of less weight, and axes.
pub(crate) const SOFT_INK: Color = Color::with_role(0x5a, 0x60, 0x68, "soft");
/// What stays in the background.
pub(crate) const FAINT: Color = Color::with_role(0xb4, 0xb8, 0xbe, "faint");
/// The lines of the grid that have a number, and the others.
pub(crate) const GRID: Color = Color::with_role(0xdd, 0xe0, 0xe4, "grid");
pub(crate) const FINE_GRID: Color = Color::with_role(0xf0, 0xf2, 0xf4, "fine");
/// What everything is drawn on.
pub(crate) const PAPER: Color = Color::with_role(0xff, 0xff, 0xff, "paper");

/// Text on coloured ground, which is the same on light and dark pages.
pub(crate) const WHITE: Color = Color::rgb(0xff, 0xff, 0xff);
pub(super) const BLACK: Color = Color::rgb(0x1a, 0x1a, 0x1a);

/// Colours that sentences name.
pub(crate) const BLUE: (&str, Color) = ("blue", Color::rgb(0x00, 0x72, 0xb2));
pub(crate) const ORANGE: (&str, Color) = ("orange", Color::rgb(0xd5, 0x5e, 0x00));

/// How the line of a method looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LineStyle {
    pub(crate) color: Color,
    /// Comparators outside federated learning are broken, so that the kinds differ without colour.
    pub(crate) dash: Dash,
    pub(crate) width: f64,
    pub(crate) opacity: f64,
}

impl LineStyle {
    pub(crate) const fn solid(color: Color, width: f64) -> Self {
        Self { color, dash: Dash::Solid, width, opacity: 1.0 }
    }
}

/// A reference slope.
pub(crate) const GUIDE: LineStyle =
    LineStyle { dash: Dash::Dashes, ..LineStyle::solid(FAINT, 1.4) };

/// Where the data changes.
pub(crate) const CHANGE: LineStyle =
    LineStyle { dash: Dash::Dots, ..LineStyle::solid(SOFT_INK, 1.5) };

/// For methods without a colour of their own, in the order in which they come.
const SPARE: [Color; 4] = [
    Color::rgb(0x44, 0x77, 0xaa),
    Color::rgb(0x77, 0x99, 0x55),
    Color::rgb(0x66, 0x44, 0x22),
    Color::rgb(0x88, 0x22, 0x55),
];

/// Shades of a method's colour for its variants: how far towards black (below zero) or white, and
/// how broken.
const SHADES: [(f64, Dash); 6] = [
    (-0.45, Dash::Dashes),
    (0.4, Dash::Dashes),
    (0.0, Dash::Dots),
    (-0.45, Dash::Dots),
    (0.4, Dash::Dots),
    (-0.2, Dash::Dashes),
];

/// The style of the method called `name` in every picture of these results.
pub(crate) fn method(results: &Results, name: &str) -> LineStyle {
    let width = if is_bold(name) { 2.4 } else { 1.7 };
    let style = |color, dash| LineStyle { dash, ..LineStyle::solid(color, width) };
    if let Some((color, dash)) = known(name) {
        return style(color, dash);
    }
    if let Some(((color, _), original)) = original(name) {
        let place =
            place(results, name, |other| self::original(other).is_some_and(|(_, o)| o == original));
        let (towards, dash) = SHADES[place % SHADES.len()];
        let end = if towards < 0.0 { Color::rgb(0, 0, 0) } else { WHITE };
        return style(color.mixed(end, towards.abs()), dash);
    }
    let place = place(results, name, |other| known(other).is_none() && original(other).is_none());
    let dash = if place < SPARE.len() { Dash::Solid } else { Dash::Dashes };
    style(SPARE[place % SPARE.len()], dash)
}

/// Whether the method of this name stands out in figures.
pub(crate) fn is_bold(name: &str) -> bool {
    find(name).is_some_and(|info| info.is_featured)
}

/// Looks for a dozen things that are not methods: colours first, then broken lines.
pub(crate) fn series(index: usize) -> LineStyle {
    const COLORS: [Color; 9] = [
        ORANGE.1,
        BLUE.1,
        Color::rgb(0x00, 0x9e, 0x73),
        Color::rgb(0xcc, 0x79, 0xa7),
        Color::rgb(0xe6, 0x9f, 0x00),
        Color::rgb(0x56, 0xb4, 0xe9),
        INK,
        SPARE[3],
        SPARE[1],
    ];
    let dash = match index {
        0..=6 => Dash::Solid,
        7..=8 => Dash::Dashes,
        _ => Dash::Dots,
    };
    LineStyle { dash, ..LineStyle::solid(COLORS[index % COLORS.len()], 1.8) }
}

/// The colours of methods are those of Okabe and Ito, told apart by colour-blind readers, without
/// yellow, which is too pale on white; other authors' methods are darker.
fn known(name: &str) -> Option<(Color, Dash)> {
    let Look { colour: [red, green, blue], dash } = find(name)?.look;
    let colour = Color::rgb(red, green, blue);
    // A colour with a role follows the style of the page.
    Some((if colour.rgb == INK.rgb { INK } else { colour }, dash))
}

/// What `mk:voters` is a variant of.
fn original(name: &str) -> Option<((Color, Dash), &str)> {
    let (original, _) = name.split_once([':', '/', '+'])?;
    Some((known(original)?, original))
}

/// Which one `name` is of the different names that belong together.
fn place(results: &Results, name: &str, belongs: impl Fn(&str) -> bool) -> usize {
    let mut names: Vec<&str> = Vec::new();
    for method in results.methods.iter().filter(|method| belongs(&method.name)) {
        if !names.contains(&method.name.as_str()) {
            names.push(&method.name);
        }
    }
    names.iter().position(|other| *other == name).unwrap_or(0)
}

/// Kernels are ordered by bandwidth: dark for the first, light for the last, evenly to the eye
/// (after viridis).
pub(crate) fn kernel(index: usize, count: usize) -> Color {
    const STOPS: [Color; 9] = [
        Color::rgb(68, 1, 84),
        Color::rgb(71, 45, 123),
        Color::rgb(59, 82, 139),
        Color::rgb(44, 114, 142),
        Color::rgb(33, 145, 140),
        Color::rgb(40, 174, 128),
        Color::rgb(94, 201, 98),
        Color::rgb(173, 220, 48),
        Color::rgb(253, 231, 37),
    ];
    let last = STOPS.len() - 1;
    let place = if count > 1 {
        index.min(count - 1) as f64 / (count - 1) as f64 * last as f64
    } else {
        last as f64 / 2.0
    };
    let below = (place.floor() as usize).min(last - 1);
    STOPS[below].mixed(STOPS[below + 1], place - below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::results::MethodResult;
    use hedgerow_lab::testing::results;

    #[test]
    fn methods_without_a_colour_of_their_own_get_different_ones() {
        let mut results = results(3, 5, 2);
        results.methods[0].name = "new".into();
        results.methods[1].name = "newer".into();
        assert_ne!(method(&results, "new").color, method(&results, "newer").color);
        assert_eq!(method(&results, "mk"), method(&results, "mk"));
    }

    #[test]
    fn every_variant_differs_from_its_method_and_from_the_others() {
        let mut results = results(3, 5, 2);
        let names =
            ["mk", "mk:a", "mk:b", "mk:c", "mk:d", "mk:e", "mk:f", "naive:a", "new", "new:a"];
        let mk = results.methods[0].clone();
        results.methods =
            names.map(|name| MethodResult { name: name.into(), ..mk.clone() }).to_vec();
        let look = |name: &str| {
            let LineStyle { color, dash, .. } = method(&results, name);
            (color.hex(), format!("{dash:?}"))
        };
        let looks: std::collections::BTreeSet<_> = names.into_iter().map(look).collect();
        assert_eq!(looks.len(), names.len());
        // Near the method's own: vermilion has more red than green, and more green than blue.
        for variant in &names[1..7] {
            let Color { rgb: (r, g, b), .. } = method(&results, variant).color;
            assert!(r > g && g >= b, "{variant}");
        }
    }

    #[test]
    fn a_dozen_series_differ() {
        let looks: Vec<_> = (0..12).map(series).collect();
        assert!((0..12).all(|i| (0..i).all(|j| looks[i] != looks[j])));
    }

    #[test]
    fn what_learns_nothing_has_no_colour() {
        for name in ["last", "mean"] {
            let LineStyle { color: Color { rgb: (r, g, b), .. }, dash, .. } =
                method(&results(3, 5, 2), name);
            assert!(r.abs_diff(g) < 20 && g.abs_diff(b) < 20 && dash != Dash::Solid, "{name}");
        }
    }

    #[test]
    fn kernels_run_from_dark_to_light() {
        for count in [2, 11, 1000] {
            let lightness = |i| {
                let Color { rgb: (r, g, b), .. } = kernel(i, count);
                0.2126 * f64::from(r) + 0.7152 * f64::from(g) + 0.0722 * f64::from(b)
            };
            assert!((1..count).all(|i| lightness(i) > lightness(i - 1) - 1.0));
            assert!(lightness(count - 1) > lightness(0) + 100.0);
        }
        assert_eq!(kernel(0, 1), Color::rgb(33, 145, 140));
    }
}
