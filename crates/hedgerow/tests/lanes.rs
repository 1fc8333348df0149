//! A round divided among workers has the same bits as an undivided round: for every method, with
//! missing nodes, compressed messages and changes of scale.

#![allow(clippy::unwrap_used)]

use std::num::NonZeroU16;

use crate::common::{Case, config, features, methods};
use hedgerow::aggregation::Aggregation;
use hedgerow::codec::{Coding, Compression, NumberFormat};
use hedgerow::executor::{Executor, Sequential};
use hedgerow::features::Features;
use hedgerow::federation::{Contact, NodeRound, Observations, RoundError};
use hedgerow::random::CounterRng;
use hedgerow::scaling::Scale;
use hedgerow::{Federation, NodeId};

const KERNELS: usize = 3;
const INPUTS: usize = 2;

/// Features of a divided round, and some more for absent nodes.
const FEATURES: usize = (1 << 18) + 20_000;

/// Threads that take tasks in any order.
struct Threads(usize);

impl Executor for Threads {
    fn each<T: Send>(&self, tasks: &mut [T], act: impl Fn(&mut T) + Sync) {
        let tasks = std::sync::Mutex::new(tasks.iter_mut());
        std::thread::scope(|scope| {
            for _ in 0..self.0 {
                scope.spawn(|| {
                    loop {
                        let Some(task) = tasks.lock().unwrap().next() else { break };
                        act(task);
                    }
                });
            }
        });
    }
}

/// A method with as many nodes as it takes.
struct World {
    case: Case,
    chance: CounterRng,
}

impl World {
    fn new(method: &'static str, aggregation: Aggregation, features: usize) -> Self {
        let config = config(method, KERNELS).frequencies(Some(20)).aggregation(aggregation);
        let case = Case::new(config);
        let nodes = features / case.plan.width();
        Self { case: case.with(|config| config.nodes(nodes)), chance: CounterRng::from_seed(8) }
    }

    fn federation(&self, compression: Option<Compression>) -> Federation {
        let compression = compression.unwrap_or_default();
        Federation::new(&self.case.with(|config| config.compression(compression)).plan)
    }

    /// The number of samples per node in a round, and the nodes without contact.
    fn turns(&self, round: u64) -> Vec<(NodeId, usize, Contact)> {
        let nodes = self.case.config().nodes as u64;
        let turn = |node: u64| {
            let dice = self.chance.bits_at((round * nodes + node) * 2);
            let contact = match dice % 16 {
                0 => Contact::Lost,
                1 => Contact::Late,
                _ => Contact::Full,
            };
            let samples = [1, 1, 1, 0, 2][(dice >> 8) as usize % 5];
            // Some nodes join late, and some are absent.
            (dice >> 16 & 63 != 0).then_some((node as NodeId, samples, contact))
        };
        (0..nodes).filter_map(turn).collect()
    }

    /// Runs rounds. Returns the final states and all predictions.
    fn play(
        &self,
        workers: Option<&Threads>,
        waves: usize,
        compression: Option<Compression>,
    ) -> (Vec<u8>, Vec<f64>) {
        let mut federation = self.federation(compression);
        let mut seen = Vec::new();
        for round in 0..3 {
            let turns = self.turns(round);
            let samples: usize = turns.iter().map(|turn| turn.1).sum();
            let numbers = |from: u64, count: usize| -> Vec<f32> {
                (0..count as u64)
                    .map(|at| self.chance.uniform_at((from << 40) + at) as f32)
                    .collect()
            };
            let z = features(self.case.map(), &numbers(2 * round + 1, samples * INPUTS));
            let (z, y) = (Features::checked(&z).unwrap(), numbers(2 * round + 2, samples));
            let (mut at, width) = (0, self.case.map().width());
            let visit = |&(node, samples, contact): &(NodeId, usize, Contact)| {
                let own = at..at + samples;
                at = own.end;
                NodeRound {
                    node,
                    z: z.part(own.start * width..own.end * width),
                    y: &y[own],
                    contact,
                }
            };
            let visits: Vec<NodeRound<'_>> = turns.iter().map(visit).collect();
            match workers {
                None => federation
                    .round(&visits, |one| seen.push(f64::from(one.value) + one.method.norm2()))
                    .unwrap(),
                Some(workers) => {
                    for visits in visits.chunks(visits.len().div_ceil(waves)) {
                        let mut numbers = vec![0.0; visits.iter().map(|visit| visit.y.len()).sum()];
                        let observations = Observations { numbers: &mut numbers, width: 1 };
                        let observe = |one: hedgerow::federation::Prediction<'_>,
                                       note: &mut [f64]| {
                            note[0] = f64::from(one.value) + one.method.norm2();
                        };
                        federation.run_nodes(visits, workers, observations, observe).unwrap();
                        seen.extend(numbers);
                    }
                    federation.close(workers).unwrap();
                }
            }
            if round == 1 {
                // All nodes in another scale.
                let scale = |size: f64| {
                    Scale::from_ranges(&[(0.0, size), (0.0, size), (0.0, 1.0)]).unwrap()
                };
                let rescalings = [Some(self.case.map().rescaling(&scale(1.0), &scale(1.3)))];
                federation.rescale_server(&rescalings);
                for node in 0..self.case.config().nodes as NodeId {
                    federation.rescale_node(node, &rescalings).unwrap();
                }
            }
        }
        (federation.save(), seen)
    }
}

