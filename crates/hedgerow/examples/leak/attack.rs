//! The attack of a curious server on an upload. It knows the dictionary, the seed and all its
//! broadcasts, so it has the same feature map and methods as the nodes.
//!
//! After one sample a model is u = (1 − 2ηλ)·w + a·z(x) with a = −2η(wᵀz − y). The server knows w,
//! so it knows a·z. Since ‖z‖ = 1, it knows a and z up to a sign; only one sign fits an x. Sines
//! and cosines give the angles Vx up to whole turns, and these give x if there are fewer inputs
//! than frequencies. The label follows from a.

use std::cell::OnceCell;
use std::error::Error;
use std::f64::consts::TAU;

use hedgerow::features::FeatureMap;
use hedgerow::message::{Broadcast, Upload};
use hedgerow::{NodeMethod, Plan};

use super::lattice::{Frequencies, Unwinder, dot};

/// Angles that fit worse than this (in radians) don't count as a result.
const CONVINCING: f64 = 0.05;

/// A sample reconstructed from an upload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    pub(crate) x: Vec<f32>,
    pub(crate) y: f32,
    /// Root mean square of the differences between the angles and those of x: by it a server sees
    /// whether it has found anything.
    pub(crate) misfit: f64,
}

/// What every member of a federation knows, also a curious server.
pub(crate) struct Knowledge<'m> {
    map: &'m FeatureMap,
    plan: Plan,
    /// What is known of each kernel, once somebody asks.
    kernels: Vec<OnceCell<(Frequencies, Unwinder)>>,
}

impl<'m> Knowledge<'m> {
    pub(crate) fn new(map: &'m FeatureMap, plan: &Plan) -> Self {
        let kernels = (0..map.kernels()).map(|_| OnceCell::new()).collect();
        Self { map, plan: plan.clone(), kernels }
    }

    pub(crate) fn map(&self) -> &FeatureMap {
        self.map
    }

    /// Reads a sample off the model of a kernel, given the model that the sample was learned from.
    pub(crate) fn read(&self, kernel: usize, round: u64, before: &[f64], after: &[f64]) -> Reading {
        let step = self.step(round, before, after);
        let length = dot(&step, &step).sqrt();
        let reading = |along: f64| {
            let z: Vec<f64> = step.iter().map(|step| step / along).collect();
            let (x, misfit) = self.invert(kernel, &z);
            Reading { x: narrowed(&x), y: self.label(round, dot(before, &z), along), misfit }
        };
        let (plus, minus) = (reading(length), reading(-length));
        if plus.misfit <= minus.misfit { plus } else { minus }
    }

    /// What a step added to a model besides shrinking it.
    pub(crate) fn step(&self, round: u64, before: &[f64], after: &[f64]) -> Vec<f64> {
        let config = self.plan.config();
        let shrink = 1.0 - 2.0 * config.step_size.rate(round) * config.ridge;
        before.iter().zip(after).map(|(w, u)| u - shrink * w).collect()
    }

    /// The label behind a = −2η(ŷ − y).
    pub(crate) fn label(&self, round: u64, prediction: f64, along: f64) -> f32 {
        (prediction + along / (2.0 * self.plan.config().step_size.rate(round))) as f32
    }

    /// The frequencies of a kernel.
    pub(crate) fn frequencies(&self, kernel: usize) -> &[Vec<f64>] {
        self.of(kernel).0.rows()
    }

    fn of(&self, kernel: usize) -> &(Frequencies, Unwinder) {
        self.kernels[kernel].get_or_init(|| {
            let mut rows = frequencies(self.map, kernel);
            let all = Frequencies::new(rows.clone());
            // A few more equations than unknowns settle the turns.
            rows.truncate(2 * self.map.inputs() + 10);
            (all, Unwinder::new(Frequencies::new(rows)))
        })
    }

