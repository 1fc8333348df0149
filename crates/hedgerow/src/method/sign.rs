//! A linear model, learned together by steps along the signs of gradients.
//!
//! As in `linear_sgd`, but a node that meets the gradient g of L at its model w takes
//! w −= η·sign(g), with sign(0) = 0: all coefficients with a gradient move equally far, whatever
//! its size, so an outlier moves the model no further than any other sample. w is averaged by the
//! server as before, d + 1 numbers up and down.
//!
//! Interpretation. η is the setup's η_l divided by d + 1 as in `linear_sgd`: one step changes the
//! prediction for inputs of size one by at most η_l. Steps have no unit, so labels must be of the
//! order of one, which scaling provides; steps that don't fall stay as far from the best model as
//! they are long.

use alloc::vec::Vec;

use serde::Serialize;

use super::Setup;
use super::info::{Dash, Halves, Look, MethodInfo, row_bytes};
use super::linear_sgd;
use super::node_shell::{NodeRule, NodeShell};
use super::rows::Copies;
use super::server_shell::ServerShell;
use crate::codec::Section;
use crate::features::Features;
use crate::learning::loss::Objective;
use crate::linear_algebra::write_bounded;
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::StateKind;

pub(super) static INFO: MethodInfo = MethodInfo {
    name: "sign",
    aliases: &[],
    title: "Linear, sign",
    summary: "a linear model, learned by steps along the signs of gradients and averaged",
    look: Look { dash: Dash::Dots, ..Look::solid([0x33, 0x66, 0x66]) },
    memory: |setup| {
        let len = setup.linear_len();
        2 * row_bytes(len) + 12 * len
    },
    halves: Some(Halves {
        node: |setup, _| NodeShell::boxed(setup, Node::new(setup)),
        server: |setup| {
            let kind = StateKind::new("sign-server");
            ServerShell::averaging(setup, kind, linear_sgd::layout(setup))
        },
    }),
    ..linear_sgd::INFO
};

struct Node {
    /// All but the step.
    plain: linear_sgd::Node,
    /// The model after the step, before and after rounding; scratch.
    wide: Vec<f64>,
    stepped: Vec<f32>,
}

impl Node {
    fn new(setup: &Setup) -> Self {
        let len = setup.linear_len();
        Self { plain: linear_sgd::Node::new(setup), wide: vec![0.0; len], stepped: vec![0.0; len] }
    }
}

impl NodeRule for Node {
    type State = Copies;
    const KIND: StateKind = StateKind::new("sign-node");

    fn width(&self) -> usize {
        self.plain.width()
    }

    fn predict(&self, z: Features<'_>) -> f32 {
        self.plain.predict(z)
    }

    fn learn(&mut self, step: u64, z: Features<'_>, y: f32) {
        let Self { plain: linear_sgd::Node { setup, state }, wide, stepped } = self;
        let Objective { loss, ridge } = setup.objective();
        let slope = loss.slope(f64::from(state.local.predict(0, z)), f64::from(y));
        let rate = setup.step_size(step) / setup.linear_len() as f64;
        for (wide, (w, z)) in wide.iter_mut().zip(state.local.numbers(0).zip(z.numbers())) {
            let gradient = slope * f64::from(*z) + 2.0 * ridge * f64::from(w);
            *wide = f64::from(w) - rate * sign(gradient);
        }
        write_bounded(wide, stepped);
        state.local.set(0, stepped);
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

    fn rescale(&mut self, rescaling: &Rescaling) {
        self.plain.rescale(rescaling);
    }

    fn state(&self) -> impl Serialize {
        &self.plain.state
    }

    fn is_sound(&self, state: &Self::State) -> bool {
        self.plain.is_sound(state)
    }

    fn restore(&mut self, state: Self::State) {
        self.plain.restore(state);
    }
}

/// −1, 0 or 1. `f64::signum` has no zero.
fn sign(number: f64) -> f64 {
    if number == 0.0 { 0.0 } else { number.signum() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learning::Schedule;
    use crate::method::NodeMethod;
    use crate::{Plan, PlanConfig};

    #[test]
    fn steps_are_equally_long_and_skip_inputs_without_a_gradient() {
        let config = PlanConfig::default().inputs(3).ridge(0.0);
        let plan = Plan::new(config.step_size(Schedule::Constant { scale: 1.0 })).unwrap();
        let mut node = NodeShell::new(plan.setup(), Node::new(plan.setup()));
        let z = Features::checked(&[1.0, 0.001, 0.0, -30.0]).unwrap();
        let mut upload = Upload::default();
        // The size of the error doesn't matter either.
        node.learn(z, 1e-3).unwrap();
        assert!(node.upload(&mut upload));
        assert_eq!(upload.numbers, [0.25, 0.25, 0.0, -0.25]);
        node.learn(z, 1e12).unwrap();
        assert!(node.upload(&mut upload));
        assert_eq!(upload.numbers, [0.5, 0.5, 0.0, -0.5]);
    }
}
