//! The node half: sums over all samples, and what is uploaded of them.

mod history;
mod state;

use alloc::vec::Vec;

use serde::Serialize;

use super::super::Setup;
use super::super::node_shell::NodeRule;
use super::super::rows::Models;
use super::delivery::Delivered;
use super::ladder::Stage;
use super::order::rescale_broadcast;
use super::{Order, SEARCHED_MOVES, Sizes, UploadShape, push_move, to_wire, triangle};
use crate::codec::{Kind, Section};
use crate::features::Features;
use crate::learning::loss::Loss;
use crate::limits::MAX_LABEL;
use crate::linear_algebra::dot;
use crate::math;
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::simd::{self, Cpu};
use crate::state::{OlderVersion, StateKind};
use history::{History, rescale_labels};
pub(in crate::method) use state::Saved;
use state::{
    CURVATURES, MAX_PRODUCT, RoundSums, State, is_number, is_sound, read_version_4, read_version_5,
};

/// The sums of a node. Other methods may own one.
pub(in crate::method) struct Node {
    setup: Setup,
    sizes: Sizes,
    state: State,
    history: History,
    /// What the latest broadcast ordered.
    order: Order,
    /// w and its rival, filled up with zeros.
    model: Models,
    rival: Models,
    /// A sample's features in f64, or model, moves and half their products; scratch.
    wide: Vec<f64>,
}

impl Node {
    pub(in crate::method) fn new(setup: &Setup, sizes: Sizes) -> Self {
        let order = Order::opening(&sizes);
        let mut numbers = vec![0.0; sizes.first];
        order.write(&mut numbers);
        Self {
            setup: *setup,
            sizes,
            state: State {
                broadcast: Broadcast { round: 1, kernels: None, numbers },
                moves: Vec::with_capacity(SEARCHED_MOVES),
                gram: vec![0.0; triangle(sizes.features)],
                moment: vec![0.0; sizes.features],
                count: 0.0,
                energy: 0.0,
                smallest: f64::INFINITY,
                largest: f64::NEG_INFINITY,
                snapshot: Vec::with_capacity(triangle(sizes.features)),
                snapshot_count: 0.0,
                snapshot_epoch: 0,
                gradient: Vec::with_capacity(sizes.features),
                curvature: [0.0; CURVATURES],
                round: RoundSums::default(),
                delivered: Delivered::default(),
            },
            history: History::new(sizes.features),
            order,
            model: Models::zero(1, sizes.features),
            rival: Models::zero(1, sizes.features),
            wide: vec![0.0; (1 + 2 * SEARCHED_MOVES) * sizes.features],
        }
    }

    /// What the latest broadcast ordered.
    pub(in crate::method) fn order(&self) -> &Order {
        &self.order
    }

    /// The model of the latest broadcast, w.
    pub(in crate::method) fn weights(&self) -> &[f32] {
        &self.state.broadcast.numbers[..self.order.len]
    }

    /// Samples since the round began, and the sum of their squared errors.
    pub(in crate::method) fn round_errors(&self) -> (u64, f64) {
        (self.state.round.samples, self.state.round.error)
    }

    /// The latest samples that are in the history.
    pub(in crate::method) fn samples(&self) -> u64 {
        self.history.samples
    }

    /// A round begins whose broadcast has no model: the last one stays.
    pub(in crate::method) fn begin_round(&mut self) {
        self.state.round = RoundSums::default();
        self.history.gain = 0.0;
    }

    /// Whether a rival of so many features, if there is one, is one of the model.
    pub(in crate::method) fn can_take_rival(&self, len: Option<usize>) -> bool {
        len.is_none_or(|len| len == self.order.len && !self.order.is_first())
    }

    /// Whether an order is the next, for the model that the node has.
    fn has_model_of(&self, order: &Order) -> bool {
        order.round == self.order.round + 1 && order.len == self.order.len
    }

    /// Takes over what follows from the latest broadcast.
    fn follow(&mut self, order: Order) {
        self.model.set_first(&self.state.broadcast.numbers[..order.len]);
        self.rival.set_first(&self.history.rival);
        self.order = order;
    }

