//! [`ServerScaling`]: the server's part of the scaling.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::scale::{Scale, ScaleKind};
use super::summary::Summary;
use crate::limits::MAX_REPORTING;
use crate::message::{NodeId, Rejected, Report};
use crate::state::{BadState, StateKind, is_count};

const KIND: StateKind = StateKind::new("scaling-server");

/// Labels that must have been seen before the first agreement.
const FIRST_LABELS: f64 = 16.0;

/// Merges the reports of nodes into a common scale.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerScaling {
    kind: ScaleKind,
    columns: usize,
    labels: usize,
    raw_labels: bool,
    /// Nodes that must have seen a label before the first agreement.
    first_nodes: usize,
    /// Whether the agreement is to begin anew.
    begins_anew: bool,
    state: State,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    /// That of the latest scale; 0 before the first.
    version: u64,
    scale: Option<Scale>,
    /// The latest report of every node. Merged in the order of nodes, so the order of arrival is
    /// irrelevant.
    known: BTreeMap<NodeId, Summary>,
    /// Whether a report came or went since the last merge.
    is_news: bool,
}

impl ServerScaling {
    /// For samples of so many inputs.
    pub fn new(kind: ScaleKind, inputs: usize) -> Self {
        let state = State { version: 0, scale: None, known: BTreeMap::new(), is_news: false };
        Self {
            kind,
            columns: inputs + 1,
            labels: 1,
            raw_labels: false,
            first_nodes: 1,
            begins_anew: false,
            state,
        }
    }

    /// The same for samples of several labels.
    pub fn with_labels(self, labels: usize) -> Self {
        Self { columns: self.columns - self.labels + labels, labels, ..self }
    }

    /// Leaves labels as they are: classes must not be scaled.
    pub fn with_raw_labels(self) -> Self {
        Self { raw_labels: true, ..self }
    }

    /// Waits with the first scale until so many nodes have seen a label: one node alone may have
    /// the wrong unit. One is enough unless this is called.
    pub fn with_first_nodes(self, nodes: usize) -> Self {
        Self { first_nodes: nodes, ..self }
    }

    /// Takes a node's report in place of its last one, or refuses it and stays as it was.
    pub fn accept(&mut self, from: NodeId, report: &Report) -> Result<(), Rejected> {
        let summary = Summary::read(self.columns, report)?;
        let known = &mut self.state.known;
        if known.len() >= MAX_REPORTING && !known.contains_key(&from) {
            return Err(Rejected::TooManyNodes { node: from, bound: MAX_REPORTING });
        }
        if known.get(&from) != Some(&summary) {
            known.insert(from, summary);
            self.state.is_news = true;
        }
        Ok(())
    }

    /// Whether this is what the node has reported last, so that it says nothing new: nodes repeat
    /// their report on every connection.
    pub fn has_report(&self, from: NodeId, report: &Report) -> bool {
        let known = self.state.known.get(&from);
        known.is_some_and(|known| Summary::read(self.columns, report).as_ref() == Ok(known))
    }

    /// Forgets what a node has reported, and says whether there was something: the next scale is
    /// made without it. If the node reports again, it counts again.
    pub fn forget_node(&mut self, node: NodeId) -> bool {
        let is_known = self.state.known.remove(&node).is_some();
        self.state.is_news |= is_known;
        is_known
    }

    /// Begins the agreement anew: as soon as the known reports are enough for a first scale, the
    /// next one is made from them alone, however well the present one still fits. Until then the
    /// present one stays. Not part of the saved state.
    pub fn reset(&mut self) {
        self.begins_anew = true;
        self.state.is_news = true;
    }

