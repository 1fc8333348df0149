//! The model at the server: a step and a better preconditioner from each round's sums.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::super::delivery::{Delivery, Next};
use super::super::forgetting::Forgetting;
use super::super::ladder::{HistoryWindow, Stage};
use super::super::matrix::{self, Work};
use super::super::{
    BROADCAST_EXTRA, Order, PENALTY, SEARCHED_MOVES, Sizes, UploadShape, known_samples, plane,
    push_move, to_wire, triangle, whole_rows,
};
use super::errors::{self, RunningErrors};
use crate::limits::{MAX_NUMBER, MAX_SUM};
use crate::linear_algebra::{dot, write_bounded};
use crate::math;
use crate::message::Broadcast;
use crate::scaling::Rescaling;

/// The first range of predictions reaches so many deviations to either side of the mean.
const FIRST_RANGE: f64 = 1.0;

/// Bounds of the damping μ, and what it is multiplied by if curvature came as a surprise, if it
/// didn't, and if a move made things worse.
const DAMPING: (f64, f64) = (0.001, 1e4);
const DAMPING_UP: f64 = 4.0;
const DAMPING_DOWN: f64 = 0.5;
const DAMPING_OVERSHOT: f64 = 4.0;

/// A move that overshot by more than this share is only taken back.
const MAX_OVERSHOOT: f64 = 0.5;

/// Samples that a feature needs before it is added.
const SAMPLES_PER_FEATURE: f64 = 6.0;

/// Buffers: once they are as large as the model, a round allocates nothing.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) sums: Vec<f64>,
    gradient: Vec<f64>,
    /// The last moves, filled up with zeros, and H times each.
    directions: [Vec<f64>; SEARCHED_MOVES],
    images: [Vec<f64>; SEARCHED_MOVES],
    pub(super) step: Vec<f64>,
    change: Vec<f64>,
    work: Work,
    pub(super) sent: Vec<f32>,
}

/// The model, and how it is learned.
#[derive(Serialize, Deserialize)]
pub(super) struct Ridge {
    /// w, as broadcast.
    pub(super) model: Vec<f64>,
    /// The last moves of the model, the latest first.
    moves: Vec<Vec<f64>>,
    /// Whether the latest was more than a correction.
    has_stepped: bool,
    /// H, lower triangle row by row; empty before the first round has closed.
    pub(super) curvature: Vec<f64>,
    /// μ.
    damping: f64,
    /// Samples in a usual round.
    pub(super) pace: f64,
    /// Rounds' worth of samples in the nodes' histories.
    pub(super) age: f64,
    epoch: Epoch,
    pub(super) errors: RunningErrors,
    pub(super) delivery: Delivery,
    /// Samples in the histories of all nodes, as far as is known.
    pub(super) known: f64,
}

/// The matrix that slices make up.
#[derive(Serialize, Deserialize, Default)]
pub(super) struct Epoch {
    /// Mean Gram matrix, entry by entry of the lower triangle.
    entries: Vec<f64>,
    /// Slices that are complete, and how many it is to have at least. Without losses each takes a
    /// round.
    slices: f64,
    least_slices: f64,
    /// Whether H has been taken from it.
    is_used: bool,
}

fn are_numbers(numbers: &[f64]) -> bool {
    numbers.iter().all(|number| number.abs() <= MAX_SUM)
}

/// Version 4 had nothing of deliveries and known samples. Otherwise as today.
pub(super) type Version4 =
    (Vec<f64>, Vec<Vec<f64>>, bool, Vec<f64>, f64, f64, f64, Epoch, errors::Version4);

impl From<Version4> for Ridge {
    fn from(older: Version4) -> Self {
        let (model, moves, has_stepped, curvature, damping, pace, age, epoch, errors) = older;
        Self {
            model,
            moves,
            has_stepped,
            curvature,
            damping,
            pace,
            age,
            epoch,
            errors: errors.into(),
            delivery: Delivery::default(),
            known: 0.0,
        }
    }
}

