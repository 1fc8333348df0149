//! Saves and restores a [`Node`].

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::pending::{MAX_BYTES as MAX_PENDING_BYTES, Pending, Prediction};
use super::{Held, Node, NodeTally, State, UnackedErrors};
use crate::learning::{Calibration, ErrorQuantiles};
use crate::limits::MAX_HELD;
use crate::message::{NodeId, Report};
use crate::own_layer::OwnLayer;
use crate::plan::Plan;
use crate::scaling::NodeScaling;
use crate::state::{BadState, StateKind, read_body};

const KIND: StateKind = StateKind::new("node").version(6);

#[derive(Serialize, Deserialize)]
struct Saved<S> {
    id: NodeId,
    heads: Vec<Vec<u8>>,
    /// The node's own layers; empty where they start afresh.
    own: Vec<Vec<u8>>,
    scaling: Vec<u8>,
    state: S,
    /// What it knows of its errors; empty where that starts afresh.
    errors: Vec<ErrorQuantiles>,
    calibration: Calibration,
}

/// Bytes of a saved head besides what its method keeps, with what the node knows of the errors of
/// its output, and of one column of its scaling.
const HEAD_BYTES: usize = 4096;
const COLUMN_BYTES: usize = 512;

impl Node {
    /// Bytes that [`Node::save`] gives for a plan, at most: after many samples, while many wait for
    /// their labels.
    pub fn most_saved(plan: &Plan) -> usize {
        let (inputs, outputs) = (plan.inputs(), plan.outputs());
        let own = if plan.has_own_layers() { OwnLayer::memory(plan.own_features()) } else { 0 };
        let head = HEAD_BYTES + (plan.method().memory)(plan.setup()) + own;
        let held = MAX_HELD * (size_of::<Held>() + size_of::<f32>() * (inputs + outputs));
        let masks = plan.mask_rules().map_or(0, |rules| HEAD_BYTES + rules.most_bytes());
        outputs * head + held + MAX_PENDING_BYTES + masks + COLUMN_BYTES * (inputs + outputs)
    }

    /// Everything that has to survive a restart. Its connection is not part of it.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let saved = match &self.raw {
            Some(raw) => {
                let kept = (raw.errors.clone(), raw.calibration.clone());
                self.save_parts(&raw.scaling, &raw.state, kept)
            }
            None => self.save_with(&self.plan.node_scaling(), Vec::new(), Calibration::default()),
        };
        self.save_masks(saved)
    }

    /// The same for a node that is given features, with what its driver has kept for it: the
    /// scaling of its samples, the errors of each output, or nothing of them, and what makes
    /// probabilities of classes. A plan with this scaling restores it.
    #[must_use]
    pub fn save_with(
        &self,
        scaling: &NodeScaling,
        errors: Vec<ErrorQuantiles>,
        calibration: Calibration,
    ) -> Vec<u8> {
        self.save_parts(scaling, &State::default(), (errors, calibration))
    }

    fn save_parts(
        &self,
        scaling: &NodeScaling,
        state: &State,
        (errors, calibration): (Vec<ErrorQuantiles>, Calibration),
    ) -> Vec<u8> {
        let heads = self.heads.iter().map(|head| head.save()).collect();
        let own = self.own.iter().map(OwnLayer::save).collect();
        let scaling = scaling.save();
        KIND.save(&Saved { id: self.id, heads, own, scaling, state, errors, calibration })
    }

    /// Continues from a saved state of the same plan, without a connection.
    pub fn restore(plan: &Plan, saved: &[u8]) -> Result<Self, BadState> {
        if let Some((masks, saved)) = Self::read_masks(plan, saved)? {
            let mut node = Self::restore_plain(plan, &saved)?;
            node.restore_masks(masks)?;
            return Ok(node);
        }
        Self::restore_plain(plan, saved)
    }

    fn restore_plain(plan: &Plan, saved: &[u8]) -> Result<Self, BadState> {
        let Saved { id, heads, own, scaling, state, errors, calibration } = KIND
            .restore_any(saved, &[(4, read_version_4)], |_: &Saved<State>| true)
            .or_else(|error| Unversioned::read(saved).ok_or(error))?;
        let (inputs, outputs) = (plan.inputs(), plan.outputs());
        let layers = if plan.has_own_layers() { outputs } else { 0 };
        let fits = |held: &Held| (held.x.len(), held.y.len()) == (inputs, outputs);
        let is_sound = heads.len() == outputs
            && state.held.len() <= MAX_HELD
            && state.held.iter().all(fits)
            && state.pending.is_sound(inputs, plan.values())
            && (own.len() == layers || own.is_empty())
            && (errors.len() == outputs || errors.is_empty())
            && errors.iter().all(ErrorQuantiles::is_sound)
            && calibration.is_sound()
            && state.unacked.squared_error.is_finite()
            && state.told.is_none_or(|(_, told)| told.squared_error.is_finite())
            && state.tally.squared_error.is_finite();
        if !is_sound {
            return Err(BadState::new("sizes or values are out of bounds"));
        }
        let mut node = plan.node(id);
        for (head, saved) in node.heads.iter_mut().zip(&heads) {
            head.restore(saved)?;
        }
        let raw = node.raw();
        raw.scaling.restore(&scaling)?;
        (raw.state, raw.calibration) = (state, calibration);
        raw.errors.iter_mut().zip(errors).for_each(|(fresh, saved)| *fresh = saved);
        for (layer, saved) in node.own.iter_mut().zip(&own) {
            layer.restore(saved)?;
        }
        Ok(node)
    }
}

