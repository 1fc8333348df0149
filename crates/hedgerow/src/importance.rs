//! How important each column of the inputs is to a node's predictions: prequential permutation
//! importance.
//!
//! Before the label of a sample is learned, for one sample in eight, drawn at random, the values of
//! one column are replaced by those of an earlier sample of the node, and the node predicts again.
//! The increase of the loss is the importance of that column: about zero for a column that says
//! nothing, also for a sensor that has died. Columns take turns. Columns that come from one source
//! (texts, times of day, past values) are replaced together.
//!
//! Earlier samples are no older than about 200 samples, so that values that a sensor no longer
//! sends don't come back. No prediction counts as worse than one that is off by twice the spread of
//! the labels: a rare value in a model that has hardly seen it would outweigh all else. Learning is
//! untouched: nothing here changes a model. A node saves nothing of it: after a restart its
//! measurement begins anew. Sums are sent only if the plan says [`ImportanceScope::Shared`].

mod shared;

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::features::{Features, SampleMap};
use crate::limits::{MAX_INCREASE, MAX_MEASURED, MAX_SUM};
use crate::message::NodeId;
use crate::random::{CounterRng, Purpose};
use crate::scaling::Rescaling;

pub use shared::{ImportanceSum, ImportanceWindow, Increases, SHARED_EVERY, SharedImportance};

/// Whether nodes measure the importance of their columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImportanceScope {
    /// They don't.
    #[default]
    None,
    /// Each node measures its own. Nothing of it is sent.
    Local,
    /// Each node measures its own and tells the server sums of it now and then.
    Shared,
}

impl ImportanceScope {
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// One in so many samples is measured with, and one in so many is kept.
const MEASURED_EVERY: u64 = 8;
const KEPT_EVERY: u64 = 4;
/// Samples that are kept, and numbers in all of them.
const MOST_ROWS: usize = 48;
const MOST_NUMBERS: usize = 1 << 16;
/// Variances of the labels that a squared error counts as at most.
const MOST_SPREADS: f64 = 4.0;
/// Labels that their variance follows.
const LABELS: u64 = 256;
/// Measurements of a column that its recent importance follows.
const RECENT: u64 = 20;

/// How much the loss grew where the values of a group of columns were replaced, in the scaled unit.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct GroupImportance {
    /// Sum of the increases.
    pub increase: f64,
    /// How many.
    pub measured: u64,
    /// Their mean over the latest measurements.
    pub recent: f64,
}

impl GroupImportance {
    /// Mean increase of the loss; 0 before the first measurement.
    pub fn mean(&self) -> f64 {
        if self.measured == 0 { 0.0 } else { self.increase / self.measured as f64 }
    }

    fn add(&mut self, increase: f64) {
        let increase = if increase.is_nan() { 0.0 } else { increase.clamp(-MAX_SUM, MAX_SUM) };
        self.increase = (self.increase + increase).clamp(-MAX_SUM, MAX_SUM);
        self.measured += 1;
        self.recent += (increase - self.recent) / self.measured.min(RECENT) as f64;
    }
}

/// Most bytes that a node takes for it, with so many inputs and features.
pub fn memory(inputs: usize, width: usize) -> usize {
    let numbers = (most_rows(inputs) + 1) * inputs + width;
    let group = size_of::<GroupImportance>() + size_of::<Unsent>() + 2 * size_of::<f32>();
    let groups = inputs * (group + size_of::<usize>());
    size_of::<ImportanceMeter>() + size_of::<f32>() * numbers + groups
}

fn most_rows(inputs: usize) -> usize {
    (MOST_NUMBERS / inputs.max(1)).clamp(2, MOST_ROWS)
}