impl Ridge {
    /// Before the first round.
    pub(super) fn new(sizes: &Sizes) -> Self {
        Self {
            model: vec![0.0; sizes.first],
            moves: vec![],
            has_stepped: false,
            curvature: vec![],
            damping: DAMPING.0,
            pace: 0.0,
            age: 1.0,
            epoch: Epoch::default(),
            errors: RunningErrors::new(),
            delivery: Delivery::default(),
            known: 0.0,
        }
    }

    /// Moves H to another scale.
    pub(super) fn rescale_curvature(&mut self, rescaling: &Rescaling) {
        if !self.curvature.is_empty() {
            let len = self.model.len();
            rescaling.refit().sums(len).gram(&mut self.curvature, 1.0);
            Work::default().repair(&mut self.curvature, len);
            self.check_curvature();
        }
    }

    /// Follows a broadcast that was moved to another scale.
    pub(super) fn rescale(&mut self, sizes: &Sizes, order: &Order, numbers: &[f32], gain: f64) {
        self.model.clear();
        self.model.extend(numbers[..order.len].iter().map(|w| f64::from(*w)));
        self.moves.clear();
        self.errors.rescale(gain);
        if !order.is_first() {
            self.open_epoch(sizes);
        }
    }

    /// Whether a restored one could have been reached, with this broadcast.
    pub(super) fn is_sound(&self, sizes: &Sizes, order: &Order, numbers: &[f32]) -> bool {
        let Self { model, moves, curvature, damping, pace, age, epoch, .. } = self;
        let has_rival = order.stage == Stage::Rival;
        let has_shape = if order.is_first() {
            curvature.is_empty() && epoch.entries.is_empty()
        } else {
            curvature.len() == triangle(order.len)
                && epoch.entries.len() == triangle(sizes.features)
        };
        has_shape
            && model.len() == order.len
            && (has_rival || model.iter().zip(numbers).all(|(w, sent)| *w == f64::from(*sent)))
            && are_numbers(model)
            && moves.len() <= SEARCHED_MOVES
            && moves.iter().all(|v| v.len() <= order.len && are_numbers(v))
            && [curvature, &epoch.entries].into_iter().all(|numbers| are_numbers(numbers))
            && (DAMPING.0..=DAMPING.1).contains(damping)
            && are_numbers(&[*pace, *age, epoch.slices, epoch.least_slices, self.known])
            && self.delivery.is_sound(sizes.features, order.begin)
            && *age >= 1.0
            && self.errors.is_sound()
    }

    /// Writes the model, which is as it was broadcast.
    pub(super) fn write_model(&self, numbers: &mut [f32]) {
        numbers.iter_mut().zip(&self.model).for_each(|(number, w)| *number = *w as f32);
    }

    /// Puts the model in the place of its rival in a broadcast.
    pub(super) fn replace_rival(&self, order: &Order, broadcast: &mut Broadcast) {
        if order.stage == Stage::Rival {
            self.write_model(&mut broadcast.numbers);
        }
    }

    /// Nodes are told to forget: the rival is the model of what is left.
    pub(super) fn begin_anew(
        &mut self,
        sizes: &Sizes,
        order: &mut Order,
        rival: &[f64],
        rounds: u64,
    ) {
        // Features that the rival doesn't have begin anew.
        self.model.fill(0.0);
        self.model.iter_mut().zip(rival).for_each(|(w, rival)| *w = *rival);
        self.has_stepped = false;
        self.errors.begin_anew();
        self.age = (rounds as f64).max(1.0);
        self.known = 0.0;
        // What was sent of the epoch is of what is to be forgotten.
        order.open_epoch();
        self.open_epoch(sizes);
    }

