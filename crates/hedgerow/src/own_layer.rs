//! [`OwnLayer`]: what a node knows better about its own labels than the federation does. Nothing of
//! it travels.
//!
//! # The idea
//!
//! A federation learns what its nodes have in common. A node may have more: an offset of its own,
//! another relation between inputs and labels, labels that follow each other. It also has free
//! forecasts, its mean label and its last label, which sometimes beat any model. The layer keeps
//! several predictions of each label, the *experts*, and mixes them by how well they did at this
//! node. Where the federation's prediction f can't be improved, its weight stays near one.
//!
//! # Experts
//!
//! - f itself;
//! - two small ridge regressions of y on f and four extra inputs, shrunk towards f, one of which
//!   forgets (`small_ridge.rs`). The extra inputs e are the last label, a slow average of labels,
//!   the last error of f and a slow average of it;
//! - four ridge regressions on the features that the federation shares and on e, with different
//!   penalties, shrunk towards the federation's model, and the same shrunk towards the node's own
//!   level (`ridges.rs`). If the federation's prediction isn't linear in these features, sums of
//!   its errors take the place of its weights;
//! - all of these, with what is beyond the node's own labels taken back in part (`soft_clip.rs`);
//! - the mean and the last of the node's labels.
//!
//! The mixture is Bernstein online aggregation (`mixture.rs`). Experts stay within the node's label
//! range and a tenth of it on either side; those that start from f may also reach f. The older the
//! federation is when a node joins, the more it trusts f at first, except right after its first
//! label: that one counts most, within about one error of f.
//!
//! # Costs
//!
//! With n features a sample costs about 6(n + 4)² multiplications, and every 16th sample 2(n + 4)³
//! for exact inverses; what the samples since have changed in them is kept as vectors. For 80
//! features, which is the most that it reads, the state has 212 kB. Methods whose features are
//! neither a dictionary nor the inputs have no regressions on features, and the layer has about
//! 1 kB.

mod mixture;
mod ridges;
mod small_ridge;
mod soft_clip;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use self::mixture::ExpertMixture;
use self::ridges::{Corrections, RIDGES, RidgeWork, Ridges};
use self::small_ridge::{SmallRidge, TERMS};
use self::soft_clip::SoftClips;
use crate::features::Features;
use crate::limits::{MAX_LABEL, MAX_SUM};
use crate::math;
use crate::scaling::Rescaling;
use crate::state::{BadState, StateKind, is_count};

/// Shared features that a layer reads, at most.
pub const MAX_OWN_FEATURES: usize = 80;

/// Inputs of regressions that the node makes of its own labels.
const EXTRAS: usize = 4;

/// The least rate of slow averages.
const SLOW: f64 = 0.15;

/// Memories of the small regressions: all, and half of the sums after 60 samples.
const SMALL_MEMORIES: [f64; 2] = [1.0, 0.988_514_020_352_896_2];

/// How far experts may leave the node's label range, in its widths.
const MARGIN: f64 = 0.1;

/// The least variance of labels, relative to their largest square.
const LEAST_VARIANCE: f64 = 1e-14;

const KIND: StateKind = StateKind::new("own-layer").version(6);

/// One node's own layer over the predictions of a method.
///
/// ```
/// use hedgerow::features::Features;
/// use hedgerow::own_layer::OwnLayer;
///
/// let mut own = OwnLayer::new(0);
/// let z = Features::checked(&[]).unwrap();
/// // The federation is off by one half at this node, again and again.
/// for t in 0..50 {
///     let (global, label) = ((t % 5) as f32, (t % 5) as f32 + 0.5);
///     own.predict(z, t + 1, global, |_| false);
///     own.learn(label);
/// }
/// assert!((own.predict(z, 51, 2.0, |_| false) - 2.5).abs() < 0.05);
/// ```
#[derive(Debug, Clone)]
pub struct OwnLayer {
    state: State,
    scratch: Scratch,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    samples: u64,
    /// The first label: all sums are of labels less this.
    reference: f64,
    last: f64,
    mean: f64,
    slow: f64,
    smallest: f64,
    largest: f64,
    /// Σ (y − mean)², each with the mean before it.
    scatter: f64,
    last_error: f64,
    slow_error: f64,
    ridges: Option<Ridges>,
    small: [SmallRidge; 2],
    clips: SoftClips,
    mixture: ExpertMixture,
}

