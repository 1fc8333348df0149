//! [`Series`]: the past of one time series, and the sample that it makes of the next row.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::columns::Exogenous;
use super::samples::Sample;

/// The parts of a sample of a time series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Inputs of a row.
    pub(super) inputs: usize,
    /// Labels of a row.
    pub(super) labels: usize,
    /// Columns whose past counts, besides the labels'.
    pub(super) lagged: usize,
    /// Steps back that are looked at, s.
    pub(super) lags: usize,
    /// Steps ahead, h.
    pub(super) horizon: usize,
    /// Which row the inputs are taken from.
    pub(super) exogenous: Exogenous,
}

impl Shape {
    /// Numbers in a sample: the inputs, the past of each label, the past of each lagged column;
    /// each past with the latest first.
    pub(super) fn width(&self) -> usize {
        self.inputs + self.lags * (self.labels + self.lagged)
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
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Series {
    past: VecDeque<PastRow>,
    /// The latest of each label that isn't missing; NaN if there is none.
    known: Vec<f32>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct PastRow {
    inputs: Vec<f32>,
    lagged: Vec<f32>,
    labels: Vec<f32>,
    /// The latest labels that were known then.
    known: Vec<f32>,
}

impl Series {
    /// Takes the next row. Writes its sample and returns true, unless there is too little past yet.
    pub(super) fn next(
        &mut self,
        shape: &Shape,
        inputs: &[f32],
        lagged: &[f32],
        labels: &[f32],
        sample: &mut Sample,
    ) -> bool {
        let is_ready = self.peek(shape, inputs, labels, sample);
        let history = shape.history();
        let new = labels.iter().zip(&mut self.known).filter(|(label, _)| !label.is_nan());
        new.for_each(|(label, known)| *known = *label);
        if history > 0 {
            // The oldest row goes; its buffers are used again.
            let mut latest = if is_ready { self.past.pop_back() } else { None }.unwrap_or_default();
            latest.inputs.clear();
            latest.lagged.clear();
            if shape.exogenous == Exogenous::Origin {
                latest.inputs.extend_from_slice(inputs);
            }
            latest.lagged.extend_from_slice(lagged);
            latest.labels.clear();
            latest.labels.extend_from_slice(labels);
            latest.known.clone_from(&self.known);
            self.past.push_front(latest);
        }
        is_ready
    }

    /// Writes the sample of a row and returns true, unless there is too little past yet. The row
    /// doesn't become part of the past.
    pub(super) fn peek(
        &mut self,
        shape: &Shape,
        inputs: &[f32],
        labels: &[f32],
        sample: &mut Sample,
    ) -> bool {
        self.known.resize(labels.len(), f32::NAN);
        let is_ready = self.past.len() == shape.history();
        if is_ready {
            self.write(shape, inputs, labels, sample);
        }
        is_ready
    }

    /// Rows of the past.
    pub(super) fn len(&self) -> usize {
        self.past.len()
    }

    /// Sets the labels of an earlier row; 0 is the latest.
    pub(super) fn set_labels(&mut self, row: usize, labels: &[f32]) {
        if let Some(past) = self.past.get_mut(row) {
            past.labels.copy_from_slice(labels);
        }
    }

    /// Whether it can be the past of such a series.
    pub(super) fn fits(&self, shape: &Shape) -> bool {
        let inputs = if shape.exogenous == Exogenous::Origin { shape.inputs } else { 0 };
        let is_row = |row: &PastRow| {
            let PastRow { inputs: own, lagged, labels, known } = row;
            [own.len(), lagged.len(), labels.len(), known.len()]
                == [inputs, shape.lagged, shape.labels, shape.labels]
        };
        self.past.len() <= shape.history()
            && self.known.len() <= shape.labels
            && self.past.iter().all(is_row)
    }

    fn write(&self, shape: &Shape, inputs: &[f32], labels: &[f32], sample: &mut Sample) {
        sample.x.clear();
        sample.y.clear();
        sample.y.extend_from_slice(labels);
        sample.last.clone_from(&self.known);
        let origin = shape.origin();
        match shape.exogenous {
            Exogenous::SameRow => sample.x.extend_from_slice(inputs),
            Exogenous::Origin => sample.x.extend_from_slice(&self.past[origin].inputs),
        }
        if shape.looks_back() {
            let seen = || self.past.range(origin..origin + shape.lags);
            for label in 0..shape.labels {
                sample.x.extend(seen().map(|past| past.labels[label]));
            }
            for column in 0..shape.lagged {
                sample.x.extend(seen().map(|past| past.lagged[column]));
            }
            sample.last.clone_from(&self.past[origin].known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Shape = Shape {
        inputs: 1,
        labels: 1,
        lagged: 0,
        lags: 0,
        horizon: 1,
        exogenous: Exogenous::SameRow,
    };

    /// Row t has the input 10t, the lagged column 100t and the label t.
    fn samples(shape: Shape, rows: usize) -> Vec<(Vec<f32>, f32, Option<f32>)> {
        let (mut series, mut sample) = (Series::default(), Sample::default());
        let mut made = Vec::new();
        for t in 0..rows {
            let t = t as f32;
            let lagged = [100.0 * t];
            if series.next(&shape, &[10.0 * t], &lagged[..shape.lagged], &[t], &mut sample) {
                assert_eq!(sample.x.len(), shape.width());
                let last = Some(sample.last[0]).filter(|last| !last.is_nan());
                made.push((sample.x.clone(), sample.y[0], last));
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
            if series.next(&shape, &[], &[], &[label], &mut sample) {
                last.push(sample.last[0]);
            }
        }
        assert!(last[0].is_nan());
        assert_eq!(last[1..], [1.0, 1.0, 1.0, 2.0]);
    }

    #[test]
    fn several_labels_have_a_past_each() {
        let shape = Shape { inputs: 0, labels: 2, lags: 2, ..PLAIN };
        let (mut series, mut sample) = (Series::default(), Sample::default());
        let rows = [[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]];
        let is_ready = rows.map(|row| series.next(&shape, &[], &[], &row, &mut sample));
        assert_eq!(is_ready, [false, false, true]);
        assert_eq!((&sample.x[..], &sample.y[..]), (&[2.0, 1.0, 20.0, 10.0][..], &[3.0, 30.0][..]));
        assert_eq!(sample.last, [2.0, 20.0]);
    }
}
