//! TR-OFL: what its units do once they have begun.

#![allow(clippy::unwrap_used)]

use hedgerow::features::Features;
use hedgerow::learning::Loss;
use hedgerow::message::{Broadcast, Rejected, Upload};
use hedgerow::method::find;
use hedgerow::random::CounterRng;
use hedgerow::scaling::Scale;
use hedgerow::testing::check_method_after;
use hedgerow::{NodeMethod, Plan, PlanConfig, ServerMethod};

use crate::common::{TR_TAIL, features};

const NODES: usize = 5;
const INPUTS: usize = 2;

/// Rounds after which units have begun in these tests.
const BEGUN: u64 = 120;

fn plan() -> PlanConfig {
    PlanConfig::default()
        .personal(false)
        .method("tr".parse().unwrap())
        .inputs(INPUTS)
        .nodes(NODES)
        .budget(40)
}

struct World {
    /// The label's unit.
    unit: f32,
    plan: Plan,
    nodes: Vec<Box<dyn NodeMethod>>,
    server: Box<dyn ServerMethod>,
}

impl World {
    fn new(config: PlanConfig) -> Self {
        let plan = Plan::new(config).unwrap();
        let nodes = (0..NODES as u32).map(|id| plan.node_method(id)).collect();
        let server = plan.server_method();
        Self { unit: 1.0, plan, nodes, server }
    }

    fn after(config: PlanConfig, rounds: u64) -> Self {
        let mut world = Self::new(config);
        (0..rounds).for_each(|t| _ = world.round(t));
        world
    }

    fn x(&self, node: usize, t: u64) -> Vec<f32> {
        let noise = CounterRng::from_seed(100 * t + node as u64);
        (0..self.plan.inputs() as u64).map(|at| noise.uniform_at(at) as f32).collect()
    }

    fn sample(&self, node: usize, t: u64) -> (Vec<f32>, f32) {
        let x = self.x(node, t);
        let y = (9.0 * x[0] + 5.0 * x[1]).sin() + x[0];
        let y = match self.plan.config().loss {
            Loss::Logistic => (y - 0.5).signum(),
            _ => self.unit * y,
        };
        (features(self.plan.map(), &x), y)
    }

    fn predict(&self, node: &dyn NodeMethod, t: u64) -> f32 {
        node.predict(Features::checked(&self.sample(0, t).0).unwrap())
    }

    fn learn(&mut self, node: usize, t: u64) -> f32 {
        let (z, y) = self.sample(node, t);
        let z = Features::checked(&z).unwrap();
        let error = self.nodes[node].predict(z) - y;
        self.nodes[node].learn(z, y).unwrap();
        error * error
    }

    fn send(&mut self, node: usize) {
        let mut upload = Upload::default();
        if self.nodes[node].upload(&mut upload) {
            assert!(upload.numbers.len() <= self.plan.config().budget);
            self.server.accept(node as u32, &upload).unwrap();
        }
    }

    /// A round of all nodes; the mean squared error.
    fn round(&mut self, t: u64) -> f32 {
        let mut sum = 0.0;
        for node in 0..NODES {
            sum += self.learn(node, t);
            self.send(node);
        }
        let broadcast = self.server.close_round();
        self.nodes.iter_mut().for_each(|node| node.adopt(broadcast).unwrap());
        sum / NODES as f32
    }

    /// Units in use.
    fn units(&self) -> Option<usize> {
        let numbers = &self.server.broadcast().numbers;
        (numbers[numbers.len() - TR_TAIL + 2] as usize).checked_sub(1)
    }
}

#[test]
fn units_beat_the_ridge_that_they_grow_from() {
    let error = |method: &str| {
        let mut world = World::new(plan().method(method.parse().unwrap()));
        let errors: Vec<f32> = (0..400).map(|t| world.round(t)).collect();
        errors[300..].iter().sum::<f32>() / 100.0
    };
    let (tr, gr) = (error("tr"), error("gr"));
    assert!(tr < 0.2 * gr, "{tr} against {gr}");
}

