//! The node half: GR-OFL's sums, remembered samples, and what F says of them.

mod trial;

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::super::gr_ofl::{self, to_wire};
use super::super::node_shell::NodeRule;
use super::super::{Setup, gr_ofl::node as ridge};
use super::inputs::{Frame, InputMap, can_be_rescaled};
use super::memory::{SampleMemory, SavedMemory};
use super::order::{self, Asked, Form, Order};
use super::units::{Base, Units};
use super::{BLOCK_EXTRA, MOST_INPUTS, Sizes};
use crate::codec::Section;
use crate::features::{Features, SampleMap};
use crate::learning::Loss;
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::{StateKind, is_count};

use trial::{CountedSample, Outputs, SampleSums, StepTrial};

/// Log-odds of a class that F predicts, at most.
const MOST_LOG_ODDS: f32 = 20.0;

pub(super) struct Node {
    sizes: Sizes,
    seed: u64,
    loss: Loss,
    map: InputMap,
    ridge: ridge::Node,
    order: Order,
    memory: SampleMemory,
    units: Option<Units>,
    sums: SampleSums,
    asked: BlockRounds,
    trial: StepTrial,
    /// GR-OFL's part of a broadcast; scratch.
    inner: Broadcast,
}

/// What is saved.
#[derive(Serialize, Deserialize)]
pub(super) struct State {
    ridge: ridge::Saved,
    own: OwnState,
}

/// What is saved beside GR-OFL's sums.
#[derive(Serialize, Deserialize)]
struct OwnState {
    order: Order,
    memory: SavedMemory,
    units: Option<Units>,
    sums: SampleSums,
    asked: BlockRounds,
}

/// The rounds in which a block was asked for, at the same parameters.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct BlockRounds {
    first: u64,
    /// The last round whose upload was taken.
    taken: u64,
}

impl BlockRounds {
    /// Whether the server has heard what this node says of the block.
    fn is_heard(self) -> bool {
        self.taken >= self.first && self.taken > 0
    }
}

impl Node {
    pub(super) fn new(setup: &Setup, map: Arc<SampleMap>) -> Self {
        let sizes = Sizes::new(setup);
        Self {
            sizes,
            seed: setup.seed(),
            loss: setup.objective().loss,
            map: InputMap::new(&sizes, map),
            ridge: ridge::Node::new(setup, sizes.ridge),
            order: Order::opening(&sizes),
            memory: SampleMemory::new(&sizes),
            units: None,
            sums: SampleSums::default(),
            asked: BlockRounds::default(),
            trial: StepTrial::default(),
            inner: Broadcast::default(),
        }
    }

    /// F at θ, or with the step on trial, for a sample: without clipping.
    fn outputs(&self, units: &Units, z: Features<'_>) -> Outputs {
        let mut x = [0.0; MOST_INPUTS];
        let x = &mut x[..self.sizes.inputs];
        self.map.inputs(z.numbers(), x);
        let frame = &units.frame;
        x.iter_mut().enumerate().for_each(|(input, x)| *x = frame.standardise(input, *x));
        self.trial.outputs(units, x, units.base.value(self.loss, z.numbers()))
    }

    /// What F predicts: with or without the step on trial, whichever is better on the node's own
    /// history, within the range of labels.
    fn prediction(&self, outputs: &Outputs) -> f32 {
        let gr_ofl::Order { origin, low, high, .. } = *self.ridge.order();
        let says = if self.sums.prefers_step { outputs.whole } else { outputs.base };
        match self.loss {
            Loss::Logistic => says.clamp(-MOST_LOG_ODDS, MOST_LOG_ODDS),
            _ => origin + (says - origin).clamp(low, high),
        }
    }

    /// Takes GR-OFL's part of a broadcast over.
    fn adopt_ridge(&mut self, round: u64, numbers: &[f32]) {
        self.inner.round = round;
        self.inner.numbers.clear();
        self.inner.numbers.extend_from_slice(numbers);
        self.ridge.adopt(&self.inner);
    }

