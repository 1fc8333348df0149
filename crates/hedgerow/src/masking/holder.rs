//! [`MaskHolder`]: who knows the masks, and no upload.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::keys::MaskKey;
use super::{BadKey, MaskRules, PublicKey, RoundTag, SecretKey, StreamOffer};
use crate::aggregation::Participants;
use crate::message::NodeId;
use crate::state::{BadState, StateKind};

const KIND: StateKind = StateKind::new("mask-holder");

/// Which masks the server asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MaskRequest {
    /// The round that the uploads answer.
    pub tag: RoundTag,
    /// Numbers of an upload, for each output.
    pub lens: Vec<usize>,
    /// The nodes whose uploads are in the sum.
    pub nodes: Participants,
}

/// The sum of the masks of some nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskAnswer {
    /// The mask holder.
    pub holder: PublicKey,
    /// The round that the masks belong to.
    pub tag: RoundTag,
    /// Words as [`super::MaskedLayout`] has them.
    pub bytes: Vec<u8>,
}

/// Why a mask holder refuses to tell a sum of masks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MaskRefusal {
    /// The sum could give samples away.
    #[error("a sum needs at least {least} nodes, but this one has {found}")]
    TooFew {
        /// Nodes that a sum has, at least.
        least: usize,
        /// Nodes in the request.
        found: usize,
    },
    /// The masks of another set of nodes were told: their difference would be those of single
    /// nodes.
    #[error("the masks of another set of nodes were already told in round {round}")]
    OtherSet {
        /// The round.
        round: u64,
    },
    /// Masks of a later round were told.
    #[error("masks of round {found} are asked for, but those of round {answered} were told")]
    OldRound {
        /// The latest round whose masks were told.
        answered: u64,
        /// The round of the request.
        found: u64,
    },
    /// A node that this mask holder doesn't know.
    #[error("node {node} has no stream of masks here")]
    UnknownNode {
        /// The node.
        node: NodeId,
    },
    /// Some nodes of a cohort and not the others.
    #[error("cohort {cohort} isn't whole")]
    PartOfCohort {
        /// The cohort, from 0.
        cohort: usize,
    },
    /// What no server of the plan asks for.
    #[error("the request isn't one of this plan")]
    Malformed,
}

/// Knows the masks of nodes and no upload. It tells the server sums of masks: for one set of nodes
/// in each round, in the order of rounds, and never for fewer than the plan's least.
///
/// It is for one run. A server that is set back to an earlier round begins another run, in which
/// all nodes open new streams.
///
/// ```
/// use hedgerow::masking::{MaskHolder, MaskedSums, NodeMasks, Privacy, SecretKey};
/// use hedgerow::{Plan, PlanConfig};
///
/// // In a real federation these bytes are random, and only the mask holder has the first.
/// let [holder, node] = [[1; 32], [2; 32]].map(SecretKey::from_bytes);
/// let privacy = Privacy::Masked(MaskedSums::new(vec![holder.public()]));
/// let plan = Plan::new(PlanConfig::default().privacy(privacy))?;
/// let rules = plan.mask_rules().ok_or("uploads aren't masked")?;
///
/// let mut holder = MaskHolder::new(rules.clone(), "run 1", holder);
/// let masks = NodeMasks::new(rules.clone(), "run 1", 0, node, [3; 16])?;
/// holder.enrol(*masks.offer())?; // after it has checked that the offer comes from the node
/// assert_eq!(holder.nodes(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MaskHolder {
    rules: MaskRules,
    run: String,
    secret: SecretKey,
    roll: BTreeMap<NodeId, (StreamOffer, MaskKey)>,
    answered: Option<(MaskRequest, MaskAnswer)>,
}

impl MaskHolder {
    /// A mask holder of a plan in a run, which knows no nodes yet.
    pub fn new(rules: MaskRules, run: &str, secret: SecretKey) -> Self {
        Self { rules, run: run.into(), secret, roll: BTreeMap::new(), answered: None }
    }

    /// Nodes that it knows.
    pub fn nodes(&self) -> usize {
        self.roll.len()
    }

    /// Takes a node's stream in place of its last one. The caller has checked that the offer comes
    /// from that node, and that the node is one of the federation: a server that could enrol nodes
    /// of its own would read the others.
    pub fn enrol(&mut self, offer: StreamOffer) -> Result<(), BadKey> {
        let (secret, own) = (&self.secret, self.secret.public());
        let key = MaskKey::agree(secret, offer.key, &self.run, &offer, own)?;
        self.roll.insert(offer.node, (offer, key));
        Ok(())
    }

    /// Forgets a node, and says whether it was known.
    pub fn remove(&mut self, node: NodeId) -> bool {
        self.roll.remove(&node).is_some()
    }

    /// Tells the sum of the masks of some nodes in a round, or refuses to. The same request has the
    /// same answer. [`MaskHolder::save`] must be stored before the answer is sent.
    pub fn answer(&mut self, request: &MaskRequest) -> Result<MaskAnswer, MaskRefusal> {
        if let Some((answered, answer)) = &self.answered {
            let (last, found) = (answered.tag.round, request.tag.round);
            if answered == request {
                return Ok(answer.clone());
            }
            if last == found {
                return Err(MaskRefusal::OtherSet { round: found });
            }
            if last > found {
                return Err(MaskRefusal::OldRound { answered: last, found });
            }
        }
        let layout = self.rules.layout(&request.lens).filter(|_| request.nodes.is_sound());
        let layout = layout.ok_or(MaskRefusal::Malformed)?;
        self.check(&request.nodes)?;
        let mut words = alloc::vec![0; layout.words()];
        for node in request.nodes.iter() {
            let (_, key) = self.roll.get(&node).ok_or(MaskRefusal::UnknownNode { node })?;
            key.add_mask(&request.tag, &layout, &mut words);
        }
        let (holder, bytes) = (self.secret.public(), layout.pack(&words));
        let answer = MaskAnswer { holder, tag: request.tag, bytes };
        self.answered = Some((request.clone(), answer.clone()));
        Ok(answer)
    }

    /// Refuses sets that are too small, and parts of cohorts.
    fn check(&self, nodes: &Participants) -> Result<(), MaskRefusal> {
        let (least, found) = (self.rules.least(), nodes.len());
        if found < least {
            return Err(MaskRefusal::TooFew { least, found });
        }
        let cohorts = self.rules.cohorts();
        let mut counts = alloc::vec![0; cohorts.len()];
        for node in nodes.iter() {
            let cohort = cohorts.cohort_of(node).ok_or(MaskRefusal::UnknownNode { node })?;
            counts[cohort] += 1;
        }
        let is_part =
            |(cohort, count): &(usize, &usize)| **count > 0 && !cohorts.is_whole(*cohort, **count);
        match counts.iter().enumerate().find(is_part) {
            Some((cohort, _)) => Err(MaskRefusal::PartOfCohort { cohort }),
            None => Ok(()),
        }
    }

    /// Everything that has to survive a restart, without the secret key.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let roll: Vec<_> = self.roll.values().map(|(offer, _)| offer).collect();
        KIND.save(&(&self.run, roll, &self.answered))
    }

    /// Continues from a saved state of the same plan and secret key.
    pub fn restore(rules: MaskRules, secret: SecretKey, saved: &[u8]) -> Result<Self, BadState> {
        let (run, roll, answered): (String, Vec<StreamOffer>, _) = KIND.restore(saved, |_| true)?;
        let mut holder = Self { answered, ..Self::new(rules, &run, secret) };
        roll.into_iter().try_for_each(|offer| holder.enrol(offer)).map_err(BadState::new)?;
        Ok(holder)
    }
}
