//! Saves and restores a [`Node`].

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::pending::{Pending, Prediction};
use super::{Held, Node, NodeTally, Raw, State, UnackedErrors};
use crate::learning::Personal;
use crate::limits::MAX_HELD;
use crate::message::{NodeId, Report};
use crate::plan::Plan;
use crate::state::{BadState, StateKind};

const KIND: StateKind = StateKind::new("node");

#[derive(Serialize, Deserialize)]
struct Saved<S> {
    id: NodeId,
    heads: Vec<Vec<u8>>,
    scaling: Vec<u8>,
    state: S,
}

impl Node {
    /// Everything that has to survive a restart. Its connection is not part of it.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let fresh;
        let raw = match &self.raw {
            Some(raw) => raw.as_ref(),
            None => {
                fresh = Raw::new(&self.plan);
                &fresh
            }
        };
        let heads = self.heads.iter().map(|head| head.save()).collect();
        let (scaling, state) = (raw.scaling.save(), &raw.state);
        KIND.save(&Saved { id: self.id, heads, scaling, state })
    }

    /// Continues from a saved state of the same plan, without a connection.
    pub fn restore(plan: &Plan, saved: &[u8]) -> Result<Self, BadState> {
        let Saved { id, heads, scaling, state } = KIND
            .restore(saved, |_: &Saved<State>| true)
            .or_else(|error| Unversioned::read(saved).ok_or(error))?;
        let (inputs, outputs) = (plan.inputs(), plan.outputs());
        let layers = if plan.config().personal { outputs } else { 0 };
        let fits = |held: &Held| (held.x.len(), held.y.len()) == (inputs, outputs);
        let is_sound = heads.len() == outputs
            && state.held.len() <= MAX_HELD
            && state.held.iter().all(fits)
            && state.pending.is_sound(inputs, outputs)
            && state.personal.len() == layers
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
        for (layer, saved) in raw.state.personal.iter_mut().zip(&state.personal) {
            // It checks itself for values that can't be.
            layer.restore(&saved.save())?;
        }
        raw.state = state;
        Ok(node)
    }
}

/// Nodes as they were saved before their states had a version.
#[derive(Deserialize)]
struct Unversioned {
    head: Vec<u8>,
    scaling: Vec<u8>,
    run: String,
    id: NodeId,
    personal: Option<Personal>,
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
            personal: old.personal.into_iter().collect(),
            pending,
            held: old.held.into_iter().map(|(x, y)| Held { x, y: vec![y] }).collect(),
            learned: old.learned,
            unacked: old.unacked,
            told: old.told,
            tally: old.tally,
            report: old.report,
        };
        Some(Saved { id: old.id, heads: vec![old.head], scaling: old.scaling, state })
    }
}
