//! The server half: a step and a better preconditioner from each round's sums.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::super::server_shell::{ServerRule, ServerShell, ServerState};
use super::super::{ServerMethod, Setup};
use super::delivery::{Delivery, Next, extended};
use super::matrix::{self, Work};
use super::{
    BROADCAST_EXTRA, INFO, Order, PENALTY, SEARCHED_MOVES, Sizes, UploadShape, next_in_cycle,
    plane, push_move, rescale_broadcast, to_wire, triangle, whole_rows,
};
use crate::aggregation::Gathering;
use crate::limits::{MAX_NUMBER, MAX_SUM};
use crate::linear_algebra::{dot, write_bounded};
use crate::math;
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::{BadState, OlderVersion, StateKind, read_body};

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

/// Samples in the window of the recent error.
const ERROR_WINDOW: f64 = 66.0;

/// After an abrupt drift the recent error is more than this many times the usual error, and more
/// than this many times the error of a constant.
const DRIFT_OVER_USUAL: f64 = 3.0;
const DRIFT_OVER_CONSTANT: f64 = 2.0;

/// The largest weight of one report in the recent error.
const MAX_REPORT_WEIGHT: f64 = 0.2;

/// What is left of the number of known samples from round to round: nodes may have left.
const KNOWN_LEFT: f64 = 0.97;

/// Samples that a feature needs before it is added.
const SAMPLES_PER_FEATURE: f64 = 6.0;

/// Rate of the weights of model and constant relative to the constant's usual error, log-odds at
/// first, what is left of them from report to report, and their bound.
const TRUST_RATE: f64 = 0.25;
const TRUST_FIRST: f64 = 1.0;
const TRUST_LEFT: f64 = 0.99;
const TRUST_MOST: f64 = 8.0;

/// Samples per feature before a model gets its full trust.
const SAMPLES_FOR_TRUST: f64 = 1.5;

/// The rate at which the usual number of samples in a round is learned.
const PACE_RATE: f64 = 0.1;

/// The server's rule. Other methods may own one.
pub(in crate::method) struct Growth {
    sizes: Sizes,
    scratch: Scratch,
}

/// Buffers: once they are as large as the model, a round allocates nothing.
#[derive(Default)]
struct Scratch {
    sums: Vec<f64>,
    gradient: Vec<f64>,
    /// The last moves, filled up with zeros, and H times each.
    directions: [Vec<f64>; SEARCHED_MOVES],
    images: [Vec<f64>; SEARCHED_MOVES],
    step: Vec<f64>,
    change: Vec<f64>,
    work: Work,
    sent: Vec<f32>,
}

/// What the server knows beyond its broadcast.
#[derive(Serialize, Deserialize)]
pub(in crate::method) struct Memory {
    /// w, as broadcast.
    model: Vec<f64>,
    /// The last moves of the model, the latest first.
    moves: Vec<Vec<f64>>,
    /// Whether the latest was more than a correction.
    has_stepped: bool,
    /// H, lower triangle row by row; empty before the first round has closed.
    curvature: Vec<f64>,
    /// μ.
    damping: f64,
    /// Samples in a usual round.
    pace: f64,
    /// Rounds' worth of samples in the nodes' histories.
    age: f64,
    epoch: Epoch,
    errors: Errors,
    delivery: Delivery,
    /// Samples in the histories of all nodes, as far as is known.
    known: f64,
}

/// The matrix that slices make up.
#[derive(Serialize, Deserialize, Default)]
struct Epoch {
    /// Mean Gram matrix, entry by entry of the lower triangle.
    entries: Vec<f64>,
    /// Slices that are complete, and how many it is to have at least. Without losses each takes a
    /// round.
    slices: f64,
    least_slices: f64,
    /// Whether H has been taken from it.
    is_used: bool,
}

