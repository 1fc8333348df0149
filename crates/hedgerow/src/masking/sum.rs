//! [`MaskedSum`]: masked uploads of a round, added up.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{MaskAnswer, MaskRefusal, MaskRequest, MaskRules, MaskedLayout, MaskedUpload};
use super::{PublicKey, RoundTag};
use crate::aggregation::{PartialSum, Participants};
use crate::message::{Broadcast, NodeId, Rejected};
use crate::state::{BadState, StateKind};

const KIND: StateKind = StateKind::new("masked-sum");

/// Masked uploads of a round, added up by a relay or by the server. It doesn't matter who adds
/// what.
#[derive(Debug, Clone)]
pub struct MaskedSum {
    rules: MaskRules,
    layout: MaskedLayout,
    tag: RoundTag,
    /// Numbers of an upload, for each output.
    lens: Vec<usize>,
    /// By cohort; only of those that a node is heard of.
    cohorts: BTreeMap<usize, CohortSum>,
    /// Whether the masks of what came so far were asked for, so that nothing can be added.
    is_asked: bool,
}

#[derive(Debug, Clone)]
struct CohortSum {
    nodes: Participants,
    words: Vec<u64>,
}

impl CohortSum {
    fn new(words: usize) -> Self {
        Self { nodes: Participants::default(), words: vec![0; words] }
    }
}

/// What mask holders make of a sum.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenedSum {
    /// The uploads that are in it, for each output, to be merged by the server.
    pub parts: Vec<PartialSum>,
    /// As in [`crate::message::Errors`], of all nodes.
    pub samples: u64,
    /// As in [`crate::message::Errors`], of all nodes.
    pub squared_error: f64,
}

/// Why masks can't be removed from a sum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadMasks {
    /// The masks of this sum weren't asked for.
    #[error("nobody was asked for the masks of this sum")]
    NotAsked,
    /// A mask holder whose answer isn't there, or is one for another round.
    #[error("the masks of mask holder {holder} are missing")]
    Missing {
        /// The key of the mask holder.
        holder: PublicKey,
    },
    /// The result can't be a sum of uploads: masks were wrong, or a node has masked with others.
    #[error("what is left without the masks isn't a sum of uploads")]
    Senseless,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    tag: RoundTag,
    lens: Vec<usize>,
    /// Nodes and packed words of each cohort.
    cohorts: BTreeMap<usize, (Participants, Vec<u8>)>,
    is_asked: bool,
}

impl MaskedSum {
    /// Nothing yet of the round that these broadcasts open, one for each output. `parts` is what
    /// [`crate::Server::parts`] says then.
    ///
    /// # Panics
    /// If broadcasts or parts aren't those of the plan.
    pub fn new(rules: MaskRules, broadcasts: &[&Broadcast], parts: &[PartialSum]) -> Self {
        let lens = parts.iter().map(|part| part.gathering().upload_len()).collect();
        match Self::empty(rules, RoundTag::new(broadcasts), lens) {
            Some(sum) => sum,
            None => panic!("parts of another plan"),
        }
    }

    fn empty(rules: MaskRules, tag: RoundTag, lens: Vec<usize>) -> Option<Self> {
        let layout = rules.layout(&lens)?;
        Some(Self { rules, layout, tag, lens, cohorts: BTreeMap::new(), is_asked: false })
    }

    /// The round, and what its broadcasts are.
    pub fn tag(&self) -> RoundTag {
        self.tag
    }