/// What was worked out of the latest sample.
#[derive(Debug, Clone)]
struct Scratch {
    /// Whether there is a sample whose label can be learned.
    has_sample: bool,
    /// Rounds of the federation before this one.
    age: u64,
    global: f64,
    terms: [f64; TERMS],
    /// Experts as they come: those that start from the federation's prediction, then those that
    /// start from the node's own level.
    raw: Vec<f64>,
    /// All experts, the same as they are mixed, and their mixture.
    experts: Vec<f64>,
    bounded: Vec<f64>,
    mixed: f64,
    work: Option<RidgeWork>,
}

impl OwnLayer {
    /// A new layer that reads so many shared features of a sample, or none; at most
    /// [`MAX_OWN_FEATURES`]. The first feature has to be one.
    pub fn new(features: usize) -> Self {
        let features = features.min(MAX_OWN_FEATURES);
        let ridges = (features > 0).then(|| Ridges::new(features));
        let (from_global, from_own) = experts(ridges.is_some());
        let raw = from_global + from_own;
        let mixed = from_global + raw + 2;
        let prior = Prior::new(0, 0, ridges.is_some());
        let prior: Vec<f64> = (0..mixed).map(|expert| prior.of(expert)).collect();
        Self {
            scratch: Scratch {
                has_sample: false,
                age: 0,
                global: 0.0,
                terms: [0.0; TERMS],
                raw: vec![0.0; raw],
                experts: vec![0.0; mixed],
                bounded: vec![0.0; mixed],
                mixed: 0.0,
                work: ridges.as_ref().map(Ridges::work),
            },
            state: State {
                samples: 0,
                reference: 0.0,
                last: 0.0,
                mean: 0.0,
                slow: 0.0,
                smallest: 0.0,
                largest: 0.0,
                scatter: 0.0,
                last_error: 0.0,
                slow_error: 0.0,
                ridges,
                small: SMALL_MEMORIES.map(SmallRidge::new),
                clips: SoftClips::new(raw),
                mixture: ExpertMixture::new(&prior),
            },
        }
    }

    /// Bytes of a layer that reads so many features, without the overhead of allocations.
    pub fn memory(features: usize) -> usize {
        let features = features.min(MAX_OWN_FEATURES);
        let regressions = if features > 0 { Ridges::memory(features) } else { 0 };
        size_of::<Self>() + 8 * 200 + regressions
    }

    /// The node's own prediction of a sample, given the federation's in a round. `linear` writes
    /// the weights of the linear model behind that prediction, over the first features, if there is
    /// one, and says so. Changes nothing but which sample [`OwnLayer::learn`] means.
    ///
    /// # Panics
    /// If the sample has fewer features than the layer reads.
    pub fn predict(
        &mut self,
        z: Features<'_>,
        round: u64,
        global: f32,
        linear: impl FnOnce(&mut [f64]) -> bool,
    ) -> f32 {
        let Self { state, scratch } = self;
        let global = bounded(global);
        scratch.global = global;
        scratch.age = round.saturating_sub(1);
        scratch.has_sample = true;
        if state.samples == 0 {
            if let (Some(ridges), Some(work)) = (&state.ridges, &mut scratch.work) {
                ridges.read(z, [0.0; EXTRAS], work);
            }
            scratch.experts.fill(global);
            scratch.bounded.fill(global);
            scratch.mixed = global;
            return global as f32;
        }
        let extras = [
            state.last - state.reference,
            state.slow - state.reference,
            state.last_error,
            state.slow_error,
        ];
        let variance = state.variance();
        let (low, high) = (state.smallest, state.largest);
        let margin = MARGIN * (high - low);
        let own = (low - margin, high + margin);
        let either = (own.0.min(global), own.1.max(global));
        // What isn't a number says the same as the federation.
        let within = |value: f64, (low, high): (f64, f64)| {
            if value.is_nan() { global } else { value.clamp(low, high) }
        };
        let (from_global, _) = experts(state.ridges.is_some());
        let (of_global, of_own) = scratch.raw.split_at_mut(from_global);
        of_global[0] = global;
        scratch.terms[0] = 1.0;
        scratch.terms[1] = global - state.reference;
        scratch.terms[2..].copy_from_slice(&extras);
        for (expert, small) in of_global[1..].iter_mut().zip(&state.small) {
            *expert = within(global + small.correction(&scratch.terms, variance), either);
        }
        if let (Some(ridges), Some(work)) = (&mut state.ridges, &mut scratch.work) {
            let has_model = linear(&mut work.model[..ridges.features()]);
            work.model[0] -= state.reference;
            let Corrections { of_global: global_s, of_reference } =
                ridges.predict(z, extras, variance, has_model, work);
            for (expert, correction) in of_global[1 + state.small.len()..].iter_mut().zip(global_s)
            {
                *expert = within(global + correction, either);
            }
            for (expert, correction) in of_own.iter_mut().zip(of_reference) {
                *expert = within(state.reference + correction, own);
            }
        }
        let (direct, rest) = scratch.experts.split_at_mut(from_global);
        direct.copy_from_slice(&scratch.raw[..from_global]);
        for (at, (expert, raw)) in rest.iter_mut().zip(&scratch.raw).enumerate() {
            *expert = state.clips.clip(at, *raw, (low, high));
        }
        rest[scratch.raw.len()] = state.mean;
        rest[scratch.raw.len() + 1] = state.last;
        scratch.mixed =
            state.mixture.predict(&scratch.experts, state.samples, &mut scratch.bounded);
        scratch.mixed as f32
    }