    /// Merges the reports if one is new, and returns the scale if that changed it. The server's
    /// models have to be transported from the old scale to this one before anyone hears of either.
    pub fn close_round(&mut self) -> Option<&Scale> {
        if !core::mem::take(&mut self.state.is_news) {
            return None;
        }
        let before = self.state.scale.as_ref();
        let is_first = before.is_none() || self.begins_anew;
        if is_first && !self.has_enough() {
            return None;
        }
        self.begins_anew = false;
        let known: Vec<&Summary> = self.state.known.values().collect();
        let merged = Summary::merged(self.columns, &known);
        let mut scale = Scale::fitting(self.kind, &merged, before, (self.labels, !is_first));
        if self.raw_labels {
            scale.set_raw(self.labels);
        }
        if before == Some(&scale) {
            return None;
        }
        self.state.version += 1;
        Some(self.state.scale.insert(scale))
    }

    /// Whether the reports are enough for a first scale.
    fn has_enough(&self) -> bool {
        (self.columns - self.labels..self.columns).all(|label| {
            let counts = self.state.known.values().map(|summary| summary.count(label));
            let nodes = counts.clone().filter(|count| *count > 0.0).count();
            nodes >= self.first_nodes && counts.sum::<f64>() >= FIRST_LABELS
        })
    }

    /// Nodes that have seen a label, and how many must have before there is a scale.
    pub fn labelled_nodes(&self) -> (usize, usize) {
        let has_label = |summary: &Summary| summary.count(self.columns - 1) > 0.0;
        let nodes = self.state.known.values().filter(|summary| has_label(summary)).count();
        (nodes, self.first_nodes)
    }

    /// The latest scale, for nodes that join or return. None until the first agreement.
    pub fn scale(&self) -> Option<&Scale> {
        self.state.scale.as_ref()
    }

    /// Its version; 0 until the first agreement.
    pub fn version(&self) -> u64 {
        self.state.version
    }

    /// A node's latest report.
    pub fn reported(&self, node: NodeId) -> Option<&Summary> {
        self.state.known.get(&node)
    }

    /// Everything that has to survive a restart.
    pub fn save(&self) -> Vec<u8> {
        KIND.save(&self.state)
    }

