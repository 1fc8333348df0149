//! A linear model, learned together by online Newton steps.
//!
//! As in `linear_sgd`, but a node that meets the gradient g of L at its model w takes A += g·gᵀ and
//! w −= c·A⁻¹g, with A = I at first (ONS of Hazan, Agarwal and Kale, with 1/γ = c). w is averaged
//! by the server as before, d + 1 numbers up and down; A never leaves the node.
//!
//! Readings taken. c is the constant of the setup's step size, whatever its schedule, since A's
//! growth makes the steps fall. The projection of ONS onto a bounded set is left out, but for
//! pulling back models that are longer than [`crate::limits::MAX_NORM`]. A is that of the node's
//! own samples, all of them, also of those whose upload didn't arrive. It is kept as L with A =
//! L·Lᵀ, which no rounding can spoil.

use super::linear_sgd::{self, NodeState};
use super::rows::write_pulled_back;
use super::{BadSample, NodeMethod, Setup, check_width};
use crate::codec::Section;
use crate::features::Features;
use crate::learning::loss::Objective;
use crate::linear::Cholesky;
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::{BadState, restore_state, save_state};

const KIND: &str = "linear-newton-node";

/// Bounds of L, far from what gradients make of it.
const SMALLEST_PIVOT: f64 = 1e-30;
const LARGEST_ENTRY: f64 = 1e60;

pub(super) struct Node {
    /// All but the curvature.
    plain: linear_sgd::Node,
    /// A, as its factor L.
    curvature: Cholesky,
    /// The gradient at hand, where it leads, and the model there; scratch.
    gradient: Vec<f64>,
    direction: Vec<f64>,
    stepped: Vec<f32>,
}

impl Node {
    pub(super) fn new(setup: &Setup) -> Self {
        let len = setup.linear_len();
        Self {
            plain: linear_sgd::Node::new(setup),
            curvature: Cholesky::identity(len),
            gradient: vec![0.0; len],
            direction: vec![0.0; len],
            stepped: vec![0.0; len],
        }
    }
}

impl NodeMethod for Node {
    fn predict(&self, z: Features<'_>) -> f32 {
        self.plain.predict(z)
    }

    fn learn(&mut self, z: Features<'_>, y: f32) -> Result<(), BadSample> {
        let Self {
            plain: linear_sgd::Node { setup, state },
            curvature,
            gradient,
            direction,
            stepped,
        } = self;
        setup.check_label(y)?;
        check_width(z, setup.linear_len())?;
        let Objective { loss, ridge } = setup.objective();
        let slope = loss.slope(f64::from(state.local.predict(0, z)), f64::from(y));
        let numbers = state.local.numbers(0).zip(z.numbers());
        for (gradient, (w, z)) in gradient.iter_mut().zip(numbers) {
            *gradient = slope * f64::from(*z) + 2.0 * ridge * f64::from(w);
        }
        direction.copy_from_slice(gradient);
        curvature.add_square(gradient);
        curvature.solve(direction);
        let rate = setup.config.step_size.scale();
        for (step, w) in direction.iter_mut().zip(state.local.numbers(0)) {
            *step = f64::from(w) - rate * *step;
        }
        // A damaged state may have a curvature that no gradients have; then there is no step.
        if direction.iter().all(|w| w.is_finite()) {
            write_pulled_back(direction, stepped);
            state.local.set(0, stepped);
        }
        state.learned += 1;
        Ok(())
    }

    fn upload(&self, out: &mut Upload) -> bool {
        self.plain.upload(out)
    }

    fn sections(&self, out: &mut Vec<Section>) {
        self.plain.sections(out);
    }

    fn adopt(&mut self, broadcast: &Broadcast) -> Result<(), Rejected> {
        self.plain.adopt(broadcast)
    }

    fn forget_round(&mut self) {
        self.plain.forget_round();
    }

    fn round(&self) -> u64 {
        self.plain.round()
    }

    fn weights(&self, out: &mut [f64]) {
        self.plain.weights(out);
    }

    fn norm2(&self) -> f64 {
        self.plain.norm2()
    }

    fn transport(&mut self, transport: &Rescaling) {
        self.plain.transport(transport);
        transport.apply_to_squares(&mut self.curvature);
        let len = self.plain.setup.linear_len();
        if !is_curvature(&self.curvature, len) {
            // Labels without a unit, or inputs whose units are worlds apart: what was known is of
            // no use.
            self.curvature = Cholesky::identity(len);
        }
    }

    fn save(&self) -> Vec<u8> {
        save_state(KIND, &(&self.plain.state, &self.curvature))
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let len = self.plain.setup.linear_len();
        let is_sound = |(state, curvature): &(NodeState, Cholesky)| {
            state.is_sound(len) && is_curvature(curvature, len)
        };
        (self.plain.state, self.curvature) = restore_state(KIND, saved, is_sound)?;
        Ok(())
    }
}

fn is_curvature(factor: &Cholesky, len: usize) -> bool {
    factor.is_sound(len, SMALLEST_PIVOT, LARGEST_ENTRY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::SetupConfig;

    #[test]
    fn a_curvature_that_leads_nowhere_leads_nowhere() {
        let setup = Setup::try_from(SetupConfig { inputs: 7, ..SetupConfig::default() }).unwrap();
        let mut node = Node::new(&setup);
        for (at, row) in node.curvature.rows_mut().enumerate() {
            row.fill(LARGEST_ENTRY);
            row[at] = SMALLEST_PIVOT;
        }
        let saved = node.save();
        node.restore(&saved).unwrap();
        // Backwards from the last input, every step is by far longer than the one before.
        let z = Features::checked(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]).unwrap();
        node.learn(z, 1e-35).unwrap();
        let mut upload = Upload::default();
        assert!(node.upload(&mut upload));
        assert_eq!(upload.numbers, [0.0; 8]);
    }
}
