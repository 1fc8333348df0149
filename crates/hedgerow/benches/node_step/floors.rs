//! TR-OFL and the own layer beside what the machine can do at best.

use std::hint::black_box;
use std::time::Instant;

use hedgerow::features::Features;
use hedgerow::message::Upload;
use hedgerow::own_layer::{MAX_OWN_FEATURES, OwnLayer};
use hedgerow::probe::{self, Machine};
use hedgerow::random::CounterRng;
use hedgerow::{NodeMethod, Plan, PlanConfig, ServerMethod};

use crate::tr_round::RoundKind;

const NODES: usize = 20;
const INPUTS: usize = 16;
/// Samples that a node remembers.
const SAMPLES: usize = 1008;
/// Units in a group, and all of them, for so many inputs and r = 100.
const GROUP: usize = 5;
const UNITS: usize = 60;
/// The share of the output block among the rounds of units.
const OUTPUT_SHARE: f64 = 1.0 / 6.0;
/// Rounds in which each group is asked for at least once.
const CYCLE: usize = 96;

pub(crate) fn report() {
    let mut machine = probe::machine();
    let mut took = [f64::INFINITY; 3];
    let mut federation = Units::new();
    for _ in 0..5 {
        let [node, close] = federation.cycle();
        took = [took[0].min(node), took[1].min(close), took[2].min(own_layer())];
        machine = machine.at_best(probe::machine());
    }
    let row = |what: &str, ns: f64, floor: f64| {
        println!(
            "{}",
            serde_json::json!({ "what": what, "ns": ns, "floor": floor, "share": floor / ns })
        );
    };
    row("TR-OFL, a node's round", took[0], node_floor(&machine));
    row("TR-OFL, closing a round", took[1], close_floor(&machine));
    row("own layer, a sample", took[2], own_layer_floor(&machine));
    println!(
        "{}",
        serde_json::json!({
            "bytes of a saved node": federation.nodes[0].save().len(),
            "bytes of a saved layer": OwnLayer::new(MAX_OWN_FEATURES).save().len(),
            "mul_adds_per_ns": machine.mul_adds_per_ns, "ns_per_sin_cos": machine.ns_per_sin_cos,
        })
    );
}

/// What a round took, and what it was about.
struct Round {
    node: f64,
    close: f64,
    kind: Option<RoundKind>,
}

/// A federation whose nodes remember all that they can and whose units are all there.
struct Units {
    plan: Plan,
    nodes: Vec<Box<dyn NodeMethod>>,
    server: Box<dyn ServerMethod>,
    round: u64,
}

impl Units {
    fn new() -> Self {
        let config = PlanConfig::default().method("tr".parse().unwrap()).inputs(INPUTS);
        let plan = Plan::new(config.nodes(NODES).memory(SAMPLES * 4 * (INPUTS + 4))).unwrap();
        let nodes = (0..NODES as u32).map(|id| plan.node_method(id)).collect();
        let mut federation = Self { nodes, server: plan.server_method(), plan, round: 0 };
        // Units come a group at a time.
        let samples = (0..660).map(|round| if round < 60 { SAMPLES / 40 } else { 1 });
        let grew = samples.filter(|n| federation.round(*n).kind == Some(RoundKind::Growth));
        assert_eq!(grew.count(), UNITS / GROUP, "groups of units");
        federation
    }

    /// Nanoseconds of a node's round in which a step is made, and of closing it: medians of each
    /// kind of block, in the share that it has.
    fn cycle(&mut self) -> [f64; 2] {
        let rounds: Vec<_> = (0..CYCLE).map(|_| self.round(1)).collect();
        let median = |kind: RoundKind, part: fn(&Round) -> f64| {
            let alike = rounds.iter().filter(|round| round.kind == Some(kind));
            let mut times: Vec<f64> = alike.map(part).collect();
            times.sort_by(f64::total_cmp);
            assert!(times.len() >= 5, "{} rounds of {kind:?} in {CYCLE}", times.len());
            times[times.len() / 2]
        };
        let parts: [fn(&Round) -> f64; 2] = [|round| round.node, |round| round.close];
        parts.map(|part| by_share(median(RoundKind::Output, part), median(RoundKind::Group, part)))
    }