/// Version 4 had another kind of own layer, and knew nothing of errors. Both start afresh.
#[derive(Deserialize)]
struct Version4 {
    id: NodeId,
    heads: Vec<Vec<u8>>,
    scaling: Vec<u8>,
    state: StateOfVersion4,
}

#[derive(Deserialize)]
struct StateOfVersion4 {
    run: String,
    #[expect(dead_code, reason = "today's layers start afresh")]
    personal: Vec<OldLayer>,
    pending: Pending,
    held: Vec<Held>,
    learned: u64,
    unacked: UnackedErrors,
    told: Option<(u64, UnackedErrors)>,
    tally: NodeTally,
    report: Option<Report>,
}

/// The own layer before [`OwnLayer`]: sums of products and of products with labels, a count, the
/// last, mean, smallest and largest label, two losses.
type OldLayer = ([f64; 10], [f64; 4], u64, [f64; 4], [f64; 2]);

fn read_version_4(body: &[u8]) -> Result<Saved<State>, BadState> {
    let Version4 { id, heads, scaling, state } = read_body(body)?;
    let StateOfVersion4 { run, pending, held, learned, unacked, told, tally, report, .. } = state;
    let state = State { run, pending, held, learned, unacked, told, tally, report };
    let (own, errors, calibration) = (Vec::new(), Vec::new(), Calibration::default());
    Ok(Saved { id, heads, own, scaling, state, errors, calibration })
}

/// Nodes as they were saved before their states had a version.
#[derive(Deserialize)]
struct Unversioned {
    head: Vec<u8>,
    scaling: Vec<u8>,
    run: String,
    id: NodeId,
    #[expect(dead_code, reason = "today's layers start afresh")]
    personal: Option<OldLayer>,
    pending: UnversionedPending,
    held: Vec<(Vec<f32>, f32)>,
    learned: u64,
    unacked: UnackedErrors,
    told: Option<(u64, UnackedErrors)>,
    tally: NodeTally,
    report: Option<Report>,
}

#[derive(Deserialize)]
struct UnversionedPending {
    samples: BTreeMap<String, UnversionedSample>,
    order: BTreeMap<u64, String>,
    #[expect(dead_code, reason = "it is counted again")]
    bytes: usize,
}

#[derive(Deserialize)]
struct UnversionedSample {
    #[expect(dead_code, reason = "the order has it, too")]
    turn: u64,
    x: Vec<f32>,
    value: f32,
    round: u64,
    known: bool,
}

impl Unversioned {
    fn read(saved: &[u8]) -> Option<Saved<State>> {
        let (old, []) = postcard::take_from_bytes::<Self>(saved).ok()? else { return None };
        let mut pending = Pending::default();
        let UnversionedPending { mut samples, order, .. } = old.pending;
        for id in order.values() {
            let UnversionedSample { x, value, round, known, .. } = samples.remove(id)?;
            let values = vec![value];
            pending.insert(id, Prediction { x, values, round, known }).ok()?;
        }
        let state = State {
            run: old.run,
            pending,
            held: old.held.into_iter().map(|(x, y)| Held { x, y: vec![y] }).collect(),
            learned: old.learned,
            unacked: old.unacked,
            told: old.told,
            tally: old.tally,
            report: old.report,
        };
        let (heads, own, errors) = (vec![old.head], Vec::new(), Vec::new());
        let (scaling, calibration) = (old.scaling, Calibration::default());
        Some(Saved { id: old.id, heads, own, scaling, state, errors, calibration })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PlanConfig;

    #[test]
    fn nodes_of_version_4_go_on_with_fresh_layers() {
        let plan = Plan::new(PlanConfig::default().inputs(1).nodes(1).personal(true)).unwrap();
        let mut node = plan.node(0);
        for t in 0..30 {
            node.learn(&[t as f32 / 30.0], &[1.0]).unwrap();
        }
        let raw = node.raw.as_ref().unwrap();
        let State { run, pending, held, learned, unacked, told, tally, report } = &raw.state;
        let layer: OldLayer = Default::default();
        let state = (run, [layer].to_vec(), pending, held, learned, unacked, told, tally, report);
        let heads: Vec<_> = node.heads.iter().map(|head| head.save()).collect();
        let old = StateKind::new("node").save(&(0 as NodeId, heads, raw.scaling.save(), state));
        let restored = Node::restore(&plan, &old).unwrap();
        assert_eq!(restored.tally(), node.tally());
        assert_eq!(restored.heads[0].save(), node.heads[0].save());
        assert_eq!(restored.own[0].save(), plan.own_layer().save());
        assert_ne!(restored.own[0].save(), node.own[0].save());
    }

    #[test]
    fn layers_are_restored_or_refused() {
        let plan = Plan::new(PlanConfig::default().inputs(1).nodes(1).personal(true)).unwrap();
        let mut node = plan.node(0);
        node.learn(&[0.5], &[1.0]).unwrap();
        let restored = Node::restore(&plan, &node.save()).unwrap();
        assert_eq!(restored.own[0].save(), node.own[0].save());
        let without = Plan::new(plan.config().clone().personal(false)).unwrap();
        assert!(Node::restore(&without, &node.save()).is_err());
    }
}
