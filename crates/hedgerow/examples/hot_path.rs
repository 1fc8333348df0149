//! A fixed amount of the most frequent work of nodes, whose instructions `cargo xtask guard`
//! counts: `hot_path CASE TIMES`.
//!
//! Without a case it lists them. It prints the instruction set it used, because counts of different
//! sets don't compare.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::hint::black_box;

use hedgerow::features::{Amplitude, Draw, FeatureMap, FeatureSpec, Features, Kernel};
use hedgerow::message::{Broadcast, Upload};
use hedgerow::own_layer::{MAX_OWN_FEATURES, OwnLayer};
use hedgerow::random::CounterRng;
use hedgerow::simd::Cpu;
use hedgerow::{NodeMethod, Plan, PlanConfig, PlanError, ServerMethod};

#[path = "../benches/node_step/tr_round.rs"]
mod tr_round;

use tr_round::RoundKind;

const CASES: [&str; 10] = [
    "map-one",
    "map-eight",
    "map-independent",
    "map-structured",
    "learn",
    "exchange",
    "own-layer",
    "gr-round",
    "tr-node",
    "tr-close",
];

const INPUTS: usize = 77;
const FREQUENCIES: usize = 49;
const NODES: usize = 8;
/// Rounds after which the model of a small federation is complete, and a node's samples in each.
const FIRST_ROUNDS: u64 = 50;
const FIRST_SAMPLES: u64 = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(case), Some(times)) = (arguments.next(), arguments.next()) else {
        println!("{}", CASES.join("\n"));
        return Ok(());
    };
    let times: usize = times.parse()?;
    let numbers = CounterRng::from_seed(2);
    let x: Vec<f32> =
        (0..(NODES * INPUTS) as u64).map(|at| numbers.uniform_at(at) as f32).collect();
    match case.as_str() {
        "map-one" => map(Draw::Shared, &x[..INPUTS], times)?,
        "map-eight" => map(Draw::Shared, &x, times)?,
        "map-independent" => map(Draw::Independent, &x, times)?,
        "map-structured" => map(Draw::Structured, &x, times)?,
        "learn" => learn(&x, times)?,
        "exchange" => exchange(&x, times)?,
        "own-layer" => own_layer(times)?,
        "gr-round" => {
            let mut federation = Small::new("gr")?;
            (0..FIRST_ROUNDS).try_for_each(|_| federation.round(FIRST_SAMPLES))?;
            (0..times).try_for_each(|_| federation.round(1))?;
        }
        "tr-node" => tr_node(times)?,
        "tr-close" => tr_close(times)?,
        other => return Err(format!("no case {other:?}; there are {}", CASES.join(", ")).into()),
    }
    println!("{}", Cpu::detect().name());
    Ok(())
}

fn feature_map(draw: Draw) -> Result<FeatureMap, Box<dyn Error>> {
    Ok(FeatureMap::new(&FeatureSpec {
        kernels: Kernel::paper_dictionary(),
        draw,
        inputs: INPUTS,
        frequencies: FREQUENCIES,
        seed: 1,
        amplitude: Amplitude::Normalised,
    })?)
}

fn plan() -> Result<Plan, PlanError> {
    Plan::new(PlanConfig::default().frequencies(Some(FREQUENCIES)).nodes(NODES).inputs(INPUTS))
}

/// Features of some samples at once.
fn map(draw: Draw, x: &[f32], times: usize) -> Result<(), Box<dyn Error>> {
    let map = feature_map(draw)?;
    let mut z = vec![0.0; x.len() / INPUTS * map.width()];
    for _ in 0..times {
        black_box(map.map_batch(black_box(x), &mut z));
    }
    Ok(())
}

/// Predicting and learning eight samples.
fn learn(x: &[f32], times: usize) -> Result<(), Box<dyn Error>> {
    let map = feature_map(Draw::Shared)?;
    let mut z = vec![0.0; NODES * map.width()];
    let z = map.map_batch(x, &mut z);
    let mut node = plan()?.node_method(0);
    for _ in 0..times {
        for (z, x) in z.samples(map.width()).zip(x.chunks_exact(INPUTS)) {
            black_box(node.predict(z));
            node.learn(z, x[0])?;
        }
    }
    Ok(())
}

/// A round of eight nodes that have learned nothing new: uploads, closing, adopting.
fn exchange(x: &[f32], times: usize) -> Result<(), Box<dyn Error>> {
    let (map, plan) = (feature_map(Draw::Shared)?, plan()?);
    let mut z = vec![0.0; NODES * map.width()];
    let z: Features<'_> = map.map_batch(x, &mut z);
    let mut nodes: Vec<_> = (0..NODES as u32).map(|id| plan.node_method(id)).collect();
    for ((node, z), x) in nodes.iter_mut().zip(z.samples(map.width())).zip(x.chunks_exact(INPUTS)) {
        node.learn(z, x[0])?;
    }
    let mut server = plan.server_method();
    let mut upload = Upload::default();
    for _ in 0..times {
        for (id, node) in nodes.iter().enumerate() {
            node.upload(&mut upload);
            server.accept(id as u32, &upload)?;
        }
        let broadcast = server.close_round();
        for node in &mut nodes {
            node.adopt(broadcast)?;
        }
    }
    Ok(())
}