    fn round(&mut self, samples: usize) -> Round {
        let map = self.plan.map();
        let mut z = vec![0.0; samples * map.width()];
        let (mut nodes, mut upload) = (vec![0.0; NODES], Upload::default());
        self.round += 1;
        for (id, node) in self.nodes.iter_mut().enumerate() {
            let numbers = CounterRng::from_seed(self.round * NODES as u64 + id as u64);
            let x: Vec<f32> =
                (0..(samples * INPUTS) as u64).map(|at| numbers.uniform_at(at) as f32).collect();
            let start = Instant::now();
            map.map_batch(&x, &mut z);
            let features = Features::checked(&z).unwrap().samples(map.width());
            for (z, x) in features.zip(x.chunks_exact(INPUTS)) {
                black_box(node.predict(z));
                node.learn(z, (6.0 * x[0] * x[1]).sin() + (4.0 * x[2] + x[3]).cos()).unwrap();
            }
            node.upload(&mut upload);
            nodes[id] = start.elapsed().as_nanos() as f64;
            self.server.accept(id as u32, &upload).unwrap();
        }
        let before = self.server.broadcast().clone();
        let start = Instant::now();
        self.server.close_round();
        let close = start.elapsed().as_nanos() as f64;
        for (node, took) in self.nodes.iter_mut().zip(&mut nodes) {
            let start = Instant::now();
            node.adopt(self.server.broadcast()).unwrap();
            *took += start.elapsed().as_nanos() as f64;
        }
        // All nodes do the same.
        let node = nodes.into_iter().fold(f64::INFINITY, f64::min);
        Round { node, close, kind: RoundKind::of(&before, self.server.broadcast()) }
    }
}

fn by_share(output: f64, group: f64) -> f64 {
    OUTPUT_SHARE * output + (1.0 - OUTPUT_SHARE) * group
}

/// A unit of all samples: its angles, its sines and cosines, and so many more products each.
fn unit(machine: &Machine, samples: usize, more: usize) -> f64 {
    let products = (samples * (INPUTS + 1 + more)) as f64;
    products / machine.mul_adds_per_ns + samples as f64 * machine.ns_per_sin_cos
}

/// The step on trial changes the outputs of all samples, by half and by the whole of it, and then
/// there is the gradient. The output block is linear in its parameters, and has all units.
fn node_floor(machine: &Machine) -> f64 {
    let of_output = (2 * UNITS) as f64 * unit(machine, SAMPLES, 1);
    let of_group = (4 * GROUP) as f64 * unit(machine, SAMPLES, 1)
        + GROUP as f64 * unit(machine, SAMPLES, INPUTS + 2);
    by_share(of_output, of_group)
}

/// Columns of the block for all synthetic inputs, their products, and one system of equations.
fn close_floor(machine: &Machine) -> f64 {
    const SYNTHETIC: usize = 2512;
    let block = |len: usize, units: usize| {
        let products = SYNTHETIC * len * (len + 1) / 2;
        // In f64, of which a vector holds half as many.
        let system = 2 * (len * len * len / 6 + len * len);
        units as f64 * unit(machine, SYNTHETIC, 0)
            + (products + system) as f64 / machine.mul_adds_per_ns
    };
    by_share(block(1 + INPUTS + UNITS, UNITS), block(GROUP * (INPUTS + 2), GROUP))
}

/// Nanoseconds of predicting and learning a sample, inverses included.
fn own_layer() -> f64 {
    const LEARNED: u64 = 320;
    let (mut own, numbers) = (OwnLayer::new(MAX_OWN_FEATURES), CounterRng::from_seed(3));
    let mut z = [1.0; MAX_OWN_FEATURES];
    // One of sixteen samples makes the inverses. The least of each of the sixteen.
    let mut least = [f64::INFINITY; 16];
    for time in 0..LEARNED {
        for (at, z) in (0..).zip(&mut z[1..]) {
            *z = numbers.uniform_at(MAX_OWN_FEATURES as u64 * time + at) as f32;
        }
        let start = Instant::now();
        let features = Features::checked(&z).unwrap();
        black_box(own.predict(features, time + 1, z[1], |out| {
            out.fill(0.01);
            true
        }));
        own.learn(z[2]);
        let took = start.elapsed().as_nanos() as f64;
        if time >= LEARNED / 2 {
            let least = &mut least[(time % 16) as usize];
            *least = least.min(took);
        }
    }
    least.iter().sum::<f64>() / 16.0
}

/// Five products of a matrix and a vector, a square added to one, the changes of four inverses by
/// up to fifteen samples, and four inverses of every sixteenth sample, in f64, of which a vector
/// holds half as many.
fn own_layer_floor(machine: &Machine) -> f64 {
    let len = MAX_OWN_FEATURES + 4;
    let changes = 4 * 15 * len;
    let products = 5 * len * len + len * len / 2 + changes + 4 * len * len * len / 2 / 16;
    (2 * products) as f64 / machine.mul_adds_per_ns
}