    /// Follows from θ, the step on trial and the memory.
    fn refresh(&mut self) {
        let Self { sizes, seed, ridge, order, memory, units, sums, trial, loss, .. } = self;
        let Some(units) = units else {
            sums.clear();
            return;
        };
        trial.set(sizes, *seed, order.asked, units);
        trial.evaluate(sizes, units, memory);
        sums.total(sizes, *loss, order.asked, (memory, ridge.samples()), trial);
    }

    /// F of all remembered samples from the beginning, at θ.
    fn rebuild(&mut self) {
        let Self { sizes, loss, map, memory, units, trial, .. } = self;
        if let Some(units) = units {
            memory.set_frame(units.frame.clone());
            trial.rebuild(sizes, *loss, units, map, memory);
        }
    }
}

impl NodeRule for Node {
    type State = State;
    const KIND: StateKind = StateKind::new("tr-node");

    fn width(&self) -> usize {
        self.sizes.ridge.features
    }

    fn predict(&self, z: Features<'_>) -> f32 {
        let ridge = self.ridge.predict(z);
        match &self.units {
            Some(units) if self.order.weight > 0.0 => {
                let own = self.prediction(&self.outputs(units, z));
                ridge + self.order.weight * (own - ridge)
            }
            _ => ridge,
        }
    }

    fn learn(&mut self, step: u64, z: Features<'_>, y: f32) {
        let known = self.ridge.samples();
        self.ridge.learn(step, z, y);
        let outputs = self.units.as_ref().map(|units| self.outputs(units, z));
        if let Some(outputs) = &outputs {
            let mean = self.loss.mean_label(f64::from(self.prediction(outputs)));
            let error = mean - f64::from(y);
            self.sums.error += trial::weight(self.loss, error) * error * error;
        }
        if !self.memory.is_used() {
            return;
        }
        let (sizes, loss, asked) = (self.sizes, self.loss, self.order.asked);
        let (block, lane, is_replaced) = self.memory.next_slot();
        let counted = |sign| CountedSample { block, lane, sign };
        let is_forgotten = !self.memory.is_recent((block, lane), known);
        if is_replaced && !is_forgotten && outputs.is_some() {
            self.sums.count_one(&sizes, loss, asked, &self.memory, counted(-1.0), &self.trial);
        }
        let mut x = [0.0; MOST_INPUTS];
        let x = &mut x[..sizes.inputs];
        self.map.inputs(z.numbers(), x);
        let frame = &self.memory.frame;
        let fields = outputs.as_ref().map_or([y, 0.0, 0.0, 0.0], |outputs| outputs.fields(y));
        let standardised: [f32; MOST_INPUTS] = core::array::from_fn(|input| {
            x.get(input).map_or(0.0, |x| frame.standardise(input, *x))
        });
        let rest = &z.numbers()[z.numbers().len() - sizes.rest()..];
        self.memory.push(standardised[..sizes.inputs].iter().copied(), rest, fields);
        if outputs.is_some() {
            self.sums.count_one(&sizes, loss, asked, &self.memory, counted(1.0), &self.trial);
        }
    }

    fn has_news(&self, learned: u64) -> bool {
        self.ridge.has_news(learned)
    }

    fn write(&self, round: u64, upload: &mut Upload) {
        let SampleSums { half, whole, base, gradient, error, .. } = &self.sums;
        let (samples, ridge_error) = self.ridge.round_errors();
        match self.order.asked {
            Asked::Ridge => {
                self.ridge.write(round, upload);
                upload.numbers.push(to_wire(*error));
            }
            Asked::Errors => {
                upload.numbers.extend([samples as f64, ridge_error, *error].map(to_wire));
            }
            Asked::Block(_) => {
                let numbers = &mut upload.numbers;
                numbers.reserve(gradient.len() + BLOCK_EXTRA);
                let count = self.ridge.samples().min(self.memory.len() as u64);
                let told = [*half, *whole, *base, count as f64];
                let is_heard = self.asked.is_heard();
                let told = gradient.iter().chain(&told).map(|number| match is_heard {
                    true => 0.0,
                    false => to_wire(*number),
                });
                numbers.extend(told);
                numbers.extend([samples as f64, ridge_error, *error].map(to_wire));
            }
        }
    }

