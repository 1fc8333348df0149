//! [`NodeScaling`]: a node's part of the scaling.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::scale::{Axis, Scale, ScaleKind};
use super::summary::Summary;
use crate::message::{Rejected, Report};
use crate::state::{BadState, StateKind, is_count};

const KIND: StateKind = StateKind::new("scaling-node");

/// Fills in what is missing, scales what is there, and remembers what it has seen.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeScaling {
    /// What agreed scales are made from; none if the scale was given.
    kind: Option<ScaleKind>,
    inputs: usize,
    labels: usize,
    state: State,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    /// Samples so far.
    seen: u64,
    /// And at the last report.
    reported: u64,
    /// That of the latest scale; 0 before the first.
    version: u64,
    scale: Option<Scale>,
    summary: Summary,
}

impl State {
    fn new(columns: usize, scale: Option<Scale>) -> Self {
        Self { seen: 0, reported: 0, version: 0, scale, summary: Summary::new(columns) }
    }
}

impl NodeScaling {
    /// For samples of so many inputs; its scale will be agreed on.
    pub fn new(kind: ScaleKind, inputs: usize) -> Self {
        Self { kind: Some(kind), inputs, labels: 1, state: State::new(inputs + 1, None) }
    }

    /// The same for samples of several labels.
    ///
    /// # Panics
    /// If its scale was given and has fewer columns.
    pub fn with_labels(self, labels: usize) -> Self {
        let Self { kind, inputs, labels: before, state: State { scale, .. } } = self;
        let inputs = if scale.is_some() { inputs + before - labels } else { inputs };
        Self { kind, inputs, labels, state: State::new(inputs + labels, scale) }
    }

    /// With a scale that is known beforehand ([`Scale::identity`] where none is needed): it never
    /// reports and never adopts another one, but still fills in what is missing.
    pub fn fixed(scale: Scale) -> Self {
        let inputs = scale.inputs();
        Self { kind: None, inputs, labels: 1, state: State::new(inputs + 1, Some(scale)) }
    }

    /// Writes the scaled inputs of a sample and says how many were missing (NaN, or not finite) and
    /// had to be filled in: by the mean of what this node has seen of that column, or by the centre
    /// of the scale if it has seen nothing yet. Before the first agreement everything is 0. Never
    /// allocates.
    ///
    /// # Panics
    /// If `raw` or `out` has the wrong length.
    pub fn prepare(&self, raw: &[f32], out: &mut [f32]) -> usize {
        assert_eq!((raw.len(), out.len()), (self.inputs, self.inputs), "numbers per sample");
        let mut missing = 0;
        for (input, (out, &raw)) in out.iter_mut().zip(raw).enumerate() {
            missing += usize::from(!raw.is_finite());
            *out = self.state.scale.as_ref().map_or(0.0, |scale| {
                let known =
                    || self.state.summary.mean(input).unwrap_or_else(|| scale.centre(input));
                scale.scale_input(input, if raw.is_finite() { f64::from(raw) } else { known() })
            });
        }
        missing
    }

    /// Remembers a raw sample; call it once its prediction has been made. Never allocates.
    ///
    /// # Panics
    /// If it has another number of inputs, or more labels.
    pub fn see(&mut self, x: &[f32], y: impl IntoIterator<Item = f32>) {
        assert_eq!(x.len(), self.inputs, "numbers per sample");
        let State { seen, summary, .. } = &mut self.state;
        *seen += 1;
        x.iter().enumerate().for_each(|(input, value)| summary.add(input, f64::from(*value)));
        for (column, label) in (self.inputs..).zip(y) {
            summary.add(column, f64::from(label));
        }
    }

    /// Writes a report for the server if one is due: when the number of samples has doubled since
    /// the last.
    pub fn report(&mut self, out: &mut Report) -> bool {
        let State { seen, reported, .. } = self.state;
        let is_due = self.kind.is_some() && seen > 0 && seen / 2 >= reported;
        if is_due {
            self.state.reported = seen;
            self.state.summary.write(out);
        }
        is_due
    }

