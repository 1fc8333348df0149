//! How fast a method finds the best kernel on several data sets, in one chart.

use super::chart::{Chart, Entry, Key, Mark, Words};
use super::panels::{Pane, same};
use super::scale::Axis;
use super::series::{self, Line};
use super::{number, palette};
use hedgerow_lab::results::Results;

/// The fraction of trials in which a method has selected the best kernel, over rounds, a line per
/// data set.
pub(crate) fn convergence_panels(title: &str, method: &str, panes: &[Pane<'_>]) -> String {
    let (mut lines, mut legend, mut averaged) = (Vec::new(), Vec::new(), 1);
    for (place, pane) in panes.iter().enumerate() {
        let style = palette::series(place);
        let label = pane.title.to_owned();
        let found = pane.results.and_then(|results| convergence(results, method));
        let (key, value) = match found {
            Some((line, points)) => {
                let value = number::percent(line.last());
                averaged = averaged.max(points);
                lines.push(Line { style, label: label.clone(), ..line });
                (Key::Line(style), value)
            }
            None if pane.results.is_some() => (Key::Nothing, "not known".to_owned()),
            None => (Key::Nothing, "not available".to_owned()),
        };
        legend.push(Entry { label, key, value, bold: false });
    }
    let mut note = "Best: the single kernel with the least loss on the whole stream.".to_owned();
    if averaged > 1 {
        note += &format!(" Averages of up to {averaged} neighbouring points.");
    }
    let rounds = lines.iter().flat_map(|line| &line.points).map(|point| point.round);
    let quantity = format!("Share of trials in which {method} has selected the best kernel");
    let chart = Chart {
        words: Words {
            title: title.to_owned(),
            subtitle: same(panes, Results::sizes).unwrap_or_default(),
            x: "round t (log scale)".into(),
            y: "share of trials at the best kernel".into(),
        },
        described: series::describe(&lines, &quantity),
        x: Axis::log(rounds, 0.0),
        // A little beyond, so that the frame hides no line at none or at all of the trials.
        y: Axis::exactly(-0.02..=1.02),
        marks: lines.iter().rev().map(Mark::line).collect(),
        legend_heading: "last rounds",
        legend,
        note,
    };
    match lines.is_empty() {
        true => chart.sheet_with_sentence("No selection of kernels is known."),
        false => chart.sheet(),
    }
}

/// The share of the best kernel in a method over time.
fn convergence(results: &Results, method: &str) -> Option<(Line, usize)> {
    let convergence = series::convergence(results)?;
    let line = convergence.lines.into_iter().find(|line| line.method == method)?;
    Some((line, convergence.averaged))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::testing::results;

    fn pane<'r>(title: &'r str, results: Option<&'r Results>) -> Pane<'r> {
        Pane { title, results }
    }

    #[test]
    fn the_legend_of_the_convergence_has_the_final_shares() {
        let (mut half, full, mut unknown) =
            (results(3, 50, 4), results(5, 300, 4), results(3, 50, 4));
        half.methods[0]
            .curve
            .shares
            .iter_mut()
            .for_each(|shares| shares.copy_from_slice(&[0.25, 0.5, 0.25]));
        unknown.best_kernel = None;
        let panes = [
            pane("Half", Some(&half)),
            pane("Full", Some(&full)),
            pane("Unknown", Some(&unknown)),
            pane("Missing", None),
        ];
        let svg = convergence_panels("Convergence", "mk", &panes);
        // The text that follows.
        let value = |name: &str| {
            let (_, after) = svg.split_once(&format!(">{name}</text>")).unwrap();
            let (_, text) = after.split_once("<text").unwrap().1.split_once('>').unwrap();
            text.split('<').next().unwrap()
        };
        assert_eq!(
            ["Half", "Full", "Unknown", "Missing"].map(value),
            ["50%", "100%", "not known", "not available"]
        );
        let nobody = convergence_panels("Convergence", "mk", &panes[2..]);
        assert!(nobody.contains("No selection of kernels is known."));
    }
}
