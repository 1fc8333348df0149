//! A method outside the `hedgerow` crate: a linear model with a step size for each input (AdaGrad).
//!
//! A node predicts wᵀz with z = (1, x) and the global model w. After each sample it adds the
//! squared gradient of every coefficient to a sum and moves that coefficient by its gradient
//! divided by the root of its sum: inputs that are rarely different from zero learn as fast as the
//! others. Nodes upload w, and the server broadcasts the mean. The sums never leave the node.
//!
//! Hand [`ADAGRAD`] to [`hedgerow::Plan::with_methods`] and name it in the plan:
//!
//! ```
//! use hedgerow::{Federation, Plan, PlanConfig};
//!
//! let config = PlanConfig::default().method("adagrad".parse()?).inputs(3).nodes(4);
//! let plan = Plan::with_methods(config, &[&own_method::ADAGRAD])?;
//! let federation = Federation::new(&plan);
//! # assert_eq!(federation.nodes().len(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use hedgerow::codec::{Kind, Section};
use hedgerow::features::Features;
use hedgerow::limits::MAX_NORM;
use hedgerow::message::{Broadcast, Rejected, Upload};
use hedgerow::method::{
    BroadcastLayout, FeatureKind, Halves, Layout, MethodInfo, NodeRule, NodeShell, ServerShell,
    Setup, check_broadcast,
};
use hedgerow::scaling::Rescaling;
use hedgerow::state::StateKind;
use serde::{Deserialize, Serialize};

/// The description of the method: all that Hedgerow has to know about it.
pub static ADAGRAD: MethodInfo = MethodInfo {
    name: "adagrad",
    title: "Linear, AdaGrad",
    summary: "a linear model with a step size for each input, averaged",
    features: FeatureKind::Inputs,
    layout,
    memory: |setup| 16 * setup.linear_len(),
    halves: Some(Halves {
        node: |setup, _, _| Box::new(NodeShell::new(setup, Node::new(setup))),
        server: |setup, _| {
            ServerShell::averaging(setup, StateKind::new("adagrad-server"), layout(setup))
        },
    }),
    ..MethodInfo::BASE
};

fn layout(setup: &Setup) -> Layout {
    Layout::of_models(BroadcastLayout::Inputs { len: setup.linear_len() })
}

struct Node {
    setup: Setup,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// The model of the last broadcast.
    global: Vec<f32>,
    /// The same after the steps since.
    local: Vec<f32>,
    /// The sum of squared gradients of each coefficient.
    squares: Vec<f64>,
}

/// What is added to the root of a sum of squares, so that the first step is finite.
const SMALLEST_ROOT: f64 = 1e-8;

impl Node {
    fn new(setup: &Setup) -> Self {
        let len = setup.linear_len();
        let state =
            State { global: vec![0.0; len], local: vec![0.0; len], squares: vec![0.0; len] };
        Self { setup: *setup, state }
    }
}

fn dot(model: &[f32], z: Features<'_>) -> f64 {
    model.iter().zip(z.numbers()).map(|(w, z)| f64::from(*w) * f64::from(*z)).sum()
}

fn norm2(model: &[f32]) -> f64 {
    model.iter().map(|w| f64::from(*w) * f64::from(*w)).sum()
}

impl NodeRule for Node {
    type State = State;
    const KIND: StateKind = StateKind::new("adagrad-node");

    fn width(&self) -> usize {
        self.setup.linear_len()
    }

    fn predict(&self, z: Features<'_>) -> f32 {
        dot(&self.state.global, z) as f32
    }

    fn learn(&mut self, _step: u64, z: Features<'_>, y: f32) {
        let objective = self.setup.objective();
        let State { local, squares, .. } = &mut self.state;
        let slope = objective.loss.slope(dot(local, z), f64::from(y));
        let rate = self.setup.step_scale();
        for ((w, square), z) in local.iter_mut().zip(squares).zip(z.numbers()) {
            let gradient = slope * f64::from(*z) + 2.0 * objective.ridge * f64::from(*w);
            *square = (*square + gradient * gradient).min(1e60);
            let step = rate * gradient / (square.sqrt() + SMALLEST_ROOT);
            *w = (f64::from(*w) - step).clamp(-1e12, 1e12) as f32;
        }
    }

    fn write(&self, _round: u64, upload: &mut Upload) {
        upload.numbers.extend_from_slice(&self.state.local);
    }

    fn sections(&self, out: &mut Vec<Section>) {
        out.push(Section { len: self.setup.linear_len(), kind: Kind::Model { slot: 0 } });
    }

    fn check(&self, broadcast: &Broadcast) -> Result<(), Rejected> {
        check_broadcast(broadcast, self.setup.linear_len())
    }

    fn adopt(&mut self, broadcast: &Broadcast) {
        self.state.global.clone_from(&broadcast.numbers);
        self.state.local.clone_from(&broadcast.numbers);
    }

    fn norm2(&self) -> f64 {
        norm2(&self.state.global)
    }

    fn rescale(&mut self, rescaling: &Rescaling) {
        rescaling.apply_linear(&mut self.state.global);
        rescaling.apply_linear(&mut self.state.local);
        // Gradients have another unit from here on.
        self.state.squares.fill(0.0);
    }

    fn state(&self) -> impl Serialize {
        &self.state
    }

    fn is_sound(&self, state: &State) -> bool {
        let len = self.setup.linear_len();
        let is_model = |model: &[f32]| {
            model.len() == len && norm2(model) <= f64::from(MAX_NORM) * f64::from(MAX_NORM)
        };
        is_model(&state.global)
            && is_model(&state.local)
            && state.squares.len() == len
            && state.squares.iter().all(|square| (0.0..=1e60).contains(square))
    }

    fn restore(&mut self, state: State) {
        self.state = state;
    }
}
