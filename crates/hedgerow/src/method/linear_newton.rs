//! A linear model, learned together by online Newton steps.
//!
//! As in `linear_sgd`, but a node that meets the gradient g of L at its model w takes A += g·gᵀ and
//! w −= c·A⁻¹g, with A = I at first (ONS of Hazan, Agarwal and Kale, with 1/γ = c). w is averaged
//! by the server as before, d + 1 numbers up and down; A never leaves the node.
//!
//! Interpretation of the paper. c is the constant of the setup's step size, whatever its schedule,
//! since A's growth makes the steps fall. The projection of ONS onto a bounded set is left out, but
//! for pulling back models that are longer than [`crate::limits::MAX_NORM`]. A is that of the
//! node's own samples, all of them, also of those whose upload didn't arrive. It is kept as L with
//! A = L·Lᵀ, which no rounding can spoil.
//!
//! Two rules keep steps short in directions that are met late. A step that would make the sample's
//! own loss larger is shortened until it doesn't. The I that A begins with is one in the present
//! scale: a change of scale takes the sums of A along, but leaves no pivot of L below one.

use alloc::vec::Vec;

use serde::Serialize;

use super::Setup;
use super::info::{Halves, Look, MethodInfo, row_bytes};
use super::linear_sgd;
use super::node_shell::{NodeRule, NodeShell};
use super::rows::Copies;
use super::server_shell::ServerShell;
use crate::codec::Section;
use crate::features::Features;
use crate::learning::loss::Objective;
use crate::limits::MAX_SUM;
use crate::linear_algebra::{Cholesky, write_bounded};
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::StateKind;

pub(super) static INFO: MethodInfo = MethodInfo {
    name: "linear-newton",
    aliases: &[],
    title: "Linear, Newton",
    summary: "a linear model, learned by online Newton steps and averaged",
    look: Look::dashed([0x33, 0x66, 0x66]),
    // Steps are so long that what bad nodes gain in a round grows on: three of twenty made the
    // error a thousand times as large.
    is_robust: false,
    memory: |setup| {
        let len = setup.linear_len();
        2 * row_bytes(len) + len * (4 * (len + 1) + 20)
    },
    halves: Some(Halves {
        node: |setup, _, _| NodeShell::boxed(setup, Node::new(setup)),
        server: |setup, _| {
            let kind = StateKind::new("linear-newton-server");
            ServerShell::averaging(setup, kind, linear_sgd::layout(setup))
        },
    }),
    ..linear_sgd::INFO
};

/// Least entry on the diagonal of L, far below what gradients make of it.
const SMALLEST_PIVOT: f64 = 1e-30;

struct Node {
    /// All but the curvature.
    plain: linear_sgd::Node,
    /// A, as its factor L.
    curvature: Cholesky,
    /// The gradient, the direction of the step, and the model after it; scratch.
    gradient: Vec<f64>,
    direction: Vec<f64>,
    stepped: Vec<f32>,
}