/// Running errors, to tell a drift.
#[derive(Serialize, Deserialize, Default)]
struct Errors {
    recent: f64,
    usual: f64,
    /// Of the constant, recently.
    constant: f64,
    /// Reports so far.
    reports: u64,
    /// Samples until the next order to forget is possible.
    wait: f64,
    /// Log-odds of the model against the constant.
    trust: f64,
}

pub(super) fn server(setup: &Setup) -> Box<dyn ServerMethod> {
    let (rule, memory, opening) = Growth::new(Sizes::new(setup.budget()));
    ServerShell::boxed(setup, (INFO.layout)(setup), rule, memory, opening)
}

impl Growth {
    /// Before the first round, with the broadcast that opens it.
    pub(in crate::method) fn new(sizes: Sizes) -> (Self, Memory, Broadcast) {
        let order = Order::opening(&sizes);
        let mut numbers = vec![0.0; sizes.first];
        order.write(&mut numbers);
        let opening = Broadcast { round: 1, kernels: None, numbers };
        let memory = Memory {
            model: vec![0.0; sizes.first],
            moves: vec![],
            has_stepped: false,
            curvature: vec![],
            damping: DAMPING.0,
            pace: 0.0,
            age: 1.0,
            epoch: Epoch::default(),
            errors: Errors { wait: 2.5 * ERROR_WINDOW, trust: TRUST_FIRST, ..Errors::default() },
            delivery: Delivery::default(),
            known: 0.0,
        };
        (Self { sizes, scratch: Scratch::default() }, memory, opening)
    }

    /// Turns the sums of a round into the numbers of the next broadcast. Whether H was taken from
    /// slices: then it is the mean Gram matrix, without what look-backs add to it later.
    pub(in crate::method) fn close_with(
        &mut self,
        memory: &mut Memory,
        sums: impl Iterator<Item = f64>,
        broadcast: &mut Broadcast,
    ) -> bool {
        // The broadcast is the server's own.
        let Ok(mut order) = Order::read(&self.sizes, broadcast) else { return false };
        let Self { sizes, scratch } = self;
        scratch.sums.clear();
        scratch.sums.extend(sums);
        let is_first = order.is_first();
        let (count, is_renewed) = if is_first {
            (memory.begin(sizes, &mut order, scratch), false)
        } else {
            memory.go_on(sizes, &mut order, scratch)
        };
        let seen = (count / (SAMPLES_FOR_TRUST * order.len as f64)).clamp(0.0, 1.0);
        order.trust = (seen / (1.0 + math::exp(-memory.errors.trust))) as f32;
        memory.write(&mut order, broadcast, is_first, scratch);
        is_renewed
    }
}

/// Version 4 asked for every slice once.
fn read_version_4(body: &[u8]) -> Result<ServerState<Memory>, BadState> {
    read_body(&extended(body, &(Delivery::default(), 0.0_f64)))
}

impl ServerRule for Growth {
    type Memory = Memory;
    const OLDER: &'static [OlderVersion<ServerState<Memory>>] = &[(4, read_version_4)];

    fn kind(&self) -> StateKind {
        StateKind::new("gr-server").version(5)
    }

    fn close(&mut self, memory: &mut Memory, sums: &Gathering, broadcast: &mut Broadcast) {
        self.close_with(memory, sums.totals(), broadcast);
    }

    fn upload_len(&self, broadcast: &Broadcast) -> Option<usize> {
        Order::read(&self.sizes, broadcast).ok().map(|order| order.layout(&self.sizes).len)
    }

    fn rescale(&self, memory: &mut Memory, broadcast: &mut Broadcast, rescaling: &Rescaling) {
        let gain = rescaling.gain();
        if !memory.curvature.is_empty() {
            let len = memory.model.len();
            rescaling.refit().sums(len).gram(&mut memory.curvature, 1.0);
            Work::default().repair(&mut memory.curvature, len);
            memory.check_curvature();
        }
        // The broadcast is the server's own.
        let Some(order) = rescale_broadcast(&self.sizes, broadcast, rescaling) else { return };
        memory.model.clear();
        memory.model.extend(broadcast.numbers[..order.len].iter().map(|w| f64::from(*w)));
        memory.moves.clear();
        let Errors { recent, usual, constant, .. } = &mut memory.errors;
        for error in [recent, usual, constant] {
            *error = (*error * gain * gain).min(MAX_SUM);
        }
        if !order.is_first() {
            memory.open_epoch(&self.sizes);
        }
    }