    /// Takes over a scale that the server sent and says whether it is newer than its own. The
    /// models have to be transported from the old scale to this one.
    pub fn adopt(&mut self, version: u64, scale: &Scale) -> Result<bool, Rejected> {
        self.check(version, scale)?;
        Ok(version > self.state.version && self.follow(version, scale)?)
    }

    /// Takes over whatever scale the server has, older or newer, and says whether it is another
    /// than its own: for those who hear from the server itself, in order, and whose server may have
    /// lost what was agreed on.
    pub fn follow(&mut self, version: u64, scale: &Scale) -> Result<bool, Rejected> {
        self.check(version, scale)?;
        let is_same = version == self.state.version && self.scale() == Some(scale);
        if self.kind.is_none() || is_same {
            return Ok(false);
        }
        self.state.version = version;
        self.state.scale = Some(scale.clone());
        Ok(true)
    }

    /// Refuses a scale that can't be one of this node's.
    fn check(&self, version: u64, scale: &Scale) -> Result<(), Rejected> {
        if version == 0 || !is_count(version) {
            return Err(Rejected::NoSuchVersion { version });
        }
        let (expected, found) = (self.inputs + self.labels, scale.columns());
        if found != expected {
            return Err(Rejected::WrongLength { expected: 2 * expected, found: 2 * found });
        }
        match self.kind {
            Some(kind) if !scale.is_made_from(kind) => Err(Rejected::WrongScale),
            _ => Ok(()),
        }
    }

    /// The scale in use; none until the first agreement.
    pub fn scale(&self) -> Option<&Scale> {
        self.state.scale.as_ref()
    }

    /// The scale of a label, by its position from 0; none until the first agreement.
    pub fn label(&self, output: usize) -> Option<Axis> {
        self.scale().map(|scale| scale.axis(self.inputs + output))
    }

    /// A label, scaled. As a rule it is limited like an input ([`Axis::scale_label`]). If all that
    /// this node has seen is on the whole beyond that limit, its labels are in another unit than
    /// those of all others: then it may be twice as large, and methods don't learn what is beyond
    /// [`Scale::LIMIT`]. So a node in a wrong unit doesn't spoil the others' models. A node whose
    /// labels jump isn't meant: most of what it has seen is within.
    pub fn scale_label(&self, output: usize, raw: f32) -> f32 {
        let Some(label) = self.label(output) else { return raw };
        let usual = label.scale_label(raw);
        if self.kind.is_none() || label == Axis::IDENTITY {
            return usual;
        }
        let limit = f64::from(Scale::LIMIT);
        let mean = self.state.summary.mean(self.inputs + output).unwrap_or(f64::from(raw));
        match label.scaled(mean).abs() <= limit {
            true => usual,
            false => label.scaled(f64::from(raw)).clamp(-2.0 * limit, 2.0 * limit) as f32,
        }
    }

    /// Its version; 0 until the first agreement.
    pub fn version(&self) -> u64 {
        self.state.version
    }

    /// What this node has seen: the inputs, then the labels.
    pub fn summary(&self) -> &Summary {
        &self.state.summary
    }

    /// Everything that has to survive a restart.
    pub fn save(&self) -> Vec<u8> {
        KIND.save(&self.state)
    }

