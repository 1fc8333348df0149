//! What a node keeps to forget: its sums at checkpoints, what it forgot the last time, and how a
//! rival of the model does.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::super::ladder::{self, Begin, Former, HistoryWindow, SLOTS};
use super::super::{COUNTER_CYCLE, Sizes, triangle};
use super::{MAX_PRODUCT, State, is_number};
use crate::limits::MAX_NUMBER;
use crate::linear_algebra::dot;
use crate::scaling::SumsRefit;
use crate::simd::{self, Cpu};
use crate::state::is_count;

/// The share of what is to be forgotten that is.
const FORGOTTEN: f64 = 0.995;

/// A vote is 1 if the rival's squared errors are less than those of the model by so many times the
/// usual ones.
const USUAL_ERRORS: f64 = 2.0;

/// Sums over some samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct HistorySums {
    /// Σ z zᵀ, lower triangle row by row.
    pub(super) gram: Vec<f64>,
    /// Σ z y.
    pub(super) moment: Vec<f64>,
    /// Σ 1, with weights and without.
    pub(super) count: f64,
    pub(super) samples: u64,
    /// Σ y².
    pub(super) energy: f64,
}

impl HistorySums {
    fn copy(&mut self, state: &State, samples: u64) {
        self.gram.clone_from(&state.gram);
        self.moment.clone_from(&state.moment);
        (self.count, self.energy, self.samples) = (state.count, state.energy, samples);
    }

    fn copy_from(&mut self, other: &Self) {
        self.gram.clone_from(&other.gram);
        self.moment.clone_from(&other.moment);
        (self.count, self.energy, self.samples) = (other.count, other.energy, other.samples);
    }

    /// Adds a multiple of other sums to this.
    fn add(&mut self, factor: f64, other: &Self) {
        let Self { gram, moment, count, energy, .. } = self;
        add((gram, moment, count, energy), factor, other);
    }

    fn all(&self) -> impl Iterator<Item = &f64> {
        self.gram.iter().chain(&self.moment).chain([&self.count, &self.energy])
    }

    fn is_sound(&self, sizes: &Sizes) -> bool {
        self.gram.len() == triangle(sizes.features)
            && self.moment.len() == sizes.features
            && self.all().all(is_number)
            && [self.count, self.energy].iter().all(|sum| *sum >= 0.0)
            && is_count(self.samples)
    }
}

/// Adds a multiple of sums to others.
fn add(
    (gram, moment, count, energy): (&mut [f64], &mut [f64], &mut f64, &mut f64),
    factor: f64,
    other: &HistorySums,
) {
    gram.iter_mut().zip(&other.gram).for_each(|(sum, other)| *sum += factor * other);
    moment.iter_mut().zip(&other.moment).for_each(|(sum, other)| *sum += factor * other);
    *count = (*count + factor * other.count).max(0.0);
    *energy = (*energy + factor * other.energy).max(0.0);
}

/// Sums at a mark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Checkpoint {
    id: u32,
    sums: HistorySums,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::method) struct History {
    /// The latest mark, and the one at which the node joined.
    mark: u32,
    joined: u32,
    begin: Begin,
    checkpoints: Vec<Checkpoint>,
    /// What was forgotten the last time.
    forgotten: Option<HistorySums>,
    /// Samples in the history, the latest of all, without those that came back.
    pub(super) samples: u64,
    /// Squared errors of the history, or of the window that is asked for, at the model, and the
    /// samples behind them.
    pub(super) squares: f64,
    pub(super) count: f64,
    /// Mean squared error of the history at the model.
    usual: f64,
    /// A rival of the model; empty if there is none.
    pub(super) rival: Vec<f32>,
    /// By how much the rival's squared errors in this round are less than those of the model.
    pub(super) gain: f64,
    /// Buffers.
    #[serde(skip)]
    spare: Vec<HistorySums>,
    #[serde(skip)]
    image: Vec<f64>,
}

impl History {
    /// Before the first round, with room for what may come.
    pub(super) fn new(features: usize) -> Self {
        Self {
            checkpoints: Vec::with_capacity(SLOTS + 1),
            spare: Vec::with_capacity(SLOTS + 2),
            rival: Vec::with_capacity(features),
            image: Vec::with_capacity(features),
            ..Self::default()
        }
    }