    fn sections(&self, out: &mut Vec<Section>) {
        if self.order.asked == Asked::Ridge {
            self.ridge.sections(out);
        }
    }

    fn sent(&mut self, round: u64) {
        if self.order.asked == Asked::Ridge {
            self.ridge.sent(round);
        }
    }

    fn acknowledge(&mut self, taken: u64) {
        self.ridge.acknowledge(taken);
        self.asked.taken = taken;
    }

    fn check(&self, broadcast: &Broadcast) -> Result<(), Rejected> {
        let order = Order::read(&self.sizes, broadcast)?;
        if order.round <= self.order.round || order.is_complete() {
            let len = order.ridge_body();
            let is_readable = match (order.form, order.units) {
                (Form::Whole, Some(units)) => {
                    let rest = &broadcast.numbers[len..];
                    Units::read(&self.sizes, units, order.step, order::body(rest)).is_some()
                }
                _ => true,
            };
            let what = "units that can't be";
            return if is_readable { Ok(()) } else { Err(Rejected::Garbled { what }) };
        }
        if order.round != self.order.round + 1 {
            let (round, found) = (self.order.round, order.round);
            return Err(Rejected::MissedBroadcast { round, found });
        }
        let known = self.units.as_ref().map(|units| units.count(&self.sizes));
        let fits = match (order.form, known, order.units) {
            (Form::Opening, _, _) | (_, _, None) => true,
            (_, None, Some(_)) => false,
            (Form::Growth, Some(known), Some(told)) => told == known + self.sizes.group,
            (_, Some(known), Some(told)) => told == known,
        };
        if order.form == Form::Ridge && !self.ridge.can_take_rival(order.ridge_rival()) {
            return Err(Rejected::Garbled { what: "a rival of another model" });
        }
        if !fits {
            return Err(Rejected::Garbled { what: "units that this node doesn't have" });
        }
        if order.form == Form::Opening {
            let frame = Frame::from_numbers(&broadcast.numbers[..2 * self.sizes.inputs]);
            if !frame.is_sound(self.sizes.inputs) {
                return Err(Rejected::Garbled { what: "a deviation that isn't positive" });
            }
        }
        Ok(())
    }

    fn adopt(&mut self, broadcast: &Broadcast) {
        let Ok(order) = Order::read(&self.sizes, broadcast) else { return };
        let sizes = self.sizes;
        let body = order::body(&broadcast.numbers);
        let is_next = order.round == self.order.round + 1;
        let mut is_same = is_next && order.form == Form::Empty;
        match order.form {
            Form::Ridge | Form::Whole => {
                let round = if is_next && order.form == Form::Ridge {
                    self.ridge.order().round + 1
                } else {
                    self.ridge.forget_round();
                    order.ridge.round()
                };
                let len = order.ridge_body();
                self.adopt_ridge(round, &body[..len]);
                if let (Form::Whole, Some(units)) = (order.form, order.units) {
                    let units = Units::read(&sizes, units, order.step, &body[len..]);
                    is_same = units.as_ref().is_some_and(|units| {
                        self.units.as_ref().is_some_and(|known| known.is_at(units))
                    });
                    self.units = units;
                    self.rebuild();
                }
            }
            Form::Opening => {
                self.ridge.begin_round();
                let gr_ofl::Order { origin, low, high, .. } = *self.ridge.order();
                let base = Base::new(self.ridge.weights(), origin, low, high);
                let frame = Frame::from_numbers(body);
                self.units = Some(Units::new(&sizes, base, frame, order.round));
                self.rebuild();
            }
            Form::Step => {
                self.ridge.begin_round();
                if let Some(units) = &mut self.units {
                    self.trial.take(&sizes, units, order.share, &mut self.memory);
                    if let Some(block) = order.step {
                        units.try_step(block, body.iter().copied());
                    }
                }
            }
            Form::Growth => {
                self.ridge.begin_round();
                if let Some(units) = &mut self.units {
                    self.trial.take(&sizes, units, order.share, &mut self.memory);
                    units.grow(&sizes, body);
                }
            }
            Form::Empty => self.ridge.begin_round(),
        }
        if order.units.is_none() {
            self.units = None;
        }
        // Otherwise nothing has changed but the round: the same block is asked for again.
        if !is_same || order.asked != self.order.asked {
            self.asked.first = order.round;
        }
        self.order = order;
        self.refresh();
        self.sums.error = 0.0;
    }