    /// Whether another is of the same round and uploads.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        (self.tag, &self.lens) == (other.tag, &other.lens)
    }

    /// Uploads in it.
    pub fn uploads(&self) -> usize {
        self.cohorts.values().map(|cohort| cohort.nodes.len()).sum()
    }

    /// Takes a node's upload, or refuses it and stays as it was.
    pub fn accept(&mut self, from: NodeId, upload: &MaskedUpload) -> Result<(), Rejected> {
        let MaskedUpload { tag, bytes } = upload;
        self.check(tag)?;
        if bytes.len() != self.layout.bytes() {
            return Err(Rejected::Garbled { what: "masked words of another upload" });
        }
        let cohort = self.rules.cohorts().cohort_of(from);
        let cohort = cohort.ok_or(Rejected::UnknownNode { node: from })?;
        let (layout, empty) = (&self.layout, || CohortSum::new(self.layout.words()));
        let CohortSum { nodes, words } = self.cohorts.entry(cohort).or_insert_with(empty);
        if !nodes.insert(from) {
            return Err(Rejected::Duplicate { node: from, round: tag.round });
        }
        layout.add(words, bytes);
        Ok(())
    }

    /// Adds another sum of the same round, or refuses it and stays as it was.
    pub fn merge(&mut self, other: &Self) -> Result<(), Rejected> {
        self.check(&other.tag)?;
        if other.lens != self.lens {
            return Err(Rejected::Garbled { what: "masked words of another upload" });
        }
        for (cohort, CohortSum { nodes, .. }) in &other.cohorts {
            let own = self.cohorts.get(cohort);
            if let Some(node) = own.and_then(|own| own.nodes.first_common(nodes)) {
                return Err(Rejected::Duplicate { node, round: self.tag.round });
            }
        }
        for (cohort, CohortSum { nodes, words }) in &other.cohorts {
            let empty = || CohortSum::new(words.len());
            let own = self.cohorts.entry(*cohort).or_insert_with(empty);
            own.nodes.merge(nodes);
            own.words.iter_mut().zip(words).for_each(|(own, word)| *own = own.wrapping_add(*word));
        }
        Ok(())
    }

    /// Refuses what answers another broadcast, or comes too late.
    fn check(&self, tag: &RoundTag) -> Result<(), Rejected> {
        let open = self.tag.round;
        match (tag.round == open, *tag == self.tag, self.is_asked) {
            (false, ..) => Err(Rejected::WrongRound { open, found: tag.round }),
            (_, false, _) => Err(Rejected::OtherBroadcast { round: open }),
            (.., true) => Err(Rejected::MasksAsked { round: open }),
            _ => Ok(()),
        }
    }

    /// The cohorts that can be summed.
    fn whole(&self) -> impl Iterator<Item = &CohortSum> {
        let cohorts = self.rules.cohorts();
        let whole = self.cohorts.iter();
        let whole = whole.filter(move |(at, cohort)| cohorts.is_whole(**at, cohort.nodes.len()));
        whole.map(|(_, cohort)| cohort)
    }

    /// Nodes of the cohorts that can be summed.
    pub fn summed(&self) -> usize {
        self.whole().map(|cohort| cohort.nodes.len()).sum()
    }

    /// What every mask holder has to be asked, unless too few nodes can be summed. From here on
    /// uploads are refused, because mask holders answer for one set of nodes. So
    /// [`MaskedSum::to_bytes`] must be stored before a mask holder is asked.
    pub fn request(&mut self) -> Result<MaskRequest, MaskRefusal> {
        let (least, found) = (self.rules.least(), self.summed());
        if found < least {
            return Err(MaskRefusal::TooFew { least, found });
        }
        self.is_asked = true;
        Ok(MaskRequest { tag: self.tag, lens: self.lens.clone(), nodes: self.nodes() })
    }

    fn nodes(&self) -> Participants {
        let mut nodes = Participants::default();
        self.whole().for_each(|cohort| nodes.merge(&cohort.nodes));
        nodes
    }

    /// Removes the masks that all mask holders have told. `parts` is what [`crate::Server::parts`]
    /// says in this round.
    ///
    /// # Panics
    /// If the parts are those of another round or plan.
    pub fn open(
        &self,
        answers: &[MaskAnswer],
        mut parts: Vec<PartialSum>,
    ) -> Result<OpenedSum, BadMasks> {
        if !self.is_asked {
            return Err(BadMasks::NotAsked);
        }
        let mut words = vec![0_u64; self.layout.words()];
        for cohort in self.whole() {
            let both = words.iter_mut().zip(&cohort.words);
            both.for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
        }
        for &holder in self.rules.holders() {
            let is_his = |answer: &&MaskAnswer| (answer.holder, answer.tag) == (holder, self.tag);
            let answer = answers.iter().find(is_his).ok_or(BadMasks::Missing { holder })?;
            if answer.bytes.len() != self.layout.bytes() {
                return Err(BadMasks::Senseless);
            }
            self.layout.subtract(&mut words, &answer.bytes);
        }
        let sums = self.layout.read_sums(&words).ok_or(BadMasks::Senseless)?;
        let nodes = self.nodes();
        let [(ones, _), (samples, _), (squares, fraction), ref rest @ ..] = sums[..] else {
            return Err(BadMasks::Senseless);
        };
        let of_heads: usize = self.lens.iter().map(|len| len + self.rules.kernels()).sum();
        assert_eq!((parts.len(), rest.len()), (self.lens.len(), of_heads), "another plan");
        let mut is_sum = ones == nodes.len() as i64 && samples >= 0 && squares >= 0;
        let mut rest = rest;
        for (part, len) in parts.iter_mut().zip(&self.lens) {
            let (head, others) = rest.split_at(len + self.rules.kernels());
            let (numbers, votes) = head.split_at(*len);
            rest = others;
            let cast = votes.iter().map(|(votes, _)| *votes);
            is_sum &= cast.clone().all(|votes| votes >= 0);
            is_sum &= votes.is_empty() || cast.clone().sum::<i64>() == ones;
            part.set(&nodes, numbers.iter().copied(), cast.map(|votes| votes as u64));
        }
        let squared_error = squares as f64 / (1_u64 << fraction) as f64;
        is_sum
            .then_some(OpenedSum { parts, samples: samples as u64, squared_error })
            .ok_or(BadMasks::Senseless)
    }

    /// What it is on its way to the server or to a relay above, and in a store.
    pub fn to_bytes(&self) -> Vec<u8> {
        let packed = |(at, sum): (&usize, &CohortSum)| {
            (*at, (sum.nodes.clone(), self.layout.pack(&sum.words)))
        };
        let cohorts = self.cohorts.iter().map(packed).collect();
        let (tag, lens) = (self.tag, self.lens.clone());
        KIND.save(&Saved { tag, lens, cohorts, is_asked: self.is_asked })
    }

    /// Reads a sum of the same plan, or refuses it.
    pub fn read(rules: MaskRules, bytes: &[u8]) -> Result<Self, BadState> {
        let Saved { tag, lens, cohorts, is_asked } = KIND.restore(bytes, |_| true)?;
        let bad = || BadState::new("sizes or values are out of bounds");
        let mut sum = Self::empty(rules, tag, lens).ok_or_else(bad)?;
        for (at, (nodes, bytes)) in cohorts {
            let is_member = |node| sum.rules.cohorts().cohort_of(node) == Some(at);
            let is_sound = nodes.is_sound() && bytes.len() == sum.layout.bytes();
            if !is_sound || nodes.is_empty() || !nodes.iter().all(is_member) {
                return Err(bad());
            }
            let mut words = vec![0; sum.layout.words()];
            sum.layout.add(&mut words, &bytes);
            sum.cohorts.insert(at, CohortSum { nodes, words });
        }
        sum.is_asked = is_asked;
        Ok(sum)
    }
}