    /// Learns the label of the sample that was predicted last. A label that isn't a number of
    /// reasonable size is left out.
    pub fn learn(&mut self, label: f32) {
        let Self { state, scratch } = self;
        let is_label = label.abs() <= MAX_LABEL;
        if !core::mem::replace(&mut scratch.has_sample, false) || !is_label {
            return;
        }
        let y = f64::from(label);
        let is_first = state.samples == 0;
        if is_first {
            (state.reference, state.smallest, state.largest) = (y, y, y);
        } else {
            let range = (state.smallest, state.largest);
            for (expert, raw) in scratch.raw.iter().enumerate() {
                state.clips.learn(expert, *raw, range, y);
            }
        }
        let prior = Prior::new(scratch.age + 1, state.samples + 1, state.ridges.is_some());
        let mixture = (&scratch.bounded[..], scratch.mixed);
        state.mixture.learn(&scratch.experts, mixture, y, |expert| prior.of(expert));
        let (centred, error) = (y - state.reference, y - scratch.global);
        if let (Some(ridges), Some(work)) = (&mut state.ridges, &mut scratch.work) {
            ridges.learn(centred, (!is_first).then_some(error), work);
        }
        if !is_first {
            state.scatter += (y - state.mean) * (y - state.mean);
            state.small.iter_mut().for_each(|small| small.learn(&scratch.terms, centred));
        }
        state.samples += 1;
        state.smallest = state.smallest.min(y);
        state.largest = state.largest.max(y);
        state.last = y;
        let even = 1.0 / state.samples as f64;
        let rate = even.max(SLOW);
        state.mean += (y - state.mean) * even;
        state.slow += (y - state.slow) * rate;
        if !is_first {
            state.last_error = error;
            state.slow_error += (error - state.slow_error) * rate;
        }
    }

    /// How much the federation's prediction as it is, and all that the node has made of it or
    /// beside it, have in the node's prediction; sums to one.
    pub fn weights(&self) -> [f64; 2] {
        let global = self.state.mixture.weights()[0];
        [global, 1.0 - global]
    }

    /// Follows a change of scale. What is known of labels is converted exactly. Sums over the
    /// features of a dictionary are converted as the method's own; sums over other features start
    /// afresh if inputs change their scale. If that leaves numbers beyond reason, or if the label's
    /// offset moves, the layer starts afresh.
    pub fn rescale(&mut self, rescaling: &Rescaling) {
        let (state, gain) = (&mut self.state, rescaling.gain());
        let features = state.features();
        for number in [
            &mut state.reference,
            &mut state.last,
            &mut state.mean,
            &mut state.slow,
            &mut state.smallest,
            &mut state.largest,
            &mut state.last_error,
            &mut state.slow_error,
        ] {
            *number *= gain;
        }
        state.scatter *= gain * gain;
        state.ridges.iter_mut().for_each(|ridges| ridges.rescale(rescaling));
        state.small.iter_mut().for_each(|small| small.rescale(gain));
        state.clips.rescale(gain);
        state.mixture.rescale(gain);
        self.scratch.has_sample = false;
        if gain <= 0.0 || rescaling.shift() != 0.0 || !self.state.is_sound(features) {
            *self = Self::new(features);
        }
    }

    /// Everything that has to survive a restart.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        KIND.save(&self.state)
    }

    /// Continues from a saved state of as many features. A refused state changes nothing.
    pub fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let features = self.state.features();
        self.state = KIND.restore(saved, |state: &State| state.is_sound(features))?;
        self.scratch.has_sample = false;
        Ok(())
    }
}