    fn check(&self, upload: &Upload, broadcast: &Broadcast) -> Result<(), Rejected> {
        let Ok(order) = Order::read(&self.sizes, broadcast) else { return Ok(()) };
        let UploadShape { len, .. } = order.layout(&self.sizes);
        // What every server checks is refused by its name.
        if upload.round != order.round || upload.numbers.len() != len {
            return Ok(());
        }
        order.check_upload(&upload.numbers)
    }

    fn broadcast_len(&self, broadcast: &Broadcast) -> Option<usize> {
        Some(broadcast.numbers.len()).filter(|_| Order::read(&self.sizes, broadcast).is_ok())
    }

    fn is_sound(&self, memory: &Memory, broadcast: &Broadcast) -> bool {
        let Ok(order) = Order::read(&self.sizes, broadcast) else { return false };
        let Memory { model, moves, curvature, damping, pace, age, epoch, errors, .. } = memory;
        let has_shape = if order.is_first() {
            curvature.is_empty() && epoch.entries.is_empty()
        } else {
            curvature.len() == triangle(order.len)
                && epoch.entries.len() == triangle(self.sizes.features)
        };
        has_shape
            && model.len() == order.len
            && model.iter().zip(&broadcast.numbers).all(|(w, sent)| *w == f64::from(*sent))
            && moves.len() <= SEARCHED_MOVES
            && moves.iter().all(|v| v.len() <= order.len && are_numbers(v))
            && [curvature, &epoch.entries].into_iter().all(|numbers| are_numbers(numbers))
            && (DAMPING.0..=DAMPING.1).contains(damping)
            && are_numbers(&[*pace, *age, epoch.slices, epoch.least_slices, memory.known])
            && memory.delivery.is_sound(self.sizes.features)
            && *age >= 1.0
            && are_numbers(&[errors.recent, errors.usual, errors.constant, errors.wait])
            && errors.trust.abs() <= TRUST_MOST
    }
}

fn are_numbers(numbers: &[f64]) -> bool {
    numbers.iter().all(|number| number.abs() <= MAX_SUM)
}

impl Memory {
    /// H, lower triangle row by row.
    pub(in crate::method) fn curvature(&self) -> &[f64] {
        &self.curvature
    }

    /// Samples in the histories of all nodes, as far as is known.
    pub(in crate::method) fn known(&self) -> f64 {
        self.known
    }

