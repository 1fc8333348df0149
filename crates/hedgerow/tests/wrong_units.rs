//! Fleets with online scaling in which one node has the wrong unit, or lies about what it has seen:
//! while it is there, and after it is gone.

#![allow(clippy::unwrap_used)]

use hedgerow::aggregation::Aggregation;
use hedgerow::message::{Report, ToServer};
use hedgerow::plan::Scaling;
use hedgerow::random::CounterRng;
use hedgerow::scaling::ScaleKind;
use hedgerow::{Node, Plan, PlanConfig, Server};

/// The node that is wrong is node 0.
const NODES: u32 = 20;
const INPUTS: usize = 2;
/// Rounds until the wrong node leaves, and rounds in all.
const ROUNDS: u64 = 300;
const LEAVES: u64 = 150;
/// Last rounds of each part, over which errors are taken.
const COUNTED: u64 = 75;

fn plan(method: &str, aggregation: Aggregation) -> PlanConfig {
    PlanConfig::default()
        .method(method.parse().unwrap())
        .aggregation(aggregation)
        .personal(false)
        .inputs(INPUTS)
        .nodes(NODES as usize)
        .scaling(Scaling::Online { kind: ScaleKind::Spread })
}

/// What node 0 does.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    /// It isn't there.
    Absent,
    /// It joins first, with 20 labels of about 1e11, and goes on like that.
    Unit,
    /// It joins when all others have their first scale, with one report.
    Report,
}

struct Fleet {
    server: Server,
    nodes: Vec<Node>,
    /// The last round of which each node's upload was taken.
    taken: Vec<u64>,
}

impl Fleet {
    fn new(config: PlanConfig) -> Self {
        let plan = Plan::new(config).unwrap();
        let nodes = (0..NODES).map(|id| plan.node(id)).collect();
        Self { server: plan.server(), nodes, taken: vec![0; NODES as usize] }
    }

    fn join(&mut self, id: u32) {
        let node = &mut self.nodes[id as usize];
        node.connected();
        self.server.connected(id);
        self.server.opening(0, false).for_each(|message| node.hear(&message).unwrap());
    }

    /// Nodes learn a sample each. Returns the sum of squared errors of all but node 0.
    fn round(&mut self, at: u64, ids: std::ops::Range<u32>) -> f64 {
        let mut sum = 0.0;
        for id in ids.clone() {
            let (x, mut y) = sample(at, id);
            if id == 0 {
                y = 1e11 * (1.0 + 0.1 * y);
            }
            let node = &mut self.nodes[id as usize];
            let answer = node.learn(&x, &[y]).unwrap();
            if id > 0 {
                sum += f64::from(answer.value - y).powi(2);
            }
            let (server, taken) = (&mut self.server, &mut self.taken[id as usize]);
            node.speak(false, |message| {
                if let (Ok(()), ToServer::Upload(upload)) = (server.accept(id, &message), message) {
                    *taken = upload.round;
                }
            });
        }
        self.close(ids);
        sum
    }

    fn close(&mut self, ids: std::ops::Range<u32>) {
        if !self.server.close_round().is_news() {
            return;
        }
        for id in ids {
            let node = &mut self.nodes[id as usize];
            let is_next = node.round() + 1 == self.server.round();
            let opening = self.server.opening(self.taken[id as usize], is_next);
            opening.for_each(|message| node.hear(&message).unwrap());
        }
    }

    /// Mean squared errors of the others: before node 0 leaves, and at the end.
    fn run(config: PlanConfig, wrong: Wrong) -> [f64; 2] {
        let mut fleet = Self::new(config);
        if wrong == Wrong::Unit {
            fleet.join(0);
            (0..20).for_each(|at| _ = fleet.round(1000 + at, 0..1));
        }
        (1..NODES).for_each(|id| fleet.join(id));
        let mut errors = [0.0; 2];
        for at in 0..ROUNDS {
            let is_there = wrong == Wrong::Unit && at < LEAVES;
            if wrong == Wrong::Report && at == 20 {
                fleet.server.accept_report(0, &lie()).unwrap();
            }
            if wrong != Wrong::Absent && at == LEAVES {
                assert!(fleet.server.forget_node(0));
            }
            let error = fleet.round(at, u32::from(!is_there)..NODES);
            let part = usize::from(at >= LEAVES);
            if (at + 1) % LEAVES == 0 || LEAVES - (at + 1) % LEAVES < COUNTED {
                errors[part] += error / (COUNTED * u64::from(NODES - 1)) as f64;
            }
        }
        errors
    }
}

/// Inputs and label of a node in a round.
fn sample(at: u64, id: u32) -> ([f32; INPUTS], f32) {
    let stream = CounterRng::from_seed(at);
    let x = [0, 1].map(|input| stream.uniform_at(INPUTS as u64 * u64::from(id) + input) as f32);
    (x, 3.0 + (3.0 * x[0]).sin() + (2.0 * x[1]).cos())
}

/// 60 bytes: a standard deviation of 1e-5 and a count of 1e15 in every column.
fn lie() -> Report {
    let column = |mean: f32| [1e15, mean, 1e-5, mean - 1e-4, mean + 1e-4];
    Report { numbers: [0.5, 0.5, 4.0].map(column).concat() }
}

const METHODS: [(&str, Aggregation); 4] = [
    ("gr", Aggregation::Mean),
    ("tr", Aggregation::Mean),
    ("mk", Aggregation::Mean),
    ("mk", Aggregation::Median),
];

#[test]
fn labels_in_a_wrong_unit_are_forgotten_with_their_node() {
    for (method, aggregation) in METHODS {
        let quiet = Fleet::run(plan(method, aggregation), Wrong::Absent);
        let wrong = Fleet::run(plan(method, aggregation), Wrong::Unit);
        println!("{method} {aggregation}: {quiet:?} {wrong:?}");
    }
}

#[test]
fn one_report_moves_little() {
    for (method, aggregation) in METHODS {
        let quiet = Fleet::run(plan(method, aggregation), Wrong::Absent);
        let wrong = Fleet::run(plan(method, aggregation), Wrong::Report);
        println!("{method} {aggregation}: {quiet:?} {wrong:?}");
    }
}

#[test]
fn a_scale_that_was_nonsense_is_replaced_and_learning_begins_anew() {
    for (method, aggregation) in METHODS {
        let quiet = Fleet::run(plan(method, aggregation), Wrong::Absent);
        let wrong = Fleet::run(plan(method, aggregation).scale_nodes(1), Wrong::Unit);
        println!("{method} {aggregation}: {quiet:?} {wrong:?}");
    }
}
