//! [`Screening`]: holds the uploads of the open round until they can be compared, and leaves out
//! nodes whose uploads differ from those of the others for long.
//!
//! A single difference can be chance, so it only counts as evidence. It adds up, and decays while a
//! node's uploads look like the others'. Uploads that differ by more than chance can explain are
//! left out at once.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::aggregation::PartialSum;
use crate::aggregation::comparison::{Difference, Levels, compare};
use crate::importance::ImportanceSum;
use crate::limits::MAX_SUM;
use crate::message::{NodeId, Rejected, Upload};
use crate::method::ServerMethod;
use crate::state::{BadState, StateKind};

const KIND: StateKind = StateKind::new("server-screening");

/// Evidence that a round adds at most, and what a round without any takes away.
const MOST_ADDED: f64 = 3.0;
const DECAY: f64 = 0.5;

/// A node is left out from this evidence on, and counts again below that. There is never more than
/// the last.
const EXCLUDED: f64 = 8.0;
const INCLUDED: f64 = 4.0;
const MOST_EVIDENCE: f64 = 16.0;

/// A node whose uploads look wrong.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Suspect {
    /// From 0 to 16: one for each round with a suspicious upload, up to three if it is very
    /// suspicious; half less for each round without.
    pub evidence: f64,
    /// Whether its latest upload was left out.
    pub is_left_out: bool,
    /// Whether there is so much evidence that its uploads are left out until it is below 4.
    pub is_excluded: bool,
    /// What looked wrong last.
    pub difference: Difference,
}

impl Suspect {
    /// Whether there is more evidence than a round of chance.
    pub fn is_suspicious(&self) -> bool {
        self.is_excluded || self.evidence >= INCLUDED
    }
}

/// The uploads of a node, one for each output, and what it tells of the importance of columns.
struct Held {
    node: NodeId,
    uploads: Vec<Upload>,
    importance: Vec<f32>,
}

/// What survives a restart.
#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    suspects: BTreeMap<NodeId, Suspect>,
    /// One for each output.
    levels: Vec<Levels>,
}

/// Uploads of the open round, and who is suspicious.
pub(super) struct Screening {
    held: Vec<Held>,
    /// To check uploads with.
    parts: Vec<PartialSum>,
    /// Whether a node is left out from this round on.
    has_left: bool,
    state: State,
}

impl Screening {
    pub(super) fn new(heads: &[Box<dyn ServerMethod>]) -> Self {
        let levels = heads.iter().map(|_| Levels::new()).collect();
        Self {
            held: Vec::new(),
            has_left: false,
            parts: heads.iter().map(|head| head.part()).collect(),
            state: State { suspects: BTreeMap::new(), levels },
        }
    }

    /// Nodes that have uploaded.
    pub(super) fn uploads(&self) -> usize {
        self.held.len()
    }

    pub(super) fn suspects(&self) -> impl Iterator<Item = (NodeId, &Suspect)> {
        self.state.suspects.iter().map(|(node, suspect)| (*node, suspect))
    }

    /// Keeps the uploads of a node, or refuses them. Numbers that no node can have are evidence.
    pub(super) fn hold(
        &mut self,
        heads: &[Box<dyn ServerMethod>],
        node: NodeId,
        uploads: &[Upload],
        importance: &[f32],
    ) -> Result<(), Rejected> {
        let Err(at) = self.held.binary_search_by_key(&node, |held| held.node) else {
            return Err(Rejected::Duplicate { node, round: uploads[0].round });
        };
        for ((head, part), upload) in heads.iter().zip(&mut self.parts).zip(uploads) {
            head.renew(part);
            let accepted = head.accept_into(part, node, upload);
            if matches!(accepted, Err(Rejected::Negative { .. } | Rejected::OutOfBounds { .. })) {
                self.has_left |= self.state.suspect(node, Difference::IMPOSSIBLE);
            }
            accepted?;
        }
        let (uploads, importance) = (uploads.to_vec(), importance.to_vec());
        self.held.insert(at, Held { node, uploads, importance });
        Ok(())
    }

    /// Passes the uploads that count to the methods' server halves.
    pub(super) fn close(
        &mut self,
        heads: &mut [Box<dyn ServerMethod>],
        mut importance: Option<&mut ImportanceSum>,
    ) {
        let mut differences = vec![None; self.held.len()];
        for (output, (head, levels)) in heads.iter().zip(&mut self.state.levels).enumerate() {
            let uploads = self.held.iter_mut().map(|held| &mut held.uploads[output].numbers);
            let mut uploads: Vec<_> = uploads.collect();
            compare(&head.compared(), levels, &mut uploads, &mut differences);
        }
        for at in self.left_out(&differences).into_iter().rev() {
            self.held.remove(at);
        }
        if core::mem::take(&mut self.has_left) {
            heads.iter_mut().for_each(|head| head.node_left());
        }
        for Held { node, uploads, importance: told } in self.held.drain(..) {
            for (head, upload) in heads.iter_mut().zip(&uploads) {
                // It was checked when it came.
                let accepted = head.accept(node, upload);
                debug_assert_eq!(accepted, Ok(()));
            }
            importance.iter_mut().for_each(|sum| sum.add(&told));
        }
    }