/// Predicting and learning 16 samples by a node's own layer over all features that it reads; one of
/// them renews its inverses.
fn own_layer(times: usize) -> Result<(), Box<dyn Error>> {
    let (mut own, numbers) = (OwnLayer::new(MAX_OWN_FEATURES), CounterRng::from_seed(3));
    let mut z = [1.0; MAX_OWN_FEATURES];
    for time in 0..16 * times as u64 {
        for (at, z) in (0..).zip(&mut z[1..]) {
            *z = numbers.uniform_at(MAX_OWN_FEATURES as u64 * time + at) as f32;
        }
        black_box(own.predict(Features::checked(&z)?, time + 1, z[1], |out| {
            out.fill(0.01);
            true
        }));
        own.learn(z[2]);
    }
    Ok(())
}

/// A small federation.
struct Small {
    plan: Plan,
    nodes: Vec<Box<dyn NodeMethod>>,
    server: Box<dyn ServerMethod>,
    z: Vec<f32>,
    round: u64,
}

impl Small {
    const INPUTS: usize = 5;
    const NODES: usize = 2;
    /// Samples that a node remembers.
    const SAMPLES: usize = 480;

    fn new(method: &str) -> Result<Self, Box<dyn Error>> {
        let config = PlanConfig::default().method(method.parse()?).inputs(Self::INPUTS);
        let memory = Self::SAMPLES * 4 * (Self::INPUTS + 4);
        let plan = Plan::new(config.nodes(Self::NODES).memory(memory))?;
        Ok(Self {
            nodes: (0..Self::NODES as u32).map(|id| plan.node_method(id)).collect(),
            server: plan.server_method(),
            z: vec![0.0; plan.map().width()],
            plan,
            round: 0,
        })
    }

    /// All nodes learn some samples, and exchange.
    fn round(&mut self, samples: u64) -> Result<(), Box<dyn Error>> {
        self.send(samples)?;
        self.close()
    }

    /// All nodes learn some samples, and the server has their uploads.
    fn send(&mut self, samples: u64) -> Result<(), Box<dyn Error>> {
        let mut upload = Upload::default();
        for id in 0..self.nodes.len() {
            for sample in 0..samples {
                self.learn(id, sample)?;
            }
            self.nodes[id].upload(&mut upload);
            self.server.accept(id as u32, &upload)?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Box<dyn Error>> {
        self.server.close_round();
        self.round += 1;
        for node in &mut self.nodes {
            node.adopt(self.server.broadcast())?;
        }
        Ok(())
    }

    fn learn(&mut self, id: usize, sample: u64) -> Result<(), Box<dyn Error>> {
        let numbers = CounterRng::from_seed(100 * self.round + 50 * id as u64 + sample);
        let x: [f32; Self::INPUTS] = std::array::from_fn(|at| numbers.uniform_at(at as u64) as f32);
        let z = self.plan.map().map_batch(&x, &mut self.z);
        black_box(self.nodes[id].predict(z));
        let label = 6.0 * x[0] * x[1] - x[2] * x[2];
        Ok(self.nodes[id].learn(z, label - label * label * label / 9.0)?)
    }
}

/// A round of TR-OFL, to be repeated.
struct Recorded {
    round: u64,
    /// The first node before the round, and the server with all uploads of the round.
    node: Vec<u8>,
    server: Vec<u8>,
    /// The broadcast that ends the round.
    broadcast: Broadcast,
}

/// A federation and its latest round of each kind, once there is one of all.
fn tr_rounds() -> Result<(Small, Vec<Recorded>), Box<dyn Error>> {
    const KINDS: [RoundKind; 4] =
        [RoundKind::Ridge, RoundKind::Growth, RoundKind::Output, RoundKind::Group];
    const MOST_ROUNDS: u64 = 1000;
    let mut small = Small::new("tr")?;
    let mut recorded = KINDS.map(|_| None);
    for _ in 0..MOST_ROUNDS {
        let (round, before) = (small.round, small.server.broadcast().clone());
        let node = small.nodes[0].save();
        small.send(if round < FIRST_ROUNDS { FIRST_SAMPLES } else { 1 })?;
        let server = small.server.save();
        small.close()?;
        let broadcast = small.server.broadcast().clone();
        let kind = RoundKind::of(&before, &broadcast);
        if let Some(at) = KINDS.iter().position(|other| kind == Some(*other)) {
            recorded[at] = Some(Recorded { round, node, server, broadcast });
        }
        if round > FIRST_ROUNDS && recorded.iter().all(Option::is_some) {
            return Ok((small, recorded.into_iter().flatten().collect()));
        }
    }
    let missing: Vec<_> = KINDS
        .iter()
        .zip(&recorded)
        .filter(|(_, found)| found.is_none())
        .map(|(kind, _)| kind)
        .collect();
    Err(format!("{MOST_ROUNDS} rounds have none of the kinds {missing:?}").into())
}

/// A node's rounds of all kinds: a sample, its upload, the next broadcast.
fn tr_node(times: usize) -> Result<(), Box<dyn Error>> {
    let (mut small, rounds) = tr_rounds()?;
    let mut upload = Upload::default();
    for _ in 0..times {
        for recorded in &rounds {
            small.round = recorded.round;
            small.nodes[0].restore(&recorded.node)?;
            small.learn(0, 0)?;
            black_box(small.nodes[0].upload(&mut upload));
            small.nodes[0].adopt(&recorded.broadcast)?;
        }
    }
    Ok(())
}

/// Closing rounds of all kinds.
fn tr_close(times: usize) -> Result<(), Box<dyn Error>> {
    let (mut small, rounds) = tr_rounds()?;
    for _ in 0..times {
        for recorded in &rounds {
            small.server.restore(&recorded.server)?;
            let broadcast = black_box(small.server.close_round());
            assert_eq!(*broadcast, recorded.broadcast, "the round is another one");
        }
    }
    Ok(())
}