    /// The step to the model of a window, if it is suspicious, and the share of it to take.
    pub(super) fn rival(&self, window: HistoryWindow, scratch: &mut Scratch) -> Option<f64> {
        let len = self.model.len();
        let Scratch { sums, gradient, step, work, .. } = scratch;
        let (squares, count) = (sums[len], sums[len + 1]);
        if count <= len as f64 || squares <= 0.0 {
            return None;
        }
        gradient.clear();
        gradient
            .extend(sums[..len].iter().zip(&self.model).map(|(g, w)| (g + PENALTY * w) / count));
        step.clone_from(gradient);
        work.solve(&self.curvature, self.ridge(count), step);
        let size = count * dot(gradient, step) / (squares / count);
        if !Forgetting::is_suspicious(window, size, len) {
            return None;
        }
        let share = match window.is_return {
            true => 1.0,
            // By chance the size would be the number of features.
            false => 1.0 - len as f64 / size,
        };
        let is_step = step.iter().all(|step| step.abs() <= f64::from(MAX_NUMBER));
        is_step.then_some(share)
    }

    /// After the first round: the first matrix, offset and range, and the first step. Its samples.
    pub(super) fn begin(&mut self, sizes: &Sizes, order: &mut Order, scratch: &mut Scratch) -> f64 {
        let Scratch { sums, gradient, .. } = scratch;
        let (len, count) = (order.len, sums[sums.len() - 1]);
        if count <= 0.0 {
            return count;
        }
        let mean = |at: usize| sums[at] / count;
        self.curvature.extend((0..triangle(len)).map(mean));
        let moment = |i: usize| mean(triangle(len) + i);
        // The first feature is one.
        order.origin = to_wire(moment(0));
        let origin = f64::from(order.origin);
        let spread = math::sqrt((mean(sums.len() - 2) - origin * origin).max(0.0));
        (order.low, order.high) = (to_wire(-FIRST_RANGE * spread), to_wire(FIRST_RANGE * spread));
        self.pace = count;
        self.age = 1.0;
        gradient.clear();
        gradient.extend((0..len).map(|i| origin * mean(triangle(i)) - moment(i)));
        scratch.work.repair(&mut self.curvature, len);
        self.check_curvature();
        self.has_stepped = self.step(count, f64::INFINITY, scratch);
        order.open_epoch();
        self.open_epoch(sizes);
        count
    }

    /// After every other round: the samples in the histories of the nodes that answered, and
    /// whether H was taken from slices.
    pub(super) fn go_on(
        &mut self,
        sizes: &Sizes,
        order: &mut Order,
        scratch: &mut Scratch,
    ) -> (f64, bool) {
        let Scratch { sums, gradient, .. } = scratch;
        let UploadShape { slice: (begin, end), .. } = order.layout(sizes);
        let len = order.len;
        let count = sums[sums.len() - 2];
        let scalars = &sums[len + end - begin..];
        let (plane, scalars) = scalars.split_at(triangle(order.moves));
        let [behind_plane, behind_slice] = [scalars[0], scalars[1]];
        let error = sums[sums.len() - 5];
        gradient.clear();
        gradient
            .extend(sums[..len].iter().zip(&self.model).map(|(g, w)| (g + PENALTY * w) / count));
        let mut seen = plane::Table::default();
        for a in 0..order.moves {
            (0..order.moves)
                .for_each(|b| seen[a][b] = plane[triangle(a.max(b)) + a.min(b)] / behind_plane);
        }
        let moves = order.moves.min(self.moves.len());
        // New nodes have no moves yet: the curvature lacks what the gradient has of them.
        let lacking = if behind_plane < count { error } else { f64::INFINITY };
        let overshot = behind_plane > 0.0
            && moves > 0
            && self.look_back(seen, moves, (count, lacking), scratch);
        self.has_stepped = !overshot && self.step(count, error, scratch);
        let slice = &scratch.sums[len..len + end - begin];
        let is_abandoned = self.delivery.is_abandoned();
        // A vote may leave no room for a slice.
        let next = match slice {
            [] if !is_abandoned => Next::Again,
            _ => self.delivery.add(&mut self.epoch.entries, begin, slice, behind_slice),
        };
        if let Next::Slice(next) = next {
            order.begin = next;
            self.epoch.slices += 1.0;
        }
        self.known = known_samples(self.known, count);
        let is_renewed = !is_abandoned && self.grow(sizes, order, &mut scratch.work);
        if next == Next::Epoch {
            // Nobody sends the rest.
            order.open_epoch();
            self.open_epoch(sizes);
        }
        self.check_curvature();
        (count, is_renewed)
    }