#[test]
fn labels_of_every_size_are_learned_alike() {
    let error = |unit: f32| {
        let mut world = World { unit, ..World::new(plan()) };
        (0..200).map(|t| f64::from(world.round(t) / unit / unit)).sum::<f64>()
    };
    // Powers of two about 1e6 and 1e-6: numbers are rounded alike.
    let usual = error(1.0);
    for unit in [1_048_576.0, 1.0 / 1_048_576.0] {
        let found = error(unit);
        assert!((found / usual - 1.0).abs() < 1e-3, "{unit}: {found} against {usual}");
    }
}

#[test]
fn a_memory_of_64_samples_is_enough_for_units() {
    let least = 64 * 4 * (INPUTS + 4);
    let error = |memory: usize| {
        let mut world = World::new(plan().memory(memory));
        (0..400).map(|t| world.round(t)).sum::<f32>()
    };
    let (little, none) = (error(least), error(0));
    assert!(little < 0.5 * none, "{little} against {none}");
}

#[test]
fn the_laws_hold_with_units_in_use() {
    assert!(World::after(plan(), BEGUN).units() > Some(0));
    for loss in [Loss::Squared, Loss::Huber { delta: 0.2 }] {
        // A memory that is full, and one that isn't.
        for memory in [1_000_000, 16_000] {
            let config = plan().loss(loss).memory(memory);
            check_method_after(find("tr").unwrap(), config, BEGUN);
        }
    }
    // Inputs that are projected.
    check_method_after(find("tr").unwrap(), plan().inputs(30), BEGUN);
}

#[test]
fn without_memory_there_are_no_units() {
    assert_eq!(World::after(plan().memory(0), BEGUN).units(), None);
}

#[test]
fn a_missed_broadcast_is_told_and_made_good() {
    let mut world = World::after(plan(), BEGUN);
    let mut absent = world.plan.node_method(0);
    absent.restore(&world.nodes[0].save()).unwrap();
    for t in BEGUN..BEGUN + 5 {
        // The same samples, so that they remember the same.
        let (z, y) = world.sample(0, t);
        absent.learn(Features::checked(&z).unwrap(), y).unwrap();
        world.round(t);
    }
    let before = absent.save();
    let refused = absent.adopt(world.server.broadcast());
    let (round, found) = (BEGUN + 1, BEGUN + 6);
    assert_eq!(refused, Err(Rejected::MissedBroadcast { round, found }));
    assert_eq!(absent.save(), before);
    absent.adopt(&world.server.catch_up()).unwrap();
    for t in 500..520 {
        let (found, expected) = (world.predict(&*absent, t), world.predict(&*world.nodes[0], t));
        assert_eq!(found.to_bits(), expected.to_bits());
    }
    // What it uploads is the same, but for the rounding of sums, unless GR-OFL asks for moves that
    // it doesn't know.
    let (mut found, mut expected) = (Upload::default(), Upload::default());
    absent.upload(&mut found);
    world.nodes[0].upload(&mut expected);
    assert_eq!(found.numbers.len(), expected.numbers.len());
}

