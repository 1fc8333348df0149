//! How GR-OFL and TR-OFL forget: a rival of the model, a trial, and an order to all nodes. Streams
//! that change, streams that don't, nodes that lie, join late or miss it, states saved in the
//! middle, and changes of scale.

#![allow(clippy::unwrap_used)]

use hedgerow::features::Features;
use hedgerow::message::{Rejected, Upload};
use hedgerow::random::CounterRng;
use hedgerow::scaling::Scale;
use hedgerow::{NodeMethod, Plan, PlanConfig, ServerMethod};

use crate::common::{TR_TAIL, features};

const NODES: usize = 10;
const INPUTS: usize = 2;

/// The share of the second function in a round.
type Course = fn(u64) -> f32;

/// What a round is about, as the last number of GR-OFL's broadcast tells.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Usual,
    Check,
    Rival,
    Trial,
}

/// Nodes that learn a stream of one function that turns into another.
struct World {
    plan: Plan,
    nodes: Vec<Box<dyn NodeMethod>>,
    server: Box<dyn ServerMethod>,
    course: Course,
    /// One label in so many is wild.
    wild: Option<u64>,
}

impl World {
    fn new(method: &str, course: Course) -> Self {
        let config = PlanConfig::default().method(method.parse().unwrap()).personal(false);
        let plan = Plan::new(config.inputs(INPUTS).nodes(NODES).budget(40).seed(3)).unwrap();
        let nodes = (0..NODES as u32).map(|id| plan.node_method(id)).collect();
        let server = plan.server_method();
        Self { plan, nodes, server, course, wild: None }
    }

    fn after(method: &str, course: Course, rounds: u64) -> Self {
        let mut world = Self::new(method, course);
        (0..rounds).for_each(|t| _ = world.round(t));
        world
    }

    fn sample(&self, node: usize, t: u64) -> (Vec<f32>, f32) {
        let noise = CounterRng::from_seed(100 * t + node as u64);
        let uniform = |at| noise.uniform_at(at) as f32;
        let x = [uniform(0), uniform(1)];
        let share = (self.course)(t);
        let first = (3.0 * x[0]).sin() + 0.5 * x[1];
        let second = (4.0 * x[1]).cos() - x[0];
        let mut y = (1.0 - share) * first + share * second + 0.2 * (uniform(2) - 0.5);
        if self.wild.is_some_and(|wild| noise.bits_at(3).is_multiple_of(wild)) {
            // The larger, the rarer: its fourth moment doesn't exist.
            y += (uniform(4) - 0.5).signum() / uniform(5).max(1e-4).powf(0.4);
        }
        (features(self.plan.map(), &x), y)
    }

    /// Learns; the squared error.
    fn learn(&mut self, node: usize, t: u64) -> f32 {
        let (z, y) = self.sample(node, t);
        let z = Features::checked(&z).unwrap();
        let error = self.nodes[node].predict(z) - y;
        self.nodes[node].learn(z, y).unwrap();
        error * error
    }

    fn upload(&self, node: usize) -> Upload {
        let mut upload = Upload::default();
        assert!(self.nodes[node].upload(&mut upload));
        assert!(upload.numbers.len() <= self.plan.config().budget);
        upload
    }

    fn send(&mut self, node: usize) {
        let upload = self.upload(node);
        self.server.accept(node as u32, &upload).unwrap();
    }

    fn close(&mut self) {
        let broadcast = self.server.close_round();
        self.nodes.iter_mut().for_each(|node| node.adopt(broadcast).unwrap());
    }

    /// A round of all nodes; the mean squared error.
    fn round(&mut self, t: u64) -> f32 {
        let mut sum = 0.0;
        for node in 0..NODES {
            sum += self.learn(node, t);
            self.send(node);
        }
        self.close();
        sum / NODES as f32
    }

    fn errors(&mut self, rounds: core::ops::Range<u64>) -> f32 {
        let count = (rounds.end - rounds.start) as f32;
        rounds.map(|t| self.round(t)).sum::<f32>() / count
    }

    /// The last number of GR-OFL's latest broadcast.
    fn code(&self) -> u32 {
        let whole = self.server.catch_up();
        let numbers = match self.plan.method().name {
            "tr" => {
                // Units may follow; the length of GR-OFL's model is in the header.
                let header = whole.numbers.len() - TR_TAIL;
                &whole.numbers[..whole.numbers[header + 6] as usize + crate::common::TAIL]
            }
            _ => &whole.numbers[..],
        };
        *numbers.last().unwrap() as u32
    }