    /// The vote for the rival in a round of so many samples, from −1 to 1.
    pub(super) fn vote(&self, samples: u64) -> f64 {
        let largest = USUAL_ERRORS * self.usual * samples as f64;
        (self.gain / largest.max(f64::MIN_POSITIVE)).clamp(-1.0, 1.0)
    }

    /// Follows what a broadcast says of marks and of the beginning of the history.
    pub(super) fn follow(&mut self, state: &mut State, mark: u32, begin: Begin) {
        let passed = ladder::age(mark, self.mark);
        if passed >= COUNTER_CYCLE / 2 || state.count == 0.0 {
            // The server went back to an earlier state, or the node has nothing to forget.
            let samples = if state.count == 0.0 { 0 } else { self.samples };
            (self.mark, self.begin, self.samples) = (mark, begin, samples);
            self.clear();
        } else if passed > 0 {
            self.mark = mark;
            self.drop_checkpoints(|id| ladder::slot(mark, id).is_some());
            let mut sums = self.spare.pop().unwrap_or_default();
            sums.copy(state, self.samples);
            self.checkpoints.push(Checkpoint { id: mark, sums });
        }
        let missed = begin.missed_since(self.begin);
        self.begin = begin;
        if missed > 0 {
            let former = if missed == 1 { begin.former() } else { Former::Lost };
            self.forget(state, begin.checkpoint(mark), former);
        }
    }

    /// Keeps some checkpoints; the others' buffers are used again.
    fn drop_checkpoints(&mut self, is_kept: impl Fn(u32) -> bool) {
        let Self { checkpoints, spare, .. } = self;
        checkpoints.retain_mut(|Checkpoint { id, sums }| {
            let is_kept = is_kept(*id);
            if !is_kept {
                spare.push(core::mem::take(sums));
            }
            is_kept
        });
    }

    /// The checkpoint that is nearest to another; none if that is when the node joined.
    fn nearest(&self, id: u32) -> Option<usize> {
        let distance =
            |other: u32| ladder::age(self.mark, other).abs_diff(ladder::age(self.mark, id));
        let nearest =
            (0..self.checkpoints.len()).min_by_key(|at| distance(self.checkpoints[*at].id))?;
        let is_nearer = distance(self.checkpoints[nearest].id) <= distance(self.joined);
        is_nearer.then_some(nearest)
    }

    /// Forgets what came before a checkpoint.
    fn forget(&mut self, state: &mut State, id: u32, former: Former) {
        let (mut back, mut kept) = (None, None);
        match former {
            Former::Back => back = self.forgotten.take(),
            Former::Kept => kept = self.forgotten.take(),
            Former::Lost => {}
        }
        let mut gone = self.nearest(id).map(|at| {
            let mut sums = self.spare.pop().unwrap_or_default();
            let (mark, Checkpoint { id, sums: known }) = (self.mark, &self.checkpoints[at]);
            sums.copy_from(known);
            let oldest = ladder::age(mark, *id);
            self.drop_checkpoints(|id| ladder::age(mark, id) <= oldest);
            sums
        });
        for (factor, sums) in [(-FORGOTTEN, &gone), (1.0, &back)] {
            let Some(sums) = sums else { continue };
            let State { gram, moment, count, energy, .. } = state;
            add((gram, moment, count, energy), factor, sums);
            self.checkpoints.iter_mut().for_each(|checkpoint| checkpoint.sums.add(factor, sums));
        }
        if let Some(gone) = &mut gone {
            self.samples = self.samples.saturating_sub(gone.samples);
            for checkpoint in &mut self.checkpoints {
                let samples = &mut checkpoint.sums.samples;
                *samples = samples.saturating_sub(gone.samples);
            }
            let HistorySums { gram, moment, count, energy, .. } = gone;
            gram.iter_mut().chain(moment).chain([count, energy]).for_each(|sum| *sum *= FORGOTTEN);
        }
        let (aside, lost) = if kept.is_some() { (kept, gone) } else { (gone, None) };
        let former = core::mem::replace(&mut self.forgotten, aside);
        self.spare.extend([back, lost, former].into_iter().flatten());
    }