    /// Continues from a saved state. A refused state changes nothing.
    pub fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let columns = self.inputs + self.labels;
        let is_fitting = |scale: &Scale| match self.kind {
            Some(kind) => scale.is_made_from(kind) && scale.columns() == columns,
            None => Some(scale) == self.scale(),
        };
        self.state = KIND.restore(saved, |state: &State| {
            is_count(state.seen)
                && state.reported <= state.seen
                && is_count(state.version)
                && state.scale.is_some() == (self.kind.is_none() || state.version > 0)
                && state.scale.as_ref().is_none_or(is_fitting)
                && state.summary.is_sound(columns)
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAN: f32 = f32::NAN;

    fn scale() -> Scale {
        Scale::from_ranges(&[(0.0, 10.0), (-1.0, 1.0), (0.0, 1.0)]).unwrap()
    }

    fn agreed() -> NodeScaling {
        let mut node = NodeScaling::new(ScaleKind::Range, 2);
        assert_eq!(node.adopt(1, &scale()), Ok(true));
        node
    }

    fn prepared(node: &NodeScaling, raw: [f32; 2]) -> ([f32; 2], usize) {
        let mut out = [NAN; 2];
        let missing = node.prepare(&raw, &mut out);
        (out, missing)
    }

    #[test]
    fn what_is_missing_is_filled_in_by_the_mean_so_far() {
        for mut node in [agreed(), NodeScaling::fixed(scale())] {
            assert_eq!(prepared(&node, [5.0, 0.5]), ([0.5, 0.75], 0));
            assert_eq!(
                prepared(&node, [NAN, f32::INFINITY]),
                ([0.5, 0.5], 2),
                "the centre of the scale"
            );
            node.see(&[2.0, NAN], Some(1.0));
            node.see(&[4.0, NAN], None);
            assert_eq!(prepared(&node, [NAN, NAN]), ([0.3, 0.5], 2));
            assert_eq!(prepared(&node, [NAN, 1e9]), ([0.3, Scale::LIMIT], 1));
            assert_eq!([0, 1, 2].map(|column| node.summary().count(column)), [2.0, 0.0, 1.0]);
        }
    }

    #[test]
    fn the_identity_only_fills_in() {
        let mut node = NodeScaling::fixed(Scale::identity(3));
        assert_eq!(prepared(&node, [123.0, NAN]), ([123.0, 0.0], 1));
        node.see(&[7.0, -50.0], Some(2.0));
        assert_eq!(prepared(&node, [NAN, NAN]), ([7.0, -50.0], 2));
        assert!(!node.report(&mut Report::default()));
        assert_eq!((node.adopt(5, &scale()), node.version()), (Ok(false), 0));
    }

    #[test]
    fn before_the_first_agreement_everything_is_zero() {
        let mut node = NodeScaling::new(ScaleKind::Range, 2);
        node.see(&[2.0, 3.0], Some(1.0));
        assert_eq!(prepared(&node, [5.0, NAN]), ([0.0, 0.0], 1));
        assert_eq!((node.scale(), node.version()), (None, 0));
    }

    #[test]
    fn reports_are_rare() {
        let mut node = NodeScaling::new(ScaleKind::Spread, 1);
        let mut report = Report::default();
        assert!(!node.report(&mut report), "nothing seen, nothing to say");
        let mut sent = Vec::new();
        for at in 1..=1000 {
            node.see(&[at as f32], Some(0.0));
            if node.report(&mut report) {
                sent.push(at);
                assert_eq!(report.count(), 10);
            }
            assert!(!node.report(&mut report));
        }
        assert_eq!(sent, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        // A node without contact reports everything when it has contact again.
        (0..5000).for_each(|_| node.see(&[1.0], None));
        assert!(node.report(&mut report));
        assert_eq!(report.numbers[0], 6000.0);
    }

    #[test]
    fn only_newer_scales_that_fit_are_adopted() {
        let mut node = agreed();
        let other = Scale::from_ranges(&[(0.0, 20.0), (-1.0, 1.0), (0.0, 1.0)]).unwrap();
        assert_eq!(node.adopt(1, &other), Ok(false));
        assert_eq!(node.scale(), Some(&scale()));
        assert_eq!(node.adopt(4, &other), Ok(true), "versions may be missed");
        assert_eq!((node.scale(), node.version()), (Some(&other), 4));
        let before = node.clone();
        for version in [0, u64::MAX] {
            assert_eq!(node.adopt(version, &scale()), Err(Rejected::NoSuchVersion { version }));
        }
        let short = Scale::from_ranges(&[(0.0, 1.0), (0.0, 1.0)]).unwrap();
        assert_eq!(node.adopt(5, &short), Err(Rejected::WrongLength { expected: 6, found: 4 }));
        assert_eq!(node.adopt(5, &Scale::identity(3)), Err(Rejected::WrongScale));
        assert_eq!(node, before);
    }
}