    /// After the first round: the first matrix, offset and range, and the first step. Its samples.
    fn begin(&mut self, sizes: &Sizes, order: &mut Order, scratch: &mut Scratch) -> f64 {
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
    fn go_on(&mut self, sizes: &Sizes, order: &mut Order, scratch: &mut Scratch) -> (f64, bool) {
        let Scratch { sums, gradient, .. } = scratch;
        let UploadShape { slice: (begin, end), .. } = order.layout(sizes);
        let len = order.len;
        let (count, samples) = (sums[sums.len() - 2], sums[sums.len() - 1]);
        if count <= 0.0 {
            return (count, false);
        }
        let scalars = &sums[len + end - begin..];
        let (plane, scalars) = scalars.split_at(triangle(order.moves));
        let [behind_plane, behind_slice, error] = [scalars[0], scalars[1], scalars[2]];
        self.pace += PACE_RATE * (samples - self.pace);
        self.age = (count / self.pace.max(f64::MIN_POSITIVE)).clamp(1.0, f64::from(MAX_NUMBER));
        let forgotten = order.forgotten;
        self.hear(order, error, [scalars[3], scalars[4]], samples);
        gradient.clear();
        gradient
            .extend(sums[..len].iter().zip(&self.model).map(|(g, w)| (g + PENALTY * w) / count));
        let mut seen = plane::Table::default();
        for a in 0..order.moves {
            (0..order.moves)
                .for_each(|b| seen[a][b] = plane[triangle(a.max(b)) + a.min(b)] / behind_plane);
        }
        let moves = order.moves.min(self.moves.len());
        let overshot =
            behind_plane > 0.0 && moves > 0 && self.look_back(seen, moves, count, scratch);
        self.has_stepped = !overshot && self.step(count, error, scratch);
        let slice = &scratch.sums[len..len + end - begin];
        let next = self.delivery.add(&mut self.epoch.entries, begin, slice, behind_slice);
        if let Next::Slice(next) = next {
            order.begin = next;
            self.epoch.slices += 1.0;
        }
        self.known = (KNOWN_LEFT * self.known).max(count);
        let is_renewed = self.grow(sizes, order, &mut scratch.work);
        if order.forgotten != forgotten {
            self.known = 0.0;
        }
        if order.forgotten != forgotten || next == Next::Epoch {
            // What was sent of the epoch is of what is to be forgotten, or nobody sends the rest.
            order.open_epoch();
            self.open_epoch(sizes);
        }
        self.check_curvature();
        (count, is_renewed)
    }

    /// Goes to the best point in the plane of the last moves, given their mean curvature there, and
    /// learns of it. Whether the last one overshot.
    fn look_back(
        &mut self,
        mut seen: plane::Table,
        moves: usize,
        count: f64,
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
            let surprise = count * dot(gradient, step).max(0.0) / error;
            let share = if error > 0.0 { 1.0 / (1.0 + surprise) } else { 1.0 };
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

    /// Errors and range that nodes tell of.
    fn hear(&mut self, order: &mut Order, error: f64, told: [f64; 2], samples: f64) {
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
        if samples <= 0.0 {
            return;
        }
        let errors = &mut self.errors;
        let [loss, constant, offset] =
            [error, told[0], told[1]].map(|sum| (sum / samples).clamp(-MAX_SUM, MAX_SUM));
        // Reports come in every other round and stand for both.
        let covered = 2.0 * samples;
        let quick = (covered / ERROR_WINDOW).min(MAX_REPORT_WEIGHT);
        errors.reports = errors.reports.saturating_add(1);
        errors.wait -= covered;
        if errors.reports == 1 {
            (errors.recent, errors.usual, errors.constant) = (loss, loss, constant);
        }
        errors.recent += quick * (loss - errors.recent);
        errors.constant += quick * (constant - errors.constant);
        if errors.constant > 0.0 {
            let gained = TRUST_RATE * (told[0] - error) / errors.constant;
            errors.trust = (TRUST_LEFT * errors.trust + gained).clamp(-TRUST_MOST, TRUST_MOST);
        }
        let (recent, usual) = (errors.recent, errors.usual);
        if errors.wait < 0.0
            && recent > DRIFT_OVER_USUAL * usual
            && recent > DRIFT_OVER_CONSTANT * errors.constant
        {
            order.forgotten = next_in_cycle(order.forgotten);
            errors.wait = 2.5 * ERROR_WINDOW;
            errors.usual = recent;
        }
        let slow = (quick / 10.0).max(0.5 / errors.reports as f64);
        errors.usual += slow * (loss - errors.usual);
        let pull = (quick / 3.0).max(0.5 / errors.reports as f64);
        order.constant = to_wire(f64::from(order.constant) + pull * offset);
    }

    /// Writes the broadcast, and remembers what nodes will see of it.
    fn write(
        &mut self,
        order: &mut Order,
        broadcast: &mut Broadcast,
        is_first: bool,
        scratch: &mut Scratch,
    ) {
        let sent = &mut scratch.sent;
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