    fn stage(&self) -> Stage {
        let numbers = &self.server.broadcast().numbers;
        let from_end = if self.plan.method().name == "tr" { 2 } else { 1 };
        match numbers[numbers.len() - from_end] as u32 / 4 % 32 {
            0 => Stage::Usual,
            1 => Stage::Rival,
            2 => Stage::Trial,
            _ => Stage::Check,
        }
    }

    /// How often nodes were told to forget, and whether something came back the last time.
    fn orders(&self) -> (u32, bool) {
        let code = self.code() / 128;
        (code / 4 % 16, code % 4 == 1)
    }

    /// Goes on from `t` until a round is about this. The next round.
    fn until(&mut self, mut t: u64, stage: Stage) -> u64 {
        let last = t + 200;
        while self.stage() != stage {
            self.round(t);
            t += 1;
            assert!(t < last, "never {stage:?}");
        }
        t
    }

    fn state(&self) -> Vec<Vec<u8>> {
        self.nodes.iter().map(|node| node.save()).chain([self.server.save()]).collect()
    }

    fn restored(&self) -> Self {
        let Self { plan, course, wild, .. } = self;
        let mut copy = Self {
            plan: plan.clone(),
            nodes: (0..NODES as u32).map(|id| plan.node_method(id)).collect(),
            server: plan.server_method(),
            course: *course,
            wild: *wild,
        };
        for (copy, node) in copy.nodes.iter_mut().zip(&self.nodes) {
            copy.restore(&node.save()).unwrap();
        }
        copy.server.restore(&self.server.save()).unwrap();
        copy
    }
}

const STILL: Course = |_| 0.0;
const ABRUPT: Course = |t| f32::from(u8::from(t >= 200));
const GRADUAL: Course = |t| ((t as f32 - 200.0) / 200.0).clamp(0.0, 1.0);

const SECOND: Course = |_| 1.0;

#[test]
fn the_past_is_forgotten_after_a_change() {
    for method in ["gr", "tr"] {
        // Without a past, and without units, which may have to begin anew.
        let fresh = World::after("gr", SECOND, 200).errors(200..300);
        for course in [ABRUPT, GRADUAL] {
            let mut world = World::after(method, course, 200);
            assert_eq!(world.orders().0, 0, "{method} before the change");
            world.errors(200..500);
            let error = world.errors(500..600);
            // Together the two functions leave ten times as much.
            assert!(error < 1.3 * fresh, "{method}: {error}, and {fresh} without a past");
            assert!(world.orders().0 > 0);
        }
    }
}

#[test]
fn wild_labels_are_no_change() {
    for method in ["gr", "tr"] {
        for wild in [3, 10, 50] {
            let mut world = World::new(method, STILL);
            world.wild = Some(wild);
            world.errors(0..600);
            assert_eq!(world.orders(), (0, false), "{method}, one in {wild}");
        }
    }
}

#[test]
fn what_was_forgotten_comes_back() {
    const THERE_AND_BACK: Course = |t| f32::from(u8::from((200..300).contains(&t)));
    // Units begin anew, and GR-OFL had few rounds while there were units.
    for (method, most) in [("gr", 1.3), ("tr", 4.0)] {
        let mut world = World::after(method, THERE_AND_BACK, 100);
        let before = world.errors(100..200);
        world.errors(200..300);
        let (orders, is_back) = world.orders();
        assert!(orders > 0 && !is_back, "{method}");
        world.errors(300..320);
        assert_eq!(world.orders(), (orders + 1, true), "{method}");
        // At once as good as after 100 rounds.
        let after = world.errors(320..340);
        assert!(after < most * before, "{method}: {after} after {before}");
        world.errors(340..480);
        let later = world.errors(480..500);
        assert!(later < 1.5 * before, "{method}: {later} after {before}");
    }
}

/// Positions of numbers in an upload of GR-OFL, from its end.
const VOTE: usize = 6;
const ERROR: usize = 5;
const SAMPLES: usize = 1;

#[test]
fn a_liar_makes_nobody_forget() {
    // Errors that are huge or nothing, from round 200 on; and the best vote for every rival, with
    // more samples than anybody has.
    for (error, vote, samples) in [(1e6, 1.0, 1.0), (0.0, 1.0, 1e6), (1e6, -1.0, 1e6)] {
        let mut world = World::after("gr", STILL, 200);
        let honest = world.restored().errors(200..400);
        for t in 200..400 {
            let stage = world.stage();
            for node in 0..NODES {
                world.learn(node, t);
                let mut upload = world.upload(node);
                let len = upload.numbers.len();
                if node == 0 {
                    upload.numbers[len - ERROR] = error;
                    upload.numbers[len - SAMPLES] = samples;
                    if matches!(stage, Stage::Rival | Stage::Trial) {
                        upload.numbers[len - VOTE] = 1.5 * vote;
                        let refused = world.server.accept(0, &upload).unwrap_err();
                        assert!(matches!(refused, Rejected::OutOfBounds { bound: 1.0, .. }));
                        upload.numbers[len - VOTE] = vote;
                    }
                }
                world.server.accept(node as u32, &upload).unwrap();
            }
            world.close();
            assert_eq!(world.orders(), (0, false), "{error} {vote} {samples} in round {t}");
        }
        // Once it tells the truth, all is as it was.
        world.errors(400..500);
        let error = world.errors(500..600);
        assert!(error < 1.2 * honest, "{error} instead of {honest}");
        assert_eq!(world.orders(), (0, false));
    }
}