    /// Goes to the best point in the plane of the last moves, given their mean curvature there, and
    /// learns of it; less far, if that would gain much of the squared errors of samples whose
    /// curvature may be lacking. Whether the last one overshot.
    fn look_back(
        &mut self,
        mut seen: plane::Table,
        moves: usize,
        (count, lacking): (f64, f64),
        scratch: &mut Scratch,
    ) -> bool {
        let len = self.model.len();
        let Scratch { gradient, directions, images, step, change, .. } = scratch;
        let (directions, images) = (&mut directions[..moves], &mut images[..moves]);
        for ((direction, image), v) in directions.iter_mut().zip(&mut *images).zip(&self.moves) {
            direction.clear();
            direction.extend_from_slice(v);
            direction.resize(len, 0.0);
            matrix::multiply(&self.curvature, direction, image);
        }
        let mut known = plane::Table::default();
        for a in 0..moves {
            for b in 0..moves {
                seen[a][b] += PENALTY * dot(&directions[a], &directions[b]) / count;
                known[a][b] = dot(&directions[a], &images[b]);
            }
        }
        let length2 = dot(&directions[0], &directions[0]);
        let surprise = seen[0][0] > known[0][0] + self.ridge(count) * length2;
        let factor = if surprise { DAMPING_UP } else { DAMPING_DOWN };
        self.damping = (self.damping * factor).clamp(DAMPING.0, DAMPING.1);
        if !(seen[0][0] > 0.0 && known[0][0] > 0.0) {
            return false;
        }
        let mut slopes = [0.0; SEARCHED_MOVES];
        slopes.iter_mut().zip(&*directions).for_each(|(slope, v)| *slope = dot(gradient, v));
        let combine = |parts: &[f64; SEARCHED_MOVES], vectors: &[Vec<f64>], out: &mut Vec<f64>| {
            out.clear();
            out.extend(
                (0..len)
                    .map(|i| parts.iter().zip(vectors).map(|(part, v)| part * v[i]).sum::<f64>()),
            );
        };
        for raised in plane::surplus(&known, &seen, moves).into_iter().flatten() {
            combine(&raised, images, change);
            matrix::add_outer(&mut self.curvature, change);
        }
        combine(&plane::minimum(&seen, &slopes[..moves]), directions, step);
        let share = share_of(-count * dot(gradient, step), lacking.max(f64::MIN_POSITIVE));
        step.iter_mut().for_each(|step| *step *= share);
        if step.iter().all(|step| step.abs() <= f64::from(MAX_NUMBER)) {
            matrix::multiply(&self.curvature, step, change);
            self.model.iter_mut().zip(&*step).for_each(|(w, step)| *w += step);
            gradient.iter_mut().zip(&*change).for_each(|(g, change)| *g += change);
        }
        let overshot = slopes[0] / seen[0][0] > MAX_OVERSHOOT;
        if overshot {
            // The loss went up: the gradient had noise in it, or H too little in it.
            self.damping = (self.damping * DAMPING_OVERSHOT).min(DAMPING.1);
        }
        overshot
    }

    /// What is added to the diagonal of H.
    fn ridge(&self, count: f64) -> f64 {
        let len = self.model.len();
        let diagonal: f64 = (0..len).map(|i| self.curvature[triangle(i) + i]).sum();
        self.damping / self.age * diagonal / len as f64 + PENALTY / count
    }

