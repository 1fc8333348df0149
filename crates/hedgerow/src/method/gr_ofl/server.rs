//! The server half: a step and a better preconditioner from each round's sums.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::super::server_shell::{ServerRule, ServerShell, ServerState};
use super::super::{ServerMethod, Setup};
use super::delivery::{Delivery, Next, extended};
use super::forgetting::Forgetting;
use super::ladder::{self, Stage, Window};
use super::matrix::{self, Work};
use super::{
    BROADCAST_EXTRA, INFO, Order, PENALTY, SEARCHED_MOVES, Sizes, UploadShape, plane, push_move,
    rescale_broadcast, to_wire, triangle, whole_rows,
};
use crate::aggregation::Gathering;
use crate::limits::{MAX_NUMBER, MAX_SUM};
use crate::linear_algebra::{dot, write_bounded};
use crate::math;
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::{BadState, OlderVersion, StateKind, is_count, read_body};

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

/// It is an alarm if the recent error is so many times the usual error.
const ALARM: f64 = 1.5;

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
    ridge: Ridge,
    pub(in crate::method) forgetting: Forgetting,
}

/// The model, and how it is learned.
#[derive(Serialize, Deserialize)]
struct Ridge {
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
    /// No longer used.
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
        let ridge = Ridge {
            model: vec![0.0; sizes.first],
            moves: vec![],
            has_stepped: false,
            curvature: vec![],
            damping: DAMPING.0,
            pace: 0.0,
            age: 1.0,
            epoch: Epoch::default(),
            errors: Errors { trust: TRUST_FIRST, ..Errors::default() },
            delivery: Delivery::default(),
            known: 0.0,
        };
        let memory = Memory { ridge, forgetting: Forgetting::new(sizes.features) };
        (Self { sizes, scratch: Scratch::default() }, memory, opening)
    }

    /// Turns the sums of a round over some nodes into the numbers of the next broadcast. Whether H
    /// was taken from slices: then it is the mean Gram matrix, without what look-backs add to it
    /// later.
    pub(in crate::method) fn close_with(
        &mut self,
        memory: &mut Memory,
        (sums, nodes): (impl Iterator<Item = f64>, f64),
        broadcast: &mut Broadcast,
    ) -> bool {
        // The broadcast is the server's own.
        let Ok(mut order) = Order::read(&self.sizes, broadcast) else { return false };
        let Self { sizes, scratch } = self;
        scratch.sums.clear();
        scratch.sums.extend(sums);
        let is_first = order.is_first();
        // The next move is from the model.
        memory.ridge.replace_rival(&order, broadcast);
        let (count, is_renewed) = if is_first {
            (memory.ridge.begin(sizes, &mut order, scratch), false)
        } else {
            memory.go_on(sizes, &mut order, nodes, scratch)
        };
        let seen = (count / (SAMPLES_FOR_TRUST * order.len as f64)).clamp(0.0, 1.0);
        order.trust = (seen / (1.0 + math::exp(-memory.ridge.errors.trust))) as f32;
        memory.write(&mut order, broadcast, is_first, scratch);
        is_renewed
    }
}

/// Version 4 asked for every slice once and had another rule of forgetting.
fn read_version_4(body: &[u8]) -> Result<ServerState<Memory>, BadState> {
    let added = (Delivery::default(), 0.0_f64);
    let (broadcast, gathering, ridge): ServerState<Ridge> = read_body(&extended(body, &added))?;
    Ok((broadcast, gathering, Memory { ridge, forgetting: Forgetting::default() }))
}

impl ServerRule for Growth {
    type Memory = Memory;
    const OLDER: &'static [OlderVersion<ServerState<Memory>>] = &[(4, read_version_4)];

    fn kind(&self) -> StateKind {
        StateKind::new("gr-server").version(5)
    }

    fn close(&mut self, memory: &mut Memory, sums: &Gathering, broadcast: &mut Broadcast) {
        self.close_with(memory, (sums.totals(), sums.count() as f64), broadcast);
    }

    fn catch_up(&self, memory: &Memory, broadcast: &Broadcast) -> Option<Broadcast> {
        let order = Order::read(&self.sizes, broadcast).ok()?;
        (order.stage == Stage::Rival).then(|| memory.whole(broadcast).into_owned())
    }

    fn upload_len(&self, broadcast: &Broadcast) -> Option<usize> {
        Order::read(&self.sizes, broadcast).ok().map(|order| order.layout(&self.sizes).len)
    }