#[test]
fn who_joins_or_missed_it_follows() {
    for method in ["gr", "tr"] {
        for stage in [Stage::Check, Stage::Rival, Stage::Trial] {
            let mut world = World::after(method, ABRUPT, 200);
            let t = world.until(200, stage);
            // Node 1 is replaced by a newcomer, and node 2 is absent until all have forgotten.
            world.nodes[1] = world.plan.node_method(1);
            let refused = world.nodes[1].adopt(&world.server.broadcast().clone());
            assert_eq!(refused.is_err(), stage == Stage::Rival || method == "tr" && t > 60);
            let whole = world.server.catch_up().into_owned();
            world.nodes[1].adopt(&whole).unwrap();
            let mut absent = world.nodes.remove(2);
            let mut late = world.plan.node_method(2);
            core::mem::swap(&mut absent, &mut late);
            world.nodes.insert(2, absent);
            world.nodes[2].adopt(&whole).unwrap();
            (t..400).for_each(|t| _ = world.round(t));
            assert!(world.orders().0 > 0);
            // It knows of the first function alone.
            late.adopt(&world.server.catch_up()).unwrap();
            world.nodes[2] = late;
            let error = world.errors(401..440);
            let usual = World::after(method, ABRUPT, 400).errors(401..440);
            assert!(error < 1.5 * usual, "{method} {stage:?}: {error}, usually {usual}");
        }
    }
}

#[test]
fn states_are_saved_in_the_middle_of_a_suspicion() {
    for method in ["gr", "tr"] {
        let mut one = World::after(method, ABRUPT, 195);
        let mut other = one.restored();
        let mut seen = Vec::new();
        for t in 195..260 {
            one.learn(0, t);
            other.learn(0, t);
            other = other.restored();
            for node in 1..NODES {
                one.learn(node, t);
                other.learn(node, t);
            }
            for node in 0..NODES {
                one.send(node);
                other.send(node);
            }
            one.close();
            other.close();
            assert!(one.state() == other.state(), "{method}: round {t}");
            seen.push(one.stage());
        }
        for stage in [Stage::Usual, Stage::Check, Stage::Rival, Stage::Trial] {
            assert!(seen.contains(&stage), "{method}: {seen:?}");
        }
        assert!(one.orders().0 > 0);
    }
}

#[test]
fn a_change_of_scale_ends_a_trial_and_nothing_else() {
    let scale = |label: f64| Scale::from_ranges(&[(0.0, 1.0), (0.0, 1.0), (0.0, label)]).unwrap();
    for method in ["gr", "tr"] {
        for stage in [Stage::Check, Stage::Rival, Stage::Trial] {
            let mut world = World::after(method, ABRUPT, 200);
            let t = world.until(200, stage);
            let z = world.sample(0, 999).0;
            let z = Features::checked(&z).unwrap();
            let before = world.nodes[0].predict(z);
            let rescaling = world.plan.map().rescaling(&scale(1.0), &scale(2.0));
            world.server.rescale(&rescaling);
            world.nodes.iter_mut().for_each(|node| node.rescale(&rescaling));
            assert_eq!(world.stage(), Stage::Usual);
            let after = 2.0 * world.nodes[0].predict(z);
            assert!((before - after).abs() < 1e-4, "{method} {stage:?}: {before}, {after}");
            // And back, so that the stream goes on as it was.
            let rescaling = world.plan.map().rescaling(&scale(2.0), &scale(1.0));
            world.server.rescale(&rescaling);
            world.nodes.iter_mut().for_each(|node| node.rescale(&rescaling));
            assert!(world.state() == world.restored().state());
            world.errors(t..500);
            let error = world.errors(500..540);
            let usual = World::after(method, ABRUPT, 500).errors(500..540);
            assert!(error < 1.5 * usual, "{method} {stage:?}: {error}, usually {usual}");
            assert!(world.orders().0 > 0);
        }
    }
}
