//! The errors of all methods over time, and the axes that show them.

use super::palette::{self, LineStyle};
use super::scale::{Axis, Spacing};
use super::series::{Line, Point, is_other_single, last_round, points};
use hedgerow::method::Reference;
use hedgerow_lab::measure::Measure;
use hedgerow_lab::results::{MethodResult, Results};

/// Which error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Error {
    /// Over all predictions so far.
    Running,
    /// Over a sliding window; known for the squared error only.
    Windowed,
}

/// Errors of all methods, with all single kernels but the best in the background.
pub(crate) struct Errors {
    pub(crate) lines: Vec<Line>,
    pub(crate) others: Vec<Line>,
    /// Single kernels besides the best, drawn or not.
    pub(crate) others_in_all: usize,
}

impl Errors {
    pub(crate) fn all(&self) -> impl Iterator<Item = &Line> {
        self.others.iter().chain(&self.lines)
    }

    /// From 0 to the last round of any line.
    pub(crate) fn rounds(&self) -> Axis {
        Axis::rounds(Spacing::Linear, last_round(self.all()))
    }

    /// The means that decide how far the axis goes. Spreads don't count, nor does the best fixed
    /// function of the first few samples, which fits them almost exactly: either would squash all
    /// curves.
    fn reach(&self) -> impl Iterator<Item = f64> {
        self.all().flat_map(Line::settled).map(|point| point.mean)
    }

    /// A logarithmic axis for the errors; none if no error is positive.
    pub(crate) fn log_axis(&self) -> Option<Axis> {
        self.reach().any(|mean| mean > 0.0).then(|| Axis::log(self.reach(), 0.04))
    }

    /// The same, not stretched downwards by the first few rounds, when a method may happen to be
    /// right.
    pub(crate) fn settled_axis(&self) -> Option<Axis> {
        let early = last_round(self.all()) * EARLY;
        let settled = || self.all().flat_map(Line::settled).filter(|point| point.mean > 0.0);
        let late = settled().filter(|point| point.round >= early);
        let low = late.map(|point| point.mean).reduce(f64::min)?;
        Some(Axis::log(settled().map(|point| point.mean).filter(|mean| *mean >= low), 0.04))
    }

    /// A linear axis from zero.
    pub(crate) fn linear_axis(&self) -> Axis {
        Axis::from_zero(self.reach())
    }
}

/// What is said where a logarithmic axis has nothing to show.
pub(crate) const NOTHING_POSITIVE: &str =
    "Every error is zero: a logarithmic axis has no place for it.";

/// First share of the rounds in which a small error may be chance.
const EARLY: f64 = 0.1;

/// More background lines than this say nothing more.
const MOST_OTHERS: usize = 30;

/// The courses of the error, in the order of the results; none if no method has a course.
pub(crate) fn errors(results: &Results, error: Error) -> Option<Errors> {
    let (mut lines, mut others, mut courses) = (Vec::new(), Vec::new(), 0);
    let measure = Measure::of(results);
    for method in results.methods.iter().filter(|method| measure.is_known_for(method)) {
        let mut line = Line::of(results, method, error_course(measure, method, error));
        courses += usize::from(!line.points.is_empty());
        // A fixed function has one error, not a course.
        if line.points.is_empty() && method.is(Reference::Hindsight) {
            line.points = points(&[0, results.rounds as u64], &[method.mse; 2]);
        }
        if line.points.is_empty() {
            continue;
        }
        if !is_other_single(results, method) {
            lines.push(line);
        } else {
            let style = LineStyle { color: palette::FAINT, width: 0.8, ..line.style };
            others.push(Line { style, ..line });
        }
    }
    let others_in_all = others.len();
    let every = others_in_all.div_ceil(MOST_OTHERS).max(1);
    let others: Vec<Line> = others.into_iter().step_by(every).collect();
    (courses > 0).then_some(Errors { lines, others, others_in_all })
}

fn error_course(measure: Measure, method: &MethodResult, error: Error) -> Vec<Point> {
    let values = match (error, measure) {
        (Error::Running, _) => measure.course(method),
        (Error::Windowed, Measure::Mse | Measure::ErrorRate) => &method.curve.mse_window,
        (Error::Windowed, Measure::Loss) => &[],
    };
    points(&method.curve.rounds, values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_lab::results::Moments;
    use hedgerow_lab::testing::results;

    #[test]
    fn the_best_single_kernel_stands_out_and_the_rest_stay_behind() {
        let errors = errors(&results(11, 50, 3), Error::Running).unwrap();
        let labels: Vec<&str> = errors.lines.iter().map(|line| line.label.as_str()).collect();
        assert_eq!(labels, ["mk", "naive", "central", "local", "sk 6 (best)", "hindsight 6"]);
        assert_eq!((errors.others.len(), errors.others_in_all), (10, 10));
        assert!(errors.others.iter().all(|line| line.style.color == palette::FAINT));
    }

    #[test]
    fn infinite_errors_leave_gaps() {
        let mut results = results(3, 5, 2);
        results.methods[0].curve.mse[2].mean = f64::INFINITY;
        assert_eq!(errors(&results, Error::Running).unwrap().lines[0].points.len(), 4);
    }

    #[test]
    fn neither_spreads_nor_the_first_fits_in_hindsight_stretch_the_axis() {
        let mut results = results(3, 100, 2);
        let plain = errors(&results, Error::Running).unwrap().log_axis().unwrap();
        results.methods[0].curve.mse[0].sd = 1e9;
        let fixed = results.methods.last_mut().unwrap();
        fixed.curve.rounds = vec![1, 10, 60, 100];
        fixed.curve.mse =
            [0.004, 1e-9, 0.004, 0.004].map(|mean| Moments { mean, sd: 1.0 }).to_vec();
        let errors = errors(&results, Error::Running).unwrap();
        let axis = errors.log_axis().unwrap();
        assert!(axis.high() < plain.high() * 1.1 && axis.low() > 0.003, "{axis:?}");
        assert!(axis.holds(0.004) && errors.linear_axis().high() < 1.0);
        assert_eq!(errors.lines.last().unwrap().entering(&axis).points.len(), 2);
    }

    #[test]
    fn zero_has_no_logarithmic_axis() {
        let mut results = results(2, 5, 2);
        for method in &mut results.methods {
            method.mse = Moments::default();
            method.curve.mse.fill(Moments::default());
        }
        let errors = errors(&results, Error::Running).unwrap();
        assert!(errors.log_axis().is_none());
        assert!(errors.linear_axis().high() > errors.linear_axis().low());
    }

    #[test]
    fn another_loss_has_a_course_of_its_own_and_no_window() {
        let mut results = results(3, 5, 2);
        results.loss = "huber".into();
        results.methods[0].curve.loss[4].mean = 0.75;
        let running = errors(&results, Error::Running).unwrap();
        assert_eq!(running.lines[0].last(), 0.75);
        assert!(running.lines.iter().all(|line| !line.in_hindsight));
        assert!(errors(&results, Error::Windowed).is_none());
    }

    #[test]
    fn a_thousand_kernels_are_thinned() {
        let results = results(1000, 20, 2);
        let errors = errors(&results, Error::Running).unwrap();
        assert!(errors.others.len() <= MOST_OTHERS);
        assert_eq!(errors.others_in_all, 999);
    }
}