    fn rescale(&self, memory: &mut Memory, broadcast: &mut Broadcast, rescaling: &Rescaling) {
        if let Ok(order) = Order::read(&self.sizes, broadcast) {
            memory.ridge.replace_rival(&order, broadcast);
        }
        memory.forgetting.rescale();
        let (memory, gain) = (&mut memory.ridge, rescaling.gain());
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
        let Ridge { model, moves, curvature, damping, pace, age, epoch, errors, .. } =
            &memory.ridge;
        let has_rival = order.stage == Stage::Rival;
        let has_shape = if order.is_first() {
            curvature.is_empty() && epoch.entries.is_empty()
        } else {
            curvature.len() == triangle(order.len)
                && epoch.entries.len() == triangle(self.sizes.features)
        };
        has_shape
            && model.len() == order.len
            && (has_rival
                || model.iter().zip(&broadcast.numbers).all(|(w, sent)| *w == f64::from(*sent)))
            && are_numbers(model)
            && memory.forgetting.is_sound(&order)
            && moves.len() <= SEARCHED_MOVES
            && moves.iter().all(|v| v.len() <= order.len && are_numbers(v))
            && [curvature, &epoch.entries].into_iter().all(|numbers| are_numbers(numbers))
            && (DAMPING.0..=DAMPING.1).contains(damping)
            && are_numbers(&[*pace, *age, epoch.slices, epoch.least_slices, memory.known()])
            && memory.ridge.delivery.is_sound(self.sizes.features, order.begin)
            && *age >= 1.0
            && are_numbers(&[errors.recent, errors.usual, errors.constant, errors.wait])
            && errors.trust.abs() <= TRUST_MOST
            && is_count(errors.reports)
    }
}

/// How much of a step to take that promises a gain, where the curvature of samples with these
/// squared errors may be unknown: along the step it is at least such that this is the best.
fn share(gain: f64, errors: f64) -> f64 {
    1.0 / (1.0 + gain.max(0.0) / errors)
}

fn are_numbers(numbers: &[f64]) -> bool {
    numbers.iter().all(|number| number.abs() <= MAX_SUM)
}

impl Memory {
    /// H, lower triangle row by row.
    pub(in crate::method) fn curvature(&self) -> &[f64] {
        &self.ridge.curvature
    }

    /// The broadcast with the model, where it has a rival: for nodes that have neither.
    pub(in crate::method) fn whole<'a>(&self, broadcast: &'a Broadcast) -> Cow<'a, Broadcast> {
        let last = broadcast.numbers.last().map_or(0, |last| *last as usize);
        let Some(code) = ladder::without_rival(last) else { return Cow::Borrowed(broadcast) };
        let mut whole = broadcast.clone();
        self.ridge.write_model(&mut whole.numbers);
        whole.numbers.pop();
        whole.numbers.push(code as f32);
        Cow::Owned(whole)
    }

    /// Samples in the histories of all nodes, as far as is known.
    pub(in crate::method) fn known(&self) -> f64 {
        self.ridge.known
    }

    /// Rounds of the history that are left after orders to forget.
    pub(in crate::method) fn rounds_left(&self) -> f64 {
        self.forgetting.rounds_left() as f64
    }

    /// Samples in a usual round.
    pub(in crate::method) fn pace(&self) -> f64 {
        self.ridge.pace
    }

    /// A round of another method is over, in which the model stayed as it was.
    pub(in crate::method) fn pass(&mut self, error: f64, samples: f64) {
        let is_alarming = self.ridge.errors.hear(error, samples);
        self.forgetting.pass(is_alarming);
    }

    /// After every round but the first.
    fn go_on(
        &mut self,
        sizes: &Sizes,
        order: &mut Order,
        nodes: f64,
        scratch: &mut Scratch,
    ) -> (f64, bool) {
        let Self { ridge, forgetting } = self;
        let sums = &scratch.sums;
        let at = sums.len();
        let [vote, error, count, samples] = [at - 6, at - 5, at - 2, at - 1].map(|at| sums[at]);
        if count <= 0.0 {
            return (count, false);
        }
        let told = [sums[at - 4], sums[at - 3]];
        ridge.pace += PACE_RATE * (samples - ridge.pace);
        ridge.age = (count / ridge.pace.max(f64::MIN_POSITIVE)).clamp(1.0, f64::from(MAX_NUMBER));
        forgetting.pass(ridge.errors.hear(error, samples));
        ridge.hear(order, error, told, samples);
        let stage = order.stage;
        if let Stage::Check(window) = stage {
            order.stage = Stage::Nothing;
            if let Some(share) = ridge.rival(window, scratch) {
                let steps = ridge.model.iter().zip(&scratch.step);
                forgetting.try_rival(window, steps.map(|(w, step)| w - share * step));
                order.stage = Stage::Rival;
            }
            return (count, false);
        }
        let result = ridge.go_on(sizes, order, scratch);
        if stage.has_votes() && samples > 0.0 {
            // Nobody has more than one vote, whatever the number of samples that it tells of.
            let voters = nodes.min(samples).max(1.0);
            if forgetting.hear((vote / voters).clamp(-1.0, 1.0), order) {
                ridge.begin_anew(sizes, order, forgetting.rival(), forgetting.rounds_left());
            }
        }
        forgetting.plan(order, ridge.pace);
        result
    }

    /// Writes the broadcast, and remembers what nodes will see of it.
    fn write(
        &mut self,
        order: &mut Order,
        broadcast: &mut Broadcast,
        is_first: bool,
        scratch: &mut Scratch,
    ) {
        if order.stage == Stage::Rival {
            let len = self.ridge.model.len();
            broadcast.numbers.truncate(len);
            write_bounded(self.forgetting.rival(), &mut broadcast.numbers);
            order.write(&mut broadcast.numbers);
        } else {
            self.ridge.write(order, broadcast, is_first, scratch);
        }
    }
}

