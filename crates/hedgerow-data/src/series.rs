//! [`Series`]: the past of one time series, and the sample that it makes of the next row.

use std::collections::VecDeque;

use super::columns::Exogenous;
use super::samples::Sample;

/// The parts of a sample of a time series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Inputs of a row.
    pub(super) inputs: usize,
    /// Columns whose past counts, besides the label's.
    pub(super) lagged: usize,
    /// Steps back that are looked at, s.
    pub(super) lags: usize,
    /// Steps ahead, h.
    pub(super) horizon: usize,
    /// Which row the inputs are taken from.
    pub(super) exogenous: Exogenous,
}

impl Shape {
    /// Numbers in a sample: the inputs, the past labels, the past of each lagged column; each past
    /// with the latest first.
    pub(super) fn width(&self) -> usize {
        self.inputs + self.lags * (1 + self.lagged)
    }

    /// Whether samples depend on earlier rows.
    pub(super) fn looks_back(&self) -> bool {
        self.lags > 0 || self.exogenous == Exogenous::Origin
    }

    /// Rows between the one that a forecast is made in and the label's.
    fn origin(&self) -> usize {
        self.horizon.saturating_sub(1)
    }

    /// Rows before the first that makes a sample.
    pub(super) fn history(&self) -> usize {
        if self.looks_back() { self.origin() + self.lags.max(1) } else { 0 }
    }
}

/// The last rows of one series.
#[derive(Debug, Default)]
pub(super) struct Series {
    past: VecDeque<PastRow>,
    /// The latest label that isn't missing.
    known: Option<f32>,
}

#[derive(Debug, Default)]
struct PastRow {
    inputs: Vec<f32>,
    lagged: Vec<f32>,
    label: f32,
    /// The latest label that was known then.
    known: Option<f32>,
}

impl Series {
    /// Takes the next row. Writes its sample and returns true, unless there is too little past yet.
    pub(super) fn next(
        &mut self,
        shape: &Shape,
        inputs: &[f32],
        lagged: &[f32],
        label: f32,
        sample: &mut Sample,
    ) -> bool {
        let history = shape.history();
        let is_ready = self.past.len() == history;
        if is_ready {
            self.write(shape, inputs, label, sample);
        }
        if !label.is_nan() {
            self.known = Some(label);
        }
        if history > 0 {
            // The oldest row goes; its buffers are used again.
            let mut latest = if is_ready { self.past.pop_back() } else { None }.unwrap_or_default();
            latest.inputs.clear();
            latest.lagged.clear();
            if shape.exogenous == Exogenous::Origin {
                latest.inputs.extend_from_slice(inputs);
            }
            latest.lagged.extend_from_slice(lagged);
            (latest.label, latest.known) = (label, self.known);
            self.past.push_front(latest);
        }
        is_ready
    }

    fn write(&self, shape: &Shape, inputs: &[f32], label: f32, sample: &mut Sample) {
        sample.x.clear();
        sample.y = label;
        sample.last = self.known;
        let origin = shape.origin();
        match shape.exogenous {
            Exogenous::SameRow => sample.x.extend_from_slice(inputs),
            Exogenous::Origin => sample.x.extend_from_slice(&self.past[origin].inputs),
        }
        if shape.looks_back() {
            let seen = || self.past.range(origin..origin + shape.lags);
            sample.x.extend(seen().map(|past| past.label));
            for column in 0..shape.lagged {
                sample.x.extend(seen().map(|past| past.lagged[column]));
            }
            sample.last = self.past[origin].known;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Shape =
        Shape { inputs: 1, lagged: 0, lags: 0, horizon: 1, exogenous: Exogenous::SameRow };

    /// Row t has the input 10t, the lagged column 100t and the label t.
    fn samples(shape: Shape, rows: usize) -> Vec<(Vec<f32>, f32, Option<f32>)> {
        let (mut series, mut sample) = (Series::default(), Sample::default());
        let mut made = Vec::new();
        for t in 0..rows {
            let t = t as f32;
            let lagged = [100.0 * t];
            if series.next(&shape, &[10.0 * t], &lagged[..shape.lagged], t, &mut sample) {
                assert_eq!(sample.x.len(), shape.width());
                made.push((sample.x.clone(), sample.y, sample.last));
            }
        }
        made
    }

    #[test]
    fn without_a_past_every_row_is_a_sample() {
        assert_eq!(samples(PLAIN, 2), [(vec![0.0], 0.0, None), (vec![10.0], 1.0, Some(0.0))]);
    }

    #[test]
    fn the_past_stands_behind_the_inputs_latest_first() {
        let made = samples(Shape { lags: 2, ..PLAIN }, 4);
        assert_eq!(
            made,
            [(vec![20.0, 1.0, 0.0], 2.0, Some(1.0)), (vec![30.0, 2.0, 1.0], 3.0, Some(2.0))]
        );
    }

    #[test]
    fn several_steps_ahead_only_what_is_known_then_counts() {
        let made = samples(
            Shape { lags: 2, horizon: 3, lagged: 1, exogenous: Exogenous::Origin, ..PLAIN },
            6,
        );
        assert_eq!(made.len(), 2);
        // The label of row 4, seen from row 1: its input, labels 1 and 0, lagged 100 and 0.
        assert_eq!(made[0], (vec![10.0, 1.0, 0.0, 100.0, 0.0], 4.0, Some(1.0)));
        assert_eq!(made[1], (vec![20.0, 2.0, 1.0, 200.0, 100.0], 5.0, Some(2.0)));
    }

    #[test]
    fn the_last_value_is_the_last_that_was_known() {
        let shape = Shape { inputs: 0, lags: 1, ..PLAIN };
        let (mut series, mut sample) = (Series::default(), Sample::default());
        let mut last = Vec::new();
        for label in [f32::NAN, 1.0, f32::NAN, f32::NAN, 2.0, 3.0] {
            if series.next(&shape, &[], &[], label, &mut sample) {
                last.push(sample.last);
            }
        }
        assert_eq!(last, [None, Some(1.0), Some(1.0), Some(1.0), Some(2.0)]);
    }
}