    /// Gradient and curvature of the whole history at a new model, or of the window that is asked
    /// for.
    fn look_back(&mut self) {
        let Self { state, history, wide, order, sizes, .. } = self;
        state.curvature = [0.0; CURVATURES];
        if order.is_first() {
            state.gradient.clear();
            return;
        }
        let len = order.len;
        state.gradient.resize(len, 0.0);
        let mut buffers = wide.chunks_exact_mut(sizes.features).map(|buffer| &mut buffer[..len]);
        let [Some(model), Some(a), Some(b), Some(of_a), Some(of_b)] =
            core::array::from_fn(|_| buffers.next())
        else {
            return;
        };
        let cpu = Cpu::detect();
        simd::widen(cpu, &state.broadcast.numbers, 1.0, model);
        // Aw + y₀·Ae₁.
        model[0] += f64::from(order.origin);
        // The earlier a move, the fewer features it may have: the others of it are zero.
        let known = [0, 1].map(|at| state.moves.get(at).map_or(&[][..], |v| v));
        let [a, b] = [padded(known[0], a), padded(known[1], b)];
        let halves = [&mut *of_a, &mut *of_b];
        simd::multiply_with_halves(cpu, &state.gram, model, &mut state.gradient, [a, b], halves);
        state.gradient.iter_mut().zip(&state.moment).for_each(|(g, b)| *g -= b);
        state.curvature = [2.0 * dot(a, of_a), dot(a, of_b) + dot(b, of_a), 2.0 * dot(b, of_b)];
        // The first feature is one, and the model is w again.
        model[0] = f64::from(state.broadcast.numbers[0]);
        let window = match order.stage {
            Stage::Check(window) => Some(window),
            _ => None,
        };
        history.look(state, window, (model, f64::from(order.origin)));
    }

    /// Writes what every upload but the first ends with.
    fn write_round(&self, numbers: &mut Vec<f32>) {
        let Self { state, order, .. } = self;
        let round = &state.round;
        let told = if order.asks_for_range() {
            let origin = f64::from(order.origin);
            let beyond = if order.asks_for_high() {
                state.largest - origin - f64::from(order.high)
            } else {
                f64::from(order.low) - (state.smallest - origin)
            };
            let beyond = beyond.max(0.0);
            [beyond * beyond, beyond]
        } else {
            [round.constant_error, round.constant_offset]
        };
        numbers.push(to_wire(round.error));
        numbers.extend(told.map(to_wire));
        numbers.extend([to_wire(state.count), to_wire(round.samples as f64)]);
    }
}

/// A vector as long as the buffer, filled up with zeros in it if it is shorter.
fn padded<'a>(v: &'a [f64], buffer: &'a mut [f64]) -> &'a [f64] {
    if v.len() == buffer.len() {
        return v;
    }
    let (start, rest) = buffer.split_at_mut(v.len());
    start.copy_from_slice(v);
    rest.fill(0.0);
    buffer
}

impl NodeRule for Node {
    type State = Saved;
    const KIND: StateKind = StateKind::new("gr-node").version(6);
    const OLDER: &'static [OlderVersion<(u64, u64, Saved)>] =
        &[(4, read_version_4), (5, read_version_5)];

    fn width(&self) -> usize {
        self.sizes.features
    }

    fn predict(&self, z: Features<'_>) -> f32 {
        let says = f64::from(self.order.predict(self.model.predict(0, z)));
        self.setup.objective().loss.link(says) as f32
    }

    fn learn(&mut self, _step: u64, z: Features<'_>, y: f32) {
        let says = self.model.predict(0, z);
        let Order { origin, low, high, stage, .. } = self.order;
        let error = f64::from(origin + says.clamp(low, high)) - f64::from(y);
        let (state, history, label) = (&mut self.state, &mut self.history, f64::from(y));
        let weight: f64 = match self.setup.objective().loss {
            Loss::Huber { delta } if error.abs() > delta && !self.order.is_first() => {
                delta / error.abs()
            }
            _ => 1.0,
        };
        // The root on either side, so that the product has the weight.
        let root = math::sqrt(weight);
        let wide = &mut self.wide[..self.sizes.features];
        let (cpu, labels) = (Cpu::detect(), [root * label]);
        simd::widen(cpu, z.numbers(), root, wide);
        simd::add_gram(cpu, &mut state.gram, &mut state.moment, wide, &labels);
        if stage.has_votes() && !history.rival.is_empty() {
            let rival = self.rival.predict(0, z).clamp(low, high);
            let rival = f64::from(origin + rival) - label;
            history.gain += weight * (error * error - rival * rival);
        }
        // At the current model, without clipping.
        let residual = f64::from(says) - (label - f64::from(origin));
        history.squares += weight * residual * residual;
        history.count += weight;
        history.samples += 1;
        simd::add_multiple(cpu, &mut state.gradient, wide, root * residual);
        let mut along = [0.0; SEARCHED_MOVES];
        for (along, v) in along.iter_mut().zip(&state.moves) {
            *along = dot(v, wide);
        }
        for b in 0..SEARCHED_MOVES {
            for a in 0..=b {
                state.curvature[triangle(b) + a] += along[a] * along[b];
            }
        }
        state.count += weight;
        state.energy += weight * label * label;
        state.smallest = state.smallest.min(label);
        state.largest = state.largest.max(label);
        let offset = label - f64::from(self.order.origin) - f64::from(self.order.constant);
        state.round.samples += 1;
        state.round.error += weight * error * error;
        state.round.constant_error += weight * offset * offset;
        state.round.constant_offset += weight * offset;
    }

