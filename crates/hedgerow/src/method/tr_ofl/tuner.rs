//! The server's part of the units: the verdict on a step, the next step, the next block, growth.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::super::gr_ofl::matrix::Work;
use super::super::gr_ofl::{to_wire, triangle};
use super::Sizes;
use super::candidates;
use super::inputs::Moments;
use super::synthetic::Synthetic;
use super::told::{BlockSums, Told};
use super::units::{Block, Units};
use crate::limits::{MAX_NUMBER, MAX_SUM};
use crate::linear_algebra::dot;

/// Samples per parameter before a group is added: if the last one has earned its place, and if not.
pub(super) const SAMPLES_PER_PARAMETER: f64 = 6.0;
const CAUTIOUS_SAMPLES_PER_PARAMETER: f64 = 15.0;

/// A group has earned its place if it lowered the error by so many times what overfitting would.
const EARNED: f64 = 4.0;

/// Visits for each group before another is added.
const VISITS_PER_GROUP: u64 = 3;

/// Every so many visits are to the output block.
const OUTPUT_TURN: u64 = 6;

/// A step is accepted if it gains at least this share of what half of it gains.
const ACCEPTED_SHARE: f64 = 0.6;

/// Damping: at first, its bounds, and its factors after a step that kept its promise, one that
/// kept little of it, and one that was not accepted.
const DAMPING_FIRST: f64 = 0.1;
const DAMPING: (f64, f64) = (1e-5, 1e4);
const DAMPING_DOWN: f64 = 0.4;
const DAMPING_SLOW: f64 = 1.5;
const DAMPING_UP: f64 = 5.0;

/// Shares of the promised gain between which damping stays.
const PROMISE: (f64, f64) = (0.2, 0.5);

/// A step that promises to lower the error by more than this share of it is made with more damping:
/// the curvature has directions that labels know and synthetic inputs don't.
const MOST_PROMISED: f64 = 0.5;

/// A change of a phase or a frequency by one counts in the damping as much as one of a weight by
/// the root of this share of the mean squared error.
const SIZE_SHARE: f64 = 0.5;

/// Where the curvature of a step comes from, and buffers.
pub(super) struct Curvature<'a> {
    pub(super) moments: &'a Moments,
    pub(super) synthetic: &'a mut Synthetic,
    pub(super) scratch: &'a mut Scratch,
}

/// The units and how they are being learned.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Tuner {
    pub(super) units: Units,
    /// The block that is asked for.
    pub(super) asked: Block,
    /// Log-odds against GR-OFL when the units began, and rounds in which they were worse.
    pub(super) first_odds: f64,
    pub(super) rounds_behind: u32,
    /// μ of the output block and of every group.
    damping: Vec<f64>,
    /// The gain that the step on trial promises, for each sample.
    promised: f64,
    visits: u64,
    /// Visits since the last growth.
    since_growth: u64,
    /// Mean squared error, now and at the last growth.
    loss: f64,
    loss_at_growth: Option<f64>,
    /// What has come of the block that is asked for.
    pub(super) told: Told,
}

/// Buffers.
#[derive(Default)]
pub(super) struct Scratch {
    /// The gradient over the number of samples.
    slopes: Vec<f64>,
    step: Vec<f64>,
    work: Work,
    /// Rows of all candidates and of those that are added.
    candidates: Vec<f32>,
    group: Vec<f32>,
}

impl Tuner {
    pub(super) fn new(sizes: &Sizes, units: Units, odds: f64) -> Self {
        Self {
            units,
            asked: Block::Output,
            first_odds: odds,
            rounds_behind: 0,
            damping: vec![DAMPING_FIRST; 1 + sizes.most_units / sizes.group],
            promised: 0.0,
            visits: 0,
            since_growth: u64::MAX >> 1,
            loss: 0.0,
            loss_at_growth: None,
            told: Told::default(),
        }
    }

    /// One exchange. Returns the share of the step on trial that is taken.
    pub(super) fn close(&mut self, sizes: &Sizes, seed: u64, curvature: Curvature<'_>) -> f32 {
        let told = core::mem::take(&mut self.told);
        let sums = &told.sums();
        let count = sums.count.max(1.0);
        self.loss = (sums.base / count).clamp(0.0, MAX_SUM);
        let (share, is_accepted) = match &self.units.step {
            None => (0.0, true),
            Some(step) => {
                let at = damping_index(step.block);
                let (share, is_accepted, factor) = self.verdict(sums, count);
                self.damping[at] = (self.damping[at] * factor).clamp(DAMPING.0, DAMPING.1);
                (share as f32, is_accepted)
            }
        };
        self.units.take(sizes, share);
        // Otherwise the gradient belongs to a point that isn't the model.
        if is_accepted && self.asked == Block::Candidates {
            self.grow(sizes, seed, sums.gradient, count, curvature);
        } else if is_accepted {
            self.make_step(sizes, sums.gradient, count, curvature);
            self.choose_block(sizes, sums.known);
        }
        self.told = told;
        share
    }

    /// The share of the step on trial that is taken, whether it is accepted, and the factor for its
    /// damping.
    fn verdict(&self, sums: &BlockSums<'_>, count: f64) -> (f64, bool, f64) {
        let (half, whole) = (sums.half, sums.whole);
        if whole < 0.0 && whole <= ACCEPTED_SHARE * half.min(0.0) {
            let promised = self.promised * count;
            let factor = match -whole {
                gain if gain > PROMISE.1 * promised => DAMPING_DOWN,
                gain if gain < PROMISE.0 * promised => DAMPING_SLOW,
                _ => 1.0,
            };
            return (1.0, true, factor);
        }
        // Only what was tested is taken.
        let share = if half < 0.0 { 0.5 } else { 0.0 };
        (share, false, DAMPING_UP)
    }