    /// Continues from a saved state. A refused state changes nothing.
    pub fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let columns = self.columns;
        let is_fitting =
            |scale: &Scale| scale.is_made_from(self.kind) && scale.columns() == columns;
        self.state = KIND.restore(saved, |state: &State| {
            is_count(state.version)
                && state.scale.is_some() == (state.version > 0)
                && state.scale.as_ref().is_none_or(is_fitting)
                && state.known.len() <= MAX_REPORTING
                && state.known.values().all(|summary| summary.is_sound(columns))
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report of samples (v, 10·v).
    fn report(values: impl IntoIterator<Item = f64>) -> Report {
        let mut summary = Summary::new(2);
        for value in values {
            summary.add(0, value);
            summary.add(1, 10.0 * value);
        }
        let mut report = Report::default();
        summary.write(&mut report);
        report
    }

    fn even(count: u32) -> impl Iterator<Item = f64> {
        (0..count).map(move |at| f64::from(at) / f64::from(count - 1))
    }

    #[test]
    fn a_scale_is_agreed_on_once_and_changes_with_the_data_only() {
        let mut server = ServerScaling::new(ScaleKind::Range, 1);
        assert_eq!(server.close_round(), None);
        server.accept(3, &report(even(10))).unwrap();
        assert_eq!(
            (server.close_round().cloned(), server.version()),
            (None, 0),
            "ten labels are too few"
        );
        server.accept(1, &report(even(6))).unwrap();
        let first = server.close_round().cloned();
        assert_eq!(first, Scale::from_ranges(&[(0.0, 1.0), (0.0, 10.0)]).ok());
        assert_eq!((server.close_round().cloned(), server.version()), (None, 1));
        // A report that changes no scale.
        server.accept(3, &report(even(20))).unwrap();
        assert_eq!((server.close_round().cloned(), server.version()), (None, 1));
        server.accept(3, &report(even(40).map(|value| 3.0 * value))).unwrap();
        let second = server.close_round().cloned();
        assert_eq!(second, Scale::from_ranges(&[(0.0, 3.0), (0.0, 30.0)]).ok());
        assert_eq!((server.scale(), server.version()), (second.as_ref(), 2));
    }

    #[test]
    fn the_order_of_reports_is_irrelevant() {
        let reports: Vec<_> =
            (0..9).map(|node| (node, report(even(7).map(|v| v * f64::from(node))))).collect();
        let after = |order: &mut dyn Iterator<Item = usize>| {
            let mut server = ServerScaling::new(ScaleKind::Spread, 1);
            order.for_each(|at| server.accept(reports[at].0, &reports[at].1).unwrap());
            server.close_round();
            server.save()
        };
        assert_eq!(after(&mut (0..9)), after(&mut (0..9).rev()));
        assert_eq!(after(&mut (0..9)), after(&mut (0..9).map(|at| at * 5 % 9)));
    }

    #[test]
    fn a_node_s_latest_report_counts_once() {
        let mut server = ServerScaling::new(ScaleKind::Spread, 1);
        (0..5).for_each(|_| server.accept(1, &report(even(15))).unwrap());
        assert_eq!(server.close_round(), None, "fifteen labels, however often they are reported");
    }

    #[test]
    fn refused_reports_change_nothing() {
        let mut server = ServerScaling::new(ScaleKind::Spread, 1);
        server.accept(1, &report(even(30))).unwrap();
        let before = server.clone();
        let mut lying = report(even(30));
        lying.numbers[7] = -1.0;
        assert_eq!(server.accept(1, &lying), Err(Rejected::NotASummary { column: 1 }));
        assert!(server.accept(2, &Report::default()).is_err());
        assert_eq!(server, before);
    }

    #[test]
    fn raw_labels_stay_raw_through_every_change() {
        let mut server = ServerScaling::new(ScaleKind::Spread, 1).with_raw_labels();
        for stretch in [1.0, 5.0] {
            server.accept(1, &report(even(30).map(|value| stretch * value))).unwrap();
            assert_eq!(server.close_round().unwrap().scale_label(0.7), 0.7);
        }
        assert_eq!(server.version(), 2);
    }

    #[test]
    fn states_that_can_t_be_are_refused() {
        let mut sound = ServerScaling::new(ScaleKind::Spread, 1);
        sound.accept(1, &report(even(30))).unwrap();
        sound.close_round();
        let refuses = |change: &dyn Fn(&mut State)| {
            let mut other = sound.clone();
            change(&mut other.state);
            let refused = sound.clone().restore(&other.save()).is_err();
            assert!(sound.clone().restore(&sound.save()).is_ok());
            refused
        };
        assert!(!refuses(&|state| state.version = 7));
        assert!(refuses(&|state| state.version = 0));
        assert!(refuses(&|state| state.version = u64::MAX));
        assert!(refuses(&|state| state.scale = None));
        assert!(refuses(&|state| state.scale = Some(Scale::identity(2))));
        assert!(refuses(&|state| drop(state.known.insert(2, Summary::new(3)))));
        let mut lost = Summary::new(2);
        lost.merge(&Summary::read(2, &report([f64::NAN, 1.0])).unwrap());
        assert!(!refuses(&|state| drop(state.known.insert(2, lost.clone()))));
        assert!(refuses(&|state| drop(state.known.insert(2, lost.clone().with_count(f64::NAN)))));
    }

    #[test]
    fn made_up_nodes_can_t_ask_for_memory() {
        let mut server = ServerScaling::new(ScaleKind::Spread, 0);
        let report = Report { numbers: vec![0.0; 5] };
        (0..MAX_REPORTING as u32).for_each(|node| server.accept(node, &report).unwrap());
        let refused = Rejected::TooManyNodes { node: u32::MAX, bound: MAX_REPORTING };
        assert_eq!(server.accept(u32::MAX, &report), Err(refused));
        assert_eq!(server.accept(7, &report), Ok(()));
    }
}