impl State {
    fn features(&self) -> usize {
        self.ridges.as_ref().map_or(0, Ridges::features)
    }

    fn variance(&self) -> f64 {
        let size = self.smallest.abs().max(self.largest.abs());
        self.scatter / self.samples as f64 + LEAST_VARIANCE * size * size + 1e-200
    }

    fn is_sound(&self, features: usize) -> bool {
        let labels = [self.reference, self.last, self.mean, self.slow];
        let bound = f64::from(MAX_LABEL);
        let (raw, has_ridges) = (self.clips_len(), self.ridges.is_some());
        let (from_global, _) = experts(has_ridges);
        is_count(self.samples)
            && has_ridges == (features > 0)
            && labels.iter().chain([&self.smallest, &self.largest]).all(|y| y.abs() <= bound)
            && labels.iter().all(|y| (self.smallest..=self.largest).contains(y))
            && [self.last_error, self.slow_error].iter().all(|error| error.abs() <= 2.0 * bound)
            && self.scatter >= 0.0
            && is_sum(&self.scatter)
            && self.ridges.as_ref().is_none_or(|ridges| ridges.is_sound(features))
            && self.small.iter().zip(SMALL_MEMORIES).all(|(small, memory)| small.is_sound(memory))
            && self.clips.is_sound(raw)
            && self.mixture.is_sound(from_global + raw + 2)
    }

    /// Experts before any is clipped.
    fn clips_len(&self) -> usize {
        let (from_global, from_own) = experts(self.ridges.is_some());
        from_global + from_own
    }
}

/// Experts that start from the federation's prediction, and those that start from the node's own
/// level.
fn experts(has_ridges: bool) -> (usize, usize) {
    let ridges = if has_ridges { RIDGES } else { 0 };
    (1 + SMALL_MEMORIES.len() + ridges, ridges)
}

/// Weights of the experts before anything is known of them. Young federations know little, so that
/// more of it is for what the node knows itself. A node that joins an old one trusts it more,
/// except right after its first label: experts are then so near the federation's prediction that it
/// costs little to follow the node's label, and it helps much where the federation is wrong here.
struct Prior {
    has_ridges: bool,
    global: f64,
    clipped: f64,
    own: f64,
    others: f64,
}

impl Prior {
    /// Of regressions towards the federation, as multiples of that of the small ones.
    const RIDGES: [f64; RIDGES] = [0.5, 0.5, 0.5, 1.5];

    /// When the federation is this many rounds old and the node has learned so many samples.
    fn new(age: u64, samples: u64, has_ridges: bool) -> Self {
        let youth = math::powi(0.06, age.clamp(1, 99) as i32 - 1);
        let maturity = age as f64 / (age as f64 + 50.0);
        let joining = if samples == 1 { maturity } else { 0.0 };
        let (from_global, from_own) = experts(has_ridges);
        let global = 0.3 - 0.2 * youth + 0.25 * maturity - 0.45 * joining;
        let clipped = 0.1;
        // Of each expert that starts from the node's own labels.
        let count = (from_own + 2) as f64;
        let own = (0.17 + 0.45 * youth) / (RIDGES + 2) as f64 + 0.6 * joining / count;
        let rest = 1.0 - global - clipped - own * count;
        let others = rest / (2 * (from_global - 1)) as f64;
        let mut prior = Self { has_ridges, global, clipped, own, others };
        let sum: f64 = (0..2 * from_global + from_own + 2).map(|expert| prior.of(expert)).sum();
        for weight in [&mut prior.global, &mut prior.clipped, &mut prior.own, &mut prior.others] {
            *weight /= sum;
        }
        prior
    }

    fn of(&self, expert: usize) -> f64 {
        let (from_global, _) = experts(self.has_ridges);
        if expert >= 2 * from_global {
            return self.own;
        }
        match (expert / from_global, expert % from_global) {
            (0, 0) => self.global,
            (_, 0) => self.clipped,
            (_, small) if small <= SMALL_MEMORIES.len() => self.others,
            (_, ridge) => self.others * Self::RIDGES[ridge - 1 - SMALL_MEMORIES.len()],
        }
    }
}

/// Whether a sum could have been reached.
fn is_sum(sum: &f64) -> bool {
    sum.abs() <= MAX_SUM
}

/// A prediction of reasonable size; zero if it isn't a number.
fn bounded(value: f32) -> f64 {
    if value.is_nan() { 0.0 } else { f64::from(value.clamp(-MAX_LABEL, MAX_LABEL)) }
}
