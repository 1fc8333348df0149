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
use crate::aggregation::comparison::{Difference, Levels, compare, rescale};
use crate::importance::ImportanceSum;
use crate::limits::MAX_SUM;
use crate::message::{NodeId, Rejected, Upload};
use crate::method::ServerMethod;
use crate::scaling::Rescaling;
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

/// Each time that a node is excluded again, evidence decays half as fast, down to this power of a
/// half. So many rounds without evidence undo one time.
const MOST_REPEATED: u32 = 6;
const PROBATION: u32 = 200;

/// A node whose uploads look wrong, or did.
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
    /// How often it was excluded.
    exclusions: u32,
    /// Rounds without evidence, in a row.
    clean: u32,
}

impl Suspect {
    /// Whether there is more evidence than a round of chance.
    pub fn is_suspicious(&self) -> bool {
        self.is_excluded || self.evidence >= INCLUDED
    }

    fn add(&mut self, difference: Difference) {
        let added = if difference.is_blatant { MOST_ADDED } else { difference.strength };
        self.evidence = (self.evidence + added.min(MOST_ADDED)).min(MOST_EVIDENCE);
        (self.difference, self.clean) = (difference, 0);
        if self.evidence >= EXCLUDED && !self.is_excluded {
            self.is_excluded = true;
            self.exclusions = self.exclusions.saturating_add(1);
        }
    }

    /// Its upload looks like the others'.
    fn decay(&mut self) {
        let repeated = self.exclusions.saturating_sub(1).min(MOST_REPEATED);
        self.evidence = (self.evidence - DECAY / f64::from(1 << repeated)).max(0.0);
        self.is_excluded &= self.evidence >= INCLUDED;
        self.clean = self.clean.saturating_add(1);
        if self.clean >= PROBATION {
            (self.exclusions, self.clean) = (self.exclusions.saturating_sub(1), 0);
        }
    }

    /// Whether there is nothing to remember of it.
    fn is_over(&self) -> bool {
        self.evidence <= 0.0 && self.exclusions == 0
    }
}

/// The uploads of a node, one for each output, and what it tells of the importance of columns.
struct Held {
    uploads: Vec<Upload>,
    importance: Vec<f32>,
}

/// Saved state.
#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    suspects: BTreeMap<NodeId, Suspect>,
    /// One for each output.
    levels: Vec<Levels>,
}

/// Uploads of the open round, and who is suspicious.
pub(super) struct Screening {
    held: BTreeMap<NodeId, Held>,
    /// To check uploads with.
    parts: Vec<PartialSum>,
    state: State,
}

impl Screening {
    pub(super) fn new(heads: &[Box<dyn ServerMethod>]) -> Self {
        let levels = heads.iter().map(|_| Levels::new()).collect();
        Self {
            held: BTreeMap::new(),
            parts: heads.iter().map(|head| head.part()).collect(),
            state: State { suspects: BTreeMap::new(), levels },
        }
    }

    /// How many nodes have uploaded.
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
        for ((head, part), upload) in heads.iter().zip(&mut self.parts).zip(uploads) {
            head.renew(part);
            let accepted = head.accept_into(part, node, upload);
            if matches!(accepted, Err(Rejected::Negative { .. } | Rejected::OutOfBounds { .. })) {
                self.state.suspect(node, Difference::IMPOSSIBLE);
            }
            accepted?;
        }
        if self.held.contains_key(&node) {
            return Err(Rejected::Duplicate { node, round: uploads[0].round });
        }
        let (uploads, importance) = (uploads.to_vec(), importance.to_vec());
        self.held.insert(node, Held { uploads, importance });
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
            let uploads = self.held.values_mut().map(|held| &mut held.uploads[output].numbers);
            let mut uploads: Vec<_> = uploads.collect();
            compare(&head.compared(), levels, &mut uploads, &mut differences);
        }
        if self.leave_out(&differences) {
            heads.iter_mut().for_each(|head| head.members_changed());
        }
        while let Some((node, Held { uploads, importance: told })) = self.held.pop_first() {
            for (head, upload) in heads.iter_mut().zip(&uploads) {
                // It was checked when it came.
                let accepted = head.accept(node, upload);
                debug_assert_eq!(accepted, Ok(()));
            }
            importance.iter_mut().for_each(|sum| sum.add(&told));
        }
    }

    /// Weighs the evidence of a round, and drops the uploads that don't count. Whether other nodes
    /// count than before.
    fn leave_out(&mut self, differences: &[Option<Difference>]) -> bool {
        let mut out: Vec<(NodeId, f64)> = Vec::new();
        for (&node, difference) in self.held.keys().zip(differences) {
            match difference {
                Some(difference) if difference.strength >= 1.0 => {
                    self.state.suspect(node, *difference);
                }
                Some(_) => self.state.trust(node),
                // Nothing could be compared.
                None => {}
            }
            let Some(suspect) = self.state.suspects.get(&node) else { continue };
            let strength = difference.map_or(0.0, |difference| difference.strength);
            if suspect.is_excluded || difference.is_some_and(|difference| difference.is_blatant) {
                out.push((node, MAX_SUM * suspect.evidence + strength));
            }
        }
        // At most half of the nodes: a majority can't be told from a minority of the same size.
        out.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        out.truncate(self.held.len() / 2);
        let mut has_changed = false;
        for (node, suspect) in &mut self.state.suspects {
            if self.held.contains_key(node) {
                let is_left_out = out.iter().any(|(out, _)| out == node);
                has_changed |= suspect.is_left_out != is_left_out;
                suspect.is_left_out = is_left_out;
            }
        }
        for (node, _) in out {
            self.held.remove(&node);
        }
        self.state.suspects.retain(|_, suspect| suspect.is_left_out || !suspect.is_over());
        has_changed
    }

    /// Models are in another scale, and uploads so far are not.
    pub(super) fn rescaled(&mut self, rescalings: &[Option<Rescaling>]) {
        for (levels, rescaling) in self.state.levels.iter_mut().zip(rescalings) {
            let gain = rescaling.as_ref().map_or(1.0, Rescaling::gain);
            rescale(levels, gain * gain);
        }
        self.held.clear();
    }

    /// Forgets what is known of a node, which doesn't take part any more.
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
    /// Adds evidence against a node.
    fn suspect(&mut self, node: NodeId, difference: Difference) {
        let unknown = Suspect {
            evidence: 0.0,
            is_left_out: false,
            is_excluded: false,
            difference,
            exclusions: 0,
            clean: 0,
        };
        self.suspects.entry(node).or_insert(unknown).add(difference);
    }

    /// A node's upload looks like the others'.
    fn trust(&mut self, node: NodeId) {
        self.suspects.get_mut(&node).into_iter().for_each(Suspect::decay);
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