    fn has_news(&self, _learned: u64) -> bool {
        self.state.count > 0.0
    }

    fn write(&self, _round: u64, upload: &mut Upload) {
        let Self { state, order, .. } = self;
        let numbers = &mut upload.numbers;
        let UploadShape { slice: (begin, end), len } = order.layout(&self.sizes);
        numbers.reserve(len);
        if order.is_first() {
            numbers.extend(state.gram[begin..end].iter().map(|a| to_wire(*a)));
            numbers.extend(state.moment[..order.len].iter().map(|b| to_wire(*b)));
            numbers.extend([to_wire(state.energy), to_wire(state.count)]);
            return;
        }
        numbers.extend(state.gradient.iter().map(|g| to_wire(*g)));
        if matches!(order.stage, Stage::Check(_)) {
            numbers.extend([self.history.squares.max(0.0), self.history.count].map(to_wire));
            self.write_round(numbers);
            return;
        }
        // The first slice of an epoch uses the current sums.
        let behind_slice = if !state.delivered.is_due(order) {
            numbers.resize(numbers.len() + end - begin, 0.0);
            0.0
        } else if begin == 0 {
            numbers.extend(state.gram[begin..end].iter().map(|a| to_wire(*a)));
            state.count
        } else {
            numbers.extend_from_slice(&state.snapshot[begin..end]);
            state.snapshot_count
        };
        let knows_moves = state.moves.len() >= order.moves;
        let of_use = |sum: f64| to_wire(if knows_moves { sum } else { 0.0 });
        numbers.extend(state.curvature[..triangle(order.moves)].iter().map(|sum| of_use(*sum)));
        numbers.extend([of_use(state.count), to_wire(behind_slice)]);
        if order.stage.has_votes() {
            numbers.push(to_wire(self.history.vote(state.round.samples)));
        }
        self.write_round(numbers);
    }

    fn sections(&self, out: &mut Vec<Section>) {
        let order = &self.order;
        // A window has little in common with the history.
        if order.is_first() || matches!(order.stage, Stage::Check(_)) {
            return;
        }
        // The whole history's gradient changes little from round to round. Slices are exact: what
        // rounding did to the small eigenvalues of H would be large in its inverse.
        out.push(Section { len: order.len, kind: Kind::Tracked { slot: 0 } });
    }

    fn sent(&mut self, round: u64) {
        let UploadShape { slice: (begin, end), .. } = self.order.layout(&self.sizes);
        if begin < end {
            self.state.delivered.sent(round, &self.order);
        }
    }

    fn acknowledge(&mut self, taken: u64) {
        self.state.delivered.acknowledge(taken);
    }

    fn check(&self, broadcast: &Broadcast) -> Result<(), Rejected> {
        let order = Order::read(&self.sizes, broadcast)?;
        let (round, found) = (self.order.round, order.round);
        // A rival comes without the model.
        if order.stage == Stage::Rival && found > round && !self.has_model_of(&order) {
            return Err(Rejected::MissedBroadcast { round, found });
        }
        Ok(())
    }