impl Ridge {
    /// Writes the model, which is as it was broadcast.
    fn write_model(&self, numbers: &mut [f32]) {
        numbers.iter_mut().zip(&self.model).for_each(|(number, w)| *number = *w as f32);
    }

    /// Puts the model in the place of its rival in a broadcast.
    fn replace_rival(&self, order: &Order, broadcast: &mut Broadcast) {
        if order.stage == Stage::Rival {
            self.write_model(&mut broadcast.numbers);
        }
    }

    /// Nodes are told to forget: the rival is the model of what is left.
    fn begin_anew(&mut self, sizes: &Sizes, order: &mut Order, rival: &[f64], rounds: u64) {
        // Features that the rival doesn't have begin anew.
        self.model.fill(0.0);
        self.model.iter_mut().zip(rival).for_each(|(w, rival)| *w = *rival);
        self.has_stepped = false;
        self.errors.usual = self.errors.recent;
        self.age = (rounds as f64).max(1.0);
        self.known = 0.0;
        // What was sent of the epoch is of what is to be forgotten.
        order.open_epoch();
        self.open_epoch(sizes);
    }

    /// The step to the model of a window, if it is suspicious, and the share of it to take.
    fn rival(&self, window: Window, scratch: &mut Scratch) -> Option<f64> {
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
        // A vote may leave no room for a slice.
        let next = match slice {
            [] => Next::Again,
            _ => self.delivery.add(&mut self.epoch.entries, begin, slice, behind_slice),
        };
        if let Next::Slice(next) = next {
            order.begin = next;
            self.epoch.slices += 1.0;
        }
        self.known = (KNOWN_LEFT * self.known).max(count);
        let is_renewed = self.grow(sizes, order, &mut scratch.work);
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
        let share = share(-count * dot(gradient, step), lacking.max(f64::MIN_POSITIVE));
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
            let share = if error > 0.0 { share(gain, error) } else { 1.0 };
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
        let [constant, offset] = told.map(|sum| (sum / samples).clamp(-MAX_SUM, MAX_SUM));
        // Reports come in every other round and stand for both.
        let quick = (2.0 * samples / ERROR_WINDOW).min(MAX_REPORT_WEIGHT);
        errors.reports = errors.reports.saturating_add(1);
        if errors.reports == 1 {
            errors.constant = constant;
        }
        errors.constant += quick * (constant - errors.constant);
        if errors.constant > 0.0 {
            let gained = TRUST_RATE * (told[0] - error) / errors.constant;
            errors.trust = (TRUST_LEFT * errors.trust + gained).clamp(-TRUST_MOST, TRUST_MOST);
        }
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

impl Errors {
    /// Learns from the squared errors of a round. Whether they are an alarm.
    fn hear(&mut self, error: f64, samples: f64) -> bool {
        if samples <= 0.0 {
            return false;
        }
        let loss = (error / samples).clamp(0.0, MAX_SUM);
        if self.reports == 0 {
            (self.recent, self.usual) = (loss, loss);
        }
        let quick = (samples / ERROR_WINDOW).min(MAX_REPORT_WEIGHT);
        self.recent += quick * (loss - self.recent);
        let is_alarming = self.recent > ALARM * self.usual;
        let slow = (quick / 10.0).max(0.5 / (2 * self.reports + 1) as f64);
        self.usual += slow * (loss - self.usual);
        is_alarming
    }
}