    /// The x whose features are nearest to z, and how near.
    fn invert(&self, kernel: usize, z: &[f64]) -> (Vec<f64>, f64) {
        let (all, few) = self.of(kernel);
        let rows = all.rows();
        let (sines, cosines) = z.split_at(rows.len());
        let angles: Vec<f64> =
            sines.iter().zip(cosines).map(|(sin, cos)| sin.atan2(*cos)).collect();
        let near = few.unwind(&angles);
        let unwound: Vec<f64> = rows
            .iter()
            .zip(&angles)
            .map(|(row, angle)| angle + TAU * ((dot(row, &near) - angle) / TAU).round())
            .collect();
        let (x, left) = all.fit(&unwound);
        (x, (dot(&left, &left) / left.len() as f64).sqrt())
    }
}

/// The frequencies of a kernel, measured on the map itself: features of a point so near to zero
/// that no angle has turned yet, then of points twice as far away, until the angles are as exact as
/// they are at 1.
fn frequencies(map: &FeatureMap, kernel: usize) -> Vec<Vec<f64>> {
    let per_kernel = map.model_len() / 2;
    let mut features = vec![0.0; map.width()];
    let mut rows = vec![vec![0.0; map.inputs()]; per_kernel];
    for input in 0..map.inputs() {
        for halvings in (0..=30).rev() {
            let distance = 0.5f32.powi(halvings);
            let mut x = vec![0.0; map.inputs()];
            x[input] = distance;
            let z = map.map(&x, &mut features).numbers();
            let z = &z[kernel * map.model_len()..][..map.model_len()];
            for (frequency, row) in rows.iter_mut().enumerate() {
                let angle = f64::from(z[frequency]).atan2(f64::from(z[per_kernel + frequency]));
                let expected = row[input] * f64::from(distance);
                let turns = ((expected - angle) / TAU).round();
                row[input] = (angle + TAU * turns) / f64::from(distance);
            }
        }
    }
    rows
}

/// As a node has it.
pub(crate) fn narrowed(x: &[f64]) -> Vec<f32> {
    x.iter().map(|x| *x as f32).collect()
}

/// A server that follows one node. It repeats the node's computation with the samples it reads, so
/// it knows all of the node's models.
pub(crate) struct Spy<'k> {
    knowledge: &'k Knowledge<'k>,
    copy: Box<dyn NodeMethod>,
}

impl<'k> Spy<'k> {
    pub(crate) fn new(knowledge: &'k Knowledge<'k>, node: u32) -> Self {
        Self { knowledge, copy: knowledge.plan.node_method(node) }
    }

    /// Reads the node's answer to a broadcast.
    pub(crate) fn read(
        &mut self,
        broadcast: &Broadcast,
        upload: &Upload,
    ) -> Result<Reading, Box<dyn Error>> {
        let Knowledge { map, .. } = self.knowledge;
        self.copy.adopt(broadcast)?;
        // Asked before it has learned, the copy says what the node started from.
        let mut before = Upload::default();
        self.copy.upload(&mut before);
        let (kernel, place) = uploaded(self.knowledge, broadcast).ok_or("nothing to read")?;
        let model = |upload: &Upload| -> Vec<f64> {
            upload.numbers[place..][..map.model_len()].iter().copied().map(f64::from).collect()
        };
        let reading = self.knowledge.read(kernel, broadcast.round, &model(&before), &model(upload));
        if reading.misfit < CONVINCING {
            let mut features = vec![0.0; map.width()];
            self.copy.learn(map.map(&reading.x, &mut features), reading.y)?;
        }
        Ok(reading)
    }
}

/// A kernel whose model the answers to a broadcast have, and where in the message; none for methods
/// that send something else.
pub(crate) fn uploaded(knowledge: &Knowledge<'_>, broadcast: &Broadcast) -> Option<(usize, usize)> {
    let Knowledge { map, plan, .. } = knowledge;
    match plan.method().name {
        "sk" => Some((plan.setup().kernel(), 0)),
        "mk" => Some((broadcast.kernels?.next as usize, 0)),
        // All of them: one in the middle will do.
        "naive" => Some((map.kernels() / 2, map.kernels() / 2 * map.model_len())),
        _ => None,
    }
}
