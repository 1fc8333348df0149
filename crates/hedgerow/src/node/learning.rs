//! A sample step by step: its prediction, and what is learned from its labels.

use alloc::boxed::Box;

use super::{Answer, Held, Node, Raw, State};
use crate::features::Features;
use crate::importance::ImportanceMeter;
use crate::limits::MAX_HELD;
use crate::method::NodeMethod;
use crate::own_layer::OwnLayer;
use crate::plan::Plan;

impl Node {
    /// Predicts into the buffers, and says how many values were missing. The features stay in their
    /// buffer until the sample is learned from.
    pub(super) fn answer(&mut self, x: &[f32]) -> (Answer, usize) {
        let Self { plan, heads, own, raw, .. } = self;
        let raw = &mut **raw.get_or_insert_with(|| Box::new(Raw::new(plan)));
        let Raw { scaling, scratch, .. } = &mut *raw;
        let known = scaling.scale().is_some();
        let missing = if known { scaling.prepare(x, &mut scratch.x) } else { 0 };
        let z = known.then(|| plan.map().map_batch(&scratch.x, &mut scratch.z));
        for (output, head) in heads.iter().enumerate() {
            let (shared, value) = match (scaling.label(output), z) {
                (Some(label), Some(z)) => {
                    let (shared, value) = predict_mapped(head.as_ref(), own.get_mut(output), z);
                    (label.raw(f64::from(shared)), label.raw(f64::from(value)))
                }
                _ => {
                    let mean = scaling.summary().mean(plan.inputs() + output).unwrap_or(0.0);
                    (mean, mean)
                }
            };
            scratch.values[output] = value as f32;
            if plan.classes().is_some() {
                scratch.values[plan.outputs() + output] = shared as f32;
            }
        }
        let (value, round) = (scratch.values[0], heads[0].round());
        raw.has_answered = known;
        for output in 0..plan.outputs() {
            let interval = known.then(|| raw.interval(plan, output, raw.level)).flatten();
            raw.scratch.intervals[output] = interval;
        }
        let interval = raw.scratch.intervals[0];
        let class = raw.classify(plan);
        (Answer { value, round, known, interval, class }, missing)
    }

    /// Labels have come for what is in the buffers: they count, and are learned now or in the next
    /// round. `known` says whether the prediction was one of a model.
    pub(super) fn see(&mut self, x: &[f32], y: &[f32], known: bool, missing: usize) {
        let round = self.round();
        let Self { plan, heads, own, importance, raw, .. } = self;
        let Raw { scaling, holds_unscaled, state, errors, calibration, link, scratch, .. } =
            &mut **raw.get_or_insert_with(|| Box::new(Raw::new(plan)));
        let State { tally, unacked, held, .. } = state;
        tally.samples = tally.samples.saturating_add(1);
        if known {
            for (errors, (value, y)) in errors.iter_mut().zip(scratch.values.iter().zip(y)) {
                errors.see(*value, *y);
            }
            let error = match plan.classes() {
                Some(classes) => {
                    let class = classes.likeliest(y);
                    let found = classes.likeliest(&scratch.probabilities);
                    calibration.learn(&scratch.values, plan.objective().loss, class);
                    f64::from(u8::from(found != class))
                }
                None => {
                    let errors = scratch.values.iter().zip(y).map(|(value, y)| {
                        let error = f64::from(*value) - f64::from(*y);
                        error * error
                    });
                    errors.sum::<f64>() / y.len() as f64
                }
            };
            tally.scored = tally.scored.saturating_add(1);
            tally.squared_error += error;
            unacked.samples = unacked.samples.saturating_add(1);
            unacked.squared_error += error;
        }
        let is_scaled = scaling.scale().is_some();
        if is_scaled && known {
            let label = |output: usize| scaling.scale_label(output, y[output]);
            let (x, z) = (&scratch.x, Features::made(&scratch.z));
            measure_importance(plan, heads, own, importance, x, z, label);
        }
        if is_scaled {
            for (output, (own, y)) in own.iter_mut().zip(y).enumerate() {
                own.learn(scaling.scale_label(output, *y));
            }
        }
        let waits = if is_scaled { link.answered == Some(round) } else { *holds_unscaled };
        if !waits {
            self.learn_mapped(y, missing);
        } else {
            let oldest = (held.len() >= MAX_HELD).then(|| held.remove(0));
            held.push(Held { x: x.to_vec(), y: y.to_vec() });
            if let Some(oldest) = oldest {
                self.learn_now(&oldest);
            }
        }
        self.raw().scaling.see(x, y.iter().copied());
    }

    /// Learns what waited, once there is a scale.
    pub(super) fn learn_held(&mut self) {
        if self.raw().is_scaled() {
            let held = core::mem::take(&mut self.raw().state.held);
            held.iter().for_each(|sample| self.learn_now(sample));
        }
    }

    fn learn_now(&mut self, Held { x, y }: &Held) {
        let Self { plan, raw: Some(raw), .. } = self else { return };
        let Raw { scaling, scratch, .. } = &mut **raw;
        if scaling.scale().is_some() {
            let missing = scaling.prepare(x, &mut scratch.x);
            plan.map().map_batch(&scratch.x, &mut scratch.z);
            self.learn_mapped(y, missing);
        }
    }

    /// Learns the sample whose features are in the buffer.
    fn learn_mapped(&mut self, y: &[f32], missing: usize) {
        let Self { heads, raw: Some(raw), .. } = self else { return };
        let Raw { scaling, state, scratch, .. } = &mut **raw;
        if scaling.scale().is_none() {
            return;
        }
        state.tally.imputed += missing as u64;
        let z = Features::made(&scratch.z);
        let mut is_learned = true;
        for (output, (head, y)) in heads.iter_mut().zip(y).enumerate() {
            let scaled = scaling.scale_label(output, *y);
            // The label was checked when it came, and the map is the plan's own.
            is_learned &= head.learn(z, scaled).is_ok();
        }
        state.learned = state.learned.saturating_add(u64::from(is_learned));
    }
}

/// Measures the importance of a column, if one is due.
pub(super) fn measure_importance(
    plan: &Plan,
    heads: &[Box<dyn NodeMethod>],
    own: &mut [OwnLayer],
    importance: &mut Option<Box<ImportanceMeter>>,
    x: &[f32],
    z: Features<'_>,
    label: impl Fn(usize) -> f32,
) {
    let Some(meter) = importance else { return };
    meter.see_labels(&label);
    let Some(group) = meter.next(x, plan.map()) else { return };
    let objective = plan.objective();
    let mut loss = |z: Features<'_>| {
        let each = heads.iter().enumerate().map(|(output, head)| {
            let (_, value) = predict_mapped(head.as_ref(), own.get_mut(output), z);
            objective.loss.value(f64::from(value), f64::from(label(output)))
        });
        each.sum::<f64>() / heads.len() as f64
    };
    let replaced = loss(meter.features());
    // The sample itself comes last: it is the one that own layers learn.
    let plain = loss(z);
    meter.add(group, replaced, plain);
}

/// What the method says of a sample, and what the node says.
pub(super) fn predict_mapped(
    head: &dyn NodeMethod,
    own: Option<&mut OwnLayer>,
    z: Features<'_>,
) -> (f32, f32) {
    let global = head.predict(z);
    let value = own
        .map_or(global, |own| own.predict(z, head.round(), global, |out| head.linear_model(out)));
    (global, value)
}