    /// Weighs the evidence of a round. Positions of the uploads to leave out, in order.
    fn left_out(&mut self, differences: &[Option<Difference>]) -> Vec<usize> {
        let mut out: Vec<(usize, f64)> = Vec::new();
        for ((at, held), difference) in self.held.iter().enumerate().zip(differences) {
            let found = difference.filter(|found| found.strength >= 1.0);
            match found {
                Some(found) => self.has_left |= self.state.suspect(held.node, found),
                None => self.state.trust(held.node),
            }
            let Some(suspect) = self.state.suspects.get_mut(&held.node) else { continue };
            suspect.is_left_out = false;
            if suspect.is_excluded || found.is_some_and(|found| found.is_blatant) {
                let strength = found.map_or(0.0, |found| found.strength);
                out.push((at, MAX_SUM * suspect.evidence + strength));
            }
        }
        let suspects = &mut self.state.suspects;
        // At most half of the nodes: nobody knows which half is right.
        out.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        out.truncate(self.held.len() / 2);
        for (at, _) in &out {
            let suspect = suspects.get_mut(&self.held[*at].node);
            suspect.into_iter().for_each(|suspect| suspect.is_left_out = true);
        }
        let mut out: Vec<usize> = out.into_iter().map(|(at, _)| at).collect();
        out.sort_unstable();
        out
    }

    /// Labels have another unit: what is usual is to be learned anew, and uploads so far are in
    /// another scale.
    pub(super) fn rescaled(&mut self) {
        self.state.levels.iter_mut().for_each(Levels::clear);
        self.held.clear();
    }

    /// What is known of a node, which doesn't take part any more.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.state.suspects.remove(&node);
    }

    /// Bytes of its state and of the rest of the server's.
    pub(super) fn save_with(&self, server: Vec<u8>) -> Vec<u8> {
        KIND.save(&(server, &self.state))
    }

    /// Takes its state from where [`Screening::save_with`] put it, and returns the server's. A
    /// server that was saved without one suspects nobody.
    pub(super) fn restore_with(&mut self, saved: &[u8]) -> Result<Vec<u8>, BadState> {
        if !KIND.is_kind_of(saved) {
            return Ok(saved.to_vec());
        }
        let outputs = self.state.levels.len();
        let (server, state) =
            KIND.restore(saved, |(_, state): &(Vec<u8>, State)| state.is_sound(outputs))?;
        self.state = state;
        Ok(server)
    }
}

impl State {
    /// Adds evidence against a node. Whether it is left out from now on.
    fn suspect(&mut self, node: NodeId, difference: Difference) -> bool {
        let suspect = self.suspects.entry(node).or_insert(Suspect {
            evidence: 0.0,
            is_left_out: false,
            difference,
            is_excluded: false,
        });
        let added = if difference.is_blatant { MOST_ADDED } else { difference.strength };
        suspect.evidence = (suspect.evidence + added.min(MOST_ADDED)).min(MOST_EVIDENCE);
        suspect.difference = difference;
        let was_excluded = suspect.is_excluded;
        suspect.is_excluded |= suspect.evidence >= EXCLUDED;
        suspect.is_excluded && !was_excluded
    }

    /// A node's upload looks like the others'.
    fn trust(&mut self, node: NodeId) {
        let Some(suspect) = self.suspects.get_mut(&node) else { return };
        suspect.evidence -= DECAY;
        suspect.is_excluded &= suspect.evidence >= INCLUDED;
        if suspect.evidence <= 0.0 {
            self.suspects.remove(&node);
        }
    }

    /// Whether it could have been reached.
    fn is_sound(&self, outputs: usize) -> bool {
        let is_sum = |number: f64| (0.0..=MAX_SUM).contains(&number);
        self.levels.len() == outputs
            && self.levels.iter().flatten().all(|(_, level)| is_sum(*level))
            && self.suspects.values().all(|Suspect { evidence, difference, .. }| {
                (0.0..=MOST_EVIDENCE).contains(evidence)
                    && is_sum(difference.multiple)
                    && is_sum(difference.strength)
            })
    }
}