    fn forget_round(&mut self) {
        self.order.round = 0;
        self.ridge.forget_round();
    }

    fn norm2(&self) -> f64 {
        self.ridge.norm2()
    }

    fn linear_model(&self, out: &mut [f64]) -> bool {
        // Units aren't linear in the features.
        let has_units = self.units.is_some() && self.order.weight > 0.0;
        !has_units && self.ridge.linear_model(out)
    }

    fn rescale(&mut self, rescaling: &Rescaling) {
        let (sizes, gain) = (self.sizes, rescaling.gain());
        self.ridge.rescale(rescaling);
        let keeps = can_be_rescaled(&sizes, rescaling.inputs(), gain);
        self.order.rescale(self.ridge.order(), keeps);
        if keeps {
            self.memory.rescale_labels(gain, rescaling.shift());
            self.memory.frame.rescale(rescaling.inputs());
            if let Some(units) = &mut self.units {
                units.rescale(&sizes, rescaling);
            }
        } else {
            self.memory.clear();
            self.units = None;
        }
        // What the server heard was in the old scale.
        self.asked.taken = 0;
        let error = self.sums.error * gain * gain;
        self.rebuild();
        self.refresh();
        self.sums.error = error.min(trial::MAX_LOSS);
    }

    fn forget_samples(&mut self) -> usize {
        let (forgotten, error) = (self.memory.len(), self.sums.error);
        let prefers_step = self.sums.prefers_step;
        self.memory.clear();
        self.refresh();
        (self.sums.error, self.sums.prefers_step) = (error, prefers_step);
        forgotten
    }

    fn state(&self) -> impl Serialize {
        #[derive(Serialize)]
        struct Own<'a> {
            order: &'a Order,
            memory: SavedMemory,
            units: &'a Option<Units>,
            sums: &'a SampleSums,
            asked: BlockRounds,
        }
        let Self { order, units, sums, asked, .. } = self;
        let own = Own { order, memory: self.memory.save(), units, sums, asked: *asked };
        (self.ridge.state(), own)
    }

    fn is_sound(&self, state: &State) -> bool {
        let State { ridge, own: OwnState { order, memory, units, sums, asked } } = state;
        let block = match (order.asked, units) {
            (Asked::Block(block), Some(units)) => block.len(&self.sizes, units.count(&self.sizes)),
            (Asked::Block(_), None) => return false,
            _ => 0,
        };
        self.ridge.is_sound(ridge)
            && order.is_sound(&self.sizes)
            && memory.is_sound(&self.sizes, units.as_ref().map(|units| &units.frame))
            && order.units == units.as_ref().map(|units| units.count(&self.sizes))
            && units.as_ref().is_none_or(|units| units.is_sound(&self.sizes))
            && [order.round, asked.first, asked.taken].into_iter().all(is_count)
            && sums.is_sound(block)
    }

    fn restore(&mut self, state: State) {
        let State { ridge, own: OwnState { order, memory, units, sums, asked } } = state;
        self.ridge.restore(ridge);
        self.memory.restore(memory);
        (self.order, self.units, self.sums, self.asked) = (order, units, sums, asked);
        if let Some(units) = &self.units {
            self.trial.set(&self.sizes, self.seed, self.order.asked, units);
        }
    }
}