/// What a node knows of the importance of its columns.
#[derive(Debug, Clone)]
pub(crate) struct ImportanceMeter {
    random: CounterRng,
    /// The group of each input.
    group_of: Vec<usize>,
    groups: Vec<GroupImportance>,
    labels: LabelSpread,
    samples: u64,
    /// Groups that were measured.
    turns: u64,
    /// Earlier samples, one after the other, how many there may be, and the oldest.
    rows: Vec<f32>,
    most_rows: usize,
    oldest: usize,
    /// A sample with replaced values, and its features.
    x: Vec<f32>,
    z: Vec<f32>,
    /// By group; empty if nothing is sent.
    unsent: Vec<Unsent>,
    /// What was told last and in which round, until it is known what became of it.
    told: Option<(u64, Vec<f32>)>,
    /// The last round in which it was taken.
    taken: u64,
}

/// What the server doesn't know of yet.
#[derive(Debug, Clone, Copy, Default)]
struct Unsent {
    increase: f64,
    measured: u32,
}

impl Unsent {
    fn add(&mut self, increase: f64) {
        // Beyond it, a group waits until the server knows what there is.
        if self.measured < MAX_MEASURED {
            let most = f64::from(MAX_INCREASE);
            self.increase += increase.clamp(-most, most);
            self.measured += 1;
        }
    }

    /// The two numbers that travel.
    fn told(self) -> [f32; 2] {
        let (measured, most) = (self.measured as f32, self.measured as f32 * MAX_INCREASE);
        [(self.increase as f32).clamp(-most, most), measured]
    }

    /// Those were taken. What rounding left goes with the next.
    fn subtract(&mut self, [increase, measured]: [f32; 2]) {
        self.increase -= f64::from(increase);
        self.measured = self.measured.saturating_sub(measured as u32);
    }
}

impl ImportanceMeter {
    /// `group_of` has the group of each input, from 0 without gaps.
    pub(crate) fn new(
        scope: ImportanceScope,
        group_of: Vec<usize>,
        seed: u64,
        id: NodeId,
        (width, outputs): (usize, usize),
    ) -> Self {
        let (inputs, groups) = (group_of.len(), group_of.iter().max().map_or(0, |most| most + 1));
        let most_rows = most_rows(inputs);
        Self {
            random: CounterRng::from_seed(seed).derive(Purpose::Importance, u64::from(id)),
            group_of,
            groups: vec![GroupImportance::default(); groups],
            labels: LabelSpread::new(outputs),
            samples: 0,
            turns: u64::from(id),
            rows: Vec::with_capacity(most_rows * inputs),
            most_rows,
            oldest: 0,
            x: vec![0.0; inputs],
            z: vec![0.0; width],
            unsent: match scope {
                ImportanceScope::Shared => vec![Unsent::default(); groups],
                _ => Vec::new(),
            },
            told: None,
            taken: 0,
        }
    }

    /// By group.
    pub(crate) fn groups(&self) -> &[GroupImportance] {
        &self.groups
    }

    /// Counts a sample, given its scaled inputs. If one is due, replaces the values of a group and
    /// returns that group; then [`ImportanceMeter::features`] has the features.
    pub(crate) fn next(&mut self, x: &[f32], map: &SampleMap) -> Option<usize> {
        let (inputs, number) = (self.x.len(), self.samples);
        self.samples += 1;
        let draw = |which: u64, of: u64| self.random.bits_at(3 * number + which) % of;
        let rows = self.rows.len() / inputs.max(1);
        let mut due = None;
        if draw(0, MEASURED_EVERY) == 0 && rows > 0 && !self.groups.is_empty() {
            let group = (self.turns % self.groups.len() as u64) as usize;
            let row = draw(1, rows as u64) as usize * inputs;
            self.turns += 1;
            self.x.copy_from_slice(x);
            for (input, of) in self.group_of.iter().enumerate() {
                if *of == group {
                    self.x[input] = self.rows[row + input];
                }
            }
            map.map_batch(&self.x, &mut self.z);
            due = Some(group);
        }
        if draw(2, KEPT_EVERY) == 0 {
            if rows < self.most_rows {
                self.rows.extend_from_slice(x);
            } else {
                let start = self.oldest * inputs;
                self.rows[start..start + inputs].copy_from_slice(x);
                self.oldest = (self.oldest + 1) % self.most_rows;
            }
        }
        due
    }