#[test]
fn broadcasts_of_the_wrong_units_are_refused() {
    let mut world = World::after(plan(), BEGUN);
    // Steps of the output block may have several lengths.
    let step = |world: &World| {
        let numbers = &world.server.broadcast().numbers;
        numbers[numbers.len() - TR_TAIL + 5]
    };
    let mut t = BEGUN;
    while step(&world) < 2.0 {
        world.round(t);
        t += 1;
    }
    let whole = world.server.catch_up().into_owned();
    let next = |numbers: Vec<f32>| Broadcast { round: whole.round + 1, kernels: None, numbers };
    let before = world.nodes[0].save();
    let tail = whole.numbers.len() - TR_TAIL;
    for (at, values) in [
        // Form, what is asked for, units, weight, share, the step's block, GR-OFL's shape.
        (0, &[5.0, -1.0, 0.5][..]),
        (1, &[99.0, 0.5]),
        (2, &[2.0, 60.0, 0.0]),
        (3, &[1.5, -0.1]),
        (4, &[1.5, -0.1]),
        (5, &[99.0]),
        (6, &[0.0, 1.0, 99.0]),
        (7, &[-1.0, 1e9]),
        (8, &[3.0]),
        (9, &[4.0]),
    ] {
        for value in values {
            let mut numbers = whole.numbers.clone();
            numbers[tail + at] = *value;
            assert!(world.nodes[0].adopt(&next(numbers)).is_err(), "{at}: {value}");
        }
    }
    for len in 0..whole.numbers.len() {
        let numbers = [&whole.numbers[..len.saturating_sub(TR_TAIL)], &whole.numbers[tail..]];
        assert!(world.nodes[0].adopt(&next(numbers.concat())).is_err(), "{len}");
    }
    assert_eq!(world.nodes[0].save(), before);
    world.nodes[0].adopt(&next(whole.numbers.clone())).unwrap();
}

#[test]
fn units_follow_a_change_of_scale() {
    let scale = |inputs: [(f64, f64); 2], label: (f64, f64)| {
        Scale::from_ranges(&[inputs[0], inputs[1], label]).unwrap()
    };
    let mut world = World::after(plan(), 300);
    assert!(world.units() > Some(0));
    let from = scale([(0.0, 1.0); 2], (0.0, 1.0));
    // Only labels: f₀ and the units are converted exactly.
    let to = scale([(0.0, 1.0); 2], (0.0, 4.0));
    let rescaling = world.plan.map().rescaling(&from, &to);
    let before: Vec<f32> = (500..520).map(|t| world.predict(&*world.nodes[0], t)).collect();
    world.nodes.iter_mut().for_each(|node| node.rescale(&rescaling));
    world.server.rescale(&rescaling);
    for (t, before) in (500..520).zip(&before) {
        let after = 4.0 * world.predict(&*world.nodes[0], t);
        assert!((before - after).abs() < 1e-4, "{before}, {after}");
    }
    // A newcomer gets the same.
    let mut newcomer = world.plan.node_method(99);
    newcomer.adopt(&world.server.catch_up()).unwrap();
    for t in 500..520 {
        let [found, expected] =
            [&newcomer, &world.nodes[0]].map(|node| world.predict(node.as_ref(), t));
        assert!((found - expected).abs() < 0.02, "{found}, {expected}");
    }
    let units = world.units();
    for node in 0..NODES {
        let (z, y) = world.sample(node, 300);
        world.nodes[node].learn(Features::checked(&z).unwrap(), y / 4.0).unwrap();
        world.send(node);
    }
    let broadcast = world.server.close_round();
    world.nodes.iter_mut().for_each(|node| node.adopt(broadcast).unwrap());
    assert!(world.units() >= units);
}

#[test]
fn sums_of_a_full_memory_are_those_of_what_is_left() {
    // After an upload, the same sums are made from the memory as a whole.
    let mut world = World::after(plan().memory(6_400), 200);
    assert!(world.units().is_some());
    for t in 200..230 {
        for node in 0..NODES {
            world.learn(node, t);
        }
        let mut upload = Upload::default();
        world.nodes[0].upload(&mut upload);
        // It catches up with the round that it is in: everything is made anew.
        let mut anew = world.plan.node_method(0);
        anew.restore(&world.nodes[0].save()).unwrap();
        anew.forget_round();
        anew.adopt(&world.server.catch_up()).unwrap();
        let mut expected = Upload::default();
        anew.upload(&mut expected);
        let told = &world.server.broadcast().numbers;
        let is_block = told[told.len() - TR_TAIL + 1] >= 2.0;
        let scale = expected.numbers.iter().fold(1e-3f32, |most, number| most.max(number.abs()));
        // The last three are of the round only, which begins anew.
        let known = upload.numbers.len() - 3;
        let pairs = upload.numbers[..known].iter().zip(&expected.numbers[..known]);
        for (at, (found, expected)) in pairs.enumerate().filter(|_| is_block) {
            assert!((found - expected).abs() < 1e-4 * scale, "{t}, {at}: {found} {expected}");
        }
        (0..NODES).for_each(|node| world.send(node));
        let broadcast = world.server.close_round();
        world.nodes.iter_mut().for_each(|node| node.adopt(broadcast).unwrap());
    }
}

