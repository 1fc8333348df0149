//! What a [`Plan`] says of the importance of columns.

use alloc::vec::Vec;

use super::{Plan, PlanConfig};
use crate::importance::{ImportanceMeter, ImportanceScope, SharedImportance};
use crate::learning::Loss;
use crate::message::NodeId;
use crate::scaling::Axis;

impl Plan {
    /// What measures the importance of columns at a node, if the plan asks for it.
    pub(crate) fn importance_meter(&self, id: NodeId) -> Option<ImportanceMeter> {
        let PlanConfig { importance, seed, .. } = *self.config();
        let sizes = (self.width(), self.outputs());
        let meter = || ImportanceMeter::new(importance, self.column_groups(), seed, id, sizes);
        (importance != ImportanceScope::None).then(meter)
    }

    /// What adds up what nodes tell of it, if the plan asks for it.
    pub(crate) fn shared_importance(&self) -> Option<SharedImportance> {
        let is_shared = self.config().importance == ImportanceScope::Shared;
        is_shared.then(|| SharedImportance::new(count(&self.column_groups())))
    }

    /// The group of each input, from 0 without gaps. Importance is measured for each group.
    pub fn column_groups(&self) -> Vec<usize> {
        let PlanConfig { column_groups, inputs, .. } = self.config();
        match column_groups.as_slice() {
            [] => (0..*inputs).collect(),
            groups => groups.to_vec(),
        }
    }

    /// What a loss in the scaled unit is to be multiplied by, to be in the unit of the first label,
    /// which has this scale: 1 without one, with several outputs, and for losses that are not
    /// squared.
    pub fn importance_unit(&self, label: Option<Axis>) -> f64 {
        let size = label.map_or(1.0, |label| label.raw(1.0) - label.raw(0.0));
        if self.importance_has_unit() { size * size } else { 1.0 }
    }

    /// Whether importance is an increase of the squared error of the one label, in its own unit.
    /// Losses of other kinds, and of several outputs together, have the scaled unit.
    pub fn importance_has_unit(&self) -> bool {
        self.objective().loss == Loss::Squared && self.outputs() == 1
    }
}

fn count(groups: &[usize]) -> usize {
    groups.iter().max().map_or(0, |most| most + 1)
}
