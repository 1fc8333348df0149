//! The windowed errors of several runs, a small chart each, with the changes of the data marked.

use super::errors::Error;
use super::panels::{Pane, draw_errors};
use crate::drift;
use hedgerow_lab::results::Results;

/// The error of every method over a sliding window of rounds, a chart per run.
pub(crate) fn drift_panels(title: &str, columns: usize, results: &[Results]) -> String {
    let pane = |results| Pane { title: drift::title(results), results: Some(results) };
    let panes: Vec<Pane<'_>> = results.iter().map(pane).collect();
    draw_errors(title, columns, &panes, Error::Windowed)
}

#[cfg(test)]
mod tests {
    use super::super::palette;
    use super::*;
    use hedgerow_lab::testing as sample;

    fn run(stream: &str) -> Results {
        let mut results = sample::results(3, 120, 4);
        results.data.name = stream.into();
        results.data.provenance = "generated".into();
        results
    }

    /// How often the colour of changes is drawn: as a shade, and as dots.
    fn marks(svg: &str) -> (usize, usize) {
        let color = palette::CHANGE.color.hex();
        let of = |kind: &str| {
            svg.lines().filter(|line| line.contains(kind) && line.contains(&color)).count()
        };
        (of("<polygon"), of("<polyline"))
    }

    #[test]
    fn changes_are_marked_where_they_are_known() {
        let draw = |streams: &[&str]| {
            let runs: Vec<Results> = streams.iter().map(|stream| run(stream)).collect();
            drift_panels("Drift", 2, &runs)
        };
        let (none, sudden, gradual) =
            (draw(&["friedman"]), draw(&["drift-flip"]), draw(&["drift-gradual"]));
        assert!(!none.contains("the data changes"));
        assert!(sudden.contains("the data changes") && !sudden.contains("Shaded in grey"));
        assert!(gradual.contains("Shaded in grey: while the data changes."));
        let (shades, dots) = marks(&none);
        assert_eq!(marks(&gradual).0, shades + 1);
        assert_eq!(marks(&sudden).0, shades);
        // One more in the legend.
        assert_eq!(marks(&sudden).1, dots + 2);
        assert_eq!(marks(&draw(&["drift-recurring"])).1, dots + 6);
    }

    #[test]
    fn a_chart_per_run_of_the_windowed_error() {
        let runs = ["drift", "drift-flip", "air-quality"].map(run);
        let svg = drift_panels("Drift", 2, &runs);
        for text in
            [">(a) drift<", ">(b) drift-flip<", ">(c) Air quality<", ">MSE over 100 rounds<"]
        {
            assert!(svg.contains(text), "{text}");
        }
        assert!(svg.contains("drift-flip: MSE over the last 100 rounds at round 120: "));
    }

    #[test]
    fn runs_without_a_window_have_a_sentence_instead() {
        let mut run = run("drift");
        run.loss = "logistic".into();
        assert!(drift_panels("Drift", 2, &[run]).contains("No course of the error is known."));
        assert!(!drift_panels("Drift", 0, &[]).is_empty());
    }
}