#[test]
fn a_node_that_forgets_its_samples_keeps_what_it_has_learned() {
    for rounds in [20, BEGUN] {
        let mut world = World::after(plan(), rounds);
        let (before, size) = (world.predict(&*world.nodes[0], 999), world.nodes[0].save().len());
        assert_eq!(world.nodes[0].forget_samples(), rounds as usize);
        assert_eq!(world.nodes[0].forget_samples(), 0);
        let saved = world.nodes[0].save();
        // Two inputs and a label at least.
        assert!(saved.len() + 12 * rounds as usize <= size, "{} of {size}", saved.len());
        let mut restored = world.plan.node_method(0);
        restored.restore(&saved).unwrap();
        for node in [&*world.nodes[0], &*restored] {
            assert_eq!(world.predict(node, 999).to_bits(), before.to_bits());
        }
        world.nodes[0] = restored;
        (rounds..rounds + 20).for_each(|t| assert!(world.round(t).is_finite()));
        assert_eq!(world.nodes[0].forget_samples(), 20);
    }
}

/// Share of wrong classes and mean log loss of predictions that are made before the label is seen.
fn class_errors(method: &str, rounds: std::ops::Range<u64>) -> (f64, f64) {
    let config = plan().method(method.parse().unwrap()).loss(Loss::Logistic);
    let mut world = World::after(config, rounds.start);
    let (mut wrong, mut loss, mut count) = (0.0, 0.0, 0.0);
    for t in rounds {
        for node in 0..NODES {
            let (z, y) = world.sample(node, t);
            let says = world.nodes[node].predict(Features::checked(&z).unwrap());
            assert!(says.abs() <= 20.0, "{method}: log-odds of {says}");
            wrong += f64::from(u8::from(says * y <= 0.0));
            loss += Loss::Logistic.value(f64::from(says), f64::from(y));
            count += 1.0;
        }
        world.round(t);
    }
    (wrong / count, loss / count)
}

#[test]
fn classes_are_learned_as_log_odds() {
    let [gr, tr] = ["gr", "tr"].map(|method| class_errors(method, 300..500));
    assert!(gr.0 < 0.45 && gr.1 < 0.68, "chance has 0.5 and 0.69: {gr:?}");
    assert!(tr.0 < 0.6 * gr.0 && tr.1 < 0.6 * gr.1, "{tr:?} against {gr:?}");
}

#[test]
fn a_node_that_comes_back_counts_once_in_a_block() {
    let mut world = World::after(plan(), BEGUN);
    let asked = |world: &World| {
        let numbers = &world.server.broadcast().numbers;
        numbers[numbers.len() - TR_TAIL + 1]
    };
    let mut t = BEGUN;
    while asked(&world) < 2.0 {
        world.round(t);
        t += 1;
    }
    // Only node 0 is heard, so that the block is asked for again; it misses that broadcast.
    let (block, round) = (asked(&world), world.server.broadcast().round);
    world.learn(0, t);
    world.send(0);
    world.server.close_round();
    assert_eq!(asked(&world), block);
    let whole = world.server.catch_up();
    assert!(whole.numbers.len() > world.server.broadcast().numbers.len());
    world.nodes[0].acknowledge(round);
    world.nodes[0].adopt(&whole).unwrap();
    world.learn(0, t + 1);
    let mut upload = Upload::default();
    assert!(world.nodes[0].upload(&mut upload));
    // All but the three numbers of the round itself was told before.
    let told = &upload.numbers[..upload.numbers.len() - 3];
    assert!(told.iter().all(|number| *number == 0.0), "{told:?}");
}
