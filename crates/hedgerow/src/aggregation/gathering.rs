//! [`Gathering`]: the uploads of the open round, checked, summed (or kept, where a sum says too
//! little) and counted. Every server half has one.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::aggregation::sum::ExactSum;
use crate::aggregation::{Aggregation, Columns, Participants};
use crate::limits::MAX_NUMBER;
use crate::message::{NodeId, Rejected, Upload, check_numbers};

/// Sums of what came in this round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gathering {
    /// One of everything, or one for each kernel that may be voted for.
    sums: Vec<ExactSum>,
    aggregation: Aggregation,
    /// The uploads themselves, where they aren't just added up: as many as sums, which are made
    /// from them in the end.
    kept: Vec<Columns>,
    /// Votes per kernel; empty if the method has none.
    votes: Vec<u64>,
    heard: Participants,
    /// Kernels that an upload may have numbers for, at most.
    #[serde(skip)]
    parts: usize,
}

impl Gathering {
    /// For uploads of `len` numbers, with votes among `kernels` (0: no votes).
    pub(crate) fn new(aggregation: Aggregation, len: usize, kernels: usize) -> Self {
        Self::with_sums(1, aggregation, len, kernels)
    }

    /// The same with a sum for the voters of each kernel, and none of everything.
    pub(crate) fn by_vote(aggregation: Aggregation, len: usize, kernels: usize) -> Self {
        Self::with_sums(kernels, aggregation, len, kernels)
    }

    fn with_sums(sums: usize, aggregation: Aggregation, len: usize, kernels: usize) -> Self {
        let kept = if aggregation.is_mean() { 0 } else { sums };
        Self {
            sums: vec![ExactSum::new(len); sums],
            aggregation,
            kept: vec![Columns::new(len); kept],
            votes: vec![0; kernels],
            heard: Participants::default(),
            parts: 1,
        }
    }

    /// The same for uploads that may have numbers for several kernels: those of the kernel that it
    /// votes for, those of others, then the indices of the others.
    pub(crate) fn with_parts(self, parts: usize) -> Self {
        Self { parts, ..self }
    }

    /// Kernels that an upload may have numbers for, at most.
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    /// Takes an upload for the open round, or refuses it and stays as it was.
    pub(crate) fn accept(
        &mut self,
        open: u64,
        from: NodeId,
        upload: &Upload,
    ) -> Result<(), Rejected> {
        if upload.round != open {
            let found = upload.round;
            return Err(Rejected::WrongRound { open, found });
        }
        let (len, found) = (self.sums[0].len(), upload.numbers.len());
        let parts = (found + 1) / (len + 1);
        if (found + 1) % (len + 1) != 0 || parts > self.parts || parts == 0 {
            return Err(Rejected::WrongLength { expected: self.parts * (len + 1) - 1, found });
        }
        check_numbers(&upload.numbers)?;
        let (numbers, others) = upload.numbers.split_at(parts * len);
        let vote = match (upload.vote, self.votes.len()) {
            (None, 0) => None,
            (Some(vote), kernels) if (vote as usize) < kernels => Some(vote as usize),
            (found, _) => return Err(self.wrong_kernel(found)),
        };
        for (at, other) in others.iter().enumerate() {
            let kernel = *other as usize;
            if *other % 1.0 != 0.0 || *other < 0.0 || kernel >= self.votes.len() {
                return Err(self.wrong_kernel(None));
            }
            if vote == Some(kernel) || others[..at].contains(other) {
                return Err(Rejected::RepeatedKernel { kernel: kernel as u32 });
            }
        }
        if !self.heard.insert(from) {
            return Err(Rejected::Duplicate { node: from, round: open });
        }
        let kernels = vote.into_iter().chain(others.iter().map(|other| *other as usize));
        kernels.for_each(|kernel| self.votes[kernel] += 1);
        let kernels =
            [vote.unwrap_or(0)].into_iter().chain(others.iter().map(|other| *other as usize));
        for (kernel, numbers) in kernels.zip(numbers.chunks_exact(len)) {
            let own = if self.sums.len() > 1 { kernel } else { 0 };
            match self.kept.get_mut(own) {
                None => self.sums[own].add(numbers),
                Some(kept) => kept.push(numbers),
            }
        }
        Ok(())
    }

    /// Takes over what another has gathered of the same round, or refuses it and stays as it was.
    pub(crate) fn merge(&mut self, other: &Self, round: u64) -> Result<(), Rejected> {
        if let Some(node) = self.heard.first_common(&other.heard) {
            return Err(Rejected::Duplicate { node, round });
        }
        self.heard.merge(&other.heard);
        self.votes.iter_mut().zip(&other.votes).for_each(|(votes, other)| *votes += other);
        for (sum, other) in self.sums.iter_mut().zip(&other.sums) {
            sum.merge(other);
        }
        self.kept.iter_mut().zip(&other.kept).for_each(|(kept, other)| kept.append(other));
        Ok(())
    }