    /// Squared errors of the history at a model, whose gradient is known; and, if a window is asked
    /// for, its gradient and squared errors in their place.
    pub(super) fn look(
        &mut self,
        state: &mut State,
        window: Option<HistoryWindow>,
        (model, origin): (&[f64], f64),
    ) {
        let State { gram, moment, energy, count, gradient, .. } = state;
        self.squares = squares(gram, moment, (*energy, *count), gradient, (model, origin));
        self.count = *count;
        self.usual = if self.count > 0.0 { self.squares.max(0.0) / self.count } else { 0.0 };
        let Some(window) = window else { return };
        let checkpoint = self.nearest(ladder::checkpoint(self.mark, window.slot));
        let gone = checkpoint.map(|at| (-FORGOTTEN, &self.checkpoints[at].sums));
        let back = self.forgotten.as_ref().filter(|_| window.is_return).map(|sums| (1.0, sums));
        let image = &mut self.image;
        image.clear();
        image.resize(model.len(), 0.0);
        for (factor, sums) in gone.into_iter().chain(back) {
            simd::multiply_symmetric(Cpu::detect(), &sums.gram, model, image);
            for (i, g) in image.iter_mut().enumerate() {
                *g += origin * sums.gram[triangle(i)] - sums.moment[i];
            }
            let of = (sums.energy, sums.count);
            let squares = squares(&sums.gram, &sums.moment, of, image, (model, origin));
            self.squares += factor * squares;
            self.count = (self.count + factor * sums.count).max(0.0);
            gradient.iter_mut().zip(&*image).for_each(|(g, other)| *g += factor * other);
        }
    }

    /// Moves all sums to another scale. A rival of the old scale is of no use.
    pub(super) fn rescale(&mut self, refit: &SumsRefit, labels: (f64, f64)) {
        self.rival.clear();
        self.gain = 0.0;
        let Self { checkpoints, forgotten, .. } = self;
        let all = checkpoints.iter_mut().map(|checkpoint| &mut checkpoint.sums).chain(forgotten);
        let mut is_sound = true;
        for sums in all {
            refit.gram(&mut sums.gram, sums.count);
            refit.moment(&mut sums.moment);
            let squares = (&mut sums.energy, sums.count);
            rescale_labels(&sums.gram, &mut sums.moment, squares, labels);
            is_sound &= sums.all().all(is_number);
        }
        if !is_sound {
            self.clear();
        }
    }

    /// Sums are useless.
    pub(super) fn clear(&mut self) {
        self.drop_checkpoints(|_| false);
        self.spare.extend(self.forgotten.take());
        self.joined = self.mark;
    }

    pub(super) fn is_sound(&self, sizes: &Sizes) -> bool {
        let Self { mark, joined, checkpoints, forgotten, samples, rival, .. } = self;
        [mark, joined].iter().all(|id| **id <= COUNTER_CYCLE)
            && checkpoints.len() <= SLOTS
            && checkpoints.iter().all(|at| at.id <= COUNTER_CYCLE && at.sums.is_sound(sizes))
            && forgotten.iter().all(|sums| sums.is_sound(sizes))
            && is_count(*samples)
            && self.begin.is_sound()
            && self.usual >= 0.0
            && rival.len() <= sizes.features
            && rival.iter().all(|w| w.abs() <= MAX_NUMBER)
            && [self.squares, self.count, self.usual, self.gain]
                .iter()
                .all(|number| number.abs() <= MAX_PRODUCT)
    }
}

/// Takes Σ z y and Σ y² of `count` samples to labels gain·y + shift, given Σ z zᵀ. Exact, because
/// the first feature is one.
pub(super) fn rescale_labels(
    gram: &[f64],
    moment: &mut [f64],
    (energy, count): (&mut f64, f64),
    (gain, shift): (f64, f64),
) {
    *energy *= gain * gain;
    if shift != 0.0 {
        let labels = moment.first().copied().unwrap_or(0.0);
        *energy += shift * (2.0 * gain * labels + shift * count);
    }
    for (i, sum) in moment.iter_mut().enumerate() {
        *sum *= gain;
        if shift != 0.0 {
            *sum += shift * gram[triangle(i)];
        }
    }
}

/// Σ (wᵀz − (y − y₀))² from sums and from the gradient at w.
fn squares(
    gram: &[f64],
    moment: &[f64],
    (energy, count): (f64, f64),
    gradient: &[f64],
    (model, origin): (&[f64], f64),
) -> f64 {
    let constant = energy - 2.0 * origin * moment[0] + origin * origin * count;
    let moments = model.iter().enumerate();
    let moments = moments.map(|(i, w)| w * (moment[i] - origin * gram[triangle(i)]));
    let squares = dot(model, gradient) - moments.sum::<f64>() + constant;
    squares.clamp(-MAX_PRODUCT, MAX_PRODUCT)
}
