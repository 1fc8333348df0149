//! How a cost grows with a size: both on logarithmic axes, where a power is a straight line.

use super::chart::{Chart, Entry, Key, Mark, Shape, Words};
use super::scale::Axis;
use super::series::{Line, Point};
use super::{number, palette};

/// One thing whose cost grows.
#[derive(Debug, Clone, PartialEq)]
pub struct Growth {
    /// What it is called.
    pub label: String,
    /// Sizes, and of each the cost: least, middle and most that was measured.
    pub points: Vec<(f64, [f64; 3])>,
}

impl Growth {
    /// The power of the size that the cost grows with at last: the slope through the larger half of
    /// the points, by least squares.
    pub fn exponent(&self) -> Option<f64> {
        let upper = &self.points[self.points.len() / 2..];
        let logs: Vec<(f64, f64)> =
            upper.iter().map(|(size, [_, cost, _])| (size.ln(), cost.ln())).collect();
        let count = logs.len() as f64;
        let mean = |pick: fn(&(f64, f64)) -> f64| logs.iter().map(pick).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = logs.iter().map(|point| (point.0 - x).powi(2)).sum();
        let common: f64 = logs.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        Some(common / spread).filter(|slope| slope.is_finite())
    }
}

/// The chart of all of them; `words` are its title, what was held fixed, the size and the cost.
pub fn growth([title, fixed, size, cost]: [&str; 4], all: &[Growth]) -> String {
    let words =
        Words { title: title.into(), subtitle: fixed.into(), x: size.into(), y: cost.into() };
    let points = || all.iter().flat_map(|growth| &growth.points);
    let x = Axis::log(points().map(|point| point.0), 0.02);
    let y = Axis::log(points().flat_map(|point| point.1), 0.05);
    let line = |(index, growth): (usize, &Growth)| {
        let point = |(size, cost): &(f64, [f64; 3])| Point { round: *size, mean: cost[1], sd: 0.0 };
        let points = growth.points.iter().map(point).collect();
        Line { style: palette::series(index), ..Line::guide(growth.label.clone(), points) }
    };
    let lines: Vec<Line> = all.iter().enumerate().map(line).collect();
    let entries: Vec<Entry> = all
        .iter()
        .zip(&lines)
        .map(|(growth, line)| Entry {
            label: line.label.clone(),
            key: Key::Line(line.style),
            value: growth.exponent().map_or(String::new(), |exponent| number::fixed(exponent, 2)),
            bold: false,
        })
        .collect();
    let mut marks = Vec::new();
    for (growth, line) in all.iter().zip(&lines) {
        marks.extend(growth.points.iter().map(|(x, [least, _, most])| {
            Mark::plain(Shape::Range { x: *x, ends: (*least, *most), style: line.style })
        }));
        marks.push(Mark::line(line));
    }
    let chart = Chart {
        words,
        described: String::new(),
        x,
        y,
        marks,
        legend_heading: "exponent",
        legend: entries,
        note: "Medians, with the least and the most as bars. Exponent: slope through the larger \
               half of the sizes."
            .into(),
    };
    chart.sheet()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn power(exponent: f64) -> Growth {
        // What is small costs something too.
        let point = |size: f64| {
            (size, [0.9, 1.0, 1.2].map(|factor| factor * (1e-6 + 1e-6 * size.powf(exponent))))
        };
        Growth {
            label: format!("power {exponent}"),
            points: [1.0, 10.0, 1e5, 1e6, 1e7].map(point).to_vec(),
        }
    }

    #[test]
    fn exponents_are_those_of_the_larger_half() {
        assert!((power(1.0).exponent().unwrap() - 1.0).abs() < 0.01);
        assert!((power(0.5).exponent().unwrap() - 0.5).abs() < 0.02);
        assert_eq!(Growth { label: String::new(), points: vec![] }.exponent(), None);
        assert_eq!(Growth { label: String::new(), points: vec![(2.0, [1.0; 3])] }.exponent(), None);
    }

    #[test]
    fn the_chart_names_everything() {
        let svg = growth(["Time", "P = 11", "nodes", "seconds"], &[power(1.0), power(2.0)]);
        for part in ["Time", "P = 11", "nodes", "seconds", "power 1", "power 2", "1.00", "2.00"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(!svg.contains("NaN"));
    }
}