    fn adopt(&mut self, broadcast: &Broadcast) {
        let Ok(order) = Order::read(&self.sizes, broadcast) else { return };
        let (state, history) = (&mut self.state, &mut self.history);
        // A model never shrinks, unless its server went back to an earlier state: then there is no
        // knowing its moves.
        let is_next = order.round == self.order.round + 1 && order.len >= self.order.len;
        let (weights, tail) = broadcast.numbers.split_at(order.len);
        if order.stage == Stage::Rival {
            history.rival.clear();
            history.rival.extend_from_slice(weights);
        } else {
            if is_next && !self.order.is_first() {
                let before = &state.broadcast.numbers[..self.order.len];
                push_move(&mut state.moves, weights, before);
            } else {
                state.moves.clear();
            }
            state.broadcast.numbers.clear();
            state.broadcast.numbers.extend_from_slice(weights);
            // No mark passes during a trial: another one means another rival.
            if order.stage != Stage::Trial || order.mark != self.order.mark {
                history.rival.clear();
            }
        }
        state.broadcast.numbers.truncate(order.len);
        state.broadcast.numbers.extend_from_slice(tail);
        state.broadcast.round = broadcast.round;
        state.round = RoundSums::default();
        history.gain = 0.0;
        history.follow(state, order.mark, order.begin_of_history);
        if order.begin > 0 && state.snapshot_epoch != order.epoch {
            state.snapshot.clear();
            state.snapshot.extend(state.gram.iter().map(|a| to_wire(*a)));
            state.snapshot_count = state.count;
            state.snapshot_epoch = order.epoch;
        }
        self.follow(order);
        self.look_back();
    }

    fn forget_round(&mut self) {
        self.order.round = 0;
        self.state.delivered = Delivered::default();
    }

    fn norm2(&self) -> f64 {
        self.model.norm2(0)
    }

    fn linear_model(&self, out: &mut [f64]) -> bool {
        let Order { origin, constant, trust, len, .. } = self.order;
        if len > out.len() || self.setup.objective().loss == Loss::Logistic {
            return false;
        }
        let trust = f64::from(trust);
        out.fill(0.0);
        for (out, w) in out.iter_mut().zip(&self.state.broadcast.numbers[..len]) {
            *out = trust * f64::from(*w);
        }
        // The first feature is one.
        out[0] += f64::from(origin) + (1.0 - trust) * f64::from(constant);
        true
    }

    fn rescale(&mut self, rescaling: &Rescaling) {
        let (state, gain) = (&mut self.state, rescaling.gain());
        let refit = rescaling.refit();
        let sums = refit.sums(self.sizes.features);
        sums.gram(&mut state.gram, state.count);
        sums.moment(&mut state.moment);
        let labels = (gain, rescaling.shift());
        rescale_labels(&state.gram, &mut state.moment, (&mut state.energy, state.count), labels);
        for label in [&mut state.smallest, &mut state.largest] {
            if label.is_finite() {
                let bound = f64::from(MAX_LABEL);
                *label = (*label * gain + rescaling.shift()).clamp(-bound, bound);
            }
        }
        self.history.rescale(&sums, labels);
        let is_sound = state.gram.iter().chain(&state.moment).chain([&state.energy]).all(is_number);
        if rescaling.restarts() || !is_sound {
            // Labels, or scales of very different sizes: the old sums are useless.
            self.history.clear();
            state.gram.iter_mut().chain(&mut state.moment).for_each(|sum| *sum = 0.0);
            (state.count, state.energy) = (0.0, 0.0);
            (state.smallest, state.largest) = (f64::INFINITY, f64::NEG_INFINITY);
        }
        let RoundSums { error, constant_error, constant_offset, .. } = &mut state.round;
        for (sum, factor) in
            [(error, gain * gain), (constant_error, gain * gain), (constant_offset, gain)]
        {
            *sum = (*sum * factor).clamp(-MAX_PRODUCT, MAX_PRODUCT);
        }
        state.moves.clear();
        state.snapshot_epoch = 0;
        if let Some(order) = rescale_broadcast(&self.sizes, &mut state.broadcast, rescaling) {
            self.follow(order);
            self.look_back();
        }
    }

    fn state(&self) -> impl Serialize {
        (&self.state, &self.history)
    }

    fn is_sound(&self, saved: &Saved) -> bool {
        is_sound(&self.sizes, &saved.state) && saved.history.is_sound(&self.sizes)
    }

    fn restore(&mut self, saved: Saved) {
        (self.state, self.history) = (saved.state, saved.history);
        if let Ok(order) = Order::read(&self.sizes, &self.state.broadcast) {
            self.follow(order);
        }
    }
}
