//! [`NodeShell`]: what all methods have in common on a node. A [`NodeRule`] adds what is special.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::setup::{check_label, check_width};
use super::{BadSample, NodeMethod, Setup};
use crate::codec::Section;
use crate::features::Features;
use crate::learning::Loss;
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::{BadState, OlderVersion, StateKind, is_count};

/// What is special about a method on a node.
pub trait NodeRule: Send {
    /// What has to survive a restart, beside round and number of samples.
    type State: Serialize + DeserializeOwned + 'static;

    /// Kind of its saved states.
    const KIND: StateKind;

    /// Older versions of saved states that are still read.
    const OLDER: &'static [OlderVersion<(u64, u64, Self::State)>] = &[];

    /// Length of the features that it learns from.
    fn width(&self) -> usize;

    /// Predicts from the features of a sample.
    fn predict(&self, z: Features<'_>) -> f32;

    /// Learns from one sample. `step` is the round plus the samples learned since it opened: rates
    /// that fall with the round go on falling within it.
    fn learn(&mut self, step: u64, z: Features<'_>, y: f32);

    /// Writes numbers and vote of the upload for a round; both are empty.
    fn write(&self, round: u64, upload: &mut Upload);

    /// Whether there is something to upload after so many samples in this round.
    fn has_news(&self, learned: u64) -> bool {
        learned > 0
    }

    /// Appends what the numbers of its upload are, in order.
    fn sections(&self, _out: &mut Vec<Section>) {}

    /// From here on its votes follow from this seed.
    fn vote_privately(&mut self, _seed: u64) {}

    /// The upload for a round has left.
    fn sent(&mut self, _round: u64) {}

    /// The server took the upload of this round, and none later; 0 if none is known.
    fn acknowledge(&mut self, _taken: u64) {}

    /// Refuses a broadcast that no server of this method sends.
    fn check(&self, broadcast: &Broadcast) -> Result<(), Rejected>;

    /// Takes over a broadcast that is sound and newer than the last one.
    fn adopt(&mut self, broadcast: &Broadcast);

    /// The server has lost rounds: the next broadcast doesn't follow the last one.
    fn forget_round(&mut self) {}

    /// How much of the prediction each kernel makes. Zero everywhere for a method without kernels.
    fn shares(&self, out: &mut [f64]) {
        out.fill(0.0);
    }

    /// ‖w‖² of the model behind the predictions.
    fn norm2(&self) -> f64;

    /// Writes the weights of the linear model behind the predictions and says so, if there is one.
    fn linear_model(&self, _out: &mut [f64]) -> bool {
        false
    }

    /// Moves all models to another scale.
    fn rescale(&mut self, rescaling: &Rescaling);

    /// Forgets the samples that it keeps, and says how many they were.
    fn forget_samples(&mut self) -> usize {
        0
    }

    /// What is saved: the bytes of a [`NodeRule::State`].
    fn state(&self) -> impl Serialize;

    /// Whether a saved state could have been reached.
    fn is_sound(&self, state: &Self::State) -> bool;

    /// Continues from a state that is sound.
    fn restore(&mut self, state: Self::State);
}

/// The part of a method on a node: round, number of samples, checks, save and restore around a
/// [`NodeRule`].
#[derive(Debug, Clone)]
pub struct NodeShell<R> {
    pub(super) rule: R,
    loss: Loss,
    label_limit: f32,
    round: u64,
    /// Samples learned since the last broadcast.
    learned: u64,
}

impl<R: NodeRule> NodeShell<R> {
    /// Before the first round.
    pub fn new(setup: &Setup, rule: R) -> Self {
        let (loss, label_limit) = (setup.objective().loss, setup.label_limit());
        Self { rule, loss, label_limit, round: 1, learned: 0 }
    }

    /// The same behind a pointer.
    pub(super) fn boxed(setup: &Setup, rule: R) -> Box<dyn NodeMethod>
    where
        R: 'static,
    {
        Box::new(Self::new(setup, rule))
    }
}

impl<R: NodeRule> NodeMethod for NodeShell<R> {
    fn predict(&self, z: Features<'_>) -> f32 {
        assert_eq!(z.numbers().len(), self.rule.width(), "features of another dictionary");
        self.rule.predict(z)
    }

    fn learn(&mut self, z: Features<'_>, y: f32) -> Result<(), BadSample> {
        check_label(self.loss, y)?;
        check_width(z, self.rule.width())?;
        if y.abs() <= self.label_limit {
            self.rule.learn(self.round + self.learned, z, y);
        }
        self.learned += 1;
        Ok(())
    }

    fn upload(&self, out: &mut Upload) -> bool {
        out.round = self.round;
        out.vote = None;
        out.numbers.clear();
        self.rule.write(self.round, out);
        self.rule.has_news(self.learned)
    }

    fn sections(&self, out: &mut Vec<Section>) {
        self.rule.sections(out);
    }

    fn vote_privately(&mut self, seed: u64) {
        self.rule.vote_privately(seed);
    }

    fn sent(&mut self) {
        self.rule.sent(self.round);
    }

    fn acknowledge(&mut self, taken: u64) {
        self.rule.acknowledge(taken);
    }

    fn adopt(&mut self, broadcast: &Broadcast) -> Result<(), Rejected> {
        self.rule.check(broadcast)?;
        if broadcast.round > self.round {
            self.rule.adopt(broadcast);
            self.round = broadcast.round;
            self.learned = 0;
        }
        Ok(())
    }

    fn forget_round(&mut self) {
        self.round = 0;
        self.rule.forget_round();
    }

    fn round(&self) -> u64 {
        self.round
    }

    fn shares(&self, out: &mut [f64]) {
        self.rule.shares(out);
    }

    fn norm2(&self) -> f64 {
        self.rule.norm2()
    }

    fn linear_model(&self, out: &mut [f64]) -> bool {
        self.rule.linear_model(out)
    }

    fn rescale(&mut self, rescaling: &Rescaling) {
        self.rule.rescale(rescaling);
    }

    fn forget_samples(&mut self) -> usize {
        self.rule.forget_samples()
    }

    fn save(&self) -> Vec<u8> {
        R::KIND.save(&(self.round, self.learned, self.rule.state()))
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let is_sound = |(round, learned, state): &(u64, u64, R::State)| {
            is_count(*round) && is_count(*learned) && self.rule.is_sound(state)
        };
        let (round, learned, state) = R::KIND.restore_any(saved, R::OLDER, is_sound)?;
        (self.round, self.learned) = (round, learned);
        self.rule.restore(state);
        Ok(())
    }
}