    /// Whether the node has spoken.
    pub(crate) fn has_heard(&self, node: NodeId) -> bool {
        self.heard.contains(node)
    }

    /// Whether another has uploads of the same nodes.
    pub(crate) fn has_same_nodes(&self, other: &Self) -> bool {
        self.heard == other.heard
    }

    /// Whether another is for uploads of the same shape.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        self.sums.len() == other.sums.len()
            && self.sums[0].len() == other.sums[0].len()
            && self.votes.len() == other.votes.len()
            && self.aggregation == other.aggregation
    }

    /// Numbers of an upload for one kernel.
    pub(crate) fn upload_len(&self) -> usize {
        self.sums[0].len()
    }

    /// Bytes of the sums and votes.
    pub(crate) fn bytes(&self) -> usize {
        self.sums.iter().map(ExactSum::bytes).sum::<usize>() + size_of_val(&self.votes[..])
    }

    /// No more uploads come in this round: what there is to know of them is in the sums from here
    /// on.
    pub(crate) fn conclude(&mut self) {
        for (sum, kept) in self.sums.iter_mut().zip(&mut self.kept) {
            sum.set(kept.totals(self.aggregation));
        }
    }

    /// What is known of uploads that came as one sum, in place of what came so far: for each number
    /// a whole number and the power of two that it is to be divided by.
    pub(crate) fn set(
        &mut self,
        nodes: &Participants,
        numbers: impl Iterator<Item = (i64, u32)>,
        votes: impl Iterator<Item = u64>,
    ) {
        self.clear();
        self.heard.merge(nodes);
        self.sums[0].set_multiples(numbers);
        self.votes.iter_mut().zip(votes).for_each(|(own, votes)| *own = votes);
    }

    /// From now on uploads have `len` numbers; what came so far is forgotten.
    pub(crate) fn expect(&mut self, len: usize) {
        self.clear();
        self.sums.iter_mut().for_each(|sum| sum.reset(len));
        self.kept.iter_mut().for_each(|kept| *kept = Columns::new(len));
    }

    fn wrong_kernel(&self, found: Option<u32>) -> Rejected {
        Rejected::WrongKernel { found, last: self.votes.len().saturating_sub(1) as u32 }
    }

    /// How many uploads came.
    pub fn count(&self) -> usize {
        self.heard.len()
    }

    /// Votes per kernel; empty if the method has none.
    pub fn votes(&self) -> &[u64] {
        &self.votes
    }

    /// Sums of what came for a kernel, number by number.
    pub fn totals_of(&self, kernel: usize) -> impl Iterator<Item = f64> {
        self.sums[kernel].totals()
    }

    /// Sums, number by number.
    pub fn totals(&self) -> impl Iterator<Item = f64> {
        self.sums[0].totals()
    }

    /// Writes the mean of the first `out.len()` numbers.
    pub fn mean(&self, out: &mut [f32]) {
        write_mean(&self.sums[0], self.count() as u64, out);
    }

    /// Writes the mean over the nodes that voted for a kernel. At least one must have.
    pub fn mean_of_voters(&self, kernel: usize, out: &mut [f32]) {
        write_mean(&self.sums[kernel], self.votes[kernel], out);
    }

    /// Ready for the next round.
    pub(crate) fn clear(&mut self) {
        self.sums.iter_mut().for_each(ExactSum::clear);
        self.kept.iter_mut().for_each(Columns::clear);
        self.votes.fill(0);
        self.heard.clear();
    }

    /// Whether a saved state has the shape of a known one and no number that can't be.
    pub(crate) fn is_sound(&self, known: &Self) -> bool {
        let uploads = self.count() as u64;
        let cast: u64 = self.votes.iter().fold(0, |sum, votes| sum.saturating_add(*votes));
        let is_reached = |kernel: usize, sum: &ExactSum| {
            let uploads = if self.sums.len() > 1 { self.votes[kernel] } else { uploads };
            let len = known.sums[0].len();
            match self.kept.get(kernel) {
                // As far as uploads can take it, and a little room for rounding.
                None => sum.is_sound(len, (1.0 + 1e-9) * f64::from(MAX_NUMBER) * uploads as f64),
                Some(kept) => sum.is_sound(len, 0.0) && kept.is_sound(len, uploads),
            }
        };
        self.sums.len() == known.sums.len()
            && self.votes.len() == known.votes.len()
            && self.aggregation == known.aggregation
            && self.kept.len() == known.kept.len()
            && self.sums.iter().enumerate().all(|(kernel, sum)| is_reached(kernel, sum))
            && self.heard.is_sound()
            && self.votes.iter().all(|votes| *votes <= uploads)
            && (self.votes.is_empty()
                || (uploads..=uploads.saturating_mul(known.parts as u64)).contains(&cast))
    }
}

fn write_mean(sum: &ExactSum, terms: u64, out: &mut [f32]) {
    let share = 1.0 / terms as f64;
    for (out, total) in out.iter_mut().zip(sum.totals()) {
        *out = (total * share) as f32;
    }
}

#[cfg(test)]
mod tests;