    /// Puts a step for the block that was asked for on trial.
    fn make_step(&mut self, sizes: &Sizes, gradient: &[f64], count: f64, from: Curvature<'_>) {
        let Curvature { moments, synthetic, scratch } = from;
        let Units { frame, parameters, .. } = &self.units;
        let block = self.asked;
        let curvature = synthetic.curvature(sizes, moments, frame, &parameters.rows, block);
        let len = gradient.len();
        let is_weight = |at: &usize| block == Block::Output || at.is_multiple_of(sizes.row());
        let weights = (0..len).filter(is_weight).map(|at| curvature[triangle(at) + at]);
        let scale = weights.sum::<f64>() / len as f64;
        let size = (SIZE_SHARE * self.loss).max(f64::MIN_POSITIVE);
        let Scratch { slopes, step, work, .. } = scratch;
        slopes.clear();
        slopes.extend(gradient.iter().map(|g| g / count));
        let damping = &mut self.damping[damping_index(block)];
        let mut added = 0.0;
        loop {
            let lacking = (*damping - added) * scale;
            for at in 0..len {
                curvature[triangle(at) + at] += lacking * if is_weight(&at) { 1.0 } else { size };
            }
            step.clone_from(slopes);
            work.solve(curvature, 0.0, step);
            if dot(slopes, step) <= MOST_PROMISED * self.loss || *damping >= DAMPING.1 {
                break;
            }
            added = *damping;
            *damping = (*damping * DAMPING_UP).min(DAMPING.1);
        }
        if !step.iter().all(|step| step.abs() <= f64::from(MAX_NUMBER)) {
            return;
        }
        self.promised = dot(slopes, step).clamp(0.0, MAX_SUM);
        self.units.try_step(block, step.iter().map(|step| to_wire(-step)));
    }

    /// Adds the candidates that promise most.
    fn grow(
        &mut self,
        sizes: &Sizes,
        seed: u64,
        gradient: &[f64],
        count: f64,
        from: Curvature<'_>,
    ) {
        let Curvature { moments, synthetic, scratch } = from;
        let Scratch { slopes, step, candidates: rows, group, .. } = scratch;
        self.units.candidates(sizes, seed, rows);
        let frame = &self.units.frame;
        let products = synthetic.curvature(sizes, moments, frame, rows, Block::Candidates);
        slopes.clear();
        slopes.extend(gradient.iter().map(|g| g / count));
        candidates::choose(sizes, rows, slopes, products, step, group);
        self.units.grow(sizes, group);
        self.asked = Block::Output;
        self.since_growth = 0;
        self.loss_at_growth = Some(self.loss);
    }

    /// Decides what is asked for next: candidates if there are enough samples for more units.
    fn choose_block(&mut self, sizes: &Sizes, count: f64) {
        let units = self.units.count(sizes);
        let groups = (units / sizes.group) as u64;
        let added = (sizes.group * sizes.row()) as f64;
        let has_earned = self.loss_at_growth.is_none_or(|before| {
            (before - self.loss) / self.loss.max(1e-300) * count / added > EARNED
        });
        let each = if has_earned { SAMPLES_PER_PARAMETER } else { CAUTIOUS_SAMPLES_PER_PARAMETER };
        let parameters = sizes.parameters(units + sizes.group) as f64;
        if units + sizes.group <= sizes.most_units
            && count >= each * parameters
            && self.since_growth >= VISITS_PER_GROUP * groups
        {
            self.asked = Block::Candidates;
            return;
        }
        let visit = self.visits;
        self.since_growth += 1;
        self.visits += 1;
        self.asked = match groups {
            0 => Block::Output,
            _ if visit.is_multiple_of(OUTPUT_TURN) => Block::Output,
            _ => Block::Group(((visit - visit / OUTPUT_TURN - 1) % groups) as usize),
        };
    }

    /// Follows a change of the label's unit; the units follow on their own.
    pub(super) fn rescale_losses(&mut self, factor: f64) {
        self.told.begin();
        let losses = [&mut self.loss, &mut self.promised];
        losses.into_iter().chain(&mut self.loss_at_growth).for_each(|loss| {
            *loss = (*loss * factor).min(MAX_SUM);
        });
    }

    pub(super) fn is_sound(&self, sizes: &Sizes) -> bool {
        let units = self.units.count(sizes);
        let is_loss = |loss: &f64| (0.0..=MAX_SUM).contains(loss);
        self.units.is_sound(sizes)
            && match self.asked {
                Block::Output => true,
                Block::Candidates => units + sizes.group <= sizes.most_units,
                Block::Group(group) => (group + 1) * sizes.group <= units,
            }
            && self.damping.len() == 1 + sizes.most_units / sizes.group
            && self.damping.iter().all(|mu| (DAMPING.0..=DAMPING.1).contains(mu))
            && [&self.promised, &self.loss].into_iter().chain(&self.loss_at_growth).all(is_loss)
            && self.told.is_sound()
            && self.first_odds.abs() <= MAX_SUM
            && self.visits < u64::MAX >> 1
            && self.since_growth < u64::MAX - 1
    }
}

fn damping_index(block: Block) -> usize {
    match block {
        Block::Output | Block::Candidates => 0,
        Block::Group(group) => 1 + group,
    }
}