const ONE: NonZeroU16 = NonZeroU16::MIN;

fn compressed() -> Compression {
    let part = NonZeroU16::new(2).unwrap_or(ONE);
    let coding = Coding { numbers: NumberFormat::Bits8, part };
    Compression { every: ONE, up: coding, down: Coding { part: ONE, ..coding } }
}

#[test]
fn the_number_of_workers_changes_no_bit() {
    for method in methods(KERNELS) {
        for compression in [None, Some(compressed())] {
            let world = World::new(method, Aggregation::Mean, FEATURES);
            let alone = world.play(None, 1, compression);
            assert!(alone.1.len() > 2 * world.case.config().nodes);
            // Also chunks that are too small to be divided.
            for (threads, waves) in [(1, 1), (2, 1), (3, 2), (7, 1)] {
                let together = world.play(Some(&Threads(threads)), waves, compression);
                let name = format!("{}, {threads} threads, {waves} waves, {compression:?}", method);
                assert!(together.1 == alone.1, "predictions: {name}");
                assert!(together.0 == alone.0, "states: {name}");
            }
        }
    }
}

#[test]
fn neither_does_the_number_of_waves() {
    let world = World::new("pof", Aggregation::Mean, 3 * FEATURES);
    let alone = world.play(None, 1, Some(compressed()));
    for waves in [2, 3] {
        assert!(world.play(Some(&Threads(2)), waves, Some(compressed())) == alone, "{waves}");
    }
}

#[test]
fn uploads_that_are_kept_are_kept_in_lanes_too() {
    for aggregation in [Aggregation::Median, Aggregation::TrimmedMean { share: 0.2 }] {
        let world = World::new("emk", aggregation, 2 * FEATURES);
        let alone = world.play(None, 1, None);
        assert!(world.play(Some(&Threads(3)), 2, None) == alone, "{aggregation}");
    }
}

#[test]
fn who_comes_twice_in_a_round_is_counted_once() {
    let world = World::new("mk", Aggregation::Mean, FEATURES);
    let nodes = world.case.config().nodes;
    let z = features(world.case.map(), &vec![0.3; nodes * INPUTS]);
    let (z, y, width) = (Features::checked(&z).unwrap(), vec![0.5; nodes], world.case.plan.width());
    let visit = |node: usize| {
        let z = z.part(node * width..(node + 1) * width);
        NodeRound { node: node as NodeId, z, y: &y[node..=node], contact: Contact::Full }
    };
    let visits: Vec<NodeRound<'_>> = (0..nodes).map(visit).collect();
    let mut federation = world.federation(None);
    for _ in 0..2 {
        let mut numbers = vec![0.0; nodes];
        let observations = Observations { numbers: &mut numbers, width: 1 };
        federation.run_nodes(&visits, &Threads(2), observations, |_, _| {}).unwrap();
    }
    federation.close(&Sequential).unwrap();
    assert_eq!(federation.traffic().uploads_accepted, nodes as u64);
    assert_eq!(
        (federation.server().broadcast(0).round, federation.votes().iter().sum()),
        (2, nodes as u64)
    );
}

#[test]
fn the_first_bad_node_is_named_and_the_round_stays_open() {
    let world = World::new("mk", Aggregation::Mean, FEATURES);
    let nodes = world.case.config().nodes;
    let z = features(world.case.map(), &[0.3; INPUTS]);
    let (z, good, bad) = (Features::checked(&z).unwrap(), [0.5], [f32::NAN]);
    let visit = |node: usize| {
        let y = if [nodes / 2, nodes - 1].contains(&node) { &bad } else { &good };
        NodeRound { node: node as NodeId, z, y, contact: Contact::Full }
    };
    let visits: Vec<NodeRound<'_>> = (0..nodes).map(visit).collect();
    let mut federation = world.federation(None);
    let mut numbers = vec![0.0; nodes];
    let observations = Observations { numbers: &mut numbers, width: 1 };
    let error = federation.run_nodes(&visits, &Threads(2), observations, |_, _| {}).unwrap_err();
    assert!(
        matches!(error, RoundError::BadSample { node, .. } if node as usize == nodes / 2),
        "{error}"
    );
    assert_eq!(federation.server().broadcast(0).round, 1);
}