    /// Those of the sample with replaced values.
    pub(crate) fn features(&self) -> Features<'_> {
        Features::made(&self.z)
    }

    /// The label of each output of the sample has come.
    pub(crate) fn see_labels(&mut self, label: impl Fn(usize) -> f32) {
        self.labels.see(label);
    }

    /// The loss with replaced values, and without.
    pub(crate) fn add(&mut self, group: usize, replaced: f64, plain: f64) {
        let most = MOST_SPREADS * self.labels.variance;
        let increase = replaced.min(most) - plain.min(most);
        self.groups[group].add(increase);
        if let Some(unsent) = self.unsent.get_mut(group).filter(|_| !increase.is_nan()) {
            unsent.add(increase);
        }
    }

    /// What is told in an upload of this round: the same however often it is sent, so that it
    /// counts once. Empty if nothing is due.
    pub(crate) fn tell(&mut self, round: u64) -> &[f32] {
        if self.unsent.is_empty() || !round.is_multiple_of(SHARED_EVERY) || self.taken == round {
            return &[];
        }
        let told = self.told.take_if(|(of, _)| *of == round);
        let numbers = || self.unsent.iter().flat_map(|unsent| unsent.told()).collect();
        &self.told.insert(told.unwrap_or_else(|| (round, numbers()))).1
    }

    /// A later round is open, and this is the last one of which an upload was taken.
    pub(crate) fn acknowledge(&mut self, taken: u64) {
        let Some((round, told)) = self.told.take() else { return };
        if round == taken {
            self.taken = round;
            let told = told.as_chunks::<2>().0;
            self.unsent.iter_mut().zip(told).for_each(|(unsent, told)| unsent.subtract(*told));
        }
    }

    /// Follows a change of scale.
    pub(crate) fn rescale(&mut self, rescaling: &Rescaling) {
        let inputs = rescaling.inputs();
        for row in self.rows.chunks_exact_mut(inputs.len().max(1)) {
            for (x, (a, c)) in row.iter_mut().zip(inputs) {
                *x = ((f64::from(*x) - c) / a) as f32;
            }
        }
        let factor = rescaling.loss_factor();
        self.labels.variance = (self.labels.variance * factor).min(MAX_SUM);
        self.labels.has_means = false;
        self.unsent.iter_mut().for_each(|unsent| unsent.increase *= factor);
        for [increase, measured] in
            self.told.iter_mut().flat_map(|(_, told)| told.as_chunks_mut().0)
        {
            let most = *measured * MAX_INCREASE;
            *increase = ((f64::from(*increase) * factor) as f32).clamp(-most, most);
        }
        for group in &mut self.groups {
            group.increase = (group.increase * factor).clamp(-MAX_SUM, MAX_SUM);
            group.recent = (group.recent * factor).clamp(-MAX_SUM, MAX_SUM);
        }
    }

    /// Forgets the samples that it keeps. Returns how many.
    pub(crate) fn forget_samples(&mut self) -> usize {
        let rows = self.rows.len() / self.x.len().max(1);
        self.rows.clear();
        self.oldest = 0;
        rows
    }
}

/// Mean and variance of the latest labels, the latter averaged over outputs.
#[derive(Debug, Clone)]
struct LabelSpread {
    seen: u64,
    means: Vec<f64>,
    /// Whether the means are in the present scale.
    has_means: bool,
    variance: f64,
}

impl LabelSpread {
    fn new(outputs: usize) -> Self {
        Self { seen: 0, means: vec![0.0; outputs], has_means: false, variance: 0.0 }
    }

    fn see(&mut self, label: impl Fn(usize) -> f32) {
        self.seen += 1;
        let rate = 1.0 / self.seen.min(LABELS) as f64;
        let outputs = self.means.len() as f64;
        let mut squares = 0.0;
        for (output, mean) in self.means.iter_mut().enumerate() {
            let label = f64::from(label(output));
            if !self.has_means {
                *mean = label;
            }
            let from_before = label - *mean;
            *mean += rate * from_before;
            squares += from_before * (label - *mean) / outputs;
        }
        self.has_means = true;
        self.variance += rate * (squares - self.variance);
        self.variance = self.variance.clamp(0.0, MAX_SUM);
    }
}