impl Node {
    fn new(setup: &Setup) -> Self {
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

impl NodeRule for Node {
    type State = (Copies, Cholesky);
    const KIND: StateKind = StateKind::new("linear-newton-node");

    fn width(&self) -> usize {
        self.plain.width()
    }

    fn predict(&self, z: Features<'_>) -> f32 {
        self.plain.predict(z)
    }

    fn learn(&mut self, _step: u64, z: Features<'_>, y: f32) {
        let Self { plain, curvature, gradient, direction, stepped } = self;
        let linear_sgd::Node { setup, state } = plain;
        let Objective { loss, ridge } = setup.objective();
        let slope = loss.slope(f64::from(state.local.predict(0, z)), f64::from(y));
        let numbers = state.local.numbers(0).zip(z.numbers());
        for (gradient, (w, z)) in gradient.iter_mut().zip(numbers) {
            *gradient = slope * f64::from(*z) + 2.0 * ridge * f64::from(w);
        }
        direction.copy_from_slice(gradient);
        curvature.add_square(gradient);
        curvature.solve(direction);
        // Along a direction that hasn't been met yet, A says too little to bound the step.
        let change: f64 =
            direction.iter().zip(z.numbers()).map(|(step, z)| step * f64::from(*z)).sum();
        let most = loss.longest_step() * slope.abs();
        let rate = setup.step_scale().min(most / change.abs());
        for (step, w) in direction.iter_mut().zip(state.local.numbers(0)) {
            *step = f64::from(w) - rate * *step;
        }
        // A damaged state may have a curvature that no gradients have; then there is no step.
        if direction.iter().all(|w| w.is_finite()) {
            write_bounded(direction, stepped);
            state.local.set(0, stepped);
        }
    }

    fn write(&self, round: u64, upload: &mut Upload) {
        self.plain.write(round, upload);
    }

    fn sections(&self, out: &mut Vec<Section>) {
        self.plain.sections(out);
    }

    fn check(&self, broadcast: &Broadcast) -> Result<(), Rejected> {
        self.plain.check(broadcast)
    }

    fn adopt(&mut self, broadcast: &Broadcast) {
        self.plain.adopt(broadcast);
    }

    fn norm2(&self) -> f64 {
        self.plain.norm2()
    }

    fn linear_model(&self, out: &mut [f64]) -> bool {
        self.plain.linear_model(out)
    }

    fn rescale(&mut self, rescaling: &Rescaling) {
        self.plain.rescale(rescaling);
        rescaling.apply_to_squares(&mut self.curvature);
        let len = self.plain.setup.linear_len();
        if !is_curvature(&self.curvature, len) {
            // Labels without a unit, or units of very different sizes: the curvature is useless.
            self.curvature = Cholesky::identity(len);
        }
    }

    fn state(&self) -> impl Serialize {
        (&self.plain.state, &self.curvature)
    }

    fn is_sound(&self, (state, curvature): &Self::State) -> bool {
        self.plain.is_sound(state) && is_curvature(curvature, self.plain.setup.linear_len())
    }

    fn restore(&mut self, (state, curvature): Self::State) {
        self.plain.restore(state);
        self.curvature = curvature;
    }
}

fn is_curvature(factor: &Cholesky, len: usize) -> bool {
    factor.is_sound(len, SMALLEST_PIVOT, MAX_SUM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::NodeMethod;
    use crate::scaling::Scale;
    use crate::{Plan, PlanConfig};

    #[test]
    fn a_curvature_that_leads_nowhere_leads_nowhere() {
        let plan = Plan::new(PlanConfig::default().inputs(7)).unwrap();
        let setup = plan.setup();
        let mut rule = Node::new(setup);
        for (at, row) in rule.curvature.rows_mut().enumerate() {
            row.fill(MAX_SUM);
            row[at] = SMALLEST_PIVOT;
        }
        let saved = NodeShell::new(setup, rule).save();
        let mut node = NodeShell::new(setup, Node::new(setup));
        node.restore(&saved).unwrap();
        // Backwards from the last input, every step is by far longer than the one before.
        let z = Features::checked(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]).unwrap();
        node.learn(z, 1e-35).unwrap();
        let mut upload = Upload::default();
        assert!(node.upload(&mut upload));
        assert_eq!(upload.numbers, [0.0; 8]);
    }

    #[test]
    fn a_step_in_a_new_direction_makes_the_sample_s_own_loss_smaller() {
        let plan = Plan::new(PlanConfig::default().inputs(2)).unwrap();
        let scale = |width: f64| Scale::from_ranges(&[(0.0, 1.0), (0.0, width), (0.0, 1.0)]);
        let rescaling = Rescaling::linear(&scale(1.0).unwrap(), &scale(1e6).unwrap());
        for (opens, y) in [(false, 0.01), (true, 0.01), (true, 2.0)] {
            let mut node = Node::new(plan.setup());
            (0..50).for_each(|_| node.learn(1, Features::made(&[1.0, 0.5, 0.0]), 0.5));
            if opens {
                node.rescale(&rescaling);
            }
            let z = Features::made(&[1.0, 0.5, 8.0]);
            let error = |node: &Node| (node.plain.state.local.predict(0, z) - y).abs();
            let before = error(&node);
            node.learn(1, z, y);
            assert!(error(&node) < before, "{opens} {y}: {} {before}", error(&node));
        }
    }

    #[test]
    fn a_wider_scale_takes_nothing_from_the_curvature_that_all_begin_with() {
        let plan = Plan::new(PlanConfig::default().inputs(1)).unwrap();
        let scale = |width: f64| Scale::from_ranges(&[(0.0, width), (0.0, 1.0)]).unwrap();
        let mut node = Node::new(plan.setup());
        node.rescale(&Rescaling::linear(&scale(1.0), &scale(1e6)));
        assert!(node.curvature.is_sound(2, 1.0, MAX_SUM), "{:?}", node.curvature);
    }
}