    /// A step against the gradient, if there is one; shorter, if the round's squared errors are
    /// such a surprise that its samples must have brought curvature of their own.
    fn step(&mut self, count: f64, error: f64, scratch: &mut Scratch) -> bool {
        let Scratch { gradient, step, work, .. } = scratch;
        step.clone_from(gradient);
        work.solve(&self.curvature, self.ridge(count), step);
        let is_step = step.iter().all(|step| step.abs() <= f64::from(MAX_NUMBER));
        if is_step {
            let gain = count * dot(gradient, step);
            let share = if error > 0.0 { share_of(gain, error) } else { 1.0 };
            self.model.iter_mut().zip(&*step).for_each(|(w, step)| *w -= share * step);
        }
        is_step
    }

    /// Takes H from the slices as far as whole rows of them are there, and the model with it;
    /// begins a new epoch when it is time. Whether it took H.
    fn grow(&mut self, sizes: &Sizes, order: &mut Order, work: &mut Work) -> bool {
        let len = order.len;
        let affordable = (self.known / SAMPLES_PER_FEATURE).min(sizes.features as f64) as usize;
        let rows = whole_rows(order.begin).min(affordable.max(len));
        let is_complete = order.begin == triangle(sizes.features);
        let is_over = is_complete || rows >= len && self.epoch.slices >= self.epoch.least_slices;
        let is_renewed = rows >= len && (rows > len || !self.epoch.is_used || is_over);
        if is_renewed {
            self.epoch.is_used = true;
            self.curvature.clear();
            self.curvature.extend_from_slice(&self.epoch.entries[..triangle(rows)]);
            self.model.resize(rows, 0.0);
            work.repair(&mut self.curvature, rows);
            order.len = rows;
        }
        if is_over {
            order.open_epoch();
            self.open_epoch(sizes);
        }
        is_renewed
    }

    /// Replaces a matrix that has become useless, because scales are of very different sizes or
    /// uploads are dishonest, by the identity.
    fn check_curvature(&mut self) {
        if !are_numbers(&self.curvature) {
            self.curvature.fill(0.0);
            (0..self.model.len()).for_each(|i| self.curvature[triangle(i) + i] = 1.0);
        }
    }

    fn open_epoch(&mut self, sizes: &Sizes) {
        let Epoch { entries, slices, least_slices, is_used } = &mut self.epoch;
        entries.clear();
        entries.resize(triangle(sizes.features), 0.0);
        (*slices, *least_slices, *is_used) = (0.0, math::ceil(self.age), false);
        self.delivery = Delivery::default();
    }

    /// Range and constant that nodes tell of.
    pub(super) fn hear(&mut self, order: &mut Order, error: f64, told: [f64; 2], samples: f64) {
        if order.asks_for_range() {
            let [squares, sum] = told;
            if sum > 0.0 {
                let further = squares / sum;
                if order.asks_for_high() {
                    order.high = to_wire(f64::from(order.high) + further);
                } else {
                    order.low = to_wire(f64::from(order.low) - further);
                }
            }
            return;
        }
        if let Some(pull) = self.errors.hear_constant(error, told, samples) {
            order.constant = to_wire(f64::from(order.constant) + pull);
        }
    }

    /// Writes the broadcast, and remembers what nodes will see of it.
    pub(super) fn write(
        &mut self,
        order: &mut Order,
        broadcast: &mut Broadcast,
        is_first: bool,
        sent: &mut Vec<f32>,
    ) {
        sent.clear();
        sent.resize(self.model.len(), 0.0);
        write_bounded(&self.model, sent);
        self.model.iter_mut().zip(&*sent).for_each(|(w, sent)| *w = f64::from(*sent));
        let before = &broadcast.numbers[..broadcast.numbers.len() - BROADCAST_EXTRA];
        if !is_first {
            push_move(&mut self.moves, sent, before);
        }
        order.moves = if self.has_stepped { self.moves.len() } else { 0 };
        broadcast.numbers.clone_from(sent);
        order.write(&mut broadcast.numbers);
    }
}

/// How much of a step to take that promises a gain, where the curvature of samples with these
/// squared errors may be unknown: along the step it is at least such that this is the best.
fn share_of(gain: f64, errors: f64) -> f64 {
    1.0 / (1.0 + gain.max(0.0) / errors)
}
